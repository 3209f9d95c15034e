"""Who is cancelled while the end of a block is carried out is cancelled all the same, once that is done."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, replaced
from tests.aio.conftest import Run, waiting

MakeBoard = Callable[..., Any]

pytestmark = pytest.mark.backends("memory")


class Gate:
    """Holds up what goes through it, on its thread."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, original: Callable[..., Any], *args: Any) -> Any:
        self.reached.set()
        assert self.open.wait(LIMIT)
        return original(*args)

    async def is_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, LIMIT)


@contextlib.contextmanager
def gate(board: jobboard.JobBoard) -> Iterator[Gate]:
    """Before whatever ends a claim."""
    held_up = Gate()
    with replaced(board, "finish", held_up):
        yield held_up


async def cancelled_at(held_up: Gate, task: asyncio.Task[Any]) -> None:
    """More than once, while the end is carried out."""
    await held_up.is_reached()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done(), "it is to see the end of it"
    held_up.open.set()
    await asyncio.wait([task], timeout=LIMIT)
    assert task.cancelled()


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        (None, "COMPLETE"),
        (jobboard.Retry("later", delay=60), "SCHEDULED"),
        (jobboard.Reject("never"), "TRASHED"),
        (ValueError("broken"), "SCHEDULED"),
    ],
    ids=["done", "retry", "reject", "failed"],
)
def test_the_end_of_the_work(make_board: MakeBoard, run: Run, raised: Exception | None, state: str) -> None:
    sync = make_board()
    job = sync.post("resize")
    went_on: list[str] = []

    async def work() -> None:
        async with AsyncJobBoard(sync).working("anna", timeout=0):
            if raised is not None:
                raise raised
        went_on.append("behind the block")

    async def main() -> None:
        with gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(work()))
        assert went_on == []
        assert sync.get(job.uuid).state == state if state != "COMPLETE" else job.state == state

    run(main())


def test_an_end_that_is_refused(make_board: MakeBoard, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """That the work does not count is told, and is in nobody's way."""
    sync = make_board()
    job = sync.post("resize")

    async def work() -> None:
        async with AsyncJobBoard(sync).working("anna", timeout=0):
            make_board().release(job)

    async def main() -> None:
        with gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(work()))

    run(main())
    assert "ClaimLost" in caplog.text
    assert job.state == "UNCLAIMED"


def test_a_time_limit(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def work(end: Gate) -> None:
        async with asyncio.timeout(None) as limit, AsyncJobBoard(sync).working("anna", timeout=0):
            # It is up when the block has ended, and that has not been carried out.
            opening = asyncio.create_task(end.is_reached())
            opening.add_done_callback(lambda _: limit.reschedule(0))
            opening.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(end.open.set))

    async def main() -> None:
        with gate(sync) as end, pytest.raises(TimeoutError):
            await work(end)
        assert job.state == "COMPLETE"

    run(main())


def test_the_end_of_a_board(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        async def use() -> None:
            async with AsyncJobBoard(sync) as board:
                assert await board.claim_next("anna") == job

        with gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(use()))
        assert sync.closed

    run(main())
    sync.connect()
    assert job.state == "UNCLAIMED"


def test_the_end_of_a_run_that_fails(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("resize")
    broken = threading.Event()

    def take(original: Callable[..., Any], *args: Any) -> Any:
        if sync.stats().claimed:
            broken.set()
            raise RuntimeError("broken")
        return original(*args)

    async def main() -> None:
        async def handler(job: jobboard.Job) -> None:
            await asyncio.to_thread(broken.wait, LIMIT)

        conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
        with replaced(sync, "take", take), gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(conductor.run(signals=False)))

    run(main())


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("reason", ["a fault", "no thread"])
def test_what_can_not_be_given_back(make_board: MakeBoard, run: Run, refused: set[str], reason: str) -> None:
    """Who is cancelled as it is served gets nothing, and hears of nothing. Its claim is kept by nobody."""
    sync = make_board(claim_ttl=1)
    served: list[jobboard.Job] = []

    def fail(*args: Any) -> Any:
        raise RuntimeError("broken")

    async def main() -> None:
        board = AsyncJobBoard(sync)
        [claiming] = await waiting(board, board.claim_next("anna", timeout=None))
        [(line, _)] = board._loops.values()
        serve = line._end

        def serve_and_cancel(waiter: Any, jobs: list[Any]) -> None:
            serve(waiter, jobs)
            served.extend(jobs)
            claiming.cancel()

        line._end = serve_and_cancel  # type: ignore[method-assign]
        if reason == "no thread":
            refused.add(sync.name)
        with replaced(sync, "finish", fail) if reason == "a fault" else contextlib.nullcontext():
            await asyncio.to_thread(sync.post, "resize")
            await asyncio.wait([claiming], timeout=LIMIT)
        assert claiming.cancelled()
        [job] = served
        await asyncio.to_thread(eventually, lambda: sync.find_owner(job) is None, LIMIT)

    run(main())


@pytest.mark.backends("sqlite")
def test_work_whose_end_gets_no_thread(make_board: MakeBoard, run: Run, refused: set[str]) -> None:
    """Nobody works under its claim, so that nobody keeps the claim."""
    # Threads of other tests' boards may be there for a while.
    sync = make_board(uuid.uuid4().hex, claim_ttl=1)
    job = sync.post("resize")

    async def work(board: AsyncJobBoard) -> None:
        async with board.working("anna", timeout=0):
            # As after a long while without a call.
            board._threads.close()
            await asyncio.to_thread(eventually, lambda: sync.name not in {each.name for each in threading.enumerate()})
            refused.add(sync.name)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="new thread"):
            await work(AsyncJobBoard(sync))
        await asyncio.to_thread(eventually, lambda: sync.find_owner(job) is None, LIMIT)

    run(main())
