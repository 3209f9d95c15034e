"""Real servers for tests: on free ports, in temporary folders, gone without a trace afterwards.

    with running(PostgreSQL(), MariaDB()) as (postgresql, mariadb):
        board = jobboard.fetch('board', postgresql.uri)

Whatever becomes of the process that started a server (an exception, Ctrl-C, SIGKILL), the server's
processes, its folder and its shared memory go with it: see :mod:`tests.support.watchdog`. Linux
only, which has /proc and pidfds.

Servers are not durable unless asked (``durable=True``, for benchmarks): what a server has
acknowledged then survives a SIGKILL of its processes, but not a crash of the machine, because
nothing waits for the disk.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.etcd_servers import Etcd, EtcdCluster
from tests.support.redis_servers import Redis, RedisCluster, RedisSentinel
from tests.support.server import HOST, Daemon, MissingServer, Server, ServerError

__all__ = [
    "KINDS",
    "Etcd",
    "EtcdCluster",
    "MariaDB",
    "MissingServer",
    "PostgreSQL",
    "Redis",
    "RedisCluster",
    "RedisSentinel",
    "Server",
    "ServerError",
    "ZooKeeper",
    "running",
    "selected_backends",
]


class PostgreSQL(Daemon):
    """A PostgreSQL server, 300 connections; superuser ``postgres``, no password."""

    kind = "postgresql"
    package = "postgresql"
    # Does not wait for clients to leave.
    _shutdown = signal.SIGINT

    @property
    def uri(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/jobboard"

    def _user(self) -> str | None:
        # PostgreSQL refuses to run as root; its package brings this user.
        return "postgres" if os.geteuid() == 0 else None

    def locate(self) -> None:
        versions = sorted(
            Path("/usr/lib/postgresql").glob("*/bin"),
            key=lambda path: (len(path.parent.name), path.parent.name),
            reverse=True,
        )
        self._bin = self._program("initdb", *map(str, versions)).resolve().parent

    def _prepare(self) -> None:
        sync = () if self.durable else ("--no-sync",)
        self._run(
            self._bin / "initdb",
            *("--pgdata", self.folder / "data", "--username", "postgres", "--auth", "trust"),
            *("--encoding", "UTF8", "--no-locale", "--no-instructions", *sync),
        )

    def _command(self) -> list[str | Path]:
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 300,
            "max_prepared_transactions": 20,
            # Files of the data folder instead of /dev/shm, so that they go with it.
            "dynamic_shared_memory_type": "mmap",
            "fsync": "on" if self.durable else "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._bin / "postgres", "-D", self.folder / "data", *options]

    def _serves(self) -> bool:
        ready = (self._bin / "pg_isready", "--quiet", "--host", HOST, "--port", str(self.port))
        return subprocess.run(ready, check=False, env=self._environment()).returncode == 0

    def _finish_first_start(self) -> None:
        where = ("--host", HOST, "--port", str(self.port), "--username", "postgres")
        self._run(self._bin / "createdb", *where, "--no-password", "jobboard")


class MariaDB(Daemon):
    """A MariaDB server, 500 connections; user ``root``, no password."""

    kind = "mariadb"
    package = "mariadb-server"

    @property
    def uri(self) -> str:
        return f"mariadb://root@{HOST}:{self.port}/jobboard"

    def locate(self) -> None:
        self._install = self._program("mariadb-install-db")
        self._server = self._program("mariadbd", "/usr/sbin", "/usr/local/sbin", "/usr/libexec")

    def _as_user(self) -> tuple[str, ...]:
        # Without this option MariaDB refuses to run as root.
        return ("--user=root",) if os.geteuid() == 0 else ()

    def _speed(self) -> dict[str, str]:
        if self.durable:
            return {}
        # With 2, the system has each commit, and the system outlives the server.
        return {
            "innodb-flush-log-at-trx-commit": "2",
            "innodb-flush-method": "nosync",
            "innodb-doublewrite": "0",
        }

    def _prepare(self) -> None:
        (self.folder / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS jobboard;\n")
        self._run(
            self._install,
            *("--no-defaults", f"--datadir={self.folder / 'data'}", *self._as_user()),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
        )

    def _command(self) -> list[str | Path]:
        options = {
            "datadir": self.folder / "data",
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "init-file": self.folder / "init.sql",
            "bind-address": HOST,
            "port": self.port,
            "max-connections": 500,
            **self._speed(),
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return [self._server, "--no-defaults", *self._as_user(), "--skip-name-resolve", *given]

    def _serves(self) -> bool:
        # The port opens earlier, but the greeting comes only when the init file has been read.
        with self._connect() as connection:
            return bool(connection.recv(4096))


class ZooKeeper(Daemon):
    """A standalone ZooKeeper server."""

    kind = "zookeeper"
    package = "zookeeper"

    _home = Path("/usr/share/java/zookeeper.jar")

    @property
    def uri(self) -> str:
        return f"zookeeper://{HOST}:{self.port}"

    def locate(self) -> None:
        self._java = self._program("java")
        if not self._home.exists():
            raise self._missing(str(self._home))

    def _prepare(self) -> None:
        settings = {
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": HOST,
            # A session ends within a tick after its timeout, and clients may ask for short ones.
            "tickTime": 200,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 600_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "zoo.cfg").write_text("".join(lines))

    def _command(self) -> list[str | Path]:
        force = "yes" if self.durable else "no"
        # The JVM compiles less, and collects in one thread: a server of a test is too short-lived for more to pay.
        short = () if self.durable else ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return [
            self._java,
            *short,
            # Without the option the JVM leaves a file in /tmp when it is killed.
            *("-Xmx512m", "-XX:-UsePerfData", f"-Dzookeeper.forceSync={force}"),
            *("-cp", f"/etc/zookeeper/conf:{self._home}"),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"),
        ]

    def _serves(self) -> bool:
        # `ruok` is answered before the server serves.
        return b"Mode:" in self._ask(b"srvr")


KINDS: dict[str, type[Server]] = {server.kind: server for server in (PostgreSQL, MariaDB, Redis, ZooKeeper, Etcd)}

_SERVERLESS = ("memory", "sqlite")


def selected_backends() -> list[str]:
    """Return the names of the backends to test, from ``JOBBOARD_TEST_BACKENDS`` or all.

    :raises ValueError: a name is unknown. Names are separated by blanks or commas.
    """
    given = os.environ.get("JOBBOARD_TEST_BACKENDS") or "memory sqlite postgresql mariadb redis zookeeper etcd"
    names = given.replace(",", " ").split()
    known = (*_SERVERLESS, *KINDS)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"JOBBOARD_TEST_BACKENDS: unknown {', '.join(unknown)}; known are {', '.join(known)}")
    return names


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    """Start several servers at the same time, and stop them all at the end or when one fails."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        with ThreadPoolExecutor(max(1, len(servers))) as pool:
            starts = [pool.submit(server.start) for server in servers]
        for start in starts:
            start.result()
        yield servers
