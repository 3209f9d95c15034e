"""Connections of a board: taken from one pool for each call, given back as they were, replaced, and closed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.runtime import boottime
from jobboard.sql.connections import Link
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, Background
from tests.backends.sql.conftest import rows_locked, waiting
from tests.conftest import DRIVERS

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

SERVERS = pytest.mark.backends("postgresql", "mariadb")


# The board's own pool


def at_once(board: JobBoard, count: int) -> list[Any]:
    """Return the drivers' connections of so many threads that work at the same time, and then end."""
    found: list[Any] = []
    together = threading.Barrier(count)

    def work(link: Link) -> None:
        together.wait(20)
        found.append(link.raw)
        together.wait(20)

    for thread in [Background(lambda: board.engine.store.links.run(work)) for _ in range(count)]:
        thread.wait(60)
    return found


@pytest.mark.rule("A thread goes on with the connection of another thread.")
def test_a_thread_goes_on_with_the_connection_of_another(board: JobBoard) -> None:
    first = at_once(board, 3)
    assert len(set(first)) == 3
    assert set(at_once(board, 2)) < set(first)
    assert at_once(board, 1) == at_once(board, 1)


@pytest.mark.rule("A thread goes on with the connection of another thread.")
@SERVERS
def test_a_lost_connection_takes_the_idle_ones_along(board: JobBoard) -> None:
    """After an outage a call would try one after the other."""
    left = at_once(board, 3)

    def breaks(link: Link) -> None:
        raise ConnectionFailure("the server has gone away")

    with pytest.raises(ConnectionFailure):
        board.engine.store.links.run(breaks)
    assert not set(at_once(board, 3)) & set(left)


@pytest.mark.rule("A connection that listens and is lost leaves nothing open.")
@pytest.mark.backends("postgresql")
def test_a_lost_listener_leaves_no_socket_open(board: JobBoard, engine: sa.Engine) -> None:
    def listening() -> Any:
        board.claim_next("anna", timeout=0.1)
        return board.engine.store.waiter._listener

    listener = eventually(listening)
    ends = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND datname = :here"
    )
    with engine.begin() as connection:
        connection.execute(ends, {"here": engine.url.database})
    eventually(lambda: listener._link.raw.closed and not listener._link.watched)


@pytest.mark.backends("postgresql")
def test_a_post_of_a_board_that_does_not_listen_wakes_a_waiter(make_board: Callable[..., Any]) -> None:
    """As behind a pooler."""
    board, poster = make_board(claim_ttl=3600), make_board(notify=False)
    assert poster.characteristics.blocking_wait is False
    assert board.claim_next("anna", timeout=0.1) is None
    for name in ("a", "b"):
        sleeping = Background(lambda: board.claim_next("anna", timeout=3600))
        poster.post(name)
        assert sleeping.wait(20).name == name


# A caller's pool


@pytest.fixture
def narrow(engine: sa.Engine) -> Iterator[sa.Engine]:
    """A caller's pool that gives one connection at a time."""
    narrow = sa.create_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    yield narrow
    narrow.dispose()


@pytest.fixture
def theirs(narrow: sa.Engine, make_board: Callable[..., Any], board_conf: dict[str, Any]) -> Iterator[JobBoard]:
    make_board()
    conf = {**board_conf, "board": "sql", "claim_ttl": 3 * HELD, "retry_for": 0}
    with jobboard.backend("board", conf, client=narrow) as board:
        yield board


@pytest.mark.rule("A caller's engine gets its connections back after each call, as they were.")
def test_a_callers_connection_is_given_back_as_it_was(theirs: JobBoard, narrow: sa.Engine) -> None:
    sqlite = narrow.dialect.name == "sqlite"
    settings = {"busy_timeout": 12345, "synchronous": 0} if sqlite else {}
    with narrow.connect() as connection:
        for name, value in settings.items():
            connection.exec_driver_sql(f"PRAGMA {name} = {value}")
    job = theirs.post("a")
    theirs.claim(job, "anna")
    with narrow.connect() as connection:
        assert connection.get_isolation_level() == connection.default_isolation_level
        assert [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in settings] == [*settings.values()]
        with pytest.raises(ConnectionFailure, match="TimeoutError"):
            theirs.job_count  # noqa: B018
    theirs.consume(job, "anna")


