"""The kit for tests of programs."""

import asyncio
import datetime
from typing import Any

import pytest

import jobboard
from jobboard import Conductor, RetryPolicy
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.backends.memory import ManualClock
from jobboard.testing import assert_posted, drain

pytest_plugins = ["jobboard.testing.fixtures"]
pytestmark = pytest.mark.backends("memory")


def test_the_fixture_has_jobs_and_a_clock_of_its_own(
    memory_board: jobboard.JobBoard, memory_clock: ManualClock
) -> None:
    memory_board.post("a", delay=10)
    assert memory_board.name not in ("board", "test")
    memory_clock.advance(10)
    memory_board.consume(memory_board.claim_next("me"), "me", result=1)
    [job] = assert_posted(memory_board, "a")
    assert job.result(0) == 1


def test_posted_jobs_are_found_in_any_state_and_shown_where_they_are_not(memory_board: jobboard.JobBoard) -> None:
    board = memory_board
    first, delayed, done = board.post_many(
        [{"name": "a", "details": {"n": 1}, "key": "k", "group": "g"}, {"name": "a", "delay": 9}, {"name": "b"}]
    )
    board.cancel(first)
    board.claim_next("me")
    board.consume(done, "me")
    assert assert_posted(board, "a") == assert_posted(AsyncJobBoard(board), "a", count=2) == [first, delayed]
    assert assert_posted(board, "a", details={"n": 1}, key="k", group="g", priority="NORMAL") == [first]
    assert assert_posted(board, "b", details={}, count=1) == [done]
    assert assert_posted(board, "c", count=0) == []
    with pytest.raises(AssertionError) as failed:
        assert_posted(board, "a", details={"n": 2})
    assert str(failed.value).splitlines() == [
        "'a', details={'n': 2}: 0 posted, not at least 1; other jobs: 3",
        "  'a', details={'n': 1}",
        "  'a', details={}",
        "  'b', details={}",
    ]
    for wrong in ({"count": 1}, {"count": 0}, {"key": "l"}, {"group": "l"}, {"priority": 1}):
        with pytest.raises(AssertionError, match=f"not {wrong.get('count', 'at least 1')}"):
            assert_posted(board, "a", **wrong)


class Odd(Exception):
    pass


def work(job: jobboard.Job) -> None:
    if job.name == "first":
        job.board.post("bad", max_attempts=3)
        job.board.post("good", delay=3600)
    elif job.name == "rejected":
        raise jobboard.Reject("not here")
    elif job.name == "bad":
        raise Odd(job.attempts)


async def work_on_loop(job: jobboard.Job) -> None:
    work(job)


@pytest.mark.rule("drain() runs all that can be done, and raises what a handler has raised.")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_drain_raises_what_a_handler_has_raised(memory_board: Any, is_async: bool) -> None:
    board, retry = memory_board, RetryPolicy(max_attempts=9)

    def drained(**options: bool) -> None:
        if is_async:
            asyncio.run(drain(AsyncConductor("one", AsyncJobBoard(board), work_on_loop, retry=retry), **options))
        else:
            drain(Conductor("one", board, work, retry=retry), **options)

    board.post_many([{"name": "first"}, {"name": "rejected"}])
    with pytest.raises(Odd) as raised:
        drained()
    assert raised.value.args == (1,)
    assert not hasattr(raised.value, "__notes__")
    assert [(job.name, job.seen_state) for job in board.iterjobs()] == [("bad", "SCHEDULED"), ("good", "SCHEDULED")]
    with pytest.raises(Odd) as raised:
        drained(scheduled=True)
    assert raised.value.args == (2,)
    assert raised.value.__notes__ == ["1 more failed, the last with Odd(3)"]
    assert [job.name for job in board.trashed()] == ["bad", "rejected"]
    assert_posted(board, "good", count=1)
    assert board.job_count == 0
    drained(scheduled=True)


def test_a_drain_of_delays_needs_a_clock_and_ends(memory_board: jobboard.JobBoard) -> None:
    """It passes due times of the handled jobs alone, and no time beyond."""
    with jobboard.backend("plain", "memory") as plain, pytest.raises(ValueError, match="the fixture memory_board"):
        drain(Conductor("one", plain, print), scheduled=True)
    begun = memory_board.post("a", delay=10).created_on
    memory_board.post("b", delay=5)
    memory_board.post("a", delay=20)
    seen = []
    conductor = Conductor("one", memory_board, {"a": lambda job: seen.append(job.last_modified - begun)})
    drain(conductor, scheduled=True)
    assert [round(each / datetime.timedelta(seconds=1)) for each in seen] == [10, 20]
    assert [job.name for job in memory_board.iterjobs()] == ["b"]


@pytest.mark.rule("A conductor takes the handlers of another one with their options.")
def test_the_handlers_of_a_program_work_on_the_board_of_a_test(memory_board: jobboard.JobBoard) -> None:
    elsewhere = Conductor(None, jobboard.fetch("elsewhere", "memory"))
    elsewhere.handles("a", retry=RetryPolicy(max_attempts=1))(lambda: 1 / 0)
    job = memory_board.post("a")
    with pytest.raises(ZeroDivisionError):
        drain(Conductor("one", memory_board, elsewhere.handlers))
    assert job.state == "TRASHED"
