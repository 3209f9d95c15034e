"""Limits: the number of claims that live at once, and the number of claims that begin within a time.

A *scope* is the set of jobs that a limit counts together: the jobs of one name, or of one name and group. Its side
record has the instants at which the last claims of a rate began. There are two ways to know the living claims of a
scope:

- A store that *counts* locks a scope, and then counts its jobs that are stored as claimed. No other call begins or
  revives a claim of the scope until the end of the transaction. The end of a claim changes only its job.
- On other stores, the side record *lists* claims by uuid and token. The commit of a claim also changes the records of
  its scopes, so that two claims cannot both take the last slot. A record lists every living claim that began under the
  limit. It may also list ended claims, as the end of a claim does not change the record. A scope with a short list
  surely has room. If the list is as long as the limit, the jobs themselves show which claims live.

In both ways, a lapsed claim takes its slot until a sweep has written the lapse down. A holder that revives the claim
after that meets a changed job, and has to enter the scope again.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from jobboard import runtime
from jobboard.engine.committer import MOST_CHANGES, Committer, Timely, record_at
from jobboard.engine.rules import Rules
from jobboard.engine.store import (
    GATE,
    Change,
    CommitTerms,
    Found,
    LimitScope,
    Mark,
    Occupied,
    Side,
    Stale,
    Stored,
    turns,
)
from jobboard.exceptions import JobFailure
from jobboard.primitives import Limit
from jobboard.states import CLAIMED, TRASHED, Record
from jobboard.units import HOUR, SECOND

LOG = logging.getLogger(__name__)

SCOPE = "scope"

ClaimKey = tuple[str, int]
"""The uuid of a job, and the token."""

TIMELY = 0.1
"""The part of a rate's window within which a claim has to be committed after the reading of its start. Two windows may
overlap by this part."""

HEAVY = 10_000
"""The number of claims and starts after which a commit takes no further job. Some stores accept 1 MiB at most."""

CLOCK_SKEW = 60 * SECOND
"""The µs, or the rate's window if that is longer, by which a start may lie ahead of now. A start further ahead comes
from a clock that has been set back since. It does not count, so that nobody waits for the clock."""

REMEMBERED = HOUR
"""The µs for which a start without a rate is remembered. A rate that is set within that time counts the start."""

LOCK_WAIT = 0.25
"""The seconds for which a call waits for the lock of a scope. A process that was stopped in its transaction may hold
it."""

MOST_LAPSED = 100
"""The number of lapsed claims of a scope that a counting store lists."""


class ClosedScope(NamedTuple):
    """A scope without room for another claim.

    group: the group that is counted by itself; None where the whole name is. is_full: as many claims live as may be at
    once. opens_in: the µs until the rate lets one more claim begin; 0 if the rate leaves room.
    """

    limit: Limit
    group: str | None
    is_full: bool
    opens_in: int


class Listed(NamedTuple):
    """The value of a scope's side record: claims, and the starts of claims, the latest last."""

    claims: tuple[ClaimKey, ...] = ()
    starts: tuple[int, ...] = ()

    @classmethod
    def of(cls, side: Side) -> Listed:
        """Return the value of a side record. A damaged record counts as empty, so that no job waits for ever."""
        try:
            return cls.read(side)
        except ValueError as error:
            LOG.warning("the count of a limit of %r begins anew: %s", side.key, error)
            return cls()

    @classmethod
    def read(cls, side: Side) -> Listed:
        """Return the value of a side record.

        :raises ValueError: the record is damaged.
        """
        if side.value is None:
            return cls()
        try:
            # A newer writer may add to both.
            claims, starts, *_ = msgpack.unpackb(side.value, use_list=False)
            sound = all(type(uuid) is str and type(token) is int for uuid, token in claims)
            sound = sound and all(type(start) is int for start in starts)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"it is damaged: {error}") from error
        if not sound:
            raise ValueError("it is damaged: it lists other things than claims")
        return cls(claims, starts)

    def remembers(self, limit: Limit | None, now: int) -> bool:
        """Return whether the rate of this limit, or a rate that is set later, counts one of these starts."""
        rate = limit and limit.rate
        span = max(REMEMBERED, int(rate[1] * 1e6)) if rate else REMEMBERED
        # A start further ahead comes from a clock that has been set back since.
        return any(abs(now - start) < span for start in self.starts)

    def packed(self) -> bytes | None:
        packed: bytes | None = msgpack.packb(tuple(self)) if self.claims or self.starts else None
        return packed


