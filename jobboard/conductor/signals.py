"""Signals: SIGTERM, SIGINT and SIGHUP stop a process that works on jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from jobboard import logs, runtime
from jobboard.threads import started

LOG = logs.Log(__name__)

IMPATIENCE = 0.25
"""Seconds after which a second SIGINT ends the process at once. A SIGINT that comes sooner is the same Ctrl-C, sent by
the terminal and passed on by a parent."""


def _handlers() -> dict[int, Any]:
    """Return the present handlers of the signals to catch."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    # Programs use SIGHUP to reload their settings.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        numbers.append(signal.SIGHUP)
    return {number: signal.getsignal(number) for number in numbers}


@contextlib.contextmanager
def stopped_by_signals(name: str, stop: Callable[[], None], at_work: Callable[[], int] | None = None) -> Iterator[None]:
    """Call ``stop`` on SIGTERM and SIGINT, and on SIGHUP unless the program handles it, if this is the main thread.

    :param at_work: returns the number of jobs that are still to be finished, for the log.
    """
    if runtime.current_thread() is not threading.main_thread():
        yield
        return
    # A signal's handler runs between any two instructions of this very thread, which may hold any lock. So the handler
    # only puts into a SimpleQueue, which is reentrant, and another thread does the rest.
    came: runtime.SimpleQueue[int] = runtime.SimpleQueue()
    interrupted: list[float] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            interrupted.append(runtime.monotonic())
            if interrupted[-1] - interrupted[0] >= IMPATIENCE:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        came.put(number)

    def watch() -> None:
        told: set[int] = set()
        while number := came.get():
            stop()
            if number not in told:
                told.add(number)
                jobs = "begun work" if at_work is None else "1 job" if (n := at_work()) == 1 else f"{n} jobs"
                again = "; again to end now" if number == signal.SIGINT else ""
                LOG.info("%s: %s, finishing %s%s", name, signal.Signals(number).name, jobs, again)

    previous = _handlers()
    watcher: runtime.Thread | None = None
    try:
        watcher = started(f"{name}-signals", watch)
        for number, old in previous.items():
            # A shell has SIGINT ignored in the background: an ignored signal stays ignored.
            if old != signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, old in previous.items():
            # None: the handler was not installed from Python, so Python cannot restore it.
            signal.signal(number, signal.SIG_DFL if old is None else old)
        came.put(0)
        if watcher is not None:
            watcher.join()
