"""Django's own test runner on a project whose board is in Django's database."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.contrib.django import databases

pytestmark = pytest.mark.backends("sqlite", "postgresql")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def manage_test(database: dict[str, Any], tmp_path: Path) -> Callable[..., None]:
    """``manage_test("suite.FirstTestCase", "--parallel", "2")``: these tests pass, and Django cleans up after them."""
    options = {"board": "django:project", "name": tmp_path.name}
    backend = {"BACKEND": "jobboard.contrib.django.JobboardBackend", "QUEUES": [], "OPTIONS": options}
    # In a file, as one in memory is no place for a board; and no test needs the default database.
    name = str(tmp_path / "test.sqlite3") if "sqlite" in database["ENGINE"] else None
    database = {**database, "TEST": {"NAME": name, "DEPENDENCIES": []}}
    env = {**os.environ, "TASKS": json.dumps({"default": backend}), "DATABASE": json.dumps(database)}

    def run(tests: str, *options: str) -> None:
        words = (sys.executable, "-m", "django", "test", "--noinput", *options, f"tests.contrib.django.{tests}")
        done = subprocess.run(words, check=False, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.rule("Each process of a parallel test run has a board of its own.")
def test_each_process_has_a_board_of_its_own(manage_test: Callable[..., None], backend: str, tmp_path: Path) -> None:
    """The board lies in the process's copy of the database, though it was used before there were copies."""
    # Where processes are not forked, Django has a copy of SQLite's in memory.
    alone = backend == "sqlite" and multiprocessing.get_start_method() != "fork"
    manage_test("suite", *(() if alone else ("--parallel", "2")))
    with jobboard.backend(tmp_path.name, databases.conf_of("project")) as board:
        assert board.job_count == 0
        assert [schedule.id for schedule in board.schedules()] == ["nightly"]


@pytest.mark.backends("postgresql")
def test_a_board_keeps_no_test_database_from_being_dropped(manage_test: Callable[..., None]) -> None:
    """PostgreSQL drops no database while anybody is connected to it: here the process that has run the tests."""
    manage_test("suite")


@pytest.mark.rule("Each process of a parallel test run has a board of its own.")
@pytest.mark.backends("sqlite")
def test_logs_of_earlier_copies_are_removed(manage_test: Callable[..., None], tmp_path: Path) -> None:
    """SQLite would take the log beside a copy for that of the next one: of a run that has ended, and of one that was
    killed."""
    ended, killed = tmp_path / "test_1.sqlite3", tmp_path / "test_2.sqlite3"
    with contextlib.closing(sqlite3.connect(tmp_path / "old.sqlite3")) as old:
        old.execute("PRAGMA journal_mode = WAL")
        old.executescript("".join(f"CREATE TABLE old{number} (a); " for number in range(50)))
        for copy in (ended, killed):
            shutil.copy(tmp_path / "old.sqlite3-wal", f"{copy}-wal")
        shutil.copy(tmp_path / "old.sqlite3", killed)
    manage_test("suite", "--parallel", "2")
