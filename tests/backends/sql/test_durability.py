"""What a board says of how durable its database is."""

import re
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard


def weak(board: JobBoard) -> list[str]:
    """The settings that the board warns of."""
    told = [odd.reason for odd in board.examine() if odd.place == "characteristic durable"]
    assert len(told) == (not board.characteristics.durable)
    return re.findall(r"(\w+) is \w+, (?:set it to \w+|leave it out)", " ".join(told))


@pytest.mark.backends("postgresql")
def test_postgresql(private_server: Any) -> None:
    server = private_server("postgresql", durable=True)
    engine = sa.create_engine(server.uri.replace("://", "+psycopg://"), isolation_level="AUTOCOMMIT")
    for commit in ("on", "local", "remote_apply", "off"):
        with engine.connect() as link:
            link.execute(sa.text(f"ALTER DATABASE jobboard SET synchronous_commit = {commit}"))
        with jobboard.backend("board", server.uri) as board:
            assert weak(board) == (["synchronous_commit"] if commit == "off" else [])
            assert board.characteristics.durable == (commit != "off")
    engine.dispose()


@pytest.mark.backends("mariadb")
def test_mariadb(private_server: Any) -> None:
    server = private_server("mariadb", durable=True)
    with jobboard.backend("board", server.uri) as board:
        assert (weak(board), board.characteristics.durable) == ([], True)


@pytest.mark.backends("postgresql", "mariadb")
def test_a_server_that_leaves_it_to_the_system(board: JobBoard) -> None:
    """As those of the tests do."""
    assert weak(board) != []
    assert not board.characteristics.durable


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("synchronous", "told"), [("full", []), ("normal", ["synchronous"])])
def test_sqlite(make_board: Any, synchronous: str, told: list[str]) -> None:
    board = make_board(synchronous=synchronous)
    assert weak(board) == told
    assert board.characteristics.durable == (not told)
