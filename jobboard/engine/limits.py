"""Limits: how many claims may live at once, and how many may begin within a time.

A *scope* is the set of jobs that a limit counts together: those of one name, or those of one name and group. A scope
has a side record, with the instants at which the last claims of a rate began. Two kinds of stores know which claims of
a scope live:

- A store that *counts* locks a scope, and then counts its jobs that are stored as claimed. Until the end of its
  transaction no other call begins a claim there, or revives one. The lock may have *parts*: a call that holds one of n
  parts may begin one claim where there is room for n, as the others begin n - 1 claims at most that it does not see.
  The end of a claim changes nothing but its job.
- On other stores the side record *lists* claims by uuid and token. A claim changes the records of its scopes in its own
  commit, so that two claims cannot both take the last slot. The record lists at least every claim that lives and that
  began under the limit. It may list claims that have ended, as the end of a claim does not change it. So a scope with a
  short list has room for sure. Where the list is as long as the limit, the jobs themselves show which claims live.

On both, a lapsed claim takes its slot until it is written down as lapsed: a holder that revives the claim then meets a
changed job, and has to enter the scope again.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from jobboard.engine.answers import HOUR
from jobboard.engine.calls import AT_ONCE, Committer, Timely, standing
from jobboard.engine.rules import Rules
from jobboard.engine.store import GATE, Change, Found, Lane, Mark, ScopeLock, ScopePlace, Side, Stale, Stored, turns
from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.primitives import Finish, Limit
from jobboard.states import CLAIMED, TRASHED, Record

LOG = logging.getLogger(__name__)

SCOPE = "scope"

ClaimKey = tuple[str, int]
"""The uuid of a job, and the token."""

TIMELY = 0.1
"""The part of a rate's window within which the commit of a claim has to follow the reading of the time that the claim
stores as its start. Two windows may overlap by so much."""

HEAVY = 10_000
"""How many claims and starts one commit may store in lists, before the last one: some stores take 1 MiB at most."""

AHEAD = 60 * 1_000_000
"""By how many µs a start may lie ahead of now, or by the rate's window if that is longer. A start further ahead comes
from a clock that has been set back since, and does not count: nobody waits until the clock is there again."""

REMEMBERED = HOUR
"""For how many µs a start is remembered that no rate counts: a rate that is set within that time counts the start."""

LAPSED = 100
"""How many lapsed claims of a scope a store lists that counts."""

MOST_IDLE = 2000
"""How many records of scopes that stay one tidying meets at most."""


Grouped = Record | Finish
"""A job, as limits see it: its uuid, name and group."""


class LimitScope(NamedTuple):
    """A scope of a limit. key: of the side record."""

    key: str
    limit: Limit


class Limits:
    """The limits of a board, by the names that they bind."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._by_name: dict[str, list[Limit]] = {}
        for limit in limits:
            self._by_name.setdefault(limit.name, []).append(limit)

    def scopes(self, job: Grouped) -> list[LimitScope]:
        """Return the scopes that a claim of this job has to enter."""
        limits = self._by_name.get(job.name)
        if limits is None:
            return []
        # Neither names nor groups have control characters.
        return [
            LimitScope(job.name if limit.per == "name" else f"{job.name}\n{job.group}", limit)
            for limit in limits
            if limit.per == "name" or job.group is not None
        ]

    def left(self, jobs: Iterable[Grouped]) -> dict[str, list[LimitScope]]:
        """Return the scopes in which claims of these jobs have slots, by the uuids of the jobs."""
        if not self._by_name:
            return {}
        held = ((job.uuid, [scope for scope in self.scopes(job) if scope.limit.concurrency]) for job in jobs)
        return {uuid: scopes for uuid, scopes in held if scopes}

    def among(self, names: Sequence[str] | None) -> list[Limit]:
        """Return the limits of jobs of these names; None: of any name."""
        return [limit for name, limits in self._by_name.items() if names is None or name in names for limit in limits]

    def bind(self, names: Sequence[str] | None) -> bool:
        """Return whether jobs of these names, None: of any name, may have scopes."""
        return bool(self._by_name) if names is None else any(name in self._by_name for name in names)


