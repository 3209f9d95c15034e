"""Commits of every size up to the largest: a server adds up the operations of Txns that lie within each other."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.backends.etcd.requests import below, end_of, exists, is_at, nothing_in, put, span, within
from jobboard.job import Act, Posting
from jobboard.moving import Mover

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(300)]

BOUNDARIES = (*range(61, 69), *range(83, 89), *range(98, 101))
"""Numbers of jobs around which the Txns of one claim, or of one end, are put together differently."""


def test_the_server_takes_a_txn_of_every_size(make_driver: Callable[..., Any]) -> None:
    """The first comparison fails, so that the server checks the whole Txn and writes nothing."""
    link, folder = make_driver()._link, f"sizes{uuid.uuid4()}/"
    never = exists(folder)
    inner = within([nothing_in(folder, folder + "9"), below(folder, b"0")], [put(folder)])
    for compared in range(500):
        compare = [never, *(is_at(f"{folder}{number}", 0) for number in range(compared))]
        for written in (64, compared, 5 * compared):
            writes = [*(put(f"{folder}{number}") for number in range(written)), inner]
            assert not link.txn(compare, writes).succeeded


def test_every_operation_of_a_large_txn_is_carried_out(make_driver: Callable[..., Any]) -> None:
    """Or none, where a comparison fails that lies deep within."""
    link, folder = make_driver()._link, f"sizes{uuid.uuid4()}/"
    places = [f"{folder}{number}" for number in range(5000)]

    def stored() -> int:
        count: int = link.read([span(folder, end_of(folder), only="count")]).counts[0]
        return count

    for compared in (39, 40, 41, 1599, 1600, 1601, 1641, 3000):
        compare = [is_at(place, 0) for place in places[:compared]]
        last = [*compare[:-1], is_at(places[compared - 1], 1)]
        assert not link.txn(last, [put(place) for place in places]).succeeded
        assert not stored()
    assert link.txn(compare, [put(place) for place in places]).succeeded
    assert stored() == len(places)
    assert not link.txn(compare, [put(places[0], b"new")]).succeeded


@pytest.mark.parametrize("options", [{"key": True}, {"key": True, "delay": 60}, {}], ids=str)
def test_batches_of_every_size_are_posted(make_board: Callable[..., Any], options: dict[str, Any]) -> None:
    board, posted = make_board(), 0
    for size in (*range(1, 500, 37), *BOUNDARIES, 120, 125, 128, 250, 256, 499, 500):
        keys = [f"{size}-{number}" for number in range(size)]
        postings = [
            Posting("mail", group=key, delay=options.get("delay"), key=key if "key" in options else None)
            for key in keys
        ]
        assert len(board.post_many(postings)) == size
        posted += size
    assert board.job_count == posted


def test_claims_under_a_limit_of_each_group_end_with_results(make_board: Callable[..., Any]) -> None:
    board = make_board(keep_done=600)
    board.set_limit("mail", concurrency=1, per="group")
    for size in BOUNDARIES:
        jobs = board.post_many([Posting("mail", group=f"g{number}", key=f"k{number}") for number in range(size)])
        assert board.claim_many("anna", size, expiry=60) == jobs
        board.finish_many([Act(job, "consume", result={"size": size}) for job in jobs], "anna")
    assert board.outcome(jobs[0]).result == {"size": size}
    assert board.job_count == 0


def test_boards_of_mixed_jobs_are_moved_to_etcd(make_board: Callable[..., Any]) -> None:
    source, target = jobboard.fetch("moved", "memory"), make_board()
    source.connect()
    for size in (85, 300):
        jobs = source.post_many(
            Posting(
                "ab"[number % 2],
                priority=number % 3,
                key=f"{size}-{number}" if number % 2 else None,
                group="g" if number % 3 else None,
                delay=60 if number % 4 == 1 else None,
                max_attempts=None if number % 5 else 3,
            )
            for number in range(size)
        )
        assert Mover(source, target).run().left == []
        assert source.job_count == 0
        assert {job.uuid for job in jobs} <= {job.uuid for job in target.iterjobs()}
        assert target.stats().claimed == 0
