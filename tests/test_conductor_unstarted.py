"""Conductors that get no more threads or processes: no job is held for ever, and the conductor ends."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.testing import eventually
from jobboard.tracing import Tracing
from tests.conftest import Runner
from tests.support import handlers
from tests.test_conductor import LATE, MakeBoard
from tests.test_conductor_limits import Hanging

pytestmark = pytest.mark.backends("memory")


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.gate.set()


def raised_by(run: Callable[[], object]) -> list[BaseException]:
    """What ``run`` raises within the test's time; it is not waited for any longer."""
    raised: list[BaseException] = []

    def called() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=called, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return raised


def test_a_process_that_can_not_be_started(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch, start: Runner
) -> None:
    """As within a daemonic process of multiprocessing's."""
    board = make_board()
    job = board.post("a")
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    conductor = Conductor("one", board, handlers.show, workers="processes", retry=LATE)
    assert raised_by(lambda: conductor.run(1)) == []
    assert (job.state, job.attempts) == ("SCHEDULED", 1)
    assert "daemonic processes are not allowed to have children" in job.error
    assert conductor.tally.abandoned == 1


def test_a_job_that_can_not_travel_to_a_process(make_board: MakeBoard) -> None:
    class Marks(Tracing):
        def claimed(self, job: jobboard.Job, since: float) -> None:
            job.context = {"claimed": lambda: None}  # type: ignore[dict-item]

    board = make_board()
    board.tracing = Marks()
    job = board.post("a")
    conductor = Conductor("one", board, handlers.pid, workers="processes", retry=LATE)
    assert raised_by(lambda: conductor.run(1)) == []
    assert job.state == "SCHEDULED"
    assert "pickle" in job.error


def test_no_thread_at_all(make_board: MakeBoard, refused: set[str]) -> None:
    board = make_board()
    job = board.post("a")
    refused.add("one-0")
    conductor = Conductor("one", board, lambda job: None)
    [error] = raised_by(conductor.run)
    assert "can't start new thread" in str(error)
    job = board.get(job.uuid)
    assert (job.seen_state, job.attempts) == ("UNCLAIMED", 0)
    refused.clear()
    conductor.run(1)
    assert job.state == "COMPLETE"


def test_fewer_threads_than_wanted(make_board: MakeBoard, refused: set[str], start: Runner) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 20)
    refused.update(f"one-{number}" for number in range(1, 8))
    conductor = start(Conductor("one", board, lambda job: None))
    eventually(lambda: conductor.tally.consumed == 20)


def test_what_was_given_back_before_it_had_a_thread_is_not_begun(
    make_board: MakeBoard, refused: set[str], hanging: Hanging
) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 2)
    refused.add("one-1")
    conductor = Conductor("one", board, hanging, max_simultaneous_jobs=2, drain_timeout=0.2)
    threading.Thread(target=lambda: eventually(lambda: conductor.tally.dispatched == 2) and conductor.stop()).start()
    assert raised_by(conductor.run) == []
    assert board.stats().unclaimed == 2
    [slot] = [thread for thread in threading.enumerate() if thread.name == "one-0"]
    hanging.gate.set()
    slot.join(10)
    assert not slot.is_alive()
    assert len(hanging.jobs) == 1


@pytest.mark.parametrize("name", ["one-claimer", "one-scheduler"])
def test_a_conductor_that_can_not_begin_does_not_go_on_unseen(
    make_board: MakeBoard, refused: set[str], name: str
) -> None:
    board = make_board()
    before = set(threading.enumerate())
    refused.add(name)
    [error] = raised_by(Conductor("one", board, lambda job: None).run)
    assert "can't start new thread" in str(error)
    eventually(lambda: set(threading.enumerate()) <= before | {threading.current_thread()})


def test_a_thread_of_the_listeners(make_board: MakeBoard, refused: set[str]) -> None:
    """The event is not told; the work goes on."""
    board = make_board()
    board.post_many([{"name": "a"}] * 3)
    heard: list[str] = []
    board.notifier.register("*", lambda event, details: heard.append(event))
    conductor = Conductor("one", board, lambda job: None, on_error=print)
    conductor.notifier.register("*", lambda event, details: heard.append(event))
    refused.update({"one-notifier", f"{board.name}-notifier"})
    assert raised_by(lambda: conductor.run(3)) == []
    assert conductor.tally.consumed == 3
    assert heard == []
    board.close()


@pytest.mark.backends("sqlite")
def test_a_thread_of_the_heartbeat(make_board: MakeBoard, refused: set[str]) -> None:
    """What was claimed then lapses, and the next claim is renewed."""
    board = make_board(claim_ttl=1)
    board.post("a")
    refused.add(f"{board.name}-heartbeat")
    with pytest.raises(RuntimeError, match="new thread"):
        board.claim_next("me")
    refused.clear()
    job = board.claim_next("me", timeout=20)
    first = job.record.lock_until
    eventually(lambda: board.get(job.uuid).record.lock_until > first)


def test_a_thread_that_closes_the_board(make_board: MakeBoard, refused: set[str]) -> None:
    """It is closed all the same, by whoever has had it connected."""
    board = make_board()
    board.close()
    refused.add(f"{board.name}-closer")
    conductor = Conductor("one", board, lambda job: None, drain_timeout=5)
    conductor.stop()
    assert raised_by(conductor.run) == []
    assert board.closed
