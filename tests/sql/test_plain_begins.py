"""Transactions of a caller's on SQLite that begin by a plain BEGIN, as Django's and those of Python's newer drivers do.

Such a one waits for its turn as long as it has read nothing, and is refused at once where it has.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.orm import Updates
from jobboard.taskloop import TaskLoop
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.orm.models import Base, Job, Picture

pytestmark = pytest.mark.backends("sqlite")

PAST = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
WRITES = "REPLACE INTO done (number, key, who, token) VALUES (1, 'a', 'writer', 0)"


class Scene:
    """A file with a board, a task loop and models, and how the caller comes to it."""

    def __init__(self, uri: str, board: JobBoard) -> None:
        self.uri = uri
        self.board = board
        self.engine = sa.create_engine(uri)
        self.seen: list[str] = []

        @sa.event.listens_for(self.engine, "connect")
        def leave(raw: Any, _: Any) -> None:
            raw.isolation_level = None

        sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        Base.metadata.create_all(self.engine)
        with TaskLoop(self.engine, "loop") as loop:
            loop.create()
            loop.add([1, 2])
        with Session(self.engine) as session:
            session.add_all([Picture(id=1), Picture(id=2, acquired_by="carl", acquired_until=PAST), Job.create("a", 1)])
            session.commit()
        board.post("claimed")
        self.job: Any = board.claim_next("anna")
        sa.event.listen(self.engine, "before_cursor_execute", self._sees)

    def _sees(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        self.seen.append(statement)

    def within(self, act: Callable[[sa.Connection], Any]) -> Any:
        with self.engine.begin() as connection:
            return act(connection)

    def in_session(self, act: Callable[[Session], Any]) -> Any:
        with Session(self.engine) as session, session.begin():
            return act(session)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    uri = f"sqlite:///{tmp_path}/own.db"
    with jobboard.backend("board", uri) as board:
        scene = Scene(uri, board)
        yield scene
        scene.engine.dispose()


def of_its_own(scene: Scene) -> None:
    with scene.engine.connect() as connection:
        TaskLoop(connection, "loop").get(2)


ACTS: dict[str, Callable[[Scene], Any]] = {
    "post": lambda scene: scene.within(lambda given: scene.board.post("a", connection=given)),
    "consume": lambda scene: scene.within(lambda given: scene.board.consume(scene.job, "anna", connection=given)),
    "get": lambda scene: scene.within(lambda given: TaskLoop(given, "loop").get(2)),
    "get of somebody": lambda scene: scene.within(lambda given: TaskLoop(given, "loop").get(2, who="anna")),
    "a transaction of its own": of_its_own,
    "acquire": lambda scene: scene.in_session(lambda session: Picture.acquire(session, "bert")),
    "reacquire": lambda scene: scene.in_session(lambda session: Picture.reacquire(session, "carl")),
    "unacquire": lambda scene: scene.in_session(lambda session: Picture.unacquire(session, "carl")),
    "timed out": lambda scene: scene.in_session(Picture.unacquire_timed_out),
    "lock_it": lambda scene: scene.in_session(lambda session: Job.create("a", 1).lock_it(session, 2)),
    "update": lambda scene: scene.in_session(lambda session: Job.create("a", 1).update(session, Updates({"data": 1}))),
}


def beside_a_writer(scene: Scene, act: Callable[[Scene], Any]) -> Any:
    """What comes of an act that another's transaction is in the way of, which writes something and commits."""
    writer = sa.create_engine(scene.uri, poolclass=sa.NullPool)
    with writer.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.exec_driver_sql(WRITES)
        scene.seen.clear()
        acting = Background(lambda: act(scene))
        assert eventually(lambda: len(scene.seen) > 1 or not acting.running)
        connection.commit()
    writer.dispose()
    return acting.wait()


@pytest.mark.rule("A caller's plain BEGIN on SQLite waits for its turn to write.")
@pytest.mark.parametrize("act", ACTS)
def test_an_act_behind_a_plain_begin_waits_for_its_turn(scene: Scene, act: str) -> None:
    beside_a_writer(scene, ACTS[act])


@pytest.mark.rule("A caller's plain BEGIN on SQLite waits for its turn to write.")
def test_writes_to_an_acquired_row_wait_for_their_turn(scene: Scene) -> None:
    with Picture.acquiring(scene.engine, "anna") as pictures:
        pictures[0].done = True
        beside_a_writer(scene, lambda scene: pictures.session.commit())
        pictures[0].rank = 1
        beside_a_writer(scene, lambda scene: pictures.session.commit())


def read(connection: sa.Connection) -> None:
    connection.exec_driver_sql("SELECT count(*) FROM done")


@pytest.mark.rule("A caller's plain BEGIN on SQLite waits for its turn to write.")
def test_an_error_behind_a_read_names_the_way_out(scene: Scene) -> None:
    with scene.engine.connect() as writer:

        def act(connection: sa.Connection, verb: Callable[[], object], error: type[Exception]) -> None:
            read(connection)
            writer.exec_driver_sql(WRITES)
            writer.commit()
            with pytest.raises(error, match="lose at once"):
                verb()
            connection.rollback()

        with scene.engine.connect() as connection, Session(connection) as session:
            act(connection, lambda: scene.board.post("a", connection=connection), JobFailure)
            act(connection, lambda: TaskLoop(connection, "loop").get(1), JobFailure)
            session.begin()
            act(session.connection(), lambda: Picture.acquire(session, "bert"), sa.exc.OperationalError)


def test_an_act_without_changes_wakes_nobody(scene: Scene) -> None:
    with sa.create_engine(scene.uri, poolclass=sa.NullPool).connect() as other:

        def version() -> object:
            return other.exec_driver_sql("PRAGMA data_version").scalar()

        before = version()
        scene.in_session(lambda session: Picture.unacquire(session, "nobody"))
        assert version() == before
        scene.within(lambda given: scene.board.post("a", connection=given))
        assert version() != before


def test_reads_wait_for_nobody(scene: Scene) -> None:
    with scene.engine.connect() as writer:
        writer.exec_driver_sql(WRITES)
        assert scene.in_session(lambda session: Picture.acquired(session, "anna")) == []
        assert len(scene.in_session(lambda session: Job.query_by_status(session, 1))) == 1
        assert scene.within(lambda given: TaskLoop(given, "loop").stats())["locked"] == 0