class Listed(NamedTuple):
    """The value of a scope's side record: claims, and the instants at which some began, the latest last."""

    claims: tuple[ClaimKey, ...] = ()
    starts: tuple[int, ...] = ()

    @classmethod
    def of(cls, side: Side) -> Listed:
        """Return an empty list for a damaged record: claims that stand no longer count, but no job waits for ever."""
        try:
            return cls.read(side)
        except ValueError as error:
            LOG.warning("what a limit counts of %r begins anew: %s", side.key, error)
            return cls()

    @classmethod
    def read(cls, side: Side) -> Listed:
        """:raises ValueError: the record is damaged."""
        if side.value is None:
            return cls()
        try:
            claims, starts = msgpack.unpackb(side.value, use_list=False)
            sound = all(type(uuid) is str and type(token) is int for uuid, token in claims)
            sound = sound and all(type(start) is int for start in starts)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"it is damaged: {error}") from error
        if not sound:
            raise ValueError("it is damaged: it lists something else than claims")
        return cls(claims, starts)

    def remembers(self, limit: Limit | None, now: int) -> bool:
        """Return whether a rate counts one of these starts: the rate of this limit, or one that is set later."""
        rate = limit and limit.rate
        span = max(REMEMBERED, int(rate[1] * 1e6)) if rate else REMEMBERED
        # One that lies further ahead is told by a clock that has been set back since.
        return any(abs(now - start) < span for start in self.starts)

    def packed(self) -> bytes | None:
        packed: bytes | None = msgpack.packb(tuple(self)) if self.claims or self.starts else None
        return packed


class _Room:
    """A scope as it was read, and the claims that have entered it since.

    :param counted: how many claims the store has counted. None: the side record lists the claims.
    :param ended: how many of the counted claims have lapsed.
    :param others: how many more claims may begin meanwhile, by those who hold the other parts of the scope's lock.
    """

    def __init__(
        self, scope: LimitScope, side: Side, counted: int | None = None, ended: int = 0, others: int = 0
    ) -> None:
        self.scope = scope
        self.side = side
        listed = Listed.of(side)
        self._counts = counted is not None
        self._counted = (counted or 0) + others
        self._live = (counted or 0) - ended
        # With only those of its claims that live, where it mattered; and with those that have entered.
        self.cleared = self.listed = listed._replace(claims=()) if self._counts else listed
        self._was_crowded = self.crowded
        self.sure = not self.listed.claims
        """Whether all of the claims that were read live."""

    @property
    def crowded(self) -> bool:
        """Return whether the list is as long as the limit, so that it matters which claims live."""
        most = self.scope.limit.concurrency
        return most is not None and len(self.listed.claims) >= most

    def keep(self, live: Container[ClaimKey]) -> None:
        claims = tuple(claim for claim in self.listed.claims if claim in live)
        self.cleared = self.listed = self.listed._replace(claims=claims)
        self.sure = True

    def open_to(self, uuid: str, now: int, begins: bool) -> bool:
        """Return whether a claim of this job can begin, or be revived. Earlier claims of the job count for nothing."""
        limit = self.scope.limit
        if limit.concurrency is not None:
            others = self._counted + sum(claim[0] != uuid for claim in self.listed.claims)
            if others >= limit.concurrency:
                return False
        return not (begins and limit.rate) or self.opens_in(now) == 0

    def is_full(self, now: int) -> bool:
        """Return whether no claim can begin, whoever holds the other parts of the lock and whatever has lapsed."""
        most = self.scope.limit.concurrency
        return self.opens_in(now) > 0 or (most is not None and self._live >= most)

    def opens_in(self, now: int) -> int:
        """Return the µs until the rate lets one more claim begin."""
        if self.scope.limit.rate is None:
            return 0
        number, seconds = self.scope.limit.rate
        starts = self._starts(now, seconds)
        return max(0, starts[-number] + int(seconds * 1e6) - now) if len(starts) >= number else 0

    def _starts(self, now: int, seconds: float) -> tuple[int, ...]:
        starts, last = self.listed.starts, now + max(AHEAD, int(seconds * 1e6))
        return tuple(start for start in starts if start <= last) if starts and starts[-1] > last else starts

    def enter(self, claim: ClaimKey, now: int, begins: bool) -> None:
        limit, (claims, starts) = self.scope.limit, self.listed
        if limit.concurrency is not None:
            claims = (*(each for each in claims if each[0] != claim[0]), claim)
        if begins and limit.rate:
            # A call that has waited for another's transaction may have read the time before.
            starts = tuple(sorted((*self._starts(now, limit.rate[1]), now)))[-limit.rate[0] :]
        elif not self.listed.remembers(limit, now):
            starts = ()
        self.listed = Listed(claims, starts)

    @property
    def weight(self) -> int:
        """Return how many claims and starts a commit stores because of what has entered."""
        return len(self.listed.starts) if self._counts else len(self.listed.claims) + len(self.listed.starts)

    def mark(self) -> Mark | None:
        """Return what has entered, as a change of the side record; None: it stays as it is."""
        if self._counts:
            kept = self.listed._replace(claims=())
            return None if kept == self.cleared else Mark(self.side, kept.packed())
        # Where the list was full and has room left, others may wait for that.
        return Mark(self.side, self.listed.packed(), wakes=self._was_crowded and not self.crowded)


