"""A long run of a board whose workers, servers and connections are harmed all the time.

    python tests/stress/soak.py redis --minutes 10                   # also: sentinel, zookeeper, etcd
    python tests/stress/soak.py zookeeper --members 3 --limits       # an ensemble, under limits that change
    python tests/stress/soak.py redis --clock-steps --seed 7         # the server's clock jumps; the harms of seed 7

Several processes post, claim, extend, abandon, trash, restore, cancel, release and consume, and write down each act.
Meanwhile workers are killed, or stopped for longer than their leases. Servers are killed, stopped and restarted,
leaders change, connections break and requests come late. The seed draws all of it, so that the same harms can be done
again in the same order. The machine decides what they meet.

In the end the workers drain the board, waiting for jobs as they come. Its trash is purged, two days pass on the
server's clock, and the board is tidied. One line of figures follows. The status is 1 if anything is wrong:

- a fault that the history of all acts proves (:mod:`jobboard.testing.history`), an exceeded limit among them;
- an error of a worker that is not one of the library's, or one that no server was found for;
- a worker that stands still after the harms;
- jobs that nobody takes, and waiters that are not woken;
- damage that ``examine()`` shows, or entries that are left in the server.

Every server is told the time by ``clock.c``, which needs a C compiler. etcd uses the time of its clients, so that no
step can be forced on its server.
"""

from __future__ import annotations

import abc
import argparse
import base64
import contextlib
import faulthandler
import json
import logging
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar, Self

import jobboard
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.job import Job, Posting, boottime
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.etcd_servers import Etcd, EtcdCluster
from jobboard.testing.faults import FaultyProxy
from jobboard.testing.history import HistoryEntry, judge
from jobboard.testing.limited import Limiting
from jobboard.testing.puppet import set_clock
from jobboard.testing.recording import Recorder, from_files, left_on, to_file
from jobboard.testing.redis_servers import Redis, RedisSentinel
from jobboard.testing.server import HOST, ServerError
from jobboard.testing.servers import ZooKeeper
from jobboard.testing.zookeeper_servers import ZooKeeperEnsemble

TTL = 4
"""Seconds of a kept claim's lease."""

PATIENCE = 60
"""Seconds for which a call is repeated: longer than any outage, so that it fails only where something is wrong."""

KEYS = 40
FULL = 300
"""From so many jobs on nobody posts, so that all that is posted is worked on."""

LIMITS: dict[str, list[dict[str, Any]]] = {
    "job 0": [{"concurrency": 2}, {"concurrency": 5}],
    "job 1": [{"rate": (5, 0.5)}, {"rate": (20, 3.0)}],
    "job 2": [{"concurrency": 1, "per": "group"}, {"concurrency": 2, "per": "group"}],
    "keyed": [{"concurrency": 4, "rate": (10, 1.0)}, {"concurrency": 8, "rate": (30, 2.0)}],
}
"""With ``--limits``: the limits of each name, one of which is set at a time. All of a name are of one kind, as claims
from before the first limit of that kind need not count."""

WAKES = 10
"""How many jobs are posted one by one in the end, while all workers wait for one."""

SLEPT = 3
"""In how many seconds each of these jobs must be done: before any waiter looks again by itself."""

SLACK = 30
"""How many entries a board that was drained and tidied may have that a new one has not: gates, counters."""

FOLDERS = 1500
"""How many folders a board on ZooKeeper may have beside its entries."""

SKEWS = (0, 3600, -3600, 0)
"""By how many seconds the clocks of the workers are wrong where the server has one."""

TWO_DAYS = 2 * 86400


