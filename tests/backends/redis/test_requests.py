"""Requests: how many round trips and commands a call costs, and where its keys lie."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import pytest
import redis
from redis.crc import key_slot

from jobboard.backends.redis.keys import keys_of
from jobboard.backends.redis.scripts import Script
from jobboard.board import JobBoard
from jobboard.job import Job
from jobboard.testing import eventually
from jobboard.testing.conformance.support import PATIENCE, Background, MakeBoard
from jobboard.testing.conformance.wire import QUIET
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")

NOT_COUNTED = ("HLEN", "HELLO", "CLIENT", "SSUBSCRIBE")
"""Commands of the tests themselves, and commands that each connection sends once."""

SCRIPTS = ("post", "commit", "take", "finish", "renew", "look", "read", "scan", "wait", "leave", "tidy")


@pytest.fixture
def boards(server: Redis, make_board: MakeBoard) -> Callable[..., JobBoard]:
    """``make_board`` on a server of the test's own. No heartbeat is due during a test."""
    return lambda name="board", **options: make_board(name, board=server.uri, **{"claim_ttl": QUIET, **options})


class Commands:
    """The commands that clients send about a board, scripts by their names."""

    def __init__(self, client: redis.Redis, board: Any) -> None:
        self._client = client
        store = board.engine.store
        scripts = {name: Script(name, store.keys, store.server.flags).source for name in SCRIPTS}
        self._names = {client.script_load(source): name for name, source in scripts.items()}
        self._prefix = store.keys.tag.decode().rpartition(":")[0]

    def __enter__(self) -> Self:
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        self()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._monitor.__exit__(*exc_info)

    def __call__(self) -> Counter[str]:
        """Return the commands since the last call."""
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


def until_asleep(client: redis.Redis, board: Any) -> None:
    eventually(lambda: client.hlen(board.engine.store.keys.of("bells")) == 1)


def test_a_batch_is_as_many_commands_as_two_jobs(boards: Callable[..., JobBoard], admin: redis.Redis) -> None:
    board = boards()

    def calls(act: Callable[[], Any]) -> dict[str, int]:
        admin.config_resetstat()
        act()
        stats = admin.info("commandstats")
        return {name: each["calls"] for name, each in stats.items() if name.startswith(("cmdstat_h", "cmdstat_z"))}

    def spent(count: int) -> list[dict[str, int]]:
        taken: list[Job] = []
        return [
            calls(lambda: board.post_many([{"name": "mail"}] * count)),
            calls(lambda: taken.extend(board.claim_many("anna", count))),
            calls(lambda: board.consume_many(taken, "anna")),
        ]

    # The first calls of a connection and of a slot cost more.
    spent(2)
    few = spent(2)
    assert few == spent(100)
    # Records, postings, the answer of the call, and the last number.
    assert few[0]["cmdstat_hset"] == 4


def test_an_iteration_costs_one_round_trip_for_500_jobs(admin: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board = boards()
    board.post_many([{"name": "resize"}] * 2600)
    board.claim_many("anna", 600)
    list(board.iterjobs(names=["none"]))
    with Commands(admin, board) as sent:
        # An iteration over some states passes over 2,000 other jobs in a request.
        for states, count, pages in ((None, 2600, 6), (["CLAIMED"], 600, 3), (["UNCLAIMED"], 2000, 5)):
            jobs = list(board.iterjobs(states=states))
            assert len(jobs) == count
            assert {job.seen_state for job in jobs} <= set(states or ["CLAIMED", "UNCLAIMED"])
            assert sent() == {"scan": pages}


def test_a_claim_costs_one_round_trip_on_any_board(admin: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board = boards()
    with Commands(admin, board) as sent:
        for size in (1, 1000):
            board.post_many([{"name": "resize"}] * size)
            sent()
            job = board.claim_next("anna")
            assert job is not None
            assert sent() == {"take": 1}
            board.consume(job, "anna")
            assert sent() == {"finish": 1}


def test_a_waiting_lister_is_woken_by_claimable_jobs_alone(admin: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board, busy = boards(), boards("busy")
    board.post_many([{"name": "resize"}] * 3)
    held = board.claim_many("anna", 3)
    with Commands(admin, board) as sent:
        waiter = Background(lambda: next(board.wait(timeout=60)))
        until_asleep(admin, board)
        assert sent() == {"look": 1, "wait": 1}
        for _ in range(20):
            busy.consume(busy.post("resize") and busy.claim_next("bert"), "bert")
        board.consume(held[0], "anna")
        board.extend(held[1], "anna", 600)
        assert sent() == {"finish": 1, "read": 2, "commit": 1}
        assert waiter.running
        board.abandon(held[2], "anna")
        assert waiter.wait() == held[2]


@pytest.mark.parametrize("name", ["board", "a{b}c", "%7B", "ö"])
def test_all_keys_and_channels_of_a_board_lie_in_one_slot(
    admin: redis.Redis, boards: Callable[..., JobBoard], name: str
) -> None:
    board: Any = boards(name)
    slots = {key_slot(key) for key in board.engine.store.keys.all}
    assert len(slots) == 1
    # The name is part of the hash tag, so that boards are spread.
    assert slots != {key_slot(keys_of(b"another", name + "x").tag)}
    waiter = Background(lambda: board.claim_next("anna", timeout=PATIENCE))
    board.notifier.register("POSTED", lambda event, details: None)
    until_asleep(admin, board)
    channels = admin.execute_command("PUBSUB", "SHARDCHANNELS")
    assert len(channels) == 3
    assert {key_slot(channel) for channel in channels} == slots
    board.post("resize")
    assert waiter.wait() is not None
    board.cancel(board.post("crop", key="k"))
    assert {key_slot(key) for key in admin.scan_iter()} == slots
    # A time to live is what a server under memory pressure goes by.
    assert {admin.ttl(key) for key in admin.scan_iter()} == {-1}


def test_each_thread_keeps_one_answer(admin: redis.Redis, boards: Callable[..., JobBoard]) -> None:
    board: Any = boards()
    threads = [threading.Thread(target=lambda: [board.post("a") for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admin.hlen(board.engine.store.keys.of("sides")) <= 4
    assert board.job_count == 80
