"""What becomes of a job when the work on it ends.

A piece of work that returns is consumed; one that raises is abandoned, later each time it fails; :class:`Retry` and
:class:`Reject` steer. The conductor and :meth:`JobBoard.working <jobboard.board.JobBoard.working>` share these rules.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import traceback
from collections.abc import Iterator
from typing import NamedTuple

from jobboard.arguments import micros
from jobboard.codec import clip_error
from jobboard.job import Job
from jobboard.retry import backoff
from jobboard.states import Verb

RETRY_BASE = 1.0
RETRY_CAP = 600.0

_current: contextvars.ContextVar[Job | None] = contextvars.ContextVar("jobboard_current", default=None)


class Retry(Exception):
    """Raise it to give the job back: after ``delay`` seconds (or a timedelta), or (None) the usual backoff.

    :raises ValueError, TypeError: a delay that is none.
    """

    def __init__(self, message: str = "", *, delay: float | datetime.timedelta | None = None) -> None:
        super().__init__(message)
        micros("delay", delay)
        self.delay = delay


class Reject(Exception):
    """Raise it to put the job into the trash, with the reason: trying again would not help.

    :raises TypeError: a reason that is not a str.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        clip_error(reason)
        self.reason = reason


class Outcome(NamedTuple):
    """How to end the claim: arguments of an :class:`~jobboard.job.Act`."""

    verb: Verb
    delay: float | datetime.timedelta | None = None
    error: str | None = None


CONSUMED = Outcome(Verb.CONSUME)
GIVEN_UP = Outcome(Verb.ABANDON)


def outcome_of(error: BaseException | None, job: Job) -> Outcome:
    """What the end of the work on ``job`` asks for: ``error`` is what it raised, None if it returned.

    Work that returned after it saw that its claim was lost may have stopped half-way: it does not count.
    """
    attempts = job.attempts
    if error is None:
        lost = job.claim is not None and (job.claim.lost or job.claim.seen_lost)
        return GIVEN_UP if lost else CONSUMED
    if isinstance(error, Reject):
        return Outcome(Verb.TRASH, error=error.reason)
    if isinstance(error, Retry):
        delay = backoff(attempts, RETRY_BASE, RETRY_CAP) if error.delay is None else error.delay
        return Outcome(Verb.ABANDON, delay=delay, error=str(error) or None)
    trace = "".join(traceback.format_exception(error))
    return Outcome(Verb.ABANDON, delay=backoff(attempts, RETRY_BASE, RETRY_CAP), error=trace)


@contextlib.contextmanager
def working_on(job: Job) -> Iterator[None]:
    """Make ``job`` the one that :func:`cancelled` asks about, in this thread or task."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)


def cancelled() -> bool:
    """Whether the work that is being done here should stop: its claim is lost. False outside of any work."""
    job = _current.get()
    return job is not None and job.claim is not None and job.claim.lost
