"""What becomes of a job when the work on it ends.

A piece of work that returns is consumed; one that raises is abandoned, later each time it fails; :class:`Retry` and
:class:`Reject` steer. The conductor and :meth:`JobBoard.working <jobboard.board.JobBoard.working>` share these rules.
"""

from __future__ import annotations

import contextvars
import datetime
import functools
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobboard import logs
from jobboard.arguments import limit, micros, seconds
from jobboard.codec import Returned, clip_error
from jobboard.job import Job
from jobboard.notifier import is_coroutine
from jobboard.retry import backoff
from jobboard.states import Verb

LOG = logs.Log(__name__)

_current: contextvars.ContextVar[Job | None] = contextvars.ContextVar("jobboard_current", default=None)


SOONEST = 0.1
"""Seconds after which a job comes back at the earliest whose work has raised :class:`Retry` without a delay: nothing
else may slow it down, as it uses up no attempts."""


class Retry(Exception):
    """Raise it to give the job back: after ``delay`` seconds (or a timedelta), or (None) the usual backoff.

    A retry uses up no attempt: ``job.retries`` counts the retry instead, and :class:`RetryPolicy` may bound retries. A
    failure uses up an attempt, and so does the lapse of a claim, as after the death of a worker.

    :param count: the retry uses up an attempt, too.
    :raises ValueError, TypeError: a delay that is none.
    """

    def __init__(
        self, message: str = "", *, delay: float | datetime.timedelta | None = None, count: bool = False
    ) -> None:
        super().__init__(message)
        micros("delay", delay)
        self.delay = delay
        self.count = count


