"""A database without room: a later try may store what this one cannot, so finished work is not lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

import jobboard

SQLITE = pytest.mark.backends("sqlite")


@pytest.mark.rule("A database without room is waited for, and finished work is not done again.")
@SQLITE
def test_a_post_into_a_full_file_has_no_effect(tmp_path: Path) -> None:
    conf = {"board": "sql", "retry_for": 0.2}
    engine = sa.create_engine(f"sqlite:///{tmp_path}/board.sqlite")
    full = sa.create_engine(engine.url)
    with jobboard.backend("board", conf, client=engine) as board:
        board.post("a")
        with engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        sa.event.listen(full, "connect", lambda raw, _: raw.execute(f"PRAGMA max_page_count = {pages}"))
        with (
            jobboard.backend("board", conf, client=full) as refused,
            pytest.raises(jobboard.ConnectionFailure, match=r"can't store that now: .* is full") as caught,
        ):
            refused.post_many([{"name": "b", "details": {"text": "x" * 4000}}] * 20)
        assert caught.value.outcome == "none"
        assert [job.name for job in board.iterjobs()] == ["a"]
    engine.dispose()
    full.dispose()


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


@pytest.mark.rule("A database without room is waited for, and finished work is not done again.")
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
