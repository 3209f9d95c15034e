"""Rows of mapped classes: their keys, locking them, and the fence around those that are held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.util import object_state

from jobboard.exceptions import ClaimLost
from jobboard.sql.claims import PRIMARY, by_index, by_key, locking
from jobboard.sql.dialects import database
from jobboard.sql.expressions import Now, chunks
from jobboard.sql.transactions import begin_writing

Key = tuple[Any, ...]
Condition = sa.ColumnElement[bool]
Held = Mapping[Key, Mapping[str, Any]]
"""For each row by its key, what it has as long as it is held: values by the names of their columns."""

Failed = dict[object, "type[Fenced] | None"]
"""The first fence that each checked object failed, by the object's state; None if the object passed."""

_ASKED = "jobboard.asked"
"""The key in a session's ``info`` of its :data:`Failed`, for one flush."""

BATCH = 100
"""How many rows one statement locks at most: of more, planners read whole tables."""


def table_of(mapper: Mapper[Any]) -> sa.Table:
    """The table that has the primary key."""
    table = mapper.base_mapper.local_table
    assert isinstance(table, sa.Table)
    return table


def key_of(row: Any) -> Key:
    """The primary key of a row that has been stored."""
    identity = object_state(row).identity
    if identity is None:
        raise ValueError(f"{type(row).__name__} has not been stored yet: flush the session first")
    return tuple(identity)


def own_key_of(row: Any) -> Key:
    """The primary key also of a row that was made here and may have been stored by another."""
    state = sa.inspect(row)
    key = state.identity or tuple(state.mapper.primary_key_from_instance(row))
    if None in key:
        names = ", ".join(key_names(state.mapper))
        raise ValueError(f"this {type(row).__name__} has no {names} yet: set it, or flush the session first")
    return key


def key_names(mapper: Mapper[Any]) -> list[str]:
    """The attributes of the primary key."""
    return [mapper.get_property_by_column(column).key for column in mapper.primary_key]


def named(model: type[Any], key: Key) -> str:
    """A row, as errors and logs tell of it."""
    return f"{model.__name__} {', '.join(map(repr, key))}"


def keyed(mapper: Mapper[Any], keys: Iterable[Key]) -> Condition:
    """The rows with these keys."""
    columns = mapper.primary_key
    if len(columns) == 1:
        return _among(columns[0], [key[0] for key in keys])
    return sa.or_(sa.false(), *(sa.and_(*(c == part for c, part in zip(columns, key, strict=True))) for key in keys))


def _among(column: sa.ColumnElement[Any], values: Collection[Any]) -> Condition:
    if len(values) > 1:
        # In a plain list SQLAlchemy examines each value, as each could be an expression.
        return column.in_(sa.bindparam(None, list(values), type_=column.type, expanding=True))
    return sa.or_(sa.false(), *(column == value for value in values))


def change(mapper: Mapper[Any], keys: Iterable[Key], *conditions: Condition) -> sa.Update:
    """An update of these rows."""
    table = table_of(mapper)
    return by_key(sa.update(table).where(keyed(mapper, keys), *conditions), table)


def lock(connection: Connection, mapper: Mapper[Any], condition: Condition, *, skip: bool) -> list[Key]:
    """Lock rows until the transaction ends.

    :param condition: names them by their keys: on other ways to them, MySQL locks what it reads, and what could be
        written in between.
    :param skip: pass over what others have locked, instead of waiting for them.
    """
    select = _locking(connection, mapper, sa.select(*mapper.primary_key).where(condition), skip)
    return [tuple(row) for row in connection.execute(select)]


def _locking(connection: Connection, mapper: Mapper[Any], select: sa.Select[Any], skip: bool) -> sa.Select[Any]:
    select = by_index(select, table_of(mapper), PRIMARY)
    return locking(select, database(connection.dialect)) if skip else select.with_for_update()


def lock_held(
    connection: Connection, mapper: Mapper[Any], held: Held, *conditions: Condition, skip: bool = False
) -> dict[Key, int]:
    """Lock those rows that are held as said, and meet the conditions; the time for each of them, in µs."""
    return _held_as_said(connection, mapper, held, conditions, lambda it: _locking(connection, mapper, it, skip))


