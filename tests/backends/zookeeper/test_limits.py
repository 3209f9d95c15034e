"""Large postings, large boards, and how many requests a job costs; replies that get lost on a real connection."""

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from jobboard.backends.zookeeper.connection import Connection
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Act, Posting
from jobboard.states import CLAIMED, COMPLETE, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Waiter, take
from jobboard.testing.conformance.wire import QUIET
from tests.backends.zookeeper.inside import connection_of, driver_of

pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.timeout(240)]


def received(server: Any) -> int:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"srvr")
        text = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    return int(text.partition("Received: ")[2].split()[0])


def test_a_posting_over_the_request_limit_is_refused_at_post(make_board: Any) -> None:
    board = make_board(max_details=10_000_000)
    with pytest.raises(ValueError, match="1 MB"):
        board.post("resize", details={"a": "x" * 1_000_000})
    assert board.job_count == 0
    # What is not refused can be claimed and given back, with whatever error.
    large = board.post("resize", details={"a": "x" * 850_000})
    for _ in range(2):
        job = take(board, "ä" * 255)
        board.abandon(job, "ä" * 255, error="é" * 20_000)
    assert board.get(large.uuid).details == {"a": "x" * 850_000}
    board.trash(take(board), "anna")
    board.restore(large)


def claim_all(board: Any, many: int) -> list[Any]:
    """As many at a time as a request holds."""
    jobs: list[Any] = []
    while some := board.claim_many("anna", many):
        jobs += some
    assert len(set(jobs)) == many
    return jobs


def test_batches_of_large_postings_take_several_requests(make_board: Any) -> None:
    board = make_board()
    board.post_many([Posting("resize", details={"a": "x" * 60_000})] * 50)
    jobs = claim_all(board, 50)
    board.finish_many([Act(job, "abandon", error="e" * 20_000) for job in jobs], "anna")
    jobs = claim_all(board, 50)
    board.finish_many([Act(job, "trash", error="e" * 20_000) for job in jobs], "anna")
    assert board.stats().trashed == 50


def test_an_idle_waiter_sends_nothing_but_pings(private_board: Any) -> None:
    # A ping is due after a third of that: none falls into the second.
    board, other = private_board(claim_ttl=QUIET), private_board(claim_ttl=QUIET)
    # The first wait arms the watches, and looks again then.
    eventually(lambda: board.claim_next("bert", timeout=0.1) is None and len(driver_of(board)._armed) == 3)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=60))
    before = received(private_board.server)
    waiter._thread.join(1.0)
    assert received(private_board.server) - before == 1, "the question itself is counted, too"
    other.post("resize")
    assert waiter.wait().name == "resize"


def test_a_large_board(private_board: Any) -> None:
    many = 100_000 if "JOBBOARD_TEST_FULL" in os.environ else 20_000
    board = private_board(claim_ttl=60)
    board.post_many(Posting("resize") for _ in range(many))
    other = private_board(claim_ttl=60)
    assert other.job_count == many
    first = other.claim_many("anna", 1000)
    assert len(set(first)) == 1000
    other.consume_many(first, "anna")
    assert board.job_count == many - 1000
    connection = connection_of(board)
    before = connection.sent
    assert len({job.uuid for job in board.iterjobs()}) == many - 1000
    assert connection.sent - before < many / 60, "each page costs what it shows"
    done = 0
    while jobs := other.claim_many("anna", 1000):
        other.consume_many(jobs, "anna")
        done += len(jobs)
    assert done == many - 1000


class Severed:
    """The next multi of a board reaches the server, and its reply nobody: the connection is closed in between."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened = False
        original = Connection.commit
        mine = connection_of(board)

        def commit(connection: Any, ops: Any) -> Any:
            if connection is not mine or self.happened or len(ops) < 3:
                return original(connection, ops)
            self.happened = True
            original(connection, ops)
            client = connection.open()
            client._connection._socket.shutdown(socket.SHUT_RDWR)
            raise ConnectionFailure("the connection broke", ConnectionLoss(), outcome="unknown")

        monkeypatch.setattr(Connection, "commit", commit)


ACTS: dict[str, Callable[[Any, Any], Any]] = {
    "claim_next": lambda board, job: board.consume(take(board), "anna"),
    "claim": lambda board, job: board.consume(job, "anna") if board.claim(job, "anna") else None,
    "post": lambda board, job: board.post("another", key="k"),
}


@pytest.mark.parametrize("verb", ACTS)
def test_a_lost_reply(make_board: Any, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    board, other = make_board(claim_ttl=30), make_board()
    job = board.post("resize")
    board.consume(take(board, names=["warm up"]) if board.post("warm up") else None, "anna")
    severed = Severed(board, monkeypatch)
    ACTS[verb](board, job)
    assert severed.happened
    assert other.get(job.uuid).state == UNCLAIMED if verb == "post" else job.state == COMPLETE
    assert other.stats().claimed == 0
    assert other.job_count == (2 if verb == "post" else 0)


def test_a_lost_reply_to_a_consume(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    board = make_board(claim_ttl=30)
    board.post("resize")
    job = take(board)
    severed = Severed(board, monkeypatch)
    assert job.state == CLAIMED
    board.consume(job, "anna")
    assert severed.happened
    assert job.state == COMPLETE
