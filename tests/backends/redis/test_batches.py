"""What the scripts put off: writes that go together, and numbers that are counted at once."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis

from jobboard.board import JobBoard
from jobboard.engine import Change
from jobboard.exceptions import JobFailure
from jobboard.job import Job
from jobboard.primitives import Draft, Nonce
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")


@pytest.fixture
def board(server: Redis, open_board: Callable[..., JobBoard]) -> JobBoard:
    """On a server that nobody else is on, as commands are counted there."""
    return open_board(server.uri)


def drafts(count: int) -> list[Draft]:
    return [Draft(str(uuid.uuid4()), "mail", 100, None, 1, b"posting", None, None, None) for _ in range(count)]


def key(board: JobBoard, container: str) -> bytes:
    place: bytes = board.engine.store.keys.of(container)  # type: ignore[attr-defined]
    return place


def post(board: JobBoard, count: int) -> list[int]:
    jobs = board.post_many([{"name": "mail", "details": {"n": number}} for number in range(count)])
    return [job.sequence for job in jobs]


def calls(admin: redis.Redis, do: Callable[[], Any]) -> dict[str, int]:
    admin.config_resetstat()
    do()
    stats = admin.info("commandstats")
    return {name: each["calls"] for name, each in stats.items() if name.startswith(("cmdstat_h", "cmdstat_z"))}


def test_a_batch_is_as_many_commands_as_two_jobs(board: JobBoard, admin: redis.Redis) -> None:
    def spent(count: int) -> list[dict[str, int]]:
        taken: list[Job] = []
        return [
            calls(admin, lambda: post(board, count)),
            calls(admin, lambda: taken.extend(board.claim_many("anna", count))),
            calls(admin, lambda: board.consume_many(taken, "anna")),
        ]

    # What is said once in a connection's life, or in that of an answer, has been said then.
    spent(2)
    few = spent(2)
    assert few == spent(100)
    # Records, postings, the answer of the call, and the last number.
    assert few[0]["cmdstat_hset"] == 4


def test_numbers_rise_from_batch_to_batch(board: JobBoard) -> None:
    numbers = [*post(board, 3), *post(board, 1), *post(board, 100), *post(board, 2)]
    assert numbers == sorted(set(numbers))
    taken = board.claim_many("anna", 100)
    assert [job.sequence for job in taken] == numbers[:100]
    assert [job.details["n"] for job in taken[4:]] == list(range(96))


@pytest.mark.parametrize("counter", ["many", "-5", "", None])
def test_a_counter_that_is_damaged_before_a_batch(board: JobBoard, admin: redis.Redis, counter: str | None) -> None:
    """Numbers go on from the time, as after a failover that has lost some."""
    [before] = post(board, 1)
    if counter is None:
        admin.hdel(key(board, "meta"), "last")
    else:
        admin.hset(key(board, "meta"), "last", counter)
    numbers = [before, *post(board, 500), *post(board, 5)]
    assert numbers == sorted(set(numbers))
    assert len(board.claim_many("anna", 1_000)) == 506


def test_numbers_rise_though_the_clock_is_behind(board: JobBoard, admin: redis.Redis) -> None:
    ahead = board.engine.raw.now() + 10**9
    admin.hset(key(board, "meta"), "last", ahead)
    numbers = [*post(board, 3), *post(board, 2)]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > ahead


def test_no_number_is_given_out_that_is_not_counted(board: JobBoard) -> None:
    store = board.engine.store  # type: ignore[attr-defined]
    stored = store.commit([Change(None, draft, None) for draft in drafts(2)]).jobs
    numbers = [*(job.record.sequence for job in stored), *post(board, 2)]
    assert numbers == sorted(set(numbers))


def test_a_script_unpacks_no_more_than_it_can(board: JobBoard) -> None:
    """Lua has room for 8,000 words."""
    assert {posted.status for posted in board.engine.raw.insert(drafts(4_500), Nonce("handle", 1, 1))} == {"ok"}
    assert board.job_count == 4_500


@pytest.mark.parametrize("container", ["ready", "live", "postings"])
def test_what_the_server_refuses_half_way_has_no_answer(board: JobBoard, admin: redis.Redis, container: str) -> None:
    """No record is without its place, and who repeats the call is not told that it is done."""
    batch, place = drafts(3), key(board, container)
    admin.set(place, "another's")
    with pytest.raises(JobFailure, match="WRONGTYPE"):
        board.engine.raw.insert(batch, Nonce("handle", 1, 1))
    assert not admin.exists(key(board, "jobs"))
    admin.delete(place)
    assert [posted.status for posted in board.engine.raw.insert(batch, Nonce("handle", 1, 1, 2))] == ["ok"] * 3
    taken = board.engine.raw.take("anna", 3, None, None, 1, Nonce("handle", 1, 2)).records
    assert [record.uuid for record in taken] == [each.uuid for each in batch]
