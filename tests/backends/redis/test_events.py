"""Events of other processes: heard once each, through breaks of the connection, and free where nobody listens."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.notifier import EVENTS
from jobboard.testing import eventually
from jobboard.testing.conformance.support import EventLog, take

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


def ears(place: Any) -> int:
    """How many are subscribed to the events."""
    return int(place.call("PUBSUB", "SHARDNUMSUB", place.key("meta") + ":events")[1])


def listeners() -> int:
    return sum(thread.name == "jobboard-listener" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_listeners() -> None:
    """Those of other tests may still be about to end."""
    eventually(lambda: listeners() == 0)


class TestHeard:
    def test_the_life_of_another_processs_job(self, place: Any) -> None:
        board = place.board()
        told: list[tuple[str, Any]] = []
        board.notifier.register("*", lambda event, details: told.append((event, details["job"])))
        done = subprocess.run(
            [sys.executable, "-c", LIFE, place.server.uri], stdout=subprocess.PIPE, text=True, check=True
        )
        eventually(lambda: len(told) >= len(STORY))
        assert tuple(event for event, _ in told) == STORY
        assert {job.uuid for _, job in told} == {done.stdout.strip()}
        for event, job in told:
            assert (job.name, job.details, job.key) == ("resize", {"size": 3}, "k")
            assert job.board is board
            if event == "TRASHED":
                assert (job.seen_state, job.error) == ("TRASHED", "bad")
            if event == "CONSUMED":
                assert job.seen_state == "COMPLETE"
            if event in ("CLAIMED", "EXTENDED"):
                assert job.seen_state == "CLAIMED"
                assert job.record.who in ("anna", "bert")
        assert set(STORY) == EVENTS - {"LOST"}

    def test_ones_own_acts_once(self, place: Any) -> None:
        board, other = place.board(), place.board()
        here, there = EventLog(board), EventLog(other)
        job = board.post("a")
        board.claim(job, "anna")
        board.consume(job, "anna")
        told = ("POSTED", "CLAIMED", "CONSUMED", "REMOVAL")
        there.expect(job, *told)
        # What the other one does comes behind all that its listener still had to tell.
        last = other.post("b")
        here.expect(last, "POSTED")
        here.expect(job, *told)

    def test_of_batches(self, place: Any) -> None:
        board, other = place.board(), place.board()
        events = EventLog(board)
        jobs = other.post_many([{"name": "a"}] * 3)
        taken = other.claim_many("anna", 3)
        other.consume_many(taken, "anna")
        for job in jobs:
            events.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")

    def test_a_lapse_that_ends_in_the_trash(self, place: Any) -> None:
        board, other = place.board(), place.board()
        events = EventLog(board)
        job = other.post("a", max_attempts=1)
        other.claim(job, "anna", expiry=0.001)
        eventually(lambda: other.get(job.uuid).state == "TRASHED")
        assert other.claim_next("bert") is None
        events.expect(job, "POSTED", "CLAIMED", "TRASHED", "REMOVAL")


class TestFree:
    def test_nothing_is_told_where_nobody_listens(self, place: Any) -> None:
        board = place.board()
        place.count()
        board.post("a")
        board.consume(take(board), "anna")
        assert place.calls["spublish"] == place.calls["publish"] == 0

    def test_after_the_last_listener_has_gone(self, place: Any) -> None:
        board, other = place.board(), place.board()
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

    def test_of_several_listeners_one_goes(self, place: Any) -> None:
        boards = [place.board() for _ in range(3)]
        events = [EventLog(board) for board in boards[:2]]
        boards[0].close()
        assert listeners() == 1
        job = boards[2].post("a")
        events[1].expect(job, "POSTED")
        assert ears(place) == 1

    def test_a_closed_board_hears_again_once_it_is_connected(self, place: Any) -> None:
        board, other = place.board(), place.board()
        events = EventLog(board)
        board.close()
        assert listeners() == 0
        board.connect()
        job = other.post("a")
        events.expect(job, "POSTED")


def _kill_ears(place: Any) -> None:
    place.call("CLIENT", "KILL", "TYPE", "pubsub")


def _kill_all(place: Any) -> None:
    place.call("CLIENT", "KILL", "TYPE", "normal")
    place.call("CLIENT", "KILL", "TYPE", "pubsub")


def _forget(place: Any) -> None:
    place.call("SCRIPT", "FLUSH")


def _restart(place: Any) -> None:
    place.server.restart()


def _crash(place: Any) -> None:
    place.server.kill()
    place.server.start()


def test_what_can_not_be_read(place: Any) -> None:
    board, other = place.board(), place.board()
    events = EventLog(board)
    for garbage in ("x", 1, "[]"):
        assert place.call("SPUBLISH", place.key("meta") + ":events", garbage) == 1
    job = other.post("a")
    events.expect(job, "POSTED")


@pytest.mark.parametrize("harm", [_kill_ears, _kill_all, _forget, _restart, _crash])
def test_breaks(place: Any, harm: Callable[[Any], None]) -> None:
    board, other = place.board(), place.board()
    events = EventLog(board)
    assert ears(place) == 1
    harm(place)
    eventually(lambda: ears(place) == 1)
    job = other.post("a")
    other.claim(job, "anna")
    events.expect(job, "POSTED", "CLAIMED")
    assert listeners() == 1


def test_an_outage_is_told_once_and_so_is_its_end(place: Any, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_board_that_is_closed_while_its_server_is_away(place: Any) -> None:
    board = place.board(retry_for=0)
    EventLog(board)
    place.server.kill()
    board.close()
    assert listeners() == 0


def test_in_a_forked_child(place: Any) -> None:
    """The child hears on a connection of its own, and what it does with it is nothing to the parent."""
    board, other = place.board(), place.board()
    events = EventLog(board)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            heard: list[str] = []
            board.notifier.register("POSTED", lambda event, details: heard.append(details["job"].name))
            os.write(writing, b".")
            eventually(lambda: heard)
            board.close()
            os.write(writing, heard[0].encode())
        finally:
            os._exit(0)
    assert os.read(reading, 1) == b"."
    eventually(lambda: ears(place) == 2)
    job = other.post("a")
    assert os.read(reading, 10) == b"a"
    os.waitpid(child, 0)
    events.expect(job, "POSTED")
    job = other.post("b")
    events.expect(job, "POSTED")
    os.close(reading)
    os.close(writing)
