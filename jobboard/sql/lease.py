"""Leases on rows of users' tables: their columns and values, and the statements that take, extend and end leases.

Task loops, claimable models of SQLAlchemy and Django, and tracked jobs hold rows by these leases. Claims of jobs on
boards do not: :mod:`jobboard.states` decides about their leases. Each database takes rows in its own way:

- PostgreSQL picks, locks, changes and returns rows in one statement.
- MySQL 8.0.1 and MariaDB 10.6 lock the rows that they pick, skip the rows that others have locked, and change the rows
  by their key. They lock all rows that they read or sort. So the rows are either found without locks and then locked by
  their key, or :class:`TakeAlong` walks along an index in exactly the order of the select.
- SQLite has one writer at a time, from the ``BEGIN IMMEDIATE`` that begins the transaction.
- Older versions of MySQL and MariaDB wait for the rows that others have locked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection

from jobboard.sql.dialects import Database, database
from jobboard.sql.expressions import Beside, Exact, Now, chunks, elements, param
from jobboard.sql.runners import CallersConnection, Row, Runner
from jobboard.units import SECOND

LOCKED_AT_ONCE = 100
"""The number of rows that one statement locks at most. For more rows, planners read whole tables."""

FAR = 1000
"""The number of rows that :class:`TakeAlong` looks through for rows that nobody has locked."""

PRIMARY = "PRIMARY"
"""MySQL's name of the index of a primary key."""

Key = tuple[Any, ...]
Condition = sa.ColumnElement[bool]
Columns = Sequence[sa.ColumnElement[Any]]

Held = Mapping[Key, tuple[str, int | None]]
"""The holder's name and token of each row, by the row's key. A token of None is any token."""

Values = Callable[[sa.ColumnElement[int]], Mapping[Any, Any]]
"""A function that returns the values to write, for the time of the lease in microseconds."""


class Term(NamedTuple):
    """The holder of a lease, and how long the lease lasts. Times are microseconds."""

    who: str
    timeout: int
    begin: int | None
    """The begin that the caller has named; None for the database's time."""

    def begin_at(self, now: int) -> int:
        """Return the begin of a lease that is written at ``now``."""
        return now if self.begin is None else self.begin

    def deadline(self, asked: float, now: int) -> float:
        """Return the end of the lease on this machine's clock, counted from ``asked``, before the request was sent."""
        return asked + (self.begin_at(now) + self.timeout - now) / SECOND


