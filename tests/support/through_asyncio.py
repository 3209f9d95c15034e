"""A board whose verbs all go through :class:`~jobboard.aio.AsyncJobBoard`, for tests that are written for threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from jobboard import forks
from jobboard.aio import AsyncJobBoard
from jobboard.board import JobBoard, JobBoardIterator
from jobboard.job import Job
from jobboard.work import Working, around

T = TypeVar("T")

VERBS = tuple(
    name
    for name, member in vars(AsyncJobBoard).items()
    if not name.startswith("_") and hasattr(JobBoard, name) and not isinstance(member, property)
)


class _Loop:
    """An event loop on a thread of its own, for as long as the process lives."""

    def __init__(self) -> None:
        self.generation = forks.generation
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="event-loop", daemon=True).start()

    def begin(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        async def inside() -> T:
            _inside.set(True)
            return await call

        return asyncio.run_coroutine_threadsafe(inside(), self.loop)


_loop: _Loop | None = None


_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside", default=False)
"""Whether this is done for a coroutine already: what the verbs call of each other stays below."""


def begin(call: Coroutine[Any, Any, T]) -> Future[T]:
    global _loop  # noqa: PLW0603 - there is one for each process
    if _loop is None or _loop.generation != forks.generation:
        _loop = _Loop()
    return _loop.begin(call)


def run(call: Coroutine[Any, Any, T]) -> T:
    return begin(call).result()


class ThroughAsyncio(JobBoard):
    """Its ``twin`` stands for it on the loop, and calls the verbs of JobBoard, which are not these."""

    _generation = -1
    _made: AsyncJobBoard

    @property
    def twin(self) -> AsyncJobBoard:
        if self._generation != forks.generation:
            # A forked child has neither the threads nor the loop.
            self._made, self._generation = AsyncJobBoard(self), forks.generation
        return self._made

    async def joining(self, call: Coroutine[Any, Any, T]) -> T:
        """Whoever joins those who wait has the thread that sleeps for them look again and go to sleep, as tests expect
        of each waiter."""
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        if any(line.asleep for line, _ in self.twin._loops.values()):
            JobBoard.wake(self)
        return await task


class _Walk(JobBoardIterator):
    def __init__(self, steps: AsyncIterator[Job], board: JobBoard, told: dict[str, Any]) -> None:
        self._steps = steps
        self.board = board
        self.only_unclaimed = told.get("only_unclaimed", False)
        self.ensure_fresh = told.get("ensure_fresh", False)

    def __next__(self) -> Job:
        async def step() -> Job:
            return await anext(self._steps)

        try:
            return run(step())
        except StopAsyncIteration:
            raise StopIteration from None


@contextlib.contextmanager
def _block(twin: AsyncJobBoard, *args: Any, **kwargs: Any) -> Iterator[Job]:
    """One task enters and leaves it, as what is done within belongs to the task's context."""
    entered: Future[Job] = Future()
    left: Future[BaseException | None] = Future()

    async def work() -> BaseException | None:
        try:
            async with twin.working(*args, **kwargs) as job:
                entered.set_result(job)
                if (error := await asyncio.wrap_future(left)) is not None:
                    raise error
        except BaseException as error:  # noqa: BLE001 - raised where the block is
            if not entered.done():
                entered.set_exception(error)
            return error
        return None

    task = begin(work())
    job = entered.result()
    error: BaseException | None = None
    try:
        # In the context of this thread, too.
        with around(twin.sync, job):
            yield job
    except BaseException as raised:  # noqa: BLE001 - raised again by what the task makes of it
        error = raised
    left.set_result(error)
    if (outcome := task.result()) is not None:
        raise outcome


def _through(name: str) -> Any:
    @functools.wraps(getattr(JobBoard, name))
    def verb(self: ThroughAsyncio, *args: Any, **kwargs: Any) -> Any:
        if _inside.get():
            return getattr(JobBoard, name)(self, *args, **kwargs)
        answer = getattr(self.twin, name)(*args, **kwargs)
        if asyncio.iscoroutine(answer):
            answer = run(self.joining(answer) if name in ("claim_next", "claim_many", "wait") else answer)
        if isinstance(answer, AsyncIterator):
            told = (
                {"only_unclaimed": True}
                if name == "wait"
                else dict(zip(("only_unclaimed", "ensure_fresh"), args, strict=False))
            )
            return _Walk(answer, self, {**told, **kwargs})
        return answer

    return verb


def _job_count(self: ThroughAsyncio) -> int:
    return JobBoard.job_count.__get__(self) if _inside.get() else run(self.twin.job_count())


def _working(self: ThroughAsyncio, *args: Any, **kwargs: Any) -> Working:
    return Working(lambda: _block(self.twin, *args, **kwargs))


for _name in VERBS:
    if _name == "job_count":
        # The twin asks for it by its name.
        ThroughAsyncio.job_count = property(_job_count)  # type: ignore[assignment, method-assign]
    else:
        setattr(ThroughAsyncio, _name, _working if _name == "working" else _through(_name))
