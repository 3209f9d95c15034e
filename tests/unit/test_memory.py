"""The board in memory: its clock, its registry, and rules that only a stopped clock can show."""

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

import jobboard
from jobboard.backends.memory import BLOCK, ManualClock, Names, forget
from jobboard.exceptions import ClaimLost, JobFailure, UnclaimableJob
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing.conformance.support import Waiter
from tests.support.jobs import make_draft

_names = itertools.count(1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Iterator[Any]:
    name = f"unit {next(_names)}"
    with jobboard.backend(name, {"board": "memory", "clock": clock}) as board:
        yield board
    forget(name)


def test_leases_and_delays_end_at_their_instants(board: Any, clock: ManualClock) -> None:
    job, delayed = board.post("resize"), board.post("later", delay=10)
    claim = board.claim(job, "anna", 10)
    assert delayed.due.timestamp() == clock() + 10
    clock.advance(9.999999)
    assert (job.state, job.expires_in(), delayed.state) == (CLAIMED, pytest.approx(1e-6), SCHEDULED)
    with pytest.raises(UnclaimableJob):
        board.claim(board.get(job.uuid), "bert")
    clock.advance(0.000001)
    assert job.state == delayed.state == UNCLAIMED
    board.claim(board.get(job.uuid), "bert")
    with pytest.raises(ClaimLost):
        claim.consume()


def test_a_purged_job_reads_trashed_for_a_day(board: Any, clock: ManualClock) -> None:
    job = board.post("resize")
    board.cancel(job)
    board.purge(job)
    clock.advance(24 * 3600 - 1)
    assert job.state == TRASHED


@pytest.mark.rule("A rate outlives a clock that jumps, and starts are remembered for an hour.")
@pytest.mark.rule("A rate from before the clock was set back, or that was removed, keeps nobody out.")
@pytest.mark.parametrize(("step", "after"), [(-3600, 0), (-20, 30), (3600, 0)])
def test_a_rate_outlives_a_clock_that_jumps(board: Any, clock: ManualClock, step: float, after: float) -> None:
    """A rate starts nothing for at most twice a minute, or twice its own time."""

    def started() -> int:
        return len(board.claim_many("anna", 10))

    board.set_limit("resize", rate=(2, 10))
    board.post_many([{"name": "resize"}] * 10)
    assert started() == 2
    clock.advance(step)
    if after:
        assert started() == 0
        clock.advance(after)
    assert started() == 2
    clock.advance(9)
    assert started() == 0
    clock.advance(1)
    assert started() == 2


def test_an_advance_of_the_clock_wakes_waiters(board: Any, clock: ManualClock) -> None:
    board.post("resize", delay=1000)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=60))
    clock.advance(999)
    assert waiter.running
    clock.advance(1)
    assert waiter.wait().name == "resize"


def test_the_clock_belongs_to_the_stored_board(board: Any, clock: ManualClock) -> None:
    clock.advance(5)
    same = jobboard.fetch(board.name, {"board": "memory", "clock": clock})
    same.connect()
    without = jobboard.fetch(board.name, "memory")
    without.connect()
    assert without.engine.now() == same.engine.now() == int(clock() * 1e6)
    other = jobboard.fetch(board.name, {"board": "memory", "clock": ManualClock()})
    with pytest.raises(JobFailure, match="another clock"):
        other.connect()
    with pytest.raises(TypeError, match="clock"):
        jobboard.fetch("x", {"board": "memory", "clock": 5})


def test_jobs_stay_until_they_are_forgotten(board: Any) -> None:
    board.post("resize")
    board.close()
    board.connect()
    assert board.job_count == 1
    forget(board.name)
    fresh = jobboard.fetch(board.name, "memory")
    fresh.connect()
    assert fresh.job_count == 0
    assert board.job_count == 1  # a connected board keeps its jobs
    fresh.close()
    forget("never heard of")


def test_a_job_with_an_impossible_priority_is_trashed(board: Any) -> None:
    uuid = "00000000-0000-4000-8000-000000000009"
    board.engine.insert([make_draft(uuid, board.engine.wire, name="odd", priority=201)])
    fine = board.post("resize", priority="VERY_LOW")
    assert list(board.iterjobs()) == [fine]
    assert [odd.place for odd in board.examine() if odd.place.startswith("job")] == [f"job {uuid}"]
    assert board.claim_many("anna", 5) == [fine]
    [job] = board.trashed()
    assert (job.uuid, job.priority) == (uuid, -100)
    assert "priority is 201" in job.error


def test_the_doctor_reports_a_clock_that_differs_by_a_tenth_of_claim_ttl(board: Any, clock: ManualClock) -> None:
    for seconds, places in ((1.5, []), (2.5, []), (10, ["clock"]), (86400, ["clock"])):
        clock.advance(time.time() - clock() + seconds)
        assert [each.place for each in board.examine() if each.place == "clock"] == places


def test_names_stay_sorted_in_small_blocks() -> None:
    """A claim removes the first name, which would move all the others of one list."""
    draw = random.Random(7)
    names, right = Names(), set[str]()
    every = [f"{draw.randrange(6 * BLOCK):05d}" for _ in range(12 * BLOCK)]
    for step, name in enumerate([*every, *sorted(every)[: 10 * BLOCK], *every[:BLOCK], *sorted(every, reverse=True)]):
        adds = step < len(every) or len(every) + 10 * BLOCK <= step < len(every) + 11 * BLOCK
        (names.add if adds else names.remove)(name)
        (right.add if adds else right.discard)(name)
        if step % (BLOCK // 2) == 0:
            expected = sorted(right)
            assert (names.range("", 10**6), len(names)) == (expected, len(expected))
            after, most = f"{draw.randrange(6 * BLOCK):05d}", draw.randrange(1, 3 * BLOCK)
            assert names.range(after, most) == [each for each in expected if each > after][:most]
            assert (name in names) is adds
            assert max(map(len, names._blocks)) <= BLOCK
    assert names.range("", 1) == []
