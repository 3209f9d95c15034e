"""What is known of the server's clock between two requests that tell its time."""

from __future__ import annotations

import threading

from jobboard.job import boottime

KEPT = 10.0
"""For how many seconds what an answer has told holds good."""


class Clock:
    """Each answer to a change tells a time of the server's, in ms, which lies between its sending and its arrival.

    What counts is the earliest that it may be now: it is behind by less than one request takes, so that nothing ends
    too early by it. Where something may have ended, the server is asked: its clock may have been set back, and others
    may know already."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._low = self._high = 0.0
        self._since: float | None = None

    def told(self, mtime: int, sent: float, arrived: float) -> None:
        low, high = mtime * 1e3 - arrived * 1e6, mtime * 1e3 + 1e3 - sent * 1e6
        with self._lock:
            known = self._since is not None and arrived - self._since < KEPT
            if known and low <= self._high and high >= self._low:
                self._low, self._high = max(low, self._low), min(high, self._high)
            else:
                # It was long ago, or the server's clock was set.
                self._low, self._high, self._since = low, high, arrived

    @property
    def known(self) -> bool:
        return self._since is not None and boottime() - self._since < KEPT

    def earliest(self) -> int:
        return int(boottime() * 1e6 + self._low)

    @property
    def unknown(self) -> int:
        """By how much :meth:`earliest` may lie behind, in µs."""
        return int(self._high - self._low) + 1
