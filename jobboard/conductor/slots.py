"""The places where jobs are worked on: threads, and what each of them works with."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from jobboard.conductor.handlers import Ending, Handling
from jobboard.job import Job


class Run:
    """A claimed job on its way through a slot. It is settled once, by whoever knows first what becomes of it."""

    __slots__ = ("began", "handling", "job", "settled")

    def __init__(self, job: Job, handling: Handling) -> None:
        self.job = job
        self.handling = handling
        self.began = 0.0
        self.settled = False

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
        """Whether this settles it; if not, nobody waits for its result any longer."""

    def settled(self, run: Run) -> bool:
        """Whether nobody waits for its result any longer."""


class Worker(Protocol):
    """What a slot works with; made and used by the slot's own thread."""

    def work(self, run: Run) -> None:
        """Returns when the slot is free again, and raises nothing."""

    def close(self) -> None: ...


class Slots:
    """Threads that take runs off one queue, started as they are needed.

    They are daemons, so that a handler that hangs does not keep the process from ending.

    :param freed: told when a run has left its slot.
    """

    def __init__(self, name: str, count: int, make: Callable[[], Worker], freed: Callable[[], None]) -> None:
        self._name = name
        self._count = count
        self._make = make
        self._freed = freed
        self._runs: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def put(self, run: Run) -> None:
        self._runs.put(run)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, seconds: float | None) -> None:
        """Have every thread end that is not hanging in a handler, waiting for at most so long."""
        until = None if seconds is None else time.monotonic() + seconds
        for _ in self._threads:
            self._runs.put(None)
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def _serve(self) -> None:
        worker = self._make()
        try:
            while (run := self._runs.get()) is not None:
                worker.work(run)
                self._idle.release()
                self._freed()
        finally:
            worker.close()
