"""Limits beside the fast paths, and beside waiters that the server calls."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

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
from jobboard.states import CLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Waiter, take
from tests.backends.redis.test_lua_states import UUIDS, Pair, client, pairs, steps
from tests.backends.redis.test_waiting import stands_still
from tests.support.servers import Redis

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
            side.board.engine.raw.set_limit(args[0], Nonce("handle", 1, pair._calls))
        else:
            side.board.engine.raw.remove_limit(args[0].name, args[0].per, Nonce("handle", 1, pair._calls))
        side.remember()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=st.lists(drafts, min_size=4, max_size=4),
    first=rulings,
    walk=st.lists(st.one_of(steps, steps, steps, rulings), max_size=25),
)
def test_any_walk_under_limits(pairs: Any, jobs: list[Any], first: Any, walk: list[Any]) -> None:
    with pairs() as pair:
        pair.run(("insert", *((uuid, *job) for uuid, job in zip(UUIDS, jobs, strict=True))))
        for each in (first, *walk):
            step(pair, each)
            assert pair.redis.look() == pair.memory.look()


@pytest.fixture
def board(make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board()


class Containers:
    def __init__(self, board: JobBoard, client: redis.Redis) -> None:
        self.client = client
        self.keys = dict(zip(CONTAINERS, board.engine.store.keys.all, strict=True))  # type: ignore[attr-defined]

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
    return [each for each in board.engine.raw.examine() if each.place != "server"]


def test_a_take_behind_many_of_a_full_group(
    server: Redis, admin: redis.Redis, open_board: Callable[..., JobBoard]
) -> None:
    """One request passes over thousands of them, and reads no record of theirs."""
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
    assert containers.calls(take_two) <= few + 300 < 1000
    # Behind more than one request passes over.
    board.post_many([Posting("mail", group="big", priority="HIGH")] * 6000)
    take_two()


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
        eventually(lambda: not all(waiter.running for waiter in waiters), LIMIT)
        [first] = [waiter for waiter in waiters if not waiter.running]
        assert first.wait() == jobs[1]
        board.consume(jobs[1], "anna")
        waiters.remove(first)
        assert waiters[0].wait(LIMIT) == jobs[2]

    def test_a_job_that_comes_into_a_full_scope_swallows_no_call(self, place: Any, sleeper: Any) -> None:
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
        store = board.engine.store
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

    def test_freed_behind_many_that_are_paused(self, place: Any, sleeper: Any) -> None:
        board = place.board()
        board.post_many([Posting("mail")] * 2500 + [Posting("resize")] * 2)
        board.pause(["mail"])
        board.set_limit("resize", concurrency=1)
        held = take(board)
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
    # As many as two workers do within the time, on a machine that has much else to do.
    board.post_many([Posting("mail", group=str(number % 4)) for number in range(400)])
    start = [sys.executable, "-c", WORKER, place.server.uri]

    def check() -> bool:
        # A page is one instant: one script.
        claims = [seen.record for seen in board.engine.raw.page(None, 100, ["mail"], frozenset({CLAIMED}))]
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


@pytest.mark.parametrize("damage", [b"\xc1", b"%036d" % 1 + b"\xc1"])
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
