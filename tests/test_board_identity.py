"""Boards of one name in several places: each has jobs of its own."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailures, NotFound
from jobboard.testing.conformance.support import LONG, take
from jobboard.testing.faults import FaultyProxy
from jobboard.testing.requests import JOB_READS, requests

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")


@pytest.fixture
def elsewhere(board: JobBoard, backend: str, conf_of: Callable[[str], dict[str, Any]]) -> Iterator[JobBoard]:
    with jobboard.backend(board.name, conf_of(backend)) as elsewhere:
        yield elsewhere


@pytest.mark.rule("Two boards of one name at one place are one board, whatever URIs name them.")
def test_a_job_that_lies_elsewhere(board: JobBoard, elsewhere: JobBoard) -> None:
    """The claim stays, and the board of the jobs is asked once for all of them."""
    board.post_many([{"name": "resize"}] * 20)
    jobs = board.claim_many("anna", 20)
    for verb in ("consume", "trash", "abandon", "extend"):
        with pytest.raises(NotFound, match="but on") as failure:
            getattr(elsewhere, verb)(jobs[0], "anna")
        assert not isinstance(failure.value, ClaimLost), verb
    reads: list[int] = []

    def read(original: Callable[..., Any], uuids: list[str], *sides: Any) -> Any:
        reads.append(len(uuids))
        return original(uuids, *sides)

    with requests(board).around(JOB_READS, read), pytest.raises(JobFailures) as failures:
        elsewhere.consume_many(jobs, "anna")
    assert ([type(each) for each in failures.value.exceptions], reads) == ([NotFound] * 20, [20])
    assert not any(job.claim.lost for job in jobs)
    board.consume_many(jobs, "anna")
    with pytest.raises(NotFound):
        elsewhere.consume(jobs[0], "anna")


@pytest.mark.rule("Two boards of one name at one place are one board, whatever URIs name them.")
def test_one_board_by_several_handles(board: JobBoard, make_board: Callable[..., JobBoard]) -> None:
    """Whatever their options, they take each other's jobs, and learn of each other's claims that they are lost."""
    other = make_board(claim_ttl=LONG, retry_for=1)
    board.post_many([{"name": "resize"}] * 2)
    mine, lost = board.claim_many("anna", 2)
    other.consume(mine, "anna")
    board.release(board.get(lost.uuid))
    board.consume(taken := take(other, "bert"), "bert")
    assert taken == lost
    with pytest.raises(ClaimLost):
        other.consume(lost, "anna")
    assert lost.claim is not None
    assert lost.claim.lost


@pytest.mark.rule("Two boards of one name at one place are one board, whatever URIs name them.")
@pytest.mark.backends("postgresql", "mariadb", "redis", "zookeeper", "etcd")
@pytest.mark.parametrize("away", [False, True])
def test_one_board_whose_other_handle_has_lost_its_connection(
    backend: str, conf_of: Callable[[str], dict[str, Any]], away: bool
) -> None:
    """It was idle for too long, say, and comes back, or does not: where the job lies, the claim is lost."""
    conf = conf_of(backend)
    uri = conf["board"]
    parts = urlsplit(uri)
    assert parts.hostname
    assert parts.port
    with (
        FaultyProxy(parts.hostname, parts.port) as proxy,
        jobboard.backend("board", {**conf, "board": proxy.uri_for(uri), "retry_for": 0.5 if away else 10}) as far,
        jobboard.backend("board", conf) as near,
    ):
        far.post_many([{"name": "resize"}] * 3)
        jobs = far.claim_many("anna", 3)
        for job in jobs:
            near.release(near.get(job.uuid))
        near.consume_many(near.claim_many("bert", 3), "bert")
        if away:
            proxy.refuse()
        proxy.cut()
        with pytest.raises(ClaimLost):
            near.consume(jobs[0], "anna")
        with pytest.raises(JobFailures) as failure:
            near.consume_many(jobs, "anna")
        assert [type(each) for each in failure.value.exceptions] == [ClaimLost] * 3
        assert all(job.claim is not None and job.claim.lost for job in jobs)
