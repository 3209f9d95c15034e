"""Boards for asyncio: their waits, calls, work, listeners and threads. The conformance suite runs on them, too."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard import aio, tracing
from jobboard.aio import AsyncJobBoard
from jobboard.aio.threads import Threads
from jobboard.exceptions import ConnectionFailure, JobTrashed, NotFound
from jobboard.testing.conformance.support import LIMIT, LONG, replaced
from jobboard.testing.requests import TAKES, requests
from tests.aio.conftest import ON_BOTH_LOOPS, Run, until, waiting
from tests.support.conductors import WAIT, MakeBoard
from tests.support.members import OF_BOARDS
from tests.support.through_asyncio import VERBS

pytestmark = pytest.mark.backends("memory")
FAST = pytest.mark.backends("memory", "sqlite")


def test_every_verb_is_there_with_the_signature_of_its_twin() -> None:
    public = {name for name in dir(jobboard.JobBoard) if not name.startswith("_")} - OF_BOARDS
    assert public <= set(dir(AsyncJobBoard))
    for name in VERBS:
        theirs = getattr(jobboard.JobBoard, name)
        if isinstance(theirs, property):
            continue
        mine = inspect.signature(getattr(AsyncJobBoard, name)).parameters
        # An act also takes what the search of an asynchronous board returns.
        assert [str(each).replace(" | AsyncIterable[Job | Outcome]", "") for each in mine.values()] == [
            str(each) for each in inspect.signature(theirs).parameters.values()
        ], name


def test_act_takes_an_asynchronous_search(run: Run) -> None:
    async def main() -> None:
        async with aio.backend(uuid.uuid4().hex, "memory") as board:
            await board.post_many([{"name": "a"}, {"name": "b"}])
            page = await board.find_page(1)
            assert [job.name for job in page.jobs] == ["a"]
            assert (await board.act("cancel", board.find(names=["b"]))).done == 1
            assert (await board.act("cancel", page.jobs)).done == 1
            assert [job.name async for job in board.find(states=["TRASHED"], names=["b"])] == ["b"]
            assert (await board.error_groups()).looked == 2
            assert await board.names() == []

    run(main())


def test_board_is_connected_within_its_block(run: Run) -> None:
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


def test_one_open_board_serves_threads_and_two_loops(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    claimed: list[jobboard.Job | None] = [sync.post("resize")]
    board = AsyncJobBoard(sync)

    def elsewhere() -> None:
        claimed.append(asyncio.run(board.claim_next("bert", timeout=WAIT)))

    async def main() -> None:
        thread = threading.Thread(target=elsewhere)
        [mine] = await waiting(board, board.claim_next("anna", timeout=WAIT, names=["crop"]))
        thread.start()
        sync.post("crop")
        assert (await mine).name == "crop"
        await asyncio.to_thread(thread.join)

    run(main())
    assert claimed[0] == claimed[1]


@pytest.mark.rule("A flushed note is stored when the call returns, and later notes keep the parts that they leave out.")
def test_a_coroutine_makes_notes(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        async with AsyncJobBoard(make_board()) as board:
            await board.post("resize")
            job = await board.claim_next("anna", timeout=0)
            job.note("reading", percent=50)
            await board.note(job, checkpoint=[1], flush=True)
            seen = await board.get(job.uuid)
            assert (seen.progress.text, seen.progress.percent, seen.checkpoint) == ("reading", 50, [1])

    run(main())


# Waits


@FAST
def test_any_number_of_coroutines_waits_for_a_job_to_be_there(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        tasks = await waiting(board, *(board.wait() for _ in range(20)))
        job = await board.post("resize")
        for jobs in await asyncio.gather(*tasks):
            assert [each async for each in jobs] == [job]

    run(main())


@pytest.mark.rule("A wait ends at once if unless() is true at its begin.")
def test_unless_ends_a_wait_at_once_and_at_a_wake_up(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        over = asyncio.Event()
        off, on = await waiting(
            board,
            board.claim_next("anna", timeout=None, unless=over.is_set),
            board.claim_next("bert", timeout=None),
        )
        over.set()
        await board.wake()
        assert await off is None
        assert not on.done()
        # Over before it began, with and without a wait: nobody wakes the sleeping line for it.
        for timeout in (0, LONG):
            assert await board.claim_next("anna", timeout=timeout, unless=over.is_set) is None
        job = await board.post("resize")
        assert await on == job
        with pytest.raises(ZeroDivisionError):
            await board.claim_next("anna", timeout=None, unless=lambda: 1 // 0)

    run(main())


@pytest.mark.rule("Coroutines that await results look together.")
def test_results_that_several_await_are_read_together(make_board: MakeBoard, run: Run) -> None:
    sync = make_board(keep_done=60)
    begun, go_on = threading.Event(), threading.Event()

    def held_up(original: Any, *args: Any) -> Any:
        begun.set()
        assert go_on.wait(WAIT)
        return original(*args)

    async def main() -> None:
        board = AsyncJobBoard(sync)
        first, bad, last = [await board.post(name) for name in ("first", "bad", "last")]
        with pytest.raises(TimeoutError):
            await board.result(first, 0)
        await board.cancel(bad, reason="no use")
        with replaced(sync, "read", held_up):
            awaiting = asyncio.create_task(board.result(first))
            await until(begun.is_set)
            tasks = [asyncio.create_task(board.result(job, WAIT)) for job in (first, bad, last, last)]
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
        assert sorted([left.result async for left in board.outcomes()]) == [1, 2]
        assert (await board.outcome(first)).who == "anna"
        # All that ask together get the error.
        await board.close()
        failures = await asyncio.gather(*(board.result(job) for job in (first, last)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [ConnectionFailure] * 2
        await board.connect()
        assert await board.wait_for(first, 0)

    run(main())


# Calls


def test_call_that_is_cancelled_before_it_begins_is_not_made(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert go_on.wait(WAIT)

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


@pytest.mark.rule("A claim that is refused when nobody waits for it any more is no unhandled error.")
def test_claim_that_is_refused_after_its_task_was_cancelled_is_no_unhandled_error(
    make_board: MakeBoard, run: Run
) -> None:
    sync = make_board()
    job = sync.post("resize", delay=LONG)
    begun, go_on = threading.Event(), threading.Event()
    told: list[dict[str, Any]] = []

    def held_up(original: Callable[..., Any], *args: Any) -> Any:
        begun.set()
        assert go_on.wait(WAIT)
        return original(*args)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        with requests(sync).around("claim", held_up):
            claiming = asyncio.create_task(AsyncJobBoard(sync).claim(job, "anna"))
            await until(begun.is_set)
            claiming.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.wait([claiming], timeout=WAIT)
        assert claiming.cancelled()
        del claiming
        await asyncio.sleep(0)
        # An error that nobody retrieved is reported when it is collected.
        gc.collect()

    run(main())
    assert told == []


ENDLESS: dict[str, Callable[[AsyncJobBoard, Callable[..., Any]], Any]] = {
    "call": lambda board, stop: board.call(stop),
    "look": lambda board, stop: board.claim_next("anna", timeout=LONG),
}


@pytest.mark.rule("StopIteration ends a wait as any other error.")
@pytest.mark.parametrize("what", ENDLESS)
def test_stop_iteration_ends_a_wait_as_any_other_error(make_board: MakeBoard, run: Run, what: str) -> None:
    """No future takes it, as it would end the coroutine that awaits it as if that had returned."""
    sync = make_board()

    def stop(*args: Any) -> Any:
        return next(iter(()))

    async def main() -> None:
        board = AsyncJobBoard(sync)
        with requests(sync).around(TAKES, stop):
            awaiting = asyncio.create_task(ENDLESS[what](board, stop))
            await asyncio.wait([awaiting], timeout=WAIT)
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            awaiting.result()
        assert isinstance(raised.value.__cause__, StopIteration) or what == "look"

    run(main())


def test_calls_run_in_the_context_of_their_caller(make_board: MakeBoard, run: Run) -> None:
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


# Work


def test_function_of_working_works_on_a_job_in_each_call(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        bad, later = await board.post("bad"), await board.post("later")

        @board.working("anna", timeout=0)
        async def work(job: jobboard.Job, reason: str) -> str:
            assert not jobboard.cancelled()
            if job == bad:
                raise jobboard.Reject(reason)
            return job.name

        assert await work("no use") is None
        with pytest.raises(JobTrashed, match="no use"):
            await board.wait_for(bad)
        assert await work("no use") == "later"
        assert await board.wait_for(later, 0)
        with pytest.raises(NotFound):
            await work("no use")

    run(main())


@pytest.mark.rule("A block of working() may be left in another thread or context.")
def test_block_may_be_left_by_another_task(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        working = AsyncJobBoard(sync).working("anna", timeout=0)
        await asyncio.create_task(working.__aenter__())
        await asyncio.create_task(working.__aexit__(None, None, None))
        assert job.state == "COMPLETE"

    run(main())


@pytest.mark.rule("A function that forgets to await its work is refused.")
def test_function_that_forgets_to_await_its_work_is_rejected(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")
    begun: list[jobboard.Job] = []

    async def resize(job: jobboard.Job) -> None:
        begun.append(job)

    @AsyncJobBoard(sync).working("anna", timeout=0)
    async def work(job: jobboard.Job) -> Any:
        return resize(job)

    async def main() -> None:
        with pytest.raises(TypeError, match="coroutine, which nobody runs"):
            await work()

    run(main())
    assert job.state == "SCHEDULED"
    assert begun == []


# Listeners


@ON_BOTH_LOOPS
def test_coroutine_functions_listen_on_the_loop(
    make_board: MakeBoard, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        board = AsyncJobBoard(make_board())
        heard: list[tuple[str, int, asyncio.AbstractEventLoop]] = []

        async def listen(event: str, details: dict[str, Any], more: int) -> None:
            heard.append((event, more, asyncio.get_running_loop()))

        async def broken(event: str, details: dict[str, Any]) -> None:
            raise ValueError("broken")

        board.notifier.register("POSTED", broken)
        # The first listener has the server told, which takes a request.
        await board.call(board.notifier.register, "POSTED", listen, args=(1,))
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


@pytest.mark.rule("A listener whose event loop was closed holds up no other listener.")
def test_listener_whose_loop_was_closed_holds_up_no_other(make_board: MakeBoard) -> None:
    """Whether its loop was closed before it was called, or with the call scheduled."""
    sync, loop = make_board(), asyncio.new_event_loop()
    heard: queue.SimpleQueue[jobboard.Job] = queue.SimpleQueue()
    called = threading.Event()

    async def listen(event: str, told: dict[str, Any]) -> None: ...

    async def register() -> None:
        AsyncJobBoard(sync).notifier.register("POSTED", listen, details_filter=lambda told: called.set() or True)

    loop.run_until_complete(register())
    sync.notifier.register("POSTED", lambda event, told: heard.put(told["job"]))
    jobs = [sync.post("resize")]
    assert called.wait(WAIT)
    loop.close()
    jobs.append(sync.post("resize"))
    assert [heard.get(timeout=WAIT) for _ in jobs] == jobs


@pytest.mark.rule("A coroutine that listens may close its board.")
def test_listener_may_close_its_board(make_board: MakeBoard, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the board does not wait for the end of the callback, which waits for the end of the board."""
    monkeypatch.setattr("jobboard.notifier.DELIVERY", 10 * LIMIT)
    sync = make_board()

    async def main() -> None:
        board, closed = AsyncJobBoard(sync), asyncio.Event()

        async def listen(event: str, told: dict[str, Any]) -> None:
            await board.close()
            closed.set()

        board.notifier.register("POSTED", listen)
        await board.post("resize")
        await asyncio.wait_for(closed.wait(), WAIT)

    run(main())
    assert sync.closed


# Threads, where the system starts no more

NAME = "few"


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(NAME, 2)
    yield threads
    threads.close()


@pytest.mark.rule("A call for which no thread can be started is not made.")
def test_call_for_which_there_is_no_thread_is_not_made(threads: Threads, refused: set[str]) -> None:
    made: list[str] = []
    refused.add(NAME)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="new thread"):
            threads.begin(made.append, "refused")
    refused.clear()
    threads.begin(made.append, "one").result(WAIT)
    threads.begin(made.append, "two").result(WAIT)
    assert made == ["one", "two"]
