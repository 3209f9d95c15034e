"""Which takes on PostgreSQL look behind floors: those on a board where looks without floors read many pages."""

from __future__ import annotations

from jobboard.backends.sql.dear import Queue, Queues
from jobboard.backends.sql.looking import TakeRequest
from jobboard.backends.sql.postgresql.behind import Behind, pages
from jobboard.backends.sql.postgresql.floors import Floors, Surveyed
from jobboard.backends.sql.store import SQLStore
from jobboard.sql.links import Link

AHEAD = 1_000_000
"""µs until the next look, if one behind floors has found nothing: it has not looked for what is to come."""


class _FloorQueue(Queue):
    def __init__(self) -> None:
        super().__init__()
        self.floors = Surveyed()


class Lookout:
    def __init__(self, store: SQLStore) -> None:
        self._store = store
        self.queues = Queues(_FloorQueue)

    def behind(self, request: TakeRequest) -> Behind:
        return self._store.statements.part(Behind, request.names is not None)

    def floors(self, request: TakeRequest) -> Floors | None:
        """Where this take is to begin; None: it need not know."""
        queue = self.queues.of(request)
        if queue is None or queue.quiet():
            return None
        return self._store.links.run(lambda link: self._look_around(link, queue, request))

    def _look_around(self, link: Link, queue: _FloorQueue, request: TakeRequest) -> Floors | None:
        behind = self.behind(request)
        params = {**self._store.base, **request.params}
        queue.probe(lambda: pages(link.rows(behind.probe, params)[0][0]))
        if not queue.dear:
            queue.floors.clear()
            return None
        return queue.floors.look_around(link, behind.survey, params)
