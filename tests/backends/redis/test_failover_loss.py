"""A failover that loses acknowledged writes: less is done than was acknowledged, and no job has two holders."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import ClaimLost, ConnectionFailure, NotFound
from jobboard.job import Job
from jobboard.states import CLAIMED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take
from tests.support.servers import RedisSentinel

# The tests share one failover, and each has jobs of its own.
pytestmark = [pytest.mark.backends("redis"), pytest.mark.xdist_group("redis-failover-loss")]

PATIENCE = 30


@pytest.fixture(scope="module")
def loss() -> Iterator[SimpleNamespace]:
    """Boards after a failover. The new primary does not have the latest writes of anna and bert to ``jobs``."""
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
        passed_on = bert.get(jobs["passed on"].uuid)
        anna.claim(jobs["passed on"], "anna", expiry=600)
        bert.release(passed_on)
        bert.claim(passed_on, "bert", expiry=600)
        anna.consume_many([jobs["done"], jobs["done soon"]], "anna")
        jobs["new"] = anna.post("new", key="k")
        refused = []
        for act in (lambda: careful.post("unsafe"), lambda: careful.claim(safe, "anna")):
            with pytest.raises(ConnectionFailure) as caught:
                act()
            refused.append(caught.value)
        servers.kill_primary()
        servers.resume_replica()
        servers.wait_for_primary()
        yield SimpleNamespace(anna=anna, bert=bert, careful=careful, jobs=jobs, passed_on=passed_on, refused=refused)


def token(job: Job) -> int:
    assert job.claim is not None
    return job.claim.token


def assert_lost(board: Any, job: Job) -> None:
    for act in (board.consume, board.extend, board.abandon, board.trash):
        with pytest.raises(ClaimLost):
            act(job, "anna")


@pytest.mark.rule("A failover that forgets acknowledged work makes no two holders.")
def test_a_lost_claim_is_lost_before_anybody_else_has_it(loss: SimpleNamespace) -> None:
    job = loss.jobs["one"]
    assert_lost(loss.anna, job)
    seen = loss.bert.get(job.uuid)
    assert (seen.state, seen.attempts) == (UNCLAIMED, 0)
    again = take(loss.bert, "bert", names=["one"])
    assert token(again) > token(job)
    assert_lost(loss.anna, job)
    loss.bert.consume(again, "bert")


def test_a_lost_claim_is_lost_though_its_owner_has_another(loss: SimpleNamespace) -> None:
    job = loss.jobs["two"]
    again = take(loss.bert, "anna", names=["two"], expiry=600)
    assert token(again) > token(job)
    assert_lost(loss.anna, job)
    loss.bert.consume(again, "anna")


def test_the_loss_of_a_kept_claim_is_noticed(loss: SimpleNamespace) -> None:
    claim = loss.jobs["kept"].claim
    eventually(lambda: claim.lost, PATIENCE)
    again = take(loss.bert, "bert", names=["kept"])
    assert token(again) > claim.token


def test_tokens_rise_though_the_latest_are_forgotten(loss: SimpleNamespace) -> None:
    again = take(loss.anna, "carl", names=["passed on"])
    assert token(again) > token(loss.passed_on) > token(loss.jobs["passed on"])
    for board, who, job in ((loss.anna, "anna", loss.jobs["passed on"]), (loss.bert, "bert", loss.passed_on)):
        with pytest.raises(ClaimLost):
            board.consume(job, who)


def test_a_job_whose_consume_is_lost_runs_again_once_its_lease_lapses(loss: SimpleNamespace) -> None:
    done = loss.jobs["done"]
    assert loss.bert.get(done.uuid).state == CLAIMED
    assert loss.bert.find_owner(done) == "anna"
    assert loss.bert.claim_next("bert", names=["done"]) is None
    again = loss.bert.claim_next("bert", names=["done soon"], timeout=PATIENCE)
    assert (again, again.attempts) == (loss.jobs["done soon"], 2)
    assert token(again) > token(loss.jobs["done soon"])


def test_a_job_whose_post_is_lost_is_gone_with_its_key(loss: SimpleNamespace) -> None:
    with pytest.raises(NotFound):
        loss.bert.get(loss.jobs["new"].uuid)
    other = loss.anna.post("new", key="k")
    assert other != loss.jobs["new"]
    assert take(loss.bert, "bert", names=["new"]) == other


def test_a_call_that_min_replicas_did_not_acknowledge_may_be_lost(loss: SimpleNamespace) -> None:
    assert [error.outcome for error in loss.refused] == ["unknown", "unknown"]
    assert all(str(error).startswith("0 of the 1 replicas") for error in loss.refused)
    assert [(job.name, job.state) for job in loss.careful.iterjobs()] == [("safe", UNCLAIMED)]
