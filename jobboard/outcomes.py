"""The end of a claim after work, and the delay of a failed job: :class:`Retry`, :class:`Reject`, :class:`RetryPolicy`.

A job whose work returns is consumed. A job whose work raises is abandoned, with a delay that grows with each failure.
:class:`Retry` and :class:`Reject` steer. Conductors and :meth:`JobBoard.working <jobboard.board.JobBoard.working>`
share these rules. The stored outcomes of consumed jobs lie in :mod:`jobboard.results` and
:mod:`jobboard.engine.outcomes`.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import functools
import inspect
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobboard import logs
from jobboard.arguments import limit, micros, seconds
from jobboard.codec import clip_error
from jobboard.job import Job
from jobboard.notifier import is_coroutine
from jobboard.primitives import End
from jobboard.retry import backoff
from jobboard.states import FailureKind, Verb

LOG = logs.Log(__name__)

_current: contextvars.ContextVar[Job | None] = contextvars.ContextVar("jobboard_current", default=None)


_LIBRARY = str(Path(__file__).parent) + os.sep
"""The beginning of the files of this library. Their frames above a handler say nothing about its failure."""

SOONEST = 0.1
"""The shortest delay after a :class:`Retry` without one, in seconds. Nothing else slows such a job down."""


class Retry(Exception):
    """Raise it to give the job back: after ``delay`` seconds (or a timedelta), or (None) the usual backoff.

    A group of exceptions that holds nothing but Retry and :class:`Reject`, such as that of an ``asyncio.TaskGroup``,
    counts as the first Reject in it, or else as the first Retry.

    A retry uses up no attempt: ``job.retries`` counts the retry instead, and :class:`RetryPolicy` may bound retries. A
    failure uses up an attempt, and so does the lapse of a claim, as after the death of a worker.

    :param count: the retry uses up an attempt, too.
    :raises ValueError, TypeError: the delay is not valid.
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

    :raises TypeError: the reason is not a str.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        clip_error(reason)
        self.reason = reason


class Cancelled(BaseException):
    """Ends work whose claim is lost. :func:`raise_if_cancelled` raises it. A conductor raises it in the handler of a
    worker process whose job was taken away, as by :meth:`cancel(running=True) <jobboard.board.JobBoard.cancel>`.

    ``except Exception`` does not catch it. It goes no further than the work, and is no failure: conductors count the
    job as lost. ``reason`` says why the claim is lost.
    """

    def __init__(self, reason: str = "the claim of this work is lost") -> None:
        super().__init__(reason)
        self.reason = reason


class _Default(int):
    """A limit that nobody has set: it yields to the limit of a posting, even a higher one."""


ATTEMPTS = _Default(25)
"""The attempts of a job for which neither its posting nor a :class:`RetryPolicy` sets a limit."""


@dataclass(frozen=True)
class RetryPolicy:
    """The delay of a job whose work has failed, or raised :class:`Retry` without a delay; and its number of attempts.

    :param base: the seconds after the first time, about; twice that after the second, and so on. Failures and retries
        (``job.attempts`` and ``job.retries``) count alike.
    :param cap: the longest delay, in seconds, and no less than ``base``. The second half of each delay is at random.
    :param max_attempts: the number of attempts that a job has. With the last failed attempt the job goes to the trash.
        Every claim counts as an attempt, those of dead workers included: a claim beyond the last attempt puts the job
        into the trash, and its work does not run. Of this number and the ``max_attempts`` of the posting the lower one
        counts. The default of 25 binds only jobs that were posted without ``max_attempts``. None sets no limit.
    :param max_retries: how often :class:`Retry` may give a job back without using up an attempt; the next time it goes
        to the trash. None: for ever.
    :raises ValueError, TypeError: a value is not valid.
    """

    base: float = 1.0
    cap: float = 600.0
    max_attempts: int | None = ATTEMPTS
    max_retries: int | None = None

    def __post_init__(self) -> None:
        for span in ("base", "cap"):
            object.__setattr__(self, span, seconds(span, getattr(self, span), positive=True))
        if self.base > self.cap:
            raise ValueError(f"base={self.base:g}: must be at most cap={self.cap:g}, the longest delay")
        for bound in ("max_attempts", "max_retries"):
            if getattr(self, bound) is not None:
                limit(getattr(self, bound), bound)

    def delay(self, times: int) -> float:
        """Return the seconds to wait after the ``times``-th failure or retry."""
        return backoff(times, self.base, self.cap)

    def attempts_of(self, job: Job) -> int | None:
        """Return how many attempts ``job`` has; None for any number."""
        own, mine = job.max_attempts, self.max_attempts
        if own is None or mine is None:
            return mine if own is None else own
        return own if isinstance(mine, _Default) else min(own, mine)

    def exhausted(self, job: Job, retry: bool) -> bool:
        """Return whether this free retry, or this failed attempt, is one too many."""
        if retry:
            return self.max_retries is not None and job.retries >= self.max_retries
        most = self.attempts_of(job)
        return most is not None and job.attempts >= most


STEERING = (Reject, Retry, Cancelled)
"""The errors of work that are no failures. Of a group of them, the first kind in this order counts."""


class OneFailure(RetryPolicy):
    """A policy by which the first failure puts a job into the trash, unless the job was posted with ``max_attempts``. A
    lapse is no such failure: the job runs again."""

    def exhausted(self, job: Job, retry: bool) -> bool:
        return super().exhausted(job, retry) if retry or job.max_attempts is not None else True


