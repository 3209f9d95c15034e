"""A daemon, forked from a process with SQLite connections, that has closed all descriptors and opened its own files."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import jobboard
from jobboard.exceptions import JobFailure
from jobboard.sql import inherited
from jobboard.taskloop import TaskLoop
from tests.orm.models import Base, Job, Picture

pytestmark = pytest.mark.backends("sqlite")

PIPES = 900
OWN = b"of the daemon\n" * 20


closings: list[Callable[[], object]] = []
"""What the parent closes at the end of the test."""


def engine_of(path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}")
    closings.append(engine.dispose)
    return engine


def of_board(path: Path) -> Callable[[], int]:
    board = jobboard.fetch("board", f"sqlite:///{path}")
    board.connect()
    closings.append(board.close)
    board.post_many([{"name": "a"}] * 5)
    # The waiter has a connection of its own.
    board.claim_next("nobody", names=["none"], timeout=0.05)

    def use() -> int:
        board.post("a")
        return board.job_count

    return use


def of_loop(path: Path) -> Callable[[], int]:
    loop = TaskLoop(engine_of(path), "loop")
    loop.create()
    loop.add([1, 2, 3, 4, 5])

    def use() -> int:
        loop.add(range(100))
        return len(loop.get(6))

    return use


def of_models(path: Path) -> Callable[[], int]:
    engine = engine_of(path)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Picture() for _ in range(6)])
    with Picture.acquiring(engine, "parent"):
        pass

    def use() -> int:
        with Session(engine) as session:
            assert session.scalar(sa.select(sa.func.count()).select_from(Picture)) == 6
        with Picture.acquiring(engine, "child", limit=10) as rows:
            return len(rows)

    return use


def of_tracker(path: Path) -> Callable[[], int]:
    engine = engine_of(path)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Job(id="1", status=0))
    Job.query_by_status(engine, 0)

    def use() -> int:
        with Job.start(engine, "1", 0, 1, 2, 3, 4, expire=60, max_retry=3):
            pass
        return 6

    return use


@pytest.fixture(params=[of_board, of_loop, of_models, of_tracker])
def use(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Use the database, in the parent before the fork or in the child."""
    journal = sqlite3.connect(tmp_path / "jobs.db")
    journal.execute("PRAGMA journal_mode = WAL")
    journal.close()
    made: Callable[[], int] = request.param(tmp_path / "jobs.db")
    yield made
    close_all()


def close_all() -> None:
    while closings:
        closings.pop()()


def begun(path: Path) -> str:
    """Begin to write at once, and return the error, or an empty str."""
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return str(error)
    finally:
        connection.close()
    return ""


def daemon(folder: Path, act: Callable[[], Any]) -> tuple[int, int, int]:
    """Fork a daemon that runs ``act``, says what it returned, and ends at a word of ours. Return its process and both
    pipes."""
    (hears, word), (answer, says) = os.pipe(), os.pipe()
    child = os.fork()
    if child:
        os.close(hears)
        os.close(says)
        return child, answer, word
    status = 1
    try:
        os.dup2(hears, PIPES)
        os.dup2(says, PIPES + 1)
        os.closerange(3, PIPES)
        files = [os.open(folder / f"own{number}", os.O_RDWR | os.O_CREAT) for number in range(40)]
        for file in files:
            os.write(file, OWN)
        try:
            told = repr(act())
        except Exception as error:  # noqa: BLE001 - the parent judges it
            told = repr(error)
        for file in files:
            # Each is still the daemon's file.
            os.pwrite(file, OWN, 0)
        os.write(PIPES + 1, told.encode())
        os.read(PIPES, 1)
        status = 0
    finally:
        os._exit(status)


def ended(child: int, answer: int, word: int) -> None:
    os.write(word, b".")
    os.close(word)
    os.close(answer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def open_files() -> dict[int, str]:
    return {int(path.name): os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}


def is_whole(folder: Path) -> bool:
    with contextlib.closing(sqlite3.connect(folder / "jobs.db")) as connection:
        [[found]] = connection.execute("PRAGMA integrity_check")
    return found == "ok" and all((folder / f"own{number}").read_bytes() == OWN for number in range(40))


@pytest.mark.rule("A daemon that has closed its descriptors harms neither its own files nor an SQLite database.")
def test_a_daemon_keeps_its_own_files_and_the_database(use: Callable[[], int], tmp_path: Path) -> None:
    child, answer, word = daemon(tmp_path, use)
    assert os.read(answer, 9999) == b"6"
    ended(child, answer, word)
    assert is_whole(tmp_path)


@pytest.mark.rule("A daemon that has closed its descriptors harms neither its own files nor an SQLite database.")
def test_locks_of_a_daemon_keep_the_parent_out(use: Callable[[], int], tmp_path: Path) -> None:
    """SQLite would lock the files that have the numbers of the parent's descriptors now."""
    held = []

    def lock() -> int:
        found = use()
        held.append(sqlite3.connect(tmp_path / "jobs.db"))
        held[0].execute("BEGIN IMMEDIATE")
        return found

    child, answer, word = daemon(tmp_path, lock)
    assert os.read(answer, 9999) == b"6"
    try:
        assert begun(tmp_path / "jobs.db") == "database is locked"
    finally:
        ended(child, answer, word)
    assert begun(tmp_path / "jobs.db") == ""
    assert is_whole(tmp_path)


def test_a_child_keeps_no_descriptor_of_its_parents(use: Callable[[], int], tmp_path: Path) -> None:
    """Also of those that the daemon has not closed."""

    def files() -> int:
        return sum(name.startswith(f"{tmp_path}/jobs.db") for name in open_files().values())

    (answer, says), before = os.pipe(), files()
    child = os.fork()
    if not child:
        try:
            # One file of the process is another's now.
            number = next(number for number, name in open_files().items() if name == f"{tmp_path}/jobs.db")
            os.dup2(os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT), number)
            use()
            os.write(says, str(files()).encode())
        finally:
            os._exit(0)
    os.close(says)
    found = os.read(answer, 99)
    os.close(answer)
    os.waitpid(child, 0)
    assert 0 < int(found) <= before


def test_where_descriptors_cannot_be_kept_apart_the_daemon_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = of_board(tmp_path / "jobs.db")
    monkeypatch.setattr(inherited, "_has_own_descriptors", lambda: False)

    def refused() -> list[str]:
        told = []
        for _ in range(2):
            with pytest.raises(JobFailure, match="connect boards and engines after that") as error:
                use()
            told.append(type(error.value).__name__)
        return told

    child, answer, word = daemon(tmp_path, refused)
    assert os.read(answer, 9999) == b"['JobFailure', 'JobFailure']"
    ended(child, answer, word)
    assert is_whole(tmp_path)
    assert use() == 6
    close_all()
