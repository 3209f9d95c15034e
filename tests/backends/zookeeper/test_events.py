"""Events of other processes that are heard across breaks of the connection."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.testing import eventually
from jobboard.testing.conformance.support import EventLog
from jobboard.testing.puppet import Puppet

pytestmark = pytest.mark.backends("zookeeper")


def test_a_listener_hears_on_after_the_server_was_away(private_board: Any, caplog: pytest.LogCaptureFixture) -> None:
    """So does a listener that begins while the server is away. The log says that it can't listen yet."""
    early, late, other = private_board(retry_for=60), private_board(), private_board(retry_for=60)
    heard = EventLog(early)
    private_board.server.kill()
    heard_late = EventLog(late)
    assert "can't listen" in caplog.text
    private_board.server.start()
    job = other.post("a")
    eventually(lambda: heard.of(job) == ["POSTED"], 60)
    eventually(lambda: other.post("a") and heard_late.seen, 60)


def test_a_listener_hears_on_in_the_next_session(make_board: Any, expire: Callable[[Any], None]) -> None:
    board, other = make_board(), make_board()
    events = EventLog(board)
    before = other.post("before")
    events.expect(before, "POSTED")
    expire(board)
    job = other.post("a")
    eventually(lambda: events.of(job) == ["POSTED"], 60)
    events.expect(before, "POSTED")


def test_a_forked_child_listens_by_itself(make_board: Any, board_conf: dict[str, Any]) -> None:
    """And leaves the listener of its parent alone."""
    board = make_board()
    puppet = Puppet(board.name, board_conf)
    events = EventLog(board)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            names: list[str] = []
            board.notifier.register("POSTED", lambda event, details: names.append(details["job"].name))
            first = board.post("first")
            eventually(lambda: first.name in names)
            os.write(writing, b".")
            eventually(lambda: "a" in names)
            board.close()
            os.write(writing, b"a")
        finally:
            os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"."
    job = puppet("post", "a")
    assert os.read(reading, 10) == b"a"
    os.waitpid(child, 0)
    events.expect(job, "POSTED")
    events.expect(puppet("post", "b"), "POSTED")
    puppet.end()
    os.close(reading)
