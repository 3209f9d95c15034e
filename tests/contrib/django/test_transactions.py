"""Boards in Django's database: tasks come with a commit, go with a rollback, and ``flush`` removes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from jobboard.contrib.django import boards
from jobboard.contrib.django.interface import TaskResultDoesNotExist, TaskResultStatus, task_backends
from jobboard.notifier import POSTED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.contrib.django import tasks

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")
BACKEND = "jobboard.contrib.django.JobboardBackend"


class _RollBackError(Exception):
    pass


@pytest.fixture
def project(database: Any, tmp_path: Path) -> Iterator[Any]:
    """A task backend on ``django:project``, whose tables ``migrate`` has made, beside one table of the project's."""
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


@pytest.mark.rule("A task comes with the commit, and goes with the rollback, also to a savepoint.")
def test_a_task_comes_with_the_commit(project: Any) -> None:
    with transaction.atomic(using="project"):
        order(1)
        result = tasks.add.enqueue(1)
        assert result.status == TaskResultStatus.READY
        assert project.board.job_count == 0
    assert project.board.job_count == 1
    assert orders() == 1
    assert project.get_result(result.id) == result
    tasks.add.enqueue(1)
    assert project.board.job_count == 2


@pytest.mark.rule("A task comes with the commit, and goes with the rollback, also to a savepoint.")
def test_a_rollback_to_a_savepoint_undoes_its_tasks(project: Any) -> None:
    with transaction.atomic(using="project"):
        kept = tasks.add.enqueue(1)
        with pytest.raises(_RollBackError):
            fail_in_transaction(2)
        with transaction.atomic(using="project"):
            also = tasks.add.enqueue(3)
    assert {job.uuid for job in project.board.iterjobs(ensure_fresh=True)} == {kept.id, also.id}


def test_the_queries_are_recorded(project: Any) -> None:
    """With ``DEBUG``, and in tests that count queries, Django writes the parameters into the text."""
    with CaptureQueriesContext(connections["project"]) as recorded, transaction.atomic(using="project"):
        result = tasks.add.using(queue_name="100%").enqueue("50 %s")
    # On MariaDB, the board writes its rows out by itself.
    assert any("100%" in query["sql"] or b"100%".hex() in query["sql"] for query in recorded)
    job = project.board.get(result.id)
    assert (job.name, job.details["args"]) == ("100%", ["50 %s"])


@pytest.mark.rule("Further options of a board in Django's database count.")
@ONE
def test_further_options_of_the_board_count(project: Any) -> None:
    options = {**project.options, "table": "other"}
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}):
        call_command("migrate", database="project", verbosity=0)
        with transaction.atomic(using="project"):
            tasks.add.enqueue(1)
        assert task_backends["default"].board.job_count == 1
    assert project.board.job_count == 0


@pytest.mark.rule("flush empties the boards of a database.")
def test_flush_empties_the_board(project: Any) -> None:
    """As at the end of a TransactionTestCase."""
    for _ in range(2):
        board = project.board
        waits = tasks.add.enqueue(1)
        board.trash(board.claim_next("anna"), "anna", reason="broken")
        tasks.add.enqueue(2)
        board.consume(board.claim_next("anna"), "anna")
        board.post("mail", key="1")
        board.pause(["mail"])
        board.set_limit("default", concurrency=1)
        board.schedule("nightly", "@daily", "mail")
        call_command("flush", database="project", interactive=False)
        assert board.closed
        board = project.board
        assert not any((board.job_count, board.paused(), board.limits(), board.schedules()))
        assert list(board.trashed()) == list(board.outcomes()) == []
        with pytest.raises(TaskResultDoesNotExist):
            project.get_result(waits.id)


@pytest.mark.rule("flush empties the boards of a database.")
@ONE
def test_a_cancelled_flush_removes_nothing(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: "no")
    tasks.add.enqueue(1)
    call_command("flush", database="project")
    assert project.board.job_count == 1


@pytest.mark.backends("postgresql", "mariadb")
def test_a_flush_may_be_rolled_back(project: Any) -> None:
    """The board is not kept waiting for what its own process would have to do first. (SQLite has one writer.)"""
    tasks.add.enqueue(1)
    with transaction.atomic(using="project"):
        call_command("flush", database="project", interactive=False)
        assert project.board.job_count == 1
        transaction.set_rollback(True, using="project")
    assert project.board.claim_next("anna") is not None


def test_a_post_is_announced_when_it_is_committed(project: Any) -> None:
    told: list[str] = []
    project.board.notifier.register(POSTED, lambda event, details: told.append(details["job"].uuid))
    with pytest.raises(_RollBackError):
        fail_in_transaction(1)
    with transaction.atomic(using="project"):
        result = tasks.add.enqueue(1)
        assert told == []
    eventually(lambda: told)
    assert told == [result.id]


@ONE
def test_a_broken_transaction_takes_no_task(project: Any) -> None:
    with transaction.atomic(using="project"):
        transaction.set_rollback(True, using="project")
        with pytest.raises(transaction.TransactionManagementError):
            tasks.add.enqueue(1)
    assert project.board.job_count == 0


@ONE
def test_a_connection_without_autocommit_takes_no_task(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite it would wait for its own caller, and elsewhere outlive a rollback."""
    connections["project"].close()
    with monkeypatch.context() as patched:
        patched.setitem(connections["project"].settings_dict, "AUTOCOMMIT", False)
        with pytest.raises(transaction.TransactionManagementError, match="turn autocommit on"):
            tasks.add.enqueue(1)
    assert connections["project"].connection is None
    transaction.set_autocommit(False, using="project")
    order(1)
    with pytest.raises(transaction.TransactionManagementError, match="turn autocommit on"):
        tasks.add.enqueue(1)
    transaction.rollback(using="project")
    transaction.set_autocommit(True, using="project")
    tasks.add.enqueue(2)
    assert project.board.job_count == 1


@ONE
def test_a_task_waits_for_another_writer_on_sqlite(project: Any) -> None:
    """A transaction of Django's that reads before it writes would be refused at once."""
    tasks.add.enqueue(1)
    seen: list[str] = []

    def see(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    def enqueue() -> None:
        with connections["project"].execute_wrapper(see), transaction.atomic(using="project"):
            tasks.add.enqueue(2)
        connections["project"].close()

    with transaction.atomic(using="project"):
        order(1)
        enqueuing = Background(enqueue)
        assert eventually(lambda: seen or not enqueuing.running)
    enqueuing.wait(20)
    assert project.board.job_count == 2