class _Room:
    """The room in one scope: the scope as it was read, and the claims that have entered it since.

    :param counted: the claims that the store has counted; None where the side record lists the claims.
    """

    def __init__(self, scope: LimitScope, side: Side, counted: int | None = None) -> None:
        self.scope = scope
        self.side = side
        listed = Listed.of(side)
        self._counts = counted is not None
        self._counted = counted or 0
        # cleared: the list without ended claims, where that mattered. listed: the same with entered claims.
        self.cleared = self.listed = listed._replace(claims=()) if self._counts else listed
        self._was_crowded = self.crowded
        self.sure = not self.listed.claims
        """True if all listed claims are known to live."""

    @property
    def crowded(self) -> bool:
        """True if the list is as long as the limit, so that it matters which claims live."""
        most = self.scope.limit.concurrency
        return most is not None and len(self.listed.claims) >= most

    def keep(self, live: Container[ClaimKey]) -> None:
        claims = tuple(claim for claim in self.listed.claims if claim in live)
        self.cleared = self.listed = self.listed._replace(claims=claims)
        self.sure = True

    def open_to(self, uuid: str, now: int, begins: bool) -> bool:
        """Return whether a claim of this job can begin, or be revived. Earlier claims of the job do not count."""
        limit = self.scope.limit
        if limit.concurrency is not None:
            others = self._counted + sum(claim[0] != uuid for claim in self.listed.claims)
            if others >= limit.concurrency:
                return False
        return not (begins and limit.rate) or self.opens_in(now) == 0

    def opens_in(self, now: int) -> int:
        """Return the µs until the rate lets one more claim begin."""
        if self.scope.limit.rate is None:
            return 0
        number, seconds = self.scope.limit.rate
        starts = self._starts(now, seconds)
        return max(0, starts[-number] + int(seconds * 1e6) - now) if len(starts) >= number else 0

    def _starts(self, now: int, seconds: float) -> tuple[int, ...]:
        starts, last = self.listed.starts, now + max(CLOCK_SKEW, int(seconds * 1e6))
        return tuple(start for start in starts if start <= last) if starts and starts[-1] > last else starts

    def closure(self, now: int) -> ClosedScope | None:
        """Return why the scope has no room for another claim; None if there is room."""
        limit, claims, opens_in = self.scope.limit, self._counted + len(self.listed.claims), self.opens_in(now)
        is_full = limit.concurrency is not None and claims >= limit.concurrency
        return ClosedScope(limit, self.scope.group, is_full, opens_in) if is_full or opens_in else None

    def enter(self, claim: ClaimKey, now: int, begins: bool) -> None:
        limit, (claims, starts) = self.scope.limit, self.listed
        if limit.concurrency is not None:
            claims = (*(each for each in claims if each[0] != claim[0]), claim)
        if begins and limit.rate:
            # A call that has waited for another transaction may have read an earlier time.
            starts = tuple(sorted((*self._starts(now, limit.rate[1]), now)))[-limit.rate[0] :]
        elif not self.listed.remembers(limit, now):
            starts = ()
        self.listed = Listed(claims, starts)

    @property
    def weight(self) -> int:
        """The number of claims and starts that a commit stores for the entered claims."""
        return len(self.listed.starts) if self._counts else len(self.listed.claims) + len(self.listed.starts)

    def mark(self) -> Mark | None:
        """Return the change of the side record by the entered claims; None for no change."""
        if self._counts:
            kept = self.listed._replace(claims=())
            return None if kept == self.cleared else Mark(self.side, kept.packed())
        # Others may wait for the room of a list that was full.
        return Mark(self.side, self.listed.packed(), wakes=self._was_crowded and not self.crowded)


