"""Transactions of callers, the server's clock, and tables that doloop has made: doloop's faults that are gone."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import runtime
from jobboard.exceptions import JobFailure
from jobboard.taskloop import TaskLoop
from jobboard.testing.conformance.support import Background
from tests.taskloop.conftest import BUSY

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

CALLS: dict[str, Callable[[TaskLoop], object]] = {
    "add": lambda loop: loop.add([4, 5]),
    "remove": lambda loop: loop.remove(1),
    "get": lambda loop: loop.get(2),
    "get in a dry run": lambda loop: loop.get(2, test=True),
    "did": lambda loop: loop.did([1, 6]),
    "unlock": lambda loop: loop.unlock([1, 7]),
    "bump": lambda loop: loop.bump([1, 8]),
    "check": lambda loop: loop.check([1, 2]),
    "stats": lambda loop: loop.stats(),
}


def test_the_callers_transaction_goes_on(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """doloop rolls it back at every call."""
    loop = make_loop(1, 2, 3)
    mine = make_loop()
    mark = sa.table(mine.table, sa.column("id"))
    before = loop.rows()
    with engine.connect() as connection:
        within = TaskLoop(connection, loop.table)
        for call in CALLS.values():
            with connection.begin() as transaction:
                connection.execute(sa.insert(mark).values(id=99))
                call(within)
                assert transaction.is_active
                assert connection.execute(sa.select(mark)).all() == [(99,)]
                transaction.rollback()
            # The rollback also undoes the verb.
            assert loop.rows() == before
            assert mine.rows() == {}
        with connection.begin():
            connection.execute(sa.insert(mark).values(id=99))
            assert len(within.get(2)) == 2
    assert sorted(until is None for _, until in loop.rows().values()) == [False, False, True]
    assert set(mine.rows()) == {99}


def test_a_dry_run_within_a_transaction_undoes_itself_alone(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    loop = make_loop(1)
    with engine.begin() as connection:
        within = TaskLoop(connection, loop.table)
        assert within.add([2]) == 1
        assert within.add([2, 3], test=True) == 1
        assert within.remove([1, 2], test=True) == 2
    assert set(loop.rows()) == {1, 2}


def test_a_connection_without_a_transaction_is_left_without_one(
    make_loop: Callable[..., Any], engine: sa.Engine
) -> None:
    loop = make_loop(1, 2, 3)
    with engine.connect() as connection:
        on_it = TaskLoop(connection, loop.table)
        for call in CALLS.values():
            call(on_it)
            assert not connection.in_transaction()
        on_it.close()
        assert connection.execute(sa.select(sa.literal(1))).scalar() == 1
    # Each was committed by itself.
    assert set(loop.rows()) == set(range(1, 9))


@pytest.mark.rule("Others read and write while ids are taken.")
@pytest.mark.backends("postgresql", "mariadb")
def test_others_read_and_write_while_ids_are_taken(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    """doloop locks the whole table."""
    loop = make_loop(*range(6))
    # MariaDB's own level locks gaps between rows as well, and by scanning all rows of a table as small as this one.
    careful = engine.execution_options(isolation_level="READ COMMITTED")
    with careful.begin() as connection:
        taken = TaskLoop(connection, loop.table).get(2)
        rest = sorted(set(range(6)) - set(taken))
        # On a thread, as a verb that waits for the locks above would wait for this one.
        other = Background(
            lambda: (loop.get(2), loop.add([6]), loop.did(rest[-1]), loop.bump(6), loop.check(0), loop.stats())
        )
        got = set(other.wait(20)[0])
    # MySQL leaves to chance which two these are.
    assert len(got) == 2
    assert got <= set(rest)
    assert set(loop.get(9)) == (set(rest) - got - {rest[-1]}) | {6}


def test_the_clock_of_this_machine_decides_nothing(
    loop: Any, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "wall_time", lambda: 1000.0)
    loop.add(1)
    loop.did(1)
    monkeypatch.undo()
    assert loop.rows()[1][0] == pytest.approx(time.time(), abs=BUSY)


# A table that doloop has made


@pytest.mark.backends("mariadb")
def test_a_table_of_doloops_works_as_it_is(doloops: Any) -> None:
    assert doloops.add(range(10)) == 10
    assert doloops.bump([7]) == 1
    taken = doloops.get(3)
    assert taken[0] == 7
    assert doloops.did(taken[:2]) == 2
    assert doloops.unlock(taken[2:]) == 1
    assert doloops.remove([0]) == 1
    assert set(doloops.check(taken)) == set(taken) - {0}
    assert doloops.stats()["max_id"] == 9


@pytest.mark.backends("mariadb")
def test_a_table_of_doloops_keeps_no_holder_until_it_has_the_columns(doloops: Any, engine: sa.Engine) -> None:
    doloops.add([1, 2])
    with pytest.raises(JobFailure, match=r"token BIGINT NOT NULL DEFAULT 0, who VARCHAR\(255\)"):
        doloops.get(1, who="anna")
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                f"ALTER TABLE {doloops.table} ADD COLUMN token BIGINT NOT NULL DEFAULT 0, ADD COLUMN who VARCHAR(255)"
            )
        )
    held = doloops.get(1, who="anna")
    assert doloops.did(held, strict=True) == 1


@pytest.mark.backends("mariadb")
def test_a_time_that_a_table_of_doloops_cannot_hold_is_refused(doloops: Any) -> None:
    doloops.add(1)
    with pytest.raises(JobFailure, match="lock_until"):
        doloops.get(1, lock_for=100 * 365 * 24 * 3600)


@pytest.mark.rule("A table that could not be used is refused before it is made.")
@pytest.mark.backends("mariadb")
def test_a_table_without_transactions_is_refused(engine: sa.Engine, make_loop: Callable[..., Any]) -> None:
    """Two would get the same ids."""
    for spelled in ("MyISAM", "memory"):
        with pytest.raises(ValueError, match=spelled):
            TaskLoop(engine, "fast_loop").create(engine=spelled)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE fast_loop (id INT PRIMARY KEY) ENGINE=MyISAM"))
    try:
        with pytest.raises(JobFailure, match=r"'fast_loop' is of the storage engine MyISAM, .* convert it to InnoDB$"):
            make_loop(table="fast_loop").get(1)
    finally:
        sa.Table("fast_loop", sa.MetaData()).drop(engine)
