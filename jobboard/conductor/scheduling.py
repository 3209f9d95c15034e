"""Posts what the schedules of a board say, as long as somebody lets it run."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from jobboard import logs
from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError
from jobboard.retry import outage_pause
from jobboard.threads import started

LOG = logs.Log(__name__)

GLANCE = 2.0
"""Every so many seconds it looks for schedules that another process has set, where the server can't tell of them. Those
of its own process wake it."""

REST = 3600.0
"""How long it sleeps at most where the server can: it is as late where the server's clock is put forward."""

SIGNALLED = 1.0
"""Every so many seconds a main thread that waits looks whether a signal has come."""

LINGER = 2.0
"""For how many seconds its end waits for a request under way."""


class Scheduler:
    """Any number of them may run on one board: each due time is posted for once.

    :param who: whom the log names.
    :param unless: ends it, at the next ``board.wake()``.
    """

    def __init__(self, who: str, board: JobBoard, unless: Callable[[], bool]) -> None:
        self._who = who
        self._board = board
        self._unless = unless
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """On a thread of its own."""
        self._thread = started(f"{self._who}-scheduler", self.run)

    def wait(self) -> None:
        """Until it has ended."""
        assert self._thread is not None
        while self._thread.is_alive():
            # A signal that comes just before a thread goes to sleep on a lock does not wake it.
            self._thread.join(SIGNALLED)

    def stop(self) -> None:
        self._ended.set()
        self._board.wake()
        if self._thread is not None:
            self._thread.join(LINGER)

    def run(self) -> None:
        failures = 0
        while not (self._ended.is_set() or self._unless()):
            alarms = self._board._alarms()
            try:
                # Before the look: what is set behind that is heard.
                most = REST if self._board._hears_schedules() else GLANCE * random.uniform(0.5, 1.0)
                left = self._board._post_due()
                pause = most if left is None else min(left, most)
                failures = 0
            except Exception as error:
                if self._board.closed:
                    return
                failures += 1
                pause = outage_pause(failures)
                unexpected = not isinstance(error, JobBoardError)
                LOG.warning(
                    "%s could not post what is due, trying again in %.1f s: %s",
                    self._who,
                    pause,
                    error,
                    exc_info=unexpected,
                )
            self._board._sleep_until_due(pause, alarms)
