"""Servers that are unfit, weak, busy or full: a board says so at connect, and loses no job later."""

import tracemalloc
from itertools import islice
from typing import Any

import pytest
import redis

import jobboard
from jobboard.backends.redis.server import server_of
from jobboard.backends.redis.store import LAYOUT
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import PATIENCE, Background, Waiter, take
from tests.backends.redis.conftest import OpenBoard
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")

# Versions


class _Canned:
    """The answers of a server whose version is not installed here."""

    def __init__(self, info: str) -> None:
        self._info = info

    def call(self, request: bytes) -> Any:
        return self._info.encode() if b"INFO" in request else [b"appendfsync", b"always"]


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16", "6.1.242"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(JobFailure, match=rf"Redis {version}.*6\.2"):
        server_of(_Canned(f"# Server\r\nredis_version:{version}\r\n"), False)


@pytest.mark.parametrize(
    ("lines", "name", "since_7"),
    [
        ("redis_version:6.2.0", "Redis 6.2.0", False),
        ("redis_version:7.0.0-rc1", "Redis 7.0.0-rc1", True),
        ("redis_version:10.0.1", "Redis 10.0.1", True),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2", "Valkey 9.1.2", True),
    ],
)
def test_a_newer_server_is_recognized(lines: str, name: str, since_7: bool) -> None:
    found = server_of(_Canned(f"{lines}\r\naof_enabled:1\r\n"), False)
    assert found.since_7 == since_7
    assert found.durable
    assert found.notes.startswith(name)


# Settings


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_server_that_evicts_is_refused(server: Redis, admin: redis.Redis, open_board: OpenBoard, policy: str) -> None:
    admin.config_set("maxmemory-policy", policy)
    refused = jobboard.fetch("board", server.uri)
    for call in (refused.connect, refused.setup):
        with pytest.raises(JobFailure, match=f"maxmemory-policy is {policy}.*allow_eviction") as caught:
            call()
        assert not isinstance(caught.value, ConnectionFailure)
    assert admin.dbsize() == 0
    assert policy in open_board(server.uri, allow_eviction=True).characteristics.notes
    # A board has no key with a time to live, which is all that these policies evict.
    admin.config_set("maxmemory-policy", "volatile-ttl")
    open_board(server.uri)


@pytest.mark.rule("The doctor names settings that may lose jobs.")
def test_a_board_is_durable_where_the_server_waits_for_its_disk(
    server: Redis, admin: redis.Redis, open_board: OpenBoard
) -> None:
    settings: list[tuple[str, str, bool, str]] = [
        ("appendfsync", "always", True, "a power loss loses nothing"),
        ("appendfsync", "everysec", False, "about a second"),
        ("appendfsync", "no", False, "what the system has not written"),
        ("appendonly", "no", False, "no append-only file"),
    ]
    for name, value, durable, notes in settings:
        admin.config_set(name, value)
        for protocol in (2, 3):
            found = open_board(server.uri, protocol=protocol).characteristics
            assert (found.durable, notes in found.notes) == (durable, True)


@pytest.mark.rule("A server that takes nothing for a while is waited for.")
@pytest.mark.parametrize(
    ("trouble", "end"),
    [
        (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "min-replicas-to-write", 1), ("CONFIG", "SET", "min-replicas-to-write", 0)),
    ],
)
def test_a_server_that_takes_no_writes_for_a_while_is_waited_for(
    server: Redis,
    open_board: OpenBoard,
    caplog: pytest.LogCaptureFixture,
    trouble: tuple[Any, ...],
    end: tuple[Any, ...],
) -> None:
    board = open_board(server.uri, retry_for=20)
    board.post("resize")
    server.call(*trouble)
    post = Background(lambda: board.post("crop"))
    assert eventually(lambda: "trying again" in caplog.text)
    assert post.running
    server.call(*end)
    job = post.wait(PATIENCE)
    assert [found.uuid for found in board.iterjobs(names=["crop"])] == [job.uuid]


