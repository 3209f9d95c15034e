"""How many claims may live at once, and how many may begin within a time.

A *scope* is what a limit counts by itself: the jobs of one name, or those of one name and group. It has a side record,
which lists the claims that have been made in it, by uuid and token, and when the last ones began. A claim in the scope
changes that record in its own commit, so that two can't both have the last slot.

The record lists at least every claim that lives, and may list some that have ended: nothing changes it when a claim
ends. So a scope whose list is short has room for sure. Where it is as long as the limit, the jobs themselves tell which
of these claims live; one that has lapsed is written down as such before it is taken from the list, so that whoever
revives it meets a job that has changed, and has to enter the scope anew.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgpack

from jobboard.engine.calls import HOUR, Committer, Timely, standing
from jobboard.engine.rules import GATE, Rules, SetLimit
from jobboard.engine.store import HELD, Change, Found, Lane, Mark, Side, Stored
from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.primitives import Limit
from jobboard.states import CLAIMED, TRASHED, Record

LOG = logging.getLogger(__name__)

SCOPE = "scope"

ClaimKey = tuple[str, int]
"""The uuid of a job, and the token."""

TIMELY = 0.1
"""Within which part of a rate's window the commit of a claim is to follow the reading of the time that it stores as its
start: of that, two windows may overlap."""

HEAVY = 10_000
"""How many claims and starts one commit may store in lists, before the last one: some take no more than 1 MiB."""

AHEAD = 60 * 1_000_000
"""By how many µs a start may lie ahead of now, or by its rate's time where that is longer. What lies further ahead was
told by a clock that has been set back since, and does not count: nobody waits until the clock is there again."""

REMEMBERED = HOUR
"""For how many µs a start is remembered where no rate counts it: one that is set within that time does."""


class Grouped(Protocol):
    """A job, as limits see it."""

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str | None: ...


class LimitScope(NamedTuple):
    """``key``: of its side record."""

    key: str
    limit: Limit


class Limits:
    """The limits of a board, by the names that they bind."""

    def __init__(self, limits: Iterable[SetLimit]) -> None:
        self._by_name: dict[str, list[Limit]] = {}
        for limit, _ in limits:
            self._by_name.setdefault(limit.name, []).append(limit)

    def scopes(self, job: Grouped) -> list[LimitScope]:
        """Those that a claim of this job has to enter."""
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
        """Where claims of these jobs have slots, by their uuids."""
        if not self._by_name:
            return {}
        held = ((job.uuid, [scope for scope in self.scopes(job) if scope.limit.concurrency]) for job in jobs)
        return {uuid: scopes for uuid, scopes in held if scopes}

    def among(self, names: Sequence[str] | None) -> list[Limit]:
        """Those of jobs of these names; None: of any name."""
        return [limit for name, limits in self._by_name.items() if names is None or name in names for limit in limits]

    def bind(self, names: Sequence[str] | None) -> bool:
        """Whether jobs of these names, None: of any name, may have scopes."""
        return bool(self._by_name) if names is None else any(name in self._by_name for name in names)


class Listed(NamedTuple):
    """What the side record of a scope tells: claims, and instants at which some have begun, the latest last."""

    claims: tuple[ClaimKey, ...] = ()
    starts: tuple[int, ...] = ()

    @classmethod
    def of(cls, side: Side) -> Listed:
        """Of a damaged one it begins anew: claims that stand count no more, but no job waits for ever."""
        try:
            return cls.read(side)
        except ValueError as error:
            LOG.warning("what a limit counts of %r begins anew: %s", side.key, error)
            return cls()

    @classmethod
    def read(cls, side: Side) -> Listed:
        """:raises ValueError: it is damaged."""
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
        """Whether a rate counts one of these starts: that of this limit, or another that is set later."""
        rate = limit and limit.rate
        span = max(REMEMBERED, int(rate[1] * 1e6)) if rate else REMEMBERED
        # One that lies further ahead is told by a clock that has been set back since.
        return any(abs(now - start) < span for start in self.starts)

    def packed(self) -> bytes | None:
        packed: bytes | None = msgpack.packb(tuple(self)) if self.claims or self.starts else None
        return packed


class _Room:
    """One scope as it was read, and who has entered it since."""

    def __init__(self, scope: LimitScope, side: Side) -> None:
        self.scope = scope
        self.side = side
        # With only those of its claims that live, where it mattered; and with those that have entered.
        self.cleared = self.listed = Listed.of(side)
        self._was_crowded = self.crowded
        self.sure = not self.listed.claims
        """Whether all of those that were read live."""

    @property
    def crowded(self) -> bool:
        """Whether the list is as long as the limit, so that it matters which of its claims live."""
        most = self.scope.limit.concurrency
        return most is not None and len(self.listed.claims) >= most

    def keep(self, live: Container[ClaimKey]) -> None:
        claims = tuple(claim for claim in self.listed.claims if claim in live)
        self.cleared = self.listed = self.listed._replace(claims=claims)
        self.sure = True

    def open_to(self, uuid: str, now: int, begins: bool) -> bool:
        """Whether a claim of this job, whose earlier ones count for nothing, can begin, or be revived."""
        if self.side.tag is HELD:
            return False
        limit = self.scope.limit
        if limit.concurrency is not None and limit.binding:
            others = sum(claim[0] != uuid for claim in self.listed.claims)
            if others >= limit.concurrency:
                return False
        return not (begins and limit.rate) or self.opens_in(now) == 0

    def opens_in(self, now: int) -> int:
        """µs until its rate lets one more begin."""
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
            # Who has waited for another's transaction may have read the time before.
            starts = tuple(sorted((*self._starts(now, limit.rate[1]), now)))[-limit.rate[0] :]
        elif not self.listed.remembers(limit, now):
            starts = ()
        self.listed = Listed(claims, starts)

    def mark(self) -> Mark:
        # Where the list was full and has room left, others may wait for that.
        return Mark(self.side, self.listed.packed(), wakes=self._was_crowded and not self.crowded)


class Rooms:
    """How much room there is in the scopes of some jobs, and what becomes of it when claims of them begin.

    :param now: the time by which that is judged, unless it is read anew together with the scopes.
    :param trashed: takes in the jobs whose last lapse is written down; None: nothing is, as nobody is going to enter.
    """

    def __init__(self, committer: Committer, limits: Limits, now: int, trashed: list[Record] | None) -> None:
        self._committer = committer
        self._limits = limits
        self._trashed = trashed
        self._rooms: dict[str, _Room] = {}
        self._weights: dict[str, int] = {}
        self.now = now
        self._asked = boottime()
        self.brought_back = False
        """Whether a job can be claimed again because its claim has been found to have lapsed."""

    def learn(self, jobs: Iterable[Record]) -> None:
        """Read what is not known of their scopes."""
        wanted = {scope.key: scope for job in jobs for scope in self._limits.scopes(job)}
        wanted = {key: scope for key, scope in wanted.items() if key not in self._rooms}
        if not wanted:
            return
        asked = boottime()
        found = self._committer.store.read([], [(SCOPE, key) for key in wanted])
        rooms = [_Room(scope, side) for side, scope in zip(found.sides, wanted.values(), strict=True)]
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
        """By when those that have entered are to be stored."""
        return self._timely(self._weights)

    def clear(self, scopes: Iterable[str]) -> bool:
        """Find out which of the claims in these live, where that is not known; whether that was so anywhere. Nobody may
        have entered them."""
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
            swept = self._committer.sweep(lapsed, found.now)
            gone = [record for record in swept if record.state == TRASHED]
            self._trashed.extend(gone)
            self.brought_back = self.brought_back or len(gone) < len(swept)
        raise AssertionError("unreachable")

    def forget(self, scopes: Iterable[str]) -> None:
        """Others have changed these: they are read again where they matter."""
        for key in scopes:
            self._rooms.pop(key, None)
            self._weights.pop(key, None)

    def full(self, job: Record, begins: bool = True) -> list[LimitScope]:
        """The scopes that have no room for a claim of this job."""
        scopes = self._limits.scopes(job)
        return [scope for scope in scopes if not self._rooms[scope.key].open_to(job.uuid, self.now, begins)]

    def enter(self, claim: Record, begins: bool = True) -> None:
        """This claim begins, or is revived, and takes its slots."""
        # As late as it may be by the server's clock.
        now = self.now + self._committer.store.precision
        for scope in self._limits.scopes(claim):
            room = self._rooms[scope.key]
            room.enter((claim.uuid, claim.token), now, begins)
            self._weights[scope.key] = len(room.listed.claims) + len(room.listed.starts)

    @property
    def heavy(self) -> bool:
        """Whether the lists that have changed are as much as one commit should store."""
        return sum(self._weights.values()) > HEAVY

    def leave(self) -> None:
        """None of those that have entered has."""
        self._weights.clear()
        for room in self._rooms.values():
            room.listed = room.cleared

    def marks(self) -> list[Mark]:
        """What those that have entered change in their scopes."""
        return [self._rooms[key].mark() for key in sorted(self._weights)]

    @property
    def opens_in(self) -> int | None:
        """µs until the first of the rates that are used up lets one more begin; None if none is."""
        waits = (room.opens_in(self.now) for room in self._rooms.values())
        return min((wait for wait in waits if wait), default=None)


def lane(scope: LimitScope) -> Lane | None:
    """The name and group of a scope; None where it is a name's."""
    if scope.limit.per == "name":
        return None
    return scope.limit.name, scope.key[len(scope.limit.name) + 1 :]


