"""The servers that the tests run on: they keep data through a crash, and leave nothing, whatever ends a run."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import jobboard
from jobboard.testing import eventually, ports
from tests.support.redis_servers import RedisCluster, RedisSentinel
from tests.support.servers import KINDS, MissingServer, Redis, Server, ServerError, running
from tests.support.watchdog import clean_up, is_stopped, processes_in

with_server = pytest.mark.backends(*KINDS)


@with_server
def test_a_server_keeps_acknowledged_data_through_a_crash_and_leaves_nothing(backend: str) -> None:
    server = KINDS[backend]().start()
    try:
        uri, folder, port = server.uri, server.folder, server.port
        with pytest.raises(ServerError, match="running already"):
            server.start()
        with jobboard.backend("board", uri) as board:
            job = board.post("treasure")
        server.pause()
        assert all(map(is_stopped, processes_in(folder)))
        server.resume()
        server.kill()
        assert processes_in(folder) == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        server.start()
        server.restart()
        assert server.uri == uri
        with jobboard.backend("board", uri) as board:
            assert list(board.iterjobs()) == [job]
    finally:
        server.stop()
    assert not folder.exists()
    assert processes_in(folder) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
    server.stop()


STARTER = """
import os, sys, time
from tests.support import servers
server = getattr(servers, sys.argv[1])().start()
if os.fork() == 0:
    time.sleep(600)
print(server.folder, flush=True)
# A SIGINT that comes just before a sleep begins ends no sleep: Python raises once it is over.
while True:
    time.sleep(0.1)
"""


def goes_with_its_starter(kind: type[Server], number: signal.Signals) -> None:
    """Even while a child that was forked from the starter lives on, with all its open files."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, kind.__name__],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert starter.stdout is not None
        line = starter.stdout.readline().strip()
        folder = Path(line)
        assert folder.is_absolute(), line + starter.communicate()[0]
        assert processes_in(folder)
        starter.send_signal(number)
        starter.wait(60)
        # A killed process may be held back by a disk that others keep busy.
        eventually(lambda: not folder.exists(), 60)
        assert processes_in(folder) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(starter.pid, signal.SIGKILL)
        starter.communicate()


# One server has another user's processes.
@pytest.mark.backends("postgresql", "redis")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_goes_with_the_process_that_started_it(backend: str, number: signal.Signals) -> None:
    goes_with_its_starter(KINDS[backend], number)


@pytest.mark.backends("redis")
def test_several_servers_go_with_the_process_that_started_them() -> None:
    goes_with_its_starter(RedisSentinel, signal.SIGKILL)


def test_a_folder_goes_while_files_are_still_made_in_it(tmp_path: Path) -> None:
    """One thread of a killed process may end later than the threads by which the process is known."""
    folder = tmp_path / "data"
    folder.mkdir()
    begun = threading.Event()

    def make() -> None:
        with contextlib.suppress(FileNotFoundError):
            for number in range(2000):
                (folder / str(number)).touch()
                begun.set()

    thread = threading.Thread(target=make)
    thread.start()
    assert begun.wait(30)
    clean_up(folder)
    thread.join()
    assert not folder.exists()


@pytest.mark.backends("redis")
def test_a_start_that_fails_shows_the_log_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the start of several servers, of which the second one fails."""
    program = tmp_path / "redis-server"
    good = shutil.which("redis-server")
    program.write_text(f'#!/bin/sh\ncase "$1" in */node1/*) exec {good} "$@";; esac\necho no room here >&2; exit 3\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for kind in (Redis, RedisSentinel, RedisCluster):
        with pytest.raises(ServerError, match=r"(?s)ended \(3\) while starting.*no room here"):
            kind().start()
        assert list(home.iterdir()) == []
        assert processes_in(home) == []


@pytest.mark.backends("redis")
def test_one_missing_server_of_several_stops_all() -> None:
    good = Redis()
    with (
        pytest.raises(MissingServer, match=r"needs no-such-server.*apt-get install redis-server"),
        running(good, Redis(program="no-such-server")),
    ):
        pytest.fail("it must not come this far")
    with pytest.raises(ServerError, match="has not been started"):
        _ = good.folder


def test_two_servers_never_get_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    first, port = ports.reserve_port()
    with first:
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match="no free port"):
            ports.reserve_port()
