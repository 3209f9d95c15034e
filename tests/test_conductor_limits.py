"""Handlers in threads that take too long, and conductors that have to end."""

import datetime
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually
from tests.conftest import Runner
from tests.test_conductor import LATE, MakeBoard
from tests.test_conductor_hooks import listening

pytestmark = pytest.mark.backends("memory")


class Hanging:
    """A handler that heeds nothing, until the test lets go of it."""

    def __init__(self) -> None:
        self.jobs: list[jobboard.Job] = []
        self.gate = threading.Event()
        self.ended = threading.Semaphore(0)

    def __call__(self, job: jobboard.Job) -> None:
        self.jobs.append(job)
        assert self.gate.wait(30)
        self.ended.release()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.gate.set()


def told_by(board: jobboard.JobBoard) -> tuple[int, int]:
    """How many handlers run, and how many hang."""
    [entity] = board.entities("conductor")
    return entity.metadata["running"], entity.metadata["hung"]


def test_a_handler_that_heeds_its_timeout(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    job = board.post("a")
    told = threading.Event()

    def handler(job: jobboard.Job) -> None:
        eventually(jobboard.cancelled)
        assert job.claim.lost
        told.set()

    conductor = Conductor("one", board, handler, job_timeout=0.1, max_simultaneous_jobs=1, retry=LATE)
    heard = listening(conductor)
    start(conductor)
    assert told.wait(30)
    eventually(lambda: conductor.tally.abandoned == 1)
    assert job.state == "SCHEDULED"
    assert job.error.startswith("Where it was:")
    assert "in handler" in job.error
    assert job.error.endswith("was still at work after 0.1 s, its timeout\n")
    eventually(lambda: "job_failed" in [event for event, _ in heard])
    error = next(details["error"] for event, details in heard if event == "job_failed")
    assert isinstance(error, TimeoutError)
    board.post("a")
    eventually(lambda: conductor.tally.abandoned == 2)
    eventually(lambda: len(heard) == 10)
    assert [event for event, _ in heard].count("job_finished") == 2


def test_a_handler_that_heeds_nothing_keeps_its_slot(
    make_board: MakeBoard, start: Runner, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board(claim_ttl=1.5)
    job = board.post("hang")
    conductor = Conductor("one", board, max_simultaneous_jobs=2, job_timeout=1000, retry=LATE)
    conductor.handles("hang", timeout=0.1)(hanging)
    threads: set[int] = set()

    @conductor.handles("a")
    def quick(job: jobboard.Job) -> None:
        threads.add(threading.get_ident())

    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 1)
    assert job.state == "SCHEDULED"
    board.post_many([{"name": "a"}] * 6)
    eventually(lambda: conductor.tally.consumed == 6)
    assert len(threads) == 1
    eventually(lambda: told_by(board) == (0, 1))
    hanging.gate.set()
    assert hanging.ended.acquire(timeout=30)
    eventually(lambda: "does not count" in caplog.text)
    eventually(lambda: told_by(board) == (0, 0))
    assert conductor.tally == type(conductor.tally)(7, 6, 1, 0, 0)


def test_a_conductor_whose_slots_all_hang_claims_no_more_and_shows_that(
    make_board: MakeBoard, start: Runner, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    board = make_board(claim_ttl=1.5)
    conductor = start(Conductor("one", board, hanging, max_simultaneous_jobs=2, job_timeout=0.05, retry=LATE))
    board.post_many([{"name": "a"}] * 5)
    eventually(lambda: conductor.tally.abandoned == 2)
    assert board.stats().unclaimed == 3
    assert "keeps its slot until it ends: so do 2 now" in caplog.text
    eventually(lambda: told_by(board) == (0, 2))
    conductor.stop()
    assert conductor.wait(5), "what nobody waits for must not hold up the end"


def test_draining_with_a_limit(make_board: MakeBoard, start: Runner, hanging: Hanging, long_reserve: None) -> None:
    board = make_board()
    job = board.post("a", max_attempts=1)
    conductor = start(Conductor("one", board, hanging, drain_timeout=5))
    eventually(lambda: hanging.jobs)
    begun = time.monotonic()
    conductor.stop()
    assert conductor.wait(30)
    assert 2.4 < time.monotonic() - begun < 5
    assert hanging.jobs[0].claim.lost
    assert (job.state, job.attempts, job.error) == ("UNCLAIMED", 0, None)
    assert conductor.tally.abandoned == 1
    hanging.gate.set()
    assert hanging.ended.acquire(timeout=30)
    assert job.state == "UNCLAIMED"


def test_draining_lets_what_ends_in_time_end(make_board: MakeBoard, start: Runner, hanging: Hanging) -> None:
    board = make_board()
    board.post("a")
    conductor = start(Conductor("one", board, hanging, drain_timeout=30))
    eventually(lambda: hanging.jobs)
    conductor.stop()
    assert not conductor.wait(0.05)
    hanging.gate.set()
    assert conductor.wait(5)
    assert conductor.tally.consumed == 1


@pytest.mark.parametrize("stuck", ["take", "finish"])
def test_a_backend_that_does_not_answer_does_not_hold_up_the_end(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    """Jobs that a late answer brings are given back."""
    board = make_board()
    primitive = getattr(board.engine.raw, stuck)
    asked, silent, answered = threading.Event(), threading.Event(), threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        asked.set()
        assert silent.wait(30)
        try:
            return primitive(*args, **kwargs)
        finally:
            answered.set()

    monkeypatch.setattr(board.engine.raw, stuck, slow)
    board.post("a")
    conductor = start(Conductor("one", board, lambda job: None, drain_timeout=0.3))
    assert asked.wait(30)
    conductor.stop()
    assert conductor.wait(30)
    assert not answered.is_set()
    silent.set()
    assert answered.wait(30)
    eventually(lambda: (board.stats().claimed, board.job_count) == (0, 1 if stuck == "take" else 0))
    [job] = list(board.iterjobs()) or [None]
    assert job is None or job.attempts == 0


def test_a_backend_that_does_not_let_go_of_the_board(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board()
    board.close()
    silent, asked, shut = threading.Event(), threading.Event(), board.engine.raw.shut

    def slow() -> None:
        asked.set()
        assert silent.wait(30)
        shut()

    monkeypatch.setattr(board.engine.raw, "shut", slow)
    conductor = start(Conductor("one", board, lambda job: None, drain_timeout=0.3))
    eventually(lambda: conductor.dispatching)
    conductor.stop()
    assert conductor.wait(10)
    assert asked.wait(10)
    silent.set()
    eventually(lambda: board.closed)


PROGRAM = """
import threading
import jobboard

with jobboard.backend("board", "memory") as board:
    board.post("a")
    def hang(job):
        print("begun", flush=True)
        threading.Event().wait()
    jobboard.Conductor("one", board, hang, drain_timeout=0.5).run()
    print(board.stats().unclaimed, flush=True)
"""


def test_a_process_with_a_handler_that_hangs_ends_within_the_limit(tmp_path: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 0
        assert program.stdout.read() == "1\n"
    finally:
        program.kill()
        program.communicate()


def test_a_handler_without_the_limit_that_the_others_have(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.post("slow")
    late = board.post("hangs")
    conductor = Conductor("one", board, job_timeout=0.1, retry=LATE)
    hung = threading.Event()
    slow = conductor.handles("slow", timeout=None)(lambda job: hung.wait(30))
    conductor.handles("hangs")(slow)
    start(conductor)
    eventually(lambda: conductor.tally.abandoned == 1)
    hung.set()
    eventually(lambda: conductor.tally.consumed == 1)
    assert late.state == "SCHEDULED"


def test_limits_that_are_none(make_board: MakeBoard) -> None:
    board = make_board()
    for given in (print, None):
        with pytest.raises(ValueError, match=r"^job_timeout=0: "):
            Conductor("one", board, given, job_timeout=0)
    with pytest.raises(ValueError, match=r"^timeout=-1: "):
        Conductor("one", board).handles("a", timeout=-1)(print)
    with pytest.raises(ValueError, match="drain_timeout"):
        Conductor("one", board, print, drain_timeout=-1)
    with pytest.raises(ValueError, match=r"^job_timeout=1000+…: "):
        Conductor("one", board, print, job_timeout=10**400)


def test_limits_may_be_timedeltas(make_board: MakeBoard, start: Runner) -> None:
    board = make_board()
    board.post("hangs")
    board.post("hangs", priority="LOW")
    tenth = datetime.timedelta(seconds=0.1)
    hung = threading.Event()
    policy = jobboard.RetryPolicy(base=datetime.timedelta(hours=1), cap=datetime.timedelta(hours=2))  # type: ignore[arg-type]
    conductor = Conductor("one", board, job_timeout=tenth, drain_timeout=tenth, retry=policy)
    conductor.handles("hangs")(lambda job: hung.wait(30))
    start(conductor)
    eventually(lambda: conductor.tally.abandoned >= 1)
    conductor.stop()
    eventually(lambda: not conductor.dispatching)
    hung.set()


def test_names_that_are_forgotten(make_board: MakeBoard) -> None:
    conductor = Conductor("one", make_board())
    with pytest.raises(TypeError, match=r"as in handles\('resize'\)"):
        conductor.handles(print)  # type: ignore[arg-type]


def test_the_boards_own_end_is_heard_of_from_run(make_board: MakeBoard) -> None:
    board = make_board()
    conductor = Conductor("one", board, lambda job: board.close())
    board.post("a")
    with pytest.raises(ConnectionFailure):
        conductor.run()
