"""Follow-ups of coroutines: those that a handler returns, and those of a function under ``working()``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.job import Posting

pytestmark = pytest.mark.backends("memory", "sqlite")

LIMIT = 30


def test_coroutines_return_follow_ups(make_board: Callable[..., Any]) -> None:
    board = AsyncJobBoard(make_board(keep_done=60))
    failed: list[str] = []

    async def split(job: jobboard.Job) -> jobboard.Then:
        return jobboard.Then(2, [Posting("part", details={"n": n}) for n in range(2)])

    async def part(job: jobboard.Job) -> jobboard.Then:
        return jobboard.Then(None, [Posting("")])

    @board.working("anna", names=["by hand"], timeout=0)
    async def by_hand(job: jobboard.Job) -> jobboard.Then:
        return jobboard.Then(3, [Posting("end")])

    async def run() -> None:
        job = await board.post("split")
        conductor = AsyncConductor(
            "one", board, {"split": split, "part": part}, on_error=lambda job, error: failed.append(str(error))
        )
        await asyncio.wait_for(conductor.run(max_dispatches=3), LIMIT)
        assert await board.result(job, LIMIT) == 2
        assert (conductor.tally.consumed, conductor.tally.abandoned) == (1, 2)
        assert all("posting 0, counted from 0" in text for text in failed)
        job = await board.post("by hand")
        done = await by_hand()
        assert done is not None
        assert (done.result, await board.result(job, LIMIT)) == (3, 3)
        end = await board.claim_next("anna", names=["end"])
        assert end is not None
        [last] = await board.consume(end, "anna", then=[Posting("last")])
        assert sorted([each.name async for each in board.iterjobs()]) == ["last", "part", "part"]
        assert last.created

    asyncio.run(run())
