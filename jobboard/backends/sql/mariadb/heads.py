"""The groups that there are, on MariaDB and MySQL: one loose scan of their index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.heads import MOST, Heads, Reads, written
from jobboard.backends.sql.statements import Statements
from jobboard.engine import Lane
from jobboard.sql.hints import by_index
from jobboard.sql.prepared import Prepared, param, text


class MariaDBHeads(Heads):
    asks_for_names = False

    def __init__(self, statements: Statements) -> None:
        super().__init__(statements)
        self._index = f"{statements.tables.prefix}_by_group"
        self._made: dict[tuple[int, bool], Prepared] = {}

    def _firsts(
        self, limit: int, names: Sequence[str] | None, full: Sequence[Lane], params: dict[str, Any], reads: Reads
    ) -> Sequence[Any]:
        named = {f"p_name{i}": name for i, name in enumerate(names or ())}
        key = len(named), "p_priority" in params
        if key not in self._made:
            heads = self.heads([text(name[2:]) for name in named], key[1])
            self._made[key] = Prepared(sa.select(*heads.c).order_by(heads.c.head).limit(param("reach", sa.Integer())))
        rows = reads(self._made[key], {**params, **named, "p_reach": limit + len(full)})
        shut = set(full)
        return [row for row in rows if (row[0], row[1]) not in shut or row[3] == MOST][:limit]

    def heads(self, names: Sequence[sa.ColumnElement[str]], behind: bool = False) -> sa.Subquery:
        """Of each group: ``name``, ``job_group``, the position of its ``head``, and the ``number`` of these groups.

        :param names: of these alone; none: of all.
        """
        c = self._jobs.c
        # With an equality in its place the optimiser takes that, and reads all entries.
        mine = c.board.between(text("board"), text("board"))
        wanted = (mine, c.name.in_(names)) if names else (mine,)
        lanes = sa.select(c.name, c.job_group).where(*wanted).group_by(c.board, c.name, c.job_group)
        found = by_index(lanes.limit(written(MOST)), self._jobs, self._index).subquery("found")
        lane = sa.select(*found.c, sa.func.count().over().label("number")).subquery("lane")
        head = self.position(self.ready_of(lane.c.name, lane.c.job_group, 1, behind))
        heads = sa.select(lane.c.name, lane.c.job_group, head.label("head"), lane.c.number).subquery("heads")
        some = sa.or_(heads.c.head.is_not(None), heads.c.number == written(MOST))
        return sa.select(*heads.c).where(some).subquery("heads")

    def ready_of(self, name: Any, group: Any, limit: int, behind: bool = False) -> sa.Select[Any]:
        ready = self._ready(name, limit, behind, self._jobs.c.job_group.is_not_distinct_from(group))
        return by_index(ready, self._jobs, self._index)
