"""Events of other processes: heard once each, through breaks of the connection, and free where nobody listens."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.backends.zookeeper.events import Events as Hearing
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, EventLog, let_lapse, take
from jobboard.testing.puppet import Puppet

pytestmark = pytest.mark.backends("zookeeper")


def listeners() -> int:
    return sum(thread.name == "jobboard-listener" for thread in threading.enumerate())


def watched(client: Any) -> set[str]:
    return {path.rpartition("/")[2] for path, calls in client._child_watchers.items() if calls}


class Heard(EventLog):
    """What is told; each act waits until the last one was heard, as what comes and goes at once is not."""

    def __init__(self, board: Any) -> None:
        self.jobs: list[Any] = []
        super().__init__(board)

    def _hear(self, event: str, details: dict[str, Any]) -> None:
        self.jobs.append(details["job"])
        super()._hear(event, details)


class TestHeard:
    def test_the_life_of_anothers_job(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        heard = Heard(board)
        story: list[str] = []

        def then(act: Callable[[], Any], *events: str) -> None:
            act()
            story.extend(events)
            heard.expect(job, *story)

        job = other.post("resize", details={"size": 3}, key="k")
        then(lambda: None, "POSTED")
        then(lambda: other.claim(job, "anna"), "CLAIMED")
        then(lambda: other.abandon(job, "anna", error="not yet"), "ABANDONED")
        then(lambda: other.claim(job, "anna", LONG), "CLAIMED")
        then(lambda: other.extend(job, "anna", 2 * LONG), "EXTENDED")
        then(lambda: other.extend(job, "anna"), "EXTENDED")
        then(lambda: other.release(job), "RELEASED")
        then(lambda: other.claim(job, "bert"), "CLAIMED")
        then(lambda: other.abandon(job, "bert", delay=LONG), "ABANDONED")
        then(lambda: other.cancel(job, reason="bad"), "TRASHED", "REMOVAL")
        assert (heard.jobs[-1].seen_state, heard.jobs[-1].error) == ("TRASHED", "bad")
        then(lambda: other.restore(job), "POSTED")
        then(lambda: other.claim(job, "anna"), "CLAIMED")
        assert heard.jobs[-1]._record.who == "anna"
        then(lambda: other.consume(job, "anna"), "CONSUMED", "REMOVAL")
        assert heard.jobs[-1].seen_state == "COMPLETE"
        for told in heard.jobs:
            assert (told.name, told.details, told.key) == ("resize", {"size": 3}, "k")
            assert told.board is board

    def test_of_jobs_that_were_there_before(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        free, held, gone, late = (other.post(name, delay=LONG if name == "late" else None) for name in "abcd")
        other.claim(held, "anna")
        heard = Heard(board)
        other.claim(free, "anna")
        heard.expect(free, "CLAIMED")
        other.release(other.get(held.uuid))
        heard.expect(held, "RELEASED")
        other.claim(gone, "anna")
        heard.expect(gone, "CLAIMED")
        other.consume(gone, "anna")
        heard.expect(gone, "CLAIMED", "CONSUMED", "REMOVAL")
        other.cancel(late)
        heard.expect(late, "TRASHED", "REMOVAL")

    def test_ones_own_acts_once(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        here = Heard(board)
        job = board.post("a")
        board.claim(job, "anna")
        board.extend(job, "anna", LONG)
        board.abandon(job, "anna")
        board.cancel(job)
        board.restore(job)
        board.consume(take(board), "anna")
        # What the other one does is told behind all that its lists still had to tell.
        for _ in range(2):
            last = other.post("b")
            here.expect(last, "POSTED")
        here.expect(
            job,
            *("POSTED", "CLAIMED", "EXTENDED", "ABANDONED", "TRASHED", "REMOVAL"),
            *("POSTED", "CLAIMED", "CONSUMED", "REMOVAL"),
        )

    def test_what_was_refused_is_still_heard_of_others(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        job = other.post("a")
        heard = Heard(board)
        other.claim(job, "bert", LONG)
        # What this one knows of the job is old: its own claim is refused by the server.
        assert board.claim_next("anna") is None
        heard.expect(job, "CLAIMED")

    def test_of_batches(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        heard = Heard(board)
        jobs = other.post_many([{"name": "a"}] * 30)
        for job in jobs:
            heard.expect(job, "POSTED")
        taken = other.claim_many("anna", 30)
        for job in jobs:
            heard.expect(job, "POSTED", "CLAIMED")
        other.consume_many(taken, "anna")
        for job in jobs:
            heard.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")

    def test_a_lapse_that_ends_in_the_trash(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        job = other.post("a", max_attempts=1)
        let_lapse(other, job)
        heard = Heard(board)
        assert other.claim_next("bert") is None
        heard.expect(job, "TRASHED", "REMOVAL")

    def test_on_a_client_of_the_callers(self, make_board: Any, caller: Any, address: str) -> None:
        other = make_board()
        conf = {"board": "zookeeper", "namespace": other._conf["namespace"]}
        import jobboard

        with jobboard.backend(other.name, conf, client=caller) as board:
            heard = Heard(board)
            heard.expect(other.post("a"), "POSTED")
        assert watched(caller) == set()

    def test_many_more_than_are_kept(self, make_board: Any, caller: Any) -> None:
        """What all have had time to hear is dropped."""
        board, other = make_board(), make_board()
        heard = Heard(board)
        store = other.engine._opened
        for _ in range(12):
            other.post_many([{"name": "a"}] * 100)
            other.consume_many(other.claim_many("anna", 100), "anna")
        heard.expect(other.post("b"), "POSTED")
        assert len(caller.get_children(store.paths.events)) <= 40


class TestFree:
    def test_nothing_is_watched_where_nobody_listens(self, make_board: Any) -> None:
        board = make_board()
        board.post("a")
        board.consume(take(board), "anna")
        assert board.claim_next("anna", timeout=0.01) is None
        # A waiter's own.
        assert watched(board.engine._opened.connection.open()) <= {"alive"}
        assert listeners() == 0

    def test_after_the_last_listener_has_gone(self, make_board: Any) -> None:
        board, other = make_board(), make_board()
        events = [EventLog(board), EventLog(board, "POSTED")]
        assert listeners() == 1
        board.notifier.deregister("*", events[0]._hear)
        assert listeners() == 1
        board.notifier.deregister("POSTED", events[1]._hear)
        eventually(lambda: listeners() == 0)
        sent = board.engine._opened.connection.sent
        for _ in range(3):
            other.consume(other.claim_next("anna") or take(other), "anna") if other.job_count else other.post("a")
        assert board.engine._opened.connection.sent == sent

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

    @pytest.mark.parametrize("harm", ["restart", "kill"])
    def test_a_server_that_ends(self, private_board: Any, harm: str) -> None:
        board, other = private_board(retry_for=60), private_board(retry_for=60)
        events = EventLog(board)
        server = private_board.server
        if harm == "restart":
            server.restart()
        else:
            server.kill()
            server.start()
        job = other.post("a")
        events.expect(job, "POSTED")
        other.claim(job, "anna")
        events.expect(job, "POSTED", "CLAIMED")
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
        job = other.post("a")
        events.expect(job, "POSTED")
        events.expect(before, "POSTED")
        board.close()

    def test_what_was_done_meanwhile(self, private_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        board, other = private_board(), private_board()
        gone = other.post("gone")
        waits, breaks, broken = threading.Event(), threading.Event(), threading.Event()
        original = Hearing._hear

        def hear(hearing: Hearing) -> None:
            if breaks.is_set():
                broken.set()
                raise ConnectionFailure("the connection broke")
            original(hearing)
            waits.set()

        monkeypatch.setattr(Hearing, "_hear", hear)
        events = EventLog(board)
        # One that still reads would hear of it all, and find nothing broken.
        assert waits.wait(LIMIT)
        breaks.set()
        other.consume(take(other), "anna")
        job = other.post("a")
        assert broken.wait(LIMIT)
        assert not events.of(job)
        breaks.clear()
        events.expect(job, "POSTED")
        assert events.of(gone) == ["CLAIMED", "CONSUMED", "REMOVAL"]
        board.close()

    def test_what_is_told_was_deleted(self, private_board: Any) -> None:
        board, other = private_board(), private_board()
        events = EventLog(board)
        events.expect(other.post("before"), "POSTED")
        other.engine._opened.connection.open().delete(other.engine._opened.paths.events, recursive=True)
        events.expect(other.post("a", delay=LONG), "POSTED")
        board.close()

    def test_what_one_that_is_being_closed_does_not_tell_is_not_missed(
        self, make_board: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        board, other = make_board(), make_board()
        EventLog(board)
        store = board.engine._opened
        read = store.connection.read

        def closed_meanwhile(requests: list[Any]) -> list[Any]:
            found: list[Any] = read(requests)
            if threading.current_thread() is listener and len(found) > 2 and found[1] is not None:
                store.events._over = True
            return found

        listener = store.events._thread
        monkeypatch.setattr(store.connection, "read", closed_meanwhile)
        other.post("a")
        assert eventually(lambda: store.events._over)
        board.close()
        assert "missed" not in caplog.text

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
                eventually(lambda: board.engine._opened.events._following is not None)
                os.write(writing, b".")
                eventually(lambda: names)
                board.close()
                os.write(writing, names[0].encode())
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