class Rooms:
    """The room in the scopes of some jobs, and what is left of it as claims of them begin.

    :param now: the time by which the room is judged, until a later time is read with the scopes.
    :param trashed: takes in the jobs whose last lapse is written down; None: nothing is, as nobody is going to enter.
    :param own: the job that the call is about. An earlier claim of it takes no room.
    """

    def __init__(
        self,
        committer: Committer,
        limits: Limits,
        now: int,
        trashed: list[Record] | None,
        own: Stored | None = None,
    ) -> None:
        self._committer = committer
        self._limits = limits
        self._trashed = trashed
        self._own = own
        self._rooms: dict[str, _Room] = {}
        self._locked: frozenset[str] = frozenset()
        self._has_parts = False
        self._weights: dict[str, int] = {}
        self.now = now
        self._asked = boottime()
        self.brought_back = False
        """Whether a job can be claimed again because its claim has been found to have lapsed."""

    def scopes(self, jobs: Iterable[Record]) -> dict[str, LimitScope]:
        """Return the scopes of these jobs, by their keys."""
        return {scope.key: scope for job in jobs for scope in self._limits.scopes(job)}

    def learn(self, jobs: Iterable[Record]) -> None:
        """Read the scopes of these jobs that are not known yet, and write down lapsed claims where they matter."""
        wanted = {key: scope for key, scope in self.scopes(jobs).items() if key not in self._rooms}
        if not wanted:
            return
        if self._committer.store.locks_scopes:
            self._count(wanted)
        else:
            self._list(wanted)

    def locks(self, jobs: Iterable[Record]) -> bool:
        """Return whether claims of these jobs have to be entered under locks."""
        return self._committer.store.locks_scopes and any(map(self._limits.scopes, jobs))

    def lock(self, scopes: Mapping[str, LimitScope]) -> None:
        """Lock these scopes until the end of the transaction, and count again what has come meanwhile."""
        self._read_counted(scopes, "whole")
        self._locked = frozenset(scopes)

    def by_parts(self, jobs: Sequence[Stored], waits: bool) -> list[Stored] | None:
        """Lock a part of each scope of these jobs, and return what :meth:`open_jobs` does. None: the lock of the scopes
        of the first job has no parts.

        :param waits: wait for a part of the scopes of the first job, and leave out the other scopes.
        """
        shared = list(itertools.takewhile(lambda stored: self._is_shared(stored.record), jobs))
        if not shared:
            return None
        scopes = self.scopes(stored.record for stored in (shared[:1] if waits else shared))
        self._read_counted(scopes, "part" if waits else "free part")
        self._locked, self._has_parts = frozenset(self._rooms), True
        return self.open_jobs(shared)

    def open_jobs(self, jobs: Iterable[Stored]) -> list[Stored]:
        """Return those of these jobs any one of which may be claimed under the locks, in their order; none behind the
        first job of a scope that is not locked, or that a part of a lock does not decide about."""
        found = []
        for stored in jobs:
            mine = self._limits.scopes(stored.record)
            if not self.holds(scope.key for scope in mine):
                break
            if not self.full(stored.record):
                found.append(stored)
            elif self._has_parts and not any(self._rooms[scope.key].is_full(self.now) for scope in mine):
                break
        return found

    def _is_shared(self, job: Record) -> bool:
        """Return whether the scopes of this job have parts for several claims at once, or nobody waits for a lock."""
        parts = self._committer.store.scope_parts
        return all(self._parts(scope) == parts for scope in self._limits.scopes(job))

    def _parts(self, scope: LimitScope) -> int:
        """Return how many parts the lock of a scope has: one where there is never room for one claim of each part."""
        parts, limit = self._committer.store.scope_parts, scope.limit
        return 1 if limit.rate is not None or (limit.concurrency or 0) <= parts else parts

    def holds(self, scopes: Iterable[str]) -> bool:
        """Return whether all of these scopes are locked."""
        return self._locked.issuperset(scopes)

    def hold(self, stored: Stored, claim: Record, begins: bool = True, waits: bool = True) -> None:
        """Lock a job, and then its scopes, for a claim that there was room for. Do nothing where scopes have lists.

        :param waits: as for :meth:`Store.commit`.
        :raises Stale: others were quicker.
        """
        if self.locks([claim]):
            found = self._committer.store.lock([stored], None if waits else 1)
            if [each.tag for each in found] != [stored.tag]:
                raise Stale([claim.uuid])
            self.lock(self.scopes([claim]))
            if full := self.full(claim, begins):
                raise Stale(sides=[(SCOPE, scope.key) for scope in full])

    def _count(self, scopes: Mapping[str, LimitScope]) -> None:
        """Have the store count the claims in these scopes, once the lapsed ones among them are written down."""
        tried: dict[str, object] = {}
        for _ in self._committer.tries():
            lapsed, now = self._read_counted(scopes), self.now
            # What could not be written down, as another holds the job, takes its slot for now.
            left = [each for each in lapsed if tried.get(each.record.uuid) != each]
            # Under locks it is written down in the next try, as this one may come to nothing.
            if self._trashed is None or self._locked or not left:
                return
            tried |= {each.record.uuid: each for each in left}
            self._sweep(left, now)
        raise AssertionError("unreachable")

    def _read_counted(self, scopes: Mapping[str, LimitScope], locks: ScopeLock | None = None) -> list[Stored]:
        """Return lapsed claims in these scopes. They take room if they can be written down."""
        store, asked = self._committer.store, boottime()
        now, counts = store.occupied([_place(scope, self._parts(scope)) for scope in scopes.values()], locks)
        found = {key: occupied for key, occupied in zip(scopes, counts, strict=True) if occupied is not None}
        scopes = {key: scopes[key] for key in found}
        self._tell(now, asked)
        rated = [(SCOPE, key) for key, scope in scopes.items() if scope.limit.rate is not None]
        sides = {side.key: side for side in (store.read([], rated).sides if rated else ())}
        own = self._own and self._own.record
        lapsed: dict[str, Stored] = {}
        for key, occupied in found.items():
            scope = scopes[key]
            others = [each for each in occupied.lapsed if own is None or each.record.uuid != own.uuid]
            counted = occupied.claims
            if own is not None and own.state == CLAIMED and key in self.scopes([own]):
                counted -= 1
            if self._trashed is None:
                counted -= occupied.ended
            elif not locks and occupied.ended < LAPSED:
                # Others have written some down meanwhile. Those that they have prolonged the locked count shows.
                counted -= occupied.ended - len(occupied.lapsed)
            side = sides.get(key) or Side(SCOPE, key, None, None, None)
            more = 0 if locks in (None, "whole") else self._parts(scope) - 1
            self._rooms[key] = _Room(scope, side, counted, occupied.ended, more)
            lapsed |= {each.record.uuid: each for each in others}
        return list(lapsed.values())

    def _list(self, scopes: Mapping[str, LimitScope]) -> None:
        """Read the claims that the side records of these scopes list."""
        asked = boottime()
        found = self._committer.store.read([], [(SCOPE, key) for key in scopes])
        rooms = [_Room(scope, side) for side, scope in zip(found.sides, scopes.values(), strict=True)]
        self._rooms.update({room.scope.key: room for room in rooms})
        self._tell(found.now, asked)
        self._clear([room for room in rooms if room.crowded])
        if (timely := self._timely(self._rooms)) is not None and boottime() > timely.end(1):
            # Where it has waited for others, the time is of before.
            asked = boottime()
            self._tell(self._committer.store.now(), asked)

    def _tell(self, now: int, asked: float) -> None:
        if now >= self.now:
            self.now, self._asked = now, asked

    def _timely(self, scopes: Iterable[str]) -> Timely | None:
        rates = [rate for key in scopes if (rate := self._rooms[key].scope.limit.rate) is not None]
        return Timely(self._asked, TIMELY * min(seconds for _, seconds in rates)) if rates else None

    @property
    def timely(self) -> Timely | None:
        """Return by when the claims that have entered are to be stored."""
        return self._timely(self._weights)

    def clear(self, scopes: Iterable[str]) -> bool:
        """Find out which claims in these scopes live, where that is not known; return whether that was so anywhere.
        No claim may have entered."""
        unsure = [room for room in map(self._rooms.__getitem__, scopes) if not room.sure]
        self._clear(unsure)
        return bool(unsure)

    def _clear(self, rooms: Sequence[_Room]) -> None:
        """Take the claims that do not live from these lists."""
        store = self._committer.store
        tried: dict[str, Record] = {}
        for _ in self._committer.tries():
            # A claim may take slots in several of them.
            listed = list(dict.fromkeys(claim for room in rooms for claim in room.listed.claims))
            if not listed:
                return
            asked = boottime()
            found = store.read([uuid for uuid, _ in listed])
            live: set[ClaimKey] = set()
            lapsed: list[Stored] = []
            for claim, stored in zip(listed, found.jobs, strict=True):
                if stored is None or (stored.record.state, stored.record.token) != (CLAIMED, claim[1]):
                    continue
                stands = standing(stored, found.now).state == CLAIMED
                if stands or self._trashed is not None:
                    live.add(claim)
                # What could not be written down, as another holds the job, takes its slot for now.
                if not stands and tried.get(claim[0]) != stored.record:
                    lapsed.append(stored)
            for room in rooms:
                room.keep(live)
            self._tell(found.now, asked)
            if not lapsed or self._trashed is None:
                return
            tried |= {stored.record.uuid: stored.record for stored in lapsed}
            self._sweep(lapsed, found.now)
        raise AssertionError("unreachable")

    def _sweep(self, lapsed: Sequence[Stored], now: int) -> None:
        assert self._trashed is not None
        swept = self._committer.sweep(lapsed, now)
        gone = [record for record in swept if record.state == TRASHED]
        self._trashed.extend(gone)
        self.brought_back = self.brought_back or len(gone) < len(swept)

    def forget(self, scopes: Iterable[str]) -> None:
        """Others have changed these scopes: read them again where they matter."""
        for key in scopes:
            self._rooms.pop(key, None)
            self._weights.pop(key, None)

    def full(self, job: Record, begins: bool = True) -> list[LimitScope]:
        """Return the scopes that have no room for a claim of this job."""
        scopes = self._limits.scopes(job)
        return [scope for scope in scopes if not self._rooms[scope.key].open_to(job.uuid, self.now, begins)]

    def enter(self, claim: Record, begins: bool = True) -> None:
        """Let this claim begin, or be revived, and take its slots."""
        # As late as it may be by the server's clock.
        now = self.now + self._committer.store.precision
        for scope in self._limits.scopes(claim):
            room = self._rooms[scope.key]
            room.enter((claim.uuid, claim.token), now, begins)
            self._weights[scope.key] = room.weight

    @property
    def heavy(self) -> bool:
        """Return whether the lists that have changed are as much as one commit should store."""
        return sum(self._weights.values()) > HEAVY

    def leave(self) -> None:
        """Take back what has entered."""
        self._weights.clear()
        for room in self._rooms.values():
            room.listed = room.cleared

    def marks(self) -> list[Mark]:
        """Return what the claims that have entered change in their scopes."""
        marks = (self._rooms[key].mark() for key in sorted(self._weights))
        return [mark for mark in marks if mark is not None]

    @property
    def opens_in(self) -> int | None:
        """The µs until the first of the used-up rates lets one more claim begin; None if no rate is used up."""
        waits = (room.opens_in(self.now) for room in self._rooms.values())
        return min((wait for wait in waits if wait), default=None)