def seen_held(connection: Connection, mapper: Mapper[Any], held: Held) -> set[Key]:
    """Those rows that are held as said, as far as can be seen without waiting for anybody."""
    return set(_held_as_said(connection, mapper, held, (), lambda it: it))


def _held_as_said(
    connection: Connection,
    mapper: Mapper[Any],
    held: Held,
    conditions: Iterable[Condition],
    reading: Callable[[sa.Select[Any]], sa.Select[Any]],
) -> dict[Key, int]:
    found: dict[Key, int] = {}
    width = len(mapper.primary_key)
    for some in chunks(list(held), BATCH):
        names = sorted(set[str]().union(*(held[key] for key in some)))
        columns = [mapper.columns[name] for name in names]
        # To compare each row with its own values here costs less than to say so in SQL, a condition for each. These
        # lists keep us from waiting for nearly all rows that are others' by now.
        likely = [
            _among(column, {held[key][name] for key in some})
            for name, column in zip(names, columns, strict=True)
            if all(name in held[key] for key in some)
        ]
        select = sa.select(*mapper.primary_key, *columns, Now()).where(keyed(mapper, some), *likely, *conditions)
        for row in connection.execute(reading(select)):
            key = tuple(row[:width])
            if held[key].items() <= dict(zip(names, row[width:-1], strict=True)).items():
                found[key] = row[-1]
    return found


def lost_error(rows: Sequence[Any]) -> ClaimLost:
    """The error that says that these were lost."""
    names = ", ".join(named(type(row), key_of(row)) for row in rows)
    error = ClaimLost(f"{names}: another has it, or it was given back; a longer timeout leaves more time")
    error.job = rows[0] if len(rows) == 1 else rows
    return error


class Fenced:
    """A row whose writes through the ORM fail once it is held no more. A class that derives from several of these is
    asked by each what it holds."""

    def _hold(self) -> Mapping[str, Any] | None:
        """What the stored row has as long as this object holds it, see :data:`Held`; None where it holds nothing."""
        return None

    def _lose(self) -> ClaimLost:
        """Remember that it was lost; the error that says so."""
        raise NotImplementedError


def check_fence(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    """Lock a row that this object holds, until the end of the transaction; and along with the first one of a flush all
    others of its kind that the flush is about to write.

    :raises ClaimLost: it holds it no more.
    """
    state: Any = object_state(row)
    failed: Failed = state.session.info.setdefault(_ASKED, {})
    if state not in failed:
        failed.update(_check(mapper, connection, row, failed))
    if (fence := failed[state]) is not None:
        raise fence._lose(row)


def _check(mapper: Mapper[Any], connection: Connection, row: Fenced, known: Container[object]) -> Failed:
    own: Any = object_state(row)
    states = {object_state(each): each for each in (row, *own.session.dirty, *own.session.deleted)}
    alike = {
        each: other
        for each, other in states.items()
        # Others may be in another database.
        if each.mapper is mapper and each.identity_token == own.identity_token and each not in known
    }
    failed: Failed = dict.fromkeys(alike)
    for fence in type(row).__mro__:
        if not (issubclass(fence, Fenced) and "_hold" in vars(fence)):
            continue
        held = {key_of(other): hold for other in alike.values() if (hold := fence._hold(other)) is not None}
        if held:
            begin_writing(connection, table_of(mapper))
            lost = held.keys() - lock_held(connection, mapper, held).keys()
            failed.update((each, failed[each] or fence) for each in alike if each.identity in lost)
    return failed


@sa.event.listens_for(Session, "before_flush")
def _ask_anew(session: Session, *_: object) -> None:
    # What an earlier flush has locked may be free again, by a savepoint that was rolled back.
    session.info.pop(_ASKED, None)


sa.event.listen(Fenced, "before_update", check_fence, propagate=True)
sa.event.listen(Fenced, "before_delete", check_fence, propagate=True)
