"""What the tests of task loops share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.taskloop import TaskLoop
from jobboard.taskloop.loop import known

# As doloop 1.0.0 makes it.
_DOLOOPS = sa.text(
    "CREATE TABLE doloops ("
    " id INT NOT NULL, last_updated INT default NULL, lock_until INT default NULL,"
    " PRIMARY KEY (id), KEY lock_until (lock_until, last_updated)) ENGINE=InnoDB"
)


class Aged(TaskLoop):
    """A task loop of which a test can move the past: nobody waits for a time to pass."""

    engine: sa.Engine

    def age(self, seconds: float, *ids: Any) -> None:
        """What happened to the ids, or to all, happened so much longer ago; and their locks last so much shorter."""
        c = sa.table(self.table, *(sa.column(name) for name in ("id", "last_updated", "lock_until"))).c
        past = {"last_updated": c.last_updated - seconds, "lock_until": c.lock_until - seconds}
        change = sa.update(c.id.table).values(past)
        with self.engine.begin() as connection:
            connection.execute(change.where(c.id.in_(ids)) if ids else change)

    def rows(self) -> dict[Any, tuple[int | None, int | None]]:
        """``last_updated`` and ``lock_until`` of each id."""
        with self.engine.connect() as connection:
            table = sa.table(self.table, *(sa.column(name) for name in ("id", "last_updated", "lock_until")))
            return {id_: (updated, until) for id_, updated, until in connection.execute(sa.select(table))}


@pytest.fixture(scope="session")
def engine(backend: str, users_url: Callable[[str], sa.URL]) -> Iterator[sa.Engine]:
    """One for all tests, and most of them use the same table: what makes them slow is compiling statements anew."""
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
    """``make_loop(*ids)``: a loop that is empty but for these; the first on the kept table, and more, or with options
    of ``create``, on a table of its own. ``bind=`` and ``table=``: another handle on a table."""
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
    with engine.begin() as connection:
        connection.execute(_DOLOOPS)
    yield make_loop(table="doloops")
    with engine.begin() as connection:
        sa.Table("doloops", sa.MetaData()).drop(connection)
    # The next table of this name may have other columns.
    known.clear()
