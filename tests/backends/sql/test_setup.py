"""The tables of boards: made once, whoever comes first, upgraded by set-up alone, and left in peace by forks."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.backends.sql import layout
from jobboard.backends.sql.layout import LAYOUT, MIN_READER
from jobboard.backends.sql.tables import tables_of
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.taskloop import TaskLoop
from jobboard.testing.conformance.processes import in_child

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

SEVERAL = 3


def _set_up(conf: dict[str, Any], start: Any, answers: Any) -> None:
    start.wait(120)
    try:
        board = jobboard.fetch("board", conf)
        board.setup() if os.getpid() % 2 else board.connect()
        board.connect()
        board.post("a")
        board.close()
        answers.put(None)
    except BaseException as error:  # noqa: BLE001 - told to the parent
        answers.put(repr(error))


@pytest.mark.any_driver
def test_several_processes_set_up_at_once(board_conf: dict[str, Any], make_board: Callable[..., Any]) -> None:
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(SEVERAL), context.Queue()
    processes = [context.Process(target=_set_up, args=(board_conf, start, answers)) for _ in range(SEVERAL)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=120) for _ in processes] == [None] * SEVERAL
    for process in processes:
        process.join()
    assert make_board().job_count == SEVERAL


@pytest.mark.rule("A set-up that was killed behind a table is completed.")
@pytest.mark.backends("mariadb")
def test_a_set_up_that_was_killed_behind_a_table_is_completed(
    make_board: Callable[..., Any], board_conf: dict[str, Any], engine: sa.Engine
) -> None:
    """Its indexes are made by statements of their own, and each commits by itself."""
    whole = make_board("whole", table="whole")
    board = jobboard.fetch("board", board_conf)
    tables = tables_of(board.table.name)
    with engine.begin() as connection:
        for table in tables.metadata.tables.values():
            connection.execute(sa.schema.CreateTable(table))
    board.connect()
    board.post("a")
    assert board.claim_next("anna") is not None
    board.close()
    with engine.connect() as connection:
        look = sa.inspect(connection)
        for table in tables.metadata.tables:
            other = table.replace(tables.prefix, whole.table.name, 1)
            assert len(look.get_indexes(table)) == len(look.get_indexes(other))


@pytest.mark.rule("A set-up that was killed behind a table is completed.")
def test_set_up_makes_a_missing_table(board: JobBoard, engine: sa.Engine) -> None:
    """The advice of the error helps."""
    with engine.begin() as connection:
        board.table.drop(connection)
    with pytest.raises(JobFailure, match="a table is missing; `jobboard setup` creates it"):
        board.post("a")
    board.setup()
    board.post("a")
    assert board.claim_next("anna") is not None


@pytest.mark.rule("Every table has a primary key.")
def test_every_table_has_a_primary_key(board: JobBoard, engine: sa.Engine) -> None:
    """Clusters and replicas refuse a table without one."""
    TaskLoop(engine, f"{board.table.name}_loop").create()
    look = sa.inspect(engine)
    names = [*tables_of(board.table.name).metadata.tables, f"{board.table.name}_loop"]
    assert [name for name in names if not look.get_pk_constraint(name)["constrained_columns"]] == []


def test_connect_without_auto_setup_names_the_command(board_conf: dict[str, Any]) -> None:
    board = jobboard.fetch("board", {**board_conf, "auto_setup": False})
    with pytest.raises(JobFailure, match="jobboard setup"):
        board.connect()
    board.setup()
    board.setup()
    board.connect()
    board.close()


@pytest.mark.rule("Looking for a SQLite file makes none.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("option", [{"auto_setup": False}, {"read_only": True}])
def test_a_look_for_a_file_makes_none(tmp_path: Path, option: dict[str, Any]) -> None:
    path = tmp_path / "mistyped.db"
    with pytest.raises(JobFailure, match=r"no database .*mistyped\.db"):
        jobboard.fetch("board", {"board": f"sqlite:///{path}", **option}).connect()
    assert not path.exists()
    with pytest.raises(JobFailure, match=r"no folder '.*absent'"):
        jobboard.fetch("board", {"board": f"sqlite:///{tmp_path}/absent/jobs.db", **option}).connect()


def test_a_newer_layout_is_refused(board: JobBoard, board_conf: dict[str, Any], engine: sa.Engine) -> None:
    board.post("a")
    schema = tables_of(board.table.name).schema
    with engine.begin() as connection:
        connection.execute(sa.update(schema).values(layout=LAYOUT + 2, min_reader=LAYOUT + 1))
    other = jobboard.fetch("board", board_conf)
    for call in (other.connect, other.setup):
        with pytest.raises(JobFailure, match="newer"):
            call()
    with engine.begin() as connection:
        connection.execute(sa.update(schema).values(min_reader=LAYOUT))
    other.connect()
    assert other.job_count == 1
    other.close()


OLD = 0
"""A layout before the first, made up to be upgraded: it counts no retries, and has another index of jobs by name."""


@pytest.fixture
def older(board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the tables be of that layout, with a job; the steps that are taken from then on."""
    table = board.table
    board.post("a", details={"n": 1})
    board.close()
    # Its own table: an engine that reads the new one knows of more columns than are there.
    index = sa.Index(f"{table.name}_by_name", sa.Table(table.name, sa.MetaData(), sa.Column("name")).c.name)
    with engine.begin() as connection:
        index.drop(connection)
        index.create(connection)
        connection.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN retries")
        connection.execute(sa.update(tables_of(board.table.name).schema).values(layout=OLD, min_reader=OLD))
    steps: list[str] = []

    def upgrade(connection: sa.Connection, tables: Any) -> None:
        steps.append("upgrade")
        there = sa.inspect(connection)
        if "retries" not in {column["name"] for column in there.get_columns(tables.jobs.name)}:
            connection.exec_driver_sql(f"ALTER TABLE {tables.jobs.name} ADD COLUMN retries INTEGER NOT NULL DEFAULT 0")
        if {each["name"]: each["column_names"] for each in there.get_indexes(table.name)}.get(index.name) == ["name"]:
            index.drop(connection)

    monkeypatch.setattr(layout, "UPGRADES", {OLD: upgrade})
    return steps


