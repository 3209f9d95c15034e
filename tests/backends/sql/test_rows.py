"""What stands in a job's row, for people who query the table."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql.tables import SPARE
from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.states import EXHAUSTED
from jobboard.testing.conformance.support import let_lapse

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def row_of(engine: sa.Engine, board: JobBoard, job: Job) -> Any:
    with engine.connect() as connection:
        return connection.execute(sa.select(board.table).where(board.table.c.uuid == job.uuid)).one()


def test_a_posted_job(board: JobBoard, engine: sa.Engine) -> None:
    for posted in (board.post("a", priority=-20, group="ü"), board.post("a", priority=-20, group="ü", key="k")):
        row = row_of(engine, board, posted)
        assert (row.priority, row.job_group, row.errors) == (120, "ü", None)


@pytest.mark.backends("mariadb")
def test_a_first_claim_makes_no_row_longer(board: JobBoard, engine: sa.Engine) -> None:
    """One that grows has its page written anew, where that is full."""
    jobs = [
        board.post("a"),
        board.post("a", key="k"),
        board.post("a", delay=0.001),
        *board.post_many([Posting("a")] * 3),
    ]
    before = [_length(row_of(engine, board, job)) for job in jobs]
    board.claim(jobs[0], "worker-07.example.org:12345")
    taken = []
    while len(taken) < len(jobs) - 1:
        taken += board.claim_many("worker-07.example.org:12345", 2)
    after = [_length(row_of(engine, board, job)) for job in jobs]
    assert all(0 < before[i] - after[i] < SPARE for i in range(len(jobs)))


def _length(row: Any) -> int:
    return sum(len(value.encode()) if isinstance(value, str) else 8 for value in row if value is not None)


def test_a_job_that_has_failed(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a")
    board.claim(job, "änna")
    board.abandon(job, "änna", error="'é'\n")
    board.cancel(job)
    row = row_of(engine, board, job)
    [told] = json.loads(row.errors)
    assert told == {"on": told["on"], "who": "änna", "attempt": 1, "text": "'é'\n"}
    assert row.created_on <= told["on"] <= row.modified_on
    assert "änna" in row.errors


def test_what_a_lapse_has_trashed_is_written_by_the_next_claim(board: JobBoard, engine: sa.Engine) -> None:
    fresh, failed = board.post("a", max_attempts=1), board.post("a", max_attempts=2)
    board.claim(failed, "anna")
    board.abandon(failed, "anna", error="broken")
    for job in (fresh, failed):
        let_lapse(board, job, "bert")
        assert row_of(engine, board, job).state == "CLAIMED"
    assert board.claim_next("anna") is None
    rows = [row_of(engine, board, job) for job in (fresh, failed)]
    assert [(row.state, row.keeper, row.lock_until, row.wake_at) for row in rows] == [("TRASHED", None, None, None)] * 2
    assert [json.loads(row.errors)[0]["text"] for row in rows] == [EXHAUSTED, "broken"]
    assert json.loads(rows[0].errors) == [{"on": rows[0].modified_on, "who": "bert", "attempt": 1, "text": EXHAUSTED}]


def test_a_key_that_a_lapse_has_freed(board: JobBoard, engine: sa.Engine) -> None:
    """The post that takes it writes down what became of its holder."""
    job = board.post("a", key="k", max_attempts=1, group="g")
    let_lapse(board, job)
    assert board.post("a", key="k").uuid != job.uuid
    row = row_of(engine, board, job)
    assert (row.state, row.live_key, row.job_group) == ("TRASHED", None, "g")
    assert json.loads(row.errors)[0]["who"] == "anna"


def test_of_a_purged_job_nothing_is_left(board: JobBoard, engine: sa.Engine) -> None:
    """But that it was purged, for a day."""
    job = board.post("a", group="g", details={"secret": 1})
    board.cancel(job, reason="private")
    board.purge(job)
    sides = board.engine.store.tables.sides
    with engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(board.table)).scalar_one() == 0
        row = connection.execute(sa.select(sides.c.key, sides.c.value).where(sides.c.kind == "purged")).one()
    assert (row.key, bytes(row.value)) == (job.uuid, b"")
