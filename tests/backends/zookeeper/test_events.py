"""Events of other processes: heard through breaks of the connection, and free where nobody listens."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, EventLog, take
from jobboard.testing.puppet import Puppet
from tests.backends.zookeeper.inside import connection_of

pytestmark = pytest.mark.backends("zookeeper")


def listeners() -> int:
    return sum(thread.name == "jobboard-listener" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_listeners() -> None:
    """Those of other tests may still be about to end."""
    eventually(lambda: listeners() == 0)


def watched(client: Any) -> set[str]:
    return {path.rpartition("/")[2] for path, calls in client._child_watchers.items() if calls}


class TestHeard:
    def test_what_comes_and_goes(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        events = EventLog(board)
        job, bad = other.post("resize"), other.post("bad", delay=LONG)
        events.expect(job, "POSTED")
        events.expect(bad, "POSTED")
        other.consume(take(other), "anna")
        events.expect(job, "POSTED", "REMOVAL")
        other.cancel(bad)
        events.expect(bad, "POSTED", "TRASHED", "REMOVAL")

    def test_on_a_client_of_the_callers(self, make_board: Any, caller: Any) -> None:
        other = make_board()
        conf = {"board": "zookeeper", "namespace": other._conf["namespace"]}
        with jobboard.backend(other.name, conf, client=caller) as board:
            EventLog(board).expect(other.post("a"), "POSTED")
        assert watched(caller) == set()


class TestFree:
    def test_nothing_is_watched_where_nobody_listens(self, make_board: Any) -> None:
        board = make_board()
        board.post("a")
        board.consume(take(board), "anna")
        assert board.claim_next("anna", timeout=0.01) is None
        # A waiter's own.
        assert watched(connection_of(board).open()) <= {"alive"}
        assert listeners() == 0

    def test_after_the_last_listener_has_gone(self, make_board: Any) -> None:
        board = make_board()
        events = [EventLog(board), EventLog(board, "POSTED")]
        assert listeners() == 1
        board.notifier.deregister("*", events[0]._hear)
        assert listeners() == 1
        board.notifier.deregister("POSTED", events[1]._hear)
        eventually(lambda: listeners() == 0)

    def test_a_closed_board_hears_again_once_it_is_connected(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        events = EventLog(board)
        board.close()
        eventually(lambda: listeners() == 0)
        board.connect()
        events.expect(other.post("a"), "POSTED")


class TestBreaks:
    @pytest.fixture(autouse=True)
    def _ends(self) -> Iterator[None]:
        yield
        eventually(lambda: listeners() == 0)

    def test_a_server_that_ends(self, private_board: Any) -> None:
        board, other = private_board(retry_for=60), private_board(retry_for=60)
        events = EventLog(board)
        private_board.server.kill()
        private_board.server.start()
        events.expect(other.post("a"), "POSTED")
        assert listeners() == 1
        board.close()

    def test_one_who_begins_to_listen_while_the_server_is_away(
        self, private_board: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is told so in the log, and listens later."""
        board, other = private_board(), private_board(retry_for=60)
        private_board.server.kill()
        events = EventLog(board)
        assert "can't listen" in caplog.text
        private_board.server.start()
        eventually(lambda: other.post("a") and events.seen)
        board.close()

    def test_a_session_that_ends(self, private_board: Any, expire: Callable[[Any], None]) -> None:
        board, other = private_board(claim_ttl=2), private_board()
        events = EventLog(board)
        before = other.post("before")
        events.expect(before, "POSTED")
        expire(board)
        events.expect(other.post("a"), "POSTED")
        events.expect(before, "POSTED")
        board.close()

    def test_in_a_forked_child(self, make_board: Any, board_conf: dict[str, Any]) -> None:
        """The child hears on a connection of its own, and what it does with it is nothing to the parent."""
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
        assert os.read(reading, 1) == b"."
        job = puppet("post", "a")
        assert os.read(reading, 10) == b"a"
        os.waitpid(child, 0)
        events.expect(job, "POSTED")
        events.expect(puppet("post", "b"), "POSTED")
        puppet.end()
        os.close(reading)
        os.close(writing)
        board.close()
