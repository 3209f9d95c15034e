"""Which statement a take under limits is on PostgreSQL, and when it gives way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from jobboard.backends.sql.dear import NAMES
from jobboard.backends.sql.entering import Entering
from jobboard.backends.sql.lanes import Lanes
from jobboard.backends.sql.looking import Candidates, Glance, TakeRequest, soon
from jobboard.backends.sql.scopes import rules_of
from jobboard.backends.sql.store import SQLStore
from jobboard.engine import Limits
from jobboard.primitives import Nonce

MOST_RULES = 50
"""By how many limits one statement decides, at most."""

TRIES = 3
"""How often a take looks out for full scopes while others are quicker at all that it finds."""

CROWDED = 1.0
"""For how many seconds after a take has met a full scope others look out for them."""


class LimitedTakes:
    """:param take: runs a statement that takes jobs, for a request and with further parameters."""

    def __init__(self, store: SQLStore, entering: Entering, lanes: Lanes, take: Callable[..., Glance]) -> None:
        self._store = store
        self._entering = entering
        self._lanes = lanes
        self._take = take
        self._candidates = store.statements.part(Candidates)
        self._crowded: dict[str | None, float] = {}

    def __call__(self, request: TakeRequest, limits: Limits, nonce: Nonce) -> Glance | None:
        """None: the general way is to do it."""
        rules, params = rules_of(limits, request.names)
        if request.where is not None or request.full or rules > MOST_RULES:
            return None
        busy = False
        for kind, crowded, more in self._ways(request):
            statement = self._entering.take(kind, request.limit, rules, crowded)
            for _ in range(TRIES):
                look = self._take(statement, request, nonce, **params, **more)
                if look.hitch != "busy":
                    break
            if look.overdue or look.hitch in ("busy", "unsure"):
                return None
            if look.records or not (look.hitch or more.get("p_ids")):
                return look._replace(event=soon(look.event)) if busy and not look.records else look
            busy = True
        return None

    def _ways(self, request: TakeRequest) -> Iterator[tuple[str, bool, dict[str, Any]]]:
        if not request.direct:
            for ids in self._candidates.lists(request, lambda each, params: self._store.query(each, **params)):
                yield "ids", False, {"p_ids": ids}
            return
        if (first := self._lanes.first(request)) is not None:
            yield "ids", True, {"p_ids": first}
            yield from self._beside(request)
            return
        name = request.params.get("p_name")
        kind = "any" if name is None else "named"
        # Where nothing is full, to look out for that would cost each take something.
        if self._crowded.get(name, 0) <= time.monotonic():
            yield kind, False, {}
            if len(self._crowded) > NAMES:
                self._crowded.clear()
            self._crowded[name] = time.monotonic() + CROWDED
        yield kind, True, {}
        yield from self._beside(request)

    def _beside(self, request: TakeRequest) -> Iterator[tuple[str, bool, dict[str, Any]]]:
        """Beside groups that are found to be in the way."""
        if self._lanes.found(request) and (first := self._lanes.first(request)) is not None:
            yield "ids", True, {"p_ids": first}