@dataclass(frozen=True, eq=False)
class RowLease:
    """The lease on each row of a table.

    :param key: the columns of the primary key.
    :param who: the column with the holder's name, which is NULL while nobody holds the row.
    :param token: the column with the fencing token, which rises with each lease of the row.
    :param since: the column with the begin of the lease.
    :param until: the column with the end of the lease.
    :param now: the database's clock, in the unit of the columns.
    """

    table: sa.Table
    key: Columns
    # A column that a table does not have is None.
    who: Any = None
    token: Any = None
    since: Any = None
    until: Any = None
    now: sa.ColumnElement[int] = field(default_factory=Now)

    # Conditions and values

    @property
    def free(self) -> Condition:
        """The condition of a row that anybody may take."""
        # Operators free a row by its holder alone.
        return sa.or_(self.who.is_(None), self.until.is_(None), self.until <= self.now)

    def lapsed(self, now: int | None, where: Iterable[Condition] = ()) -> Condition:
        """Return the condition of a row whose lease has ended before ``now``, or before the database's time.

        :param where: further conditions.
        """
        end = self.until < (self.now if now is None else sa.literal(now, sa.BigInteger()))
        return sa.and_(self.who.is_not(None), end, *where)

    def lasting(self, begun: Any, timeout: Any) -> dict[Any, Any]:
        """Return the values of a lease from ``begun`` on."""
        times = {self.since: begun, self.until: begun + timeout}
        return {column: value for column, value in times.items() if column is not None}

    @property
    def ended(self) -> dict[Any, Any]:
        """The values of a row that nobody holds. The token stays."""
        columns = (self.who, self.since, self.until)
        return {column: sa.null() for column in columns if column is not None}

    # Statements

    def take(
        self, connection: Connection, select: sa.Select[Any], limit: int, term: Term
    ) -> dict[Key, tuple[int, int]]:
        """Take the first rows of a select of free rows.

        :param select: the key and the token of the rows, in order. On MySQL it names the rows by their key.
        :returns: the new token of each row, and the time in microseconds.
        """
        fence: dict[Any, Any] = {self.who: param("who", Exact()), self.token: self.token + 1}

        def values(now: sa.ColumnElement[int]) -> dict[Any, Any]:
            begun = now if term.begin is None else sa.literal(term.begin, sa.BigInteger())
            return {**fence, **self.lasting(begun, param("timeout"))}

        product = database(connection.dialect)
        moved = product.moved_columns(connection, self.table)
        take = Take(product, self, select.limit(param("limit", sa.Integer())), values, moved)
        params = {"p_limit": limit, "p_who": term.who, "p_timeout": term.timeout}
        width = len(self.key)
        return {tuple(row[:width]): (row[-2] + 1, row[-1]) for row in take(CallersConnection(connection), params)}

    def take_named(
        self, connection: Connection, keys: Sequence[Key], select: sa.Select[Any], limit: int, term: Term
    ) -> dict[Key, tuple[int, int]]:
        """Take the first rows of a select that have these keys, as :meth:`take` does."""
        named = by_index(select.where(has_keys(self.key, keys)), self.table, PRIMARY)
        return self.take(connection, named, limit, term)

    def extend(self, connection: Connection, held: Held, term: Term, *, skip: bool = False) -> dict[Key, int]:
        """Let the leases that are still held last for the term.

        :param skip: pass over rows that others have locked.
        :returns: the time for each of these rows, in microseconds.
        """
        locked = self.lock_held(connection, held, skip=skip)
        begun = self.now if term.begin is None else sa.literal(term.begin, sa.BigInteger())
        self.write(connection, list(locked), self.lasting(begun, term.timeout))
        return locked

    def end(self, connection: Connection, keys: Sequence[Key]) -> None:
        """Give rows back that this transaction has locked."""
        self.write(connection, keys, self.ended)

    def end_all(self, connection: Connection, condition: Condition, *, skip: bool) -> list[Key]:
        """Give back all rows that meet a condition.

        :param skip: pass over rows that others have locked.
        :returns: the keys of these rows.
        """
        ended: list[Key] = []
        found = [tuple(row) for row in connection.execute(sa.select(*self.key).where(condition))]
        for some in chunks(found, LOCKED_AT_ONCE):
            locked = self.lock(connection, sa.and_(has_keys(self.key, some), condition), skip=skip)
            self.end(connection, locked)
            ended += locked
        return ended

    def lock(self, connection: Connection, condition: Condition, *, skip: bool = False) -> list[Key]:
        """Lock rows until the transaction ends.

        :param condition: names the rows by their keys. On other ways to them MySQL locks all rows that it reads, and
            the gaps between them.
        """
        select = sa.select(*self.key).where(condition)
        return [tuple(row) for row in connection.execute(self._locking(select, connection, skip))]

    def lock_held(
        self, connection: Connection, held: Held, *conditions: Condition, skip: bool = False
    ) -> dict[Key, int]:
        """Lock the rows that are still held and meet the conditions, until the transaction ends.

        :param skip: pass over rows that others have locked.
        :returns: the time for each of these rows, in microseconds.
        """
        return self._still_held(connection, held, lambda select: self._locking(select, connection, skip), conditions)

    def seen_held(self, connection: Connection, held: Held) -> set[Key]:
        """Return the rows that are still held, as far as can be seen without waiting for anybody."""
        return set(self._still_held(connection, held, lambda select: select))

    def _still_held(
        self,
        connection: Connection,
        held: Held,
        reading: Callable[[sa.Select[Any]], sa.Select[Any]],
        conditions: Iterable[Condition] = (),
    ) -> dict[Key, int]:
        token = sa.null() if self.token is None else self.token
        found: dict[Key, int] = {}
        for some in chunks(list(held), LOCKED_AT_ONCE):
            # To compare each row with its holder here costs less than a condition for each row. The names and tokens of
            # the whole list keep the statement from waiting for most of the rows that others hold by now.
            names, tokens = ({held[key][place] for key in some} for place in (0, 1))
            likely = [_among(self.who, names)]
            if self.token is not None and None not in tokens:
                likely.append(_among(self.token, tokens))
            select = sa.select(*self.key, self.who, token, Now()).where(has_keys(self.key, some), *likely, *conditions)
            for *key, holder, number, now in connection.execute(reading(select)):
                if held[tuple(key)] in ((holder, number), (holder, None)):
                    found[tuple(key)] = now
        return found

    def write(
        self,
        connection: Connection,
        keys: Sequence[Key],
        values: Mapping[Any, Any],
        *conditions: Condition,
        alone: bool = True,
    ) -> int:
        """Write values to the rows that meet the conditions, and return their number.

        :param alone: leave all other columns as they are: see :func:`leaving`.
        """
        if alone:
            values = leaving(self.table, values, database(connection.dialect).moved_columns(connection, self.table))
        changes = (
            sa.update(self.table).where(has_keys(self.key, some), *conditions) for some in chunks(keys, LOCKED_AT_ONCE)
        )
        return sum(connection.execute(by_key(each, self.table).values(values)).rowcount for each in changes)

    def _locking(self, select: sa.Select[Any], connection: Connection, skip: bool) -> sa.Select[Any]:
        select = by_index(select, self.table, PRIMARY)
        return select.with_for_update(skip_locked=skip and database(connection.dialect).skip_locked)


