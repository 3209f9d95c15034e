"""Tests of a project, for Django's own runner: ``test_running.py`` starts it."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase

from jobboard.contrib.django.interface import task_backends
from tests.contrib.django import tasks

backend = task_backends["default"]
# As an app may do when it is ready, before there is a test database.
backend.board.schedule("nightly", "30 3 * * *", "default", details={"task": tasks.nothing.module_path})


class _Enqueuing:
    databases = ("project",)

    def test_where_the_board_is(self: Any) -> None:
        place = connections["project"].settings_dict["NAME"]
        assert "test" in place
        assert backend.checked.conf["database"] == place
        assert backend.board.job_count == 0
        with transaction.atomic(using="project"):
            tasks.nothing.enqueue()


class FirstTestCase(_Enqueuing, TestCase):
    """One of two, for a runner of two processes."""


class SecondTestCase(_Enqueuing, TestCase):
    pass


class CommittingTestCase(_Enqueuing, TransactionTestCase):
    """Django removes its rows after each test."""

    def test_another(self) -> None:
        self.test_where_the_board_is()
        assert backend.board.job_count == 1


class RestoringTestCase(CommittingTestCase):
    serialized_rollback = True
