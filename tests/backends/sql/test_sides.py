"""Side records, in a table of their own."""

from collections.abc import Callable

import pytest

from jobboard.backends.sql.store import TIDIED
from jobboard.board import JobBoard
from jobboard.testing import eventually


@pytest.mark.backends("sqlite")
def test_keys_that_are_remembered_no_longer_are_dropped(make_board: Callable[..., JobBoard]) -> None:
    """However many there are: a tidying that has met its limit says so, and the next heartbeat goes on."""
    board = make_board()
    board.post_many([{"name": "a", "key": str(number), "key_for": 3.0} for number in range(TIDIED + 2)])
    while jobs := board.claim_many("anna", 100):
        board.consume_many(jobs, "anna")
    last = str(TIDIED + 1)
    assert not board.post("a", key=last).created
    eventually(lambda: board.post("a", key=last).created)
    assert board.engine.raw.tidy()
    assert not board.engine.raw.tidy()
