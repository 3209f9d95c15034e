"""Requests: how many round trips and commands a call costs, and where its keys lie."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from jobboard.backends.redis.keys import keys_of
from jobboard.job import Job
from jobboard.testing import eventually
from jobboard.testing.conformance.support import PATIENCE, Background, take
from tests.backends.redis.conftest import OpenBoard, Place
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")


def round_trips(place: Place, act: Callable[[], object]) -> int:
    place.count()
    act()
    return place.calls["evalsha"]


@pytest.mark.rule("A batch is as many commands as two jobs, and counts each number once.")
def test_a_batch_is_as_many_commands_as_two_jobs(place: Place) -> None:
    board = place.board()

    def calls(act: Callable[[], Any]) -> dict[str, int]:
        place.count()
        act()
        return {name: count for name, count in place.calls.items() if name.startswith(("h", "z"))}

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
    assert few[0]["hset"] == 4


def test_an_iteration_costs_one_round_trip_for_500_jobs(place: Place) -> None:
    board = place.board()
    board.post_many([{"name": "resize"}] * 2600)
    board.claim_many("anna", 600)
    list(board.iterjobs(names=["none"]))
    # An iteration over some states passes over 2,000 other jobs in a request.
    for states, count, pages in ((None, 2600, 6), (["CLAIMED"], 600, 3), (["UNCLAIMED"], 2000, 5)):
        jobs: list[Job] = []
        assert round_trips(place, lambda: jobs.extend(board.iterjobs(states=states))) == pages  # noqa: B023
        assert len(jobs) == count
        assert {job.seen_state for job in jobs} <= set(states or ["CLAIMED", "UNCLAIMED"])


def test_a_claim_costs_one_round_trip_on_any_board(place: Place) -> None:
    board = place.board()
    for size in (1, 1000):
        board.post_many([{"name": "resize"}] * size)
        jobs: list[Job] = []
        assert round_trips(place, lambda: jobs.append(take(board))) == 1  # noqa: B023
        assert round_trips(place, lambda: board.consume(jobs[0], "anna")) == 1  # noqa: B023


@pytest.mark.parametrize("name", ["board", "a{b}c", "%7B", "ö"])
def test_all_keys_and_channels_of_a_board_lie_in_one_slot(
    server: Redis, admin: redis.Redis, open_board: OpenBoard, name: str
) -> None:
    board: Any = open_board(server.uri, name)
    slots = {key_slot(key) for key in board.engine.store.keys.all}
    assert len(slots) == 1
    # The name is part of the hash tag, so that boards are spread.
    assert slots != {key_slot(keys_of(b"another", name + "x").tag)}
    waiter = Background(lambda: board.claim_next("anna", timeout=PATIENCE))
    board.notifier.register("POSTED", lambda event, details: None)
    eventually(lambda: admin.hlen(board.engine.store.keys.of("bells")) == 1)
    channels = admin.execute_command("PUBSUB", "SHARDCHANNELS")
    assert len(channels) == 3
    assert {key_slot(channel) for channel in channels} == slots
    board.post("resize")
    assert waiter.wait() is not None
    board.cancel(board.post("crop", key="k"))
    assert {key_slot(key) for key in admin.scan_iter()} == slots
    # A time to live is what a server under memory pressure goes by.
    assert {admin.ttl(key) for key in admin.scan_iter()} == {-1}


def test_each_thread_keeps_one_answer(server: Redis, admin: redis.Redis, open_board: OpenBoard) -> None:
    board: Any = open_board(server.uri)
    threads = [threading.Thread(target=lambda: [board.post("a") for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admin.hlen(board.engine.store.keys.of("sides")) <= 4
    assert board.job_count == 80
