"""Base classes of all servers of tests: a folder, ports, a guard, and the ways to end them."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

from jobboard.testing import eventually
from jobboard.testing.ports import HOST, reserve_port
from tests.support import watchdog

TIMEOUT = 60
"""Seconds that a start or an orderly shutdown may take."""


class ServerError(RuntimeError):
    """A server did not start, or did not stop; the message ends with its log."""


class MissingServer(ServerError):
    """A server's programs are not on this machine; the message says which package brings them."""


class Server(ABC):
    """A server, or several that belong together. ``start`` it, use ``uri``, and ``stop`` it; or
    use it as a context manager.

    ``durable`` makes it wait for the disk as in production. Calls on one server must not overlap.
    """

    kind: ClassVar[str]
    package: ClassVar[str]
    _shutdown: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._reservations: list[socket.socket] = []
        self._port = 0

    @property
    @abstractmethod
    def uri(self) -> str:
        """The URI for boards, the same after a restart."""

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
        """Start the server and wait until it serves.

        After ``kill()``: on the same port, with the same data. Raises `MissingServer` if its
        programs are not installed, `ServerError` if it does not come up.
        """
        if any(process.poll() is None for process in self._processes()):
            raise ServerError(f"{self.kind} is running already")
        if self._folder is None:
            self.locate()
            try:
                self._make_folder()
                self._prepare()
                self._launch()
                self._finish_first_start()
            except BaseException:
                self.stop()
                raise
        else:
            self._launch()
        return self

    def stop(self) -> None:
        """Kill the server and remove all that it has left, its data too; at any time."""
        if self._guard is not None:
            self._guard.communicate(b".")
            self._guard = None
        # The guard may have been killed.
        if self._folder is not None and self._folder.exists():
            watchdog.clean_up(self._folder)
        for process in self._processes():
            process.wait()
        for reservation in self._reservations:
            reservation.close()
        self._reservations.clear()
        self._folder = None

    def kill(self) -> None:
        """SIGKILL to all its processes at once, as in a crash. ``start()`` brings it back."""
        watchdog.kill_all(self.folder)
        for process in self._processes():
            process.wait()

    def restart(self) -> None:
        """Shut down in order, then start on the same port with the same data."""
        limit = time.monotonic() + TIMEOUT
        while running := [process for process in self._processes() if process.poll() is None]:
            if time.monotonic() > limit:
                raise ServerError(f"{self.kind} does not shut down\n{self._log()}")
            # Again and again: Redis refuses as long as it writes its first file after a full sync.
            for process in running:
                process.send_signal(self._shutdown)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].wait(0.5)
        self.start()

    def pause(self) -> None:
        """SIGSTOP to all of the server's processes: connections stay open, and nothing answers."""
        watchdog.signal_all(self.folder, signal.SIGSTOP)
        # The signal is sent at once and takes effect a little later.
        while not all(map(watchdog.is_stopped, watchdog.processes_in(self.folder))):
            time.sleep(0.001)

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
    def locate(self) -> None:
        """Find the programs, or raise `MissingServer`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make the data of a new server."""

    @abstractmethod
    def _processes(self) -> list[subprocess.Popen[bytes]]:
        """Return the processes of the last start, including ended ones."""

    @abstractmethod
    def _launch(self) -> None:
        """Start what does not run, and wait until the server serves."""

    @abstractmethod
    def _serves(self) -> bool:
        """Return whether the server answers, or raise OSError if it does not."""

    def _finish_first_start(self) -> None:
        """Prepare a new server once it serves."""
        return

    def _user(self) -> str | None:
        """Return the system user to run as, None for our own."""
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

    def _reserve_port(self) -> int:
        """Return a port that no other server gets until this one is stopped."""
        reservation, port = reserve_port()
        self._reservations.append(reservation)
        return port

    def _spawn(self, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {}
        if user := self._user():
            options = {"user": user, "group": user, "extra_groups": []}
        # Ctrl-C reaches all processes of the terminal's session: the server has a session of its own.
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
            status = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status:
            raise ServerError(f"{Path(command[0]).name} failed ({status})\n{self._log()}")

    def _environment(self) -> dict[str, str]:
        # Settings for servers and clients of the developer's own must not reach servers of tests.
        alien = ("PG", "MYSQL", "MARIADB", "ZOO", "ETCD", "LC_", "LANG")
        own = {name: value for name, value in os.environ.items() if not name.startswith(alien)}
        # MariaDB clears its temporary folder as it starts, and other servers may have tables there.
        return {**own, "TMPDIR": str(self.folder)}

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + TIMEOUT
        while True:
            served = False
            with contextlib.suppress(OSError):
                served = condition()
            for process in self._processes():
                if (status := process.poll()) is not None:
                    raise ServerError(f"{self.kind} ended ({status}) while starting\n{self._log()}")
            if served:
                return
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
        path = os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])
        if (found := shutil.which(name, path=path)) is None:
            raise self._missing(name)
        return Path(found)

    def _missing(self, what: str) -> MissingServer:
        return MissingServer(
            f"{self.kind} needs {what}, which is not on this machine; install it "
            f"(Debian, Ubuntu: apt-get install {self.package}), or leave {self.kind} out"
        )


