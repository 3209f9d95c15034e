"""Cancelled coroutines: claims are given back, ends are carried out, and no job, slot or claim is lost or held."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.job import Job, Posting
from jobboard.testing.conformance.support import LONG, replaced
from jobboard.testing.requests import ENDS, TAKES, requests
from tests.aio.conftest import ON_BOTH_LOOPS, Run, until, waiting
from tests.support.conductors import WAIT, MakeBoard

pytestmark = pytest.mark.backends("memory")

# Claims


@pytest.mark.rule("A cancelled wait leaves its jobs to others.")
@pytest.mark.backends("memory", "sqlite", "redis", "postgresql")
@pytest.mark.parametrize("waiters", [1, 2])
def test_cancelled_wait_leaves_the_jobs_to_others(make_board: MakeBoard, run: Run, waiters: int) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        task, *others = await waiting(board, *(board.claim_next("anna", timeout=None) for _ in range(waiters)))
        job = sync.post("resize")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if others:
            assert await others[0] == job
        else:
            assert sync.stats().claimed == 0
            assert sync.claim_next("bert") == job
            assert job.attempts <= 1

    run(main())


CLAIMS: dict[str, tuple[str, Callable[[AsyncJobBoard, jobboard.Job], Any]]] = {
    "claim": ("claim", lambda board, job: board.claim(job, "anna")),
    "claim_next": ("take", lambda board, job: board.claim_next("anna")),
    "claim_many": ("take", lambda board, job: board.claim_many("anna", 5)),
    "waiting": ("take", lambda board, job: board.claim_next("anna", timeout=None)),
    "working": ("take", lambda board, job: board.working("anna").__aenter__()),
}


@pytest.mark.backends("memory", "sqlite")
@pytest.mark.parametrize("verb", CLAIMS)
def test_cancelled_claim_is_given_back_first(make_board: MakeBoard, run: Run, verb: str) -> None:
    """The cancellation comes when the server has carried out the claim, and nobody here knows."""
    sync = make_board()
    job = sync.post("resize")
    done, go_on = threading.Event(), threading.Event()

    def held_up(original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        done.set()
        assert go_on.wait(WAIT)
        return answer

    async def main() -> None:
        board = AsyncJobBoard(sync)
        request, call = CLAIMS[verb]
        with replaced(sync, request, held_up):
            task = asyncio.create_task(call(board, job))
            await until(done.is_set)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done(), "it does not know yet what it has to give back"
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert sync.find_owner(job) is None
        assert sync.get(job.uuid).attempts == 0

    run(main())


@pytest.mark.rule("A claim that a coroutine can't give back or end is kept by nobody.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("reason", ["", "a fault", "no thread"])
def test_waiter_that_is_cancelled_as_it_is_served_holds_nothing(
    make_board: MakeBoard, run: Run, refused: set[str], reason: str
) -> None:
    """A claim that cannot be given back, for this reason, is not kept. The waiter hears nothing of it."""
    sync = make_board(claim_ttl=1)
    served: list[jobboard.Job] = []

    def fail(*args: Any) -> Any:
        raise RuntimeError("broken")

    async def main() -> None:
        board = AsyncJobBoard(sync)
        [claiming] = await waiting(board, board.claim_next("anna", timeout=None))
        [(line, _)] = board._loops.values()
        serve = line._end

        def serve_and_cancel(waiter: Any) -> None:
            serve(waiter)
            served.extend(waiter.jobs)
            claiming.cancel()

        line._end = serve_and_cancel  # type: ignore[method-assign]
        if reason == "no thread":
            refused.add(sync.name)
        with requests(sync).around(ENDS, fail) if reason == "a fault" else contextlib.nullcontext():
            await asyncio.to_thread(sync.post, "resize")
            await asyncio.wait([claiming], timeout=WAIT)
        assert claiming.cancelled()
        [job] = served
        await until(lambda: sync.find_owner(job) is None)
        assert sync.get(job.uuid).attempts == (1 if reason else 0)

    run(main())


@pytest.mark.backends("memory", "sqlite", "redis")
def test_cancelled_waiter_for_a_slot_takes_none(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        async with AsyncJobBoard(make_board()) as board:
            await board.set_limit("mail", concurrency=1)
            await board.post_many([Posting("mail")] * 3)
            held = await board.claim_next("anna")
            first, second = await waiting(
                board, board.claim_next("bert", timeout=None), board.claim_next("carl", timeout=None)
            )
            first.cancel()
            assert held is not None
            await board.consume(held, "anna")
            got = await asyncio.wait_for(second, WAIT)
            assert got is not None
            assert await board.claim_next("dora") is None
            await board.consume(got, "carl")
            assert await board.claim_next("dora") is not None
            assert first.cancelled()

    run(main())


# Ends: a task that is cancelled while the end of a block is carried out is cancelled all the same, once that is done


class Gate:
    """Holds up a request, on its thread."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, original: Callable[..., Any], *args: Any) -> Any:
        self.reached.set()
        assert self.open.wait(WAIT)
        return original(*args)


