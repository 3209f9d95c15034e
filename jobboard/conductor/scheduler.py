"""The scheduler: a thread that posts the due jobs of a board's schedules."""

from __future__ import annotations

from jobboard import logs, runtime
from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError
from jobboard.retry import outage_backoff
from jobboard.threads import started

LOG = logs.Log(__name__)

GLANCE = 2.0
"""Seconds between two looks for schedules of other processes, if the server cannot report changes. Schedules of its own
process wake the scheduler."""

REST = 3600.0
"""The longest sleep of a scheduler if the server reports changes, in seconds. A scheduler is late by up to this if the
server's clock is put forward."""

SIGNALLED = 1.0
"""Seconds between two checks for signals in a main thread that waits."""

LINGER = 2.0
"""Seconds for which the end of a scheduler waits for an unanswered request."""


class Scheduler:
    """Posts due jobs until it is stopped. Any number of schedulers run on one board: each due time gets one job.

    :param who: the name for the log.
    """

    def __init__(self, who: str, board: JobBoard) -> None:
        self._who = who
        self._board = board
        self._ended = runtime.Event()
        self._thread: runtime.Thread | None = None

    def start(self) -> None:
        """Run on a thread of its own."""
        self._thread = started(f"{self._who}-scheduler", self.run)

    def wait(self) -> None:
        """Wait until the thread has ended."""
        assert self._thread is not None
        while self._thread.is_alive():
            # A signal that comes just before a thread goes to sleep on a lock does not wake it.
            self._thread.join(SIGNALLED)

    def stop(self, seconds: float | None = None) -> None:
        """End the thread. Wait at most ``seconds`` for an unanswered request."""
        self._ended.set()
        self._board.wake()
        if self._thread is not None:
            self._thread.join(LINGER if seconds is None else min(seconds, LINGER))

    def run(self) -> None:
        failures = 0
        while not self._ended.is_set():
            alarms = self._board.waiters.alarms
            try:
                # Before the look, so that a later change of schedules is heard.
                most = REST if self._board.engine.watch("schedules") else GLANCE * runtime.random.uniform(0.5, 1.0)
                left = self._board.post_due()
                pause = most if left is None else min(left, most)
                failures = 0
            except Exception as error:
                if self._board.closed:
                    return
                failures += 1
                pause = outage_backoff(failures)
                told, unexpected = "could not post due jobs, trying again in", not isinstance(error, JobBoardError)
                LOG.warning("%s %s %.1f s: %s", self._who, told, pause, error, exc_info=unexpected)
            self._board.waiters.sleep_until_due(pause, alarms)
