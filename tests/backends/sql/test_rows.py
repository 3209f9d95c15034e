"""Rows of the tables, for people who query them; and rows that no board writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard import codec
from jobboard.backends.sql.tables import SPARE_BYTES
from jobboard.board import JobBoard
from jobboard.engine import Change, Stale
from jobboard.job import Job, Posting
from jobboard.primitives import End, Finish, Nonce, Returned
from jobboard.states import CLAIMED, OK, Holder, Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import claim_one, engine_of

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def row_of(engine: sa.Engine, board: JobBoard, job: Job) -> Any:
    with engine.connect() as connection:
        return connection.execute(sa.select(board.table).where(board.table.c.uuid == job.uuid)).one()


def change(engine: sa.Engine, table: sa.Table, *where: Any, **values: Any) -> None:
    with engine.begin() as connection:
        assert connection.execute(sa.update(table).where(*where).values(values)).rowcount == 1


# Jobs


def test_a_posted_jobs_row_is_readable(board: JobBoard, engine: sa.Engine) -> None:
    for posted in (board.post("a", priority=-20, group="ü"), board.post("a", priority=-20, group="ü", key="k")):
        row = row_of(engine, board, posted)
        assert (row.priority, row.job_group, row.errors) == (120, "ü", None)


@pytest.mark.rule("A row has room for its first claim.")
@pytest.mark.backends("mariadb")
def test_a_first_claim_makes_no_row_longer(board: JobBoard, engine: sa.Engine) -> None:
    """A row that grows has its page written anew, where that is full."""

    def length(job: Job) -> int:
        row = row_of(engine, board, job)
        return sum(len(value.encode()) if isinstance(value, str) else 8 for value in row if value is not None)

    jobs = [
        board.post("a"),
        board.post("a", key="k"),
        board.post("a", delay=0.001),
        *board.post_many([Posting("a")] * 3),
    ]
    before = list(map(length, jobs))
    who = "worker-07.example.org:12345"
    board.claim(jobs[0], who)
    taken: list[Job] = []
    while len(taken) < len(jobs) - 1:
        taken += board.claim_many(who, 2)
    assert all(0 < was - length(job) < SPARE_BYTES for was, job in zip(before, jobs, strict=True))


def test_failures_are_readable_in_a_jobs_row(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a")
    board.claim(job, "änna")
    board.abandon(job, "änna", error="'é'\n")
    board.cancel(job)
    row = row_of(engine, board, job)
    [told] = json.loads(row.errors)
    assert told == {"on": told["on"], "who": "änna", "attempt": 1, "text": "'é'\n", "kind": "error"}
    assert row.created_on <= told["on"] <= row.modified_on
    assert "änna" in row.errors


def test_a_purged_job_leaves_only_the_mark_that_it_was_purged(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a", group="g", details={"secret": 1})
    board.cancel(job, reason="private")
    board.purge(job)
    sides = board.engine.store.tables.sides
    with engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(board.table)).scalar_one() == 0
        row = connection.execute(sa.select(sides.c.key, sides.c.value).where(sides.c.kind == "purged")).one()
    assert (row.key, bytes(row.value)) == (job.uuid, b"")


# Outcomes

ODD = json.dumps(["'\\%s:p_x?\x1e\x1f\0\u2028é😀{}", '"'], ensure_ascii=False)


def rows(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(sa.select(table).order_by(table.c.id))]


@pytest.mark.rule("The outcomes of consumed jobs are written by the fast paths as by the engine.")
@pytest.mark.parametrize("attempt", [1, 2], ids=["fast", "by the engine"])
@pytest.mark.parametrize(
    "left", [[(ODD, None)], [(None, "a set is no JSON")] * 2, [(ODD, None), (None, "a set")]], ids=["1", "alike", "two"]
)
def test_a_consumed_job_leaves_its_outcome_in_a_row(
    board: JobBoard, engine: sa.Engine, left: list[tuple[str | None, str | None]], attempt: int
) -> None:
    board.post_many([Posting("a", details={"n": n}, group="g") for n in range(len(left))])
    jobs: list[Any] = board.claim_many("anna", len(left))
    before = rows(engine, board.table)
    eventually(lambda: board.engine.now() > before[0]["modified_on"])
    acts = [
        Finish(job.uuid, Holder("anna", job.claim.token), End(Verb.CONSUME, result=Returned(*each)), keep=1_000_000)
        for job, each in zip(jobs, left, strict=True)
    ]
    assert engine_of(board).finish(Nonce("other", 1, 1, attempt), acts) == [OK] * len(jobs)
    for was, row, told in zip(before, rows(engine, board.engine.store.tables.outcomes), left, strict=True):
        kept = {name: row[name] for name in row if name in was and name != "modified_on"}
        assert kept == {name: was[name] for name in kept}
        assert (row["begun"], row["result"], row["refused"]) == (was["modified_on"], *told)
        assert row["begun"] < row["modified_on"] == row["until"] - 1_000_000


# Rows that no board writes


@pytest.mark.rule("The tables refuse rows that no board writes and that could stop the claims of others.")
def test_the_table_refuses_rows_that_no_board_writes(board: JobBoard, engine: sa.Engine) -> None:
    """No board would come back to such a job, or a second job could get its key."""
    job = board.post("a", key="k")
    for values, rule in (
        ({"state": "GARBAGE"}, "state"),
        ({"state": "CLAIMED", "who": "anna"}, "state"),
        ({"state": "SCHEDULED"}, "state"),
        ({"lock_until": 1, "wake_at": 1}, "state"),
        ({"wake_at": 1}, "state"),
        ({"state": "SCHEDULED", "lock_until": 1}, "state"),
        ({"state": "TRASHED"}, "state"),
        ({"gone_on": 1, "live_key": None}, "state"),
        ({"state": "TRASHED", "gone_on": 1, "live_key": None, "lock_until": 1, "wake_at": 1}, "state"),
        ({"live_key": None}, "key"),
        ({"live_key": "other"}, "key"),
        ({"state": "TRASHED", "gone_on": 1}, "key"),
    ):
        with pytest.raises(sa.exc.DBAPIError, match=f"{board.table.name}_{rule}_check"):
            change(engine, board.table, board.table.c.uuid == job.uuid, **values)
    assert board.claim_next("anna") == job


@pytest.mark.rule("Failures that are none are shown as text.")
def test_errors_that_cannot_be_read_are_shown_as_text(board: JobBoard, engine: sa.Engine) -> None:
    for stored in ("it broke", "[1]", '[{"on": "x"}]', '{"on": 1}', "[" * 10_000, "null", ""):
        job = board.post("a", max_attempts=2)
        change(engine, board.table, board.table.c.uuid == job.uuid, errors=stored)
        taken = board.claim_next("anna")
        assert taken is not None
        assert [failure[1:4] for failure in taken.errors] == [(None, 0, stored)]
        board.abandon(taken, "anna", error="later")
        assert [failure[1:4] for failure in board.get(job.uuid).errors] == [(None, 0, stored), ("anna", 1, "later")]
        board.cancel(job)


def test_a_constraint_of_somebodys_is_a_failure_of_the_call(board: JobBoard, engine: sa.Engine) -> None:
    job = claim_one(board, "a")
    other = board.post("b")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX {board.table.name}_only ON {board.table.name} (state)")
    calls: list[Callable[[], object]] = [
        lambda: board.claim(other, "anna"),
        lambda: board.claim_next("anna"),
        lambda: board.abandon(job, "anna"),
        lambda: board.release(job),
    ]
    for call in calls:
        with pytest.raises(jobboard.JobFailure, match="the database refused it") as failure:
            call()
        assert isinstance(failure.value.cause, engine.dialect.loaded_dbapi.IntegrityError)
    board.consume(job, "anna")
    board.claim(other, "anna")


@pytest.mark.rule("A commit compares the tags of jobs where it writes them, under a lock as well.")
@pytest.mark.parametrize("ends", [False, True], ids=["changes", "deletes"])
def test_a_commit_that_has_lost_its_locks_changes_no_job(make_board: Callable[..., JobBoard], ends: bool) -> None:
    """As where the server has ended the transaction."""
    board, other = make_board(), make_board()
    board.post("a")
    store, jobs = board.engine.store, []

    def write() -> None:
        with store.transaction():
            [stored] = store.hold(store.look(1, None, codec.VERSION).ready)
            store.open_transaction().rollback()
            jobs.append(other.claim_next("anna"))
            store.commit([Change(stored, None if ends else stored.record._replace(who="bert"), "")])

    with pytest.raises(Stale):
        write()
    assert jobs[0].owner == "anna"
    other.consume(jobs[0], "anna")


MUTE = {
    "postgresql": (
        "CREATE FUNCTION {0}_mute() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER {0}_mute BEFORE {1} ON {0} FOR EACH ROW EXECUTE FUNCTION {0}_mute()",
    ),
    "sqlite": ("CREATE TRIGGER {0}_mute BEFORE {1} ON {0} BEGIN SELECT RAISE(IGNORE); END",),
}


@pytest.mark.backends(*MUTE)
@pytest.mark.parametrize("verb", ["UPDATE", "DELETE"])
def test_a_trigger_that_swallows_changes_is_a_failure_of_the_call(
    board: JobBoard, engine: sa.Engine, backend: str, verb: str
) -> None:
    """As one that returns NEW before a deletion, where NEW is null. The board must not report what is not stored."""
    job = claim_one(board, "a")
    with engine.begin() as connection:
        for statement in MUTE[backend]:
            connection.exec_driver_sql(statement.format(board.table.name, verb))
    end = board.consume if verb == "DELETE" else board.abandon
    with pytest.raises(jobboard.JobFailure, match="a trigger or a rule on the table"):
        end(job, "anna")
    assert job.state == CLAIMED
