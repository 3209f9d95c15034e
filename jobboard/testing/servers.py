"""Real servers for tests: each on a free port of 127.0.0.1, in a temporary folder, gone without a trace afterwards.

    with running(PostgreSQL(), MariaDB()) as (postgresql, mariadb):
        board = jobboard.fetch('board', postgresql.uri)

Whatever becomes of the process that started a server (an exception, Ctrl-C, SIGKILL), the server's processes, its
folder and its shared memory go with it: see :mod:`jobboard.testing.watchdog`. Linux only, which has /proc and pidfds.

Servers are not durable unless asked (``durable=True``, for benchmarks): what a server has acknowledged then survives
a SIGKILL of its processes, but not a crash of the machine, because nothing waits for the disk.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

from jobboard.testing import watchdog

HOST = "127.0.0.1"
DATABASE = "jobboard"

# Below the ports that the system gives to outgoing connections: a client that keeps trying a port of that range while
# its server is down can end up connected to itself.
_PORTS = range(15000, 30000)


class ServerError(RuntimeError):
    """A server did not start, or did not stop; the message ends with its log."""


class MissingServer(ServerError):
    """A server's programs are not on this machine; the message says which package brings them."""


class Server(ABC):
    """One server. ``start`` it, use ``uri``, and ``stop`` it; or use it as a context manager.

    ``durable`` makes it wait for the disk as in production. ``timeout`` bounds each start and each orderly shutdown,
    in seconds. Calls on one server must not overlap.
    """

    kind: ClassVar[str]
    package: ClassVar[str]
    _shutdown: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, durable: bool = False, timeout: float = 60) -> None:
        self.durable = durable
        self.timeout = timeout
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reservation: socket.socket | None = None
        self._port = 0

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where a jobboard finds this server; the same after a restart."""

    @property
    def port(self) -> int:
        return self._port

    @property
    def folder(self) -> Path:
        """The server's files, and its output in the file ``log``."""
        if self._folder is None:
            raise ServerError(f"{self.kind} has not been started")
        return self._folder

    def start(self) -> Self:
        """Start the server and wait until it serves; after ``kill()``, on the same port with the same data.

        Raises `MissingServer` if its programs are not installed, `ServerError` if it does not come up.
        """
        if self._process is not None and self._process.poll() is None:
            raise ServerError(f"{self.kind} is running already")
        if self._folder is None:
            self._locate()
            try:
                self._make_folder()
                self._prepare()
                self._launch()
            except BaseException:
                self.stop()
                raise
        else:
            self._launch()
        return self

    def stop(self) -> None:
        """Kill the server and remove all that it has left, its data too. Without effect on what is not running."""
        if self._guard is not None:
            self._guard.communicate(b".")
            if self._guard.returncode:
                watchdog.clean_up(self.folder)
            self._guard = None
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        self._folder = None

    def kill(self) -> None:
        """SIGKILL to all of the server's processes at once, as in a crash. ``start()`` brings it back."""
        watchdog.kill_all(self.folder)
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Shut down in order, then start on the same port with the same data."""
        if self._process is not None:
            self._process.send_signal(self._shutdown)
            try:
                self._process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                raise ServerError(f"{self.kind} does not shut down\n{self._log()}") from None
        self.start()

    def pause(self) -> None:
        """SIGSTOP to all of the server's processes: connections stay open, and nothing answers."""
        watchdog.signal_all(self.folder, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause()``."""
        watchdog.signal_all(self.folder, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on port {self._port}>"

    @abstractmethod
    def _locate(self) -> None:
        """Find the programs, or raise `MissingServer`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make the data of a new server."""

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """What to run; it must stay in the foreground."""

    @abstractmethod
    def _serves(self) -> bool:
        """Whether the server answers. May raise OSError for no."""

    def _finish_first_start(self) -> None:
        """What a new server needs once it serves."""

    def _user(self) -> str | None:
        """The system user to run as, if not our own."""
        return None

    def _make_folder(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"jobboard-{self.kind}-"))
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, str(folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._folder = folder
        if user := self._user():
            shutil.chown(folder, user)
        self._reservation, self._port = _reserve_port()

    def _launch(self) -> None:
        first = self._process is None
        self._process = self._spawn(self._command())
        self._wait_until(self._serves)
        if first:
            self._finish_first_start()

    def _spawn(self, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {}
        if user := self._user():
            options = {"user": user, "group": user, "extra_groups": []}
        # A session of its own keeps Ctrl-C, which reaches all of the terminal's foreground, from the server.
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **options,
            )

    def _run(self, *command: str | Path) -> None:
        process = self._spawn(command)
        try:
            status = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status:
            raise ServerError(f"{Path(command[0]).name} failed ({status})\n{self._log()}")

    def _environment(self) -> dict[str, str]:
        # What steers a client or a server of the developer's own must not reach these.
        alien = ("PG", "MYSQL", "MARIADB", "ZOO", "LC_", "LANG")
        return {name: value for name, value in os.environ.items() if not name.startswith(alien)}

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + self.timeout
        process = self._process
        assert process is not None
        while True:
            with contextlib.suppress(OSError):
                if condition() and process.poll() is None:
                    return
            if (status := process.poll()) is not None:
                raise ServerError(f"{self.kind} ended ({status}) while starting\n{self._log()}")
            if time.monotonic() > limit:
                raise ServerError(f"{self.kind} does not answer\n{self._log()}")
            time.sleep(0.02)

    def _connect(self) -> socket.socket:
        return socket.create_connection((HOST, self._port), timeout=2)

    def _ask(self, question: bytes) -> bytes:
        with self._connect() as connection:
            connection.sendall(question)
            return connection.recv(4096)

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else "(no log)"

    def _program(self, name: str, *places: str) -> Path:
        return _program(name, self.kind, self.package, places)


class PostgreSQL(Server):
    """A PostgreSQL server, 300 connections; superuser ``postgres`` without a password, database ``jobboard``."""

    kind = "postgresql"
    package = "postgresql"
    # Does not wait for clients to leave.
    _shutdown = signal.SIGINT

    @property
    def uri(self) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/{DATABASE}"

    def _user(self) -> str | None:
        # PostgreSQL refuses to run as root; its package brings this user.
        return "postgres" if os.geteuid() == 0 else None

    def _locate(self) -> None:
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
            # Files of the data folder instead of /dev/shm, so that they go with it.
            "dynamic_shared_memory_type": "mmap",
            "fsync": "on" if self.durable else "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._bin / "postgres", "-D", self.folder / "data", *options]

    def _serves(self) -> bool:
        ready = [self._bin / "pg_isready", "--quiet", "--host", HOST, "--port", str(self.port)]
        return subprocess.run(ready, check=False, env=self._environment(), timeout=5).returncode == 0

    def _finish_first_start(self) -> None:
        where = ("--host", HOST, "--port", str(self.port), "--username", "postgres")
        self._run(self._bin / "createdb", *where, "--no-password", DATABASE)


class MariaDB(Server):
    """A MariaDB server, 500 connections; user ``root`` without a password, database ``jobboard``."""

    kind = "mariadb"
    package = "mariadb-server"

    @property
    def uri(self) -> str:
        return f"mariadb://root@{HOST}:{self.port}/{DATABASE}"

    def _locate(self) -> None:
        self._install = self._program("mariadb-install-db")
        self._server = self._program("mariadbd", "/usr/sbin", "/usr/local/sbin", "/usr/libexec")

    def _as_user(self) -> tuple[str, ...]:
        # Without it MariaDB refuses to run as root.
        return ("--user=root",) if os.geteuid() == 0 else ()

    def _speed(self) -> dict[str, str]:
        if self.durable:
            return {}
        # 2 hands each commit to the system, which outlives the server.
        return {
            "innodb-flush-log-at-trx-commit": "2",
            "innodb-flush-method": "nosync",
            "innodb-doublewrite": "0",
        }

    def _prepare(self) -> None:
        (self.folder / "init.sql").write_text(f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n")
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


class Redis(Server):
    """A standalone Redis server that appends to a file."""

    kind = "redis"
    package = "redis-server"

    @property
    def uri(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def _locate(self) -> None:
        self._server = self._program("redis-server")

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str | Path]:
        options = {
            "port": self.port,
            "bind": HOST,
            "dir": self.folder,
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always" if self.durable else "no",
        }
        given = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        return [self._server, *given]

    def _serves(self) -> bool:
        return self._ask(b"PING\r\n") == b"+PONG\r\n"


class ZooKeeper(Server):
    """A standalone ZooKeeper server."""

    kind = "zookeeper"
    package = "zookeeper"

    _home = Path("/usr/share/java/zookeeper.jar")

    @property
    def uri(self) -> str:
        return f"zookeeper://{HOST}:{self.port}"

    def _locate(self) -> None:
        self._java = self._program("java")
        if not self._home.exists():
            raise MissingServer(_how_to_install(str(self._home), self.kind, self.package))

    def _prepare(self) -> None:
        settings = {
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": HOST,
            "tickTime": 500,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "zoo.cfg").write_text("".join(lines))

    def _command(self) -> list[str | Path]:
        force = "yes" if self.durable else "no"
        return [
            self._java,
            *("-Xmx512m", f"-Dzookeeper.forceSync={force}"),
            *("-cp", f"/etc/zookeeper/conf:{self._home}"),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", self.folder / "zoo.cfg"),
        ]

    def _serves(self) -> bool:
        # `ruok` is answered before the server serves.
        return b"Mode:" in self._ask(b"srvr")


KINDS: dict[str, type[Server]] = {
    server.kind: server for server in (PostgreSQL, MariaDB, Redis, ZooKeeper)
}


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    """Start several servers at the same time, and stop them all at the end, also if one of them fails to start."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        with ThreadPoolExecutor(max(1, len(servers))) as pool:
            starts = [pool.submit(server.start) for server in servers]
        for start in starts:
            start.result()
        yield servers


def _program(name: str, kind: str, package: str, places: Sequence[str]) -> Path:
    path = os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])
    if (found := shutil.which(name, path=path)) is None:
        raise MissingServer(_how_to_install(name, kind, package))
    return Path(found)


def _how_to_install(what: str, kind: str, package: str) -> str:
    return (
        f"{kind} needs {what}, which is not on this machine; "
        f"install it (Debian, Ubuntu: apt-get install {package}), or leave {kind} out"
    )


def _reserve_port() -> tuple[socket.socket, int]:
    """A port that nothing listens on, and the socket whose life keeps it from other test processes."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        reservation = socket.socket(socket.AF_UNIX)
        # An abstract name: taken machine-wide, given back by the system when its holder dies.
        with contextlib.suppress(OSError), socket.socket() as probe:
            reservation.bind(f"\0jobboard-port-{port}")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return reservation, port
        reservation.close()
    raise ServerError("no free port")
