"""Outcomes on Redis: each is listed once, damage to one hides no other, and what has ended leaves nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from jobboard.board import JobBoard
from jobboard.engine import Mark
from jobboard.job import Job
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG

pytestmark = pytest.mark.backends("redis")


@pytest.fixture
def board(make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board(keep_done=LONG)


@pytest.fixture
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


def consumed(board: JobBoard) -> Job:
    job = board.post("resize")
    board.claim(job, "anna")
    board.consume(job, "anna", result=1)
    return job


def test_one_that_is_written_again_is_listed_once(board: JobBoard) -> None:
    job = consumed(board)
    store: Any = board.engine.raw
    [side] = store.store.read([], [("outcome", job.uuid)]).sides
    store.store.commit([], [Mark(side, side.value, 10**9)])
    assert [left.uuid for left in board.outcomes()] == [job.uuid]


DAMAGE: dict[str, Callable[[Any, bytes, bytes, str, bytes], object]] = {
    "no msgpack": lambda client, sides, listed, uuid, member: client.hset(sides, f"outcome\0{uuid}", b"\xc1"),
    "no outcome": lambda client, sides, listed, uuid, member: client.hset(sides, f"outcome\0{uuid}", b"%036d" % 1),
    "no side record": lambda client, sides, listed, uuid, member: client.hdel(sides, f"outcome\0{uuid}"),
    "not listed": lambda client, sides, listed, uuid, member: client.zrem(listed, member),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_to_one_hides_no_other(board: JobBoard, client: redis.Redis, how: str) -> None:
    first, second, third = (consumed(board) for _ in range(3))
    keys = board.engine.store.keys  # type: ignore[attr-defined]
    members = client.zrange(keys.of("listed"), 0, -1)
    assert [member[-36:].decode() for member in members] == [third.uuid, second.uuid, first.uuid]
    DAMAGE[how](client, keys.of("sides"), keys.of("listed"), second.uuid, members[1])
    assert [left.uuid for left in board.outcomes()] == [third.uuid, first.uuid]
    board.engine.raw.tidy()
    assert third.result() == 1


def test_what_has_ended_is_dropped_with_all_that_leads_to_it(
    make_board: Callable[..., JobBoard], client: redis.Redis
) -> None:
    board = make_board(keep_done=0.001)
    for _ in range(3):
        consumed(board)
    eventually(lambda: not list(board.outcomes()))
    board.engine.raw.tidy()
    keys = board.engine.store.keys
    assert client.zcard(keys.of("listed")) == 0
    assert [field for field in client.hkeys(keys.of("sides")) if field.startswith(b"outcome")] == []
    assert [field for field in client.zrange(keys.of("ends"), 0, -1) if field.startswith(b"outcome")] == []
