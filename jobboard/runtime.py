"""The clocks, threads, random numbers and uuids of the library: the one place to replace them, as a simulator does.

The other modules ask this module each time, as in ``runtime.monotonic()``. They keep none of its names under names of
their own, so that :func:`replaced` reaches all of them.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import queue
import random
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

__all__ = (
    "Condition",
    "Event",
    "Local",
    "Lock",
    "RLock",
    "SimpleQueue",
    "Thread",
    "boottime",
    "call",
    "current_thread",
    "get_ident",
    "monotonic",
    "random",
    "replaced",
    "secrets",
    "sleep",
    "urandom",
    "utc_now",
    "uuid4",
    "wall_time",
)

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# Not the functions themselves: freezegun would find them here and freeze the clocks, and a wait would never end.
monotonic = functools.partial(time.monotonic)
"""Seconds on a clock that nobody sets, for waits. It stands still while the machine sleeps."""

wall_time = functools.partial(time.time)
"""Seconds since 1970 by the machine's clock, which may be set."""

sleep = time.sleep

Thread = threading.Thread
current_thread = threading.current_thread
get_ident = threading.get_ident
Lock = threading.Lock
RLock = threading.RLock
Condition = threading.Condition
Event = threading.Event
SimpleQueue = queue.SimpleQueue

urandom = os.urandom
uuid4 = uuid.uuid4
# The module ``random``: it seeds itself again in a forked child. A generator of the library's own would not.


def utc_now() -> datetime.datetime:
    """Return :func:`wall_time` as an aware time."""
    return datetime.datetime.fromtimestamp(wall_time(), datetime.UTC)


def boottime() -> float:
    """Return the seconds of a clock that goes on while the process is stopped or the machine suspended."""
    return time.clock_gettime(_BOOTTIME)


class Local(threading.local):
    """Attributes with a value of their own in each thread. They begin with the values of ``first``."""

    def __init__(self, **first: Any) -> None:
        vars(self).update(first)


call = Local(until=None)
"""The board's call that a thread is in. ``until``: its deadline on :func:`boottime`, or None.

A thread's data that belong to no object stand in this module, where :func:`replaced` reaches them."""


@contextlib.contextmanager
def replaced(by: dict[str, Any]) -> Iterator[None]:
    """Replace names of this module within the block: ``with replaced({"sleep": world.sleep, "Lock": world.Lock})``.

    Objects that exist already keep their locks and threads. Connect boards within the block.

    :raises KeyError: the module has no such name.
    """
    names = globals()
    before = {name: names[name] for name in by}
    names.update(by)
    try:
        yield
    finally:
        names.update(before)
