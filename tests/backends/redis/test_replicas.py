"""The promise of ``min_replicas``: a call returns once so many replicas have all that the call has written or read."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
import redis

import jobboard
from jobboard.board import JobBoard
from jobboard.engine import Remembered
from jobboard.engine.engine import WRITES
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Act, Posting
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, LONG, PATIENCE, Background, take, trash_one
from tests.backends.redis.conftest import OpenBoard, Place
from tests.support.servers import Redis

# The tests share two servers.
pytestmark = [pytest.mark.backends("redis"), pytest.mark.xdist_group("redis-replicas")]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Redis, Redis]]:
    """A primary and its replica."""
    with (
        Redis(config={"repl-diskless-sync-delay": 0}) as primary,
        Redis(config={"replicaof": f"{primary.address[0]} {primary.port}"}) as replica,
    ):
        yield primary, replica


@pytest.fixture
def pair(servers: tuple[Redis, Redis]) -> Iterator[tuple[Redis, Redis]]:
    """The two servers, empty and in step."""
    primary, replica = servers
    primary.call("FLUSHALL")
    eventually(lambda: replica.call("ROLE")[3] == "connected" and replica.call("DBSIZE") == 0)
    yield primary, replica
    replica.resume()


def test_a_call_returns_once_a_replica_has_its_writes(pair: tuple[Redis, Redis], open_board: OpenBoard) -> None:
    primary, replica = pair
    board = open_board(primary.uri, min_replicas=1)
    assert board.characteristics.survives_failover
    assert "waits for 1 of 1 replicas" in board.characteristics.notes
    with redis.Redis(port=replica.port) as copy:
        for number in range(20):
            board.post("resize")
            assert copy.hlen("jobboard:{board}:jobs") == number + 1
        board.consume(take(board), "anna")
        assert copy.hlen("jobboard:{board}:jobs") == 19
    assert "characteristic survives_failover" not in [odd.place for odd in board.examine()]
    careless = open_board(primary.uri)
    assert not careless.characteristics.survives_failover
    [odd] = [odd for odd in careless.examine() if odd.place == "characteristic survives_failover"]
    assert "min_replicas" in odd.advice


def test_a_call_goes_on_until_replicas_have_it(
    pair: tuple[Redis, Redis], open_board: OpenBoard, caplog: pytest.LogCaptureFixture
) -> None:
    primary, replica = pair
    board = open_board(primary.uri, min_replicas=1, socket_timeout=0.4, retry_for=20)
    first, second = board.post("resize"), board.post("resize")
    replica.pause()
    call = Background(lambda: board.claim_next("anna"))
    assert eventually(lambda: "replicas that min_replicas asks for" in caplog.text)
    assert call.running
    replica.resume()
    assert call.wait(PATIENCE) == first
    assert list(board.iterjobs(only_unclaimed=True)) == [second]


# Every call that changes something


class Situation:
    """A board with something for each call to change. A call is never tried on a connection that has written before."""

    def __init__(self, board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.board = board
        self.held, self.free, done = (board.post(name) for name in ("held", "free", "done"))
        board.claim(self.held, "anna")
        self.trashed = trash_one(board)
        board.claim(done, "anna")
        board.consume(done, "anna")
        [self.done] = board.engine.outcome_page(None, 1)
        board.pause(["old"])
        board.set_limit("was", concurrency=1)
        board.schedule("gone", every=LONG, name="tick")
        board.schedule("due", every=LONG, name="tick")
        board.engine.set_schedule("due", lambda now, before: before and before._replace(due=now - 1))
        self.entity = jobboard.Entity("conductor", "c", {})
        board.register_entity(self.entity)
        self.drop_connections()
        monkeypatch.setattr(board.engine, "sleep_unless_closed", lambda seconds: self.drop_connections())

    def drop_connections(self) -> None:
        store: Any = self.board.engine.store
        store.connections.drop_idle()

    def beat(self) -> None:
        self.board.claims.beat()

    def store_outcomes(self) -> None:
        record = self.done.record._replace(uuid=str(UUID(int=1)))
        self.board.engine.store_outcomes([self.done._replace(record=record)])

    def store_keys(self) -> None:
        self.board.engine.store_keys([Remembered("k", self.held.uuid, self.done.until)])


Call = Callable[[Situation], object]

CALLS: dict[str, tuple[str, Call]] = {
    "setup": ("setup", lambda it: it.board.setup()),
    "post": ("insert", lambda it: it.board.post("new")),
    "claim": ("claim", lambda it: it.board.claim(it.free, "anna")),
    "claim_next": ("take", lambda it: it.board.claim_next("anna")),
    "heartbeat": ("renew", lambda it: it.beat()),
    "note": ("note", lambda it: it.held.note("half of it", flush=True)),
    "extend": ("extend", lambda it: it.board.extend(it.held, "anna", LONG)),
    "consume": ("finish", lambda it: it.board.consume(it.held, "anna")),
    "consume with follow-ups": ("follow", lambda it: it.board.consume(it.held, "anna", then=[Posting("next")])),
    "abandon": ("finish", lambda it: it.board.abandon(it.held, "anna")),
    "trash": ("finish", lambda it: it.board.trash(it.held, "anna")),
    "finish_many": ("finish", lambda it: it.board.finish_many([Act(it.held, Verb.TRASH)], "anna")),
    "release": ("operate", lambda it: it.board.release(it.held)),
    "cancel": ("operate", lambda it: it.board.cancel(it.free)),
    "restore": ("operate", lambda it: it.board.restore(it.trashed)),
    "purge": ("operate", lambda it: it.board.purge(it.trashed)),
    "pause": ("pause", lambda it: it.board.pause(["mail"])),
    "resume": ("resume", lambda it: it.board.resume(["old"])),
    "set_limit": ("set_limit", lambda it: it.board.set_limit("mail", concurrency=1)),
    "remove_limit": ("remove_limit", lambda it: it.board.remove_limit("was")),
    "schedule": ("set_schedule", lambda it: it.board.schedule("new", every=LONG, name="tick")),
    "unschedule": ("remove_schedule", lambda it: it.board.unschedule("gone")),
    "post_due": ("post_due", lambda it: it.board.post_due()),
    "register_entity": ("enlist", lambda it: it.board.register_entity(jobboard.Entity("conductor", "d"))),
    "deregister_entity": ("delist", lambda it: it.board.deregister_entity(it.entity)),
    "store_outcomes": ("store_outcomes", lambda it: it.store_outcomes()),
    "store_keys": ("store_keys", lambda it: it.store_keys()),
}
"""The primitive of each call, and the call."""

REPEATED = (
    "setup",
    "pause",
    "resume",
    "set_limit",
    "remove_limit",
    "schedule",
    "unschedule",
    "store_outcomes",
    "store_keys",
)
"""Calls that find nothing to change where another handle has made the same call."""


@pytest.mark.rule("A change is acknowledged once the replicas have it that were asked for.")
def test_no_primitive_is_forgotten() -> None:
    # Nobody relies on records that have expired.
    assert {primitive for primitive, _ in CALLS.values()} == set(WRITES) - {"tidy"}


@pytest.fixture
def situated(
    pair: tuple[Redis, Redis], open_board: OpenBoard, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Situation]:
    def make(**options: Any) -> Situation:
        conf = {"min_replicas": 1, "socket_timeout": 0.4, "keep_done": LONG, **options}
        return Situation(open_board(pair[0].uri, **conf), monkeypatch)

    return make


@pytest.mark.rule("A change is acknowledged once the replicas have it that were asked for.")
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_acknowledged_that_no_replica_has(
    pair: tuple[Redis, Redis], situated: Callable[..., Situation], call: str
) -> None:
    """Nor is a repetition, which may have nothing left to change."""
    situation = situated(retry_for=0.5)
    pair[1].pause()
    with pytest.raises(ConnectionFailure) as caught:
        CALLS[call][1](situation)
    assert caught.value.outcome == "unknown"
    assert "0 of the 1 replicas" in str(caught.value)


@pytest.mark.rule("A change is acknowledged once the replicas have it that were asked for.")
def test_a_change_that_another_handle_has_made_is_not_acknowledged_either(
    pair: tuple[Redis, Redis], situated: Callable[..., Situation], open_board: OpenBoard
) -> None:
    situation = situated(retry_for=0)
    mine, other = situation.board, open_board(pair[0].uri)
    pair[1].pause()
    for call in REPEATED:
        situation.board = other
        CALLS[call][1](situation)
        situation.board = mine
        with pytest.raises(ConnectionFailure) as caught:
            CALLS[call][1](situation)
        assert caught.value.outcome == "unknown"


@pytest.mark.rule("A change is acknowledged once the replicas have it that were asked for.")
def test_a_renewal_counts_once_a_replica_has_it(pair: tuple[Redis, Redis], open_board: OpenBoard) -> None:
    board = open_board(pair[0].uri, min_replicas=1, socket_timeout=0.4, claim_ttl=HELD)
    claim = board.claim(board.post("resize"), "anna")
    pair[1].pause()
    # A server that has heard of no renewal may give the job to another worker.
    eventually(lambda: claim.lost)


def test_without_min_replicas_a_call_without_a_change_sends_nothing(place: Place) -> None:
    board = place.board()
    board.pause(["mail"])
    place.count()
    board.pause(["mail"])
    board.engine.store.sync()  # type: ignore[attr-defined]
    assert place.calls["evalsha"] == 1
