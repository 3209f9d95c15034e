"""What handles know of the server's clock differs; what one of them has seen to have ended has ended for the others."""

import pytest

from jobboard.board import JobBoard
from jobboard.testing.conformance.support import let_lapse, take

pytestmark = pytest.mark.backends("zookeeper")


def lag(board: JobBoard, seconds: float) -> None:
    """As after requests that took so long."""
    store = board.engine._opened
    store.earliest()
    store.clock._low -= seconds * 1e6


def test_a_job_that_has_lapsed_for_another_can_be_taken(board: JobBoard, other: JobBoard) -> None:
    job = board.post("resize")
    lag(other, 5)
    let_lapse(board, job)
    assert take(other).uuid == job.uuid


def test_a_job_that_has_lapsed_for_another_can_be_claimed(board: JobBoard, other: JobBoard) -> None:
    job = board.post("resize")
    lag(other, 5)
    let_lapse(board, job)
    other.claim(other.get(job.uuid), "bert")


def test_what_comes_first_is_not_what_is_known(board: JobBoard, other: JobBoard) -> None:
    """Claims without a look don't pass over a job that has come back."""
    jobs = board.post_many([{"name": "resize"}] * 4)
    assert take(other).uuid == jobs[0].uuid
    lag(other, 5)
    let_lapse(board, jobs[1])
    assert take(other).uuid == jobs[1].uuid