class Revival(NamedTuple):
    """What changes beside a claim that has lapsed when it is revived, and what that relies on."""

    marks: list[Mark]
    checks: list[Side]


def reviving(committer: Committer, claim: Record) -> Revival | None:
    """None: the claim's slot is another's now."""
    return _reviving(committer, claim, committer.store.read([], [GATE]))


def _reviving(committer: Committer, claim: Record, ruled: Found) -> Revival | None:
    """:param ruled: the gate, as it was read."""
    rooms = Rooms(committer, Limits(Rules.of(ruled.sides[0]).limits), ruled.now, [])
    rooms.learn([claim])
    if rooms.full(claim, begins=False):
        return None
    rooms.enter(claim, begins=False)
    return Revival(rooms.marks(), ruled.sides)


def revive(committer: Committer, claims: Mapping[ClaimKey, Change]) -> tuple[list[ClaimKey], list[ClaimKey]]:
    """Store what revives claims that have lapsed. Which of them have no slot; and which are to be looked at again, as
    others were quicker."""
    if not claims:
        return [], []
    ruled = committer.store.read([], [GATE])
    try:
        limits = Limits(Rules.of(ruled.sides[0]).limits)
    except JobFailure as error:
        LOG.warning("%d claims have lapsed, and are not revived: %s", len(claims), error)
        return list(claims), []
    bound: dict[ClaimKey, Change] = {}
    free: dict[ClaimKey, Change] = {}
    for claim, change in claims.items():
        assert isinstance(change.after, Record)
        (bound if limits.scopes(change.after) else free)[claim] = change
    stored = {id(change) for change in committer.apart(list(free.values()), ruled.sides)}
    lost, again = [], [claim for claim, change in free.items() if id(change) not in stored]
    for claim, change in bound.items():
        assert isinstance(change.after, Record)
        revival = _reviving(committer, change.after, ruled)
        if revival is None:
            lost.append(claim)
        elif not committer.alone(change, *revival):
            again.append(claim)
    return lost, again
