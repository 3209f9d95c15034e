"""JobboardBackend: the task backend that ``TASKS`` names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks

from jobboard.backends import fetch
from jobboard.board import JobBoard
from jobboard.contrib.django import boards, databases
from jobboard.contrib.django.interface import (
    DEFAULT_TASK_BACKEND_ALIAS,
    BaseTaskBackend,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
)
from jobboard.contrib.django.options import TaskOptions
from jobboard.contrib.django.results import is_task, posting_of, result_of
from jobboard.contrib.django.task import JobboardTask
from jobboard.exceptions import JobBoardError, JobFailure, NotFound
from jobboard.reasons import hinting
from jobboard.states import COMPLETE


class JobboardBackend(BaseTaskBackend):
    """A backend that enqueues tasks as jobs on a board. The name of a job is the task's queue.

    ``OPTIONS`` are ``board``, a URI; ``name``, the board's name (``jobboard`` unless given); ``retry``, the arguments
    of a :class:`~jobboard.outcomes.RetryPolicy`; and the options of :func:`jobboard.fetch` for that board.
    """

    task_class = JobboardTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    _checked: TaskOptions | None = None

    @property
    def checked(self) -> TaskOptions:
        """The checked options.

        They are checked at the first use, as Django makes a backend while it imports tasks, before any check; and again
        once a test runner has given Django another database.

        :raises InvalidTaskBackend: an option is wrong.
        """
        checked = self._checked
        if checked is None or not checked.current:
            try:
                checked = self._checked = TaskOptions.of(self.options)
            except ValueError as error:
                raise InvalidTaskBackend(f"TASKS[{self.alias!r}]: {error}") from error
        return checked

    @property
    def database(self) -> str | None:
        """The alias of Django's database that the board is in; None for a board elsewhere."""
        return self.checked.database

    @property
    def command(self) -> str:
        """The words before a command on the board, as a user types them."""
        return (
            f"python manage.py jobboard{'' if self.alias == DEFAULT_TASK_BACKEND_ALIAS else f' --backend {self.alias}'}"
        )

    @property
    def board(self) -> JobBoard:
        """The board, connected, and shared by the process.

        :raises JobBoardError: the board cannot be reached, or is not set up.
        """
        try:
            return boards.connected(self.checked)
        except JobBoardError as error:
            error.args = (hinting(error.message, self.command),)
            raise

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult:
        """Post a task, and return its result: that of the task which has its key, if there is one.

        :raises InvalidTask, TypeError, ValueError: the task or an argument does not fit. Nothing was posted.
        """
        self.validate_task(task)
        posting = posting_of(task, args, kwargs)
        job = databases.run_within(self.database, lambda joined: self.board.post(**posting._asdict(), **joined))
        if not job.created:
            return result_of(job, self.alias)
        result = result_of(job, self.alias, task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task.

        :raises TaskResultDoesNotExist: there is no such task, or its result has expired.
        :raises InvalidTask: this program does not have the task's function.
        :raises JobFailure: the returned value is damaged.
        """
        try:
            job = self.board.get(result_id)
            outcome = self.board.outcome(job) if job.seen_state == COMPLETE else None
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        if not is_task(job):
            raise TaskResultDoesNotExist(result_id)
        if outcome is not None and outcome.refused is not None:
            raise JobFailure(f"{job} is done, and its result can't be read: {outcome.refused}")
        return result_of(job, self.alias, outcome=outcome)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        try:
            TaskOptions.of(self.options)
        except ValueError as error:
            return [checks.Error(f"TASKS[{self.alias!r}]: {error}", id="jobboard.E001")]
        return []


def boards_in(database: str) -> list[JobBoard]:
    """Return the boards of ``TASKS`` in one of Django's databases, not connected.

    :raises InvalidTaskBackend: an option is wrong.
    """
    backends = task_backends.all(initialized_only=False)
    found = [backend.checked for backend in backends if isinstance(backend, JobboardBackend)]
    return [fetch(options.name, options.conf) for options in found if options.database == database]
