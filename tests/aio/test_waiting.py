"""Coroutines that wait for jobs of different names: one thread looks and sleeps for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.aio import AsyncJobBoard
from jobboard.testing.conformance.support import LIMIT, LONG, Background, replaced
from tests.aio.conftest import Run, waiting

MakeBoard = Callable[..., Any]
FAST = pytest.mark.backends("memory")


class Unlike(Exception):
    """Its arguments are not those that it is made of, so that it can't be copied."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


class Abrupt(BaseException): ...


def sleepers(others: set[threading.Thread]) -> int:
    """How many threads wait but for these: tests before may have left some for a while."""
    return sum(thread.name.endswith("-waiter") for thread in set(threading.enumerate()) - others)


@pytest.mark.parametrize("workers", [("anna", "anna", "anna"), ("anna", "bert", "carl")], ids=["one", "several"])
def test_each_gets_what_it_waits_for(make_board: MakeBoard, run: Run, workers: tuple[str, str, str]) -> None:
    sync = make_board()

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


def test_who_comes_while_others_sleep(make_board: MakeBoard, run: Run) -> None:
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


@pytest.mark.parametrize("end", ["cancelled", "out of time"])
@pytest.mark.parametrize("other", ["anna", "bert"])
def test_who_leaves_holds_nothing(make_board: MakeBoard, run: Run, other: str, end: str) -> None:
    """Be it that a store has claimed a job for it, or for another of the same worker, while the thread slept."""
    sync = make_board()

    async def main() -> None:
        board, others = AsyncJobBoard(sync), set(threading.enumerate())
        for _ in range(5):
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


@FAST
def test_few_are_claimed_to_be_given_back(make_board: MakeBoard, run: Run) -> None:
    """Where a name has a backlog and one worker, a look for many names brings no more of it than that takes."""
    sync = make_board()
    given_back: list[int] = []

    async def main() -> None:
        board = AsyncJobBoard(sync)
        others = [board.claim_next("anna", names=[f"turn {number}"], timeout=None) for number in range(50)]
        tasks = await waiting(board, *others)
        jobs = sync.post_many([{"name": "resize"}] * 50)
        for job in jobs:
            assert await board.claim_next("anna", names=["resize"], timeout=None) == job
            assert sync.stats().claimed == 1
            await board.consume(job, "anna")
        turned = sync.post_many([{"name": f"turn {number}"} for number in range(50)])
        assert await asyncio.gather(*tasks) == turned

    original = sync.give_back
    sync.give_back = lambda given: (given_back.append(len(given)), original(given))
    run(main())
    assert sum(given_back) <= 5


@pytest.mark.backends("memory", "redis")
def test_who_leaves_need_not_wait_for_those_who_came_meanwhile(make_board: MakeBoard, run: Run) -> None:
    """The thread goes to sleep for others, of whom none claims as the one did that it slept for."""
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        [crop] = await waiting(board, board.claim_next("anna", names=["crop"], timeout=None))
        crop.cancel()
        tasks = await waiting(board, *(board.claim_next(who, names=[who], timeout=None) for who in ("bert", "carl")))
        await asyncio.wait([crop], timeout=LIMIT)
        ended = crop.cancelled()
        jobs = sync.post_many([{"name": "bert"}, {"name": "carl"}])
        assert await asyncio.gather(*tasks) == jobs
        assert ended

    run(main())


@pytest.mark.parametrize("workers", [("anna", "anna"), ("anna", "bert")], ids=["one", "several"])
def test_a_loop_that_ends_waits_for_nobody(make_board: MakeBoard, run: Run, workers: tuple[str, str]) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        await waiting(
            board, *(board.claim_next(who, names=[name], timeout=None) for who, name in zip(workers, "xy", strict=True))
        )

    Background(lambda: run(main())).wait(LIMIT / 2)


@FAST
@pytest.mark.parametrize("error", [ValueError("broken"), Unlike(5, "broken"), Abrupt("broken")], ids=repr)
def test_what_fails_fails_for_all_who_wait(make_board: MakeBoard, run: Run, error: BaseException) -> None:
    sync = make_board()

    def fail(*args: Any) -> Any:
        raise error

    async def main() -> None:
        board = AsyncJobBoard(sync)
        tasks = await waiting(board, *(board.claim_next("anna", timeout=None) for _ in range(3)))
        with replaced(sync, "take", fail):
            job = await board.post("resize")
            done, _ = await asyncio.wait(tasks, timeout=LIMIT)
        assert {(type(task.exception()), "broken" in str(task.exception())) for task in done} == {(type(error), True)}
        assert len(done) == 3
        assert await board.claim_next("anna", timeout=LONG) == job

    run(main())


@pytest.mark.backends("memory", "sqlite", "redis")
@pytest.mark.parametrize("meanwhile", ["paused", "a more urgent job"])
@pytest.mark.parametrize("during", ["take", "wait"])
def test_who_comes_after_a_look_began_gets_nothing_of_it(
    make_board: MakeBoard, run: Run, during: str, meanwhile: str
) -> None:
    """Nor of what a store has claimed for who slept: it may not be claimed any more, or not yet."""
    sync = make_board()
    over, going_on = threading.Event(), threading.Event()

    def late(original: Callable[..., Any], *args: Any) -> Any:
        answer = original(*args)
        over.set()
        going_on.wait(LIMIT)
        return answer

    async def main() -> None:
        board = AsyncJobBoard(sync)
        # Who waits for the first time may only begin to listen.
        assert sync.claim_next("anna", timeout=0.1) is None
        if during == "take":
            there = sync.post("resize")
        with replaced(sync, during, late):
            first = asyncio.create_task(board.claim_next("anna", timeout=LONG))
            if during == "wait":
                await waiting(board)
                there = sync.post("resize")
            assert await asyncio.to_thread(over.wait, LIMIT)
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


@pytest.mark.backends("redis")
def test_what_was_claimed_for_who_slept_and_failed_is_for_nobody_later(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    def fail(*args: Any) -> Any:
        raise ValueError("broken")

    async def main() -> None:
        board = AsyncJobBoard(sync)
        assert await board.claim_next("anna", timeout=0.1) is None
        [first] = await waiting(board, board.claim_next("anna", timeout=LONG))
        with replaced(sync, "take", fail):
            job = sync.post("resize")
            with pytest.raises(ValueError, match="broken"):
                await first
            sync.pause()
        await waiting(board, board.claim_next("anna", timeout=LONG))
        assert await board.find_owner(job) is None

    run(main())
