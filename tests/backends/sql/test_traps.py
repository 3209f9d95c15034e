"""The traps that SQL databases set for queues: each test fails without the line that avoids its trap."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.sql.dialects import MySQLDatabase
from jobboard.states import Record, Verb
from jobboard.testing.conformance.harness import LONG_AGO, Harness, part
from jobboard.testing.conformance.support import Background, eventually

ALL = pytest.mark.backends("sqlite", "postgresql", "mariadb")
SERVERS = pytest.mark.backends("postgresql", "mariadb")


@pytest.mark.backends("postgresql")
def test_a_take_locks_no_more_than_it_takes_whatever_the_plan(board: JobBoard, spy: Any) -> None:
    with spy(board) as seen:
        # Under this plan an inner query with a limit runs once for every outer row: the planner, which knows of one row
        # and is left no other way, joins by a loop around it.
        seen.sends(f"ALTER TABLE {board.table.name} SET (autovacuum_enabled = off)")
        board.post("a")
        seen.sends(f"ANALYZE {board.table.name}")
        board.post_many([{"name": "a"}] * 49)
        ways = ("hashjoin", "mergejoin", "indexscan", "indexonlyscan", "bitmapscan", "hashagg", "sort", "material")
        for setting in ways:
            seen.sends(f"SET enable_{setting} = off")
        for limit in (1, 3):
            assert len(board.claim_many("anna", limit)) == limit
    stats = board.stats()
    assert (stats.claimed, stats.unclaimed) == (4, 46)


@pytest.mark.rule("An update by key locks no rows of others.")
@pytest.mark.backends("mariadb")
def test_innodb_locks_no_more_than_is_taken(board: JobBoard, spy: Any, make_board: Callable[..., Any]) -> None:
    board.post_many([{"name": name} for name in "abcdefgh" for _ in range(150)])
    other = make_board()
    got: list[str] = []

    def before(text: str) -> None:
        # The first has locked what it is going to take, and holds the locks.
        if re.search(r"^\s*update", text, re.MULTILINE | re.IGNORECASE) and not got:
            got.extend(job.uuid for job in Background(lambda: other.claim_many("bert", 100)).wait())

    for options in ({}, {"names": ["a"]}, {"names": ["c", "e", "g"]}, {"where": board.table.c.priority >= 0}):
        got.clear()
        with spy(board, before):
            mine = board.claim_many("anna", 10, **options)
        assert len(mine) == 10
        assert len(got) == 100


@pytest.mark.rule("An arrival that was purged at the target is known as such.")
@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("purged", [True, False])
def test_an_arrival_that_another_has_brought_meanwhile_is_known(board: JobBoard, other: JobBoard, purged: bool) -> None:
    store = board.engine.store
    original = store._insert
    theirs: list[Record] = []

    def insert_late(*args: Any) -> list[Record]:
        # The job was not there when this call looked.
        if not theirs:
            theirs.append(Harness(other).arrive(Harness(other).arrival(trashed_on=LONG_AGO)))
            if purged:
                Harness(other).finish(part(theirs[0], Verb.PURGE))
        return original(*args)

    store.__dict__["_insert"] = insert_late
    [(created, record)] = Harness(board).insert(Harness(board).arrival())
    assert created == purged
    assert other.engine.read([theirs[0].uuid])[0].record == record
    assert (record == theirs[0]) != purged


@pytest.mark.rule("A table may be named like anything in a statement.")
@pytest.mark.backends("postgresql")
def test_a_table_may_be_named_like_anything_in_a_statement(make_board: Callable[..., Any]) -> None:
    for table in ("taken", "answer", "clock", "draft", "found"):
        board = make_board(table=table)
        board.post_many([{"name": "a"}] * 3)
        board.post("a", key="k")
        assert board.claim_next("anna") is not None
        jobs = board.claim_many("anna", 3)
        board.consume_many(jobs[:2], "anna")
        board.consume(jobs[2], "anna")
        assert board.job_count == 1


@pytest.mark.backends("postgresql")
def test_heartbeats_stay_on_their_page(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([{"name": "a"}] * 100)
    counters = sa.text("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = :name")

    def counted() -> tuple[int, int]:
        with engine.connect() as connection:
            return tuple(connection.execute(counters, {"name": board.table.name}).one())

    def renewed() -> bool:
        updates, hot = counted()
        board.connect()
        board.claim_many("anna", 100)
        for _ in range(20):
            board.claims.beat()
        # A backend that ends reports all that it has counted; one that is idle does so when it gets round to it.
        board.close()
        eventually(lambda: counted()[0] >= updates + 2000)
        return counted()[1] - hot > 1500

    board.close()
    # Not where somebody looks at the database meanwhile, be it to analyse another table: what is seen by a snapshot
    # that is still in use must stay, and its page fills up.
    assert eventually(renewed, 60)


@pytest.mark.backends("postgresql")
def test_the_boards_connections_are_at_read_committed(board: JobBoard, engine: sa.Engine, make_board: Any) -> None:
    setting = "default_transaction_isolation"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {engine.url.database} SET {setting} = 'serializable'")
        try:
            other = make_board(retry_for=3)
        finally:
            connection.exec_driver_sql(f"ALTER DATABASE {engine.url.database} RESET {setting}")
    assert isolation(other, "SHOW transaction_isolation") == "read committed"


def isolation(board: JobBoard, ask: str) -> str:
    """Return the level of a transaction of the board's."""

    def asked(link: Any) -> str:
        link.begin()
        link.cursor.execute(ask)
        [(answer,)] = link.cursor.fetchall()
        link.rollback()
        return str(answer).lower().replace("-", " ")

    told: str = board.engine.store.links.run(asked)
    return told


