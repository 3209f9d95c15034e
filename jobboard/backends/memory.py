"""The board in memory: the reference for the other backends, and a board for the tests of users.

Boards of one name in one process share their jobs. The jobs stay when a board is closed. The stored board has a clock.
A :class:`ManualClock` makes leases lapse and delays end at will::

    clock = ManualClock()
    board = jobboard.fetch("test", {"board": "memory", "clock": clock})

A kept claim has no lease: its holder lives in the same process.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from jobboard.conf import Option
from jobboard.engine import Seat
from jobboard.exceptions import JobFailure
from jobboard.kv.driver import ALIVE, MISSED, Driver, Node, Numbers, Op, Range, Refused, Snapshot, Version
from jobboard.kv.store import KVStore
from jobboard.primitives import Characteristics


class ManualClock:
    """A clock that only :meth:`advance` moves. ``start`` is in seconds since 1970 UTC."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self.shelves: weakref.WeakSet[Shelf] = weakref.WeakSet()

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake waiters."""
        self._now += seconds
        for shelf in list(self.shelves):
            shelf.tell(MISSED)


class Shelf:
    """The records and indexes of one board, which all its drivers share. Every access but ``tell`` holds ``lock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.records: dict[str, Node] = {}
        self.names: dict[str, list[str]] = {}
        """The sorted names of each index and folder of records."""
        self.versions = itertools.count(1)
        self.sequence = 1
        self.listeners: weakref.WeakSet[MemoryDriver] = weakref.WeakSet()
        if isinstance(clock, ManualClock):
            clock.shelves.add(self)

    def now(self) -> int:
        return int(self.clock() * 1e6)

    def tell(self, word: str) -> None:
        for driver in list(self.listeners):
            driver.heard(word)

    def fits(self, op: Op) -> bool:
        """Return whether this operation may be done."""
        if op.do == "create":
            return op.path not in self.records
        if op.do == "lives":
            return self.has(f"{ALIVE}/{op.path}")
        if op.do in ("put", "delete", "check"):
            node = self.records.get(op.path)
            return node is not None and op.version == node.version
        return True

    def write(self, path: str, value: bytes) -> Version:
        if path not in self.records:
            self.add(path)
        version = next(self.versions)
        self.records[path] = Node(value, version)
        return version

    def delete(self, path: str) -> None:
        del self.records[path]
        self.remove(path)

    def has(self, path: str) -> bool:
        place, _, name = path.rpartition("/")
        names = self.names.get(place, [])
        at = bisect.bisect_left(names, name)
        return at < len(names) and names[at] == name

    def add(self, path: str) -> None:
        place, _, name = path.rpartition("/")
        names = self.names.setdefault(place, [])
        at = bisect.bisect_left(names, name)
        if at == len(names) or names[at] != name:
            names.insert(at, name)

    def remove(self, path: str) -> None:
        place, _, name = path.rpartition("/")
        names = self.names.get(place, [])
        at = bisect.bisect_left(names, name)
        if at < len(names) and names[at] == name:
            del names[at]

    def range(self, wanted: Range) -> list[str]:
        names = self.names.get(wanted.place, [])
        at = bisect.bisect_right(names, wanted.after) if wanted.after else 0
        return names[at : at + wanted.most]


_shelves: dict[str, Shelf] = {}
_shelves_lock = threading.Lock()


def forget(name: str) -> None:
    """Drop the stored board of this name, with its jobs. Connected boards keep their jobs to themselves."""
    with _shelves_lock:
        _shelves.pop(name, None)


def _clock(value: Any) -> Callable[[], float]:
    if not callable(value):
        raise TypeError("must be a callable that returns seconds since 1970, as time.time does")
    return value  # type: ignore[no-any-return]


class MemoryDriver(Driver):
    """The driver of one handle, over the shelf of its board. The option ``clock`` becomes the clock of a new shelf."""

    options: ClassVar[Mapping[str, Option]] = {
        "clock": Option(_clock, None, "a callable that returns seconds since 1970 UTC"),
    }
    keeps = "process"
    poll_cap = 3600.0

    def __init__(self, seat: Seat) -> None:
        self._name, self._clock, self._ttl = seat.name, seat.conf["clock"], seat.conf["claim_ttl"]
        self._session: str | None = None
        self.heard: Callable[[str], None] = lambda word: None

    def open(self, create: bool, first: Sequence[Op], heard: Callable[[str], None]) -> Characteristics:
        self.heard = heard
        with _shelves_lock:
            shelf = _shelves.get(self._name)
            if shelf is None:
                shelf = _shelves[self._name] = Shelf(self._clock or time.time)
            elif self._clock not in (None, shelf.clock):
                raise JobFailure(f"the board {self._name!r} is stored with another clock; forget({self._name!r}) first")
        self._shelf = shelf
        with contextlib.suppress(Refused):
            # Memory needs no setup, so a missing board is created whatever ``create`` is.
            self.commit(first)
        return Characteristics(
            durable=False,
            survives_failover=False,
            exact_order=True,
            blocking_wait=True,
            remote_events=False,
            transactional=False,
            claim_ttl=self._ttl,
            notes="lives and ends with this process",
        )

    def close(self) -> None:
        shelf = self._shelf
        shelf.listeners.discard(self)
        with shelf.lock:
            session, self._session = self._session, None
            if session is not None:
                shelf.remove(f"{ALIVE}/{session}")
        if session is not None:
            shelf.tell(MISSED)

    def forked(self) -> None:
        # The child has a copy of all records. A thread of the parent may hold the copied lock.
        self._shelf.lock = threading.Lock()
        self._session = None

    def now(self, exact: bool = False) -> int:
        return self._shelf.now()

    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        shelf = self._shelf
        with shelf.lock:
            get = shelf.records.get
            return Snapshot(shelf.now(), [get(path) for path in paths], [shelf.range(each) for each in ranges])

    def count(self, place: str) -> int:
        with self._shelf.lock:
            return len(self._shelf.names.get(place, ()))

    def commit(self, ops: Sequence[Op]) -> dict[str, Version]:
        shelf = self._shelf
        versions: dict[str, Version] = {}
        with shelf.lock:
            wrong = [op.path for op in ops if not shelf.fits(op)]
            if wrong:
                raise Refused(*wrong)
            for do, path, value, _ in ops:
                if do in ("create", "put"):
                    versions[path] = shelf.write(path, value)
                elif do == "delete":
                    shelf.delete(path)
                elif do == "add":
                    shelf.add(path)
                elif do == "remove":
                    shelf.remove(path)
        for op in ops:
            if op.do == "ring":
                shelf.tell(op.path)
        return versions

    def number(self, count: int, beaten: bool) -> Numbers:
        shelf = self._shelf
        with shelf.lock:
            first = shelf.sequence
            shelf.sequence += count
        return Numbers(first, ())

    def session(self) -> str:
        with self._shelf.lock:
            if self._session is None:
                self._session = uuid.uuid4().hex
                self._shelf.add(f"{ALIVE}/{self._session}")
            return self._session

    def watch(self) -> None:
        self._shelf.listeners.add(self)

    def boards(self, most: int) -> list[str]:
        with _shelves_lock:
            return [self._name, *(name for name in _shelves if name != self._name)][:most]


class MemoryStore(KVStore):
    """A board in this process's memory."""

    driver = MemoryDriver
