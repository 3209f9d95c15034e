"""What a take asks for, what one look finds, and how it finds the jobs of several names or of a condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.visitors import replacement_traverse

from jobboard.backends.sql.heads import Heads, Reads
from jobboard.backends.sql.mariadb.heads import MariaDBHeads
from jobboard.backends.sql.sqlite.heads import SQLiteHeads
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import literal
from jobboard.engine import Lane
from jobboard.sql.hints import by_index
from jobboard.sql.prepared import PARAMETER, Prepared, Row, chunks, text
from jobboard.states import UNCLAIMED, Record

_MANY_NAMES = 50

_WALK = 500
"""How many names a walk from name to name finds at least, if there are as many."""

_STRETCH = 300
"""How many entries of the index a step of MySQL's walk reads."""

_MANY_LANES = 64
"""Past how many groups a walk compares each job with them."""

SOON = 50_000
"""µs until the next look at what another's transaction has locked."""


def soon(event: int | None) -> int:
    return SOON if event is None else min(event, SOON)


SPARE = 8
"""How many more jobs of several names than wanted a take looks at, where it then passes over those that others lock."""


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
    def with_spare(self) -> TakeRequest:
        """What to look for, as all who look at one time find the same. What meets a condition may be rare, and to find
        more of it than is wanted dear."""
        return self if self.where is not None else self._replace(limit=self.limit + SPARE)

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


def condition(where: Any) -> sa.ColumnElement[bool]:
    """What a caller gives as ``where=``, with no parameter that is named like one of the board's.

    :raises TypeError: it is no condition.
    """

    def renamed(element: Any, **_: Any) -> Any:
        if isinstance(element, sa.TextClause) and any(name.startswith(PARAMETER) for name in element._bindparams):
            raise TypeError(f"where= has a text with a parameter that begins with {PARAMETER!r}, as the board's own do")
        if not isinstance(element, sa.BindParameter) or not str(element._orig_key).startswith(PARAMETER):
            return None
        value, type_, several = element.effective_value, element.type, element.expanding
        return sa.bindparam("given", value, type_, unique=True, expanding=several)

    try:
        given: Any = sa.select().where(where).whereclause
    except sa.exc.ArgumentError as error:
        raise TypeError(f"where= must be a condition on board.table, not {where!r}") from error
    return replacement_traverse(given, {}, renamed)  # type: ignore[no-any-return]


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
        self._heads = _heads_of(statements)

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
        params: dict[str, Any] = {"p_readable": request.readable, "p_gate": request.gate, "p_limit": request.limit}
        if after is not None:
            params |= {"p_priority": after[0], "p_id": after[1]}
        lanes, given = lanes_of(request.full)
        params |= given
        if lanes and request.where is None and (heads := self._beside(request, reads, params, lanes)) is not None:
            return heads
        # SQLite's indexes by name have but a part of these jobs each.
        if request.names is not None and (request.where is None or len(self._st.halves) > 1):
            found = set[tuple[int, int]]()
            for names in chunks(request.names, _MANY_NAMES):
                statement = self._of_names(len(names), request.limit, lanes, after is None, request.where)
                named = {f"p_name{i}": name for i, name in enumerate(names)}
                found.update((row[1], row[0]) for row in reads(statement, {**params, **named}))
            return sorted(found)[: request.limit]
        if request.where is None:
            statement = self._but(request.limit, lanes, after is None)
        else:
            conditions = [request.where, *self._st.outside(lanes)]
            if request.names is not None:
                conditions.append(self._st.jobs.c.name.in_(request.names))
            if after is not None:
                conditions.append(self._st.behind())
            statement = Prepared(self._st.candidates(request.limit, *conditions))
        return [(row[1], row[0]) for row in reads(statement, params)]

    def _beside(
        self, request: TakeRequest, reads: Reads, params: dict[str, Any], lanes: int
    ) -> list[tuple[int, int]] | None:
        """The same beside so many full groups, where there is a quick way; None: there is none."""
        if self._heads is None:
            return None
        names = request.names
        if names is None:
            near = self._heads.near(request.limit, lanes, params, reads) if lanes <= _MANY_LANES else []
            if len(near) == request.limit:
                return near
            if self._heads.asks_for_names:
                names = names_there(self._st, reads)
        return self._heads.first(request.limit, names, request.full, params, reads)

    def _but(self, limit: int, lanes: int, first: bool) -> Prepared:
        """Of all names."""
        statement = self._outside.get((limit, lanes, first))
        if statement is None:
            conditions = [*self._st.outside(lanes)] + ([] if first else [self._st.behind()])
            statement = Prepared(self._st.candidates(limit, *conditions, index="ready"))
            self._outside[limit, lanes, first] = statement
        return statement

    def _of_names(
        self, count: int, limit: int, lanes: int, first: bool, where: sa.ColumnElement[bool] | None
    ) -> Prepared:
        """For each name its own walk along the index, so that the other names' jobs are not met."""
        statement = self._by_names.get((count, limit, lanes, first)) if where is None else None
        if statement is None:
            c = self._st.jobs.c
            others = [*self._st.outside(lanes), *([] if first else [self._st.behind()])]
            others += [] if where is None else [where]
            walks = (
                self._st.candidates(limit, c.name == text(name), *others, half, index="by_name")
                for name in [f"name{i}" for i in range(count)]
                for half in self._st.halves
            )
            statement = Prepared(sa.union_all(*(sa.select(walk.subquery()) for walk in walks)))
            if where is None:
                self._by_names[count, limit, lanes, first] = statement
        return statement