class Rooms:
    """The room in the scopes of some jobs, which decides the claims that may begin. Each entered claim takes room.

    :param now: the time that decides, until a later time is read with the scopes.
    :param trashed: receives the jobs that a sweep moves to the trash; None: sweep nothing, as no claim begins.
    :param own: the job of the call. An earlier claim of this job takes no room.
    """

    def __init__(
        self,
        committer: Committer,
        rules: Rules,
        now: int,
        trashed: list[Record] | None,
        own: Stored | None = None,
    ) -> None:
        self._committer = committer
        self._rules = rules
        self._trashed = trashed
        self._own = own
        self._rooms: dict[str, _Room] = {}
        self._locked: frozenset[str] = frozenset()
        self._busy: frozenset[str] = frozenset()
        self._weights: dict[str, int] = {}
        self._scopes: dict[tuple[str, str | None], list[LimitScope]] = {}
        self.now = now
        self._asked = runtime.boottime()
        self.brought_back = False
        """True if a sweep has brought back a job that can be claimed again."""

    def scopes(self, jobs: Iterable[Record]) -> dict[str, LimitScope]:
        """Return the scopes of these jobs, by their keys."""
        return {scope.key: scope for job in jobs for scope in self._scopes_of(job)}

    def _scopes_of(self, job: Record) -> list[LimitScope]:
        found = self._scopes.get((job.name, job.group))
        if found is None:
            found = self._scopes[job.name, job.group] = self._rules.scopes(job.name, job.group)
        return found

    def learn(self, jobs: Iterable[Record]) -> None:
        """Read the unknown scopes of these jobs, and sweep lapsed claims where these matter."""
        self._learn(self.scopes(jobs))

    def without_room(self, scopes: Mapping[str, LimitScope]) -> dict[str, LimitScope]:
        """Return the scopes among these that have no room for another claim, and read the unknown ones."""
        self._learn(scopes)
        return {key: scope for key, scope in scopes.items() if self._rooms[key].closure(self.now) is not None}

    def _learn(self, scopes: Mapping[str, LimitScope]) -> None:
        wanted = {key: scope for key, scope in scopes.items() if key not in self._rooms}
        if not wanted:
            return
        if self._committer.store.traits.locks_scopes:
            self._read_counts(wanted)
        else:
            self._read_lists(wanted)

    def locks(self, jobs: Iterable[Record]) -> bool:
        """Return whether claims of these jobs need locked scopes."""
        return self._committer.store.traits.locks_scopes and any(map(self._scopes_of, jobs))

    def lock(self, scopes: Mapping[str, LimitScope], wait: float | None = None) -> bool:
        """Lock these scopes until the end of the transaction, and count again. Return whether all are locked.

        :param wait: the seconds to wait for another transaction, :data:`LOCK_WAIT` by default. With 0, a scope that
            another transaction holds counts as full.
        :raises HeldTooLong: another transaction holds one of the scopes.
        """
        store, asked = self._committer.store, runtime.boottime()
        now, claims = store.lock_scopes(list(scopes.values()), LOCK_WAIT if wait is None else wait)
        # A claim that has lapsed counts, as its holder may prolong it.
        self._learn_counts(scopes, now, asked, [Occupied(number or 0, 0, []) for number in claims])
        self._busy = frozenset(key for key, number in zip(scopes, claims, strict=True) if number is None)
        self._locked = frozenset(scopes) - self._busy
        return not self._busy

    def holds(self, scopes: Iterable[str]) -> bool:
        """Return whether all of these scopes are locked."""
        return self._locked.issuperset(scopes)

    def is_busy(self, key: str) -> bool:
        """Return whether another transaction held this scope."""
        return key in self._busy

    def hold(self, stored: Stored, claim: Record, begins: bool = True, is_patient: bool = True) -> None:
        """Lock a job and then its scopes for a claim that had room. Do nothing where scopes have lists.

        :param is_patient: as in :class:`CommitTerms`.
        :raises Stale: others were quicker.
        """
        if self.locks([claim]):
            store = self._committer.store
            found = store.hold([stored]) if is_patient else store.grab([stored], 1)
            if [each.tag for each in found] != [stored.tag]:
                raise Stale([claim.uuid])
            self.lock(self.scopes([claim]))
            if full := self.full_scopes(claim, begins):
                raise Stale(sides=[(SCOPE, scope.key) for scope in full])

    def _read_counts(self, scopes: Mapping[str, LimitScope]) -> None:
        """Let the store count the claims in these scopes, and sweep the lapsed ones."""
        tried: dict[str, object] = {}
        for _ in self._committer.tries():
            asked = runtime.boottime()
            now, counts = self._committer.store.occupied(list(scopes.values()))
            lapsed, now = self._learn_counts(scopes, now, asked, counts), self.now
            # A lapse that could not be written down, as another holds the job, takes its slot for now.
            left = [each for each in lapsed if tried.get(each.record.uuid) != each]
            # Under locks, the next try sweeps them, as this try may be given up.
            if self._trashed is None or self._locked or not left:
                return
            tried |= {each.record.uuid: each for each in left}
            self._sweep(left, now)
        raise AssertionError("unreachable")

    def _learn_counts(
        self, scopes: Mapping[str, LimitScope], now: int, asked: float, counts: Sequence[Occupied]
    ) -> list[Stored]:
        """Take these counts of claims for the room of the scopes. Return lapsed claims that a sweep can free."""
        store = self._committer.store
        self._note_time(now, asked)
        rated = [(SCOPE, key) for key, scope in scopes.items() if scope.limit.rate is not None]
        sides = {side.key: side for side in (store.read([], rated).sides if rated else ())}
        own = self._own and self._own.record
        lapsed: dict[str, Stored] = {}
        for (key, scope), occupied in zip(scopes.items(), counts, strict=True):
            others = [each for each in occupied.lapsed if own is None or each.record.uuid != own.uuid]
            counted = occupied.claims
            if own is not None and own.state == CLAIMED and key in self.scopes([own]):
                counted -= 1
            if self._trashed is None:
                counted -= occupied.ended
            elif occupied.ended < MOST_LAPSED:
                # Other processes have swept some of these claims. The count under locks shows the prolonged claims.
                counted -= occupied.ended - len(occupied.lapsed)
            side = sides.get(key) or Side(SCOPE, key, None, None, None)
            self._rooms[key] = _Room(scope, side, counted)
            lapsed |= {each.record.uuid: each for each in others}
        return list(lapsed.values())

    def _read_lists(self, scopes: Mapping[str, LimitScope]) -> None:
        """Read the claims that the side records of these scopes list."""
        asked = runtime.boottime()
        found = self._committer.store.read([], [(SCOPE, key) for key in scopes])
        rooms = [_Room(scope, side) for side, scope in zip(found.sides, scopes.values(), strict=True)]
        self._rooms.update({room.scope.key: room for room in rooms})
        self._note_time(found.now, asked)
        self._clear([room for room in rooms if room.crowded])
        if (timely := self._timely(self._rooms)) is not None and runtime.boottime() > timely.end(1):
            # After a wait for others, the time is too old.
            asked = runtime.boottime()
            self._note_time(self._committer.store.now(), asked)

    def _note_time(self, now: int, asked: float) -> None:
        if now >= self.now:
            self.now, self._asked = now, asked

    def _timely(self, scopes: Iterable[str]) -> Timely | None:
        rates = [rate for key in scopes if (rate := self._rooms[key].scope.limit.rate) is not None]
        return Timely(self._asked, TIMELY * min(seconds for _, seconds in rates)) if rates else None

    @property
    def timely(self) -> Timely | None:
        """The time by which the entered claims have to be stored; None without a rate."""
        return self._timely(self._weights)

    def clear(self, scopes: Iterable[str]) -> bool:
        """Find out the living claims of these scopes where they are unknown. Return whether that was so anywhere.

        Call this before a claim enters."""
        unsure = [room for room in map(self._rooms.__getitem__, scopes) if not room.sure]
        self._clear(unsure)
        return bool(unsure)

    def _clear(self, rooms: Sequence[_Room]) -> None:
        """Remove claims that do not live from these lists."""
        store = self._committer.store
        tried: dict[str, Record] = {}
        for _ in self._committer.tries():
            # A claim may take slots in several of them.
            listed = list(dict.fromkeys(claim for room in rooms for claim in room.listed.claims))
            if not listed:
                return
            asked = runtime.boottime()
            found = store.read([uuid for uuid, _ in listed])
            live: set[ClaimKey] = set()
            lapsed: list[Stored] = []
            for claim, stored in zip(listed, found.jobs, strict=True):
                if stored is None or (stored.record.state, stored.record.token) != (CLAIMED, claim[1]):
                    continue
                is_claimed = record_at(stored, found.now).state == CLAIMED
                if is_claimed or self._trashed is not None:
                    live.add(claim)
                # A lapse that could not be written down, as another holds the job, takes its slot for now.
                if not is_claimed and tried.get(claim[0]) != stored.record:
                    lapsed.append(stored)
            for room in rooms:
                room.keep(live)
            self._note_time(found.now, asked)
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
        """Forget scopes that others have changed, so that they are read again."""
        for key in scopes:
            self._rooms.pop(key, None)
            self._weights.pop(key, None)

    def full_scopes(self, job: Record, begins: bool = True) -> list[LimitScope]:
        """Return the scopes that have no room for a claim of this job."""
        rooms = ((scope, self._rooms[scope.key]) for scope in self._scopes_of(job))
        return [
            scope for scope, room in rooms if scope.key in self._busy or not room.open_to(job.uuid, self.now, begins)
        ]

    def closures(self, job: Record) -> list[ClosedScope]:
        """Return the scopes of this job that have no room, and why."""
        found = (self._rooms[scope.key].closure(self.now) for scope in self._scopes_of(job))
        return [closed for closed in found if closed is not None]

    def enter(self, claim: Record, begins: bool = True) -> None:
        """Let this claim begin, or be revived, and take its slots."""
        # As late as it may be by the server's clock.
        now = self.now + self._committer.store.precision
        for scope in self._scopes_of(claim):
            room = self._rooms[scope.key]
            room.enter((claim.uuid, claim.token), now, begins)
            self._weights[scope.key] = room.weight

    @property
    def heavy(self) -> bool:
        """True if the changed lists are as large as one commit should store."""
        return sum(self._weights.values()) > HEAVY

    def leave_all(self) -> None:
        """Take all entered claims out again."""
        self._weights.clear()
        for room in self._rooms.values():
            room.listed = room.cleared

    def marks(self) -> list[Mark]:
        """Return the changes of the scopes by the entered claims."""
        marks = (self._rooms[key].mark() for key in sorted(self._weights))
        return [mark for mark in marks if mark is not None]

    @property
    def opens_in(self) -> int | None:
        """The µs until the first of the used-up rates lets one more claim begin; None if no rate is used up."""
        waits = (room.opens_in(self.now) for room in self._rooms.values())
        return min((wait for wait in waits if wait), default=None)


