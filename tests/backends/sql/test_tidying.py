"""Upkeep: old rows go some at a time, and are found by an index; files and finished work stay as they should."""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.backends.sql.store import TIDIED
from jobboard.board import JobBoard
from jobboard.engine.answers import HOUR
from jobboard.engine.ends import PURGE_REMEMBERED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, engine_of
from tests.backends.sql.conftest import Spy

SQL = pytest.mark.backends("sqlite", "postgresql", "mariadb")
OLD = 3 * TIDIED
DROPPED = 500
"""How many outcomes one step drops."""
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mariadb": "EXPLAIN FORMAT=JSON "}


def filled(engine: sa.Engine, table: sa.Table, rows: list[dict[str, Any]]) -> sa.Table:
    with engine.begin() as connection:
        for start in range(0, len(rows), 1000):
            connection.execute(sa.insert(table), rows[start : start + 1000])
    return table


@pytest.fixture
def answers(board: JobBoard, engine: sa.Engine) -> sa.Table:
    """Many answers that nobody will ask for."""
    rows = [{"handle": f"gone{i}", "slot": 1, "call": 1, "answer": "x", "stamp": i} for i in range(OLD)]
    return filled(engine, board.engine.store.tables.answers, rows)


@pytest.fixture
def outcomes(make_board: Callable[..., JobBoard], engine: sa.Engine) -> sa.Table:
    """Outcomes whose time ended long ago, and one that stands."""
    board = make_board(keep_done=LONG)
    board.consume(board.claim(board.post("a"), "anna").job, "anna")
    table = board.engine.store.tables.outcomes
    with engine.connect() as connection:
        row = dict(connection.execute(sa.select(table)).one()._mapping)
    rows = [{**row, "id": n, "uuid": f"old{n}", "modified_on": n, "until": n // 7} for n in range(3 * DROPPED + 10)]
    return filled(engine, table, rows)


def count(engine: sa.Engine, table: sa.Table, *conditions: Any) -> int:
    with engine.connect() as connection:
        number: int = connection.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar_one()
    return number


@pytest.mark.rule("Answers are tidied some at a time, by an index, and a recent answer stays.")
@SQL
def test_answers_go_some_at_a_time(board: JobBoard, answers: sa.Table, engine: sa.Engine) -> None:
    board.post("a")
    for left in (OLD - TIDIED, OLD - 2 * TIDIED):
        engine_of(board).tidy()
        assert count(engine, answers, answers.c.stamp < OLD) == left
    assert count(engine, answers, answers.c.handle == board.engine.handle) == 1


@pytest.mark.rule("Answers are tidied some at a time, by an index, and a recent answer stays.")
@SQL
def test_a_recent_answer_stays(board: JobBoard, engine: sa.Engine) -> None:
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
        # A tenth of an hour may begin between the two.
        assert stamp() - fresh in (0, HOUR // 6)
        with engine.begin() as connection:
            connection.execute(sa.update(table).where(mine).values(stamp=fresh - 2 * HOUR))
        post()
        assert stamp() >= fresh
    engine_of(board).tidy()
    assert count(engine, table, mine) == 1


@pytest.mark.rule("A purged job's mark goes after a day.")
@pytest.mark.rule("A job's row in the trash and in the lists is not moved by claims.")
@SQL
def test_the_mark_of_a_purged_job_goes_after_a_day(board: JobBoard, engine: sa.Engine) -> None:
    """A job in the trash stays for however long."""
    jobs = [board.post("a") for _ in range(3)]
    for job in jobs:
        board.cancel(job)
    for job in jobs[:2]:
        board.purge(job)
    sides = board.engine.store.tables.sides
    with engine.begin() as connection:
        aged = sa.update(sides).where(sides.c.key == jobs[0].uuid).values(until=sides.c.until - PURGE_REMEMBERED)
        assert connection.execute(aged).rowcount == 1
        connection.execute(sa.update(board.table).values(gone_on=board.table.c.gone_on - 2 * PURGE_REMEMBERED))
    engine_of(board).tidy()
    assert count(engine, sides, sides.c.kind == "purged") == 1
    assert [job.uuid for job in board.trashed()] == [jobs[2].uuid]


@pytest.mark.rule("Outcomes are found by an index and dropped in short steps.")
@SQL
def test_outcomes_go_in_short_steps(backend: str, board: JobBoard, outcomes: sa.Table, engine: sa.Engine) -> None:
    with Spy(board) as seen:
        eventually(lambda: not engine_of(board).tidy())
    # A writer to SQLite is alone: there the steps are shorter, and no commit of another copies what they have written.
    steps = 7 if backend == "sqlite" else 4
    assert sum(text.startswith("delete") for text in seen.texts) == steps
    assert sum("wal_checkpoint" in text for text in seen.texts) == (steps if backend == "sqlite" else 0)
    assert count(engine, outcomes) == 1


OF_KEY = "(outcomes_pkey|PRIMARY|autoindex)"
FOUND_BY = [
    ("answers_old", {}, "answers_stamp"),
    ("outcomes_old", {}, "outcomes_until"),
    ("outcomes_drop", {"uuids": ["old1", "old2"]}, OF_KEY),
    ("outcomes", {"uuids": ["old1", "old2"]}, OF_KEY),
    ("outcomes_newest", {"limit": 10}, "outcomes_newest"),
    ("outcomes_newest", {"limit": 10, "modified_on": 9, "id": 9}, "outcomes_newest"),
]


@pytest.mark.rule("Answers are tidied some at a time, by an index, and a recent answer stays.")
@pytest.mark.rule("Outcomes are found by an index and dropped in short steps.")
@SQL
def test_old_rows_are_found_by_an_index(
    backend: str, board: JobBoard, outcomes: sa.Table, answers: sa.Table, engine: sa.Engine
) -> None:
    statements, links = board.engine.store.statements, board.engine.store.links

    def check(name: str, params: dict[str, Any], index: str) -> None:
        made = statements.fill(name, behind=statements.text("outcomes_behind") if "id" in params else "")

        def explained(link: Any) -> str:
            text, values = made.compiled(link.dialect, {"board": board.name, **params})
            link.cursor.execute(EXPLAIN[backend] + text, values)
            plan = "\n".join(str(tuple(row)) for row in link.cursor.fetchall())
            link.rollback()
            return re.sub(r'"possible_keys": \[[^]]*\]', "", plan)

        plan = links.run(explained)
        assert re.search(index, plan), plan
        for bad in ("Seq Scan", "Sort", "filesort", "TEMP B-TREE", '"access_type": "ALL"'):
            assert bad not in plan

    if backend == "postgresql":
        # Without statistics, as long as nobody has come by to take them.
        for each in FOUND_BY[1:]:
            check(*each)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in (outcomes, answers):
            connection.exec_driver_sql(("ANALYZE TABLE " if backend == "mariadb" else "ANALYZE ") + table.name)
    for each in FOUND_BY:
        check(*each)


@pytest.mark.rule("A new SQLite file is for its owner alone.")
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
