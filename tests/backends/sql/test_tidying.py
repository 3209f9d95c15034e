"""What a board takes away of what nobody needs any longer: some at a time, and found by an index."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.backends.sql.store import TIDIED
from jobboard.board import JobBoard
from jobboard.engine.answers import HOUR
from jobboard.engine.ends import DAY

SQL = pytest.mark.backends("sqlite", "postgresql", "mariadb")
OLD = 12 * TIDIED
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mariadb": "EXPLAIN FORMAT=JSON "}


@pytest.fixture
def answers(board: JobBoard, engine: sa.Engine) -> sa.Table:
    """Many that nobody will ask for."""
    table = board.engine.store.tables.answers
    rows = [{"handle": f"gone{i}", "slot": 1, "call": 1, "answer": "x", "stamp": i} for i in range(OLD)]
    with engine.begin() as connection:
        connection.execute(sa.insert(table), rows)
    return table


def count(engine: sa.Engine, table: sa.Table, *conditions: Any) -> int:
    with engine.connect() as connection:
        number = connection.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar()
    assert number is not None
    return number


@SQL
def test_answers_go_some_at_a_time(board: JobBoard, answers: sa.Table, engine: sa.Engine) -> None:
    board.post("a")
    board.engine.raw.tidy()
    assert count(engine, answers, answers.c.stamp < OLD) == OLD - TIDIED
    board.engine.raw.tidy()
    assert count(engine, answers, answers.c.stamp < OLD) == OLD - 2 * TIDIED
    assert count(engine, answers, answers.c.handle == board.engine.handle) == 1


@SQL
def test_what_was_purged_goes_after_a_day(board: JobBoard, engine: sa.Engine) -> None:
    """What lies in the trash stays for however long."""
    jobs = [board.post("a") for _ in range(3)]
    for job in jobs:
        board.cancel(job)
    for job in jobs[:2]:
        board.purge(job)
    sides = board.engine.store.tables.sides
    with engine.begin() as connection:
        aged = sa.update(sides).where(sides.c.key == jobs[0].uuid).values(until=sides.c.until - DAY)
        assert connection.execute(aged).rowcount == 1
        old = sa.update(board.table).values(gone_on=board.table.c.gone_on - 2 * DAY)
        connection.execute(old)
    board.engine.raw.tidy()
    assert count(engine, sides, sides.c.kind == "purged") == 1
    assert [job.uuid for job in board.trashed()] == [jobs[2].uuid]


@SQL
def test_an_answer_that_was_used_a_moment_ago_stays(board: JobBoard, engine: sa.Engine) -> None:
    """Its stamp may lag, but not for long; and most answers don't touch it."""
    table = board.engine.store.tables.answers
    mine = table.c.handle == board.engine.handle

    def stamp() -> int:
        with engine.connect() as connection:
            return connection.execute(sa.select(table.c.stamp).where(mine)).scalar_one()

    for post in (lambda: board.post("a"), lambda: board.post("a", key=str(uuid.uuid4()))):
        post()
        fresh = stamp()
        post()
        assert stamp() == fresh
        with engine.begin() as connection:
            connection.execute(sa.update(table).where(mine).values(stamp=fresh - 2 * HOUR))
        post()
        assert stamp() >= fresh
    board.engine.raw.tidy()
    assert count(engine, table, mine) == 1


@SQL
def test_old_answers_are_found_by_an_index(backend: str, board: JobBoard, answers: sa.Table, engine: sa.Engine) -> None:
    text, params = board.engine.store.statements["answers_old"].compiled(engine.dialect, {})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = "ANALYZE TABLE " if backend == "mariadb" else "ANALYZE "
        connection.exec_driver_sql(analyze + answers.name)
        rows = connection.exec_driver_sql(EXPLAIN[backend] + text, tuple(params) if backend == "sqlite" else params)
        plan = "\n".join(str(tuple(row)) for row in rows)
    assert f"{answers.name}_stamp" in plan
    assert "Sort" not in plan
    assert "filesort" not in plan


@pytest.mark.backends("sqlite")
def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file, earlier = tmp_path / "new.db", tmp_path / "earlier.db"
    earlier.touch()
    earlier.chmod(0o640)
    umask = os.umask(0o022)
    try:
        with jobboard.backend("board", f"sqlite:///{file}") as board:
            board.post("a")
            rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
            assert rights == {"new.db": 0o600, "new.db-wal": 0o600, "new.db-shm": 0o600, "earlier.db": 0o640}
        jobboard.fetch("board", f"sqlite:///{earlier}").setup()
        jobboard.fetch("board", f"sqlite:///{tmp_path}/set-up.db").setup()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(earlier.stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "set-up.db").stat().st_mode) == 0o600
