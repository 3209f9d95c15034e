"""Whoever holds a transaction open is named: nothing that was done since can be cleared away."""

from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql.doctor import LONG, open_transactions
from jobboard.board import JobBoard
from jobboard.primitives import Oddity
from jobboard.testing import eventually

SERVERS = pytest.mark.backends("postgresql", "mariadb")


def pins(store: Any, since: float = 0) -> list[Oddity]:
    return list(open_transactions(store.statements, store.query, since))


@SERVERS
def test_a_transaction_that_is_open_for_long_is_named(backend: str, board: JobBoard, engine: sa.Engine) -> None:
    me = {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT CONNECTION_ID()"}[backend]
    store: Any = board.engine.store
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        number = connection.exec_driver_sql(me).scalar_one()
        connection.execute(sa.select(sa.func.count()).select_from(board.table))
        [pin] = eventually(lambda: [each for each in pins(store) if each.place.startswith(f"session {number} of ")])
        assert "its transaction has been open for 0 s" in pin.reason
        end = {"postgresql": f"SELECT pg_terminate_backend({number})", "mariadb": f"KILL {number}"}[backend]
        assert pin.advice == f"have it end, or end it: {end}"
        # It has only just begun.
        assert not [each for each in pins(store, LONG) if each.place.startswith(f"session {number} of ")]
        assert not [each for each in board.examine() if each.place.startswith(f"session {number} of ")]
    # The pool of an older SQLAlchemy keeps it within a transaction; and InnoDB tells of a moment ago.
    engine.dispose()
    eventually(lambda: not [each for each in pins(store) if each.place.startswith(f"session {number} of ")])


@pytest.mark.backends("postgresql")
def test_a_prepared_transaction_is_named(board: JobBoard, engine: sa.Engine) -> None:
    name = f"left behind by {board.table.name}"
    with engine.connect() as connection:
        transaction = connection.begin_twophase(name)
        connection.execute(sa.update(board.table).values(version=1))
        transaction.prepare()
        [pin] = [each for each in pins(board.engine.store) if name in each.place]
        transaction.rollback()
    assert pin.place.startswith(f"prepared transaction {name} of ")
    assert pin.advice.endswith(f"COMMIT PREPARED or ROLLBACK PREPARED '{name}'")


@pytest.mark.backends("mariadb")
def test_who_may_not_see_others_is_told_nothing(board: JobBoard, board_conf: dict[str, Any], engine: sa.Engine) -> None:
    import jobboard

    url = sa.make_url(board_conf["board"])
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE USER blind IDENTIFIED BY 'secret'")
        connection.exec_driver_sql(f"GRANT ALL ON {url.database}.* TO blind")
    try:
        uri = url.set(username="blind", password="secret").render_as_string(hide_password=False)
        theirs = jobboard.fetch("board", {**board_conf, "board": uri})
        theirs.connect()
        assert pins(theirs.engine.store) == []
        assert theirs.examine() is not None
        theirs.close()
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP USER blind")
