"""TaskRunner: the handler by which a conductor runs tasks.

``manage.py jobboard work`` starts a conductor with it. So does ``jobboard work
jobboard.contrib.django.worker:default``, where ``default`` is an alias in ``TASKS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import django
from django.apps import apps
from django.db import close_old_connections, reset_queries
from django.utils import timezone

from jobboard import codec
from jobboard.contrib.django import results
from jobboard.contrib.django.backend import JobboardBackend
from jobboard.contrib.django.interface import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from jobboard.forks import ForkGuard
from jobboard.job import Job
from jobboard.outcomes import Retry, end_of_work
from jobboard.states import Verb


class TaskRunner:
    """Runs the tasks of a backend, by its alias in ``TASKS``."""

    def __init__(self, alias: str) -> None:
        if not apps.ready:
            django.setup()
        self._alias = alias
        self.backend: JobboardBackend = task_backends[alias]

    def __reduce__(self) -> tuple[Any, ...]:
        # For a process without Django yet.
        return TaskRunner, (self._alias,)

    def __call__(self, job: Job) -> object:
        """Run a task, and return its value as JSON has it.

        :raises BaseException: the exception of the task. The board keeps its traceback.
        """
        began = job.last_modified
        _close_old_connections()
        try:
            return self._run(job, results.result_of(job, self._alias))
        except Retry:
            raise
        except BaseException as error:
            results.note(error, began)
            raise
        finally:
            _close_old_connections()

    def _run(self, job: Job, result: TaskResult) -> object:
        task_started.send(type(self.backend), task_result=result)
        context = (TaskContext(task_result=result),) if result.task.takes_context else ()
        try:
            # The end of a task closes connections, which belong to the parent of a child that the task forks.
            with ForkGuard():
                returned = result.task.call(*context, *result.args, **result.kwargs)
            value = normalize_json(returned)
            if (keeps := job.board.result_form) is not None:
                # A conductor would count the work as done, and only its result as lost.
                codec.encode_result(value, *keeps)
        except BaseException as error:
            # The attempts of the result include retries, and attempts before a restore.
            if end_of_work(error, job, self.backend.checked.retry).verb == Verb.TRASH:
                result.errors.append(results.task_error(error))
                self._finish(result, TaskResultStatus.FAILED)
            raise
        results.put(result, _return_value=value)
        self._finish(result, TaskResultStatus.SUCCESSFUL)
        return value

    def _finish(self, result: TaskResult, status: TaskResultStatus) -> None:
        results.put(result, status=status, finished_at=timezone.now())
        task_finished.send(type(self.backend), task_result=result)


def handlers(alias: str) -> Mapping[str, TaskRunner] | TaskRunner:
    """Return the handlers of a conductor: the runner by the queues of the backend, or for all jobs without queues.

    :raises InvalidTaskBackend: there is no such backend, or an option of it is wrong.
    """
    runner = TaskRunner(alias)
    queues = sorted(runner.backend.queues)
    return dict.fromkeys(queues, runner) if queues else runner


def __getattr__(alias: str) -> Mapping[str, TaskRunner] | TaskRunner:
    if alias.startswith("__") or not isinstance(task_backends.settings.get(alias), dict):
        raise AttributeError(f"TASKS has no backend {alias!r}")
    return handlers(alias)


def _close_old_connections() -> None:
    """Close old connections and forget queries, as Django does around a request."""
    reset_queries()
    close_old_connections()
