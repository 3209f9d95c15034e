"""The conductor for asyncio: what :class:`~jobboard.conductor.Conductor` is, with its handlers on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self

from jobboard import logs
from jobboard.aio.board import AsyncJobBoard
from jobboard.aio.notifier import AsyncNotifier, callback_of
from jobboard.aio.tasks import Tasks
from jobboard.aio.threads import Threads, see_through
from jobboard.conductor.dispatching import Dispatcher
from jobboard.conductor.handlers import Handler
from jobboard.conductor.slots import Places, Slots
from jobboard.conductor.threads import ThreadWorker, Timekeeper
from jobboard.job import Job
from jobboard.outcomes import RetryPolicy

LOG = logs.Log(__name__)


class AsyncConductor(Dispatcher[Coroutine[Any, Any, Job]]):
    """Works on the jobs of a board, thousands at once where that is waiting for something.

    Handlers are coroutine functions, which run on the loop of :meth:`run`, and plain functions, each of which has a
    thread while it runs. Everything else is as with :class:`~jobboard.conductor.Conductor`, which does it: claiming
    and finishing many jobs by one request, retries, events, entities and the end.

    :param board: connected by :meth:`run` if it is not, and then closed by it too; of several conductors that run on it
        at the same time, by the last one.
    :param max_simultaneous_jobs: how many jobs at once, of both kinds together.
    :param job_timeout: after it a coroutine is cancelled, and its job abandoned as a failure. One that goes on all the
        same keeps its place until it ends, as a thread does.
    :param drain_timeout: what still runs then is cancelled, and its job given back; that attempt does not count.
    :param on_error: may be a coroutine function.
    :raises TypeError, ValueError: an argument does not fit.
    """

    _workers = "coroutines"
    _coroutines = True

    def __init__(
        self,
        name: str,
        board: AsyncJobBoard,
        handlers: Mapping[str, Handler] | Handler | None = None,
        *,
        max_simultaneous_jobs: int = 100,
        job_timeout: float | datetime.timedelta | None = None,
        drain_timeout: float | datetime.timedelta | None = None,
        retry: RetryPolicy | None = None,
        on_error: Callable[[Job, BaseException], object] | None = None,
        schedules: bool = True,
        **extra: Any,
    ) -> None:
        if not isinstance(board, AsyncJobBoard):
            raise TypeError(f"board must be an AsyncJobBoard, not {type(board).__name__}: fetch it by jobboard.aio")
        self._async_board = board
        self._loop: asyncio.AbstractEventLoop | None = None
        # Of each who waits for the end of run(), in whatever loop: tells it.
        self._awaiting: set[Callable[[], object]] = set()
        super().__init__(
            *(name, board.sync, handlers, max_simultaneous_jobs, job_timeout, drain_timeout, retry, on_error),
            *(schedules, extra),
        )

    @property
    def board(self) -> AsyncJobBoard:
        return self._async_board

    @property
    def notifier(self) -> AsyncNotifier:
        """Where to listen to what becomes of the jobs: the events of :mod:`jobboard.conductor.events`. Callbacks may be
        coroutine functions, which run on the loop of :meth:`run`."""
        return AsyncNotifier(self._notifier, self._its_loop)

    async def __aenter__(self) -> Self:
        """Work beside what the block does, which is a web service, say::

            async with board, conductor:
                await serve()

        The block's end stops the conductor and waits until it has finished what was begun. Signals are left to the
        program around it. What ends :meth:`run` before, as a board that was closed, is logged, and raised at the
        block's end."""
        self._beside = asyncio.create_task(self.run(signals=False))
        self._beside.add_done_callback(self._ended_beside)
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.stop()
        await self._beside

    def _ended_beside(self, beside: asyncio.Task[None]) -> None:
        if not beside.cancelled() and (error := beside.exception()) is not None:
            LOG.error("the conductor %r works no more: %s", self._name, error)

    async def run(self, max_dispatches: int | None = None, *, signals: bool = True) -> None:
        """As :meth:`Conductor.run <jobboard.conductor.Conductor.run>`. Cancelled, it cancels what is at work, gives the
        jobs back, without using up an attempt, and ends.

        :param signals: False: SIGTERM and SIGINT are left to the program around, a web server for instance.
        """
        self._loop = asyncio.get_running_loop()
        thread = Threads(f"{self._name}-conductor", 1)
        try:
            with self._running(max_dispatches, signals) as limit:
                await see_through(thread.begin(self._run, limit), self._call_off)
        finally:
            thread.close()
            self._tell_who_waits()

    def stop(self) -> None:
        """As :meth:`Conductor.stop <jobboard.conductor.Conductor.stop>`; from any thread while it runs."""
        super().stop()
        self._tell_who_waits()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`run` has returned; False if it has not after ``timeout`` seconds."""
        ended = asyncio.Event()
        tell = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        with self._lock:
            if self._has_ended():
                return True
            self._awaiting.add(tell)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), timeout)
        finally:
            with self._lock:
                self._awaiting.discard(tell)
        return ended.is_set()

    def _tell_who_waits(self) -> None:
        with self._lock:
            awaiting = list(self._awaiting) if self._has_ended() else []
        for tell in awaiting:
            # One whose loop was closed waits no longer.
            with contextlib.suppress(RuntimeError):
                tell()

    def _call_off(self) -> None:
        with self._changed:
            self._called_off = True
        self.stop()

    @property
    def _post(self) -> Callable[..., Coroutine[Any, Any, Job]]:
        return self._async_board.post

    def _make_places(self) -> Places:
        timekeeper = Timekeeper(self._name, self)
        wrappers = self._handlers.wrappers
        threads = Slots(
            self._name,
            self._count,
            self,
            lambda: ThreadWorker(self, wrappers, timekeeper, self._context),
            self._lock,
            self._room,
            timekeeper,
        )
        return Tasks(
            self._name,
            self._count,
            self,
            wrappers,
            threads,
            self._its_loop(),
            self._context,
            self._lock,
            self._room,
        )

    def _listener(self, callback: Callable[..., object]) -> Callable[..., object]:
        return callback_of(callback, self._its_loop)

    def _its_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"the conductor {self._name!r} has not run, and so has no loop")
        return self._loop
