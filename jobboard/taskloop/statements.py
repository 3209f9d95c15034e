"""The statements of a task loop on one database. Times are whole seconds since 1970, on the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jobboard.exceptions import JobFailure
from jobboard.sql.dialects import Database, insert_counted
from jobboard.sql.expressions import Greatest, Seconds, chunks, elements, param, text, whole_seconds
from jobboard.sql.lease import RowLease, TakeAlong, by_index, by_key, leaving
from jobboard.sql.runners import Runner
from jobboard.taskloop import tables

TAKEN_AT_ONCE = 100
"""The number of ids that one statement takes. With a higher limit a planner may prefer to read the whole table."""
NAMED_AT_ONCE = 500
ADDED_AT_ONCE = 50
"""The number of ids that one statement adds. MySQL reports no more than 64 errors of a statement."""

now = Seconds()
_ANY: sa.types.TypeEngine[Any] = sa.types.NullType()


class LoopStatements:
    """The statements for one table.

    :param connection: a connection to its database.
    :raises JobFailure: there is no such table, or it has no transactions.
    """

    def __init__(self, product: Database, name: str, connection: Connection) -> None:
        self.product = product
        self.fenced = fenced = tables.is_fenced(connection, name)
        self.table = table = tables.make(name, fenced=fenced)
        self._moved = product.moved_columns(connection, table)
        c = table.c
        fence = {"who": c.who, "token": c.token} if fenced else {}
        self._lease = lease = RowLease(table, [c.id], until=c.lock_until, now=now, **fence)
        self._takes: dict[tuple[int, int], TakeAlong] = {}

        did = {c.last_updated: now, **lease.ended}
        until = now + param("lock_for")
        self.remove = sa.delete(table).where(self._has_ids())
        self.did = self._change(did)
        self.unlock = self._change(lease.ended)
        self.bump = self._change({c.lock_until: until}, sa.or_(c.lock_until.is_(None), c.lock_until > until))
        self.check = sa.select(c.id, now - c.last_updated, c.lock_until - now).where(self._has_ids())
        self.stats = self._stats()
        # A locking read sees the present rows at any isolation level of the caller's transaction.
        self.there = self._select_locked()
        if fenced:
            mine = c.token == param("token")
            held = sa.and_(mine, c.who.is_not(None), c.lock_until > now)
            self.did_held = self._change(did, mine)
            self.unlock_held = self._change(lease.ended, mine)
            self.extend_held = self._change(lease.lasting(now, param("lock_for")), held)
            self.standing = self._select_locked(mine)
            self.locked = self._select_locked(held)

    def _has_ids(self) -> sa.ColumnElement[bool]:
        return self.table.c.id.in_(elements("ids", _ANY))

    def _change(self, values: dict[Any, Any], *conditions: sa.ColumnElement[bool]) -> sa.Update:
        change = sa.update(self.table).where(self._has_ids(), *conditions)
        return by_key(change.values(leaving(self.table, values, self._moved)), self.table)

    def _select_locked(self, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        return sa.select(self.table.c.id).where(self._has_ids(), *conditions).with_for_update()

    # Taking

    def take(self, run: Runner, limit: int, lock_for: int, min_loop_time: int, who: str | None) -> dict[Any, int]:
        """Lock the ids whose turn it is, and return each with its token; 0 if the table keeps none."""
        taken: dict[Any, int] = {}
        params = {"p_lock_for": lock_for, "p_min_loop_time": min_loop_time, "p_who": who}
        for tier in range(3):
            while len(taken) < limit:
                wanted = min(TAKEN_AT_ONCE, limit - len(taken))
                rows = self._first(tier, wanted)(run, params)
                taken.update((row[0], max(row[1] + 1, row[-1]) if self.fenced else 0) for row in rows)
                if len(rows) < wanted:
                    break
        return taken

    def _first(self, tier: int, limit: int) -> TakeAlong:
        found = self._takes.get((tier, limit))
        if found is None:
            c = self.table.c
            unlocked = c.lock_until.is_(None)
            # The second and the third are walks along the index, each from its own begin: not all databases can join
            # their conditions in one walk.
            condition, order = (
                (c.lock_until <= now, (c.lock_until, c.last_updated)),
                (sa.and_(unlocked, c.last_updated.is_(None)), ()),
                (sa.and_(unlocked, c.last_updated <= now - param("min_loop_time")), (c.last_updated,)),
            )[tier]
            columns = (c.id, c.token) if self.fenced else (c.id,)
            select = sa.select(*columns).where(condition).order_by(*self._in_order(*order))
            walk = by_index(select, self.table, tables.INDEX)
            found = self._takes[tier, limit] = TakeAlong(
                self.product, self._lease, walk, self._taken_values, self._moved, order, limit
            )
        return found

    def _taken_values(self, instant: sa.ColumnElement[int]) -> dict[Any, Any]:
        c = self.table.c
        # The tokens of one take are mostly equal, so that one statement changes all its ids.
        fence = {c.token: Greatest(c.token + 1, instant), c.who: text("who")} if self.fenced else {}
        return {**self._lease.lasting(whole_seconds(instant), param("lock_for")), **fence}

    def _in_order(self, *columns: sa.Column[Any], last: bool = False) -> tuple[sa.ColumnElement[Any], ...]:
        """Return the order of the index, in which only ``columns`` and the ids have more than one value.

        PostgreSQL finds the index only by its whole order. MariaDB sorts and so locks all rows that meet the condition
        if the order names a column that the condition has fixed.

        :param last: from the end of the index, where ties do not matter.
        """
        if self.product.nulls_last:
            lock_until, last_updated = self.table.c.lock_until, self.table.c.last_updated
            if last:
                return lock_until.desc(), last_updated.desc().nulls_last()
            return lock_until, last_updated.nulls_first(), self.table.c.id
        return tuple(column.desc() for column in columns) if last else (*columns, self.table.c.id)

    # Named ids

    def add(self, run: Runner, ids: Sequence[Any], updated: bool = False) -> int:
        """Add the ids that are missing, and return their number.

        :raises JobFailure: the database refuses an id.
        """
        added = 0
        for some in chunks(ids, ADDED_AT_ONCE):
            values = {f"p_id{i}": id_ for i, id_ in enumerate(some)}
            added += run.count(self._add(len(some), updated), values)
            if self.product.ignored is not None:
                for _, code, message in run.rows(self.product.ignored, {}):
                    if code != self.product.duplicate:
                        raise JobFailure(f"the database refused ids: {message}")
        return added

    def _add(self, size: int, updated: bool) -> sa.Insert:
        extra = {"last_updated": now} if updated else {}
        rows = [{"id": param(f"id{i}", _ANY), **extra} for i in range(size)]
        return insert_counted(self.table, self.product.dialect).values(rows)

    def count(self, run: Runner, statement: sa.Executable, ids: Sequence[Any], **params: Any) -> int:
        """Run a change of ids, and return the number of rows that it met, or changed: see
        :attr:`Database.counts_changes`."""
        parts = chunks(ids, NAMED_AT_ONCE)
        return sum(run.count(statement, {"p_ids": some, **_prefixed(params)}) for some in parts)

    def rows(self, run: Runner, statement: sa.Executable, ids: Sequence[Any], **params: Any) -> list[Any]:
        parts = chunks(ids, NAMED_AT_ONCE)
        return [row for some in parts for row in run.rows(statement, {"p_ids": some, **_prefixed(params)})]

    def change(self, run: Runner, statement: sa.Executable, ids: Sequence[Any], add: bool, **params: Any) -> int:
        """Run a change of ids as :meth:`count` does, and add missing ids first if asked to."""
        matched = self.count(run, statement, ids, **params)
        if add and matched < len(ids):
            self.add(run, ids)
            # For all ids: another may have added some of them meanwhile, unchanged.
            again = self.count(run, statement, ids, **params)
            matched = again if statement is not self.bump else matched + again
        if matched < len(ids) and self.product.counts_changes and statement is not self.bump:
            # A bump changes the ids that it meets. Other changes may leave an id as it was.
            matched = len(self.rows(run, self.there, ids))
        return matched

    # Looking

    def _stats(self) -> sa.Select[Any]:
        c = self.table.c

        def update(last: bool) -> sa.ScalarSelect[Any]:
            """Return the first or last update of unlocked ids, from an end of the index."""
            select = sa.select(c.last_updated).where(c.lock_until.is_(None), c.last_updated.is_not(None))
            select = select.order_by(*self._in_order(c.last_updated, last=last)).limit(1)
            return by_index(select, self.table, tables.INDEX).scalar_subquery()

        # PostgreSQL has no min() for some types that it can sort.
        ids = (sa.select(c.id).order_by(end(c.id)).limit(1).scalar_subquery() for end in (sa.asc, sa.desc))
        ends = (*ids, update(last=False), update(last=True))
        locked = sa.case((c.lock_until > now, c.lock_until))
        bumped = sa.case((c.lock_until <= now, c.lock_until))
        groups = (fn(group) for group in (locked, bumped) for fn in (sa.func.count, sa.func.min, sa.func.max))
        updates = (sa.func.min(c.last_updated), sa.func.max(c.last_updated))
        return sa.select(now, *ends, *groups, *updates).where(c.lock_until.is_not(None))


def _prefixed(params: dict[str, Any]) -> dict[str, Any]:
    return {f"p_{name}": value for name, value in params.items()}
