"""Counts what is sent: statements (or commands, or requests), and round trips.

Servers are met through a proxy that reads along, with all drivers alike; SQLite tells by itself what it runs. Neither
is there while the time is taken.
"""

from __future__ import annotations

import abc
import contextlib
import re
import select
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from scene import Scene


class Counts(abc.ABC):
    @abc.abstractmethod
    def now(self) -> tuple[int, int | None]:
        """How many statements, and how many round trips, there have been; None where no server is."""

    @abc.abstractmethod
    def close(self) -> None: ...


class Stream:
    """What one connection's client sends, as it comes in."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> int:
        """How many statements begin in what is complete now."""
        self.rest += chunk
        found = 0
        while (step := self.step()) is not None:
            length, counts = step
            if len(self.rest) < length:
                break
            self.rest = self.rest[length:]
            found += counts
        return found

    def step(self) -> tuple[int, bool] | None:
        """How long the next message is, and whether it is a statement; None: too little has come to tell."""
        raise NotImplementedError


class PostgreSQLStream(Stream):
    greeted = False

    def step(self) -> tuple[int, bool] | None:
        if len(self.rest) < 8:
            # Sync and Terminate have no more than five.
            if not self.greeted or len(self.rest) < 5:
                return None
            return 1 + int.from_bytes(self.rest[1:5], "big"), False
        if self.greeted:
            return 1 + int.from_bytes(self.rest[1:5], "big"), self.rest[:1] in (b"Q", b"E")
        # To ask for encryption is no greeting yet.
        self.greeted = int.from_bytes(self.rest[4:8], "big") not in (80877103, 80877104)
        return int.from_bytes(self.rest[:4], "big"), False


class MariaDBStream(Stream):
    def step(self) -> tuple[int, bool] | None:
        if len(self.rest) < 5:
            return None
        # COM_QUERY and COM_STMT_EXECUTE, as the first packets of commands.
        counts = self.rest[3] == 0 and self.rest[4] in (0x03, 0x17)
        return 4 + int.from_bytes(self.rest[:3], "little"), counts


class RedisStream(Stream):
    def step(self) -> tuple[int, bool] | None:
        line = re.match(rb"\*(\d+)\r\n", self.rest)
        if line is None:
            return None
        end = line.end()
        for _ in range(int(line[1])):
            size = re.compile(rb"\$(\d+)\r\n").match(self.rest, end)
            if size is None:
                return None
            end = size.end() + int(size[1]) + 2
        return end, True


class ZooKeeperStream(Stream):
    greeted = False

    def step(self) -> tuple[int, bool] | None:
        if len(self.rest) < 12:
            return None
        # Pings and the goodbye are no requests.
        counts = self.greeted and int.from_bytes(self.rest[8:12], "big", signed=True) not in (11, -11)
        self.greeted = True
        return 4 + int.from_bytes(self.rest[:4], "big"), counts


_STREAMS: dict[str, type[Stream]] = {
    "postgresql": PostgreSQLStream,
    "mariadb": MariaDBStream,
    "redis": RedisStream,
    "zookeeper": ZooKeeperStream,
}


class Proxy(Counts):
    """Stands before a server. A round trip begins when somebody sends who has been answered, or has not sent before."""

    def __init__(self, target: tuple[str, int], stream: Callable[[], Stream]) -> None:
        self._statements = self._trips = 0
        self._target = target
        self._stream = stream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def now(self) -> tuple[int, int]:
        return self._statements, self._trips

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for side in (client, server):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._sockets.append(side)
                threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        stream, answered = self._stream(), True
        poll = select.poll()
        poll.register(client, select.POLLIN)
        poll.register(server, select.POLLIN)
        # Closed by the one who closes the proxy, or by either side.
        with contextlib.suppress(OSError, ValueError), client, server:
            asks, answers = client.fileno(), server.fileno()
            while True:
                ready = {number for number, _ in poll.poll()}
                if asks in ready:
                    if not (chunk := client.recv(1 << 20)):
                        return
                    self._trips += answered
                    answered = False
                    self._statements += stream.feed(chunk)
                    server.sendall(chunk)
                if answers in ready:
                    if not (chunk := server.recv(1 << 20)):
                        return
                    answered = True
                    client.sendall(chunk)


class Trace(Counts):
    """What SQLite runs on all connections that are made in this process from now on."""

    def __init__(self) -> None:
        self._statements = 0
        self._made: list[sqlite3.Connection] = []
        self._listens = True
        sys.addaudithook(self._heard)

    def now(self) -> tuple[int, None]:
        # They can't be told so while they are being made.
        while self._made:
            self._made.pop().set_trace_callback(self._ran)
        return self._statements, None

    def close(self) -> None:
        # A hook can't be taken away again.
        self._listens = False

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect/handle" and self._listens and isinstance(arguments[0], sqlite3.Connection):
            self._made.append(arguments[0])

    def _ran(self, text: str) -> None:
        self._statements += 1


@contextlib.contextmanager
def counted(scene: Scene, backend: str) -> Iterator[tuple[str, Counts]]:
    """A URI that leads to the same place; what is sent through connections made with it is counted."""
    if scene.address is None:
        with contextlib.closing(Trace()) as trace:
            yield scene.uri, trace
        return
    with contextlib.closing(Proxy(scene.address, _STREAMS[backend])) as proxy:
        parts = urlsplit(scene.uri)
        user, at, _ = parts.netloc.rpartition("@")
        yield urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{proxy.port}")), proxy
