"""What can be claimed next: what the store shows, under the rules of the board, once what has ended is settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jobboard.engine.calls import Committer, standing
from jobboard.engine.limits import Limits, LimitScope, Rooms, lane
from jobboard.engine.rules import GATE, Rules
from jobboard.engine.store import Lane, Look, Mark, Side, Stale, Stored
from jobboard.primitives import Peeked
from jobboard.states import TRASHED, UNCLAIMED, Record, serving_order


class Allowed(NamedTuple):
    """Of which names a job may be: ``names``, or any but those in ``without``; ``shut``: of none; and of which groups
    not: ``full``. ``gate``: by what that was decided."""

    gate: Side
    names: Sequence[str] | None
    without: Sequence[str]
    shut: bool
    full: Sequence[Lane] = ()


class Finder:
    """It looks by the rules that it has seen last, and again where the look shows that these have changed.

    :param patience: after how many µs one who waits for a full scope looks again at the latest.
    """

    def __init__(self, committer: Committer, patience: int) -> None:
        self._committer = committer
        self._patience = patience
        self._saw(Side(*GATE, None, None, None))

    def allowed(self, names: Sequence[str] | None, full: Sequence[LimitScope] = ()) -> Allowed:
        if names is None and not full:
            return self._of_all
        gate, paused = self._gate, self._rules.paused
        lanes = [lane(scope) for scope in full]
        closed = [scope.limit.name for scope, found in zip(full, lanes, strict=True) if found is None]
        left = None if names is None else [name for name in names if name not in paused and name not in closed]
        without = () if names is not None else (*paused.names, *closed)
        full_lanes = [found for found in lanes if found is not None]
        return Allowed(gate, left, without, paused.everything or left == [], full_lanes)

    @property
    def limits(self) -> Limits:
        """As they were seen last."""
        return self._limits

    def limited(self, names: Sequence[str] | None) -> bool:
        """Whether jobs of these names, None: of any name, may have limits."""
        return self._limits.bind(names)

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
        store = self._committer.store
        for _ in self._committer.tries():
            gate, allowed, without, shut, lanes = self.allowed(names, full)
            if shut:
                look = store.look(0, [], readable)
            else:
                found = store.known(limit, allowed, readable, without) if known else None
                look = found or store.look(limit, allowed, readable, without, lanes)
            if look.gate.tag == gate.tag:
                # What ends by itself does not matter to who may have nothing.
                return look._replace(overdue=[], next_event=None) if shut and not full else look
            self._saw(look.gate)
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
        settled, tries = False, self._committer.tries()
        while look.overdue and not (settled and look.ready):
            met = self._committer.sweep(look.overdue, look.now)
            if not met:
                next(tries)
            trashed.extend(record for record in met if record.state == TRASHED)
            look, settled = self.look(limit, names, readable, full=full), True
        return look

    def choose(
        self, limit: int, names: Sequence[str] | None, readable: int, trashed: list[Record], *, known: bool = False
    ) -> tuple[Look, Rooms | None]:
        """As :meth:`settled`; and where there may be limits, those of the jobs that can be claimed together with each
        other, at most ``limit``, with the room that they have."""
        if not self.limited(names):
            look = self.settled(limit, names, readable, trashed, known=known)
            if not self.limited(names):
                return look, None
        spare = self._committer.store.spare
        for _ in self._committer.tries():
            look = self.settled(limit + spare, names, readable, trashed, known=known)
            rooms = Rooms(self._committer, self._limits, look.now, trashed)
            chosen = self._fitting(limit, names, readable, trashed, look, rooms)
            if chosen is not None:
                return chosen, rooms
        raise AssertionError("unreachable")

    def _fitting(
        self, limit: int, names: Sequence[str] | None, readable: int, trashed: list[Record], look: Look, rooms: Rooms
    ) -> Look | None:
        """None: the rules have changed meanwhile."""
        gate, event, spare = look.gate, look.next_event, self._committer.store.spare
        met: dict[str, Stored] = {}
        full: dict[str, LimitScope] = {}
        while True:
            met |= {stored.record.uuid: stored for stored in look.ready}
            rooms.learn(stored.record for stored in look.ready)
            rooms.leave()
            chosen: list[Stored] = []
            known = len(full)
            for stored in sorted(met.values(), key=_order):
                if len(chosen) == limit or rooms.heavy:
                    break
                if closed := rooms.full(stored.record):
                    full |= {scope.key: scope for scope in closed}
                else:
                    rooms.enter(stored.record)
                    chosen.append(stored)
            if len(chosen) == limit or rooms.heavy or len(look.ready) < limit + spare or len(full) == known:
                break
            # There may be others behind those that have to wait.
            look = self.settled(limit + spare, names, readable, trashed, full=list(full.values()))
            if look.gate.tag != gate.tag:
                return None
        rooms.leave()
        if full:
            if not chosen and event is None:
                # Some stores tell it only where nothing is ready.
                event = self._committer.store.look(0, [], readable).next_event
            waits = (event, rooms.opens_in, self._patience)
            event = min(wait for wait in waits if wait is not None)
        return look._replace(now=max(look.now, rooms.now), ready=chosen, next_event=event)

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        look = None if self.limited(names) else self.look(1, names, readable)
        # That look may have come by limits which were set since.
        if look is None or self.limited(names):
            look, _ = self.choose(1, names, readable, [])
            return Peeked(bool(look.ready), look.next_event, None)
        paused = self._rules.paused
        coming = any(
            (record := standing(stored, look.now)).state == UNCLAIMED
            and (names is None or record.name in names)
            and record.name not in paused
            and record.version <= readable
            for stored in look.overdue
        )
        return Peeked(bool(look.ready) or coming, look.next_event, None)

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Those of these jobs, all of them unclaimed, that the rules let be claimed, each by itself."""
        self._saw(self._read_gate())
        rooms = Rooms(self._committer, self._limits, 0)
        rooms.learn(jobs)
        return {job.uuid for job in jobs if job.name not in self._rules.paused and not rooms.full(job)}

    def _saw(self, gate: Side) -> None:
        self._gate = gate
        self._rules = Rules.of(gate)
        self._limits = Limits(self._rules.limits)
        paused = self._rules.paused
        self._of_all = Allowed(gate, None, paused.names, paused.everything)

    def changed(self, since: Side) -> bool:
        """Look at the gate: whether it is another than this."""
        self._saw(self._read_gate())
        return self._gate.tag != since.tag

    # The rules themselves

    def rules(self) -> Rules:
        return Rules.of(self._read_gate())

    def rule(self, change: Callable[[Rules], Rules]) -> Rules:
        """Change the rules, to what is returned; to do it again does no harm."""
        for _ in self._committer.tries():
            gate = self._read_gate()
            before = Rules.of(gate)
            after = change(before)
            try:
                if after != before:
                    self._committer.commit([], [Mark(gate, after.packed(), wakes=True)])
            except Stale:
                continue
            return after
        raise AssertionError("unreachable")

    def _read_gate(self) -> Side:
        return self._committer.store.read([], [GATE]).sides[0]


def _order(stored: Stored) -> tuple[int, int]:
    return serving_order(stored.record)
