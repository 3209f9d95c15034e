"""Connections that fall silent: no answer and no end, while the server is well and new connections work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.runtime import boottime
from jobboard.sql import connections
from jobboard.taskloop import TaskLoop
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from jobboard.testing.faults import FaultyProxy
from tests.backends.sql.conftest import engine_through, rows_locked
from tests.conftest import Refused

pytestmark = pytest.mark.backends("postgresql", "mariadb")

T = TypeVar("T")

OPTIONS = {"retry_for": 20, "claim_ttl": 3}
DEADLINE = connections.deadline(20, 3)


@pytest.fixture
def far(
    request: pytest.FixtureRequest,
    proxy: FaultyProxy,
    board_conf: dict[str, Any],
    make_board: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[JobBoard]:
    """The board through the proxy, over an engine of its own or one of the caller's. Half the usual deadline will do:
    a busy server's answer that is late for it is asked for again."""
    make_board()
    monkeypatch.setattr(connections, "_SHORTEST", 1.0)
    monkeypatch.setattr(connections, "_IDLE", 0.5)
    uri = proxy.uri_for(board_conf["board"])
    kind, ttl = getattr(request, "param", ("own", 3))
    options = {**board_conf, **OPTIONS, "claim_ttl": ttl}
    if kind == "own":
        with jobboard.backend("board", {**options, "board": uri}) as board:
            yield board
        return
    engine = engine_through(proxy, board_conf["board"])
    with jobboard.backend("board", {**options, "board": "sql"}, client=engine) as board:
        yield board
    engine.dispose()


def in_time(call: Callable[[], T]) -> T:
    """Return the result of a call that ends by itself. Without a deadline it would take minutes, or hours."""
    result: T = Background(call).wait(60)
    return result


def passed(seconds: float) -> bool:
    until = time.monotonic() + seconds
    return bool(eventually(lambda: time.monotonic() > until, seconds + 5))


@pytest.mark.rule("A silent connection is given up, and its locks do not stay.")
def test_a_request_that_is_lost_in_silence_is_repeated(far: JobBoard, proxy: FaultyProxy, decisive: bytes) -> None:
    fault = proxy.silence("request", matching=decisive)
    job = in_time(lambda: far.post("a"))
    assert fault.happened
    assert list(far.iterjobs()) == [job]
    far.claim(job, "anna")
    fault = proxy.silence("reply", matching=decisive)
    in_time(lambda: far.consume(job, "anna"))
    assert fault.happened
    assert far.job_count == 0


@pytest.mark.rule("A silent connection is given up, and its locks do not stay.")
def test_no_lock_of_a_silent_connection_stays(far: JobBoard, proxy: FaultyProxy) -> None:
    """The server holds what an open transaction has locked until it hears of the connection's end: for hours."""
    job = far.post("a")
    far.cancel(job)
    fault = proxy.silence("request", matching=b"COMMIT")
    in_time(lambda: far.purge(job))
    assert fault.happened
    with pytest.raises(NotFound):
        far.get(job.uuid)


@pytest.mark.rule("A silent connection is given up, and its locks do not stay.")
def test_looks_and_waits_go_on_by_new_connections(far: JobBoard, proxy: FaultyProxy) -> None:
    assert far.claim_next("anna") is None
    proxy.silence_all()
    assert in_time(lambda: far.claim_next("anna", timeout=1)) is None
    far.post("a")
    proxy.silence_all()
    assert in_time(lambda: far.wait(timeout=1))


@pytest.mark.rule("Kept claims are renewed before they lapse, though a connection is silent.")
@pytest.mark.parametrize("far", [("client", 15)], indirect=True, ids=["client"])
def test_kept_claims_are_renewed_before_they_lapse(far: JobBoard, proxy: FaultyProxy) -> None:
    far.post_many([{"name": "a"}] * 3)
    claims = [job.claim for job in far.claim_many("anna", 3)]
    ends = [claim.deadline for claim in claims]
    fault = proxy.silence("request", matching=b"skip locked")
    eventually(lambda: all(claim.deadline != end for claim, end in zip(claims, ends, strict=True)))
    assert boottime() < min(ends)
    assert fault.happened
    assert far.engine.store.links.unpooled.watch.cuts
    assert not any(claim.lost for claim in claims)


@pytest.mark.parametrize("far", [("own", 3), ("client", 3)], indirect=True, ids=["own", "client"])
def test_a_board_with_many_silent_connections_is_closed(far: JobBoard, proxy: FaultyProxy) -> None:
    many = 12
    idle, done = threading.Barrier(many + 1), threading.Event()

    def connected(board: JobBoard) -> None:
        assert board.job_count == 0
        idle.wait(20)
        done.wait(60)

    with ThreadPoolExecutor(many) as pool:
        for _ in range(many):
            pool.submit(connected, far)
        idle.wait(20)
        far.post("a")
        assert far.claim_next("anna") is not None
        proxy.silence_all()
        began = time.monotonic()
        far.close()
        took = time.monotonic() - began
        done.set()
    assert took < 2 * many, "each of them has been waited for"


