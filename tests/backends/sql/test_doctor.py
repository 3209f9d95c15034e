"""What a board reports of its database: weak settings, and transactions that stay open."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.backends.sql.doctor import LONG, open_transactions
from jobboard.board import JobBoard
from jobboard.primitives import Oddity
from jobboard.testing import eventually


def weak(board: JobBoard) -> list[str]:
    """Return the settings that the board warns of."""
    told = [odd.reason for odd in board.examine() if odd.place == "characteristic durable"]
    assert len(told) == (not board.characteristics.durable)
    return re.findall(r"(\w+) is \w+, (?:set it to \w+|leave it out)", " ".join(told))


@pytest.mark.rule("The durability of each database is set and checked.")
@pytest.mark.backends("postgresql")
def test_postgresql_is_durable_unless_commits_are_asynchronous(private_server: Any) -> None:
    server = private_server("postgresql", durable=True)
    engine = sa.create_engine(server.uri.replace("://", "+psycopg://"), isolation_level="AUTOCOMMIT")
    for commit in ("on", "local", "remote_apply", "off"):
        with engine.connect() as link:
            link.execute(sa.text(f"ALTER DATABASE jobboard SET synchronous_commit = {commit}"))
        with jobboard.backend("board", server.uri) as board:
            assert weak(board) == (["synchronous_commit"] if commit == "off" else [])
            assert board.characteristics.durable == (commit != "off")
    engine.dispose()


@pytest.mark.rule("The durability of each database is set and checked.")
@pytest.mark.backends("mariadb")
def test_mariadb_is_durable_by_default(private_server: Any) -> None:
    with jobboard.backend("board", private_server("mariadb", durable=True).uri) as board:
        assert (weak(board), board.characteristics.durable) == ([], True)


@pytest.mark.rule("The durability of each database is set and checked.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_server_that_leaves_writes_to_the_system_is_not_durable(board: JobBoard) -> None:
    """The servers of the tests do."""
    assert weak(board) != []
    assert not board.characteristics.durable


@pytest.mark.rule("The durability of each database is set and checked.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("synchronous", "told"), [("full", []), ("normal", ["synchronous"])])
def test_sqlite_is_durable_unless_synchronous_is_normal(make_board: Any, synchronous: str, told: list[str]) -> None:
    board = make_board(synchronous=synchronous)
    assert weak(board) == told
    assert board.characteristics.durable == (not told)


def named(board: JobBoard, place: str, since: float = 0) -> list[Oddity]:
    """Return the open transactions that the doctor names at a place."""
    store: Any = board.engine.store
    # InnoDB lists its transactions anew if nobody, in another test neither, has read the list for 0.1 s.
    time.sleep(random.uniform(0.2, 0.8))
    return [each for each in open_transactions(store.statements, store.run_one, since) if place in each.place]


@pytest.mark.rule("The doctor names the sessions that pin a snapshot.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_transaction_that_is_open_for_long_is_named(backend: str, board: JobBoard, engine: sa.Engine) -> None:
    me = {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT CONNECTION_ID()"}[backend]
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        number = connection.exec_driver_sql(me).scalar_one()
        place = f"session {number} of "
        connection.execute(sa.select(sa.func.count()).select_from(board.table))
        [pin] = eventually(lambda: named(board, place))
        assert re.search(r"its transaction has been open for \d+ s", pin.reason)
        end = {"postgresql": f"SELECT pg_terminate_backend({number})", "mariadb": f"KILL {number}"}[backend]
        assert pin.advice == f"have it end, or end it: {end}"
        # It has only just begun.
        assert not named(board, place, LONG)
        assert not [each for each in board.examine() if place in each.place]
    # The pool of an older SQLAlchemy keeps the connection within a transaction.
    engine.dispose()
    eventually(lambda: not named(board, place))


@pytest.mark.rule("The doctor names the sessions that pin a snapshot.")
@pytest.mark.backends("postgresql")
def test_a_prepared_transaction_is_named(board: JobBoard, engine: sa.Engine) -> None:
    name = f"left behind by {board.table.name}"
    with engine.connect() as connection:
        transaction = connection.begin_twophase(name)
        connection.execute(sa.update(board.table).values(version=1))
        transaction.prepare()
        [pin] = named(board, name)
        transaction.rollback()
    assert pin.place.startswith(f"prepared transaction {name} of ")
    assert pin.advice.endswith(f"COMMIT PREPARED or ROLLBACK PREPARED '{name}'")


@pytest.mark.backends("mariadb")
def test_a_user_who_may_not_see_transactions_is_shown_none(
    board: JobBoard, board_conf: dict[str, Any], engine: sa.Engine
) -> None:
    url = sa.make_url(board_conf["board"])
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE USER blind IDENTIFIED BY 'secret'")
        connection.exec_driver_sql(f"GRANT ALL ON {url.database}.* TO blind")
    try:
        uri = url.set(username="blind", password="secret").render_as_string(hide_password=False)
        with jobboard.backend("board", {**board_conf, "board": uri}) as theirs:
            assert named(theirs, "") == []
            assert list(theirs.examine())
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP USER blind")
