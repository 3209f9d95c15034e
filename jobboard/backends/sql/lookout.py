"""Which takes on PostgreSQL look behind floors: those on a board where looks without floors read many pages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from jobboard.backends.sql.behind import Behind, pages
from jobboard.backends.sql.floors import AFRESH, BATCH, RARELY, Floors
from jobboard.backends.sql.looking import TakeRequest
from jobboard.backends.sql.store import SQLStore
from jobboard.sql.links import Link

if TYPE_CHECKING:
    from jobboard.backends.sql.postgresql import Single

FIRST = 10
"""After how many takes a board is probed for the first time."""
EVERY = 300
"""And after how many from then on: a probe costs as much as two or three takes."""
AHEAD = 1_000_000
"""µs until the next look, if one behind floors has found nothing: it has not looked for what is to come."""
NAMES = 100
"""Of how many names the first jobs are watched: each is a few hundred bytes."""
MANY = 128
"""What a look reads anyway is some ten pages; under an old snapshot, a page more for each ten jobs that were done."""


class _Queue:
    """The jobs of one name, or all, as their first ones are met by this process."""

    def __init__(self) -> None:
        self.takes = FIRST
        self.dear = False
        self.until = 0.0
        self.floors: WeakKeyDictionary[Link, Floors] = WeakKeyDictionary()


class Lookout:
    def __init__(self, store: SQLStore, single: Single) -> None:
        self._store = store
        self._queues: dict[str | None, _Queue] = {}
        self._single = single
        self._behind: dict[bool, Behind] = {}

    def behind(self, request: TakeRequest) -> Behind:
        named = request.names is not None
        behind = self._behind.get(named)
        if behind is None:
            behind = self._behind[named] = Behind(self._store.statements, self._single, named)
        return behind

    def floors(self, request: TakeRequest) -> Floors | None:
        """Where this take is to begin; None: it need not know."""
        name = _name(request)
        queue = self._queues.get(name)
        if queue is None:
            if len(self._queues) > NAMES:
                return None
            queue = self._queues[name] = _Queue()
        if not queue.dear:
            queue.takes -= 1
            if queue.takes > 0:
                return None
        return self._store.links.run(lambda link: self._look_around(link, queue, request))

    def taken(self, request: TakeRequest, jobs: int) -> None:
        """So many were taken by a look without floors."""
        if jobs >= BATCH and (queue := self._queues.get(_name(request))) is not None:
            queue.takes -= jobs // BATCH

    def _look_around(self, link: Link, queue: _Queue, request: TakeRequest) -> Floors | None:
        behind = self.behind(request)
        params = {**self._store.base, **request.params}
        if not queue.dear or time.monotonic() > queue.until:
            queue.takes = EVERY
            begun = time.monotonic()
            [(told,)] = link.rows(behind.probe, params)
            at = time.monotonic()
            queue.dear, queue.until = pages(told) > MANY, at + max(AFRESH, RARELY * (at - begun))
        if not queue.dear:
            queue.floors.clear()
            return None
        floors = queue.floors.get(link)
        if floors is None:
            floors = queue.floors[link] = Floors()
        if floors.due():
            afresh, begun = floors.stale, time.monotonic()
            [told] = link.rows(behind.survey, {**params, **floors.params(afresh)})
            floors.learn(told, time.monotonic() - begun, afresh)
        return floors


def _name(request: TakeRequest) -> str | None:
    return None if request.names is None else request.names[0]
