"""Work whose handler or block ends the job in a transaction of the caller's that stays open beyond the work.

To end the claim as well would wait for the caller's own lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.aio import AsyncJobBoard
from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.exceptions import JobBoardError
from jobboard.job import Job
from jobboard.testing.conformance.support import HELD, LIMIT, SHORT, Background, eventually, until_free

pytestmark = [pytest.mark.backends("sqlite", "postgresql"), pytest.mark.any_driver]

Ends = Callable[[Job, sa.Connection], None]


def through_a_block(board: JobBoard, connection: sa.Connection, end: Ends) -> None:
    with board.working("anna", timeout=0) as job:
        end(job, connection)


def through_a_coroutine(board: JobBoard, connection: sa.Connection, end: Ends) -> None:
    async def main() -> None:
        async with AsyncJobBoard(board).working("anna", timeout=0) as job:
            end(job, connection)

    asyncio.run(main())


def through_a_conductor(board: JobBoard, connection: sa.Connection, end: Ends) -> None:
    conductor = Conductor("anna", board, lambda job: end(job, connection))
    # On SQLite a conductor can't deregister before the caller has committed.
    Background(lambda: conductor.run(max_dispatches=1))
    eventually(lambda: conductor.tally.lost == 1, LIMIT)


WAYS = [through_a_block, through_a_coroutine, through_a_conductor]


@pytest.fixture
def engine(engine: Any) -> Iterator[Any]:
    """An engine whose connections of SQLite may be used by other threads, too."""
    if engine.dialect.name != "sqlite":
        yield engine
        return
    shared = sa.create_engine(engine.url, connect_args={"timeout": 1, "check_same_thread": False})
    yield shared
    shared.dispose()


@pytest.mark.rule("A job that its work ends in an open transaction is left alone until the commit.")
@pytest.mark.parametrize(
    ("work", "verb", "state"),
    [
        *((work, "consume", "COMPLETE") for work in WAYS),
        (through_a_conductor, "abandon", "UNCLAIMED"),
        (through_a_coroutine, "trash", "TRASHED"),
    ],
)
def test_the_end_stands_when_the_caller_commits(
    board: JobBoard, engine: sa.Engine, work: Callable[..., None], verb: str, state: str
) -> None:
    job = board.post("a")

    def end(mine: Job, connection: sa.Connection) -> None:
        getattr(board, verb)(mine, "anna", connection=connection)

    with engine.begin() as connection:
        Background(lambda: work(board, connection, end)).wait()
        assert job.state == "CLAIMED"
    assert job.state == state


@pytest.mark.rule("A job whose end was rolled back comes back when its lease lapses.")
@pytest.mark.parametrize("work", WAYS)
def test_the_job_comes_back_after_a_rollback(
    make_board: Callable[..., JobBoard], engine: sa.Engine, work: Callable[..., None]
) -> None:
    """Nobody works on the job any longer, so the board must not keep its claim."""
    board = make_board(claim_ttl=HELD)
    job = board.post("a")

    def end(mine: Job, connection: sa.Connection) -> None:
        board.consume(mine, "anna", connection=connection)

    with engine.connect() as connection:
        Background(lambda: work(board, connection, end)).wait()
        connection.rollback()
    assert board.claims.held() == []
    until_free(board, job)


@pytest.mark.rule("A job that its work ends in an open transaction is left alone until the commit.")
@pytest.mark.parametrize(("work", "again"), [(through_a_block, False), (through_a_coroutine, True)])
def test_failed_work_leaves_the_end_to_the_transaction(
    make_board: Callable[..., JobBoard], engine: sa.Engine, work: Callable[..., None], again: bool
) -> None:
    board = make_board(claim_ttl=HELD)
    job = board.post("a")

    def end(mine: Job, connection: sa.Connection) -> None:
        board.consume(mine, "anna", connection=connection)
        if again:
            board.consume(mine, "anna", connection=connection)
        raise ValueError("broken")

    with pytest.raises(JobBoardError if again else ValueError), engine.begin() as connection:
        Background(lambda: work(board, connection, end)).wait()
    until_free(board, job)


@pytest.mark.rule("A job whose end was rolled back comes back when its lease lapses.")
def test_a_block_ends_its_job_after_a_rollback_within_it(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a")
    with board.working("anna", timeout=0) as mine:
        with engine.connect() as connection:
            board.consume(mine, "anna", connection=connection)
            connection.rollback()
        assert mine.claim in board.claims.held()
    assert job.state == "COMPLETE"


@pytest.mark.rule("A handler that is given up before its transaction commits ends its job itself.")
def test_a_handler_that_is_given_up_still_ends_its_job(
    board: JobBoard, engine: sa.Engine, start: Callable[[Conductor], Conductor]
) -> None:
    job = board.post("a")
    consumed, commit, ended = threading.Event(), threading.Event(), threading.Event()

    def handler(mine: Job) -> None:
        with engine.begin() as connection:
            board.consume(mine, "anna", connection=connection)
            consumed.set()
            assert commit.wait(LIMIT)
        ended.set()

    conductor = start(Conductor("anna", board, handler, drain_timeout=4 * SHORT))
    assert consumed.wait(LIMIT)
    conductor.stop()
    assert conductor.wait(LIMIT)
    assert conductor.tally.lost == 1
    commit.set()
    assert job.wait(LIMIT)
    assert ended.wait(LIMIT)
