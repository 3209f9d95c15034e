"""A request or a reply that is lost, late or interrupted: what is asked for is done once, and the caller learns it."""

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgpack
import pytest
import redis

import jobboard
from jobboard import codec
from jobboard.backends.redis import links
from jobboard.backends.redis.keys import CONTAINERS
from jobboard.board import JobBoard
from jobboard.job import Act, Job
from jobboard.primitives import Draft, End, Finish, Nonce
from jobboard.states import OK, Holder, Status, Verb
from jobboard.testing import eventually
from jobboard.testing.faults import FaultyProxy

pytestmark = pytest.mark.backends("redis")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    """A client of the shared server, which has all the scripts from here on: no request is lost that only says so."""
    for name, (prepare, act) in ACTS.items():
        with jobboard.backend(f"warm {os.getpid()} {name}", server_uris["redis"]) as board:
            act(board, prepare(board))
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


@pytest.fixture
def proxy(client: redis.Redis, board_conf: dict[str, Any]) -> Iterator[FaultyProxy]:
    where = urlsplit(board_conf["board"])
    assert where.hostname is not None
    assert where.port is not None
    with FaultyProxy(where.hostname, where.port) as proxy:
        yield proxy


@pytest.fixture(params=["own", "given"])
def far(request: pytest.FixtureRequest, proxy: FaultyProxy, board_conf: dict[str, Any]) -> Iterator[JobBoard]:
    """A board through the proxy: with a client of its own, or with the caller's, which repeats on its own account."""
    if request.param == "own":
        board = jobboard.fetch("board", {**board_conf, "board": proxy.uri_for(board_conf["board"])})
        board.connect()
        yield board
        board.close()
        return
    with redis.Redis(host=proxy.host, port=proxy.port) as client:
        board = jobboard.fetch("board", {**board_conf, "board": "redis"}, client=client)
        board.connect()
        yield board
        board.close()


@pytest.fixture
def board(client: redis.Redis, make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board()


@pytest.fixture
def dump(client: redis.Redis) -> Callable[[JobBoard], dict[str, Any]]:
    """All that is stored of a board."""

    def dump(board: JobBoard) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, key in zip(CONTAINERS, board.engine.store.keys.all, strict=True):
            kind = client.type(key)
            if kind == b"hash":
                found[name] = client.hgetall(key)
            elif kind == b"zset":
                found[name] = client.zrange(key, 0, -1, withscores=True)
        return found

    return dump


def _one(board: JobBoard) -> Job:
    return board.post("a", key=f"k{next(_numbers)}")


def _claimed(board: JobBoard) -> Job:
    job = _one(board)
    board.claim(job, "anna", expiry=600)
    return job


def _three(board: JobBoard) -> list[Job]:
    return board.post_many([{"name": "a"}] * 3)


def _three_claimed(board: JobBoard) -> list[Job]:
    board.post_many([{"name": "a"}] * 3)
    return board.claim_many("anna", 3, expiry=600)


def _trashed(board: JobBoard) -> Job:
    job = _one(board)
    board.cancel(job)
    return job


ACTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "post": (lambda board: None, lambda board, _: board.post("b", max_attempts=3)),
    "post_delayed": (lambda board: None, lambda board, _: board.post("b", delay=600)),
    "post_with_a_key": (lambda board: None, lambda board, _: board.post("b", key="k")),
    "post_a_key_again": (lambda board: board.post("b", key="k"), lambda board, _: board.post("c", key="k")),
    "post_many": (_one, lambda board, _: board.post_many([{"name": "b"}, {"name": "c", "key": "k"}])),
    "claim": (_one, lambda board, job: board.claim(job, "anna", expiry=600)),
    "claim_kept": (_one, lambda board, job: board.claim(job, "anna")),
    "claim_next": (_three, lambda board, _: board.claim_next("anna")),
    "claim_next_of_a_name": (_three, lambda board, _: board.claim_next("anna", names=["b", "a"])),
    "claim_next_of_none": (_three, lambda board, _: board.claim_next("anna", names=["b"])),
    "claim_many": (_three, lambda board, _: board.claim_many("anna", 2, expiry=600)),
    "extend": (_claimed, lambda board, job: board.extend(job, "anna", 60)),
    "extend_kept": (_claimed, lambda board, job: board.extend(job, "anna")),
    "abandon": (_claimed, lambda board, job: board.abandon(job, "anna", error="no")),
    "abandon_later": (_claimed, lambda board, job: board.abandon(job, "anna", delay=60)),
    "consume": (_claimed, lambda board, job: board.consume(job, "anna")),
    "consume_many": (_three_claimed, lambda board, jobs: board.consume_many(jobs, "anna")),
    "finish_many": (
        _three_claimed,
        lambda board, jobs: board.finish_many(
            [Act(jobs[0], "trash", error="bad"), Act(jobs[1], "consume"), Act(jobs[2], "abandon")], "anna"
        ),
    ),
    "trash": (_claimed, lambda board, job: board.trash(job, "anna", reason="bad")),
    "release": (_claimed, lambda board, job: board.release(job)),
    "cancel": (_one, lambda board, job: board.cancel(job, reason="no use")),
    "restore": (_trashed, lambda board, job: board.restore(job)),
    "purge": (_trashed, lambda board, job: board.purge(job)),
}
"""Every mutation: what it needs, and the call."""


