"""Where jobs of a few groups crowd the front of a board on PostgreSQL, takes under limits look beside them.

Such a group is a *lane*. Of each lane a take looks at the first jobs, which an index has for each group; and at what is
in none of them behind floors, which rise past the jobs in lanes. Whether a lane is full does not matter to what is
remembered: that there is nothing but its jobs up to a floor stays true when it opens. So its next job is found then by
its place, as is what others bring in late or give back; see :mod:`~jobboard.backends.sql.postgresql.floors`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from jobboard.backends.sql.dear import AFRESH, NAMES
from jobboard.backends.sql.looking import TakeRequest
from jobboard.backends.sql.postgresql.behind import RETURNED, Behind
from jobboard.backends.sql.postgresql.floors import Surveyed
from jobboard.backends.sql.store import SQLStore
from jobboard.sql.links import Link
from jobboard.sql.prepared import Row

MOST = 8
"""How many lanes takes of one name, or of all, look beside."""
SEPARATOR = "\x1e"
"""Between lanes: neither names nor groups have control characters."""
AGAIN = 1.0
"""For how many seconds nobody looks for lanes after somebody has."""


class _Front:
    """What crowds the front of the jobs of one name, or of all. There is a new one whenever that changes: what is known
    of the jobs beside some lanes tells nothing of those beside others."""

    def __init__(self, lanes: Sequence[str]) -> None:
        at = time.monotonic()
        self.lanes = SEPARATOR.join(lanes)
        self.room = MOST - len(lanes)
        self.again, self.until = at + AGAIN, at + AFRESH
        self.floors = Surveyed()


class Lanes:
    def __init__(self, store: SQLStore) -> None:
        self._store = store
        self._fronts: dict[str | None, _Front] = {}

    def first(self, request: TakeRequest) -> list[int] | None:
        """The ids of the first ready jobs in each lane, and of those in none; None: there are no lanes, or it can't
        tell."""
        front = self._front(request)
        if front is None or not front.lanes:
            return None
        found = self._store.links.run(lambda link: self._look(link, front, request))
        return None if any(many >= RETURNED for _, many in found) else [id_ for id_, _ in found]

    def _front(self, request: TakeRequest) -> _Front | None:
        front = self._fronts.get(request.name)
        return None if front is None or front.until < time.monotonic() else front

    def _look(self, link: Link, front: _Front, request: TakeRequest) -> list[Row]:
        behind, params = self._beside(request), {**self._params(request), "p_lanes": front.lanes}
        floors = front.floors.look_around(link, behind.survey, params)
        return link.rows(behind.candidates(request.limit), {**params, **floors.params()})

    def found(self, request: TakeRequest) -> bool:
        """Look for what crowds the front beside the lanes that are known: whether there is anything."""
        front = self._front(request)
        if front is not None and front.again > time.monotonic():
            return False
        # Where there can't be more, some may have become empty.
        known = front.lanes.split(SEPARATOR) if front is not None and front.lanes and front.room > 0 else []
        params = {**self._params(request), "p_lanes": SEPARATOR.join(known)}
        new = [key for (key,) in self._store.query(self._beside(request).crowding, **params)]
        if len(self._fronts) > NAMES:
            self._fronts.clear()
        if new or front is None:
            self._fronts[request.name] = _Front([*known, *new][:MOST])
        else:
            front.again = time.monotonic() + AGAIN
        return bool(new)

    def _params(self, request: TakeRequest) -> dict[str, object]:
        return {**self._store.base, **request.params}

    def _beside(self, request: TakeRequest) -> Behind:
        return self._store.statements.part(Behind, request.names is not None, True)
