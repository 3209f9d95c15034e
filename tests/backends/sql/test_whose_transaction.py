"""Which connections a board takes for a caller's transaction, and which it refuses before anything is written."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.job import Act, Posting
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

_ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+aiomysql"}

Verbs = dict[str, Callable[[Any], object]]


@pytest.fixture
def verbs(board: JobBoard) -> Verbs:
    board.post_many([Posting("a")] * 7)
    jobs = board.claim_many("anna", 7)
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
    assert (stats.claimed, stats.on_board, stats.trashed) == (7, 7, 0)
    assert len(board.claims.held()) == 7  # type: ignore[union-attr]


class TestAutocommit:
    def test_of_the_engine(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        alone = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT")
        with alone.connect() as connection:
            refused(verbs, connection, "AUTOCOMMIT")
            with connection.begin() as transaction, pytest.raises(JobFailure, match="AUTOCOMMIT"):
                verbs["post"](connection)
            assert not transaction.is_active
        with Session(alone) as session:
            refused(verbs, session, "AUTOCOMMIT")
        alone.dispose()
        nothing_was_written(board)

    def test_of_an_option(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            refused(verbs, connection, "AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            refused(verbs, connection, "AUTOCOMMIT")
        with Session(engine) as session:
            session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
            with pytest.raises(JobFailure, match="AUTOCOMMIT"):
                verbs["consume_many"](session)
        nothing_was_written(board)

    def test_of_the_driver(self, board: JobBoard, engine: sa.Engine, verbs: Verbs, backend: str) -> None:
        def told(raw: Any, _: Any) -> None:
            if backend == "sqlite":
                raw.isolation_level = None
            elif backend == "mariadb":
                raw.autocommit(True)
            else:
                raw.autocommit = True

        sa.event.listen(engine, "connect", told)
        with engine.connect() as connection:
            refused(verbs, connection, "AUTOCOMMIT")
        nothing_was_written(board)

    @pytest.mark.backends("mariadb")
    def test_of_the_session_at_the_server(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("SET autocommit = 1")
            connection.rollback()
            refused(verbs, connection, "AUTOCOMMIT")
        nothing_was_written(board)

    @pytest.mark.backends("sqlite")
    def test_a_transaction_that_is_begun_by_hand_is_one(self, board: JobBoard, engine: sa.Engine) -> None:
        """As SQLAlchemy's documents tell, for transactions that hold what they have read."""

        @sa.event.listens_for(engine, "connect")
        def leave(raw: Any, _: Any) -> None:
            raw.isolation_level = None

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        with engine.connect() as connection:
            board.post("a", connection=connection)
            connection.rollback()
            with connection.begin_nested():
                board.post("b", connection=connection)
            connection.rollback()
            board.post("c", connection=connection)
            connection.commit()
        assert [job.name for job in board.iterjobs()] == ["c"]


@pytest.mark.backends("sqlite")
def test_a_savepoint_before_which_nothing_was_begun(board: JobBoard, engine: sa.Engine) -> None:
    """The driver's RELEASE of it commits, and a rollback of the whole comes too late."""
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


