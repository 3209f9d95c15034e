"""What a process remembers of a board does not grow with all that has ever been on it."""

import gc
from typing import Any

import pytest

from jobboard.backends.zookeeper.paths import Node
from jobboard.backends.zookeeper.records import Found
from jobboard.backends.zookeeper.store import CACHED, PREFETCH
from jobboard.backends.zookeeper.watches import NOTED
from jobboard.job import Posting
from jobboard.testing.conformance.support import LONG, take

pytestmark = pytest.mark.backends("zookeeper")

ROUNDS, AT_ONCE = 8, 400


def living(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def drain(board: Any, many: int) -> None:
    for _ in range(0, many, 100):
        board.consume_many(board.claim_many("anna", 100), "anna")


def test_of_one_who_only_posts(make_board: Any) -> None:
    board, other = make_board(), make_board()
    before = living(Node)
    for _ in range(ROUNDS):
        board.post_many([Posting("resize")] * AT_ONCE)
        drain(other, AT_ONCE)
    assert other.job_count == 0
    # Both keep their own listing.
    assert living(Node) - before <= NOTED + 2 * AT_ONCE < ROUNDS * AT_ONCE
    jobs = board.post_many([Posting("resize")] * 3)
    assert list(board.iterjobs()) == jobs
    assert take(board) == jobs[0]


def test_of_jobs_that_others_take(make_board: Any) -> None:
    """A conductor reads ahead; what it has read, others claim and consume."""
    board, other = make_board(), make_board()
    before = living(Found)
    for _ in range(2 * ROUNDS):
        other.post_many([Posting("resize")] * 100)
        board.consume(take(board), "anna")
        drain(other, 100)
    assert living(Found) - before <= CACHED + PREFETCH


def test_of_one_who_only_extends(make_board: Any) -> None:
    board = make_board()
    job = board.post("resize")
    board.claim(job, "anna", LONG)
    for _ in range(20):
        board.extend(job, "anna", LONG)
    assert len(board.engine._opened.view._timed_folder.names) == 1
