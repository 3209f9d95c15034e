"""The layout of the tables: create them, bring older ones up to date, refuse those of the future."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateColumn

from jobboard.backends.sql.tables import LAYOUT, MIN_READER, PURGED, Tables, finds_returned
from jobboard.codec import failures_as_json
from jobboard.exceptions import JobFailure
from jobboard.sql.dialects import Database
from jobboard.states import TRASHED, Failure

Migration = Callable[[Connection, Tables], None]

_PAGE = 500


def _failures_groups_and_ranks(connection: Connection, tables: Tables) -> None:
    """One error becomes a list of failures, a job has a group, and five priorities become 201."""
    jobs = tables.jobs
    if "error" in _added(connection, jobs, jobs.c.errors, jobs.c.job_group):
        old: sa.ColumnElement[str] = sa.literal_column("error")
        select = sa.select(jobs.c.id, jobs.c.modified_on, jobs.c.attempts, old).where(old.is_not(None))
        change = sa.update(jobs).where(jobs.c.id == sa.bindparam("job")).values(errors=sa.bindparam("failures"))
        last = 0
        while rows := connection.execute(select.where(jobs.c.id > last).order_by(jobs.c.id).limit(_PAGE)).all():
            failures = ((id_, [Failure(at, None, attempts, text)]) for id_, at, attempts, text in rows)
            connection.execute(change, [{"job": id_, "failures": failures_as_json(each)} for id_, each in failures])
            last = rows[-1].id
        _alter(connection, jobs, "DROP COLUMN", "error")
    # No rank from 1 to 4 becomes another one of these: what was done before a crash stays as it is.
    connection.execute(sa.update(jobs).where(jobs.c.priority.between(1, 4)).values(priority=jobs.c.priority * 50))


def _added(connection: Connection, table: sa.Table, *columns: sa.Column[Any]) -> set[str]:
    """Add those that are missing; the names of the columns that were there."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    for column in columns:
        if column.name not in there:
            added = CreateColumn(column).compile(dialect=connection.dialect)
            _alter(connection, table, "ADD COLUMN", str(added))
    return there


def _alter(connection: Connection, table: sa.Table, change: str, column: str) -> None:
    context = {"change": change, "column": column}
    statement: Any = sa.DDL("ALTER TABLE %(fullname)s %(change)s %(column)s", context=context)  # type: ignore[no-untyped-call]
    connection.execute(statement.against(table))


def _side_records(connection: Connection, tables: Tables) -> None:
    """Entities lie among the side records now, and are told anew by each heartbeat. A key may outlive its job, and what
    comes back is found apart. What was trashed and what was purged share an index, by when it was, and a claim
    moves fewer entries. Jobs in groups have indexes of their own."""
    _added(connection, tables.jobs, *(tables.jobs.c[name] for name in ("key_until", "returned", "spare", "gone_on")))
    if finds_returned(connection.dialect):
        tables.returned.create(connection, checkfirst=True)
    if connection.dialect.name != "sqlite":
        _anew(connection, tables, tables.by_group)
    else:
        # The first of them had jobs of any group, under the same name.
        for index in (*tables.halves, tables.by_group_covering):
            index.drop(connection, checkfirst=True)
            index.create(connection)
    c = tables.jobs.c
    gone = sa.case((c.state == str(TRASHED), c.modified_on), else_=-c.modified_on)
    connection.execute(sa.update(tables.jobs).where(c.state.in_([str(TRASHED), PURGED])).values(gone_on=gone))
    _anew(connection, tables, tables.trash, "purged")
    _anew(connection, tables, tables.serving)
    _anew(connection, tables, tables.wake)
    sa.Table(f"{tables.prefix}_entities", sa.MetaData()).drop(connection, checkfirst=True)


def _anew(connection: Connection, tables: Tables, index: sa.Index, *others: str) -> None:
    """Replace the index of this name, and drop those of the others."""
    was = sa.Table(tables.jobs.name, sa.MetaData(), sa.Column("id"))
    for name in (index.name, *(f"{tables.prefix}_{other}" for other in others)):
        sa.Index(name, was.c.id).drop(connection, checkfirst=True)
    index.create(connection)


MIGRATIONS: Mapping[int, Migration] = {1: _failures_groups_and_ranks, 2: _side_records}
"""From which layout to the next. Each keeps every job, and can be repeated after a crash in its middle, as not every
database takes changes of tables back."""


