"""Tasks and the transactions of Django's own database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command
from django.db import connections, transaction
from django.tasks import TaskResultStatus, task_backends
from django.test import override_settings

from jobboard.contrib.django import boards
from jobboard.notifier import POSTED
from jobboard.testing import eventually
from tests.contrib.django import tasks

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
BACKEND = "jobboard.contrib.django.JobboardBackend"


class _RollBackError(Exception):
    pass


@pytest.fixture
def project(database: Any, tmp_path: Path) -> Iterator[Any]:
    """A task backend on ``django:project``, a database of Django's with one table of the project's; its tables are
    those that ``migrate`` has made."""
    options = {"board": "django:project", "name": tmp_path.name}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        call_command("migrate", database="project", verbosity=0)
        with connections["project"].cursor() as cursor:
            cursor.execute("CREATE TABLE orders (number INTEGER)")
        yield task_backends["default"]
        with connections["project"].cursor() as cursor:
            cursor.execute("DROP TABLE orders")
        boards.close()


def fail_in_transaction(number: int) -> None:
    with transaction.atomic(using="project"):
        order(number)
        tasks.add.enqueue(number)
        raise _RollBackError


def order(number: int) -> None:
    with connections["project"].cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [number])


def orders() -> int:
    with connections["project"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        count: int = cursor.fetchone()[0]
        return count


def test_migrate_makes_the_tables(project: Any) -> None:
    with connections["project"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobboard")
    assert checks.run_checks() == []


def test_a_task_comes_with_the_commit(project: Any) -> None:
    with transaction.atomic(using="project"):
        order(1)
        result = tasks.add.enqueue(1)
        assert result.status == TaskResultStatus.READY
        assert project.board.job_count == 0
    assert project.board.job_count == 1
    assert orders() == 1
    assert project.get_result(result.id) == result


def test_a_rollback_takes_the_task_back(project: Any) -> None:
    for number in range(200):
        with pytest.raises(_RollBackError):
            fail_in_transaction(number)
    assert orders() == 0
    assert project.board.job_count == 0


def test_a_rollback_to_a_savepoint(project: Any) -> None:
    with transaction.atomic(using="project"):
        kept = tasks.add.enqueue(1)
        with pytest.raises(_RollBackError):
            fail_in_transaction(2)
        with transaction.atomic(using="project"):
            also = tasks.add.enqueue(3)
    assert {job.uuid for job in project.board.iterjobs(ensure_fresh=True)} == {kept.id, also.id}


def test_further_options_of_the_board(project: Any) -> None:
    options = {**project.options, "table": "other"}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        call_command("migrate", database="project", verbosity=0)
        with transaction.atomic(using="project"):
            tasks.add.enqueue(1)
        assert task_backends["default"].board.job_count == 1
    assert project.board.job_count == 0


def test_the_command_line(project: Any, capfd: pytest.CaptureFixture[str]) -> None:
    tasks.add.enqueue(1)
    call_command("jobboard", "stats", "--json")
    assert json.loads(capfd.readouterr().out)["unclaimed"] == 1


def test_without_a_transaction(project: Any) -> None:
    tasks.add.enqueue(1)
    assert project.board.job_count == 1


def test_a_post_is_told_of_when_it_is_committed(project: Any) -> None:
    told: list[str] = []
    project.board.notifier.register(POSTED, lambda event, details: told.append(details["job"].uuid))
    with pytest.raises(_RollBackError):
        fail_in_transaction(1)
    with transaction.atomic(using="project"):
        result = tasks.add.enqueue(1)
        assert told == []
    eventually(lambda: told)
    assert told == [result.id]


def test_a_worker_runs_what_was_committed(project: Any, work: Callable[..., Any]) -> None:
    conductor = work()
    with transaction.atomic(using="project"):
        result = tasks.add.enqueue(1)
    eventually(lambda: conductor.tally.consumed == 1)
    result.refresh()
    assert result.return_value == 2


def test_a_transaction_that_is_broken(project: Any) -> None:
    with transaction.atomic(using="project"):
        transaction.set_rollback(True, using="project")
        with pytest.raises(transaction.TransactionManagementError):
            tasks.add.enqueue(1)
    assert project.board.job_count == 0
