"""The finder: the search for jobs to claim, by the rules of the board, with lapses and due times settled."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jobboard import runtime
from jobboard.engine import tries
from jobboard.engine.committer import MOST_CHANGES, Committer, record_at
from jobboard.engine.limits import LOCK_WAIT, SCOPE, ClosedScope, Rooms
from jobboard.engine.rules import Rules
from jobboard.engine.store import GATE, RETRY_HELD, HeldTooLong, LimitScope, Look, Side, Stale, Stored, weight
from jobboard.primitives import batches
from jobboard.states import TRASHED, UNCLAIMED, Record, serving_order

SWEEPING = 0.25
"""The seconds that a call waits for another process to sweep a job. Then the call skips the job, as a frozen process or
a caller's transaction may hold its lock."""

LAST_WAIT = 1.0
"""The seconds for which a call waits for the lock of a scope before it finds nothing to claim."""

CROWDED = 1_000
"""The number of scopes without room that a finder remembers."""

SPARE_LOCKED = 8
"""The number of spare jobs whose scopes a call locks, too. Others may claim the first jobs while the call waits."""

Version = tuple[str, object]
"""The uuid and the tag of a job."""


def version(stored: Stored) -> Version:
    return stored.record.uuid, stored.tag


class Finder:
    """The looks for jobs. A look uses the latest known rules, and is repeated where it shows rules with other results.

    :param recheck: the µs after which a waiter for a full scope looks again at the latest.
    :param readable: the highest version of postings that is found.
    """

    def __init__(self, committer: Committer, recheck: int, readable: int) -> None:
        self.committer = committer
        self.recheck = recheck
        self.readable = readable
        self.rules = Rules()
        """The latest known rules. Other threads may replace them, so a decision reads them once."""
        # The time of the first refused sweep of each job that has not changed since.
        self._refused: dict[Version, float] = {}
        # The scopes that the last choices met without room, and the tag of their gate.
        self._crowded: tuple[object, dict[str, LimitScope]] = None, {}
        # Whether a call waits for the locks of scopes. False after a wait that was too long, until no other transaction
        # holds such a lock.
        self._waits = True

    def rules_of(self, gate: Side) -> Rules:
        """Return the rules of this gate."""
        rules = self.rules
        return rules if rules.gate.tag == gate.tag else Rules.of(gate)

    def read_rules(self) -> Rules:
        """Read the gate, and return its rules."""
        self.rules = rules = Rules.of(self.committer.store.read([], [GATE]).sides[0])
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
            rules = self.rules
            claimable = rules.claimable(names, full)
            if claimable is None:
                look = store.look(0, [], self.readable)
            else:
                allowed, without, groups = claimable
                look = store.look(limit, allowed, self.readable, without, groups, where)
            if look.gate.tag != rules.gate.tag:
                self.rules = rules = Rules.of(look.gate)
                if rules.claimable(names, full) != claimable:
                    continue
            # Where no job may be claimed, a lapse or due time wakes nobody.
            return look._replace(overdue=[], next_event=None) if claimable is None and not full else look
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
        settled, rounds = False, self.committer.tries()
        while look.overdue and not (settled and look.ready and not _has_expired(look)):
            met = self.committer.sweep(look.overdue, look.now)
            trashed.extend(record for record in met if record.state == TRASHED)
            waits = self._note_refused(look.overdue, met)
            if not met and not waits:
                break
            if not met:
                next(rounds)
            look, settled = self.look(limit, names, full, where), not waits
        return look

    def _note_refused(self, overdue: Sequence[Stored], swept: Sequence[Record]) -> bool:
        """Note the jobs that a sweep could not change. Return whether another sweep may hold one of them.

        A job that does not change for :data:`SWEEPING` is held by a transaction of a caller's."""
        now, done = runtime.monotonic(), {record.uuid for record in swept}
        refused = {version(stored) for stored in overdue if stored.record.uuid not in done}
        self._refused = {each: self._refused.get(each, now) for each in refused}
        return any(now - since < SWEEPING for since in self._refused.values())

    def lock(self, scopes: Mapping[str, LimitScope], rooms: Rooms, insists: bool = False) -> None:
        """Lock these scopes in a call's transaction, and count the claims in them.

        A process that was stopped in its transaction may hold a scope. It delays one call. After that, a scope that is
        held counts as full, and only a call that finds nothing else to claim waits for it.

        :param insists: wait in any case, and for longer.
        :raises HeldTooLong: the call has to begin again.
        """
        try:
            self._waits = rooms.lock(scopes, LAST_WAIT if insists else LOCK_WAIT if self._waits else 0)
        except HeldTooLong:
            self._waits = False
            raise

    def crowded(self, rules: Rules, names: Sequence[str] | None) -> dict[str, LimitScope]:
        """Return the scopes of these names that the last choices met without room. They may have room by now.

        A choice that counts them together need not meet them one look after another.
        """
        tag, scopes = self._crowded
        if tag != rules.gate.tag:
            return {}
        return {key: scope for key, scope in scopes.items() if names is None or scope.name in names}

    def note_crowded(self, rules: Rules, names: Sequence[str] | None, scopes: Mapping[str, LimitScope]) -> None:
        """Remember the scopes of these names that a choice met without room, in place of earlier ones."""
        tag, known = self._crowded
        if names is not None and tag == rules.gate.tag:
            scopes = {**scopes, **{key: scope for key, scope in known.items() if scope.name not in names}}
        self._crowded = rules.gate.tag, dict(itertools.islice(scopes.items(), CROWDED))

    def preview(self, limit: int, names: Sequence[str] | None, full: Sequence[LimitScope] = ()) -> Look:
        """Find the first jobs as :meth:`sweep_and_look` does, without writing anything."""
        wanted = limit
        while True:
            look = self.look(wanted, names, full)
            ready = [each for each in look.ready if not _is_expired(each, look.now)]
            if len(ready) >= limit or len(ready) == len(look.ready) or len(look.ready) < wanted:
                break
            # Any number of jobs may have expired since the last sweep.
            wanted = 4 * wanted + len(look.overdue)
        look = look._replace(ready=ready)
        paused = self.rules_of(look.gate).paused
        ended = (stored._replace(record=record_at(stored, look.now)) for stored in look.overdue)
        back = [
            stored
            for stored in ended
            if stored.record.state == UNCLAIMED
            and (names is None or stored.record.name in names)
            and stored.record.name not in paused
            and stored.record.version <= self.readable
        ]
        return look._replace(ready=sorted([*look.ready, *back], key=_order), overdue=[])

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Return the uuids of the unclaimed jobs that the rules admit, each judged by itself."""
        rules, rooms = self._rooms(jobs)
        return {job.uuid for job in jobs if job.name not in rules.paused and not rooms.full_scopes(job)}

    def closed_scopes(self, jobs: Sequence[Record]) -> dict[str, list[ClosedScope]]:
        """Return the scopes without room for these unclaimed jobs, by the uuids of the jobs."""
        _, rooms = self._rooms(jobs)
        return {job.uuid: closed for job in jobs if (closed := rooms.closures(job))}

    def _rooms(self, jobs: Sequence[Record]) -> tuple[Rules, Rooms]:
        rules = self.read_rules()
        rooms = Rooms(self.committer, rules, 0, None)
        rooms.learn(jobs)
        return rules, rooms


def _is_expired(ready: Stored, now: int) -> bool:
    until = ready.record.lock_until
    return until is not None and until <= now


def _has_expired(look: Look) -> bool:
    """Return whether a job that could be claimed has expired, and has not been swept."""
    return any(_is_expired(each, look.now) for each in look.ready)


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
        # Jobs that other processes have claimed. If a look shows such a job unchanged, another transaction holds it.
        self._lost: set[Version] = set()
        self._needed: dict[str, LimitScope] = {}
        self._full: dict[str, LimitScope] = {}
        # The scopes whose last room overlapping calls have taken, or whose lock one of these holds.
        self._closed: dict[str, LimitScope] = {}
        # Those of them that were held. An empty answer has waited for each of these once.
        self._held: dict[str, LimitScope] = {}
        self._insists = self._has_waited = False
        # The first job for which the last try has locked scopes.
        self._front: Version | None = None

    def next(self) -> Look:
        """Return the jobs to claim in this try, locked, and no more than one commit may change.

        An empty look rests on a whole one: each job that it leaves out is held by an overlapping call, or has no room.

        :raises Stale: the try has to begin again, without the locks that it holds.
        """
        look = self._next()
        if self._trashed is None:
            return look
        if self.rooms is not None:
            look = self._under_locks(look, self.rooms)
        locked: dict[str, Stored] = {}
        lost: set[str] = set()
        for _ in range(tries.LOCKS):
            ready = [stored for stored in self._lockable() if stored.record.uuid not in locked]
            if not ready:
                break
            # Other calls may have claimed the first jobs during a wait. A single claim then takes another job.
            tried = self._lockable_singly() if self._limit == 1 else ready
            found = self._finder.committer.store.grab(tried, len(ready))
            locked |= {stored.record.uuid: stored for stored in found}
            if len(found) == len(ready):
                break
            # Other calls hold the rest of these jobs, and claim them.
            beaten = {stored.record.uuid for stored in tried} - locked.keys()
            self._lose(beaten)
            lost |= beaten
        if lost and not locked:
            raise Stale(lost)
        if self._held and not locked and not self._has_waited:
            self._insists = self._has_waited = True
            self._closed = {key: scope for key, scope in self._closed.items() if key not in self._held}
            raise Stale(sides=[(SCOPE, key) for key in self._held])
        return look._replace(ready=sorted(locked.values(), key=_order))

    def _under_locks(self, look: Look, rooms: Rooms) -> Look:
        """Lock the scopes of the first jobs with room, and count again, as others may have claimed jobs meanwhile.

        Scopes are locked before jobs, as others pass over a locked job.

        :raises Stale: another scope has to be locked, or the room of all of these jobs is taken.
        """
        if not rooms.locks(stored.record for stored in look.ready):
            return look
        ahead, _ = self._choose(self._limit + SPARE_LOCKED)
        front = version(look.ready[0])
        # If the first job has changed since the last try, others are at work in its scope, and no process was stopped.
        moves = self._front not in (None, front)
        insists, self._insists, self._front = self._insists or moves, False, front
        self._has_waited = self._has_waited and not moves
        self._finder.lock({**rooms.scopes(stored.record for stored in ahead), **self._needed}, rooms, insists)
        chosen, _ = self._choose(1)
        if not chosen:
            self._held = {key: scope for key, scope in self._full.items() if rooms.is_busy(key)}
            # There may be jobs with room behind these scopes.
            self._closed |= self._full
            raise Stale(sides=[(SCOPE, key) for key in self._closed])
        first = rooms.scopes([chosen[0].record])
        if not rooms.holds(first):
            self._needed = first
            raise Stale(sides=[(SCOPE, key) for key in first])
        return look._replace(now=max(look.now, rooms.now))

    def _lockable(self) -> list[Stored]:
        """Return the first jobs that one commit may claim together under the locked scopes."""
        store = self._finder.committer.store
        ready = self._under_held(self._choose(self._limit)[0])
        if store.traits.most_bytes is not None and ready:
            ready = next(batches(ready, weight, len(ready), store.traits.most_bytes))
        return ready

    def _lockable_singly(self) -> list[Stored]:
        """Return the first jobs each of which a single claim may take under the locked scopes."""
        met, rooms = sorted(self._met.values(), key=_order), self.rooms
        return self._under_held([stored for stored in met if rooms is None or not rooms.full_scopes(stored.record)])

    def _under_held(self, jobs: Sequence[Stored]) -> list[Stored]:
        """Return these jobs up to the first that needs a scope which is not locked."""
        rooms = self.rooms
        if rooms is None or not self._finder.committer.store.traits.locks_scopes:
            return [*jobs]
        return list(itertools.takewhile(lambda stored: rooms.holds(rooms.scopes([stored.record])), jobs))

    def note_refusal(self, stale: Stale) -> None:
        """Take note of the refusal of the last try."""
        self._beaten += 1
        self._has_waited = self._has_waited or isinstance(stale, HeldTooLong)
        if self._beaten % tries.REFUSED_BEFORE_LESS == 0:
            self._limit = (self._limit + 1) // 2
        scopes = {key for kind, key in stale.sides if kind == SCOPE}
        told = bool(stale.uuids or stale.sides) and GATE not in stale.sides
        self._goes_on = told and not scopes & self._full.keys() and self._beaten % tries.REFUSED_BEFORE_LOOK != 0
        self._lose(stale.uuids)
        if self.rooms is not None:
            self.rooms.forget(scopes)
            if self._finder.committer.store.traits.locks_scopes:
                # The refusal has ended the locks of the scopes.
                self._goes_on = False

    def _lose(self, uuids: Collection[str]) -> None:
        for uuid in uuids:
            if (stored := self._met.pop(uuid, None)) is not None:
                self._lost.add(version(stored))

    def _next(self) -> Look:
        if self._look is not None and self._goes_on:
            self._goes_on = False
            chosen, enough = self._choose(self._limit)
            if enough:
                return self._look._replace(ready=chosen)
        for _ in self._finder.committer.tries():
            if (look := self._look_again()) is not None:
                return look
        raise AssertionError("unreachable")

    def _look_again(self) -> Look | None:
        """Look for jobs again. Return None if the rules have changed between two looks, or if a sweep has brought back
        a job that may come before the chosen ones."""
        finder, names, store = self._finder, self._names, self._finder.committer.store
        # Others may hold the first jobs, or these may have no room.
        spare = store.traits.spare * (self._looks + (store.traits.locks_scopes or finder.rules.bind(names)))
        wanted = min(self._limit + spare, 2 * MOST_CHANGES)
        look = self._look_for(wanted, list(self._closed.values()))
        self._looks += 1
        rules = finder.rules_of(look.gate)
        self._look, self._full, self.rooms = look, dict(self._closed), None
        self._met = {stored.record.uuid: stored for stored in look.ready}
        if not rules.bind(names):
            return look._replace(ready=self._choose(self._limit)[0])
        self.rooms = rooms = Rooms(finder.committer, rules, look.now, self._trashed)
        known = len(self._full)
        chosen, enough = self._choose(self._limit)
        while not enough and len(look.ready) >= wanted and len(self._full) > known:
            # Behind jobs without room there may be jobs with room. Many may have none.
            if known:
                wanted = min(4 * wanted, 2 * MOST_CHANGES)
            self._full |= rooms.without_room(finder.crowded(rules, names))
            known = len(self._full)
            look = self._look_for(wanted, list(self._full.values()))
            if look.gate.tag != self._look.gate.tag:
                return None
            self._met |= {stored.record.uuid: stored for stored in look.ready}
            chosen, enough = self._choose(self._limit)
        if rooms.brought_back:
            return None
        event = look.next_event
        if self._full:
            finder.note_crowded(rules, names, self._full)
            if event is None and not chosen:
                # The look was full, and none of its jobs has room.
                event = finder.look(0, None).next_event
            waits = (event, rooms.opens_in, RETRY_HELD if self._closed else finder.recheck)
            event = min(wait for wait in waits if wait is not None)
        self._look = look._replace(now=max(look.now, rooms.now), next_event=event)
        return self._look._replace(ready=chosen)

    def _look_for(self, wanted: int, full: Sequence[LimitScope] = ()) -> Look:
        finder, names = self._finder, self._names
        if self._trashed is None:
            return finder.preview(wanted, names, full)
        asked = wanted
        while True:
            look = finder.sweep_and_look(asked, names, self._trashed, full, self._where)
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

    def _choose(self, limit: int) -> tuple[list[Stored], bool]:
        """Choose the first jobs that can be claimed together. Return them, and whether one commit may claim no more."""
        met, rooms = sorted(self._met.values(), key=_order), self.rooms
        if rooms is None:
            return met[:limit], len(met) >= limit
        rooms.learn(stored.record for stored in met)
        while True:
            chosen, full, enough = self._choose_by(rooms, met, limit)
            # A list may have no room for another claim, and still hold claims that have ended.
            if not rooms.clear(full):
                self._full |= full
                return chosen, enough

    def _choose_by(
        self, rooms: Rooms, met: Sequence[Stored], limit: int
    ) -> tuple[list[Stored], dict[str, LimitScope], bool]:
        """Choose among the jobs met by the known room. Return the scopes without room that were met, too."""
        rooms.leave_all()
        chosen: list[Stored] = []
        full: dict[str, LimitScope] = {}
        enough = False
        for stored in met:
            if closed := rooms.full_scopes(stored.record):
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
