"""Where it happens: a durable server of the benchmark's own, and what it and the client have spent so far."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ideals import connect_mariadb

from tests.support import watchdog
from tests.support.servers import KINDS, Server

BACKENDS = ("sqlite", "postgresql", "mariadb", "redis", "zookeeper")


class Spent(NamedTuple):
    """Seconds, and bytes; ``written`` is None where nobody counts them."""

    wall: float
    client: float
    server: float
    written: int | None

    def since(self, before: Spent) -> Spent:
        written = None if self.written is None or before.written is None else self.written - before.written
        # A log that was rewritten meanwhile tells nothing.
        written = None if written is not None and written < 0 else written
        return Spent(self.wall - before.wall, self.client - before.client, self.server - before.server, written)


class Scene:
    """SQLite, whose server is the client."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the server listens."""
        return None

    def version(self) -> str:
        import sqlite3

        return f"SQLite {sqlite3.sqlite_version}"

    def spent(self) -> Spent:
        return Spent(time.perf_counter(), time.process_time(), self.server_seconds(), self.written())

    def server_seconds(self) -> float:
        return 0.0

    def written(self) -> int | None:
        # Into the WAL, and from there into the database. There are no sockets here that it would count, too.
        counted = Path("/proc/self/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in counted if line.startswith("wchar"))

    def close(self) -> None:
        """Give the connection back that asks the server."""


class MemoryScene(Scene):
    """The memory of each process."""

    def version(self) -> str:
        return "memory"

    def written(self) -> None:
        return None


class ServerScene(Scene):
    def __init__(self, server: Server) -> None:
        super().__init__(server.uri)
        self.server = server

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.port

    def server_seconds(self) -> float:
        seconds = 0.0
        for pid in watchdog.processes_in(self.server.folder):
            # A process may end while we look.
            with contextlib.suppress(OSError):
                seconds += time.clock_gettime(cpu_clock(pid))
                # Of its children that have ended, as those of closed connections to PostgreSQL, in ticks.
                times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seconds += (int(times[13]) + int(times[14])) / os.sysconf("SC_CLK_TCK")
        return seconds


def cpu_clock(pid: int) -> int:
    """Linux' clock of what all threads of a process have used, as ``clock_getcpuclockid`` of C has it."""
    return (~pid << 3) | 2


class PostgreSQLScene(ServerScene):
    def __init__(self, server: Server) -> None:
        import psycopg

        super().__init__(server)
        self.connection = psycopg.connect(server.uri, autocommit=True)

    def version(self) -> str:
        return f"PostgreSQL {self._ask('SHOW server_version').split()[0]}"

    def written(self) -> int:
        return int(self._ask("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def _ask(self, question: str) -> Any:
        [(answer,)] = self.connection.execute(question.encode()).fetchall()
        return answer

    def close(self) -> None:
        self.connection.close()


class MariaDBScene(ServerScene):
    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.connection = connect_mariadb(server.uri, autocommit=True)

    def version(self) -> str:
        return f"MariaDB {self._ask('SELECT 0, version()').split('-')[0]}"

    def written(self) -> int:
        return int(self._ask("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'"))

    def _ask(self, question: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(question)
            return cursor.fetchall()[0][1]

    def close(self) -> None:
        self.connection.close()


class RedisScene(ServerScene):
    def __init__(self, server: Server) -> None:
        import redis

        super().__init__(server)
        self.client = redis.Redis.from_url(server.uri)

    def version(self) -> str:
        return f"Redis {self.client.info('server')['redis_version']}"

    def written(self) -> int:
        return int(self.client.info("persistence")["aof_current_size"])

    def close(self) -> None:
        self.client.close()


class ZooKeeperScene(ServerScene):
    def version(self) -> str:
        with socket.create_connection(self.address) as connection:
            connection.sendall(b"srvr")
            return "ZooKeeper " + connection.recv(4096).decode().split("version: ")[1].split("-")[0]

    def written(self) -> None:
        # Its log is laid out in advance.
        return None


class EtcdScene(ServerScene):
    def version(self) -> str:
        with urllib.request.urlopen(f"http://{self.server.uri.partition('//')[2]}/version") as answer:
            return f"etcd {json.load(answer)['etcdserver']}"

    def written(self) -> None:
        return None


_SCENES: dict[str, Any] = {
    "etcd": EtcdScene,
    "postgresql": PostgreSQLScene,
    "mariadb": MariaDBScene,
    "redis": RedisScene,
    "zookeeper": ZooKeeperScene,
}


@contextlib.contextmanager
def on(backend: str, folder: Path, volatile: bool = False) -> Iterator[Scene]:
    """A scene whose files lie below ``folder``, until the block ends. Its settings are the server's own, but for those
    that make it wait for the disk with each commit.

    :param volatile: take a folder in memory, too.
    :raises SystemExit: the folder is in memory, which would make durability free.
    """
    if backend == "memory":
        yield MemoryScene("memory://")
        return
    if in_memory(folder) and not volatile:
        raise SystemExit(
            f"{folder} is in memory, where nothing waits for a disk: name a folder on a disk with --folder, or leave "
            "the disk out of it with --volatile"
        )
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        if backend == "sqlite":
            with tempfile.TemporaryDirectory(prefix="jobboard-ideal-") as own:
                yield Scene(f"sqlite:///{own}/bench.db")
            return
        with KINDS[backend](durable=True) as server:
            scene: Scene = _SCENES[backend](server)
            with contextlib.closing(scene):
                yield scene
    finally:
        tempfile.tempdir = before


def in_memory(folder: Path) -> bool:
    kinds = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        kinds[Path(place)] = kind
    path = folder.resolve()
    return next(kinds[each] for each in (path, *path.parents) if each in kinds) in ("tmpfs", "ramfs")
