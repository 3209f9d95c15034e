"""Damaged entries in the containers of a board: the doctor names them, and all other jobs live as they always do."""

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import redis

from jobboard.board import JobBoard
from jobboard.engine import Mark
from jobboard.job import Job
from jobboard.states import CLAIMED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, claim_one, engine_of, let_lapse, take, uuids
from tests.backends.redis.conftest import Containers

pytestmark = pytest.mark.backends("redis")

GARBAGE = b"\xc1\xff no msgpack"
FOREIGN = "11111111-1111-4111-8111-111111111111"
"""A uuid that no job has."""
TAG = b"%018d" % 7


@pytest.fixture
def plant(make_board: Callable[..., JobBoard], client: redis.Redis) -> Containers:
    """A board that keeps outcomes, and its containers."""
    return Containers(make_board(keep_done=LONG), client)


SITUATIONS: dict[str, tuple[dict[str, Any], Callable[[JobBoard, Job], object]]] = {
    "ready": ({}, lambda board, job: None),
    "lapsed": ({}, let_lapse),
    "lapsed_for_good": ({"max_attempts": 1}, let_lapse),
    "claimed": ({}, lambda board, job: board.claim(job, "anna", expiry=LONG)),
    "due": ({"delay": SHORT}, lambda board, job: eventually(lambda: job.state == UNCLAIMED, LIMIT)),
    "trashed": ({}, lambda board, job: board.cancel(job)),
}
"""What a job was posted with, and what has become of it."""

BLOBS: dict[str, Any] = {
    "no bytes": b"",
    "a number": msgpack.packb(7),
    "no record": TAG + msgpack.packb([1, 2, 3]),
    "truncated": lambda blob: blob[:-20],
    "another's place": lambda blob: blob.replace(b"resize", b"crop__", 1),
}


@pytest.mark.rule("A damaged record or entry is set aside, and stops nothing.")
@pytest.mark.parametrize(
    ("situation", "what"), [*((each, "garbage") for each in SITUATIONS), *(("ready", each) for each in BLOBS)]
)
def test_a_damaged_record_goes_to_the_trash_and_stops_nothing(plant: Containers, situation: str, what: str) -> None:
    """The record counts as trashed, and goes to the trash with the next claim that meets it. Its key is free."""
    board, (options, happen) = plant.board, SITUATIONS[situation]
    uuid = (job := board.post("resize", key="k", **options)).uuid
    happen(board, job)
    blob = plant.client.hget(plant.jobs, uuid)
    plant.client.hset(plant.jobs, uuid, harm(blob) if callable(harm := BLOBS.get(what, GARBAGE)) else harm)
    assert board.get(uuid).seen_state == TRASHED
    assert (sound := board.post("sound")) in board.iterjobs()
    assert take(board) == sound
    assert board.claim_next("anna") is None
    assert uuid not in uuids(board.iterjobs())
    if situation not in ("claimed", "trashed"):
        [job] = [job for job in board.trashed() if job.uuid == uuid]
        assert "record" in job.error
        board.purge(job)
    follower = board.post("sound", key="k")
    assert follower.created
    assert take(board) == follower


def orphan(container: str, member: str, count: int = 1) -> Callable[[Containers], object]:
    return lambda plant: plant.client.zadd(
        getattr(plant, container), {member.replace("#", f"{number:018d}"): 0 for number in range(count)}
    )


def side(field: str, blob: bytes) -> Callable[[Containers], object]:
    return lambda plant: plant.client.hset(plant.sides, field, blob)


_TAIL = f"000#{FOREIGN}\x001\0sound\0"
PLANTS: dict[str, Callable[[Containers], object]] = {
    "ready: many": orphan("ready", "\0" + _TAIL, 300),
    "ready: of a name": orphan("ready", "sound\0" + _TAIL, 300),
    "live: many": orphan("live", _TAIL, 2500),
    **{f"{name}: no job": orphan(name, f"##{FOREIGN}", 300) for name in ("leases", "final", "due", "trash")},
    "sides: key, garbage": side("key\0k", GARBAGE),
    "sides: key, nobody's": side("key\0k", TAG + b"0" * 18 + FOREIGN.encode()),
    "sides: answer, garbage": side("answer\0nobody:1", GARBAGE),
    "sides: entity, garbage": side("entity\0x", GARBAGE),
    "ends: no side": orphan("ends", "entity\0#", 300),
    "listed: no side": orphan("listed", "entity\0x"),
    "waiters: many": orphan("waiters", f"resize\0##{'d' * 32}", 150),
    "bells: garbage": lambda plant: plant.client.hset(plant.bells, "x" * 32, GARBAGE),
    "waiters: of a bell of garbage": lambda plant: (
        plant.client.zadd(plant.waiters, {f"resize\0{10**16:018d}{1:018d}{'d' * 32}": 0}),
        plant.client.hset(plant.bells, "d" * 32, GARBAGE),
    ),
    "meta: no min_reader": lambda plant: plant.client.hdel(plant.meta, "min_reader"),
    "meta: layout, garbage": lambda plant: plant.client.hset(plant.meta, "layout", "inf"),
    "meta: last, garbage": lambda plant: plant.client.hset(plant.meta, "last", GARBAGE),
    "meta: news, garbage": lambda plant: plant.client.hset(plant.meta, "news", GARBAGE),
}


