"""Tables of task loops: doloop's, with times of 32 bits, and new ones, which also keep the holder of an id."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from jobboard.exceptions import JobFailure

DEFAULT_ID_TYPE = "int"
DEFAULT_STORAGE_ENGINE = "InnoDB"

DIALECTS = ("mysql", "mariadb", "postgresql", "sqlite")

INDEX = "lock_until"
_FENCE = ("token", "who")
_MYSQL = ("mysql", "mariadb")
_LONGEST_NAME = 63  # bytes, on PostgreSQL
_TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb", "ndbcluster", "xpand"})


class _Verbatim(sa.types.UserDefinedType[Any]):
    """A column type as the user spells it."""

    cache_ok = True

    def __init__(self, spelled: str) -> None:
        self.spelled = spelled

    def get_col_spec(self, **kw: Any) -> str:
        return self.spelled


def check_name(table: object) -> str:
    """Return a checked name of a table.

    :raises TypeError: the name is not a string.
    :raises ValueError: the name is empty.
    """
    if not isinstance(table, str):
        raise TypeError(f"table must be a string, not {table!r}")
    if not table:
        raise ValueError("table must not be empty")
    return table


def make(name: str, *, fenced: bool = True, id_type: str | None = None, engine: str | None = None) -> sa.Table:
    """Return the table.

    :param fenced: whether it has the columns for the holder of an id, which doloop's tables lack.
    :param id_type: the type of the ids as ``CREATE TABLE`` spells it; only for that.
    """
    # Printed statements quote each name, as doloop's do, since other servers may reserve other words.
    quote = None if id_type is None else True
    # The server may have another default format of rows, in which an index takes no long ids.
    is_innodb = engine is not None and engine.lower() == "innodb"
    options: dict[str, Any] = {f"{name}_row_format": "DYNAMIC" for name in _MYSQL if is_innodb}
    fence = (
        sa.Column("token", sa.BigInteger, nullable=False, server_default=sa.text("0"), quote=quote),
        sa.Column("who", sa.String(255), quote=quote),
    )
    return sa.Table(
        name,
        sa.MetaData(),
        # Without a type, SQLAlchemy passes an id to the driver as it is.
        sa.Column("id", sa.types.NullType() if id_type is None else _Verbatim(id_type), primary_key=True, quote=quote),
        sa.Column("last_updated", sa.BigInteger, quote=quote),
        sa.Column("lock_until", sa.BigInteger, quote=quote),
        *(fence if fenced else ()),
        quote=quote,
        mysql_engine=engine,
        mariadb_engine=engine,
        **options,
    )


def to_create(name: str, id_type: str, engine: str, dialect: str) -> tuple[CreateTable, CreateIndex]:
    """Return the statements that create a table.

    :raises ValueError: the storage engine has no transactions.
    """
    if dialect in _MYSQL and engine.lower() not in _TRANSACTIONAL:
        raise ValueError(f"engine={engine!r}: must be one that has transactions, as {DEFAULT_STORAGE_ENGINE} has")
    table = make(check_name(name), id_type=id_type, engine=engine)
    c = table.c
    # In exactly the order of the ids' turns, or a database sorts and locks more rows than it takes.
    last_updated = c.last_updated.nulls_first() if dialect == "postgresql" else c.last_updated
    # On MySQL each index ends with the primary key, and index names belong to the table: there the index is doloop's.
    index, ties = (INDEX, ()) if dialect in _MYSQL else (f"{name}_{INDEX}", (c.id,))
    if len(index.encode()) > _LONGEST_NAME:
        index = f"{INDEX}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return CreateTable(table), CreateIndex(sa.Index(index, c.lock_until, last_updated, *ties, quote=True))


def sql_for_create(
    table: str, id_type: str = DEFAULT_ID_TYPE, engine: str = DEFAULT_STORAGE_ENGINE, *, dialect: str = "mysql"
) -> str:
    """Return the SQL that :meth:`TaskLoop.create` runs: two statements, with a semicolon between them.

    :param dialect: ``mysql``, ``mariadb``, ``postgresql`` or ``sqlite``.
    :param id_type: the type of the ids, as that database spells it.
    :param engine: the storage engine on MySQL and MariaDB.
    :raises ValueError: the dialect is another, the storage engine has no transactions, or the name is empty.
    """
    if dialect not in DIALECTS:
        raise ValueError(f"dialect={dialect!r}: must be one of {', '.join(DIALECTS)}")
    # No driver reads this text, for which a percent sign would have to be doubled.
    make_dialect: Callable[..., Dialect] = URL.create(dialect).get_dialect()
    compiler = make_dialect(paramstyle="named")
    statements = to_create(table, id_type, engine, dialect)
    texts = (str(each.compile(dialect=compiler)).strip() for each in statements)
    return ";\n\n".join(re.sub(r" +\n", "\n", text).replace("\t", "    ") for text in texts)


def is_fenced(connection: Connection, name: str) -> bool:
    """Return whether a table keeps the holder of an id.

    :raises JobFailure: there is no such table, or it has no transactions.
    """
    inspector = sa.inspect(connection)
    try:
        columns = {column["name"] for column in inspector.get_columns(name)}
        options = inspector.get_table_options(name) if connection.dialect.name in _MYSQL else {}
    except sa.exc.NoSuchTableError as error:
        raise JobFailure(f"there is no table {name!r}; TaskLoop.create() creates it") from error
    engine = str(options.get(f"{connection.dialect.name}_engine", DEFAULT_STORAGE_ENGINE))
    if engine.lower() not in _TRANSACTIONAL:
        raise JobFailure(
            f"the table {name!r} is of the storage engine {engine}, which has no transactions: convert it to "
            f"{DEFAULT_STORAGE_ENGINE}"
        )
    return columns.issuperset(_FENCE)


def unfenced_error(name: str) -> JobFailure:
    """Return the error for a table without the columns for the holder of an id."""
    return JobFailure(
        f"the table {name!r} has no columns for the holder of an id: add token BIGINT NOT NULL DEFAULT 0, "
        "who VARCHAR(255); doloop goes on working with the table"
    )
