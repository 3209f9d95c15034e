"""Limits in Lua do what the engine does in Python; and what they rest on in the containers of a board."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgpack
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobboard.backends.redis.keys import CONTAINERS
from jobboard.board import JobBoard
from jobboard.engine import SCOPE, Listed, Mark
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.job import Posting
from jobboard.primitives import Limit, Nonce
from jobboard.states import CLAIMED, LIVE
from jobboard.testing import eventually
from jobboard.testing.conformance.idling import AN_HOUR, let_age, stored
from jobboard.testing.conformance.support import Waiter, take, uuids
from jobboard.testing.servers import Redis
from tests.backends.redis.test_lua_states import UUIDS, Pair, Plain, client, pairs, steps
from tests.backends.redis.test_waiting import stands_still

__all__ = ["client", "pairs"]

pytestmark = pytest.mark.backends("redis")

LONG, LIMIT = 600.0, 30.0

LIMITS = [
    Limit("a", "name", 1),
    Limit("a", "name", 2, (3, LONG)),
    Limit("a", "group", 1),
    Limit("a", "group", 2),
    Limit("b", "group", None, (2, LONG)),
    Limit("b", "name", 2),
]

drafts = st.tuples(
    st.sampled_from(["a", "a", "b"]),
    st.integers(0, 2),
    st.none(),
    st.sampled_from([None, 1]),
    st.none(),
    st.just(1),
    st.none(),
    st.just(False),
    st.sampled_from(["x", "y", None]),
)
rulings = st.tuples(st.just("limit"), st.sampled_from(LIMITS)) | st.tuples(st.just("no limit"), st.sampled_from(LIMITS))


def step(pair: Pair, taken: Any) -> None:
    verb, *args = taken
    if verb not in ("limit", "no limit"):
        pair.run(taken)
        return
    pair._calls += 1
    for side in (pair.redis, pair.memory):
        if verb == "limit":
            side.board.engine.set_limit(args[0], Nonce("handle", 1, pair._calls))
        else:
            side.board.engine.remove_limit(args[0].name, args[0].per, Nonce("handle", 1, pair._calls))
        side.remember()


def compare(pair: Pair) -> None:
    assert pair.redis.look() == pair.memory.look()
    board = pair.redis.board
    assert [each for each in board.engine.examine() if each.place != "server"] == []
    sides = pair.stored().get("sides", {})
    for limit in board.engine.rules().limits:
        for seen in board.engine.page(None, 100, [limit.limit.name], LIVE):
            record = seen.record
            if limit.limit.concurrency is None or record is None or seen.state != CLAIMED:
                continue
            field = f"scope\0{record.name}" + (f"\n{record.group}" if limit.limit.per == "group" else "")
            unpacker = msgpack.Unpacker(use_list=False)
            unpacker.feed(sides[field.encode()])
            _, _, (claims, _) = unpacker
            assert (record.uuid, record.token) in claims


@pytest.mark.parametrize("engine", [None, Plain])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=st.lists(drafts, min_size=4, max_size=4),
    first=rulings,
    walk=st.lists(st.one_of(steps, steps, steps, rulings), max_size=25),
)
def test_any_walk_under_limits(pairs: Any, engine: Any, jobs: list[Any], first: Any, walk: list[Any]) -> None:
    with pairs(engine) as pair:
        pair.run(("insert", *((uuid, *job) for uuid, job in zip(UUIDS, jobs, strict=True))))
        for each in (first, *walk):
            step(pair, each)
            compare(pair)


@pytest.fixture
def board(make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board()


class Containers:
    def __init__(self, board: JobBoard, client: redis.Redis) -> None:
        self.client = client
        self.keys = dict(zip(CONTAINERS, board.engine._live.keys.all, strict=True))  # type: ignore[attr-defined]

    def __getattr__(self, container: str) -> bytes:
        return self.keys[container]

    def calls(self, do: Callable[[], Any]) -> int:
        """How many commands scripts have carried out."""
        self.client.config_resetstat()
        do()
        stats = self.client.info("commandstats")
        return int(sum(each["calls"] for name, each in stats.items() if name.startswith(("cmdstat_h", "cmdstat_z"))))


@pytest.fixture
def containers(board: JobBoard, client: redis.Redis) -> Containers:
    return Containers(board, client)


def odd(board: JobBoard) -> list[Any]:
    return [each for each in board.engine.examine() if each.place != "server"]


class TestLanes:
    def test_none_without_a_limit(self, board: JobBoard, containers: Containers) -> None:
        board.post("mail", group="x")
        assert not containers.client.exists(containers.lanes, containers.heads)
        board.set_limit("mail", per="group", concurrency=1)
        assert take(board)
        board.post("mail", group="y")
        assert containers.client.zcard(containers.lanes) == containers.client.zcard(containers.heads) == 1
        board.remove_limit("mail")
        assert not containers.client.exists(containers.lanes, containers.heads)

    @pytest.mark.parametrize("meanwhile", ["nothing", "higher", "claimed"])
    def test_filled_with_what_was_there_in_steps(self, board: JobBoard, meanwhile: str) -> None:
        """The jobs that can be claimed lie behind more than one step takes in."""
        posted = uuids(board.post_many([Posting("mail", group="big")] * 2500 + [Posting("mail", group="small")] * 2))
        board.claim(board.get(posted[0]), "anna")
        board.set_limit("mail", per="group", concurrency=1)
        wanted = [posted[2500]]
        if meanwhile == "higher":
            wanted = [board.post("mail", group="high", priority="HIGH").uuid, *wanted]
        elif meanwhile == "claimed":
            board.claim(board.get(posted[2500]), "bert")
            board.consume(board.get(posted[2500]), "bert")
            wanted = [posted[2501]]
        assert [take(board).uuid for _ in wanted] == wanted
        assert board.claim_next("anna") is None
        assert odd(board) == []

    def test_laid_anew_where_another_name_counts_by_group(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        jobs = board.post_many([Posting("resize", group=group) for group in "aab"] + [Posting("mail")] * 2)
        assert uuids(board.claim_many("anna", 1)) == [jobs[0].uuid]
        board.set_limit("resize", per="group", concurrency=1)
        assert uuids(board.claim_many("anna", 5)) == [jobs[2].uuid, jobs[3].uuid]
        assert odd(board) == []

    def test_a_take_behind_many_of_a_full_group(
        self, server: Redis, admin: redis.Redis, open_board: Callable[..., JobBoard]
    ) -> None:
        # The server counts what all boards do on it.
        board = open_board(server.uri)
        containers = Containers(board, admin)
        board.set_limit("mail", per="group", concurrency=1)
        board.claim(board.post("mail", group="big"), "hog")

        def take_two() -> None:
            board.post_many([Posting("mail", group=group) for group in "xy"])
            taken = [take(board) for _ in "xy"]
            assert [job.group for job in taken] == ["x", "y"]
            board.consume_many(taken, "anna")

        take_two()
        few = containers.calls(take_two)
        board.post_many([Posting("mail", group="big", priority="HIGH")] * 3000)
        # The board's own errands may come in between; a walk over the jobs would take thousands.
        assert containers.calls(take_two) <= few + 300 < 1000


class TestScopes:
    def test_the_list_is_no_longer_than_it_must_be(self, board: JobBoard, containers: Containers) -> None:
        """What has ended is left out now and then, also where the limit is far."""
        board.set_limit("mail", concurrency=10_000)
        for _ in range(4):
            board.post_many([Posting("mail")] * 100)
            while jobs := board.claim_many("anna", 20):
                board.consume_many(jobs, "anna")
        for _ in range(10):
            board.post_many([Posting("mail")] * 100)
            while job := board.claim_next("anna"):
                board.consume(job, "anna")
        assert containers.client.hstrlen(containers.sides, "scope\0mail") < 48 * 500

    def test_a_long_list(self, board: JobBoard) -> None:
        """Longer than any that msgpack has short forms for."""
        board.set_limit("mail", concurrency=260)
        board.post_many([Posting("mail")] * 400)
        held = board.claim_many("anna", 100) + board.claim_many("anna", 100)
        assert len(board.claim_many("anna", 100)) == 60
        board.consume_many(held[:100], "anna")
        board.abandon(held[100], "anna")
        assert len(board.claim_many("anna", 100) + board.claim_many("anna", 100)) == 101
        assert odd(board) == []

    @pytest.mark.parametrize(
        "harm",
        [b"\xc1", b"\x01\xc2", b"\x01\xc2\x92\x91\x05\x90", b"\x01\xc2\x92\xdc\x00", b"\x01\xc2\x93\x90\x90\x90"],
    )
    def test_a_damaged_one(self, board: JobBoard, containers: Containers, harm: bytes) -> None:
        """It is let go of, and claims go on."""
        board.set_limit("mail", concurrency=1)
        board.post_many([Posting("mail")] * 3)
        containers.client.hset(containers.sides, "scope\0mail", harm)
        assert any("scope" in each.place for each in board.engine.examine())
        job = take(board)
        assert board.claim_next("anna") is None
        board.consume(job, "anna")
        assert take(board)
        assert odd(board) == []

    def test_one_that_is_in_the_way_of_a_look(self, board: JobBoard, containers: Containers) -> None:
        board.set_limit("mail", concurrency=1)
        job = board.post("mail")
        containers.client.hset(containers.sides, "scope\0mail", b"\xc1")
        assert uuids(board.iterjobs(only_unclaimed=True)) == [job.uuid]

    @pytest.mark.parametrize("harm", ["lanes", "heads", "meta", "stray", "stray head"])
    def test_lanes_that_are_damaged(self, board: JobBoard, containers: Containers, harm: str) -> None:
        board.set_limit("mail", per="group", concurrency=1)
        jobs = board.post_many([Posting("mail", group=group) for group in "ab"])
        ask = containers.client
        if harm == "meta":
            ask.hset(containers.meta, "lanes", "nonsense")
        elif harm == "stray":
            ask.zadd(containers.lanes, {b"mail\na\0" + b"0" * 16 + b"gone": 0})
        elif harm == "stray head":
            ask.zadd(containers.heads, {b"mail\nnobody": 1})
        else:
            ask.delete(containers.keys[harm])
            assert odd(board)
            ask.hdel(containers.meta, "lanes")
        assert [take(board).uuid for _ in jobs] == uuids(jobs)
        assert odd(board) == []


class TestWaiting:
    @pytest.mark.parametrize("names", [None, ["mail"]])
    @pytest.mark.parametrize("per", ["name", "group"])
    def test_nothing_is_sent_until_a_slot_is_free(self, place: Any, sleeper: Any, names: Any, per: str) -> None:
        board = place.board()
        board.set_limit("mail", per=per, concurrency=1)
        jobs = board.post_many([Posting("mail", group="x")] * 3)
        held = take(board)
        waiters = [sleeper(place.board(), names=names) for _ in range(2)]
        place.count()
        stands_still(place, 0.5)
        assert not place.calls
        board.consume(held, "anna")
        # The one who is first in the queue has been given it.
        assert waiters[0].wait(LIMIT) == jobs[1]
        calls = place.calls
        assert calls["evalsha"] == 1
        assert waiters[1].running
        board.consume(jobs[1], "anna")
        assert waiters[1].wait(LIMIT) == jobs[2]

    def test_a_job_that_comes_into_a_full_scope_wakes_nobody(self, place: Any, sleeper: Any) -> None:
        board = place.board()
        board.set_limit("mail", concurrency=1)
        board.post("mail")
        held = take(board)
        waiter = sleeper(place.board())
        [late] = board.post_many([Posting("mail")])
        [other] = board.post_many([Posting("resize")])
        assert waiter.wait(LIMIT) == other
        board.consume(held, "anna")
        assert take(board) == late

    def test_a_rate_from_before_the_clock_was_set_back(self, place: Any) -> None:
        board = place.board()
        board.set_limit("mail", rate=(2, LONG))
        board.post_many([Posting("mail")] * 5)
        assert len(board.claim_many("anna", 5)) == 2
        store = board.engine._live
        for ahead, more in ((LONG / 2, 0), (LONG + 3, 2)):
            [side] = store.read([], [(SCOPE, "mail")]).sides
            listed = Listed.of(side)
            starts = tuple(int(store.now() + ahead * 1e6) for _ in range(2))
            store.commit([], [Mark(side, listed._replace(starts=starts).packed())])
            assert len(board.claim_many("anna", 5)) == more
        # These count, and those from then no more.
        assert board.claim_next("anna") is None

    def test_a_rate_that_opens(self, place: Any, sleeper: Any) -> None:
        board = place.board()
        board.set_limit("mail", rate=(1, 1.0))
        jobs = board.post_many([Posting("mail")] * 2)
        board.consume(take(board), "anna")
        waiter = sleeper(place.board())
        assert waiter.wait(LIMIT) == jobs[1]

    def test_a_rate_that_opens_wakes_nobody_who_waits_for_others(self, place: Any, sleeper: Any) -> None:
        board = place.board()
        board.set_limit("mail", rate=(1, 0.3))
        waiter = sleeper(place.board(), names=["resize"])
        for _ in range(2):
            board.post("mail")
            board.claim_next("anna", names=["mail"])
        place.count()
        stands_still(place, 0.6)
        [job] = board.post_many([Posting("resize")])
        assert waiter.wait(LIMIT) == job

    def test_a_claim_that_lapses(self, place: Any, sleeper: Any) -> None:
        board = place.board()
        board.set_limit("mail", concurrency=1)
        jobs = board.post_many([Posting("mail", priority="HIGH"), Posting("mail")])
        board.claim(jobs[1], "anna", expiry=1)
        waiter = sleeper(place.board())
        assert waiter.wait(LIMIT) == jobs[0]
        with suppress(ClaimLost):
            board.extend(jobs[1], "anna")
            raise AssertionError("its slot is taken")

    def test_freed_behind_what_no_step_has_filled(self, place: Any, sleeper: Any) -> None:
        board = place.board()
        board.post_many([Posting("mail")] * 2500 + [Posting("resize")] * 2)
        board.pause(["mail"])
        held = take(board)
        board.set_limit("resize", concurrency=1)
        waiter = sleeper(place.board())
        board.consume(held, "anna")
        assert waiter.wait(LIMIT).name == "resize"

    @pytest.mark.parametrize("come", ["post", "slot"])
    def test_what_has_to_wait_for_a_rate_when_it_comes(self, place: Any, sleeper: Any, come: str) -> None:
        """Who sleeps has not reckoned with the instant at which the rate lets one more begin."""
        board = place.board()
        # Long enough for the waiter to be asleep by then.
        board.set_limit("mail", concurrency=1, rate=(1, 1.5))
        held = board.post("mail")
        board.claim(held, "anna")
        if come == "post":
            board.consume(held, "anna")
        else:
            board.post("mail")
        waiter = sleeper(place.board())
        if come == "post":
            board.post("mail")
        else:
            board.consume(held, "anna")
        assert waiter.wait(LIMIT).name == "mail"


WORKER = """
import sys
import jobboard
board = jobboard.fetch("board", {"board": sys.argv[1], "claim_ttl": 2})
board.connect()
while True:
    job = board.claim_next("anna", timeout=5)
    if job is not None:
        board.consume(job, "anna")
