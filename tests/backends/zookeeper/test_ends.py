"""Connections that end, clients that give up, and clients that two boards or two processes share: no job is stranded,
and none has two owners."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import jobboard
from jobboard.backends.zookeeper.connection import Connection
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.states import CLAIMED, COMPLETE
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, record_of, take
from tests.backends.zookeeper.inside import connection_of, root_of, session_of

pytestmark = pytest.mark.backends("zookeeper")

Expire = Callable[[Any], None]

GIVES_UP = {"max_tries": 1, "delay": 0.01, "max_delay": 0.02}


@pytest.fixture
def caller(private_board: Any) -> Iterator[KazooClient]:
    """A client of the caller's, on the private server."""
    client = KazooClient(private_board.server.uri.partition("//")[2], timeout=20)
    client.start()
    yield client
    private_board.server.resume()
    client.stop()
    client.close()


@pytest.fixture
def shared(caller: KazooClient) -> Iterator[Callable[[], Any]]:
    boards: list[Any] = []

    def make() -> Any:
        board = jobboard.fetch("board", {"board": "zookeeper", "retry_for": 0.2}, client=caller)
        boards.append(board)
        board.connect()
        return board

    yield make
    for board in boards:
        board.close()


class Held:
    """Holds one thread between the reply to its multi and what is made of it, until it is let go on."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived, self.go_on = threading.Event(), threading.Event()
        original = Connection.commit
        mine = connection_of(board)
        held: list[int] = []

        def commit(connection: Any, ops: Any) -> Any:
            answers = original(connection, ops)
            if connection is mine and not held:
                held.append(1)
                self.arrived.set()
                assert self.go_on.wait(20)
            return answers

        monkeypatch.setattr(Connection, "commit", commit)


def owner_of(board: Any, job: Any) -> int | None:
    """The ZooKeeper session that keeps a job."""
    session = session_of(board, job)
    if session is None:
        return None
    [[found], _] = connection_of(board).read([f"{root_of(board)}/alive/{session}"])
    return None if found is None else found[1].ephemeralOwner


def failure_of(call: Callable[[], Any]) -> str:
    """Why there is no connection. Where the time of a call is over while a new client still tries, that is all it
    tells."""
    with pytest.raises(ConnectionFailure) as failure:
        call()
    return str(failure.value)


# A client that has given up


def test_a_client_that_has_given_up_is_replaced(private_board: Any) -> None:
    board = private_board(claim_ttl=2, retry_for=0.3, connection_retry=GIVES_UP, timeout=3)
    board.post("resize")
    old = connection_of(board).open()
    private_board.server.kill()
    old._connection._connection_routine.join(20)
    assert not board.connected
    for _ in range(3):
        eventually(lambda: "connection_retry" in failure_of(lambda: board.claim_next("anna")), 20)
        assert not board.connected
    private_board.server.start()
    board.engine.retry_for = 20
    assert take(board).name == "resize"
    assert board.connected
    assert connection_of(board).open() is not old
    assert not old.connected


def test_the_heartbeat_replaces_a_client_that_has_given_up(private_board: Any) -> None:
    """Nobody has to call anything for the claims to be kept on."""
    # A claim is lost after two thirds of that: later than a busy machine needs to start a server.
    board = private_board(claim_ttl=60, retry_for=0, connection_retry=GIVES_UP, timeout=3)
    job = board.post("resize")
    taken = take(board)
    old = connection_of(board).open()
    private_board.server.kill()
    old._connection._connection_routine.join(20)
    private_board.server.start()
    eventually(lambda: board.claims.beat_soon() or board.connected, 20)
    assert not taken.claim.lost
    board.consume(taken, "anna")
    assert job.state == COMPLETE


def test_a_claim_of_the_session_before_goes_over_to_the_new_one(private_board: Any) -> None:
    """The server keeps a session whose client has gone for its whole time, and ends it then, with its claims: these do
    not wait for that, as others might have them first."""
    board, other = private_board(claim_ttl=40), private_board(claim_ttl=60)
    job = board.post("resize")
    taken = take(board)
    connection = connection_of(board)
    before = connection.session_id
    # What is left when a client gives up: a session that lives until its time has run out.
    old = connection.open()
    old._stopped.set()
    old._connection._socket.shutdown(socket.SHUT_RDWR)
    old._connection._connection_routine.join(20)
    eventually(lambda: board.claims.beat_soon() or connection.session_id not in (None, before), 20)
    eventually(lambda: owner_of(other, job) == connection.session_id != before, 20)
    assert record_of(other, job).token == taken.claim.token
    assert not taken.claim.lost
    board.consume(taken, "anna")


def test_several_threads_meet_a_client_that_is_just_starting(private_board: Any) -> None:
    board = private_board(claim_ttl=5, retry_for=10, connection_retry=GIVES_UP, timeout=3)
    jobs = board.post_many([{"name": "resize"}] * 8)
    old = connection_of(board).open()
    private_board.server.kill()
    old._connection._connection_routine.join(20)
    private_board.server.start()
    made = []
    make = connection_of(board)._make
    connection_of(board)._make = lambda: made.append(make()) or made[-1]
    takers = [Background(lambda: board.claim_next("anna")) for _ in jobs]
    assert {taker.wait(20).uuid for taker in takers} == {job.uuid for job in jobs}
    assert len(made) == 1


def test_authentication_that_is_refused_later(private_board: Any) -> None:
    from kazoo.exceptions import AuthFailedError

    board = private_board(claim_ttl=5, retry_for=4)
    job = board.post("resize")
    connection = connection_of(board)
    make, refuse = connection._make, [True]

    def made() -> KazooClient:
        client = make()
        connect = client._connection._connect

        def connecting(*arguments: Any) -> Any:
            times = connect(*arguments)
            if refuse:
                raise AuthFailedError
            return times

        client._connection._connect = connecting
        return client

    connection._make = made
    old = connection.open()
    old._stopped.set()
    old._connection._socket.shutdown(socket.SHUT_RDWR)
    old._connection._connection_routine.join(20)
    for _ in range(2):
        eventually(lambda: "refused the authentication" in failure_of(lambda: board.claim(job, "anna")), 20)
    refuse.clear()
    board.claim(job, "anna")
    assert job.state == CLAIMED


# A new session while a change is on its way


@pytest.mark.parametrize("arrives", [False, True], ids=["unsent", "carried out"])
@pytest.mark.parametrize("verb", ["claim", "extend", "consume", "abandon"])
def test_a_session_that_ends_during_a_change(
    private_board: Any, expire: Expire, monkeypatch: pytest.MonkeyPatch, verb: str, arrives: bool
) -> None:
    """The session ends just before the change is sent, or when it was carried out and its reply is lost."""
    board, other = private_board(claim_ttl=20), private_board(claim_ttl=60)
    board.post("warm up")
    board.consume(take(board), "anna")
    job = board.post("resize")
    if verb != "claim":
        job = take(board)
    original, mine, done = Connection.commit, connection_of(board), []

    def commit(connection: Any, ops: Any) -> Any:
        # Not where the clock is read.
        if connection is not mine or len(ops) < 3 or done:
            return original(connection, ops)
        done.append(verb)
        if arrives:
            original(connection, ops)
        expire(board)
        if arrives:
            raise ConnectionFailure("the session has ended", outcome="unknown")
        return original(connection, ops)

    # No beat comes in between: it would take up the claim again.
    monkeypatch.setattr(board.engine.raw.life, "beat_soon", lambda: None)
    monkeypatch.setattr(Connection, "commit", commit)
    if verb == "claim":
        job = take(board)
    else:
        getattr(board, verb)(job, "anna")
    assert done
    if verb == "consume":
        assert job.state == COMPLETE
    elif verb == "abandon":
        assert take(other, "bert") == job
    else:
        assert owner_of(other, job) == mine.session_id
        board.consume(job, "anna")
    assert other.stats().claimed == (1 if verb == "abandon" else 0)


# Closing with work under way


def test_a_claim_that_arrives_while_the_board_closes(
    shared: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, private_board: Any
) -> None:
    """In a session that goes on, as it is the caller's."""
    board, other = shared(), private_board(claim_ttl=60)
    board.post("warm up")
    board.consume(take(board), "anna")
    job = other.post("resize")
    held = Held(board, monkeypatch)
    claiming = Background(lambda: board.claim_next("anna"))
    assert held.arrived.wait(20)
    assert owner_of(other, job) is not None
    closing = Background(board.close)
    closing.wait(20)
    held.go_on.set()
    with pytest.raises(ConnectionFailure):
        claiming.wait(20)
    again = take(other, "bert", timeout=20)
    assert again == job


