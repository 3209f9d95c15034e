"""Conductors whose handlers run in processes."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.exceptions import JobFailure
from jobboard.outcomes import RetryPolicy
from jobboard.testing import eventually
from jobboard.tracing import Tracing
from tests.conftest import Runner
from tests.support import handlers
from tests.test_conductor import LATE, MakeBoard
from tests.test_conductor_hooks import listening

pytestmark = pytest.mark.backends("memory")

HANDLERS = {
    name: getattr(handlers, name)
    for name in (
        "show",
        "pid",
        "fail",
        "fail_oddly",
        "later",
        "refuse",
        "act",
        "post",
        "crash",
        "hang",
        "until_lost",
        "until_there",
        "die",
        "die_before_a_fork",
        "fork",
    )
}


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[], list[str]]:
    return lambda: (tmp_path / "notes").read_text().splitlines() if (tmp_path / "notes").exists() else []


@pytest.fixture
def post(make_board: MakeBoard, tmp_path: Path) -> Any:
    """Posts on the board of the test, with where to make notes."""
    board = make_board()
    return board, functools.partial(board.post, details={"notes": str(tmp_path / "notes")})


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


class Marks(Tracing):
    def claimed(self, job: jobboard.Job, since: float) -> None:
        job.context = {"claimed": "here"}


def test_what_becomes_of_the_jobs(post: Any, notes: Any) -> None:
    """Of one process for them all, until one of them takes it down."""
    board, post_job = post
    board.tracing = Marks()
    names = ["pid", "show", "fail", "fail_oddly", "later", "refuse", "act", "post", "pid", "crash", "pid"]
    jobs = [
        post_job(name, priority="HIGH", key=f"{number}", max_attempts=3 + number) for number, name in enumerate(names)
    ]
    failures: dict[str, BaseException] = {}
    conductor = Conductor(
        "one",
        board,
        HANDLERS,
        workers="processes",
        max_simultaneous_jobs=1,
        retry=LATE,
        on_error=lambda job, error: failures.update({job.name: error}),
    )
    heard = listening(conductor)
    conductor.run(len(names))
    by_name = dict(zip(names, jobs, strict=True))
    first, shown, again, after = notes()
    assert first == again != after
    assert int(first) != os.getpid()
    job = by_name["show"]
    token = next(told["job"].claim.token for event, told in heard if told["job"] == job)
    assert shown == str([job.uuid, "show", 1, job.priority, "1", 4, token, False, {"claimed": "here"}])
    errors = {name: job.error or "" for name, job in by_name.items() if job.state == "SCHEDULED"}
    assert set(errors) == {"fail", "fail_oddly", "later", "act", "post", "crash"}
    assert errors["later"] == "not today"
    assert "Traceback" in errors["fail"]
    assert "in fail\n" in errors["fail"]
    assert errors["fail"].endswith("ValueError: broken in there\n")
    assert errors["fail_oddly"].endswith("OddError: very odd\n")
    for name in ("act", "post"):
        assert "can read its job" in errors[name]
    assert "SIGSEGV" in errors["crash"]
    assert (by_name["refuse"].state, by_name["refuse"].error) == ("TRASHED", "no such picture")
    assert set(failures) == {"fail", "fail_oddly", "act", "post", "crash"}
    assert isinstance(failures["fail"], ValueError)
    assert "in fail\n" in "".join(failures["fail"].__notes__)
    assert "very odd" in str(failures["fail_oddly"])
    assert conductor.tally == type(conductor.tally)(11, 4, 6, 1, 0)
    assert [event for event, told in heard if told["job"] == by_name["crash"]] == [
        "job_claimed",
        "job_started",
        "job_finished",
        "job_failed",
        "job_abandoned",
    ]


def test_a_job_that_takes_too_long_is_killed_alone(post: Any, notes: Any, start: Runner) -> None:
    board, post_job = post
    hanging = post_job("hang")
    conductor = start(
        Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=2, job_timeout=1.0, retry=LATE)
    )
    conductor_pids = eventually(notes)[0].split()
    post_job("pid")
    eventually(lambda: conductor.tally.abandoned == 1)
    eventually(lambda: all(gone(int(pid)) for pid in conductor_pids))
    assert hanging.state == "SCHEDULED"
    assert "still at work after 1 s" in hanging.error
    eventually(lambda: conductor.tally.consumed == 1)
    post_job("pid")
    eventually(lambda: conductor.tally.consumed == 2)
    assert conductor.tally.dispatched == 3


@pytest.mark.parametrize("when", ["packed", "unpacked"])
def test_an_error_that_ends_the_process_where_it_is_packed(
    make_board: MakeBoard, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    board = make_board()
    job = board.post("a", details={"when": when})
    failures: list[BaseException] = []
    conductor = Conductor(
        *("one", board, {"a": handlers.fail_and_leave}),
        workers="processes",
        on_error=lambda job, error: failures.append(error),
    )
    conductor.run(1)
    assert board.get(job.uuid).error.endswith(f"Leaving: {when}\n")
    assert [type(each) for each in failures] == [JobFailure]
    assert f"Leaving: {when}" in str(failures[0])
    assert "could not work on" not in caplog.text


def test_a_process_that_dies_before_what_it_has_forked(post: Any, notes: Any, start: Runner) -> None:
    """The pipe to it stays open; and what it has forked ends with it, as after a timeout."""
    board, post_job = post
    job = post_job("die_before_a_fork")
    conductor = start(Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=1, retry=LATE))
    [forked] = eventually(notes)
    try:
        eventually(lambda: conductor.tally.abandoned == 1)
        assert "SIGKILL" in board.get(job.uuid).error
        eventually(lambda: gone(int(forked)))
    finally:
        end(int(forked))
    post_job("pid")
    eventually(lambda: conductor.tally.consumed == 1)


def test_what_a_handler_has_forked_does_not_hold_up_the_end(
    post: Any, notes: Any, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.conductor.processes.END_LIMIT", 30.0)
    board, post_job = post
    post_job("fork")
    conductor = start(Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=1))
    [forked] = eventually(notes)
    try:
        conductor.stop()
        assert conductor.wait(10)
    finally:
        end(int(forked))


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_handler_is_told_that_its_claim_is_lost(make_board: MakeBoard, post: Any, notes: Any, start: Runner) -> None:
    board, post_job = post
    job = post_job("until_lost")
    conductor = Conductor("one", board, HANDLERS, workers="processes")
    heard = listening(conductor)
    start(conductor)
    eventually(notes)
    conductor.stop()
    held = eventually(lambda: next((told["job"] for event, told in heard if event == "job_started"), None))
    board.release(job)
    with pytest.raises(jobboard.ClaimLost):
        held.claim.extend()
    assert conductor.wait(30)
    assert notes() == ["begun", "told"]
    assert (conductor.tally.lost, conductor.tally.consumed, conductor.tally.abandoned) == (1, 0, 0)
    assert "job_failed" not in [event for event, _ in heard]
    assert job.state == "UNCLAIMED"


def test_draining_with_a_limit(post: Any, notes: Any, start: Runner, long_reserve: None) -> None:
    board, post_job = post
    hanging = post_job("hang", max_attempts=1)
    conductor = start(Conductor("one", board, HANDLERS, workers="processes", drain_timeout=5))
    pids = eventually(notes)[0].split()
    begun = time.monotonic()
    conductor.stop()
    assert conductor.wait(30)
    assert time.monotonic() - begun < 5
    assert gone(int(pids[0]))
    # Nobody but the system waits for what the handler has started: it is killed, and dies when it is next on a core.
    eventually(lambda: gone(int(pids[1])))
    hanging = board.get(hanging.uuid)
    assert (hanging.seen_state, hanging.attempts, hanging.error) == ("UNCLAIMED", 0, None)


def test_signals_are_for_the_conductor(post: Any, notes: Any, start: Runner, tmp_path: Path) -> None:
    """A supervisor may send them to all the processes of a service."""
    board, post_job = post
    post_job("until_there")
    conductor = start(Conductor("one", board, HANDLERS, workers="processes", retry=LATE))
    [pid] = eventually(notes)
    os.kill(int(pid), signal.SIGTERM)
    os.kill(int(pid), signal.SIGINT)
    (tmp_path / "notes.go").touch()
    eventually(lambda: conductor.tally.consumed + conductor.tally.abandoned == 1)
    assert conductor.tally.consumed == 1


STARTING = """
import os, pathlib, sys
import jobboard
from jobboard.testing import eventually
from tests.support import handlers

