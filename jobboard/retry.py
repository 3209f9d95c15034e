"""The only backoff policy: exponential, half of it jitter, through tenacity."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import cast

import tenacity

OUTAGE_BASE, OUTAGE_CAP = 0.1, 2.0


class _Attempt:
    """The one attribute of a retry's state that tenacity's wait strategies read."""

    def __init__(self, number: int) -> None:
        self.attempt_number = number


def backoff(attempt: int, base: float, cap: float) -> float:
    """Return the seconds to wait after failure number ``attempt`` (from 1): ``base``, doubled with each failure, never
    over ``cap``, and the second half of that at random."""
    return _strategy(base, cap)(cast(tenacity.RetryCallState, _Attempt(attempt)))


def outage_pause(failures: int) -> float:
    """Return the seconds to leave a backend alone after so many failures in a row, for conductors, task loops and top,
    which go on for ever."""
    return backoff(failures, OUTAGE_BASE, OUTAGE_CAP)


@functools.lru_cache
def _strategy(base: float, cap: float) -> tenacity.wait.wait_base:
    return tenacity.wait_exponential(base / 2, max=cap / 2) + tenacity.wait_random_exponential(base / 2, max=cap / 2)


def retrying(
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[BaseException], bool],
    seconds: float,
    *,
    base: float = 0.02,
    cap: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> tenacity.Retrying:
    """Return a tenacity controller. It repeats a function on the given errors for ``seconds``, and then raises the last
    error as it is.

    :param on: the types of error to repeat on, or a predicate over the error.
    """
    again = tenacity.retry_if_exception_type(on) if isinstance(on, (type, tuple)) else tenacity.retry_if_exception(on)
    return tenacity.Retrying(
        retry=again,
        wait=_strategy(base, cap),
        stop=tenacity.stop_after_delay(seconds),
        sleep=sleep,
        reraise=True,
    )
