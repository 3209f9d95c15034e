"""Real etcd servers for tests: a single server, and a cluster. etcd always waits for its disk."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.server import HOST, Cluster, TLSDaemon


class Etcd(TLSDaemon):
    """An etcd server, or a member of a cluster by its ``name``. With ``tls`` its clients need TLS.

    ``options``: further options of its command line.
    """

    kind = "etcd"
    package = "etcd-server"

    def __init__(self, name: str = "one", *, tls: bool = False, durable: bool = False, **options: object) -> None:
        super().__init__(durable=durable)
        self.name = name
        self.tls = tls
        self.options = options
        self.peer = ""
        self.peers: Sequence[Etcd] = (self,)

    @property
    def uri(self) -> str:
        return f"etcd://{HOST}:{self.port}"

    def locate(self) -> None:
        self._server = self._program("etcd")

    def reserve(self) -> None:
        """Reserve the address for other members, which all members must know before the first one starts."""
        self.peer = self.peer or f"http://{HOST}:{self._reserve_port()}"

    def _prepare(self) -> None:
        self.reserve()
        if self.tls:
            self._certify()

    def _command(self) -> list[str | Path]:
        client = f"{'https' if self.tls else 'http'}://{HOST}:{self.port}"
        options: dict[str, object] = {
            "name": self.name,
            "data-dir": self.folder / "data",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": self.peer,
            "initial-advertise-peer-urls": self.peer,
            "initial-cluster": ",".join(f"{each.name}={each.peer}" for each in self.peers),
            # These allow leases of a second.
            "heartbeat-interval": 60,
            "election-timeout": 600,
            "logger": "zap",
            "log-level": "error",
        }
        if self.tls:
            options |= {"cert-file": self.cert_file, "key-file": self.key_file}
        options |= {name.replace("_", "-"): value for name, value in self.options.items()}
        return [self._server, *(f"--{name}={value}" for name, value in options.items())]

    def _environment(self) -> dict[str, str]:
        # Go collects less often, and in one thread: a third of the CPU time of a server beside other busy processes.
        thrifty = {} if self.durable else {"GOGC": "400", "GOMAXPROCS": "1"}
        return {**super()._environment(), **thrifty}

    def _serves(self) -> bool:
        with self._connect() as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
        return b'"true"' in answer

    def call(self, path: str, **given: object) -> Any:
        """Return the reply of the server's HTTP gateway.

        :raises OSError: no reply comes.
        """
        with self._connect() as sock:
            body = json.dumps(given)
            sock.sendall(f"POST {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            response = http.client.HTTPResponse(sock, method="POST")
            response.begin()
            return json.loads(response.read())

    @property
    def leads(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            status = self.call("/v3/maintenance/status")
            # During an election no member leads.
            return bool(status.get("leader") == status["header"]["member_id"])
        return False


class EtcdCluster(Cluster):
    def __init__(self, size: int = 3) -> None:
        self.members = [Etcd(f"member{number}") for number in range(size)]

    def __enter__(self) -> Self:
        for member in self.members:
            member.reserve()
            member.peers = self.members
        return super().__enter__()
