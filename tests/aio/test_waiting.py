"""Coroutines that wait for jobs of different names: one thread looks and sleeps for all of them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncJobBoard
from jobboard.aio.waiting import WaitingLine
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, Background, replaced
from jobboard.testing.requests import ENDS, JOB_READS, TAKES, requests
from tests.aio.conftest import ON_BOTH_LOOPS, Run, until, waiting
from tests.support.conductors import WAIT, MakeBoard

FAST = pytest.mark.backends("memory")
SOME = pytest.mark.backends("memory", "sqlite", "redis", "postgresql")


class Abrupt(BaseException): ...


def sleepers(others: set[threading.Thread]) -> int:
    """Return how many threads wait, without those that earlier tests have left for a while."""
    return sum(thread.name.endswith("-waiter") for thread in set(threading.enumerate()) - others)


@pytest.mark.rule("One thread waits for coroutines of all names, and claims only jobs for which they wait.")
def test_one_thread_waits_for_jobs_of_all_names(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    workers = ("anna", "anna", "carl")

    async def main() -> None:
        board, others = AsyncJobBoard(sync), set(threading.enumerate())
        crop, both, anything = await waiting(
            board,
            board.claim_next(workers[0], names=["crop"], timeout=LONG),
            board.claim_many(workers[1], 2, names=["resize", "turn"], timeout=LONG),
            board.claim_many(workers[2], 5, timeout=LONG),
        )
        assert sleepers(others) == 1
        turned = await board.post("turn")
        assert await both == [turned]
        other = await board.post("other")
        assert await anything == [other]
        assert not crop.done()
        cropped = await board.post("crop")
        assert await crop == cropped
        assert [await board.find_owner(job) for job in (cropped, turned, other)] == list(workers)

    run(main())


@SOME
def test_waiter_that_comes_while_others_sleep_is_served(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    there = sync.post("crop")

    async def main() -> None:
        board, others = AsyncJobBoard(sync), set(threading.enumerate())
        [resize] = await waiting(board, board.claim_next("anna", names=["resize"], timeout=None))
        assert await board.claim_next("anna", names=["crop"], timeout=LONG) == there
        assert await board.claim_next("bert", names=["crop"], timeout=0.05) is None
        [crop] = await waiting(board, board.claim_next("bert", names=["crop"], timeout=None))
        jobs = await board.post_many([{"name": "crop"}, {"name": "resize"}])
        assert [await crop, await resize] == jobs
        assert sleepers(others) == 1

    run(main())


@pytest.mark.rule("One thread waits for coroutines of all names, and claims only jobs for which they wait.")
@SOME
@pytest.mark.parametrize("end", ["cancelled", "out of time"])
@pytest.mark.parametrize("other", ["anna", "bert"])
def test_waiter_that_leaves_holds_nothing(make_board: MakeBoard, run: Run, other: str, end: str) -> None:
    """Even if a store has claimed a job for it, or for another waiter of the same worker, while the thread slept."""
    sync = make_board()

    async def main() -> None:
        board, others = AsyncJobBoard(sync), set(threading.enumerate())
        for _ in range(3):
            limit = None if end == "cancelled" else 0.02
            crop, resize = await waiting(
                board,
                board.claim_next("anna", names=["crop"], timeout=limit),
                board.claim_next(other, names=["resize"], timeout=None),
            )
            cropped, resized = sync.post_many([{"name": "crop"}, {"name": "resize"}])
            if end == "cancelled":
                crop.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await crop
                assert sync.find_owner(cropped) is None
            elif await crop is None:
                assert sync.find_owner(cropped) is None
            assert await resize == resized
            assert await board.find_owner(resized) == other
            await board.consume(resized, other)
            await board.cancel(cropped) if crop.cancelled() or crop.result() is None else await board.consume(
                cropped, "anna"
            )
        assert sleepers(others) == 1

    run(main())


@pytest.mark.rule("The thread that waits for coroutines ends with its loop.")
@ON_BOTH_LOOPS
def test_end_of_a_loop_ends_the_wait_of_its_thread(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        await waiting(
            board,
            *(
                board.claim_next(who, names=[name], timeout=None)
                for who, name in zip(("anna", "bert"), "xy", strict=True)
            ),
        )

    Background(lambda: run(main())).wait(WAIT)


@pytest.mark.rule("An error of a shared wait reaches all who wait.")
@FAST
@pytest.mark.parametrize("error", [ValueError("broken"), Abrupt("broken")], ids=repr)
def test_error_of_a_look_reaches_all_waiters(make_board: MakeBoard, run: Run, error: BaseException) -> None:
    sync = make_board()

    def fail(*args: Any) -> Any:
        raise error

    async def main() -> None:
        board = AsyncJobBoard(sync)
        tasks = await waiting(board, *(board.claim_next("anna", timeout=None) for _ in range(3)))
        with requests(sync).around(TAKES, fail):
            job = await board.post("resize")
            done, _ = await asyncio.wait(tasks, timeout=WAIT)
        assert {(type(task.exception()), "broken" in str(task.exception())) for task in done} == {(type(error), True)}
        assert len(done) == 3
        assert await board.claim_next("anna", timeout=LONG) == job

    run(main())


@pytest.mark.rule("A look serves no caller that came after the look began.")
@pytest.mark.backends("memory", "sqlite", "redis")
@pytest.mark.parametrize("meanwhile", ["paused", "a more urgent job"])
@pytest.mark.parametrize("during", ["take", "wait"])
def test_look_serves_no_waiter_that_came_after_it_began(
    make_board: MakeBoard, run: Run, during: str, meanwhile: str
) -> None:
    """Nor does a job that a store has claimed for a sleeping waiter. It may have been paused since."""
    sync = make_board()
    over, going_on = threading.Event(), threading.Event()

    def late(original: Callable[..., Any], *args: Any) -> Any:
        answer = original(*args)
        over.set()
        going_on.wait(WAIT)
        return answer

    async def main() -> None:
        board = AsyncJobBoard(sync)
        # The first wait of a handle begins to listen.
        assert sync.claim_next("anna", timeout=0.1) is None
        if during == "take":
            there = sync.post("resize")
        with replaced(sync, during, late):
            first = asyncio.create_task(board.claim_next("anna", timeout=LONG))
            if during == "wait":
                await waiting(board)
                there = sync.post("resize")
            await until(over.is_set)
            first.cancel()
            await asyncio.sleep(0)
            urgent = sync.post("resize", priority=100)
            if meanwhile == "paused":
                sync.pause()
            second = asyncio.create_task(board.claim_next("anna", timeout=LONG))
            await asyncio.sleep(0)
            going_on.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert await board.find_owner(there) is None
            if meanwhile == "paused":
                await waiting(board)
                assert not second.done()
                sync.resume()
            assert await second == urgent

    run(main())


CLAIMS: dict[str, Callable[[AsyncJobBoard], Any]] = {
    "waiting": lambda board: board.claim_next("anna", timeout=None),
    "claim_next": lambda board: board.claim_next("anna"),
}


@FAST
@pytest.mark.parametrize("call", CLAIMS)
def test_look_of_a_loop_that_was_closed_gives_its_jobs_back(make_board: MakeBoard, call: str) -> None:
    """The loop is closed without the cancellation of its tasks."""
    sync = make_board()
    job = sync.post("resize")
    begun, going_on, looked = threading.Event(), threading.Event(), threading.Event()

    def late(original: Callable[..., Any], *args: Any) -> Any:
        begun.set()
        assert going_on.wait(WAIT)
        answer = original(*args)
        looked.set()
        return answer

    async def main() -> None:
        claiming.append(asyncio.ensure_future(CLAIMS[call](AsyncJobBoard(sync))))
        while not begun.is_set():
            await asyncio.sleep(0.01)

    claiming: list[Any] = []
    loop = asyncio.new_event_loop()
    with requests(sync).around(TAKES, late):
        loop.run_until_complete(main())
        loop.close()
        going_on.set()
        assert looked.wait(WAIT)
        eventually(lambda: job.state == "UNCLAIMED")
    assert job.attempts == 0
    assert sync.claims.held() == []


@pytest.mark.rule("A claim that a stopped loop does not deliver is given back.")
@FAST
@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize(("call", "stopped"), [("claim_next", "asked"), ("waiting", "asked"), ("waiting", "served")])
def test_claim_that_a_stopped_loop_does_not_deliver_is_given_back(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch, call: str, stopped: str, forgotten: bool
) -> None:
    """The loop is closed after the claim, without the cancellation of its tasks. The program may still know them."""
    sync = make_board(claim_ttl=3)
    job = sync.post("resize")
    board = AsyncJobBoard(sync)
    loop = asyncio.new_event_loop()
    going_on = threading.Event()
    end = WaitingLine._end

    def take(original: Callable[..., Any], *args: Any) -> Any:
        if stopped == "asked":
            loop.call_soon_threadsafe(loop.stop)
            assert going_on.wait(WAIT)
        return original(*args)

    def serve(*args: Any) -> None:
        end(*args)
        if stopped == "served":
            loop.stop()

    def is_idle() -> bool:
        return board._threads._idle + sum(line._thread._idle for line, _ in board._loops.values()) > 0

    monkeypatch.setattr(WaitingLine, "_end", serve)
    with requests(sync).around(TAKES, take):
        claiming = loop.create_task(CLAIMS[call](board))
        loop.run_forever()
        assert not claiming.done()
        going_on.set()
        eventually(is_idle)
    assert len(sync.claims.held()) == 1
    loop.close()
    if forgotten:
        del claiming
        # Another loop has the board forget the first one.
        assert not asyncio.run(board.wait_for(job, 0))
        gc.collect()
    eventually(lambda: job.state == "UNCLAIMED")
    assert job.attempts == 0
    assert sync.claims.held() == []


async def work(board: AsyncJobBoard, job: jobboard.Job, asked: threading.Event) -> None:
    async with board.working("anna", timeout=None):
        await asyncio.Event().wait()


async def read_twice(board: AsyncJobBoard, job: jobboard.Job, asked: threading.Event) -> None:
    first = asyncio.create_task(board.wait_for(job))
    # The second read waits for the end of the first.
    await asyncio.sleep(0.1)
    await asyncio.gather(first, board.wait_for(job))


async def cancel_a_claim(board: AsyncJobBoard, job: jobboard.Job, asked: threading.Event) -> None:
    first, second = (asyncio.create_task(board.claim_next("anna", timeout=None)) for _ in range(2))
    # A call whose thread has not begun ends at once.
    while not asked.is_set():
        await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.gather(first, second)


@FAST
@pytest.mark.parametrize("last_first", [True, False])
@pytest.mark.parametrize(("call", "request_"), [(work, ENDS), (read_twice, JOB_READS), (cancel_a_claim, TAKES)])
def test_call_that_is_destroyed_after_its_loop_raises_nothing(
    make_board: MakeBoard, call: Callable[..., Any], request_: Any, last_first: bool
) -> None:
    """The program closes the loop without the cancellation of its tasks."""
    sync = make_board(claim_ttl=3)
    job = sync.post("resize")
    going_on = threading.Event()
    tasks: list[asyncio.Task[Any]] = []

    def make(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.Task(coroutine, loop=loop, **options))
        return tasks[-1]

    asked = threading.Event()

    def late(original: Callable[..., Any], *args: Any) -> Any:
        asked.set()
        assert going_on.wait(WAIT)
        return original(*args)

    loop = asyncio.new_event_loop()
    loop.set_task_factory(make)
    with requests(sync).around(request_, late):
        made = loop.create_task(call(AsyncJobBoard(sync), job, asked))
        loop.call_later(0.3, loop.stop)
        loop.run_forever()
        loop.close()
        assert not made.done()
        for task in reversed(tasks) if last_first else tasks:
            coroutine: Any = task.get_coro()
            coroutine.close()
        going_on.set()
        eventually(lambda: job.state in ("UNCLAIMED", "SCHEDULED") and not sync.claims.held())


ABANDONED = """
import asyncio, threading
import jobboard.aio
from jobboard.testing import eventually

async def work():
    async with board.working("anna", timeout=0):
        at_work.set_result(None)
        await asyncio.Event().wait()

async def main():
    global task
    await board.connect()
    await board.post("resize")
    task = asyncio.ensure_future(work())
    await at_work

board = jobboard.aio.fetch("pictures", "memory://")
loop = asyncio.new_event_loop()
at_work = loop.create_future()
loop.run_until_complete(main())
# As after a long while without a call.
board._threads.close()
eventually(lambda: not any(thread.name == "pictures" for thread in threading.enumerate()))
"""


@pytest.mark.rule("The end of an interpreter waits for no thread that cannot begin.")
@FAST
def test_process_ends_though_a_stopped_loop_is_at_work() -> None:
    """The end of the interpreter destroys the coroutine, and starts no threads."""
    done = subprocess.run([sys.executable, "-c", ABANDONED], timeout=WAIT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Task was destroyed but it is pending" in done.stderr
