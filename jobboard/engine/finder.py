"""The finder: the search for jobs to claim, by the rules of the board, with lapses and due times settled."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from jobboard import codec
from jobboard.engine.committer import MOST_CHANGES, Committer, record_at
from jobboard.engine.limits import SCOPE, ClosedScope, Limits, LimitScope, Rooms, lane
from jobboard.engine.rules import Rules
from jobboard.engine.store import GATE, RETRY_HELD, Lane, Look, Side, Stale, Stored, weight
from jobboard.primitives import batches
from jobboard.states import TRASHED, UNCLAIMED, Record, serving_order

SWEEPING = 0.25
"""The seconds that a call waits for another process to sweep a job. After that the job is skipped, as a frozen process
or a caller's transaction may hold its lock."""

_AGAIN = 5
"""The number of refused tries after which a claim looks again, though it has seen more jobs."""

_HALVED = 10
"""The number of refused tries after which a claim of many jobs is content with half as many. Among others that claim
single jobs, one of many jobs always lacks some at its commit."""

SPARE_LOCKED = 8
"""The number of jobs whose scopes a call locks beside those that it claims. Others may claim the first ones while the
call waits."""

Version = tuple[str, object]
"""The uuid and the tag of a job."""


def version(stored: Stored) -> Version:
    return stored.record.uuid, stored.tag


class Allowed(NamedTuple):
    """The jobs that one gate lets be claimed.

    names: the names of the jobs; None for any name but those in ``without``. shut: no job can be claimed. full: groups
    whose jobs cannot be claimed."""

    gate: Side
    names: Sequence[str] | None
    without: Sequence[str]
    shut: bool
    full: Sequence[Lane] = ()


class GateRules:
    """The rules of one gate. They never change, so that a thread decides by one gate throughout."""

    def __init__(self, gate: Side) -> None:
        self.gate = gate
        self.rules = rules = Rules.of(gate)
        self.paused = rules.paused
        self.limits = Limits(rules.limits)

    def limited(self, names: Sequence[str] | None) -> bool:
        """Return whether jobs of these names, or (None) of any name, may have limits."""
        return self.limits.bind(names)

    def allowed(self, names: Sequence[str] | None, full: Sequence[LimitScope] = ()) -> Allowed:
        """Return the jobs of these names that may be claimed, without those of full scopes."""
        lanes = [lane(scope) for scope in full]
        closed = [scope.limit.name for scope, found in zip(full, lanes, strict=True) if found is None]
        left = None if names is None else [name for name in names if name not in self.paused and name not in closed]
        without = () if names is not None else (*self.paused.names, *closed)
        full_lanes = [found for found in lanes if found is not None]
        return Allowed(self.gate, left, without, self.paused.everything or left == [], full_lanes)


