"""The task backend: jobs of tasks, results before any run, and checked options."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.test import override_settings
from django.utils import timezone

import jobboard
from jobboard.contrib.django import boards
from jobboard.contrib.django.interface import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from jobboard.exceptions import JobFailure
from jobboard.states import SCHEDULED, UNCLAIMED
from tests.contrib.django import released, tasks

Use = Callable[..., Any]
pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.rule("A Django task is a job, and a job of others is no task.")
@pytest.mark.backends("sqlite", "redis")
def test_a_task_is_a_job(tasks_on: Use) -> None:
    backend = tasks_on()
    told = []

    def listen(sender: Any, task_result: Any, **kwargs: Any) -> None:
        told.append((sender.__name__, task_result))

    task_enqueued.connect(listen)
    try:
        result = tasks.add_async.enqueue((1, 2), b="é")
    finally:
        task_enqueued.disconnect(listen)
    job = backend.board.get(result.id)
    assert (job.name, job.priority, job.seen_state) == ("sums", 5, UNCLAIMED)
    assert job.details == {"task": "tests.contrib.django.tasks.add_async", "args": [[1, 2]], "kwargs": {"b": "é"}}
    assert told == [("JobboardBackend", result)]
    assert result.status == TaskResultStatus.READY
    assert result.enqueued_at == job.created_on
    assert (result.args, result.kwargs, result.attempts, result.errors) == ([[1, 2]], {"b": "é"}, 0, [])
    assert tasks.add_async.get_result(result.id) == result


@pytest.mark.rule("A Django task takes key, group, delay and max_attempts, and is labelled by its function.")
@pytest.mark.backends("sqlite", "redis")
def test_a_task_takes_the_options_of_a_post(tasks_on: Use) -> None:
    backend = tasks_on()
    told = []

    def listen(sender: Any, task_result: Any, **kwargs: Any) -> None:
        told.append(task_result.id)

    task_enqueued.connect(listen)
    try:
        first = tasks.letter.using(key="anna", delay=datetime.timedelta(hours=1)).enqueue("one")
        again = tasks.letter.using(key="anna", group="others").enqueue("two")
    finally:
        task_enqueued.disconnect(listen)
    job = backend.board.get(first.id)
    assert (job.key, job.group, job.max_attempts) == ("anna", "letters", 2)
    assert (job.due - job.created_on, job.seen_state) == (datetime.timedelta(hours=1), SCHEDULED)
    assert (job.label, job.name) == ("tests.contrib.django.tasks.letter", "default")
    assert (again, backend.get_result(first.id)) == (first, first)
    assert told == [first.id]
    assert (again.task.delay, again.task.group, again.args) == (3600.0, "letters", ["one"])


def test_the_later_time_of_a_task_counts(tasks_on: Use) -> None:
    backend = tasks_on()
    later = timezone.now() + datetime.timedelta(days=1)
    task = tasks.letter.using(delay=5).using(run_after=later, priority=7)
    assert (task.delay, task.run_after, task.priority, task.group) == (None, later, 7, "letters")
    assert task.using(delay=5).run_after is None
    assert backend.board.get(task.enqueue("one").id).due == later
    with pytest.raises(ValueError, match="give delay or due, not both"):
        task.using(run_after=later, delay=5).enqueue("one")
    with pytest.raises(ValueError, match="delay=-1: must be 0 or more"):
        task.using(delay=-1)
    with pytest.raises(ValueError, match="max_attempts=0: must be 1 or more"):
        task.using(max_attempts=0).enqueue("one")
    if released.OWN:
        assert pickle.loads(pickle.dumps(task)) == task


def test_times_have_no_zone_where_the_project_has_none(tasks_on: Use) -> None:
    backend = tasks_on()
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        after = timezone.now().replace(microsecond=0) + datetime.timedelta(hours=1)
        result = tasks.add.using(run_after=after).enqueue(1)
        found = backend.get_result(result.id)
        assert found.task.run_after == after
        assert found.enqueued_at.tzinfo is None
        assert abs(found.enqueued_at - timezone.now()) < datetime.timedelta(minutes=1)
    assert abs(backend.board.get(result.id).due - timezone.now()) < datetime.timedelta(minutes=61)


@pytest.mark.rule("A Django task is a job, and a job of others is no task.")
def test_a_job_of_others_is_no_task(tasks_on: Use) -> None:
    backend = tasks_on()
    job = backend.board.post("default", details={"task": 1})
    for uuid in (job.uuid, "123", "6f1f1a0e-0000-4000-8000-000000000000", "", "a\x00b"):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(uuid)


def test_a_task_that_no_worker_could_run_is_refused(tasks_on: Use) -> None:
    backend = tasks_on()
    with pytest.raises(InvalidTask, match=r"tests\.contrib\.django\.tasks\._hidden.* is not a task"):
        tasks.hidden.enqueue(1)
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue({1})
    with pytest.raises(ValueError, match="nan"):
        tasks.add.enqueue(float("nan"))
    assert backend.board.job_count == 0


def test_all_backends_of_a_process_share_a_board(tasks_on: Use) -> None:
    backend = tasks_on()
    configured = task_backends.settings["default"]
    assert task_backends.create_connection("default").board is backend.board
    with override_settings(TASKS={"default": configured, "other": configured}):
        assert task_backends["other"].board is backend.board
    boards.close()
    assert backend.board.job_count == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"retyr": {}}, "no option 'retyr'"),
        ({"claim_tll": 3}, "no option 'claim_tll'; did you mean 'claim_ttl'?"),
        ({"claim_tll": 3, "board": "redis://me:sesame@nowhere/0"}, "did you mean 'claim_ttl'?"),
        ({"claim_ttl": "long"}, "option claim_ttl='long': must be from 0.1 to 86400 seconds"),
        ({"retry": {"max_attempt": 3}}, "unexpected keyword argument 'max_attempt'"),
        ({"retry": 3}, "option retry must be a dict"),
        ({"retry": {"max_attempts": 0}}, "max_attempts"),
        ({"name": 3}, "name"),
        ({"board": None}, "the option 'board' is missing"),
        ({"board": "sqlit:///x.db"}, "there is no backend 'sqlit'; did you mean 'sqlite'"),
        ({"board": "django:default"}, "'default' is in the memory of one connection"),
        ({"board": "django:empty"}, "'empty' uses the driver that is not known; a board knows sqlite3.dbapi2, psycopg"),
        ({"board": "django:other"}, "DATABASES has no 'other'; it has default, empty"),
    ],
)
def test_the_check_names_a_wrong_option(tasks_on: Use, options: dict[str, Any], told: str) -> None:
    tasks_on(**options)
    [found] = checks.run_checks()
    assert (found.id, found.level) == ("jobboard.E001", checks.ERROR)
    assert found.msg.startswith("TASKS['default']: ")
    assert told in found.msg
    assert "sesame" not in found.msg
    with pytest.raises(InvalidTaskBackend) as raised:
        tasks.add.enqueue(1)
    assert str(raised.value) == found.msg


@pytest.mark.rule("A hint names the command that works in a Django project.")
def test_an_error_names_the_command_of_the_project(tasks_on: Use, tmp_path: Path) -> None:
    tasks_on(board=f"sqlite:///{tmp_path}/none.db", auto_setup=False)
    with pytest.raises(JobFailure, match=r"`python manage\.py jobboard setup` creates it"):
        tasks.add.enqueue(1)
    with (
        override_settings(TASKS={"other": task_backends.settings["default"]}),
        pytest.raises(JobFailure, match=r"`python manage\.py jobboard --backend other setup` creates it"),
    ):
        task_backends["other"].get_result("123")


def test_the_options_are_a_uri_for_the_command(tasks_on: Use, tmp_path: Path) -> None:
    given = {"claim_ttl": 5, "notify": None, "auto_setup": False, "keep_done": None}
    backend = tasks_on(board=f"sqlite:///{tmp_path}/a b.db?table=x", **given)
    assert backend.checked.uri == f"sqlite:///{tmp_path}/a b.db?table=x&claim_ttl=5&auto_setup=False"
    there = jobboard.fetch(backend.checked.name, backend.checked.uri)
    there.setup()
    with there:
        assert (there.characteristics.claim_ttl, there.table.name) == (5.0, "x")
