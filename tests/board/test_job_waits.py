"""Waits for the end of a job: ``Job.wait()``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from jobboard.aio import AsyncJobBoard
from jobboard.board import JobBoard
from jobboard.exceptions import JobTrashed, NotFound
from jobboard.job import Job
from jobboard.states import COMPLETE, TRASHED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import (
    LIMIT,
    SHORT,
    Background,
    take,
    trash_one,
)

# No backend can differ in these.
pytestmark = pytest.mark.backends("memory", "sqlite")


class TestJobWait:
    def test_wait_ends_with_the_consume(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        waiter = Background(lambda: job.wait(LIMIT, max_delay=0.05))
        taken = take(other)
        assert waiter.running
        other.consume(taken, "anna")
        assert waiter.wait() is True
        assert job.seen_state == COMPLETE
        assert job.wait() is True

    def test_result_is_seen_within_a_second(self, board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []

        def looks(self: Job, timeout: float | None, *delays: float) -> Iterator[float | bool]:
            for pause in original(self, timeout, *delays):
                pauses.append(pause)
                yield pause if pause is False or len(pauses) == 20 else 0.0

        original = Job.looks
        monkeypatch.setattr(Job, "looks", looks)
        job = board.post("resize")
        for result in (job.result, lambda timeout: asyncio.run(AsyncJobBoard(board).result(job, timeout))):
            pauses.clear()
            with pytest.raises(TimeoutError):
                result(1.5)
            assert max(pauses) == 1

    @pytest.mark.parametrize("fate", ["trashed", "purged", "cancelled"])
    def test_a_trashed_job_will_not_complete(self, board: JobBoard, fate: str) -> None:
        if fate == "cancelled":
            job = board.post("resize")
            board.cancel(job, reason="no use")
        else:
            job = trash_one(board)
        if fate == "purged":
            board.purge(job)
        with pytest.raises(JobTrashed, match="no use"):
            job.wait(LIMIT)

    def test_delays_between_looks_grow(self, board: JobBoard) -> None:
        job: Job = board.post("resize")
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 5:
                board.consume(take(board), "anna")

        assert job.wait(None, 0.5, 2, 3, sleep) is True
        assert slept == [0.5, 1, 2, 3, 3]

    def test_the_last_look_comes_in_time(self, board: JobBoard) -> None:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            time.sleep(seconds)

        job = board.post("resize")
        # An answer that takes that long leaves no time to sleep.
        eventually(lambda: job.wait(0.05, delay=60, sleep_func=sleep) or slept, LIMIT)
        assert sum(slept) < 1
        start = time.monotonic()
        assert (job.wait(0), job.wait(0.1, delay=60)) == (False, False)
        assert time.monotonic() - start >= 0.1


@pytest.mark.rule("A wait for a claimable job looks past any number of expired jobs that nobody has swept.")
def test_wait_looks_past_expired_jobs(board: JobBoard, other: JobBoard) -> None:
    gone = board.post_many([{"name": "resize", "expires": SHORT}] * 250)
    job = board.post("resize")
    eventually(lambda: gone[-1].state == TRASHED)
    assert next(other.wait(0)) == job
    board.claim(job, "anna")
    with pytest.raises(NotFound):
        other.wait(0)