"""


@pytest.fixture
def workers(place: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()


def test_workers_that_are_killed(place: Any, workers: list[subprocess.Popen[bytes]]) -> None:
    """Never more claims than the limit, and the slots of the dead come back with their leases."""
    board = place.board(claim_ttl=2)
    board.set_limit("mail", per="group", concurrency=2)
    board.set_limit("mail", concurrency=5)
    board.post_many([Posting("mail", group=str(number % 4)) for number in range(2000)])
    start = [sys.executable, "-c", WORKER, place.server.uri]

    def check() -> bool:
        # A page is one instant: one script.
        claims = [seen.record for seen in board.engine.page(None, 100, ["mail"], frozenset({CLAIMED}))]
        groups = [record.group for record in claims if record is not None and record.state == CLAIMED]
        assert len(groups) <= 5
        assert all(groups.count(group) <= 2 for group in groups)
        return board.job_count < left

    workers.extend(subprocess.Popen(start, stdout=subprocess.DEVNULL) for _ in range(8))
    for number in range(6):
        left = board.job_count
        eventually(check, LIMIT)
        workers[number].send_signal(signal.SIGKILL)
    left = 1
    eventually(check, 60)
    assert odd(board) == []


@pytest.mark.parametrize("rate", [None, (1, 3 * AN_HOUR)])
def test_a_rate_that_is_removed_after_a_tidying(board: JobBoard, containers: Containers, rate: Any) -> None:
    """What a long one has kept is looked at again ten minutes later, as it goes an hour after its last start."""
    board.set_limit("mail", rate=(1, 3 * AN_HOUR))
    board.post("mail")
    board.consume(take(board), "anna")
    board.engine.tidy()
    let_age(board, "mail", AN_HOUR)
    board.remove_limit("mail")
    if rate:
        board.set_limit("mail", rate=rate)
    ends = board.engine._live.keys.of("ends")
    assert containers.client.zincrby(ends, -10 * 60e6, "scope\0mail") <= board.engine.now()
    board.engine.tidy()
    assert stored(board, "mail") == [rate is not None]


@pytest.mark.parametrize("damage", [b"\xc1", b"", msgpack.packb(1) + msgpack.packb(False) + b"\xc1"])
def test_a_gate_that_is_none(board: JobBoard, other: JobBoard, containers: Containers, damage: bytes) -> None:
    """Nobody knows what it has told: nothing is claimed past it, by who waits either."""
    board.set_limit("resize", concurrency=1, per="group")
    board.post("resize", group="one")
    job = take(board)
    sleeper = Waiter(other, lambda: other.claim_next("bert", timeout=LIMIT))
    containers.client.hset(containers.sides, "gate\0rules", damage)
    board.consume(job, "anna")
    posted = board.post("resize", group="one")
    for each in (board, other):
        for verb in (each.paused, each.limits, lambda each=each: each.claim_next("anna")):
            with pytest.raises(JobFailure, match="gate/rules is damaged"):
                verb()
    [oddity] = odd(board)
    assert oddity.place.startswith(containers.sides.decode())
    containers.client.hdel(containers.sides, "gate\0rules")
    board.set_limit("resize", concurrency=1)
    try:
        claimed = sleeper.wait()
    except JobFailure:
        # It has looked by itself meanwhile.
        claimed = other.claim_next("bert")
    assert claimed == posted
    assert board.claim_next("anna") is None
    board.consume(other.get(posted.uuid), "bert")
    assert odd(board) == []
