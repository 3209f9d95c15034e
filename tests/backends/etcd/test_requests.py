"""Requests to etcd: how many, how much they compare and write, and how large they may be."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd import fences
from jobboard.job import Posting
from jobboard.testing.conformance.wire import QUIET
from jobboard.testing.faults import FaultyProxy
from tests.backends.etcd.conftest import link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]

POST = b"POST /v3/"


def test_one_txn_for_each_step(alone: tuple[Any, FaultyProxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads the jobs that the last look saw behind its own. The end of a claim of one's own reads nothing."""
    # A look across a fence takes one or two requests more. The uuid of a job decides whether the job brings a fence.
    monkeypatch.setattr(fences, "_OFTEN", 10**9)
    board, proxy = alone
    jobs = [board.post("resize") for _ in range(70)]
    for job in jobs[:4]:
        board.consume(board.claim_next("anna"), "anna")
        assert job.state == "COMPLETE"
    counter = proxy.counter(POST)
    for _ in range(60):
        board.consume(board.claim_next("anna"), "anna")
    assert counter.count == 3 * 60
    counter.count = 0
    for _ in range(10):
        board.post("resize")
    assert counter.count == 10
    counter.count = 0
    held = board.claim_many("anna", 20)
    assert len(held) == 16
    assert counter.count == 4
    counter.count = 0
    board.consume_many(held, "anna")
    assert counter.count == 1


@pytest.mark.rule("A claim that was lost on its way is made of the same job.")
def test_a_claim_whose_request_is_lost_takes_the_same_job(far: tuple[Any, FaultyProxy]) -> None:
    """Not the next job, which the same look has seen behind that job."""
    board, proxy = far
    board.claim(board.post("warm"), "anna")
    for job in [board.post("resize") for _ in range(3)]:
        fault = proxy.lose("request", matching=b"request_put")
        assert board.claim_next("anna") == job
        assert fault.happened


@pytest.mark.rule("A claim on etcd compares and writes a constant number of keys.")
def test_a_claim_and_its_end_compare_and_write_few_keys(make_board: Callable[..., Any], monkeypatch: Any) -> None:
    board = make_board(claim_ttl=QUIET)
    board.post_many([Posting("resize")] * 40)
    for _ in range(4):
        board.consume(board.claim_next("anna"), "anna")
    link = link_of(board)
    original, sent = link.txn, []

    def counting(compare: Any, success: Any, *args: Any, **kwargs: Any) -> Any:
        if success and "request_range" not in success[0]:
            sent.append((len(compare), len(success)))
        return original(compare, success, *args, **kwargs)

    monkeypatch.setattr(link, "txn", counting)
    board.consume(board.claim_next("anna"), "anna")
    held = board.claim_many("anna", 5)
    board.consume_many(held, "anna")
    # The record, the answer, the lease and the gate. The record and the answer are put, one name comes and one goes.
    # To end the claim the record goes with two names; the gate is compared, too.
    assert sent == [(4, 4), (3, 4), (8, 16), (7, 16)]


def test_a_beat_is_two_requests(far: tuple[Any, FaultyProxy], make_board: Callable[..., Any]) -> None:
    """For any number of claims: one renews the lease, and one reads the changes."""
    board, proxy = far
    board.post_many([Posting("resize")] * 200)
    jobs = board.claim_many("anna", 200)
    counter = proxy.counter(POST)
    board.claims.beat()
    assert counter.count == 2
    other = make_board()
    other.release(other.get(jobs[7].uuid))
    board.claims.beat()
    assert [job for job in jobs if job.claim.lost] == [jobs[7]]


@pytest.mark.rule("A large batch of posts is stored, and a taken key keeps it out.")
def test_the_largest_batch_is_posted_by_one_txn(private_board: Callable[..., Any]) -> None:
    """With keys and without. It has far more operations than a Txn may have by default."""
    # Revisions are those of the whole server.
    board = private_board()
    link = link_of(board)
    for key in (None, "k{}"):
        postings = [Posting("resize", key=key and key.format(number)) for number in range(500)]
        before = link.read([]).revision
        jobs = board.post_many(postings)
        assert link.read([]).revision == before + 1
        assert list(board.iterjobs())[-500:] == jobs
    assert board.post("again", key="k7") == jobs[7]
    for _ in range(10):
        held = board.claim_many("anna", 100)
        board.consume_many(held, "anna")
    assert board.job_count == 0
    assert board.post("again", key="k7") not in jobs
    assert list(board.examine()) == []


@pytest.mark.rule("A large batch of posts is stored, and a taken key keeps it out.")
def test_a_key_that_is_taken_meanwhile_keeps_a_large_batch_out(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are too many to be compared one by one."""
    board, other = make_board(), make_board()
    link = link_of(board)
    original, meanwhile = link.txn, []

    def late(compare: Any, success: Any, *args: Any, **kwargs: Any) -> Any:
        if len(success) > 1000 and not meanwhile:
            meanwhile.append(other.post("first", key="k300"))
        return original(compare, success, *args, **kwargs)

    monkeypatch.setattr(link, "txn", late)
    jobs = board.post_many([Posting("resize", key=f"k{number}") for number in range(500)])
    assert jobs[300] == meanwhile[0]
    assert board.job_count == 500


def test_a_posting_that_is_too_large_is_refused(make_board: Callable[..., Any]) -> None:
    board = make_board(max_details=4_000_000)
    with pytest.raises(ValueError, match="etcd takes 1500000; post fewer jobs"):
        board.post("resize", details={"picture": "x" * 1_600_000})
    assert board.post("resize", details={"picture": "x" * 1_000_000}).uuid == board.claim_next("anna").uuid
