"""One damaged entry stops nothing: whatever lies in a board's containers, all other jobs live as they always do."""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import redis

import jobboard
from jobboard.backends.redis.keys import CONTAINERS
from jobboard.board import JobBoard
from jobboard.moving import Mover
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, PATIENCE, SHORT, Waiter, let_lapse, take, uuids

pytestmark = pytest.mark.backends("redis")

GARBAGE = b"\xc1\xff nothing that anybody has written"
FOREIGN = "11111111-1111-4111-8111-111111111111"
"""A uuid that no job has."""
TAG = b"%018d" % 7


class Plant:
    """A board whose containers a test can reach."""

    def __init__(self, board: JobBoard, client: redis.Redis) -> None:
        self.board = board
        self.client = client
        self._keys = dict(zip(CONTAINERS, board.engine.store.keys.all, strict=True))  # type: ignore[attr-defined]

    def __getattr__(self, container: str) -> bytes:
        return self._keys[container]


@pytest.fixture
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


@pytest.fixture
def plant(make_board: Callable[..., JobBoard], client: redis.Redis) -> Plant:
    return Plant(make_board(), client)


def ready(board: JobBoard) -> str:
    return board.post("resize", key="k").uuid


def lapsed(board: JobBoard) -> str:
    job = board.post("resize", key="k")
    let_lapse(board, job)
    return job.uuid


def lapsed_for_good(board: JobBoard) -> str:
    job = board.post("resize", key="k", max_attempts=1)
    let_lapse(board, job)
    return job.uuid


def claimed(board: JobBoard) -> str:
    job = board.post("resize", key="k")
    board.claim(job, "anna", expiry=LONG)
    return job.uuid


def due(board: JobBoard) -> str:
    job = board.post("resize", key="k", delay=SHORT)
    eventually(lambda: board.get(job.uuid).seen_state == UNCLAIMED, LIMIT)
    return job.uuid


def trashed(board: JobBoard) -> str:
    job = board.post("resize", key="k")
    board.cancel(job)
    return job.uuid


SITUATIONS = {each.__name__: each for each in (ready, lapsed, lapsed_for_good, claimed, due, trashed)}


def live(board: JobBoard, make_board: Callable[..., JobBoard]) -> None:
    """All that jobs and handles do goes well beside what was planted; jobs are named apart from it."""
    other = make_board()
    other.engine.raw.tidy()
    first, keyed = board.post("sound", details={"n": 1}), board.post("sound", key="other key")
    assert board.post("sound", key="other key") == keyed
    later = board.post("sound", delay=LONG)
    assert uuids(job for job in other.iterjobs(names=["sound"])) == [first.uuid, keyed.uuid, later.uuid]
    assert {first.uuid, keyed.uuid} <= set(uuids(other.iterjobs(only_unclaimed=True)))
    assert {first.uuid, keyed.uuid} <= set(uuids(board.wait(timeout=LIMIT)))
    assert uuids(board.iterjobs(states=[SCHEDULED], names=["sound"])) == [later.uuid]
    one = take(board, "bert", names=["sound"])
    assert (one, one.details) == (first, {"n": 1})
    many = board.claim_many("bert", 100)
    assert keyed in many
    assert board.claim_next("bert") is None
    held = [(job.uuid, job.claim.token) for job in (one, many[many.index(keyed)]) if job.claim]
    assert board.engine.raw.renew(board.engine.handle, held, 60_000_000).lost == []
    assert {one.uuid, keyed.uuid} <= set(uuids(other.iterjobs(states=[CLAIMED])))
    board.abandon(one, "bert", error="later")
    board.consume(many[many.index(keyed)], "bert")
    board.cancel(one, reason="no use")
    board.restore(next(job for job in board.trashed() if job == one))
    again = take(board, "bert", names=["sound"])
    assert again == one
    board.consume(again, "bert")
    assert again.state == COMPLETE
    waiter = Waiter(other, lambda: take(other, "cleo", names=["sound"], timeout=PATIENCE))
    news = board.post("sound")
    assert waiter.wait() == news
    other.consume(news, "cleo")
    other.register_entity(jobboard.Entity("conductor", "c", {"a": 1}))
    assert "c" in [entity.name for entity in board.entities("conductor")]
    board.cancel(later)
    board.purge(later)


