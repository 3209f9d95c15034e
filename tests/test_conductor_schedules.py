"""Conductors post what the schedules of their board say."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard import aio
from jobboard.backends.memory import ManualClock, forget
from jobboard.conductor import Conductor
from jobboard.conductor.scheduler import GLANCE
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Job
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("memory")

NAME = "schedules"


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    yield ManualClock()
    forget(NAME)


@pytest.fixture
def make(clock: ManualClock) -> Iterator[Callable[..., Any]]:
    with contextlib.ExitStack() as stack:

        def make_one(**options: Any) -> Any:
            board = jobboard.fetch(NAME, {"board": "memory", "clock": clock, **options})
            board.connect()
            stack.callback(board.close)
            return board

        yield make_one


@contextlib.contextmanager
def running(board: Any, handler: Callable[[Job], object], **options: Any) -> Iterator[Conductor]:
    conductor = Conductor("anna", board, {"report": handler}, **options)
    thread = threading.Thread(target=conductor.run)
    thread.start()
    try:
        yield conductor
    finally:
        conductor.stop()
        thread.join()


class Looks:
    """Counts how often a board has looked for what is due."""

    def __init__(self, board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._look = board.engine.raw.post_due
        self.broken = False
        monkeypatch.setattr(board.engine.raw, "post_due", self.look)

    def look(self, *args: Any) -> Any:
        self.count += 1
        if self.broken:
            raise ConnectionFailure("nobody answers", outcome="not_sent")
        return self._look(*args)

    def settled(self) -> int:
        """How often, once it sleeps."""

        def rests() -> int:
            before = self.count
            time.sleep(0.05)
            return before if before and before == self.count else 0

        return eventually(rests)


def test_it_posts_whatever_the_names_and_works_on_its_own(make: Callable[..., Any], clock: ManualClock) -> None:
    board, seen = make(), []
    board.schedule("nightly", "0 3 * * *", "report", tz="Europe/Berlin")
    board.schedule("ping", name="ping", every=60)
    with running(board, lambda job: seen.append(job.schedule)):
        clock.advance(86400)
        eventually(lambda: len(seen) == 1 and board.job_count == 1)
    [ping] = board.iterjobs()
    assert ping.name == "ping"
    assert [schedule for schedule, _ in seen] == ["nightly"]


def test_one_that_leaves_them_out(make: Callable[..., Any], clock: ManualClock) -> None:
    board, seen = make(), []
    board.schedule("nightly", name="report", every=60)
    with running(board, seen.append, schedules=False):
        clock.advance(86400)
        by_hand = board.post("report")
        eventually(lambda: seen)
    assert seen == [by_hand]


def test_an_idle_one_sleeps_until_it_is_due_or_something_has_changed(
    make: Callable[..., Any], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, other = make(), make()
    looks = Looks(board, monkeypatch)
    with running(board, lambda job: None):
        assert looks.settled() == 1
        for _ in range(10):
            board.post("another")
        assert looks.settled() == 1
        other.schedule("nightly", name="report", every=60)
        eventually(lambda: looks.count == 2)
        other.unschedule("nightly")
        eventually(lambda: looks.count == 3)
        board.schedule("nightly", name="report", every=3600)
        eventually(lambda: looks.count > 3)
        looks.settled()
        began = time.monotonic()
    assert time.monotonic() - began < GLANCE / 2
    assert looks.count < 10


def test_a_server_that_cannot_be_reached_is_tried_again(
    make: Callable[..., Any], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    board, seen = make(retry_for=0), []
    looks = Looks(board, monkeypatch)
    board.schedule("nightly", name="report", every=60)
    looks.broken = True
    with running(board, seen.append):
        eventually(lambda: looks.count > 2)
        clock.advance(60)
        looks.broken = False
        eventually(lambda: len(seen) == 1)
    assert any("could not post due jobs" in record.getMessage() for record in caplog.records)


def test_the_servers_clock_may_jump(make: Callable[..., Any], clock: ManualClock) -> None:
    """Put forward, what it passes over has been missed; put back, nothing is due twice."""
    board, seen = make(), []
    first = board.schedule("nightly", name="report", every=3600).next_due
    with running(board, lambda job: seen.append(job.schedule[1])):
        clock.advance(3600)
        eventually(lambda: seen == [first])
        clock.advance(-3600)
        clock.advance(3600)
        clock.advance(3599)
        by_hand = board.post("another")
        assert board.post_due() == pytest.approx(1)
        assert seen == [first]
        clock.advance(2 * 3600)
        eventually(lambda: len(seen) == 2)
    assert (seen[1] - first).total_seconds() == 2 * 3600
    assert list(board.iterjobs()) == [by_hand]


def test_an_async_one(make: Callable[..., Any], clock: ManualClock) -> None:
    asyncio.run(asyncio.wait_for(through_asyncio(make, clock), 30))


async def through_asyncio(make: Callable[..., Any], clock: ManualClock) -> None:
    seen = []
    board = aio.AsyncJobBoard(make())
    conductor = aio.AsyncConductor("anna", board)

    @conductor.handles("report")
    async def report(job: Job) -> None:
        seen.append(job.schedule)
        conductor.stop()

    await board.schedule("nightly", name="report", every=60)
    [shown] = await board.schedules()
    clock.advance(60)
    await conductor.run()
    assert seen == [("nightly", shown.next_due)]
    await board.unschedule("nightly")


def test_one_that_is_refused_is_tried_again(make: Callable[..., Any], clock: ManualClock, monkeypatch: Any) -> None:
    """Nothing wakes who sleeps until something is due when it would be taken."""
    board = make()
    board.schedule("nightly", name="report", every=60)
    clock.advance(61)

    def refuse(drafts: Any) -> Any:
        raise JobFailure("full")

    with monkeypatch.context() as patch:
        patch.setattr(board.engine.raw._schedules, "_posting", refuse)
        assert board.post_due() == 10
    assert board.post_due() == 59
    assert board.job_count == 1
