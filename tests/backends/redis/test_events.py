"""Events of other processes: heard once each, through breaks of the connection, and free where no board listens."""

import threading

import pytest

from jobboard.testing import eventually
from jobboard.testing.conformance.support import EventLog, take
from tests.backends.redis.conftest import Place
from tests.backends.redis.test_waiting import HARM

pytestmark = pytest.mark.backends("redis")


def ears(place: Place) -> int:
    """Return the number of connections that listen to events."""
    return int(place.call("PUBSUB", "SHARDNUMSUB", place.key("meta") + ":events")[1])


def listeners() -> int:
    return sum(thread.name == "jobboard-listener" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_listeners() -> None:
    """Wait for the listeners of other tests to end."""
    eventually(lambda: listeners() == 0)


def test_nothing_is_published_where_no_board_listens(place: Place) -> None:
    board, other = place.board(), place.board()
    place.count()
    board.post("a")
    board.consume(take(board), "anna")
    assert place.calls["spublish"] == place.calls["publish"] == 0

    def heard(event: str, details: object) -> None:
        pass

    board.notifier.register("*", heard)
    board.notifier.register("POSTED", heard)
    assert ears(place) == listeners() == 1
    board.notifier.deregister("*", heard)
    assert listeners() == 1
    board.notifier.deregister("POSTED", heard)
    assert listeners() == 0
    eventually(lambda: ears(place) == 0)
    place.count()
    other.post("a")
    assert place.calls["spublish"] == 0


@pytest.mark.rule("An event that cannot be read does not end the listening.")
def test_a_message_that_cannot_be_read_ends_no_listening(place: Place) -> None:
    board, other = place.board(), place.board()
    events = EventLog(board)
    for garbage in ("x", 1, "[]"):
        assert place.call("SPUBLISH", place.key("meta") + ":events", garbage) == 1
    events.expect(other.post("a"), "POSTED")


@pytest.mark.parametrize("harm", HARM)
def test_a_listener_is_back_after_a_break(place: Place, harm: str) -> None:
    board, other = place.board(), place.board()
    events = EventLog(board)
    assert ears(place) == 1
    HARM[harm](place)
    eventually(lambda: other.post("probe") and events.seen)
    job = other.post("a")
    other.claim(job, "anna")
    events.expect(job, "POSTED", "CLAIMED")
    assert listeners() == 1


@pytest.mark.rule("A listening that breaks is reported once, and so is its end.")
def test_an_outage_and_its_end_are_logged_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    board = place.board()
    events = EventLog(board)
    caplog.set_level("DEBUG", "jobboard.backends.redis")

    def told(level: str) -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelname == level and "listen" in each.message]

    place.server.kill()
    eventually(lambda: told("DEBUG"))
    place.server.start()
    eventually(lambda: ears(place) == 1)
    events.expect(place.board().post("a"), "POSTED")
    first, last = told("WARNING")
    assert first.startswith("can't listen to other processes, trying again")
    assert last.startswith("listening to other processes again")


def test_a_board_is_closed_while_its_server_is_away(place: Place) -> None:
    board = place.board(retry_for=0)
    EventLog(board)
    place.server.kill()
    board.close()
    assert listeners() == 0
