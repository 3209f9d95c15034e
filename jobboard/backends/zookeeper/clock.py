"""Bounds of the server's clock, learnt from the answers to changes."""

from __future__ import annotations

from jobboard import runtime

KEPT = 10.0
"""The seconds after which a handle asks the server again. Within these, a handle may miss a change of the server's
clock, and a handle that only looks may lag."""

DRIFT = 500.0
"""The µs by which the two clocks may drift apart in a second."""


class ClockBounds:
    """The bounds of the server's clock that this process knows.

    Each answer to a change names a time of the server, in ms, between the sending of the request and the arrival of the
    answer. The earliest possible time counts, so no lease ends too early. A lease may end too late by :attr:`unknown`,
    which is about the duration of the quickest of the last requests."""

    def __init__(self) -> None:
        self._lock = runtime.Lock()
        # The difference to this process's own clock, at least and at most, when the last answer came.
        self._low = self._high = 0.0
        self._since: float | None = None
        self._asked: float | None = None

    def learn(self, mtime: int, sent: float, arrived: float, asked: bool = False) -> None:
        low, high = mtime * 1e3 - arrived * 1e6, mtime * 1e3 + 1e3 - sent * 1e6
        with self._lock:
            if self._since is not None:
                drift = DRIFT * max(0.0, arrived - self._since)
                before, after = self._low - drift, self._high + drift
                # Otherwise the server's clock was set.
                if low <= after and high >= before:
                    low, high = max(low, before), min(high, after)
            self._low, self._high, self._since = low, high, arrived
            if asked:
                self._asked = arrived

    @property
    def known(self) -> bool:
        return self._asked is not None and runtime.boottime() - self._asked < KEPT

    def earliest(self) -> int:
        now = runtime.boottime()
        return int(now * 1e6 + self._low - DRIFT * self._age(now))

    def latest(self) -> int:
        return self.earliest() + self.unknown

    @property
    def unknown(self) -> int:
        """The µs by which :meth:`earliest` may lie behind."""
        return int(self._high - self._low + 2 * DRIFT * self._age(runtime.boottime())) + 1

    def _age(self, now: float) -> float:
        return 0.0 if self._since is None else max(0.0, now - self._since)
