"""SQLite's walk from group to group of each name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.heads import MOST, Heads, Reads, written
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal
from jobboard.engine import Lane
from jobboard.sql.prepared import Prepared, text
from jobboard.states import UNCLAIMED


class SQLiteHeads(Heads):
    asks_for_names = True

    def __init__(self, statements: Statements) -> None:
        super().__init__(statements)
        self._made: dict[tuple[int, bool], Prepared] = {}

    def _firsts(
        self, limit: int, names: Sequence[str] | None, full: Sequence[Lane], params: dict[str, Any], reads: Reads
    ) -> Sequence[Any]:
        given = {"p_names": json.dumps(names), "p_full": json.dumps(["\n".join(lane) for lane in full])}
        key = limit, "p_priority" in params
        if key not in self._made:
            self._made[key] = self._first(*key)
        return reads(self._made[key], {**params, **given})

    def _first(self, limit: int, behind: bool) -> Prepared:
        c = self._jobs.c
        given = sa.func.json_each(text("names")).table_valued("value", name="given").c.value
        full = sa.func.json_each(text("full")).table_valued("value", name="shut").c.value
        begin = sa.select(given.label("name"), self._next(given).label("job_group"), written(1).label("number"))
        lane = begin.cte("lane", recursive=True)
        further = self._next(lane.c.name, c.job_group > lane.c.job_group)
        # The last one of each name is what has no group.
        more = sa.select(lane.c.name, further, lane.c.number + written(1)).where(
            lane.c.job_group.is_not(None), lane.c.number < written(MOST)
        )
        lane = lane.union_all(more)
        alone, grouped = (
            self.position(self.ready_of(lane.c.name, group, 1, behind)) for group in (None, lane.c.job_group)
        )
        others = (lane.c.name + "\n" + lane.c.job_group).not_in(sa.select(full))
        wanted = sa.or_(lane.c.job_group.is_(None), others, lane.c.number == written(MOST))
        head = sa.case((lane.c.job_group.is_(None), alone), else_=grouped)
        # With a limit, or it is reckoned for each place where it is used.
        each = sa.select(lane.c.name, lane.c.job_group, head.label("head"), lane.c.number).where(wanted)
        heads = each.limit(written(-1)).subquery("heads")
        # Where there are too many, it tells that first.
        too_many = heads.c.number == written(MOST)
        found = sa.select(*heads.c).where(sa.or_(heads.c.head.is_not(None), too_many))
        return Prepared(found.order_by(too_many.desc(), heads.c.head).limit(written(limit)))

    def _next(self, name: Any, *behind: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
        """The next group of a name."""
        c = self._jobs.c
        ready = (self._st.mine, c.state == literal(UNCLAIMED), c.name == name, c.job_group.is_not(None), *behind)
        found = sa.select(c.job_group).where(*ready).order_by(c.job_group).limit(written(1))
        return found.correlate_except(self._jobs).scalar_subquery()

    def ready_of(self, name: Any, group: Any, limit: int, behind: bool = False) -> sa.Select[Any]:
        c = self._jobs.c
        # Each of the indexes must be shown its condition.
        lane = (c.job_group.is_(None),) if group is None else (c.job_group.is_not(None), c.job_group == group)
        return self._ready(name, limit, behind, *lane)
