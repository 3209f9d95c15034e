"""Handlers whose tasks begin at once, as from Python 3.12 on, where the loop makes tasks itself.

The assertions hold for ordinary tasks and for those of a user's task factory, too. Python 3.12 runs these tests in
``tox run -e django``, which says so where there is none.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.testing.conformance.support import LONG
from tests.aio.conftest import ON_BOTH_LOOPS, Run
from tests.support.conductors import LATE, WAIT, MakeBoard

pytestmark = pytest.mark.backends("memory", "sqlite")

seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


@pytest.fixture(params=["the loop's", "the user's"])
def factory(request: pytest.FixtureRequest) -> list[Any] | None:
    """What a task factory of the user's has made; None where the loop has none."""
    return None if request.param == "the loop's" else []


@pytest.fixture
def work(make_board: MakeBoard, run: Run, factory: list[Any] | None) -> Callable[..., Any]:
    """``work(handler, jobs)``: what a conductor has done with them, and the board."""
    sync = make_board()

    def at_work(handler: Any, jobs: int, made: list[Any] | None = None, **options: Any) -> tuple[AsyncConductor, Any]:
        async def main() -> tuple[AsyncConductor, Any]:
            if factory is not None:

                def make(loop: Any, coroutine: Coroutine[Any, Any, Any], **told: Any) -> asyncio.Task[Any]:
                    factory.append(coroutine)
                    return asyncio.Task(coroutine, loop=loop, **told)

                asyncio.get_running_loop().set_task_factory(make)
            sync.post_many([{"name": "a", "details": {"number": number}} for number in range(jobs)])
            conductor = AsyncConductor("one", AsyncJobBoard(sync), handler, retry=LATE, **options)
            if made is not None:
                made.append(conductor)
            events: list[tuple[str, int]] = []
            for event in ("job_claimed", "job_started", "job_finished", "job_failed", "job_consumed", "job_abandoned"):
                conductor.notifier.register(
                    event, lambda event, told: events.append((event, told["job"].details["number"]))
                )
            await conductor.run(max_dispatches=jobs)
            return conductor, events

        return run(main())

    return at_work


@ON_BOTH_LOOPS
def test_task_begins_at_once_unless_a_factory_makes_it(work: Callable[..., Any], factory: list[Any] | None) -> None:
    at_once: list[bool] = []

    async def handler(job: jobboard.Job) -> None:
        at_once.append(any(frame.name == "_begin" for frame in traceback.extract_stack()))

    conductor, _ = work(handler, 20)
    assert conductor.tally.consumed == 20
    assert at_once == [sys.version_info >= (3, 12) and factory is None] * 20
    if factory is not None:
        assert sum(each.__qualname__ == "Tasks._work" for each in factory) == 20


