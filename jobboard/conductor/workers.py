"""The places where a conductor's handlers run, and the threads of a conductor."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobboard import logs, outcomes
from jobboard.conductor.handlers import Handlers, fresh, perform
from jobboard.conductor.runs import Run, Runs
from jobboard.threads import started

LOG = logs.Log(__name__)

Worker = Callable[[Run], object]
"""Works on one run after the other. An error makes a failure of a run that has not ended."""


class Workers(Protocol):
    """The workers of one run of a conductor. They report to its :class:`~jobboard.conductor.runs.Runs`."""

    def put(self, runs: Sequence[Run]) -> None:
        """Work on these.

        :raises RuntimeError: no worker can be started. No run was begun.
        """

    def close(self, seconds: float | None) -> None:
        """End the workers that can be ended, waiting for at most so long."""


def anything(called: object) -> None:
    """Accept anything: the check of workers that can call every callable."""


@dataclass(frozen=True)
class Kind:
    """A kind of workers.

    :param name: shown among the board's entities.
    :param start: makes the workers of one run of a conductor.
    :param check: raises TypeError for a handler, or a wrapper, that these workers can't call.
    :param check_all: the same for all handlers, once these are given.
    :param coroutines: handlers may be coroutine functions.
    :param fixed: handlers can't be added while the conductor runs.
    """

    name: str
    start: Callable[[Runs], Workers]
    check: Callable[[object], object] = anything
    check_all: Callable[[Handlers], object] = anything
    coroutines: bool = False
    fixed: bool = False


class WorkerThreads:
    """Threads that work on runs, started as they are needed.

    The threads are daemons, so that a hanging handler does not keep the process from ending.

    :param worker: makes the worker of a thread, for a block of this thread. None: the thread calls the handlers itself.
    """

    def __init__(
        self, runs: Runs, worker: Callable[[], contextlib.AbstractContextManager[Worker]] | None = None
    ) -> None:
        self._runs = runs
        self._worker = worker or (lambda: contextlib.nullcontext(self._call))
        self._queue: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        # Each needs a thread, as any may hang.
        self._placed: set[Run] = set()

    def put(self, runs: Sequence[Run]) -> None:
        self._placed.update(runs)
        for run in runs:
            self._queue.put(run)
        while len(self._threads) < len(self._placed):
            try:
                self._threads.append(started(f"{self._runs.name}-{len(self._threads)}", self._serve))
            except RuntimeError as error:
                if not self._threads:
                    raise
                LOG.warning("%s goes on with %d threads: %s", self._runs.name, len(self._threads), error)
                return

    def close(self, seconds: float | None, join: bool = False) -> None:
        """:param join: wait for the threads. Those that call handlers end by themselves, or hang."""
        until = None if seconds is None else time.monotonic() + seconds
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads if join else ():
            thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def _serve(self) -> None:
        with self._worker() as work:
            while (run := self._queue.get()) is not None:
                try:
                    if self._runs.take(run):
                        work(run)
                except BaseException as error:
                    # A run without an end would be kept for ever, and the conductor with it.
                    LOG.exception("%s could not work on %s", self._runs.name, run.job, extra=logs.fields(run.job))
                    self._runs.ended(run, *outcomes.judged(error, run.job, run.handling.retry))
                self._placed.discard(run)
                self._runs.left(run)

    def _call(self, run: Run) -> None:
        """Call a handler in a fresh copy of the context of ``run()``."""
        run.thread = threading.get_ident()
        self._runs.begun(run)
        call = fresh(self._runs.context).run(perform, run.handling, self._runs.handlers.wrappers, run.job)
        self._runs.ended(run, call.end, call.error)


THREADS = Kind("threads", WorkerThreads)
