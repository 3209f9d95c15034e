"""Folders that a look remembers from the look before: they make a claim faster and hide no job."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.job import Posting
from jobboard.testing.conformance.support import take
from jobboard.testing.conformance.wire import QUIET
from tests.backends.zookeeper.conftest import connection_of

pytestmark = pytest.mark.backends("zookeeper")

FOLDER = 200
"""The ready jobs that share a folder."""


def warm(board: Any) -> None:
    """Have the board remember where the next jobs are."""
    for _ in range(3):
        board.consume(take(board), "anna")


def sent(board: Any, act: Callable[[], Any]) -> int:
    before = connection_of(board).sent
    act()
    return connection_of(board).sent - before


@pytest.mark.rule("Order holds: a look reads anew what it remembers, and a claim compares the job.")
def test_a_claim_and_its_end_cost_four_requests(make_board: Any) -> None:
    """Two looks, one of which reads all that the claim needs, and two changes."""
    board = make_board(claim_ttl=QUIET)
    board.post_many([Posting("resize")] * 250)
    warm(board)
    # A change of folders, and the question for the time every ten seconds, cost more now and then.
    spent = [sent(board, lambda: board.consume(take(board), "anna")) for _ in range(50)]
    assert sorted(spent)[25] <= 4
    batches = [sent(board, lambda: board.consume_many(board.claim_many("anna", 50), "anna")) for _ in range(3)]
    assert min(batches) <= 5


@pytest.mark.rule("A handle forgets records without hiding a job.")
def test_jobs_behind_those_that_others_took_are_next(make_board: Any) -> None:
    board, other = make_board(claim_ttl=QUIET), make_board(claim_ttl=QUIET)
    board.post_many([Posting("resize")] * (FOLDER + 50))
    warm(board)
    jobs = list(board.iterjobs())
    other.consume_many(other.claim_many("bert", FOLDER + 10), "bert")
    taken = [take(board if number % 2 else other) for number in range(20)]
    assert taken == jobs[FOLDER + 10 : FOLDER + 30]
