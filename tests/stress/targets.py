"""The servers that ``soak.py`` harms, each kind with its harms."""

from __future__ import annotations

import abc
import base64
import contextlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from jobboard.testing import eventually
from jobboard.testing.faults import FaultyProxy
from tests.support.etcd_servers import Etcd, EtcdCluster
from tests.support.redis_servers import Redis, RedisSentinel
from tests.support.server import HOST, ServerError
from tests.support.servers import MariaDB, PostgreSQL, ZooKeeper
from tests.support.zookeeper_servers import ZooKeeperEnsemble

TTL = 4
"""Seconds of a kept claim's lease."""

FOLDERS = 1500
"""How many folders a board on ZooKeeper may have beside its entries."""

IDLE = 10
"""Seconds after which a database ends a transaction whose client is silent, as its locks would stay for hours."""


class Target(abc.ABC):
    """The servers of a board, each behind a proxy, and the harms that can be done to them: the methods of ``harms``.
    Each of these returns when all is well again."""

    harms: tuple[str, ...] = ("crash", "hang", "cut", "lose_replies", "lose_requests", "silence", "come_late")
    has_clock = True
    database: str | None = None
    """Where SQLAlchemy finds the database, past the proxies; None on other servers."""

    def __init__(self, servers: Any, members: Sequence[Any]) -> None:
        self.servers, self.members = servers, members
        self.proxies: list[FaultyProxy] = []
        self._stack = contextlib.ExitStack()

    @property
    @abc.abstractmethod
    def conf(self) -> dict[str, Any]:
        """Where a worker finds the board."""

    @abc.abstractmethod
    def contents(self) -> list[str]:
        """What is in the server, as itself tells it: keys, members of containers, nodes."""

    def __enter__(self) -> Self:
        with self._stack as stack:
            stack.enter_context(self.servers)
            for member in self._proxied():
                self.proxies.append(stack.enter_context(FaultyProxy(HOST, member.port)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _proxied(self) -> Sequence[Any]:
        return self.members

    def _addresses(self) -> str:
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)

    def _leader(self) -> Any:
        def found() -> Any:
            with contextlib.suppress(ServerError):
                return self.servers.leader

        return self.members[0] if len(self.members) == 1 else eventually(found, 60)

    def _victim(self, dice: random.Random) -> Any:
        return self._leader() if dice.random() < 0.5 else dice.choice(self.members)

    def crash(self, dice: random.Random) -> None:
        victim = self._victim(dice)
        victim.kill()
        time.sleep(dice.choice([0, 0.5, 3]))
        victim.start()

    def crash_most(self, dice: random.Random) -> None:
        """The others can't go on until one is back."""
        victims = dice.sample(self.members, len(self.members) // 2 + 1)
        for victim in victims:
            victim.kill()
        time.sleep(dice.choice([0, 2]))
        with ThreadPoolExecutor(len(victims)) as pool:
            list(pool.map(lambda victim: victim.start(), victims))

    def hang(self, dice: random.Random) -> None:
        victim = self._victim(dice)
        victim.pause()
        time.sleep(dice.choice([0.5, 1.5 * TTL]))
        victim.resume()

    def cut(self, dice: random.Random) -> None:
        for proxy in self.proxies:
            proxy.cut()

    def lose_replies(self, dice: random.Random) -> None:
        self._lose("reply", dice)

    def lose_requests(self, dice: random.Random) -> None:
        self._lose("request", dice)

    def _lose(self, what: Any, dice: random.Random) -> None:
        faults = [proxy.lose(what, nth=dice.randrange(1, 60)) for proxy in self.proxies for _ in range(5)]
        with contextlib.suppress(AssertionError):
            eventually(lambda: all(fault.happened for fault in faults), 3)
        self._forget_faults()

    def silence(self, dice: random.Random) -> None:
        dice.choice(self.proxies).silence_all()

    def come_late(self, dice: random.Random) -> None:
        """The server gets a request long after its client has repeated it."""
        kept = dice.choice(self.proxies).keep(nth=dice.randrange(1, 30))
        # Perhaps nobody is connected to this member.
        if kept.wait(3):
            time.sleep(dice.choice([0.05, 1, 3]))
            with contextlib.suppress(TimeoutError):
                kept.let_go()
        self._forget_faults()

    def _forget_faults(self) -> None:
        for proxy in self.proxies:
            proxy.restore()


class RedisTarget(Target):
    harms = (*Target.harms, "flush_scripts")

    def __init__(self, members: int) -> None:
        server = Redis()
        super().__init__(server, [server])

    @property
    def conf(self) -> dict[str, Any]:
        return {"board": f"redis://{self._addresses()}/0"}

    def flush_scripts(self, dice: random.Random) -> None:
        self._primary().call("SCRIPT", "FLUSH")

    def contents(self) -> list[str]:
        import redis

        with redis.Redis(port=self._primary().port, decode_responses=True, encoding_errors="replace") as client:
            readers: dict[str, Callable[[str], Any]] = {
                "hash": client.hkeys,
                "zset": lambda key: client.zrange(key, 0, -1),
                "set": client.smembers,
                "list": lambda key: client.lrange(key, 0, -1),
            }
            found: list[str] = []
            for key in client.scan_iter():
                read = readers.get(str(client.type(key)), lambda _: [""])
                found += (f"{key} {each}" for each in read(key))
            return found

    def _primary(self) -> Any:
        return self.members[0]


class SentinelTarget(RedisTarget):
    """A primary and its replica, which Sentinel makes the primary. ``min_replicas=1``: an acknowledged call is on both,
    so that the whole judgement stands. No proxy would do: it is Sentinel who says where the primary is."""

    harms = ("crash", "crash_replica", "change", "hang", "cut", "flush_scripts")

    def __init__(self, members: int) -> None:
        Target.__init__(self, RedisSentinel(), [])

    def _proxied(self) -> Sequence[Any]:
        return []

    @property
    def conf(self) -> dict[str, Any]:
        first, *others = (f"{host}:{port}" for host, port in self.servers.sentinels)
        return {
            "board": f"redis://{first}",
            "sentinel": self.servers.service,
            "sentinel_fallbacks": others,
            "min_replicas": 1,
            "socket_timeout": 1,
        }

    def _primary(self) -> Any:
        return self.servers.node(self.servers.wait_for_primary())

    def _replica(self) -> Any:
        primary = self._primary()
        return next(node for node in map(self.servers.node, self.servers.nodes) if node.port != primary.port)

    def crash(self, dice: random.Random) -> None:
        self._primary().kill()
        self.servers.wait_for_primary()
        time.sleep(dice.choice([0, 1]))
        self.servers.restart_node()

    def crash_replica(self, dice: random.Random) -> None:
        """Nothing is acknowledged while there is no replica."""
        self._replica().kill()
        time.sleep(dice.choice([0, 3]))
        self.servers.restart_node()

    def change(self, dice: random.Random) -> None:
        self.servers.failover()
        self.servers.restart_node()

    def hang(self, dice: random.Random) -> None:
        """Two primaries for a moment, once the old one goes on."""
        primary = self._primary()
        primary.pause()
        time.sleep(dice.choice([0.5, 1.5 * TTL]))
        primary.resume()
        self.servers.restart_node()

    def cut(self, dice: random.Random) -> None:
        for _ in range(dice.choice([1, 20])):
            for kind in ("normal", "pubsub"):
                self._primary().call("CLIENT", "KILL", "TYPE", kind)
            time.sleep(0.05)


class ZooKeeperTarget(Target):
    def __init__(self, members: int) -> None:
        if members == 1:
            server = ZooKeeper()
            super().__init__(server, [server])
        else:
            ensemble = ZooKeeperEnsemble(members)
            super().__init__(ensemble, ensemble.members)
            self.harms = (*self.harms, "crash_most")

    @property
    def conf(self) -> dict[str, Any]:
        return {"board": f"zookeeper://{self._addresses()}"}

    def contents(self) -> list[str]:
        from kazoo.client import KazooClient

        things: list[str] = []
        folders: list[str] = []

        def walk(path: str) -> None:
            for name in client.get_children(path):
                child = f"{path.rstrip('/')}/{name}"
                if child == "/zookeeper":
                    continue
                data, stat = client.get(child)
                (folders if not data and stat.cversion else things).append(child)
                walk(child)

        client = KazooClient(f"{HOST}:{self._leader().port}")
        client.start(30)
        try:
            walk("/")
        finally:
            client.stop()
            client.close()
        return things + folders[FOLDERS:]


class EtcdTarget(Target):
    harms = (*Target.harms, "compact")
    has_clock = False

    def __init__(self, members: int) -> None:
        if members == 1:
            server = Etcd()
            super().__init__(server, [server])
        else:
            cluster = EtcdCluster(members)
            super().__init__(cluster, cluster.members)
            self.harms = (*self.harms, "crash_most", "change")

    @property
    def conf(self) -> dict[str, Any]:
        return {"board": f"etcd://{self._addresses()}"}

    def compact(self, dice: random.Random) -> None:
        """Watches that begin before it are refused."""
        leader = self._leader()
        revision = leader.call("/v3/kv/range", key=_base64("x"))["header"]["revision"]
        leader.call("/v3/kv/compaction", revision=revision, physical=True)
        if dice.random() < 0.5:
            leader.call("/v3/maintenance/defragment")

    def change(self, dice: random.Random) -> None:
        leader = self._leader()
        found = leader.call("/v3/cluster/member/list")["members"]
        others = sorted(each["ID"] for each in found if each["name"] != leader.name)
        leader.call("/v3/maintenance/transfer-leadership", targetID=dice.choice(others))

    def contents(self) -> list[str]:
        every = _base64("\0")
        found = self._leader().call("/v3/kv/range", key=every, range_end=every, keys_only=True)
        return [base64.b64decode(each["key"]).decode(errors="replace") for each in found.get("kvs", ())]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class DatabaseTarget(Target):
    """A database. Reports and dumps pin its snapshots, and callers have transactions of their own there."""

    def __init__(self, server: Any) -> None:
        super().__init__(server, [server])

    def pin(self, dice: random.Random) -> str:
        """Hold a snapshot open for longer than a lease."""
        seconds = dice.choice([1, 2 * TTL, 5 * TTL])
        # The server may crash meanwhile.
        with contextlib.suppress(sa.exc.SQLAlchemyError), self._engine().connect() as connection:
            self._begin_snapshot(connection)
            connection.exec_driver_sql("SELECT count(*) FROM jobboard")
            time.sleep(seconds)
        return f"a snapshot was held for {seconds} s"

    def _begin_snapshot(self, connection: sa.Connection) -> None:
        raise NotImplementedError

    def _engine(self) -> sa.Engine:
        assert self.database is not None
        return sa.create_engine(self.database, poolclass=sa.NullPool)

    def contents(self) -> list[str]:
        engine = self._engine()
        inspector = sa.inspect(engine)
        found: list[str] = []
        with engine.connect() as connection:
            for name in inspector.get_table_names():
                if not name.startswith("jobboard"):
                    continue
                key = inspector.get_pk_constraint(name)["constrained_columns"]
                rows = connection.execute(sa.select(*map(sa.column, key)).select_from(sa.table(name)))
                found += (" ".join(map(str, (name, *row))) for row in rows)
        return found


class ServedDatabaseTarget(DatabaseTarget):
    harms = (*Target.harms, "restart")

    @property
    def conf(self) -> dict[str, Any]:
        return {"board": self.proxies[0].uri_for(self.servers.uri)}

    def restart(self, dice: random.Random) -> None:
        self.members[0].restart()


class _PostgreSQL(PostgreSQL):
    def _command(self) -> list[str | Path]:
        return [*super()._command(), "-c", f"idle_in_transaction_session_timeout={IDLE}s"]


class PostgreSQLTarget(ServedDatabaseTarget):
    def __init__(self, members: int) -> None:
        super().__init__(_PostgreSQL(durable=True))

    @property
    def database(self) -> str:  # type: ignore[override]
        return str(self.servers.uri).replace("postgresql:", "postgresql+psycopg:")

    def _begin_snapshot(self, connection: sa.Connection) -> None:
        connection.execution_options(isolation_level="REPEATABLE READ")
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")


class _MariaDB(MariaDB):
    def _command(self) -> list[str | Path]:
        return [*super()._command(), f"--idle-transaction-timeout={IDLE}"]


class MariaDBTarget(ServedDatabaseTarget):
    def __init__(self, members: int) -> None:
        super().__init__(_MariaDB(durable=True))

    @property
    def database(self) -> str:  # type: ignore[override]
        return str(self.servers.uri).replace("mariadb:", "mariadb+pymysql:")

    def _begin_snapshot(self, connection: sa.Connection) -> None:
        connection.execution_options(isolation_level="REPEATABLE READ")
        connection.exec_driver_sql("SET SESSION idle_transaction_timeout = 0")


HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM jobboard")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


class SQLiteTarget(DatabaseTarget):
    """A file. Other processes hold its lock, and some die with what they have written."""

    harms = ("hold", "hold", "die", "checkpoint", "vacuum")

    def __init__(self, members: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="jobboard-sqlite-")
        Target.__init__(self, self._folder, [])

    @property
    def _file(self) -> Path:
        return Path(self._folder.name) / "jobs.db"

    @property
    def conf(self) -> dict[str, Any]:
        return {"board": f"sqlite:///{self._file}"}

    @property
    def database(self) -> str:  # type: ignore[override]
        return f"sqlite:///{self._file}"

    def _begin_snapshot(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    def hold(self, dice: random.Random) -> None:
        self._holder(dice.choice([0.5, 1.5 * TTL])).communicate()

    def die(self, dice: random.Random) -> None:
        holder = self._holder(60)
        time.sleep(dice.choice([0, 0.5]))
        holder.kill()
        holder.communicate()

    def _holder(self, seconds: float) -> subprocess.Popen[str]:
        """Start a process that has the file's lock, and has deleted all jobs without a commit."""
        command = [sys.executable, "-c", HOLDER, str(self._file), str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def checkpoint(self, dice: random.Random) -> None:
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def vacuum(self, dice: random.Random) -> None:
        self._run("VACUUM")

    def _run(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as connection:
            connection.execute(statement)


TARGETS: dict[str, Callable[[int], Target]] = {
    "redis": RedisTarget,
    "sentinel": SentinelTarget,
    "zookeeper": ZooKeeperTarget,
    "etcd": EtcdTarget,
    "sqlite": SQLiteTarget,
    "postgresql": PostgreSQLTarget,
    "mariadb": MariaDBTarget,
}
