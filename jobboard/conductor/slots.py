"""The places where jobs are worked on: threads, and what each of them works with."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from jobboard import logs
from jobboard.conductor.handlers import Ending, Handling, ending_of
from jobboard.job import Job
from jobboard.threads import started

LOG = logs.Log(__name__)


class Run:
    """A claimed job on its way through a slot. It is decided once, by whoever knows first what becomes of it."""

    __slots__ = ("_deciding", "began", "handling", "job")

    def __init__(self, job: Job, handling: Handling) -> None:
        self.job = job
        self.handling = handling
        self.began = time.monotonic()
        self._deciding = threading.Lock()

    def decide(self) -> bool:
        """Whether nobody has done so before."""
        return self._deciding.acquire(blocking=False)

    @property
    def decided(self) -> bool:
        """Whether nobody waits for its result any longer."""
        return self._deciding.locked()

    @property
    def deadline(self) -> float | None:
        """On the monotonic clock."""
        return None if self.handling.timeout is None else self.began + self.handling.timeout

    def seconds(self) -> float:
        return time.monotonic() - self.began


class Reports(Protocol):
    """Who is told of a run."""

    def begun(self, run: Run) -> None:
        """Its handler is about to be called; starts its clock."""

    def ended(self, run: Run, ending: Ending) -> bool:
        """Whether this decides it; if not, nobody waits for its result any longer."""


class Worker(Protocol):
    """What a slot works with; made and used by the slot's own thread."""

    def work(self, run: Run) -> None:
        """Returns when the slot is free again. What it raises makes a failure of a run that has not ended."""

    def close(self) -> None: ...


class Places(Protocol):
    """All the places that a conductor has."""

    @property
    def free(self) -> int:
        """How many runs may be put; to be read under the conductor's lock."""

    @property
    def hung(self) -> int:
        """How many handlers go on though they were given up."""

    def put(self, runs: Iterable[Run]) -> None:
        """:raises RuntimeError: there is no thread to work on them. Decide them then: they stay where they are."""

    def close(self, seconds: float | None) -> None:
        """End what can be ended, waiting for at most so long."""


class Overseer(Protocol):
    """Who gives up runs that take too long, where whoever works can't be ended."""

    @property
    def hung(self) -> int: ...
    def close(self) -> None: ...


class Slots:
    """Threads that work on runs, started as they are needed.

    They are daemons, so that a handler that hangs does not keep the process from ending.

    :param lock: held whenever :attr:`free` changes.
    :param room: told when more may be put: see :meth:`free`.
    :param keeper: of threads that run handlers themselves, and end by themselves, unless they hang.
    """

    def __init__(
        self,
        name: str,
        count: int,
        reports: Reports,
        make: Callable[[], Worker],
        lock: threading.Lock,
        room: threading.Condition,
        keeper: Overseer | None = None,
    ) -> None:
        self._name = name
        self._count = count
        self._reports = reports
        self._make = make
        self._lock = lock
        self._room = room
        self._keeper = keeper
        self._news = threading.Condition(lock)
        self._runs: deque[Run] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._rousing = False
        self._closed = False
        # Those that wait for a thread, and those at work, be it that nobody waits for their result any longer.
        self.taken = 0

    @property
    def free(self) -> int:
        """How many runs may be put; to be read under the lock. None while some wait for a thread: where jobs are short,
        the others will be done in a moment, and a few large claims cost less than many small ones."""
        return 0 if self._runs else self._count - self.taken

    @property
    def hung(self) -> int:
        return 0 if self._keeper is None else self._keeper.hung

    def put(self, runs: Iterable[Run]) -> None:
        with self._lock:
            before = len(self._runs)
            self._runs.extend(runs)
            self.taken += len(self._runs) - before
            self._rouse()

    def close(self, seconds: float | None) -> None:
        """Have every thread end that is not hanging in a handler, waiting for at most so long."""
        until = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._closed = True
            self._news.notify_all()
        if self._keeper is not None:
            self._keeper.close()
            return
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def _rouse(self) -> None:
        # One at a time, and that one rouses the next as long as there is more to do: where the jobs are short, few
        # threads do it all, and don't get into each other's way.
        if self._rousing or not self._runs:
            return
        if self._idle:
            self._rousing = True
            self._news.notify()
        elif len(self._threads) < self._count:
            try:
                thread = started(f"{self._name}-{len(self._threads)}", self._serve)
            except RuntimeError as error:
                if not self._threads:
                    raise
                LOG.warning("%s goes on with %d threads: %s", self._name, len(self._threads), error)
                return
            self._threads.append(thread)
            self._rousing = True

    def _serve(self) -> None:
        worker = self._make()
        try:
            run = self._first()
            while run is not None:
                self._work(worker, run)
                run = self._next()
        finally:
            worker.close()

    def _work(self, worker: Worker, run: Run) -> None:
        if run.decided:
            # It was given back while it waited for a thread.
            return
        try:
            worker.work(run)
        except BaseException as error:
            # A run that nobody ends is kept for ever, and the conductor with it.
            LOG.exception("%s could not work on %s", self._name, run.job, extra=logs.fields(run.job))
            self._reports.ended(run, ending_of(error, run.job, run.handling, run.seconds()))

    def _first(self) -> Run | None:
        with self._lock:
            self._rousing = False
            return self._take()

    def _next(self) -> Run | None:
        with self._lock:
            self.taken -= 1
            if not self._runs:
                self._room.notify()
            return self._take()

    def _take(self) -> Run | None:
        while not self._runs:
            if self._closed:
                return None
            self._idle += 1
            self._news.wait()
            self._idle -= 1
            self._rousing = False
        run = self._runs.popleft()
        if not self._runs:
            self._room.notify()
        self._rouse()
        return run