class Worker:
    """One process: it does something at random, again and again, until it is told to end."""

    def __init__(self, board: Any, recorder: Recorder, who: str, dice: random.Random) -> None:
        self.board, self.recorder, self.who, self.dice = board, recorder, who, dice
        self.held: list[Job] = []
        self.failures: Counter[str] = Counter()

    def run(self, drains: threading.Event, over: threading.Event) -> None:
        acts = (self.post, self.claim, self.claim, self.end, self.end, self.end, self.extend, self.look, self.operate)
        while not drains.is_set():
            try:
                self.dice.choice(acts)()
            except JobBoardError as error:
                self.failures[type(error).__name__] += 1
            time.sleep(0.005)
        # Nobody would write down what close() gives back.
        self.recorder.consume_many(self.held, self.who)
        while not over.is_set():
            jobs = self.recorder.claim_many(self.who, 1, timeout=PATIENCE, unless=over.is_set)
            self.recorder.consume_many(jobs, self.who)

    def post(self) -> None:
        if self.board.job_count > FULL:
            return
        dice = self.dice
        postings = [
            Posting(
                f"job {dice.randrange(3)}",
                details={"size": dice.randrange(1000)},
                priority=dice.choice(["HIGH", "NORMAL", "LOW"]),
                delay=dice.choice([None, None, 0.2]),
                max_attempts=dice.choice([None, None, 3]),
                group=f"group {dice.randrange(4)}",
            )
            for _ in range(dice.choice([1, 1, 5]))
        ]
        self.recorder.post_many(postings)
        # A job that has the key already gets another entry with its uuid.
        keyed = Posting(
            "keyed",
            key=f"key {dice.randrange(KEYS)}",
            key_for=dice.choice([None, None, 1.0]),
            on_key=dice.choice(["keep", "keep", "replace"]),
        )
        self.recorder.post_many([keyed])

    def claim(self) -> None:
        if len(self.held) > 10:
            return
        arguments: dict[str, Any] = {"timeout": self.dice.choice([0, 0.2])}
        if self.dice.random() < 0.3:
            arguments["expiry"] = self.dice.choice([0.3, 5.0])
        if self.dice.random() < 0.2:
            arguments["names"] = ["keyed", "job 1"]
        self.held += self.recorder.claim_many(self.who, self.dice.choice([1, 1, 4]), **arguments)

    def extend(self) -> None:
        if self.held:
            self.recorder.extend(self.dice.choice(self.held), self.dice.choice([None, 2.0]))

    def end(self) -> None:
        if not self.held:
            return
        job = self.held.pop(self.dice.randrange(len(self.held)))
        kind = self.dice.random()
        if kind < 0.15:
            self.recorder.abandon(job, delay=self.dice.choice([None, 0.1]), error="not yet")
        elif kind < 0.25:
            self.recorder.trash(job, reason="bad")
        elif kind < 0.4:
            jobs, self.held = [job, *self.held], []
            self.recorder.consume_many(jobs, self.who)
        else:
            self.recorder.consume(job)

    def look(self) -> None:
        kind = self.dice.randrange(3)
        if kind == 0:
            assert all(job.uuid for job in self.board.iterjobs(ensure_fresh=self.dice.random() < 0.5))
        elif kind == 1:
            assert self.board.stats().on_board >= 0
        elif self.held:
            assert self.dice.choice(self.held).state

    def operate(self) -> None:
        """Rarely, so that most jobs are worked on in peace."""
        kind = self.dice.random()
        if kind < 0.1:
            for job in self._some(self.board.trashed()):
                self.recorder._act(Verb.RESTORE, [job], lambda job=job: self.board.restore(job))
        elif kind < 0.15:
            for job in self._some(self.board.iterjobs(states=["CLAIMED"])):
                self.recorder.release(job)
        elif kind < 0.2:
            for job in self._some(self.board.iterjobs(only_unclaimed=True)):
                self.recorder._act(Verb.CANCEL, [job], lambda job=job: self.board.cancel(job))

    def _some(self, jobs: Iterable[Job]) -> list[Job]:
        found = [job for _, job in zip(range(20), jobs, strict=False)]
        return self.dice.sample(found, min(2, len(found)))


def work(given: dict[str, Any]) -> None:
    """Run a worker's process. After a first line of its standard input it only waits for jobs and consumes them, and
    after the end of that it ends; its own last line has what it was refused."""
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    set_clock(given["skew"])
    drains, over = threading.Event(), threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        drains.set()
        sys.stdin.read()
        over.set()
        board.wake()

    board = jobboard.fetch("board", given["conf"])
    connect(board)
    recorder = Recorder(board, given["process"], to_file(Path(given["file"])))
    worker = Worker(board, recorder, given["process"], random.Random(given["seed"]))
    threading.Thread(target=listen, daemon=True).start()
    worker.run(drains, over)
    board.close()
    worker.failures.update(type(failure).__name__ for failure in recorder.failures)
    print(json.dumps(worker.failures))


def connect(board: Any) -> None:
    """Connect, however often that takes: the board itself tries it once."""
    while True:
        with contextlib.suppress(ConnectionFailure):
            board.connect()
            return
        time.sleep(0.1)


