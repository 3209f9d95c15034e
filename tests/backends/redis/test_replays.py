"""Requests and replies that are lost, late or interrupted: each call is done once, and its caller learns how it ended.

The conformance suite loses replies and delays requests of every verb.
"""

import functools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
import redis

import jobboard
from jobboard.board import JobBoard
from jobboard.job import Job
from jobboard.testing import eventually
from jobboard.testing.conformance.support import claim_one, engine_of
from jobboard.testing.faults import FaultyProxy
from tests.backends.redis.conftest import Containers, Place

pytestmark = pytest.mark.backends("redis")


@pytest.fixture
def proxy(place: Place) -> Iterator[FaultyProxy]:
    """A proxy before a server that knows all scripts: no request is lost that only asks for one."""
    with jobboard.backend("other", place.server.uri) as board:
        for prepare, act in ACTS.values():
            act(board, prepare(board))
    with FaultyProxy(*place.server.address) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: FaultyProxy) -> Iterator[JobBoard]:
    """A board behind the proxy, on a client of the caller's that repeats requests by itself."""
    with (
        redis.Redis(host=proxy.host, port=proxy.port) as client,
        jobboard.backend("board", "redis", client=client) as board,
    ):
        yield board


one_claimed = functools.partial(claim_one, expiry=600)


def three(board: JobBoard) -> list[Job]:
    return board.post_many([{"name": "a"}] * 3)


ACTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "post_many": (three, lambda board, _: board.post_many([{"name": "b"}, {"name": "c", "key": "k"}])),
    "claim_next": (three, lambda board, _: board.claim_next("anna")),
    "extend": (one_claimed, lambda board, job: board.extend(job, "anna", 60)),
    "consume": (one_claimed, lambda board, job: board.consume(job, "anna")),
    "cancel": (three, lambda board, jobs: board.cancel(jobs[0], reason="no use")),
}
"""Calls of each script: what a call needs, and the call."""


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_sweeps_of_one_claim_are_one_call(far: JobBoard, proxy: FaultyProxy, nth: int) -> None:
    """There are more overdue jobs than one sweep takes, and any of the sweeps is cut off."""
    far.post_many([{"name": "b", "delay": 0.000001}] * 250)
    job = far.post("a", delay=0.000001)
    eventually(lambda: far.get(job.uuid).seen_state == "UNCLAIMED")
    fault = proxy.lose("reply", nth=nth, matching=b"EVALSHA")
    assert far.claim_next("anna", names=["a"], expiry=600) == job
    assert fault.happened
    assert far.claim_next("anna", names=["a"]) is None
    assert far.stats() == type(far.stats())(250, 0, 1, 0)
    assert far.get(job.uuid).attempts == 1


@pytest.mark.rule("A script that the server has forgotten is sent with its call.")
def test_a_script_that_the_server_has_forgotten_is_sent_with_its_call(place: Place, proxy: FaultyProxy) -> None:
    """The server is flushed before each request, as if servers ended one after the other."""

    def flush() -> None:
        place.call("SCRIPT", "FLUSH")
        proxy.before(flush, matching=b"EVALSHA")

    with jobboard.backend("board", proxy.uri_for(place.server.uri)) as board:
        proxy.before(flush, matching=b"EVALSHA")
        job = board.post("a")
        board.consume(board.claim_next("anna"), "anna")
        assert job.state == "COMPLETE"


@pytest.mark.parametrize("act", ["claim_next", "post_many"])
def test_a_call_after_an_interrupted_one_reads_its_own_reply(proxy: FaultyProxy, place: Place, act: str) -> None:
    """Ctrl-C comes between a request and its reply."""
    prepare, do = ACTS[act]
    with jobboard.backend("board", proxy.uri_for(place.server.uri)) as board:
        given = prepare(board)
        proxy.after(lambda: os.kill(os.getpid(), signal.SIGINT), matching=b"EVALSHA")
        with pytest.raises(KeyboardInterrupt):
            do(board, given)
        job = board.post("y")
        assert board.get(job.uuid).name == "y"
        assert board.stats().on_board == board.job_count
        taken = board.claim_next("bert", names=["y"])
        assert taken == job
        board.consume(taken, "bert")
        # The answer of the interrupted call is not taken for the answer of this one.
        assert board.claim_next("bert", names=["y"]) is None


# Answers


HOUR = 3_600_000_000


@pytest.fixture
def containers(make_board: Callable[..., JobBoard], client: redis.Redis) -> Containers:
    return Containers(make_board(), client)


def test_answers_of_an_hour_ago_are_dropped(containers: Containers) -> None:
    """Answers in slots that have been used again since stay."""
    engine, client = engine_of(containers.board), containers.client
    containers.board.post("a")
    now = engine.now()
    for kind, until in (("old", now - 1), ("young", now + HOUR), ("again", now + HOUR)):
        names = [f"answer\0{kind}:{number}" for number in range(1500)]
        blob = b"%018d%018d" % (1, until) + msgpack.packb([1, 1, [["ok", "a job", 0]]])
        client.hset(containers.sides, mapping=dict.fromkeys(names, blob))
        client.zadd(containers.ends, dict.fromkeys(names, now - 1 if kind == "again" else until))
    engine.tidy()
    left = [name.partition(b"\0")[2].partition(b":")[0] for name in client.hkeys(containers.sides)]
    assert Counter(left) == {b"young": 1500, b"again": 1500, containers.board.engine.handle.encode(): 1}
    assert client.zcard(containers.ends) == len(left)
    assert client.zcount(containers.ends, "-inf", now) == 0


def test_waiters_and_entities_that_died_are_dropped(containers: Containers) -> None:
    engine, client = engine_of(containers.board), containers.client
    now = engine.now()
    members = {f"{name}\0{now - 2 * HOUR:018d}{1:018d}" + "d" * 32: 0 for name in ("a", "b")}
    client.zadd(containers.waiters, members)
    client.hset(containers.bells, "d" * 32, msgpack.packb(list(members)))
    engine.enlist("h", "kind", "dead", "{}", 1)
    engine.enlist("h", "kind", "alive", "{}", HOUR)
    eventually(lambda: engine.now() > now + 1)
    engine.tidy()
    assert not client.exists(containers.waiters, containers.bells)
    alive = [b'entity\0["kind", "alive", "h"]']
    assert client.hkeys(containers.sides) == alive
    assert client.zrange(containers.ends, 0, -1) == client.zrange(containers.listed, 0, -1) == alive
