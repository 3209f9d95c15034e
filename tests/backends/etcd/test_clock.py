"""The time of a board on etcd, which has no clock: the clocks of its users, and the latest time that they have told."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.requests import put
from jobboard.job import Posting
from jobboard.testing.puppet import Puppet
from tests.kv.conftest import driver_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


@pytest.mark.rule("A clock that is ahead ends claims of others as it says.")
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


@pytest.mark.rule("The time of a board that a wrong clock has put ahead is put back by two keys.")
def test_the_time_of_a_board_is_put_back_by_its_two_keys(make_board: Callable[..., Any], board_conf: Any) -> None:
    """As the page about etcd says, once a machine whose clock was years ahead has used the board."""
    years = 3 * 365 * 86400 + 5000
    board = make_board()
    astray = Puppet("board", board_conf, skew=years)
    try:
        uuid = astray("post", "later", delay=600)
    finally:
        astray.end()
    assert board.post("now").created_on.timestamp() == pytest.approx(time.time() + years, abs=60)
    [odd] = [each for each in board.examine() if each.place == "clock"]
    assert odd.reason.startswith("the board's time is 1095d01h ahead of this machine's clock")
    link, clock = driver_of(make_board("other")).link, f"00{int(time.time())}000000".encode()
    keys = [driver_of(board).key(name) for name in ("clock", "next")]
    board.close()
    link.txn([], [put(key, clock) for key in keys])
    board.connect()
    try:
        assert [each for each in board.examine() if each.place == "clock"] == []
        assert board.post("now").created_on.timestamp() == pytest.approx(time.time(), abs=60)
        later = board.get(uuid)
        assert later.state == "SCHEDULED", "for years"
        board.cancel(later)
        board.restore(later)
        assert later.state == "UNCLAIMED"
    finally:
        board.close()
