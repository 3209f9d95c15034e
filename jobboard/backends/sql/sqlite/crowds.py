"""What takes on SQLite pass over: jobs in scopes that they have met full lately.

That a scope was full is remembered only as something to look at: each take reads its list again, in its own
transaction, in which nobody else writes. A scope is full for sure where that is as long as the limit, with nothing but
claims that live. Jobs of any other are met, and then their lists tell whether they have room.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.backends.sql.scopes import ENTRY, TOKEN, UUID
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal, place_of
from jobboard.engine import SCOPE, Lane, LimitScope, lane
from jobboard.sql.expressions import Veiled
from jobboard.sql.links import Link
from jobboard.sql.prepared import Prepared, text
from jobboard.states import CLAIMED

MOST = 64
"""How many scopes are remembered: each take looks at them."""
PROBED = 100
"""Of how many claims of a scope it is found out whether they live."""
AFRESH = 1.0
"""For how many seconds what was met is remembered."""


class Full(NamedTuple):
    """Scopes that are full: groups, and names."""

    lanes: list[Lane]
    names: list[str]


NOTHING = Full([], [])


class Crowd:
    def __init__(self, statements: Statements) -> None:
        self._sizes = statements.part(_ScopeSizes)
        # By which version of the gate it was full, and until when that is remembered.
        self._met: dict[LimitScope, tuple[int, float]] = {}
        self._far: dict[str | None, float] = {}

    def meet(self, scopes: Iterable[LimitScope], gate: int) -> bool:
        """A take has found no room in one of these. Whether that is news."""
        at = time.monotonic()
        known = {scope: told for scope, told in list(self._met.items()) if told[1] > at}
        counted = (scope for scope in scopes if scope.limit.rate is None)
        new = [scope for scope in counted if known.get(scope, (None, 0))[0] != gate]
        if len(known) + len(new) > MOST:
            return False
        self._met = known | dict.fromkeys(new, (gate, at + AFRESH))
        return bool(new)

    def full(self, link: Link, base: dict[str, Any], gate: int) -> Full:
        """Those of the scopes met that are full for sure, as long as this transaction lasts."""
        at, found = time.monotonic(), Full([], [])
        fresh = (scope for scope, (by, until) in list(self._met.items()) if by == gate and until > at)
        met = {place_of(scope.key): scope for scope in fresh}
        if not met:
            return found
        slots = min(PROBED, max(scope.limit.concurrency or 0 for scope in met.values()))
        params = {**base, "p_places": json.dumps(list(met)), "p_slots": json.dumps(list(range(slots)))}
        for place, size, live in link.rows(self._sizes.statement, params):
            scope = met[place]
            if size == live * ENTRY and live >= (scope.limit.concurrency or 0):
                self._met[scope] = gate, at + AFRESH
                group = lane(scope)
                if group is None:
                    found.names.append(scope.limit.name)
                else:
                    found.lanes.append(group)
        return found

    def is_far(self, name: str | None) -> bool:
        """Whether there are more jobs of full groups before the others of this name, or of all, than a walk passes."""
        return self._far.get(name, 0) > time.monotonic()

    def found_far(self, name: str | None) -> None:
        at = time.monotonic()
        self._far = {each: until for each, until in list(self._far.items()) if until > at} | {name: at + AFRESH}


class _ScopeSizes:
    def __init__(self, statements: Statements) -> None:
        t, claim = statements.tables.sides, statements.jobs.alias("claim")
        places = sa.func.json_each(text("places")).table_valued("value", name="given").c.value
        slot = sa.func.json_each(text("slots")).table_valued("value", name="slot")
        begin = slot.c.value * _number(ENTRY)
        lives = (
            claim.c.uuid == _part(t.c.value, begin, 1, UUID),
            sa.cast(claim.c.token, sa.String) == _part(t.c.value, begin, UUID + 2, TOKEN),
            *(Veiled(claim.c.board) == text("board"), claim.c.state == literal(CLAIMED)),
        )
        # Looked up one by one: a join might begin with all the claims.
        one = sa.select(claim.c.id).where(*lives).limit(_number(1)).correlate_except(claim).scalar_subquery()
        live = sa.select(sa.func.count()).select_from(slot).where(one.is_not(None)).correlate(t).scalar_subquery()
        mine = (t.c.board == text("board"), t.c.kind == sa.literal_column(f"'{SCOPE}'", sa.String))
        self.statement = Prepared(
            sa.select(t.c.place, sa.func.length(t.c.value), live).where(*mine, t.c.place.in_(sa.select(places)))
        )
        """Of the lists in ``p_places``: how long each is, and how many claims in its first ``p_slots`` live, if nothing
        is overdue: otherwise nothing is taken."""


def _number(value: int) -> sa.ColumnElement[int]:
    return sa.literal_column(str(value), sa.Integer)


def _part(value: Any, begin: Any, at: int, size: int) -> sa.ColumnElement[str]:
    # A BLOB, of which a part is compared with a text.
    return sa.cast(sa.func.substr(value, begin + _number(at), _number(size)), sa.String)
