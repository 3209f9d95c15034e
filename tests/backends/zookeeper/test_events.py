"""Events of other processes that are heard across breaks of the connection."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.testing import eventually
from jobboard.testing.conformance.support import EventLog

pytestmark = pytest.mark.backends("zookeeper")


@pytest.mark.rule("A listener that begins while the server is away hears from then on.")
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


@pytest.mark.rule("A board hears what other processes do.")
def test_a_listener_hears_on_in_the_next_session(make_board: Any, expire: Callable[[Any], None]) -> None:
    board, other = make_board(), make_board()
    events = EventLog(board)
    before = other.post("before")
    events.expect(before, "POSTED")
    expire(board)
    job = other.post("a")
    eventually(lambda: events.of(job) == ["POSTED"], 60)
    events.expect(before, "POSTED")