@pytest.mark.rule("A damaged record or entry is set aside, and stops nothing.")
@pytest.mark.parametrize("what", PLANTS)
def test_a_stray_entry_goes_and_stops_nothing(plant: Containers, make_board: Any, live: Any, what: str) -> None:
    PLANTS[what](plant)
    other = make_board()
    engine_of(other).tidy()
    assert other.claim_next("anna", names=["sound"]) is None
    live(other, plant.board)
    for container in ("ready", "leases", "final", "due"):
        assert plant.client.zcard(getattr(plant, container)) == 0


@pytest.mark.parametrize("container", ["ready", "leases", "due", "final"])
def test_a_stray_entry_takes_no_job_from_its_holder(plant: Containers, container: str) -> None:
    job = plant.board.post("resize")
    [tail] = plant.client.zrange(plant.live, 0, -1)
    plant.board.claim(job, "anna", expiry=LONG)
    member = b"\0" + tail if container == "ready" else b"%018d" % 5 + tail[3:21] + job.uuid.encode()
    plant.client.zadd(getattr(plant, container), {member: 0})
    assert plant.board.claim_next("bert") is None
    assert not plant.client.zscore(getattr(plant, container), member)
    assert [found.seen_state for found in plant.board.iterjobs()] == [CLAIMED]
    plant.board.consume(job, "anna")
    assert plant.board.job_count == 0


@pytest.mark.rule("A damaged record or entry is set aside, and stops nothing.")
@pytest.mark.parametrize("container", ["leases", "due", "final"])
@pytest.mark.parametrize("stray", ["!", "stray"])
def test_an_entry_without_a_time_hides_no_lapse(plant: Containers, container: str, stray: str) -> None:
    job = plant.board.post("resize")
    plant.board.claim(job, "anna", expiry=SHORT)
    plant.client.zadd(getattr(plant, container), {stray: 0})
    eventually(lambda: plant.board.claim_next("bert") == job, 5)


@pytest.mark.rule("Many damaged records in a row end no take.")
def test_many_damaged_records_in_a_row_hide_no_job(plant: Containers) -> None:
    """More records than a look returns, and than a page walks past."""
    board = plant.board
    board.post_many([{"name": "resize"}] * 700)
    last = board.post("sound")
    junk = {uuid: GARBAGE for uuid in plant.client.hkeys(plant.jobs) if uuid.decode() != last.uuid}
    plant.client.hset(plant.jobs, mapping=junk)
    assert list(board.iterjobs()) == [last]
    assert board.claim_many("anna", 100) == [last]
    assert board.claim_next("anna") is None
    assert sum(1 for _ in board.trashed()) == 700


# Outcomes


def consumed(board: JobBoard) -> Job:
    job = claim_one(board)
    board.consume(job, "anna", result=1)
    return job


@pytest.mark.rule("An outcome on Redis is listed once.")
def test_an_outcome_that_is_written_again_is_listed_once(plant: Containers) -> None:
    job = consumed(plant.board)
    store = plant.board.engine.store
    [side] = store.read([], [("outcome", job.uuid)]).sides
    store.commit([], [Mark(side, side.value, 10**9)])
    assert [left.uuid for left in plant.board.outcomes()] == [job.uuid]


def test_an_expired_outcome_is_dropped_with_all_its_entries(
    make_board: Callable[..., JobBoard], client: redis.Redis
) -> None:
    plant = Containers(make_board(keep_done=0.001), client)
    for _ in range(3):
        consumed(plant.board)
    eventually(lambda: not list(plant.board.outcomes()))
    engine_of(plant.board).tidy()
    assert client.zcard(plant.listed) == 0
    fields = [*client.hkeys(plant.sides), *client.zrange(plant.ends, 0, -1)]
    assert not [field for field in fields if field.startswith(b"outcome")]
