"""Conductors whose handlers run in processes."""

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor
from jobboard.outcomes import RetryPolicy
from jobboard.testing import eventually
from jobboard.tracing import Tracing
from tests.conftest import Runner
from tests.support import handlers
from tests.support.conductors import LATE, WAIT, MakeBoard, errors_of, has_ended, listen

pytestmark = pytest.mark.backends("memory")

Notes = Callable[[], list[str]]
Post = Callable[..., jobboard.Job]

HANDLERS = {
    name: getattr(handlers, name)
    for name in (
        *(
            "show",
            "pid",
            "idle",
            "fail",
            "fail_at_length",
            "fail_oddly",
            "later",
            "refuse",
            "act",
            "post",
            "split",
            "split_badly",
            "crash",
            "hang",
        ),
        *("until_lost", "until_there", "die", "die_before_a_fork", "fork"),
        *("die_by_a_signal_without_a_name", "leave_a_thread"),
    )
}


@pytest.fixture
def board(make_board: MakeBoard) -> Any:
    return make_board()


@pytest.fixture
def post(board: Any, tmp_path: Path) -> Post:
    """Posts a job whose handler writes to ``notes``."""
    return functools.partial(board.post, details={"notes": str(tmp_path / "notes")})


def conductor_of(board: Any, found: Any = HANDLERS, **options: Any) -> Conductor:
    return Conductor("one", board, found, workers="processes", **{"max_simultaneous_jobs": 1, "retry": LATE, **options})


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Marks(Tracing):
    def __init__(self, mark: Any) -> None:
        self._mark = mark

    def claimed(self, job: jobboard.Job, since: float) -> None:
        job.context = {"claimed": self._mark}


class Followed(Tracing):
    """Tells the follow-ups of a process, too."""

    def post(self, postings: Any, insert: Any) -> Any:
        return insert([each._replace(context={"from": str(multiprocessing.parent_process())}) for each in postings])


# The jobs


@pytest.mark.rule("A follow-up that does not fit is its handler's failure.")
def test_follow_ups_of_a_process(make_board: MakeBoard, start: Runner) -> None:
    """They are checked and traced where the handler runs, and a bad or a large one is the handler's failure."""
    board = make_board(keep_done=60)
    board.tracing = Followed()
    jobs = [board.post("split", details={"parts": parts}) for parts in (2, 501)]
    jobs.append(board.post("split_badly"))
    failed: list[str] = []
    conductor = conductor_of(board, on_error=lambda job, error: failed.append(str(error)))
    start(conductor, 3)
    assert conductor.wait(WAIT)
    parts = list(board.iterjobs(names=["part"]))
    assert sorted(part.details["n"] for part in parts) == [0, 1]
    assert all("MainProcess" in part.context["from"] for part in parts)
    assert jobs[0].result(WAIT) == 2
    assert "501 follow-ups" in failed[0]
    assert "posting 1, counted from 0: details['n']: object" in failed[1]
    assert (conductor.tally.consumed, conductor.tally.abandoned) == (1, 2)


def test_process_works_on_one_job_after_the_other_until_a_job_takes_it_down(
    board: Any, post: Post, notes: Notes
) -> None:
    board.tracing = Marks("here")
    names = ["pid", "show", "fail", "fail_oddly", "later", "refuse", "act", "post", "pid", "crash", "pid"]
    jobs = [post(name, priority="HIGH", key=f"{number}", max_attempts=3 + number) for number, name in enumerate(names)]
    failures: dict[str, BaseException] = {}
    conductor = conductor_of(board, on_error=lambda job, error: failures.update({job.name: error}))
    heard = listen(conductor)
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
        f"job_{word}" for word in ("claimed", "started", "finished", "failed", "abandoned")
    ]


@pytest.mark.rule("A process is replaced after max_jobs_per_process, between two jobs.")
def test_a_process_is_replaced_after_so_many_jobs(board: Any, post: Post, notes: Notes) -> None:
    """A process that has died begins to count anew."""
    jobs = [post(name, priority=9 - number) for number, name in enumerate(["pid", "pid", "pid", "crash", "pid", "pid"])]
    conductor = conductor_of(board, max_jobs_per_process=2)
    conductor.run(until_empty=True)
    pids = notes()
    assert [pids.index(pid) for pid in pids] == [0, 0, 2, 3, 3]
    assert all(has_ended(int(pid)) for pid in pids)
    assert (conductor.tally.consumed, conductor.tally.abandoned) == (5, 1)
    assert [job.state for job in jobs].count("COMPLETE") == 5


def test_job_that_kills_its_process_each_time_uses_up_its_attempts(
    board: Any, post: Post, notes: Notes, start: Runner
) -> None:
    job = post("die")
    conductor = start(conductor_of(board, retry=RetryPolicy(base=0.01, cap=0.01, max_attempts=3)))
    eventually(lambda: conductor.tally.trashed == 1, 60)
    assert notes() == ["1", "2", "3"]
    [trashed] = board.trashed()
    assert trashed == job
    assert [(failure.who, failure.attempt) for failure in trashed.errors] == [("one", 1), ("one", 2), ("one", 3)]
    assert all("SIGKILL" in failure.text for failure in trashed.errors)


