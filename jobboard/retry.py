"""Backoff, and functions called again after an error.

All waits between tries come from :func:`backoff`. :class:`~jobboard.outcomes.RetryPolicy` sets the delay of a failed
job. :mod:`jobboard.engine.retrying` repeats the calls of a board.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from jobboard import runtime

P = ParamSpec("P")
T = TypeVar("T")

OUTAGE_BASE, OUTAGE_CAP = 0.1, 2.0


def backoff(attempt: int, base: float, cap: float) -> float:
    """Return the seconds to wait after failure number ``attempt`` (from 1).

    The wait is ``base``, doubled with each failure, and never over ``cap``. The second half of the wait is random."""
    # A float has no place for the powers that follow.
    longest = min(cap, base * 2.0 ** min(attempt - 1, 1000))
    return runtime.random.uniform(longest / 2, longest)


def outage_backoff(failures: int) -> float:
    """Return the seconds to leave a backend alone after so many failures in a row, for conductors, task loops and top,
    which go on for ever."""
    return backoff(failures, OUTAGE_BASE, OUTAGE_CAP)


@dataclass(frozen=True)
class Retrying:
    """A caller of functions, which calls a function again after certain errors.

    is_worth: returns whether to call again after this error. seconds: the time from the first call after which no other
    call begins. base, cap: the pauses, as of :func:`backoff`. sleep: None for the runtime's.
    """

    is_worth: Callable[[BaseException], bool]
    seconds: float
    base: float
    cap: float
    sleep: Callable[[float], None] | None

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function`` until a call succeeds. Return its result, or raise its last error as it is."""
        begun = runtime.monotonic()
        for failures in itertools.count(1):
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if not self.is_worth(error) or runtime.monotonic() - begun >= self.seconds:
                    raise
            (self.sleep or runtime.sleep)(backoff(failures, self.base, self.cap))
        raise AssertionError


def retrying(
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[BaseException], bool],
    seconds: float,
    *,
    base: float = 0.02,
    cap: float = 1.0,
    sleep: Callable[[float], None] | None = None,
) -> Retrying:
    """Return a caller of functions that repeats them after the given errors for ``seconds``, and then raises the last
    error as it is.

    :param on: the types of error to repeat on, or a predicate over the error.
    """
    is_worth = (lambda error: isinstance(error, on)) if isinstance(on, (type, tuple)) else on
    return Retrying(is_worth, seconds, base, cap, sleep)
