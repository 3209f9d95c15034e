"""Worker threads, which run a conductor's handlers, and the kinds of workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jobboard import logs, outcomes, runtime
from jobboard.conductor.handlers import Handling, perform
from jobboard.conductor.runs import Run, Runs
from jobboard.threads import started

LOG = logs.Log(__name__)

Worker = Callable[[Run], object]
"""A function that works on one run after the other. Its error becomes the failure of a run that has not ended."""


class WorkerThreads:
    """Threads that work on the runs of one run of a conductor, started as they are needed.

    The threads are daemons, so that a hanging handler does not keep the process from ending.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._queue: runtime.SimpleQueue[Run | None] = runtime.SimpleQueue()
        self._threads: list[runtime.Thread] = []
        # Each run needs a thread, as any handler may hang.
        self._placed: set[Run] = set()

    def put(self, runs: Sequence[Run]) -> None:
        """Work on these runs.

        :raises RuntimeError: a worker can't be started.
        """
        self._placed.update(runs)
        while len(self._threads) < len(self._placed):
            self._threads.append(started(f"{self._runs.name}-{len(self._threads)}", self._serve))
        for run in runs:
            self._queue.put(run)

    def look(self) -> None:
        """Note that the thread of ``run()`` goes on."""
        self._runs.look()

    def close(self, seconds: float | None) -> None:
        """End the workers that can be ended. Wait at most ``seconds``. Threads end by themselves, or hang."""
        self._queue.put(None)

    def _serve(self) -> None:
        with self._worker() as work:
            while (run := self._queue.get()) is not None:
                try:
                    if self._runs.take(run):
                        work(run)
                except BaseException as error:
                    # A run without an end would be kept for ever, and the conductor with it.
                    LOG.exception("%s could not work on %s", self._runs.name, run.job, extra=logs.fields(run.job))
                    self._runs.end(run, *outcomes.decide_end(error, run.job, run.handling.retry))
                self._placed.discard(run)
                self._runs.free_worker(run)
        # For the next thread, which may start later.
        self._queue.put(None)

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        """Make the worker of a thread, for a block of this thread."""
        yield self._call

    def _call(self, run: Run) -> None:
        self._perform(run, run.handling)

    def _perform(self, run: Run, handling: Handling) -> None:
        """Call a handler in a copy of the context of ``run()``."""
        run.thread = runtime.get_ident()
        self._runs.begin(run)
        call = self._runs.context.copy().run(perform, handling, self._runs.handlers.wrappers, run.job)
        self._runs.end(run, call.end, call.error)


class Kind(NamedTuple):
    """A kind of workers.

    :param name: shown among the board's entities.
    :param start: makes the workers of one run of a conductor.
    :param coroutines: handlers may be coroutine functions.
    :param fixed: handlers can't be added while the conductor runs.
    """

    name: str
    start: Callable[[Runs], WorkerThreads]
    coroutines: bool = False
    fixed: bool = False


THREADS = Kind("threads", WorkerThreads)
