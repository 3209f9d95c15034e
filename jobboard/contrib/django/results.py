"""Jobs of tasks, and results of jobs."""

from __future__ import annotations

import builtins
import datetime
import re
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from jobboard.contrib.django.interface import (
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
)
from jobboard.contrib.django.task import JobboardTask
from jobboard.job import Job, Posting
from jobboard.outcomes import Reject
from jobboard.results import Outcome
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED, Failure, FailureKind, workers

STATUSES = {
    SCHEDULED: TaskResultStatus.READY,
    UNCLAIMED: TaskResultStatus.READY,
    CLAIMED: TaskResultStatus.RUNNING,
    TRASHED: TaskResultStatus.FAILED,
    COMPLETE: TaskResultStatus.SUCCESSFUL,
}

LOST_WORKER = "lost"
"""The name of a worker whose name is lost."""

_NOTE = re.compile(r"\n.* \(the task failed by (\S+), begun at (\S+)\)\n?\Z")
_SAID = 300


def posting_of(task: Task, args: Sequence[Any], kwargs: dict[str, Any]) -> Posting:
    """Return the posting of a task.

    :raises TypeError: JSON has no value for an argument.
    :raises InvalidTask: no worker could find the task by its path.
    """
    task_at(task.module_path)
    details = {"task": task.module_path, "args": normalize_json(list(args)), "kwargs": normalize_json(kwargs)}
    due = task.run_after
    if due is not None:
        due = due if timezone.is_aware(due) else timezone.make_aware(due)
        details["run_after"] = due.isoformat()
    posting = Posting(task.queue_name, None, details, task.priority, due=due, context={"label": task.module_path})
    if not isinstance(task, JobboardTask):
        # It was made for another backend, and given this one by using().
        return posting
    return posting._replace(key=task.key, group=task.group, delay=task.delay, max_attempts=task.max_attempts)


def is_task(job: Job) -> bool:
    """Return whether a job is a task. Other jobs may be on the same board."""
    return isinstance(job.details.get("task"), str)


def task_at(path: str) -> Task:
    """Return the task at a path.

    :raises InvalidTask: there is no task.
    """
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidTask(f"{path!r} can't be imported, and so no worker could run it: {error}") from error
    if not isinstance(found, Task):
        raise InvalidTask(f"{path!r} is not a task: decorate the function itself with @task, under its own name")
    return found


def task_of(job: Job, alias: str) -> Task:
    """Return the task of a job, as it was posted.

    :raises InvalidTask: the task does not exist any more, or the backend does not take it.
    """
    if not is_task(job):
        raise InvalidTask(f"{job} was not posted as a task: it names no function")
    run_after, delay = job.details.get("run_after"), job.content.delay
    task = task_at(job.details["task"]).using(priority=int(job.priority), queue_name=job.name, backend=alias)
    posted: dict[str, Any] = {
        "run_after": None if run_after is None else in_zone(datetime.datetime.fromisoformat(run_after))
    }
    if isinstance(task, JobboardTask):
        posted |= {"key": job.key, "group": job.group, "max_attempts": job.max_attempts}
        posted["delay"] = None if delay is None else delay / 1e6
    return replace(task, **posted)


def result_of(job: Job, alias: str, task: Task | None = None, outcome: Outcome | None = None) -> TaskResult:
    """Return the result of a job, as the job was last seen.

    :param outcome: the outcome of a job that is COMPLETE.
    :raises InvalidTask: the task does not exist any more.
    """
    state = job.seen_state
    began = [when for failure in job.errors if (when := began_at(failure)) is not None]
    if outcome is not None:
        began.append(outcome.begun_on)
    elif state == CLAIMED:
        began.append(job.last_modified)
    result = TaskResult(
        task=task or task_of(job, alias),
        id=job.uuid,
        status=STATUSES[state],
        enqueued_at=in_zone(job.created_on),
        started_at=in_zone(began[0]) if began else None,
        last_attempted_at=in_zone(began[-1]) if began else None,
        finished_at=in_zone(job.last_modified) if state in (TRASHED, COMPLETE) else None,
        # A job that was posted by hand, as for a schedule, may leave them out.
        args=job.details.get("args", []),
        kwargs=job.details.get("kwargs", {}),
        backend=alias,
        errors=[error_of(failure) for failure in job.errors],
        worker_ids=_workers(job),
    )
    if outcome is not None:
        put(result, _return_value=outcome.result)
    return result


def put(result: TaskResult, **values: Any) -> None:
    """Set attributes of a result, which is frozen, as Django's own backends do."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _workers(job: Job) -> list[str]:
    """Return the worker of each attempt. The board keeps no name for an attempt whose error is gone."""
    at_work = job.seen_state in (CLAIMED, COMPLETE)
    known = workers(job.errors, job.record.who if at_work else None, job.attempts)
    return [*[LOST_WORKER] * (job.attempts - len(known)), *known]


def class_path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def note(error: BaseException, began: datetime.datetime) -> None:
    """Add the parts of a :class:`TaskError` to the end of the traceback or reason that the board keeps."""
    said = traceback.format_exception_only(error)[0].partition("\n")[0][:_SAID]
    # Lists show the last line of a reason that has no traceback, and cut its end.
    line = f"{said} (the task failed by {class_path(error)}, begun at {began.isoformat()})"
    if isinstance(error, Reject):
        error.reason += f"\n{line}"
    else:
        error.add_note(line)


def task_error(error: BaseException) -> TaskError:
    return TaskError(exception_class_path=class_path(error), traceback="".join(traceback.format_exception(error)))


def error_of(failure: Failure) -> TaskError:
    found = _NOTE.search(failure.text)
    if failure.kind in (FailureKind.LAPSE, FailureKind.EXHAUSTED):
        return TaskError(exception_class_path="jobboard.exceptions.ClaimLost", traceback=failure.text)
    if found is None:
        return TaskError(exception_class_path=_path_in(failure.text), traceback=failure.text)
    return TaskError(exception_class_path=found[1], traceback=failure.text[: found.start() + 1])


def began_at(failure: Failure) -> datetime.datetime | None:
    found = _NOTE.search(failure.text)
    return None if found is None else datetime.datetime.fromisoformat(found[2])


def _path_in(text: str) -> str:
    """Return the class of an error that the task did not raise; an operator's reason has none."""
    name = text.strip().rpartition("\n")[2].partition(":")[0]
    if isinstance(getattr(builtins, name, None), type):
        return f"builtins.{name}"
    return name if re.fullmatch(r"(\w+\.)+\w+", name) else "jobboard.exceptions.JobTrashed"


def in_zone(moment: datetime.datetime) -> datetime.datetime:
    """Return a time as the project has its times."""
    return moment if settings.USE_TZ else timezone.make_naive(moment)