def test_error_names_a_signal_that_has_no_name(board: Any, post: Post) -> None:
    job = post("die_by_a_signal_without_a_name")
    conductor_of(board).run(1)
    assert f"it was ended by signal {signal.SIGRTMIN + 3}" in board.get(job.uuid).error


# What other processes have to find


def test_handler_that_no_other_process_finds_is_rejected(board: Any, start: Runner) -> None:
    def local(job: jobboard.Job) -> None: ...

    def shadowed(job: jobboard.Job) -> None: ...

    shadowed.__qualname__ = "conductor_of"
    wrapped = conductor_of(board, handlers.pid)
    wrapped.wraps(lambda job: None)  # type: ignore[arg-type, return-value]
    for wrong in (wrapped, *(conductor_of(board, each) for each in (local, functools.partial(local), {"a": shadowed}))):
        with pytest.raises(TypeError, match=r"importable .* top level"):
            wrong.run()


@pytest.mark.rule("No handler is added while processes run.")
def test_no_handler_is_added_while_processes_run(board: Any, start: Runner) -> None:
    conductor = start(conductor_of(board))
    eventually(lambda: conductor.dispatching)
    with pytest.raises(RuntimeError, match="before run"):
        conductor.handles("other")(handlers.pid)
    with pytest.raises(RuntimeError, match="before run"):
        conductor.wraps(contextlib.nullcontext)


@pytest.mark.rule("A run ends when no thread and no process can be started for it.")
@pytest.mark.rule("A job that cannot travel to a process fails.")
@pytest.mark.parametrize(
    ("handler", "mark", "daemon", "told"),
    [
        (handlers.Unpacked(), "here", False, "could not load the handlers"),
        # A daemonic process of multiprocessing may start none.
        (handlers.show, "here", True, "daemonic processes are not allowed to have children"),
        (handlers.show, lambda: None, False, "pickle"),
    ],
    ids=["handlers not loaded", "not started", "job cannot travel"],
)
def test_job_that_no_process_can_work_on_fails(
    board: Any, monkeypatch: pytest.MonkeyPatch, handler: Any, mark: Any, daemon: bool, told: str
) -> None:
    board.tracing = Marks(mark)
    job = board.post("a")
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", daemon)  # type: ignore[attr-defined]
    conductor = conductor_of(board, handler)
    assert errors_of(lambda: conductor.run(1)) == []
    assert (job.state, job.attempts, conductor.tally.abandoned) == ("SCHEDULED", 1, 1)
    assert told in job.error


# The end of a process


@pytest.mark.rule("A job that takes too long is killed alone, in its own process.")
def test_job_that_takes_too_long_is_killed_alone(board: Any, post: Post, notes: Notes, start: Runner) -> None:
    hanging = post("hang")
    conductor = conductor_of(board, {"pid": handlers.pid}, max_simultaneous_jobs=2)
    # Long enough for the handler to start a process and to write down both ids.
    conductor.handles("hang", timeout=3.0)(handlers.hang)
    start(conductor)
    pids = eventually(notes)[0].split()
    post("pid")
    eventually(lambda: (conductor.tally.abandoned, conductor.tally.consumed) == (1, 1))
    eventually(lambda: all(has_ended(int(pid)) for pid in pids))
    assert hanging.state == "SCHEDULED"
    assert "still at work after 3 s" in hanging.error
    post("pid")
    eventually(lambda: conductor.tally.consumed == 2)
    assert conductor.tally.dispatched == 3


@pytest.mark.rule("A process that a handler has forked does not hold up the end of a run.")
def test_process_that_dies_before_its_fork_does_not_hold_up_its_job(
    board: Any, post: Post, notes: Notes, start: Runner
) -> None:
    """The fork holds the pipe to the process open. The fork is killed, too, as after a timeout."""
    job = post("die_before_a_fork")
    conductor = start(conductor_of(board))
    [forked] = eventually(notes)
    try:
        eventually(lambda: conductor.tally.abandoned == 1)
        assert "SIGKILL" in board.get(job.uuid).error
        eventually(lambda: has_ended(int(forked)))
    finally:
        kill(int(forked))
    post("pid")
    eventually(lambda: conductor.tally.consumed == 1)


