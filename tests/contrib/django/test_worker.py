"""Tasks that a conductor runs: their results, errors, attempts and signals."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobboard.contrib.django import worker
from jobboard.contrib.django.interface import TaskResultDoesNotExist, TaskResultStatus, task_finished, task_started
from jobboard.contrib.django.results import LOST_WORKER
from jobboard.exceptions import ClaimLost
from jobboard.outcomes import OneFailure
from jobboard.reasons import reason_line
from jobboard.states import LAPSED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import until_free
from tests.contrib.django import tasks

Use = Callable[..., Any]
pytestmark = pytest.mark.backends("sqlite")
BOTH = pytest.mark.backends("sqlite", "redis")
MINUTE, DAY = datetime.timedelta(minutes=1), datetime.timedelta(days=1)


@pytest.fixture
def signals() -> Any:
    told: list[tuple[str, str, TaskResultStatus]] = []

    def listener(name: str) -> Callable[..., None]:
        def listen(sender: Any, task_result: Any, **kwargs: Any) -> None:
            told.append((name, task_result.id, task_result.status))

        return listen

    started, finished = listener("started"), listener("finished")
    task_started.connect(started)
    task_finished.connect(finished)
    yield told
    task_started.disconnect(started)
    task_finished.disconnect(finished)


@pytest.mark.rule("A Django task that raises has failed, and comes back by its policy.")
@BOTH
def test_an_exception_ends_a_task(tasks_on: Use, work: Use, signals: list[Any]) -> None:
    backend = tasks_on()
    result = tasks.fail.enqueue("sesame")
    conductor = work(1)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class_path == "builtins.KeyError"
    assert error.exception_class is KeyError
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("KeyError: 'sesame'\n")
    assert result.worker_ids == ["worker"]
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert conductor.tally.trashed == 1
    [job] = backend.board.trashed()
    assert job.uuid == result.id
    assert reason_line(job.error).startswith("KeyError: 'sesame'"), "lists of jobs begin with the reason"
    assert signals == [
        ("started", result.id, TaskResultStatus.RUNNING),
        ("finished", result.id, TaskResultStatus.FAILED),
    ]


@pytest.mark.parametrize(
    ("task", "path", "last"),
    [
        (tasks.chatter, "builtins.ValueError", "three\n"),
        (tasks.leave, "builtins.SystemExit", "SystemExit: 3\n"),
        (tasks.unfit, "builtins.TypeError", "Unsupported type: <class 'set'>\n"),
        (tasks.endless, "builtins.ValueError", "nan\n"),
        (tasks.refuse, "jobboard.outcomes.Reject", "never\n"),
    ],
)
def test_any_failure_has_its_class_and_traceback(tasks_on: Use, work: Use, task: Any, path: str, last: str) -> None:
    tasks_on()
    result = task.enqueue()
    work(1)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class_path == path
    assert error.traceback.endswith(last)
    assert "the task failed" not in error.traceback
    assert result.enqueued_at <= result.started_at <= result.finished_at


@pytest.mark.rule("A Django task's result is kept for as long as the worker says.")
@BOTH
@pytest.mark.parametrize(("task", "args", "value"), [(tasks.add, (1,), 2), (tasks.add_async, ([1], ["é"]), [1, "é"])])
def test_a_result_has_the_value_that_the_task_returned(
    tasks_on: Use, work: Use, signals: list[Any], task: Any, args: tuple[Any, ...], value: Any
) -> None:
    backend = tasks_on()
    result = task.enqueue(*args)
    work(1)
    assert result.status == TaskResultStatus.READY
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == value
    assert (result.errors, result.worker_ids) == ([], ["worker"])
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert backend.board.outcome(backend.board.get(result.id)).until - result.finished_at == DAY
    assert backend.get_result(result.id) == result
    assert signals == [
        ("started", result.id, TaskResultStatus.RUNNING),
        ("finished", result.id, TaskResultStatus.SUCCESSFUL),
    ]


def test_attempts_and_errors_of_a_retried_task_are_kept(
    tasks_on: Use, work: Use, signals: list[Any], tmp_path: Path
) -> None:
    tasks_on(retry={"max_attempts": 3, "base": 0.01, "cap": 0.01})
    result = tasks.third_time.enqueue(str(tmp_path))
    work(3)
    result.refresh()
    assert result.return_value == result.id
    assert [error.exception_class for error in result.errors] == [OSError, OSError]
    assert [error.traceback.splitlines()[-1] for error in result.errors] == ["OSError: attempt 1", "OSError: attempt 2"]
    assert (result.worker_ids, result.attempts) == (["worker"] * 3, 3)
    assert result.started_at < result.last_attempted_at < result.finished_at
    assert sorted(path.name for path in tmp_path.iterdir() if len(path.name) == 1) == ["1", "2", "3"]
    assert [name for name, *_ in signals] == ["started"] * 3 + ["finished"]


@pytest.mark.rule("A Django task's result is kept for as long as the worker says.")
def test_a_result_is_kept_for_as_long_as_the_worker_says(tasks_on: Use, work: Use) -> None:
    backend = tasks_on(keep_done=0)
    result = tasks.add.enqueue(1)
    work(1)
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result.id)


def test_a_task_may_ask_to_be_run_later(tasks_on: Use, work: Use, signals: list[Any]) -> None:
    backend = tasks_on()
    result = tasks.later.enqueue(3600)
    work(1)
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert backend.board.get(result.id).due - result.enqueued_at > 59 * MINUTE
    assert [name for name, *_ in signals] == ["started"]


@pytest.mark.rule("The end of a task is reported once, and one question too many ends a task.")
def test_the_end_of_a_task_is_signalled_once(tasks_on: Use, work: Use, signals: list[Any]) -> None:
    """Runs that asked to be repeated do not count, nor do runs before a restore."""
    board = tasks_on(retry={"max_attempts": 3, "base": 0.01, "cap": 0.01}).board
    result = tasks.later_twice.enqueue()
    for runs in (5, 3):
        work(runs - 1)
        assert [name for name, *_ in signals] == ["started"] * (runs - 1)
        work(1)
        assert signals.pop() == ("finished", result.id, TaskResultStatus.FAILED)
        [trashed] = board.trashed()
        board.restore(trashed)
        signals.clear()


@pytest.mark.rule("The end of a task is reported once, and one question too many ends a task.")
@pytest.mark.rule("A Django task that raises has failed, and comes back by its policy.")
@pytest.mark.parametrize(
    ("task", "args", "bounds", "runs"),
    [
        (tasks.later, (0.01,), {"max_attempts": 5, "max_retries": 1}, 2),
        (tasks.later_counted, (), {"max_attempts": 2}, 2),
    ],
)
def test_asking_once_too_often_ends_a_task(
    tasks_on: Use, work: Use, signals: list[Any], task: Any, args: tuple[Any, ...], bounds: dict[str, int], runs: int
) -> None:
    tasks_on(retry={**bounds, "base": 0.01, "cap": 0.01})
    told = []

    def listen(sender: Any, task_result: Any, **kwargs: Any) -> None:
        told.extend(error.exception_class_path for error in task_result.errors[-1:])

    task_finished.connect(listen)
    result = task.enqueue(*args)
    work(runs)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [name for name, *_ in signals] == ["started"] * runs + ["finished"]
    assert signals[-1] == ("finished", result.id, TaskResultStatus.FAILED)
    assert told == ["jobboard.outcomes.Retry"]


def test_a_task_with_max_attempts_of_its_own_ends_by_that(tasks_on: Use, work: Use, signals: list[Any]) -> None:
    board = tasks_on(retry={"max_attempts": 5, "base": 0.01, "cap": 0.01}).board
    details = {"task": tasks.fail.module_path, "args": [], "kwargs": {}}
    job = board.post("default", details=details, max_attempts=2)
    work(2)
    assert [name for name, *_ in signals] == ["started", "started", "finished"]
    assert [each.uuid for each in board.trashed()] == [job.uuid]


def test_a_task_with_max_attempts_runs_again_without_a_policy(tasks_on: Use, work: Use) -> None:
    """Without one, the first exception ends any other task."""
    tasks_on()
    result = tasks.letter.using(backend="default").enqueue("one")
    work(2, retry=OneFailure(base=0.01, cap=0.01))
    result.refresh()
    assert (result.status, len(result.errors)) == (TaskResultStatus.FAILED, 2)


def test_a_task_that_takes_too_long_fails(tasks_on: Use, work: Use) -> None:
    tasks_on()
    tasks.release.clear()
    result = tasks.hold.enqueue()
    conductor = work(job_timeout=0.1)
    try:
        eventually(lambda: result.refresh() or result.is_finished)
        assert result.status == TaskResultStatus.FAILED
        assert result.errors[0].exception_class is TimeoutError
    finally:
        conductor.stop()
        tasks.release.set()


def test_a_task_that_an_operator_cancels_fails(tasks_on: Use) -> None:
    backend = tasks_on()
    result = tasks.add.enqueue(1)
    backend.board.cancel(backend.board.get(result.id), reason="not needed")
    result.refresh()
    assert (result.status, result.worker_ids, result.started_at) == (TaskResultStatus.FAILED, [], None)
    [error] = result.errors
    assert (error.exception_class_path, error.traceback) == ("jobboard.exceptions.JobTrashed", "not needed")


@BOTH
def test_a_claim_that_lapsed_is_an_attempt(tasks_on: Use) -> None:
    backend = tasks_on()
    result = tasks.fail.enqueue()
    job = backend.board.claim_next("first", expiry=0.01)
    until_free(backend.board, job)
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.READY, ["first"])
    assert job == backend.board.claim_next("second")
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.RUNNING, ["first", "second"])
    [error] = result.errors
    assert (error.exception_class, error.traceback) == (ClaimLost, LAPSED)


def test_a_claim_that_lapsed_and_was_extended_is_one_attempt(tasks_on: Use) -> None:
    backend = tasks_on()
    result = tasks.fail.enqueue()
    job = backend.board.claim_next("first", expiry=0.01)
    until_free(backend.board, job)
    # The sweep of this call writes the lapse down.
    backend.board.claim_next("second", names=["nothing"])
    job.claim.extend(60)
    result.refresh()
    assert len(result.errors) == 1
    assert (result.status, result.worker_ids, result.attempts) == (TaskResultStatus.RUNNING, ["first"], 1)
    job.claim.abandon(error="broken")
    result.refresh()
    assert (result.worker_ids, result.attempts) == (["first"], 1)


def test_a_worker_whose_name_is_gone_is_lost(tasks_on: Use) -> None:
    backend = tasks_on()
    result = tasks.fail.enqueue()
    backend.board.abandon(backend.board.claim_next("first"), "first")
    backend.board.claim_next("second")
    result.refresh()
    assert result.worker_ids == [LOST_WORKER, "second"]


@pytest.mark.parametrize(
    ("options", "most"), [({}, 25), ({"retry": {"base": 1}}, 25), ({"retry": {"max_attempts": 3}}, 3)]
)
def test_a_task_without_an_attempt_left_does_not_run(
    tasks_on: Use, work: Use, options: dict[str, Any], most: int
) -> None:
    board = tasks_on(**options).board
    result, last = tasks.nothing.enqueue(), tasks.add.enqueue(1)
    for _ in range(most):
        board.abandon(board.claim_next("first"), "first")
    work(2)
    result.refresh()
    last.refresh()
    assert (result.status, last.return_value) == (TaskResultStatus.FAILED, 2)
    assert f"its {most} attempts are used up" in result.errors[-1].traceback


def test_a_task_of_another_program_fails(tasks_on: Use, work: Use) -> None:
    board = tasks_on().board
    gone = board.post("default", details={"task": "tests.contrib.django.tasks.gone", "args": [], "kwargs": {}})
    other = board.post("default")
    work(2)
    errors = {each.uuid: each.error for each in board.trashed()}
    assert "'tests.contrib.django.tasks.gone' can't be imported" in errors[gone.uuid].splitlines()[-1]
    assert "was not posted as a task" in errors[other.uuid]


def test_handlers_are_known_by_their_queues(tasks_on: Use) -> None:
    tasks_on(queues=["default", "sums"])
    assert sorted(worker.default) == ["default", "sums"]
    tasks_on()
    assert callable(worker.default)
    with pytest.raises(AttributeError, match="TASKS has no backend 'other'"):
        _ = worker.other


def test_old_connections_are_closed_around_each_task(tasks_on: Use, work: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks_on()
    closed: list[str] = []
    monkeypatch.setattr(worker, "close_old_connections", lambda: closed.append("closed"))
    monkeypatch.setattr(worker, "reset_queries", lambda: closed.append("reset"))
    tasks.fail.enqueue()
    work(1)
    assert closed == ["reset", "closed"] * 2
    assert not connection.in_atomic_block


def test_a_child_that_a_task_forks_ends_with_the_task(tasks_on: Use, work: Use, tmp_path: Path) -> None:
    tasks_on()
    notes = tmp_path / "notes"

    def listener(**kwargs: Any) -> None:
        with notes.open("a") as out:
            out.write(f"{os.getpid()}\n")

    task_finished.connect(listener)
    try:
        result = tasks.fork.enqueue()
        work(1)
    finally:
        task_finished.disconnect(listener)
    result.refresh()
    assert result.return_value == 0
    assert notes.read_text() == f"{os.getpid()}\n"


def test_a_task_may_be_posted_as_a_job(tasks_on: Use, work: Use) -> None:
    """As for a schedule, or under a key, which Django's enqueue() does not know."""
    board = tasks_on().board
    bare = board.post("default", details={"task": tasks.nothing.module_path})
    details = {"task": tasks.add.module_path, "args": [1], "kwargs": {"b": 3}}
    keyed = board.post("default", details=details, key="sum")
    results = [tasks.nothing.get_result(bare.uuid), tasks.add.get_result(keyed.uuid)]
    assert (results[0].args, results[0].kwargs) == ([], {})
    assert {result.status for result in results} == {TaskResultStatus.READY}
    work(2)
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == ["nothing", 4]
