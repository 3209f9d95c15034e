"""The search for jobs to claim: what the store shows, under the rules of the board, once what has ended is settled."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from jobboard.engine.calls import AT_ONCE, Committer, standing
from jobboard.engine.limits import SCOPE, Limits, LimitScope, Rooms, lane
from jobboard.engine.rules import Rules
from jobboard.engine.store import GATE, Lane, Look, Side, Stale, Stored, weight
from jobboard.primitives import Peeked, batches
from jobboard.states import TRASHED, UNCLAIMED, Record, serving_order

SWEEPING = 0.25
"""For how many seconds a call waits for the sweep of another process. No state of the store could take the place of it.
The row of an overdue job is locked by a sweep that ends in a moment, by a sweep of a frozen process, or by a
transaction of a caller's, and the locks look the same. A call that waited for the lock itself, or for a lock that marks
a sweep, would stand still with a frozen process; but a locked job may delay only itself. A call that waited for none
would pass over an overdue job whenever two calls meet. So behind a sweep that takes longer than this, a job is passed
over that an overlapping call holds."""

_AGAIN = 5
"""After how many tries at which others were quicker a claim looks again, though it has seen more jobs."""

SOON = 50_000
"""µs until the next look at jobs that other transactions hold. Nobody wakes a waiter when these are rolled back."""

AHEAD = 8
"""How many jobs more than it claims a call locks the scopes of. Others may claim the first ones while it waits."""

Version = tuple[str, object]
"""The uuid of a job, and its tag."""


def version(stored: Stored) -> Version:
    return stored.record.uuid, stored.tag


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
        # Since when a sweep has been refused for a job as it is.
        self._refused: dict[Version, float] = {}

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

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        *,
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        """Find the first jobs that may be claimed, without those of full scopes."""
        store = self.committer.store
        for _ in self.committer.tries():
            asked = self.ruled.allowed(names, full)
            gate, allowed, without, shut, lanes = asked
            wanted = (0, [], readable) if shut else (limit, allowed, readable, without, lanes, where)
            look = store.look(*wanted)
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
        where: Any = None,
    ) -> Look:
        """Do the same after bringing what has ended back to its place. ``trashed`` takes in the jobs that went to the
        trash by that. A job that another transaction holds stays where it is."""
        look = self.look(limit, names, readable, full=full, where=where)
        settled, tries = False, self.committer.tries()
        while look.overdue and not (settled and look.ready):
            met = self.committer.sweep(look.overdue, look.now)
            trashed.extend(record for record in met if record.state == TRASHED)
            waits = self._refused_lately(look.overdue, met)
            if not met and not waits:
                break
            if not met:
                next(tries)
            look, settled = self.look(limit, names, readable, full=full, where=where), not waits
        return look

    def _refused_lately(self, overdue: Sequence[Stored], swept: Sequence[Record]) -> bool:
        """Return whether one of these jobs may be in the hands of another sweep, so that its place is known in a
        moment. A job that stays as it is for longer is held by a transaction of a caller's."""
        now, done = time.monotonic(), {record.uuid for record in swept}
        refused = {version(stored) for stored in overdue if stored.record.uuid not in done}
        self._refused = {each: self._refused.get(each, now) for each in refused}
        return any(now - since < SWEEPING for since in self._refused.values())

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
    :param where: a condition of the store's, see :meth:`Store.look <jobboard.engine.Store.look>`.
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
        where: Any = None,
    ) -> None:
        self._finder = finder
        self._limit = limit
        self._names = names
        self._readable = readable
        self._trashed = trashed
        self._where = where
        self._looks = self._beaten = 0
        self._look: Look | None = None
        self._goes_on = False
        # The jobs that were seen and not lost; and the scopes that had no room, behind which it has looked.
        self._met: dict[str, Stored] = {}
        # Jobs at which others were quicker. One that a look shows unchanged is held by another transaction.
        self._lost: set[Version] = set()
        # The jobs that this try has locked, and the room in the scopes that it has locked.
        self._locked: dict[str, Stored] = {}
        self._held: Rooms | None = None
        # Whether a part of a lock may do, where scopes have locks, and whether to wait for it.
        self._shares = limit == 1 and trashed is not None and finder.committer.store.locks_scopes
        self._waits = False
        self._needed: dict[str, LimitScope] = {}
        self._full: dict[str, LimitScope] = {}

    def next(self) -> Look:
        """Return what to claim in the next try: no more than one commit may change, and all of it locked.

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
            # Others hold them, and take them.
            self._lose(lost)
            self._goes_on = True
        raise AssertionError("unreachable")

    def _lock(self, jobs: Sequence[Stored], limit: int) -> list[Stored]:
        found = self._finder.committer.store.lock(jobs, limit)
        self._locked |= {stored.record.uuid: stored for stored in found}
        return found

    def _under_parts(self, rooms: Rooms) -> list[Stored]:
        """Lock the first job that has room under a part of the lock of each scope. Empty where no lock has parts.

        :raises Stale: another try has to find a job, under a part or under a whole lock.
        """
        ahead = self._in_order()[: 1 + AHEAD]
        open_ = rooms.by_parts(ahead, self._waits)
        if open_ is None:
            return []
        if open_ and (locked := self._lock(open_, 1)):
            return locked
        first = rooms.scopes(stored.record for stored in ahead[:1])
        # Others have taken all of these jobs, or they hold all parts, or a part does not decide.
        self._looks -= not open_
        self._lose([stored.record.uuid for stored in open_])
        self._shares, self._waits = bool(open_) or not rooms.holds(first), not rooms.holds(first)
        raise Stale(sides=[(SCOPE, key) for key in first])

    def _under_locks(self, look: Look, rooms: Rooms) -> Look:
        """Lock the scopes of the first jobs that have room, and count again: others may have claimed these jobs while
        this call has waited. A scope is locked before any job, as others pass over a job that is locked.

        :raises Stale: another scope turns out to be needed.
        """
        if not rooms.locks(stored.record for stored in look.ready):
            return look
        if self._held is None and not self._locked:
            ahead, _ = self._fitting(self._limit + AHEAD)
            rooms.lock({**rooms.scopes(stored.record for stored in ahead), **self._needed})
            self._held = rooms
            if self._limit == 1 and (open_ := rooms.open_jobs(self._in_order())):
                # Others may have taken the first ones meanwhile.
                self._lock(open_, 1)
            look = look._replace(now=max(look.now, rooms.now), ready=self._fitting(self._limit)[0])
        held = [rooms.holds(rooms.scopes([stored.record])) for stored in look.ready]
        if all(held):
            return look
        if not self._locked:
            self._needed = rooms.scopes(stored.record for stored in look.ready)
            raise Stale(sides=[(SCOPE, key) for key in self._needed])
        # Jobs that are locked are taken: behind them comes what needs another scope.
        return look._replace(ready=look.ready[: held.index(False)])

    def beaten(self, stale: Stale) -> None:
        """The last try was refused."""
        self._beaten += 1
        scopes = {key for kind, key in stale.sides if kind == SCOPE}
        told = bool(stale.uuids or stale.sides) and GATE not in stale.sides
        self._goes_on = told and not scopes & self._full.keys() and self._beaten % _AGAIN != 0
        self._lose(stale.uuids)
        if self._finder.committer.store.locks_scopes and self.rooms is not None:
            # The locks under which the claims were counted are gone.
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
        """Return None where the rules have changed between two looks, or where a job has come back that may be served
        before the chosen ones."""
        finder, names, spare = self._finder, self._names, self._finder.committer.store.spare
        wanted = min(self._limit + spare * (self._looks + finder.ruled.limited(names)), 2 * AT_ONCE)
        look = self._looked(wanted)
        self._looks += 1
        ruled = finder.ruled_by(look.gate)
        self._look, self._full, self.rooms = look, {}, None
        self._met = {stored.record.uuid: stored for stored in look.ready} | self._locked
        if not ruled.limited(names):
            return look._replace(ready=self._fitting(self._limit)[0])
        self.rooms = rooms = self._held or Rooms(finder.committer, ruled.limits, look.now, self._trashed)
        if self._shares and (locked := self._under_parts(rooms)):
            return look._replace(now=max(look.now, rooms.now), ready=locked)
        known = 0
        chosen, enough = self._fitting(self._limit)
        while not enough and len(look.ready) >= wanted and len(self._full) > known:
            # There may be others behind those that have to wait; and where more have to, many may.
            if known:
                wanted = min(4 * wanted, 2 * AT_ONCE)
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
                # As many are ready as were asked for, and all have to wait.
                event = finder.look(0, None, self._readable).next_event
            waits = (event, rooms.opens_in, finder.patience)
            event = min(wait for wait in waits if wait is not None)
        self._look = look._replace(now=max(look.now, rooms.now), next_event=event)
        return self._look._replace(ready=chosen)

    def _looked(self, wanted: int, full: Sequence[LimitScope] = ()) -> Look:
        finder, names, readable = self._finder, self._names, self._readable
        if self._trashed is None:
            return finder.foreseen(wanted, names, readable, full=full)
        asked = wanted
        while True:
            if self._held is None:
                look = finder.settled(asked, names, readable, self._trashed, full=full, where=self._where)
            else:
                # What has ended by itself is written down before scopes are locked.
                look = finder.look(asked, names, readable, full=full, where=self._where)
            left = [stored for stored in look.ready if version(stored) not in self._lost]
            if len(left) < len(look.ready):
                look = look._replace(next_event=SOON if look.next_event is None else min(look.next_event, SOON))
            if len(left) >= wanted or len(look.ready) < asked:
                return look._replace(ready=left[:wanted])
            # Some of the first ones are held by others.
            asked *= 2

    def _in_order(self) -> list[Stored]:
        # What is locked is taken: others have passed it over.
        return sorted(self._met.values(), key=lambda stored: (stored.record.uuid not in self._locked, _order(stored)))

    def _fitting(self, limit: int) -> tuple[list[Stored], bool]:
        """Return the first of the jobs that can be claimed together, and whether one commit may claim no more."""
        met, rooms = self._in_order(), self.rooms
        if rooms is None:
            return met[:limit], len(met) >= limit
        rooms.learn(stored.record for stored in met)
        while True:
            chosen, full, enough = self._entering(rooms, met, limit)
            # A list that was shorter than its limit may have no room for a second one, and claims that have ended.
            if not rooms.clear(full):
                self._full |= full
                return chosen, enough

    def _entering(
        self, rooms: Rooms, met: Sequence[Stored], limit: int
    ) -> tuple[list[Stored], dict[str, LimitScope], bool]:
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
            if enough := len(chosen) == limit or rooms.heavy:
                break
        rooms.leave()
        return chosen, full, enough


def _order(stored: Stored) -> tuple[int, int]:
    return serving_order(stored.record)
