"""The handlers of a conductor, and one call of a handler."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from jobboard import codec, followups, notifier, outcomes
from jobboard.conductor.details import Takes
from jobboard.forks import ForkGuard
from jobboard.job import ClaimedJob, Job
from jobboard.outcomes import RetryPolicy
from jobboard.primitives import End
from jobboard.states import FailureKind, Verb

Handler = Callable[..., object]
Wrapper = Callable[[ClaimedJob], AbstractContextManager[object]]


@dataclass(frozen=True)
class Handling:
    """A handler with the options of its jobs.

    :param retry: None for the usual policy.
    :param timeout: seconds; None for no limit.
    :param max_simultaneous: the number of jobs of one name that run at once; None for the conductor's limit alone.
    """

    handler: Handler
    takes: Takes
    retry: RetryPolicy | None = None
    timeout: float | None = None
    max_simultaneous: int | None = None

    @functools.cached_property
    def is_coroutine(self) -> bool:
        return notifier.is_coroutine(self.handler)

    def work(self, job: Job) -> object:
        """Call the handler with its arguments."""
        args, kwargs = self.takes.arguments(job)
        with ForkGuard():
            return self.handler(*args, **kwargs)


class Handlers:
    """Handlers by the names of jobs, or one handler for the jobs of any name."""

    def __init__(self) -> None:
        self.any: Handling | None = None
        self.named: dict[str, Handling] = {}
        self.wrappers: list[Wrapper] = []

    def add(self, name: str, handling: Handling) -> None:
        codec.check_text("a job's name", name)
        if self.any is not None:
            raise ValueError(
                f"jobs named {name!r} can't have a handler of their own, as this conductor has one for jobs of any "
                "name: give it a mapping of names to handlers instead"
            )
        if name in self.named:
            raise ValueError(f"jobs named {name!r} have a handler already: leave one of the two out")
        # Another thread may be going through the names.
        self.named = {**self.named, name: handling}

    def __bool__(self) -> bool:
        return self.any is not None or bool(self.named)

    def of(self, job: Job) -> Handling:
        return self.any or self.named[job.name]


class Call:
    """The block in which a handler is called. An error of the block ends the block, and decides the ``end``.

    ``error`` is the error that counts: that of the block, or of a policy or request that can't be carried out.
    """

    end: End
    error: BaseException | None
    _returned: End | None = None

    def __init__(self, handling: Handling, job: Job) -> None:
        self._handling = handling
        self._job = job
        self._current = outcomes.working_on(job)

    def __enter__(self) -> Self:
        self._current.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._current.__exit__()
        self.end, self.error = outcomes.decide_end(error, self._job, self._handling.retry)
        if self._returned is not None and self.end.verb == Verb.CONSUME:
            self.end = self._returned
        return True

    def keep(self, result: object) -> None:
        """Check what the handler has returned, and keep it for the end of the claim."""
        if result is not None:
            self._returned = followups.end_of(self._job, result)


def perform(handling: Handling, wrappers: Sequence[Wrapper], job: ClaimedJob) -> Call:
    """Call the handler within the wrappers, the first one outermost, and return the ended call."""
    with Call(handling, job) as call, ForkGuard(), contextlib.ExitStack() as stack:
        for wrapper in wrappers:
            with ForkGuard():
                stack.enter_context(wrapper(job))
        # Within the wrappers: follow-ups belong to the trace of their handler.
        call.keep(handling.work(job))
    return call


def timed_out(handling: Handling, job: Job, where: str = "") -> tuple[End, BaseException | None]:
    """Return the end of a call that took too long, and its error.

    :param where: goes before the error's text, as a traceback does.
    """
    late = TimeoutError(f"the handler was still at work after {handling.timeout:g} s, its timeout")
    end, error = outcomes.decide_end(late, job, handling.retry)
    # An error of the policy may count in the place of the timeout.
    kind = FailureKind.TIMEOUT if error is late else end.kind
    return end._replace(error=codec.clip_error(f"{where}{end.error}"), kind=kind), error
