"""What who awaits a call is told, and what becomes of what nobody awaits."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.testing.conformance.support import LIMIT, LONG, Background, replaced
from tests.aio.conftest import Run

MakeBoard = Callable[..., Any]

pytestmark = pytest.mark.backends("memory")


def test_a_function_that_forgets_to_await_its_work(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")
    begun: list[jobboard.Job] = []

    async def resize(job: jobboard.Job) -> None:
        begun.append(job)

    @AsyncJobBoard(sync).working("anna", timeout=0)
    async def work(job: jobboard.Job) -> Any:
        return resize(job)

    async def main() -> None:
        with pytest.raises(TypeError, match="coroutine, which nobody runs"):
            await work()

    run(main())
    assert job.state == "SCHEDULED"
    assert begun == []


def test_a_claim_that_is_refused_when_nobody_waits_for_it_any_more(make_board: MakeBoard, run: Run) -> None:
    """That is nobody's error."""
    sync = make_board()
    job = sync.post("resize", delay=LONG)
    begun, go_on = threading.Event(), threading.Event()
    told: list[dict[str, Any]] = []

    def held_up(original: Callable[..., Any], *args: Any) -> Any:
        begun.set()
        assert go_on.wait(LIMIT)
        return original(*args)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        with replaced(sync, "claim", held_up):
            claiming = asyncio.create_task(AsyncJobBoard(sync).claim(job, "anna"))
            assert await asyncio.to_thread(begun.wait, LIMIT)
            claiming.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.wait([claiming], timeout=LIMIT)
        assert claiming.cancelled()
        del claiming
        await asyncio.sleep(0)
        # What was not retrieved says so as it goes.
        gc.collect()

    run(main())
    assert told == []


ENDLESS: dict[str, Callable[[AsyncJobBoard, Callable[..., Any]], Any]] = {
    "call": lambda board, stop: board.call(stop),
    "unless": lambda board, stop: board.claim_next("anna", timeout=LONG, unless=stop),
    "look": lambda board, stop: board.claim_next("anna", timeout=LONG),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_stop_iteration_ends_the_wait(make_board: MakeBoard, run: Run, what: str) -> None:
    """No future takes it, as it would end the coroutine that awaits it as if that had returned."""
    sync = make_board()

    def stop(*args: Any) -> Any:
        return next(iter(()))

    async def main() -> None:
        board = AsyncJobBoard(sync)
        with replaced(sync, "take", stop):
            awaiting = asyncio.create_task(ENDLESS[what](board, stop))
            await asyncio.wait([awaiting], timeout=LIMIT)
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            awaiting.result()
        assert isinstance(raised.value.__cause__, StopIteration) or what == "look"

    run(main())


def test_the_end_of_a_run_in_whatever_loop_it_is_awaited(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    conductor = AsyncConductor("one", AsyncJobBoard(sync), lambda job: None)

    async def main() -> None:
        running = asyncio.create_task(conductor.run(1, signals=False))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(conductor.wait(LIMIT))
        elsewhere = Background(lambda: asyncio.run(conductor.wait(LIMIT)))
        assert not await conductor.wait(0.01)
        sync.post("resize")
        assert await waiting
        assert await asyncio.to_thread(elsewhere.wait)
        await running

    run(main())
    run(main())


def test_a_run_that_will_not_be(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(make_board()), lambda job: None)
        with pytest.raises(ValueError, match="max_dispatches"):
            await conductor.run(0)
        assert not await conductor.wait(0.01)
        waiting = asyncio.create_task(conductor.wait(LIMIT))
        await asyncio.sleep(0)
        await asyncio.to_thread(conductor.stop)
        assert await waiting

    run(main())


def test_a_coroutine_function_that_is_registered_by_a_thread(make_board: MakeBoard, run: Run) -> None:
    """As the first of those who listen has the server told."""
    sync = make_board()
    asked, go_on = threading.Event(), threading.Event()

    def held_up(original: Callable[..., Any], *args: Any) -> Any:
        asked.set()
        assert go_on.wait(LIMIT)
        return original(*args)

    async def main() -> None:
        board, heard = AsyncJobBoard(sync), asyncio.Event()

        async def listen(event: str, told: dict[str, Any]) -> None:
            heard.set()

        with replaced(sync, "watch", held_up):
            registering = asyncio.create_task(board.call(board.notifier.register, "POSTED", listen))
            assert await asyncio.to_thread(asked.wait, LIMIT)
            go_on.set()
            await registering
        await board.post("resize")
        await asyncio.wait_for(heard.wait(), LIMIT)
        assert await board.call(board.notifier.deregister, "POSTED", listen)

    run(main())


def test_a_listener_whose_loop_was_closed_holds_up_no_other(make_board: MakeBoard) -> None:
    """Whether its loop was closed before it was called, or with the call scheduled."""
    sync, loop = make_board(), asyncio.new_event_loop()
    heard: queue.SimpleQueue[jobboard.Job] = queue.SimpleQueue()
    called = threading.Event()

    async def listen(event: str, told: dict[str, Any]) -> None: ...

    async def register() -> None:
        AsyncJobBoard(sync).notifier.register("POSTED", listen, details_filter=lambda told: called.set() or True)

    loop.run_until_complete(register())
    sync.notifier.register("POSTED", lambda event, told: heard.put(told["job"]))
    jobs = [sync.post("resize")]
    assert called.wait(LIMIT)
    loop.close()
    jobs.append(sync.post("resize"))
    assert [heard.get(timeout=LIMIT) for _ in jobs] == jobs


def test_a_coroutine_that_listens_may_close_its_board(
    make_board: MakeBoard, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the board does not wait for the end of the callback, which waits for the end of the board."""
    monkeypatch.setattr("jobboard.notifier.DELIVERY", 10 * LIMIT)
    sync = make_board()

    async def main() -> None:
        board, closed = AsyncJobBoard(sync), asyncio.Event()

        async def listen(event: str, told: dict[str, Any]) -> None:
            await board.close()
            closed.set()

        board.notifier.register("POSTED", listen)
        await board.post("resize")
        await asyncio.wait_for(closed.wait(), LIMIT)

    run(main())
    assert sync.closed
