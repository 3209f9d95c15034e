"""Events of other processes: heard once each, through breaks of the connection, and free where no board listens."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from jobboard.notifier import EVENTS
from jobboard.testing import eventually
from jobboard.testing.conformance.support import EventLog, take
from tests.backends.redis.conftest import Place
from tests.backends.redis.test_waiting import HARM

pytestmark = pytest.mark.backends("redis")

LIFE = """
import sys
import jobboard
with jobboard.backend('board', sys.argv[1]) as board:
    job = board.post('resize', details={'size': 3}, key='k')
    board.claim(job, 'anna')
    board.extend(job, 'anna', 60)
    board.abandon(job, 'anna', error='not yet')
    board.claim(job, 'bert')
    board.release(job)
    board.claim(job, 'bert')
    board.trash(job, 'bert', reason='bad')
    board.restore(job)
    job = board.claim_next('anna')
    board.consume(job, 'anna')
    print(job.uuid)
"""

STORY = (
    *("POSTED", "CLAIMED", "EXTENDED", "ABANDONED", "CLAIMED", "RELEASED", "CLAIMED"),
    *("TRASHED", "REMOVAL", "POSTED", "CLAIMED", "CONSUMED", "REMOVAL"),
)


def ears(place: Place) -> int:
    """Return the number of connections that listen to events."""
    return int(place.call("PUBSUB", "SHARDNUMSUB", place.key("meta") + ":events")[1])


def listeners() -> int:
    return sum(thread.name == "jobboard-listener" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_listeners() -> None:
    """Wait for the listeners of other tests to end."""
    eventually(lambda: listeners() == 0)


def test_an_event_carries_the_job_as_it_was(place: Place) -> None:
    board = place.board()
    told: list[tuple[str, Any]] = []
    board.notifier.register("*", lambda event, details: told.append((event, details["job"])))
    done = subprocess.run([sys.executable, "-c", LIFE, place.server.uri], stdout=subprocess.PIPE, text=True, check=True)
    eventually(lambda: len(told) >= len(STORY))
    assert tuple(event for event, _ in told) == STORY
    assert set(STORY) == EVENTS - {"LOST"}
    assert {job.uuid for _, job in told} == {done.stdout.strip()}
    states = {"TRASHED": "TRASHED", "CONSUMED": "COMPLETE", "CLAIMED": "CLAIMED", "EXTENDED": "CLAIMED"}
    for event, job in told:
        assert (job.name, job.details, job.key) == ("resize", {"size": 3}, "k")
        assert job.board is board
        assert job.seen_state == states.get(event, job.seen_state)


def test_a_board_hears_its_own_acts_once(place: Place) -> None:
    board, other = place.board(), place.board()
    here = EventLog(board)
    job = board.post("a")
    board.consume(take(board), "anna")
    # The event of the other handle comes behind all that the listener still had to tell.
    here.expect(other.post("b"), "POSTED")
    here.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")


def test_nothing_is_published_where_no_board_listens(place: Place) -> None:
    board, other = place.board(), place.board()
    place.count()
    board.post("a")
    board.consume(take(board), "anna")
    assert place.calls["spublish"] == place.calls["publish"] == 0
    events = [EventLog(board), EventLog(board, "POSTED")]
    assert ears(place) == listeners() == 1
    board.notifier.deregister("*", events[0]._hear)
    assert listeners() == 1
    board.notifier.deregister("POSTED", events[1]._hear)
    assert listeners() == 0
    eventually(lambda: ears(place) == 0)
    place.count()
    other.post("a")
    assert place.calls["spublish"] == 0


def test_a_board_hears_from_connect_to_close(place: Place) -> None:
    boards = [place.board() for _ in range(3)]
    events = [EventLog(board) for board in boards[:2]]
    boards[0].close()
    assert listeners() == 1
    job = boards[2].post("a")
    events[1].expect(job, "POSTED")
    eventually(lambda: ears(place) == 1)
    boards[0].connect()
    job = boards[2].post("a")
    events[0].expect(job, "POSTED")


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
