"""A database that somebody else keeps busy: for how long it is waited for, and what is raised then."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure


@pytest.mark.backends("sqlite")
def test_a_busy_database_is_waited_for_no_longer_than_told(
    make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    """SQLite waits for its turn by itself: after that nothing is left to be waited for."""
    board = make_board(retry_for=1)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        with pytest.raises(ConnectionFailure, match="stayed busy for 1 s"):
            board.post("a")
        assert 0.9 < time.monotonic() - begun < 1.9
        connection.rollback()
    board.post("a")


@pytest.mark.backends("sqlite")
def test_connect_waits_for_a_busy_file_as_long_as_told(tmp_path: Path) -> None:
    """A new file turns to its write-ahead log, for which each process that opens it wants to be alone."""
    board = jobboard.fetch("board", {"board": "sqlite", "database": str(tmp_path / "new.db"), "retry_for": 1})
    with contextlib.closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ConnectionFailure, match="stayed busy for 1 s"):
            board.connect()
        other.execute("ROLLBACK")
    with board:
        board.post("a")


@pytest.mark.backends("postgresql", "mariadb")
def test_a_lock_is_waited_for_no_longer_than_told(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    board = make_board(retry_for=1)
    job = board.post("a")
    board.claim(job, "anna")
    with engine.connect() as connection:
        connection.execute(sa.select(board.table.c.id).where(board.table.c.uuid == job.uuid).with_for_update())
        begun = time.monotonic()
        with pytest.raises(ConnectionFailure, match="stayed busy for 1 s") as raised:
            board.consume(job, "anna")
        assert raised.value.outcome == "none"
        assert time.monotonic() - begun < 6
        connection.rollback()
    board.consume(job, "anna")


@pytest.mark.backends("postgresql", "mariadb")
def test_a_locked_table_is_waited_for_no_longer_than_told(
    make_board: Callable[..., JobBoard], engine: sa.Engine, backend: str
) -> None:
    board = make_board(retry_for=1)
    job = board.post("a")
    board.claim(job, "anna")
    lock = {"postgresql": "LOCK TABLE {}", "mariadb": "LOCK TABLES {} WRITE"}[backend]
    with engine.connect() as connection:
        connection.exec_driver_sql(lock.format(board.table.name))
        for verb in (lambda: board.consume(job, "anna"), lambda: board.post("b"), lambda: board.claim_next("bert")):
            begun = time.monotonic()
            with pytest.raises(ConnectionFailure, match="stayed busy for 1 s") as raised:
                verb()
            assert raised.value.outcome == "none"
            assert time.monotonic() - begun < 6
        connection.invalidate()
    board.consume(job, "anna")
    assert board.job_count == 0


LIMITED = {
    "postgresql": {"options": "-c statement_timeout=250ms"},
    "mariadb": {"init_command": "SET SESSION max_statement_time = 0.25"},
}


@pytest.mark.backends("postgresql", "mariadb")
def test_what_the_server_gives_little_time_is_repeated(
    board: JobBoard, board_conf: dict[str, Any], engine: sa.Engine, backend: str
) -> None:
    """An administrator's limit for statements ends one that waits for a lock: that is no refusal."""
    job = board.post("a")
    board.claim(job, "anna")
    limited = sa.create_engine(engine.url, connect_args=LIMITED[backend])
    with jobboard.backend("board", {**board_conf, "board": "sql", "retry_for": 2}, client=limited) as hasty:
        with engine.connect() as connection:
            table = board.table
            connection.execute(sa.select(table.c.id).where(table.c.uuid == job.uuid).with_for_update())
            with pytest.raises(ConnectionFailure, match="stayed busy for 2 s") as raised:
                hasty.consume(job, "anna")
            assert raised.value.outcome == "none"
            connection.rollback()
        hasty.consume(job, "anna")
        assert board.job_count == 0
    limited.dispose()