class Daemon(Server):
    """A server on a port of its own, whose processes come from one that stays in the foreground."""

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """Return the command of the server, which must stay in the foreground."""

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [] if self._process is None else [self._process]

    def _make_folder(self) -> None:
        super()._make_folder()
        self._port = self._reserve_port()

    def _launch(self) -> None:
        self._process = self._spawn(self._command())
        self._wait_until(self._serves)


class Cluster:
    """Servers that elect a leader; a context manager. ``uri`` names them all."""

    members: Sequence[Any]

    @property
    def uri(self) -> str:
        scheme = self.members[0].uri.partition("://")[0]
        return f"{scheme}://" + ",".join(f"{HOST}:{member.port}" for member in self.members)

    @property
    def leader(self) -> Any:
        """The one member that leads, once the members have elected it."""
        found: list[Any] = []

        def elected() -> bool:
            found[:] = [member for member in self.members if member.leads]
            return len(found) == 1

        try:
            eventually(elected, 30)
        except AssertionError:
            raise ServerError("the cluster has no leader") from None
        return found[0]

    def __enter__(self) -> Self:
        try:
            # A member serves only with a quorum, so all members start at the same time.
            with ThreadPoolExecutor(len(self.members)) as pool:
                list(pool.map(lambda member: member.start(), self.members))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for member in self.members:
            member.stop()


class TLSDaemon(Daemon):
    """A server that can serve TLS, with a certificate for 127.0.0.1 by a throw-away authority."""

    tls = False

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that a client has to trust."""
        return self.folder / "ca.crt"

    @property
    def cert_file(self) -> Path:
        """The server's certificate, which a client may show as its own."""
        return self.folder / "server.crt"

    @property
    def key_file(self) -> Path:
        """The key of ``cert_file``, without a password."""
        return self.folder / "server.key"

    def _certify(self) -> None:
        openssl = self._program("openssl")
        extensions = self.folder / "extensions"
        extensions.write_text(f"subjectAltName=IP:{HOST},DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        authority = self.folder / "ca.key"
        request = self.folder / "server.csr"
        self._run(
            *(openssl, *new, "-x509", "-days", "2", "-subj", "/CN=jobboard tests"),
            *("-addext", "keyUsage=critical,keyCertSign", "-keyout", authority, "-out", self.ca_file),
        )
        self._run(openssl, *new, "-subj", f"/CN={HOST}", "-keyout", self.key_file, "-out", request)
        self._run(
            *(openssl, "x509", "-req", "-days", "2", "-in", request, "-extfile", extensions),
            *("-CA", self.ca_file, "-CAkey", authority, "-CAcreateserial", "-out", self.cert_file),
        )

    def _connect(self) -> socket.socket:
        connection = super()._connect()
        if not self.tls:
            return connection
        context = ssl.create_default_context(cafile=self.ca_file)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context.wrap_socket(connection, server_hostname=HOST)
