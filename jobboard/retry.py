"""The only backoff policy: exponential, half of it jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import tenacity

OUTAGE_BASE, OUTAGE_CAP = 0.1, 2.0


def backoff(attempt: int, base: float, cap: float) -> float:
    """Return the seconds to wait after failure number ``attempt`` (from 1): ``base``, doubled with each failure, never
    over ``cap``, and the second half of that at random."""
    # A float has no place for the powers that follow.
    longest = min(cap, base * 2.0 ** min(attempt - 1, 1000))
    return random.uniform(longest / 2, longest)


def outage_pause(failures: int) -> float:
    """Return the seconds to leave a backend alone after so many failures in a row, for conductors, task loops and top,
    which go on for ever."""
    return backoff(failures, OUTAGE_BASE, OUTAGE_CAP)


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
        wait=lambda state: backoff(state.attempt_number, base, cap),
        stop=tenacity.stop_after_delay(seconds),
        sleep=sleep,
        reraise=True,
    )
