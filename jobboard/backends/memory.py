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
import operator
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from jobboard import runtime
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


BLOCK = 1000
"""The most names in one block."""

FREE = frozenset({"add", "remove", "ring"})
"""The operations that are never refused."""


class Names:
    """Sorted names in sorted blocks, so that a change moves the names of one block alone, however many there are."""

    def __init__(self) -> None:
        # No block but the first is empty.
        self._blocks: list[list[str]] = [[]]

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def _find(self, name: str) -> tuple[int, list[str], int, bool]:
        """Return the number and the block of a name, its place in the block, and whether it is there."""
        number = bisect.bisect_right(self._blocks, name, 1, key=_first) - 1
        block = self._blocks[number]
        at = bisect.bisect_left(block, name)
        return number, block, at, at < len(block) and block[at] == name

    def __contains__(self, name: str) -> bool:
        return self._find(name)[3]

    def add(self, name: str) -> None:
        number, block, at, is_there = self._find(name)
        if not is_there:
            block.insert(at, name)
            if len(block) > BLOCK:
                self._blocks[number : number + 1] = block[: BLOCK // 2], block[BLOCK // 2 :]

    def remove(self, name: str) -> None:
        number, block, at, is_there = self._find(name)
        if is_there:
            del block[at]
            if not block and len(self._blocks) > 1:
                del self._blocks[number]

    def range(self, after: str, most: int) -> list[str]:
        """Return the first ``most`` names behind ``after``."""
        number, block, at, is_there = self._find(after)
        found = block[at + is_there : at + is_there + most]
        for block in self._blocks[number + 1 :] if len(found) < most else ():
            found += block[: most - len(found)]
            if len(found) == most:
                break
        return found


_first = operator.itemgetter(0)


class Shelf:
    """The records and indexes of one board, which all its drivers share. Every access but ``tell`` holds ``lock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = runtime.Lock()
        self.records: dict[str, Node] = {}
        self.names: defaultdict[str, Names] = defaultdict(Names)
        """The names of each index and folder of records."""
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
            return op.path in self.names[ALIVE]
        if op.do == "before":
            return self.now() < int(op.path)
        node = self.records.get(op.path)
        return node is not None and op.version == node.version

    def write(self, path: str, value: bytes) -> Version:
        if path not in self.records:
            self.add(path)
        version = next(self.versions)
        self.records[path] = Node(value, version)
        return version

    def add(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self.names[folder].add(name)

    def remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self.names[folder].remove(name)


_shelves: dict[str, Shelf] = {}
_shelves_lock = runtime.Lock()


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
                shelf = _shelves[self._name] = Shelf(self._clock or runtime.wall_time)
            elif self._clock not in (None, shelf.clock):
                raise JobFailure(f"the board {self._name!r} is stored with another clock; forget({self._name!r}) first")
        self._shelf = shelf
        with contextlib.suppress(Refused):
            # Memory needs no setup, so a missing board is created without ``create``, too.
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
        self._shelf.lock = runtime.Lock()
        self._session = None

    def now(self, exact: bool = False) -> int:
        return self._shelf.now()

    def read(self, paths: Sequence[str], ranges: Sequence[Range] = (), fresh: bool = True) -> Snapshot:
        shelf = self._shelf
        with shelf.lock:
            get = shelf.records.get
            names = [shelf.names[folder].range(after, most) for folder, most, after in ranges]
            return Snapshot(shelf.now(), [get(path) for path in paths], names)

    def count(self, folder: str) -> int:
        with self._shelf.lock:
            return len(self._shelf.names[folder])

    def commit(self, ops: Sequence[Op]) -> dict[str, Version]:
        shelf = self._shelf
        versions: dict[str, Version] = {}
        bells: list[str] = []
        with shelf.lock:
            wrong = [op.path for op in ops if op.do not in FREE and not shelf.fits(op)]
            if wrong:
                raise Refused(*wrong)
            for do, path, value, _ in ops:
                if do == "add":
                    shelf.add(path)
                elif do == "remove":
                    shelf.remove(path)
                elif do in ("create", "put"):
                    versions[path] = shelf.write(path, value)
                elif do == "delete":
                    del shelf.records[path]
                    shelf.remove(path)
                elif do == "ring":
                    bells.append(path)
        for bell in bells:
            shelf.tell(bell)
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
                self._session = runtime.uuid4().hex
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