if __name__ == "__mp_main__":
    # In the process of a handler, before any code of the conductor's.
    with open(sys.argv[2], "a") as notes:
        notes.write(f"{os.getpid()}\\n")
    eventually(pathlib.Path(f"{sys.argv[2]}.{os.getpid()}").exists)

if __name__ == "__main__":
    found = {"crash": handlers.crash, "idle": handlers.idle}
    board = jobboard.fetch("board", {"board": sys.argv[1]})
    jobboard.Conductor("one", board, found, workers="processes", max_simultaneous_jobs=1).run()
"""


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("names", [["idle"], ["crash", "idle"]], ids=["the first", "another in its place"])
def test_signals_to_the_whole_group_harm_no_process_that_starts(
    make_board: MakeBoard, board_conf: dict[str, Any], notes: Any, tmp_path: Path, names: list[str]
) -> None:
    """As supervisors and terminals send them. The last job's process starts when they come."""
    board = make_board()
    jobs = [board.post(name, max_attempts=1) for name in names]
    (tmp_path / "program.py").write_text(STARTING)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), board_conf["board"], str(tmp_path / "notes")],
        env={**os.environ, "PYTHONPATH": "."},
        start_new_session=True,
    )
    try:
        for number in range(len(names)):
            pid = eventually(lambda number=number: notes()[number:])[0]
            if number == len(names) - 1:
                os.killpg(program.pid, signal.SIGTERM)
                os.killpg(program.pid, signal.SIGINT)
            (tmp_path / f"notes.{pid}").touch()
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.wait()
    assert [job.state for job in jobs] == ["TRASHED", "COMPLETE"][-len(names) :]