class TestAnotherDatabase:
    def elsewhere(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        with engine.connect() as connection:
            refused(verbs, connection, "another database")
        with Session(engine) as session:
            refused(verbs, session, "another database")
        engine.dispose()
        nothing_was_written(board)

    @pytest.mark.backends("sqlite")
    def test_another_file(self, board: JobBoard, engine: sa.Engine, verbs: Verbs, tmp_path: Path) -> None:
        with jobboard.backend("board", f"sqlite:///{tmp_path}/other.db"):
            pass
        self.elsewhere(board, sa.create_engine(f"sqlite:///{tmp_path}/other.db"), verbs)
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(str(engine.url.database), tmp_path / "copy.db")
        self.elsewhere(board, sa.create_engine(f"sqlite:///{tmp_path}/copy.db"), verbs)
        self.elsewhere(board, sa.create_engine("sqlite://"), verbs)

    @pytest.mark.backends("sqlite")
    def test_another_path_to_the_file(
        self, board: JobBoard, engine: sa.Engine, verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = Path(str(engine.url.database))
        (tmp_path / "linked").symlink_to(file.parent)
        monkeypatch.chdir(file.parent)
        for database in (f"{tmp_path}/linked/{file.name}", file.name):
            with sa.create_engine(f"sqlite:///{database}").begin() as connection:
                board.post("here", connection=connection)
        assert len(list(board.iterjobs(names=["here"]))) == 2

    @pytest.mark.backends("postgresql", "mariadb")
    def test_another_database_of_the_server(
        self, board: JobBoard, engine: sa.Engine, verbs: Verbs, backend: str
    ) -> None:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            name = f"{engine.url.database}_other"
            try:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
                other = sa.create_engine(engine.url.set(database=name))
                board.engine.store.tables.metadata.create_all(other)
                self.elsewhere(board, other, verbs)
                if backend == "mariadb":
                    with engine.connect() as moved:
                        moved.exec_driver_sql(f"USE {name}")
                        with pytest.raises(JobFailure, match="another database"):
                            board.post("a", connection=moved)
                        moved.invalidate()
            finally:
                connection.exec_driver_sql(f"DROP DATABASE {name}")

    @pytest.mark.backends("postgresql")
    def test_another_schema(self, board: JobBoard, engine: sa.Engine, verbs: Verbs) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA tenant")
            connection.exec_driver_sql("SET LOCAL search_path TO tenant")
            board.engine.store.tables.metadata.create_all(connection)
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
        assert len(list(board.iterjobs(names=["here"]))) == 2

    @pytest.mark.backends("postgresql", "mariadb")
    def test_another_name_of_the_server(self, board: JobBoard, engine: sa.Engine, backend: str) -> None:
        """Of the host, and of the dialect."""
        driver = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[backend]
        other = sa.create_engine(engine.url.set(drivername=driver, host="localhost"))
        with other.begin() as connection:
            connection.exec_driver_sql(
                "SET TIME ZONE 'Asia/Kathmandu'" if backend == "postgresql" else "SET time_zone = '+05:45'"
            )
            board.post("here", connection=connection)
        other.dispose()
        assert board.job_count == 1

    @pytest.mark.backends("postgresql", "mariadb")
    def test_another_server_and_one_that_was_started_anew(
        self, backend: str, private_server: Callable[..., Any], server_uris: dict[str, str], engine: sa.Engine
    ) -> None:
        server = private_server(backend)
        with jobboard.backend("board", server.uri) as board:
            own = sa.create_engine(engine.url.set(**_where(server.uri)), pool_pre_ping=True)
            shared = sa.create_engine(engine.url.set(database=sa.make_url(server_uris[backend]).database))
            with own.begin() as connection:
                board.post("here", connection=connection)
            with shared.connect() as connection, pytest.raises(JobFailure, match="another database"):
                board.post("a", connection=connection)
            server.restart()
            with own.begin() as connection:
                board.post("here", connection=connection)
            assert [job.name for job in board.iterjobs()] == ["here"] * 2
            own.dispose()
            shared.dispose()


def _where(uri: str) -> dict[str, Any]:
    url = sa.make_url(uri)
    return {"port": url.port, "database": url.database}


class TestAsync:
    @pytest.fixture
    def run(self, engine: sa.Engine, backend: str) -> Callable[[Callable[[Any], Awaitable[Any]]], Any]:
        import asyncio

        async def main(work: Callable[[Any], Awaitable[Any]]) -> Any:
            theirs = create_async_engine(engine.url.set(drivername=_ASYNC_DRIVERS[backend]))
            try:
                return await work(theirs)
            finally:
                await theirs.dispose()

        return lambda work: asyncio.run(main(work))

    def test_what_is_async_is_refused(self, board: JobBoard, run: Any) -> None:
        async def work(engine: Any) -> None:
            registry = async_scoped_session(async_sessionmaker(engine), lambda: 1)
            async with engine.connect() as connection, AsyncSession(engine) as session:
                for given in (connection, session, registry, engine):
                    with pytest.raises(TypeError, match="run_sync"):
                        board.post("a", connection=given)

        run(work)
        assert board.job_count == 0

    def test_run_sync(self, board: JobBoard, run: Any) -> None:
        async def work(engine: Any) -> None:
            async with AsyncSession(engine) as session:
                await session.run_sync(lambda sync: board.post("a", connection=sync))
                await session.rollback()
                await session.run_sync(lambda sync: board.post_many([Posting("b")] * 2, connection=sync))
                await session.commit()
            async with engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                with pytest.raises(JobFailure, match="AUTOCOMMIT"):
                    await connection.run_sync(lambda sync: board.post("c", connection=sync))

        run(work)
        assert [job.name for job in board.iterjobs()] == ["b"] * 2


@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_is_refused(board: JobBoard, engine: sa.Engine, verbs: Verbs, level: str) -> None:
    with engine.connect().execution_options(isolation_level=level) as connection:
        refused(verbs, connection, f"at {level}, .* READ COMMITTED")
    nothing_was_written(board)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("given", ["a", 1])
def test_what_is_neither(board: JobBoard, given: Any) -> None:
    with pytest.raises(TypeError, match="Connection or Session"):
        board.post("a", connection=given)


@pytest.mark.backends("sqlite")
def test_a_database_that_is_busy_raises_no_error_of_the_drivers(board: JobBoard, engine: sa.Engine) -> None:
    hasty = sa.create_engine(engine.url, connect_args={"timeout": 0})
    with engine.connect() as writer, hasty.connect() as connection:
        writer.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(JobFailure, match="roll it back"):
            board.post("a", connection=connection)
        writer.rollback()
        board.post("b", connection=connection)
        connection.commit()
    hasty.dispose()
    assert [job.name for job in board.iterjobs()] == ["b"]


@pytest.mark.backends("postgresql", "mariadb")
def test_a_deadlock_is_the_callers_to_repeat(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([Posting("a")] * 2)
    jobs = board.claim_many("anna", 2)
    first_has = threading.Barrier(2)
    outcomes: list[object] = []

    def work(one: Any, other: Any) -> None:
        with engine.connect() as connection:
            board.trash(one, "anna", connection=connection)
            first_has.wait(20)
            try:
                board.trash(other, "anna", connection=connection)
                outcomes.append("ok")
            except JobFailure as error:
                outcomes.append(error)
            connection.rollback()

    threads = [threading.Thread(target=work, args=order) for order in (jobs, jobs[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [failure] = [each for each in outcomes if isinstance(each, JobFailure)]
    assert "roll it back, and do all of it again" in str(failure)
    held = board.claims.held()  # type: ignore[union-attr]
    assert {job.claim for job in jobs} == set(held)


def test_what_follows_a_commit_does_not_fail_it(
    board: JobBoard, engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    board.post("a")
    board.claim_next("anna", expiry=600)
    handle = next(board.iterjobs())
    with engine.connect() as connection:
        # A handle without a claim is read again afterwards.
        board.abandon(handle, "anna", connection=connection)
        board.close()
        connection.commit()
    assert eventually(lambda: "after the commit" in caplog.text)
    board.connect()
    assert board.claim_next("bert") == handle
