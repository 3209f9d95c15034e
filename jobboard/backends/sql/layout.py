"""The layout of the tables: create them, upgrade older ones, refuse those of a newer library.

A change of the tables raises :data:`LAYOUT` and adds a step to :data:`UPGRADES`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from jobboard.backends.sql.tables import Tables
from jobboard.exceptions import JobFailure
from jobboard.sql.dialects import Database

LAYOUT = 1
"""The layout of the tables that this library creates."""

MIN_READER = 1
"""The oldest layout whose readers understand these tables."""

Upgrade = Callable[[Connection, Tables], None]

UPGRADES: Mapping[int, Upgrade] = {}
"""The step from each older layout to the next one. A step keeps every job, changes columns and drops indexes: missing
tables and indexes are created behind the last step. A step can be repeated after a crash in its middle, as not every
database takes changes of tables back."""


def setup(connection: Connection, product: Database, tables: Tables) -> None:
    """Create what is missing and upgrade what is older. Any number of processes may do so at once, and each may have to
    wait long for another."""
    _check_text(connection)
    with _setting_up(connection, product, tables):
        found = stored_layout(connection, tables)
        if found is not None:
            _check_new(tables, found)
            for layout in range(found[0], LAYOUT):
                UPGRADES[layout](connection, tables)
                _record(connection, tables, layout + 1)
        _create(connection, tables)
    connection.commit()


def check(connection: Connection, tables: Tables, create: bool) -> bool:
    """Return whether the tables are there, and of our layout; False if they are to be created.

    :param create: missing tables may be created, by :func:`create`.
    :raises JobFailure: the tables are missing, or of another layout."""
    _check_text(connection)
    layout = stored_layout(connection, tables)
    if layout is None and not create:
        raise JobFailure(f"the tables of {tables.prefix!r} are missing; `jobboard setup` creates them")
    if layout is not None:
        _check_new(tables, layout)
        if layout[0] < LAYOUT:
            raise JobFailure(
                f"the tables of {tables.prefix!r} have the older layout {layout[0]}; `jobboard setup` updates them"
            )
    connection.commit()
    return layout is not None


def create(connection: Connection, product: Database, tables: Tables) -> None:
    """Create what is missing, and upgrade nothing. To wait for another's set-up may take long."""
    with _setting_up(connection, product, tables):
        _create(connection, tables)
    connection.commit()


def stored_layout(connection: Connection, tables: Tables) -> tuple[int, int] | None:
    """Return (layout, min_reader) of the tables; None if there are none."""
    if not sa.inspect(connection).has_table(tables.schema.name):
        return None
    row = connection.execute(sa.select(tables.schema.c.layout, tables.schema.c.min_reader)).first()
    return None if row is None else (row.layout, row.min_reader)


@contextlib.contextmanager
def _setting_up(connection: Connection, product: Database, tables: Tables) -> Iterator[None]:
    with contextlib.closing(connection.connection.cursor()) as cursor:
        # Begin now: a listener to SQLAlchemy's "begin", as SQLite's users have one, must not begin within what comes
        # next.
        if not connection.in_transaction():
            connection.begin()
        with product.setting_up(cursor, tables.prefix):
            yield


def _create(connection: Connection, tables: Tables) -> None:
    """Create missing tables and indexes. A set-up that was killed may have left a table without its indexes, and an
    upgrade only drops the older ones."""
    inspector = sa.inspect(connection)
    missing: list[sa.Table] = []
    for table in tables.metadata.sorted_tables:
        if not inspector.has_table(table.name):
            missing.append(table)
            continue
        _check_ours(table, {column["name"] for column in inspector.get_columns(table.name)})
        there = {index["name"] for index in inspector.get_indexes(table.name)}
        for index in table.indexes:
            if index.name not in there:
                index.create(connection)
    tables.metadata.create_all(connection, missing, checkfirst=False)
    if stored_layout(connection, tables) is None:
        _record(connection, tables, LAYOUT)


def _record(connection: Connection, tables: Tables, layout: int) -> None:
    connection.execute(sa.delete(tables.schema))
    connection.execute(sa.insert(tables.schema).values(layout=layout, min_reader=MIN_READER))


def _check_ours(table: sa.Table, columns: set[str]) -> None:
    """:raises JobFailure: the stored table with these columns is somebody else's."""
    if missing := sorted(column.name for column in table.columns if column.name not in columns):
        raise JobFailure(
            f"the table {table.name!r} is not a jobboard's, as it has no column {missing[0]!r}: choose another name "
            "for the jobboard's tables with the option table=, as in ?table=jobs"
        )


def _check_new(tables: Tables, stored: tuple[int, int]) -> None:
    if stored[1] > LAYOUT:
        raise JobFailure(
            f"the tables of {tables.prefix!r} have layout {stored[0]} of a newer version, which this one (layout "
            f"{LAYOUT}) can't work with; upgrade this library"
        )


def _check_text(connection: Connection) -> None:
    """:raises JobFailure: the database, or the connection, can't take all text, such as that of an error with which a
    job is abandoned."""
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise JobFailure(
            f"the database {connection.engine.url.database!r} is in {encoding}, and jobs hold any text: give the "
            "jobboard one that is made WITH ENCODING 'UTF8' TEMPLATE template0"
        )
    encoding = connection.exec_driver_sql("SHOW client_encoding").scalar()
    if encoding != "UTF8":
        raise JobFailure(
            f"the engine's connections are in {encoding}, and jobs hold any text: make the engine by "
            "create_engine(url, client_encoding='utf8')"
        )
