"""One damaged entry stops nothing: whatever lies in a board's containers, all other jobs live as they always do."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import redis

import jobboard
from jobboard.backends.redis.keys import CONTAINERS, PLACE
from jobboard.backends.redis.records import FIELDS
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure, NotFound
from jobboard.moving import Mover
from jobboard.primitives import Oddity
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, PATIENCE, SHORT, Waiter, let_lapse, take, uuids

pytestmark = pytest.mark.backends("redis")

GARBAGE = b"\xc1\xff nothing that anybody has written"
FOREIGN = "11111111-1111-4111-8111-111111111111"
"""A uuid that no job has."""


class Plant:
    """A board whose containers a test can reach."""

    def __init__(self, board: JobBoard, client: redis.Redis) -> None:
        self.board = board
        self.client = client
        self._keys = dict(zip(CONTAINERS, board.engine._live.keys.all, strict=True))  # type: ignore[attr-defined]

    def __getattr__(self, container: str) -> bytes:
        return self._keys[container]

    def record(self, uuid: str) -> list[Any]:
        return list(msgpack.unpackb(self.client.hget(self.jobs, uuid)))

    def write(self, uuid: str, record: Any) -> None:
        self.client.hset(self.jobs, uuid, record if isinstance(record, bytes) else msgpack.packb(record))

    def change(self, uuid: str, field: str, value: Any) -> None:
        record = self.record(uuid)
        record[FIELDS.index(field)] = value
        self.write(uuid, record)


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
    other.engine.tidy()
    first, keyed = board.post("sound", details={"n": 1}), board.post("sound", key="other key")
    assert board.post("sound", key="other key") == keyed
    later = board.post("sound", delay=LONG)
    assert uuids(job for job in other.iterjobs(names=["sound"])) == [first.uuid, keyed.uuid, later.uuid]
    seen = {job.uuid: job.seen_state for job in other.iterjobs()}
    assert (seen[first.uuid], seen[later.uuid]) == (UNCLAIMED, SCHEDULED)
    assert {first.uuid, keyed.uuid} <= set(uuids(other.iterjobs(only_unclaimed=True)))
    assert {first.uuid, keyed.uuid} <= set(uuids(board.wait(timeout=LIMIT)))
    assert uuids(board.iterjobs(states=[SCHEDULED], names=["sound"])) == [later.uuid]
    # By order, by name, one by one and many.
    one = take(board, "bert", names=["sound"])
    assert (one, one.details) == (first, {"n": 1})
    many = board.claim_many("bert", 100)
    assert keyed in many
    assert board.claim_next("bert") is None
    assert board.claim_many("bert", 5, names=["sound", "resize"]) == []
    held = [(job.uuid, job.claim.token) for job in (one, keyed_of(many, keyed)) if job.claim]
    assert board.engine.renew(board._live().handle, held, 60_000_000).lost == []
    board.extend(one, "bert", LONG)
    assert {one.uuid, keyed.uuid} <= set(uuids(other.iterjobs(states=[CLAIMED])))
    board.abandon(one, "bert", error="later")
    assert other.get(one.uuid).error == "later"
    board.consume(keyed_of(many, keyed), "bert")
    board.finish_many([jobboard.Act(job, "trash", error="old") for job in many if job != keyed], "bert")
    board.claim(one, "bert")
    other.release(other.get(one.uuid), reason="stop")
    board.cancel(one, reason="no use")
    board.restore(next(job for job in board.trashed() if job == one))
    assert take(board, "bert", names=["sound"]) == one
    board.consume(take_back(board, one), "bert")
    assert one.state == COMPLETE
    # Who waits is given what comes.
    waiter = Waiter(other, lambda: take(other, "cleo", names=["sound"], timeout=PATIENCE))
    news = board.post("sound")
    assert waiter.wait() == news
    other.consume(news, "cleo")
    other.register_entity(jobboard.Entity("conductor", "c", {"a": 1}))
    assert "c" in [entity.name for entity in board.entities("conductor")]
    assert board.stats().on_board == board.job_count
    board.cancel(later)
    board.purge(later)
    assert list(other.iterjobs(names=["nothing"])) == []


def keyed_of(jobs: list[jobboard.Job], job: jobboard.Job) -> jobboard.Job:
    return jobs[jobs.index(job)]


def take_back(board: JobBoard, job: jobboard.Job) -> jobboard.Job:
    """The job as this handle holds it."""
    board.release(board.get(job.uuid))
    return take(board, "bert", names=["sound"])


BLOBS: dict[str, Any] = {
    "no bytes": b"",
    "garbage": GARBAGE,
    "text": b"resize",
    "a number": msgpack.packb(7),
    "a map": msgpack.packb({"name": "resize"}),
    "a nest": msgpack.packb([[[[]]]]),
    "truncated": lambda record: msgpack.packb(record)[:-20],
    "half a record": lambda record: record[:8],
    "more than a record": lambda record: [*record, 1],
    "a record and more": lambda record: msgpack.packb(record) + b"\x01",
}
VALUES: dict[str, list[Any]] = {
    "name": [7, None, "", False, []],
    "priority": [201, -1, 1.5, "1", None, False],
    "sequence": [-1, 2**45, 0.5, float("nan"), "1", None],
    "key": [7, None, True],
    "version": ["1", None, -1],
    "max_attempts": ["1", None, -1],
    "created_on": [-1, 2**62, "1", None],
    "state": ["X", 7, None, ""],
    "attempts": [-1, "1", None],
    "token": [2**63 - 1, -1, "1", None, float("inf")],
    "who": [7, None, True],
    "keeper": [7, None],
    "lock_until": ["1", None, 2**62, True],
    "modified_on": [2**63, None, "1"],
    "errors": [7, None, "text", {"a": 1}, ["text"], [[1, "anna", 1]], [[1, "anna", 1, 7]], [[-1, "anna", 1, "text"]]],
    "retries": ["1", None, -1],
    "group": [7, None],
    "key_until": ["1", None, -1, 2**62],
    "stamp": ["1", None, -1],
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("what", BLOBS)
def test_a_record_that_is_none(
    plant: Plant, make_board: Any, situation: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = SITUATIONS[situation](plant.board)
    blob = BLOBS[what]
    plant.write(uuid, blob(plant.record(uuid)) if callable(blob) else blob)
    assert plant.board.get(uuid).seen_state == TRASHED
    live(plant.board, make_board)
    assert "damaged entry in jobs" in caplog.text
    assert_in_trash(plant, uuid)


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in VALUES for value in VALUES[field]])
def test_a_field_of_a_record(
    plant: Plant, make_board: Any, field: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = ready(plant.board)
    plant.change(uuid, field, value)
    live(plant.board, make_board)
    assert uuid in caplog.text
    assert_in_trash(plant, uuid)
    job = plant.board.get(uuid)
    assert field in (job.error or "") or field in ("state", "lock_until")
    # What was well is kept.
    assert job.name == ("damaged" if field == "name" else "resize")
    plant.board.restore(job)
    plant.board.consume(take(plant.board, names=[job.name]), "anna")
    assert job.state == COMPLETE


def assert_in_trash(plant: Plant, uuid: str) -> None:
    """It is there with a reason, once something has met it that writes; with its details, and nowhere else."""
    board = plant.board
    with pytest.raises((NotFound, JobFailure)):
        board.claim(board.get(uuid), "anna")
    [job] = [job for job in board.trashed() if job.uuid == uuid]
    assert job.error
    assert "record" in job.error
    for container in ("ready", "busy", "leases", "final", "due"):
        assert plant.client.zscore(getattr(plant, container), uuid) is None
    follower = board.post("sound", key="k")
    assert follower.uuid != uuid
    board.cancel(follower)


# Members without their counterpart, and entries that are none


def orphan(container: str, score: float, member: str = FOREIGN) -> Callable[[Plant, str], None]:
    return lambda plant, uuid: plant.client.zadd(getattr(plant, container), {member: score}) and None


def drop(container: str) -> Callable[[Plant, str], None]:
    return lambda plant, uuid: plant.client.hdel(getattr(plant, container), uuid) and None


def put(container: str, field: Any, value: Any) -> Callable[[Plant, str], None]:
    return lambda plant, uuid: plant.client.hset(getattr(plant, container), field, value) and None


def many_orphans(container: str, score: float) -> Callable[[Plant, str], None]:
    """More than a script sweeps, and than a page."""

    def act(plant: Plant, uuid: str) -> None:
        plant.client.zadd(getattr(plant, container), {f"orphan {number:04d}": score for number in range(2500)})

    return act


def elsewhere(container: str, score: float) -> Callable[[Plant, str], None]:
    return lambda plant, uuid: plant.client.zadd(getattr(plant, container), {uuid: score}) and None


def side(until: int | None, value: bytes) -> bytes:
    return bytes(msgpack.packb(1) + msgpack.packb(until or False) + value)


def listed(blob: bytes) -> Callable[[Plant, str], None]:
    def act(plant: Plant, uuid: str) -> None:
        plant.client.hset(plant.sides, "entity\0x", blob)
        plant.client.zadd(plant.listed, {"entity\0x": 0})

    return act


OVERDUE = 1_000_000
PLANTS: dict[str, Callable[[Plant, str], None]] = {
    "ready: no job": orphan("ready", 2 * PLACE),
    "ready: no job, first": orphan("ready", 0),
    "ready: many": many_orphans("ready", 0),
    "ready: not utf-8": orphan("ready", 0, b"\xff\xfe" * 8),  # type: ignore[arg-type]
    "ready: -inf": orphan("ready", float("-inf")),
    "ready: inf": orphan("ready", float("inf")),
    "ready: another place": elsewhere("ready", 0.5),
    "ready: no place": elsewhere("ready", float("inf")),
    "busy: no job": orphan("busy", 2 * PLACE),
    "busy: many": many_orphans("busy", 0),
    "busy: of a ready one": elsewhere("busy", 1),
    "busy: -inf": orphan("busy", float("-inf")),
    "leases: no job": orphan("leases", OVERDUE),
    "leases: many": many_orphans("leases", OVERDUE),
    "leases: -inf": orphan("leases", float("-inf")),
    "leases: inf": orphan("leases", float("inf")),
    "leases: of another": elsewhere("leases", OVERDUE),
    "final: no job": orphan("final", OVERDUE),
    "final: many": many_orphans("final", OVERDUE),
    "final: of another": elsewhere("final", OVERDUE),
    "due: no job": orphan("due", OVERDUE),
    "due: many": many_orphans("due", OVERDUE),
    "due: of another": elsewhere("due", OVERDUE),
    "names: garbage": orphan("names", 0, "sound\0"),
    "names: no place": orphan("names", 0, "sound\0place" + FOREIGN),
    "names: no job": orphan("names", 0, "sound\0" + "0" * 16 + FOREIGN),
    "names: no name": orphan("names", 0, "\0\0\0"),
    "names: another score": orphan("names", 5, "sound\0" + "0" * 16 + FOREIGN),
    "trash: garbage": orphan("trash", OVERDUE, "x"),
    "trash: no job": orphan("trash", OVERDUE, "0" * 16 + FOREIGN),
    "trash: inf": orphan("trash", float("inf"), "0" * 16 + FOREIGN),
    "trash: -inf": orphan("trash", float("-inf"), "0" * 16 + FOREIGN),
    "trash: many": many_orphans("trash", OVERDUE),
    "jobs: missing": drop("jobs"),
    "jobs: nobody's": put("jobs", FOREIGN, GARBAGE),
    "jobs: no uuid": put("jobs", b"\xff", GARBAGE),
    "postings: missing": drop("postings"),
    "postings: nobody's": put("postings", FOREIGN, GARBAGE),
    "postings: garbage": lambda plant, uuid: plant.client.hset(plant.postings, uuid, GARBAGE) and None,
    "sides: garbage": put("sides", b"\xff", GARBAGE),
    "sides: no kind": put("sides", "text", side(None, b"x")),
    "sides: key, nobody's": put("sides", "key\0other key", side(None, FOREIGN.encode())),
    "sides: key, garbage": put("sides", "key\0other key", GARBAGE),
    "sides: key, no bytes": put("sides", "key\0other key", b""),
    "sides: key, another's": lambda plant, uuid: (
        plant.client.hset(plant.sides, "key\0other key", side(None, uuid.encode())) and None
    ),
    "sides: key, missing": lambda plant, uuid: plant.client.hdel(plant.sides, "key\0k") and None,
    "sides: purged, of text": put("sides", "purged\0" + FOREIGN, msgpack.packb(1) + msgpack.packb("never")),
    "sides: answer, garbage": put("sides", "answer\0nobody:1", GARBAGE),
    "sides: answer, no bytes": put("sides", "answer\0nobody:1", b""),
    "sides: answer, half": put("sides", "answer\0nobody:1", side(2**52, msgpack.packb([1]))),
    "sides: answer, other kinds": put("sides", "answer\0nobody:1", side(2**52, msgpack.packb(["1", "2", 3]))),
    "sides: answer, never ends": put("sides", "answer\0nobody:1", side(2**52, msgpack.packb([1, 1, []]))),
    "sides: answer, a live handle's": lambda plant, uuid: (
        [plant.client.hset(plant.sides, name, GARBAGE) for name in plant.client.hkeys(plant.sides) if b"answer" in name]
        and None
    ),
    "sides: entity, garbage": put("sides", "entity\0x", GARBAGE),
    "sides: entity, no metadata": put("sides", "entity\0x", side(2**52, b"no json")),
    "ends: no side": orphan("ends", OVERDUE, "entity\0x"),
    "ends: many": many_orphans("ends", OVERDUE),
    "listed: no side": orphan("listed", 0, "entity\0x"),
    "listed: garbage": orphan("listed", 0, b"entity\0\xff"),  # type: ignore[arg-type]
    "waiters: garbage": orphan("waiters", 0, "a\0x"),
    "waiters: many": lambda plant, uuid: (
        plant.client.zadd(
            plant.waiters, {f"{kind}\0{number:048d}": 0 for kind in ("a", "p", "nsound") for number in range(150)}
        )
        and None
    ),
    "bells: garbage": put("bells", "x" * 32, GARBAGE),
    "bells: half": put("bells", "x" * 32, msgpack.packb([1, 2])),
    "bells: no members": put("bells", "x" * 32, msgpack.packb([1, 2, [], 1, "h", False, False, False])),
    "bells: other kinds": put("bells", "x" * 32, msgpack.packb([1, 2, [7], "1", 5, 6, "x", False])),
    "sides: entity, listed, garbage": listed(GARBAGE),
    "sides: entity, listed, no metadata": listed(msgpack.packb(1) + msgpack.packb(2**52) + b"no json"),
    "sides: entity, listed, other kinds": listed(msgpack.packb(1) + msgpack.packb(2**52) + b'[1, 2, "3"]'),
    "meta: no sequence": lambda plant, uuid: plant.client.hdel(plant.meta, "sequence") and None,
    "meta: a sequence of text": put("meta", "sequence", "many"),
    "meta: a sequence of nothing": put("meta", "sequence", ""),
    "meta: the last sequence": put("meta", "sequence", 2**63 - 1),
    "meta: a large sequence": put("meta", "sequence", 2**45),
    "meta: a negative sequence": put("meta", "sequence", -5),
    "meta: a layout of text": put("meta", "layout", GARBAGE),
    "meta: no min_reader": lambda plant, uuid: plant.client.hdel(plant.meta, "min_reader") and None,
}


@pytest.mark.parametrize("what", PLANTS)
def test_an_entry_that_is_none(plant: Plant, make_board: Any, what: str) -> None:
    board = plant.board
    board.post("a")
    uuid = ready(board)
    PLANTS[what](plant, uuid)
    live(board, make_board)
    # Met by claims, what stands for nothing has gone.
    board.claim_many("anna", 100)
    board.claim_many("anna", 100, names=["sound"])
    for container in ("ready", "leases", "final", "due"):
        left = plant.client.zrange(getattr(plant, container), 0, -1)
        assert all(plant.client.hexists(plant.jobs, member) for member in left) or what == "leases: inf"


def odd_on(board: JobBoard) -> list[Oddity]:
    """What is odd about a board, but for how durable its server is."""
    return [odd for odd in board.examine() if not odd.place.startswith("characteristic")]


@pytest.mark.parametrize("what", PLANTS)
def test_the_doctor_sees_it(plant: Plant, what: str) -> None:
    board = plant.board
    uuid = ready(board)
    before = odd_on(board)
    assert before == []
    PLANTS[what](plant, uuid)
    found = odd_on(board)
    container = what.partition(":")[0]
    if what in UNSEEN:
        assert found == []
        return
    assert container in " ".join(odd.place for odd in found) or uuid in found[0].place
    assert all(odd.reason and odd.advice for odd in found)
    assert len(found) >= (150 if what.endswith("many") else 1)


# As on a board that has posted nothing yet.
UNSEEN = {"meta: no sequence", "meta: no min_reader"}


@pytest.mark.parametrize("what", BLOBS)
def test_the_doctor_sees_records_that_are_none(plant: Plant, what: str) -> None:
    uuid = ready(plant.board)
    plant.write(uuid, blob(plant.record(uuid)) if callable(blob := BLOBS[what]) else blob)
    # What else lies of it is not told of, as it goes along: but its key, where nothing tells that.
    assert [odd.place for odd in odd_on(plant.board) if "key\0k" not in odd.place] == [f"jobs {uuid}"]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_the_doctor_advises_helps(plant: Plant, situation: str) -> None:
    """A job that has dropped out of the containers that lead to it is brought back."""
    board = plant.board
    uuid = SITUATIONS[situation](board)
    for container in ("ready", "names", "busy", "leases", "final", "due", "trash"):
        plant.client.delete(getattr(plant, container))
    [odd] = odd_on(board)
    assert uuid in odd.place
    job = board.get(uuid)
    for verb in re.findall(r"jobboard (release|cancel|trash restore)", odd.advice):
        with contextlib.suppress(NotFound):
            getattr(board, verb.split()[-1])(job)
    assert odd_on(board) == []
    assert take(board) == job


def test_a_container_of_another_type(plant: Plant) -> None:
    plant.client.delete(plant.ready)
    plant.client.set(plant.ready, "x")
    first, *rest = odd_on(plant.board)
    assert (first.place, "another type" in first.reason) == ("ready", True)
    assert ["WRONGTYPE" in odd.reason for odd in rest] == [True]


@pytest.mark.parametrize(
    ("settings", "options", "place", "reason"),
    [
        ({"appendonly": "no"}, {}, "characteristic durable", "no append-only file"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, {}, "characteristic durable", "about a second of writes"),
        ({"maxmemory-policy": "allkeys-lru"}, {"allow_eviction": True}, "server", "allkeys-lru"),
    ],
)
def test_settings_that_may_lose_jobs(
    private_server: Any, settings: dict[str, str], options: dict[str, Any], place: str, reason: str
) -> None:
    server = private_server("redis", config=settings)
    with jobboard.backend("board", {"board": server.uri, **options}) as board:
        assert any(odd.place == place and reason in odd.reason for odd in board.examine())
        assert not any("survives_failover" in odd.place for odd in board.examine())


@pytest.mark.parametrize("container", ["ready", "leases", "due", "final"])
def test_a_live_claim_is_nobody_elses(plant: Plant, make_board: Any, container: str) -> None:
    """A job that lies where it does not belong, too, is not taken from its holder."""
    job = plant.board.post("resize")
    plant.board.claim(job, "anna", expiry=LONG)
    plant.client.zadd(getattr(plant, container), {job.uuid: 5})
    assert plant.board.claim_next("bert") is None
    assert [found.seen_state for found in plant.board.iterjobs()] == [CLAIMED]
    plant.board.consume(job, "anna")
    assert plant.board.job_count == 0


def test_many_damaged_records_in_a_row(plant: Plant, make_board: Any) -> None:
    """More than a page walks past, and than one claim sets aside."""
    board = plant.board
    board.post_many([{"name": "resize"}] * 3000)
    last = board.post("sound")
    for uuid in plant.client.hkeys(plant.jobs):
        if uuid.decode() != last.uuid:
            plant.client.hset(plant.jobs, uuid, GARBAGE)
    assert list(board.iterjobs()) == [last]
    assert board.claim_many("anna", 100) == [last]
    assert sum(1 for _ in board.trashed()) == 3000


def test_what_is_damaged_is_moved_with_the_rest(plant: Plant, make_board: Any) -> None:
    broken, fine = ready(plant.board), plant.board.post("sound")
    plant.write(broken, GARBAGE)
    target = make_board("target")
    Mover(plant.board, target).run()
    assert list(target.iterjobs()) == [fine]


def test_the_log_holds_what_was_there(plant: Plant, caplog: pytest.LogCaptureFixture) -> None:
    uuid = ready(plant.board)
    plant.write(uuid, GARBAGE)
    caplog.set_level(logging.WARNING)
    assert list(plant.board.iterjobs()) == []
    assert "passed over" in caplog.text
    assert plant.board.claim_next("anna") is None
    assert "set aside" in caplog.text
    assert repr(GARBAGE) in caplog.text
    [job] = plant.board.trashed()
    assert job.uuid == uuid
    assert job.error == "its record can not be read"
