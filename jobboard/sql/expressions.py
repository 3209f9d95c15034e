"""Expressions, types and parameters that compile to what each database understands.

Times are microseconds since 1970, UTC, on the database's clock.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.functions import FunctionElement, GenericFunction

from jobboard.units import SECOND

T = TypeVar("T")


class Now(FunctionElement[int]):
    """The time at which the statement began. Stable within it, so that a condition on it can use an index."""

    type = sa.BigInteger()
    inherit_cache = True


class UtcNow(FunctionElement[datetime.datetime]):
    """The statement's time as a timestamp in UTC without a time zone."""

    type = sa.DateTime()
    inherit_cache = True


class Seconds(FunctionElement[int]):
    """The statement's time in whole seconds."""

    type = sa.BigInteger()
    inherit_cache = True


class Greatest(GenericFunction[int]):
    """The larger of two integers."""

    type = sa.BigInteger()
    inherit_cache = True
    name = "greatest"


class Spare(ColumnElement[str]):
    """The default of a column that gives rows room to grow into: blanks on MariaDB, nothing elsewhere.

    :param size: the number of blanks.
    """

    type = sa.String()
    inherit_cache = False

    def __init__(self, size: int) -> None:
        self.size = size


class Exact(sa.String):
    """Text that is compared byte by byte: no case folding, no accents, no padding."""


class LongText(sa.Text):
    """Text of some megabytes at least."""


class Beside(FunctionElement[Any]):
    """A value in an update of MySQL's or MariaDB's, with further columns behind it that are set to themselves.

    So an update can name columns that its table in Python does not have.
    """

    inherit_cache = True


@compiles(Spare)
def _spare(element: Spare, compiler: Any, **kw: Any) -> str:
    return f"'{' ' * element.size}'" if getattr(compiler.dialect, "is_mariadb", False) else "NULL"


@compiles(Beside)
def _beside(element: Beside, compiler: Any, **kw: Any) -> str:
    value, *columns = (compiler.process(each, **kw) for each in element.clauses)
    return ", ".join([value, *(f"{column} = {column}" for column in columns)])


@compiles(Now)
def _now(element: Now, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(sa.cast(sa.extract("epoch", sa.func.now()) * SECOND, sa.BigInteger), **kw))


@compiles(Now, "postgresql")
def _now_postgresql(element: Now, compiler: Any, **kw: Any) -> str:
    # clock_timestamp() is volatile and would keep conditions off the index; now() stands still inside a transaction.
    # A double, exact to the microsecond until 2106: the numeric that extract() gives costs several times as much.
    return f"CAST(date_part('epoch', statement_timestamp()) * {SECOND} AS BIGINT)"


@compiles(Now, "mysql", "mariadb")
def _now_mysql(element: Now, compiler: Any, **kw: Any) -> str:
    # UNIX_TIMESTAMP() goes through the session's time zone and repeats an hour when its summer ends.
    return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"


@compiles(Now, "sqlite")
def _now_sqlite(element: Now, compiler: Any, **kw: Any) -> str:
    # 'subsec' came with 3.42; older versions answer NULL to it.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER)"


_UTC_NOW = {
    "postgresql": "(statement_timestamp() AT TIME ZONE 'UTC')",
    "mysql": "UTC_TIMESTAMP(6)",
    "mariadb": "UTC_TIMESTAMP(6)",
    # SQLAlchemy reads the digits behind the point as a number of microseconds.
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
}


@compiles(UtcNow)
def _utc_now(element: UtcNow, compiler: Any, **kw: Any) -> str:
    return _UTC_NOW.get(compiler.dialect.name, "CURRENT_TIMESTAMP AT TIME ZONE 'UTC'")


@compiles(Seconds)
def _seconds(element: Seconds, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(whole_seconds(Now()), **kw))


@compiles(Seconds, "mysql", "mariadb")
def _seconds_mysql(element: Seconds, compiler: Any, **kw: Any) -> str:
    # Without an argument it needs no time zone, and it is a constant to the optimiser, which a calculation is not.
    return "UNIX_TIMESTAMP()"


@compiles(Greatest, "sqlite")
def _greatest_sqlite(element: Greatest, compiler: Any, **kw: Any) -> str:
    return f"max{compiler.process(element.clause_expr, **kw)}"


@compiles(Exact, "postgresql")
def _exact_postgresql(type_: Exact, compiler: Any, **kw: Any) -> str:
    return f'{compiler.visit_VARCHAR(type_, **kw)} COLLATE "C"'


@compiles(Exact, "mysql", "mariadb")
def _exact_mysql(type_: Exact, compiler: Any, **kw: Any) -> str:
    # Which of the two answers to a mysql:// URL is known only once connected.
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    return str(compiler.process(mysql.VARCHAR(type_.length, charset="utf8mb4", collation=collation), **kw))


@compiles(LongText)
def _long_text(type_: LongText, compiler: Any, **kw: Any) -> str:
    return str(compiler.visit_TEXT(type_, **kw))


@compiles(LongText, "mysql", "mariadb")
def _long_text_mysql(type_: LongText, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), **kw))


def serial() -> sa.types.TypeEngine[int]:
    """Return the type of a 64-bit key that the database counts up."""
    # Only a column declared INTEGER counts by itself there, and it has 64 bits.
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def whole_seconds(micros: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return microseconds as seconds, rounded down."""
    # MySQL divides with four digits behind the point, and would round up what is just below a second.
    return (micros - micros % SECOND) // SECOND


# Parameters


def param(name: str, type_: Any = None) -> sa.BindParameter[Any]:
    """Return a parameter. Its name begins as no column's does, and no name that SQLAlchemy makes."""
    return sa.bindparam(f"p_{name}", None, type_=type_ or sa.BigInteger())


def text(name: str) -> sa.BindParameter[Any]:
    return param(name, sa.String())


def elements(name: str, type_: Any = None) -> sa.BindParameter[Any]:
    """Return a parameter for a list, for ``IN``."""
    return sa.bindparam(f"p_{name}", type_=type_ or sa.BigInteger(), expanding=True)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a list up, for statements that take only so many at once."""
    return (items[start : start + size] for start in range(0, len(items), size))
