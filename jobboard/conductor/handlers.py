"""The handlers of a conductor, and one call of one."""

from __future__ import annotations

import contextvars
import decimal
import functools
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple, Self

from jobboard import codec, notifier, outcomes
from jobboard.conductor.calling import Takes
from jobboard.forks import ForkGuard
from jobboard.job import Job
from jobboard.outcomes import Reject, Retry, RetryPolicy, Verdict
from jobboard.states import Verb

Handler = Callable[..., object]
Wrapper = Callable[[Job], AbstractContextManager[object]]


@dataclass(frozen=True)
class Handling:
    """A handler, and what goes for its jobs: the usual retries if None are given, and a ``timeout`` in seconds."""

    handler: Handler
    retry: RetryPolicy | None
    timeout: float | None
    coroutines: InitVar[bool] = False
    _takes: Takes = field(init=False)

    def __post_init__(self, coroutines: bool) -> None:
        outcomes.check_handler(self.handler, coroutines)
        object.__setattr__(self, "_takes", Takes.of(self.handler))
        if not isinstance(self.retry, RetryPolicy | None):
            raise TypeError(f"retry must be a RetryPolicy, not {type(self.retry).__name__}")

    @functools.cached_property
    def is_coroutine(self) -> bool:
        return notifier.is_coroutine(self.handler)

    def work(self, job: Job) -> object:
        """Call the handler, with what it takes."""
        args, kwargs = self._takes.arguments(job)
        with ForkGuard():
            return self.handler(*args, **kwargs)


class Ending(NamedTuple):
    """How a call of a handler has ended. ``error`` is what it raised, ``failed`` whether that counts as a failure."""

    outcome: Verdict
    error: BaseException | None
    failed: bool
    seconds: float


class Handlers:
    """By the names of the jobs, or one for the jobs of any name."""

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
        self.named[name] = handling

    def __bool__(self) -> bool:
        return self.any is not None or bool(self.named)

    def of(self, job: Job) -> Handling:
        return self.any or self.named[job.name]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names to claim by; None for any."""
        return None if self.any else tuple(self.named)


class Call:
    """The block in which a handler is called: what it raises ends the block, and goes into its ``ending``."""

    ending: Ending
    result: object = None

    def __init__(self, handling: Handling, job: Job) -> None:
        self._handling = handling
        self._job = job
        self._current = outcomes.working_on(job)
        # Wrappers may fork, too.
        self._guard = ForkGuard()

    def __enter__(self) -> Self:
        self._begun = time.perf_counter()
        self._guard.__enter__()
        self._current.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._guard.__exit__(kind, error, trace)
        self._current.__exit__()
        self.ending = ending_of(error, self._job, self._handling, time.perf_counter() - self._begun)
        keeps = None if self.result is None else self._job.board._keeps
        if keeps is not None and self.ending.outcome.verb == Verb.CONSUME:
            result = codec.returned(self.result, *keeps)
            self.ending = self.ending._replace(outcome=self.ending.outcome._replace(result=result))
        return True


def fresh(context: contextvars.Context) -> contextvars.Context:
    """Return a copy of ``context`` for one job, so that no other job sees the variables that this one sets."""
    copy = context.copy()
    copy.run(_own_decimals)
    return copy


def _own_decimals() -> None:
    # The variable holds an object that handlers change in place, and that a copy of the context would share.
    decimal.setcontext(decimal.getcontext().copy())


def perform(handling: Handling, wrappers: Sequence[Wrapper], job: Job) -> Ending:
    """Call the handler, within the wrappers, the first one outermost."""
    with Call(handling, job) as call:
        call.result = _call(handling, wrappers, job)
    return call.ending


def _call(handling: Handling, wrappers: Sequence[Wrapper], job: Job) -> object:
    if not wrappers:
        return outcomes.check_result(handling.work(job))
    with wrappers[0](job):
        return _call(handling, wrappers[1:], job)


def ending_of(error: BaseException | None, job: Job, handling: Handling, seconds: float) -> Ending:
    outcome, error = outcomes.judged(error, job, handling.retry)
    failed = error is not None and not isinstance(error, Retry | Reject)
    return Ending(outcome, error, failed and not (job.claim is not None and job.claim.lost), seconds)


def timed_out(handling: Handling, job: Job, seconds: float, where: str = "") -> Ending:
    """The end of a call that nobody waits for any longer; ``where`` goes before the error, as a traceback does."""
    error = TimeoutError(f"the handler of {job} was still at work after {handling.timeout:g} s, its timeout")
    ending = ending_of(error, job, handling, seconds)
    return ending._replace(outcome=ending.outcome._replace(error=f"{where}{ending.outcome.error}"))
