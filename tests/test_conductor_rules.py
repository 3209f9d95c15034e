"""Conductors at a board whose limits leave them fewer jobs than they have slots for."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard import notifier
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor import Conductor
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, replaced, take
from tests.conftest import Runner

MakeBoard = Callable[..., Any]

pytestmark = pytest.mark.backends("memory", "etcd")
KEPT = pytest.mark.backends("etcd")


class Work:
    """Handlers that work until the test lets go of them, by name."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._at_work: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count(self, job: jobboard.Job, step: int) -> None:
        with self._lock:
            self.begun[job.name] += step > 0
            self._at_work[job.name] += step
            self.most[job.name] = max(self.most[job.name], self._at_work[job.name])

    def __call__(self, job: jobboard.Job) -> None:
        self.count(job, 1)
        try:
            assert job.name != "limited" or self.gate.wait(30)
        finally:
            self.count(job, -1)


def prepared(make_board: MakeBoard) -> Any:
    board = make_board()
    board.set_limit("limited", concurrency=4)
    board.post_many([Posting("limited")] * 12)
    return board


def looks(board: Any) -> Any:
    """Counts the takes of this handle while it waits: ``count``."""
    counted = Counter[str]()

    def counting(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        counted["takes"] += 1
        return original(*args, **kwargs)

    return counted, replaced(board, "take", counting)


def test_fifty_slots_and_a_limit_of_four(make_board: MakeBoard, start: Runner) -> None:
    """It claims four, works on what is free meanwhile, and does not ask while nothing is."""
    other, board, work = prepared(make_board), make_board(), Work()
    takes, counting = looks(board)
    with counting:
        conductor = start(Conductor("one", board, work, max_simultaneous_jobs=50))
        eventually(lambda: work.begun["limited"] == 4)
        other.post_many([Posting("free")] * 5)
        eventually(lambda: conductor.tally.consumed == 5)
        assert other.stats().claimed == 4

        def asleep() -> bool:
            before = takes["takes"]
            assert [other.claim_next("anna") for _ in range(20)] == [None] * 20
            return takes["takes"] == before

        eventually(asleep)
        assert asleep()
        work.gate.set()
        eventually(lambda: conductor.tally.consumed == 17)
    assert work.most["limited"] == 4
    assert other.job_count == 0


def test_the_same_with_coroutines(make_board: MakeBoard) -> None:
    other, sync, work = prepared(make_board), make_board(), Work()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        conductor = AsyncConductor("one", board, max_simultaneous_jobs=50)
        gate = asyncio.Event()

        @conductor.handles("limited", "free")
        async def handle(job: jobboard.Job) -> None:
            work.count(job, 1)
            if job.name == "limited":
                await gate.wait()
            work.count(job, -1)

        running = asyncio.create_task(conductor.run(max_dispatches=17))
        while work.begun["limited"] < 4:
            await asyncio.sleep(0.005)
        await board.post_many([Posting("free")] * 5)
        while conductor.tally.consumed < 5:
            await asyncio.sleep(0.005)
        assert (await board.stats()).claimed == 4
        gate.set()
        await running

    asyncio.run(asyncio.wait_for(main(), 30))
    assert work.most["limited"] == 4
    assert other.job_count == 0


def test_coroutines_that_wait_in_line(make_board: MakeBoard) -> None:
    """Of many that wait, as many are served as there is room for; the others once there is more."""
    other, sync = make_board(), make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        await board.set_limit("limited", concurrency=4)
        assert [limit.concurrency for limit in await board.limits()] == [4]
        tasks = [asyncio.create_task(board.claim_many("anna", 2, timeout=30)) for _ in range(8)]
        await board.post_many([Posting("limited")] * 16)
        held: list[Any] = []
        while len(held) < 16:
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            jobs = [job for task in done for job in task.result()]
            held += jobs
            assert other.stats().claimed <= 4
            tasks = [*waiting, *(asyncio.create_task(board.claim_many("anna", 2, timeout=30)) for _ in done)]
            await board.consume_many(jobs, "anna")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await board.remove_limit("limited")
        assert await board.limits() == []

    asyncio.run(asyncio.wait_for(main(), 30))
    assert other.job_count == 0


@KEPT
def test_a_kept_claim_whose_slot_was_taken_meanwhile(make_board: MakeBoard, start: Runner) -> None:
    """Its handler is told, and whoever listens to the board; what it has done until then does not count."""
    board, other, told = make_board(), make_board(), threading.Event()
    lost: list[Any] = []
    board.notifier.register(notifier.LOST, lambda event, details: lost.append(details["job"]))
    other.set_limit("mail", concurrency=1)
    first = other.post("mail")
    begun = threading.Event()

    def handler(job: jobboard.Job) -> None:
        begun.set()
        eventually(jobboard.cancelled)
        assert job.claim.lost
        told.set()

    conductor = start(Conductor("one", board, handler, max_simultaneous_jobs=1))
    assert begun.wait(30)
    second = other.post("mail", priority="HIGH")
    driver = board.engine.store._driver
    driver._link.call("/v3/lease/revoke", '{"ID":"' + driver.session() + '"}')
    assert take(other, expiry=LONG) == second
    board.claims.beat()
    conductor.stop()
    assert told.wait(30)
    eventually(lambda: conductor.tally.lost == 1)
    eventually(lambda: lost == [first])
    assert first.state in ("SCHEDULED", "UNCLAIMED")
    assert other.find_owner(first) is None
    assert other.stats().claimed == 1
