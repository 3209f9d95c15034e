"""Clients of kazoo's: those that give up, and those that a caller shares with boards and other processes."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

import jobboard
from jobboard.backends.zookeeper.connection import Connection
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure
from jobboard.job import Entity, Posting, boottime
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, EventLog, record_of, take
from jobboard.testing.faults import FaultyProxy
from tests.backends.zookeeper.conftest import connection_of, driver_of, owner_of, root_of
from tests.support.backups import Backup

pytestmark = pytest.mark.backends("zookeeper")

GIVES_UP = {"max_tries": 1, "delay": 0.01, "max_delay": 0.02}


@pytest.fixture
def shared(caller: KazooClient, board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """``shared()``: a board on the caller's client."""
    boards: list[Any] = []

    def make() -> Any:
        conf = {"board": "zookeeper", "namespace": board_conf["namespace"], "retry_for": 0.2}
        board = jobboard.fetch("board", conf, client=caller)
        boards.append(board)
        board.connect()
        return board

    yield make
    for board in boards:
        board.close()


# A board's own client


def test_a_client_that_has_given_up_is_replaced_once(
    make_board: Any, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Many threads need a client, and share the new one."""
    uri = f"zookeeper://{proxy.host}:{proxy.port}"
    board = make_board(board=uri, claim_ttl=60, retry_for=0.3, connection_retry=GIVES_UP, timeout=3)
    jobs = board.post_many([Posting("resize")] * 8)
    old = connection_of(board).open()
    proxy.refuse()
    proxy.cut()
    eventually(lambda: old.client_state == "CLOSED")

    def reason() -> str:
        with pytest.raises(ConnectionFailure) as failure:
            board.claim_next("anna")
        return str(failure.value)

    # A call whose time ends while a new client still tries reports no more than that.
    eventually(lambda: "connection_retry" in reason())
    assert not board.connected
    caplog.clear()
    proxy.restore()
    board.engine.retry_for = 40
    takers = [Background(lambda: board.claim_next("anna")) for _ in jobs]
    assert {taker.wait(60).uuid for taker in takers} == {job.uuid for job in jobs}
    assert caplog.text.count("starts a new session") <= 1
    assert board.connected
    assert not old.connected


def test_the_heartbeat_moves_claims_to_the_session_of_a_new_client(make_board: Any, proxy: FaultyProxy) -> None:
    """At once, though the server keeps the earlier session for its whole time."""
    uri = f"zookeeper://{proxy.host}:{proxy.port}"
    board, other = make_board(board=uri, claim_ttl=120, connection_retry=GIVES_UP), make_board(claim_ttl=60)
    job = board.post("resize")
    taken = take(board)
    connection = connection_of(board)
    before, old = connection.session_id, connection.open()
    proxy.refuse()
    proxy.cut()
    eventually(lambda: old.client_state == "CLOSED")
    proxy.restore()
    eventually(lambda: board.claims.beat_soon() or owner_of(other, job) == connection.session_id != before)
    assert record_of(other, job).token == taken.claim.token
    assert not taken.claim.lost
    board.consume(taken, "anna")


# A client of the caller's


def test_options_of_a_client_are_refused_beside_the_callers_client(caller: KazooClient) -> None:
    with pytest.raises(TypeError, match="KazooClient"):
        jobboard.fetch("board", "zookeeper", client=object())
    with pytest.raises(ValueError, match="hosts"):
        jobboard.fetch("board", "zookeeper://elsewhere", client=caller)
    own: dict[str, Any] = {"claim_ttl": 60, "handler": SequentialThreadingHandler(), "command_retry": {"delay": 9}}
    for option, value in own.items():
        with pytest.raises(ValueError, match=option):
            jobboard.fetch("board", {"board": "zookeeper", option: value}, client=caller)


def test_claim_ttl_is_the_session_timeout_of_the_callers_client(address: str) -> None:
    client = KazooClient(hosts=address, timeout=0.3)
    client.start()
    try:
        with jobboard.backend("board", "zookeeper", client=client) as board:
            assert board.characteristics.claim_ttl == pytest.approx(1.0)
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("started", [False, True])
def test_a_callers_client_that_does_not_run_is_an_error(address: str, started: bool) -> None:
    client = KazooClient(address)
    board = jobboard.fetch("board", {"board": "zookeeper", "retry_for": 0.1}, client=client)
    if started:
        client.start()
        board.connect()
        client.stop()
    start = boottime()
    with pytest.raises(ConnectionFailure, match=r"client= .* not running"):
        board.post("resize") if started else board.connect()
    board.close()
    assert boottime() - start < 20
    client.close()


def test_servers_that_refuse_the_callers_client_for_older_data_are_named(private_board: Any, tmp_path: Path) -> None:
    client = KazooClient(private_board.server.uri.partition("//")[2])
    client.start()
    board = jobboard.fetch("callers", {"board": "zookeeper", "retry_for": 0}, client=client)
    board.connect()
    backup = Backup(private_board.server, tmp_path / "backup")
    eventually(lambda: board.connected)
    held = board.post("held")
    board.claim(held, "anna")
    backup.restore()

    def refused() -> bool:
        with pytest.raises(ConnectionFailure) as failure:
            board.post("resize")
        return "restart() the client" in str(failure.value)

    eventually(refused, 60)
    client.restart()
    assert take(board, "bert", names=[board.post("again").name]).name == "again"
    with pytest.raises(ClaimLost):
        board.consume(held, "anna")
    board.close()
    client.stop()
    client.close()


def test_boards_on_one_client_keep_their_own_claims(shared: Callable[[], Any]) -> None:
    one, two = shared(), shared()
    jobs = one.post_many([Posting("resize")] * 2)
    first, second = take(one), take(two)
    one.close()
    assert owner_of(two, second) is not None
    assert take(two, "bert") == first
    assert [first, second] == jobs
    two.consume(second, "anna")


def test_a_forked_child_may_not_use_the_callers_client(shared: Callable[[], Any]) -> None:
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


def test_a_claim_that_arrives_while_the_board_closes_is_given_back(
    shared: Callable[[], Any], make_board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session goes on, as it is the caller's."""
    board, other = shared(), make_board(claim_ttl=60)
    board.post("warm up")
    board.consume(take(board), "anna")
    job = other.post("resize")
    arrived, go_on, mine, commit = threading.Event(), threading.Event(), connection_of(board), Connection.commit

    def held(connection: Connection, ops: Any) -> Any:
        answers = commit(connection, ops)
        if connection is mine and not arrived.is_set():
            arrived.set()
            assert go_on.wait(20)
        return answers

    monkeypatch.setattr(Connection, "commit", held)
    claiming = Background(lambda: board.claim_next("anna"))
    assert arrived.wait(20)
    assert owner_of(other, job) is not None
    Background(board.close).wait(20)
    go_on.set()
    with pytest.raises(ConnectionFailure):
        claiming.wait(20)
    assert take(other, "bert", timeout=20) == job


def test_a_board_that_closes_without_a_connection_gives_its_claims_back_later(
    proxy: FaultyProxy, make_board: Any, board_conf: dict[str, Any]
) -> None:
    client = KazooClient(f"{proxy.host}:{proxy.port}", timeout=60)
    client.start()
    conf = {"board": "zookeeper", "namespace": board_conf["namespace"], "retry_for": 0.2}
    board, other = jobboard.fetch("board", conf, client=client), make_board(claim_ttl=60)
    board.connect()
    job = board.post("resize")
    take(board)
    session = client.client_id[0]
    proxy.refuse()
    proxy.cut()
    eventually(lambda: not client.connected)
    board.close()
    proxy.restore()
    assert take(other, "bert", timeout=20) == job
    assert client.client_id[0] == session
    eventually(lambda: not client.state_listeners)
    client.stop()
    client.close()


def test_a_closed_board_leaves_nothing_in_the_callers_client(caller: KazooClient, shared: Callable[[], Any]) -> None:
    heard: list[Any] = []
    caller.add_listener(heard.append)
    mine = f"/mine-{id(heard)}"
    caller.create(mine)
    caller.get(mine, watch=heard.append)
    board = shared()
    events = EventLog(board)
    board.register_entity(Entity("conductor", "one"))
    job = board.post("resize")
    events.expect(job, "POSTED")
    board.claim(job, "anna")
    eventually(functools.partial(_waits, board))
    root = root_of(board)
    board.close()
    assert caller.connected
    assert caller.state_listeners == {heard.append}
    assert set(caller._data_watchers) == {mine}
    assert not any(caller._child_watchers.values())
    assert caller.get_children(f"{root}/alive") == []
    caller.set(mine, b"x")
    eventually(lambda: heard)
    board.connect()
    assert board.claim_next("anna") == job


def _waits(board: Any) -> bool:
    """Wait a moment, and return whether the board has left its watches."""
    return board.claim_next("bert", timeout=0.05) is None and bool(driver_of(board)._armed)
