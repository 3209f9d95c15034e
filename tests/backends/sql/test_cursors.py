"""A connection of a board's own to PostgreSQL has a cursor for each statement."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.job import Posting
from jobboard.sql import prepared
from jobboard.sql.prepared import Cursors, Prepared, text

pytestmark = [pytest.mark.backends("postgresql"), pytest.mark.any_driver]


@pytest.fixture
def cursors(board: JobBoard) -> Cursors:
    board.engine.store.links.run(lambda link: None)
    cursor = board.engine.store.links._local.link.cursor
    assert isinstance(cursor, Cursors)
    return cursor


def test_one_for_each_statement(cursors: Cursors) -> None:
    """Whose text is the same bytes each time."""
    said = []
    for _ in range(2):
        for number in (1, 2):
            cursors.execute(f"SELECT {number}, $1::text", ["x"])
            assert cursors.fetchall() == [(number, "x")]
            said.append((cursors._last, cursors._last._query.query))
    assert said[0][0] is said[2][0] is not said[1][0] is said[3][0]
    assert said[0][1] is said[2][1]


def test_none_holds_many_rows(cursors: Cursors) -> None:
    texts = ["SELECT generate_series(1, 1)", "SELECT generate_series(1, 2)"]
    for each in texts:
        cursors.execute(each)
        cursors.fetchall()
    assert [each in cursors._kept for each in texts] == [True, False]


def test_there_are_so_many(cursors: Cursors, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of statements that a caller's condition is part of, and which do not come again."""
    monkeypatch.setattr(prepared, "KEPT", 10)
    cursors._kept.clear()
    for number in range(30):
        cursors.execute(f"SELECT {number}")
        assert cursors.fetchall() == [(number,)]
    assert len(cursors._kept) == 10


def test_types_may_change(board: JobBoard, cursors: Cursors) -> None:
    """NULL and numbers of any size, one after the other."""
    statement = Prepared(sa.select(text("value"), sa.bindparam("p_number", type_=sa.BigInteger())))
    link: Any = board.engine.store.links._local.link
    for value, number in (("x", 1), (None, 2**40), ("é", None), (None, 2**20), ("y", -1)):
        for _ in range(7):
            assert link.rows(statement, {"p_value": value, "p_number": number}) == [(value, number)]


def test_another_encoding(make_board: Any, board: JobBoard, engine: sa.Engine) -> None:
    """Names of tables are in the text."""
    with engine.connect() as connection:
        connection.exec_driver_sql("SET client_encoding = latin1")
        raw: Any = connection.connection.dbapi_connection
        cursor, _ = prepared.cursor_on(raw, connection.dialect)
        cursor.execute("SELECT 'é', $1::text", ["ü"])
        assert cursor.fetchall() == [("é", "ü")]
        connection.exec_driver_sql("SET client_encoding = utf8")


def test_an_error_is_no_end(board: JobBoard, cursors: Cursors) -> None:
    for divisor in (1, 0, 1):
        if divisor:
            cursors.execute("SELECT 1 / $1::int", [divisor])
            assert cursors.fetchall() == [(1,)]
        else:
            with pytest.raises(Exception, match="division by zero"):
                cursors.execute("SELECT 1 / $1::int", [divisor])
    board.post_many([Posting("a")] * 3)
    assert len(board.claim_many("anna", 3)) == 3
