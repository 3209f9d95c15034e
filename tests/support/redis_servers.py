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
from tests.support.server import HOST, Server, ServerError, TLSDaemon

Address = tuple[str, int]

_SLOTS = 16384


class Redis(TLSDaemon):
    """A standalone Redis server that appends to a file.

    ``program`` is another build to run instead: a name, or a path. ``config`` has options as they
    stand in redis.conf, and goes before what is set here. With ``tls`` the port serves TLS alone,
    with a certificate for 127.0.0.1 by a throw-away authority; a client may show one, too.
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
        timeout: float = 60,
    ) -> None:
        super().__init__(durable=durable, timeout=timeout)
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
        """Serves what the port serves, without TLS."""
        return self.folder / "redis.sock"

    def call(self, *words: str | int) -> Any:
        """The reply to one command, whose words hold no blanks.

        Raises ServerError with the reply if that is an error, and OSError if none comes.
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
        # In a file and not on the command line, so that the server can keep what it is told later.
        lines = [f"{name} {value}\n" for name, value in self._settings().items()]
        (self.folder / "redis.conf").write_text("".join(lines))

    def _command(self) -> list[str | Path]:
        return [self._server, self.folder / "redis.conf"]

    def _serves(self) -> bool:
        # The second is the answer of one with a password.
        return self._ask(b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


class _Instance(Redis):
    """One of several servers, below their folder and under their guard."""

    def __init__(self, place: Path, **options: Any) -> None:
        super().__init__(**options)
        self._place = place

    def _make_folder(self) -> None:
        self._place.mkdir()
        self._folder = self._place
        self._port = self._reserve_port()

    def is_running(self) -> bool:
        return any(process.poll() is None for process in self._processes())


class _Sentinel(_Instance):
    # Sentinel's own pace, in milliseconds here, is one of production: it would take some ten seconds
    # to see what changes. A ping-period is how long it waits before it connects again: as long as
    # down-after-milliseconds, it would take each new primary for dead. Five of them is how old the
    # news of a replica that is to take over may be, and in a failover these come once a second.
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
        # Redis 6 has no such command: a failover takes its time there, and may follow another.
        with suppress(ServerError):
            self.call("SENTINEL", "DEBUG", *(word for pair in self._pace for word in pair))


class _Topology(Server):
    package = "redis-server"

    def __init__(self, *, program: str | Path = "redis-server", durable: bool = False, timeout: float = 60) -> None:
        super().__init__(durable=durable, timeout=timeout)
        self.program = program
        self._members: list[_Instance] = []

    @property
    def uri(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def node(self, address: Address) -> Redis:
        """The single server at an address, to kill, pause, resume or start."""
        return next(member for member in self._members if member.address == address)

    def stop(self) -> None:
        super().stop()
        for member in self._members:
            member.stop()
        self._members.clear()

    def locate(self) -> None:
        Redis(program=self.program).locate()

    def _add(self, name: str, config: Mapping[str, str | int], kind: type[_Instance] = _Instance) -> _Instance:
        member = kind(
            self.folder / name, program=self.program, config=config, durable=self.durable, timeout=self.timeout
        )
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
    """A primary and its replicas under three Sentinels, which make a replica the primary if that dies.

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

    def __init__(self, *, replicas: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self._replicas = replicas
        self._data: list[_Instance] = []
        self._sentinels: list[_Instance] = []

    @property
    def sentinels(self) -> list[Address]:
        return [sentinel.address for sentinel in self._sentinels]

    @property
    def nodes(self) -> list[Address]:
        """The primary and its replicas, whichever is which."""
        return [node.address for node in self._data]

    @property
    def primary(self) -> Address:
        """What the first Sentinel that answers takes for the primary; that may be dead."""
        for sentinel in self._sentinels:
            with suppress(OSError):
                return _primary_for(sentinel)
        raise ServerError("no Sentinel answers")

    def kill_primary(self) -> None:
        """SIGKILL to the primary alone."""
        self.node(self.primary).kill()

    def pause_replica(self) -> None:
        """Stop all replicas, and have the primary hang up on them: it goes on without.

        What it has acknowledged before is in the replicas.
        """
        primary = self.node(self.primary)
        eventually(lambda: self._is_in_step(primary), self.timeout)
        for node in self._data:
            if node is not primary:
                node.pause()
        # Else the system would keep what the primary sends, and hand it over after the pause.
        primary.call("CLIENT", "KILL", "TYPE", "replica")

    def resume_replica(self) -> None:
        """Undo ``pause_replica()``; the replicas catch up if the primary lives."""
        for node in self._data:
            node.resume()

    def restart_node(self) -> None:
        """Start again what has been killed, and wait until it is in step: a former primary becomes a replica."""
        self._launch()

    def wait_for_primary(self) -> Address:
        """Wait until all Sentinels that answer name the same primary, and that is one."""
        primary = eventually(self._agreed, self.timeout)
        assert primary is not None
        return primary

    def failover(self) -> Address:
        """Have a replica take over from the primary, dead or alive, and wait until it has."""
        former = self.primary
        eventually(lambda: self._has_moved_from(former), self.timeout)
        primary = self.wait_for_primary()
        # Until it is told that it is none any more, it acknowledges what it then throws away.
        eventually(lambda: not _is_primary(self.node(former)), self.timeout)
        return primary

    def _has_moved_from(self, former: Address) -> bool:
        # One that a busy machine delays is given up, so that it has to be asked for again. Right after
        # another it would wait in vain for who is still a primary to become one.
        if self._named() == {former} and any(map(_is_replica, self._data)):
            self._begin_failover()
        return self._agreed() not in (None, former)

    def _begin_failover(self) -> None:
        for sentinel in self._sentinels:
            with suppress(OSError):
                # Refused while one goes on or no replica is fit. The next Sentinel would not know of
                # the one that goes on.
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
        for number in range(self._replicas):
            replica = self._add(f"node{number + 2}", {**settings, "replicaof": f"{HOST} {primary.port}"})
            self._data.append(replica)
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
        """Whether all replicas have what the primary has."""
        _, offset, _ = primary.call("ROLE")
        roles = [node.call("ROLE") for node in self._data if node is not primary]
        # A replica calls itself connected before the primary sends it what is new. The offset is never
        # 0 for long: Sentinel publishes through the primary.
        return all(role[:4] == ["slave", *primary.address, "connected"] and role[4] >= offset > 0 for role in roles)

    def _knows_all(self, sentinel: Redis) -> bool:
        words = sentinel.call("SENTINEL", "MASTER", self.service)
        known = dict(zip(words[::2], words[1::2], strict=True))
        seen = known["flags"], int(known["num-slaves"]), int(known["num-other-sentinels"])
        return seen == ("master", self._replicas, len(self._sentinels) - 1)


class RedisCluster(_Topology):
    """Three primaries that share the slots, each with ``replicas`` replicas; needs Redis 7."""

    kind = "redis-cluster"

    def __init__(self, *, replicas: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self._replicas = replicas

    @property
    def nodes(self) -> list[Address]:
        """The primaries, in the order of their slots, and then the replicas."""
        return [member.address for member in self._members]

    def _prepare(self) -> None:
        primaries = 3
        for number in range(primaries * (1 + self._replicas)):
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
        # Each with each: by hearsay it would take them seconds.
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