def seen(board: JobBoard) -> list[Any]:
    """What a user can tell of a board's jobs, but for uuids, keys and times."""
    jobs = [seen.record for seen in board.engine.raw.page(None, 100, None, None)] + board.engine.raw.trash_page(
        None, 100
    )
    return [
        (job.name, job.state, job.attempts, job.who, job.keeper is None, job.error, job.key is None)
        for job in jobs
        if job is not None
    ]


class TestLost:
    @pytest.mark.parametrize("what", ["reply", "request"])
    @pytest.mark.parametrize("act", ACTS)
    def test_it_is_done_once(
        self, far: JobBoard, make_board: Callable[..., Any], proxy: FaultyProxy, act: str, what: Any
    ) -> None:
        prepare, do = ACTS[act]
        twin = make_board("twin")
        expected = do(twin, prepare(twin))
        given = prepare(far)
        fault = proxy.lose(what, matching=b"EVALSHA")
        answer = do(far, given)
        assert fault.happened
        assert type(answer) is type(expected)
        assert seen(far) == seen(twin)

    def test_a_claim_of_the_repetition_stands(self, far: JobBoard, proxy: FaultyProxy) -> None:
        far.post("a")
        fault = proxy.lose("reply", matching=b"EVALSHA")
        job = far.claim_next("anna")
        assert fault.happened
        assert job is not None
        far.extend(job, "anna")
        far.consume(job, "anna")
        assert far.stats().on_board == 0

    def test_what_another_has_taken_since_is_not_answered(
        self, far: JobBoard, board: JobBoard, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the try whose reply was lost and its repetition."""
        jobs = board.post_many([{"name": "a"}] * 3)
        call = links.RedisLinks.call
        broken: list[bool] = []

        def release_first(self: Any, *requests: bytes) -> Any:
            if broken == [True]:
                broken.append(False)
                board.release(jobs[0])
                assert board.claim_next("bert") == jobs[0]
            try:
                return call(self, *requests)
            except jobboard.exceptions.ConnectionFailure:
                broken.append(True)
                raise

        monkeypatch.setattr(links.RedisLinks, "call", release_first)
        proxy.lose("reply", matching=b"EVALSHA")
        assert far.claim_many("anna", 2) == [jobs[1], jobs[2]]
        assert board.find_owner(jobs[0]) == "bert"


def draft(number: int, key: str | None = None) -> Draft:
    posting = codec.encode(codec.Content({}, None), "msgpack")
    return Draft(f"00000000-0000-4000-8000-{number:012d}", "a", 1, key, codec.VERSION, posting, None, None, None)


FREE, HELD, DEAD, NEW = (draft(number).uuid for number in (1, 2, 3, 9))
HOUR = 3_600_000_000


class TestLate:
    """A first try that was held up on its way. The conformance suite holds up each request of every verb."""

    def test_after_a_repetition_that_found_nothing(self, board: JobBoard, dump: Any) -> None:
        """Where a first try stores nothing, its repetition does."""
        holder = Holder("anna", 1)
        calls: list[Callable[[Nonce], Any]] = [
            lambda nonce: board.engine.raw.take("anna", 1, None, None, 1, nonce),
            lambda nonce: board.engine.raw.claim(NEW, "anna", None, nonce),
            lambda nonce: board.engine.raw.extend(NEW, holder, HOUR, nonce),
            lambda nonce: board.engine.raw.finish([Finish(NEW, holder, End(Verb.CONSUME))], nonce),
            lambda nonce: board.engine.raw.operate(Verb.CANCEL, NEW, None, nonce),
        ]
        for slot, call in enumerate(calls):
            call(Nonce("late", slot, 1, 2))
        board.engine.raw.insert([draft(9)], Nonce("other", 1, 1))
        before = dump(board)
        for slot, call in enumerate(calls[:2] + calls[3:]):
            call(Nonce("late", slot + (slot > 1), 1))
        assert dump(board) == before


class TestStored:
    def test_scripts_that_are_gone_again_at_once(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Flushed before each request, as by servers that end one after the other."""
        board = place.board()
        call = board.engine.store.links.call

        def flushed(*requests: bytes) -> Any:
            place.call("SCRIPT", "FLUSH")
            return call(*requests)

        monkeypatch.setattr(board.engine.store.links, "call", flushed)
        job = board.post("a")
        board.consume(board.claim_next("anna"), "anna")
        assert job.state == "COMPLETE"

    @pytest.mark.parametrize("how", ["flush", "restart", "kill"])
    def test_an_answer_outlives_the_scripts_and_the_server(self, place: Any, how: str) -> None:
        board = place.board()
        board.engine.raw.insert([draft(n) for n in (1, 2)], Nonce("handle", 1, 1))
        first = board.engine.raw.take("anna", 1, HOUR, None, 1, Nonce("handle", 1, 2))
        holder = Holder("anna", first.records[0].token)
        assert board.engine.raw.finish([Finish(FREE, holder, End(Verb.CONSUME))], Nonce("handle", 2, 1)) == [OK]
        if how == "flush":
            place.call("SCRIPT", "FLUSH")
        elif how == "restart":
            place.server.restart()
        else:
            place.server.kill()
            place.server.start()
        again = eventually(
            lambda: board.engine._query(
                board.engine.raw.finish, [Finish(FREE, holder, End(Verb.CONSUME))], Nonce("handle", 2, 1, 2)
            )
        )
        assert again == [OK]
        assert board.engine.raw.take("anna", 1, HOUR, None, 1, Nonce("handle", 1, 2, 2)).replayed
        assert board.stats().unclaimed == 1
        # It says what is new, all the same.
        assert board.engine.raw.finish([Finish(FREE, holder, End(Verb.CONSUME))], Nonce("handle", 2, 2)) == [
            Status.ABSENT
        ]

    def test_one_answer_for_each_slot(self, board: JobBoard, client: redis.Redis) -> None:
        for _ in range(20):
            board.post("a")
            job = board.claim_next("anna")
            board.consume(job, "anna")
        assert client.hlen(board.engine.store.keys.of("sides")) == 1

    def test_as_many_slots_as_calls_at_once(self, board: JobBoard, client: redis.Redis) -> None:
        threads = [threading.Thread(target=lambda: [board.post("a") for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.hlen(board.engine.store.keys.of("sides")) <= 4
        assert board.job_count == 80

    def test_answers_of_an_hour_ago_are_dropped(self, board: JobBoard, client: redis.Redis) -> None:
        """Not those of slots that have been used again since, which keep the end of their first one until then."""
        sides, ends = board.engine.store.keys.of("sides"), board.engine.store.keys.of("ends")
        board.post("a")
        now = board.engine.raw.now()
        for kind, until in (("old", now - 1), ("young", now + HOUR), ("again", now + HOUR)):
            names = [f"answer\0{kind}:{number}" for number in range(1500)]
            blob = b"%018d%018d" % (1, until) + msgpack.packb([1, 1, [["ok", FREE, 0]]])
            client.hset(sides, mapping=dict.fromkeys(names, blob))
            client.zadd(ends, dict.fromkeys(names, now - 1 if kind == "again" else until))
        board.engine.raw.tidy()
        left = [name.partition(b"\0")[2].partition(b":")[0] for name in client.hkeys(sides)]
        assert Counter(left) == {b"young": 1500, b"again": 1500, board.engine.handle.encode(): 1}
        assert client.zcard(ends) == len(left)
        assert client.zcount(ends, "-inf", now) == 0

    def test_waiters_and_entities_that_died_are_dropped(self, board: JobBoard, client: redis.Redis) -> None:
        keys = board.engine.store.keys
        now = board.engine.raw.now()
        members = {f"{name}\0{now - 2 * HOUR:018d}{1:018d}" + "d" * 32: 0 for name in ("a", "b")}
        client.zadd(keys.of("waiters"), members)
        client.hset(keys.of("bells"), "d" * 32, msgpack.packb(list(members)))
        board.engine.raw.enlist("h", "kind", "dead", "{}", 1)
        board.engine.raw.enlist("h", "kind", "alive", "{}", HOUR)
        eventually(lambda: board.engine.raw.now() > now + 1)
        board.engine.raw.tidy()
        assert not client.exists(keys.of("waiters"), keys.of("bells"))
        for container in ("sides", "ends", "listed"):
            left = (
                client.hkeys(keys.of(container)) if container == "sides" else client.zrange(keys.of(container), 0, -1)
            )
            assert left == [b'entity\0["kind", "alive"]']


class TestSweeps:
    @pytest.mark.parametrize("nth", [1, 2, 3])
    @pytest.mark.parametrize("what", ["reply", "request"])
    def test_more_overdue_jobs_of_others_than_one_sweep_meets(
        self, far: JobBoard, proxy: FaultyProxy, what: Any, nth: int
    ) -> None:
        """The sweeps of one call are one call, whichever of them is cut off."""
        far.post_many([{"name": "b", "delay": 0.000001}] * 250)
        job = far.post("a", delay=0.000001)
        eventually(lambda: far.engine.raw.now() > job.record.lock_until)
        fault = proxy.lose(what, nth=nth, matching=b"EVALSHA")
        assert far.claim_next("anna", names=["a"], expiry=600) == job
        assert fault.happened
        assert far.claim_next("anna", names=["a"]) is None
        assert far.stats() == type(far.stats())(250, 0, 1, 0)
        assert far.get(job.uuid).attempts == 1


class TestInterrupted:
    """Ctrl-C between a request and its reply."""

    @pytest.mark.parametrize("act", ["post", "claim_next", "consume", "post_many"])
    def test_the_next_call_reads_its_own_reply(
        self, board: JobBoard, monkeypatch: pytest.MonkeyPatch, act: str
    ) -> None:
        prepare, do = ACTS[act]
        given = prepare(board)
        board.post("x")
        before = board.job_count

        def interrupted(connection: Any) -> Any:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(links, "_reply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            do(board, given)
        job = board.post("y")
        assert board.get(job.uuid).name == "y"
        assert board.engine.raw.tally()
        assert board.job_count >= before
        taken = board.claim_next("bert", names=["y"])
        assert taken == job
        board.consume(taken, "bert")
        # Nor does it take the answer for that of the call which was interrupted.
        assert board.claim_next("bert", names=["y"]) is None
