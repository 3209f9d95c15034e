"""Verbs in a transaction of the caller's."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.testing.conformance.support import eventually

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.fixture
def events(board: JobBoard) -> list[str]:
    seen: list[str] = []
    board.notifier.register("*", lambda event, details: seen.append(event))
    return seen


def test_a_post_is_there_when_the_caller_commits(board: JobBoard, engine: sa.Engine, events: list[str]) -> None:
    with engine.begin() as connection:
        job = board.post("a", details={"n": 1}, connection=connection)
        assert connection.execute(sa.select(board.table.c.name)).scalars().all() == ["a"]
        assert events == []
    assert board.get(job.uuid).details == {"n": 1}
    assert eventually(lambda: events == ["POSTED"])


def test_a_post_is_never_there_when_the_caller_rolls_back(
    board: JobBoard, engine: sa.Engine, events: list[str]
) -> None:
    with engine.connect() as connection:
        board.post("a", connection=connection)
        board.post("b", key="k", delay=5, connection=connection)
        connection.rollback()
    board.post("c")
    assert [job.name for job in board.iterjobs()] == ["c"]
    assert eventually(lambda: "POSTED" in events)
    assert events == ["POSTED"]


def test_a_key_outlives_its_job_when_the_caller_commits(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a", key="k", key_for=600)
    board.claim(job, "anna")
    for end in ("rollback", "commit"):
        with engine.connect() as connection:
            board.consume(job, "anna", connection=connection)
            again = board.post("a", key="k", connection=connection)
            assert (again.uuid, again.created, again.seen_state) == (job.uuid, False, "COMPLETE")
            getattr(connection, end)()
        assert board.post("a", key="k").state == ("CLAIMED" if end == "rollback" else "COMPLETE")


def test_a_job_is_replaced_when_the_caller_commits(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a", details={"n": 1}, key="k")
    for end, n in (("rollback", 1), ("commit", 2)):
        with engine.connect() as connection:
            again = board.post("a", details={"n": 2}, key="k", on_key="replace", connection=connection)
            assert (again.uuid, again.replaced, again.details) == (job.uuid, True, {"n": 2})
            getattr(connection, end)()
        assert board.get(job.uuid).details == {"n": n}


def test_a_connection_that_is_closed_has_not_committed(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a")
    claim = board.claim(job, "anna")
    with engine.connect() as connection:
        board.consume(job, "anna", connection=connection)
        assert claim not in board.claims.held()
    assert board.job_count == 1
    assert claim in board.claims.held()
    board.consume(job, "anna")


@pytest.mark.parametrize("verb", ["consume", "abandon", "trash"])
def test_the_end_of_a_claim(board: JobBoard, engine: sa.Engine, events: list[str], verb: str) -> None:
    board.post("a")
    job = board.claim_next("anna")
    assert job is not None
    with engine.connect() as connection:
        getattr(board, verb)(job, "anna", connection=connection)
        assert verb.upper() not in str(events)
        connection.rollback()
    assert board.find_owner(job) == "anna"
    assert job.claim in board.claims.held()
    with engine.begin() as connection:
        getattr(board, verb)(job, "anna", connection=connection)
    assert job.claim not in board.claims.held()
    assert board.find_owner(job) is None
    assert eventually(lambda: any(event.startswith(verb.upper()) for event in events))


def test_a_savepoint_that_is_rolled_back_takes_its_verbs_along(board: JobBoard, engine: sa.Engine) -> None:
    for name in "abc":
        board.post(name)
    first, second, third = board.claim_many("anna", 3)
    if engine.dialect.name == "sqlite":
        # The driver begins no transaction before a savepoint by itself.
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connection:
        board.consume(first, "anna", connection=connection)
        with connection.begin_nested() as savepoint:
            board.consume(second, "anna", connection=connection)
            savepoint.rollback()
        held = board.claims.held()
        assert second.claim in held
        assert first.claim not in held
        with connection.begin_nested():
            board.consume(third, "anna", connection=connection)
    assert [job.uuid for job in board.iterjobs()] == [second.uuid]


def test_a_commit_that_fails_is_no_commit(board: JobBoard, engine: sa.Engine, monkeypatch: Any) -> None:
    board.post("a")
    job = board.claim_next("anna")
    connection = engine.connect()
    board.consume(job, "anna", connection=connection)

    def refuse(_: Any) -> None:
        raise engine.dialect.dbapi.OperationalError("refused")

    with monkeypatch.context() as patched:
        patched.setattr(engine.dialect, "do_commit", refuse)
        with pytest.raises(sa.exc.OperationalError):
            connection.commit()
    assert job.claim in board.claims.held()
    connection.rollback()
    connection.close()
    assert board.job_count == 1


def test_an_orm_session(board: JobBoard, engine: sa.Engine) -> None:
    with Session(engine) as session:
        board.post("a", connection=session.connection())
        session.commit()
        board.post("b", connection=session.connection())
    assert [job.name for job in board.iterjobs()] == ["a"]


def test_a_key_that_is_taken(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a", key="k")
    with engine.begin() as connection:
        assert board.post("b", key="k", connection=connection).uuid == job.uuid


def test_a_claim_that_is_lost(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a")
    board.claim(job, "anna")
    board.release(board.get(job.uuid))
    with engine.begin() as connection, pytest.raises(ClaimLost):
        board.consume(job, "anna", connection=connection)
    assert board.job_count == 1


def test_heartbeats_pass_over_what_the_caller_has_locked(
    board: JobBoard, engine: sa.Engine, make_board: Callable[..., Any]
) -> None:
    board = make_board(claim_ttl=5)
    for name in "ab":
        board.post(name)
    first, second = board.claim_many("anna", 2)
    before = {job.uuid: board.engine.raw.read([job.uuid])[0].record.lock_until for job in (first, second)}
    with engine.connect() as connection:
        board.consume(first, "anna", connection=connection)
        held = [(job.uuid, job.claim.token) for job in (first, second)]
        if engine.dialect.name == "sqlite":
            # One writer at a time: this beat is given up soon, and the next comes after the commit.
            with pytest.raises(JobFailure):
                board.engine.raw.renew(board.engine.handle, held, 5_000_000)
            connection.rollback()
        else:
            renewed = board.engine.raw.renew(board.engine.handle, held, 5_000_000)
            assert renewed.lost == []
            assert board.engine.raw.read([second.uuid])[0].record.lock_until > before[second.uuid]
            connection.rollback()
            assert board.engine.raw.read([first.uuid])[0].record.lock_until == before[first.uuid]
    assert board.engine.raw.renew(board.engine.handle, held, 5_000_000).lost == []


def test_another_kind_of_database_is_refused(board: JobBoard, engine: sa.Engine) -> None:
    other = sa.create_engine("sqlite://") if engine.dialect.name != "sqlite" else None
    with pytest.raises(TypeError, match="Connection"):
        board.post("a", connection=engine)
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(JobFailure, match="AUTOCOMMIT"),
    ):
        board.post("a", connection=connection)
    if other is not None:
        with other.connect() as connection, pytest.raises(JobFailure, match="sqlite"):
            board.post("a", connection=connection)


def test_where_narrows_and_keeps_the_order(board: JobBoard) -> None:
    for name, priority in (("a", "LOW"), ("b", "HIGH"), ("c", "NORMAL"), ("d", "LOW")):
        board.post(name, priority=priority)
    low = board.table.c.priority >= 100
    assert [job.name for job in board.claim_many("anna", 5, where=low)] == ["c", "a", "d"]
    assert board.claim_next("anna", where=low) is None
    assert board.claim_next("anna", where=board.table.c.name == "b", names=["a", "c"]) is None
    with board.working("anna", where=board.table.c.name == sa.literal("b")) as job:
        assert job.name == "b"


def test_where_is_asked_again_under_the_lock(board: JobBoard, engine: sa.Engine, spy: Any) -> None:
    board.post_many([{"name": "a"}, {"name": "a"}])
    [first, second] = list(board.iterjobs())
    changed: list[bool] = []

    def before(text: str) -> None:
        looked = any("LIMIT" in text for text in seen.texts)
        if looked and not changed and engine.dialect.name != "sqlite":
            changed.append(True)
            with engine.begin() as connection:
                table = board.table
                connection.execute(sa.update(table).where(table.c.uuid == first.uuid).values(name="b"))

    with spy(board, before) as seen:
        job = board.claim_next("anna", where=board.table.c.name == "a")
    assert job.uuid == (second.uuid if changed else first.uuid)


@pytest.mark.backends("postgresql")
def test_what_listened_on_a_lost_connection_leaves_nothing_open(board: JobBoard, engine: sa.Engine) -> None:
    def listening() -> Any:
        board.claim_next("anna", timeout=0.1)
        return board.engine.store.waiter._listener

    listener = eventually(listening)
    assert listener.listens
    with engine.begin() as connection:
        listening = "query LIKE :listen AND datname = :here"
        connection.execute(
            sa.select(sa.func.pg_terminate_backend(sa.column("pid")))
            .select_from(sa.table("pg_stat_activity"))
            .where(sa.text(listening)),
            {"listen": "LISTEN %", "here": engine.url.database},
        )
    assert eventually(lambda: listener._stopper.fileno() == listener._stopped.fileno() == -1)


@pytest.mark.parametrize("limited", [False, True])
def test_parameters_of_a_condition_that_are_named_like_the_boards(board: JobBoard, limited: bool) -> None:
    if limited:
        board.set_limit("a", concurrency=9)
    board.post_many([{"name": name} for name in "abababb"])
    # A comparison names its parameter like the column.
    other = sa.select(sa.literal("x").label("p_name")).subquery("other")
    name = board.table.c.name
    for condition in (
        name == sa.bindparam("p_board", "b"),
        name.in_(sa.bindparam("p_limit", ["b"], expanding=True)),
        sa.and_(name == "b", sa.select(other.c.p_name).where(other.c.p_name == "x").exists()),
        sa.text("name = :board").bindparams(board="b"),
    ):
        [job] = board.claim_many("anna", 1, where=condition)
        assert job.name == "b"


@pytest.mark.parametrize("where", ["name = 'a'", 1, sa.text("name = :unbound")], ids=str)
def test_what_is_no_condition(board: JobBoard, where: object) -> None:
    with pytest.raises(TypeError, match="where="):
        board.claim_next("anna", where=where)
