"""The board in memory: the reference for the others, and what to test one's own code with.

Boards of one name in one process share their jobs, which stay when a board is closed. Time is the stored board's: give
it a :class:`ManualClock` to make leases lapse and delays end at will::

    clock = ManualClock()
    board = jobboard.fetch("test", {"board": "memory", "clock": clock})

A kept claim has no lease here: its holder lives in this very process.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from jobboard import conf
from jobboard.engine import (
    GATE,
    Change,
    Committed,
    Found,
    Lane,
    Look,
    Mark,
    Side,
    Stale,
    Store,
    Stored,
    StoreEngine,
    reschedules,
    turns,
)
from jobboard.exceptions import JobFailure
from jobboard.primitives import Characteristics, Draft
from jobboard.states import TRASHED, UNCLAIMED, Record, State, serving_order, settle

_OVERDUE = 100

_SPAN = 10_000
"""How many tags one span of outcomes has."""

_TIDIED = 200
"""How many outcomes are dropped while nobody else gets a turn."""

_Place = tuple[int, int, str]
"""Where a job is served, and its uuid."""


class ManualClock:
    """A clock that goes only when told to. ``start`` in seconds since 1970 UTC."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self._shelves: weakref.WeakSet[_Shelf] = weakref.WeakSet()

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake who waits for it."""
        self._now += seconds
        for shelf in list(self._shelves):
            shelf.tell()
            shelf.tell_schedulers()


class _Outcomes:
    """Side records of a kind that is paged: by key, by the order of their tags, and by when they end.

    Each commit that brings one drops a few that have ended, so that no step is ever long."""

    def __init__(self) -> None:
        self.by_key: dict[str, Side] = {}
        # In spans of tags, which rise: a page begins in the middle, and what is dropped leaves no gap to walk through.
        self._spans: dict[int, dict[int, Side]] = {}
        self._ends: list[tuple[int, int, str]] = []

    def put(self, side: Side) -> None:
        tag = _tag(side)
        self.drop(side.key)
        self.by_key[side.key] = side
        self._spans.setdefault(tag // _SPAN, {})[tag] = side
        if side.until is not None:
            heapq.heappush(self._ends, (side.until, tag, side.key))

    def drop(self, key: str) -> None:
        side = self.by_key.pop(key, None)
        if side is not None:
            tag = _tag(side)
            span = self._spans[tag // _SPAN]
            del span[tag]
            if not span:
                del self._spans[tag // _SPAN]

    def tidy(self, now: int, most: int) -> bool:
        """Drop at most so many that have ended; whether there may be more."""
        ends = self._ends
        for _ in range(most):
            if not ends or ends[0][0] > now:
                return False
            _, tag, key = heapq.heappop(ends)
            if key in self.by_key and self.by_key[key].tag == tag:
                self.drop(key)
        return True

    def newest(self, after: Side | None, limit: int) -> list[Side]:
        before = _tag(after) if after is not None else float("inf")
        found = (
            span[tag]
            for number, span in reversed(self._spans.items())
            if number * _SPAN < before
            for tag in reversed(span)
            if tag < before
        )
        return list(itertools.islice(found, limit))


class _Shelf:
    """The jobs of one name, which all its boards share. Every access holds ``lock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.jobs: dict[str, Stored] = {}
        self.sides: dict[tuple[str, str], Side] = {}
        self.outcomes = _Outcomes()
        # Heaps keep what has left them until it comes to their top. A name has one once somebody asks for it.
        self.ready: list[_Place] = []
        self.by_name: dict[str, list[_Place]] = {}
        self.all_named = False
        # By name and group, once a group is full.
        self.by_lane: dict[tuple[str, str | None], list[_Place]] | None = None
        self.timed: list[tuple[int, str]] = []
        self.sequences = itertools.count(1)
        self.tags = itertools.count(1)
        self.listeners: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
        if isinstance(clock, ManualClock):
            clock._shelves.add(self)

    def now(self) -> int:
        return int(self.clock() * 1e6)

    def tell(self) -> None:
        for store in list(self.listeners):
            store.news()

    def tell_schedulers(self) -> None:
        for store in list(self.listeners):
            store.rescheduled()

    def put(self, record: Record) -> Stored:
        stored = self.jobs[record.uuid] = Stored(record, next(self.tags))
        if record.state == UNCLAIMED:
            place = (record.priority, record.sequence, record.uuid)
            heapq.heappush(self.ready, place)
            if self.all_named or record.name in self.by_name:
                heapq.heappush(self.by_name.setdefault(record.name, []), place)
            if self.by_lane is not None:
                heapq.heappush(self._lane(record), place)
        if record.lock_until is not None:
            heapq.heappush(self.timed, (record.lock_until, record.uuid))
        return stored

    def heaps(self, names: Sequence[str] | None) -> list[list[_Place]]:
        return [self.ready] if names is None else [self._of(name) for name in names]

    def lanes_but(
        self, full: Sequence[Lane], names: Sequence[str] | None, without: Sequence[str]
    ) -> list[list[_Place]]:
        """The heaps of all lanes but those that are full."""
        if self.by_lane is None:
            self.by_lane = {}
            for place in sorted(self.ready):
                if place[2] in self.jobs:
                    self._lane(self.jobs[place[2]].record).append(place)
        self.by_lane = {lane: heap for lane, heap in self.by_lane.items() if heap}
        left_out = {*full}
        return [
            heap
            for lane, heap in self.by_lane.items()
            if lane not in left_out and (lane[0] in names if names is not None else lane[0] not in without)
        ]

    def _lane(self, record: Record) -> list[_Place]:
        assert self.by_lane is not None
        return self.by_lane.setdefault((record.name, record.group), [])

    def first(self, limit: int, heaps: list[list[_Place]], readable: int) -> list[Stored]:
        """The jobs that are served next; what is no longer claimable, or has gone to another place, goes from the heaps
        that it is met in."""
        alone = heaps[0] if len(heaps) == 1 else None
        met: list[tuple[list[_Place], _Place]] = []
        found: dict[str, Stored] = {}
        while len(found) < limit and (heap := alone or min(filter(None, heaps), key=_top, default=None)):
            place = heapq.heappop(heap)
            uuid = place[2]
            stored = self.jobs.get(uuid)
            if stored is None or stored.record.state != UNCLAIMED or uuid in found:
                continue
            if stored.record.priority != place[0]:
                continue
            met.append((heap, place))
            if stored.record.version <= readable:
                found[uuid] = stored
        for heap, place in met:
            heapq.heappush(heap, place)
        return list(found.values())

    def _of(self, name: str) -> list[_Place]:
        """The heap of the jobs of one name."""
        heap = self.by_name.get(name)
        if heap is None:
            heap = self.by_name[name] = [
                place for place in self.ready if (stored := self.jobs.get(place[2])) and stored.record.name == name
            ]
            heapq.heapify(heap)
        return heap

    def others(self, without: Sequence[str]) -> list[str]:
        """All names of jobs that are ready, but these."""
        if not self.all_named:
            for name in {self.jobs[uuid].record.name for *_, uuid in self.ready if uuid in self.jobs}:
                self._of(name)
            self.all_named = True
        for name in [name for name, heap in self.by_name.items() if not heap]:
            del self.by_name[name]
        return [name for name in self.by_name if name not in without]

    def side(self, kind: str, key: str) -> Side:
        found = self.outcomes.by_key.get(key) if kind == "outcome" else self.sides.get((kind, key))
        return found or Side(kind, key, None, None, None)

    def mark(self, mark: Mark, now: int) -> Side | None:
        """What is stored of a side record after this step."""
        side, value = mark.before, mark.value
        paged = side.kind == "outcome"
        if value is None:
            if paged:
                self.outcomes.drop(side.key)
            self.sides.pop((side.kind, side.key), None)
            return None
        stored = Side(side.kind, side.key, value, mark.end(now), next(self.tags))
        if paged:
            self.outcomes.put(stored)
            self.outcomes.tidy(now, 2)
        else:
            self.sides[side.kind, side.key] = stored
        return stored

    def overdue(self, now: int) -> list[Stored]:
        found: dict[str, Stored] = {}
        while self.timed and self.timed[0][0] <= now and len(found) < _OVERDUE:
            until, uuid = heapq.heappop(self.timed)
            stored = self.jobs.get(uuid)
            if stored is not None and stored.record.lock_until == until:
                found[uuid] = stored
        for uuid, stored in found.items():
            heapq.heappush(self.timed, (stored.record.lock_until or 0, uuid))
        return list(found.values())