def _place(scope: LimitScope, parts: int = 1) -> ScopePlace:
    lane_ = lane(scope)
    return ScopePlace(scope.key, scope.limit.name, None if lane_ is None else lane_[1], parts)


def lane(scope: LimitScope) -> Lane | None:
    """Return the name and the group of a scope; None for the scope of a name."""
    name, _, group = scope.key.partition("\n")
    return None if scope.limit.per == "name" else (name, group)


class Revival(NamedTuple):
    """The changes beside a lapsed claim that is revived, and what they rely on."""

    marks: list[Mark]
    checks: list[Side]


def reviving(
    committer: Committer, stored: Stored, claim: Record, ruled: Found | None = None, waits: bool = True
) -> Revival | None:
    """Return what revives this lapsed claim; None: its slot is another claim's now.

    :param stored: the job as it was read.
    :param ruled: the gate, if it was read already.
    :param waits: as for :meth:`Store.commit`.
    :raises Stale: others were quicker.
    """
    ruled = ruled or committer.store.read([], [GATE])
    rooms = Rooms(committer, Limits(Rules.of(ruled.sides[0]).limits), ruled.now, [], stored)
    rooms.learn([claim])
    if rooms.full(claim, begins=False):
        return None
    rooms.hold(stored, claim, begins=False, waits=waits)
    rooms.enter(claim, begins=False)
    return Revival(rooms.marks(), ruled.sides)


