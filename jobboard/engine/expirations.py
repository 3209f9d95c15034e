"""Expirations: the side records that a handle has left behind, counted until they are tidied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from jobboard import runtime
from jobboard.engine.store import Mark

MANY = 1000
"""The number of expired records of a handle that are worth a tidying."""

PARTS = 16
"""The number of parts of a lifetime by which ends are counted together, so that the memory is small."""

COUNTED = ("key", "outcome", "purged")
"""The kinds of side records of which there are as many as ended jobs."""


class Expirations:
    """The numbers of records that calls of this handle have given an end, by this machine's clock.

    A wrong clock makes a tidying early or late, and decides nothing: the store drops what has expired by its own time.

    :param alert: called once there are so many that a heartbeat has to watch :attr:`are_many`, and whenever that is
        found true after as many more.
    """

    def __init__(self, alert: Callable[[], None]) -> None:
        self._alert = alert
        self._lock = runtime.Lock()
        self._numbers: dict[float, int] = {}
        """The numbers of records by their ends on runtime.boottime(), rounded up."""
        self._next = math.inf
        self._expired = self._unwatched = 0
        self._is_watched = False

    def note(self, marks: Sequence[Mark]) -> None:
        """Count the records of a commit that have an end from now on."""
        for side, value, ttl, until, _ in marks:
            if side.kind in COUNTED and value is not None and side.until is None:
                if until is not None:
                    self.add(1, until / 1e6 - runtime.wall_time())
                elif ttl is not None:
                    self.add(1, ttl / 1e6)

    def add(self, number: int, seconds: float) -> None:
        """Count records that expire in so many seconds."""
        width = max(1.0, seconds / PARTS)
        with self._lock:
            end = math.ceil((runtime.boottime() + seconds) / width) * width
            self._numbers[end] = self._numbers.get(end, 0) + number
            self._next = min(self._next, end)
            self._unwatched += number
            if self._unwatched < MANY:
                return
            self._unwatched = 0
            is_known, self._is_watched = self._is_watched, True
            if is_known and self._count() < MANY:
                return
        self._alert()

    def _count(self) -> int:
        """Return the number of expired records."""
        now = runtime.boottime()
        if self._next <= now:
            for end in [end for end in self._numbers if end <= now]:
                self._expired += self._numbers.pop(end)
            self._next = min(self._numbers, default=math.inf)
        return self._expired

    @property
    def are_many(self) -> bool:
        """True if a tidying is worth its requests."""
        with self._lock:
            return self._count() >= MANY

    def clear(self) -> None:
        """Forget expired records, as they are about to be tidied."""
        with self._lock:
            self._count()
            self._expired = 0
