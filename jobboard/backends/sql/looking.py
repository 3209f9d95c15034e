"""What a take asks for, what one look finds, and how it finds the jobs of several names or of a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.backends.sql.statements import Statements
from jobboard.engine import Lane
from jobboard.sql.prepared import Prepared, Row, chunks, text
from jobboard.states import Record

Reads = Callable[[Prepared, dict[str, Any]], list[Row]]

_MANY_NAMES = 50

SOON = 50_000
"""µs until the next look at what another's transaction has locked."""


def soon(event: int | None) -> int:
    return SOON if event is None else min(event, SOON)


class TakeRequest(NamedTuple):
    """What a take asks for.

    :param lease: who, keeper and ttl, as parameters.
    :param swept: a sweep has just been: nothing waits for what is overdue now.
    :param gate: the version of the gate by which the names were chosen; 0: there is none.
    :param without: where all but these names are wanted. Others are looked up before each look.
    :param full: of these names and groups none are wanted.
    """

    lease: dict[str, Any]
    limit: int
    readable: int
    names: Sequence[str] | None
    where: sa.ColumnElement[bool] | None
    swept: bool = False
    gate: int = 0
    without: Sequence[str] = ()
    full: Sequence[Lane] = ()

    @property
    def direct(self) -> bool:
        """Whether the first rows of one index are what is asked for."""
        return self.where is None and not self.full and (self.names is None or len(self.names) == 1)

    @property
    def name(self) -> str | None:
        """The one that is asked for, if it is one."""
        return self.names[0] if self.names is not None and len(self.names) == 1 else None

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = {"p_readable": self.readable, "p_limit": self.limit, "p_gate": self.gate}
        if self.names is not None and len(self.names) == 1:
            params["p_name"] = self.names[0]
        return params


class Glance(NamedTuple):
    """What one look found.

    :param overdue: some jobs must be swept before any is claimed.
    :param event: µs until the next job is due or lapses.
    :param margin: only of claims that an earlier try had made: for how long they stand.
    :param gate: its version, where nothing was found. Where it is not that of the request, nothing was looked for.
    :param since: the instant of the first event, before which nothing is overdue.
    :param hitch: what has kept it from taking, as the statement tells.
    """

    records: list[Record]
    overdue: bool
    event: int | None
    margin: int | None = None
    gate: int | None = None
    since: int = 0
    hitch: str | bool | None = None


class Candidates:
    """Finds the jobs of a take with several names or a condition, without a lock.

    Rows that are looked at must not be locked before they are known to be taken: an engine locks what it reads."""

    def __init__(self, statements: Statements) -> None:
        self._st = statements
        self._by_names: dict[tuple[int, int, int, bool], Prepared] = {}
        self._outside: dict[tuple[int, int, bool], Prepared] = {}

    def lists(self, request: TakeRequest, reads: Reads) -> Iterator[list[int]]:
        """The ids of what looks as wished, in serving order, at most ``limit`` in a list. The last list is empty."""
        after: tuple[int, int] | None = None
        while True:
            found = self._behind(after, request, reads)
            yield [id_ for _, id_ in found]
            if not found:
                return
            after = found[-1]

    def _behind(self, after: tuple[int, int] | None, request: TakeRequest, reads: Reads) -> list[tuple[int, int]]:
        """(priority, id) of the first ones behind ``after``."""
        params: dict[str, Any] = {"p_readable": request.readable, "p_gate": request.gate}
        if after is not None:
            params |= {"p_priority": after[0], "p_id": after[1]}
        lanes = _padded(request.full)
        params |= {f"p_name_of{i}": name for i, (name, _) in enumerate(lanes)}
        params |= {f"p_group_of{i}": group for i, (_, group) in enumerate(lanes)}
        if request.where is None and request.names is not None:
            found = set[tuple[int, int]]()
            for names in chunks(request.names, _MANY_NAMES):
                statement = self._of_names(len(names), request.limit, len(lanes), after is None)
                named = {f"p_name{i}": name for i, name in enumerate(names)}
                found.update((row[1], row[0]) for row in reads(statement, {**params, **named}))
            return sorted(found)[: request.limit]
        if request.where is None:
            statement = self._but(request.limit, len(lanes), after is None)
        else:
            conditions = [request.where, *self._st.outside(len(lanes))]
            if request.names is not None:
                conditions.append(self._st.jobs.c.name.in_(request.names))
            if after is not None:
                conditions.append(self._st.behind())
            statement = Prepared(self._st.candidates(request.limit, *conditions))
        return [(row[1], row[0]) for row in reads(statement, params)]

    def _but(self, limit: int, lanes: int, first: bool) -> Prepared:
        """Of all names."""
        statement = self._outside.get((limit, lanes, first))
        if statement is None:
            conditions = [*self._st.outside(lanes)] + ([] if first else [self._st.behind()])
            statement = Prepared(self._st.candidates(limit, *conditions, index="ready"))
            self._outside[limit, lanes, first] = statement
        return statement

    def _of_names(self, count: int, limit: int, lanes: int, first: bool) -> Prepared:
        """For each name its own walk along the index, so that the other names' jobs are not met."""
        statement = self._by_names.get((count, limit, lanes, first))
        if statement is None:
            c = self._st.jobs.c
            parts = []
            for i in range(count):
                parameter = f"name{i}"
                conditions = [c.name == text(parameter), *self._st.outside(lanes)]
                conditions += [] if first else [self._st.behind()]
                parts.append(sa.select(self._st.candidates(limit, *conditions, index="by_name").subquery()))
            statement = self._by_names[count, limit, lanes, first] = Prepared(sa.union_all(*parts))
        return statement


def _padded(lanes: Sequence[Lane]) -> Sequence[Lane]:
    """To one of a few lengths, by repetition."""
    size = 1 << (len(lanes) - 1).bit_length() if lanes else 0
    return [*lanes, *[lanes[-1]] * (size - len(lanes))] if lanes else lanes
