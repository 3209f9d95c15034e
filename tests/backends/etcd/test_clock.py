"""The time of a board on etcd, which has no clock: the clocks of its users, and the latest time that they have told."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.job import Posting
from jobboard.testing.puppet import Puppet

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def test_a_clock_that_is_ahead_ends_earlier_leases_and_delays(make_board: Callable[..., Any], board_conf: Any) -> None:
    """Leases with an expiry, and delays, that were made before a machine with a wrong clock used the board. Later ones
    go by the same time for all processes, and kept claims by no time."""
    board = make_board()
    assert not board.characteristics.server_clock
    kept, fixed = board.post("kept"), board.post("fixed")
    board.claim(kept, "anna")
    board.claim(fixed, "anna", expiry=600)
    astray = Puppet("board", board_conf, skew=3600)
    try:
        astray("post", "later", delay=600)
        assert astray("claim_next", "bert", expiry=600)[0] == fixed.uuid
        assert board.find_owner(fixed) == "bert"
        assert fixed.expires_in() == pytest.approx(600, abs=30)
        assert board.find_owner(kept) == "anna"
        assert board.stats().scheduled == 1
    finally:
        astray.end()


@pytest.mark.parametrize("last", ["post", "lease"])
def test_a_clock_that_is_behind_follows_the_last_act_of_others(
    make_board: Callable[..., Any], board_conf: Any, last: str
) -> None:
    board = make_board()
    board.post_many([Posting("resize")] * 2)
    right, behind = Puppet("board", board_conf, skew=3600), Puppet("board", board_conf)
    try:
        assert right("claim_next", "bert", expiry=1200) if last == "lease" else right("post", "later")
        while behind("claim_next", "anna", expiry=600):
            pass
        assert right("claim_next", "bert") is None
    finally:
        right.end()
        behind.end()
