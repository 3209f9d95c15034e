"""A connection that falls silent: no answer, no end, while the server is well and new connections work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.job import boottime
from jobboard.sql import connections
from jobboard.taskloop import TaskLoop
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from jobboard.testing.faults import FaultyProxy
from tests.conftest import DRIVERS, Refused

pytestmark = pytest.mark.backends("postgresql", "mariadb")

OPTIONS = {"retry_for": 3, "claim_ttl": 3}
DEADLINE = connections.deadline(3, 3)


def both(claim_ttl: float) -> pytest.MarkDecorator:
    params = [(kind, claim_ttl) for kind in ("own", "client")]
    return pytest.mark.parametrize("far", params, indirect=True, ids=["own", "client"])


@pytest.fixture
def far(
    request: pytest.FixtureRequest,
    backend: str,
    proxy: FaultyProxy,
    board_conf: dict[str, Any],
    make_board: Callable[..., Any],
) -> Iterator[JobBoard]:
    """The board through the proxy, over an engine of its own or one of the caller's."""
    make_board()
    uri = proxy.uri_for(board_conf["board"])
    kind, ttl = getattr(request, "param", ("own", 3))
    options = {**board_conf, **OPTIONS, "claim_ttl": ttl}
    if kind == "own":
        with jobboard.backend("board", {**options, "board": uri}) as board:
            yield board
        return
    engine = sa.create_engine(sa.make_url(uri).set(drivername=DRIVERS[backend]))
    with jobboard.backend("board", {**options, "board": "sql"}, client=engine) as board:
        yield board
    engine.dispose()


@pytest.fixture
def in_time() -> Iterator[None]:
    """A call may take as long as it is repeated, and 10 seconds."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < OPTIONS["retry_for"] + 10


def passed(seconds: float) -> bool:
    until = time.monotonic() + seconds
    return bool(eventually(lambda: time.monotonic() > until, seconds + 5))


@both(3)
def test_post(far: JobBoard, proxy: FaultyProxy, decisive: bytes, in_time: None) -> None:
    fault = proxy.silence("request", matching=decisive)
    job = far.post("a")
    assert fault.happened
    assert [each.uuid for each in far.iterjobs()] == [job.uuid]


def test_consume_whose_reply_is_lost(far: JobBoard, proxy: FaultyProxy, decisive: bytes, in_time: None) -> None:
    job = far.post("a")
    far.claim(job, "anna")
    fault = proxy.silence("reply", matching=decisive)
    far.consume(job, "anna")
    assert fault.happened
    assert far.job_count == 0


def test_no_lock_of_a_silent_connection_stays(far: JobBoard, proxy: FaultyProxy, in_time: None) -> None:
    """The server holds what an open transaction has locked until it hears of the connection's end: for hours."""
    job = far.post("a")
    far.cancel(job)
    fault = proxy.silence("request", matching=b"COMMIT")
    far.purge(job)
    assert fault.happened
    with pytest.raises(NotFound):
        far.get(job.uuid)


def test_looking_for_work(far: JobBoard, proxy: FaultyProxy, in_time: None) -> None:
    assert far.claim_next("anna") is None
    proxy.silence_all()
    assert far.claim_next("anna", timeout=1) is None


def test_wait(far: JobBoard, proxy: FaultyProxy, in_time: None) -> None:
    far.post("a")
    proxy.silence_all()
    assert far.wait(timeout=1)


@both(9)
def test_kept_claims_are_renewed_before_they_lapse(far: JobBoard, proxy: FaultyProxy) -> None:
    far.post_many([{"name": "a"}] * 3)
    claims = [job.claim for job in far.claim_many("anna", 3)]
    ends = [claim.deadline for claim in claims]
    fault = proxy.silence("request", matching=b"skip locked")
    eventually(lambda: all(claim.deadline != end for claim, end in zip(claims, ends, strict=True)))
    assert boottime() < min(ends)
    assert fault.happened
    assert far.engine.store.links.apart.watch.cuts
    assert not any(claim.lost for claim in claims)


@both(3)
def test_close_while_many_threads_have_silent_connections(far: JobBoard, proxy: FaultyProxy) -> None:
    idle, done = threading.Barrier(9), threading.Event()

    def connected(board: JobBoard) -> None:
        assert board.job_count == 0
        idle.wait(10)
        done.wait(20)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(connected, far)
        idle.wait(10)
        far.post("a")
        assert far.claim_next("anna") is not None
        proxy.silence_all()
        began = time.monotonic()
        far.close()
        took = time.monotonic() - began
        done.set()
    assert took < 10


