"""Takes on PostgreSQL that walk past full scopes: no further than they must, and again where others are quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql.postgresql.behind import pages
from jobboard.backends.sql.postgresql.entering import SPARE
from jobboard.backends.sql.postgresql.limited import TRIES
from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, take

pytestmark = pytest.mark.backends("postgresql")

RUN = 100


@pytest.fixture
def runs(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Group by group, each with a limit of one. The first two groups are full, and this is known."""
    monkeypatch.setattr("jobboard.backends.sql.postgresql.limited.CROWDED", 600.0)
    board.set_limit("mail", concurrency=1, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number // RUN:02}") for number in range((SPARE + 6) * RUN)])
    assert [take(board) for _ in range(2)] == [jobs[0], jobs[RUN]]
    return jobs


def locked(connection: sa.Connection, board: JobBoard, *jobs: Job) -> None:
    c = board.table.c
    found = connection.execute(sa.select(c.id).where(c.id.in_([job.sequence for job in jobs])).with_for_update())
    assert len(found.all()) == len(jobs)


def fronts(board: JobBoard) -> dict[Any, Any]:
    fronts: dict[Any, Any] = board.engine._shortcuts._limited._lanes._fronts
    return fronts


def test_a_take_walks_no_further_than_to_what_it_takes(board: JobBoard, runs: list[Job], spy: Any) -> None:
    read = list[int]()
    with spy(board) as seen:
        execute = seen.execute

        def explained(text: str, *params: Any) -> Any:
            told = execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {text}", *params).fetchone()[0]
            read.append(pages(told))
            raise ZeroDivisionError

        seen.execute = explained
        with pytest.raises(ZeroDivisionError):
            take(board)
    # Each run lies on four pages or so.
    assert len(read) == 1
    assert read[0] < 60


def test_what_others_are_at_is_passed_over(board: JobBoard, runs: list[Job], engine: sa.Engine, spy: Any) -> None:
    with engine.begin() as connection:
        locked(connection, board, *runs[2 * RUN : 5 * RUN : RUN])
        with spy(board) as seen:
            assert take(board) == runs[5 * RUN]
        assert len(seen.texts) == 1
    assert take(board) == runs[2 * RUN]


def test_others_are_at_all_that_it_finds(board: JobBoard, runs: list[Job], engine: sa.Engine, spy: Any) -> None:
    """It looks again, and then asks in the general way; nobody looks for groups that are in the way."""
    found = runs[2 * RUN : (3 + SPARE) * RUN : RUN]
    with engine.begin() as connection:
        locked(connection, board, *found)
        with spy(board) as seen:
            # Of the same group, as that has room.
            assert take(board) == runs[2 * RUN + 1]
        assert [text.startswith("WITH RECURSIVE") for text in seen.texts[: TRIES + 1]] == [True] * TRIES + [False]
    assert not fronts(board)


def test_they_have_gone_when_it_looks_again(board: JobBoard, runs: list[Job], engine: sa.Engine, spy: Any) -> None:
    found = runs[2 * RUN : (3 + SPARE) * RUN : RUN]
    with engine.connect() as connection:
        locked(connection, board, *found)
        sent = list[str]()

        def before(text: str) -> None:
            sent.append(text)
            if len(sent) == 2:
                connection.rollback()

        with spy(board, before):
            assert take(board) == runs[2 * RUN]
    assert len(sent) == 2


def test_a_scope_that_it_can_not_decide_about(board: JobBoard, runs: list[Job], engine: sa.Engine, spy: Any) -> None:
    """Its list tells of a claim that has ended: the general way clears it, and that is all."""
    with engine.begin() as connection:
        connection.execute(board.table.delete().where(board.table.c.id == runs[0].sequence))
    with spy(board) as seen:
        assert take(board) == runs[1]
    assert [text.startswith("WITH RECURSIVE") for text in seen.texts].count(True) == 1
    assert not fronts(board)


@pytest.fixture
def halted(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Who holds the advisory lock on 4242 halts walks behind their snapshot, before they lock a job: in databases whose
    connections begin from here on."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        name = connection.exec_driver_sql("SELECT quote_ident(current_database())").scalar_one()
        connection.exec_driver_sql(HALTING)
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
        try:
            yield connection
        finally:
            connection.exec_driver_sql(f"ALTER DATABASE {name} RESET search_path")
            connection.exec_driver_sql("DROP FUNCTION public.txid_current()")


HALTING = """
CREATE FUNCTION public.txid_current() RETURNS bigint VOLATILE LANGUAGE plpgsql AS $$
BEGIN
  IF pg_catalog.current_query() LIKE 'WITH RECURSIVE%%' THEN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(4242);
  END IF;
  RETURN pg_catalog.txid_current();
END $$"""
HALTED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4242 AND NOT granted"


def test_one_that_is_claimed_between_the_snapshot_and_the_lock(
    halted: sa.Connection, make_board: Callable[..., JobBoard]
) -> None:
    """It is ready in the snapshot, and nobody holds it when it is locked."""
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=1)
    full, _, free = board.post_many([Posting("mail"), Posting("mail"), Posting("other")])
    assert take(board) == full
    halted.exec_driver_sql("SELECT pg_advisory_lock(4242)")
    late = Background(lambda: board.claim_next("late"))
    eventually(lambda: halted.exec_driver_sql(HALTED).scalar_one())
    other.claim(other.get(free.uuid), "quick")
    halted.exec_driver_sql("SELECT pg_advisory_unlock(4242)")
    assert late.wait() is None
    assert board.find_owner(free) == "quick"