@pytest.mark.rule(
    "Set-up alone upgrades an older layout, again after it was killed, and a failed upgrade changes nothing."
)
def test_an_older_layout_is_upgraded_by_setup_alone(
    older: list[str], board: JobBoard, board_conf: dict[str, Any], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = jobboard.fetch("board", board_conf)
    with pytest.raises(JobFailure, match=f"older layout {OLD}; `jobboard setup` updates them"):
        other.connect()
    assert older == []

    def killed(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(layout, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            other.setup()
    # Again, as after it was killed just before its end; and where nothing is left to do.
    schema = tables_of(board.table.name).schema
    for _ in range(2):
        other.setup()
        with engine.connect() as connection:
            assert connection.execute(sa.select(schema.c.layout, schema.c.min_reader)).all() == [(LAYOUT, MIN_READER)]
    assert older == ["upgrade"] * 2
    other.connect()
    job = other.claim_next("anna", names=["a"])
    assert (job.details, job.retries) == ({"n": 1}, 0)
    other.close()
    with engine.connect() as connection:
        indexes = {each["name"]: each["column_names"] for each in sa.inspect(connection).get_indexes(board.table.name)}
    assert indexes[f"{board.table.name}_by_name"][-3:] == ["name", "priority", "id"]


class TestFork:
    @pytest.mark.rule("A forked child that closes a board ends nothing of the parent's.")
    def test_the_end_of_a_child_closes_nothing_of_the_parents(self, board_conf: dict[str, Any]) -> None:
        """The end of an interpreter, which lets go of all that it has."""
        # Later versions of Python warn of each fork beside threads.
        warned = ("-W", "ignore:This process:DeprecationWarning")
        command = [sys.executable, *warned, "-c", ENDING, json.dumps(board_conf)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.stdout, done.stderr, done.returncode) == ("parent", "", 0)

    def test_a_callers_engine_is_refused_in_the_child(self, board_conf: dict[str, Any], engine: sa.Engine) -> None:
        with jobboard.backend("board", {**board_conf, "board": "sql"}, client=engine) as board:

            def refused() -> str:
                with pytest.raises(JobFailure, match="own"):
                    board.post("a")
                return "refused"

            assert in_child(refused)() == "refused"
            board.post("b")


ENDING = """
import json, os, sys
import jobboard

board = jobboard.fetch("board", json.loads(sys.argv[1]))
board.connect()
board.post_many([{"name": "a"}] * 2)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print(board.claim_next("parent").owner, end="")
    board.close()
"""