_shelves: dict[str, _Shelf] = {}
_shelves_lock = threading.Lock()


def forget(name: str) -> None:
    """Drop the stored board of this name, with its jobs. Boards that are connected to it keep it to themselves."""
    with _shelves_lock:
        _shelves.pop(name, None)


class MemoryStore(Store):
    """One board's way to its shelf."""

    keeps = "process"

    def __init__(
        self,
        name: str,
        clock: Callable[[], float] | None,
        claim_ttl: float,
        news: Callable[[], None],
        rescheduled: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._ttl = claim_ttl
        self.news = news
        self.rescheduled = rescheduled

    def open(self) -> Characteristics:
        with _shelves_lock:
            shelf = _shelves.get(self._name)
            if shelf is None:
                shelf = _shelves[self._name] = _Shelf(self._clock or time.time)
            elif self._clock not in (None, shelf.clock):
                raise JobFailure(f"the board {self._name!r} is stored with another clock; forget({self._name!r}) first")
        self._shelf = shelf
        shelf.listeners.add(self)
        return Characteristics(
            durable=False,
            survives_failover=False,
            exact_order=True,
            blocking_wait=True,
            remote_events=False,
            transactional=False,
            claim_ttl=self._ttl,
            notes="lives and dies with this process",
        )

    def close(self) -> None:
        self._shelf.listeners.discard(self)

    def forked(self) -> None:
        # The child has a copy of everything, perhaps with the lock held by a thread that it has not.
        self._shelf.lock = threading.Lock()

    def now(self) -> int:
        return self._shelf.now()

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        shelf = self._shelf
        with shelf.lock:
            return Found(shelf.now(), [shelf.jobs.get(uuid) for uuid in uuids], [shelf.side(*side) for side in sides])

    def listed(self, kind: str) -> Found:
        shelf = self._shelf
        with shelf.lock:
            return Found(shelf.now(), [], [side for side in shelf.sides.values() if side.kind == kind])

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        shelf = self._shelf
        with shelf.lock:
            return Found(shelf.now(), [], shelf.outcomes.newest(after, limit))

    def walk(self, kind: str, place: Any) -> tuple[Found, Any]:
        shelf = self._shelf
        with shelf.lock:
            sides = [side for (each, _), side in shelf.sides.items() if each == kind]
            return Found(shelf.now(), [], [side for side in sides if kind != "key" or side.until is not None]), None

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            overdue = shelf.overdue(now)
            event = max(0, shelf.timed[0][0] - now) if shelf.timed else None
            wanted = shelf.others(without) if names is None and without else names
            heaps = shelf.heaps(wanted) if not full else shelf.lanes_but(full, names, without)
            return Look(now, shelf.first(limit, heaps, readable), overdue, event, shelf.side(*GATE))

    def _standing(self) -> tuple[int, list[Record]]:
        """Every job as it stands."""
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            return now, [settle(stored.record, now) for stored in shelf.jobs.values()]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Stored]]:
        behind = (-1, -1) if after is None else serving_order(after)
        now, records = self._standing()
        found = (
            record
            for record in records
            if record.state in states and (names is None or record.name in names) and serving_order(record) > behind
        )
        return now, [Stored(record, None) for record in heapq.nsmallest(limit, found, key=serving_order)]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        newest: Iterable[Record] = (record for record in self._standing()[1] if record.state == TRASHED)
        if after is not None:
            newest = (record for record in newest if _trashed_at(record) < _trashed_at(after))
        return heapq.nlargest(limit, newest, key=_trashed_at)

    def counts(self) -> dict[State, int]:
        return Counter(record.state for record in self._standing()[1])

    def boards(self, most: int) -> list[str]:
        with _shelves_lock:
            others = [name for name in _shelves if name != self._name]
        return [self._name, *others][:most]

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> Committed:
        shelf = self._shelf
        with shelf.lock:
            self._check(changes, [*checks, *(mark.before for mark in marks)])
            now = shelf.now()
            jobs = []
            wakes = any(mark.wakes for mark in marks)
            for before, after, _ in changes:
                if after is None:
                    assert before is not None
                    del shelf.jobs[before.record.uuid]
                    continue
                record = after.record(next(shelf.sequences), now) if isinstance(after, Draft) else after
                jobs.append(shelf.put(record))
                wakes = wakes or record.state == UNCLAIMED or record.lock_until is not None
            sides = [side for mark in marks if (side := shelf.mark(mark, now)) is not None]
        if wakes:
            shelf.tell()
        if reschedules(changes, marks):
            shelf.tell_schedulers()
        return Committed(jobs, sides)

    def _check(self, changes: Sequence[Change], sides: Sequence[Side]) -> None:
        shelf = self._shelf
        stale = []
        for before, after, _ in changes:
            uuid = before.record.uuid if before is not None else after.uuid if after is not None else ""
            there = shelf.jobs.get(uuid)
            if (there and there.tag) != (before and before.tag):
                stale.append(uuid)
        others = [(side.kind, side.key) for side in sides if shelf.side(side.kind, side.key).tag != side.tag]
        if stale or others:
            raise Stale(stale, others)

    def outcome_count(self) -> int:
        return len(self._shelf.outcomes.by_key)

    def hear_schedules(self) -> bool:
        return True

    def tidy(self, seconds: float) -> bool:
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            for place in [place for place, side in shelf.sides.items() if side.until is not None and side.until <= now]:
                del shelf.sides[place]
        for _ in turns(seconds):
            with shelf.lock:
                if not shelf.outcomes.tidy(now, _TIDIED):
                    return False
        return True


def _clock(value: Any) -> Callable[[], float]:
    if not callable(value):
        raise TypeError("must be a callable that answers seconds since 1970, as time.time does")
    return value  # type: ignore[no-any-return]


class MemoryEngine(StoreEngine[MemoryStore]):
    """A board in this process's memory. ``clock`` (in a dict) sets the clock of a board that is not stored yet."""

    options: ClassVar[Mapping[str, conf.Option]] = {
        "clock": conf.Option(_clock, None, "a callable that answers seconds since 1970 UTC"),
    }

    poll_cap = 3600.0

    def _make_store(self) -> MemoryStore:
        return MemoryStore(self._name, self._conf["clock"], self._conf["claim_ttl"], self.news, self.rescheduled)


def _tag(side: Side) -> int:
    assert isinstance(side.tag, int)
    return side.tag


def _top(heap: list[_Place]) -> _Place:
    return heap[0]


def _trashed_at(record: Record) -> tuple[int, int]:
    return record.modified_on, record.sequence