class Reject(Exception):
    """Raise it to put the job into the trash, with the reason: trying again would not help.

    :raises TypeError: a reason that is not a str.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        clip_error(reason)
        self.reason = reason


class _Default(int):
    """A limit that nobody has set: it yields to the limit of a posting, even a higher one."""


ATTEMPTS = _Default(25)
"""The attempts of a job for which neither its posting nor a :class:`RetryPolicy` sets a limit."""


@dataclass(frozen=True)
class RetryPolicy:
    """When a job comes back whose work has failed, or raised :class:`Retry` without a delay.

    :param base: about how many seconds after the first time; twice that after the second, and so on: failures and
        retries (``job.attempts`` and ``job.retries``) count alike.
    :param cap: never more seconds than this. The second half of each delay is at random.
    :param max_attempts: the number of attempts that a job has. With the last failed attempt the job goes to the trash.
        Every claim counts as an attempt, those of dead workers included: a claim beyond the last attempt puts the job
        into the trash, and its work does not run. Of this number and the ``max_attempts`` of the posting the lower one
        counts. The default of 25 binds only jobs that were posted without ``max_attempts``. None sets no limit.
    :param max_retries: how often :class:`Retry` may give a job back without using up an attempt; the next time it goes
        to the trash. None: for ever.
    :raises ValueError, TypeError: a value that does not fit.
    """

    base: float = 1.0
    cap: float = 600.0
    max_attempts: int | None = ATTEMPTS
    max_retries: int | None = None

    def __post_init__(self) -> None:
        for span in ("base", "cap"):
            object.__setattr__(self, span, seconds(span, getattr(self, span), positive=True))
        for bound in ("max_attempts", "max_retries"):
            if getattr(self, bound) is not None:
                limit(getattr(self, bound), bound)

    def delay(self, times: int) -> float:
        """Seconds to wait when the work on a job was ended for the ``times``-th time without being done."""
        return backoff(times, self.base, self.cap)

    def attempts_of(self, job: Job) -> int | None:
        """Return how many attempts ``job`` has; None for any number."""
        own, mine = job.max_attempts, self.max_attempts
        if own is None or mine is None:
            return mine if own is None else own
        return own if isinstance(mine, _Default) else min(own, mine)

    def exhausted(self, job: Job, retry: bool) -> bool:
        """Whether this end of the work on ``job``, a free retry or a failed attempt, is one too many."""
        if retry:
            return self.max_retries is not None and job.retries >= self.max_retries
        most = self.attempts_of(job)
        return most is not None and job.attempts >= most


class OneFailure(RetryPolicy):
    """A policy by which the first failure puts a job into the trash. A lapse is no such failure: the job runs again."""

    def exhausted(self, job: Job, retry: bool) -> bool:
        return super().exhausted(job, retry) if retry else True


USUAL = RetryPolicy()


class Verdict(NamedTuple):
    """How to end the claim: arguments of an :class:`~jobboard.job.Act`."""

    verb: Verb
    delay: float | datetime.timedelta | None = None
    error: str | None = None
    refund: bool = False
    retry: bool = False
    result: Returned | None = None


CONSUMED = Verdict(Verb.CONSUME)
GIVEN_BACK = Verdict(Verb.ABANDON, refund=True)

IN_VAIN = "the claim was lost during the work, which does not count"
"""The error of work that has returned all the same."""


def outcome_of(error: BaseException | None, job: Job, policy: RetryPolicy | None = None) -> Verdict:
    """What the end of the work on ``job`` asks for: ``error`` is what it raised, None if it returned.

    Work that returned after it saw that its claim was lost may have stopped half-way: it does not count.
    """
    if error is None and not (job.claim is not None and job.claim.lost):
        return CONSUMED
    if isinstance(error, Reject):
        return Verdict(Verb.TRASH, error=error.reason)
    policy = policy or USUAL
    delay: float | datetime.timedelta = policy.delay(job.attempts + job.retries)
    if error is None:
        # Later, as after any failure: if the claim stands after all, it may be lost again.
        return Verdict(Verb.ABANDON, delay, IN_VAIN)
    retry = isinstance(error, Retry) and not error.count
    if isinstance(error, Retry):
        text = str(error) or None
        delay = (max(delay, SOONEST) if retry else delay) if error.delay is None else error.delay
    else:
        text = "".join(traceback.format_exception(error))
    if policy.exhausted(job, retry):
        return Verdict(Verb.TRASH, error=text)
    return Verdict(Verb.ABANDON, delay, text, retry=retry)


def refused_work(job: Job, policy: RetryPolicy | None = None) -> Verdict | None:
    """Return how to end the claim of a job that has no attempt left; None: its work may run.

    The attempts before this claim have failed, or their claims have lapsed as if the work had killed its workers.
    """
    most = (policy or USUAL).attempts_of(job)
    if most is None or job.attempts <= most:
        return None
    what = "its only attempt is" if most == 1 else f"its {most} attempts are"
    return Verdict(Verb.TRASH, error=f"not run again: {what} used up, and claims of dead workers count as attempts")


def last_line(error: str | None) -> str:
    """What says most of an error in one line; empty where there is none. Of a group, that of the last in it, and not of
    the frame around it."""
    lines = (line.strip().removeprefix("| ") for line in reversed((error or "").split("\n")))
    return next((line for line in lines if line and not line.startswith("+---")), "")


def judged(
    error: BaseException | None, job: Job, policy: RetryPolicy | None = None
) -> tuple[Verdict, BaseException | None]:
    """The outcome, and the error that it is of: one that asks for what can't be done is a failure like any other, and
    so is what a policy raises, which is not asked again."""
    if error is None:
        return outcome_of(None, job), None
    answers: RetryPolicy | None = None
    try:
        outcome, answers = outcome_of(error, job, policy), policy
        micros("delay", outcome.delay)
        clip_error(outcome.error)
    except Exception as mistake:
        LOG.exception("the work on %s asked for what can't be done", job, extra=logs.fields(job))
        mistake.__cause__ = error
        return outcome_of(mistake, job, answers), mistake
    return outcome, error


def check_handler(handler: Any, coroutine: bool = False) -> Callable[..., object]:
    """A handler as it is.

    :param coroutine: it may be a coroutine function.
    :raises TypeError: to call it is not to do its work.
    """
    if not callable(handler):
        raise TypeError(f"a handler must be callable, not {type(handler).__name__}")
    called = handler.func if isinstance(handler, functools.partial) else handler
    if isinstance(called, type):
        raise TypeError(
            f"a handler must be a function, or an instance that has __call__: to call the class {called.__name__} "
            "is to make one of it, and not to do its work"
        )
    if (is_coroutine(handler) and not coroutine) or inspect.isgeneratorfunction(handler):
        raise TypeError(
            "a handler must be a plain function: to call a coroutine or generator function is not to run it; "
            "coroutine functions are for jobboard.aio"
        )
    return handler  # type: ignore[no-any-return]


def check_result(result: object) -> object:
    """What a handler has returned. One that answers a promise of work has done none: its job must not be consumed."""
    if result is None:
        return None
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"the handler returned a {type(result).__name__}, which nobody runs")
    return result


class working_on:  # noqa: N801 - used as a function
    """Make ``job`` the one that :func:`cancelled` asks about, in this thread or task."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._around = _current.get()
        _current.set(self._job)

    def __exit__(self, *error: object) -> None:
        # It may be left in another context, as by a framework that enters and leaves a block on threads of a pool.
        if _current.get() is self._job:
            _current.set(self._around)


def cancelled() -> bool:
    """Whether the work that is being done here should stop: its claim is lost. False outside of any work."""
    job = _current.get()
    return job is not None and job.claim is not None and job.claim.lost