BLOBS: dict[str, Any] = {
    "no bytes": b"",
    "garbage": GARBAGE,
    "a number": msgpack.packb(7),
    "no record": TAG + msgpack.packb([1, 2, 3]),
    "truncated": lambda blob: blob[:-20],
    "another's place": lambda blob: blob.replace(b"resize", b"crop__", 1),
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("what", BLOBS)
def test_a_record_that_is_none(
    plant: Plant, make_board: Any, client: redis.Redis, situation: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as trashed, and goes to the trash with the next claim that meets it; its key is free."""
    board, uuid = plant.board, SITUATIONS[situation](plant.board)
    blob = client.hget(plant.jobs, uuid)
    client.hset(plant.jobs, uuid, harm(blob) if callable(harm := BLOBS[what]) else harm)
    assert board.get(uuid).seen_state == TRASHED
    live(board, make_board)
    assert board.claim_next("anna") is None
    assert uuid not in uuids(board.iterjobs())
    if situation not in ("claimed", "trashed"):
        [job] = [job for job in board.trashed() if job.uuid == uuid]
        assert "record" in job.error
        board.purge(job)
    follower = board.post("sound", key="k")
    assert follower.created
    assert take(board, names=["sound"]) == follower


def orphan(container: str, member: str, count: int = 1) -> Callable[[Plant], object]:
    return lambda plant: plant.client.zadd(
        getattr(plant, container), {member.replace("#", f"{number:018d}"): 0 for number in range(count)}
    )


def side(field: str, blob: bytes) -> Callable[[Plant], object]:
    return lambda plant: plant.client.hset(plant.sides, field, blob)


_TAIL = f"000#{FOREIGN}\x001\0sound\0"
PLANTS: dict[str, Callable[[Plant], object]] = {
    "ready: no job": orphan("ready", "\0" + _TAIL),
    "ready: many": orphan("ready", "\0" + _TAIL, 300),
    "ready: of a name": orphan("ready", "sound\0" + _TAIL, 300),
    "live: no job": orphan("live", _TAIL),
    "live: many": orphan("live", _TAIL, 2500),
    "leases: no job": orphan("leases", f"##{FOREIGN}", 300),
    "final: no job": orphan("final", f"##{FOREIGN}", 300),
    "due: no job": orphan("due", f"##{FOREIGN}", 300),
    "trash: no job": orphan("trash", f"##{FOREIGN}", 300),
    "postings: missing": lambda plant: plant.client.delete(plant.postings),
    "sides: key, garbage": side("key\0other key", GARBAGE),
    "sides: key, no bytes": side("key\0other key", b""),
    "sides: key, nobody's": side("key\0other key", TAG + b"0" * 18 + FOREIGN.encode()),
    "sides: answer, garbage": side("answer\0nobody:1", GARBAGE),
    "sides: entity, garbage": side("entity\0x", GARBAGE),
    "ends: no side": orphan("ends", "entity\0#", 300),
    "listed: no side": orphan("listed", "entity\0x"),
    "waiters: garbage": orphan("waiters", "\0x"),
    "waiters: many": orphan("waiters", f"sound\0##{'d' * 32}", 150),
    "bells: garbage": lambda plant: plant.client.hset(plant.bells, "x" * 32, GARBAGE),
    "meta: no number": lambda plant: plant.client.hdel(plant.meta, "last", "news"),
    "meta: a number of text": lambda plant: plant.client.hset(plant.meta, mapping={"last": "many", "news": "x"}),
    "meta: no min_reader": lambda plant: plant.client.hdel(plant.meta, "min_reader"),
}


@pytest.mark.parametrize("what", PLANTS)
def test_an_entry_that_is_none(plant: Plant, make_board: Any, what: str) -> None:
    PLANTS[what](plant)
    live(plant.board, make_board)
    for container in ("ready", "leases", "final", "due"):
        assert plant.client.zcard(getattr(plant, container)) == 0


@pytest.mark.parametrize("container", ["ready", "leases", "due", "final"])
def test_a_live_claim_is_nobody_elses(plant: Plant, container: str) -> None:
    """A job that lies where it does not belong, too, is not taken from its holder."""
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


def test_many_damaged_records_in_a_row(plant: Plant) -> None:
    """More than a look sees, and than a page walks past."""
    board = plant.board
    board.post_many([{"name": "resize"}] * 700)
    last = board.post("sound")
    junk = {uuid: GARBAGE for uuid in plant.client.hkeys(plant.jobs) if uuid.decode() != last.uuid}
    plant.client.hset(plant.jobs, mapping=junk)
    assert list(board.iterjobs()) == [last]
    assert board.claim_many("anna", 100) == [last]
    assert board.claim_next("anna") is None
    assert sum(1 for _ in board.trashed()) == 700


def test_the_doctor_names_what_no_call_has_met_and_where_it_is(plant: Plant) -> None:
    board = plant.board
    gone, stays = trashed(board), ready(board)
    board.schedule("nightly", every=LONG, name="nightly")
    usual = list(board.engine.raw.examine())
    plant.client.hset(plant.jobs, mapping=dict.fromkeys((gone, stays), GARBAGE))
    plant.client.hset(plant.sides, "schedule\0nightly", GARBAGE)
    found = {odd.place: odd for odd in board.engine.raw.examine() if odd not in usual}
    assert found.keys() == {
        *(f'{plant.jobs.decode()}, field "{uuid}"' for uuid in (gone, stays)),
        "schedule nightly",
    }
    assert all(odd.reason and odd.advice for odd in found.values())
    for uuid in (gone, stays):
        board.purge(board.get(uuid))
    plant.client.hdel(plant.sides, "schedule\0nightly")
    assert list(board.engine.raw.examine()) == usual


def test_what_is_damaged_is_moved_with_the_rest(plant: Plant, make_board: Any) -> None:
    broken, fine = ready(plant.board), plant.board.post("sound")
    plant.client.hset(plant.jobs, broken, GARBAGE)
    target = make_board("target")
    Mover(plant.board, target).run()
    assert list(target.iterjobs()) == [fine]


@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        ({"appendonly": "no"}, {}, "no append-only file"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, {}, "about a second of writes"),
        (
            {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "allkeys-lru"},
            {"allow_eviction": True},
            "allkeys-lru",
        ),
    ],
)
def test_settings_that_may_lose_jobs(
    private_server: Any, settings: dict[str, str], options: dict[str, Any], reason: str
) -> None:
    server = private_server("redis", config=settings)
    with jobboard.backend("board", {"board": server.uri, **options}) as board:
        assert any(odd.place == "characteristic durable" and reason in odd.reason for odd in board.examine())
        assert not any("survives_failover" in odd.place for odd in board.examine())
