"""Workers that get ids at the same time: they pass over the ids of others, and no id goes to two."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.sql import lease
from jobboard.taskloop import TaskLoop
from jobboard.testing.conformance.support import Background

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
MARIADB = pytest.mark.backends("mariadb")


@pytest.mark.rule("What another has locked is not waited for.")
@pytest.mark.backends("postgresql", "mariadb")
def test_ids_that_another_is_taking_are_passed_over(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """Also at REPEATABLE READ, where a locking walk would lock the gaps of the index."""
    loop = make_loop(*range(6))
    with engine.connect() as connection, connection.begin() as transaction:
        assert TaskLoop(connection, loop.table).get(1) == [0]
        held = loop.get(3, who="anna")
        assert held == [1, 2, 3]
        # However many looks that took, it is one get.
        assert len(set(held.tokens.values())) == 1
        transaction.rollback()
    assert loop.get(10) == [0, 4, 5]


@pytest.mark.rule("A claim on MySQL looks before it locks.")
@MARIADB
def test_many_ids_that_others_hold_are_passed_over(
    make_loop: Callable[..., Any], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FAR", 3)
    loop = make_loop(*range(8))
    with engine.connect() as connection, connection.begin():
        TaskLoop(connection, loop.table).get(5)
        assert loop.get(2) == [5, 6]


@pytest.mark.rule("A claim along an index returns rows in order, and finds rows that move.")
@MARIADB
def test_ids_between_held_ones_come_in_order(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(*range(20))
    # READ COMMITTED keeps no lock of a row that it has only read.
    with engine.execution_options(isolation_level="READ COMMITTED").connect() as connection, connection.begin():
        TaskLoop(connection, loop.table).did([0, 2, 3, 5, 6, 8])
        assert loop.get(3) == [1, 4, 7]


@pytest.mark.rule("A claim along an index returns rows in order, and finds rows that move.")
@MARIADB
def test_ids_that_move_meanwhile_are_found(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(*range(6))
    with engine.connect() as connection, connection.begin() as transaction:
        TaskLoop(connection, loop.table).get(3)
        walks: list[str] = []

        def once_the_other_is_done(_: Any, cursor: Any, statement: str, *rest: Any) -> None:
            walks.append(statement)
            # The first walk looks for ids whose lock has lapsed, the second meets the ids of the other.
            if statement.count("walk") and sum("walk" in each for each in walks) == 3:
                transaction.commit()

        sa.event.listen(engine, "before_cursor_execute", once_the_other_is_done)
        try:
            assert loop.get(3) == [3, 4, 5]
        finally:
            sa.event.remove(engine, "before_cursor_execute", once_the_other_is_done)
    assert not transaction.is_active


def get_all_at_once(loop: TaskLoop) -> list[int]:
    """Return what four workers get, until nothing is left."""

    def work() -> list[int]:
        got: list[int] = []
        while batch := loop.get(4):
            got += batch
        return got

    working = [Background(work) for _ in range(4)]
    return [id_ for each in working for id_ in each.wait(60)]


@pytest.mark.rule("A row that changed since it was read is not claimed.")
def test_many_at_once_get_each_id_once(make_loop: Callable[..., Any]) -> None:
    assert sorted(get_all_at_once(make_loop(*range(60)))) == list(range(60))


@MARIADB
def test_many_at_once_get_each_id_once_without_skip_locked(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """As on older versions."""
    older = sa.create_engine(engine.url)
    with older.connect():
        older.dialect.server_version_info = (10, 5, 29)
    loop = make_loop(*range(60), bind=older, table=make_loop().table)
    assert sorted(get_all_at_once(loop)) == list(range(60))
    older.dispose()
