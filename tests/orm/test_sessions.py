"""Whose transaction it is: the caller's, where there is one, and otherwise a short one of the verb's own."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.orm.models import Picture

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
SERVERS = pytest.mark.backends("postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def pictures(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Picture() for _ in range(4)])
        session.commit()


def test_a_session_in_no_transaction_is_in_none_afterwards(session: Session, other: Session) -> None:
    rows = Picture.acquire(session, "anna", limit=2)
    assert len(Picture.acquired(other, "anna")) == 2
    assert [row.done for row in rows] == [False, False]
    assert not session.in_transaction()
    Picture.reacquire(session, "anna")
    Picture.unacquire(session, "anna")
    Picture.unacquire_timed_out(session)
    assert not session.in_transaction()


def test_a_session_in_a_transaction_is_committed_by_its_owner_alone(session: Session, other: Session) -> None:
    session.add(Picture())
    assert len(Picture.acquire(session, "anna", limit=10)) == 5
    session.rollback()
    assert Picture.acquired(other, "anna") == []
    with session.begin():
        [row] = Picture.acquire(session, "anna", limit=1)
        row.done = True
    assert [row.done for row in Picture.acquired(other, "anna")] == [True]


def test_a_change_and_giving_back_are_one_transaction(session: Session, other: Session) -> None:
    for row in Picture.acquire(session, "anna", limit=2):
        row.done = True
        Picture.unacquire(session, "anna", [row])
        assert len(Picture.acquired(other, "anna", where=Picture.id == row.id)) == 1
        session.commit()
    assert Picture.acquired(other, "anna") == []
    assert len(Picture.acquire(other, "bert", where=Picture.done)) == 2


def test_what_is_rolled_back_was_not_acquired(session: Session) -> None:
    session.begin()
    [row] = Picture.acquire(session, "anna", limit=1)
    session.rollback()
    assert row.acquisition.lost
    row.done = True
    with pytest.raises(ClaimLost):
        session.commit()


def test_what_is_rolled_back_was_not_given_back(session: Session, other: Session) -> None:
    [row] = Picture.acquire(session, "anna", limit=1)
    with session.begin():
        Picture.unacquire(session, "anna", [row])
        session.rollback()
    assert not row.acquisition.lost
    other.execute(sa.update(Picture).values(acquired_until=LONG_AGO))
    other.commit()
    Picture.acquire(other, "bert")
    row.done = True
    with pytest.raises(ClaimLost):
        session.commit()


@SERVERS
def test_what_is_rolled_back_to_a_savepoint_is_undone_alone(session: Session, other: Session) -> None:
    [kept] = Picture.acquire(session, "anna", limit=1)
    with session.begin():
        [mine, back] = Picture.acquire(session, "anna", limit=2)
        Picture.unacquire(session, "anna", [back])
        with session.begin_nested():
            [more] = Picture.acquire(session, "anna", limit=1, order_by=Picture.id.desc())
        with session.begin_nested() as savepoint:
            Picture.unacquire(session, "anna", [kept, mine])
            savepoint.rollback()
        back.done = mine.done = more.done = True
        assert not mine.acquisition.lost
        assert back.acquisition is None
    assert {row.id for row in Picture.acquired(other, "anna")} == {kept.id, mine.id, more.id}
    assert kept.acquisition is not None
    session.commit()
    with session.begin():
        with session.begin_nested():
            Picture.unacquire(session, "anna", [kept])
        session.rollback()
    assert kept.acquisition is not None


def test_what_expires_at_a_commit_of_the_callers_is_held_all_the_same(session: Session, other: Session) -> None:
    [row] = Picture.acquire(session, "anna", limit=1, acquired_at=LONG_AGO)
    session.begin()
    session.commit()
    Picture.acquire(other, "bert", limit=1)
    assert row.acquired_by == "bert"
    row.done = True
    with pytest.raises(ClaimLost):
        session.commit()


@ONE
def test_a_transaction_of_its_own_is_repeated_while_it_is_contended(engine: sa.Engine) -> None:
    hasty = sa.create_engine(engine.url, connect_args={"timeout": 0})
    refused: list[Any] = []
    sa.event.listen(hasty, "handle_error", refused.append)
    with engine.connect() as writer, Session(hasty) as session:
        writer.exec_driver_sql("BEGIN IMMEDIATE")
        session.begin()
        with pytest.raises(sa.exc.OperationalError, match="locked"):
            Picture.acquire(session, "anna")
        session.rollback()
        assert len(refused) == 1
        waiting = Background(lambda: len(Picture.acquire(hasty, "anna")))
        eventually(lambda: len(refused) > 2)
        writer.rollback()
        assert waiting.wait() == 4
    hasty.dispose()


@SERVERS
def test_transactions_of_its_own_are_at_read_committed(engine: sa.Engine) -> None:
    levels: list[str] = []
    strict = sa.create_engine(engine.url, isolation_level="SERIALIZABLE")
    with Session(strict) as session:
        sa.event.listen(
            session, "after_begin", lambda session, begun, connection: levels.append(connection.get_isolation_level())
        )
        Picture.acquire(session, "anna")
        session.connection()
    strict.dispose()
    assert levels == ["READ COMMITTED", "SERIALIZABLE"]


@SERVERS
def test_a_session_on_a_connection_keeps_to_what_that_is_in(engine: sa.Engine, other: Session) -> None:
    """As tests do that roll everything back in the end."""
    with engine.connect() as connection, connection.begin() as transaction:
        with Session(connection) as session:
            assert len(Picture.acquire(session, "anna")) == 4
        transaction.rollback()
    assert Picture.acquired(other, "anna") == []


@SERVERS
def test_a_connection_that_commits_by_itself_holds_no_locks(engine: sa.Engine, with_async: Callable[..., Any]) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        assert len(Picture.acquire(session, "anna", limit=1)) == 1
        session.connection()
        with pytest.raises(JobFailure, match="AUTOCOMMIT"):
            Picture.acquire(session, "anna", limit=1)

    async def main(async_engine: AsyncEngine) -> None:
        async with AsyncSession(async_engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
            await session.connection()
            with pytest.raises(JobFailure, match="AUTOCOMMIT"):
                await Picture.acquire(session, "anna", limit=1)

    with_async(main)


def test_a_session_of_its_own_needs_a_transaction_too(engine: sa.Engine, backend: str, other: Session) -> None:
    alone = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with alone.connect() as connection, Session(connection) as session, pytest.raises(JobFailure, match="AUTOCOMMIT"):
        Picture.acquire(session, "anna")
    with Session(alone) as session:
        if backend == "sqlite":
            # Elsewhere such a transaction is set to READ COMMITTED, and so is one.
            with pytest.raises(JobFailure, match="AUTOCOMMIT"):
                Picture.acquire(session, "anna")
        session.connection()
        with pytest.raises(JobFailure, match="AUTOCOMMIT"):
            Picture.acquire(session, "anna")
    assert Picture.acquired(other, "anna") == []


@ONE
def test_registries_of_sessions_are_taken_for_their_session(engine: sa.Engine) -> None:
    registry = scoped_session(sessionmaker(engine))
    [row] = Picture.acquire(registry, "anna", limit=1)
    assert row in registry
    registry.remove()


@ONE
def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(TypeError, match="not str"):
        Picture.acquire("sqlite://", "anna")


def test_async_sessions_are_awaited(other: Session, with_async: Callable[..., Any]) -> None:
    async def main(engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            rows = await Picture.acquire(session, "anna", limit=3)
            assert not session.in_transaction()
            assert [row.acquired_by for row in rows] == ["anna"] * 3
            assert (await Picture.reacquire(session, "anna")).kept == rows
            assert await Picture.unacquire(session, "anna", rows[:1]) == 1
            assert len(Picture.acquired(other, "anna")) == 2
            assert len(await Picture.acquire(session, "anna", limit=1, acquired_at=LONG_AGO)) == 1
            assert await Picture.unacquire_timed_out(session) == 1
            async with session.begin():
                assert await Picture.unacquire(session, "anna") == 2
                await session.rollback()
            assert len(await Picture.acquired(engine, "anna")) == 2
            Picture.unacquire(other, "anna")
            rows[1].done = True
            with pytest.raises(ClaimLost):
                await session.commit()

    with_async(main)


@ONE
def test_a_contended_transaction_lets_the_event_loop_run(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks(seconds: float) -> None:
        raise AssertionError("this holds the event loop up")

    monkeypatch.setattr(time, "sleep", blocks)

    async def main() -> int:
        hasty = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"), connect_args={"timeout": 0})
        refused: list[Any] = []
        sa.event.listen(hasty.sync_engine, "handle_error", refused.append)
        registry = async_scoped_session(async_sessionmaker(hasty), asyncio.current_task)
        with engine.connect() as writer:
            writer.exec_driver_sql("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(Picture.acquire(registry, "anna"))
            async with asyncio.timeout(8):
                while len(refused) < 3:
                    await asyncio.sleep(0)
        rows = await waiting
        await registry.remove()
        await hasty.dispose()
        return len(rows)

    assert asyncio.run(main()) == 4
