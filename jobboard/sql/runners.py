"""Runners of statements, within a transaction: the contract, and the runner on a connection of the caller's.

A statement is a text with its values, as boards have, or one of SQLAlchemy's, which SQLAlchemy executes and caches.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

Row = Any
"""A row as a driver returns it: a sequence."""


class Text(Protocol):
    """A statement that knows its text and its values as a driver takes them."""

    def compiled(self, dialect: Dialect, params: Mapping[str, Any]) -> tuple[str, Any]: ...


Statement: TypeAlias = Text | sa.Executable


class Runner(abc.ABC):
    """Runs statements on a connection."""

    connection: Connection
    joined = False
    """The transaction is the caller's own."""

    @abc.abstractmethod
    def rows(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]: ...

    @abc.abstractmethod
    def count(self, statement: Statement, params: Mapping[str, Any]) -> int:
        """Run a statement for its effect, and return how many rows it matched."""

    def each(self, statement: Text, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run a statement for each of these values, and return how many rows it matched in all."""
        return sum(self.count(statement, params) for params in rows)


class CallersConnection(Runner):
    """A runner on a connection of the caller's.

    :param joined: the transaction is the caller's.
    """

    def __init__(self, connection: Connection, joined: bool = True) -> None:
        self.connection = connection
        self.joined = joined

    def rows(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        return [tuple(row) for row in self._execute(statement, params)]

    def count(self, statement: Statement, params: Mapping[str, Any]) -> int:
        return self._execute(statement, params).rowcount

    def _execute(self, statement: Statement, params: Mapping[str, Any]) -> sa.CursorResult[Any]:
        if isinstance(statement, sa.Executable):
            return executed(self.connection, statement, params)
        text, values = statement.compiled(self.connection.dialect, params)
        # SQLAlchemy takes a list for the values of several statements.
        bound = tuple(values) if isinstance(values, list) else values
        return self.connection.exec_driver_sql(text, bound, execution_options=_OPTIONS)


# By itself SQLAlchemy keeps no count of inserted rows.
_OPTIONS = {"preserve_rowcount": True}


def executed(connection: Connection, statement: sa.Executable, params: Mapping[str, Any]) -> sa.CursorResult[Any]:
    """Return the result of a statement of SQLAlchemy's, with its count of rows."""
    return connection.execute(statement, dict(params), execution_options=_OPTIONS)
