"""Waiting: for a job that can be claimed, and for the end of one."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.testing import holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, MakeBoard, Waiter, claim_one, take, trash_one, uuids

SOON = 0.3
"""When time itself brings a job, in seconds: long enough for a waiter to be asleep by then."""


claimed = functools.partial(claim_one, who="bert")


def nothing(*_: object) -> None:
    """Prepare nothing, or leave it to time."""


ARRIVALS: dict[str, tuple[Callable[[JobBoard], Any], Callable[[JobBoard, Any], Any]]] = {
    "post": (nothing, lambda by, _: by.post("resize")),
    "post_many": (nothing, lambda by, _: by.post_many([{"name": "resize"}])),
    "abandon": (claimed, lambda by, job: by.abandon(by.get(job.uuid), "bert")),
    "release": (claimed, lambda by, job: by.release(by.get(job.uuid))),
    "restore": (lambda board: trash_one(board, "resize"), lambda by, job: by.restore(by.get(job.uuid))),
    "lapse": (lambda board: claimed(board, expiry=SOON), nothing),
    "due": (lambda board: board.post("resize", delay=SOON), nothing),
    # The waiter knows a later due time, and a later end of the lease.
    "earlier_due": (lambda board: board.post("later", delay=LONG), lambda by, _: by.post("resize", delay=SOON)),
    "shortened": (lambda board: claimed(board, expiry=LONG), lambda by, job: by.extend(by.get(job.uuid), "bert", SOON)),
}
"""What prepares a board on which nothing can be claimed, and what brings a job."""

# Nobody brings what time brings.
BY_TIME = ("lapse", "due")

BRINGERS = [(how, by) for how in ARRIVALS for by in ("itself", "another") if by == "itself" or how not in BY_TIME]


class TestWakeUp:
    any_driver = True

    @holds("A waiter wakes for an event that is earlier than the next event it knew of.")
    @pytest.mark.parametrize(("how", "by"), BRINGERS)
    def test_claim_next(self, board: JobBoard, other: JobBoard, how: str, by: str) -> None:
        """The waiter wakes long before its timeout."""
        prepare, bring = ARRIVALS[how]
        job = prepare(other)
        waiter = Waiter(board, lambda: board.claim_next("anna", timeout=6 * LIMIT))
        bring(board if by == "itself" else other, job)
        job = waiter.wait()
        assert job is not None
        assert job.name == "resize"
        assert board.find_owner(job) == "anna"

    @pytest.mark.parametrize("how", ["post", "lapse"])
    def test_wait(self, board: JobBoard, other: JobBoard, how: str) -> None:
        prepare, bring = ARRIVALS[how]
        job = prepare(other)
        waiter = Waiter(board, lambda: board.wait(6 * LIMIT))
        bring(other, job)
        jobs = waiter.wait()
        assert jobs.board is board
        assert jobs.only_unclaimed
        assert [job.name for job in jobs] == ["resize"]


class TestWaiting:
    def test_claimable_job_is_returned_at_once(self, board: JobBoard) -> None:
        job = board.post("resize")
        assert uuids(board.wait(None)) == [job.uuid]
        assert board.claim_next("anna", timeout=None) == job
        board.post("resize")
        assert len(board.claim_many("anna", 5, timeout=None)) == 1

    def test_wait_without_a_job_ends_in_time(self, board: JobBoard) -> None:
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

    @holds("A waiter wakes for an event that is earlier than the next event it knew of.")
    def test_each_of_many_waiters_gets_one(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(2)]
        waiters = [
            Waiter(board, lambda board=board: board.claim_next("anna", timeout=6 * LIMIT))  # type: ignore[misc]
            for board in boards
            for _ in range(2)
        ]
        posted = {boards[0].post("resize").uuid for _ in waiters}
        assert {waiter.wait().uuid for waiter in waiters} == posted

    @holds("A wait that is called off keeps no job.")
    @pytest.mark.parametrize("raises", [False, True])
    def test_wait_that_is_called_off_keeps_no_wakeup(self, board: JobBoard, other: JobBoard, raises: bool) -> None:
        """Another waiter gets the wake-up of a wait that was called off, also if ``unless`` fails."""
        over = threading.Event()

        def unless() -> bool:
            if raises and over.is_set():
                raise ValueError("broken")
            return over.is_set()

        # A board that waits for the first time may only begin to listen, and looks once more then.
        assert board.claim_next("anna", timeout=0.1) is None
        for _ in range(10):
            over.clear()
            waiter = Waiter(board, lambda: board.claim_next("anna", timeout=6 * LIMIT, unless=unless))
            over.set()
            job, told = other.post("resize"), None
            try:
                got = waiter.wait()
            except ValueError as error:
                got, told = None, str(error)
            if got is None:
                break
            # The waiter was not asleep yet, or it polls. It looked after the post, before it asked ``unless``.
            got.claim.consume()
            if not board.characteristics.blocking_wait:
                return
        assert got is None
        assert told == ("broken" if raises else None)
        taken = take(other, "bert", timeout=LIMIT)
        assert (taken, taken.attempts) == (job, 1)

    @holds("A posting of a newer version wakes nobody for good.")
    def test_a_posting_of_a_newer_version_wakes_nobody_for_good(self, board: JobBoard) -> None:
        Harness(board).plant(version=2**15)
        with pytest.raises(NotFound):
            board.wait(0.1)
        assert board.claim_next("anna", timeout=0.1) is None

    @pytest.mark.parametrize("call", ["wait", "claim_next"])
    def test_close_while_waiting(self, board: JobBoard, call: str) -> None:
        waiter = Waiter(board, lambda: board.wait(None) if call == "wait" else board.claim_next("anna", timeout=None))
        board.close()
        with pytest.raises(ConnectionFailure):
            waiter.wait()
