"""The engine: acts of others between a look and its commit, and tries that arrive late."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import jobboard
from jobboard.backends.memory import ManualClock, MemoryStore, forget
from jobboard.board import JobBoard
from jobboard.engine import Committed, Mark, Recent, Side, Stale, reschedules
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure
from jobboard.primitives import End, Finish, Nonce
from jobboard.states import OK, Holder, Verb
from jobboard.testing.conformance.support import Background, engine_of, take, uuids

_names = itertools.count(1)


class Slow(MemoryStore):
    """A store that lets others act before its next commits."""

    meanwhile: list[Callable[[], object]] = []  # noqa: RUF012 - each store gets its own

    def commit(self, *args: Any, **more: Any) -> Committed:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return super().commit(*args, **more)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def boards(clock: ManualClock) -> Iterator[tuple[Any, JobBoard]]:
    """Yield a board with a :class:`Slow` store, and another board with the same jobs."""
    name = f"engine {next(_names)}"
    slow = JobBoard(name, {"board": "memory", "clock": clock}, store=Slow)
    other = jobboard.fetch(name, "memory")
    slow.connect()
    other.connect()
    slow.engine.store.meanwhile = []  # type: ignore[attr-defined]
    yield slow, other
    slow.close()
    other.close()
    forget(name)


def test_a_claim_that_is_taken_over_meanwhile_ends_nothing(boards: tuple[Any, JobBoard]) -> None:
    slow, other = boards
    slow.post("a")
    mine = take(slow)

    def lose() -> None:
        theirs = other.get(mine.uuid)
        other.release(theirs)
        other.cancel(theirs)
        other.restore(theirs)
        other.claim(theirs, "bert")

    slow.engine.store.meanwhile = [lose]
    with pytest.raises(ClaimLost):
        slow.consume(mine, "anna")
    assert other.find_owner(mine) == "bert"


@pytest.mark.rule("A key that is taken between two requests of a post answers its holder.")
def test_a_post_returns_the_job_that_takes_its_key_meanwhile(boards: tuple[Any, JobBoard]) -> None:
    slow, other = boards
    posted: list[Any] = []
    slow.engine.store.meanwhile = [lambda: posted.append(other.post("a", key="k"))]
    assert slow.post("b", key="k") == posted[0]
    assert slow.job_count == 1


@pytest.mark.rule("A lapse that another handle has settled keeps no other job back.")
def test_a_batch_takes_the_other_lapsed_jobs_where_one_is_settled_meanwhile(
    boards: tuple[Any, JobBoard], clock: ManualClock
) -> None:
    slow, other = boards
    jobs = slow.post_many([{"name": "a"}, {"name": "b"}, {"name": "c"}])
    other.claim_many("bert", 3, expiry=1)
    clock.advance(2)
    slow.engine.store.meanwhile = [lambda: take(other, "bert", names=["a"])]
    assert slow.claim_many("anna", 3) == jobs[1:]


@pytest.mark.rule("A call that always comes second gives up with an error.")
def test_a_call_that_is_beaten_too_often_is_given_up(boards: tuple[Any, JobBoard], monkeypatch: Any) -> None:
    slow, other = boards
    job = slow.post("a")
    monkeypatch.setattr("jobboard.engine.tries.CALL", 8)
    tries: list[int] = []

    def beaten() -> None:
        tries.append(1)
        raise Stale

    slow.engine.store.meanwhile = [beaten] * 100
    with pytest.raises(ConnectionFailure, match="another process was quicker"):
        engine_of(slow).claim(Nonce("handle", 1, 1), job.uuid, "anna", None)
    assert len(tries) == 8
    assert other.find_owner(job) is None


@pytest.mark.rule("A first try that arrives after its own repetition does nothing.")
def test_a_first_try_that_arrives_after_its_repetition_does_nothing(boards: tuple[Any, JobBoard]) -> None:
    slow, other = boards
    slow.post_many([{"name": "a"}, {"name": "b"}])
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert free.wait(30)

    slow.engine.store.meanwhile = [hold]
    nonce = Nonce("handle", 1, 1)
    late = Background(lambda: engine_of(slow).take(nonce, "anna", 1, None, None))
    assert held.wait(30)
    [taken] = engine_of(slow).take(nonce._replace(attempt=2), "anna", 1, None, None).records
    act = Finish(taken.uuid, Holder("anna", taken.token), End(Verb.CONSUME))
    assert engine_of(slow).finish(Nonce("handle", 2, 1), [act]) == [OK]
    free.set()
    assert late.wait().records == []
    assert [(job.name, job.seen_state) for job in other.iterjobs()] == [("b", "UNCLAIMED")]
    # The slot has gone on: the try is refused.
    engine_of(slow).claim(Nonce("handle", 1, 2), other.get(next(other.iterjobs()).uuid).uuid, "anna", None)
    last = other.post("c")
    with pytest.raises(JobFailure, match="later"):
        engine_of(slow).take(nonce, "anna", 1, None, None)
    assert other.find_owner(last) is None


def test_a_first_try_that_arrives_twice_acts_once(boards: tuple[Any, JobBoard]) -> None:
    """The remembered content of a slot may be older than the answer of this call, or of a later call."""
    board, _ = boards
    board.post_many([{"name": name} for name in "abcd"])
    first, second, third = (Nonce("handle", 1, call) for call in (1, 2, 3))
    engine_of(board).take(first, "anna", 1, None, None)
    for _ in range(2):
        [taken] = engine_of(board).take(second, "anna", 1, None, None).records
        assert taken.name == "b"
    engine_of(board).take(third, "anna", 1, None, None)
    with pytest.raises(JobFailure, match="later"):
        engine_of(board).take(second, "anna", 1, None, None)
    assert [job.name for job in board.iterjobs() if job.seen_state == "UNCLAIMED"] == ["d"]


@pytest.mark.rule("An end of a just made claim needs no read, and never ends another life of the job.")
def test_an_own_claim_is_ended_without_a_read(boards: tuple[Any, JobBoard], monkeypatch: Any) -> None:
    """A claim that has changed is read, and so is a claim whose lapse would trash the job."""
    slow, other = boards
    store, asked = slow.engine.store, []
    read = store.read

    def counting(uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Any:
        asked.append(uuids)
        return read(uuids, sides)

    monkeypatch.setattr(store, "read", counting)

    def reads(act: Callable[[], object]) -> int:
        asked.clear()
        act()
        return len(asked)

    slow.post_many([{"name": "a"}] * 5 + [{"name": "last", "max_attempts": 1}])
    first, second, third, fourth, fifth, last = (take(slow) for _ in range(6))
    assert reads(lambda: slow.consume(first, "anna")) == 0
    assert reads(lambda: slow.consume_many([second, third], "anna")) == 0
    assert reads(lambda: other.consume(other.get(fourth.uuid), "anna")) == 0
    assert reads(lambda: slow.consume(last, "anna")) == 1
    other.extend(other.get(fifth.uuid), "anna", 10)
    assert reads(lambda: slow.consume(fifth, "anna")) == 1
    with pytest.raises(ClaimLost):
        reads(lambda: slow.consume(fourth, "anna"))
    assert len(asked) == 1


def test_an_engine_remembers_a_limited_number_of_claims(boards: tuple[Any, JobBoard]) -> None:
    slow, _ = boards
    slow.post_many([{"name": "a"}] * 4)
    jobs = slow.claim_many("anna", 4)
    found = slow.engine.store.read(uuids(jobs)).jobs
    acts = [Finish(job.uuid, Holder("anna", job.claim.token), End(Verb.CONSUME)) for job in jobs]
    recent = Recent(3)
    recent.learn(found)
    assert recent.pop(acts[:1]) is None
    assert recent.pop(acts[1:]) == found[1:]
    assert recent.pop(acts[1:]) is None, "a claim is remembered for one end"


def test_commits_that_change_schedules_alone_wake_posters() -> None:
    schedule, scope = (Mark(Side(kind, "nightly", b"", None, None), b"x") for kind in ("schedule", "scope"))
    assert reschedules([], [scope, schedule])
    assert not reschedules([], [scope])
    # The post of a due time advances its schedule.
    assert not reschedules([object()], [schedule])