def setup(connection: Connection, product: Database, tables: Tables) -> None:
    """Create what is missing and bring what is older up to date. Any number of processes may do this at once."""
    _check_text(connection)
    with _setting_up(connection, product, tables):
        found = stored_layout(connection, tables)
        if found is not None:
            _check_new(tables, found)
            for layout in range(found[0], LAYOUT):
                MIGRATIONS[layout](connection, tables)
                _record(connection, tables, layout + 1)
        _create(connection, product, tables)
    connection.commit()


@contextlib.contextmanager
def _setting_up(connection: Connection, product: Database, tables: Tables) -> Iterator[None]:
    # Now, as who listens to that may begin by hand, as SQLite's users are told to: not within what is begun next.
    if not connection.in_transaction():
        connection.begin()
    with contextlib.closing(connection.connection.cursor()) as cursor, product.setting_up(cursor, tables.prefix):
        yield


def prepare(connection: Connection, product: Database, tables: Tables, create: bool, write: bool) -> None:
    """Make sure that the tables are there and of our layout; create them if ``create`` allows, migrate never.

    :param write: whether jobs are going to be changed."""
    _check_text(connection)
    layout = stored_layout(connection, tables)
    if layout is None:
        if not create:
            raise JobFailure(f"the tables of {tables.prefix!r} are missing; `jobboard setup` creates them")
        with _setting_up(connection, product, tables):
            _create(connection, product, tables)
        layout = stored_layout(connection, tables)
        assert layout is not None
    _check_new(tables, layout)
    if layout[0] < LAYOUT:
        raise JobFailure(
            f"the tables of {tables.prefix!r} have the older layout {layout[0]}; `jobboard setup` updates them"
        )
    if write:
        _check_log(connection, tables)
    connection.commit()


def stored_layout(connection: Connection, tables: Tables) -> tuple[int, int] | None:
    """(layout, min_reader) of the tables; None if there are none."""
    if not sa.inspect(connection).has_table(tables.schema.name):
        return None
    row = connection.execute(sa.select(tables.schema.c.layout, tables.schema.c.min_reader)).first()
    return None if row is None else (row.layout, row.min_reader)


def _check_text(connection: Connection) -> None:
    """:raises JobFailure: not all text can be stored, be it that of an error with which a job is given back."""
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise JobFailure(
                f"the database {connection.engine.url.database!r} is in {encoding}, and jobs hold any text: give the "
                "jobboard one that is made WITH ENCODING 'UTF8' TEMPLATE template0"
            )


def _check_log(connection: Connection, tables: Tables) -> None:
    """Write nothing, so that a server whose log can't have our changes refuses that now and not at the first post."""
    if connection.dialect.name in ("mysql", "mariadb"):
        settings = connection.exec_driver_sql("SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')")
        if {value for _, value in settings} == {"ON", "STATEMENT"}:
            connection.execute(sa.delete(tables.jobs).where(sa.false()))


def _check_ours(connection: Connection, tables: Tables) -> None:
    """What is there already may be of an interrupted setup, and may be somebody else's."""
    inspector = sa.inspect(connection)
    for table in tables.metadata.sorted_tables:
        if inspector.has_table(table.name):
            columns = {column["name"] for column in inspector.get_columns(table.name)}
            if missing := sorted(column.name for column in table.columns if column.name not in columns):
                raise JobFailure(
                    f"the table {table.name!r} is not a jobboard's, as it has no column {missing[0]!r}: choose another "
                    "name for the jobboard's tables with the option table=, as in ?table=jobs"
                )


def _create(connection: Connection, product: Database, tables: Tables) -> None:
    _check_ours(connection, tables)
    tables.metadata.create_all(connection)
    if product.commits_at_create:
        # Of a set-up that was killed behind a table, which is there now as if it were whole.
        for table in tables.metadata.tables.values():
            for index in table.indexes:
                index.create(connection, checkfirst=True)
    if stored_layout(connection, tables) is None:
        _record(connection, tables, LAYOUT)


def _record(connection: Connection, tables: Tables, layout: int) -> None:
    connection.execute(sa.delete(tables.schema))
    connection.execute(sa.insert(tables.schema).values(layout=layout, min_reader=MIN_READER))


def _check_new(tables: Tables, stored: tuple[int, int]) -> None:
    if stored[1] > LAYOUT:
        raise JobFailure(
            f"the tables of {tables.prefix!r} have layout {stored[0]} of a newer version, which this one (layout "
            f"{LAYOUT}) can't work with; upgrade this library"
        )
