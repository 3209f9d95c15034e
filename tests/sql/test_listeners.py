"""Engines whose listeners to the pool's events run statements, as for a tenant's schema. The driver begins a
transaction for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import jobboard
from jobboard.taskloop import TaskLoop
from jobboard.testing import eventually
from tests.orm.models import Base, Job, Picture

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

# A statement that changes the session as the listener's user needs it, and one that begins a transaction.
LISTENED = {
    "postgresql": ("SET search_path TO tenant", "SELECT number FROM listened"),
    "mariadb": ("SET @tenant = 7", "SELECT number FROM listened"),
    "sqlite": ("PRAGMA foreign_keys = on", "INSERT INTO listened VALUES (1)"),
}


@pytest.fixture(params=["connect", "checkout", "checkin"])
def engine(request: pytest.FixtureRequest, backend: str, engine: sa.Engine) -> Iterator[sa.Engine]:
    url = engine.url
    # The tables go at the end, and other tests of this run have some of the same names.
    apart = {"postgresql": "tenant", "mariadb": f"{url.database}_tenant"}.get(backend)
    with engine.begin() as connection:
        if apart:
            connection.exec_driver_sql(f"CREATE SCHEMA {apart}")
        connection.exec_driver_sql(f"CREATE TABLE {f'{apart}.' if apart else ''}listened (number INTEGER)")
    theirs = sa.create_engine(url.set(database=apart) if backend == "mariadb" else url)
    statements = LISTENED[backend]
    if request.param == "checkin" and backend == "sqlite":
        # A transaction that has written would stay in the pool with its lock on the whole file.
        statements = statements[:1]

    def look(raw: Any, *rest: object) -> None:
        if raw is None:
            # SQLAlchemy has closed the connection.
            return
        cursor = raw.cursor()
        for statement in statements:
            cursor.execute(statement)
            if cursor.description:
                cursor.fetchall()
        cursor.close()

    sa.event.listen(theirs, request.param, look)
    if request.param == "checkin" and backend == "postgresql":
        # The schema of the first use.
        sa.event.listen(theirs, "connect", look)
    yield theirs
    theirs.dispose()
    if apart:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA {apart}{' CASCADE' if backend == 'postgresql' else ''}")


@pytest.mark.rule("A listener to an engine's events may run statements.")
def test_a_board_works(engine: sa.Engine, backend: str, request: pytest.FixtureRequest) -> None:
    conf = {"board": backend, "retry_for": 2, "claim_ttl": 1}
    with jobboard.backend(request.node.name, conf, client=engine) as board:
        board.post_many([{"name": "a"}] * 2)
        job = board.claim_next("anna")
        # The heartbeat's connections have the listeners, too.
        first = job.claim.deadline
        eventually(lambda: job.claim.deadline > first + 0.5)
        board.consume(job, "anna")
        with Session(engine) as session:
            board.post("b", connection=session)
            session.commit()
        assert board.job_count == 2


@pytest.mark.rule("A listener to an engine's events may run statements.")
@pytest.mark.parametrize("bind", [lambda engine: engine, lambda engine: engine.connect])
def test_a_loop_works(engine: sa.Engine, bind: Callable[[sa.Engine], Any]) -> None:
    loop = TaskLoop(bind(engine), "listening_loop")
    loop.create()
    try:
        assert loop.add([1, 2]) == 2
        assert loop.did(loop.get(2)) == 2
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE listening_loop")


@pytest.mark.rule("A listener to an engine's events may run statements.")
def test_models_work(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([Picture(), Job(id="1", status=10)])
    with Picture.acquiring(engine, "anna") as rows:
        assert len(rows) == 1
    with Job.start(engine, "1", 10, 20, 30, 40, 50, expire=60, max_retry=3):
        pass
    with Session(engine) as session:
        assert session.get_one(Job, "1").status == 40
