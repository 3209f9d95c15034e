"""A server that takes no writes any more: after a failover another does, and a new connection leads there."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.conftest import DRIVERS

STALE = {
    "sqlite": "PRAGMA query_only = on",
    "postgresql": "SET default_transaction_read_only = on",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}
OFF, ON = (
    {
        "postgresql": [
            "SET default_transaction_read_only = off",
            f"ALTER SYSTEM SET default_transaction_read_only = {value}",
            "SELECT pg_reload_conf()",
        ],
        "mariadb": [f"SET GLOBAL read_only = {value}"],
    }
    for value in ("off", "on")
)


@pytest.mark.backends("sqlite", "postgresql", "mariadb")
def test_a_kept_connection_to_one_that_was_replaced(
    backend: str, board_conf: dict[str, Any], engine: sa.Engine
) -> None:
    made: list[Any] = []
    sa.event.listen(engine, "connect", lambda raw, record: made.append(raw))
    board = jobboard.fetch("board", {**board_conf, "board": "sql"}, client=engine)
    board.connect()
    job = board.post("before")
    for raw in made:
        raw.cursor().execute(STALE[backend])
    assert board.claim_next("anna") == job
    assert board.post("after").name == "after"
    board.close()


@pytest.mark.backends("postgresql", "mariadb")
def test_a_server_that_takes_none_for_a_while(
    backend: str, private_server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    uri = sa.make_url(private_server(backend).uri)
    admin = sa.create_engine(uri.set(drivername=DRIVERS[backend]), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)

    def run(statements: list[str]) -> None:
        with admin.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    if backend == "mariadb":
        # An administrator may write all the same.
        run(["CREATE USER anna IDENTIFIED BY 'secret'", f"GRANT ALL ON {uri.database}.* TO anna"])
        uri = uri.set(username="anna", password="secret")
    shown = uri.render_as_string(hide_password=False)
    with (
        jobboard.backend("board", {"board": shown, "retry_for": 30}) as patient,
        jobboard.backend("board", {"board": shown, "retry_for": 0.2}) as hasty,
    ):

        def refused() -> ConnectionFailure | None:
            try:
                hasty.post("too early")
            except ConnectionFailure as failure:
                return failure
            return None

        run(ON[backend])
        # A session of PostgreSQL's may take another command before it reads its settings again.
        failure = eventually(refused)
        assert "takes no writes" in str(failure)
        assert failure.outcome == "none"
        posted = Background(lambda: patient.post("posted"))
        eventually(lambda: re.search(r"trying again for (30|29\S+) s", caplog.text))
        run(OFF[backend])
        assert posted.wait(30).name == "posted"
        assert [job.name for job in hasty.iterjobs() if job.name != "too early"] == ["posted"]