class Finder:
    """The looks for jobs. A look uses the latest known rules, and is repeated where it shows rules with other results.

    :param recheck: the µs after which a waiter for a full scope looks again at the latest.
    """

    def __init__(self, committer: Committer, recheck: int) -> None:
        self.committer = committer
        self.recheck = recheck
        self.rules = GateRules(Side(*GATE, None, None, None))
        """The latest known rules. Other threads may replace them, so a decision reads them once."""
        # The time of the first refused sweep of each job that has not changed since.
        self._refused: dict[Version, float] = {}

    def rules_of(self, gate: Side) -> GateRules:
        """Return the rules of this gate."""
        rules = self.rules
        return rules if rules.gate.tag == gate.tag else GateRules(gate)

    def newest(self) -> GateRules:
        """Read the gate, and return its rules."""
        self.rules = rules = GateRules(self.committer.store.read([], [GATE]).sides[0])
        return rules

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        """Find the first jobs that may be claimed, without those of full scopes."""
        store = self.committer.store
        for _ in self.committer.tries():
            asked = self.rules.allowed(names, full)
            gate, allowed, without, shut, lanes = asked
            wanted = (0, [], codec.VERSION) if shut else (limit, allowed, codec.VERSION, without, lanes, where)
            look = store.look(*wanted)
            if look.gate.tag != gate.tag:
                self.rules = rules = GateRules(look.gate)
                if rules.allowed(names, full) != asked._replace(gate=look.gate):
                    continue
            # Where no job may be claimed, a lapse or due time wakes nobody.
            return look._replace(overdue=[], next_event=None) if shut and not full else look
        raise AssertionError("unreachable")

    def sweep_and_look(
        self,
        limit: int,
        names: Sequence[str] | None,
        trashed: list[Record],
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        """Find the first jobs as :meth:`look` does, once lapsed and due jobs are swept to their places.

        A job that another transaction holds stays at its place.

        :param trashed: receives the jobs that the sweep has moved to the trash.
        """
        look = self.look(limit, names, full, where)
        settled, tries = False, self.committer.tries()
        while look.overdue and not (settled and look.ready):
            met = self.committer.sweep(look.overdue, look.now)
            trashed.extend(record for record in met if record.state == TRASHED)
            waits = self._refused_lately(look.overdue, met)
            if not met and not waits:
                break
            if not met:
                next(tries)
            look, settled = self.look(limit, names, full, where), not waits
        return look

    def _refused_lately(self, overdue: Sequence[Stored], swept: Sequence[Record]) -> bool:
        """Return whether another sweep may hold one of these jobs, so that its place is known in a moment.

        A job that does not change for :data:`SWEEPING` is held by a transaction of a caller's."""
        now, done = time.monotonic(), {record.uuid for record in swept}
        refused = {version(stored) for stored in overdue if stored.record.uuid not in done}
        self._refused = {each: self._refused.get(each, now) for each in refused}
        return any(now - since < SWEEPING for since in self._refused.values())

    def preview(self, limit: int, names: Sequence[str] | None, full: Sequence[LimitScope] = ()) -> Look:
        """Find the first jobs as :meth:`sweep_and_look` does, without writing anything."""
        look = self.look(limit, names, full)
        paused = self.rules_of(look.gate).paused
        ended = (stored._replace(record=record_at(stored, look.now)) for stored in look.overdue)
        back = [
            stored
            for stored in ended
            if stored.record.state == UNCLAIMED
            and (names is None or stored.record.name in names)
            and stored.record.name not in paused
            and stored.record.version <= codec.VERSION
        ]
        return look._replace(ready=sorted([*look.ready, *back], key=_order), overdue=[])

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Return the uuids of those unclaimed jobs that the rules let be claimed, each judged by itself."""
        rules, rooms = self._rooms(jobs)
        return {job.uuid for job in jobs if job.name not in rules.paused and not rooms.full(job)}

    def closed_scopes(self, jobs: Sequence[Record]) -> dict[str, list[ClosedScope]]:
        """Return the scopes without room for these unclaimed jobs, by the uuids of the jobs."""
        _, rooms = self._rooms(jobs)
        return {job.uuid: closed for job in jobs if (closed := rooms.closures(job))}

    def _rooms(self, jobs: Sequence[Record]) -> tuple[GateRules, Rooms]:
        rules = self.newest()
        rooms = Rooms(self.committer, rules.limits, 0, None)
        rooms.learn(jobs)
        return rules, rooms


class Choice:
    """The choice of the jobs that one call claims, from try to try.

    If another process claims a job first, the next try uses the remaining jobs of the same look. The choice looks
    again, for more jobs, in three cases: too few jobs are left; the rules or a full scope have changed; or several
    tries were refused.

    :param limit: the number of jobs that the call may claim together; fewer after many refused tries.
    :param trashed: receives the jobs that were moved to the trash meanwhile; None: write nothing.
    :param where: a condition of the store's, see :meth:`Store.look <jobboard.engine.Store.look>`.
    """

    rooms: Rooms | None = None
    """The room in the scopes of the chosen jobs; None without limits."""

    def __init__(
        self,
        finder: Finder,
        limit: int,
        names: Sequence[str] | None,
        trashed: list[Record] | None = None,
        where: Any = None,
    ) -> None:
        self._finder = finder
        self._limit = limit
        self._names = names
        self._trashed = trashed
        self._where = where
        self._looks = self._beaten = 0
        self._look: Look | None = None
        self._goes_on = False
        # The jobs that were found and not lost. _full has the scopes without room behind which it has looked.
        self._met: dict[str, Stored] = {}
        # Jobs at which others were quicker. Another transaction holds those that a look shows unchanged.
        self._lost: set[Version] = set()
        # The jobs that this try has locked, and the room in the scopes that it has locked.
        self._locked: dict[str, Stored] = {}
        self._held: Rooms | None = None
        self._needed: dict[str, LimitScope] = {}
        self._full: dict[str, LimitScope] = {}

    def next(self) -> Look:
        """Return the jobs to claim in the next try, locked, and no more than one commit may change.

        :raises Stale: the try has to begin again.
        """
        store = self._finder.committer.store
        self._locked, self._held = {}, None
        for _ in self._finder.committer.tries():
            look = self._next()
            if self._trashed is not None and self.rooms is not None:
                look = self._under_locks(look, self.rooms)
            if store.most_bytes is not None and look.ready:
                look = look._replace(ready=next(batches(look.ready, weight, len(look.ready), store.most_bytes)))
            wanted = [stored for stored in look.ready if stored.record.uuid not in self._locked]
            if not wanted or self._trashed is None:
                return look
            self._lock(wanted, len(wanted))
            lost = {stored.record.uuid for stored in wanted} - self._locked.keys()
            if not lost:
                return look._replace(ready=[self._locked[stored.record.uuid] for stored in look.ready])
            # Other calls hold these jobs, and claim them.
            self._lose(lost)
            self._goes_on = True
        raise AssertionError("unreachable")

    def _lock(self, jobs: Sequence[Stored], limit: int) -> list[Stored]:
        found = self._finder.committer.store.lock(jobs, limit)
        self._locked |= {stored.record.uuid: stored for stored in found}
        return found

    def _under_locks(self, look: Look, rooms: Rooms) -> Look:
        """Lock the scopes of the first jobs with room, and count again, as others may have claimed jobs meanwhile.

        Scopes are locked before jobs, as others pass over a locked job.

        :raises Stale: another scope has to be locked.
        """
        if not rooms.locks(stored.record for stored in look.ready):
            return look
        if self._held is None and not self._locked:
            ahead, _ = self._fitting(self._limit + SPARE_LOCKED)
            rooms.lock({**rooms.scopes(stored.record for stored in ahead), **self._needed})
            self._held = rooms
            look = look._replace(now=max(look.now, rooms.now), ready=self._fitting(self._limit)[0])
        held = [rooms.holds(rooms.scopes([stored.record])) for stored in look.ready]
        if all(held):
            return look
        if not self._locked:
            self._needed = rooms.scopes(stored.record for stored in look.ready)
            raise Stale(sides=[(SCOPE, key) for key in self._needed])
        # The locked jobs are taken. A job behind them needs another scope.
        return look._replace(ready=look.ready[: held.index(False)])

    def beaten(self, stale: Stale) -> None:
        """Take note of the refusal of the last try."""
        self._beaten += 1
        if self._beaten % _HALVED == 0:
            self._limit = (self._limit + 1) // 2
        scopes = {key for kind, key in stale.sides if kind == SCOPE}
        told = bool(stale.uuids or stale.sides) and GATE not in stale.sides
        self._goes_on = told and not scopes & self._full.keys() and self._beaten % _AGAIN != 0
        self._lose(stale.uuids)
        if self._finder.committer.store.locks_scopes and self.rooms is not None:
            # The refusal has ended the locks of the scopes.
            self._goes_on = False
        elif self.rooms is not None:
            self.rooms.forget(scopes)

    def _lose(self, uuids: Collection[str]) -> None:
        for uuid in uuids:
            if (stored := self._met.pop(uuid, None)) is not None:
                self._lost.add(version(stored))

    def _next(self) -> Look:
        if self._look is not None and self._goes_on:
            self._goes_on = False
            chosen, enough = self._fitting(self._limit)
            if enough:
                return self._look._replace(ready=chosen)
        for _ in self._finder.committer.tries():
            if (look := self._look_again()) is not None:
                return look
        raise AssertionError("unreachable")

    def _look_again(self) -> Look | None:
        """Look for jobs again. Return None if the rules have changed between two looks, or if a sweep has brought back
        a job that may come before the chosen ones."""
        finder, names, spare = self._finder, self._names, self._finder.committer.store.spare
        wanted = min(self._limit + spare * (self._looks + finder.rules.limited(names)), 2 * MOST_CHANGES)
        look = self._looked(wanted)
        self._looks += 1
        rules = finder.rules_of(look.gate)
        self._look, self._full, self.rooms = look, {}, None
        self._met = {stored.record.uuid: stored for stored in look.ready} | self._locked
        if not rules.limited(names):
            return look._replace(ready=self._fitting(self._limit)[0])
        self.rooms = rooms = self._held or Rooms(finder.committer, rules.limits, look.now, self._trashed)
        known = 0
        chosen, enough = self._fitting(self._limit)
        while not enough and len(look.ready) >= wanted and len(self._full) > known:
            # Behind jobs without room there may be jobs with room. Many may have none.
            if known:
                wanted = min(4 * wanted, 2 * MOST_CHANGES)
            known = len(self._full)
            look = self._looked(wanted, list(self._full.values()))
            if look.gate.tag != self._look.gate.tag:
                return None
            self._met |= {stored.record.uuid: stored for stored in look.ready} | self._locked
            chosen, enough = self._fitting(self._limit)
        if rooms.brought_back:
            return None
        event = look.next_event
        if self._full:
            if event is None and not chosen:
                # The look was full, and none of its jobs has room.
                event = finder.look(0, None).next_event
            waits = (event, rooms.opens_in, finder.recheck)
            event = min(wait for wait in waits if wait is not None)
        self._look = look._replace(now=max(look.now, rooms.now), next_event=event)
        return self._look._replace(ready=chosen)

    def _looked(self, wanted: int, full: Sequence[LimitScope] = ()) -> Look:
        finder, names = self._finder, self._names
        if self._trashed is None:
            return finder.preview(wanted, names, full)
        asked = wanted
        while True:
            if self._held is None:
                look = finder.sweep_and_look(asked, names, self._trashed, full, self._where)
            else:
                # Under locks of scopes, lapses were swept before.
                look = finder.look(asked, names, full, self._where)
            if not self._lost:
                return look
            left = [stored for stored in look.ready if version(stored) not in self._lost]
            if len(left) < len(look.ready):
                look = look._replace(
                    next_event=RETRY_HELD if look.next_event is None else min(look.next_event, RETRY_HELD)
                )
            if len(left) >= wanted or len(look.ready) < asked:
                return look._replace(ready=left[:wanted])
            # Others hold some of the first jobs.
            asked *= 2

    def _in_order(self) -> list[Stored]:
        # Others have passed over the locked jobs, so these go first.
        return sorted(self._met.values(), key=lambda stored: (stored.record.uuid not in self._locked, _order(stored)))

    def _fitting(self, limit: int) -> tuple[list[Stored], bool]:
        """Return the first jobs that can be claimed together, and whether one commit may claim no more."""
        met, rooms = self._in_order(), self.rooms
        if rooms is None:
            return met[:limit], len(met) >= limit
        rooms.learn(stored.record for stored in met)
        while True:
            chosen, full, enough = self._entering(rooms, met, limit)
            # A list may have no room for another claim, and still hold claims that have ended.
            if not rooms.clear(full):
                self._full |= full
                return chosen, enough

    def _entering(
        self, rooms: Rooms, met: Sequence[Stored], limit: int
    ) -> tuple[list[Stored], dict[str, LimitScope], bool]:
        """Return the same by the known room of the scopes, and the scopes without room that were met."""
        rooms.leave_all()
        chosen: list[Stored] = []
        full: dict[str, LimitScope] = {}
        enough = False
        for stored in met:
            if closed := rooms.full(stored.record):
                full |= {scope.key: scope for scope in closed}
                continue
            rooms.enter(stored.record)
            chosen.append(stored)
            if enough := len(chosen) == limit or rooms.heavy:
                break
        rooms.leave_all()
        return chosen, full, enough


def _order(stored: Stored) -> tuple[int, int]:
    return serving_order(stored.record)