class Revival(NamedTuple):
    """The changes of scopes by a revived claim, and the side records that they rely on."""

    marks: list[Mark]
    checks: list[Side]


def plan_revival(
    committer: Committer, stored: Stored, claim: Record, gate: Found | None = None, is_patient: bool = True
) -> Revival | None:
    """Return the plan that revives a lapsed claim; None if another claim has its slot.

    :param stored: the job as it was read.
    :param gate: the reading of the gate, if there was one already.
    :param is_patient: as in :class:`CommitTerms`.
    :raises Stale: others were quicker.
    """
    gate = gate or committer.store.read([], [GATE])
    rooms = Rooms(committer, Rules.of(gate.sides[0]), gate.now, [], stored)
    rooms.learn([claim])
    if rooms.full_scopes(claim, begins=False):
        return None
    rooms.hold(stored, claim, begins=False, is_patient=is_patient)
    rooms.enter(claim, begins=False)
    return Revival(rooms.marks(), gate.sides)


def revive(committer: Committer, claims: Mapping[ClaimKey, Change]) -> tuple[list[ClaimKey], list[ClaimKey]]:
    """Revive lapsed claims. Return the claims without a slot, and the claims whose jobs another process has changed."""
    if not claims:
        return [], []
    gate = committer.store.read([], [GATE])
    try:
        rules = Rules.of(gate.sides[0])
    except JobFailure as error:
        LOG.warning("%d claims have lapsed, and are not revived: %s", len(claims), error)
        return list(claims), []
    bound: dict[ClaimKey, Change] = {}
    others: dict[ClaimKey, Change] = {}
    for claim, change in claims.items():
        assert isinstance(change.after, Record)
        (bound if rules.scopes(change.after.name, change.after.group) else others)[claim] = change
    stored = {id(change) for change in committer.commit_each(list(others.values()), gate.sides)}
    lost, again = [], [claim for claim, change in others.items() if id(change) not in stored]
    for claim, change in bound.items():
        assert isinstance(change.after, Record)
        assert change.before is not None
        try:
            with committer.store.transaction():
                revival = plan_revival(committer, change.before, change.after, gate, is_patient=False)
                if revival is None:
                    lost.append(claim)
                else:
                    committer.commit([change], revival.marks, (), revival.checks, CommitTerms(is_patient=False))
        except Stale:
            again.append(claim)
    return lost, again


