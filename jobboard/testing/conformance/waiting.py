"""Waiting: for a job that can be claimed, and for the end of one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobTrashed, NotFound
from jobboard.job import Job
from jobboard.states import COMPLETE
from jobboard.testing import eventually
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    Background,
    MakeBoard,
    Waiter,
    plant,
    take,
    trash_one,
    uuids,
)

SOON = 0.3
"""When time itself brings a job, in seconds: long enough for a waiter to be asleep by then."""

ARRIVALS: dict[str, Callable[[JobBoard], Callable[[JobBoard], Any]]] = {}
"""Name -> what prepares a board on which nothing can be claimed -> what brings a job."""


def arrival(prepare: Callable[[JobBoard], Callable[[JobBoard], Any]]) -> None:
    ARRIVALS[prepare.__name__] = prepare


@arrival
def post(board: JobBoard) -> Callable[[JobBoard], Any]:
    return lambda by: by.post("resize")


@arrival
def post_many(board: JobBoard) -> Callable[[JobBoard], Any]:
    return lambda by: by.post_many([{"name": "resize"}])


@arrival
def abandon(board: JobBoard) -> Callable[[JobBoard], Any]:
    job = board.post("resize")
    board.claim(job, "bert")
    return lambda by: by.abandon(by.get(job.uuid), "bert")


@arrival
def release(board: JobBoard) -> Callable[[JobBoard], Any]:
    job = board.post("resize")
    board.claim(job, "bert")
    return lambda by: by.release(by.get(job.uuid))


@arrival
def restore(board: JobBoard) -> Callable[[JobBoard], Any]:
    job = trash_one(board, "resize")
    return lambda by: by.restore(by.get(job.uuid))


@arrival
def lapse(board: JobBoard) -> Callable[[JobBoard], Any]:
    job = board.post("resize")
    board.claim(job, "bert", expiry=SOON)
    return lambda by: None


@arrival
def due(board: JobBoard) -> Callable[[JobBoard], Any]:
    board.post("resize", delay=SOON)
    return lambda by: None


@arrival
def earlier_due(board: JobBoard) -> Callable[[JobBoard], Any]:
    """The waiter knows of a due time; an earlier one comes in meanwhile."""
    board.post("later", delay=LONG)
    return lambda by: by.post("resize", delay=SOON)


@arrival
def shortened(board: JobBoard) -> Callable[[JobBoard], Any]:
    """The waiter knows when a lease ends; its holder makes it end earlier."""
    job = board.post("resize")
    board.claim(job, "bert", expiry=LONG)
    return lambda by: by.extend(by.get(job.uuid), "bert", SOON)


# Nobody brings what time brings.
BY_TIME = ("lapse", "due")
BRINGERS = [(how, by) for how in ARRIVALS for by in ("itself", "another") if by == "itself" or how not in BY_TIME]


@pytest.mark.parametrize(("how", "by"), BRINGERS)
class TestWakeUp:
    any_driver = True

    def test_claim_next(self, board: JobBoard, other: JobBoard, how: str, by: str) -> None:
        """The waiter wakes long before its own time is up."""
        bring = ARRIVALS[how](other)
        waiter = Waiter(board, lambda: board.claim_next("anna", timeout=6 * LIMIT))
        bring(board if by == "itself" else other)
        job = waiter.wait()
        assert job is not None
        assert job.name == "resize"
        assert board.find_owner(job) == "anna"

    def test_wait(self, board: JobBoard, other: JobBoard, how: str, by: str) -> None:
        bring = ARRIVALS[how](other)
        waiter = Waiter(board, lambda: board.wait(6 * LIMIT))
        bring(board if by == "itself" else other)
        jobs = waiter.wait()
        assert jobs.board is board
        assert jobs.only_unclaimed
        assert [job.name for job in jobs] == ["resize"]


class TestWaiting:
    def test_what_is_there_is_not_waited_for(self, board: JobBoard) -> None:
        job = board.post("resize")
        assert uuids(board.wait(None)) == [job.uuid]
        assert board.claim_next("anna", timeout=None) == job
        board.post("resize")
        assert len(board.claim_many("anna", 5, timeout=None)) == 1

    def test_nothing_in_time(self, board: JobBoard) -> None:
        board.post("later", delay=LONG)
        board.claim(board.post("claimed"), "bert")
        trash_one(board)
        start = time.monotonic()
        assert board.claim_next("anna", timeout=0.1) is None
        assert board.claim_many("anna", 3, timeout=0.1) == []
        with pytest.raises(NotFound):
            board.wait(0.1)
        assert time.monotonic() - start >= 0.3
        with pytest.raises(NotFound):
            board.wait(0)

    def test_claim_many_waits_for_the_first_alone(self, board: JobBoard, other: JobBoard) -> None:
        waiter = Waiter(board, lambda: board.claim_many("anna", 5, timeout=6 * LIMIT))
        job = other.post("resize")
        assert waiter.wait() == [job]

    def test_a_waiter_for_names(self, board: JobBoard, other: JobBoard) -> None:
        picky = Waiter(board, lambda: board.claim_next("anna", names=["crop"], timeout=6 * LIMIT))
        any_job = Waiter(board, lambda: board.claim_next("bert", timeout=6 * LIMIT))
        resize = other.post("resize")
        assert any_job.wait() == resize
        assert picky.running
        crop = other.post("crop")
        assert picky.wait() == crop

    def test_each_of_many_waiters_gets_one(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(2)]
        waiters = [
            Waiter(board, lambda board=board: board.claim_next("anna", timeout=6 * LIMIT))  # type: ignore[misc]
            for board in boards
            for _ in range(2)
        ]
        posted = {boards[0].post("resize").uuid for _ in waiters}
        assert {waiter.wait().uuid for waiter in waiters} == posted

    @pytest.mark.parametrize("raises", [False, True])
    def test_a_wait_that_is_called_off_keeps_nothing(self, board: JobBoard, other: JobBoard, raises: bool) -> None:
        """What was meant for it alone is due to others, be it that ``unless`` fails."""
        over = threading.Event()

        def unless() -> bool:
            if raises and over.is_set():
                raise ValueError("broken")
            return over.is_set()

        # Who waits for the first time may only begin to listen, and looks once more then.
        assert board.claim_next("anna", timeout=0.1) is None
        waiter = Waiter(board, lambda: board.claim_next("anna", timeout=6 * LIMIT, unless=unless))
        over.set()
        job = other.post("resize")
        told = None
        try:
            got = waiter.wait()
        except ValueError as error:
            got, told = None, str(error)
        if got is not None:
            # Who looks from time to time may have asked before it was called off, and look after that.
            assert not board.characteristics.blocking_wait
            return
        assert told == ("broken" if raises else None)
        taken = take(other, "bert", timeout=LIMIT)
        assert (taken, taken.attempts) == (job, 1)

    def test_a_posting_of_a_newer_version_wakes_nobody_for_good(self, board: JobBoard) -> None:
        plant(board, b"?" if board.engine.wire == "msgpack" else "?", version=2**15)
        with pytest.raises(NotFound):
            board.wait(0.1)
        assert board.claim_next("anna", timeout=0.1) is None

    @pytest.mark.parametrize("call", ["wait", "claim_next"])
    def test_close_while_waiting(self, board: JobBoard, call: str) -> None:
        waiter = Waiter(board, lambda: board.wait(None) if call == "wait" else board.claim_next("anna", timeout=None))
        board.close()
        with pytest.raises(ConnectionFailure):
            waiter.wait()

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
    def test_bad_timeouts(self, board: JobBoard, timeout: Any) -> None:
        with pytest.raises(ValueError, match="timeout"):
            board.wait(timeout)


class TestJobWait:
    def test_until_it_is_consumed(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        waiter = Background(lambda: job.wait(LIMIT, max_delay=0.05))
        taken = take(other)
        assert waiter.running
        other.consume(taken, "anna")
        assert waiter.wait() is True
        assert job.seen_state == COMPLETE
        assert job.wait() is True

    def test_in_vain(self, board: JobBoard) -> None:
        job = board.post("resize")
        start = time.monotonic()
        assert job.wait(0) is False
        assert job.wait(0.1) is False
        assert time.monotonic() - start >= 0.1

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

    def test_how_it_looks(self, board: JobBoard) -> None:
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
        assert job.wait(0.05, delay=60) is False
