"""The layout of the tables: create them, upgrade older ones, refuse those of a newer library.

A change of the tables raises :data:`LAYOUT` and adds a step to :data:`UPGRADES`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine.mock import MockConnection

from jobboard.backends.sql.tables import Tables
from jobboard.engine import SetupStep, StoredLayout, library_version, too_new
from jobboard.exceptions import JobFailure
from jobboard.sql.dialects import Database

LAYOUT = 1
"""The layout of the tables that this version creates."""

MIN_READER = 1
"""The oldest layout whose readers understand these tables."""

Upgrade = Callable[[Connection, Tables], None]

UPGRADES: Mapping[int, Upgrade] = {}
"""The step from each older layout to the next one. A step keeps every job, changes columns and drops indexes: missing
tables and indexes are created behind the last step. A step can be repeated after a crash in its middle, as not every
database takes changes of tables back."""


class TableChange(NamedTuple):
    """A change of the tables, in words, and its act. is_plain: the act sends statements alone, and reads nothing."""

    what: str
    act: Callable[[Connection], object]
    is_plain: bool = True


def setup(connection: Connection, product: Database, tables: Tables) -> list[SetupStep]:
    """Create missing tables and indexes, and upgrade older ones. Return the steps that were done. Any number of
    processes may do so at once, and each may wait long for another."""
    _check_text(connection)
    with _setting_up(connection, product, tables):
        # Which tables are missing is known only after the upgrades.
        done = [
            step.what for steps in (_upgrades, _missing) for step in _run_steps(connection, steps(connection, tables))
        ]
    connection.commit()
    return [SetupStep(what) for what in done]


def setup_steps(connection: Connection, tables: Tables) -> list[SetupStep]:
    """Return what :func:`setup` would do, with its statements, and change nothing."""
    upgrades = _upgrades(connection, tables)
    steps = [*upgrades, *_missing(connection, tables, is_current=not upgrades)]
    found = [SetupStep(step.what, tuple(_statements(connection.dialect, step))) for step in steps]
    connection.rollback()
    return found


def _run_steps(connection: Connection, steps: Iterable[TableChange]) -> Iterator[TableChange]:
    for step in steps:
        step.act(connection)
        yield step


def _statements(dialect: sa.Dialect, step: TableChange) -> Iterator[str]:
    """Yield the statements of a plain step, for a client of the database."""
    found: list[Any] = []
    mock: Any = MockConnection(dialect, lambda statement, *_: found.append(statement))
    if step.is_plain:
        step.act(mock)
    # No driver reads this text, for which a percent sign would have to be doubled.
    compiler: Any = copy.copy(dialect)
    compiler.paramstyle, compiler.positional = "named", False
    compiler.identifier_preparer = compiler.preparer(compiler)
    for each in found:
        literal = {} if isinstance(each, sa.schema.ExecutableDDLElement) else {"literal_binds": True}
        text = str(each.compile(dialect=compiler, compile_kwargs=literal)).replace("\t", "    ")
        yield re.sub(r"\s+\n", "\n", text).strip()


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
        if layout.layout < LAYOUT:
            raise JobFailure(
                f"the tables of {tables.prefix!r} have the older layout {layout.layout}; `jobboard setup` updates them"
            )
    connection.commit()
    return layout is not None


def create(connection: Connection, product: Database, tables: Tables) -> None:
    """Create missing tables and indexes, and upgrade nothing. The wait for another process's set-up may take long."""
    with _setting_up(connection, product, tables):
        for step in _missing(connection, tables):
            step.act(connection)
    connection.commit()


def stored_layout(connection: Connection, tables: Tables) -> StoredLayout | None:
    """Return the stored layout of the tables; None if there are none."""
    if not sa.inspect(connection).has_table(tables.schema.name):
        return None
    row = connection.execute(sa.select(tables.schema)).first()
    return None if row is None else StoredLayout(row.layout, row.min_reader, row.library)


@contextlib.contextmanager
def _setting_up(connection: Connection, product: Database, tables: Tables) -> Iterator[None]:
    with contextlib.closing(connection.connection.cursor()) as cursor:
        # Begin now: a listener to SQLAlchemy's "begin", as SQLite's users have one, must not begin within what comes
        # next.
        if not connection.in_transaction():
            connection.begin()
        with product.setting_up(cursor, tables.prefix):
            yield


def _upgrades(connection: Connection, tables: Tables) -> list[TableChange]:
    """Return the steps from the stored layout to this one.

    :raises JobFailure: a newer version has written the layout."""
    found = stored_layout(connection, tables)
    if found is None:
        return []
    _check_new(tables, found)

    def upgrade(connection: Connection, layout: int) -> None:
        # Without a step, the layout stays, and the oldest reader changes.
        if layout < LAYOUT:
            UPGRADES[layout](connection, tables)
        _record(connection, tables, min(layout + 1, LAYOUT))

    return [
        TableChange(what, functools.partial(upgrade, layout=each), False)
        for each, what in enumerate(found.steps_to(StoredLayout(LAYOUT, MIN_READER)), found.layout)
    ]


def _missing(connection: Connection, tables: Tables, is_current: bool = True) -> list[TableChange]:
    """Return the steps that create missing tables and indexes. A set-up that was killed may have left a table without
    its indexes, and an upgrade only drops the older ones. Those of a newer layout are not ours.

    :param is_current: no upgrade is due, which may add columns."""
    found = stored_layout(connection, tables)
    if found is not None and found.layout > LAYOUT:
        return []
    inspector = sa.inspect(connection)
    steps: list[TableChange] = []
    for table in tables.metadata.sorted_tables:
        if not inspector.has_table(table.name):
            steps.append(
                TableChange(f"create the table {table.name!r}", functools.partial(table.create, checkfirst=False))
            )
            continue
        if is_current:
            _check_ours(table, {column["name"] for column in inspector.get_columns(table.name)})
        there = {index["name"] for index in inspector.get_indexes(table.name)}
        absent = sorted(
            (index for index in table.indexes if index.name not in there), key=lambda index: str(index.name)
        )
        indexes = [TableChange(f"create the index {index.name!r}", index.create) for index in absent]
        # Not every database has every index.
        steps += [step for step in indexes if any(_statements(connection.dialect, step))]
    if found is None:
        steps.append(TableChange(f"note layout {LAYOUT}", lambda connection: _record(connection, tables, LAYOUT)))
    return steps


def _record(connection: Connection, tables: Tables, layout: int) -> None:
    connection.execute(sa.delete(tables.schema))
    values = {"layout": layout, "min_reader": MIN_READER, "library": library_version()}
    connection.execute(sa.insert(tables.schema).values(values))


def _check_ours(table: sa.Table, columns: set[str]) -> None:
    """:raises JobFailure: the stored table with these columns is somebody else's."""
    if missing := sorted(column.name for column in table.columns if column.name not in columns):
        raise JobFailure(
            f"the table {table.name!r} is not a jobboard's, as it has no column {missing[0]!r}: choose another name "
            "for the jobboard's tables with the option table=, as in ?table=jobs"
        )


def _check_new(tables: Tables, stored: StoredLayout) -> None:
    if stored.min_reader > LAYOUT:
        raise too_new(f"the board in the tables of {tables.prefix!r}", stored.layout, LAYOUT, stored.library)


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
