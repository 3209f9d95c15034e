"""The context variables that a handler sees and sets."""

import asyncio
import contextlib
import contextvars
import decimal
from collections.abc import Iterator
from typing import Any, Literal

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from tests.support import handlers
from tests.support.handlers import TENANT
from tests.test_conductor import MakeBoard

pytestmark = pytest.mark.backends("memory")


@contextlib.contextmanager
def wrapper(job: jobboard.Job) -> Iterator[None]:
    TENANT.set(f"{TENANT.get()}, wrapped")
    yield


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_job_sees_nothing_of_the_one_before(make_board: MakeBoard, workers: Literal["threads", "processes"]) -> None:
    """In threads the context is that of the caller of run(), in a process that of the process after its imports."""
    board = make_board(keep_done=60)
    jobs = board.post_many([{"name": "a"}] * 3)
    conductor = Conductor("one", board, handlers.leave_variables, workers=workers, max_simultaneous_jobs=1)
    context = contextvars.copy_context()
    context.run(TENANT.set, "ours")
    # An object that all copies of the context share.
    shared = context.run(decimal.getcontext)
    shared.prec = 30
    context.run(conductor.run, 3)
    seen = {"threads": ["ours", 30], "processes": ["nobody's", 28]}[workers]
    assert [job.result() for job in jobs] == [seen] * 3
    assert (context[TENANT], shared.prec) == ("ours", 30)


def test_what_wraps_a_handler_has_its_context(make_board: MakeBoard) -> None:
    board = make_board(keep_done=60)
    jobs = board.post_many([{"name": "a"}] * 2)
    conductor = Conductor("one", board, handlers.leave_variables, max_simultaneous_jobs=1)
    conductor.wraps(wrapper)
    conductor.run(2)
    assert [job.result()[0] for job in jobs] == ["nobody's, wrapped"] * 2


def test_jobs_of_an_async_conductor_have_contexts_of_their_own(make_board: MakeBoard) -> None:
    sync = make_board(keep_done=60)
    jobs = sync.post_many([{"name": name} for name in ("plain", "coroutine")] * 3)

    async def coroutine(job: jobboard.Job) -> Any:
        seen = handlers.leave_variables(job)
        await asyncio.sleep(0)
        assert TENANT.get() == job.uuid
        return seen

    async def main() -> None:
        TENANT.set("ours")
        decimal.getcontext().prec = 30
        plain = handlers.leave_variables
        conductor = AsyncConductor(
            "one", AsyncJobBoard(sync), {"plain": plain, "coroutine": coroutine}, max_simultaneous_jobs=1
        )
        await conductor.run(6, signals=False)
        assert (TENANT.get(), decimal.getcontext().prec) == ("ours", 30)

    asyncio.run(main())
    assert [job.result() for job in jobs] == [["ours", 30]] * 6
