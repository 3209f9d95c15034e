"""Workers that run handlers on an event loop: coroutine functions as tasks, plain functions in threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from jobboard import logs, outcomes
from jobboard.conductor.handlers import Call, Handling, Wrapper, fresh
from jobboard.conductor.runs import Run, Runs
from jobboard.conductor.workers import WorkerThreads
from jobboard.forks import ForkGuard
from jobboard.job import ClaimedJob
from jobboard.outcomes import check_result

LOG = logs.Log(__name__)

GRACE = 1.0
"""Seconds that a cancelled task has to end before that is logged."""


class Tasks:
    """Tasks of one loop, and threads for plain handlers.

    :param main: the task of the conductor.
    """

    def __init__(self, runs: Runs, loop: asyncio.AbstractEventLoop, main: asyncio.Task[Any]) -> None:
        self._runs = runs
        self._main = main
        self._threads = WorkerThreads(runs)
        self._loop = loop
        # From Python 3.12 on a task may begin at once. A handler that never waits then costs the loop no turn.
        eager = sys.version_info >= (3, 12) and loop.get_task_factory() is None
        made: Any = loop.create_task
        if eager:
            kind: Any = asyncio.Task
            made = functools.partial(kind, loop=loop, eager_start=True)
        self._make_task: Callable[..., asyncio.Task[None]] = made
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._ended: list[Run] = []
        self._quiet = threading.Event()
        self._closed = False

    def put(self, runs: Sequence[Run]) -> None:
        mine = [run for run in runs if run.handling.is_coroutine]
        plain = [run for run in runs if not run.handling.is_coroutine]
        if plain:
            self._threads.put(plain)
        if mine:
            # Raises if the loop was closed while the conductor runs.
            self._loop.call_soon_threadsafe(self._begin, mine)

    def close(self, seconds: float | None) -> None:
        """Cancel the tasks at work, and wait a moment for their end."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
            if not self._quiet.wait(GRACE if seconds is None else min(seconds, GRACE)):
                LOG.warning("%s: %d handlers go on though they were cancelled", self._runs.name, len(self._tasks))
        self._threads.close(seconds)

    # On the loop

    def _begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if self._runs.take(run) and not self._closed:
                self._begin_one(run)

    def _begin_one(self, run: Run) -> None:
        work = self._work(run)
        try:
            # Not context=, which task factories from before Python 3.11 do not take.
            task = fresh(self._runs.context).run(self._make_task, work, name=run.job.uuid)
        except Exception as error:
            work.close()
            with Call(run.handling, run.job) as call:
                raise error
            self._runs.ended(run, call.end, call.error)
            self._leave(run)
        else:
            if not task.done():
                self._tasks[run] = task

    def _cancel(self) -> None:
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        if not self._tasks:
            self._quiet.set()

    async def _work(self, run: Run) -> None:
        handling, job = run.handling, run.job
        limit = handling.timeout
        timer = None if limit is None else self._loop.call_later(limit, self._give_up, run)
        try:
            self._runs.begun(run)
            with Call(run.handling, job) as call:
                # Each coroutine more would count where handlers have little to do.
                wrappers = self._runs.handlers.wrappers
                work: Any = _wrapped(handling, wrappers, job) if wrappers else handling.work(job)
                with ForkGuard():
                    call.result = check_result(await work)
            if isinstance(call.error, asyncio.CancelledError) and (run.decided or self._main.cancelling()):
                # The end of a loop cancels the conductor and its handlers at once.
                self._runs.give_back([run])
            else:
                self._runs.ended(run, call.end, call.error)
        except BaseException as error:
            # A run without an end would be kept for ever, and the conductor with it.
            LOG.exception("%s could not work on %s", self._runs.name, job, extra=logs.fields(job))
            if not run.decided:
                self._runs.ended(run, *outcomes.judged(error, job, handling.retry))
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(run)

    def _leave(self, run: Run) -> None:
        # A task that never waited was never added.
        self._tasks.pop(run, None)
        if not self._ended:
            # Once for all runs that end in this turn of the loop.
            self._loop.call_soon(self._make_room)
        self._ended.append(run)
        if self._closed and not self._tasks:
            self._quiet.set()

    def _make_room(self) -> None:
        ended, self._ended = self._ended, []
        self._runs.left(*ended)

    def _give_up(self, run: Run) -> None:
        """End a run that takes too long. Its task may go on."""
        task = self._tasks[run]
        if self._runs.overdue(run, _where(task.get_coro())):
            task.cancel()
            self._loop.call_later(GRACE, self._see_it_end, run)

    def _see_it_end(self, run: Run) -> None:
        if run in self._tasks:
            what = "is still at work though it was cancelled, and keeps its place until it ends: so do"
            LOG.warning("%s: %s %s %d now", self._runs.name, run.job, what, self._runs.hung, extra=logs.fields(run.job))


async def _wrapped(handling: Handling, wrappers: Sequence[Wrapper], job: ClaimedJob) -> object:
    """Call a coroutine function within the wrappers, which may be asynchronous."""
    async with contextlib.AsyncExitStack() as stack:
        for wrapper in wrappers:
            context: Any = wrapper(job)
            if isinstance(context, contextlib.AbstractAsyncContextManager):
                await stack.enter_async_context(context)
            else:
                stack.enter_context(context)
        work: Any = handling.work(job)
        with ForkGuard():
            return check_result(await work)


def _where(coroutine: Any) -> str:
    """Return where a coroutine is, down to what it awaits, as a traceback shows it."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(["Where it was:\n", *traceback.StackSummary.extract(iter(frames)).format()])
