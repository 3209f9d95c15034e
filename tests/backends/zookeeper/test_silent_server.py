"""Servers that are silent, slow, or gone again, while a client connects."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

import jobboard
from jobboard.backends.zookeeper.connection import Connection
from jobboard.exceptions import ConnectionFailure

pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.timeout(120)]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of somebody who accepts connections, and reads and writes nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_it_is_passed_over_for_another(silent: int, address: str) -> None:
    hosts = f"127.0.0.1:{silent},{address}"
    with jobboard.backend("board", {"board": "zookeeper", "hosts": hosts, "randomize_hosts": False}) as board:
        assert board.post("resize").name == "resize"


def test_one_that_was_just_started_has_not_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of a client may come to run late, on a machine that has much to do."""
    spawn = SequentialThreadingHandler.spawn
    go_on = threading.Event()

    def late(handler: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            go_on.wait(20)
            func(*args, **kwargs)

        return spawn(handler, run)

    monkeypatch.setattr(SequentialThreadingHandler, "spawn", late)
    timer = threading.Timer(1.5, go_on.set)
    timer.start()
    with jobboard.backend("board", f"zookeeper://{address}") as board:
        assert board.post("resize").name == "resize"
    timer.join()


def test_a_server_may_be_slow_while_a_board_is_opened(private_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept yet, so that it may answer later than a heartbeat could wait."""
    server = private_server("zookeeper")
    commit = Connection.commit
    events: list[str] = []

    def resume() -> None:
        events.append("resumed")
        server.resume()

    def slow(connection: Connection, ops: Any) -> Any:
        if not events:
            events.append("paused")
            server.pause()
            threading.Timer(2.4, resume).start()
        return commit(connection, ops)

    with monkeypatch.context() as patch:
        board = jobboard.fetch("board", {"board": server.uri, "claim_ttl": 6})
        patch.setattr(Connection, "commit", slow)
        board.connect()
    assert events == ["paused", "resumed"]
    board.post("resize")
    board.close()


def test_a_connection_that_breaks_while_a_board_is_opened(
    address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    commit = Connection.commit
    breaks = iter([True, True])

    def broken(connection: Connection, ops: Any) -> Any:
        if next(breaks, False):
            connection.open()._connection._socket.shutdown(socket.SHUT_RDWR)
            raise ConnectionFailure("the connection broke", outcome="unknown")
        return commit(connection, ops)

    monkeypatch.setattr(Connection, "commit", broken)
    conf = {"board": f"zookeeper://{address}", "namespace": f"breaks-{id(request)}"}
    with jobboard.backend("board", {**conf, "command_retry": {"max_tries": 5}}) as board:
        assert board.post("resize").name == "resize"
    breaks = iter([True, True])
    other = jobboard.fetch("other", {**conf, "command_retry": {"max_tries": 2}})
    with pytest.raises(ConnectionFailure, match="broke"):
        other.connect()


@pytest.mark.parametrize("ask", ["read", "alone"])
def test_a_connection_that_breaks_with_any_question_of_connect(
    address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, ask: str
) -> None:
    """As where the leader dies while a process starts."""
    real = getattr(Connection, ask)
    board = jobboard.fetch("board", f"zookeeper://{address}?namespace=questions-{id(request)}")
    board.setup()
    broken = []

    def breaking(connection: Connection, *args: Any, **kwargs: Any) -> Any:
        if not broken:
            broken.append(ask)
            connection.open()._connection._socket.shutdown(socket.SHUT_RDWR)
        return real(connection, *args, **kwargs)

    monkeypatch.setattr(Connection, ask, breaking)
    board.connect()
    assert broken == [ask]
    assert board.post("resize").name == "resize"
    board.close()
