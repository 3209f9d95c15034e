"""Task loops of tests, on every SQL server, and doloop's own table."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.taskloop import TaskLoop

BUSY = 20
"""The seconds that may pass between two statements on a busy machine."""

_numbers = itertools.count()

# As doloop 1.0.0 makes it.
_DOLOOPS = (
    "CREATE TABLE {} ("
    " id INT NOT NULL, last_updated INT default NULL, lock_until INT default NULL,"
    " PRIMARY KEY (id), KEY lock_until (lock_until, last_updated)) ENGINE=InnoDB"
)


class Aged(TaskLoop):
    """A task loop whose times a test can move into the past, so that no test waits."""

    engine: sa.Engine

    def age(self, seconds: float, *ids: Any) -> None:
        """Move the times of the ids, or of all ids, into the past."""
        c = sa.table(self.table, *(sa.column(name) for name in ("id", "last_updated", "lock_until"))).c
        past = {"last_updated": c.last_updated - seconds, "lock_until": c.lock_until - seconds}
        change = sa.update(c.id.table).values(past)
        with self.engine.begin() as connection:
            connection.execute(change.where(c.id.in_(ids)) if ids else change)

    def rows(self) -> dict[Any, tuple[int | None, int | None]]:
        """Return ``last_updated`` and ``lock_until`` of each id."""
        with self.engine.connect() as connection:
            table = sa.table(self.table, *(sa.column(name) for name in ("id", "last_updated", "lock_until")))
            return {id_: (updated, until) for id_, updated, until in connection.execute(sa.select(table))}


@pytest.fixture(scope="session")
def engine(backend: str, users_url: Callable[[str], sa.URL]) -> Iterator[sa.Engine]:
    """One engine for all tests, most of which use the same table: to compile its statements again is slow."""
    engine = sa.create_engine(users_url("loops"), connect_args={"timeout": 1} if backend == "sqlite" else {})
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def kept_table(engine: sa.Engine) -> Iterator[str]:
    with TaskLoop(engine, "kept_loop") as loop:
        loop.create()
        yield loop.table
    sa.Table("kept_loop", sa.MetaData()).drop(engine)


@pytest.fixture
def make_loop(engine: sa.Engine, kept_table: str) -> Iterator[Callable[..., Aged]]:
    """``make_loop(*ids)``: a loop with these ids alone.

    The first loop is on the kept table. Further loops, and loops with options of ``create``, have tables of their own.
    ``bind=`` and ``table=``: another handle on a table.
    """
    loops: list[Aged] = []
    created: list[str] = []

    def make(*ids: Any, bind: Any = None, table: str | None = None, **options: Any) -> Aged:
        fresh = table is None and (bool(options) or any(loop.table == kept_table for loop in loops))
        name = f"loop{len(created)}" if fresh else table or kept_table
        loop = Aged(engine if bind is None else bind, name)
        loop.engine = engine
        loops.append(loop)
        if fresh:
            loop.create(**options)
            created.append(name)
        if ids:
            loop.add(ids)
        return loop

    yield make
    for loop in loops:
        loop.close()
    with engine.begin() as connection:
        connection.execute(sa.delete(sa.table(kept_table)))
        for name in created:
            sa.Table(name, sa.MetaData()).drop(connection)


@pytest.fixture
def loop(make_loop: Callable[..., Aged]) -> Aged:
    return make_loop()


@pytest.fixture
def doloops(engine: sa.Engine, make_loop: Callable[..., Aged]) -> Iterator[Aged]:
    """A loop on a table that doloop has made."""
    # Statements of a name are kept, and the next table may have other columns.
    name = f"doloops{next(_numbers)}"
    with engine.begin() as connection:
        connection.execute(sa.text(_DOLOOPS.format(name)))
    yield make_loop(table=name)
    with engine.begin() as connection:
        sa.Table(name, sa.MetaData()).drop(connection)