# Conditions


def has_keys(columns: Columns, keys: Iterable[Key]) -> Condition:
    """Return the condition of rows with these keys."""
    if len(columns) == 1:
        return _among(columns[0], [key[0] for key in keys])
    return sa.or_(sa.false(), *(sa.and_(*(c == part for c, part in zip(columns, key, strict=True))) for key in keys))


def _among(column: sa.ColumnElement[Any], values: Collection[Any]) -> Condition:
    if len(values) > 1:
        # In a plain list SQLAlchemy examines each value, as each could be an expression.
        return column.in_(sa.bindparam(None, list(values), type_=column.type, expanding=True))
    return sa.or_(sa.false(), *(column == value for value in values))


def by_index(select: sa.Select[Any], table: sa.FromClause, index: str) -> sa.Select[Any]:
    """Make MySQL and MariaDB walk along an index, whatever their statistics say.

    A sort locks all rows that it reads. A walk along another index locks rows that do not belong.
    """
    hint = f"FORCE INDEX ({index})"
    return select.with_hint(table, hint, "mysql").with_hint(table, hint, "mariadb")


def leaving(table: sa.Table, values: Mapping[Any, Any], moved: Sequence[str]) -> dict[Any, Any]:
    """Return the values of an update that leaves all other columns as they are, such as ``updated_at``.

    Otherwise SQLAlchemy writes each column that has ``onupdate``, and the server each column with ``ON UPDATE``.
    Triggers run as with any update.

    :param values: the values, by column of the table.
    :param moved: the columns that the server moves: :meth:`~jobboard.sql.dialects.Database.moved_columns`.
    """
    own = {column: column for column in table.columns if column.onupdate is not None}
    left = {**own, **values}
    names = {column.name for column in left}
    beside: list[Any] = [sa.column(name) for name in moved if name not in names]
    if beside:
        column, value = next(iter(left.items()))
        if not isinstance(value, sa.ClauseElement):
            value = sa.bindparam(None, value, type_=column.type)
        left[column] = Beside(value, *beside)
    return left


def by_key(change: sa.Update, table: sa.Table) -> sa.Update:
    """Make MySQL and MariaDB find the rows of an update by the primary key.

    They read a small table as a whole, and keep it locked until a transaction at REPEATABLE READ ends.
    """
    hint = f"FORCE INDEX ({PRIMARY})"
    return change.with_hint(hint, table, "mysql").with_hint(hint, table, "mariadb")


# Taking rows


_INSTANT = Now().label("instant")


class Take:
    """Takes the first rows of a select: locks them, and writes to them.

    Build a take once, and call it within transactions. Its statements name their parameters with
    :func:`~jobboard.sql.expressions.param`.

    :param select: has an order and a limit, and first the columns of the key. On MySQL it finds its rows by their key.
    :param moved: the columns of the table that the server would move, see :func:`leaving`.
    """

    def __init__(
        self, product: Database, lease: RowLease, select: sa.Select[Any], values: Values, moved: Sequence[str]
    ) -> None:
        self._key = lease.key
        self._returning = product.returning
        select = select.add_columns(_INSTANT)
        # Without SKIP LOCKED a taker waits for locked rows, as it would come away with nothing while others take rows.
        locking = select.with_for_update(skip_locked=product.skip_locked)
        table = lease.table
        if product.returning:
            self._pick: sa.Select[Any] = _at_once(locking, table, leaving(table, values(Now()), moved))
        else:
            self._pick = locking
            change = sa.update(table).values(leaving(table, values(param("now")), moved))
            self._change = by_key(change, table)
            if len(self._key) == 1:
                self._change = self._change.where(self._key[0].in_(elements("ids", self._key[0].type)))

    def __call__(self, run: Runner, params: Mapping[str, Any]) -> Sequence[Row]:
        """Return the rows as they were picked, in order, each with the time in microseconds at its end."""
        rows = self._pick_rows(run, params)
        if self._returning or not rows:
            return rows
        # Rows that were locked at different times are taken at one.
        now = rows[-1][-1]
        params = {**params, "p_now": now}
        if len(self._key) == 1:
            run.count(self._change, {**params, "p_ids": [row[0] for row in rows]})
        else:
            run.count(self._change.where(has_keys(self._key, [row[: len(self._key)] for row in rows])), params)
        return [(*row[:-1], now) for row in rows]

    def _pick_rows(self, run: Runner, params: Mapping[str, Any]) -> Sequence[Row]:
        return run.rows(self._pick, params)


