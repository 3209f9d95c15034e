"""Rows of mapped classes: their keys, locking them, and the fence around those that are held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper

from jobboard.exceptions import ClaimLost
from jobboard.sql.claims import locking
from jobboard.sql.dialects import PRIMARY, by_index, by_key, database
from jobboard.sql.expressions import Now
from jobboard.sql.prepared import chunks

Key = tuple[Any, ...]
Condition = sa.ColumnElement[bool]
Held = Mapping[Key, Condition]
"""For each row by its key, what is true of it as long as it is held."""

BATCH = 100
"""How many rows one statement locks at most: of more, planners read whole tables."""


def table_of(mapper: Mapper[Any]) -> sa.Table:
    """The table that has the primary key."""
    table = mapper.base_mapper.local_table
    assert isinstance(table, sa.Table)
    return table


def key_of(row: Any) -> Key:
    """The primary key of a row that has been stored."""
    identity = sa.inspect(row).identity
    if identity is None:
        raise ValueError(f"{type(row).__name__} has not been stored yet: flush the session first")
    return tuple(identity)


def keyed(mapper: Mapper[Any], keys: Iterable[Key]) -> Condition:
    """The rows with these keys."""
    columns = mapper.primary_key
    if len(columns) == 1:
        return columns[0].in_([key[0] for key in keys])
    return sa.or_(sa.false(), *(sa.and_(*(c == part for c, part in zip(columns, key, strict=True))) for key in keys))


def change(mapper: Mapper[Any], keys: Iterable[Key], *conditions: Condition) -> sa.Update:
    """An update of these rows."""
    table = table_of(mapper)
    return by_key(sa.update(table).where(keyed(mapper, keys), *conditions), table)


def begin_writing(connection: Connection) -> None:
    """Where a transaction that reads first may be refused to write later, begin it as one that writes."""
    product = database(connection.dialect)
    if product.exclusive:
        product.begin_on(connection)


def lock(connection: Connection, mapper: Mapper[Any], condition: Condition, *, skip: bool) -> dict[Key, int]:
    """Lock rows until the transaction ends; the time for each of them, in µs.

    :param condition: names them by their keys: on other ways to them, MySQL locks what it reads, and what could be
        written in between.
    :param skip: pass over what others have locked, instead of waiting for them.
    """
    begin_writing(connection)
    product = database(connection.dialect)
    select = by_index(sa.select(*mapper.primary_key, Now()).where(condition), table_of(mapper), PRIMARY)
    select = locking(select, product) if skip else select.with_for_update()
    return {tuple(row[:-1]): row[-1] for row in connection.execute(select)}


def lock_held(connection: Connection, mapper: Mapper[Any], held: Held, *, skip: bool = False) -> dict[Key, int]:
    """Lock those rows that are held as said; the time for each of them."""
    locked: dict[Key, int] = {}
    for some in chunks(list(held.items()), BATCH):
        locked.update(lock(connection, mapper, still(mapper, dict(some)), skip=skip))
    return locked


def still(mapper: Mapper[Any], held: Held) -> Condition:
    """Those rows that are held as said."""
    return sa.or_(*(sa.and_(keyed(mapper, [key]), condition) for key, condition in held.items()))


def lost_error(rows: Sequence[Any]) -> ClaimLost:
    """The error that says that these were lost."""
    keys = ", ".join(repr(part) for row in rows for part in key_of(row))
    error = ClaimLost(f"{type(rows[0]).__name__} {keys}: another has it, or it was given back")
    error.job = rows[0] if len(rows) == 1 else rows
    return error


class Fenced:
    """A row whose writes through the ORM fail once it is held no more."""

    def _hold(self) -> Condition | None:
        """What is true of the stored row as long as this object holds it; None where it holds nothing."""
        raise NotImplementedError

    def _lose(self) -> ClaimLost:
        """Remember that it was lost; the error that says so."""
        raise NotImplementedError


def check_fence(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    """Lock a row that this object holds, until the end of the transaction.

    :raises ClaimLost: it holds it no more.
    """
    held = row._hold()
    if held is not None and not lock_held(connection, mapper, {key_of(row): held}):
        raise row._lose()


sa.event.listen(Fenced, "before_update", check_fence, propagate=True)
sa.event.listen(Fenced, "before_delete", check_fence, propagate=True)
