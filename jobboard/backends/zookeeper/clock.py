"""Bounds of the server's clock, from the requests that tell its time."""

from __future__ import annotations

import threading

from jobboard.job import boottime

KEPT = 10.0
"""After how many seconds the server is asked again. So long a clock that was set may go unnoticed; and those who only
look, whose time is that of the last question, may lag."""

DRIFT = 500.0
"""By how many µs in a second the two clocks may part."""


class Clock:
    """Each answer to a change tells a time of the server's, in ms, which lies between its sending and its arrival.

    What counts is the earliest that it may be now. So nothing ends too early; it ends too late by as much as is not
    known, which is about the time that the quickest of the last requests took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What to add to this process's own clock, at least and at most, when the last answer came.
        self._low = self._high = 0.0
        self._since: float | None = None
        self._asked: float | None = None

    def told(self, mtime: int, sent: float, arrived: float, asked: bool = False) -> None:
        low, high = mtime * 1e3 - arrived * 1e6, mtime * 1e3 + 1e3 - sent * 1e6
        with self._lock:
            if self._since is not None:
                drift = DRIFT * max(0.0, arrived - self._since)
                before, after = self._low - drift, self._high + drift
                # Else the server's clock was set.
                if low <= after and high >= before:
                    low, high = max(low, before), min(high, after)
            self._low, self._high, self._since = low, high, arrived
            if asked:
                self._asked = arrived

    @property
    def known(self) -> bool:
        return self._asked is not None and boottime() - self._asked < KEPT

    def earliest(self) -> int:
        now = boottime()
        return int(now * 1e6 + self._low - DRIFT * self._age(now))

    @property
    def unknown(self) -> int:
        """Return by how many µs :meth:`earliest` may lie behind."""
        return int(self._high - self._low + 2 * DRIFT * self._age(boottime())) + 1

    def _age(self, now: float) -> float:
        return 0.0 if self._since is None else max(0.0, now - self._since)
