"""The engines that boards make, and the engines of users that will not do."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import AssertionPool, QueuePool, SingletonThreadPool, StaticPool

import jobboard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.taskloop import TaskLoop

AS_MYSQLDB = """
import sys

import pymysql

sys.modules["MySQLdb"] = pymysql
import MySQLdb.err

import jobboard
from jobboard.exceptions import ConnectionFailure

assert pymysql.err.OperationalError is not pymysql.OperationalError
try:
    jobboard.fetch("board", "mariadb://root@127.0.0.1:1/jobboard?retry_for=0").connect()
except ConnectionFailure as error:
    print(error)
"""


@pytest.mark.backends("mariadb")
def test_pymysql_may_stand_in_the_place_of_mysqldb() -> None:
    """As Django needs it: what it imports of MySQLdb replaces ``pymysql.err`` by a copy, whose errors nobody raises. In
    a process of its own, as nothing undoes that."""
    done = subprocess.run([sys.executable, "-c", AS_MYSQLDB], capture_output=True, text=True, check=True)
    assert "127.0.0.1" in done.stdout


@pytest.mark.backends("postgresql")
def test_options_of_libpq_lead_to_the_database(
    board_conf: dict[str, Any], engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = engine.url
    options = "application_name=app&target_session_attrs=read-write&keepalives_idle=5&options=-c%20search_path%3Dtenant"
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA tenant")
    # The first host is not there.
    uri = f"postgres://{url.username}@127.0.0.1:1,127.0.0.1:{url.port}/{url.database}?{options}"
    with jobboard.backend("board", {**board_conf, "board": uri}) as board, engine.begin() as connection:
        job = board.post("a")
        names = connection.exec_driver_sql("SELECT application_name FROM pg_stat_activity").scalars()
        assert "app" in list(names)
        assert sa.inspect(engine).has_table(board.table.name, "tenant")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    (tmp_path / "services").write_text(
        f"[mine]\nhost={url.host}\nport={url.port}\nuser={url.username}\ndbname={url.database}\n"
        "options=-c search_path=tenant\n"
    )
    with jobboard.backend("board", {**board_conf, "board": "postgresql://?service=mine"}) as board:
        assert board.get(job.uuid) == job
    for wrong in ("service=yours", "channel_binding=maybe"):
        with pytest.raises(ConnectionFailure) as failure:
            jobboard.fetch("board", f"postgresql://{url.host}:{url.port}/{url.database}?{wrong}").connect()
        assert failure.value.refused
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA tenant CASCADE")


@pytest.mark.rule("A password reaches MariaDB as UTF-8.")
@pytest.mark.backends("mariadb")
def test_a_password_reaches_the_server_as_utf8(board_conf: dict[str, Any], engine: sa.Engine) -> None:
    password = "Zürich 5 €"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE USER zoe@'%%' IDENTIFIED BY '{password}'")
        connection.exec_driver_sql(f"GRANT ALL ON {engine.url.database}.* TO zoe@'%%'")
    try:
        with jobboard.backend("board", {**board_conf, "user": "zoe", "password": password}) as board:
            board.post("a")
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP USER zoe@'%%'")


@pytest.mark.rule("An engine that begins by hand is served.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("create", ["setup", "connect"])
def test_an_engine_that_begins_by_hand_is_served(tmp_path: Path, create: str) -> None:
    """An error of SQLite boards says how to."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/own.db", connect_args={"timeout": 0})
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    board = jobboard.fetch("board", "sqlite", client=engine)
    getattr(board, create)()
    board.connect()
    with engine.begin() as connection:
        board.post("a", connection=connection)
    job = board.claim_next("anna")
    assert job is not None
    with engine.begin() as connection:
        board.consume(job, "anna", connection=connection)
    assert board.job_count == 0
    board.close()
    engine.dispose()


@pytest.mark.backends("sqlite")
def test_a_client_must_be_an_engine() -> None:
    with pytest.raises(TypeError, match="Engine"):
        jobboard.fetch("board", "sqlite", client=object())