def revive(committer: Committer, claims: Mapping[ClaimKey, Change]) -> tuple[list[ClaimKey], list[ClaimKey]]:
    """Store what revives lapsed claims. Return the claims that have no slot, and those to look at again, as others were
    quicker."""
    if not claims:
        return [], []
    ruled = committer.store.read([], [GATE])
    try:
        limits = Limits(Rules.of(ruled.sides[0]).limits)
    except JobFailure as error:
        LOG.warning("%d claims have lapsed, and are not revived: %s", len(claims), error)
        return list(claims), []
    bound: dict[ClaimKey, Change] = {}
    others: dict[ClaimKey, Change] = {}
    for claim, change in claims.items():
        assert isinstance(change.after, Record)
        (bound if limits.scopes(change.after) else others)[claim] = change
    stored = {id(change) for change in committer.apart(list(others.values()), ruled.sides)}
    lost, again = [], [claim for claim, change in others.items() if id(change) not in stored]
    for claim, change in bound.items():
        assert isinstance(change.after, Record)
        assert change.before is not None
        try:
            with committer.store.transaction():
                revival = reviving(committer, change.before, change.after, ruled, waits=False)
                if revival is None:
                    lost.append(claim)
                else:
                    committer.commit([change], revival.marks, checks=revival.checks, waits=False)
        except Stale:
            again.append(claim)
    return lost, again


