"""The conductor for asyncio: :class:`~jobboard.conductor.Conductor` with its handlers on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jobboard import logs, runtime
from jobboard.aio.board import AsyncJobBoard
from jobboard.aio.notifier import AsyncNotifier, callback_of
from jobboard.aio.tasks import Tasks
from jobboard.aio.threads import Threads, see_through
from jobboard.conductor import Conductor, Tally
from jobboard.conductor.conductor import UNSET
from jobboard.conductor.details import Invalid, Unknown
from jobboard.conductor.handlers import Handler, Wrapper
from jobboard.conductor.poster import Registering
from jobboard.conductor.runs import Runs
from jobboard.conductor.signals import stopped_by_signals
from jobboard.conductor.workers import Kind
from jobboard.job import ClaimedJob, Job
from jobboard.outcomes import RetryPolicy

if TYPE_CHECKING:
    from jobboard.sqltypes import Condition

LOG = logs.Log(__name__)

W = TypeVar("W", bound=Wrapper)

GLANCE = 0.05
"""Seconds between two checks by a coroutine that waits for the end of a run."""


class AsyncConductor:
    """A conductor that works on thousands of jobs at once, where their handlers mostly wait.

    Coroutine functions run on the loop of :meth:`run`. Plain functions run in threads. Claims, ends, retries, events
    and entities are those of :class:`~jobboard.conductor.Conductor`, which runs on a thread of its own.

    :param board: the board. :meth:`run` connects a closed board and closes it at its end. Of several conductors that
        run on it at the same time, the last one closes it.
    :param max_simultaneous_jobs: the number of jobs at work at once, of both kinds together.
    :param job_timeout: the time after which a coroutine is cancelled, and its job abandoned as a failure. A coroutine
        that goes on all the same keeps its slot until it ends, as a thread does.
    :param drain_timeout: the time after which coroutines still at work are cancelled, and their jobs given back; that
        attempt does not count.
    :param on_error, on_success: may be coroutine functions.

    ``name`` and ``board`` are attributes, too. ``sync`` is the conductor that does all but running the handlers: only
    :meth:`run` of this conductor runs it.

    :raises TypeError, ValueError: an argument does not fit.
    """

    def __init__(
        self,
        name: str | None,
        board: AsyncJobBoard,
        handlers: Mapping[str, Handler] | Handler | None = None,
        *,
        max_simultaneous_jobs: int = 100,
        job_timeout: float | datetime.timedelta | None = None,
        drain_timeout: float | datetime.timedelta | None = None,
        retry: RetryPolicy | None = None,
        on_error: Callable[[ClaimedJob, BaseException], object] | None = None,
        on_success: Callable[[ClaimedJob, Any], object] | None = None,
        schedules: bool = True,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(board, AsyncJobBoard):
            raise TypeError(f"board must be an AsyncJobBoard, not {type(board).__name__}: fetch it by jobboard.aio")
        self.board = board
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[Any] | None = None
        self._is_running = False
        self.sync = Conductor(
            name,
            board.sync,
            handlers,
            max_simultaneous_jobs=max_simultaneous_jobs,
            workers=Kind("coroutines", self._tasks, coroutines=True),
            job_timeout=job_timeout,
            drain_timeout=drain_timeout,
            retry=retry,
            on_error=None if on_error is None else callback_of(on_error, self._its_loop),
            on_success=None if on_success is None else callback_of(on_success, self._its_loop),
            schedules=schedules,
            where=where,
            extra=extra,
        )
        self.name = self.sync.name

    def __repr__(self) -> str:
        return f"<AsyncConductor {self.name!r} of {self.board!r}>"

    @property
    def notifier(self) -> AsyncNotifier:
        """The events of the jobs, of :mod:`jobboard.conductor.events`. Coroutine functions run on the loop of
        :meth:`run`."""
        return AsyncNotifier(self.sync.notifier, self._its_loop)

    @property
    def tally(self) -> Tally:
        """See :attr:`Conductor.tally <jobboard.conductor.Conductor.tally>`."""
        return self.sync.tally

    @property
    def dispatching(self) -> bool:
        """See :attr:`Conductor.dispatching <jobboard.conductor.Conductor.dispatching>`."""
        return self._is_running

    def handles(
        self,
        *names: str,
        retry: RetryPolicy | None = None,
        timeout: float | datetime.timedelta | None = UNSET,
        max_simultaneous: int | None = None,
        invalid: Invalid = "retry",
        unknown: Unknown = "ignore",
    ) -> Registering[Coroutine[Any, Any, Job]]:
        """See :meth:`Conductor.handles <jobboard.conductor.Conductor.handles>`.

        Handlers may be coroutine functions. Their ``post`` is one.
        """
        registering = self.sync.handles(
            *names,
            retry=retry,
            timeout=timeout,
            max_simultaneous=max_simultaneous,
            invalid=invalid,
            unknown=unknown,
        )
        return Registering(registering.register, self.board.post, names)

    def wraps(self, wrapper: W) -> W:
        """See :meth:`Conductor.wraps <jobboard.conductor.Conductor.wraps>`. The context around a coroutine function may
        be asynchronous."""
        return self.sync.wraps(wrapper)

    async def __aenter__(self) -> Self:
        """Work beside the block, a web service for example::

            async with board, conductor:
                await serve()

        The end of the block stops the conductor, and waits until the jobs at work are finished. Signals are left to the
        program. An error that ends :meth:`run` earlier, as when the board was closed, is logged at once, and raised at
        the end of the block.
        """
        self._beside = asyncio.create_task(self.run(signals=False))
        self._beside.add_done_callback(self._ended_beside)
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.stop()
        await self._beside

    def _ended_beside(self, beside: asyncio.Task[None]) -> None:
        if not beside.cancelled() and (error := beside.exception()) is not None:
            LOG.error("the conductor %r works no more: %s", self.name, error)

    async def run(self, max_dispatches: int | None = None, *, until_empty: bool = False, signals: bool = True) -> None:
        """See :meth:`Conductor.run <jobboard.conductor.Conductor.run>`.

        If cancelled, cancel the handlers at work, give their jobs back without using up an attempt, and end.

        :param signals: False: leave SIGTERM, SIGINT and SIGHUP to the program, a web server for example.
        """
        if self._is_running:
            raise RuntimeError(f"the conductor {self.name!r} is running already: make another to run beside it")
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        thread = Threads(f"{self.name}-conductor", 1)
        caught = stopped_by_signals(self.name, self.stop, lambda: self.sync.at_work) if signals else None
        # From here on wait() waits, even if the thread has not begun yet.
        self._is_running = True
        try:
            with caught or contextlib.nullcontext():
                await see_through(
                    thread.begin(self.sync.run, max_dispatches, until_empty=until_empty),
                    functools.partial(self.sync.stop, drain=False),
                )
        finally:
            self._is_running = False
            thread.close()

    def stop(self, drain: bool = True) -> None:
        """See :meth:`Conductor.stop <jobboard.conductor.Conductor.stop>`; from any thread."""
        self.sync.stop(drain)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`run` has returned; False if it has not after ``timeout`` seconds."""
        end = math.inf if timeout is None else runtime.monotonic() + timeout
        # run() may be on another loop, or not have begun.
        while (runs := self._is_running or not self.sync.wait(0)) and runtime.monotonic() < end:
            await asyncio.sleep(min(GLANCE, end - runtime.monotonic()))
        return not runs

    def _tasks(self, runs: Runs) -> Tasks:
        assert self._main is not None
        return Tasks(runs, self._its_loop(), self._main)

    def _its_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"the conductor {self.name!r} has not run, and so has no loop")
        return self._loop
