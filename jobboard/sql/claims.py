"""Claiming rows, written once for each database: pick the first that are free, lock them, change them, answer them.

    claim = ClaimStatements(product, table, values, identity={0: table.c.id}, free=table.c.lock_until.is_(None))
    take = First(claim, sa.select(table.c.id).where(...).order_by(...).limit(param("limit", sa.Integer())))
    rows = take(run, {"p_limit": 100, "p_who": "anna"})

``run`` is a :class:`~jobboard.sql.runners.Runner` within a transaction: a :class:`~jobboard.sql.connections.Link`
after its ``begin()``, or :class:`~jobboard.sql.runners.CallersConnection`. Statements name their parameters with
:func:`~jobboard.sql.expressions.param`. Build both once and keep them.

What each database needs:

- PostgreSQL picks, changes and answers in one statement.
- MySQL ≥ 8.0.1 and MariaDB ≥ 10.6 lock what they pick and skip what others have locked, then change it by its key. They
  lock all that they read and sort: so have :class:`FirstAlong` walk along an index in exactly the order of the select
  (:func:`~by_index`), or name the rows by their key.
- SQLite has one writer at a time, from the ``BEGIN IMMEDIATE`` on that begins the transaction.
- Any other compares each row with what was read, and the claim has only those that have not changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from jobboard.sql.dialects import Database
from jobboard.sql.expressions import Now, elements, param
from jobboard.sql.runners import Row, Runner

FAR = 1000
"""How far to look for rows that nobody else is at, before what is locked is found by trying to lock it."""

Values = Callable[[sa.ColumnElement[int]], Mapping[Any, Any]]


PRIMARY = "PRIMARY"
"""What MySQL calls the index of the primary key."""


def by_index(statement: sa.Select[Any], table: sa.FromClause, index: str) -> sa.Select[Any]:
    """Have it walk along an index, where statistics could talk the optimiser out of it: a sort locks all that it reads,
    and a walk along another index meets rows that do not belong."""
    hint = f"FORCE INDEX ({index})"
    return statement.with_hint(table, hint, "mysql").with_hint(table, hint, "mariadb")


def by_key(change: sa.Update, table: sa.Table) -> sa.Update:
    """Have an update find rows by the primary key: a small table is read as a whole, and stays locked as a whole until
    a transaction at REPEATABLE READ ends."""
    hint = f"FORCE INDEX ({PRIMARY})"
    return change.with_hint(hint, table, "mysql").with_hint(hint, table, "mariadb")


def locking(select: sa.Select[Any], product: Database) -> sa.Select[Any]:
    """Lock the rows, without those that others have locked, where the database can do so."""
    return select.with_for_update(skip_locked=True) if product.skip_locked else select


def among(table: sa.Table, picked: sa.Select[Any]) -> sa.ColumnElement[bool]:
    """The rows of a table whose primary keys were picked, for a database that changes them in the same statement.

    :param picked: selects the primary key and nothing else; one of several columns from a CTE that is materialized.
    """
    key = tuple(table.primary_key)
    if len(key) > 1:
        return sa.tuple_(*key).in_(picked)
    # IN (SELECT ... LIMIT n ...) may lock and change more than n, when a plan runs the inner query again.
    return key[0] == sa.any_(sa.func.array(picked.scalar_subquery(), type_=ARRAY(key[0].type)))


class ClaimStatements:
    """What a claim writes to picked rows of one table.

    :param values: ``values(instant)`` gives what is written, for the time of the claim: an expression, in µs.
    :param identity: which columns, by their place in a picked row, show that it is the same row, unchanged: the primary
        key, and for a database that can't lock perhaps a version.
    :param free: what is true of a row that may be claimed, and no longer of one that was; only for such a database.
    :param dated: whether a claimed row has the time of the claim, in µs, at its end; if not, no value may depend on it.
    """

    def __init__(
        self,
        product: Database,
        table: sa.Table,
        values: Values,
        identity: Mapping[int, sa.Column[Any]],
        free: sa.ColumnElement[bool],
        dated: bool = True,
    ) -> None:
        self.product = product
        self.dated = dated
        self.table = table
        self.values = values
        self.places = tuple(identity)
        key = tuple(table.primary_key)
        # What is locked needs no comparison, but a list can't hold keys of several columns.
        self._one_by_one = len(key) > 1 or not (product.skip_locked or product.exclusive)
        self.key = next(place for place, column in identity.items() if column is key[0])
        change = sa.update(table).values(values(param("now")))
        same = (column == param(f"was_{place}", column.type) for place, column in identity.items())
        self._one = change.where(*same, free)
        self.batch = by_key(change.where(key[0].in_(elements("ids", key[0].type))), table)

    def ending(self) -> tuple[sa.ColumnElement[int], ...]:
        """What rows that are picked have at their end."""
        return (Now().label("instant"),) if self.dated else ()

    def write(self, run: Runner, rows: Sequence[Row], params: Mapping[str, Any]) -> Sequence[Row]:
        """Change rows that this transaction has picked; those that it has got.

        :param params: those of ``values``, and ``p_now``, the time of the claim.
        """
        if self._one_by_one:
            return [row for row in rows if run.count(self._one, {**params, **self._was(row)})]
        if rows:
            run.count(self.batch, {**params, "p_ids": [row[self.key] for row in rows]})
        return rows

    def _was(self, row: Row) -> dict[str, Any]:
        return {f"p_was_{place}": row[place] for place in self.places}


class First:
    """Claims the first rows of a select.

    :param select: has an order and a limit, and as its first columns those that tell the row. On MySQL and MariaDB it
        finds its rows by their key: they lock all that they read.
    """

    def __init__(self, claim: ClaimStatements, select: sa.Select[Any]) -> None:
        self._claim = claim
        product = claim.product
        dated = select.add_columns(*claim.ending())
        # Who can't pass over locked rows must wait for them, or would come away with nothing when others pick as well.
        locked = locking(dated, product) if product.skip_locked else dated.with_for_update()
        self._statement = self._at_once(locked) if product.returning else locked

    def __call__(self, run: Runner, params: Mapping[str, Any]) -> Sequence[Row]:
        """The rows as they were picked, in order; where the claim is dated, each with its time at the end, in µs."""
        rows = self._pick(run, params)
        if self._claim.product.returning:
            return rows
        return self._claim.write(run, rows, {**params, "p_now": rows[0][-1]}) if rows else rows

    def _pick(self, run: Runner, params: Mapping[str, Any]) -> Sequence[Row]:
        return run.rows(self._statement, params)

    def _at_once(self, locked: sa.Select[Any]) -> sa.Select[Any]:
        picked = locked.cte(f"picked_{self._claim.table.name}")
        table = self._claim.table
        keys = sa.select(*(picked.c[column.key] for column in table.primary_key))
        values = self._claim.values(Now())
        taken = (
            sa.update(table)
            .where(among(table, keys))
            .values(values)
            .returning(*table.primary_key)
            .cte(f"taken_{table.name}")
        )
        return sa.select(*picked.c).add_cte(taken)


class FirstAlong(First):
    """As :class:`First`, for a select that walks along an index. On MySQL and MariaDB those who compete each take some
    of the first :data:`FAR`.

    :param select: without a limit.
    :param order: the columns of its order, integers all. Behind them it may have the primary key.
    :param limit: the same in each call: of one that it does not know, a planner expects the worst.
    """

    def __init__(
        self, claim: ClaimStatements, select: sa.Select[Any], order: Sequence[sa.Column[int]], limit: int
    ) -> None:
        limited = select.limit(sa.literal(limit, sa.Integer(), literal_execute=True))
        super().__init__(claim, limited)
        self._limit = limit
        self._order = range(len(select.selected_columns), len(select.selected_columns) + len(order))
        product = claim.product
        # A walk along an index that locks what it meets also locks the entries that its rows have left, of which a busy
        # table has many more. So there a walk that locks nothing tells which rows are locked, by their key.
        looks = product.skip_locked and not product.returning
        self._part = locking(self._looking(limited, order), product) if looks else None

    def _looking(self, select: sa.Select[Any], order: Sequence[sa.Column[int]]) -> sa.Select[Any]:
        """The rows behind the first few; a row that another has locked is all NULL."""
        table = self._claim.table
        walk = select.with_only_columns(*table.primary_key, *order).offset(param("skip", sa.Integer())).subquery("walk")
        same = (column == walk.c[column.key] for column in table.primary_key)
        assert select.whereclause is not None
        rows = sa.select(*select.selected_columns, *order, *self._claim.ending())
        rows = rows.select_from(walk.outerjoin(table, sa.and_(*same, select.whereclause)))
        return by_index(rows.order_by(*(walk.c[each.key] for each in (*order, *table.primary_key))), table, PRIMARY)

    def _pick(self, run: Runner, params: Mapping[str, Any]) -> Sequence[Row]:
        if self._part is None:
            return super()._pick(run, params)
        met = run.rows(self._part, {**params, "p_skip": 0})
        locked = self._locked(met, 0)
        if len(locked) == len(met) or len(met) < self._limit:
            return [row for _, row in locked.values()]
        # Others are at the same rows. To try what another has locked costs as much as to lock it: they must not all go
        # on with the same parts.
        parts = range(self._limit, FAR, self._limit)
        end = FAR
        # What they finish moves the parts: so once more, at the end, those that come first.
        for skip in (*random.sample(parts, len(parts)), 0):
            if skip >= end:
                continue
            met = run.rows(self._part, {**params, "p_skip": skip})
            if len(met) < self._limit:
                end = skip
            locked = {**self._locked(met, skip), **locked}
            if len(locked) >= self._limit:
                break
        else:
            if len(met) == self._limit < end:
                return run.rows(self._statement, params)
        rows = [row for _, row in sorted(locked.values(), key=self._rank)[: self._limit]]
        if not self._claim.dated:
            return rows
        # Locked at different times, but claimed at one.
        instant = max((row[-1] for row in rows), default=0)
        return [(*row[:-1], instant) for row in rows]

    def _locked(self, met: Sequence[Row], skip: int) -> dict[Any, tuple[int, Row]]:
        """Those that are locked by us, each with its place in the walk."""
        key = self._claim.key
        return {row[key]: (place, row) for place, row in enumerate(met, skip) if row[key] is not None}

    def _rank(self, locked: tuple[int, Row]) -> tuple[list[tuple[bool, int]], int]:
        """As the database orders, NULL first; what is alike as it was met, as of keys the database knows the order."""
        place, row = locked
        return [(row[column] is not None, row[column] or 0) for column in self._order], place
