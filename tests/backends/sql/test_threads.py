"""Threads of one board take connections from one pool, for each call the one that was given back last."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.job import boottime
from jobboard.sql.connections import Link
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def at_once(board: JobBoard, count: int) -> list[Any]:
    """The drivers' connections of so many threads that work at the same time, and then end."""
    found: list[Any] = []
    together = threading.Barrier(count)

    def work(link: Link) -> None:
        together.wait(10)
        found.append(link.raw)
        together.wait(10)

    threads = [threading.Thread(target=board.engine.store.links.run, args=(work,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_a_thread_goes_on_with_a_connection_of_another(board: JobBoard) -> None:
    first = at_once(board, 3)
    assert len(set(first)) == 3
    assert set(at_once(board, 2)) < set(first)
    [last] = at_once(board, 1)
    assert [last] == at_once(board, 1)


@pytest.mark.backends("postgresql", "mariadb")
def test_a_lost_connection_takes_those_along_that_nobody_uses(board: JobBoard) -> None:
    """After an outage a call would try one after the other."""
    left = at_once(board, 3)

    def breaks(link: Link) -> None:
        raise ConnectionFailure("the server has gone away")

    with pytest.raises(ConnectionFailure):
        board.engine.store.links.run(breaks)
    assert not set(at_once(board, 3)) & set(left)


@pytest.fixture
def narrow(engine: sa.Engine) -> Any:
    """A caller's pool that gives one connection at a time."""
    narrow = sa.create_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    yield narrow
    narrow.dispose()


@pytest.fixture
def theirs(narrow: sa.Engine, make_board: Callable[..., Any], board_conf: dict[str, Any]) -> Any:
    make_board()
    conf = {**board_conf, "board": "sql", "claim_ttl": HELD, "retry_for": 0}
    with jobboard.backend("board", conf, client=narrow) as board:
        yield board


def test_a_callers_connection_is_given_back_after_each_call(theirs: JobBoard, narrow: sa.Engine) -> None:
    job = theirs.post("a")
    theirs.claim(job, "anna")
    with narrow.connect() as connection:
        assert connection.get_isolation_level() == connection.default_isolation_level
        assert connection.execute(sa.select(theirs.table.c.uuid)).scalar() == job.uuid
        with pytest.raises(ConnectionFailure, match="TimeoutError"):
            theirs.job_count  # noqa: B018
    theirs.consume(job, "anna")


@pytest.mark.backends("sqlite")
def test_a_callers_connection_has_its_settings_again(theirs: JobBoard, narrow: sa.Engine) -> None:
    with narrow.connect() as connection:
        for setting in ("busy_timeout = 12345", "synchronous = 0"):
            connection.exec_driver_sql(f"PRAGMA {setting}")
    theirs.post("a")
    with narrow.connect() as connection:
        told = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("busy_timeout", "synchronous")]
    assert told == [12345, 0]


def test_claims_are_renewed_while_a_callers_pool_is_exhausted(theirs: JobBoard, narrow: sa.Engine) -> None:
    claim = theirs.claim(theirs.post("a"), "anna")
    until = claim.deadline
    with narrow.connect():
        eventually(lambda: claim.deadline > until)
        eventually(lambda: boottime() > until, HELD)
        assert not claim.lost
    claim.consume()


def test_no_connection_is_kept_by_a_call_that_fails(theirs: JobBoard, narrow: sa.Engine) -> None:
    def fails(link: Link) -> None:
        link.begin()
        raise ZeroDivisionError

    with ExitStack() as stack:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                theirs.engine.store.links.run(fails)
        connection = stack.enter_context(narrow.connect())
        assert connection.execute(sa.select(sa.literal(1))).scalar() == 1