def _at_once(locking: sa.Select[Any], table: sa.Table, values: Mapping[Any, Any]) -> sa.Select[Any]:
    """Return one statement of PostgreSQL that locks rows, writes to them and returns them."""
    picked = locking.cte(f"picked_{table.name}")
    key = tuple(table.primary_key)
    keys = sa.select(*(picked.c[column.key] for column in key))
    if len(key) > 1:
        among: Condition = sa.tuple_(*key).in_(keys)
    else:
        # IN (SELECT ... LIMIT n ...) may lock and change more than n rows, when a plan runs the inner query again.
        among = key[0] == sa.any_(sa.func.array(keys.scalar_subquery(), type_=ARRAY(key[0].type)))
    change = sa.update(table).where(among).values(values).returning(*key)
    return sa.select(*picked.c).add_cte(change.cte(f"taken_{table.name}"))


class TakeAlong(Take):
    """A take for a select that walks along an index, without a limit of its own.

    On MySQL and MariaDB a locking walk also locks the entries that rows have left in the index, at twice the CPU time
    of the server. So a walk without locks names the rows, and the same statement locks them by their key. Where others
    have locked some of the rows, the next page of the walk is tried.

    :param order: the columns of the order. The primary key may follow them.
    :param limit: the number of rows, which is the same in each call: planners expect the worst of an unknown limit.
    """

    def __init__(
        self,
        product: Database,
        lease: RowLease,
        select: sa.Select[Any],
        values: Values,
        moved: Sequence[str],
        order: Columns,
        limit: int,
    ) -> None:
        self._limit = limit
        select = select.limit(sa.literal(limit, sa.Integer(), literal_execute=True))
        super().__init__(product, lease, select, values, moved)
        pages = product.skip_locked and not product.returning
        self._page = self._looking(lease.table, select, order) if pages else None

    def _looking(self, table: sa.Table, select: sa.Select[Any], order: Columns) -> sa.Select[Any]:
        """Return the select of a page. A row that another has locked is all NULL."""
        walk = select.with_only_columns(*self._key, *order).offset(param("skip", sa.Integer())).subquery("walk")
        same = (column == walk.c[str(column.key)] for column in self._key)
        assert select.whereclause is not None
        rows = sa.select(*select.selected_columns, _INSTANT)
        rows = rows.select_from(walk.outerjoin(table, sa.and_(*same, select.whereclause)))
        rows = rows.order_by(*(walk.c[str(each.key)] for each in (*order, *self._key)))
        return by_index(rows, table, PRIMARY).with_for_update(skip_locked=True)

    def _pick_rows(self, run: Runner, params: Mapping[str, Any]) -> Sequence[Row]:
        if self._page is None:
            return super()._pick_rows(run, params)
        found: list[Row] = []
        for skip in range(0, FAR, self._limit):
            page = run.rows(self._page, {**params, "p_skip": skip})
            found += [row for row in page if row[0] is not None]
            if len(found) >= self._limit or (len(page) < self._limit and skip == 0):
                return found[: self._limit]
            if len(page) < self._limit:
                break
        # Pages move while others take rows, and pass rows over. A locking walk finds all of them.
        return super()._pick_rows(run, params)


def first_of(
    look: Callable[[int, list[Key]], list[Key]], take: Callable[[Sequence[Key], int], list[Any]], limit: int
) -> list[Any]:
    """Take the first rows of a search that locks nothing.

    :param look: returns so many keys at most, in order, without the keys that were seen.
    :param take: takes the rows of some keys that are still free, so many at most.
    """
    taken: list[Any] = []
    seen: list[Key] = []
    # Others have the first rows if these were not enough: the second look goes far ahead at once.
    while len(taken) < limit and (found := look(10 * LOCKED_AT_ONCE if seen else LOCKED_AT_ONCE, seen)):
        seen += found
        while found and len(taken) < limit:
            size = min(limit - len(taken), LOCKED_AT_ONCE)
            some, found = found[:size], found[size:]
            taken += take(some, limit - len(taken))
    return taken