def test_handler_runs_in_a_task_of_its_own(work: Callable[..., Any]) -> None:
    tasks: list[tuple[Any, str]] = []

    async def handler(job: jobboard.Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append((task, job.uuid))
        # This asks for the current task, too.
        async with asyncio.timeout(LONG):
            if job.details["number"] % 2:
                await asyncio.sleep(0)
        assert asyncio.current_task() is task

    conductor, _ = work(handler, 10)
    assert conductor.tally.consumed == 10
    assert len({task for task, _ in tasks}) == 10
    assert all(task.get_name() == uuid for task, uuid in tasks)


def test_context_variables_stay_with_their_job(work: Callable[..., Any]) -> None:
    found: list[str] = []

    async def handler(job: jobboard.Job) -> None:
        found.append(seen.get())
        seen.set(job.uuid)
        if job.details["number"] % 2:
            await asyncio.sleep(0)
        assert seen.get() == job.uuid

    conductor, _ = work(handler, 10)
    assert conductor.tally.consumed == 10
    assert found == ["nothing"] * 10
    assert seen.get() == "nothing"


def test_error_before_the_first_await_harms_no_other_job(work: Callable[..., Any]) -> None:
    async def handler(job: jobboard.Job) -> None:
        if job.details["number"] == 0:
            raise ValueError("broken")
        if job.details["number"] == 1:
            raise SystemExit(3)
        if job.details["number"] == 2:
            raise asyncio.CancelledError
        if job.details["number"] == 3:
            raise jobboard.Reject("no use")

    conductor, _ = work(handler, 6)
    # The other jobs of the batch are worked on all the same.
    assert (conductor.tally.consumed, conductor.tally.abandoned, conductor.tally.trashed) == (2, 3, 1)


def test_timeout_cancels_at_the_first_await(work: Callable[..., Any]) -> None:
    """A handler that never waits cannot be cancelled: its result counts."""

    async def handler(job: jobboard.Job) -> None:
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass
        if job.details["number"]:
            await asyncio.sleep(LONG)

    conductor, events = work(handler, 2, job_timeout=0.05)
    assert (conductor.tally.consumed, conductor.tally.abandoned) == (1, 1)
    assert [event for event in events if event[0] == "job_failed"] == [("job_failed", 1)]


def test_handler_that_is_cancelled_before_its_first_await(work: Callable[..., Any]) -> None:
    reached: list[int] = []

    async def handler(job: jobboard.Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if job.details["number"]:
            await asyncio.sleep(LONG)
            reached.append(job.details["number"])

    conductor, _ = work(handler, 2)
    # The first one has returned before it was cancelled.
    assert (conductor.tally.consumed, conductor.tally.abandoned, reached) == (1, 1, [])


def test_handler_may_stop_its_conductor(work: Callable[..., Any]) -> None:
    conductors: list[AsyncConductor] = []

    async def handler(job: jobboard.Job) -> None:
        if job.details["number"] == 0:
            conductors[0].stop()
        elif job.details["number"] == 1:
            await asyncio.sleep(LONG)

    conductor, events = work(handler, 3, conductors, drain_timeout=0.2)
    # The second one is given back, and that attempt does not count.
    assert conductor.tally.consumed == 2
    assert ("job_failed", 1) not in events


def test_events_of_each_job_come_in_order(work: Callable[..., Any]) -> None:
    async def handler(job: jobboard.Job) -> None:
        if job.details["number"] % 2:
            await asyncio.sleep(0)
        if job.details["number"] == 4:
            raise ValueError("broken")

    _, events = work(handler, 6)
    for number in range(6):
        last = ["job_failed", "job_abandoned"] if number == 4 else ["job_consumed"]
        mine = [event for event, its in events if its == number]
        assert mine == ["job_claimed", "job_started", "job_finished", *last]


def test_factory_that_makes_no_task_fails_the_job(make_board: MakeBoard, run: Run) -> None:
    """That job has failed, and the others go on."""
    sync = make_board()
    sync.post_many([{"name": "a", "details": {"number": number}} for number in range(3)])
    refused: list[Any] = []
    done: list[int] = []

    def make(loop: Any, coroutine: Any, **told: Any) -> asyncio.Task[Any]:
        if coroutine.__qualname__ == "Tasks._work" and not refused:
            refused.append(coroutine)
            raise LookupError("no more tasks")
        return asyncio.Task(coroutine, loop=loop, **told)

    async def handler(job: jobboard.Job) -> None:
        done.append(job.details["number"])

    async def main() -> AsyncConductor:
        asyncio.get_running_loop().set_task_factory(make)
        conductor = AsyncConductor("one", AsyncJobBoard(sync), handler, retry=LATE)
        await asyncio.wait_for(conductor.run(max_dispatches=3), WAIT)
        return conductor

    conductor = run(main())
    assert done == [1, 2]
    assert (conductor.tally.consumed, conductor.tally.abandoned) == (2, 1)
    [job] = sync.iterjobs()
    assert "no more tasks" in job.errors[-1].text
