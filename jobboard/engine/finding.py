"""What can be claimed next: what the store shows, under the rules of the board, once what has ended is settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobboard.engine.calls import AT_ONCE, Committer, standing
from jobboard.engine.limits import SCOPE, Limits, LimitScope, Rooms, lane
from jobboard.engine.rules import GATE, Rules
from jobboard.engine.store import Lane, Look, Mark, Side, Stale, Stored, weight
from jobboard.primitives import Peeked, batches
from jobboard.states import TRASHED, UNCLAIMED, Record, serving_order

_OFTEN = 5
"""After how many refused tries it is read which of the jobs are still there."""


class Allowed(NamedTuple):
    """Of which names a job may be: ``names``, or any but those in ``without``; ``shut``: of none; and of which groups
    not: ``full``. ``gate``: by what that was decided."""

    gate: Side
    names: Sequence[str] | None
    without: Sequence[str]
    shut: bool
    full: Sequence[Lane] = ()


class Ruled:
    """What one gate lets be claimed. It never changes, so that whoever has it decides by one gate throughout."""

    def __init__(self, gate: Side) -> None:
        self.rules = rules = Rules.of(gate)
        self.gate = gate
        self.paused = rules.paused
        self.limits = Limits(rules.limits)
        self._of_all = Allowed(gate, None, self.paused.names, self.paused.everything)

    def limited(self, names: Sequence[str] | None) -> bool:
        """Whether jobs of these names, None: of any name, may have limits."""
        return self.limits.bind(names)

    def allowed(self, names: Sequence[str] | None, full: Sequence[LimitScope] = ()) -> Allowed:
        if names is None and not full:
            return self._of_all
        gate, paused = self.gate, self.paused
        if not (full or paused):
            return Allowed(gate, names, (), not names)
        lanes = [lane(scope) for scope in full]
        closed = [scope.limit.name for scope, found in zip(full, lanes, strict=True) if found is None]
        left = None if names is None else [name for name in names if name not in paused and name not in closed]
        without = () if names is not None else (*paused.names, *closed)
        full_lanes = [found for found in lanes if found is not None]
        return Allowed(gate, left, without, paused.everything or left == [], full_lanes)


class Finder:
    """It looks by the rules that it has seen last, and again where the look shows that these have changed.

    :param patience: after how many µs one who waits for a full scope looks again at the latest.
    """

    def __init__(self, committer: Committer, patience: int) -> None:
        self.committer = committer
        self.patience = patience
        self.ruled = Ruled(Side(*GATE, None, None, None))
        """As it was seen last, perhaps by another thread. Whoever decides something reads it once."""

    def ruled_by(self, gate: Side) -> Ruled:
        """By this gate, whatever has been seen since."""
        ruled = self.ruled
        return ruled if ruled.gate.tag == gate.tag else Ruled(gate)

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        *,
        known: bool = False,
        full: Sequence[LimitScope] = (),
    ) -> Look:
        """:param known: what the store knows without a request will do.
        :param full: scopes whose jobs are left out."""
        store = self.committer.store
        for _ in self.committer.tries():
            gate, allowed, without, shut, lanes = self.ruled.allowed(names, full)
            if shut:
                look = store.look(0, [], readable)
            else:
                found = store.known(limit, allowed, readable, without) if known else None
                look = found or store.look(limit, allowed, readable, without, lanes)
            if look.gate.tag == gate.tag:
                # What ends by itself does not matter to who may have nothing.
                return look._replace(overdue=[], next_event=None) if shut and not full else look
            self.ruled = Ruled(look.gate)
        raise AssertionError("unreachable")

    def settled(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        trashed: list[Record],
        *,
        known: bool = False,
        full: Sequence[LimitScope] = (),
    ) -> Look:
        """As :meth:`look`, with what has ended brought back to its place. ``trashed`` takes in what went to the trash
        by that."""
        look = self.look(limit, names, readable, known=known, full=full)
        settled, tries = False, self.committer.tries()
        while look.overdue and not (settled and look.ready):
            met = self.committer.sweep(look.overdue, look.now)
            if not met:
                next(tries)
            trashed.extend(record for record in met if record.state == TRASHED)
            look, settled = self.look(limit, names, readable, full=full), True
        return look

    def foreseen(
        self, limit: int, names: Sequence[str] | None, readable: int, *, full: Sequence[LimitScope] = ()
    ) -> Look:
        """As :meth:`look`, for who only looks: what has ended stands as it does, and nothing is written."""
        look = self.look(limit, names, readable, full=full)
        paused = self.ruled_by(look.gate).paused
        ended = (stored._replace(record=standing(stored, look.now)) for stored in look.overdue)
        back = [
            stored
            for stored in ended
            if stored.record.state == UNCLAIMED
            and (names is None or stored.record.name in names)
            and stored.record.name not in paused
            and stored.record.version <= readable
        ]
        return look._replace(ready=sorted([*look.ready, *back], key=_order), overdue=[])

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        look = None if self.ruled.limited(names) else self.foreseen(1, names, readable)
        # That look may have come by limits which were set since.
        if look is None or self.ruled_by(look.gate).limited(names):
            look = Choice(self, 1, names, readable).next()
        return Peeked(bool(look.ready), look.next_event, None)

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Those of these jobs, all of them unclaimed, that the rules let be claimed, each by itself."""
        ruled = self.newest()
        rooms = Rooms(self.committer, ruled.limits, 0, None)
        rooms.learn(jobs)
        return {job.uuid for job in jobs if job.name not in ruled.paused and not rooms.full(job)}

    def newest(self) -> Ruled:
        """By the gate as it is now."""
        self.ruled = ruled = Ruled(self.committer.store.read([], [GATE]).sides[0])
        return ruled

    def changed(self, since: Side) -> bool:
        """Look at the gate: whether it is another than this."""
        return self.newest().gate.tag != since.tag

    # The rules themselves

    def rules(self) -> Rules:
        return self.newest().rules

    def bind(self, setting: str) -> None:
        """The claims that stood at this setting of a limit are counted. A try that is late does nothing: what it
        changes was there, and has a tag that never returns."""
        for _ in self.committer.tries():
            ruled = self.newest()
            binding = ruled.rules.counted(setting)
            marks = [Mark(ruled.gate, binding.packed(), wakes=True)] if binding != ruled.rules else []
            try:
                # A repetition that has nothing to change may have to wait for what its first try has changed.
                committed = self.committer.commit([], marks)
            except Stale:
                continue
            if marks:
                [gate] = committed.sides
                self.ruled = Ruled(gate)
            return


