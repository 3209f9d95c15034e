"""Connections to servers that are away, silent, slow or asleep, and connections that break."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import ReplyHeader

import jobboard
from jobboard.backends.zookeeper.connection import Connection
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Entity
from jobboard.runtime import boottime
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, take
from jobboard.testing.faults import FaultyProxy
from tests.backends.zookeeper.conftest import connection_of

pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.timeout(120)]


@pytest.mark.rule("Closing a board gives up its claims at the first failure, and waits for no dead server.")
@pytest.mark.rule("A call waits for a server no longer than it was asked.")
def test_calls_wait_for_an_absent_server_as_long_as_retry_for(private_board: Any) -> None:
    hasty, patient, closing = (private_board(claim_ttl=60, retry_for=limit) for limit in (0.5, 60, 60))
    closing.register_entity(Entity("conductor", "one"))
    hasty.post("resize")
    private_board.server.kill()
    eventually(lambda: not any(board.connected for board in (hasty, patient, closing)))
    for call in (
        lambda: hasty.post("other"),
        lambda: hasty.claim_next("anna"),
        lambda: list(hasty.iterjobs()),
        lambda: hasty.job_count,
        lambda: hasty.wait(0),
    ):
        start = boottime()
        with pytest.raises(ConnectionFailure):
            call()
        assert 0.5 <= boottime() - start < 20
    late = Background(lambda: patient.post("late"))
    # A board that closes has to sign off, and does not wait for that.
    start = boottime()
    closing.close()
    assert boottime() - start < 20
    private_board.server.start()
    assert late.wait(60).name == "late"
    eventually(lambda: hasty.connected)
    assert [job.name for job in hasty.iterjobs()] == ["resize", "late"]


# Opening a board


@pytest.mark.rule("A silent server is given up within seconds, and a slow start is none.")
def test_a_client_whose_thread_starts_late_has_not_given_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, go_on = SequentialThreadingHandler.spawn, threading.Event()

    def late(handler: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            go_on.wait(20)
            func(*args, **kwargs)

        return spawn(handler, run)

    monkeypatch.setattr(SequentialThreadingHandler, "spawn", late)
    timer = threading.Timer(0.5, go_on.set)
    timer.start()
    with jobboard.backend("board", f"zookeeper://{address}") as board:
        assert board.post("resize").name == "resize"
    timer.join()


@pytest.mark.rule("A silent server is given up within seconds, and a slow start is none.")
def test_a_server_may_be_slow_while_a_board_is_opened(proxy: FaultyProxy) -> None:
    """No claims wait for a heartbeat yet, so an answer may come later than a third of the session timeout."""
    answered = threading.Event()
    answer = threading.Timer(2.4, answered.set)

    def slow() -> None:
        answer.start()
        answered.wait(20)

    fault = proxy.after(slow, matching=b"/layout")
    with jobboard.backend("board", f"zookeeper://{proxy.host}:{proxy.port}?claim_ttl=6&retry_for=0") as board:
        assert fault.happened
        board.post("resize")


@pytest.mark.rule("connect() lives through a connection that breaks at any of its questions.")
@pytest.mark.parametrize("ask", ["read", "is_single", "commit"])
def test_connect_asks_again_after_a_broken_connection(
    proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, ask: str
) -> None:
    """``command_retry`` bounds the repetitions. Any request of connect() may meet the break."""
    real, times = getattr(Connection, ask), [1]

    def breaking(connection: Connection, *args: Any, **kwargs: Any) -> Any:
        if times[0]:
            times[0] -= 1
            proxy.cut()
            raise ConnectionFailure("the connection broke", outcome="unknown")
        return real(connection, *args, **kwargs)

    monkeypatch.setattr(Connection, ask, breaking)
    uri = f"zookeeper://{proxy.host}:{proxy.port}"
    conf = {"board": uri, "namespace": f"breaks-{id(request)}", "command_retry": {"max_tries": 2}}
    with jobboard.backend("board", conf) as board:
        assert times == [0]
        assert board.post("resize").name == "resize"
    times[0] = 9
    with pytest.raises(ConnectionFailure, match="broke"):
        jobboard.fetch("other", conf).connect()


# A member of an ensemble that sleeps over a request until it is asked for something else, as 3.8.0 may


@pytest.fixture
def sleepy(proxy: FaultyProxy, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A board behind the proxy, not connected yet. It repeats no call."""
    board = jobboard.fetch(
        "board", f"zookeeper://{proxy.host}:{proxy.port}?claim_ttl=60&retry_for=0&namespace=sleep{id(request)}"
    )
    yield board
    board.close()


@pytest.mark.rule("A server that sleeps over a request is asked again.")
def test_connect_wakes_a_sleeping_server(sleepy: Any, proxy: FaultyProxy) -> None:
    fault = proxy.hold(matching=b"/layout")
    sleepy.connect()
    assert fault.happened


ACTS: dict[str, tuple[bytes, Callable[[Any], Any]]] = {
    "a change": (b"/bell", lambda board: board.post("resize")),
    "a read": (b"/side/entity", lambda board: board.entities()),
    "a count": (b"/timed", lambda board: board.job_count),
    "a watch": (b"/bell", lambda board: board.claim_next("anna", timeout=0.3)),
}


@pytest.mark.rule("A server that sleeps over a request is asked again.")
@pytest.mark.parametrize("act", ACTS)
def test_a_call_wakes_a_sleeping_server(
    sleepy: Any, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture, act: str
) -> None:
    matching, call = ACTS[act]
    sleepy.connect()
    fault = proxy.hold(matching=matching)
    call(sleepy)
    assert fault.happened
    assert "trying again" not in caplog.text


# Replies that kazoo can't match with requests, as they come from servers that have lost their leader


def misplace_next_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kazoo read another number in the next reply to a request."""
    real, left = ReplyHeader.deserialize, [1]

    def misplaced(data: bytes, offset: int) -> Any:
        header, offset = real(data, offset)
        if header.xid > 0 and left:
            left.clear()
            header = header._replace(xid=0)
        return header, offset

    monkeypatch.setattr(ReplyHeader, "deserialize", misplaced)


# kazoo's thread ends with the error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reply_out_of_turn_is_a_broken_connection(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    board, hasty = make_board(claim_ttl=60), make_board(claim_ttl=60, retry_for=0)
    job = board.post("resize")
    for call in (lambda: board.job_count, lambda: take(board), lambda: board.post("other")):
        session = connection_of(board).session_id
        misplace_next_reply(monkeypatch)
        assert call()
        assert connection_of(board).session_id != session
    assert board.job_count == 2
    assert board.find_owner(job) == "anna"
    # Its counter of jobs is known then, so the next post is one change.
    hasty.post("warm")
    misplace_next_reply(monkeypatch)
    with pytest.raises(ConnectionFailure) as caught:
        hasty.post("resize")
    assert caught.value.outcome == "unknown"
    assert isinstance(caught.value.cause, RuntimeError)