def free_slots(committer: Committer, left: Mapping[str, Sequence[LimitScope]]) -> None:
    """Free the slots of ended claims, and wake waiters if the scopes were full.

    If this fails, waiters look by themselves once a lease has passed.

    :param left: the scopes in which the ended claims had slots, by the uuids of their jobs.
    """
    if not committer.store.traits.locks_scopes:
        _take_from_lists(committer, left)
    elif committer.store.traits.wakes:
        scopes = [scope for scopes in left.values() for scope in scopes]
        gone = Counter(scope.key for scope in scopes)
        known = {scope.key: scope for scope in scopes}
        _, found = committer.store.occupied(list(known.values()))
        for scope, occupied in zip(known.values(), found, strict=True):
            if occupied.claims + gone[scope.key] >= (scope.limit.concurrency or math.inf):
                committer.store.wake()
                return


def _take_from_lists(committer: Committer, left: Mapping[str, Sequence[LimitScope]]) -> None:
    """Remove ended claims from lists that were full, and wake the waiters."""
    jobs_of: dict[str, set[str]] = {}
    for uuid, scopes in left.items():
        for scope in scopes:
            jobs_of.setdefault(scope.key, set()).add(uuid)
    store = committer.store
    for _ in committer.tries():
        gate, *sides = store.read([], [GATE, *((SCOPE, key) for key in jobs_of)]).sides
        # The limits may have changed since the claims ended.
        rules = Rules.of(gate)
        full = []
        for side in sides:
            limit, listed = rules.of_scope(side.key), Listed.of(side)
            # A later claim may have removed them from the list without waking anybody.
            gone = jobs_of[side.key].difference(uuid for uuid, _ in listed.claims)
            if limit and limit.concurrency and len(listed.claims) + len(gone) >= limit.concurrency:
                full.append((side, listed, gone))
        # Others may have claimed these jobs since. A second reading shows the jobs newer than their lists.
        live = _read_claims(committer, list(left)) if full else frozenset()
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