def test_closing_without_a_connection_gives_back_later(
    shared: Callable[[], Any], caller: KazooClient, private_board: Any
) -> None:
    board = shared()
    job = board.post("resize")
    take(board)
    session = caller.client_id[0]
    private_board.server.pause()
    caller._connection._socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: not caller.connected)
    connection_of(board).session_timeout = 1  # so that it waits less long
    board.close()
    private_board.server.resume()
    eventually(lambda: caller.connected, 20)
    assert caller.client_id[0] == session
    other = private_board(claim_ttl=60)
    again = take(other, "bert", timeout=20)
    assert again == job
    eventually(lambda: not caller.state_listeners)


def test_nothing_is_sent_for_a_closed_board(shared: Callable[[], Any], caller: KazooClient) -> None:
    board = shared()
    connection = connection_of(board)
    board.close()
    assert caller.connected
    with pytest.raises(ConnectionFailure, match="closed"):
        connection.read(["/"])


# A client that is shared


def test_two_boards_on_one_client_keep_their_own_claims(shared: Callable[[], Any], private_board: Any) -> None:
    one, two = shared(), shared()
    jobs = one.post_many([{"name": "resize"}] * 2)
    first, second = take(one), take(two)
    one.close()
    assert owner_of(two, second) is not None
    assert take(two, "bert") == first
    assert {first.uuid, second.uuid} == {job.uuid for job in jobs}
    two.consume(second, "anna")


def test_a_callers_client_in_a_forked_child(shared: Callable[[], Any], private_board: Any) -> None:
    board = shared()
    job = board.post("resize")
    child = os.fork()
    if child == 0:
        try:
            board.claim_next("anna")
        except JobFailure as error:
            os._exit(0 if "forked" in str(error) and not isinstance(error, ConnectionFailure) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert take(board) == job


def test_an_own_client_in_a_forked_child(private_board: Any) -> None:
    board = private_board(claim_ttl=20)
    jobs = board.post_many([{"name": "resize"}] * 3)
    mine = take(board)
    session = connection_of(board).session_id
    child = os.fork()
    if child == 0:
        try:
            theirs = board.claim_next("bert")
            good = connection_of(board).session_id != session and theirs.uuid == jobs[1].uuid
            board.close()
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connection_of(board).session_id == session
    board.consume(mine, "anna")
    assert {take(board), take(board)} == set(jobs[1:])
