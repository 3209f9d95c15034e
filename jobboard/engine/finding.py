"""The search for jobs to claim: what the store shows, under the rules of the board, once what has ended is settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobboard.engine.calls import AT_ONCE, Committer, standing
from jobboard.engine.limits import SCOPE, Limits, LimitScope, Rooms, lane
from jobboard.engine.rules import Rules
from jobboard.engine.store import GATE, Lane, Look, Side, Stale, Stored, weight
from jobboard.primitives import Peeked, batches
from jobboard.states import TRASHED, UNCLAIMED, Record, serving_order

_AGAIN = 5
"""After how many tries at which others were quicker a claim looks again, though it has seen more jobs."""


class Allowed(NamedTuple):
    """The jobs that may be claimed by one gate: those of ``names``, or of any name but ``without``, but none of the
    groups in ``full``. shut: no jobs at all."""

    gate: Side
    names: Sequence[str] | None
    without: Sequence[str]
    shut: bool
    full: Sequence[Lane] = ()


class Ruled:
    """The rules of one gate. It never changes, so that a thread decides by one gate throughout."""

    def __init__(self, gate: Side) -> None:
        self.rules = rules = Rules.of(gate)
        self.gate = gate
        self.paused = rules.paused
        self.limits = Limits(rules.limits)

    def limited(self, names: Sequence[str] | None) -> bool:
        """Return whether jobs of these names, None: of any name, may have limits."""
        return self.limits.bind(names)

    def allowed(self, names: Sequence[str] | None, full: Sequence[LimitScope] = ()) -> Allowed:
        """Return which jobs of these names may be claimed, but for those of full scopes."""
        lanes = [lane(scope) for scope in full]
        closed = [scope.limit.name for scope, found in zip(full, lanes, strict=True) if found is None]
        left = None if names is None else [name for name in names if name not in self.paused and name not in closed]
        without = () if names is not None else (*self.paused.names, *closed)
        full_lanes = [found for found in lanes if found is not None]
        return Allowed(self.gate, left, without, self.paused.everything or left == [], full_lanes)


class Finder:
    """Looks by the rules that it has seen last, and again where the look shows rules that let other jobs be claimed.

    :param patience: after how many µs one who waits for a full scope looks again at the latest.
    """

    def __init__(self, committer: Committer, patience: int) -> None:
        self.committer = committer
        self.patience = patience
        self.ruled = Ruled(Side(*GATE, None, None, None))
        """The rules that were seen last, perhaps by another thread. A decision reads this once."""

    def ruled_by(self, gate: Side) -> Ruled:
        """Return the rules of this gate, whatever has been seen since."""
        ruled = self.ruled
        return ruled if ruled.gate.tag == gate.tag else Ruled(gate)

    def newest(self) -> Ruled:
        """Read the gate."""
        self.ruled = ruled = Ruled(self.committer.store.read([], [GATE]).sides[0])
        return ruled

    def changed(self, since: Side) -> bool:
        """Read the gate, and return whether it is another than this."""
        return self.newest().gate.tag != since.tag

    def look(self, limit: int, names: Sequence[str] | None, readable: int, *, full: Sequence[LimitScope] = ()) -> Look:
        """Find the first jobs that may be claimed, without those of full scopes."""
        store = self.committer.store
        for _ in self.committer.tries():
            asked = self.ruled.allowed(names, full)
            gate, allowed, without, shut, lanes = asked
            look = store.look(0, [], readable) if shut else store.look(limit, allowed, readable, without, lanes)
            if look.gate.tag != gate.tag:
                self.ruled = ruled = Ruled(look.gate)
                if ruled.allowed(names, full) != asked._replace(gate=look.gate):
                    continue
            # Where nothing may be claimed, nobody waits for what ends by itself.
            return look._replace(overdue=[], next_event=None) if shut and not full else look
        raise AssertionError("unreachable")

    def settled(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        trashed: list[Record],
        *,
        full: Sequence[LimitScope] = (),
    ) -> Look:
        """Do the same after bringing what has ended back to its place. ``trashed`` takes in the jobs that went to the
        trash by that."""
        look = self.look(limit, names, readable, full=full)
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
        """Do the same without writing anything: what has ended is shown as it stands."""
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
        """Return whether a job of these names can be claimed."""
        look = Choice(self, 1, names, readable).next()
        return Peeked(bool(look.ready), look.next_event, None)

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Return those of these unclaimed jobs that the rules let be claimed, each by itself."""
        ruled = self.newest()
        rooms = Rooms(self.committer, ruled.limits, 0, None)
        rooms.learn(jobs)
        return {job.uuid for job in jobs if job.name not in ruled.paused and not rooms.full(job)}


