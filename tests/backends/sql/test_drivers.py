"""Transactions of callers on every driver that SQLAlchemy has, and boards on the engines of sync ones."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost
from jobboard.job import Act, Posting
from jobboard.testing.conformance.support import LONG

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

DRIVERS = {
    "sqlite": ("pysqlite", "aiosqlite"),
    "postgresql": ("psycopg", "psycopg_async", "psycopg2", "pg8000", "asyncpg"),
    "mariadb": ("pymysql", "mysqlconnector", "aiomysql", "asyncmy", "mysqldb", "mariadbconnector"),
}

BUILT = {"mysqldb": "MySQLdb", "mariadbconnector": "mariadb"}
"""Drivers that are built on the machine, with a library of the database's, and the names of their modules."""

PARAMSTYLES = ("qmark", "format", "pyformat", "named", "numeric", "numeric_dollar")

ODD = "50 % of :that, %s, $1 and ? \\ 'ü'"

Acts = Callable[[Any], object]


@pytest.fixture
def urls(backend: str, engine: sa.Engine) -> list[sa.URL]:
    """The database by each of its drivers that is installed."""
    missing = [driver for driver, module in BUILT.items() if importlib.util.find_spec(module) is None]
    return [engine.url.set(drivername=f"{backend}+{each}") for each in DRIVERS[backend] if each not in missing]


async def run_async(url: sa.URL, acts: Acts, commits: bool) -> None:
    engine = create_async_engine(url)
    async with AsyncSession(engine) as session:
        await session.run_sync(acts)
        await (session.commit() if commits else session.rollback())
    await engine.dispose()


def run(url: sa.URL, acts: Acts, commits: bool) -> None:
    """Run acts in a session of this driver, and commit or roll back."""
    if url.get_dialect().is_async:
        asyncio.run(run_async(url, acts, commits))
        return
    engine = sa.create_engine(url)
    with Session(engine) as session:
        acts(session)
        session.commit() if commits else session.rollback()
    engine.dispose()


@pytest.mark.rule("Verbs take part in transactions of every driver and paramstyle of SQLAlchemy's.")
def test_verbs_in_a_transaction(make_board: Callable[..., JobBoard], urls: list[sa.URL]) -> None:
    for url in urls:
        try_verbs(make_board(url.drivername, keep_done=60), url)


def try_verbs(board: JobBoard, url: sa.URL) -> None:
    board.set_limit("limited", concurrency=5)
    board.post_many([Posting(name) for name in ("plain", "limited", "plain", "limited", "plain")])
    jobs = board.claim_many("anna", 5, expiry=LONG)

    def acts(session: Any) -> None:
        [posted] = board.post_many([Posting(ODD[:20], details={ODD: [1, None, ODD]}, group="g")], connection=session)
        assert posted.created
        for _ in range(2):
            board.post("keyed", key=ODD, priority=7, delay=60, key_for=60, connection=session)
        board.post("keyed", details={"n": 2}, key=ODD, on_key="replace", connection=session)
        jobs[0].claim.consume(result={"odd": ODD}, connection=session)
        jobs[1].claim.abandon(error=ODD, delay=60, connection=session)
        jobs[2].claim.trash(reason=ODD, connection=session)
        board.finish_many([Act(jobs[3], "consume"), Act(jobs[4], "abandon", error=ODD)], "anna", connection=session)

    def state() -> tuple[int, int, int, int]:
        stats = board.stats()
        return stats.on_board, stats.claimed, stats.scheduled, stats.trashed

    run(url, acts, False)
    assert state() == (5, 5, 0, 0), url.drivername
    run(url, acts, True)
    assert state() == (4, 0, 1, 1), url.drivername
    assert jobs[0].result(1) == {"odd": ODD}
    assert next(board.trashed()).error == ODD
    assert board.get(jobs[1].uuid).error == ODD
    [posted] = board.iterjobs(names=[ODD[:20]])
    assert (posted.details, posted.group) == ({ODD: [1, None, ODD]}, "g")
    [keyed] = board.iterjobs(names=["keyed"])
    assert (keyed.key, keyed.details) == (ODD, {"n": 2})


def test_refusals_in_a_transaction(make_board: Callable[..., JobBoard], urls: list[sa.URL]) -> None:
    for url in urls:
        try_refusals(make_board(url.drivername), url)


def try_refusals(board: JobBoard, url: sa.URL) -> None:
    job = board.post("a")
    claim = board.claim(job, "anna", expiry=LONG)
    board.release(board.get(job.uuid))

    def acts(session: Any) -> None:
        with pytest.raises(ClaimLost):
            claim.consume(connection=session)
        session.execute(sa.text("CREATE TEMPORARY TABLE temporary_one (number INTEGER)"))
        board.post("b", connection=session)

    run(url, acts, True)
    assert [job.name for job in board.iterjobs()] == ["a", "b"]


