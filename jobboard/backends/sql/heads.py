"""Where jobs of full groups crowd the front of a board, the first job of each other group is looked up.

An index has the jobs of each group in their order, and those that have no group. From one group to the next it is one
step down that index: so what a look costs depends on how many groups there are, and not on how many jobs these have.
Nothing is remembered: each look stands by itself.

SQLite's indexes have ready jobs alone, MySQL's and MariaDB's those of every state: a claim moves no entry there, and a
look passes what is not ready in front of a group's first job.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.backends.sql.statements import Statements
from jobboard.engine import Lane
from jobboard.sql.prepared import Prepared, Row, text

FAR = 1000
"""How many ready jobs are walked past, in serving order, before groups are looked up."""
MOST = 5000
"""Where there are more groups than that, looks walk as far as it takes."""

Reads = Callable[[Prepared, dict[str, Any]], list[Row]]
"""Runs what only looks."""

Position = tuple[int, int]
"""Priority and id."""
PLACES = 2**48
"""More than there are ids: a position is one integer, as one look into an index answers one value."""


class Heads(abc.ABC):
    asks_for_names: bool
    """Whether the names are to be told that jobs may have, all of them if need be."""

    def __init__(self, statements: Statements) -> None:
        self._st = statements
        self._jobs = statements.jobs
        self._walks: dict[tuple[int, int, bool], Prepared] = {}
        self._rests: dict[tuple[int, bool, bool], Prepared] = {}

    def near(self, limit: int, lanes: int, params: dict[str, Any], reads: Reads) -> list[Position]:
        """The first jobs in none of so many groups, by a walk that ends soon; behind ``p_priority`` and ``p_id``, if
        these are given."""
        key = limit, lanes, "p_priority" in params
        if key not in self._walks:
            c = self._jobs.c
            ready = sa.select(c.id, c.priority, c.name, c.job_group)
            ready = ready.where(self._st.ready_condition(), *self._behind(key[2]))
            found = self._st.in_order(ready, "ready").limit(written(FAR)).subquery("near")
            first = sa.select(found.c.id, found.c.priority).where(*self._st.outside(lanes, found.c))
            self._walks[key] = Prepared(first.order_by(found.c.priority, found.c.id).limit(written(limit)))
        return [(priority, id_) for id_, priority in reads(self._walks[key], params)]

    def first(
        self, limit: int, names: Sequence[str] | None, full: Sequence[Lane], params: dict[str, Any], reads: Reads
    ) -> list[Position] | None:
        """The first jobs of these names that are in none of the groups in ``full``; behind ``p_priority`` and ``p_id``,
        if these are given. None: there are too many groups."""
        found: list[Position] = []
        for name, group, head, number in self._firsts(limit, names, full, params, reads):
            if number == MOST:
                return None
            if limit == 1:
                return [divmod(head, PLACES)]
            if len(found) == limit and divmod(head, PLACES) > found[-1]:
                break
            rest = self._rest(limit, group is not None, "p_priority" in params)
            rows = reads(rest, {**params, "p_name": name, "p_group": group})
            found = sorted([*found, *((row[1], row[0]) for row in rows)])[:limit]
        return found

    @abc.abstractmethod
    def _firsts(
        self, limit: int, names: Sequence[str] | None, full: Sequence[Lane], params: dict[str, Any], reads: Reads
    ) -> Sequence[Any]:
        """The groups that are served first, ``limit`` at most, and what has none as one for each name: its name, the
        group, the position of its first job, and a number, which is :data:`MOST` in the first row if there are too
        many."""

    @abc.abstractmethod
    def ready_of(self, name: Any, group: Any, limit: int, behind: bool = False) -> sa.Select[Any]:
        """The first jobs of a group; None: of what has none."""

    def _ready(self, name: Any, limit: int, behind: bool, *lane: sa.ColumnElement[bool]) -> sa.Select[Any]:
        c = self._jobs.c
        ready = sa.select(c.id, c.priority).where(self._st.readable(), *self._behind(behind), c.name == name, *lane)
        return ready.order_by(c.priority, c.id).limit(written(limit)).correlate_except(self._jobs)

    def _rest(self, limit: int, grouped: bool, behind: bool) -> Prepared:
        key = limit, grouped, behind
        if key not in self._rests:
            group = text("group") if grouped else None
            self._rests[key] = Prepared(self.ready_of(text("name"), group, limit, behind))
        return self._rests[key]

    def _behind(self, behind: bool) -> list[sa.ColumnElement[bool]]:
        return [self._st.behind()] if behind else []

    def position(self, ready: sa.Select[Any]) -> sa.ScalarSelect[Any]:
        """Of the first one of these."""
        c = self._jobs.c
        return ready.with_only_columns(c.priority * _PLACES + c.id).scalar_subquery()


_PLACES = sa.literal_column(str(PLACES), sa.BigInteger)


def written(number: int) -> sa.BindParameter[int]:
    return sa.literal(number, sa.BigInteger(), literal_execute=True)