def free(committer: Committer, left: Mapping[str, Sequence[LimitScope]]) -> None:
    """Claims of these jobs have ended. Wake the waiters if their scopes were full.

    A waiter that misses this, as it fails, looks by itself once a lease has passed.

    :param left: the scopes in which the ended claims had slots, by the uuids of their jobs.
    """
    if not committer.store.locks_scopes:
        _take_from_lists(committer, left)
    elif committer.store.wakes:
        scopes = [scope for scopes in left.values() for scope in scopes]
        gone = Counter(scope.key for scope in scopes)
        known = {scope.key: scope for scope in scopes}
        _, found = committer.store.occupied([_place(scope) for scope in known.values()])
        for scope, occupied in zip(known.values(), found, strict=True):
            if occupied and occupied.claims + gone[scope.key] >= (scope.limit.concurrency or math.inf):
                committer.store.wake()
                return


def _take_from_lists(committer: Committer, left: Mapping[str, Sequence[LimitScope]]) -> None:
    """Take claims that have ended from lists that were full, and wake the waiters."""
    jobs_of: dict[str, set[str]] = {}
    for uuid, scopes in left.items():
        for scope in scopes:
            jobs_of.setdefault(scope.key, set()).add(uuid)
    store = committer.store
    for _ in committer.tries():
        gate, *sides = store.read([], [GATE, *((SCOPE, key) for key in jobs_of)]).sides
        # It may have been set anew since these claims ended.
        rules = Rules.of(gate)
        full = []
        for side in sides:
            limit, listed = rules.of_scope(side.key), Listed.of(side)
            # A later claim may have taken them from the list, and have woken nobody.
            gone = jobs_of[side.key].difference(uuid for uuid, _ in listed.claims)
            if limit and limit.concurrency and len(listed.claims) + len(gone) >= limit.concurrency:
                full.append((side, listed, gone))
        # Others may have claimed these jobs since; read by the same request, a job may be older than its list.
        live = _claimed(committer, list(left)) if full else frozenset()
        marks = []
        for side, listed, gone in full:
            claims = tuple(claim for claim in listed.claims if claim[0] not in left or claim in live)
            if gone or len(claims) < len(listed.claims):
                marks.append(Mark(side, listed._replace(claims=claims).packed(), wakes=True))
        try:
            if marks:
                committer.commit([], marks)
        except Stale:
            continue
        return


