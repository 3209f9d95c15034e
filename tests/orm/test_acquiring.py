"""Rows that are acquired for a block, and renewed behind it."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.orm import Batch
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD
from tests.orm.models import Picture

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
ONE = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def pictures(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Picture() for _ in range(3)])
        session.commit()


def seen(other: Session) -> list[Picture]:
    rows = list(other.scalars(sa.select(Picture).order_by(Picture.id).execution_options(populate_existing=True)))
    other.commit()
    return rows


def owners(other: Session) -> list[str | None]:
    owners = list(other.scalars(sa.select(Picture.acquired_by).order_by(Picture.id)))
    other.commit()
    return owners


def overtake(other: Session, row: Picture) -> None:
    other.execute(sa.update(Picture).where(Picture.id == row.id).values(acquired_until=LONG_AGO))
    assert len(Picture.acquire(other, "bert", where=Picture.id == row.id)) == 1
    other.commit()


def test_a_block_holds_rows_and_gives_them_back(engine: sa.Engine, other: Session) -> None:
    with Picture.acquiring(engine, "anna", limit=2) as batch:
        assert owners(other) == ["anna", "anna", None]
        batch[0].done = True
        batch.session.commit()
        batch[1].done = True
    assert owners(other) == [None] * 3
    assert [row.done for row in seen(other)] == [True, True, False]
    assert batch[0].done


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_block_that_raises_gives_back_and_rolls_back(
    session: Session, other: Session, error: type[BaseException]
) -> None:
    def block() -> None:
        with Picture.acquiring(session, "anna", limit=2) as batch:
            batch[0].done = True
            session.commit()
            batch[1].done = True
            session.flush()
            raise error

    with pytest.raises(error):
        block()
    assert owners(other) == [None] * 3
    assert [row.done for row in seen(other)] == [True, False, False]


def test_rows_are_renewed_in_the_background(engine: sa.Engine, other: Session) -> None:
    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        first = [row.acquired_until for row in batch]
        eventually(lambda: [row.acquired_until for row in seen(other)[:2]] > first)
        assert batch.lost == []


def test_the_code_is_told_when_a_row_is_lost(engine: sa.Engine, other: Session) -> None:
    @Picture.acquiring(engine, "anna", limit=2, timeout=HELD)
    def work(batch: Batch[Picture]) -> None:
        overtake(other, batch[0])
        eventually(lambda: batch.lost == [batch[0]])
        assert batch[0].acquisition.lost
        batch[1].done = True

    with pytest.raises(ClaimLost) as caught:
        work()
    assert caught.value.job.acquired_by == "anna"
    assert owners(other) == ["bert", None, None]
    assert seen(other)[1].done


def test_what_an_overtaken_worker_writes_is_not_written(engine: sa.Engine, other: Session) -> None:
    @Picture.acquiring(engine, "anna", limit=2)
    def work(batch: Batch[Picture]) -> None:
        overtake(other, batch[0])
        for row in batch:
            row.done = True

    with pytest.raises(ClaimLost):
        work()
    assert owners(other) == ["bert", None, None]
    assert not any(row.done for row in seen(other))


def test_rows_that_the_block_has_deleted_are_not_lost(engine: sa.Engine, other: Session) -> None:
    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        batch.session.delete(batch[0])
        batch.session.commit()
        first = batch[1].acquired_until
        eventually(lambda: seen(other)[0].acquired_until > first)
        assert batch.lost == []
    assert owners(other) == [None, None]


def test_a_row_that_is_deleted_while_it_is_renewed_is_not_lost(engine: sa.Engine) -> None:
    renewing = threading.Lock()
    deleted = threading.Event()

    def delete_first(connection: sa.Connection, *of_the_cursor: Any) -> None:
        if threading.current_thread().name == "Picture-heartbeat" and renewing.acquire(blocking=False):
            batch.session.delete(batch[0])
            batch.session.commit()
            deleted.set()

    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        first = batch[1].acquisition._deadline
        sa.event.listen(engine, "before_cursor_execute", delete_first)
        try:
            assert deleted.wait(20)
            eventually(lambda: batch[1].acquisition._deadline > first)
        finally:
            sa.event.remove(engine, "before_cursor_execute", delete_first)
        assert not batch[0].acquisition._lost


@pytest.mark.backends("postgresql", "mariadb")
def test_a_row_that_the_block_is_writing_is_not_lost(engine: sa.Engine, other: Session) -> None:
    """Its own transaction has locked it; the others are renewed without waiting for that."""
    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        batch[0].done = True
        batch.session.flush()
        first = batch[1].acquired_until
        eventually(lambda: seen(other)[1].acquired_until > first)
        assert not batch[0].acquisition._lost
    assert owners(other) == [None] * 3


def test_a_function_is_decorated(engine: sa.Engine, other: Session) -> None:
    @Picture.acquiring(engine, "anna", limit=2)
    def work(batch: Batch[Picture], mark: bool) -> int:
        for row in batch:
            row.done = mark
        return len(batch)

    assert work(mark=True) == 2
    assert work(True) == 2
    assert owners(other) == [None] * 3
    assert [row.done for row in seen(other)] == [True, True, False]


def test_async_blocks_hold_renew_and_give_back(other: Session, with_async: Callable[..., Any]) -> None:
    async def main(engine: AsyncEngine) -> None:
        async with Picture.acquiring(engine, "anna", limit=1) as batch:
            batch[0].done = True
            await batch.session.commit()
        async with AsyncSession(engine) as session:

            @Picture.acquiring(session, "anna", limit=2, timeout=HELD)
            async def work(batch: Batch[Picture], number: int) -> int:
                assert batch.session is session
                first = batch[1].acquired_until
                overtake(other, batch[0])
                async with asyncio.timeout(20):
                    while not (batch.lost and seen(other)[1].acquired_until > first):
                        await asyncio.sleep(0.01)
                return number

            with pytest.raises(ClaimLost):
                await work(7)

    with_async(main)
    assert owners(other) == ["bert", None, None]
    assert [row.done for row in seen(other)] == [True, False, False]


@ONE
def test_a_cancelled_task_gives_its_rows_back(other: Session, with_async: Callable[..., Any]) -> None:
    async def main(engine: AsyncEngine) -> None:
        held = asyncio.Event()

        @Picture.acquiring(engine, "anna")
        async def work(batch: Batch[Picture]) -> None:
            held.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await held.wait()
        assert owners(other) == ["anna"] * 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with_async(main)
    assert owners(other) == [None] * 3


@ONE
def test_a_block_begins_outside_of_transactions(session: Session) -> None:
    session.begin()
    with pytest.raises(sa.exc.InvalidRequestError, match="commit it first"), Picture.acquiring(session, "anna"):
        pass


@ONE
def test_a_database_of_one_connection_has_none_to_renew_with() -> None:
    engine = sa.create_engine("sqlite://")
    with pytest.raises(ValueError, match=r"second connection, which an engine with a \w+Pool does not give"):
        Picture.acquiring(engine, "anna").__enter__()
    with (
        engine.connect() as connection,
        Session(connection) as session,
        pytest.raises(ValueError, match="second connection, which one Connection does not give"),
    ):
        Picture.acquiring(session, "anna").__enter__()


@ONE
def test_sync_and_async_are_not_mixed_up(engine: sa.Engine, with_async: Callable[..., Any]) -> None:
    async def main(async_engine: AsyncEngine) -> None:
        with pytest.raises(TypeError, match="async with"), Picture.acquiring(async_engine, "anna"):
            pass
        with pytest.raises(TypeError, match="write `with`"):
            async with Picture.acquiring(engine, "anna"):
                pass

    with_async(main)


def test_a_block_is_entered_by_one_at_a_time(engine: sa.Engine, other: Session) -> None:
    block = Picture.acquiring(engine, "anna", limit=1)
    for _ in range(2):
        with block as batch:
            with pytest.raises(RuntimeError, match="begun already"), block:
                pass
            assert Picture.acquired(other, "anna") == [other.get(Picture, batch[0].id)]
        assert Picture.acquired(other, "anna") == []


def test_an_async_block_is_entered_by_one_at_a_time(other: Session, with_async: Callable[..., Any]) -> None:
    async def main(engine: AsyncEngine) -> None:
        block = Picture.acquiring(engine, "anna", limit=1)
        async with block:
            with pytest.raises(RuntimeError, match="begun already"):
                async with block:
                    pass
            assert len(Picture.acquired(other, "anna")) == 1
        assert Picture.acquired(other, "anna") == []

    with_async(main)
