"""Tables of task loops: their names, their SQL, and ids that they refuse."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import taskloop
from jobboard.exceptions import JobFailure
from jobboard.taskloop import TaskLoop

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


def test_a_missing_table_is_named(engine: sa.Engine) -> None:
    with TaskLoop(engine, "no_such_loop") as loop, pytest.raises(JobFailure, match=r"'no_such_loop'; TaskLoop.create"):
        loop.get(1)


@ONE
def test_a_name_must_be_a_string(engine: sa.Engine) -> None:
    for wrong in (None, 3, b"loop"):
        with pytest.raises(TypeError, match="table must be a string"):
            TaskLoop(engine, wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="table must be a string"):
            taskloop.sql_for_create(wrong)  # type: ignore[arg-type]
    for call in (lambda: TaskLoop(engine, ""), lambda: taskloop.sql_for_create("")):
        with pytest.raises(ValueError, match="table must not be empty"):
            call()


@pytest.mark.rule("A table that could not be used is refused before it is made.")
@pytest.mark.parametrize("name", ["Odd `loop` of 5%", 63 * "x"])
def test_any_name_is_quoted(make_loop: Callable[..., Any], engine: sa.Engine, name: str) -> None:
    loop = make_loop(table=name)
    loop.create()
    try:
        loop.add([1])
        assert loop.get(1) == [1]
        assert loop.did(1) == 1
        assert loop.table == name
    finally:
        sa.Table(loop.table, sa.MetaData()).drop(engine)


@pytest.mark.rule("Long names of tables keep their indexes apart, and every name is quoted.")
@ONE
def test_long_names_keep_their_indexes_apart() -> None:
    texts = [taskloop.sql_for_create(60 * "x" + end, dialect="postgresql") for end in ("a", "b")]
    assert len({name for text in texts for name in re.findall(r'CREATE INDEX "(\w+)" ON', text)}) == 2


def test_an_id_that_the_column_refuses_is_a_job_failure(loop: TaskLoop, backend: str) -> None:
    """doloop's INSERT IGNORE makes it 0."""
    if backend == "sqlite":
        assert loop.add(["x"]) == 1
        return
    with pytest.raises(JobFailure, match="refused"):
        loop.add([1, "x"])
    assert loop.check([0, 1]) == {}


@pytest.mark.rule("A value that a driver cannot send is a JobFailure, and a time that none can store a ValueError.")
@pytest.mark.parametrize("id_", [2**80, "\ud800"], ids=["too large", "no unicode"])
def test_an_id_that_the_driver_refuses_is_a_job_failure(make_loop: Callable[..., Any], id_: Any) -> None:
    loop = make_loop(1)
    with loop.engine.connect() as connection:
        for bind in (loop.engine, connection):
            with pytest.raises(JobFailure, match="refused"):
                make_loop(bind=bind, table=loop.table).add([id_])
        with connection.begin(), pytest.raises(JobFailure, match="refused"):
            TaskLoop(connection, loop.table).add([id_])
    assert loop.check(1) == {1: (None, None)}


def test_sql_for_create_creates_the_table(engine: sa.Engine, backend: str) -> None:
    sql = taskloop.sql_for_create("by_hand", id_type="VARCHAR(64)", dialect=backend)
    with engine.begin() as connection:
        for statement in sql.split(";"):
            connection.exec_driver_sql(statement)
    try:
        with TaskLoop(engine, "by_hand") as loop:
            assert loop.add("a") == 1
            assert loop.get(1, who="anna") == ["a"]
    finally:
        sa.Table("by_hand", sa.MetaData()).drop(engine)


@ONE
def test_sql_for_create_is_for_mysql_unless_told_otherwise() -> None:
    assert "ENGINE=RocksDB" in taskloop.sql_for_create("foo_loop", engine="RocksDB")
    with pytest.raises(ValueError, match="MyISAM"):
        taskloop.sql_for_create("foo_loop", engine="MyISAM")
    with pytest.raises(ValueError, match="oracle"):
        taskloop.sql_for_create("foo_loop", dialect="oracle")


@pytest.mark.rule("Tables on MariaDB do not take the server's default format of rows.")
@ONE
def test_a_table_does_not_take_the_servers_format_of_rows() -> None:
    """An older default format has no room for long ids in an index."""
    assert "ROW_FORMAT=DYNAMIC" in taskloop.sql_for_create("loop", "VARCHAR(255)")
    assert "ROW_FORMAT" not in taskloop.sql_for_create("loop", engine="RocksDB")


@pytest.mark.rule("A loop leaves other columns of its table as they are, those with ON UPDATE too.")
@pytest.mark.backends("mariadb")
def test_a_loop_leaves_other_columns_as_they_are(
    engine: sa.Engine, make_loop: Callable[..., Any], doloops: Any
) -> None:
    column = "changed TIMESTAMP(6) NOT NULL DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP(6)"
    # A process reads the columns of a table once, so it is no other test's.
    mine = make_loop(table="loop_with_a_column")
    mine.create(id_type="INT")
    for loop in (mine, doloops):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {loop.table} ADD {column}")
        loop.add([1, 2, 3])

        def moved(loop: Any = loop) -> int:
            with engine.connect() as connection:
                changed = sa.column("changed")
                select = sa.select(sa.func.count()).select_from(sa.table(loop.table)).where(changed != "2000-01-01")
                return int(connection.scalar(select) or 0)

        assert loop.get(1) == [1]
        assert moved() == 0, "get"
        loop.did(1)
        assert moved() == 0, "did"
        loop.bump([2, 3])
        assert moved() == 0, "bump"
        loop.unlock([2, 3])
        assert moved() == 0, "unlock"
        if loop is not doloops:
            held = loop.get(2, who="anna")
            loop.extend(held)
            loop.did(held.only(2), strict=True)
            loop.unlock(held.only(3), strict=True)
            assert moved() == 0, "get(who=…)"
    with engine.begin() as connection:
        sa.Table(mine.table, sa.MetaData()).drop(connection)
