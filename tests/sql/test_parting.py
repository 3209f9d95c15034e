"""Forks of a process whose threads work in SQLite: see jobboard.sql.parting."""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.sql import parting
from jobboard.sql.dialects import SQLiteDatabase
from jobboard.sql.links import Link, Links
from jobboard.testing import eventually
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.support import Background

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.any_driver]


@pytest.fixture
def pictures(tmp_path: Path) -> Iterator[JobBoard]:
    board = jobboard.fetch("pictures", f"sqlite:///{tmp_path}/jobs.db?retry_for=2")
    board.connect()
    yield board
    board.close()


class Halt:
    """Has the next commit of another thread wait within SQLite."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self._commit = Link.commit
        here = threading.current_thread()

        def commit(link: Link) -> None:
            if threading.current_thread() is not here and not self.reached.is_set():
                self.reached.set()
                self.go.wait()
            self._commit(link)

        monkeypatch.setattr(Link, "commit", commit)


def test_no_child_is_made_in_the_middle_of_a_transaction(pictures: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    halt = Halt(monkeypatch)
    poster = Background(lambda: pictures.post("of another thread"))
    assert halt.reached.wait(5)

    def let_go() -> None:
        # The fork waits for the commit.
        eventually(lambda: parting.SQLITE.awaited, 5)
        halt.go.set()

    helper = Background(let_go)
    answer = in_child(lambda: [pictures.post("of the child").name, pictures.job_count])
    helper.wait()
    poster.wait()
    assert answer() == ["of the child", 2]
    assert not parting.SQLITE.awaited
    assert pictures.post("of the parent").created
    assert pictures.job_count == 3


def test_connections_are_made_anew(pictures: JobBoard, tmp_path: Path) -> None:
    """Neither has one of the other's, with a lock in the kernel that is the parent's alone."""
    pictures.post("first")
    assert not in_child(lambda: _files(tmp_path))()
    assert not _files(tmp_path)
    pictures.post("second")
    assert _files(tmp_path)


def test_a_transaction_that_does_not_end(
    pictures: JobBoard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parting, "PATIENCE", 0.1)
    halt = Halt(monkeypatch)
    poster = Background(lambda: pictures.post("of another thread"))
    assert halt.reached.wait(5)
    with caplog.at_level(logging.WARNING):
        assert in_child(lambda: "made")() == "made"
    assert "forking though a thread has worked in SQLite for 0.1 s" in caplog.text
    halt.go.set()
    poster.wait()
    assert pictures.job_count == 1


def test_a_fork_does_not_wait_for_who_waits_for_another_process(
    pictures: JobBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parting, "PATIENCE", 1.9)
    waits = threading.Event()
    begin = SQLiteDatabase.begin

    def begins(self: SQLiteDatabase, cursor: Any) -> None:
        waits.set()
        begin(self, cursor)

    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(SQLiteDatabase, "begin", begins)
        poster = Background(lambda: pictures.post_many([{"name": "a"}, {"name": "b"}]))
        assert waits.wait(5)
        assert in_child(lambda: "made")() == "made"
        other.execute("COMMIT")
    poster.wait()
    assert not caplog.records
    assert pictures.job_count == 2


def test_no_fork_waits_for_another_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it the first call of all, which has to connect."""
    seen: list[bool] = []
    done = Links._done

    def watched(links: Links, work: Callable[[Link], object]) -> object:
        seen.append(threading.get_ident() in parting.SQLITE._depths)
        return done(links, work)

    monkeypatch.setattr(Links, "_done", watched)
    board = jobboard.fetch("pictures", "postgresql://nobody@127.0.0.1:1/none?retry_for=0")
    with pytest.raises(ConnectionFailure):
        board.connect()
    assert seen
    assert not any(seen)


def _files(folder: Path) -> list[str]:
    """Which files below a folder this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(each.readlink()))
    return [name for name in found if name.startswith(str(folder))]
