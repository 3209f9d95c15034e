"""What handlers return becomes the result of their jobs, where that is kept."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from tests.support import handlers

pytestmark = pytest.mark.backends("memory")

MakeBoard = Callable[..., Any]
HANDLERS: dict[str, Callable[[jobboard.Job], object]] = {
    "echo": handlers.echo,
    "odd": handlers.return_oddly,
    "fail": handlers.fail,
    "raises": handlers.return_what_raises,
    "ends": handlers.return_what_ends,
}


def by_threads(board: Any, number: int) -> None:
    Conductor("one", board, HANDLERS).run(number)


def by_processes(board: Any, number: int) -> None:
    Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=1).run(number)


def by_tasks(board: Any, number: int) -> None:
    async def coroutine(job: jobboard.Job) -> object:
        return HANDLERS[job.name](job)

    async def main() -> None:
        called = {**HANDLERS, **dict.fromkeys(("echo", "raises", "ends"), coroutine)}
        conductor = AsyncConductor("one", AsyncJobBoard(board), called, max_simultaneous_jobs=1)
        await asyncio.wait_for(conductor.run(number), 30)

    asyncio.run(main())


@pytest.mark.parametrize("work", [by_threads, by_processes, by_tasks])
def test_it_is_kept(make_board: MakeBoard, work: Callable[[Any, int], None], caplog: pytest.LogCaptureFixture) -> None:
    board = make_board(keep_done=600)
    names = ["echo", "echo", "odd", "fail"]
    returns = [{"ü": [1, 2.5, None]}, None, 1, 1]
    jobs = [
        board.post(name, details={"returns": value}, max_attempts=1) for name, value in zip(names, returns, strict=True)
    ]
    with caplog.at_level(logging.WARNING):
        work(board, len(jobs))
    assert [job.result(0) for job in jobs[:2]] == [{"ü": [1, 2.5, None]}, None]
    odd, *others = board.outcomes(names=["odd"])
    assert (odd.result, others) == (None, [])
    assert "result: set is not one of" in odd.refused
    assert f"the result of {jobs[2]} is not kept" in caplog.text
    with pytest.raises(jobboard.NotFound, match="result: set"):
        jobs[2].result()
    assert jobs[3].state == "TRASHED"
    assert len(list(board.outcomes())) == 3


@pytest.mark.parametrize("work", [by_threads, by_processes, by_tasks])
def test_one_that_raises_as_it_is_looked_at(make_board: MakeBoard, work: Callable[[Any, int], None]) -> None:
    board = make_board(keep_done=600)
    raises, ends = board.post("raises"), board.post("ends", max_attempts=1)
    work(board, 2)
    [outcome] = board.outcomes()
    assert outcome.uuid == raises.uuid
    assert "Unspeakable" in outcome.refused
    # The process in which it was looked at does not survive that.
    assert "no row any more" in board.get(ends.uuid).error or work is by_processes
    assert ends.state == "TRASHED"


@pytest.mark.parametrize("work", [by_threads, by_processes, by_tasks])
def test_it_is_left_alone_where_nothing_is_kept(
    make_board: MakeBoard, work: Callable[[Any, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board()
    board.post("odd")
    with caplog.at_level(logging.WARNING):
        work(board, 1)
    assert board.stats().on_board == 0
    assert board.stats().trashed == 0
    assert "is not kept" not in caplog.text


def test_asyncio_waits_for_it(make_board: MakeBoard) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board(keep_done=600))
        job = await board.post("a")
        with pytest.raises(TimeoutError):
            await board.result(job, 0)
        claimed = await board.claim_next("anna")
        assert claimed is not None
        waiting = asyncio.ensure_future(board.result(job, 10))
        await board.consume(claimed, "anna", result=[1])
        assert await waiting == [1]
        assert [left.result async for left in board.outcomes()] == [[1]]
        assert (await board.outcome(job)).who == "anna"
        await board.close()

    asyncio.run(main())
