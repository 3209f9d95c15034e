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
from jobboard.engine import Answer, Change, Found, Look, Slot, Stale, Store, Stored, StoreEngine
from jobboard.exceptions import JobFailure
from jobboard.primitives import Characteristics, Draft
from jobboard.states import COMPLETE, LIVE, TRASHED, UNCLAIMED, Record, State, settle

_DAY = 24 * 3600 * 1_000_000
_OVERDUE = 100

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


class _Shelf:
    """The jobs of one name, which all its boards share. Every access holds ``lock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.jobs: dict[str, Stored] = {}
        self.keys: dict[str, str] = {}
        # Heaps keep what has left them until it comes to their top.
        self.ready: list[_Place] = []
        self.by_name: dict[str, list[_Place]] = {}
        self.timed: list[tuple[int, str]] = []
        self.purged: dict[str, int] = {}
        self.answers: dict[tuple[str, int], Answer] = {}
        self.entities: dict[tuple[str, str], tuple[str, str]] = {}
        self.sequence = 0
        self.tags = itertools.count(1)
        self.listeners: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
        if isinstance(clock, ManualClock):
            clock._shelves.add(self)

    def now(self) -> int:
        return int(self.clock() * 1e6)

    def tell(self) -> None:
        for store in list(self.listeners):
            store.news()

    def put(self, record: Record) -> Stored:
        stored = self.jobs[record.uuid] = Stored(record, next(self.tags))
        if record.key is not None and record.state in LIVE:
            self.keys[record.key] = record.uuid
        if record.state == UNCLAIMED:
            place = (record.priority, record.sequence, record.uuid)
            heapq.heappush(self.ready, place)
            heapq.heappush(self.by_name.setdefault(record.name, []), place)
        if record.lock_until is not None:
            heapq.heappush(self.timed, (record.lock_until, record.uuid))
        return stored

    def first(self, limit: int, names: Sequence[str] | None, readable: int) -> list[Stored]:
        """The jobs that are served next; what is no longer claimable goes from the heaps that it is met in."""
        heaps = [self.ready] if names is None else [self.by_name[name] for name in names if name in self.by_name]
        met: list[tuple[list[_Place], _Place]] = []
        found: dict[str, Stored] = {}
        while len(found) < limit and (heap := min(filter(None, heaps), key=_top, default=None)):
            place = heapq.heappop(heap)
            stored = self.jobs.get(place[2])
            if stored is None or stored.record.state != UNCLAIMED or place[2] in found:
                continue
            met.append((heap, place))
            if stored.record.version <= readable:
                found[place[2]] = stored
        for heap, place in met:
            heapq.heappush(heap, place)
        return list(found.values())

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

    def __init__(
        self, name: str, clock: Callable[[], float] | None, claim_ttl: float, news: Callable[[], None]
    ) -> None:
        self._name = name
        self._clock = clock
        self._ttl = claim_ttl
        self.news = news

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

    def read(self, uuids: Sequence[str]) -> Found:
        shelf = self._shelf
        with shelf.lock:
            gone = {uuid: TRASHED if uuid in shelf.purged else COMPLETE for uuid in uuids if uuid not in shelf.jobs}
            return Found(shelf.now(), [gone.get(uuid) or shelf.jobs[uuid] for uuid in uuids])

    def keyed(self, keys: Sequence[str]) -> dict[str, str]:
        with self._shelf.lock:
            return {key: self._shelf.keys[key] for key in keys if key in self._shelf.keys}

    def look(self, limit: int, names: Sequence[str] | None, readable: int) -> Look:
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            overdue = shelf.overdue(now)
            event = max(0, shelf.timed[0][0] - now) if shelf.timed else None
            return Look(now, shelf.first(limit, names, readable), overdue, event)

    def _standing(self) -> tuple[int, list[Record]]:
        """Every job as it stands."""
        shelf = self._shelf
        with shelf.lock:
            now = shelf.now()
            return now, [settle(stored.record, now) for stored in shelf.jobs.values()]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Record]]:
        behind = (-1, -1) if after is None else _place(after)
        now, records = self._standing()
        found = (
            record
            for record in records
            if record.state in states and (names is None or record.name in names) and _place(record) > behind
        )
        return now, heapq.nsmallest(limit, found, key=_place)

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

    def slot(self, handle: str, number: int) -> Slot:
        # An answer is never changed, so that it is its own tag.
        answer = self._shelf.answers.get((handle, number))
        return Slot(handle, number, answer, answer)

    def commit(self, changes: Sequence[Change], slot: Slot | None = None, answer: Answer | None = None) -> list[Stored]:
        shelf = self._shelf
        with shelf.lock:
            self._check(changes, slot)
            now = shelf.now()
            kept: list[Stored] = []
            for before, _, purged in changes:
                if before is not None:
                    self._take_down(before.record, now if purged else None)
            for _, after, _ in changes:
                if isinstance(after, Draft):
                    shelf.sequence += 1
                    if after.arrival is not None:
                        shelf.purged.pop(after.uuid, None)
                    kept.append(shelf.put(after.record(shelf.sequence, now)))
                elif after is not None:
                    kept.append(shelf.put(after))
            if slot is not None and answer is not None:
                shelf.answers[slot.handle, slot.number] = answer
            wakes = any(stored.record.state == UNCLAIMED or stored.record.lock_until is not None for stored in kept)
        if wakes:
            shelf.tell()
        return kept

    def _check(self, changes: Sequence[Change], slot: Slot | None) -> None:
        shelf = self._shelf
        if slot is not None and shelf.answers.get((slot.handle, slot.number)) is not slot.tag:
            raise Stale
        given_up: set[str | None] = set()
        for before, _, _ in changes:
            if before is not None:
                if shelf.jobs.get(before.record.uuid) is not before:
                    raise Stale
                given_up.add(before.record.uuid)
        for before, after, _ in changes:
            if before is None and after is not None and after.uuid in shelf.jobs:
                raise Stale
            if after is not None and after.key is not None and _holds_key(after):
                holder = shelf.keys.get(after.key)
                if holder is not None and holder not in given_up:
                    raise Stale

    def _take_down(self, record: Record, purged: int | None) -> None:
        shelf = self._shelf
        del shelf.jobs[record.uuid]
        if record.key is not None and shelf.keys.get(record.key) == record.uuid:
            del shelf.keys[record.key]
        if purged is not None:
            # For a day.
            shelf.purged = {uuid: at for uuid, at in shelf.purged.items() if at > purged - _DAY}
            shelf.purged[record.uuid] = purged

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        with self._shelf.lock:
            self._shelf.entities[kind, name] = (handle, metadata)

    def delist(self, handle: str) -> None:
        shelf = self._shelf
        with shelf.lock:
            shelf.entities = {key: value for key, value in shelf.entities.items() if value[0] != handle}

    def roster(self) -> list[tuple[str, str, str]]:
        with self._shelf.lock:
            return [(kind, name, metadata) for (kind, name), (_, metadata) in self._shelf.entities.items()]


def _clock(value: Any) -> Callable[[], float]:
    if not callable(value):
        raise TypeError("must be a callable that answers seconds since 1970, as time.time does")
    return value  # type: ignore[no-any-return]


class MemoryEngine(StoreEngine):
    """A board in this process's memory. ``clock`` (in a dict) sets the clock of a board that is not stored yet."""

    options: ClassVar[Mapping[str, conf.Option]] = {
        "clock": conf.Option(_clock, None, "a callable that answers seconds since 1970 UTC"),
    }

    poll_cap = 3600.0

    def _make_store(self) -> Store:
        return MemoryStore(self._name, self._conf["clock"], self._conf["claim_ttl"], self.news)


def _holds_key(after: Draft | Record) -> bool:
    if isinstance(after, Record):
        return after.state in LIVE
    return after.arrival is None or after.arrival.trashed_on is None


def _top(heap: list[_Place]) -> _Place:
    return heap[0]


def _place(record: Record) -> tuple[int, int]:
    return record.priority, record.sequence


def _trashed_at(record: Record) -> tuple[int, int]:
    return record.modified_on, record.sequence
