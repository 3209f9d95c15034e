"""A failover that loses what was acknowledged last: less is done than was said, and never a thing twice by two."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, NotFound
from jobboard.job import Job
from jobboard.states import CLAIMED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take
from tests.support.servers import RedisSentinel

# They look at the same failover.
pytestmark = [pytest.mark.backends("redis"), pytest.mark.xdist_group("redis-failover-loss")]

PATIENCE = 30


class Loss(NamedTuple):
    """What the new primary has never heard of: the claims of ``anna``, and what she consumed and posted."""

    anna: JobBoard
    bert: JobBoard
    claimed: list[Job]
    kept: Job
    reclaimed: list[Job]
    consumed: Job
    consumed_of_short_lease: Job
    posted: Job
    refused: list[ConnectionFailure]
    careful: JobBoard


@pytest.fixture(scope="module")
def loss() -> Iterator[Loss]:
    with RedisSentinel() as servers, contextlib.ExitStack() as stack:
        (host, port), *others = servers.sentinels
        conf = {"board": f"redis://{host}:{port}", "sentinel": servers.service, "sentinel_fallbacks": others}

        def open_board(name: str = "board", **options: Any) -> Any:
            board = jobboard.fetch(name, {**conf, "retry_for": PATIENCE, **options})
            stack.callback(board.close)
            board.connect()
            return board

        anna, bert = open_board(claim_ttl=3), open_board()
        careful = open_board("careful", min_replicas=1, socket_timeout=0.5, retry_for=0.5)
        jobs = {name: anna.post(name) for name in ("one", "two", "kept", "passed on", "done", "done soon")}
        safe = careful.post("safe")
        anna.claim(jobs["done"], "anna", expiry=600)
        anna.claim(jobs["done soon"], "anna", expiry=2)
        servers.pause_replica()
        for name in ("one", "two"):
            anna.claim(jobs[name], "anna", expiry=600)
        anna.claim(jobs["kept"], "anna")
        reclaimed = [jobs["passed on"], bert.get(jobs["passed on"].uuid)]
        anna.claim(reclaimed[0], "anna", expiry=600)
        bert.release(reclaimed[1])
        bert.claim(reclaimed[1], "bert", expiry=600)
        anna.consume(jobs["done"], "anna")
        anna.consume(jobs["done soon"], "anna")
        posted = anna.post("new", key="k")
        refused = []
        for act in (lambda: careful.post("unsafe"), lambda: careful.claim(safe, "anna")):
            with pytest.raises(ConnectionFailure) as caught:
                act()
            refused.append(caught.value)
        servers.kill_primary()
        servers.resume_replica()
        servers.wait_for_primary()
        yield Loss(
            anna,
            bert,
            [jobs["one"], jobs["two"]],
            jobs["kept"],
            reclaimed,
            jobs["done"],
            jobs["done soon"],
            posted,
            refused,
            careful,
        )


def token(job: Job) -> int:
    assert job.claim is not None
    return job.claim.token


def test_a_lost_claim_is_lost_before_anybody_else_has_it(loss: Loss) -> None:
    job = loss.claimed[0]
    for act in (loss.anna.consume, loss.anna.extend, loss.anna.abandon, loss.anna.trash):
        with pytest.raises(ClaimLost):
            act(job, "anna")
    seen = loss.bert.get(job.uuid)
    assert (seen.state, seen.attempts) == (UNCLAIMED, 0)
    again = take(loss.bert, "bert", names=[job.name])
    assert again == job
    assert token(again) > token(job)
    with pytest.raises(ClaimLost):
        loss.anna.consume(job, "anna")
    loss.bert.consume(again, "bert")


def test_a_lost_claim_is_lost_after_somebody_else_has_it(loss: Loss) -> None:
    job = loss.claimed[1]
    again = loss.bert.get(job.uuid)
    # Of the same name: it is the token that counts.
    loss.bert.claim(again, "anna", expiry=600)
    assert token(again) > token(job)
    for act in (loss.anna.consume, loss.anna.extend, loss.anna.abandon, loss.anna.trash):
        with pytest.raises(ClaimLost):
            act(job, "anna")
    assert loss.bert.find_owner(again) == "anna"
    loss.bert.consume(again, "anna")


def test_a_kept_claim_that_is_lost_is_noticed(loss: Loss) -> None:
    claim = loss.kept.claim
    assert claim is not None
    eventually(lambda: claim.lost, PATIENCE)
    again = take(loss.bert, "bert", names=["kept"])
    assert token(again) > claim.token
    loss.bert.consume(again, "bert")


def test_tokens_rise_though_the_latest_are_forgotten(loss: Loss) -> None:
    again = take(loss.anna, "carl", names=["passed on"])
    assert token(again) > token(loss.reclaimed[1]) > token(loss.reclaimed[0])
    for board, who, job in ((loss.anna, "anna", loss.reclaimed[0]), (loss.bert, "bert", loss.reclaimed[1])):
        with pytest.raises(ClaimLost):
            board.consume(job, who)
    loss.anna.consume(again, "carl")


def test_a_lost_consume(loss: Loss) -> None:
    """The job is claimed as it was, and runs again once that lease has lapsed."""
    assert loss.bert.get(loss.consumed.uuid).state == CLAIMED
    assert loss.bert.find_owner(loss.consumed) == "anna"
    assert loss.bert.claim_next("bert", names=["done"]) is None
    again = loss.bert.claim_next("bert", names=["done soon"], timeout=PATIENCE)
    assert again == loss.consumed_of_short_lease
    assert again.attempts == 2
    assert token(again) > token(loss.consumed_of_short_lease)
    loss.bert.consume(again, "bert")


def test_a_lost_post(loss: Loss) -> None:
    with pytest.raises(NotFound):
        loss.bert.get(loss.posted.uuid)
    other = loss.anna.post("new", key="k")
    assert other != loss.posted
    assert take(loss.bert, "bert", names=["new"]) == other


def test_what_replicas_must_have_is_not_promised(loss: Loss) -> None:
    assert [error.outcome for error in loss.refused] == ["unknown", "unknown"]
    assert [str(error).startswith("0 of the 1 replicas") for error in loss.refused] == [True, True]
    names = [(job.name, job.state) for job in loss.careful.iterjobs()]
    assert names == [("safe", UNCLAIMED)]
