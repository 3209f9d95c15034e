"""Batches in a transaction of the caller's, however that ends."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure, JobFailures
from jobboard.job import Act, Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

FEW = 3
MANY = 101
"""More than one request ends."""


@pytest.fixture
def engine(engine: sa.Engine, backend: str) -> sa.Engine:
    if backend == "sqlite":
        # As SQLAlchemy's documents tell: the driver by itself begins nothing before a savepoint.
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


@contextlib.contextmanager
def connected(engine: sa.Engine) -> Iterator[Any]:
    with engine.connect() as connection:
        yield connection


@contextlib.contextmanager
def session(engine: sa.Engine) -> Iterator[Any]:
    with Session(engine) as session:
        yield session


@contextlib.contextmanager
def registry(engine: sa.Engine) -> Iterator[Any]:
    registry = scoped_session(sessionmaker(engine))
    yield registry
    registry.remove()


GIVEN = {"connection": connected, "session": session, "registry": registry}


def commit(given: Any, act: Callable[[], None]) -> bool:
    act()
    given.commit()
    return True


def roll_back(given: Any, act: Callable[[], None]) -> bool:
    act()
    given.rollback()
    return False


def close(given: Any, act: Callable[[], None]) -> bool:
    act()
    given.close()
    return False


def commit_a_savepoint(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested():
        act()
    given.commit()
    return True


def roll_back_a_savepoint(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested() as savepoint:
        act()
        savepoint.rollback()
    given.commit()
    return False


def roll_back_around_a_savepoint(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested():
        act()
    given.rollback()
    return False


def roll_back_two_savepoints(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested() as outer:
        with given.begin_nested():
            act()
        outer.rollback()
    given.commit()
    return False


ENDS = (
    commit,
    roll_back,
    close,
    commit_a_savepoint,
    roll_back_a_savepoint,
    roll_back_around_a_savepoint,
    roll_back_two_savepoints,
)


def waits_for_a_lock(engine: sa.Engine) -> bool:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with engine.connect() as connection:
        return bool(connection.exec_driver_sql(waiting).all())


@pytest.fixture
def events(board: JobBoard) -> list[str]:
    seen: list[str] = []
    board.notifier.register("*", lambda event, details: seen.append(event))
    return seen


@pytest.mark.parametrize(
    ("given", "end"),
    [
        *(("connection", end) for end in ENDS),
        *(("session", end) for end in (commit, close, roll_back_a_savepoint, roll_back_around_a_savepoint)),
        *(("registry", end) for end in (commit, roll_back)),
    ],
)
def test_batches(board: JobBoard, engine: sa.Engine, events: list[str], given: str, end: Any) -> None:
    board.post_many([Posting("old")] * (MANY + FEW))
    jobs = board.claim_many("anna", MANY + FEW)
    claims = {job.claim for job in jobs}
    assert eventually(lambda: len(events) == 2 * len(jobs))
    events.clear()

    def act() -> None:
        assert len(board.post_many([Posting("new")] * FEW, connection=theirs)) == FEW
        board.consume_many(jobs[:MANY], "anna", connection=theirs)
        board.finish_many([Act(job, "trash", error="bad") for job in jobs[MANY:]], "anna", connection=theirs)
        assert claims.isdisjoint(board.claims.held())  # type: ignore[union-attr]
        assert events == []

    with GIVEN[given](engine) as theirs:
        stands = end(theirs, act)
    stats = board.stats()
    if stands:
        assert (stats.unclaimed, stats.claimed, stats.trashed) == (FEW, 0, FEW)
        assert eventually(lambda: len(events) == 2 * len(jobs) + FEW)
        assert Counter(events) == {"POSTED": FEW, "CONSUMED": MANY, "TRASHED": FEW, "REMOVAL": len(jobs)}
        return
    assert (stats.unclaimed, stats.claimed, stats.trashed) == (0, len(jobs), 0)
    # Kept as before, and the beat finds them as they are.
    assert claims == set(board.claims.held())  # type: ignore[union-attr]
    board.claims.beat()  # type: ignore[arg-type]
    assert not any(claim.lost for claim in claims if claim)
    board.consume_many(jobs, "anna")
    assert eventually(lambda: len(events) == 2 * len(jobs))
    assert Counter(events) == {"CONSUMED": len(jobs), "REMOVAL": len(jobs)}


def test_a_batch_of_which_some_are_lost(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([Posting("a")] * 3)
    jobs = board.claim_many("anna", 3)
    board.release(board.get(jobs[1].uuid))
    with engine.begin() as connection, pytest.raises(JobFailures) as failed:
        board.consume_many(jobs, "anna", connection=connection)
    assert len(failed.value.exceptions) == 1
    assert [job.uuid for job in board.iterjobs()] == [jobs[1].uuid]


@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("on_key", ["keep", "replace"])
def test_a_key_that_another_is_about_to_store(
    board: JobBoard, make_board: Callable[..., JobBoard], engine: sa.Engine, events: list[str], on_key: str
) -> None:
    """What the batch has stored before it met that is its own."""
    other = make_board()
    batch = [Posting("a"), Posting("b", key="own", on_key=on_key), Posting("c", key="other", on_key=on_key)]

    def post() -> list[tuple[bool, bool]]:
        with engine.connect() as connection:
            jobs = board.post_many(batch, connection=connection)
            connection.commit()
        return [(job.created, job.replaced) for job in jobs]

    with engine.connect() as first:
        other.post("c", key="other", connection=first)
        posting = Background(post)
        eventually(lambda: waits_for_a_lock(engine))
        first.commit()
    assert posting.wait() == [(True, False), (True, False), (False, on_key == "replace")]
    assert eventually(lambda: len(events) >= 2 + (on_key == "replace"))
    assert [job.name for job in board.iterjobs()].count("b") == 1


def test_a_session_that_knows_no_database(board: JobBoard, engine: sa.Engine) -> None:
    orders = sa.Table("orders", sa.MetaData())
    with Session(binds={orders: engine}) as session, pytest.raises(JobFailure, match="bind"):
        board.post("a", connection=session)
    with Session(binds={board.table: engine}) as session:
        board.post("b", connection=session)
        session.commit()
    assert [job.name for job in board.iterjobs()] == ["b"]


@pytest.mark.backends("mariadb", "postgresql")
class TestTwoPhases:
    @pytest.fixture
    def board(self, make_board: Callable[..., Any]) -> JobBoard:
        board: JobBoard = make_board(notify=False)
        return board

    @pytest.mark.parametrize("prepared", [True, False])
    def test_of_a_connection(self, board: JobBoard, engine: sa.Engine, events: list[str], prepared: bool) -> None:
        board.post("a")
        [job] = board.claim_many("anna", 1)
        for ends in ("rollback", "commit"):
            with engine.connect() as connection:
                transaction = connection.begin_twophase()
                board.consume(job, "anna", connection=connection)
                board.post("b", connection=connection)
                if prepared:
                    transaction.prepare()
                assert "CONSUMED" not in events
                assert job.claim not in board.claims.held()  # type: ignore[union-attr]
                getattr(transaction, ends)()
            assert (job.claim in board.claims.held()) == (ends == "rollback")  # type: ignore[union-attr]
            assert [each.name for each in board.iterjobs()] == ["a" if ends == "rollback" else "b"]
        assert eventually(lambda: "CONSUMED" in events)

    def test_of_a_session(self, board: JobBoard, engine: sa.Engine, events: list[str]) -> None:
        for ends in ("rollback", "commit"):
            with Session(engine, twophase=True) as session:
                board.post_many([Posting(ends)] * 2, connection=session)
                getattr(session, ends)()
        assert [job.name for job in board.iterjobs()] == ["commit"] * 2
        assert eventually(lambda: events == ["POSTED"] * 2)

    @pytest.mark.backends("postgresql")
    def test_calls_can_not_be_prepared(self, make_board: Callable[..., Any], engine: sa.Engine) -> None:
        board = make_board()
        with engine.connect() as connection:
            connection.begin_twophase()
            with pytest.raises(JobFailure, match="notify=false"):
                board.post("a", connection=connection)
            assert connection.scalar(sa.select(1)) == 1
