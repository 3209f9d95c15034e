"""Transactions of verbs: the caller's where there is one, otherwise a short one of the verb's own."""

from __future__ import annotations

import asyncio
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

from jobboard import runtime
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.orm.models import Picture
from tests.orm.rows import LONG_AGO

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
SERVERS = pytest.mark.backends("postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def four(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Picture() for _ in range(4)])
        session.commit()


def refused_without_transactions(target: Any) -> None:
    with pytest.raises(JobFailure, match="AUTOCOMMIT"):
        Picture.acquire(target, "anna", limit=1)


@ONE
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
    for _ in range(2):
        [row] = Picture.acquire(session, "anna", limit=1)
        with session.begin():
            row.done = True
            Picture.unacquire(session, "anna", [row])
            assert len(Picture.acquired(other, "anna")) == 1
    assert Picture.acquired(other, "anna") == []
    assert len(Picture.acquire(other, "bert", where=Picture.done)) == 1


@ONE
def test_objects_that_a_commit_of_the_caller_expires_are_still_held(session: Session, other: Session) -> None:
    [row] = Picture.acquire(session, "anna", limit=1, acquired_at=LONG_AGO)
    session.begin()
    session.commit()
    Picture.acquire(other, "bert", limit=1)
    assert row.acquired_by == "bert"
    row.done = True
    with pytest.raises(ClaimLost):
        session.commit()


@SERVERS
def test_a_transaction_of_the_verb_is_at_read_committed(engine: sa.Engine) -> None:
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
def test_a_session_on_a_connection_keeps_to_the_transaction_of_that(engine: sa.Engine, other: Session) -> None:
    """As tests do that roll everything back in the end."""
    with engine.connect() as connection, connection.begin() as transaction:
        with Session(connection) as session:
            assert len(Picture.acquire(session, "anna")) == 4
        transaction.rollback()
    assert Picture.acquired(other, "anna") == []


@pytest.mark.rule("A connection that commits by itself is refused.")
def test_a_connection_that_commits_by_itself_is_refused(engine: sa.Engine, backend: str, other: Session) -> None:
    alone = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with alone.connect() as connection, Session(connection) as session:
        refused_without_transactions(session)
    with Session(alone) as session:
        if backend == "sqlite":
            refused_without_transactions(session)
        else:
            # Such a transaction is set to READ COMMITTED, and so is one.
            assert len(Picture.acquire(session, "anna", limit=1)) == 1
        session.connection()
        refused_without_transactions(session)
    assert len(Picture.acquired(other, "anna")) == (0 if backend == "sqlite" else 1)


@ONE
def test_a_transaction_of_the_verb_is_repeated_while_it_is_contended(engine: sa.Engine) -> None:
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
        assert waiting.wait(20) == 4
    hasty.dispose()


@ONE
def test_a_registry_of_sessions_stands_for_its_session(engine: sa.Engine) -> None:
    registry = scoped_session(sessionmaker(engine))
    [row] = Picture.acquire(registry, "anna", limit=1)
    assert row in registry
    registry.remove()
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
def test_a_contended_async_transaction_lets_the_event_loop_run(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocks(seconds: float) -> None:
        raise AssertionError("this holds the event loop up")

    monkeypatch.setattr(runtime, "sleep", blocks)

    async def main() -> int:
        hasty = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"), connect_args={"timeout": 0})
        refused: list[Any] = []
        sa.event.listen(hasty.sync_engine, "handle_error", refused.append)
        registry = async_scoped_session(async_sessionmaker(hasty), asyncio.current_task)
        with engine.connect() as writer:
            writer.exec_driver_sql("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(Picture.acquire(registry, "anna"))
            async with asyncio.timeout(20):
                while len(refused) < 3:
                    await asyncio.sleep(0)
        rows = await waiting
        await registry.remove()
        await hasty.dispose()
        return len(rows)

    assert asyncio.run(main()) == 4
