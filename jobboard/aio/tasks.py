"""Where an :class:`~jobboard.aio.AsyncConductor` runs its handlers: tasks on the loop, and threads for plain ones."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobboard import logs
from jobboard.conductor.handlers import Call, Handling, Wrapper, ending_of, fresh, timed_out
from jobboard.conductor.slots import Reports, Run, Slots
from jobboard.forks import ForkGuard
from jobboard.job import Job
from jobboard.outcomes import check_result
from jobboard.standing import Trigger

LOG = logs.Log(__name__)

GRACE = 1.0
"""Seconds that a task has to end after it was cancelled, before that is worth a word."""


class Tasks:
    """As many places as ``count`` says, for both kinds of handlers together.

    :param threads: for plain handlers.
    :param context: of which each coroutine gets a fresh copy.
    :param lock: held whenever :attr:`free` changes.
    :param room: told when more may be put.
    """

    def __init__(
        self,
        name: str,
        count: int,
        reports: Reports,
        wrappers: Sequence[Wrapper],
        threads: Slots,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        lock: threading.Lock,
        room: threading.Condition,
    ) -> None:
        self._name = name
        self._count = count
        self._reports = reports
        self._wrappers = wrappers
        self._threads = threads
        self._loop = loop
        self._context = context
        # From Python 3.12 on a task may begin at once: one that never has to wait costs the loop no turn.
        eager = sys.version_info >= (3, 12) and loop.get_task_factory() is None
        made: Any = loop.create_task
        if eager:
            kind: Any = asyncio.Task
            made = functools.partial(kind, loop=loop, eager_start=True)
        self._make_task: Callable[..., asyncio.Task[None]] = made
        self._lock = lock
        self._room = room
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._given_up: set[Run] = set()
        # Those that the loop has not begun, and those that it has.
        self._waiting = self._taken = 0
        self._ended = 0
        self._quiet = threading.Event()
        self._closed = False

    @property
    def free(self) -> int:
        """None while some wait to be begun: as with threads, a few large claims cost less than many small ones."""
        if self._waiting or not self._threads.free:
            return 0
        return max(0, self._count - self._taken - self._threads.taken)

    @property
    def hung(self) -> int:
        return len(self._given_up) + self._threads.hung

    def put(self, runs: Iterable[Run]) -> None:
        mine: list[Run] = []
        plain: list[Run] = []
        for run in runs:
            (mine if run.handling.is_coroutine else plain).append(run)
        if plain:
            self._threads.put(plain)
        if mine:
            with self._lock:
                self._waiting += len(mine)
            # Raises where the loop was closed under the conductor.
            self._loop.call_soon_threadsafe(self._begin, mine)

    def close(self, seconds: float | None) -> None:
        """Cancel what is still at work, and wait a moment for that to end."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
            if not self._quiet.wait(GRACE if seconds is None else min(seconds, GRACE)):
                LOG.warning("%s: %d handlers go on though they were cancelled", self._name, len(self._tasks))
        self._threads.close(seconds)

    # On the loop

    def _begin(self, runs: Sequence[Run]) -> None:
        with self._lock:
            self._waiting -= len(runs)
            self._taken += len(runs)
            self._room.notify()
        for run in runs:
            if not self._closed:
                self._begin_one(run)

    def _begin_one(self, run: Run) -> None:
        work = self._work(run)
        try:
            # Not context=, which task factories from before Python 3.11 do not take.
            task = fresh(self._context).run(self._make_task, work, name=run.job.uuid)
        except Exception as error:
            work.close()
            with Call(run.handling, run.job) as call:
                raise error
            self._reports.ended(run, call.ending)
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
            self._reports.begun(run)
            with Call(run.handling, job) as call:
                # Of as few coroutines as can be: where handlers have little to do, each counts.
                work: Any = _wrapped(handling, self._wrappers, job) if self._wrappers else handling.work(job)
                with ForkGuard():
                    call.result = check_result(await work)
            ending = call.ending
            # One that was cancelled has ended before.
            if not (run.decided and isinstance(ending.error, asyncio.CancelledError)):
                self._reports.ended(run, ending)
        except BaseException as error:
            # As in a slot: a run that nobody ends is kept for ever, and the conductor with it.
            LOG.exception("%s could not work on %s", self._name, job, extra=logs.fields(job))
            if not run.decided:
                self._reports.ended(run, ending_of(error, job, handling, run.seconds()))
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(run)

    def _leave(self, run: Run) -> None:
        # One that never had to wait was never among them.
        self._tasks.pop(run, None)
        self._given_up.discard(run)
        self._ended += 1
        if self._ended == 1:
            # Once for all that end in this turn of the loop.
            self._loop.call_soon(self._make_room)
        if self._closed and not self._tasks:
            self._quiet.set()

    def _make_room(self) -> None:
        ended, self._ended = self._ended, 0
        with self._lock:
            self._taken -= ended
            self._room.notify()

    def _give_up(self, run: Run) -> None:
        """It takes too long. Its job is abandoned now, and not when its task has ended, which it may not do."""
        task = self._tasks[run]
        if self._reports.ended(run, timed_out(run.handling, run.job, run.seconds(), _where(task.get_coro()))):
            assert run.job.claim is not None
            run.job.claim._step(Trigger.GIVEN_UP)
            self._given_up.add(run)
            task.cancel()
            self._loop.call_later(GRACE, self._see_it_end, run)

    def _see_it_end(self, run: Run) -> None:
        if run in self._given_up:
            what = "is still at work though it was cancelled, and keeps its place until it ends: so do"
            LOG.warning("%s: %s %s %d now", self._name, run.job, what, self.hung, extra=logs.fields(run.job))


async def _wrapped(handling: Handling, wrappers: Sequence[Wrapper], job: Job) -> object:
    """What wraps a coroutine function may be asynchronous."""
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
    """Where a coroutine is, down to what it awaits, as a traceback shows it."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(["Where it was:\n", *traceback.StackSummary.extract(iter(frames)).format()])
