"""Conductors for asyncio: what differs from those with threads, which do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, Background
from tests.aio.conftest import ON_BOTH_LOOPS, Run, until
from tests.support.conductors import LATE, WAIT, MakeBoard

pytestmark = pytest.mark.backends("memory")


def beside(conductor: AsyncConductor) -> asyncio.Task[None]:
    """Run a conductor beside the test."""
    return asyncio.create_task(conductor.run(signals=False))


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


def test_drain_that_is_over_cancels_the_handlers_and_gives_their_jobs_back(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("slow")

    async def main() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def slow(job: jobboard.Job) -> None:
            begun.set()
            try:
                await asyncio.sleep(LONG)
            finally:
                ended.set()

        conductor = AsyncConductor("one", AsyncJobBoard(sync), slow, drain_timeout=0.2)
        running = beside(conductor)
        await begun.wait()
        assert not await conductor.wait(0.01)
        conductor.stop()
        assert await conductor.wait(WAIT)
        await running
        assert ended.is_set()
        assert (job.state, job.attempts) == ("UNCLAIMED", 0)

    run(main())


@ON_BOTH_LOOPS
def test_cancelled_run_gives_its_jobs_back(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    jobs = sync.post_many([{"name": "slow"}] * 3)

    async def main() -> None:
        board = AsyncJobBoard(sync)
        begun = asyncio.Semaphore(0)

        async def slow(job: jobboard.Job) -> None:
            begun.release()
            await asyncio.sleep(LONG)

        running = beside(AsyncConductor("one", board, slow))
        for _ in jobs:
            await begun.acquire()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sync.stats().unclaimed == 3
        assert {job.attempts async for job in board.iterjobs()} == {0}
        assert await board.entities("conductor") == []

    run(main())


@ON_BOTH_LOOPS
def test_end_of_a_loop_gives_its_jobs_back(make_board: MakeBoard, run: Run) -> None:
    """It cancels the handlers at the same time as the run."""
    sync = make_board()
    jobs = sync.post_many([{"name": "slow"}] * 20)
    running: list[asyncio.Task[None]] = []

    async def main() -> None:
        begun = asyncio.Semaphore(0)

        async def slow(job: jobboard.Job) -> None:
            begun.release()
            await asyncio.sleep(LONG)

        running.append(beside(AsyncConductor("one", AsyncJobBoard(sync), slow)))
        for _ in jobs:
            await begun.acquire()

    run(main())
    assert running[0].cancelled()
    assert sync.stats().unclaimed == len(jobs)
    assert {job.attempts for job in sync.iterjobs()} == {0}


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


def test_handler_that_is_cancelled_by_others_has_failed(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    job = sync.post("a")

    async def main() -> None:
        async def handler(job: jobboard.Job) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(LONG)

        conductor = AsyncConductor("one", AsyncJobBoard(sync), handler, retry=LATE)
        await conductor.run(max_dispatches=1)
        assert conductor.tally.abandoned == 1
        assert job.state == "SCHEDULED"
        assert "CancelledError" in job.error

    run(main())


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit(3), asyncio.CancelledError(), jobboard.Reject("no use")], ids=repr
)
def test_error_before_the_first_await_harms_no_other_job(make_board: MakeBoard, run: Run, error: BaseException) -> None:
    sync = make_board()
    sync.post_many([{"name": "bad"}, {"name": "good"}])

    async def bad(job: jobboard.Job) -> None:
        raise error

    async def good(job: jobboard.Job) -> None: ...

    conductor = AsyncConductor("one", AsyncJobBoard(sync), {"bad": bad, "good": good}, retry=LATE)
    run(conductor.run(max_dispatches=2, signals=False))
    assert (conductor.tally.consumed, conductor.tally.abandoned + conductor.tally.trashed) == (1, 1)


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
def test_listeners_and_on_error_may_be_coroutine_functions(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()
    sync.post("a")
    heard: list[object] = []

    async def on_error(job: jobboard.Job, error: BaseException) -> None:
        heard.append((str(error), asyncio.get_running_loop()))

    class Listener:
        async def __call__(self, event: str, told: dict[str, Any]) -> None:
            heard.append(event)

    async def handler(job: jobboard.Job) -> None:
        raise ValueError("broken")

    # Made where there is no loop yet.
    conductor = AsyncConductor("one", AsyncJobBoard(sync), {"a": handler}, on_error=on_error, retry=LATE)
    conductor.notifier.register("job_claimed", Listener())

    async def main() -> None:
        await conductor.run(max_dispatches=1)
        assert heard == ["job_claimed", ("broken", asyncio.get_running_loop())]

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

    async def handler(job: jobboard.Job) -> None: ...

    with pytest.raises(TypeError, match="AsyncJobBoard"):
        AsyncConductor("one", sync, handler)
    with pytest.raises(TypeError, match="no argument 'wehre'"):
        AsyncConductor("one", AsyncJobBoard(sync), handler, extra={"wehre": 1})
    with pytest.raises(TypeError, match=r"jobboard\.aio"):
        jobboard.Conductor("one", sync, handler)

    async def main() -> None:
        with pytest.raises(ValueError, match="no handlers"):
            await AsyncConductor("one", AsyncJobBoard(sync)).run()
        looking = jobboard.fetch("board", {"board": "memory", "read_only": True})
        with pytest.raises(ValueError, match="looking only"):
            await AsyncConductor("one", AsyncJobBoard(looking), handler).run()
        conductor = AsyncConductor("one", AsyncJobBoard(sync), handler)
        running = beside(conductor)
        while not conductor.dispatching:
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="running already"):
            await conductor.run()
        conductor.stop()
        await running

    run(main())


def test_jobs_are_counted_and_traced_as_others_are(make_board: MakeBoard, run: Run) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from prometheus_client import CollectorRegistry

    from jobboard.contrib.opentelemetry import instrument
    from jobboard.contrib.prometheus import ConductorMetrics

    sync = make_board()
    registry, spans, provider = CollectorRegistry(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    async def handler(job: jobboard.Job) -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        board = AsyncJobBoard(sync)
        conductor = AsyncConductor("one", board, handler)
        ConductorMetrics(registry).observe(conductor)
        instrument(conductor, provider)
        await board.post("a")
        await conductor.run(max_dispatches=1)

    run(main())
    [consumed] = [
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "jobboard_job_events_total" and sample.labels.get("event") == "consumed"
    ]
    assert consumed == 1
    posted, claimed, worked = spans.get_finished_spans()
    assert [span.name for span in (posted, claimed, worked)] == ["post a", "claim a", "run a"]
    assert len({span.context.trace_id for span in (posted, claimed, worked)}) == 1


def test_conductor_runs_beside_a_service(make_board: MakeBoard, run: Run) -> None:
    sync = make_board()

    async def main() -> None:
        board = AsyncJobBoard(sync)
        begun, end = asyncio.Event(), asyncio.Event()
        conductor = AsyncConductor("one", board)

        @conductor.handles("a")
        async def handler() -> None:
            begun.set()
            await end.wait()

        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        async with conductor:
            await board.post("a")
            await asyncio.wait_for(begun.wait(), WAIT)
            assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
            asyncio.get_running_loop().call_later(0.05, end.set)
        assert conductor.tally.consumed == 1
        assert not conductor.dispatching

    run(main())


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


@pytest.mark.backends("memory", "redis", "postgresql")
def test_many_await_results_of_a_conductor_on_their_loop(make_board: MakeBoard, run: Run) -> None:
    """On one loop: a service that posts, a conductor that works and keeps results, and a schedule."""
    sync = make_board(keep_done=60)

    async def main() -> None:
        board = AsyncJobBoard(sync)
        conductor = AsyncConductor("one", board)
        scheduled = asyncio.Event()

        @conductor.handles("double")
        async def double(*, number: int) -> int:
            await asyncio.sleep(0)
            return 2 * number

        @conductor.handles("tick")
        async def tick(job: jobboard.Job) -> None:
            scheduled.set()

        async def ask(number: int) -> Any:
            return await board.result(await double.post(number=number), WAIT)

        await board.schedule("clock", name="tick", every=1)
        async with board, conductor:
            assert await asyncio.gather(*map(ask, range(100))) == [2 * number for number in range(100)]
            await scheduled.wait()
        assert conductor.tally.consumed > 100
        assert board.closed

    run(main())


# The end of a run, in whatever loop it is awaited


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
