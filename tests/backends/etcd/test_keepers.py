"""The lease that keeps a process's claims, the watch that wakes it, and clocks that differ."""

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.exceptions import ClaimLost
from jobboard.job import Posting
from jobboard.kv.driver import JOBS, MISSED, Op, Range
from jobboard.kv.layout import HOLDERS
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, PATIENCE, Waiter, take
from jobboard.testing.faults import FaultyProxy
from jobboard.testing.puppet import Puppet
from tests.backends.etcd.conftest import driver_of, link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def revoke(board: Any) -> None:
    """What the server does with the lease of a process that has been silent for too long."""
    link_of(board).call("/v3/lease/revoke", json.dumps({"ID": driver_of(board).session()}))


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
    assert {first.claim.token, second.claim.token} == {job.record.token for job in (first, second)}


def test_a_closed_board_leaves_no_lease(make_board: Callable[..., Any]) -> None:
    board, other = make_board(), make_board()
    board.post("resize")
    job = take(board)
    lease = driver_of(board).session()
    board.close()
    assert int(link_of(other).call("/v3/lease/timetolive", json.dumps({"ID": lease}))["TTL"]) == -1
    assert other.claim_next("bert") == job
    assert other.get(job.uuid).attempts == 1
    # Nothing is left of it once its claims are free: there is no need to look for them again.
    assert other.claim_next("bert") is None
    driver = driver_of(other)
    assert driver.read([], [Range(HOLDERS, 10)]).names == [[driver.session()]]


def test_a_watch_whose_revision_was_compacted_begins_anew(make_board: Callable[..., Any], far: Any) -> None:
    board, proxy = far
    other = make_board()
    link = link_of(other)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=PATIENCE))
    eventually(lambda: link_of(board)._streams)
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


def test_what_rings_between_two_watches_is_looked_for(
    make_driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch has ended, and no request: nothing else tells that something was missed."""
    heard: list[str] = []
    rung: list[Any] = []
    driver, other = make_driver(heard=heard), make_driver()
    driver.watch()
    streams, stream = eventually(lambda: list(driver._link._streams)), driver._link.stream

    def late(*args: Any) -> Any:
        rung.append(other.commit([Op("ring", JOBS)]))
        heard.clear()
        return stream(*args)

    monkeypatch.setattr(driver._link, "stream", late)
    streams[0].shutdown(socket.SHUT_RDWR)
    eventually(lambda: rung and MISSED in heard)


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_connection_that_has_gone_silent(far: tuple[Any, FaultyProxy], what: Any) -> None:
    """It is given up within seconds, and the call done once, on another."""
    board, proxy = far
    link_of(board).patience = 0.5
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
    finally:
        astray.end()


@pytest.mark.parametrize("last", ["post", "lease", "delay"])
def test_a_lease_of_a_clock_that_is_behind_is_counted_from_what_others_did_last(
    make_board: Callable[..., Any], board_conf: Any, last: str
) -> None:
    board = make_board()
    board.post_many([Posting("resize")] * 2)
    right, behind = Puppet("board", board_conf, skew=3600), Puppet("board", board_conf)
    try:
        if last == "lease":
            assert right("claim_next", "bert", expiry=1200)
        else:
            right("post", "later", delay=1200 if last == "delay" else None)
        while behind("claim_next", "anna", expiry=600):
            pass
        assert right("claim_next", "bert") is None
    finally:
        right.end()
        behind.end()


def test_who_draws_numbers_takes_the_time_along_and_never_back(make_driver: Callable[..., Any]) -> None:
    driver, other = make_driver(), make_driver()
    for ahead in (3600, 7200):
        driver._clock.saw(int((time.time() + ahead) * 1e6))
        begun = driver.now()
        driver.number(1, beaten=True)
        other.number(1, beaten=True)
        assert make_driver().now() >= begun
        assert other.read([]).now >= begun
