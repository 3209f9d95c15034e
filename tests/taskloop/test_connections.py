"""What a task loop may be on: an engine, a connection, a callable that gives one."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.sql import binds
from jobboard.taskloop import TaskLoop
from jobboard.taskloop.loop import known

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.mark.backends("sqlite")
def test_what_is_none_of_these_is_refused() -> None:
    import sqlite3

    with pytest.raises(TypeError, match="create_engine"):
        TaskLoop(sqlite3.connect(":memory:"), "loop")  # type: ignore[arg-type]
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


@pytest.mark.parametrize("how", ["engine", "options", "connection"])
def test_a_connection_that_commits_each_statement_is_refused(
    make_loop: Callable[..., Any], engine: sa.Engine, how: str
) -> None:
    """Locks would be gone before what they protect has been written."""
    loop = make_loop(1)
    bind = {
        "engine": lambda: sa.create_engine(engine.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool),
        "options": lambda: engine.execution_options(isolation_level="AUTOCOMMIT"),
        "connection": lambda: engine,
    }[how]()
    with bind.connect() as connection:
        if how == "connection":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(JobFailure, match="AUTOCOMMIT"):
            TaskLoop(connection, loop.table).get(1)
        with connection.begin(), pytest.raises(JobFailure, match="AUTOCOMMIT"):
            TaskLoop(connection, loop.table).get(1)
        assert TaskLoop(connection, loop.table).check(1) == {1: (None, None)}


def test_on_an_engine_that_commits_each_statement(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(1, 2)
    other = make_loop(bind=engine.execution_options(isolation_level="AUTOCOMMIT"), table=loop.table)
    assert len(other.get(1, test=True)) == 1
    assert len(other.get(2)) == 2


@pytest.mark.backends("sqlite")
def test_on_an_engine_that_begins_by_hand(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/own.db", connect_args={"timeout": 0})
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with TaskLoop(engine, "loop") as loop:
        loop.create()
    with TaskLoop(engine, "loop") as loop:
        # What the table is like is looked up by the first verb, and that may only read.
        assert loop.stats()["bumped"] == 0
        with engine.begin() as connection:
            assert TaskLoop(connection, "loop").add([1, 2]) == 2
        known.clear()
        assert loop.get(1) == [1]


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


def test_what_another_has_not_committed_is_not_told(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(1, 2)
    with engine.connect() as connection, connection.begin() as transaction:
        TaskLoop(connection, loop.table).bump([1, 2])
        assert loop.check([1, 2]) == {1: (None, None), 2: (None, None)}
        assert loop.stats()["bumped"] == 0
        transaction.rollback()


@pytest.mark.backends("mariadb")
def test_what_another_is_just_taking_is_not_even_tried(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(*range(9))
    loop.did(loop.get(1))
    tried: list[str] = []
    with engine.connect() as connection, connection.begin():
        assert len(TaskLoop(connection, loop.table).get(4)) == 4
        sa.event.listen(engine, "before_cursor_execute", lambda *args: tried.append(args[2]))
        assert len(loop.get(4)) == 4
    # Nothing is bumped; the rest was never updated.
    assert sum("SKIP LOCKED" in text for text in tried) == 2


@pytest.mark.backends("mariadb")
def test_create_does_not_commit_what_is_the_callers(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop()
    with engine.connect() as connection, connection.begin() as transaction:
        TaskLoop(connection, loop.table).add(1)
        with pytest.raises(JobFailure, match="create 'another' would commit it: end it first"):
            TaskLoop(connection, "another").create()
        transaction.rollback()
    assert loop.rows() == {}


@pytest.mark.backends("postgresql")
def test_create_is_undone_with_the_callers_transaction(engine: sa.Engine) -> None:
    with engine.connect() as connection, connection.begin() as transaction:
        TaskLoop(connection, "undone_loop").create()
        transaction.rollback()
    assert not sa.inspect(engine).has_table("undone_loop")


@pytest.mark.backends("postgresql", "mariadb")
def test_a_deadlock_within_the_callers_transaction_is_theirs_to_repeat(
    make_loop: Callable[..., Any], engine: sa.Engine
) -> None:
    loop = make_loop(1, 2)
    first_has = threading.Barrier(2)
    outcomes: list[object] = []

    def work(one: int, other: int) -> None:
        with engine.connect() as connection, connection.begin() as transaction:
            within = TaskLoop(connection, loop.table)
            within.did(one, auto_add=False)
            first_has.wait(20)
            try:
                outcomes.append(within.did(other, auto_add=False))
            except JobFailure as error:
                outcomes.append(error)
                transaction.rollback()

    threads = [threading.Thread(target=work, args=ids) for ids in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [refused] = [each for each in outcomes if isinstance(each, JobFailure)]
    assert isinstance(refused.cause, engine.dialect.loaded_dbapi.Error)
    assert "roll it back, and do all of it again" in str(refused)
    assert outcomes.count(1) == 1


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


@pytest.mark.parametrize("on", ["callable", "connection", "transaction"])
def test_a_lock_that_keeps_readers_out(
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


@pytest.mark.backends("sqlite", "postgresql")
@pytest.mark.parametrize("on", ["engine", "connection", "transaction"])
def test_what_the_driver_says_is_the_cause(make_loop: Callable[..., Any], engine: sa.Engine, on: str) -> None:
    loop = make_loop(1)
    with engine.connect() as connection:
        if on == "transaction":
            connection.begin()
        on_it = make_loop(bind=engine if on == "engine" else connection, table=loop.table)
        with pytest.raises(JobFailure, match="refused") as refused:
            on_it.add([None])
        assert isinstance(refused.value.cause, engine.dialect.loaded_dbapi.IntegrityError)
        assert refused.value.__cause__ is refused.value.cause


@pytest.mark.backends("postgresql", "mariadb")
def test_a_connection_that_was_cut_is_replaced(make_loop: Callable[..., Any], engine: sa.Engine, backend: str) -> None:
    loop = make_loop(1)
    [number] = loop._bind.read(
        lambda run, product: run.connection.exec_driver_sql(
            {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT CONNECTION_ID()"}[backend]
        ).scalars()
    )
    kill = {"postgresql": "SELECT pg_terminate_backend(%s)", "mariadb": "KILL %s"}[backend]
    with sa.create_engine(engine.url, poolclass=sa.NullPool).connect() as connection:
        connection.exec_driver_sql(kill, (number,))
    assert loop.get(1) == [1]


@pytest.mark.backends("sqlite")
def test_a_loop_that_was_closed(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    loop.close()
    with pytest.raises(ConnectionFailure, match="closed"):
        loop.get(1)


def test_a_forked_child_has_connections_of_its_own(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(*range(6))
    first = loop.get(2)
    with engine.connect() as idle:
        level = idle.get_isolation_level()
    child = os.fork()
    if child == 0:
        # Whatever comes, the child must not go on as a second test run.
        try:
            os._exit(len(loop.get(3)))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert len(first) == 2
    assert len(loop.get(3)) == 1
    # Which the child would have set to one of ours.
    with engine.connect() as idle:
        assert idle.get_isolation_level() == level


def test_a_connection_of_an_engine_that_is_called_goes_back(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """Also after an error, and while that is kept."""
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


def test_a_connection_that_a_callable_keeps_is_left_open(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    with engine.connect() as connection:
        loop = make_loop(1, 2, bind=lambda: connection, table=make_loop().table)
        with pytest.raises(JobFailure):
            TaskLoop(lambda: connection, "no_such_loop").get(1)
        assert loop.get(1) == [1]
        assert not connection.closed


@pytest.mark.parametrize("verb", ["get", "check"])
def test_a_callable_that_can_not_connect(engine: sa.Engine, backend: str, verb: str) -> None:
    nowhere = {"database": "/no/such/folder/db"} if backend == "sqlite" else {"port": 1, "password": "sekret"}
    away = sa.create_engine(engine.url.set(**nowhere))
    with pytest.raises(ConnectionFailure, match="the task loop 'any_loop' got no connection") as refused:
        getattr(TaskLoop(away.connect, "any_loop"), verb)(1)
    assert refused.value.outcome == "none"
    assert "sekret" not in str(refused.value)


@pytest.mark.backends("sqlite")
def test_a_callable_whose_pool_has_none_left(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    one = sa.create_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with one.connect(), pytest.raises(ConnectionFailure, match="TimeoutError"):
        TaskLoop(one.connect, "any_loop").get(1)
    one.dispose()