@contextlib.contextmanager
def gate(board: jobboard.JobBoard) -> Iterator[Gate]:
    """Hold up the requests that end claims."""
    held_up = Gate()
    with requests(board).around(ENDS, held_up):
        yield held_up


async def cancelled_at(held_up: Gate, task: asyncio.Task[Any]) -> None:
    """Cancel a task more than once while its request is held up."""
    await until(held_up.reached.is_set)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done(), "it is to see the end of it"
    held_up.open.set()
    await asyncio.wait([task], timeout=WAIT)
    assert task.cancelled()


@pytest.mark.rule("A cancelled end of a claim is carried out, and its outcome is known.")
@pytest.mark.parametrize(
    ("raised", "state"),
    [(None, "COMPLETE"), (jobboard.Reject("never"), "TRASHED"), (ValueError("broken"), "SCHEDULED")],
    ids=["done", "reject", "failed"],
)
@ON_BOTH_LOOPS
def test_end_of_cancelled_work_is_carried_out(
    make_board: MakeBoard, run: Run, raised: Exception | None, state: str
) -> None:
    sync = make_board()
    job = sync.post("resize")
    went_on: list[str] = []

    async def work() -> None:
        async with AsyncJobBoard(sync).working("anna", timeout=0):
            if raised is not None:
                raise raised
        went_on.append("behind the block")

    async def main() -> None:
        with gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(work()))
        assert went_on == []
        assert job.state == state

    run(main())


@pytest.mark.rule("A cancelled end of a claim is carried out, and its outcome is known.")
def test_refused_end_of_cancelled_work_is_logged(
    make_board: MakeBoard, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def work() -> None:
        async with AsyncJobBoard(sync).working("anna", timeout=0):
            make_board().release(job)

    async def main() -> None:
        with gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(work()))

    run(main())
    assert "ClaimLost" in caplog.text
    assert job.state == "UNCLAIMED"


@pytest.mark.rule("A cancelled end of a claim is carried out, and its outcome is known.")
def test_time_limit_that_is_over_during_the_end_of_a_block(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def work(end: Gate) -> None:
        async with asyncio.timeout(None) as limit, AsyncJobBoard(sync).working("anna", timeout=0):
            # It is over when the block has ended, and that has not been carried out.
            opening = asyncio.create_task(until(end.reached.is_set))
            opening.add_done_callback(lambda _: limit.reschedule(0))
            opening.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(end.open.set))

    async def main() -> None:
        with gate(sync) as end, pytest.raises(TimeoutError):
            await work(end)
        assert job.state == "COMPLETE"

    run(main())


@pytest.mark.rule("A cancelled end of a board or a run is carried out.")
def test_end_of_a_board_is_carried_out(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        async def use() -> None:
            async with AsyncJobBoard(sync) as board:
                assert await board.claim_next("anna") == job

        with gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(use()))
        assert sync.closed

    run(main())
    sync.connect()
    assert job.state == "UNCLAIMED"


