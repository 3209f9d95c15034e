"""Each thread has a connection of its own, for as long as it lives."""

import threading

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.sql.links import Link

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def in_threads(board: JobBoard, count: int) -> list[Link]:
    """The connections of so many threads that live at once, and have ended."""
    found: list[Link] = []
    together = threading.Barrier(count)

    def use() -> None:
        together.wait(10)
        found.append(board.engine.store.links.run(lambda link: link))
        together.wait(10)

    threads = [threading.Thread(target=use) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_a_new_thread_goes_on_with_the_connection_of_one_that_has_ended(board: JobBoard) -> None:
    mine = board.engine.store.links.run(lambda link: link)
    first = in_threads(board, 2)
    second = in_threads(board, 2)
    assert len(set(first)) == 2
    assert set(first) == set(second)
    assert mine not in first


def test_a_lost_connection_takes_those_along_that_nobody_uses(board: JobBoard) -> None:
    """After an outage a thread that has none would try one after the other."""
    mine = board.engine.store.links.run(lambda link: link)
    left = in_threads(board, 3)

    def breaks(link: Link) -> None:
        raise ConnectionFailure("the server has gone away")

    with pytest.raises(ConnectionFailure):
        board.engine.store.links.run(breaks)
    assert not {mine, *left} & set(board.engine.store.links._open)
    assert not set(in_threads(board, 3)) & set(left)


def test_a_callers_engine_gets_its_connections_back(board: JobBoard, engine: sa.Engine) -> None:
    other = jobboard.fetch("board", {"board": "sql"}, client=engine)
    other.connect()
    try:
        first = in_threads(other, 2)
        second = in_threads(other, 2)
    finally:
        other.close()
    assert not set(first) & set(second)
    assert all(link.connection.closed for link in first)