@pytest.mark.rule("A process that a handler has forked does not hold up the end of a run.")
def test_fork_of_a_handler_does_not_hold_up_the_end(
    board: Any, post: Post, notes: Notes, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.conductor.processes.END_LIMIT", 3600.0)
    post("fork")
    conductor = start(conductor_of(board))
    [forked] = eventually(notes)
    try:
        conductor.stop()
        assert conductor.wait(WAIT)
    finally:
        kill(int(forked))


def test_drain_that_is_over_kills_the_process_and_what_it_has_started(
    board: Any, post: Post, notes: Notes, start: Runner, long_reserve: None
) -> None:
    hanging = post("hang", max_attempts=1)
    conductor = start(conductor_of(board, drain_timeout=5))
    pids = [int(pid) for pid in eventually(notes)[0].split()]
    conductor.stop()
    assert conductor.wait(WAIT)
    assert has_ended(pids[0])
    # Nobody but the system waits for what the handler has started: it is killed, and dies when it is next on a core.
    eventually(lambda: has_ended(pids[1]))
    hanging = board.get(hanging.uuid)
    assert (hanging.seen_state, hanging.attempts, hanging.error) == ("UNCLAIMED", 0, None)


def test_process_that_does_not_end_takes_no_time_from_the_ends_of_claims(
    board: Any, post: Post, notes: Notes, start: Runner, long_reserve: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does the log say that jobs are left to be done again."""
    post("leave_a_thread")
    hanging = post("hang")
    conductor = start(conductor_of(board, max_simultaneous_jobs=2, drain_timeout=2))
    eventually(lambda: notes() and conductor.tally.consumed == 1)
    conductor.stop()
    assert conductor.wait(WAIT)
    assert (hanging.state, conductor.tally.abandoned) == ("UNCLAIMED", 1)
    assert "gives Job 'hang'" in caplog.text
    assert "could not be handed over" not in caplog.text


def test_process_that_is_stopped_while_it_is_idle_does_not_outlast_the_timeout(
    make_board: MakeBoard, tmp_path: Path, notes: Notes, start: Runner
) -> None:
    """The next job is larger than the pipe."""
    board = make_board(max_details=1_000_000)
    details = {"notes": str(tmp_path / "notes")}
    board.post("pid", details=details)
    conductor = start(conductor_of(board, job_timeout=1.0))
    eventually(lambda: conductor.tally.consumed == 1)
    [pid] = notes()
    os.kill(int(pid), signal.SIGSTOP)
    job = board.post("idle", details={"large": "x" * 900_000})
    try:
        eventually(lambda: conductor.tally.abandoned == 1)
    finally:
        kill(int(pid))
    assert "still at work after 1 s" in board.get(job.uuid).error
    board.post("pid", details=details)
    eventually(lambda: conductor.tally.consumed == 2)


def test_process_that_is_stopped_while_it_reports_does_not_outlast_the_timeout(
    board: Any, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.read

    def read_and_stop(file: int, count: int) -> bytes:
        data = read(file, count)
        for process in multiprocessing.active_children() if len(data) > 10_000 else ():
            os.kill(process.pid or 0, signal.SIGSTOP)
        return data

    monkeypatch.setattr(os, "read", read_and_stop)
    job = board.post("fail_at_length")
    conductor = start(conductor_of(board, job_timeout=3.0))
    eventually(lambda: conductor.tally.abandoned == 1, 30)
    assert "still at work after 3 s" in board.get(job.uuid).error


# The claim


def test_handler_is_told_that_its_claim_is_lost(board: Any, post: Post, notes: Notes, start: Runner) -> None:
    job = post("until_lost")
    conductor = conductor_of(board)
    heard = listen(conductor)
    start(conductor)
    eventually(notes)
    conductor.stop()
    held = eventually(lambda: next((told["job"] for event, told in heard if event == "job_started"), None))
    board.release(job)
    with pytest.raises(jobboard.ClaimLost):
        held.claim.extend()
    assert conductor.wait(WAIT)
    assert notes() == ["begun", "told"]
    assert (conductor.tally.lost, conductor.tally.consumed, conductor.tally.abandoned) == (1, 0, 0)
    assert "job_failed" not in [event for event, _ in heard]
    assert job.state == "UNCLAIMED"


STOPPED = """
import sys
import jobboard
from tests.support import handlers

if __name__ == "__main__":
    board = jobboard.fetch("board", {"board": sys.argv[1], "claim_ttl": 1.5})
    jobboard.Conductor("one", board, handlers.until_lost, workers="processes").run(1)
"""


@pytest.mark.rule("A handler process sees its claim lapse while its conductor is stopped.")
@pytest.mark.backends("sqlite")
def test_handler_sees_its_claim_lapse_while_its_conductor_is_stopped(
    board: Any, post: Post, board_conf: dict[str, Any], notes: Notes, tmp_path: Path
) -> None:
    """As by Ctrl-Z, which does not reach the process of the handler."""
    job = post("a")
    (tmp_path / "program.py").write_text(STOPPED)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), board_conf["board"]], env={**os.environ, "PYTHONPATH": "."}
    )
    try:
        eventually(notes)
        first = board.get(job.uuid).record.lock_until
        # Until it has been renewed for longer than a lease.
        eventually(lambda: board.get(job.uuid).record.lock_until > first + 1_500_000)
        assert notes() == ["begun"]
        program.send_signal(signal.SIGSTOP)
        eventually(lambda: notes() == ["begun", "told"])
    finally:
        program.kill()
        program.wait()


@pytest.mark.rule("A handler that lets no other thread run keeps its claim.")
@pytest.mark.backends("sqlite")
def test_handler_that_lets_no_other_thread_run_keeps_its_claim(make_board: MakeBoard) -> None:
    """The process hears nothing all the while, and its conductor renews."""
    board = make_board(claim_ttl=2)
    board.post("a", details={"seconds": 2.5})
    conductor = conductor_of(board, handlers.compute)
    conductor.run(1)
    assert conductor.tally.consumed == 1
