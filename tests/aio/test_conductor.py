"""Conductors for asyncio: what differs from those with threads, which do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.contrib.opentelemetry import instrument
from jobboard.contrib.prometheus import ConductorMetrics
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, LONG, SHORT, Background
from tests.aio.conftest import ON_BOTH_LOOPS, Run, until
from tests.support.conductors import LATE, WAIT, MakeBoard

pytestmark = pytest.mark.backends("memory")


def beside(conductor: AsyncConductor) -> asyncio.Task[None]:
    """Run a conductor beside the test."""
    return asyncio.create_task(conductor.run(signals=False))


@ON_BOTH_LOOPS
def test_coroutine_function_behind_a_plain_decorator_runs_on_the_loop(make_board: MakeBoard, run: Run) -> None:
    sync = make_board(keep_done=60)

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    async def main() -> None:
        board = AsyncJobBoard(sync)
        conductor = AsyncConductor("one", board)
        loop = asyncio.get_running_loop()

        @conductor.handles("a")
        @decorated
        async def handler(job: jobboard.Job, *, fails: bool) -> str:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            if fails:
                raise jobboard.Reject("no use")
            return job.name

        good, bad = await board.post("a", details={"fails": False}), await board.post("a", details={"fails": True})
        await conductor.run(2, signals=False)
        assert (conductor.tally.consumed, conductor.tally.trashed) == (1, 1)
        assert sync.outcome(good).result == "a"
        assert sync.get(bad.uuid).error == "no use"

    run(main())


@pytest.mark.rule("Retry and Reject steer in the group of a TaskGroup, too.")
@ON_BOTH_LOOPS
def test_retry_and_reject_in_a_task_group_steer(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)

        async def handler(job: jobboard.Job) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(WAIT))
                group.create_task(steer(job))

        async def steer(job: jobboard.Job) -> None:
            raise jobboard.Retry(delay=LONG) if job.name == "later" else jobboard.Reject("no use")

        later, never = await board.post("later"), await board.post("never")
        conductor = AsyncConductor("one", board, handler)
        await conductor.run(2, signals=False)
        assert (sync.get(later.uuid).retries, sync.get(never.uuid).error) == (1, "no use")

    run(main())


@pytest.mark.backends("memory", "sqlite")
@ON_BOTH_LOOPS
def test_coroutine_functions_run_on_the_loop_and_plain_functions_in_threads(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        conductor = AsyncConductor("one", board, max_simultaneous_jobs=50)
        loops: list[object] = []
        threads: set[str] = set()

        @conductor.handles("waits")
        async def waits(job: jobboard.Job) -> None:
            assert not jobboard.cancelled()
            loops.append(asyncio.get_running_loop())
            await board.post("computes")

        @conductor.handles("computes")
        def computes(job: jobboard.Job) -> None:
            threads.add(threading.current_thread().name)

        @conductor.handles("bad")
        async def bad(job: jobboard.Job) -> None:
            raise jobboard.Reject("no use")

        await board.post_many([{"name": "waits"}] * 60 + [{"name": "bad"}])
        await conductor.run(max_dispatches=121)
        assert loops == [asyncio.get_running_loop()] * 60
        assert threads
        assert all(name.startswith("one-") for name in threads)
        assert await board.job_count() == 0
        assert [job.error async for job in board.trashed()] == ["no use"]
        assert (conductor.tally.consumed, conductor.tally.trashed) == (120, 1)
        assert await conductor.wait(0)

    run(main())


def test_thousand_handlers_at_once_need_few_threads(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        others, most = set(threading.enumerate()), 0
        together = asyncio.Event()
        at_work = 0

        async def handler(job: jobboard.Job) -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, len(set(threading.enumerate()) - others)) if at_work % 100 == 0 else most
            if at_work == 1000:
                together.set()
            await together.wait()

        sync.post_many([{"name": "a"}] * 1000)
        conductor = AsyncConductor("one", board, handler, max_simultaneous_jobs=1000)
        await conductor.run(max_dispatches=1000)
        # It runs on one, claims on one and finishes on one; the board has its heartbeat and what it listens with.
        assert most <= 7
        assert conductor.tally.consumed == 1000

    run(main())


@ON_BOTH_LOOPS
def test_timeout_cancels_the_handler(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("slow")

    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(sync), retry=LATE, job_timeout=0.05)
        cleaned_up = False

        async def deeper() -> None:
            await asyncio.sleep(LONG)

        @conductor.handles("slow")
        async def slow(job: jobboard.Job) -> None:
            nonlocal cleaned_up
            try:
                await deeper()
            finally:
                cleaned_up = jobboard.cancelled()

        failures: list[tuple[str, type]] = []
        conductor.notifier.register("job_failed", lambda event, told: failures.append((event, type(told["error"]))))
        await conductor.run(max_dispatches=1)
        assert cleaned_up
        assert failures == [("job_failed", TimeoutError)]
        assert job.state == "SCHEDULED"
        assert "in deeper" in job.error
        assert job.error.rstrip().endswith("still at work after 0.05 s, its timeout")

    run(main())


@pytest.mark.rule("A coroutine that ignores its cancellation keeps its slot.")
def test_handler_that_ignores_its_cancellation_keeps_its_slot(
    make_board: MakeBoard, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobboard.aio.tasks.GRACE", 0.05)
    sync = make_board(claim_ttl=1)
    sync.post("stubborn")

    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(sync), retry=LATE, max_simultaneous_jobs=1)
        enough = asyncio.Event()

        @conductor.handles("stubborn", timeout=0.05)
        async def stubborn(job: jobboard.Job) -> None:
            while not enough.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await enough.wait()

        @conductor.handles("other")
        async def other(job: jobboard.Job) -> None: ...

        running = beside(conductor)
        await until(lambda: "still at work though it was cancelled" in caplog.text)
        job = sync.post("other")
        await until(lambda: [entity.metadata["hung"] for entity in sync.entities("conductor")] == [1])
        assert job.state == "UNCLAIMED"
        enough.set()
        assert await conductor.board.wait_for(job, WAIT)
        conductor.stop()
        await running
        assert conductor.tally.abandoned == 1

    run(main())


@pytest.mark.rule("A cancelled run gives its jobs back.")
@pytest.mark.parametrize("end", ["drained", "cancelled", "loop ended"])
@ON_BOTH_LOOPS
def test_end_of_a_run_cancels_its_handlers_and_gives_their_jobs_back(make_board: MakeBoard, run: Run, end: str) -> None:
    """The end of a loop cancels the handlers at the same time as the run."""
    sync = make_board()
    jobs = sync.post_many([{"name": "slow"}] * 20)
    running: list[asyncio.Task[None]] = []
    ended: list[bool] = []

    async def main() -> None:
        begun = asyncio.Semaphore(0)

        async def slow(job: jobboard.Job) -> None:
            begun.release()
            try:
                await asyncio.sleep(LONG)
            finally:
                ended.append(jobboard.cancelled())

        conductor = AsyncConductor("one", AsyncJobBoard(sync), slow, drain_timeout=2)
        running.append(beside(conductor))
        for _ in jobs:
            await begun.acquire()
        assert not await conductor.wait(0.01)
        if end == "drained":
            conductor.stop()
            assert await conductor.wait(WAIT)
        elif end == "cancelled":
            running[0].cancel()
        if end != "loop ended":
            await asyncio.wait(running)

    run(main())
    assert running[0].cancelled() == (end != "drained")
    assert len(ended) == len(jobs)
    assert sync.stats().unclaimed == len(jobs)
    assert {job.attempts for job in sync.iterjobs()} == {0}
    assert sync.entities("conductor") == []


@pytest.mark.rule("A job that was given back before its worker had it is not begun.")
def test_job_that_was_given_back_before_its_task_is_not_begun(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("a")
    jobs: list[jobboard.Job] = []

    async def handler(job: jobboard.Job) -> None:
        jobs.append(job)
        # The loop begins no other task until the second job is claimed and given back.
        sync.post("a")
        eventually(lambda: conductor.tally.dispatched == 2)
        conductor.stop(drain=False)
        eventually(lambda: not conductor.sync.at_work)

    conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
    run(conductor.run(signals=False))
    assert len(jobs) == 1
    assert sync.stats().unclaimed == 2


class Done(asyncio.Future[Any]):
    """A task that is done."""

    def set_name(self, name: str) -> None:
        pass


def eager(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
    """Make a task that is done already, as ``asyncio.eager_task_factory`` of Python 3.12 does."""
    if coroutine.__name__ != "_work":
        return asyncio.Task(coroutine, loop=loop, **options)
    done = Done(loop=loop)
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    done.set_result(end.value.value)
    return done


@pytest.mark.rule("A task that ends as it is made, or is cancelled before it begins, frees its place, and its job.")
def test_task_that_ends_as_it_is_made_frees_its_place(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post_many([{"name": "a"}] * 3)

    async def handler(job: jobboard.Job) -> None:
        pass

    conductor = AsyncConductor("one", AsyncJobBoard(sync), handler, max_simultaneous_jobs=1)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", eager))
        async with asyncio.timeout(WAIT):
            await conductor.run(3, signals=False)

    run(main())
    assert conductor.tally.consumed == 3


@pytest.mark.rule("A task that ends as it is made, or is cancelled before it begins, frees its place, and its job.")
def test_task_that_is_cancelled_before_it_begins_gives_its_job_back(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("a")
    attempts: list[int] = []
    cancelled: list[Any] = []

    def cancelling(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **options)
        if coroutine.__name__ == "_work" and not cancelled:
            task.cancel()
            cancelled.append(task)
        return task

    async def handler(job: jobboard.Job) -> None:
        attempts.append(job.attempts)

    conductor = AsyncConductor("one", AsyncJobBoard(sync), handler, max_simultaneous_jobs=1)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(cancelling)
        async with asyncio.timeout(WAIT):
            await conductor.run(2, signals=False)

    run(main())
    assert cancelled
    assert attempts == [1]
    assert conductor.tally.consumed == 1


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(LONG)


def test_failing_handler_harms_no_other_job(make_board: MakeBoard, run: Run) -> None:
    """Before its first await, too."""
    sync = make_board()
    errors = [ValueError("broken"), SystemExit(3), asyncio.CancelledError(), jobboard.Reject("no use"), None]

    async def bad(*, number: int) -> None:
        if (error := errors[number]) is not None:
            raise error
        await cancel_itself()

    async def good(job: jobboard.Job) -> None: ...

    jobs = [sync.post("bad", details={"number": number}) for number in range(len(errors))]
    sync.post("good")
    conductor = AsyncConductor("one", AsyncJobBoard(sync), {"bad": bad, "good": good}, retry=LATE)
    run(conductor.run(max_dispatches=6, signals=False))
    assert (conductor.tally.consumed, conductor.tally.abandoned, conductor.tally.trashed) == (1, 4, 1)
    assert [job.state for job in jobs] == ["SCHEDULED", "SCHEDULED", "SCHEDULED", "TRASHED", "SCHEDULED"]
    assert "CancelledError" in jobs[4].error


def test_wrappers_of_both_kinds_are_around_coroutines(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("a")

    async def main() -> None:
        told: list[str] = []
        conductor = AsyncConductor("one", AsyncJobBoard(sync))

        @conductor.wraps
        @contextlib.contextmanager
        def outer(job: jobboard.Job) -> Iterator[None]:
            told.append("outer")
            with contextlib.suppress(ValueError):
                yield
            told.append("swallowed")

        @conductor.wraps
        @contextlib.asynccontextmanager
        async def inner(job: jobboard.Job) -> AsyncIterator[None]:
            told.append("inner")
            await asyncio.sleep(0)
            yield

        @conductor.handles("a")
        async def handler(job: jobboard.Job) -> None:
            raise ValueError("broken")

        await conductor.run(max_dispatches=1)
        assert told == ["outer", "inner", "swallowed"]
        assert conductor.tally.consumed == 1

    run(main())


@ON_BOTH_LOOPS
def test_listeners_and_hooks_may_be_coroutine_functions(make_board: MakeBoard, run: Run) -> None:
    sync = make_board(keep_done=60)
    sync.post_many([{"name": "a"}, {"name": "good", "priority": "LOW"}])
    heard: list[object] = []

    async def on_error(job: jobboard.Job, error: BaseException) -> None:
        heard.append((str(error), asyncio.get_running_loop()))

    async def on_success(job: jobboard.Job, result: object) -> None:
        heard.append((result, asyncio.get_running_loop()))

    class Listener:
        async def __call__(self, event: str, told: dict[str, Any]) -> None:
            heard.append(event)

    async def handler(job: jobboard.Job) -> object:
        if job.name == "good":
            return "fine"
        raise ValueError("broken")

    # Made where there is no loop yet.
    board, hooks = AsyncJobBoard(sync), {"on_error": on_error, "on_success": on_success}
    conductor = AsyncConductor("one", board, handler, **hooks, max_simultaneous_jobs=1, retry=LATE)
    conductor.notifier.register("job_failed", Listener())

    async def main() -> None:
        await conductor.run(max_dispatches=2)
        loop = asyncio.get_running_loop()
        assert heard == [("broken", loop), "job_failed", ("fine", loop)]

    run(main())


@ON_BOTH_LOOPS
def test_signal_drains(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("a")

    async def main() -> None:
        async def handler(job: jobboard.Job) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)

        conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
        await conductor.run()
        assert conductor.tally.consumed == 1

    before = signal.getsignal(signal.SIGTERM)
    run(main())
    assert signal.getsignal(signal.SIGTERM) == before


def test_conductor_rejects_wrong_arguments(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    board = AsyncJobBoard(sync)

    async def handler(job: jobboard.Job) -> None: ...

    with pytest.raises(TypeError, match="AsyncJobBoard"):
        AsyncConductor("one", sync, handler)
    with pytest.raises(TypeError, match="no argument 'wehre'"):
        AsyncConductor("one", board, handler, extra={"wehre": 1})
    with pytest.raises(TypeError, match=r"jobboard\.aio"):
        jobboard.Conductor("one", sync, handler)
    with pytest.raises(ValueError, match="no handlers"):
        run(AsyncConductor("one", board).run(signals=False))

    async def main() -> None:
        async with AsyncConductor("one", board, handler) as conductor:
            while not conductor.dispatching:
                await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="running already"):
                await conductor.run()

    run(main())


def test_jobs_are_counted_and_traced_as_others_are(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    registry, spans, provider = CollectorRegistry(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def handler(job: jobboard.Job) -> None: ...

    conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
    ConductorMetrics(registry).observe(conductor)
    instrument(conductor, provider)
    sync.post("a")
    run(conductor.run(max_dispatches=1))
    labels = {"board": sync.name, "job_name": "a", "event": "consumed"}
    assert registry.get_sample_value("jobboard_job_events_total", labels) == 1
    assert [span.name for span in spans.get_finished_spans()] == ["post a", "claim a", "run a"]
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1


@pytest.mark.rule("A conductor runs beside an asynchronous web service.")
def test_conductor_runs_beside_a_service(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        begun, end = asyncio.Event(), asyncio.Event()
        conductor = AsyncConductor("one", AsyncJobBoard(sync))

        @conductor.handles("a")
        async def handler() -> None:
            begun.set()
            await end.wait()

        before = signal.getsignal(signal.SIGTERM)
        async with conductor:
            await handler.post()
            await asyncio.wait_for(begun.wait(), WAIT)
            assert signal.getsignal(signal.SIGTERM) == before
            end.set()
        assert conductor.tally.consumed == 1
        assert not conductor.dispatching

    run(main())


@pytest.mark.rule("A conductor runs beside an asynchronous web service.")
def test_service_is_told_that_its_conductor_has_ended(
    make_board: MakeBoard, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        conductor = AsyncConductor("one", board, lambda job: None)

        async def serve() -> None:
            async with conductor:
                # Not only until it runs: what it finds closed then, it opens.
                await until(lambda: sync.entities("conductor"))
                await board.close()
                assert await conductor.wait(WAIT)
                # Told at once, and not only when the service ends.
                await until(lambda: "works no more" in caplog.text)

        with pytest.raises(jobboard.ConnectionFailure):
            await serve()

    run(main())


# The end of a run, in whatever loop it is awaited


@pytest.mark.rule("A run ends in whatever loop it is awaited.")
def test_end_of_a_run_is_heard_of_in_other_loops(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    conductor = AsyncConductor("one", AsyncJobBoard(sync), lambda job: None)

    async def main() -> None:
        running = asyncio.create_task(conductor.run(1, signals=False))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(conductor.wait(WAIT))
        elsewhere = Background(lambda: asyncio.run(conductor.wait(WAIT)))
        assert not await conductor.wait(0.01)
        sync.post("resize")
        assert await waiting
        assert await asyncio.to_thread(elsewhere.wait)
        await running

    run(main())
    run(main())


@pytest.mark.rule("A run ends in whatever loop it is awaited.")
def test_stop_ends_a_wait_for_a_run_that_never_began(make_board: MakeBoard, run: Run) -> None:
    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(make_board()), lambda job: None)
        with pytest.raises(ValueError, match="max_dispatches"):
            await conductor.run(0)
        assert not await conductor.wait(0.01)
        waiting = asyncio.create_task(conductor.wait(WAIT))
        await asyncio.sleep(0)
        await asyncio.to_thread(conductor.stop)
        assert await waiting

    run(main())


@pytest.mark.parametrize("verb", ["stop", "release"])
@ON_BOTH_LOOPS
def test_a_job_that_is_taken_away_cancels_its_coroutine(make_board: MakeBoard, run: Run, verb: str) -> None:
    """Also behind a plain decorator, which has a thread of its own."""
    sync, other = make_board(claim_ttl=HELD), make_board()
    ended: list[tuple[str, bool]] = []

    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(sync))

        async def slow(job: jobboard.Job) -> None:
            if job.attempts > 1:
                return
            try:
                await asyncio.sleep(LONG)
            finally:
                ended.append((job.name, jobboard.cancelled()))

        conductor.handles("plain")(slow)

        @conductor.handles("decorated")
        def decorated(job: jobboard.Job) -> object:
            return slow(job)

        failures: list[Any] = []
        conductor.notifier.register("job_failed", lambda event, told: failures.append(told))
        jobs = other.post_many([{"name": "plain"}, {"name": "decorated"}])
        running = beside(conductor)
        await until(lambda: [entity.metadata["running"] for entity in other.entities("conductor")] == [2])
        for job in jobs:
            seen = other.get(job.uuid)
            other.release(seen) if verb == "release" else other.cancel(seen, running=True, reason="no use")
        await until(lambda: conductor.tally.lost == 2)
        if verb == "release":
            await until(lambda: conductor.tally.consumed == 2)
        conductor.stop()
        await running
        assert sorted(ended) == [("decorated", True), ("plain", True)]
        assert (failures, conductor.tally.abandoned, conductor.tally.trashed) == ([], 0, 0)
        assert {job.state for job in jobs} == {"COMPLETE" if verb == "release" else "TRASHED"}

    run(main())


@pytest.mark.rule("Work is stopped by the server's word, and never by a lease that ends by this machine's clock.")
def test_a_lease_that_ends_by_the_clock_cancels_no_coroutine(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("resize")

    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(sync))

        @conductor.handles("resize")
        async def resize(job: jobboard.Job) -> None:
            await asyncio.to_thread(job.claim.extend, SHORT)
            await until(lambda: job.claim.lost)
            await asyncio.to_thread(job.claim.extend)

        await conductor.run(1, signals=False)
        assert conductor.tally.consumed == 1

    run(main())
    assert job.state == "COMPLETE"


def test_cancel_and_working_of_an_async_board(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        job = await board.post("resize")
        async with board.working("anna"):
            seen = await board.get(job.uuid)
            await board.cancel(seen, running=True, reason="no use", token=seen.token)
            jobboard.raise_if_cancelled()
            raise AssertionError("the work goes on")
        assert (await board.state(job), (await board.get(job.uuid)).error) == ("TRASHED", "no use")

    run(main())
