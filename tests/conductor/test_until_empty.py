"""Runs until nothing can be done, of conductors of each kind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.backends.memory import ManualClock
from jobboard.conductor import Conductor
from jobboard.testing import eventually
from jobboard.testing.requests import ENDS, POSTER_LOOKS, TAKES, requests
from tests.support import handlers
from tests.support.conductors import LATE, WAIT, Hanging, MakeBoard, errors_of

MEMORY = pytest.mark.backends("memory")


@pytest.mark.rule("A run until empty does what can be done, its own returns and follow-ups included, and no more.")
@pytest.mark.backends("memory", "sqlite", "redis")
def test_a_run_until_empty_leaves_what_nobody_can_do_now(make_board: MakeBoard) -> None:
    board = make_board()
    board.set_limit("rated", rate=(1, 3600))
    board.pause(["paused"])
    board.schedule("nightly", name="report", every=3600)
    for name in ("first", "paused", "other", "rated", "rated"):
        board.post(name)
    board.post("first", delay=3600)
    board.post("first", priority="HIGH")
    board.claim_next("somebody", names=["first"])
    done: list[str] = []
    conductor = Conductor("one", board, max_simultaneous_jobs=2)

    @conductor.handles("first", "paused", "rated", "then", max_simultaneous=1)
    def work(job: jobboard.Job) -> None:
        done.append(job.name)
        if job.name == "first":
            board.post("then")

    conductor.run(until_empty=True)
    assert sorted(done) == ["first", "rated", "then"]
    left = sorted((job.name, job.seen_state) for job in board.iterjobs())
    assert left == [
        *(("first", "CLAIMED"), ("first", "SCHEDULED"), ("other", "UNCLAIMED"), ("paused", "UNCLAIMED")),
        ("rated", "UNCLAIMED"),
    ]
    board.post("then")
    conductor.run(until_empty=True)
    assert done[3:] == ["then"]


@pytest.mark.rule("A run until empty does what can be done, its own returns and follow-ups included, and no more.")
@pytest.mark.backends("memory", "sqlite")
def test_a_job_on_its_way_back_holds_a_run_until_empty(make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does the slot of a limit that its claim holds: the ends are held back until a claim has been in vain."""
    board = make_board()
    board.set_limit("limited", concurrency=1)
    board.post_many([{"name": "again"}, {"name": "limited"}, {"name": "limited"}])
    calls, in_vain = [], threading.Event()
    claim_many = board.claim_many

    def record(*args: Any, **extra: Any) -> Any:
        calls.append(args)
        return claim_many(*args, **extra)

    def look() -> None:
        if len(calls) > 1:
            in_vain.set()

    monkeypatch.setattr(board, "claim_many", record)
    requests(board).before(ENDS, lambda: in_vain.wait(WAIT))
    requests(board).after(TAKES, look)
    runs: list[str] = []

    def handler(job: jobboard.Job) -> None:
        if job.name == "again":
            runs.append(job.uuid)
            if len(runs) == 1:
                raise jobboard.Retry("once more", delay=0)

    conductor = Conductor("one", board, handler)
    conductor.run(until_empty=True)
    assert (len(runs), conductor.tally.consumed, conductor.tally.abandoned) == (2, 3, 1)


@MEMORY
@pytest.mark.parametrize("kind", ["threads", "processes", "coroutines"])
def test_conductors_of_each_kind_run_until_empty(make_board: MakeBoard, kind: Any) -> None:
    board = make_board()
    board.post_many([{"name": "idle"}] * 5 + [{"name": "idle", "delay": 3600}])

    async def idle(job: jobboard.Job) -> None:
        await asyncio.sleep(0)

    if kind == "coroutines":
        conductor = AsyncConductor("one", AsyncJobBoard(board), {"idle": idle}, max_simultaneous_jobs=2)
        asyncio.run(conductor.run(until_empty=True))
        assert conductor.tally.consumed == 5
    else:
        plain = Conductor("one", board, {"idle": handlers.idle}, workers=kind, max_simultaneous_jobs=2)
        plain.run(until_empty=True)
        assert plain.tally.consumed == 5
    assert board.stats().scheduled == 1


@MEMORY
def test_a_due_schedule_is_posted_before_a_run_until_empty_ends(make_board: MakeBoard) -> None:
    """Also where the scheduler is late."""
    clock, gate = ManualClock(), threading.Event()
    board = make_board(clock=clock)
    board.schedule("hourly", name="report", every=3600)
    clock.advance(3600)

    def hold() -> None:
        if threading.current_thread().name.endswith("-scheduler"):
            gate.wait(WAIT)

    requests(board).before(POSTER_LOOKS, hold)
    for schedules, consumed in ((False, 0), (True, 1)):
        conductor = Conductor("one", board, lambda job: gate.set(), schedules=schedules)
        conductor.run(until_empty=True)
        assert conductor.tally.consumed == consumed


@MEMORY
def test_a_run_until_empty_begins_new_jobs_beside_a_long_one(make_board: MakeBoard, hanging: Hanging) -> None:
    board, quick = make_board(), threading.Event()
    board.post("slow")
    conductor = Conductor("one", board, {"slow": hanging, "quick": lambda job: quick.set()})
    thread = threading.Thread(target=conductor.run, kwargs={"until_empty": True})
    thread.start()
    hanging.await_begin()
    board.post("quick")
    assert quick.wait(WAIT)
    assert conductor.dispatching
    hanging.gate.set()
    thread.join(WAIT)
    assert conductor.tally.consumed == 2


@MEMORY
def test_a_handler_that_hangs_holds_no_run_until_empty(make_board: MakeBoard, hanging: Hanging) -> None:
    board = make_board()
    board.post("slow")
    conductor = Conductor("one", board, hanging, job_timeout=0.01, retry=LATE)
    assert errors_of(lambda: conductor.run(until_empty=True)) == []
    assert conductor.tally.abandoned == 1


@MEMORY
def test_a_handler_that_hangs_in_the_last_of_its_name_holds_it(make_board: MakeBoard, hanging: Hanging) -> None:
    board = make_board()
    board.post_many([{"name": "slow"}] * 2)
    conductor = Conductor("one", board, {"other": print}, retry=LATE)
    conductor.handles("slow", timeout=0.01, max_simultaneous=1)(hanging)
    thread = threading.Thread(target=conductor.run, kwargs={"until_empty": True})
    thread.start()
    eventually(lambda: conductor.tally.abandoned == 1)
    # Not a wait for anything: a run that ends with the first job would have ended by then.
    conductor.wait(0.2)
    hanging.gate.set()
    thread.join(WAIT)
    assert conductor.tally.dispatched == 2
