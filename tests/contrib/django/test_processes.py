"""``manage.py jobboard``, and workers in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobboard.contrib.django.interface import TaskResultStatus, task_backends
from jobboard.testing.conformance.support import until_free
from tests.contrib.django import tasks

Use = Callable[..., Any]
Manage = Callable[..., subprocess.Popen[str]]
pytestmark = pytest.mark.backends("sqlite", "redis")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def manage() -> Iterator[Manage]:
    """``manage("jobboard", "work")``: a command of the project's, killed when the test ends."""
    with contextlib.ExitStack() as stack:

        def begin(*words: str) -> subprocess.Popen[str]:
            env = {**os.environ, "TASKS": json.dumps(task_backends.settings), "PYTHONUNBUFFERED": "1"}
            process = subprocess.Popen(
                [sys.executable, "-m", "django", *words],
                env=env,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield begin


@pytest.mark.rule("A task that kills its worker ends once its attempts are used up.")
@pytest.mark.backends("sqlite")
def test_a_task_that_kills_its_worker_ends_with_its_attempts(tasks_on: Use, manage: Manage, tmp_path: Path) -> None:
    board = tasks_on(claim_ttl=1, retry={"max_attempts": 2}).board
    result = tasks.die.enqueue(str(tmp_path / "notes"))
    job = board.get(result.id)
    for end in (-signal.SIGKILL, -signal.SIGKILL, 0):
        assert manage("jobboard", "work", "--who", "me", "--max-jobs", "1").wait(120) == end
        until_free(board, job)
    assert (tmp_path / "notes").read_text().split() == ["1", "2"]
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class_path for error in result.errors[:2]] == ["jobboard.exceptions.ClaimLost"] * 2
    assert "its 2 attempts are used up" in result.errors[2].traceback


@pytest.mark.backends("sqlite")
def test_tasks_run_in_processes(tasks_on: Use, manage: Manage) -> None:
    tasks_on(retry={"max_attempts": 2, "base": 0.01})
    good, bad = tasks.where.enqueue(), tasks.fail.enqueue()
    worker = manage("jobboard", "work", "--processes", "--jobs", "1", "--max-jobs", "3")
    assert worker.wait(120) == 0
    good.refresh()
    bad.refresh()
    assert good.return_value not in (worker.pid, None)
    assert bad.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in bad.errors] == [KeyError, KeyError]


def test_the_command_works_on_the_board_of_the_project(tasks_on: Use, capfd: pytest.CaptureFixture[str]) -> None:
    backend = tasks_on(name="mine")
    tasks.add.enqueue(1)
    before = dict(os.environ)
    call_command("jobboard", "stats", "--json")
    counts = json.loads(capfd.readouterr().out)
    assert counts["unclaimed"] == 1
    call_command("jobboard", "setup")
    assert "mine" in capfd.readouterr().out
    call_command("jobboard")
    assert "Commands:" in capfd.readouterr().out
    assert dict(os.environ) == before
    with pytest.raises(SystemExit) as ended:
        call_command("jobboard", "show", "6f1f1a0e-0000-4000-8000-000000000000")
    assert ended.value.code == 1
    capfd.readouterr()
    with pytest.raises(SystemExit):
        call_command("jobboard", "limit", "remove", "mail")
    assert "'python manage.py jobboard limit list' shows them" in capfd.readouterr().err
    call_command("jobboard", "list")
    assert "(start one with 'python manage.py jobboard work')" in " ".join(capfd.readouterr().out.split())
    with pytest.raises(CommandError, match="The connection 'other' doesn't exist"):
        call_command("jobboard", "--backend", "other", "stats")
    assert backend.board.job_count == 1


@pytest.mark.rule("A worker keeps to all of the retry policy.")
@pytest.mark.backends("sqlite")
def test_the_worker_keeps_to_all_of_the_retry_policy(tasks_on: Use) -> None:
    backend = tasks_on(retry={"max_attempts": 5, "max_retries": 2})
    result = tasks.later.enqueue(0.01)
    call_command("jobboard", "work", "--max-jobs", "3")
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [job.retries for job in backend.board.trashed()] == [2]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("words", "runs"), [((), 1), (("--max-attempts", "2", "--retry-base", "0.01"), 2)])
def test_the_command_line_replaces_the_retry_policy(tasks_on: Use, words: tuple[str, ...], runs: int) -> None:
    """Without a policy the first exception ends a task."""
    tasks_on()
    result = tasks.fail.enqueue()
    call_command("jobboard", "work", *words, "--max-jobs", f"{runs}")
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [KeyError] * runs


class Reversed:
    """A cipher."""

    number = 1

    def encrypt(self, data: bytes) -> bytes:
        return data[::-1]

    def decrypt(self, number: int, data: bytes) -> bytes:
        return data[::-1]


@pytest.mark.backends("sqlite")
def test_commands_take_the_cipher_of_the_options(tasks_on: Use, capfd: pytest.CaptureFixture[str]) -> None:
    tasks_on(cipher=Reversed())
    result = tasks.add.enqueue(1, b=41)
    call_command("jobboard", "show", result.id)
    assert '"b": 41' in capfd.readouterr().out
    call_command("jobboard", "work", "--max-jobs", "1")
    capfd.readouterr()
    call_command("jobboard", "done", "show", result.id)
    assert "result: 42" in capfd.readouterr().out
    result.refresh()
    assert result.return_value == 42


@pytest.mark.backends("sqlite")
def test_the_command_without_a_board_is_refused(tasks_on: Use) -> None:
    with pytest.raises(CommandError, match="is a DummyBackend, which has no board"):
        call_command("jobboard", "stats")
    tasks_on(claim_tll=3)
    with pytest.raises(CommandError, match="did you mean 'claim_ttl'"):
        call_command("jobboard", "stats")
