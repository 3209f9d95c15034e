"""Expirations: the side records that a handle has left behind, counted until they are tidied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from jobboard import runtime
from jobboard.engine.store import Mark

MANY = 1000
"""The number of expired records of a handle that are worth a tidy run."""

PARTS = 16
"""The parts of a lifetime. Ends in one part are counted together, so that the memory is small."""

COUNTED = ("key", "outcome", "purged")
"""The kinds of side records that grow with the number of ended jobs."""


class Expirations:
    """The numbers of records that calls of this handle have given an end, by this machine's clock.

    A wrong clock makes a tidying early or late, and decides nothing: the store drops what has expired by its own time.

    :param alert: called once there are :data:`MANY`, so that a heartbeat watches :attr:`are_many`, and whenever that is
        true after as many more.
    """

    def __init__(self, alert: Callable[[], None]) -> None:
        self._alert = alert
        self._lock = runtime.Lock()
        self._numbers: dict[float, int] = {}
        """The numbers of records by their ends on runtime.boottime(), rounded up."""
        self._unwatched = 0
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
        """Count records that expire in ``seconds``."""
        width = max(1.0, seconds / PARTS)
        with self._lock:
            end = math.ceil((runtime.boottime() + seconds) / width) * width
            self._numbers[end] = self._numbers.get(end, 0) + number
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
        return sum(number for end, number in self._numbers.items() if end <= now)

    @property
    def are_many(self) -> bool:
        """True if a tidying is worth its requests."""
        with self._lock:
            return self._count() >= MANY

    def clear(self) -> None:
        """Forget expired records, as they are about to be tidied."""
        now = runtime.boottime()
        with self._lock:
            self._numbers = {end: number for end, number in self._numbers.items() if end > now}