@pytest.mark.rule("A store waits for a silent server no longer than hurry says.")
def test_a_store_in_a_hurry_waits_for_a_silent_server_as_long_as_it_is_told(
    far: JobBoard, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    store = far.engine.store
    assert store.now()
    store.hurry(0.5)
    proxy.silence_all()
    with contextlib.suppress(ConnectionFailure):
        store.now()
    assert eventually(lambda: "was silent for 0.5 s" in caplog.text)


@pytest.mark.rule("A board whose connections are silent and idle can be closed.")
@pytest.mark.parametrize("far", [("own", 3), ("client", 3)], indirect=True, ids=["own", "client"])
def test_idle_connections_are_closed_without_an_answer(
    far: JobBoard, proxy: FaultyProxy, refused: Refused, caplog: pytest.LogCaptureFixture
) -> None:
    """As at the end of the interpreter, where no thread can be started that would end a request."""
    far.post("a")
    watch = far.engine.store.links.watch
    assert eventually(lambda: not watch.awake)
    refused.add("*-connections")
    proxy.silence_all()
    in_time(far.close)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_sleeping_waiter_is_still_woken(
    far: JobBoard, proxy: FaultyProxy, make_board: Callable[..., Any], backend: str
) -> None:
    looks = proxy.counter({"postgresql": b"LISTEN", "mariadb": b"skip locked"}[backend])
    poster = make_board()
    for name in ("a", "b"):
        before = looks.count
        sleeping = Background(lambda: far.claim_next("anna", timeout=120))
        if name == "a":
            eventually(lambda: looks.count > before and far.engine.store.links.idle)  # noqa: B023
            proxy.silence_all()
        poster.post(name)
        assert sleeping.wait(60).name == name


@pytest.mark.rule("A request that waits for a lock is no silent one.")
def test_a_request_that_waits_for_a_lock_is_not_silent(
    proxy: FaultyProxy, board_conf: dict[str, Any], make_board: Callable[..., Any], engine: sa.Engine
) -> None:
    """It waits in turns that are shorter than the deadline."""
    board = make_board(board=proxy.uri_for(board_conf["board"]), retry_for=60, claim_ttl=3)
    job = board.post("a")
    with rows_locked(engine, board, job):
        claim = Background(lambda: board.claim(job, "anna"))
        assert passed(2 * DEADLINE)
        assert claim.running
    assert claim.wait(60).token
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


@pytest.mark.rule("A request that waits for a lock is no silent one.")
def test_a_setup_that_waits_for_another_is_not_silent(
    proxy: FaultyProxy, backend: str, engine: sa.Engine, board_conf: dict[str, Any], make_board: Callable[..., Any]
) -> None:
    """It waits for as long as the other takes."""
    lock, unlock = (text.format(make_board().table.name) for text in LOCKS[backend])
    board = jobboard.fetch("board", {**board_conf, "board": proxy.uri_for(board_conf["board"]), "retry_for": 1})
    with engine.connect() as locker:
        locker.exec_driver_sql(lock)
        setup = Background(board.setup)
        assert passed(2 * DEADLINE)
        assert setup.running
        locker.exec_driver_sql(unlock)
        setup.wait(60)


@pytest.mark.rule("A silent connection of a task loop is given up.")
def test_a_silent_connection_of_a_task_loop_is_given_up(proxy: FaultyProxy, board_conf: dict[str, Any]) -> None:
    engine = engine_through(proxy, board_conf["board"], poolclass=sa.NullPool)
    loop = TaskLoop(engine, f"{board_conf['table']}_loop")
    loop.create()
    loop.add([1])
    proxy.silence_all()
    assert list(in_time(lambda: loop.get(1, 60))) == [1]
    loop.close()


@pytest.mark.rule("A server that is silent is given up at the deadline, also behind a pooler.")
@pytest.mark.backends("postgresql")
def test_a_silent_request_behind_a_pooler_is_repeated(
    proxy: FaultyProxy, board_conf: dict[str, Any], make_board: Callable[..., Any]
) -> None:
    """There the server knows no sessions of the board."""
    board = make_board(board=proxy.uri_for(board_conf["board"]), notify=False, **OPTIONS)
    fault = proxy.silence("request", matching=b"_answers")
    in_time(lambda: board.post("a"))
    assert fault.happened
    assert board.job_count == 1


@pytest.mark.rule("A server that is silent is given up at the deadline, also behind a pooler.")
def test_a_silent_server_is_given_up(backend: str, private_server: Callable[..., Any]) -> None:
    server = private_server(backend)
    with jobboard.backend("board", {"board": server.uri, **OPTIONS, "retry_for": 1}) as board:
        board.post("a")
        assert board.claim_next("anna") is not None
        server.pause()
        with pytest.raises(ConnectionFailure):
            in_time(lambda: board.post("b"))
        in_time(board.close)