@pytest.mark.rule("A cancelled end of a board or a run is carried out.")
def test_board_whose_block_is_cancelled_as_it_connects_is_closed(
    make_board: MakeBoard, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = make_board()
    sync.close()
    connecting = Gate()

    class Lifecycle:
        """The lock of the board, which holds up the first thread to come: that of connect()."""

        def __enter__(self) -> None:
            if not connecting.reached.is_set():
                connecting(lambda: None)
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()

    lock = sync._lifecycle
    monkeypatch.setattr(sync, "_lifecycle", Lifecycle())

    async def main() -> None:
        entering = asyncio.create_task(AsyncJobBoard(sync).__aenter__())
        await until(connecting.reached.is_set)
        entering.cancel()
        done, _ = await asyncio.wait([entering], timeout=0.2)
        connecting.open.set()
        assert not done, "it is to see the end of it"
        await asyncio.wait([entering], timeout=WAIT)
        assert entering.cancelled()

    run(main())
    assert sync.closed


@pytest.mark.rule("A cancelled end of a board or a run is carried out.")
def test_end_of_a_run_that_fails_is_carried_out(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("resize")
    broken = threading.Event()

    def take(original: Callable[..., Any], *args: Any) -> Any:
        if sync.stats().claimed:
            broken.set()
            raise RuntimeError("broken")
        return original(*args)

    async def main() -> None:
        async def handler(job: jobboard.Job) -> None:
            await asyncio.to_thread(broken.wait, WAIT)

        conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
        with requests(sync).around(TAKES, take), gate(sync) as end:
            await cancelled_at(end, asyncio.create_task(conductor.run(signals=False)))

    run(main())


@pytest.mark.rule("A claim that a coroutine can't give back or end is kept by nobody.")
@pytest.mark.backends("sqlite")
def test_claim_of_work_whose_end_gets_no_thread_is_not_kept(make_board: MakeBoard, run: Run, refused: set[str]) -> None:
    # Threads of other tests' boards may be there for a while.
    sync = make_board(uuid.uuid4().hex, claim_ttl=1)
    job = sync.post("resize")

    async def work(board: AsyncJobBoard) -> None:
        async with board.working("anna", timeout=0):
            # As after a long while without a call.
            board._threads.close()
            await until(lambda: sync.name not in {each.name for each in threading.enumerate()})
            refused.add(sync.name)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="new thread"):
            await work(AsyncJobBoard(sync))
        await until(lambda: sync.find_owner(job) is None)

    run(main())


def test_work_that_is_cancelled_is_abandoned_first(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        board = AsyncJobBoard(sync)
        begun = asyncio.Event()

        async def work() -> None:
            async with board.working("anna"):
                begun.set()
                await asyncio.sleep(LONG)

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert job.state == "SCHEDULED"
        assert "CancelledError" in job.error

    run(main())


def test_work_that_is_cancelled_while_it_consumes_its_job_lets_the_request_go_on(
    make_board: MakeBoard, run: Run
) -> None:
    sync = make_board()
    job = sync.post("resize")
    calls: list[Any] = []

    async def main() -> None:
        board = AsyncJobBoard(sync)

        async def work() -> None:
            async with board.working("anna") as mine:
                await board.consume(mine, "anna")

        def slow(original: Callable[..., Any], *args: Any) -> Any:
            calls.append(args)
            return end(original, *args)

        end = Gate()
        with replaced(sync, "finish", slow):
            task = asyncio.create_task(work())
            await until(end.reached.is_set)
            task.cancel()
            await asyncio.wait([task], timeout=WAIT / 2)
            assert task.cancelled()
            end.open.set()
            assert await board.wait_for(job, WAIT)
        assert len(calls) == 1

    run(main())


# All tasks of a loop, with those of the board


@pytest.mark.rule("A program that cancels all tasks of a loop may go on with its boards.")
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_jobs_are_read_after_all_tasks_were_cancelled(make_board: MakeBoard, run: Run, steps: int) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        board = AsyncJobBoard(sync)
        before = asyncio.all_tasks()
        reading = asyncio.create_task(board.wait_for(job))
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - before:
            task.cancel()
        # At once, and again when those tasks have ended.
        assert not await board.wait_for(job, 0)
        assert not await board.wait_for(job, 0)
        assert reading.cancelled()

    run(main())


@pytest.mark.rule("A program that cancels all tasks of a loop may go on with its boards.")
def test_jobs_are_waited_for_after_all_tasks_were_cancelled(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        board = AsyncJobBoard(sync)
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(board.claim_next("anna", timeout=None))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - before:
            task.cancel()
        async with asyncio.timeout(WAIT):
            assert await board.claim_next("bert", timeout=None) == job
        assert waiting.cancelled()

    run(main())


# All of it at once


@pytest.mark.backends("memory", "sqlite", "redis", "postgresql")
def test_cancellations_under_load_lose_and_hold_no_job(make_board: MakeBoard) -> None:
    # No lease is to lapse here, on a busy machine either.
    sync = make_board(claim_ttl=60, keep_done=600)
    chance = random.Random(1)
    posted: set[Job] = set()
    got: set[Job] = set()

    async def work(board: AsyncJobBoard, number: int) -> None:
        who = f"worker {number % 3}"
        while True:
            # Half of them wait in line, the others look for themselves.
            jobs = await board.claim_many(who, 2, timeout=None if number % 2 else 0)
            got.update(jobs)
            for job in jobs:
                await (board.abandon(job, who) if chance.random() < 0.1 else board.consume(job, who))

    async def main() -> None:
        board = AsyncJobBoard(sync)
        workers = {asyncio.create_task(work(board, number)) for number in range(30)}
        cancelled: list[asyncio.Task[None]] = []
        for _ in range(10):
            posted.update(await board.post_many([{"name": "a"}] * 10))
            # Some of them wait, some claim, some end a claim at this moment.
            for task in chance.sample(sorted(workers, key=id), 5):
                task.cancel()
                cancelled.append(task)
                workers.discard(task)
                workers.add(asyncio.create_task(work(board, chance.randrange(6))))
            await asyncio.sleep(chance.random() * 0.005)
        # A claim that a cancelled worker did not get to end stays its own, and comes to nobody.
        async with asyncio.timeout(WAIT):
            while (await board.stats()).unclaimed:
                await asyncio.sleep(0.01)
        for task in workers:
            task.cancel()
        # Those of before, too: on a busy machine one may still be giving back what it has claimed.
        outcomes = await asyncio.gather(*cancelled, *workers, return_exceptions=True)
        # Nobody has met a claim that another has taken.
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
        # A worker that was cancelled while it waited or claimed holds nothing by now. A job that a worker has got is
        # held until its end is done, which may be under way, or was not reached.
        held = {job for job in sync.iterjobs(ensure_fresh=True) if job.seen_state == "CLAIMED"}
        assert held <= got
        # To see the end of that.
        await board.close()

    asyncio.run(main())
    sync.connect()
    left, done = [job.uuid for job in sync.iterjobs()], [outcome.uuid for outcome in sync.outcomes()]
    assert sorted(left + done) == sorted(job.uuid for job in posted)
    assert len(got) > len(posted) / 2
