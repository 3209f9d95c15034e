"""Where jobs of full groups crowd the front of a board on SQLite, the first job of each other group is looked up.

An index has the jobs of each group in their order, another those of a name that have no group. From one group to the
next it is one step down that index: so what a look costs depends on how many groups have ready jobs, and not on how
many jobs these are. Nothing is remembered: each look stands by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal
from jobboard.engine import Lane
from jobboard.sql.prepared import Prepared, text
from jobboard.states import UNCLAIMED

if TYPE_CHECKING:
    from jobboard.backends.sql.looking import Reads

FAR = 1000
"""How many ready jobs are walked past, in serving order, before groups are looked up."""
MOST = 5000
"""Of a name that has more groups than that, looks walk as far as it takes."""

Place = tuple[int, int]
"""Priority and id."""
PLACES = 2**48
"""More than there are ids: a place is one integer, as one look into an index answers one value."""


class Heads:
    def __init__(self, statements: Statements) -> None:
        self._st = statements
        self._jobs = statements.jobs
        self._walks: dict[tuple[int, int, bool], Prepared] = {}
        self._firsts: dict[tuple[int, bool], Prepared] = {}
        self._rests: dict[tuple[int, bool, bool], Prepared] = {}

    @staticmethod
    def serve(statements: Statements) -> bool:
        """Whether there are such indexes, and the server can do so."""
        return len(statements.halves) > 1 and statements.product.dialect.update_returning

    def near(self, limit: int, lanes: int, params: dict[str, Any], reads: Reads) -> list[Place]:
        """The first jobs in none of so many groups, by a walk that ends soon; behind ``p_priority`` and ``p_id``, if
        these are given."""
        key = limit, lanes, "p_priority" in params
        if key not in self._walks:
            c = self._jobs.c
            walk = self._st.candidates(FAR, *self._behind(key[2]), index="ready").add_columns(c.name, c.job_group)
            found = walk.subquery("near")
            first = sa.select(found.c.id, found.c.priority).where(*self._st.outside(lanes, found.c))
            self._walks[key] = Prepared(first.order_by(found.c.priority, found.c.id).limit(_written(limit)))
        return [(priority, id_) for id_, priority in reads(self._walks[key], params)]

    def first(
        self, limit: int, names: Sequence[str], full: Sequence[Lane], params: dict[str, Any], reads: Reads
    ) -> list[Place] | None:
        """The first jobs of these names that are in none of the groups in ``full``; behind ``p_priority`` and ``p_id``,
        if these are given. None: there are too many groups."""
        given = {"p_names": json.dumps(names), "p_full": json.dumps(["\n".join(lane) for lane in full])}
        key = limit, "p_priority" in params
        if key not in self._firsts:
            self._firsts[key] = self._first(*key)
        found: list[Place] = []
        for name, group, head, number in reads(self._firsts[key], {**params, **given}):
            if number == MOST:
                return None
            if limit == 1:
                return [divmod(head, PLACES)]
            if len(found) == limit and divmod(head, PLACES) > found[-1]:
                break
            rest = self._rest(limit, group is not None, key[1])
            rows = reads(rest, {**params, "p_name": name, "p_group": group})
            found = sorted([*found, *((row[1], row[0]) for row in rows)])[:limit]
        return found

    def _first(self, limit: int, behind: bool) -> Prepared:
        """Of the groups that are served first, and of what has none."""
        c = self._jobs.c
        given = sa.func.json_each(text("names")).table_valued("value", name="given").c.value
        full = sa.func.json_each(text("full")).table_valued("value", name="shut").c.value
        begin = sa.select(given.label("name"), self._next(given).label("job_group"), _written(1).label("number"))
        lane = begin.cte("lane", recursive=True)
        further = self._next(lane.c.name, c.job_group > lane.c.job_group)
        # The last one of each name is what has no group.
        more = sa.select(lane.c.name, further, lane.c.number + _written(1)).where(
            lane.c.job_group.is_not(None), lane.c.number < _written(MOST)
        )
        lane = lane.union_all(more)
        alone, grouped = (
            self._ready_of(lane.c.name, group, 1, behind).with_only_columns(c.priority * _PLACES + c.id)
            for group in (None, lane.c.job_group)
        )
        others = (lane.c.name + "\n" + lane.c.job_group).not_in(sa.select(full))
        wanted = sa.or_(lane.c.job_group.is_(None), others, lane.c.number == _written(MOST))
        head = sa.case((lane.c.job_group.is_(None), alone.scalar_subquery()), else_=grouped.scalar_subquery())
        # With a limit, or it is reckoned for each place where it is used.
        each = sa.select(lane.c.name, lane.c.job_group, head.label("head"), lane.c.number).where(wanted)
        heads = each.limit(_written(-1)).subquery("heads")
        # Where there are too many, it tells that first.
        too_many = heads.c.number == _written(MOST)
        found = sa.select(*heads.c).where(sa.or_(heads.c.head.is_not(None), too_many))
        return Prepared(found.order_by(too_many.desc(), heads.c.head).limit(_written(limit)))

    def _next(self, name: Any, *behind: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
        """The next group of a name."""
        c = self._jobs.c
        ready = (self._st.mine, c.state == literal(UNCLAIMED), c.name == name, c.job_group.is_not(None), *behind)
        found = sa.select(c.job_group).where(*ready).order_by(c.job_group).limit(_written(1))
        return found.correlate_except(self._jobs).scalar_subquery()

    def _ready_of(self, name: Any, group: Any, limit: int, behind: bool) -> sa.Select[Any]:
        """The first jobs of a group, or of what has none."""
        c = self._jobs.c
        # Each of the indexes must be shown its condition.
        lane = (c.job_group.is_(None),) if group is None else (c.job_group.is_not(None), c.job_group == group)
        ready = sa.select(c.id, c.priority).where(self._st.readable(), *self._behind(behind), c.name == name, *lane)
        return ready.order_by(c.priority, c.id).limit(_written(limit)).correlate_except(self._jobs)

    def _rest(self, limit: int, grouped: bool, behind: bool) -> Prepared:
        key = limit, grouped, behind
        if key not in self._rests:
            group = text("group") if grouped else None
            self._rests[key] = Prepared(self._ready_of(text("name"), group, limit, behind))
        return self._rests[key]

    def _behind(self, behind: bool) -> list[sa.ColumnElement[bool]]:
        return [self._st.behind()] if behind else []


_PLACES = sa.literal_column(str(PLACES), sa.BigInteger)


def _written(limit: int) -> sa.BindParameter[int]:
    return sa.literal(limit, sa.Integer(), literal_execute=True)
