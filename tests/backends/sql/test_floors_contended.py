"""Several at what has come back behind PostgreSQL's floors: none of them looks at what is done."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql.postgresql.behind import SPARE
from jobboard.board import JobBoard
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.backends.sql.test_floors import always, open_transaction, taken, waiting, work_off
from tests.backends.sql.test_plans import _buffers

__all__ = ["always"]

pytestmark = pytest.mark.backends("postgresql")


@pytest.fixture
def walks(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The takes that begin where the index does."""
    walks: list[Any] = []
    shortcuts = board.engine._shortcuts
    first = shortcuts._first

    def walking(*args: Any) -> Any:
        walks.append(args)
        return first(*args)

    monkeypatch.setattr(shortcuts, "_first", walking)
    return walks


def back(board: JobBoard, count: int = 1) -> list[str]:
    """Jobs that have come back behind the floors."""
    board.post_many([{"name": "back"}] * count)
    jobs = board.claim_many("anna", count)
    work_off(board)
    for job in jobs:
        board.abandon(job, "anna")
    return [job.uuid for job in jobs]


def test_one_that_another_has_locked(board: JobBoard, engine: sa.Engine, walks: list[Any]) -> None:
    [uuid] = back(board)
    walks.clear()
    with open_transaction(engine) as connection:
        connection.execute(sa.select(board.table.c.id).where(board.table.c.uuid == uuid).with_for_update())
        assert board.claim_next("bert") is None
        assert walks == []
    assert taken(board).uuid == uuid


@pytest.mark.parametrize("more", [0, 1])
def test_one_that_is_taken_as_it_is_looked_for(
    board: JobBoard, make_board: Callable[..., JobBoard], walks: list[Any], monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    other = make_board()
    back(board)
    board.post_many([{"name": "more"}] * more)
    walks.clear()
    store = board.engine.store
    query = store.query

    def late(statement: Any, **params: Any) -> Any:
        monkeypatch.setattr(store, "query", query)
        assert taken(other).name == "back"
        return query(statement, **params)

    monkeypatch.setattr(store, "query", late)
    assert [job.name for job in board.claim_many("bert", 1)] == ["more"] * more
    assert walks == []
    assert store.query == query


def test_as_many_that_another_has_locked_as_it_looks_at(board: JobBoard, engine: sa.Engine) -> None:
    """There may be more behind these."""
    *locked, free = back(board, SPARE + 2)
    with open_transaction(engine) as connection:
        of_others = sa.select(board.table.c.id).where(board.table.c.uuid.in_(locked)).with_for_update()
        assert len(connection.execute(of_others).all()) == SPARE + 1
        assert taken(board).uuid == free


def test_what_has_come_back_costs_the_same_behind_a_pinned_snapshot(
    make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    """Also by a plan that was made while nothing was known of the table, as each is on a young board."""
    board = make_board(table="young")
    link = board.engine.store.links.run(lambda link: link)
    link.cursor.execute("ALTER TABLE young SET (autovacuum_enabled = false)")
    pages = []
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql("SELECT 1")
        back(board)
        assert taken(board).name == "back"
        for _ in range(60):
            board.post_many([{"name": "a"}] * 100)
            board.consume_many(board.claim_many("anna", 100), "anna")
        for _ in range(11):
            back(board)
            with _buffers(link, "young") as read:
                assert taken(board).name == "back"
            pages.append(read())
    # Past all that is done it would be some 400.
    assert statistics.median(pages) < 150, pages


def test_a_post_that_has_waited_for_its_key_is_next(board: JobBoard, engine: sa.Engine) -> None:
    """By its first statement that writes it had drawn the job's id before it waited."""
    with engine.connect() as late, engine.connect() as first:
        board.post("first", key="k", connection=first)
        posting = Background(lambda: board.post("late", key="k", connection=late))
        eventually(lambda: waiting(board))
        work_off(board)
        first.rollback()
        job = posting.wait()
        assert job.created
        work_off(board)
        late.commit()
    assert taken(board).uuid == job.uuid