USUAL = RetryPolicy()


CONSUMED = End(Verb.CONSUME)

IN_VAIN = "the claim was lost during the work, which does not count"
"""The error of work that has returned all the same."""


def end_of_work(error: BaseException | None, job: Job, policy: RetryPolicy | None = None) -> End:
    """Return how to end the claim of ``job``. ``error`` is what its work raised; None: the work returned.

    Work that returned after it saw that its claim was lost may have stopped half-way: it does not count.

    :raises Exception: a policy failed, or its delay is not valid.
    """
    if error is None and not (job.claim is not None and job.claim.lost):
        return CONSUMED
    if isinstance(error, Reject):
        return End(Verb.TRASH, error=clip_error(error.reason), kind=FailureKind.REJECTED)
    policy, times = policy or USUAL, job.attempts + job.retries
    if error is None or isinstance(error, Cancelled):
        # Later, as after any failure: if the claim stands after all, it may be lost again.
        return End(Verb.ABANDON, micros("delay", policy.delay(times)), IN_VAIN, kind=FailureKind.LAPSE)
    retry = isinstance(error, Retry) and not error.count
    text = clip_error((str(error) or None) if isinstance(error, Retry) else _trace_of(error))
    kind = FailureKind.RETRY if isinstance(error, Retry) else FailureKind.ERROR
    if policy.exhausted(job, retry):
        return End(Verb.TRASH, error=text, kind=kind)
    delay: float | datetime.timedelta
    if isinstance(error, Retry) and error.delay is not None:
        delay = error.delay
    else:
        delay = max(policy.delay(times), SOONEST) if retry else policy.delay(times)
    return End(Verb.ABANDON, micros("delay", delay), text, retry=retry, kind=kind)


def _steering(error: BaseException) -> BaseException:
    """Return the first Reject, else the first Retry, else the first Cancelled, of a group that holds nothing else, as
    that of a TaskGroup. Return any other error as it is."""
    errors = _leaves(error)
    if error not in errors and all(isinstance(each, STEERING) for each in errors):
        return min(errors, key=lambda each: next(at for at, kind in enumerate(STEERING) if isinstance(each, kind)))
    return error


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


def _trace_of(error: BaseException) -> str:
    """Return the traceback of ``error``, from the first frame of the work on."""
    whole = found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_LIBRARY):
        found = found.tb_next
    return "".join(traceback.format_exception(type(error), error, found or whole))


def refused_work(job: Job, policy: RetryPolicy | None = None) -> End | None:
    """Return how to end the claim of a job that has no attempt left; None: its work may run.

    The attempts before this claim have failed, or their claims have lapsed as if the work had killed its workers.
    """
    most = (policy or USUAL).attempts_of(job)
    if most is None or job.attempts <= most:
        return None
    what = "its only attempt is" if most == 1 else f"its {most} attempts are"
    text = f"not run again: {what} used up, and claims of dead workers count as attempts"
    return End(Verb.TRASH, error=text, kind=FailureKind.EXHAUSTED)


def decide_end(
    error: BaseException | None, job: Job, policy: RetryPolicy | None = None
) -> tuple[End, BaseException | None]:
    """Return how to end the claim, and the error that counts. An error that asks for the impossible is a failure like
    any other. So is an error of the policy: the usual policy then decides."""
    if error is None:
        return end_of_work(None, job), None
    error = _steering(error)
    try:
        return end_of_work(error, job, policy), error
    except Exception as failure:
        LOG.exception("the work on %s asked for what can't be done", job, extra=logs.fields(job))
        failure.__cause__ = error
        mistake = failure
    with contextlib.suppress(Exception):
        return end_of_work(mistake, job, policy), mistake
    return end_of_work(mistake, job), mistake


def check_handler(handler: Any, coroutine: bool = False) -> Callable[..., object]:
    """Return a checked handler.

    :param coroutine: allow a coroutine function.
    :raises TypeError: a call of the handler would not do its work.
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
    """Return the result of a handler. A promise of work is refused, as its job must not be consumed."""
    if result is None:
        return None
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"the handler returned a {type(result).__name__}, which nobody runs")
    return result


class working_on:  # noqa: N801 - used as a function
    """A block in which ``job`` is the job of :func:`cancelled`, in this thread or task."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._around = _current.get()
        _current.set(self._job)

    def __exit__(self, *error: object) -> None:
        # A framework may leave the block in another context, on another thread of a pool.
        if _current.get() is self._job:
            _current.set(self._around)


def cancelled() -> bool:
    """Return whether the work of this thread or task should stop, as its claim is lost. False outside of any work."""
    job = _current.get()
    return job is not None and job.claim is not None and job.claim.lost


def raise_if_cancelled() -> None:
    """Raise :class:`Cancelled` if the work of this thread or task should stop: see :func:`cancelled`."""
    job = _current.get()
    if job is not None and job.claim is not None and job.claim.lost:
        raise cancelled_work(job)


REFUSED = "the job was taken from this worker: it was cancelled, released, trashed or claimed by another"


def cancelled_work(job: Job) -> Cancelled:
    """Return the error that stops the work on a job whose claim is lost."""
    assert job.claim is not None
    if job.claim.refused:
        return Cancelled(REFUSED)
    return Cancelled("the lease has ended by this machine's clock, or the conductor waits for the work no longer")