def _read_claims(committer: Committer, uuids: Sequence[str]) -> frozenset[ClaimKey]:
    """Return the claims of these jobs that are stored as claimed. Lapsed claims before a sweep are among them, as their
    holders may still extend them."""
    jobs = committer.store.read(uuids).jobs if uuids else ()
    return frozenset(
        (stored.record.uuid, stored.record.token) for stored in jobs if stored and stored.record.state == CLAIMED
    )


class IdleScopes:
    """The removal of idle scopes, which have no living claim and no start that a rate counts."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._position: Any = None
        self._begun = False

    def tidy(self, seconds: float) -> bool:
        """Drop some idle scopes. Return whether there may be more.

        The first call does nothing, so that the opening of a board does not wait for this."""
        if not self._begun:
            self._begun = True
            return False
        for _ in turns(seconds):
            found, self._position = self._committer.store.sides(SCOPE, self._position, MOST_CHANGES)
            self._drop(found.sides)
            if self._position is None:
                return False
        return True

    def _drop(self, sides: Sequence[Side]) -> None:
        gate = self._committer.store.read([], [GATE])
        try:
            rules = Rules.of(gate.sides[0])
        except JobFailure:
            return
        read = ((side, Listed.of(side)) for side in sides)
        idle = [(side, listed) for side, listed in read if not listed.remembers(rules.of_scope(side.key), gate.now)]
        held = _read_claims(
            self._committer, list(dict.fromkeys(uuid for _, listed in idle for uuid, _ in listed.claims))
        )
        gone = [Mark(side, None) for side, listed in idle if held.isdisjoint(listed.claims)]
        # A claim may enter a scope meanwhile, or the rules may change.
        if gone:
            self._committer.commit_marks_each(gone, gate.sides)