KILLED = """
import os, signal, sys, threading
import jobboard
from jobboard.testing import eventually
from tests.support import handlers

if __name__ == "__main__":
    notes = sys.argv[1]
    with jobboard.backend("board", "memory") as board:
        board.post("hang", details={"notes": notes})
        conductor = jobboard.Conductor("one", board, handlers.hang, workers="processes")
        threading.Thread(target=conductor.run).start()
        eventually(lambda: os.path.exists(notes))
        if sys.argv[2:]:
            forked = os.fork()
            if forked:
                open(sys.argv[2], "w").write(f"{forked}\\n")
            else:
                signal.pause()
        conductor.wait()
"""


@pytest.mark.parametrize("forks", [False, True])
def test_processes_end_with_a_conductor_that_is_killed(notes: Any, tmp_path: Path, forks: bool) -> None:
    """Be it that what its program has forked holds its ends of all pipes."""
    (tmp_path / "program.py").write_text(KILLED)
    forked = tmp_path / "forked"
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "notes"), *([str(forked)] if forks else [])],
        env={**os.environ, "PYTHONPATH": "."},
    )
    try:
        pids = eventually(notes)[0].split()
        if forks:
            eventually(lambda: forked.exists() and forked.read_text().endswith("\n"))
    finally:
        program.kill()
        program.wait()
    try:
        eventually(lambda: all(gone(int(pid)) for pid in pids))
    finally:
        if forks:
            end(int(forked.read_text()))


STOPPED = """
import sys
import jobboard
from tests.support import handlers

if __name__ == "__main__":
    board = jobboard.fetch("board", {"board": sys.argv[1], "claim_ttl": 1})
    jobboard.Conductor("one", board, handlers.until_lost, workers="processes").run(1)
"""


