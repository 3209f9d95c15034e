"""Logs: the fields of records about jobs, and a logger whose handlers do no harm."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from typing import Any, Protocol

from jobboard import runtime
from jobboard.states import TRASHED, Record

Fields = dict[str, str | int | None]

FIELD_NAMES = ("job", "job_name", "who", "token")
"""The names of :func:`fields`."""


class _ClaimHolder(Protocol):
    """A claim, or a record that holds the last claim."""

    @property
    def token(self) -> int: ...
    @property
    def who(self) -> str | None: ...


class LoggedJob(Protocol):
    """A job that can be logged: a :class:`~jobboard.job.Job`."""

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def record(self) -> Record: ...
    @property
    def claim(self) -> _ClaimHolder | None: ...


def fields(job: LoggedJob) -> Fields:
    """Return ``extra=`` of a log record about ``job``, as last seen. Its details are left out, as they are private."""
    holder: _ClaimHolder = job.record if job.claim is None else job.claim
    return of_claim(job.uuid, holder.token, job.name, holder.who)


def of_claim(uuid: str, token: int, job_name: str | None = None, who: str | None = None) -> Fields:
    """Return the same fields of a job that is known by these only.

    ``job_name``, since a :class:`logging.LogRecord` has a ``name`` already, the logger's.
    """
    return {"job": uuid, "job_name": job_name, "who": who, "token": token}


def log_lapse(settled: Record) -> None:
    """Log a lapse that a commit has written down. ``settled`` is the job after the lapse."""
    LOG.warning(
        "job %s: the claim of %r, attempt %d, has lapsed%s",
        settled.uuid,
        settled.who,
        settled.attempts,
        ", and the job goes to the trash: its attempts are used up" if settled.state == TRASHED else "",
        extra=of_claim(settled.uuid, settled.token, settled.name, settled.who),
    )


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose threads survive the errors of filters and handlers of the program. Such an error is shown on
    standard error, as :mod:`logging` shows the errors of handlers."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **kwargs: Any) -> None:
        try:
            # One more, as the record is to name the caller of this.
            self.logger.log(level, msg, *args, stacklevel=stacklevel + 1, **kwargs)
        except BaseException as error:
            # An interrupt of the main thread goes on. Another thread would end by SystemExit without a word.
            if not isinstance(error, Exception) and runtime.current_thread() is threading.main_thread():
                raise
            if logging.raiseExceptions:
                with contextlib.suppress(Exception):
                    traceback.print_exc()


LOG = Log(__name__)
