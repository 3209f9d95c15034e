"""Verbs in a transaction of the caller's, ``connection=``: they happen exactly when the caller commits."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure, JobFailures, NotFound
from jobboard.job import Act, Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, Background, claim_one
from tests.backends.sql.conftest import waiting

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

SERVERS = pytest.mark.backends("postgresql", "mariadb")
SQLITE = pytest.mark.backends("sqlite")

MANY = 101
"""More jobs than one request ends."""

ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+aiomysql"}


def begin_by_hand(engine: sa.Engine) -> sa.Engine:
    """Begin as SQLAlchemy's documents tell users of SQLite: the driver by itself begins nothing before a savepoint."""
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


# The end of the transaction decides


def commit(given: Any, act: Callable[[], None]) -> bool:
    act()
    given.commit()
    return True


def roll_back(given: Any, act: Callable[[], None]) -> bool:
    act()
    given.rollback()
    return False


def close(given: Any, act: Callable[[], None]) -> bool:
    act()
    given.close()
    return False


def commit_a_savepoint(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested():
        act()
    given.commit()
    return True


def roll_back_a_savepoint(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested() as savepoint:
        act()
        savepoint.rollback()
    given.commit()
    return False


def roll_back_around_a_savepoint(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested():
        act()
    given.rollback()
    return False


def roll_back_two_savepoints(given: Any, act: Callable[[], None]) -> bool:
    with given.begin_nested() as outer:
        with given.begin_nested():
            act()
        outer.rollback()
    given.commit()
    return False


GIVEN: dict[str, Callable[[sa.Engine], Any]] = {
    "connection": lambda engine: engine.connect(),
    "session": Session,
    "registry": lambda engine: scoped_session(sessionmaker(engine)),
}


@pytest.mark.rule(
    "A verb in a caller's transaction is there when the caller commits, and gone when the caller rolls back."
)
@pytest.mark.parametrize(
    ("given", "end"),
    [
        ("connection", roll_back),
        ("connection", close),
        ("connection", commit_a_savepoint),
        ("connection", roll_back_around_a_savepoint),
        ("connection", roll_back_two_savepoints),
        ("session", commit),
        ("session", roll_back_a_savepoint),
        ("registry", commit),
    ],
)
def test_verbs_happen_exactly_when_the_caller_commits(
    board: JobBoard, engine: sa.Engine, events: list[str], given: str, end: Any
) -> None:
    board.post_many([Posting("old")] * (MANY + 4))
    jobs = board.claim_many("anna", MANY + 4)
    claims = {job.claim for job in jobs}
    eventually(lambda: len(events) == 2 * len(jobs))
    events.clear()
    theirs = GIVEN[given](begin_by_hand(engine))

    def act() -> None:
        board.post("new", connection=theirs)
        assert len(board.post_many([Posting("new", key="k"), Posting("new", delay=60)], connection=theirs)) == 2
        board.consume(jobs[0], "anna", connection=theirs)
        board.abandon(jobs[1], "anna", connection=theirs)
        board.trash(jobs[2], "anna", connection=theirs)
        board.finish_many([Act(jobs[3], "trash", error="bad")], "anna", connection=theirs)
        board.consume_many(jobs[4:], "anna", connection=theirs)
        assert claims.isdisjoint(board.claims.held())
        names = sa.select(board.table.c.name).where(board.table.c.name == "new")
        assert theirs.execute(names).scalars().all() == ["new"] * 3
        assert events == []

    stands = end(theirs, act)
    theirs.close()
    stats = board.stats()
    if stands:
        assert (stats.unclaimed, stats.scheduled, stats.claimed, stats.trashed) == (3, 1, 0, 2)
        told = {"POSTED": 3, "CONSUMED": MANY + 1, "ABANDONED": 1, "TRASHED": 2, "REMOVAL": MANY + 3}
        assert eventually(lambda: Counter(events) == told), events
        return
    assert (stats.unclaimed, stats.scheduled, stats.claimed, stats.trashed) == (0, 0, len(jobs), 0)
    # The board keeps the claims as before, and the next heartbeat finds them.
    assert claims == set(board.claims.held())
    board.claims.beat()
    assert not any(claim.lost for claim in claims if claim)
    board.consume_many(jobs, "anna")
    assert eventually(lambda: Counter(events) == {"CONSUMED": len(jobs), "REMOVAL": len(jobs)}), events


@pytest.mark.rule(
    "A verb in a caller's transaction is there when the caller commits, and gone when the caller rolls back."
)
@pytest.mark.rule("A savepoint that is rolled back takes its verbs along.")
def test_a_savepoint_takes_its_own_verbs_along(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([Posting(name) for name in "abc"])
    first, second, third = board.claim_many("anna", 3)
    with begin_by_hand(engine).begin() as connection:
        board.consume(first, "anna", connection=connection)
        with connection.begin_nested() as savepoint:
            board.consume(second, "anna", connection=connection)
            savepoint.rollback()
        held = board.claims.held()
        assert (first.claim in held, second.claim in held) == (False, True)
        with connection.begin_nested():
            board.consume(third, "anna", connection=connection)
    assert list(board.iterjobs()) == [second]


def test_keys_follow_the_callers_transaction(board: JobBoard, engine: sa.Engine) -> None:
    """The window of a key outlives a consumed job, and a post with a key replaces or finds a job."""
    remembered, content = board.post("a", key="window", key_for=600), board.post("a", details={"n": 1}, key="live")
    board.claim(remembered, "anna")
    for end, state, n in (("rollback", "CLAIMED", 1), ("commit", "COMPLETE", 2)):
        with engine.connect() as connection:
            assert board.post("b", key="live", connection=connection) == content
            board.consume(remembered, "anna", connection=connection)
            again = board.post("a", key="window", connection=connection)
            assert (again, again.created, again.seen_state) == (remembered, False, "COMPLETE")
            other = board.post("a", details={"n": 2}, key="live", on_key="replace", connection=connection)
            assert (other, other.replaced, other.details) == (content, True, {"n": 2})
            getattr(connection, end)()
        assert board.post("a", key="window").state == state
        assert board.get(content.uuid).details == {"n": n}


@pytest.mark.rule("An outcome stands exactly when the caller commits.")
def test_an_outcome_stands_exactly_when_the_caller_commits(
    make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    board = make_board(keep_done=LONG)
    job = claim_one(board)
    for end in ("rollback", "commit"):
        with engine.connect() as connection:
            board.consume(job, "anna", result=[end], connection=connection)
            with pytest.raises(NotFound):
                board.outcome(job)
            getattr(connection, end)()
    assert job.result(0) == ["commit"]


@pytest.mark.rule("Follow-ups are posted by the commit that consumes, or nothing is.")
def test_follow_ups_stand_exactly_when_the_caller_commits(
    board: JobBoard, engine: sa.Engine, events: list[str]
) -> None:
    board.post_many([Posting("old", key="k"), Posting("old"), Posting("old", key="window", key_for=LONG)])
    first, second, third = board.claim_many("anna", 3)
    eventually(lambda: len(events) == 6)
    for end in ("rollback", "commit"):
        events.clear()
        with engine.connect() as connection:
            [again] = board.consume(first, "anna", then=[Posting("new", key="k")], connection=connection)
            board.finish_many([Act(second, "consume", then=[Posting("new")] * 2)], "anna", connection=connection)
            [kept] = board.consume(third, "anna", then=[Posting("new", key="window")], connection=connection)
            assert (again.created, kept.created, kept) == (True, False, third)
            names = sa.select(board.table.c.name)
            assert connection.execute(names).scalars().all() == ["new"] * 3
            assert events == []
            getattr(connection, end)()
        assert [job.name for job in board.iterjobs()] == (["new"] * 3 if end == "commit" else ["old"] * 3)
        assert not any(job.claim.lost for job in (first, second, third) if job.claim)
    assert board.post("other", key="k") == again
    assert board.post("other", key="window") == third
    told = {"POSTED": 3, "CONSUMED": 3, "REMOVAL": 3}
    assert eventually(lambda: Counter(events) == told), events


def test_a_commit_that_fails_keeps_the_claim(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.post("a")
    job: Any = board.claim_next("anna")
    connection = engine.connect()
    board.consume(job, "anna", connection=connection)

    def refuse(_: Any) -> None:
        raise engine.dialect.loaded_dbapi.OperationalError("refused")

    with monkeypatch.context() as patched:
        patched.setattr(engine.dialect, "do_commit", refuse)
        with pytest.raises(sa.exc.OperationalError):
            connection.commit()
    assert job.claim in board.claims.held()
    connection.rollback()
    connection.close()
    assert board.job_count == 1


@pytest.mark.rule("A board decides in one place whose transaction a verb works in.")
def test_lost_claims_leave_the_callers_transaction_as_it_is(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([Posting("a")] * 4)
    jobs = board.claim_many("anna", 4)
    for job in jobs[1:3]:
        board.release(board.get(job.uuid))
    with engine.begin() as connection:
        with pytest.raises(ClaimLost):
            board.consume(jobs[1], "anna", connection=connection)
        with pytest.raises(JobFailures) as failed:
            board.consume_many([jobs[0], *jobs[2:]], "anna", connection=connection)
    assert len(failed.value.exceptions) == 1
    assert list(board.iterjobs()) == jobs[1:3]


def test_an_error_behind_the_commit_is_logged_alone(
    board: JobBoard, engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jobboard")
    board.post("a")
    board.claim_next("anna", expiry=600)
    handle = next(board.iterjobs())
    with engine.connect() as connection:
        # A handle without a claim is read again afterwards.
        board.abandon(handle, "anna", connection=connection)
        board.close()
        connection.commit()
    eventually(lambda: "could not be read again" in caplog.text)
    board.connect()
    assert board.claim_next("bert") == handle


@SERVERS
def test_a_transaction_in_two_phases_is_refused(board: JobBoard, engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.begin_twophase()
        with pytest.raises(JobFailure, match="in two phases"):
            board.post("a", connection=connection)
        assert connection.scalar(sa.select(1)) == 1
    assert board.job_count == 0


# Transactions beside others


@pytest.mark.rule("A key of the call's own job is not taken for another's.")
@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("on_key", ["keep", "replace"])
def test_a_batch_waits_for_a_key_that_another_stores(
    board: JobBoard, other: JobBoard, engine: sa.Engine, events: list[str], on_key: str
) -> None:
    """The postings before that key are stored by this batch, and are not taken for another's."""
    batch = [Posting("a"), Posting("b", key="own", on_key=on_key), Posting("c", key="other", on_key=on_key)]

    def post() -> list[tuple[bool, bool]]:
        with engine.begin() as connection:
            jobs = board.post_many(batch, connection=connection)
        return [(job.created, job.replaced) for job in jobs]

    with engine.connect() as first:
        other.post("c", key="other", connection=first)
        posting = Background(post)
        eventually(lambda: waiting(first))
        first.commit()
    assert posting.wait() == [(True, False), (True, False), (False, on_key == "replace")]
    eventually(lambda: len(events) >= 2 + (on_key == "replace"))
    assert [job.name for job in board.iterjobs()].count("b") == 1


@SERVERS
def test_a_deadlock_is_the_callers_to_repeat(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([Posting("a")] * 2)
    jobs = board.claim_many("anna", 2)
    both_have_one = threading.Barrier(2)

    def work(one: Any, other: Any) -> str:
        with engine.connect() as connection:
            board.trash(one, "anna", connection=connection)
            both_have_one.wait(20)
            try:
                board.trash(other, "anna", connection=connection)
            except JobFailure as error:
                return str(error)
            finally:
                connection.rollback()
        return "ok"

    threads = [Background(lambda order=order: work(*order)) for order in (jobs, jobs[::-1])]  # type: ignore[misc]
    _, failure = sorted((thread.wait(60) for thread in threads), key=lambda told: told != "ok")
    assert "roll it back, and do all of it again" in failure
    assert {job.claim for job in jobs} == set(board.claims.held())


# Connections that are refused before anything is written

Verbs = dict[str, Callable[[Any], object]]


@pytest.fixture
def verbs(board: JobBoard) -> Verbs:
    board.post_many([Posting("a")] * 5)
    jobs = board.claim_many("anna", 5)
    return {
        "post": lambda given: board.post("b", connection=given),
        "post_many": lambda given: board.post_many([Posting("b")], connection=given),
        "consume": lambda given: board.consume(jobs[0], "anna", connection=given),
        "consume_many": lambda given: board.consume_many([jobs[1]], "anna", connection=given),
        "abandon": lambda given: board.abandon(jobs[2], "anna", connection=given),
        "trash": lambda given: board.trash(jobs[3], "anna", connection=given),
        "finish_many": lambda given: board.finish_many([Act(jobs[4], "consume")], "anna", connection=given),
    }


def refused(verbs: Verbs, given: Any, match: str) -> None:
    for verb, act in verbs.items():
        with pytest.raises(JobFailure, match=match):
            act(given)
        assert not given.in_transaction(), f"{verb} has left a transaction open"


def nothing_was_written(board: JobBoard) -> None:
    stats = board.stats()
    assert (stats.claimed, stats.on_board, stats.trashed) == (5, 5, 0)
    assert len(board.claims.held()) == 5


def committing_each(engine: sa.Engine) -> Iterator[Any]:
    """Yield connections and a session that commit each statement, as the engine, an option or the driver has it."""
    alone = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with alone.connect() as connection, Session(alone) as session:
        yield connection
        yield session
    alone.dispose()
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        yield connection
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")
    if engine.dialect.name == "mariadb":
        with engine.connect() as connection:
            connection.exec_driver_sql("SET autocommit = 1")
            connection.rollback()
            yield connection
            connection.invalidate()

    def by_driver(raw: Any, _: Any) -> None:
        if engine.dialect.name == "sqlite":
            raw.isolation_level = None
        elif engine.dialect.name == "postgresql":
            raw.autocommit = True
        else:
            raw.autocommit(True)

    driven = sa.create_engine(engine.url)
    sa.event.listen(driven, "connect", by_driver)
    with driven.connect() as connection:
        yield connection
    driven.dispose()


@pytest.mark.rule("A board decides in one place whose transaction a verb works in.")
def test_a_connection_that_commits_each_statement_is_refused(board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
    for given in committing_each(engine):
        refused(verbs, given, "AUTOCOMMIT")
    with Session(engine) as session:
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(JobFailure, match="AUTOCOMMIT"):
            verbs["consume_many"](session)
    nothing_was_written(board)


@pytest.mark.rule("A PostgreSQL transaction of the caller's that has a snapshot is refused.")
@pytest.mark.backends("postgresql")
def test_a_transaction_with_a_snapshot_is_refused(board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with engine.connect().execution_options(isolation_level=level) as connection:
            refused(verbs, connection, f"at {level}, .* READ COMMITTED")
    nothing_was_written(board)


def test_an_engine_or_another_product_is_refused(board: JobBoard, engine: sa.Engine) -> None:
    for given in (engine, "a", 1):
        with pytest.raises(TypeError, match="Connection or Session"):
            board.post("a", connection=given)
    if engine.dialect.name != "sqlite":
        with (
            sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as connection,
            pytest.raises(JobFailure, match="sqlite"),
        ):
            board.post("a", connection=connection)


def test_a_session_needs_a_bind_for_the_table(board: JobBoard, engine: sa.Engine) -> None:
    orders = sa.Table("orders", sa.MetaData())
    with Session(binds={orders: engine}) as session, pytest.raises(JobFailure, match="bind"):
        board.post("a", connection=session)
    with Session(binds={board.table: engine}) as session:
        board.post("b", connection=session)
        session.commit()
    assert [job.name for job in board.iterjobs()] == ["b"]


def test_async_connections_work_through_run_sync_alone(board: JobBoard, engine: sa.Engine) -> None:
    async def main() -> None:
        theirs = create_async_engine(engine.url.set(drivername=ASYNC_DRIVERS[engine.dialect.name]))
        registry = async_scoped_session(async_sessionmaker(theirs), lambda: 1)
        async with theirs.connect() as connection, AsyncSession(theirs) as session:
            for given in (connection, session, registry, theirs):
                with pytest.raises(TypeError, match="run_sync"):
                    board.post("a", connection=given)
            await session.run_sync(lambda sync: board.post("a", connection=sync))
            await session.rollback()
            await session.run_sync(lambda sync: board.post_many([Posting("b")] * 2, connection=sync))
            await session.commit()
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(JobFailure, match="AUTOCOMMIT"):
                await connection.run_sync(lambda sync: board.post("c", connection=sync))
        await theirs.dispose()

    asyncio.run(main())
    assert [job.name for job in board.iterjobs()] == ["b"] * 2


@SQLITE
def test_a_savepoint_needs_a_transaction_that_was_begun_by_hand(board: JobBoard, engine: sa.Engine) -> None:
    """The driver's RELEASE of such a savepoint commits, and a rollback of the whole comes too late."""
    for given in (engine.connect(), Session(engine)):
        with given, given.begin_nested(), pytest.raises(JobFailure, match="BEGIN IMMEDIATE"):
            board.post("a", connection=given)
    with engine.connect() as connection:
        board.post("b", connection=connection)
        with connection.begin_nested():
            board.post("c", connection=connection)
        connection.rollback()
        with connection.begin_nested(), pytest.raises(JobFailure, match="BEGIN IMMEDIATE"):
            board.post("d", connection=connection)
    assert board.job_count == 0
    # As SQLAlchemy's documents tell, for transactions that hold what they have read.
    sa.event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    engine.dispose()
    with begin_by_hand(engine).connect() as connection:
        board.post("a", connection=connection)
        connection.rollback()
        with connection.begin_nested():
            board.post("b", connection=connection)
        connection.rollback()
        board.post("c", connection=connection)
        connection.commit()
    assert [job.name for job in board.iterjobs()] == ["c"]


class TestAnotherDatabase:
    def elsewhere(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        with engine.connect() as connection:
            refused(verbs, connection, "another database")
        with Session(engine) as session:
            refused(verbs, session, "another database")
        engine.dispose()
        nothing_was_written(board)

    @SQLITE
    def test_another_file_is_refused_and_another_path_is_not(
        self, board: JobBoard, engine: sa.Engine, verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with jobboard.backend("board", f"sqlite:///{tmp_path}/other.db"):
            pass
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(str(engine.url.database), tmp_path / "copy.db")
        for url in (f"sqlite:///{tmp_path}/other.db", f"sqlite:///{tmp_path}/copy.db", "sqlite://"):
            self.elsewhere(board, sa.create_engine(url, poolclass=sa.NullPool), verbs)
        file = Path(str(engine.url.database))
        (tmp_path / "linked").symlink_to(file.parent)
        monkeypatch.chdir(file.parent)
        for database in (f"{tmp_path}/linked/{file.name}", file.name):
            with sa.create_engine(f"sqlite:///{database}", poolclass=sa.NullPool).begin() as connection:
                board.post("here", connection=connection)
        assert len(list(board.iterjobs(names=["here"]))) == 2

    @SERVERS
    def test_another_database_of_the_server_is_refused(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            name = f"{engine.url.database}_other"
            try:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
                other = sa.create_engine(engine.url.set(database=name))
                board.table.metadata.create_all(other)
                self.elsewhere(board, other, verbs)
                if engine.dialect.name == "mariadb":
                    with engine.connect() as moved:
                        moved.exec_driver_sql(f"USE {name}")
                        with pytest.raises(JobFailure, match="another database"):
                            board.post("a", connection=moved)
                        moved.invalidate()
            finally:
                connection.exec_driver_sql(f"DROP DATABASE {name}")

    @pytest.mark.backends("postgresql")
    def test_another_schema_is_refused(self, board: JobBoard, engine: sa.Engine) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA tenant")
            connection.exec_driver_sql("SET LOCAL search_path TO tenant")
            board.table.metadata.create_all(connection)
        with engine.connect() as connection:
            board.post("here", connection=connection)
            connection.exec_driver_sql("SET LOCAL search_path TO tenant, public")
            with pytest.raises(JobFailure, match="another schema"):
                board.post("a", connection=connection)
            connection.exec_driver_sql("SET LOCAL search_path TO public, tenant")
            board.post("here", connection=connection)
            connection.commit()
            connection.exec_driver_sql("DROP SCHEMA tenant CASCADE")
            connection.commit()
        assert [job.name for job in board.iterjobs()] == ["here"] * 2

    @SERVERS
    def test_another_server_is_refused_and_another_name_or_a_restart_is_not(
        self, backend: str, private_server: Callable[..., Any], engine: sa.Engine
    ) -> None:
        server = private_server(backend)
        url = sa.make_url(server.uri)
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[backend]
        own = sa.create_engine(url.set(drivername=driver, host="localhost"), pool_pre_ping=True)
        zone = {"postgresql": "SET TIME ZONE 'Asia/Kathmandu'", "mariadb": "SET time_zone = '+05:45'"}[backend]
        with jobboard.backend("board", server.uri) as board:
            with own.begin() as connection:
                connection.exec_driver_sql(zone)
                board.post("here", connection=connection)
            with engine.connect() as connection, pytest.raises(JobFailure, match="another database"):
                board.post("a", connection=connection)
            server.restart()
            with own.begin() as connection:
                board.post("here", connection=connection)
            assert [job.name for job in board.iterjobs()] == ["here"] * 2
        own.dispose()


class TestPoolOfOne:
    """A board on an engine of the caller's with one connection, as functions in a cloud have. A second one would be
    waited for in vain, while the first one holds a transaction."""

    @pytest.fixture
    def one(self, engine: sa.Engine) -> Iterator[sa.Engine]:
        one = sa.create_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
        yield one
        one.dispose()

    @pytest.fixture
    def board(self, one: sa.Engine, board_conf: dict[str, Any], backend: str) -> Iterator[JobBoard]:
        conf = {**board_conf, "board": backend, "retry_for": 0.5}
        with jobboard.backend("board", conf, client=one) as board:
            yield board

    @pytest.mark.rule("A verb with connection= takes no second connection of the caller's pool.")
    @pytest.mark.parametrize("limit", [None, 9])
    def test_verbs_take_no_second_connection(
        self, board: JobBoard, one: sa.Engine, verbs: Verbs, limit: int | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        if limit:
            board.set_limit("a", concurrency=limit)
        given_back = board.post("c")
        board.claim(given_back, "anna", expiry=LONG)
        [again] = board.iterjobs(names=["c"])
        taken: list[str] = []

        def note(raw: Any, record: Any, proxy: Any) -> None:
            # The pool of heartbeats has the listeners of the caller's.
            if proxy._pool is one.pool:
                taken.append(verb)

        sa.event.listen(one, "checkout", note)
        caplog.set_level("INFO")
        # An abandon without the claim's handle reads the job after the commit.
        verbs["abandon by another handle"] = lambda given: board.abandon(again, "anna", connection=given)
        for verb in verbs:
            with Session(one) as session:
                verbs[verb](session)
                session.commit()
        assert taken == list(verbs)
        assert [record for record in caplog.records if record.name.startswith("jobboard")] == []
        assert (board.stats().claimed, board.stats().trashed) == (0, 1)

    @pytest.mark.rule("A verb with connection= takes no second connection of the caller's pool.")
    @SERVERS
    def test_a_restart_of_the_server_takes_no_second_connection(
        self, backend: str, private_server: Callable[..., Any]
    ) -> None:
        server = private_server(backend)
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[backend]
        url = sa.make_url(server.uri).set(drivername=driver)
        one = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.1, pool_pre_ping=True)
        with jobboard.backend("board", {"board": backend, "retry_for": 1}, client=one) as board:
            server.restart()
            connected: list[None] = []
            sa.event.listen(one.pool, "connect", lambda *_: connected.append(None))
            with Session(one) as session:
                board.post("a", connection=session)
                # Also not beside the pool.
                assert len(connected) == 1
                session.commit()
            assert board.job_count == 1
        one.dispose()

    def test_another_engine_is_compared_beside_the_pool(
        self, board: JobBoard, one: sa.Engine, engine: sa.Engine, backend: str
    ) -> None:
        with one.connect() as only, Session(engine) as session:
            only.exec_driver_sql("SELECT 1")
            assert board.engine.store is not None
            # As after a restart of the server.
            board.engine.store.joined._database = None
            board.post("a", connection=session)
            session.commit()
        assert board.job_count == 1

    @pytest.mark.rule("Connections beside a caller's pool have no limit.")
    def test_connections_beside_the_pool_have_no_limit(self, board: JobBoard) -> None:
        """A heartbeat does not wait for a thread that has ended claims, nor the thread for the heartbeat."""
        assert board.engine.store is not None
        links, both = board.engine.store.links, threading.Barrier(2, timeout=30)

        def use() -> None:
            with links.outside_pool(), links.held():
                both.wait()

        for each in [Background(use) for _ in range(2)]:
            each.wait()