@pytest.mark.backends("sqlite", "postgresql", "mariadb")
def test_an_engine_is_connected_already(engine: sa.Engine) -> None:
    for option in ("host", "database", "sslmode", "ssl_ca", "unix_socket"):
        with pytest.raises(ValueError, match=f"connected already: leave out {option}"):
            jobboard.fetch("board", {"board": "sql", option: "x"}, client=engine)


@pytest.mark.rule("An engine that gives one connection to all, or a database in memory, is refused or served as told.")
@pytest.mark.backends("sqlite")
def test_engines_that_boards_or_loops_cannot_use_are_refused() -> None:
    def board(engine: sa.Engine, kind: str = "sqlite") -> Any:
        return jobboard.fetch("board", kind, client=engine)

    for pool in (StaticPool, SingletonThreadPool, AssertionPool):
        # The application would roll back what a board has acknowledged, as it gives the one connection back.
        engine = sa.create_engine("sqlite:///board.db", poolclass=pool)
        for use in (board, lambda engine: TaskLoop(engine, "loop")):
            with pytest.raises(ValueError, match=f"needs connections of its own.*{pool.__name__}.*QueuePool"):
                use(engine)
    for url in ("//", "///file::memory:?uri=true", "///file:board?mode=memory&cache=shared&uri=true"):
        engine = sa.create_engine(f"sqlite:{url}", poolclass=QueuePool)
        with pytest.raises(ValueError, match="use the board 'memory' instead"):
            board(engine)
        with pytest.raises(ValueError, match=r"engine\.connect\(\)"):
            TaskLoop(engine, "loop")
    engine = sa.create_engine("sqlite:///board.db").execution_options(schema_translate_map={None: "tenant"})
    for use in (board, lambda engine: TaskLoop(engine, "loop")):
        with pytest.raises(ValueError, match=r"schema_translate_map.*search_path"):
            use(engine)
    # An engine makes its first connection later: any driver's module will do.
    engine = sa.create_engine("mssql+pymssql://app:secret@db/prod", module=sqlite3)
    with pytest.raises(ValueError, match=r"for mssql: .*MariaDB and MySQL.*jobboard\.orm and jobboard\.taskloop"):
        board(engine, "sql")


@contextlib.contextmanager
def database(engine: sa.Engine, how: str) -> Iterator[sa.URL]:
    """A database beside that of the engine."""
    name = f"{engine.url.database}_text"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE template0 {how}")
        try:
            yield engine.url.set(database=name)
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {name}")


@pytest.mark.rule("A database or connection that cannot hold all text is refused.")
@pytest.mark.backends("postgresql")
def test_a_database_that_cannot_hold_all_text_is_refused(engine: sa.Engine) -> None:
    for encoding in ("LATIN1", "SQL_ASCII"):
        with database(engine, f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'") as url:
            board = jobboard.fetch("board", url.set(drivername="postgresql").render_as_string(hide_password=False))
            for use in (board.setup, board.connect):
                with pytest.raises(JobFailure, match=f"is in {encoding}.*WITH ENCODING 'UTF8'"):
                    use()


@pytest.mark.rule("A database or connection that cannot hold all text is refused.")
@pytest.mark.backends("postgresql")
def test_all_text_is_sent_whatever_the_default_encoding(engine: sa.Engine) -> None:
    with database(engine, "ENCODING 'UTF8'") as url:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {url.database} SET client_encoding = 'LATIN1'")
        with jobboard.backend("board", url.set(drivername="postgresql").render_as_string(False)) as board:
            job = board.post("☃", details={"text": "😀"})
            board.claim(job, "anna")
            board.abandon(job, "anna", error="☃😀")
            assert board.get(job.uuid).error == "☃😀"
        own = sa.create_engine(url)
        with pytest.raises(JobFailure, match=r"in LATIN1.*client_encoding='utf8'"):
            jobboard.fetch("board", "postgresql", client=own).connect()
        own.dispose()
