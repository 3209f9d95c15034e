"""Which statement a take under limits is on PostgreSQL, and when it gives way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobboard.backends.sql.dear import NAMES
from jobboard.backends.sql.looking import Candidates, Glance, TakeRequest, soon
from jobboard.backends.sql.postgresql.entering import Entering
from jobboard.backends.sql.postgresql.lanes import Lanes
from jobboard.backends.sql.scopes import rules_of
from jobboard.backends.sql.store import SQLStore
from jobboard.engine import Limits
from jobboard.primitives import Nonce

MOST_RULES = 50
"""By how many limits one statement decides, at most."""

TRIES = 3
"""How often a take looks out for full scopes while others are quicker at all that it finds."""

WAYS = ("known", "first", "crowded")
"""How a take decides, see :meth:`Entering.take`: each does what the one before it can't, and costs more."""

CROWDED = 1.0
"""For how many seconds after a way has not been enough takes do without it."""


class LimitedTakes:
    """:param take: runs a statement that takes jobs, for a request and with further parameters."""

    def __init__(self, store: SQLStore, take: Callable[..., Glance]) -> None:
        self._store = store
        self._entering = store.statements.part(Entering)
        self._lanes = Lanes(store)
        self._take = take
        self._candidates = store.statements.part(Candidates)
        self._known: tuple[Limits | None, dict[tuple[str, ...] | None, tuple[int, dict[str, object]]]] = None, {}
        self._begins: dict[tuple[str, ...] | None, tuple[int, float]] = {}

    def __call__(self, request: TakeRequest, limits: Limits, nonce: Nonce) -> Glance | None:
        """None: the general way is to do it."""
        rules, params = self._rules_of(limits, request.names)
        if request.where is not None or request.full or rules > MOST_RULES:
            return None
        busy = False
        for kind, way, more in self._ways(request):
            statement = self._entering.take(kind, request.limit, rules, way)
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

    def _rules_of(self, limits: Limits, names: Sequence[str] | None) -> tuple[int, dict[str, object]]:
        # Others may take by other limits at this moment: what belongs to these is only ever replaced together.
        by, made = self._known
        if by is not limits or len(made) > NAMES:
            by, made = self._known = limits, {}
        key = _names(names)
        if key not in made:
            made[key] = rules_of(limits, names)
        return made[key]

    def _ways(self, request: TakeRequest) -> Iterator[tuple[str, str, dict[str, Any]]]:
        if not request.direct:
            for ids in self._candidates.lists(
                request.with_spare, lambda each, params: self._store.query(each, **params)
            ):
                for way in self._from(request, "first"):
                    yield "ids", way, {"p_ids": ids}
            return
        if (first := self._lanes.first(request)) is not None:
            yield "ids", "crowded", {"p_ids": first}
            yield from self._beside(request)
            return
        kind = "any" if request.names is None else "named"
        for way in self._from(request, "crowded"):
            yield kind, way, {}
        yield from self._beside(request)

    def _from(self, request: TakeRequest, last: str) -> Iterator[str]:
        """The ways to try up to the last one. Where each scope is known and has room, to look out for others would cost
        each take something."""
        key = _names(request.names)
        begin, until = self._begins.get(key, (0, 0.0))
        if until <= time.monotonic():
            begin = 0
        end = WAYS.index(last)
        for way in range(min(max(begin, request.limit > 1), end), end + 1):
            yield WAYS[way]
            if way < end:
                if len(self._begins) > NAMES:
                    self._begins.clear()
                self._begins[key] = way + 1, time.monotonic() + CROWDED

    def _beside(self, request: TakeRequest) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Beside groups that are found to be in the way."""
        if self._lanes.found(request) and (first := self._lanes.first(request)) is not None:
            yield "ids", "crowded", {"p_ids": first}


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
