"""Rows of mapped classes: their keys, and the fence around rows that an object holds."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.util import object_state

from jobboard.exceptions import ClaimLost
from jobboard.sql.lease import Key, RowLease
from jobboard.sql.transactions import begin_writing

_CHECKED = "jobboard.checked"
"""The key in a session's ``info`` of the results of one flush: whether the row of each object is lost, by its state."""


def table_of(mapper: Mapper[Any]) -> sa.Table:
    """Return the table that has the primary key."""
    table = mapper.base_mapper.local_table
    assert isinstance(table, sa.Table)
    return table


def key_of(row: Any) -> Key:
    """Return the primary key of a stored row.

    :raises ValueError: the row has not been stored.
    """
    identity = object_state(row).identity
    if identity is None:
        raise ValueError(f"{type(row).__name__} has not been stored yet: flush the session first")
    return tuple(identity)


def own_key_of(row: Any) -> Key:
    """Return the primary key of an object, also of one that this process has made and another has stored.

    :raises ValueError: the object has no key yet.
    """
    state = sa.inspect(row)
    key = state.identity or tuple(state.mapper.primary_key_from_instance(row))
    if None in key:
        names = ", ".join(key_names(state.mapper))
        raise ValueError(f"this {type(row).__name__} has no {names} yet: set it, or flush the session first")
    return key


def key_names(mapper: Mapper[Any]) -> list[str]:
    """Return the attributes of the primary key."""
    return [mapper.get_property_by_column(column).key for column in mapper.primary_key]


def name_of(model: type[Any], key: Key) -> str:
    """Return the name of a row in errors and logs."""
    return f"{model.__name__} {', '.join(map(repr, key))}"


def lost_error(rows: Sequence[Any]) -> ClaimLost:
    """Return the error for rows that were lost."""
    names = ", ".join(name_of(type(row), key_of(row)) for row in rows)
    error = ClaimLost(f"{names}: another has it, or it was given back; a longer timeout leaves more time")
    error.job = rows[0] if len(rows) == 1 else rows
    return error


class Fenced:
    """A mapped class whose objects can hold their rows. A flush fails once an object does not hold its row any more."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fences = [base.__name__ for base in cls.__mro__ if Fenced in base.__bases__]
        if len(fences) > 1:
            raise TypeError(
                f"{cls.__name__} derives from {' and '.join(fences)}, each of which has a holder of its own for a row: "
                "take one of them"
            )

    @staticmethod
    def _lease(mapper: Mapper[Any]) -> RowLease:
        """Return the lease of a mapped class."""
        raise NotImplementedError

    def _hold(self) -> tuple[str, int | None] | None:
        """Return the name and the token by which this object holds its row; None if it holds nothing."""
        raise NotImplementedError

    def _lose(self) -> ClaimLost:
        """Note that the row was lost, and return the error."""
        raise NotImplementedError


def check_fence(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    """Lock the row that an object holds until the transaction ends, or raise ClaimLost.

    The first row of a flush locks all rows of its class that the flush is about to write.
    """
    state: Any = object_state(row)
    checked: dict[object, bool] = state.session.info.setdefault(_CHECKED, {})
    if state not in checked:
        states = {object_state(each): each for each in (row, *state.session.dirty, *state.session.deleted)}
        # Others may be in another database.
        alike = {
            key: each
            for key, each in states.items()
            if key not in checked and key.mapper is mapper and key.identity_token == state.identity_token
        }
        held = {key_of(each): hold for each in alike.values() if (hold := each._hold()) is not None}
        lost: Container[Key] = ()
        if held:
            begin_writing(connection, table_of(mapper))
            lost = held.keys() - row._lease(mapper).lock_held(connection, held).keys()
        checked.update((key, key.identity in lost) for key in alike)
    if checked[state]:
        raise row._lose()


@sa.event.listens_for(Session, "before_flush")
def _check_anew(session: Session, *_: object) -> None:
    # Rows that an earlier flush has locked may be free again, after a rollback to a savepoint.
    session.info.pop(_CHECKED, None)


sa.event.listen(Fenced, "before_update", check_fence, propagate=True)
sa.event.listen(Fenced, "before_delete", check_fence, propagate=True)
