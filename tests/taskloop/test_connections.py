"""Task loops on an engine, on a connection, and on a callable that gives connections."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import taskloop
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.sql import binds
from jobboard.taskloop import TaskLoop

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.mark.backends("sqlite")
def test_a_bind_of_another_kind_is_refused() -> None:
    import sqlite3

    raw = contextlib.closing(sqlite3.connect(":memory:"))
    with raw as connection, pytest.raises(TypeError, match="create_engine"):
        TaskLoop(connection, "loop")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="NoneType"):
        TaskLoop(lambda: None, "loop").get(1)  # type: ignore[arg-type, return-value]


@pytest.mark.backends("sqlite")
def test_sqlite_in_memory_needs_its_connection() -> None:
    engine = sa.create_engine("sqlite://")
    with pytest.raises(ValueError, match=r"engine\.connect\(\)"):
        TaskLoop(engine, "loop")
    with engine.connect() as connection:
        loop = TaskLoop(connection, "loop")
        loop.create()
        assert loop.add([1, 2]) == 2
        assert loop.get(1) == [1]
    engine.dispose()


def test_a_connection_that_commits_each_statement_is_refused(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """Locks would be gone before the rows that they protect have been written."""
    loop = make_loop(1)
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        with pytest.raises(JobFailure, match="AUTOCOMMIT"):
            TaskLoop(connection, loop.table).get(1)
        with connection.begin(), pytest.raises(JobFailure, match="AUTOCOMMIT"):
            TaskLoop(connection, loop.table).get(1)
        assert TaskLoop(connection, loop.table).check(1) == {1: (None, None)}


def test_an_engine_that_commits_each_statement_is_served(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(1, 2)
    other = make_loop(bind=engine.execution_options(isolation_level="AUTOCOMMIT"), table=loop.table)
    assert len(other.get(1, test=True)) == 1
    assert len(other.get(2)) == 2


@pytest.mark.rule("A caller's transaction of a task loop is begun for writing.")
@pytest.mark.backends("sqlite")
def test_a_transaction_of_the_callers_is_begun_for_writing(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """The driver begins it with the first change, and by then another may have taken what was just read."""
    loop = make_loop(1, 2)
    with engine.connect() as connection, connection.begin():
        assert connection.execute(sa.select(sa.text("count(*)")).select_from(sa.table(loop.table))).scalar() == 2
        loop.add(3)
        within = TaskLoop(connection, loop.table)
        assert len(within.get(5)) == 3
        assert within.get(5) == []
    with engine.connect() as connection, connection.begin():
        assert TaskLoop(connection, loop.table).get(5) == []
        assert connection.connection.dbapi_connection.in_transaction  # type: ignore[union-attr]


@pytest.mark.backends("mariadb")
def test_create_does_not_commit_the_callers_transaction(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop()
    with engine.connect() as connection, connection.begin() as transaction:
        TaskLoop(connection, loop.table).add(1)
        with pytest.raises(JobFailure, match="create 'another' would commit it: end it first"):
            TaskLoop(connection, "another").create()
        transaction.rollback()
    assert loop.rows() == {}


IMPATIENT = {
    "sqlite": {"connect_args": {"timeout": 0.05}},
    "postgresql": {"connect_args": {"options": "-c lock_timeout=50"}},
    "mariadb": {"connect_args": {"init_command": "SET lock_wait_timeout = 1"}},
}
LOCKED = {
    "sqlite": ("BEGIN EXCLUSIVE", "ROLLBACK"),
    "postgresql": ("LOCK TABLE locked_loop IN ACCESS EXCLUSIVE MODE", "ROLLBACK"),
    "mariadb": ("LOCK TABLES locked_loop WRITE", "UNLOCK TABLES"),
}


@pytest.mark.rule("A lock that keeps readers out raises ConnectionFailure.")
@pytest.mark.parametrize("on", ["callable", "transaction"])
def test_a_lock_that_keeps_readers_out_raises_connection_failure(
    engine: sa.Engine, backend: str, on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binds, "PATIENCE", 0.2)
    # Not in WAL mode, in which readers meet no locks.
    url = sa.make_url(f"sqlite:///{tmp_path}/locked.db") if backend == "sqlite" else engine.url
    impatient = sa.create_engine(url, poolclass=sa.NullPool, **IMPATIENT[backend])
    with impatient.connect() as locking, impatient.connect() as connection:
        TaskLoop(connection, "locked_loop").create()
        lock, unlock = LOCKED[backend]
        locking.exec_driver_sql(lock)
        loop = TaskLoop(impatient.connect if on == "callable" else connection, "locked_loop")
        for verb in (loop.stats, lambda: loop.check(1)):
            if on == "transaction":
                connection.begin()
            with pytest.raises(ConnectionFailure) as failure:
                verb()
            assert isinstance(failure.value.cause, engine.dialect.loaded_dbapi.Error)
            connection.rollback()
        locking.exec_driver_sql(unlock)
        assert loop.check(1) == {}
        connection.rollback()
        sa.Table("locked_loop", sa.MetaData()).drop(connection)
        connection.commit()


@pytest.mark.rule("A callable that gives no connection is a ConnectionFailure with its cause.")
@pytest.mark.backends("sqlite", "postgresql")
@pytest.mark.parametrize("on", ["engine", "connection", "transaction"])
def test_the_error_of_the_driver_is_the_cause(make_loop: Callable[..., Any], engine: sa.Engine, on: str) -> None:
    loop = make_loop(1)
    with engine.connect() as connection:
        if on == "transaction":
            connection.begin()
        on_it = make_loop(bind=engine if on == "engine" else connection, table=loop.table)
        with pytest.raises(JobFailure, match="refused") as refused:
            on_it.add([None])
        assert isinstance(refused.value.cause, engine.dialect.loaded_dbapi.IntegrityError)
        assert refused.value.__cause__ is refused.value.cause


@pytest.mark.backends("sqlite")
def test_a_closed_loop_is_refused(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    loop.close()
    with pytest.raises(ConnectionFailure, match="closed"):
        loop.get(1)


@pytest.mark.rule("A forked child takes no connection of its parent's.")
def test_a_forked_child_has_connections_of_its_own(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(*range(6))
    first = loop.get(2)
    with engine.connect() as idle:
        level = idle.get_isolation_level()
    child = os.fork()
    if child == 0:
        # The child must not go on as a second test run, even after an error.
        try:
            os._exit(len(loop.get(3)))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert len(first) == 2
    assert len(loop.get(3)) == 1
    # The child would have set it to a level of the library's.
    with engine.connect() as idle:
        assert idle.get_isolation_level() == level


def test_a_connection_from_engine_connect_goes_back_to_its_pool(
    make_loop: Callable[..., Any], engine: sa.Engine
) -> None:
    """Also after an error, and while the error is kept."""
    one = sa.create_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    loop, missing = make_loop(1, bind=one.connect, table=make_loop(1).table), TaskLoop(one.connect, "no_such_loop")
    kept = []
    for verb in (lambda loop: loop.get(1), lambda loop: loop.check(1), lambda loop: loop.did(1)):
        with pytest.raises(JobFailure) as refused:
            verb(missing)
        kept.append(refused.value)
        assert one.pool.checkedout() == 0  # type: ignore[attr-defined]
        verb(loop)
        assert one.pool.checkedout() == 0  # type: ignore[attr-defined]
    one.dispose()


def test_a_callable_is_called_for_each_verb_and_keeps_its_connection(
    make_loop: Callable[..., Any], engine: sa.Engine
) -> None:
    table, calls = make_loop(1).table, []
    with engine.connect() as connection:

        def connect() -> sa.Connection:
            calls.append(None)
            return connection

        loop = taskloop.DoLoop(connect, table)
        assert not calls
        with pytest.raises(JobFailure):
            TaskLoop(connect, "no_such_loop").get(1)
        assert loop.get(1) == [1]
        assert len(calls) == 2
        assert not connection.closed


@pytest.mark.rule("A callable that gives no connection is a ConnectionFailure with its cause.")
@pytest.mark.parametrize("verb", ["get", "check"])
def test_a_callable_that_cannot_connect_raises_connection_failure(engine: sa.Engine, backend: str, verb: str) -> None:
    nowhere = {"database": "/no/such/folder/db"} if backend == "sqlite" else {"port": 1, "password": "sekret"}
    away = sa.create_engine(engine.url.set(**nowhere))
    with pytest.raises(ConnectionFailure, match="the task loop 'any_loop' got no connection") as refused:
        getattr(TaskLoop(away.connect, "any_loop"), verb)(1)
    assert refused.value.outcome == "none"
    assert "sekret" not in str(refused.value)
