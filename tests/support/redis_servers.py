"""Real Redis servers for tests: one alone, one with a replica under Sentinel, and a cluster.

    with RedisSentinel() as servers:
        board = connect(servers.sentinels, servers.service)
        servers.kill_primary()
        servers.wait_for_primary()

No client library is needed.
"""

import itertools
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from jobboard.testing import eventually
from tests.support.server import HOST, TIMEOUT, Server, ServerError, TLSDaemon

Address = tuple[str, int]

_SLOTS = 16384


class Redis(TLSDaemon):
    """A standalone Redis server that appends to a file.

    ``program`` is the name or the path of another build. ``config`` has options of redis.conf, which
    take precedence. With ``tls`` the port serves TLS alone; a client may show a certificate, too.
    """

    kind = "redis"
    package = "redis-server"

    def __init__(
        self,
        *,
        program: str | Path = "redis-server",
        config: Mapping[str, str | int] | None = None,
        tls: bool = False,
        durable: bool = False,
    ) -> None:
        super().__init__(durable=durable)
        self.program = program
        self.config = dict(config or {})
        self.tls = tls

    @property
    def uri(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{HOST}:{self.port}/0"

    @property
    def address(self) -> Address:
        return HOST, self.port

    @property
    def unix_socket(self) -> Path:
        """The socket of the server, which has no TLS."""
        return self.folder / "redis.sock"

    def call(self, *words: str | int) -> Any:
        """Return the reply to one command, whose words hold no blanks.

        :raises ServerError: the reply is an error.
        :raises OSError: no reply comes.
        """
        with self._connect() as connection, connection.makefile("rb") as replies:
            connection.sendall(" ".join(map(str, words)).encode() + b"\r\n")
            return _read_reply(replies)

    def locate(self) -> None:
        self._server = self._program(str(self.program))
        if self.tls:
            self._program("openssl")

    def _settings(self) -> dict[str, str | int]:
        settings: dict[str, str | int] = {
            "port": self.port,
            "bind": HOST,
            # Relative, because the system allows hardly more than 100 characters.
            "unixsocket": self.unix_socket.name,
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "always" if self.durable else "no",
        }
        if self.tls:
            settings |= {
                "port": 0,
                "tls-port": self.port,
                "tls-ca-cert-file": self.ca_file.name,
                "tls-cert-file": self.cert_file.name,
                "tls-key-file": self.key_file.name,
                "tls-auth-clients": "optional",
            }
        return settings | self.config

    def _prepare(self) -> None:
        if self.tls:
            self._certify()
        # In a file and not on the command line, so that CONFIG REWRITE of the server works.
        lines = [f"{name} {value}\n" for name, value in self._settings().items()]
        (self.folder / "redis.conf").write_text("".join(lines))

    def _command(self) -> list[str | Path]:
        return [self._server, self.folder / "redis.conf"]

    def _serves(self) -> bool:
        # A server with a password answers NOAUTH.
        return self._ask(b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


class _Instance(Redis):
    """A member of several servers, in their folder and under their guard."""

    def __init__(self, place: Path, config: Mapping[str, str | int]) -> None:
        super().__init__(config=config)
        self._place = place

    def _make_folder(self) -> None:
        self._place.mkdir()
        self._folder = self._place
        self._port = self._reserve_port()

    def is_running(self) -> bool:
        return any(process.poll() is None for process in self._processes())


class _Sentinel(_Instance):
    # Milliseconds. With Sentinel's defaults a failover takes some ten seconds. ping-period is also the
    # time before it connects again: as long as down-after-milliseconds, Sentinel would take each new
    # primary for dead. The INFO of a replica that is to take over may be five ping-periods old, and
    # in a failover it comes once a second.
    _pace = (
        ("ping-period", 300),
        ("info-period", 200),
        ("publish-period", 200),
        ("ask-period", 200),
        ("min-link-reconnect-period", 500),
        ("tilt-period", 1000),
    )

    def _settings(self) -> dict[str, str | int]:
        return {"port": self.port, "bind": HOST, **self.config}

    def _command(self) -> list[str | Path]:
        return [*super()._command(), "--sentinel"]

    def _launch(self) -> None:
        super()._launch()
        # Redis 6 has no such command: a failover takes longer there, and may follow another.
        with suppress(ServerError):
            self.call("SENTINEL", "DEBUG", *(word for pair in self._pace for word in pair))


class _Topology(Server):
    package = "redis-server"

    def __init__(self) -> None:
        super().__init__()
        self._members: list[_Instance] = []

    @property
    def uri(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def node(self, address: Address) -> Redis:
        """Return the member at an address, to kill, pause, resume or start."""
        return next(member for member in self._members if member.address == address)

    def stop(self) -> None:
        super().stop()
        for member in self._members:
            member.stop()
        self._members.clear()

    def locate(self) -> None:
        Redis().locate()

    def _add(self, name: str, config: Mapping[str, str | int], kind: type[_Instance] = _Instance) -> _Instance:
        member = kind(self.folder / name, config)
        self._members.append(member)
        member.start()
        return member

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [process for member in self._members for process in member._processes()]

    def _launch(self) -> None:
        for member in self._members:
            if not member.is_running():
                member.start()
        self._wait_until(self._serves)

    def _log(self) -> str:
        return "\n".join(f"{member.folder.name}:\n{member._log()}" for member in self._members)


class RedisSentinel(_Topology):
    """A primary and its replica under three Sentinels, which make the replica the primary if that dies.

    They do so some 2 seconds after its death. What the primary had acknowledged and not yet handed
    to a replica is lost then::

        servers.pause_replica()
        ...                         # the primary acknowledges, and no replica hears of it
        servers.kill_primary()
        servers.resume_replica()
        servers.wait_for_primary()
    """

    kind = "redis-sentinel"
    service = "mymaster"

    def __init__(self) -> None:
        super().__init__()
        self._data: list[_Instance] = []
        self._sentinels: list[_Instance] = []

    @property
    def sentinels(self) -> list[Address]:
        return [sentinel.address for sentinel in self._sentinels]

    @property
    def nodes(self) -> list[Address]:
        """The primary and the replica, in any order."""
        return [node.address for node in self._data]

    @property
    def primary(self) -> Address:
        """The primary, maybe dead, that the first living Sentinel names."""
        for sentinel in self._sentinels:
            with suppress(OSError):
                return _primary_for(sentinel)
        raise ServerError("no Sentinel answers")

    def kill_primary(self) -> None:
        """SIGKILL to the primary alone."""
        self.node(self.primary).kill()

    def pause_replica(self) -> None:
        """Stop the replica once it has all that was acknowledged. The primary goes on without it."""
        primary = self.node(self.primary)
        eventually(lambda: self._is_in_step(primary), TIMEOUT)
        for node in self._data:
            if node is not primary:
                node.pause()
        # Else the system would keep what the primary sends, and hand it over after the pause.
        primary.call("CLIENT", "KILL", "TYPE", "replica")

    def resume_replica(self) -> None:
        """Undo ``pause_replica()``. The replica catches up if the primary lives."""
        for node in self._data:
            node.resume()

    def restart_node(self) -> None:
        """Start killed servers again, and wait until the replica is in step. A former primary becomes the replica."""
        self._launch()

    def wait_for_primary(self) -> Address:
        """Wait until all living Sentinels name the same primary, and that server is a primary."""
        primary = eventually(self._agreed, TIMEOUT)
        assert primary is not None
        return primary

    def failover(self) -> Address:
        """Have the replica take over from the primary, dead or alive, and wait until it has."""
        former = self.primary
        eventually(lambda: self._has_moved_from(former), TIMEOUT)
        primary = self.wait_for_primary()
        # Until it knows that it is the replica, the former primary acknowledges writes and then drops them.
        eventually(lambda: not _is_primary(self.node(former)), TIMEOUT)
        return primary

    def _has_moved_from(self, former: Address) -> bool:
        # A failover that a busy machine delays is given up, and has to be asked for again. Right after
        # another failover, it would wait in vain for a server that is still a primary.
        if self._named() == {former} and any(map(_is_replica, self._data)):
            self._begin_failover()
        return self._agreed() not in (None, former)

    def _begin_failover(self) -> None:
        for sentinel in self._sentinels:
            with suppress(OSError):
                # Refused while a failover goes on or no replica is fit. Only this Sentinel knows of a
                # failover that it has begun.
                with suppress(ServerError):
                    sentinel.call("SENTINEL", "FAILOVER", self.service)
                return

    def _named(self) -> set[Address]:
        named = set()
        for sentinel in self._sentinels:
            with suppress(OSError):
                named.add(_primary_for(sentinel))
        return named

    def _agreed(self) -> Address | None:
        if len(named := self._named()) == 1:
            address = named.pop()
            if _is_primary(self.node(address)):
                return address
        return None

    def _prepare(self) -> None:
        settings: dict[str, str | int] = {"repl-diskless-sync-delay": 0}
        primary = self._add("node1", settings)
        self._data = [primary]
        self._data.append(self._add("node2", {**settings, "replicaof": f"{HOST} {primary.port}"}))
        watch = {
            "sentinel monitor": f"{self.service} {HOST} {primary.port} 2",
            "sentinel down-after-milliseconds": f"{self.service} 1000",
            "sentinel failover-timeout": f"{self.service} 2000",
        }
        self._sentinels = [self._add(f"sentinel{number + 1}", watch, _Sentinel) for number in range(3)]
        self._port = self._sentinels[0].port

    def _serves(self) -> bool:
        return (
            (primary := self._agreed()) is not None
            and all(map(self._knows_all, self._sentinels))
            and self._is_in_step(self.node(primary))
        )

    def _is_in_step(self, primary: Redis) -> bool:
        """Return whether the replica has all that the primary has."""
        _, offset, _ = primary.call("ROLE")
        roles = [node.call("ROLE") for node in self._data if node is not primary]
        # A replica calls itself connected before the primary sends it what is new. The offset is never
        # 0 for long: Sentinel publishes through the primary.
        return all(role[:4] == ["slave", *primary.address, "connected"] and role[4] >= offset > 0 for role in roles)

    def _knows_all(self, sentinel: Redis) -> bool:
        words = sentinel.call("SENTINEL", "MASTER", self.service)
        known = dict(zip(words[::2], words[1::2], strict=True))
        seen = known["flags"], int(known["num-slaves"]), int(known["num-other-sentinels"])
        return seen == ("master", len(self._data) - 1, len(self._sentinels) - 1)


class RedisCluster(_Topology):
    """Three primaries that share the slots, each with a replica; needs Redis 7."""

    kind = "redis-cluster"

    @property
    def nodes(self) -> list[Address]:
        """The primaries, in the order of their slots, and then the replicas."""
        return [member.address for member in self._members]

    def _prepare(self) -> None:
        primaries = 3
        for number in range(2 * primaries):
            self._add(
                f"node{number + 1}",
                {
                    "cluster-enabled": "yes",
                    "cluster-port": self._reserve_port(),
                    "cluster-node-timeout": 1500,
                    "repl-diskless-sync-delay": 0,
                },
            )
        self._port = self._members[0].port
        # Each node with each other node: by gossip they would take seconds to meet.
        for one, other in itertools.combinations(self._members, 2):
            one.call("CLUSTER", "MEET", HOST, other.port, other.config["cluster-port"])
        for number in range(primaries):
            low, high = (_SLOTS * edge // primaries for edge in (number, number + 1))
            self._members[number].call("CLUSTER", "ADDSLOTSRANGE", low, high - 1)
        self._wait_until(self._all_have_met)
        for number, replica in enumerate(self._members[primaries:]):
            replica.call("CLUSTER", "REPLICATE", self._members[number % primaries].call("CLUSTER", "MYID"))

    def _all_have_met(self) -> bool:
        known: list[str] = [member.call("CLUSTER", "NODES") for member in self._members]
        return all(len(nodes.splitlines()) == len(known) and "handshake" not in nodes for nodes in known)

    def _serves(self) -> bool:
        return all(_facts(member)["cluster_state"] == "ok" and _has_its_data(member) for member in self._members)


def _primary_for(sentinel: Redis) -> Address:
    host, port = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinel.service)
    return host, int(port)


def _role(node: Redis) -> str | None:
    with suppress(OSError):
        return str(node.call("ROLE")[0])
    return None


def _is_replica(node: Redis) -> bool:
    return _role(node) == "slave"


def _is_primary(node: Redis) -> bool:
    return _role(node) == "master"


def _has_its_data(node: Redis) -> bool:
    role: list[Any] = node.call("ROLE")
    return "connected" in role or role[0] == "master"


def _facts(node: Redis) -> dict[str, str]:
    return dict(line.split(":", 1) for line in node.call("CLUSTER", "INFO").split())


def _read_reply(replies: BinaryIO) -> Any:
    line = replies.readline().decode()
    kind, rest = line[:1], line[1:].rstrip()
    match kind:
        case "+":
            return rest
        case "-":
            raise ServerError(rest)
        case ":":
            return int(rest)
        case "$":
            return None if rest == "-1" else replies.read(int(rest) + 2)[:-2].decode()
        case "*":
            return [_read_reply(replies) for _ in range(int(rest))]
    raise ConnectionError("the server has hung up")
