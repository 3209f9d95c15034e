"""What SIGTERM and SIGINT mean to a process that works on jobs."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

LOG = logging.getLogger(__name__)

IMPATIENCE = 1.0
"""A SIGINT that follows another after so many seconds means it: the process ends at once."""


@contextlib.contextmanager
def stopped_by_signals(name: str, stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on SIGTERM and SIGINT, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # A signal's handler runs between any two instructions of this very thread, which may hold any lock: it only puts
    # into the one queue that allows for that, and another thread does the rest.
    came: queue.SimpleQueue[int] = queue.SimpleQueue()
    interrupted: list[float] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            interrupted.append(time.monotonic())
            if interrupted[-1] - interrupted[0] >= IMPATIENCE:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        came.put(number)

    def watch() -> None:
        while number := came.get():
            LOG.info("%s: stopping on %s", name, signal.Signals(number).name)
            stop()

    watcher = threading.Thread(target=watch, name=f"{name}-signals", daemon=True)
    watcher.start()
    # What a shell has had ignored, as it does for SIGINT in the background, stays ignored.
    numbers = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in previous.items():
            # None: not installed from Python, and so not to be put back from there.
            signal.signal(number, signal.SIG_DFL if old is None else old)
        came.put(0)
        watcher.join()