@SERVERS
def test_a_transaction_that_lost_or_found_no_room_is_repeated(board: JobBoard, spy: Any) -> None:
    codes: dict[str, list[Any]] = {
        "postgresql": ["40001", "40P01", "53100", "53200", "58030"],
        "mariadb": [1213, 1205, 1020, 1180, 1317, 1021, 1114],
    }
    claim = board.claim(board.post("a"), "anna")
    for code in codes[board.engine.store.product.dialect.name]:
        left = [2]

        def before(text: str, code: Any = code, left: list[int] = left) -> None:
            if "tag = c.was" in text and left[0]:
                left[0] -= 1
                raise _error(board, code)

        with spy(board, before) as seen:
            claim.extend(60)
        assert not left[0]
        # The job that it changes is compared anew each time. The one that fails is not sent.
        assert sum("tag = c.was" in text for text in seen.texts) == 1


def _error(board: JobBoard, code: Any) -> Exception:
    dbapi = board.engine.store.links.engine.dialect.dbapi
    if isinstance(code, int):
        return dbapi.OperationalError(code, "forced")
    error = dbapi.OperationalError("forced")
    error.sqlstate = code
    return error


def test_features_of_mysql_and_mariadb_depend_on_version_and_driver() -> None:
    def product(version: tuple[int, ...], mariadb: bool, driver: str = "pymysql") -> MySQLDatabase:
        dialect = sa.make_url(f"mysql+{driver}://").get_dialect()()
        dialect.server_version_info, dialect.is_mariadb = version, mariadb
        return MySQLDatabase(dialect)

    skipping = {
        ((8, 0, 0), False): False,
        ((8, 0, 1), False): True,
        ((5, 7, 44), False): False,
        ((10, 5, 29), True): False,
        ((10, 6, 0), True): True,
        ((11, 8, 2), True): True,
    }
    assert {each: product(*each).skip_locked for each in skipping} == skipping
    assert [product((10, 6, 0), True, driver).compound for driver in ("pymysql", "mysqldb", "mysqlconnector")] == [
        True,
        False,
        False,
    ]
    assert not product((10, 5, 29), True).compound


@pytest.mark.backends("sqlite")
def test_sqlite_locks_before_it_writes(board: JobBoard, spy: Any, make_board: Callable[..., Any]) -> None:
    board.post_many([{"name": "a"}] * 2)
    other = make_board()
    waiting: list[Background] = []

    def before(text: str) -> None:
        # A writer between our read and our write must wait; if it could pass, our write would fail at once.
        if text.lower().startswith("update") and not waiting:
            waiting.append(Background(lambda: other.claim_next("bert")))

    with spy(board, before) as seen:
        mine = board.claim_next("anna")
    writes = [number for number, text in enumerate(seen.texts) if re.match("insert|update|delete", text, re.IGNORECASE)]
    assert seen.texts.index("BEGIN IMMEDIATE") < writes[0]
    theirs = waiting[0].wait()
    assert {mine.claim.who, theirs.claim.who} == {"anna", "bert"}
    assert mine.uuid != theirs.uuid


@ALL
def test_the_databases_clock_is_read_to_the_microsecond_or_nearly(board: JobBoard) -> None:
    before = time.time()
    now = board.engine.now() / 1e6
    assert before - 1 < now < time.time() + 1
    readings = {board.engine.now() for _ in range(50)}
    assert eventually(lambda: readings.add(board.engine.now()) or any(reading % 1_000_000 for reading in readings))


@pytest.mark.backends("mariadb")
def test_the_clock_does_not_follow_the_sessions_time_zone(board: JobBoard, spy: Any) -> None:
    with spy(board) as seen:
        seen.sends("SET time_zone = '-11:00'")
    assert abs(board.engine.now() / 1e6 - time.time()) < 5


@pytest.mark.rule("Session defaults of the server for others are not the board's.")
@pytest.mark.backends("mariadb")
def test_the_servers_defaults_for_others_are_not_ours(private_server: Callable[..., Any]) -> None:
    server = private_server("mariadb")
    admin = sa.create_engine(sa.make_url(server.uri).set(drivername="mariadb+pymysql"))
    with admin.begin() as connection:
        for setting in (
            "sql_mode = 'ORACLE,EMPTY_STRING_IS_NULL'",
            "tx_isolation = 'SERIALIZABLE'",
            "sql_safe_updates = on",
            "sql_select_limit = 1",
            "sql_big_selects = off, max_join_size = 2",
        ):
            connection.exec_driver_sql(f"SET GLOBAL {setting}")
    admin.dispose()
    with jobboard.backend("board", server.uri) as board:
        board.post_many([{"name": "a", "details": {"text": ""}}] * 3)
        jobs = board.claim_many("anna", 3)
        assert [job.details for job in jobs] == [{"text": ""}] * 3
        assert len(list(board.iterjobs())) == 3
        board.consume_many(jobs, "anna")
        assert board.job_count == 0
        assert isolation(board, "SELECT @@tx_isolation") == "read committed"
