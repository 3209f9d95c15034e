"""What is odd on a board: nothing of what the board itself has left there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.job import Entity, Job, Posting
from jobboard.primitives import Oddity
from jobboard.testing import eventually
from jobboard.testing.conformance.arriving import LONG_AGO, arrival, arrived
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, Waiter, let_lapse, take

QUEER = "a/b '%2F\"* \u00fc.~{x}"
"""A name of what means something in paths, patterns and scripts."""


def claimed(board: JobBoard, **posting: Any) -> Job:
    job = board.post(**{"name": QUEER, **posting})
    board.claim(job, "anna")
    return job


def states(board: JobBoard) -> None:
    board.post("resize", details={"a": "x" * 5000}, key="k", group="g")
    board.post(QUEER, key=QUEER, group=QUEER, priority=7, delay=LONG)
    claimed(board, key="claimed")
    board.claim(board.post("resize"), QUEER, expiry=LONG)
    let_lapse(board, board.post("resize"))
    let_lapse(board, board.post("resize", key="final", max_attempts=1))
    board.abandon(claimed(board), "anna", error="no luck")
    board.abandon(claimed(board), "anna", delay=LONG)
    board.release(claimed(board))
    board.trash(claimed(board), "anna", reason="no use" * 1000)
    for restored in (True, False):
        board.cancel(job := board.post("resize", key=f"{restored}"))
        (board.restore if restored else board.purge)(job)


def windows(board: JobBoard) -> None:
    board.post("resize", key="lives", key_for=LONG)
    board.post("resize", key="lives", on_key="replace", priority=9)
    board.consume(claimed(board, key=QUEER, key_for=LONG), "anna")
    board.trash(claimed(board, key="trashed", key_for=LONG), "anna")
    board.cancel(job := board.post("resize", key="purged", key_for=LONG))
    board.purge(job)
    let_lapse(board, board.post("final", key="final", key_for=LONG, max_attempts=1))
    board.consume(claimed(board, key="over", key_for=SHORT), "anna")
    over = board.engine.now() + int(SHORT * 1e6)
    eventually(lambda: board.engine.now() > over, LIMIT)


def outcomes(board: JobBoard) -> None:
    board.consume(claimed(board), "anna")
    job = claimed(board, details={"\u00e4": [1, None]}, context={"trace": "1"}, key="k", group="g", key_for=LONG)
    board.consume(job, "anna", result={"a": "x" * 5000})
    board.abandon(claimed(board), "anna", error="no luck")
    board.post_many([Posting("resize")] * 3)
    board.consume_many(board.claim_many(QUEER, 9), QUEER)


def limits(board: JobBoard) -> None:
    board.set_limit(QUEER, concurrency=2, per="group")
    board.set_limit(QUEER, rate=(100, LONG))
    board.set_limit("resize", concurrency=1)
    board.post_many([Posting(name, group=group) for name in (QUEER, "resize") for group in ("g", QUEER, None)])
    given_back, consumed, *_ = board.claim_many("anna", 9)
    board.abandon(given_back, "anna")
    board.consume(consumed, "anna")
    take(board, expiry=SHORT)
    board.set_limit(QUEER, concurrency=1, per="group")
    board.remove_limit("resize")


def pauses(board: JobBoard) -> None:
    board.post(QUEER)
    board.pause([QUEER, "resize"])
    board.pause()
    board.resume(["resize"])


def schedules(board: JobBoard) -> None:
    board.schedule(QUEER, name=QUEER, every=LONG, key=QUEER)
    board.schedule("nightly", "30 3 * * *", "report", details={"a": "x" * 5000})
    board.schedule("gone", name="report", every=LONG)
    board.unschedule("gone")


def entities(board: JobBoard) -> None:
    board.register_entity(Entity("conductor", QUEER, {"pid": 7}))
    board.register_entity(Entity("conductor", "gone"))
    board.deregister_entity(Entity("conductor", "gone"))


def copies(board: JobBoard) -> None:
    """Of a move that is under way, or was killed."""
    arrived(board, arrival(board, 1, key=QUEER))
    arrived(board, arrival(board, 2, trashed_on=LONG_AGO))


SITUATIONS: dict[str, Callable[[JobBoard], None]] = {
    call.__name__: call for call in (states, windows, outcomes, limits, pauses, schedules, entities, copies)
}


class TestExamining:
    any_driver = True

    @pytest.fixture
    def usual(self, board: JobBoard) -> list[Oddity]:
        """How a server of the tests is set up is no concern of these."""
        return list(board.examine())

    @pytest.mark.parametrize("situation", SITUATIONS)
    def test_a_healthy_board(self, make_board: MakeBoard, usual: list[Oddity], situation: str) -> None:
        board = make_board(keep_done=LONG)
        SITUATIONS[situation](board)
        assert list(board.examine()) == usual

    def test_while_one_waits(self, board: JobBoard, other: JobBoard, usual: list[Oddity]) -> None:
        waiter = Waiter(other, lambda: take(other, names=["resize"], timeout=LIMIT))
        assert list(board.examine()) == usual
        job = board.post("resize")
        assert waiter.wait() == job
        assert list(board.examine()) == usual
