"""Coroutines that are cancelled at any moment while they post, wait, claim and consume: no job is lost or held."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.aio import AsyncJobBoard
from jobboard.job import Job, boottime
from jobboard.priorities import rank_of
from jobboard.states import Verb
from jobboard.testing.history import HistoryEntry, judge
from jobboard.testing.recording import left_on

MakeBoard = Callable[..., Any]

JOBS, WORKERS, SECONDS = 200, 60, 30.0


class History:
    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []

    async def act(self, verb: Verb, job: Job, act: Any) -> None:
        assert job.claim is not None
        entry = HistoryEntry(boottime(), math.inf, "loop", verb, job.uuid, "unknown", job.claim.token)
        try:
            await act
        except asyncio.CancelledError:
            # It may have been carried out, or may still be.
            self.entries.append(entry)
            raise
        self.entries.append(entry._replace(ended=boottime(), outcome="ok"))

    async def claim(self, board: AsyncJobBoard, who: str, timeout: float | None) -> list[Job]:
        asked = HistoryEntry(boottime(), math.inf, "loop", Verb.CLAIM, "", "unknown", who=who, chosen=True)
        try:
            jobs = await board.claim_many(who, 2, timeout=timeout)
        except asyncio.CancelledError:
            # It may have had jobs for a moment, which were not to be had by others then.
            self.entries.append(asked._replace(ended=boottime()))
            raise
        got = asked._replace(ended=boottime(), outcome="ok")
        for job in jobs:
            assert job.claim is not None
            self.entries.append(got._replace(uuid=job.uuid, token=job.claim.token, until=job.claim.deadline))
        return jobs

    def posted(self, began: float, jobs: list[Job]) -> None:
        for job in jobs:
            rank = rank_of(job.priority)
            entry = HistoryEntry(began, boottime(), "loop", Verb.POST, job.uuid, "ok", rank=rank)
            self.entries.append(entry)


@pytest.mark.parametrize("seed", [1])
def test_what_was_recorded_is_clean(make_board: MakeBoard, seed: int) -> None:
    # No lease is to lapse here, on a busy machine either.
    sync = make_board(claim_ttl=30)
    chance = random.Random(seed)
    history = History()

    async def work(board: AsyncJobBoard, number: int) -> None:
        who = f"worker {number % 3}"
        while True:
            # Half of them wait in line, the others look for themselves.
            jobs = await history.claim(board, who, None if number % 2 else 0)
            for job in jobs:
                if chance.random() < 0.1:
                    await history.act(Verb.ABANDON, job, board.abandon(job, who))
                else:
                    await history.act(Verb.CONSUME, job, board.consume(job, who))

    async def main() -> None:
        board = AsyncJobBoard(sync)
        workers = {asyncio.create_task(work(board, n)) for n in range(WORKERS)}
        cancelled: list[asyncio.Task[None]] = []
        end = asyncio.get_running_loop().time() + SECONDS
        for _ in range(JOBS // 10):
            began = boottime()
            history.posted(began, await board.post_many([{"name": "a"}] * 10))
            # Some of them wait, some claim, some end a claim at this moment.
            for task in chance.sample(sorted(workers, key=id), 5):
                task.cancel()
                cancelled.append(task)
                workers.discard(task)
                workers.add(asyncio.create_task(work(board, chance.randrange(6))))
            await asyncio.sleep(chance.random() * 0.005)
        while await board.job_count() and asyncio.get_running_loop().time() < end:
            # What a cancelled one did not get to end is its own claim still, and comes to nobody.
            if not sync.stats().unclaimed:
                break
            await asyncio.sleep(0.01)
        for task in workers:
            task.cancel()
        # Those of before, too: on a busy machine one may still be giving back what it has claimed.
        outcomes = await asyncio.gather(*cancelled, *workers, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
        # Whoever was cancelled while it waited or claimed holds nothing by now. What was got is held until its end is
        # done, which may be under way, or was not come to.
        held = {job.uuid for job in sync.iterjobs(ensure_fresh=True) if job.seen_state == "CLAIMED"}
        told = {entry.uuid for entry in history.entries if entry.verb == Verb.CLAIM}
        assert held <= told
        # To see the end of that.
        await board.close()

    asyncio.run(main())
    sync.connect()
    claimed = {entry.uuid for entry in history.entries if entry.verb == Verb.CLAIM}
    assert len(claimed) > JOBS / 2
    assert judge(history.entries, left_on(sync), contended=True) == []
