"""The health of conductors: /livez and /readyz."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard import runtime
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.aio.tasks import Tasks
from jobboard.conductor import Conductor, health
from jobboard.testing import eventually
from tests.conftest import Runner
from tests.support.conductors import WAIT, Hanging, MakeBoard
from tests.support.probes import status

MEMORY = pytest.mark.backends("memory")
RULE = pytest.mark.rule("/livez tells whether the thread of run() looks, and /readyz whether a conductor takes jobs.")


@contextlib.contextmanager
def probed(conductor: Conductor) -> Iterator[Callable[[], tuple[int, int]]]:
    """A function that asks for /livez and /readyz."""
    with health.serving(conductor, 0) as address:
        yield lambda: (status(address, "livez"), status(address, "readyz"))


@contextlib.contextmanager
def later() -> Iterator[None]:
    """Some leases later, for clocks that are read within the block."""
    monotonic = runtime.monotonic
    with runtime.replaced({"monotonic": lambda: monotonic() + 1000}):
        yield


@RULE
@MEMORY
def test_a_conductor_is_ready_until_it_drains_and_alive_until_it_ends(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    board = make_board()
    conductor = Conductor("one", board, hanging, max_simultaneous_jobs=1)
    board.post("a")
    with probed(conductor) as probe:
        assert probe() == (200, 503)
        start(conductor)
        hanging.await_begin()
        # It has no room, and looks all the same.
        assert probe() == (200, 200)
        with later():
            eventually(lambda: conductor.alive)
        conductor.stop()
        assert probe() == (200, 503)
        hanging.gate.set()
        assert conductor.wait(WAIT)
        assert probe() == (503, 503)


@RULE
@MEMORY
def test_a_thread_of_run_that_hangs_is_not_alive(
    make_board: MakeBoard, start: Runner, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler of logs that blocks holds it up."""
    gate, blocked = threading.Event(), threading.Event()

    class Blocking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "after its timeout" in record.getMessage():
                blocked.set()
                gate.wait(WAIT)

    board = make_board(claim_ttl=1)
    board.post("a")
    blocking = Blocking()
    logging.getLogger("jobboard").addHandler(blocking)
    try:
        conductor = start(Conductor("one", board, hanging, job_timeout=0.01))
        with probed(conductor) as probe:
            assert blocked.wait(WAIT)
            with later():
                assert probe()[0] == 503
            gate.set()
            with later():
                eventually(lambda: conductor.alive)
    finally:
        gate.set()
        logging.getLogger("jobboard").removeHandler(blocking)


@RULE
@MEMORY
def test_a_loop_that_a_coroutine_holds_up_is_not_alive(make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the conductor's own thread looks."""
    sync, gate, begun, looked = make_board(), threading.Event(), threading.Event(), threading.Event()
    look = Tasks.look

    def count(self: Tasks) -> None:
        look(self)
        looked.set()

    monkeypatch.setattr(Tasks, "look", count)
    sync.post("a")

    async def handler(job: jobboard.Job) -> None:
        begun.set()
        assert gate.wait(WAIT)

    conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
    thread = threading.Thread(target=lambda: asyncio.run(conductor.run(until_empty=True, signals=False)))
    with probed(conductor.sync) as probe:
        thread.start()
        assert begun.wait(WAIT)
        with later():
            looked.clear()
            assert looked.wait(WAIT)
            assert probe()[0] == 503
        gate.set()
        thread.join(WAIT)
    assert conductor.tally.consumed == 1


@pytest.mark.rule("An outage of the backend leaves a conductor alive, and makes it unready until it ends.")
@pytest.mark.backends("redis", "postgresql")
def test_an_outage_leaves_it_alive_and_unready(backend: str, private_server: Any, start: Runner) -> None:
    server = private_server(backend)
    with jobboard.backend("board", {"board": server.uri, "retry_for": 0.5, "claim_ttl": 1}) as board:
        conductor = start(Conductor("one", board, lambda job: None))
        with probed(conductor) as probe:
            eventually(lambda: probe() == (200, 200))
            server.kill()
            eventually(lambda: probe()[1] == 503)
            with later():
                eventually(lambda: conductor.alive)
            assert probe() == (200, 503)
            server.start()
            eventually(lambda: probe() == (200, 200), 60)
        conductor.stop()
        assert conductor.wait(WAIT)


@MEMORY
def test_other_paths_and_bad_clients_harm_nothing(make_board: MakeBoard) -> None:
    conductor = Conductor("one", make_board(), lambda job: None)
    with health.serving(conductor, 0) as address:
        assert status(address, "") == status(address, "livezz") == 404
        assert status(address, "livez?verbose") == 200
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.sendall(b"GET /livez")
            assert status(address, "livez") == 200
        with pytest.raises(OSError, match=f"can't listen on 127.0.0.1:{port}: "), health.serving(conductor, port):
            pass
