"""A board is closed while another thread of it waits for the database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    # Who asks information_schema.innodb_trx this often gets the same old answer.
    "mariadb": "SELECT variable_value > 0 FROM information_schema.global_status"
    " WHERE variable_name = 'innodb_row_lock_current_waits'",
}


@pytest.mark.backends("postgresql", "mariadb")
def test_a_call_under_way_is_told_that_the_board_is_closed(
    backend: str, make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    board = make_board()
    job = board.post("resize")
    with ThreadPoolExecutor(1) as pool, engine.connect() as locker:
        table = board.table
        locker.execute(sa.select(table.c.id).where(table.c.uuid == job.uuid).with_for_update())
        claim = pool.submit(board.claim, job, "anna")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as looking:
            eventually(lambda: looking.exec_driver_sql(WAITING[backend]).scalar())
        board.close()
        locker.rollback()
        assert type(claim.exception(20)) is ConnectionFailure


@pytest.mark.backends("postgresql", "mariadb")
def test_a_board_whose_server_is_gone_is_closed_without_a_traceback(
    backend: str, private_server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = private_server(backend)
    with jobboard.backend("board", server.uri) as board:
        board.post("resize")
        server.kill()
    assert not [record for record in caplog.records if record.exc_info]
