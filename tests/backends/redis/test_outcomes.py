"""Outcomes on Redis: what the script writes is what the engine would, and damage to one hides no other."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from jobboard.board import JobBoard
from jobboard.engine import Mark, StoreEngine
from jobboard.job import Job
from jobboard.primitives import Finish, Nonce
from jobboard.states import Holder, Verb
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


def test_the_script_writes_what_the_engine_would(board: JobBoard) -> None:
    found = []
    for finish in (board.engine.finish, lambda *given: StoreEngine.finish(board.engine, *given)):
        job = board.post("ä", details={"a": "€"}, key="k", group="g", priority=3, max_attempts=9)
        for _ in range(2):
            board.claim(job, "anna")
            board.abandon(job, "anna", error="nö")
        claim = board.claim(job, "bert", expiry=LONG)
        act = Finish(job.uuid, Holder("bert", claim.token), Verb.CONSUME, keep=10**9, result=b"\xff\x00", refused="whü")
        assert finish([act], Nonce(f"handle{len(found)}", 1, 1)) == ["ok"]
        [done] = board.engine.outcomes([job.uuid])
        assert done is not None
        record = done.record
        assert record.created_on < done.begun < record.modified_on < done.until
        assert [failure.who for failure in record.errors] == ["anna", "anna"]
        errors = tuple(failure._replace(on=0) for failure in record.errors)
        alike = record._replace(uuid="", sequence=0, token=0, created_on=0, modified_on=0, errors=errors)
        found.append((alike, done.result, done.refused))
    assert found[0] == found[1]


def test_one_that_is_written_again_is_listed_once(board: JobBoard) -> None:
    job = consumed(board)
    store: Any = board.engine
    [side] = store._live.read([], [("outcome", job.uuid)]).sides
    store._live.commit([], [Mark(side, side.value, 10**9)])
    assert [left.uuid for left in board.outcomes()] == [job.uuid]


DAMAGE: dict[str, tuple[Callable[[Any, str, str, str, bytes], object], str]] = {
    "no msgpack": (lambda r, sides, listed, uuid, member: r.hset(sides, f"outcome\0{uuid}", b"\xc1"), "can't be read"),
    "no outcome": (
        lambda r, sides, listed, uuid, member: r.hset(sides, f"outcome\0{uuid}", b"\x01\xc2\x91\x01"),
        "can't be read",
    ),
    "no side record": (lambda r, sides, listed, uuid, member: r.hdel(sides, f"outcome\0{uuid}"), "is missing"),
    "not listed": (lambda r, sides, listed, uuid, member: r.zrem(listed, member), "no list of outcomes"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_to_one_hides_no_other(board: JobBoard, client: redis.Redis, how: str) -> None:
    first, second, third = (consumed(board) for _ in range(3))
    keys = board.engine._live.keys
    sides, listed = keys.of("sides"), keys.of("listed")
    members = client.zrange(listed, 0, -1)
    assert [member[-36:].decode() for member in members] == [first.uuid, second.uuid, third.uuid]
    harm, told = DAMAGE[how]
    harm(client, sides, listed, second.uuid, members[1])
    found = [odd for odd in board.examine() if not odd.place.startswith("characteristic")]
    assert any(told in odd.reason for odd in found)
    assert all(second.uuid in odd.place for odd in found)
    assert [left.uuid for left in board.outcomes()] == [third.uuid, first.uuid]
    board.engine.tidy()
    assert third.result() == 1


def test_what_has_ended_is_dropped_with_all_that_leads_to_it(
    make_board: Callable[..., JobBoard], client: redis.Redis
) -> None:
    board = make_board(keep_done=0.001)
    for _ in range(3):
        consumed(board)
    eventually(lambda: not list(board.outcomes()))
    board.engine.tidy()
    keys = board.engine._live.keys
    assert client.zcard(keys.of("listed")) == 0
    assert [field for field in client.hkeys(keys.of("sides")) if field.startswith(b"outcome")] == []
    assert [field for field in client.zrange(keys.of("ends"), 0, -1) if field.startswith(b"outcome")] == []