@both(3)
def test_close_of_idle_connections_needs_no_answer(
    far: JobBoard, proxy: FaultyProxy, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    """As at the end of the interpreter, where no thread can be started that would end a request."""
    far.post("a")
    watch = far.engine.store.links.watch
    assert eventually(lambda: not watch.awake)
    refused.add("*-connections")
    proxy.silence_all()
    Background(far.close).wait(10)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_one_who_sleeps_is_still_woken(
    far: JobBoard, proxy: FaultyProxy, make_board: Callable[..., Any], backend: str
) -> None:
    looks = proxy.counter({"postgresql": b"LISTEN", "mariadb": b"skip locked"}[backend])
    with ThreadPoolExecutor(1) as pool:
        for name in ("a", "b"):
            before = looks.count
            sleeping = pool.submit(far.claim_next, "anna", timeout=30)
            if name == "a":
                eventually(lambda: looks.count > before and far.engine.store.links.idle)  # noqa: B023
                proxy.silence_all()
            make_board().post(name)
            assert sleeping.result(15).name == name


def test_who_waits_for_a_lock_is_no_silent_one(
    proxy: FaultyProxy, board_conf: dict[str, Any], make_board: Callable[..., Any], engine: sa.Engine
) -> None:
    """It waits in turns that are shorter than the deadline."""
    board = make_board(board=proxy.uri_for(board_conf["board"]), retry_for=20, claim_ttl=3)
    job = board.post("a")
    with ThreadPoolExecutor(1) as pool, engine.connect() as locker:
        table = board.table
        locker.execute(sa.select(table.c.id).where(table.c.uuid == job.uuid).with_for_update())
        claim = pool.submit(board.claim, job, "anna")
        assert passed(2 * DEADLINE)
        assert not claim.done()
        locker.rollback()
        assert claim.result(20).token
    assert board.engine.store.links.watch.cuts == 0
    assert board.get(job.uuid).attempts == 1


LOCKS = {
    "postgresql": (
        "SELECT pg_advisory_lock(hashtextextended('{}', 0))",
        "SELECT pg_advisory_unlock(hashtextextended('{}', 0))",
    ),
    "mariadb": (
        "SELECT GET_LOCK(MD5(CONCAT(DATABASE(), '{}')), 10)",
        "SELECT RELEASE_LOCK(MD5(CONCAT(DATABASE(), '{}')))",
    ),
}


def test_a_setup_that_waits_for_another_is_no_silent_one(
    far: JobBoard, proxy: FaultyProxy, backend: str, engine: sa.Engine, board_conf: dict[str, Any]
) -> None:
    """And it waits for as long as the other takes."""
    lock, unlock = (text.format(far.engine.store.tables.prefix) for text in LOCKS[backend])
    board = jobboard.fetch("board", {**board_conf, "board": proxy.uri_for(board_conf["board"]), "retry_for": 1})
    with ThreadPoolExecutor(1) as pool, engine.connect() as locker:
        locker.exec_driver_sql(lock)
        setup = pool.submit(board.setup)
        assert passed(2 * DEADLINE)
        assert not setup.done()
        locker.exec_driver_sql(unlock)
        setup.result(20)


def test_a_task_loop(backend: str, proxy: FaultyProxy, board_conf: dict[str, Any]) -> None:
    url = sa.make_url(proxy.uri_for(board_conf["board"])).set(drivername=DRIVERS[backend])
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    loop = TaskLoop(engine, f"{board_conf['table']}_loop")
    loop.create()
    loop.add([1])
    proxy.silence_all()
    began = time.monotonic()
    held = loop.get(1, 60)
    assert list(held) == [1]
    assert time.monotonic() - began < 15
    loop.close()


@pytest.mark.backends("postgresql")
def test_behind_a_pooler_where_the_server_knows_no_sessions_of_ours(
    proxy: FaultyProxy, board_conf: dict[str, Any], make_board: Callable[..., Any], in_time: None
) -> None:
    board = make_board(board=proxy.uri_for(board_conf["board"]), notify=False, **OPTIONS)
    fault = proxy.silence("request", matching=b"_answers")
    board.post("a")
    assert fault.happened
    assert board.job_count == 1


def test_a_server_that_says_nothing_at_all(
    backend: str, private_server: Callable[..., Any], make_board: Callable[..., Any]
) -> None:
    server = private_server(backend)
    with jobboard.backend("board", {"board": server.uri, **OPTIONS, "retry_for": 1}) as board:
        board.post("a")
        assert board.claim_next("anna") is not None
        server.pause()
        began = time.monotonic()
        with pytest.raises(ConnectionFailure):
            board.post("b")
        assert time.monotonic() - began < 1 + 10
        began = time.monotonic()
        board.close()
        assert time.monotonic() - began < 10
