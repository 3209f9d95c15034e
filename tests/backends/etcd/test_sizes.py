"""Commits of every size up to the largest: a server adds up the operations of Txns that lie within each other."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd import fences
from jobboard.backends.etcd.requests import below, end_of, exists, get, is_at, nothing_in, put, within
from jobboard.job import Act, Posting
from jobboard.testing.faults import FaultyProxy

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(300)]

BOUNDARIES = (63, 64, 65, 85, 86, 87, 99, 100)
"""Numbers of jobs around which the Txns of one claim, or of one end, are put together differently."""


@pytest.mark.rule("A commit of every size is within the server's limit of operations.")
def test_the_server_takes_a_txn_of_every_size(make_driver: Callable[..., Any]) -> None:
    """The first comparison fails, so that the server checks the whole Txn and writes nothing."""
    link, folder = make_driver().link, f"sizes{uuid.uuid4()}/"
    never = exists(folder)
    inner = within([nothing_in(folder, folder + "9"), below(folder, b"0")], [put(folder)])
    # A Txn has parts of 40.
    for compared in (0, 1, 20, *(40 * parts + more for parts in (1, 2, 3, 4, 8, 12) for more in (-1, 0, 1, 20))):
        compare = [never, *(is_at(f"{folder}{number}", 0) for number in range(compared))]
        for written in (64, compared, 5 * compared):
            writes = [*(put(f"{folder}{number}") for number in range(written)), inner]
            assert not link.txn(compare, writes).succeeded


def test_every_operation_of_a_large_txn_is_carried_out(make_driver: Callable[..., Any]) -> None:
    """Or none, if a comparison of an inner Txn fails."""
    link, folder = make_driver().link, f"sizes{uuid.uuid4()}/"
    places = [f"{folder}{number}" for number in range(2000)]

    def stored() -> int:
        count: int = link.read([get(folder, end_of(folder), only="count")]).counts[0]
        return count

    for compared in (39, 40, 41, 1599, 1600, 1601, 1641):
        compare = [is_at(place, 0) for place in places[:compared]]
        last = [*compare[:-1], is_at(places[compared - 1], 1)]
        assert not link.txn(last, [put(place) for place in places]).succeeded
        assert not stored()
    assert link.txn(compare, [put(place) for place in places]).succeeded
    assert stored() == len(places)
    assert not link.txn(compare, [put(places[0], b"new")]).succeeded


@pytest.mark.rule("A commit of every size is within the server's limit of operations.")
def test_claims_under_a_limit_of_each_group_end_with_results(make_board: Callable[..., Any]) -> None:
    board = make_board(keep_done=600)
    board.set_limit("mail", concurrency=1, per="group")
    for size in BOUNDARIES:
        jobs = board.post_many([Posting("mail", group=f"g{number}", key=f"k{number}") for number in range(size)])
        assert board.claim_many("anna", size, expiry=60) == jobs
        board.finish_many([Act(job, "consume", result={"size": size}) for job in jobs], "anna")
    assert board.outcome(jobs[0]).result == {"size": size}
    assert board.job_count == 0


# Limits


def test_a_hundred_claims_in_a_hundred_scopes_are_one_commit(
    alone: tuple[Any, FaultyProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a Txn compares, and all in one."""
    # A look across a fence takes one or two requests more. The uuid of a job decides whether the job brings a fence.
    monkeypatch.setattr(fences, "_OFTEN", 10**9)
    board, proxy = alone
    board.set_limit("mail", concurrency=1, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number % 100}") for number in range(200)])
    counter = proxy.counter(b"POST /v3/kv")
    held = board.claim_many("anna", 100)
    assert held == jobs[:100]
    assert counter.count == 6
    assert board.claim_many("anna", 100) == []
    board.consume_many(held[:50], "anna")
    assert board.claim_many("anna", 100) == jobs[100:150]
    assert list(board.examine()) == []


def test_a_long_list_of_claims_keeps_its_limit(make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The living ones are found by more than one Txn."""
    board = make_board()
    monkeypatch.setattr("jobboard.backends.etcd.driver.MOST_GETS", 60)
    board.set_limit("mail", concurrency=140)
    for _ in range(8):
        board.post_many([Posting("mail")] * 20)
        board.consume_many(board.claim_many("anna", 16), "anna")
    held = [*board.claim_many("anna", 32), *board.claim_many("anna", 32)]
    assert len(held) == 32


@pytest.mark.rule("Lists of claims in many groups are read in more than one Txn.")
def test_long_lists_of_many_groups_keep_their_limits(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lists at once would be too much for one Txn."""
    board = make_board()
    monkeypatch.setattr("jobboard.engine.limits.HEAVY", 3)
    board.set_limit("mail", concurrency=2, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number}") for number in range(10)])
    assert [board.claim_many("anna", 10) for _ in range(4)] == [jobs[:4], jobs[4:8], jobs[8:], []]