def test_a_board_on_the_engine(board_conf: dict[str, Any], backend: str, urls: list[sa.URL]) -> None:
    # Boards take sync engines alone.
    for url in urls:
        if not url.get_dialect().is_async:
            try_board({**board_conf, "board": backend, "keep_done": 60}, url)


def try_board(conf: dict[str, Any], url: sa.URL) -> None:
    engine = sa.create_engine(url)
    with jobboard.backend(url.drivername, conf, client=engine) as board:
        board.set_limit("limited", concurrency=1)
        board.post_many([Posting("plain", details={ODD: ODD}), Posting("limited", key=ODD), Posting("limited")])
        [plain, limited] = board.claim_many("anna", 3)
        assert (plain.details, limited.key) == ({ODD: ODD}, ODD)
        plain.claim.consume(result=ODD)
        limited.claim.abandon(error=ODD)
        assert board.claim_next("anna").error == ODD
        assert plain.result(1) == ODD
        assert board.stats().on_board == 2
    engine.dispose()


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("style", ["qmark", "named"])
def test_every_style_of_the_driver(board_conf: dict[str, Any], engine: sa.Engine, style: Any) -> None:
    styled = sa.create_engine(engine.url, paramstyle=style)
    with jobboard.backend("board", {**board_conf, "board": "sqlite"}, client=styled) as board:
        board.post_many([Posting("a", details={ODD: ODD})] * 3)
        board.claim_next("anna").claim.consume()
        with Session(styled) as session:
            board.claim_next("anna").claim.trash(reason=ODD, connection=session)
            session.commit()
        assert (board.job_count, next(board.trashed()).error) == (1, ODD)
    styled.dispose()


@pytest.mark.rule("Verbs take part in transactions of every driver and paramstyle of SQLAlchemy's.")
@pytest.mark.parametrize("style", PARAMSTYLES)
def test_every_style_is_written(backend: str, style: str) -> None:
    """Each value stands where the driver finds it, also one that stands in two places and one in a list."""
    from jobboard.backends.sql.statements import Statement

    dialect = sa.make_url(f"{backend}://").get_dialect()(paramstyle=style)
    dialect.paramstyle = style
    text = "select :one, ':no', :two, :one, '%' where a in (:many)"
    written, values = Statement("odd", text).compiled(dialect, {"one": 1, "two": 2, "many": [3, 4]})
    expected = {
        "qmark": ("select ?, ':no', ?, ?, '%' where a in (?, ?)", (1, 2, 1, 3, 4)),
        "format": ("select %s, ':no', %s, %s, '%%' where a in (%s, %s)", (1, 2, 1, 3, 4)),
        "numeric": ("select :1, ':no', :2, :1, '%' where a in (:3, :4)", (1, 2, 3, 4)),
        "numeric_dollar": ("select $1, ':no', $2, $1, '%' where a in ($3, $4)", (1, 2, 3, 4)),
        "named": (
            "select :one, ':no', :two, :one, '%' where a in (:many_0, :many_1)",
            {"one": 1, "two": 2, "many_0": 3, "many_1": 4},
        ),
        "pyformat": (
            "select %(one)s, ':no', %(two)s, %(one)s, '%%' where a in (%(many_0)s, %(many_1)s)",
            {"one": 1, "two": 2, "many_0": 3, "many_1": 4},
        ),
    }
    if backend == "sqlite" and style == "qmark":
        # Its driver finds a value by its name once.
        style = "named"
    assert (written, values) == expected[style]


@pytest.mark.rule("A claim's ends take part in a transaction of the caller's.")
@pytest.mark.parametrize("act", ["consume", "abandon", "trash"])
def test_claims_take_part_in_a_transaction(make_board: Callable[..., JobBoard], engine: sa.Engine, act: str) -> None:
    board = make_board()
    board.post("a")
    job = board.claim_next("anna")
    for end in ("rollback", "commit"):
        with Session(engine) as session:
            getattr(job.claim, act)(connection=session)
            getattr(session, end)()
        assert job.claim.ended is (end == "commit")
    with pytest.raises(TypeError, match="connection"):
        getattr(job.claim, act)(connection=object())


def test_a_board_outside_sql_refuses_the_claims_connection() -> None:
    with jobboard.backend("board", "memory") as board:
        board.post("a")
        job = board.claim_next("anna")
        for act in (job.claim.consume, job.claim.abandon, job.claim.trash):
            with pytest.raises(TypeError, match="connection"):
                act(connection=object())
