"""What goes wrong on TaskFlow's Redis board, and must not come back here; see tests/test_taskflow_defects.py, too."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
import redis
from redis.crc import key_slot

import jobboard
from jobboard.backends.redis.keys import CONTAINERS, keys_of
from jobboard.backends.redis.scripts import Script
from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.job import Job
from jobboard.states import CLAIMED, COMPLETE
from jobboard.testing import eventually
from jobboard.testing.conformance.support import PATIENCE, Background, MakeBoard, replaced
from jobboard.testing.conformance.wire import QUIET
from jobboard.testing.faults import FaultyProxy
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")

NOT_COUNTED = ("HLEN", "HELLO", "CLIENT", "SSUBSCRIBE")
"""What the tests ask themselves, and what comes once for each connection."""

SCRIPTS = ("post", "commit", "take", "finish", "renew", "look", "read", "scan", "wait", "leave", "tidy")


@pytest.fixture
def server(private_server: Callable[..., Redis]) -> Redis:
    """Nobody else sends commands to it."""
    return private_server("redis")


@pytest.fixture
def client(server: Redis) -> Iterator[redis.Redis]:
    with redis.Redis(*server.address) as client:
        yield client


@pytest.fixture
def boards(server: Redis, make_board: MakeBoard) -> Callable[..., JobBoard]:
    """``make_board``, on that server. Heartbeats are no part of what is counted."""
    return lambda name="board", **options: make_board(name, board=server.uri, **{"claim_ttl": QUIET, **options})


class Commands:
    """What clients send to a server, scripts by their names; what scripts do is no part of it."""

    def __init__(self, client: redis.Redis, board: JobBoard) -> None:
        self._client = client
        flags = board.engine.store.server.flags
        self._names = {
            client.script_load(Script(name, board.engine.store.keys, flags).source): name for name in SCRIPTS
        }
        self._prefix = board.engine.store.keys.tag.decode().rpartition(":")[0]

    def __enter__(self) -> Self:
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        self()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._monitor.__exit__(*exc_info)

    def __call__(self) -> Counter[str]:
        """What has come about the board since this was asked last."""
        mark = uuid.uuid4().hex
        self._client.echo(mark)
        seen: Counter[str] = Counter()
        for command in self._monitor.listen():
            words = command["command"].split(" ", 2)
            if mark in words:
                return seen
            if command["client_type"] == "lua" or words[0] in NOT_COUNTED:
                continue
            if words[0] != "EVALSHA":
                seen[words[0]] += 1
            elif self._prefix in words[2]:
                seen[self._names.get(words[1], words[1])] += 1
        raise AssertionError("the server has hung up")


def asleep(client: redis.Redis, board: JobBoard, waiters: int = 1) -> None:
    """Return once so many wait for the server's call."""
    eventually(lambda: client.hlen(board.engine.store.keys.of("bells")) == waiters)


@pytest.fixture
def proxy(server: Redis) -> Iterator[FaultyProxy]:
    with FaultyProxy(*server.address) as proxy:
        yield proxy


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_dropped_reply_does_not_lock_the_claimer_out(
    boards: Callable[..., JobBoard], server: Redis, proxy: FaultyProxy, make_board: MakeBoard, what: Any
) -> None:
    far = make_board(board=proxy.uri_for(server.uri))
    job = far.post("resize")
    fault = proxy.lose(what, matching=job.uuid.encode())
    claim = far.claim(job, "anna")
    assert fault.happened
    assert far.get(job.uuid).attempts == 1
    claim.consume()
    assert boards().job_count == 0


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_dropped_reply_does_not_make_a_post_fail_that_stands(
    server: Redis, proxy: FaultyProxy, make_board: MakeBoard, what: Any
) -> None:
    far = make_board(board=proxy.uri_for(server.uri))
    fault = proxy.lose(what, matching=b"resize")
    job = far.post("resize")
    assert fault.happened
    assert [each.uuid for each in far.iterjobs()] == [job.uuid]
    assert far.claim_many("anna", 2, names=["resize"]) == [job]


def test_the_uris_host_and_port_count(server: Redis, client: redis.Redis) -> None:
    host, number = server.address
    with jobboard.backend("board", f"redis://{host}:{number}/3?namespace=here") as board:
        board.post("resize")
        assert board.job_count == 1
    assert client.info("keyspace")["db3"]["keys"] > 0
    assert "db0" not in client.info("keyspace")
    for elsewhere in (f"127.0.0.2:{number}", f"{host}:9"):
        board = jobboard.fetch("board", f"redis://{elsewhere}/3?retry_for=0")
        with pytest.raises(ConnectionFailure):
            board.connect()


