"""Databases with the tables of the user's classes, on every SQL server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session

from tests.orm.models import Base, Picture

T = TypeVar("T")

_ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+aiomysql"}


@pytest.fixture(scope="session")
def _tables(backend: str, users_url: Callable[[str], sa.URL]) -> Iterator[sa.Engine]:
    engine = sa.create_engine(users_url("orm"))
    if backend == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def engine(_tables: sa.Engine) -> sa.Engine:
    """The user's engine, with empty tables."""
    with _tables.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())
    return _tables


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture
def other(engine: sa.Engine) -> Iterator[Session]:
    """Another session, whose objects keep the values that it has read."""
    with Session(engine, expire_on_commit=False) as session:
        yield session


@pytest.fixture
def pictures(session: Session) -> list[int]:
    """The ids of ten rows. The first id has the highest rank."""
    rows = [Picture(rank=-number) for number in range(10)]
    for row in rows:
        session.add(row)
        session.flush()
    session.commit()
    ids = [row.id for row in rows]
    session.rollback()
    return ids


@pytest.fixture
def with_async(engine: sa.Engine, backend: str) -> Callable[[Callable[[AsyncEngine], Awaitable[T]]], T]:
    """``with_async(main)`` runs ``main(async_engine)`` on the same database."""

    async def run(main: Callable[[AsyncEngine], Awaitable[Any]]) -> Any:
        async_engine = create_async_engine(engine.url.set(drivername=_ASYNC_DRIVERS[backend]))
        try:
            return await main(async_engine)
        finally:
            await async_engine.dispose()

    return lambda main: asyncio.run(run(main))
