"""The statements of a task loop on one database. Times are whole seconds since 1970, on the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobboard.exceptions import JobFailure
from jobboard.sql.claims import ClaimStatements, FirstAlong, by_index, by_key
from jobboard.sql.dialects import Database, insert_counted
from jobboard.sql.expressions import Greatest, Seconds, chunks, elements, param, text, whole_seconds
from jobboard.sql.runners import Runner
from jobboard.taskloop import tables

TAKEN_AT_ONCE = 100
"""How many ids one statement claims: with a higher limit a planner may prefer to read all of the table."""
NAMED_AT_ONCE = 500
ADDED_AT_ONCE = 50
"""How many ids one statement adds. Of no more errors than 64 MySQL tells what they were."""

now = Seconds()
_ANY: sa.types.TypeEngine[Any] = sa.types.NullType()


class LoopStatements:
    """:param fenced: whether the table keeps who holds an id."""

    def __init__(self, product: Database, name: str, fenced: bool) -> None:
        self.product = product
        self.fenced = fenced
        self.table = table = tables.make(name, fenced=fenced)
        c = table.c
        free = sa.or_(c.lock_until.is_(None), c.lock_until <= now)
        self._claim = ClaimStatements(product, table, self._claimed, {0: c.id}, free, dated=False)
        if fenced:
            self._claim_held = ClaimStatements(product, table, self._held, {0: c.id}, free)
        self._takes: dict[tuple[int, int, bool], FirstAlong] = {}
        self._ignored = product.ignored

        freed = {"lock_until": sa.null(), **({"who": sa.null()} if fenced else {})}
        self.remove = sa.delete(table).where(self._named())
        self.did = self._change({"last_updated": now, **freed})
        self.unlock = self._change(freed)
        until = now + param("lock_for")
        self.bump = self._change({"lock_until": until}, sa.or_(c.lock_until.is_(None), c.lock_until > until))
        since_updated, locked_for = now - c.last_updated, c.lock_until - now
        self.check = sa.select(c.id, since_updated, locked_for).where(self._named())
        self.stats = self._stats()
        # Locking, as only that reads what is there now, whatever the isolation of the caller's transaction.
        self.there = sa.select(c.id).where(self._named()).with_for_update()
        if fenced:
            mine = c.token == param("token")
            held = sa.and_(mine, c.who.is_not(None), c.lock_until > now)
            self.did_held = self._change({"last_updated": now, **freed}, mine)
            self.unlock_held = self._change(freed, mine)
            self.extend_held = self._change({"lock_until": until}, held)
            self.standing = sa.select(c.id).where(self._named(), mine).with_for_update()
            self.locked = sa.select(c.id).where(self._named(), held).with_for_update()

    def _named(self) -> sa.ColumnElement[bool]:
        return self.table.c.id.in_(elements("ids", _ANY))

    def _change(self, values: dict[str, Any], *conditions: sa.ColumnElement[bool]) -> sa.Update:
        change = sa.update(self.table).where(self._named(), *conditions).values(values)
        return by_key(change, self.table)

    # Taking

    def _claimed(self, instant: sa.ColumnElement[int]) -> dict[str, Any]:
        # Nobody is told the token, so that it has only to differ from the one before.
        fence = {"token": self.table.c.token + 1, "who": sa.null()} if self.fenced else {}
        return {"lock_until": now + param("lock_for"), **fence}

    def _held(self, instant: sa.ColumnElement[int]) -> dict[str, Any]:
        fence = {"token": Greatest(self.table.c.token + 1, instant), "who": text("who")}
        return {"lock_until": whole_seconds(instant) + param("lock_for"), **fence}

    def take(self, run: Runner, limit: int, lock_for: int, min_loop_time: int, who: str | None) -> dict[Any, int]:
        """Lock the ids whose turn it is; each with its token, 0 if nobody holds it."""
        taken: dict[Any, int] = {}
        held = who is not None
        params = {"p_lock_for": lock_for, "p_min_loop_time": min_loop_time, "p_who": who}
        for tier in range(3):
            while len(taken) < limit:
                wanted = min(TAKEN_AT_ONCE, limit - len(taken))
                rows = self._first(tier, wanted, held)(run, params)
                for row in rows:
                    taken[row[0]] = max(row[1] + 1, row[-1]) if held else 0
                if len(rows) < wanted:
                    break
        return taken

    def _first(self, tier: int, limit: int, held: bool) -> FirstAlong:
        found = self._takes.get((tier, limit, held))
        if found is None:
            c = self.table.c
            unlocked = c.lock_until.is_(None)
            # The last two are walks along the index, each of which begins where it must: not all databases can join
            # their conditions that way.
            condition = (
                c.lock_until <= now,
                sa.and_(unlocked, c.last_updated.is_(None)),
                sa.and_(unlocked, c.last_updated <= now - param("min_loop_time")),
            )[tier]
            order = ((c.lock_until, c.last_updated), (), (c.last_updated,))[tier]
            columns = (c.id, c.token) if held else (c.id,)
            select = sa.select(*columns).where(condition).order_by(*self._in_order(*order))
            walk = by_index(select, self.table, tables.INDEX)
            claim = self._claim_held if held else self._claim
            found = self._takes[tier, limit, held] = FirstAlong(claim, walk, order, limit)
        return found

    def _in_order(self, *columns: sa.Column[Any], last: bool = False) -> tuple[sa.ColumnElement[Any], ...]:
        """The order of the index, of which only ``columns`` and the ids have more than one value; or from its end, and
        there ties do not matter.

        PostgreSQL finds the index by its whole order only; and MariaDB, if the order names what the condition has
        fixed, sorts and so locks all that meets the condition.
        """
        if self.product.nulls_last:
            lock_until, last_updated = self.table.c.lock_until, self.table.c.last_updated
            if last:
                return lock_until.desc(), last_updated.desc().nulls_last()
            return lock_until, last_updated.nulls_first(), self.table.c.id
        return tuple(column.desc() for column in columns) if last else (*columns, self.table.c.id)

    # Named ids

    def add(self, run: Runner, ids: Sequence[Any], updated: bool = False) -> int:
        """Add those that are missing; how many these were."""
        added = 0
        for some in chunks(ids, ADDED_AT_ONCE):
            values = {f"p_id{i}": id_ for i, id_ in enumerate(some)}
            added += run.count(self._add(len(some), updated), values)
            if self._ignored is not None:
                for _, code, message in run.rows(self._ignored, {}):
                    if code != self.product.duplicate:
                        raise JobFailure(f"the database refused ids: {message}")
        return added

    def _add(self, size: int, updated: bool) -> sa.Insert:
        extra = {"last_updated": now} if updated else {}
        rows = [{"id": param(f"id{i}", _ANY), **extra} for i in range(size)]
        return insert_counted(self.table, self.product.dialect).values(rows)

    def count(self, run: Runner, statement: sa.Executable, ids: Sequence[Any], **params: Any) -> int:
        """Run a change of these ids; how many rows it met, or changed: see :attr:`Database.counts_changes`."""
        parts = chunks(ids, NAMED_AT_ONCE)
        return sum(run.count(statement, {"p_ids": some, **_named(params)}) for some in parts)

    def rows(self, run: Runner, statement: sa.Executable, ids: Sequence[Any], **params: Any) -> list[Any]:
        parts = chunks(ids, NAMED_AT_ONCE)
        return [row for some in parts for row in run.rows(statement, {"p_ids": some, **_named(params)})]

    def change(self, run: Runner, statement: sa.Executable, ids: Sequence[Any], add: bool, **params: Any) -> int:
        """As :meth:`count`, with the ids that are missing added before if need be."""
        met = self.count(run, statement, ids, **params)
        if add and met < len(ids):
            self.add(run, ids)
            # Again for all: another may have added some meanwhile, and has not changed them so.
            again = self.count(run, statement, ids, **params)
            met = again if statement is not self.bump else met + again
        if met < len(ids) and self.product.counts_changes and statement is not self.bump:
            # What is bumped is changed. Others may have been before as they are now.
            met = len(self.rows(run, self.there, ids))
        return met

    # Looking

    def _stats(self) -> sa.Select[Any]:
        c = self.table.c

        def update(last: bool) -> sa.ScalarSelect[Any]:
            """The first or last update of what is not locked, from the end of the index."""
            select = sa.select(c.last_updated).where(c.lock_until.is_(None), c.last_updated.is_not(None))
            select = select.order_by(*self._in_order(c.last_updated, last=last)).limit(1)
            return by_index(select, self.table, tables.INDEX).scalar_subquery()

        # Not all types that PostgreSQL can sort has it a min() for.
        ids = (sa.select(c.id).order_by(end(c.id)).limit(1).scalar_subquery() for end in (sa.asc, sa.desc))
        ends = (*ids, update(last=False), update(last=True))
        locked = sa.case((c.lock_until > now, c.lock_until))
        bumped = sa.case((c.lock_until <= now, c.lock_until))
        groups = (fn(group) for group in (locked, bumped) for fn in (sa.func.count, sa.func.min, sa.func.max))
        updates = (sa.func.min(c.last_updated), sa.func.max(c.last_updated))
        return sa.select(now, *ends, *groups, *updates).where(c.lock_until.is_not(None))


def _named(params: dict[str, Any]) -> dict[str, Any]:
    return {f"p_{name}": value for name, value in params.items()}
