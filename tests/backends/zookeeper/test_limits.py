"""Large postings, large boards, and how many requests a job costs; replies that get lost on a real connection."""

import os
import socket
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from jobboard.backends.zookeeper import connection as connection_module
from jobboard.backends.zookeeper import keeping
from jobboard.backends.zookeeper.wire import Multi, children
from jobboard.job import Act, Posting, boottime
from jobboard.states import CLAIMED, COMPLETE, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take

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


def test_batches_of_large_postings_take_several_requests(make_board: Any) -> None:
    board = make_board()
    board.post_many([Posting("resize", details={"a": "x" * 60_000})] * 50)
    jobs = board.claim_many("anna", 50)
    assert len(set(jobs)) == 50
    board.finish_many([Act(job, "abandon", error="e" * 20_000) for job in jobs], "anna")
    jobs = board.claim_many("anna", 50)
    assert len(set(jobs)) == 50
    board.finish_many([Act(job, "trash", error="e" * 20_000) for job in jobs], "anna")
    assert board.stats().trashed == 50


def test_a_job_costs_two_requests(private_board: Any) -> None:
    board = private_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 400)
    board.consume(take(board), "anna")
    before, start = received(private_board.server), boottime()
    for _ in range(300):
        board.consume(take(board), "anna")
    spent = received(private_board.server) - before
    # Beyond two for each job: what is read ahead, a hundred jobs at once, and with time looks, pings, and questions
    # after an answer that has been out for a tenth of a second.
    assert 600 <= spent <= 600 + 20 + 20 * (boottime() - start)


def test_what_one_posts_oneself_is_not_looked_for(private_board: Any) -> None:
    board = private_board(claim_ttl=60)
    board.consume(take(board) if board.post("resize") else None, "anna")
    before, start = received(private_board.server), boottime()
    for _ in range(100):
        board.post("resize")
        board.consume(take(board), "anna")
    # A claim reads the job that it takes; beyond that, a look every tenth of a second.
    assert received(private_board.server) - before <= 400 + 20 + 10 * (boottime() - start)


def test_an_idle_waiter_sends_nothing_but_pings(private_board: Any) -> None:
    from jobboard.testing.conformance.support import Waiter

    board, other = private_board(claim_ttl=60), private_board(claim_ttl=60)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=60))
    eventually(lambda: not board.engine._keeper._errands)
    before = received(private_board.server)
    waiter._thread.join(1.0)
    assert received(private_board.server) - before <= 3  # the questions themselves are counted, too
    other.post("resize")
    assert waiter.wait().name == "resize"


def test_what_nobody_needs_is_dropped(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    board, tidy = make_board(), make_board()
    for age in ("HOUR", "DAY", "PAUSE"):
        monkeypatch.setattr(keeping, age, -1000)  # all that there is
    board.post("resize")
    board.trash(take(board), "anna")
    board.purge(next(iter(board.trashed())))
    paths = board.engine._opened.paths

    def left() -> list[list[str]]:
        return board.engine._opened.connection.read([children(paths.answers), children(paths.purged)])

    assert all(left())
    tidy.engine.tidy()
    eventually(lambda: left() == [[], []])
    # Answers that were missed are made again.
    job = board.post("resize")
    assert take(board) == job
    make_board(read_only=True).engine.tidy()
    assert left()[0]


def test_what_connecting_reads_of_old_marks_is_bounded(
    make_board: Any, caller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs were purged within a day; and it is done by one of all who connect."""
    first = make_board()
    paths, read = first.engine._opened.paths, []
    eventually(lambda: not first.engine._keeper._errands)
    marks = [str(uuid.UUID(int=number)) for number in range(1500)]
    for start in range(0, len(marks), 500):
        transaction = caller.transaction()
        for mark in marks[start : start + 500]:
            transaction.create(f"{paths.purged}/{mark}")
        transaction.commit()
    reads = type(first.engine._opened.connection).read

    def counting(connection: Any, ops: Any, *args: Any, **kwargs: Any) -> Any:
        read.extend(op.path for op in ops if op.path.startswith(paths.purged))
        return reads(connection, ops, *args, **kwargs)

    monkeypatch.setattr(type(first.engine._opened.connection), "read", counting)

    def connect() -> int:
        read.clear()
        board = make_board()
        eventually(lambda: not board.engine._keeper._errands)
        return len(read)

    # The first has tidied up a moment ago.
    assert connect() <= 1
    monkeypatch.setattr(keeping, "PAUSE", -1000)
    assert connect() <= keeping.AT_ONCE + 2
    # Where many are old, all but a few are dropped at once.
    monkeypatch.setattr(keeping, "DAY", -1000)
    connect()
    assert caller.get_children(paths.purged) == []


def test_claims_of_others_do_not_ship_the_jobs_again(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    board, other = make_board(), make_board()
    other.post_many([Posting("resize")] * 300)
    board.consume(take(board), "anna")
    view = board.engine._opened.view
    shipped = view._jobs[2].shipped
    for _ in range(20):
        take(other, "bert")
        view.spread = 1
        view.look()
    assert view._jobs[2].shipped == shipped


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
    start = boottime()
    assert len({job.uuid for job in board.iterjobs()}) == many - 1000
    assert boottime() - start < many / 1500, "a hundred thousand take 4 s where each page costs what it shows"
    done = 0
    while jobs := other.claim_many("anna", 1000):
        other.consume_many(jobs, "anna")
        done += len(jobs)
    assert done == many - 1000


class Severed:
    """The next multi of a board reaches the server, and its reply nobody: the connection is closed in between."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened = False
        original = connection_module.Connection.call
        mine = board.engine._opened.connection

        def call(connection: Any, requests: Any, changes: bool = False, patience: Any = None) -> Any:
            if connection is not mine or self.happened or not isinstance(requests[0], Multi):
                return original(connection, requests, changes, patience)
            self.happened = True
            original(connection, requests, changes, patience)
            client = connection.open()
            client._connection._socket.shutdown(socket.SHUT_RDWR)
            raise connection_module.ConnectionFailure("the connection broke", ConnectionLoss(), outcome="unknown")

        monkeypatch.setattr(connection_module.Connection, "call", call)


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


def test_without_reading_many_at_once(make_board: Any) -> None:
    """As on servers before 3.6."""
    board = make_board()
    board.engine._opened.connection._reads_at_once = False
    jobs = board.post_many([Posting("resize", priority=p) for p in ("LOW", "HIGH", "NORMAL")])
    served = [take(board) for _ in range(3)]
    assert served == [jobs[1], jobs[2], jobs[0]]
    board.trash(served[0], "anna")
    assert [job.seen_state for job in board.iterjobs()] == [CLAIMED, CLAIMED]
    assert len(list(board.trashed())) == 1
    assert board.claim_next("bert") is None
