"""A database without room: a later try may store what this one cannot, so finished work is not lost."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.testing import eventually

SQLITE = pytest.mark.backends("sqlite")


class Room:
    """An engine on a file that may have so many pages and no more."""

    def __init__(self, path: Path) -> None:
        self.pages = 100_000
        self.engine = sa.create_engine(f"sqlite:///{path}")
        sa.event.listen(self.engine, "connect", self._limit)

    def _limit(self, connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {self.pages}")

    def board(self, **options: Any) -> contextlib.AbstractContextManager[JobBoard]:
        return jobboard.backend("board", {"board": "sql", "retry_for": 0.2, **options}, client=self.engine)

    def none_left(self) -> None:
        """From now on, for all connections that are made anew."""
        with self.engine.connect() as connection:
            self.pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        self.engine.dispose()


@pytest.fixture
def room(tmp_path: Path) -> Any:
    room = Room(tmp_path / "board.sqlite")
    yield room
    room.engine.dispose()


@SQLITE
def test_a_post_into_a_full_file_has_no_effect(room: Room) -> None:
    with room.board() as board:
        board.post("a")
        room.none_left()
        with (
            room.board() as full,
            pytest.raises(jobboard.ConnectionFailure, match=r"can't store that now: .* is full") as caught,
        ):
            full.post_many([{"name": "b", "details": {"text": "x" * 4000}}] * 20)
        assert caught.value.outcome == "none"
        assert [job.name for job in board.iterjobs()] == ["a"]


@SQLITE
def test_finished_work_is_not_done_again_while_there_is_no_room(room: Room) -> None:
    calls = []
    with room.board(keep_done=3600) as board:
        board.post_many([{"name": "a", "max_attempts": 1}])
    room.none_left()

    def work(job: jobboard.Job) -> dict[str, str]:
        calls.append(job.uuid)
        return {"text": "x" * 20_000}

    with room.board(keep_done=3600) as board:
        conductor = jobboard.Conductor("anna", board, work)
        thread = threading.Thread(target=conductor.run)
        thread.start()
        try:
            eventually(lambda: calls)
            [claimed] = board.iterjobs()
            assert not conductor.tally.consumed
            room.pages = 100_000
            eventually(lambda: conductor.tally.consumed)
        finally:
            conductor.stop()
            thread.join(60)
        assert calls == [claimed.uuid]
        assert len(claimed.result()["text"]) == 20_000


LIMITED = """
import resource, sys
import jobboard

path = sys.argv[1]
with jobboard.backend("board", {"board": f"sqlite:///{path}", "retry_for": 0.2}) as board:
    job = board.post("a")
    board.claim(job, "anna")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        board.consume(job, "anna")
    except jobboard.ConnectionFailure as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    board.consume(job, "anna")
    print(len(list(board.iterjobs())))
"""


@SQLITE
def test_an_end_that_the_disk_refuses_can_be_repeated(tmp_path: Path) -> None:
    """As with a limit for files, a quota, or a disk that fails."""
    path = tmp_path / "board.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    refused, left = done.stdout.splitlines()
    assert "disk I/O error" in refused
    assert left == "0"