@pytest.mark.rule("A caller's engine gets its connections back after each call, as they were.")
def test_a_call_that_fails_keeps_no_connection(theirs: JobBoard, narrow: sa.Engine) -> None:
    def fails(link: Link) -> None:
        link.begin()
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            theirs.engine.store.links.run(fails)
    with narrow.connect() as connection:
        assert connection.execute(sa.select(sa.literal(1))).scalar() == 1


@pytest.mark.rule("Heartbeats need no connection of a caller's pool.")
def test_claims_are_renewed_while_a_callers_pool_is_exhausted(theirs: JobBoard, narrow: sa.Engine) -> None:
    claim = theirs.claim(theirs.post("a"), "anna")
    with narrow.connect():
        for _ in range(2):
            until = claim.deadline
            eventually(lambda until=until: claim.deadline > until)
        assert boottime() < claim.deadline
    claim.consume()


# Servers that are gone, closed or read-only


@pytest.mark.rule("Closing a board leaves a connection that another thread uses to that thread.")
@SERVERS
def test_a_call_under_way_learns_that_the_board_is_closed(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("resize")
    with ThreadPoolExecutor(1) as pool, rows_locked(engine, board, job) as holder:
        claim = pool.submit(board.claim, job, "anna")
        eventually(lambda: waiting(holder))
        board.close()
    assert type(claim.exception(20)) is ConnectionFailure


@pytest.mark.rule("A board whose server is gone is closed without a traceback.")
@SERVERS
def test_a_board_whose_server_is_gone_is_closed_without_a_traceback(
    backend: str, private_server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = private_server(backend)
    with jobboard.backend("board", server.uri) as board:
        board.post("resize")
        server.kill()
    assert not [record for record in caplog.records if record.exc_info]


STALE = {
    "sqlite": "PRAGMA query_only = on",
    "postgresql": "SET default_transaction_read_only = on",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


@pytest.mark.rule("A database server that takes no writes counts as away.")
def test_a_connection_that_takes_no_writes_is_replaced(
    backend: str, board_conf: dict[str, Any], engine: sa.Engine
) -> None:
    """After a failover a kept connection leads to the old server, and a new one to its successor."""
    made: list[Any] = []
    sa.event.listen(engine, "connect", lambda raw, record: made.append(raw))
    with jobboard.backend("board", {**board_conf, "board": "sql"}, client=engine) as board:
        job = board.post("before")
        for raw in made:
            raw.cursor().execute(STALE[backend])
        assert board.claim_next("anna") == job
        assert board.post("after").name == "after"


@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("times", [1, 10])
def test_a_column_whose_type_changes_fails_no_call(board: JobBoard, engine: sa.Engine, times: int) -> None:
    """PostgreSQL refuses a prepared statement whose result has another type by then. psycopg drops its prepared
    statements with a rollback, but not once it has prepared the rollback, too."""

    def works() -> None:
        board.post("resize")
        job = board.claim_next("anna")
        assert job is not None
        board.consume(job, "anna")

    for _ in range(times):
        board.engine.store.links.run(lambda link: link.rollback())
    for _ in range(10):
        works()
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {board.table.name} ALTER COLUMN retries TYPE bigint")
    works()


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


@pytest.mark.rule("A database server that takes no writes counts as away.")
@SERVERS
def test_a_server_that_takes_no_writes_counts_as_away(
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
        jobboard.backend("board", {"board": shown, "retry_for": 60}) as patient,
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
        eventually(lambda: re.search(r"trying again for (60|5\d\S*) s", caplog.text))
        run(OFF[backend])
        assert posted.wait(60).name == "posted"
        assert [job.name for job in hasty.iterjobs() if job.name != "too early"] == ["posted"]
