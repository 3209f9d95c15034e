"""Workers that run handlers on an event loop: coroutine functions as tasks, plain functions in threads."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import traceback
from collections.abc import Sequence
from typing import Any

from jobboard import logs, runtime
from jobboard.conductor.handlers import Call, Handling, Wrapper
from jobboard.conductor.runs import Run, Runs
from jobboard.conductor.workers import WorkerThreads
from jobboard.forks import ForkGuard
from jobboard.job import ClaimedJob

LOG = logs.Log(__name__)

GRACE = 1.0
"""Seconds that a cancelled task has to end before the conductor logs it as hanging."""


class Tasks(WorkerThreads):
    """Tasks of one loop, and threads for plain handlers.

    :param main: the task of the conductor.
    """

    def __init__(self, runs: Runs, loop: asyncio.AbstractEventLoop, main: asyncio.Task[Any]) -> None:
        super().__init__(runs)
        self._main = main
        self._loop = loop
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._quiet = runtime.Event()
        self._closed = False

    def put(self, runs: Sequence[Run]) -> None:
        super().put([run for run in runs if not run.handling.is_coroutine])
        if mine := [run for run in runs if run.handling.is_coroutine]:
            # Raises if the loop was closed while the conductor runs.
            self._loop.call_soon_threadsafe(self._begin, mine)

    def _call(self, run: Run) -> None:
        """Call a plain handler. If it returns a coroutine, as a plain decorator of a coroutine function does, run that
        on the loop, and keep the thread until its end."""

        def call(*args: object, **kwargs: object) -> object:
            result = run.handling.handler(*args, **kwargs)
            if not asyncio.iscoroutine(result):
                return result
            future = asyncio.run_coroutine_threadsafe(result, self._loop)
            run.job.claim.when_refused(future.cancel)
            return future.result()

        handling = dataclasses.replace(run.handling, handler=call)
        self._perform(run, handling)

    def look(self) -> None:
        # A loop that a handler holds up looks no more. A closed one has ended its tasks.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._runs.look)

    def close(self, seconds: float | None) -> None:
        """Cancel the tasks at work, and wait a moment for their end."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
            if not self._quiet.wait(GRACE if seconds is None else min(seconds, GRACE)):
                LOG.warning("%s: %d handlers go on though they were cancelled", self._runs.name, len(self._tasks))
        super().close(seconds)

    # On the loop

    def _begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if self._runs.take(run) and not self._closed:
                # Not context=, which task factories from before Python 3.11 do not take.
                make = self._runs.context.copy().run
                self._tasks[run] = task = make(self._loop.create_task, self._work(run), name=run.job.uuid)
                run.job.claim.when_refused(functools.partial(self._stop_soon, run))
                # Not at the end of the coroutine: a task that is cancelled before its first step does not run it, and
                # an eager task has run it by now.
                task.add_done_callback(functools.partial(self._leave, run))

    def _cancel(self) -> None:
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        if not self._tasks:
            self._quiet.set()

    async def _work(self, run: Run) -> None:
        handling = run.handling
        limit = handling.timeout
        timer = None if limit is None else self._loop.call_later(limit, self._give_up, run)
        try:
            self._runs.begin(run)
            with Call(handling, run.job) as call, ForkGuard():
                await _perform(call, handling, self._runs.handlers.wrappers, run.job)
            if not (isinstance(call.error, asyncio.CancelledError) and (run.decided or self._main.cancelling())):
                self._runs.end(run, call.end, call.error)
        finally:
            if timer is not None:
                timer.cancel()

    def _leave(self, run: Run, task: asyncio.Task[None]) -> None:
        """Free the slot of a task. A run without an end was cancelled with its conductor, or before it began."""
        if self._main.cancelling():
            # The end of a loop cancels the conductor and its handlers at once. The conductor may hear of it later, and
            # must not claim the job again.
            self._runs.stopping.set()
        self._runs.give_back([run])
        del self._tasks[run]
        self._runs.free_worker(run)
        if self._closed and not self._tasks:
            self._quiet.set()

    def _give_up(self, run: Run) -> None:
        """End a run that takes too long. Its task may go on."""
        task = self._tasks[run]
        if self._runs.overdue(run, _where(task.get_coro())):
            task.cancel()
            self._loop.call_later(GRACE, self._see_it_end, run)

    def _stop_soon(self, run: Run) -> None:
        """Cancel the task of a run whose job was taken away; from any thread."""
        # A closed loop has ended its tasks.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop, run)

    def _stop(self, run: Run) -> None:
        if run in self._tasks and not run.decided:
            self._tasks[run].cancel()
            self._loop.call_later(GRACE, self._see_it_end, run)

    def _see_it_end(self, run: Run) -> None:
        if run in self._tasks:
            what = "is still at work though it was cancelled, and keeps its slot until it ends: so do"
            LOG.warning("%s: %s %s %d now", self._runs.name, run.job, what, self._runs.hung, extra=logs.fields(run.job))


async def _perform(call: Call, handling: Handling, wrappers: Sequence[Wrapper], job: ClaimedJob) -> None:
    """Call a coroutine function within the wrappers, which may be asynchronous."""
    async with contextlib.AsyncExitStack() as stack:
        for wrapper in wrappers:
            with ForkGuard():
                context: Any = wrapper(job)
                if isinstance(context, contextlib.AbstractAsyncContextManager):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
        work: Any = handling.work(job)
        with ForkGuard():
            result = await work
        call.keep(result)


def _where(coroutine: Any) -> str:
    """Return where a coroutine is, down to what it awaits, as a traceback shows it."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(["Where it was:\n", *traceback.StackSummary.extract(iter(frames)).format()])
