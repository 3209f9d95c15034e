"""When looks for ready jobs are found to be dear: dead entries lie before the jobs, and another kind of look pays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from jobboard.backends.sql.looking import TakeRequest

FIRST = 10
"""After how many takes a board is probed for the first time."""
EVERY = 300
"""And after how many from then on: a probe costs as much as two or three takes."""
BATCH = 10
"""How many taken jobs count as much as a look."""
NAMES = 100
"""Of how many names the first jobs are watched: each is a few hundred bytes."""
AFRESH = 60.0
"""For how many seconds what was found holds."""
RARELY = 100
"""And for how many times what it took to find it."""


class Queue:
    """The jobs of one name, or all, as their first ones are met by this process."""

    many = 128
    """From how many pages on a look is dear. It reads some ten anyway; under an old snapshot, on PostgreSQL, one more
    for each ten jobs that were done."""

    def __init__(self) -> None:
        self.takes = FIRST
        self.dear = False
        self.until = 0.0

    def quiet(self) -> bool:
        """Whether this take is as any other: not dear, and no probe is due."""
        if not self.dear:
            self.takes -= 1
        return not self.dear and self.takes > 0

    def probe(self, pages: Callable[[], int]) -> None:
        """Find out, if that is due, whether looks are dear.

        :param pages: has a plain look, and tells how many pages it has read.
        """
        if self.dear and time.monotonic() <= self.until:
            return
        self.takes = EVERY
        begun = time.monotonic()
        self.dear = pages() > self.many
        at = time.monotonic()
        self.until = at + max(AFRESH, RARELY * (at - begun))


Q = TypeVar("Q", bound=Queue)


class Queues(Generic[Q]):
    def __init__(self, make: Callable[[], Q]) -> None:
        self._make = make
        self._queues: dict[str | None, Q] = {}

    def of(self, request: TakeRequest) -> Q | None:
        """None: there are too many names to watch each."""
        name = _name(request)
        if name not in self._queues and len(self._queues) <= NAMES:
            self._queues[name] = self._make()
        return self._queues.get(name)

    def taken(self, request: TakeRequest, jobs: int) -> None:
        """So many were taken by a plain look."""
        if jobs >= BATCH and (queue := self._queues.get(_name(request))) is not None:
            queue.takes -= jobs // BATCH


def _name(request: TakeRequest) -> str | None:
    return None if request.names is None else request.names[0]