def test_boards_of_two_names_share_no_key(client: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    def use(name: str) -> set[bytes]:
        before = set(client.keys())
        board = boards(name)
        board.post("resize", key="k")
        board.claim_next("anna")
        board.post("crop", delay=600)
        board.cancel(board.post("turn"))
        board.close()
        return set(client.keys()) - before

    # Of a key that both use, only the first would be the one to make it.
    one, two = use("one"), use("two")
    assert one
    assert {key.rpartition(b":")[2] for key in one} == {key.rpartition(b":")[2] for key in two}


@pytest.mark.parametrize("name", ["board", "a{b}c", "}{", "{}", "%7B", "a:b", "ö", " "])
def test_a_board_works_on_a_cluster(client: redis.Redis, boards: Callable[..., JobBoard], name: str) -> None:
    """All that it has lies in one slot; the cluster itself is in test_topologies.py."""
    board = boards(name)
    slots = {key_slot(key) for key in board.engine.store.keys.all}
    assert len(slots) == 1
    # Names are spread: what lies within the braces is no part of the namespace alone.
    assert slots != {key_slot(keys_of(b"another", name + "x").tag)}
    waiter = Background(lambda: board.claim_next("anna", timeout=PATIENCE))
    board.notifier.register("POSTED", lambda event, details: None)
    asleep(client, board)
    channels = client.execute_command("PUBSUB", "SHARDCHANNELS")
    assert len(channels) == 3
    assert {key_slot(channel) for channel in channels} == slots
    board.post("resize")
    assert waiter.wait() is not None
    board.cancel(board.post("crop", key="k"))
    assert {key_slot(key) for key in client.scan_iter()} == slots


def test_iterating_costs_one_round_trip_per_500_jobs(client: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board = boards()
    board.post_many([{"name": "resize"}] * 2600)
    board.claim_many("anna", 600)
    list(board.iterjobs(names=["none"]))
    with Commands(client, board) as sent:
        # One that looks for some goes through 2,000 others at a time.
        for states, count, pages in ((None, 2600, 6), (["CLAIMED"], 600, 3), (["UNCLAIMED"], 2000, 5)):
            jobs = list(board.iterjobs(states=states))
            assert len(jobs) == count
            assert {job.seen_state for job in jobs} <= set(states or ["CLAIMED", "UNCLAIMED"])
            assert sent() == {"scan": pages}


def test_claiming_costs_one_round_trip_on_any_board(client: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board = boards()
    with Commands(client, board) as sent:
        for size in (1, 1000):
            board.post_many([{"name": "resize"}] * size)
            sent()
            job = board.claim_next("anna")
            assert sent() == {"take": 1}
            board.consume(job, "anna")
            assert sent() == {"finish": 1}


@pytest.mark.parametrize("verb", ["claim_next", "wait"])
def test_wait_does_not_poll(client: redis.Redis, boards: Callable[..., JobBoard], verb: str) -> None:
    board, poster, busy = boards(), boards(), boards("busy")
    limits: list[float] = []

    def wait(original: Any, mark: object, names: Any, limit: float) -> None:
        limits.append(limit)
        original(mark, names, limit)

    calls = {"claim_next": lambda: board.claim_next("anna", timeout=60), "wait": lambda: next(board.wait(timeout=60))}
    with Commands(client, board) as sent, replaced(board, "wait", wait):
        waiter = Background(calls[verb])
        asleep(client, board)
        sent()
        # What happens on other boards is none of its business.
        for _ in range(200):
            busy.consume(busy.post("resize") and busy.claim_next("bert"), "bert")
        assert sent() == {}
        job = poster.post("resize")
        assert waiter.wait() == job
        # What is listed is what is not paused.
        looks = {"claim_next": {"take": 1}, "wait": {"leave": 1, "look": 1, "read": 1, "scan": 1}}[verb]
        assert sent() == {"post": 1, **looks}
    assert limits == [board.engine.raw.poll_cap]


def test_wait_is_not_fooled_by_claimed_jobs(client: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board = boards()
    board.post_many([{"name": "resize"}] * 3)
    held = board.claim_many("anna", 3)
    with Commands(client, board) as sent:
        waiter = Background(lambda: next(board.wait(timeout=60)))
        asleep(client, board)
        assert sent() == {"look": 1, "wait": 1}
        board.consume(held[0], "anna")
        board.extend(held[1], "anna", 600)
        assert sent() == {"finish": 1, "read": 2, "commit": 1}
        assert waiter.running
        board.abandon(held[2], "anna")
        assert waiter.wait() == held[2]


def test_what_leaves_the_board_leaves_no_keys_behind(client: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board = boards()
    for number in range(3):
        jobs = [board.post(f"{number}", key=f"{number}"), board.post(f"{number}", delay=600)]
        claimed = board.claim_next("anna")
        board.trash(claimed, "anna", reason="no use")
        board.restore(claimed)
        board.consume(board.claim_next("anna"), "anna")
        board.cancel(jobs[1])
        board.purge(jobs[1])
    left = {key.rpartition(b":")[2].decode() for key in client.scan_iter()}
    # Nothing of a job's own but, for a day, that it was purged.
    assert left == {"meta", "sides", "ends"}
    assert left <= set(CONTAINERS)
    sides = {side.partition(b"\0")[::2] for side in client.hkeys(board.engine.store.keys.of("sides"))}
    answers = {key.decode() for kind, key in sides if kind == b"answer"}
    assert answers == {f"{board.engine.handle}:1"}
    assert {kind for kind, _ in sides} == {b"answer", b"purged"}


def test_nothing_expires_by_itself(client: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    """What has a time to live is what a server under memory pressure drops first."""
    board = boards()
    board.post("resize")
    board.claim_next("anna", expiry=60)
    board.claim(board.post("resize"), "anna").extend(60)
    board.post("crop", key="k", delay=60)
    board.cancel(board.post("turn"))
    keys = client.keys()
    assert len(keys) > 8
    assert {client.ttl(key) for key in keys} == {-1}


def test_a_closed_board_on_a_shared_client_leaves_nothing(
    client: redis.Redis, server: Redis, board_conf: dict[str, Any]
) -> None:
    client.ping()
    before = len(client.client_list())
    board = jobboard.fetch("board", {"board": "redis", "namespace": board_conf["namespace"]}, client=client)
    board.connect()
    board.notifier.register("*", lambda event, details: None)
    waiter = Background(lambda: board.claim_next("anna", timeout=PATIENCE))
    asleep(client, board)
    assert len(client.client_list()) > before
    bells = board.engine.store.keys.of("bells")
    assert len(client.execute_command("PUBSUB", "SHARDCHANNELS")) == 3
    board.close()
    with pytest.raises(ConnectionFailure):
        waiter.wait()
    eventually(lambda: len(client.client_list()) == before)
    assert client.execute_command("PUBSUB", "SHARDCHANNELS") == []
    assert client.hlen(bells) == 0
    assert client.ping()


def test_connected_tells_the_truth(server: Redis, boards: Callable[..., JobBoard]) -> None:
    """Also after the connection was lost: the board is back as soon as the server is."""
    board = boards(retry_for=0)
    board.post("resize")
    server.kill()
    with pytest.raises(ConnectionFailure):
        board.job_count  # noqa: B018 - an empty board would be a lie
    server.start()
    assert board.connected
    assert eventually(lambda: _count(board)) == 1
    board.close()
    assert not board.connected


def _count(board: JobBoard) -> int | None:
    try:
        return board.job_count
    except ConnectionFailure:
        return None


def test_a_conductor_does_not_try_to_claim_its_own_running_jobs(
    client: redis.Redis, boards: Callable[..., JobBoard]
) -> None:
    board = boards()
    go_on, begun = threading.Event(), []

    def work(job: Job) -> None:
        begun.append(job.name)
        if job.name == "long":
            assert go_on.wait(30)

    conductor = Conductor("conductor", board, work)
    running = Background(conductor.run)
    try:
        long = board.post("long")
        board.post("first")
        eventually(lambda: conductor.tally.consumed == 1)
        asleep(client, board)
        with Commands(client, board) as sent:
            short = board.post("short")
            eventually(lambda: conductor.tally.consumed == 2)
            asleep(client, board)
            # The second take finds nothing, and says so at once: the running job is none of its business.
            assert sent() == {"post": 1, "take": 2, "finish": 1, "wait": 1}
        assert (long.state, short.state) == (CLAIMED, COMPLETE)
        assert sorted(begun) == ["first", "long", "short"]
    finally:
        go_on.set()
        conductor.stop()
        running.wait(30)


def test_a_namespace_keeps_equal_names_apart(server: Redis, make_board: MakeBoard) -> None:
    one = make_board("board", board=server.uri, namespace="one")
    two = make_board("board", board=server.uri, namespace="two")
    job = one.post("resize")
    assert two.job_count == 0
    with pytest.raises(NotFound):
        two.get(job.uuid)
