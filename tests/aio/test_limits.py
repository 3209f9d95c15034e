"""Limits and coroutines that are cancelled: whoever goes without a job holds no slot."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.aio import AsyncJobBoard
from jobboard.exceptions import NotFound
from jobboard.job import Job, Posting
from tests.aio.conftest import Run, waiting

MakeBoard = Callable[..., Any]

pytestmark = pytest.mark.backends("memory", "sqlite", "postgresql", "redis")


def test_who_is_cancelled_while_it_waits_for_a_slot_takes_none(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        async with AsyncJobBoard(make_board()) as board:
            await board.set_limit("mail", concurrency=1)
            await board.post_many([Posting("mail")] * 3)
            held = await board.claim_next("anna")
            first, second = await waiting(
                board, board.claim_next("bert", timeout=None), board.claim_next("carl", timeout=None)
            )
            first.cancel()
            assert held is not None
            await board.consume(held, "anna")
            got = await asyncio.wait_for(second, 10)
            assert got is not None
            assert await board.claim_next("dora") is None
            await board.consume(got, "carl")
            assert await board.claim_next("dora") is not None
            assert first.cancelled()

    run(main())


def test_no_slot_stays_taken(make_board: MakeBoard, run: Run) -> None:
    """Of claims that are cancelled at any moment, those under way among them."""
    dice = random.Random(3)
    limit, many = 3, 60

    async def work(board: AsyncJobBoard, who: str, held: set[str]) -> None:
        job: Job | None = await board.claim_next(who, timeout=None)
        assert job is not None
        held.add(job.uuid)
        assert len(held) <= limit
        await asyncio.sleep(dice.random() * 0.002)
        held.discard(job.uuid)
        await board.consume(job, who)

    async def main() -> None:
        async with AsyncJobBoard(make_board()) as board:
            await board.set_limit("mail", concurrency=limit)
            await board.post_many([Posting("mail")] * many)
            held: set[str] = set()
            for number in range(40):
                tasks = [asyncio.create_task(work(board, f"{number} {n}", held)) for n in range(5)]
                await asyncio.sleep(dice.random() * 0.004)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                # Work that was cancelled has left its claim, or the end of that may be under way still.
                for job in [each async for each in board.iterjobs(ensure_fresh=True) if each.seen_state == "CLAIMED"]:
                    with contextlib.suppress(NotFound):
                        await board.release(job)
                held.clear()
            await board.post_many([Posting("mail")] * limit)
            # The last ones to be cancelled may be ending their claims still.
            for _ in range(limit):
                assert await board.claim_next("last", timeout=10) is not None
            assert await board.claim_next("last") is None

    run(main())
