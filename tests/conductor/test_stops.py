"""Work whose job was taken away: processes are stopped, threads are told."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.conductor.child import Stopper
from jobboard.conductor.details import Takes
from jobboard.conductor.handlers import Call, Handling
from jobboard.conductor.runs import Run, Runs
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, LIMIT, Background
from tests.support import handlers
from tests.support.conductors import has_ended, listen

pytestmark = pytest.mark.backends("memory")

Notes = Callable[[], list[str]]

NAMES = ("idle", "until_cancelled", "swallow", "die_when_cancelled", "signal_the_group")
HANDLERS = {name: getattr(handlers, name) for name in NAMES}
END = ["job_claimed", "job_started", "job_finished", "job_lost"]


class Stopped:
    """A conductor that works on one job. The job is taken away as soon as its handler has written something."""

    def __init__(
        self, make_board: Any, name: str, tmp_path: Path, notes: Notes, verb: Any = "cancel", **options: Any
    ) -> None:
        # Another process has the other handle.
        board, other = make_board(claim_ttl=HELD), make_board()
        wrappers = options.pop("wrappers", ())
        self.job = board.post(name, details={"notes": str(tmp_path / "notes")})
        self.conductor = Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=1, **options)
        for wrapper in wrappers:
            self.conductor.wraps(wrapper)
        self.heard = listen(self.conductor)
        running = Background(lambda: self.conductor.run(1))
        eventually(notes, LIMIT)
        job = other.get(self.job.uuid)
        other.act(verb, [job], reason="no use", running=verb == "cancel")
        running.wait(2 * LIMIT)
        self.error = next(told["error"] for event, told in self.heard if event == "job_finished")


@pytest.fixture
def stopped(make_board: Any, tmp_path: Path, notes: Notes, caplog: pytest.LogCaptureFixture) -> Any:
    def run(name: str, verb: str = "cancel", **options: Any) -> Stopped:
        ended = Stopped(make_board, name, tmp_path, notes, verb, **options)
        assert [event for event, _ in ended.heard] == END, "lost, and never failed"
        assert (ended.conductor.tally.lost, ended.conductor.tally.dispatched) == (1, 1)
        assert ended.job.state == ("UNCLAIMED" if verb == "release" else "TRASHED")
        assert [failure.text for failure in ended.job.board.get(ended.job.uuid).errors] == ["no use"]
        said = {"release": "was released", "cancel": "was stopped"}[verb]
        assert f"one: {ended.job} {said}: no use" in caplog.text
        return ended

    return run


@pytest.mark.parametrize("verb", ["cancel", "release"])
def test_cancelled_is_raised_in_the_handler_of_a_process(stopped: Any, notes: Notes, verb: str) -> None:
    ended = stopped("until_cancelled", verb)
    assert isinstance(ended.error, jobboard.Cancelled)
    assert notes() == ["begun", f"{ended.error.reason} True"]
    assert "was taken from this worker" in ended.error.reason


def test_a_process_that_goes_on_is_killed_with_all_that_it_has_started(stopped: Any, notes: Notes) -> None:
    stopped("swallow", cancel_grace=0.5)
    pid, *told = notes()
    assert told == ["told"]
    eventually(lambda: has_ended(int(pid)), LIMIT)


def test_a_wrapper_that_swallows_the_error_hides_no_loss(stopped: Any, notes: Notes) -> None:
    stopped("until_cancelled", wrappers=[handlers.swallowing])
    assert len(notes()) == 2


def test_a_process_that_dies_before_its_report(stopped: Any) -> None:
    assert "SIGKILL" in str(stopped("die_when_cancelled").error)


@pytest.mark.rule("A signal stops the work of its own task alone, and cuts no message to the conductor.")
def test_signals_to_the_group_stop_nothing_and_break_no_stop(stopped: Any, notes: Notes) -> None:
    ended = stopped("signal_the_group")
    assert isinstance(ended.error, jobboard.Cancelled)
    assert notes() == ["begun", "ended"]


@pytest.mark.rule("A signal stops the work of its own task alone, and cuts no message to the conductor.")
def test_the_process_works_on_the_next_job(make_board: Any, tmp_path: Path, notes: Notes) -> None:
    board = make_board()
    details = {"notes": str(tmp_path / "notes")}
    job, after = board.post("until_cancelled", details=details), board.post("idle")
    conductor = Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=1)
    running = Background(lambda: conductor.run(2))
    eventually(notes, LIMIT)
    board.cancel(board.get(job.uuid), running=True)
    running.wait(2 * LIMIT)
    assert (conductor.tally.lost, conductor.tally.consumed) == (1, 1)
    assert (job.state, after.state) == ("TRASHED", "COMPLETE")


def test_a_thread_is_told_and_ends_by_an_error_that_is_no_failure(
    make_board: Any, caplog: pytest.LogCaptureFixture
) -> None:
    board, begun = make_board(), threading.Event()
    job = board.post("resize")

    def resize(job: jobboard.Job) -> None:
        begun.set()
        while True:
            jobboard.raise_if_cancelled()

    conductor = Conductor("one", board, resize)
    heard = listen(conductor)
    running = Background(lambda: conductor.run(1))
    assert begun.wait(LIMIT)
    board.cancel(board.get(job.uuid), running=True)
    running.wait()
    assert [event for event, _ in heard] == END
    assert (conductor.tally.lost, job.state, board.get(job.uuid).error) == (1, "TRASHED", None)
    assert f"one: {job} was stopped: no reason given" in caplog.text


def test_a_job_that_is_stopped_before_its_handler_begins(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes it later than it was claimed."""
    board, done = make_board(), list[str]()
    job, take = board.post("resize"), Runs.take

    def stop_and_take(runs: Runs, run: Run) -> bool:
        board.cancel(board.get(job.uuid), running=True)
        return take(runs, run)

    monkeypatch.setattr(Runs, "take", stop_and_take)
    conductor = Conductor("one", board, lambda job: done.append(job.uuid))
    Background(lambda: conductor.run(1)).wait()
    assert (done, conductor.tally.lost, job.state) == ([], 1, "TRASHED")


@pytest.mark.rule("A signal stops the work of its own task alone, and cuts no message to the conductor.")
@pytest.mark.parametrize("moment", ["before its begin", "in it", "at its end"])
def test_a_signal_at_the_edge_of_the_work(make_board: Any, moment: str) -> None:
    """It may come before the task, or when the handler has returned. It is raised once."""
    board, begun = make_board(), list[bool]()
    job = board.post("resize")
    board.claim(job, "anna")
    stopper, handling = Stopper(), Handling(lambda: None, Takes(job=False, details=frozenset()))

    def refuse() -> None:
        job.claim.refuse()
        signal.raise_signal(signal.SIGUSR1)

    def work() -> Call:
        begun.append(True)
        with Call(handling, job) as call:
            if moment == "in it":
                refuse()
        refuse()
        return call

    before = signal.signal(signal.SIGUSR1, stopper)
    try:
        if moment == "before its begin":
            refuse()
        call = stopper.run(work, job, handling)
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(call.error, jobboard.Cancelled)
    assert begun == ([] if moment == "before its begin" else [True])