class Choice:
    """The jobs that one call may claim, from try to try.

    Jobs at which others were quicker are theirs, and behind these jobs the order is still the one that was seen. So a
    further try goes down what is left of the look. It looks again where too few jobs are left, where the rules or a
    scope behind which it has looked have changed, and every few tries: each time it asks for more jobs.

    :param limit: how many jobs the call may claim together.
    :param trashed: takes in the jobs that went to the trash meanwhile; None: nothing is written.
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
        # The jobs that were seen and not lost; and the scopes that had no room, behind which it has looked.
        self._met: dict[str, Stored] = {}
        self._full: dict[str, LimitScope] = {}

    def next(self) -> Look:
        """Return what to claim in the next try: no more than one commit may change."""
        look, most = self._next(), self._finder.committer.store.most_bytes
        if most is None or not look.ready:
            return look
        return look._replace(ready=next(batches(look.ready, weight, len(look.ready), most)))

    def beaten(self, stale: Stale) -> None:
        """The last try was refused."""
        self._beaten += 1
        scopes = {key for kind, key in stale.sides if kind == SCOPE}
        told = bool(stale.uuids or stale.sides) and GATE not in stale.sides
        self._goes_on = told and not scopes & self._full.keys() and self._beaten % _AGAIN != 0
        for uuid in stale.uuids:
            self._met.pop(uuid, None)
        if self.rooms is not None:
            self.rooms.forget(scopes)

    def _next(self) -> Look:
        if self._look is not None and self._goes_on:
            self._goes_on = False
            chosen, enough = self._fitting()
            if enough:
                return self._look._replace(ready=chosen)
        for _ in self._finder.committer.tries():
            if (look := self._look_again()) is not None:
                return look
        raise AssertionError("unreachable")

    def _look_again(self) -> Look | None:
        """Return None where the rules have changed between two looks, or where a job has come back that may be served
        before the chosen ones."""
        finder, names, spare = self._finder, self._names, self._finder.committer.store.spare
        wanted = min(self._limit + spare * (self._looks + finder.ruled.limited(names)), 2 * AT_ONCE)
        look = self._looked(wanted)
        self._looks += 1
        ruled = finder.ruled_by(look.gate)
        self._look, self._full, self.rooms = look, {}, None
        self._met = {stored.record.uuid: stored for stored in look.ready}
        if not ruled.limited(names):
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
            waits = (event, rooms.opens_in, finder.patience)
            event = min(wait for wait in waits if wait is not None)
        self._look = look._replace(now=max(look.now, rooms.now), next_event=event)
        return self._look._replace(ready=chosen)

    def _looked(self, wanted: int, full: Sequence[LimitScope] = ()) -> Look:
        finder, names, readable = self._finder, self._names, self._readable
        if self._trashed is None:
            return finder.foreseen(wanted, names, readable, full=full)
        return finder.settled(wanted, names, readable, self._trashed, full=full)

    def _fitting(self) -> tuple[list[Stored], bool]:
        """Return the first of the jobs that can be claimed together, and whether one commit may claim no more."""
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
        """Do so by what is known of the scopes; return also the scopes that have kept others out."""
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