@pytest.mark.backends("sqlite")
def test_a_handler_sees_its_claim_lapse_while_the_conductor_is_stopped(
    make_board: MakeBoard, board_conf: dict[str, Any], notes: Any, tmp_path: Path
) -> None:
    """As by Ctrl-Z, which does not reach the process of the handler."""
    board = make_board()
    job = board.post("a", details={"notes": str(tmp_path / "notes")})
    (tmp_path / "program.py").write_text(STOPPED)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), board_conf["board"]], env={**os.environ, "PYTHONPATH": "."}
    )
    try:
        eventually(notes)
        first = board.get(job.uuid).record.lock_until
        # Until it has been renewed for longer than a lease.
        eventually(lambda: board.get(job.uuid).record.lock_until > first + 1_000_000)
        assert notes() == ["begun"]
        program.send_signal(signal.SIGSTOP)
        eventually(lambda: notes() == ["begun", "told"])
    finally:
        program.kill()
        program.wait()


@pytest.mark.backends("sqlite")
def test_a_handler_that_lets_no_other_thread_run_keeps_its_claim(make_board: MakeBoard, start: Runner) -> None:
    """The process hears nothing all the while, and its conductor renews."""
    board = make_board(claim_ttl=1)
    board.post("a")
    conductor = start(Conductor("one", board, handlers.compute, workers="processes"))
    eventually(lambda: conductor.tally.consumed + conductor.tally.abandoned + conductor.tally.lost)
    assert conductor.tally.consumed == 1


def test_contexts_are_around_the_handler_in_its_process(post: Any, notes: Any) -> None:
    board, post_job = post
    post_job("pid")
    conductor = Conductor("one", board, HANDLERS, workers="processes")
    conductor.wraps(handlers.context)
    conductor.run(1)
    assert [notes()[0], notes()[2]] == ["context begins", "context ends"]
    assert int(notes()[1]) != os.getpid()


def test_no_handler_is_added_while_processes_run(post: Any, start: Runner) -> None:
    board, _ = post
    conductor = start(Conductor("one", board, HANDLERS, workers="processes"))
    eventually(lambda: board.entities("conductor"))
    with pytest.raises(RuntimeError, match="before run"):
        conductor.handles("other")(handlers.pid)
    with pytest.raises(RuntimeError, match="before run"):
        conductor.wraps(handlers.context)


def test_handlers_that_can_not_be_loaded(post: Any) -> None:
    board, post_job = post
    job = post_job("a")
    conductor = Conductor("one", board, handlers.Unpacked(), workers="processes", retry=LATE)
    conductor.run(1)
    assert job.state == "SCHEDULED"
    assert "could not load the handlers" in job.error
    assert "not here" in job.error


def test_what_no_other_process_finds_is_refused(post: Any) -> None:
    board, _ = post

    def local(job: jobboard.Job) -> None: ...

    def shadowed(job: jobboard.Job) -> None: ...

    shadowed.__qualname__ = "show"
    for wrong in (lambda job: None, local, functools.partial(local), {"a": local}):
        with pytest.raises(TypeError, match="importable"):
            Conductor("one", board, wrong, workers="processes")
    conductor = Conductor("one", board, workers="processes")
    with pytest.raises(TypeError, match=r"importable .* top level .* \(this is test_\w+\.<locals>\.local\)"):
        conductor.handles("a")(local)
    with pytest.raises(TypeError, match="importable"):
        conductor.wraps(lambda job: None)  # type: ignore[arg-type, return-value]
    conductor.handles("a")(shadowed)
    with pytest.raises(TypeError, match="importable"):
        conductor.run()
    with pytest.raises(ValueError, match="threads, processes"):
        Conductor("one", board, print, workers="fibres")  # type: ignore[arg-type]


def test_a_job_that_kills_its_process_each_time(post: Any, notes: Any, start: Runner) -> None:
    board, post_job = post
    job = post_job("die")
    retry = RetryPolicy(base=0.01, cap=0.01, max_attempts=3)
    conductor = start(Conductor("one", board, HANDLERS, workers="processes", max_simultaneous_jobs=1, retry=retry))
    eventually(lambda: conductor.tally.trashed == 1, 30)
    assert notes() == ["1", "2", "3"]
    [trashed] = board.trashed()
    assert trashed == job
    assert [(failure.who, failure.attempt) for failure in trashed.errors] == [("one", 1), ("one", 2), ("one", 3)]
    assert all("SIGKILL" in failure.text for failure in trashed.errors)
