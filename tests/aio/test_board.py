"""Boards for asyncio: what differs from the verbs that they are made of. The suite itself runs through them, too."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard import aio, tracing
from jobboard.aio import AsyncJobBoard
from jobboard.board import INTERNAL
from jobboard.exceptions import ConnectionFailure, JobTrashed, NotFound
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, lost_reply, replaced
from tests.aio.conftest import Run, waiting
from tests.support.through_asyncio import VERBS

MakeBoard = Callable[..., Any]
FAST = pytest.mark.backends("memory")


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, condition, LIMIT)


@FAST
def test_every_verb_is_there_with_the_signature_of_its_twin() -> None:
    public = {name for name in dir(jobboard.JobBoard) if not name.startswith("_")} - INTERNAL
    assert public <= set(dir(AsyncJobBoard))
    for name in VERBS:
        theirs = getattr(jobboard.JobBoard, name)
        if isinstance(theirs, property):
            continue
        mine = inspect.signature(getattr(AsyncJobBoard, name)).parameters
        assert [str(each) for each in mine.values()] == [
            str(each) for each in inspect.signature(theirs).parameters.values()
        ], name


@FAST
def test_a_board_is_connected_within_its_block(run: Run) -> None:
    name = uuid.uuid4().hex

    async def main() -> None:
        async with aio.backend(name, "memory", threads=2) as board:
            assert board.connected
            assert board.characteristics.claim_ttl > 0
            job = await board.post("resize")
            assert [each async for each in board.iterjobs()] == [job]
            assert await board.job_count() == 1
            assert await board.state(job) == "UNCLAIMED"
        assert board.closed
        with pytest.raises(ConnectionFailure):
            await board.post("resize")

    run(main())
    assert aio.fetch(name, "memory").closed


@FAST
def test_they_get_the_jobs_in_the_order_of_the_queue(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        tasks = await waiting(board, *(board.claim_next("anna", timeout=None) for _ in range(150)))
        jobs = sync.post_many([{"name": "resize"}] * 150)
        assert await asyncio.gather(*tasks) == jobs

    run(main())


def test_nothing_in_time(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        assert await board.claim_next("anna") is None
        assert await board.claim_next("anna", timeout=0.05) is None
        with pytest.raises(NotFound):
            await board.wait(0.05)
        # Who comes while others wait has a look of its own, too.
        [other] = await waiting(board, board.claim_next("bert", timeout=None))
        assert await board.claim_many("anna", 2, timeout=0.05) == []
        job = await board.post("resize")
        assert await other == job

    run(main())


def test_any_number_wait_for_there_to_be_a_job(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        tasks = await waiting(board, *(board.wait() for _ in range(100)))
        job = await board.post("resize")
        for jobs in await asyncio.gather(*tasks):
            assert [each async for each in jobs] == [job]

    run(main())


@FAST
def test_unless_and_wake(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        over = asyncio.Event()
        tasks = await waiting(
            board,
            board.claim_next("anna", timeout=None, unless=over.is_set),
            board.claim_next("bert", timeout=None),
        )
        over.set()
        await board.wake()
        assert await tasks[0] is None
        assert not tasks[1].done()
        # Over before it began, with and without a wait: nobody wakes the sleeping line for it.
        for timeout in (0, LONG):
            call = board.claim_next("anna", timeout=timeout, unless=over.is_set)
            assert await asyncio.wait_for(call, LIMIT) is None
        job = await board.post("resize")
        assert await tasks[1] == job

        def broken() -> bool:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await board.claim_next("anna", timeout=None, unless=broken)

    run(main())


def test_closed_while_they_wait(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        tasks = await waiting(board, *(board.claim_next("anna", timeout=None) for _ in range(3)), board.wait())
        await board.close()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, ConnectionFailure)
        await board.connect()
        assert await board.claim_next("anna") is None

    run(main())


@pytest.mark.parametrize("whose", ["who waits alone", "one of two"])
def test_a_wait_that_is_cancelled_leaves_the_jobs_to_others(make_board: MakeBoard, run: Run, whose: str) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        calls = [board.claim_next("anna", timeout=None) for _ in range(1 if whose == "who waits alone" else 2)]
        task, *others = await waiting(board, *calls)
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


@FAST
def test_results_that_several_await_together(make_board: MakeBoard, run: Run) -> None:
    sync = make_board(keep_done=60)
    begun, go_on = threading.Event(), threading.Event()

    def held_up(original: Any, *args: Any) -> Any:
        begun.set()
        assert go_on.wait(LIMIT)
        return original(*args)

    async def main() -> None:
        board = AsyncJobBoard(sync)
        first, bad, last = [await board.post(name) for name in ("first", "bad", "last")]
        await board.cancel(bad, reason="no use")
        with replaced(sync, "read", held_up):
            awaiting = asyncio.create_task(board.result(first))
            await until(begun.is_set)
            tasks = [asyncio.create_task(board.result(job, LIMIT)) for job in (first, bad, last, last)]
            await asyncio.sleep(0)
            awaiting.cancel()
            tasks[3].cancel()
            for job, result in ((first, 1), (last, 2)):
                await board.claim(job, "anna")
                await board.consume(job, "anna", result=result)
            go_on.set()
            got = await asyncio.gather(awaiting, *tasks, return_exceptions=True)
        cancelled, one, trashed, two, also = got
        assert [type(each) for each in (cancelled, trashed, also)] == [
            asyncio.CancelledError,
            JobTrashed,
            asyncio.CancelledError,
        ]
        assert (one, two) == (1, 2)
        # All who ask together are told of what is wrong.
        await board.close()
        failures = await asyncio.gather(*(board.result(job) for job in (first, last)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [ConnectionFailure] * 2
        assert failures[0] is not failures[1]
        await board.connect()
        assert await board.wait_for(first, 0)

    run(main())


VERBS_THAT_CLAIM: dict[str, tuple[str, Callable[[AsyncJobBoard, jobboard.Job], Any]]] = {
    "claim": ("claim", lambda board, job: board.claim(job, "anna")),
    "claim_next": ("take", lambda board, job: board.claim_next("anna")),
    "claim_many": ("take", lambda board, job: board.claim_many("anna", 5)),
    "waiting": ("take", lambda board, job: board.claim_next("anna", timeout=None)),
    "working": ("take", lambda board, job: board.working("anna").__aenter__()),
}


@pytest.mark.parametrize("verb", VERBS_THAT_CLAIM)
def test_a_claim_that_is_cancelled_is_given_back_first(make_board: MakeBoard, run: Run, verb: str) -> None:
    """The cancellation comes when the server has carried out the claim, and nobody here knows."""
    sync = make_board()
    job = sync.post("resize")
    done, go_on = threading.Event(), threading.Event()

    def held_up(original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        done.set()
        assert go_on.wait(LIMIT)
        return answer

    async def main() -> None:
        board = AsyncJobBoard(sync)
        primitive, call = VERBS_THAT_CLAIM[verb]
        with replaced(sync, primitive, held_up):
            task = asyncio.create_task(call(board, job))
            await until(done.is_set)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done(), "it does not know yet what it has to give back"
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert sync.find_owner(job) is None
        assert sync.get(job.uuid).attempts == 0

    run(main())


@FAST
def test_a_call_that_is_cancelled_before_it_begins_is_not_made(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert go_on.wait(LIMIT)

    async def main() -> None:
        board = AsyncJobBoard(sync, threads=1)
        hanging = asyncio.create_task(board.call(hang))
        await until(begun.is_set)
        posting = asyncio.create_task(board.post("resize"))
        claiming = asyncio.create_task(board.claim_next("anna"))
        await asyncio.sleep(0)
        posting.cancel()
        claiming.cancel()
        await asyncio.gather(posting, claiming, return_exceptions=True)
        go_on.set()
        await hanging
        assert await board.job_count() == 0

    run(main())


@FAST
def test_a_lost_reply_is_asked_for_again(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        with lost_reply(sync, "insert"):
            job = await board.post("resize")
        assert [each async for each in board.iterjobs()] == [job]

    run(main())


@FAST
def test_work(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        done, bad, later = [await board.post(name) for name in ("done", "bad", "later")]
        async with board.working("anna") as job:
            assert job == done
            assert not jobboard.cancelled()
        assert await board.wait_for(done, 0)

        @board.working("anna", timeout=0)
        async def work(job: jobboard.Job, reason: str) -> str:
            if job == bad:
                raise jobboard.Reject(reason)
            return job.name

        assert await work("no use") is None
        with pytest.raises(JobTrashed, match="no use"):
            await board.wait_for(bad)
        assert await work("no use") == "later"
        with pytest.raises(NotFound):
            await work("no use")
        assert await board.state(later) == "COMPLETE"

    run(main())


@FAST
def test_a_block_that_another_task_leaves(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        working = AsyncJobBoard(sync).working("anna", timeout=0)
        await asyncio.create_task(working.__aenter__())
        await asyncio.create_task(working.__aexit__(None, None, None))
        assert job.state == "COMPLETE"

    run(main())


@FAST
def test_work_that_is_cancelled_is_given_back_first(make_board: MakeBoard, run: Run) -> None:
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


@FAST
def test_work_that_is_cancelled_while_it_consumes_its_job(make_board: MakeBoard, run: Run) -> None:
    """The request goes on, and nobody gets in its way."""
    sync = make_board()
    job = sync.post("resize")
    begun, go, calls = threading.Event(), threading.Event(), []

    def slow(original: Callable[..., Any], *args: Any) -> Any:
        calls.append(args)
        begun.set()
        assert go.wait(LIMIT)
        return original(*args)

    async def main() -> None:
        board = AsyncJobBoard(sync)

        async def work() -> None:
            async with board.working("anna") as mine:
                await board.consume(mine, "anna")

        task = asyncio.create_task(work())
        assert await asyncio.to_thread(begun.wait, LIMIT)
        task.cancel()
        await asyncio.wait([task], timeout=LIMIT / 2)
        assert task.cancelled()
        go.set()
        assert await board.wait_for(job, LIMIT)
        assert len(calls) == 1

    with replaced(sync, "finish", slow):
        run(main())


@FAST
def test_the_context_of_who_calls(make_board: MakeBoard, run: Run) -> None:
    told = contextvars.ContextVar("told", default="nothing")

    class Tracing(tracing.Tracing):
        def post(self, postings: Any, insert: Any) -> Any:
            heard.append(told.get())
            return insert(postings)

        def claimed(self, job: Any, since: float) -> None:
            heard.append(told.get())

    heard: list[str] = []

    async def main() -> None:
        board = AsyncJobBoard(make_board())
        board.tracing = Tracing()
        told.set("a trace")
        await board.post("resize")
        assert await board.claim_next("anna", timeout=None) is not None
        assert heard == ["a trace", "a trace"]

    run(main())


@FAST
@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_coroutine_functions_listen_on_the_loop(
    make_board: MakeBoard, run: Run, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        heard: list[tuple[str, int, asyncio.AbstractEventLoop]] = []

        async def listen(event: str, details: dict[str, Any], more: int) -> None:
            heard.append((event, more, asyncio.get_running_loop()))

        async def broken(event: str, details: dict[str, Any]) -> None:
            raise kind("broken")

        board.notifier.register("POSTED", broken)
        board.notifier.register("POSTED", listen, args=(1,))
        assert board.notifier.is_registered("POSTED", listen)
        with pytest.raises(ValueError, match="already"):
            board.notifier.register("POSTED", listen)
        await board.post("resize")
        await until(lambda: heard)
        assert heard == [("POSTED", 1, asyncio.get_running_loop())]
        assert "broken" in caplog.text
        assert board.notifier.deregister("POSTED", listen)
        board.notifier.reset()

    run(main())


@FAST
def test_one_open_board_for_threads_and_two_loops(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    claimed: list[jobboard.Job | None] = [sync.post("resize")]
    board = AsyncJobBoard(sync)

    def elsewhere() -> None:
        claimed.append(asyncio.run(board.claim_next("bert", timeout=LIMIT)))

    async def main() -> None:
        thread = threading.Thread(target=elsewhere)
        [mine] = await waiting(board, board.claim_next("anna", timeout=LIMIT, names=["crop"]))
        thread.start()
        sync.post("crop")
        assert (await mine).name == "crop"
        await asyncio.to_thread(thread.join)

    run(main())
    assert claimed[0] == claimed[1]


@FAST
@pytest.mark.parametrize("wrong", [{"timeout": -1}, {"timeout": "1"}, {"expiry": 0}])
def test_what_is_refused(make_board: MakeBoard, run: Run, wrong: dict[str, Any]) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        with pytest.raises(ValueError, match=next(iter(wrong))):
            await board.claim_next("anna", **wrong)
        with pytest.raises(TypeError):
            await board.claim_next(None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="memory board"):
            await board.claim_next("anna", wehre=1)
        with pytest.raises(ValueError, match="on the board"):
            board.iterjobs(states=["TRASHED"])

    run(main())