def test_a_board_opens_for_reading_while_replicas_are_missing(server: Redis, open_board: OpenBoard) -> None:
    job = open_board(server.uri).post("resize")
    server.call("CONFIG", "SET", "min-replicas-to-write", 1)
    board = open_board(server.uri, retry_for=0)
    assert (board.stats().unclaimed, list(board.iterjobs())) == (1, [job])
    list(board.examine())
    with pytest.raises(ConnectionFailure, match="can't do it now"):
        board.post("crop")


# Memory

LARGE = {"text": "x" * 10_000}


def test_a_full_server_keeps_what_it_has_and_drains(private_server: Any, open_board: OpenBoard) -> None:
    server = private_server("redis", config={"maxmemory": "6mb"})
    board, jobs = open_board(server.uri), []
    with pytest.raises(JobFailure, match="memory is full: nothing was stored") as caught:
        jobs.extend(board.post("resize", details=LARGE, key=f"k{number}") for number in range(3000))
    posted = len(jobs)
    assert not isinstance(caught.value, ConnectionFailure)
    # What the last job would have taken is still enough for small things.
    server.call("CONFIG", "SET", "maxmemory", 3_000_000)
    assert posted > 50
    assert board.stats().on_board == board.stats().unclaimed == posted
    for late in ({"key": f"k{posted}"}, {"delay": 5}, {}):
        with pytest.raises(JobFailure, match="memory is full"):
            board.post("resize", details=LARGE, **late)
    assert len(list(board.iterjobs())) == posted
    assert server.call("HLEN", "jobboard:{board}:postings") == posted
    other = open_board(server.uri)
    other.register_entity(jobboard.Entity("conductor", "c", {}))
    job = take(other, "anna")
    other.extend(job, "anna", 600)
    other.abandon(job, "anna", error="later")
    jobs = board.claim_many("anna", 100)
    waiter = Waiter(other, lambda: take(other, "bert", names=["crop"], timeout=PATIENCE))
    board.release(jobs[0])
    board.cancel(jobs.pop(0))
    with pytest.raises(JobFailure, match="memory is full"):
        board.post("crop", details=LARGE)
    while jobs:
        board.consume_many(jobs, "anna")
        jobs = board.claim_many("anna", 100)
    assert board.stats().on_board == 0
    crop = board.post("crop", details=LARGE)
    assert waiter.wait(PATIENCE) == crop
    assert board.stats().trashed == 1


# Layouts


def test_a_layout_that_cannot_be_read_is_refused(server: Redis, admin: redis.Redis, open_board: OpenBoard) -> None:
    job = open_board(server.uri).post("resize")
    meta = "jobboard:{board}:meta"
    admin.hset(meta, mapping={"layout": LAYOUT + 2, "min_reader": LAYOUT + 1})
    board = jobboard.fetch("board", server.uri)
    for call in (board.connect, board.setup):
        with pytest.raises(JobFailure, match=rf"layout {LAYOUT + 2} of a newer version"):
            call()
    assert not board.connected
    # A newer layout that says so can be read.
    admin.hset(meta, mapping={"layout": LAYOUT + 2, "min_reader": LAYOUT})
    assert take(open_board(server.uri)) == job
    assert admin.hget(meta, "layout") == b"%d" % (LAYOUT + 2)


# Large boards


@pytest.mark.rule("A walk takes no more memory on a larger board.")
def test_a_walk_takes_no_more_memory_on_a_larger_board(server: Redis, open_board: OpenBoard) -> None:
    board = open_board(server.uri)
    board.post_many([{"name": "resize", "details": {"file": "x" * 100}}] * 6000)

    def peak(jobs: int) -> int:
        """Return the most bytes in use while a walk passed so many jobs."""
        tracemalloc.start()
        try:
            assert sum(1 for _ in islice(board.iterjobs(), jobs)) == jobs
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    # A walk that kept the jobs would take six times as much. Other threads take some, too.
    assert peak(6000) <= 3 * peak(1000)
