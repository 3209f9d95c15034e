"""``jobboard work`` with its jobs in processes, and with limits."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite")

HANDLERS = """
import os, threading
import jobboard

def work(job):
    with open("notes", "a") as out:
        out.write(f"{job.name} {os.getpid()}\\n")
    if job.name == "hang":
        threading.Event().wait()
    if job.name == "later":
        raise jobboard.Retry("not now", delay=0.01)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def work(tmp_path: Path, board_conf: dict[str, Any]) -> Iterator[Start]:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    made: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "jobboard.cli", "work", "handlers:work", "--json", *args]
        env = {**os.environ, "JOBBOARD_URL": board_conf["board"], "JOBBOARD_NAME": "board"}
        made.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=env))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


def test_in_processes_that_are_killed_when_a_job_takes_too_long(
    make_board: Callable[..., Any], work: Start, tmp_path: Path
) -> None:
    board = make_board()
    hanging = board.post("hang")
    board.post("quick")
    process = work("--processes", "--job-timeout", "0.3", "--max-jobs", "2")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out) == {"dispatched": 2, "consumed": 1, "abandoned": 1, "trashed": 0, "lost": 0}
    pids = [int(line.split()[1]) for line in (tmp_path / "notes").read_text().splitlines()]
    assert len({*pids, process.pid}) == 3
    hanging = board.get(hanging.uuid)
    assert hanging.attempts == 1
    assert "its timeout" in hanging.error


def test_what_fails_too_often_goes_to_the_trash(make_board: Callable[..., Any], work: Start) -> None:
    board = make_board()
    board.post("hang")
    limits = ("--max-attempts", "2", "--retry-base", "0.01", "--retry-cap", "0.01")
    process = work("--processes", "--jobs", "1", "--job-timeout", "0.1", "--max-jobs", "2", *limits)
    out, _ = process.communicate(timeout=30)
    assert json.loads(out) == {"dispatched": 2, "consumed": 0, "abandoned": 1, "trashed": 1, "lost": 0}
    [trashed] = board.trashed()
    assert trashed.attempts == 2


def test_it_ends_in_time_whatever_still_runs(make_board: Callable[..., Any], work: Start, tmp_path: Path) -> None:
    board = make_board()
    hanging = board.post("hang")
    process = work("--drain-timeout", "0.5")
    eventually((tmp_path / "notes").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert (hanging.state, hanging.attempts) == ("UNCLAIMED", 0)


def test_limits_that_are_none(work: Start) -> None:
    for option in ("--job-timeout", "--drain-timeout"):
        assert work(option, "0").wait(30) == 2


def test_what_asks_for_too_many_retries_is_trashed(make_board: Callable[..., Any], work: Start) -> None:
    board = make_board()
    board.post("later")
    process = work("--max-retries", "2", "--max-jobs", "3")
    out, _ = process.communicate(timeout=30)
    assert json.loads(out) == {"dispatched": 3, "consumed": 0, "abandoned": 2, "trashed": 1, "lost": 0}
    assert [job.retries for job in board.trashed()] == [2]
