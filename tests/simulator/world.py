"""Virtual time, and threads that take turns: one event after the other, in an order that the seed alone decides."""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import functools
import hashlib
import heapq
import itertools
import math
import threading
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from jobboard import runtime

EPOCH = 1_000_000_000_000_000
"""The time at which a world begins, in µs since 1970."""

MOST = 300_000
"""The most events of a world. A world that needs more goes round in circles."""

PATIENCE = 60.0
"""The real seconds after which a thread that holds the baton counts as blocked outside of the world."""


_own = threading.local()
"""``is_simulated``: whether this thread belongs to a world."""


class Over(BaseException):
    """The end of the world, raised in its tasks."""


class Errand:
    """What a thread of the library's own does, where a script makes a call."""

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.verb, self.key, self.requests = process, name, (process.name, name), 0

    def __str__(self) -> str:
        return f"the {self.verb} of {self.process.name}"


class Process:
    """A simulated process: its clocks, and whether it runs, is stopped (SIGSTOP) or dead (SIGKILL).

    boot: the µs between its boot and the begin of the world. wall: the µs by which its wall clock is ahead.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.is_dead = self.is_stopped = False
        self.cut_until = self.wall = 0
        self.boot = 1_000_000 + int(world.draw(name, "boot") * 1e9)
        self.troubled: list[tuple[int, int]] = []
        self._deferred: deque[Callable[[], None]] = deque()

    def was_troubled(self, since: int, until: int) -> bool:
        return any(began < until and ended > since for began, ended in self.troubled)

    def spawn(self, name: str, target: Callable[[], object]) -> Task:
        return Task(self.world, self, name, target, Errand(self, name))

    def do(self, act: Callable[[], None]) -> None:
        """Call ``act`` now, or once the process runs again, or never if it is dead."""
        if self.is_stopped:
            self._deferred.append(act)
        elif not self.is_dead:
            act()

    def resume(self) -> None:
        self.is_stopped = False
        for act in self._deferred:
            self.world.after(0, functools.partial(self.do, act))
        self._deferred.clear()


class Worker:
    """A thread that runs tasks, one after the other, in this world and the next ones."""

    idle: ClassVar[list[Worker]] = []

    def __init__(self) -> None:
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.task: Task | None = None
        threading.Thread(target=self._run, name="simulated", daemon=True).start()

    def _run(self) -> None:
        _own.is_simulated = True
        while True:
            self.go.acquire()
            task, self.task = self.task, None
            assert task is not None
            contextvars.Context().run(task.main)
            Worker.idle.append(self)
            task.world.baton.release()


class Task:
    """A thread of a simulated process. It runs while it has the baton, and gives the baton back to the world where it
    parks. ``call``: the call that it makes, for the story and for random draws."""

    def __init__(self, world: World, process: Process, name: str, target: Callable[[], object], call: Any) -> None:
        self.world, self.process, self.name, self.call = world, process, name, call
        self.is_done, self.turn = False, 0
        self.thread: Thread | None = None
        self.joiners: list[Callable[[], None]] = []
        self._target, self._value = target, None
        self._worker: Worker | None = None
        world.tasks.append(self)
        world.after(0, functools.partial(self.come, 0, True))

    def main(self) -> None:
        try:
            if not self.world.is_over:
                self._target()
        except Over:
            pass
        except BaseException as error:  # noqa: BLE001 - the oracle reports it
            self.world.failures.append(f"failed: {self.name} of {self.process.name}: {error!r}")
        self.is_done = True
        for wake in self.joiners:
            self.world.after(0, wake)

    def park(self, us: float | None = None) -> Any:
        """Sleep until :meth:`wake`, or for this long. Return the value of the wake, or False."""
        world = self.world
        if world.is_over:
            raise Over
        if us is not None and us != math.inf:
            world.after(math.ceil(max(0, us)), functools.partial(self.come, self.turn, False))
        assert self._worker is not None
        world.baton.release()
        self._worker.go.acquire()
        if world.is_over:
            raise Over
        value: Any = self._value
        if isinstance(value, BaseException):
            raise value
        return value

    def wake(self, value: Any = True) -> None:
        self.world.after(0, functools.partial(self.come, self.turn, value))

    def come(self, turn: int, value: Any) -> None:
        """End the park of this turn, once the process runs."""
        self.process.do(functools.partial(self._resume, turn, value))

    def _resume(self, turn: int, value: Any) -> None:
        if turn == self.turn and not self.is_done:
            self.turn += 1
            self._value = value
            self.run()

    def run(self) -> None:
        """Hand the baton to this task, and wait until it comes back."""
        if self._worker is None:
            self._worker = Worker.idle.pop() if Worker.idle else Worker()
            self._worker.task = self
        world = self.world
        world.task = self
        self._worker.go.release()
        if not world.baton.acquire(timeout=PATIENCE):
            raise RuntimeError(f"{self.name} of {self.process.name} blocks outside of the world")
        world.task = None

    @property
    def has_begun(self) -> bool:
        return self._worker is not None


class World:
    """The events to come, in the order of their times."""

    current: World
    """The world that runs. One runs at a time."""

    def __init__(self, seed: object) -> None:
        self.seed, self.now, self.events, self.is_over = seed, 0, 0, False
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.task: Task | None = None
        self.tasks: list[Task] = []
        self.failures: list[str] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._draws: dict[object, int] = {}
        World.current = self

    def after(self, us: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + us, next(self._numbers), act))

    def run(self, until: float = math.inf, tasks: Sequence[Task] | None = None) -> None:
        """Let the events up to this time happen. With ``tasks``, stop once these are done."""
        while self._heap and self._heap[0][0] <= until:
            if tasks is not None and all(task.is_done or task.process.is_dead for task in tasks):
                return
            when, _, act = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            self.events += 1
            if self.events > MOST:
                raise RuntimeError("the world goes round in circles")
            act()
        if until != math.inf:
            self.now = max(self.now, int(until))

    def end(self) -> None:
        """Unwind all tasks. The server refuses all requests of their ``finally`` blocks."""
        self.is_over = True
        for task in self.tasks:
            if task.has_begun and not task.is_done:
                task.run()

    @property
    def process(self) -> Process:
        assert self.task is not None
        return self.task.process

    def draw(self, *key: object) -> float:
        """Return a number from 0 to 1 that depends on the seed and the key alone. A step that is left out of a story
        changes no other draw."""
        digest = hashlib.blake2b(repr((self.seed, key)).encode(), digest_size=7).digest()
        return int.from_bytes(digest, "big") / 256**7

    def noise(self, what: str) -> float:
        """Return the next number for the running call."""
        key = (what, self.task.call.key if self.task else "nobody")
        number = self._draws[key] = self._draws.get(key, 0) + 1
        return self.draw(*key, number)

    def hexes(self, count: int) -> str:
        return "".join(f"{int(self.noise('hex') * 2**48):012x}" for _ in range((count + 11) // 12))[:count]


def running() -> Task:
    task = World.current.task
    assert task is not None
    return task


# The parts of the standard library that the library takes from its runtime


class Lock:
    """A lock, also a reentrant one. Tasks change only where one waits."""

    def __init__(self, reentrant: bool = False) -> None:
        self._is_reentrant, self._depth = reentrant, 0
        self._owner: Any = None
        self._queue: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = World.current
        me: Any = world.task or world
        if world.is_over or (self._owner is me and self._is_reentrant):
            self._depth += 1
            return True
        while self._owner is not None:
            if not blocking:
                return False
            self._queue.append(me)
            if not me.park(None if timeout < 0 else timeout * 1e6):
                self._queue.remove(me)
                return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner = None
            if self._queue:
                self._queue.popleft().wake()

    def locked(self) -> bool:
        return self._owner is not None

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()


RLock = functools.partial(Lock, reentrant=True)


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock(reentrant=True)
        self._waiting: list[Task] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        task = running()
        self._waiting.append(task)
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        try:
            return bool(task.park(None if timeout is None else timeout * 1e6))
        finally:
            if task in self._waiting:
                self._waiting.remove(task)
            self._lock.acquire()
            self._lock._depth = depth

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        now = World.current.now
        end = None if timeout is None else now + timeout * 1e6
        while not (result := predicate()):
            left = None if end is None else (end - World.current.now) / 1e6
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, number: int = 1) -> None:
        some, self._waiting = self._waiting[:number], self._waiting[number:]
        for task in some:
            task.wake()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    def __init__(self) -> None:
        self._is_set, self._news = False, Condition()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with self._news:
            self._news.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._news:
            return bool(self._news.wait_for(lambda: self._is_set, timeout))


class SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._news = Condition()

    def put(self, item: Any) -> None:
        self._items.append(item)
        with self._news:
            self._news.notify()

    def get(self) -> Any:
        with self._news:
            self._news.wait_for(lambda: self._items)
            return self._items.popleft()


class Thread:
    def __init__(
        self, target: Any = None, name: str = "", args: Sequence[Any] = (), kwargs: Any = None, daemon: bool = True
    ) -> None:
        self._target = functools.partial(target, *args, **(kwargs or {}))
        self.name, self.daemon = name, daemon
        self._task: Task | None = None

    def start(self) -> None:
        self._task = World.current.process.spawn(self.name.rpartition("-")[2], self._target)
        self._task.thread = self

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None and self.is_alive():
            me = running()
            self._task.joiners.append(functools.partial(me.come, me.turn, True))
            me.park(None if timeout is None else timeout * 1e6)


def current_thread() -> Thread | None:
    task = World.current.task
    return None if task is None else task.thread


def monotonic() -> float:
    world = World.current
    return (world.now + world.process.boot) / 1e6


def wall_time() -> float:
    world = World.current
    return (EPOCH + world.now + world.process.wall) / 1e6


def sleep(seconds: float) -> None:
    running().park(seconds * 1e6)


def uniform(low: float, high: float) -> float:
    return low + (high - low) * World.current.noise("jitter")


def urandom(count: int) -> bytes:
    return bytes.fromhex(World.current.hexes(2 * count))


_SIMULATED: dict[str, Any] = {
    "Condition": Condition,
    "Event": Event,
    "Lock": Lock,
    "RLock": RLock,
    "SimpleQueue": SimpleQueue,
    "Thread": Thread,
    "boottime": monotonic,
    "current_thread": current_thread,
    "get_ident": lambda: id(World.current.task),
    "monotonic": monotonic,
    "sleep": sleep,
    "urandom": urandom,
    "uuid4": lambda: uuid.UUID(bytes=urandom(16), version=4),
    "wall_time": wall_time,
}
"""The runtime of the library in a world. Tasks are real threads, so ``Local`` stays."""


def _of_thread(simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``simulated`` on the threads of a world alone. Threads of other boards, such as the
    heartbeat of an earlier test, keep the real runtime."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return (simulated if getattr(_own, "is_simulated", False) else real)(*args, **kwargs)

    return call


RUNTIME: dict[str, Any] = {
    **{name: _of_thread(each, getattr(runtime, name)) for name, each in _SIMULATED.items()},
    "random": types.SimpleNamespace(uniform=_of_thread(uniform, runtime.random.uniform)),
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Give the library the runtime of a world within the block."""
    _own.is_simulated = True
    try:
        with runtime.replaced(RUNTIME):
            yield
    finally:
        _own.is_simulated = False
