"""Blocks that acquire rows, renew them in the background, and give them back at the end."""

from __future__ import annotations

import asyncio
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
from jobboard.testing.conformance.support import HELD, LONG
from tests.orm.models import Picture
from tests.orm.rows import every, overtake, owners

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def three(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add_all([Picture() for _ in range(3)])
        session.commit()


def done(other: Session) -> list[bool]:
    return [row.done for row in every(other)]


@pytest.mark.rule("A block of held rows gives them back, and rolls back when it raises.")
def test_a_block_holds_rows_and_gives_them_back(engine: sa.Engine, other: Session) -> None:
    with Picture.acquiring(engine, "anna", limit=2) as batch:
        assert owners(other) == ["anna", "anna", None]
        batch[0].done = True
        batch.session.commit()
        batch[1].done = True
    assert owners(other) == [None] * 3
    assert done(other) == [True, True, False]
    assert batch[0].done


@pytest.mark.rule("A block of held rows gives them back, and rolls back when it raises.")
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
    assert done(other) == [True, False, False]


@ONE
def test_a_decorated_function_gets_the_rows_of_a_block_for_each_call(engine: sa.Engine, other: Session) -> None:
    @Picture.acquiring(engine, "anna", limit=2)
    def work(batch: Batch[Picture], mark: bool) -> int:
        for row in batch:
            row.done = mark
        return len(batch)

    assert work(mark=True) == 2
    assert work(True) == 2
    assert owners(other) == [None] * 3
    assert done(other) == [True, True, False]


# Renewal and loss


@pytest.mark.rule("Rows are renewed in the background, and the code is told when a row is lost.")
def test_a_lost_row_is_listed_and_ends_the_block_with_an_error(engine: sa.Engine, other: Session) -> None:
    @Picture.acquiring(engine, "anna", limit=2, timeout=HELD)
    def work(batch: Batch[Picture]) -> None:
        overtake(other, batch[0])
        eventually(lambda: batch[0] in batch.lost)
        batch[1].done = True

    with pytest.raises(ClaimLost) as caught:
        work()
    assert caught.value.job.acquired_by == "anna"
    assert owners(other) == ["bert", None, None]
    assert done(other)[1]


@pytest.mark.rule("Rows are renewed in the background, and the code is told when a row is lost.")
def test_rows_that_the_block_has_deleted_are_not_lost(engine: sa.Engine, other: Session) -> None:
    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        batch.session.delete(batch[0])
        batch.session.commit()
        first = batch[1].acquired_until
        eventually(lambda: every(other)[0].acquired_until > first)
        assert batch[0] not in batch.lost
    assert owners(other) == [None, None]


@pytest.mark.rule("A row that is deleted while it is renewed is not lost.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_row_that_is_deleted_while_it_is_renewed_is_not_lost(engine: sa.Engine, other: Session) -> None:
    renewing = threading.Lock()
    deleted = threading.Event()

    def delete_first(connection: sa.Connection, *of_the_cursor: Any) -> None:
        if threading.current_thread().name == "Picture-heartbeat" and renewing.acquire(blocking=False):
            # Otherwise the row would count as lost once its lease has lapsed on this machine's clock.
            Picture.reacquire(batch.session, "anna", batch[:1], timeout=LONG)
            batch.session.delete(batch[0])
            batch.session.commit()
            deleted.set()

    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        sa.event.listen(engine, "before_cursor_execute", delete_first)
        try:
            assert deleted.wait(20)
            first = every(other)[0].acquired_until
            eventually(lambda: every(other)[0].acquired_until > first)
        finally:
            sa.event.remove(engine, "before_cursor_execute", delete_first)
        assert not batch[0].acquisition.lost
    assert owners(other) == [None, None]


@pytest.mark.backends("postgresql", "mariadb")
def test_a_row_that_the_block_is_writing_is_not_lost(engine: sa.Engine, other: Session) -> None:
    """Its own transaction has locked it; the others are renewed without waiting for that."""
    with Picture.acquiring(engine, "anna", limit=2, timeout=HELD) as batch:
        batch[0].done = True
        batch.session.flush()
        Picture.reacquire(batch.session, "anna", batch[:1], timeout=LONG)
        first = batch[1].acquired_until
        eventually(lambda: every(other)[1].acquired_until > first)
        assert not batch[0].acquisition.lost
    assert owners(other) == [None] * 3


# Sync and async


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
                    while not (batch.lost and every(other)[1].acquired_until > first):
                        await asyncio.sleep(0.01)
                return number

            with pytest.raises(ClaimLost):
                await work(7)

    with_async(main)
    assert owners(other) == ["bert", None, None]
    assert done(other) == [True, False, False]


@pytest.mark.rule("A block that holds rows is entered by one at a time.")
@ONE
def test_a_block_is_entered_by_one_caller_at_a_time(
    engine: sa.Engine, other: Session, with_async: Callable[..., Any]
) -> None:
    block = Picture.acquiring(engine, "anna", limit=1)
    for _ in range(2):
        with block as batch:
            with pytest.raises(RuntimeError, match="begun already"), block:
                pass
            assert Picture.acquired(other, "anna") == [other.get(Picture, batch[0].id)]
        assert Picture.acquired(other, "anna") == []

    async def main(engine: AsyncEngine) -> None:
        block = Picture.acquiring(engine, "anna", limit=1)
        async with block:
            with pytest.raises(RuntimeError, match="begun already"):
                async with block:
                    pass
            assert len(Picture.acquired(other, "anna")) == 1
        assert Picture.acquired(other, "anna") == []

    with_async(main)


@ONE
def test_a_block_that_could_not_hold_rows_is_refused(engine: sa.Engine, with_async: Callable[..., Any]) -> None:
    with Session(engine) as session:
        session.begin()
        with pytest.raises(sa.exc.InvalidRequestError, match="commit it first"), Picture.acquiring(session, "anna"):
            pass
    alone = sa.create_engine("sqlite://")
    with pytest.raises(ValueError, match=r"second connection, which an engine with a \w+Pool does not give"):
        Picture.acquiring(alone, "anna").__enter__()
    with (
        alone.connect() as connection,
        Session(connection) as session,
        pytest.raises(ValueError, match="second connection, which one Connection does not give"),
    ):
        Picture.acquiring(session, "anna").__enter__()
    alone.dispose()

    async def main(async_engine: AsyncEngine) -> None:
        with pytest.raises(TypeError, match="async with"), Picture.acquiring(async_engine, "anna"):
            pass
        with pytest.raises(TypeError, match="write `with`"):
            async with Picture.acquiring(engine, "anna"):
                pass

    with_async(main)