class Choice:
    """The jobs that one call may claim, from try to try.

    Those at which others were quicker are theirs, and behind them the order is still the one that was seen. So it goes
    down what is left, reads again what room there is where that was refused, and looks anew only where too few are
    left: each time at more of them.

    :param limit: how many it may claim, together with each other.
    :param trashed: takes in the jobs that went to the trash meanwhile; None: it is only looked, and nothing written.
    """

    rooms: Rooms | None = None
    """The room that the jobs have which are chosen; None where there are no limits."""

    def __init__(
        self,
        finder: Finder,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        trashed: list[Record] | None = None,
    ) -> None:
        self._finder = finder
        self._limit = limit
        self._names = names
        self._readable = readable
        self._trashed = trashed
        self._looks = self._beaten = 0
        self._look: Look | None = None
        self._goes_on = False
        self._lost: set[str] = set()
        # What has been seen and not been lost; and the scopes that had no room, behind which it has looked.
        self._met: dict[str, Stored] = {}
        self._full: dict[str, LimitScope] = {}

    def next(self) -> Look:
        """What to claim in the next try: no more than one commit may change."""
        look, most = self._next(), self._finder.committer.store.most_bytes
        if most is None or not look.ready:
            return look
        return look._replace(ready=next(batches(look.ready, weight, len(look.ready), most)))

    def _next(self) -> Look:
        if self._look is not None and self._goes_on:
            self._goes_on = False
            self._drop_lost()
            chosen, enough = self._fitting()
            if enough:
                return self._look._replace(ready=chosen)
        for _ in self._finder.committer.tries():
            if (look := self._look_anew()) is not None:
                return look
        raise AssertionError("unreachable")

    def beaten(self, stale: Stale) -> None:
        """The last try was refused."""
        self._beaten += 1
        scopes = {key for kind, key in stale.sides if kind == SCOPE}
        told = bool(stale.uuids or stale.sides) and GATE not in stale.sides
        # Of a scope behind which it has looked there may be other jobs that have room now.
        self._goes_on = told and not scopes & self._full.keys()
        self._lost |= stale.uuids
        if self.rooms is not None:
            self.rooms.forget(scopes)

    def _drop_lost(self) -> None:
        """Who has been beaten often is behind the others, and would come too late at each of the jobs that these have
        taken meanwhile: now and then all of them are left out at once."""
        left = [stored for uuid, stored in self._met.items() if uuid not in self._lost]
        if self._lost and left and self._beaten % _OFTEN == 0:
            self._lost |= self._finder.committer.store.lost(left)
        self._met = {uuid: stored for uuid, stored in self._met.items() if uuid not in self._lost}
        self._lost = set()

    def _look_anew(self) -> Look | None:
        """None: the rules have changed meanwhile, or a job has come back that may be served before those it chose."""
        finder, names, spare = self._finder, self._names, self._finder.committer.store.spare
        limited = finder.ruled.limited(names)
        wanted = min(self._limit + spare * (self._looks + limited), 2 * AT_ONCE)
        look = self._looked(wanted)
        self._looks += 1
        ruled = finder.ruled_by(look.gate)
        if ruled.limited(names) is not limited:
            return None
        self._look, self._full, self._lost, self.rooms = look, {}, set(), None
        self._met = {stored.record.uuid: stored for stored in look.ready}
        if not limited:
            return look._replace(ready=look.ready[: self._limit])
        self.rooms = rooms = Rooms(finder.committer, ruled.limits, look.now, self._trashed)
        event, known = look.next_event, 0
        chosen, enough = self._fitting()
        while not enough and len(look.ready) >= wanted and len(self._full) > known:
            # There may be others behind those that have to wait; and where more have to, many may.
            if known:
                wanted = min(4 * wanted, 2 * AT_ONCE)
            known = len(self._full)
            look = self._looked(wanted, list(self._full.values()))
            if look.gate.tag != self._look.gate.tag:
                return None
            self._met |= {stored.record.uuid: stored for stored in look.ready}
            chosen, enough = self._fitting()
        if rooms.brought_back:
            return None
        if self._full:
            if not chosen and event is None:
                # Some stores tell it only where nothing is ready.
                event = finder.committer.store.look(0, [], self._readable).next_event
            waits = (event, rooms.opens_in, finder.patience)
            event = min(wait for wait in waits if wait is not None)
        self._look = look._replace(now=max(look.now, rooms.now), next_event=event)
        return self._look._replace(ready=chosen)

    def _looked(self, wanted: int, full: Sequence[LimitScope] = ()) -> Look:
        finder, names, readable = self._finder, self._names, self._readable
        if self._trashed is None:
            return finder.foreseen(wanted, names, readable, full=full)
        return finder.settled(wanted, names, readable, self._trashed, known=not self._looks, full=full)

    def _fitting(self) -> tuple[list[Stored], bool]:
        """The first of the jobs that can be claimed together, and whether these are as many as one commit may claim."""
        met, rooms = sorted(self._met.values(), key=_order), self.rooms
        if rooms is None:
            return met[: self._limit], len(met) >= self._limit
        rooms.learn(stored.record for stored in met)
        while True:
            chosen, full, enough = self._entering(rooms, met)
            # A list that was shorter than its limit may have no room for a second one, and claims that have ended.
            if not rooms.clear(full):
                self._full |= full
                return chosen, enough

    def _entering(self, rooms: Rooms, met: Sequence[Stored]) -> tuple[list[Stored], dict[str, LimitScope], bool]:
        """And the scopes that have kept others out."""
        rooms.leave()
        chosen: list[Stored] = []
        full: dict[str, LimitScope] = {}
        enough = False
        for stored in met:
            if closed := rooms.full(stored.record):
                full |= {scope.key: scope for scope in closed}
                continue
            rooms.enter(stored.record)
            chosen.append(stored)
            if enough := len(chosen) == self._limit or rooms.heavy:
                break
        rooms.leave()
        return chosen, full, enough


def _order(stored: Stored) -> tuple[int, int]:
    return serving_order(stored.record)
