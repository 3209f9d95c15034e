"""The servers that the tests run on: they start, survive what they should, and leave nothing."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing import eventually, ports
from tests.support import server as server_module
from tests.support.servers import (
    KINDS,
    Etcd,
    MariaDB,
    MissingServer,
    PostgreSQL,
    Redis,
    Server,
    ServerError,
    ZooKeeper,
    running,
)
from tests.support.watchdog import clean_up, processes_in

with_server = pytest.mark.backends(*KINDS)


class Store:
    """One value in a server, through its own driver."""

    def __init__(self, server: Server) -> None:
        self._port = server.port

    def postgresql(self, value: str | None) -> str:
        import psycopg

        with psycopg.connect(
            f"host=127.0.0.1 port={self._port} user=postgres dbname=jobboard", autocommit=True
        ) as connection:
            if value is not None:
                connection.execute("CREATE TABLE kept (value text)")
                connection.execute("INSERT INTO kept VALUES (%s)", (value,))
            row = connection.execute("SELECT value FROM kept").fetchone()
        return str(row[0]) if row else ""

    def mariadb(self, value: str | None) -> str:
        import pymysql

        connection = pymysql.connect(
            host="127.0.0.1", port=self._port, user="root", database="jobboard", autocommit=True
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            if value is not None:
                cursor.execute("CREATE TABLE kept (value text)")
                cursor.execute("INSERT INTO kept VALUES (%s)", (value,))
            cursor.execute("SELECT value FROM kept")
            row = cursor.fetchone()
        return str(row[0]) if row else ""

    def redis(self, value: str | None) -> str:
        import redis

        with contextlib.closing(redis.Redis(port=self._port, decode_responses=True)) as client:
            if value is not None:
                client.set("kept", value)
            return str(client.get("kept"))

    def zookeeper(self, value: str | None) -> str:
        from kazoo.client import KazooClient

        client = KazooClient(f"127.0.0.1:{self._port}")
        client.start()
        try:
            if value is not None:
                client.create("/kept", value.encode())
            return client.get("/kept")[0].decode()
        finally:
            client.stop()
            client.close()

    def etcd(self, value: str | None) -> str:
        import json
        from base64 import b64decode, b64encode
        from urllib.request import urlopen

        def call(path: str, **given: bytes) -> Any:
            body = json.dumps({name: b64encode(each).decode() for name, each in given.items()})
            with urlopen(f"http://127.0.0.1:{self._port}/v3/kv/{path}", body.encode()) as response:
                return json.load(response)

        if value is not None:
            call("put", key=b"kept", value=value.encode())
        return b64decode(call("range", key=b"kept")["kvs"][0]["value"]).decode()


@pytest.fixture
def kind(backend: str) -> str:
    return backend


@with_server
def test_what_was_acknowledged_survives_a_crash_and_a_restart(
    kind: str, private_server: Callable[[str], Server]
) -> None:
    server = private_server(kind)
    before = server.uri
    access = getattr(Store(server), kind)
    assert access("treasure") == "treasure"

    server.kill()
    assert processes_in(server.folder) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
    server.start()
    assert access(None) == "treasure"

    server.restart()
    assert access(None) == "treasure"
    assert server.uri == before


@with_server
def test_a_paused_server_keeps_silent_until_it_is_resumed(kind: str, private_server: Callable[[str], Server]) -> None:
    server = private_server(kind)
    server.pause()
    state = re.compile(r"^State:\s+(.)", re.MULTILINE)
    states = [
        match[1]
        for pid in processes_in(server.folder)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if (match := state.search((task / "status").read_text()))
    ]
    assert set(states) == {"T"}
    server.resume()
    assert getattr(Store(server), kind)("treasure") == "treasure"


@with_server
def test_stop_leaves_nothing(kind: str) -> None:
    server = KINDS[kind]()
    server.start()
    folder, port = server.folder, server.port
    server.stop()
    assert not folder.exists()
    assert processes_in(folder) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
    server.stop()


STARTER = """
import os, sys, time
from tests.support.servers import KINDS
server = KINDS[sys.argv[1]]().start()
if os.fork() == 0:
    time.sleep(600)
print(server.folder, flush=True)
# A SIGINT that comes just before a sleep begins does not end it: Python answers when it is over.
while True:
    time.sleep(0.1)
"""


@with_server
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_goes_with_the_process_that_started_it(kind: str, number: signal.Signals) -> None:
    """Even while a child that was forked from it lives on, with all its open files."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, kind],
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


def test_a_folder_goes_while_files_are_still_made_in_it(tmp_path: Path) -> None:
    """Of a process that was killed one thread may end later than those by which it is known."""
    folder = tmp_path / "data"
    folder.mkdir()
    emptied = threading.Event()

    def make() -> None:
        with contextlib.suppress(FileNotFoundError):
            for number in range(2000):
                (folder / str(number)).touch()
                emptied.set()

    thread = threading.Thread(target=make)
    thread.start()
    assert emptied.wait(30)
    clean_up(folder)
    thread.join()
    assert not folder.exists()


@pytest.mark.backends("postgresql")
def test_a_crashed_postgresql_leaves_no_shared_memory() -> None:
    with PostgreSQL() as server:
        line = (server.folder / "data" / "postmaster.pid").read_text().splitlines()[6]
        segment = line.split()[1]
        assert segment in _segments()
        server.kill()
        assert segment in _segments()
    assert segment not in _segments()


def _segments() -> set[str]:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in lines}


@with_server
def test_starting_twice_is_refused(kind: str, private_server: Callable[[str], Server]) -> None:
    server = private_server(kind)
    with pytest.raises(ServerError, match="running already"):
        server.start()


@with_server
def test_a_start_that_fails_shows_the_log_and_leaves_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    prepare = KINDS[kind]._prepare

    def spoil(server: Server) -> None:
        prepare(server)
        folders.append(server.folder)
        monkeypatch.setattr(KINDS[kind], "_command", lambda _: ["sh", "-c", "echo no room here >&2; exit 3"])

    monkeypatch.setattr(KINDS[kind], "_prepare", spoil)
    with pytest.raises(ServerError, match=r"(?s)ended \(3\) while starting.*no room here"):
        KINDS[kind]().start()
    assert not folders[0].exists()


@with_server
def test_one_failure_among_several_stops_all(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent(Redis):
        def locate(self) -> None:
            raise self._missing("redis-server")

    good = KINDS[kind]()
    with pytest.raises(MissingServer), running(good, Absent()):
        pytest.fail("it must not come this far")
    with pytest.raises(ServerError, match="has not been started"):
        _ = good.folder


@pytest.mark.parametrize(
    ("server", "package"),
    [
        (PostgreSQL, "postgresql"),
        (MariaDB, "mariadb-server"),
        (Redis, "redis-server"),
        (ZooKeeper, "zookeeper"),
        (Etcd, "etcd-server"),
    ],
)
def test_a_missing_program_names_the_package(
    server: type[Server], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(MissingServer, match=f"apt-get install {package}"):
        server().start()


def test_two_servers_never_get_one_port() -> None:
    first, port = ports.reserve_port()
    with first, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "_PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match="no free port"):
            ports.reserve_port()