class Clock:
    """The time of day that all servers are told which are started while it is set: see ``clock.c``."""

    def __init__(self, folder: Path) -> None:
        if (compiler := shutil.which("cc")) is None:
            raise ServerError("the servers' clock needs a C compiler; install it (Debian, Ubuntu: apt-get install gcc)")
        library, self._file = folder / "clock.so", folder / "clock"
        source = Path(__file__).with_name("clock.c")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        self._file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "JOBBOARD_CLOCK": str(self._file)}

    def set(self, ahead: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", ahead))


class Target(abc.ABC):
    """The servers of a board, each behind a proxy, and the harms that can be done to them: the methods of ``harms``.
    Each of these returns when all is well again."""

    harms: tuple[str, ...] = ("crash", "hang", "cut", "lose_replies", "lose_requests", "silence", "come_late")
    has_clock = True

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


class Crew:
    """The processes of the workers. One that was killed has a successor with a file of its own."""

    def __init__(self, conf: dict[str, Any], folder: Path, seed: int, skewed: bool) -> None:
        self._conf, self._folder, self._seed, self._skewed = conf, folder, seed, skewed
        self._current: dict[int, tuple[str, subprocess.Popen[str]]] = {}
        self._started = 0
        self.failures: Counter[str] = Counter()
        self.faults: list[str] = []

    def start(self, number: int) -> None:
        self._started += 1
        name = f"worker{number}.{self._started}"
        given = {
            "process": name,
            # One of two leaves outcomes, which are there when the history is judged.
            "conf": {**self._conf, "keep_done": 86400 if number % 2 else 0},
            "file": str(self._folder / f"{name}.jsonl"),
            "seed": f"{self._seed} {name}",
            "skew": SKEWS[number % len(SKEWS)] if self._skewed else 0,
        }
        command = [sys.executable, "-X", "faulthandler", __file__, "--work", json.dumps(given)]
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Its clock is not the servers'.
                env={word: value for word, value in os.environ.items() if word != "LD_PRELOAD"},
            )
        self._current[number] = name, process

    def harm(self, dice: random.Random) -> str:
        """Kill one and start its successor, or stop one for a while."""
        number = dice.randrange(len(self._current))
        name, process = self._current[number]
        how, seconds = dice.choice(["kill", "kill", "stop"]), dice.choice([0.5, 1.5 * TTL, 2.5 * TTL])
        if process.poll() is not None:
            self.faults.append(f"{name} has ended with {process.returncode}")
            how = "kill"
        if how == "kill":
            process.kill()
            process.communicate()
            self.start(number)
            return f"{name} was killed"
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        return f"{name} was stopped for {seconds:g} s"

    def check_progress(self) -> None:
        """All is well again, and so all of them must be doing something."""
        sizes = {name: self._size(name) for name, _ in self._current.values()}
        for name, size in sizes.items():
            try:
                eventually(lambda name=name, size=size: self._size(name) > size, PATIENCE)  # type: ignore[misc]
            except AssertionError:
                self.faults.append(f"{name} does nothing though all is well")

    def _size(self, name: str) -> int:
        file = self._folder / f"{name}.jsonl"
        return file.stat().st_size if file.exists() else 0

    def drain(self) -> None:
        """From now on they only wait for jobs, and consume them."""
        for _, process in self._current.values():
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()

    def show_stacks(self) -> None:
        """In their logs: what each of their threads does."""
        for _, process in self._current.values():
            process.send_signal(signal.SIGUSR1)

    def join(self) -> None:
        for _, process in self._current.values():
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        for name, process in self._current.values():
            try:
                out, _ = process.communicate(timeout=2 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.faults.append(f"{name} does not end")
                # Its stacks go to its log.
                process.send_signal(signal.SIGABRT)
                process.communicate()
                continue
            if process.returncode:
                self.faults.append(f"{name} has ended with {process.returncode}")
            else:
                self.failures.update(json.loads(out.splitlines()[-1]))

    def end(self) -> None:
        for _, process in self._current.values():
            process.kill()
            process.communicate()

    def stray_errors(self) -> Iterator[str]:
        """Errors that were raised where nobody could catch them."""
        for file in sorted(self._folder.glob("*.log")):
            text = file.read_text(errors="replace")
            for sign in ("Exception in thread", "Exception ignored", "Task exception was never"):
                if sign in text:
                    yield f"{file.stem}: {text[text.index(sign) :][:2000]}"


class Ruler:
    """Sets limits and pauses names, and changes that."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self.recorder = Recorder(board, "ruler", lambda number, entry: None)

    def begin(self, dice: random.Random) -> None:
        for name in LIMITS:
            self._set(name, dice)

    def change(self, dice: random.Random) -> str:
        name, kind, seconds = dice.choice(list(LIMITS)), dice.random(), dice.choice([0.2, 2])
        if kind < 0.6:
            return self._set(name, dice)
        self.recorder.pause([name])
        time.sleep(seconds)
        self._resume()
        return f"{name} was paused for {seconds} s"

    def _resume(self) -> None:
        names = list(LIMITS)
        while True:
            self.recorder.resume(names)
            if self.recorder.pauses[-1].resumed and self.recorder.pauses[-1].outcome == "ok":
                return

    def _set(self, name: str, dice: random.Random) -> str:
        limit = dice.choice(LIMITS[name])
        self._until_done(name, limit, lambda: self._board.set_limit(name, **limit))
        return f"{name} was limited: {limit}"

    def end(self) -> None:
        self._resume()
        for name, (limit, *_) in LIMITS.items():
            per = limit.get("per", "name")
            self._until_done(name, {"per": per}, lambda name=name, per=per: self._board.remove_limit(name, per))

    def _until_done(self, name: str, limit: dict[str, Any], act: Callable[[], object]) -> None:
        """From its first try on it may have happened."""
        began = boottime()
        while True:
            with contextlib.suppress(ConnectionFailure):
                act()
                self.recorder.limits.append(Limiting(began, boottime(), name, **limit))
                return


class Soak:
    """One run. ``TARGETS`` has the kinds of servers."""

    TARGETS: ClassVar[dict[str, Callable[[int], Target]]] = {
        "redis": RedisTarget,
        "sentinel": SentinelTarget,
        "zookeeper": ZooKeeperTarget,
        "etcd": EtcdTarget,
    }

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._given, self._folder = arguments, folder
        self._target = self.TARGETS[arguments.kind](arguments.members)
        self._clock = Clock(folder) if self._target.has_clock else None
        self._over = threading.Event()
        self._harms: Counter[str] = Counter()
        self._faults: list[str] = []
        self._refused: Counter[str] = Counter()
        self._waits: list[float] = []
        self._left = 0

    def run(self) -> int:
        if self._clock is not None:
            # For the servers, which inherit it whenever they start.
            os.environ.update(self._clock.environment)
        with self._target:
            entries = self._soaked()
        for fault in self._faults:
            print("FAULT:", fault)
            for entry in sorted(entry for entry in entries if entry.uuid and entry.uuid in fault)[:50]:
                print("   ", entry)
        done = Counter(f"{entry.verb} {entry.outcome}" for entry in entries)
        print(
            f"{self._given.kind}, seed {self._given.seed}: {self._given.minutes:g} minutes, {len(entries)} acts, "
            f"{sum(self._harms.values())} harms, slowest wake {max(self._waits, default=0):.2f} s, "
            f"{self._left} entries left, {len(self._faults)} faults; "
            f"harms: {dict(sorted(self._harms.items()))}; acts: {dict(sorted(done.items()))}; "
            f"refused or failed: {dict(sorted(self._refused.items()))}"
        )
        return 1 if self._faults else 0

    def _soaked(self) -> list[HistoryEntry]:
        conf = {"claim_ttl": TTL, "retry_for": PATIENCE, **self._target.conf}
        with jobboard.backend("board", conf) as board:
            new = set(self._target.contents())
            crew = Crew(conf, self._folder, self._given.seed, self._target.has_clock)
            ruler = Ruler(board)
            try:
                self._harmed(crew, ruler)
                crew.check_progress()
                crew.drain()
                if not self._drained(board):
                    crew.show_stacks()
                crew.join()
            finally:
                crew.end()
            self._faults += [*crew.faults, *crew.stray_errors()]
            self._refused = crew.failures
            if broken := crew.failures["ConnectionFailure"]:
                self._faults.append(f"{broken} calls found no server within {PATIENCE} s, and no outage was as long")
            self._faults += damage(board)
            entries = from_files(sorted(self._folder.glob("*.jsonl")))
            self._faults += self._judged(entries, board, ruler.recorder)
            if self._given.limits:
                ruler.end()
            self._tidy(board, new)
        return entries

    def _harmed(self, crew: Crew, ruler: Ruler) -> None:
        """Three or four kinds of harm at the same time, each with dice of its own."""
        if self._given.limits:
            ruler.begin(random.Random(self._given.seed))
        for number in range(self._given.processes):
            crew.start(number)
        loops = {"servers": self._harm_servers, "workers": crew.harm}
        if self._given.limits:
            loops["limits"] = ruler.change
        if self._given.clock_steps:
            loops["clock"] = self._step
        with ThreadPoolExecutor(len(loops)) as pool:
            runs = [pool.submit(self._repeat, name, harm) for name, harm in loops.items()]
            wait(runs, 60 * self._given.minutes, FIRST_EXCEPTION)
            self._over.set()
        for run in runs:
            run.result()
        if self._clock is not None:
            self._clock.set(0)

    def _repeat(self, name: str, harm: Callable[[random.Random], str]) -> None:
        dice = random.Random(f"{self._given.seed} {name}")
        while not self._over.wait(self._given.every * dice.uniform(0.5, 1.5)):
            began = boottime()
            told = harm(dice)
            with (self._folder / "harms.txt").open("a") as file:
                file.write(f"{began:.3f} to {boottime():.3f}: {name}: {told}\n")
            self._harms[told if name == "servers" else name] += 1

    def _harm_servers(self, dice: random.Random) -> str:
        harm = dice.choice(self._target.harms)
        getattr(self._target, harm)(dice)
        return harm

    def _step(self, dice: random.Random) -> str:
        assert self._clock is not None
        ahead = dice.choice([-10, -3, 0, 3, 10])
        self._clock.set(ahead)
        return f"{ahead} s ahead"

    def _drained(self, board: Any) -> bool:
        """The workers, which all wait for jobs now, leave nothing behind, and wake for each job that comes."""
        poster = Recorder(board, "poster", to_file(self._folder / "poster.jsonl"))
        for turn in range(1 + WAKES):
            began = time.monotonic()
            try:
                eventually(lambda: board.job_count == 0, 2 * PATIENCE)
            except AssertionError:
                left = [f"{job.name} {job.uuid} {job.seen_state}" for job in board.iterjobs(ensure_fresh=True)]
                self._faults.append(f"{len(left)} jobs are not taken: {left[:10]}; {board.stats()}")
                return False
            if turn:
                self._waits.append(time.monotonic() - began)
            # Until they all sleep again.
            time.sleep(0.3)
            if turn < WAKES:
                poster.post_many([Posting("wake")])
        if max(self._waits) > SLEPT:
            self._faults.append(f"who waits is not woken: it took {max(self._waits):.1f} s to have a job done")
        return max(self._waits) <= SLEPT

    def _judged(self, entries: list[HistoryEntry], board: Any, ruler: Recorder) -> list[str]:
        """Order is left out: a call that nobody was answered may have touched any job, and jobs are delayed and given
        back. So is the end of leases where the clock that they go by has been set forward."""
        unordered = [entry._replace(chosen=False) for entry in entries]
        faults = judge(unordered, left_on(board), pauses=ruler.pauses, limits=ruler.limits)
        if self._given.clock_steps:
            faults = [fault for fault in faults if not fault.startswith("taken too early")]
        return faults

    def _tidy(self, board: Any, new: set[str]) -> None:
        """Two days later there is neither an outcome nor the answer of a call left, nor a mark of a purged job."""
        board.purge_trash(0)
        if self._clock is not None:
            self._clock.set(TWO_DAYS)
        else:
            set_clock(TWO_DAYS)

        left: list[str] = []

        def tidied() -> bool:
            while board.engine.tidy(5):
                continue
            left[:] = (entry for entry in self._target.contents() if entry not in new)
            self._left = len(left)
            return self._left <= SLACK

        try:
            eventually(tidied, 120)
        except AssertionError:
            kinds = Counter(re.sub(r"[0-9a-f]{6,}|[0-9]+", "#", entry) for entry in left)
            self._faults.append(f"{self._left} entries are left: {kinds.most_common(20)}")


def damage(board: Any) -> list[str]:
    """Entries of the server that don't fit together, on a board that nobody works on. Its settings don't matter."""
    return [f"{odd.place}: {odd.reason}" for odd in board.examine() if not odd.place.startswith("characteristic ")]


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=Soak.TARGETS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--members", type=int, default=1, help="how many servers of ZooKeeper or etcd")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--every", type=float, default=6, help="seconds between two harms of a kind, on the average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--limits", action="store_true", help="set limits and pauses, and change them")
    parser.add_argument("--clock-steps", action="store_true", help="set the servers' clock, both ways")
    parser.add_argument("--keep", type=Path, help="where to leave the histories and the logs, faults or none")
    given = parser.parse_args()
    if given.members > 1 and given.kind not in ("zookeeper", "etcd"):
        parser.error(f"--members={given.members}: {given.kind} has servers of its own number")
    if given.clock_steps and (given.limits or given.kind == "etcd"):
        parser.error("--clock-steps: etcd has no clock, and no history tells whether a limit by a wrong one was obeyed")
    print(f"seed {given.seed}", flush=True)
    folder = given.keep or Path(tempfile.mkdtemp(prefix="jobboard-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=folder / "soak.log", format="%(asctime)s %(name)s %(message)s")
    status = Soak(given, folder).run()
    if status:
        print(f"the histories and the logs are in {folder}", file=sys.stderr)
    elif given.keep is None:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