def _claimed(committer: Committer, uuids: Sequence[str]) -> frozenset[ClaimKey]:
    """Return the claims of these jobs that are stored as such. A lapsed one that nobody has written down is among them,
    as its holder may still extend it."""
    jobs = committer.store.read(uuids).jobs if uuids else ()
    return frozenset(
        (stored.record.uuid, stored.record.token) for stored in jobs if stored and stored.record.state == CLAIMED
    )


class IdleScopes:
    """Drops the records of scopes in which no claim stands and that no rate counts, some at each tidying."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._place: Any = None
        self._begun = False

    def tidy(self, seconds: float) -> bool:
        """Drop some; return whether there may be more. The first call does nothing: a board does not wait for this to
        be connected."""
        if not self._begun:
            self._begun = True
            return False
        met = 0
        for _ in turns(seconds):
            found, self._place = self._committer.store.sides(SCOPE, self._place, AT_ONCE)
            met += len(found.sides) - self._drop(found.sides)
            if self._place is None or met >= MOST_IDLE:
                return False
        return True

    def _drop(self, sides: Sequence[Side]) -> int:
        if not sides:
            return 0
        ruled = self._committer.store.read([], [GATE])
        try:
            rules = Rules.of(ruled.sides[0])
        except JobFailure:
            return 0
        read = ((side, Listed.of(side)) for side in sides)
        idle = [(side, listed) for side, listed in read if not listed.remembers(rules.of_scope(side.key), ruled.now)]
        held = _claimed(self._committer, list(dict.fromkeys(uuid for _, listed in idle for uuid, _ in listed.claims)))
        return self._gone([side for side, listed in idle if held.isdisjoint(listed.claims)], ruled.sides)

    def _gone(self, idle: Sequence[Side], checks: Sequence[Side]) -> int:
        """Drop these, unless a claim enters one meanwhile, or the rules change; return how many have gone."""
        if not idle:
            return 0
        try:
            self._committer.commit([], [Mark(side, None) for side in idle], checks=checks)
        except Stale:
            return 0 if len(idle) == 1 else sum(self._gone([side], checks) for side in idle)
        return len(idle)