def _heads_of(statements: Statements) -> Heads | None:
    """None: there is no index of groups, or the server can't do so."""
    dialect = statements.product.dialect
    if dialect.name in ("mysql", "mariadb"):
        return statements.part(MariaDBHeads)
    return statements.part(SQLiteHeads) if dialect.name == "sqlite" and dialect.update_returning else None


def lanes_of(full: Sequence[Lane]) -> tuple[int, dict[str, Any]]:
    """How many groups a statement leaves out, one of a few numbers; and these as its parameters, some of them again."""
    size = 1 << (len(full) - 1).bit_length() if full else 0
    params: dict[str, Any] = {}
    for i in range(size):
        params[f"p_name_of{i}"], params[f"p_group_of{i}"] = full[min(i, len(full) - 1)]
    return size, params


def names_there(statements: Statements, reads: Reads) -> list[str]:
    """The names of what is ready."""
    family = statements.product.dialect.name in ("mysql", "mariadb")
    walk: _NameWalk | _NameSteps = statements.part(_NameSteps) if family else statements.part(_NameWalk)
    found, more = list[str](), True
    while more:
        some, more = walk.some(reads(walk.statement, {"p_after": found[-1] if found else ""}))
        found += some
    return found


class _NameSteps:
    """The names of what is ready, behind ``p_after``: those that a stretch of the index has. What has more entries is
    passed over by the next. MySQL would walk from name to name by all entries before each of them."""

    def __init__(self, statements: Statements) -> None:
        jobs = statements.jobs
        ready = (statements.mine, jobs.c.state == literal(UNCLAIMED), jobs.c.name > text("after"))
        entries = sa.select(jobs.c.name).where(*ready).order_by(jobs.c.name)
        entries = entries.limit(sa.literal(_STRETCH, sa.Integer(), literal_execute=True))
        name = by_index(entries, jobs, f"{statements.tables.prefix}_by_name").subquery("stretch").c.name
        self.statement = Prepared(sa.select(name, sa.func.count()).group_by(name).order_by(name))

    @staticmethod
    def some(rows: Sequence[Row]) -> tuple[list[str], bool]:
        """And whether there may be more."""
        return [name for name, _ in rows], sum(number for _, number in rows) == _STRETCH


class _NameWalk:
    """The names of what is ready, behind ``p_after``: a walk along the index from name to name."""

    @staticmethod
    def some(rows: Sequence[Row]) -> tuple[list[str], bool]:
        """And whether there may be more: not every server walks on for as long as it takes."""
        return [name for (name,) in rows], len(rows) >= _WALK

    def __init__(self, statements: Statements) -> None:
        self._st = statements
        begin = sa.select(self._next(text("after")).label("name"))
        walk = begin.cte(f"walk_{statements.tables.prefix}", recursive=True)
        further = self._next(walk.c.name)
        walk = walk.union_all(sa.select(further).where(walk.c.name.is_not(None)))
        self.statement = Prepared(sa.select(walk.c.name).where(walk.c.name.is_not(None)))

    def _next(self, behind: Any) -> sa.ColumnElement[Any]:
        found = [self._next_in(half, behind) for half in self._st.halves]
        # Of SQLite's min() that is NULL if one of them is.
        return found[0] if len(found) == 1 else sa.func.coalesce(sa.func.min(*found), *found)

    def _next_in(self, half: sa.ColumnElement[bool], behind: Any) -> sa.ColumnElement[Any]:
        jobs = self._st.jobs
        ready = (self._st.mine, jobs.c.state == literal(UNCLAIMED), half)
        found = sa.select(jobs.c.name).where(*ready, jobs.c.name > behind).order_by(jobs.c.name)
        one = found.limit(sa.literal(1, sa.Integer(), literal_execute=True)).correlate_except(jobs)
        return by_index(one, jobs, f"{self._st.tables.prefix}_by_name").scalar_subquery()
