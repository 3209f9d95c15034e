"""The lease that keeps a process's claims, the watch that wakes it, and clocks that differ."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.keys import end_of
from jobboard.backends.etcd.requests import span
from jobboard.exceptions import ClaimLost
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, PATIENCE, Waiter, take
from jobboard.testing.faults import FaultyProxy
from jobboard.testing.puppet import Puppet

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def revoke(board: Any) -> None:
    """What the server does with the lease of a process that has been silent for too long."""
    store = board.engine._opened
    store.link.call("/v3/lease/revoke", json.dumps({"ID": store.keeper.lease}))


def test_what_a_lost_lease_kept_is_free_at_once(make_board: Callable[..., Any]) -> None:
    holder, other = make_board(), make_board()
    jobs = holder.post_many([Posting("resize")] * 3)
    held = holder.claim_many("anna", 3)
    assert held == jobs
    assert other.stats().claimed == 3
    waiter = Waiter(other, lambda: other.claim_next("bert", timeout=PATIENCE))
    revoke(holder)
    assert waiter.wait() == jobs[0]
    assert other.stats().claimed == 1
    # Nobody has taken the second one, whose holder goes on under a new lease; the first is another's.
    holder.extend(held[1], "anna")
    assert other.find_owner(jobs[1]) == "anna"
    with pytest.raises(ClaimLost):
        holder.consume(held[0], "anna")
    assert list(other.claim_many("bert", 5)) == [jobs[2]]


def test_a_claim_is_not_made_under_a_lease_that_is_gone(make_board: Callable[..., Any]) -> None:
    board, other = make_board(), make_board()
    board.post_many([Posting("resize")] * 2)
    first = take(board)
    revoke(board)
    second = take(board)
    assert other.find_owner(second) == "anna"
    assert {first.claim.token, second.claim.token} == {job._record.token for job in (first, second)}


def test_a_closed_board_leaves_no_lease(make_board: Callable[..., Any]) -> None:
    board, other = make_board(), make_board()
    board.post("resize")
    job = take(board)
    lease = board.engine._opened.keeper.lease
    board.close()
    link = other.engine._opened.link
    assert int(link.call("/v3/lease/timetolive", json.dumps({"ID": lease}))["TTL"]) == -1
    assert other.claim_next("bert") == job
    assert other.get(job.uuid).attempts == 1
    # Nothing is left of it once its claims are free: there is no need to look for them again.
    assert other.claim_next("bert") is None
    holders = other.engine._opened.keys.holders
    assert [kv.key for kv in link.read([span(holders, end_of(holders))]).found[0]] == [
        holders + other.engine._opened.keeper.lease
    ]


def test_a_watch_whose_revision_was_compacted_begins_anew(make_board: Callable[..., Any], far: Any) -> None:
    board, proxy = far
    other = make_board()
    link = other.engine._opened.link
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=PATIENCE))
    eventually(lambda: board.engine._opened.link._streams)
    proxy.refuse()
    proxy.cut()
    for _ in range(3):
        other.cancel(other.post("gone"))
    job = other.post("resize")
    link.call("/v3/kv/compaction", json.dumps({"revision": str(link.read([]).revision), "physical": True}))
    proxy.restore()
    assert waiter.wait(3 * LIMIT) == job
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=PATIENCE))
    assert other.post("resize") == waiter.wait()


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_connection_that_has_gone_silent(far: tuple[Any, FaultyProxy], what: Any) -> None:
    """It is given up within seconds, and the call done once, on another."""
    board, proxy = far
    board.engine._opened.link.patience = 0.5
    board.post("warm")
    fault = proxy.silence(what, matching=b"POST /v3/kv/txn")
    job = board.post("resize")
    assert fault.happened
    assert [each.name for each in board.iterjobs()] == ["warm", "resize"]
    assert job == list(board.iterjobs())[1]


def test_a_clock_that_is_ahead_ends_what_was_begun_before(make_board: Callable[..., Any], board_conf: Any) -> None:
    """That is what a board without a clock of its own costs: leases with an expiry, and delays, made before it was
    used by a machine whose clock is wrong. What follows goes by the same time for all, and kept claims by none."""
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
        [oddity] = board.engine.examine()
        assert "the board's time is 3" in oddity.reason
    finally:
        astray.end()
