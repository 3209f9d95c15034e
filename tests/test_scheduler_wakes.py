"""Posters of schedules: they sleep until the next due time, and changes of other boards wake them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.conductor import scheduler
from jobboard.conductor.scheduler import Scheduler
from jobboard.testing import eventually
from jobboard.testing.conformance.schedules import put_back
from jobboard.testing.conformance.wire import Wire, wire
from jobboard.testing.requests import POSTER_LOOKS, requests

__all__ = ["wire"]
LIMIT = 20.0
POLLS = {"sqlite", "mariadb"}
"""The backends whose servers report nothing."""


class Asleep:
    """A scheduler on a thread of its own, which has looked once and sleeps."""

    def __init__(self, board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0

        def looked() -> None:
            self.looks += 1

        requests(board).after(POSTER_LOOKS, looked)
        self.scheduler = Scheduler("anna", board)
        self.scheduler.start()
        eventually(lambda: self.looks, LIMIT)


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[JobBoard], Asleep]]:
    made: list[Asleep] = []

    def make(board: JobBoard) -> Asleep:
        made.append(Asleep(board, monkeypatch))
        return made[-1]

    yield make
    for each in made:
        each.scheduler.stop()


def wait_until_posted(board: JobBoard, name: str) -> None:
    eventually(lambda: any(job.name == name for job in board.iterjobs(ensure_fresh=True)), LIMIT)


@pytest.mark.rule("The server wakes a poster when a schedule changes, and an idle poster sends nothing.")
def test_schedules_of_another_board_wake_a_poster(
    backend: str, board: JobBoard, other: JobBoard, sleeping: Callable[[JobBoard], Asleep], monkeypatch: Any
) -> None:
    """The first schedule of a board wakes the poster, and so does a schedule that is due sooner."""
    if backend not in POLLS:
        monkeypatch.setattr(scheduler, "GLANCE", LIMIT * 10)
    asleep = sleeping(board)
    other.schedule("soon", name="soon", every=0.3)
    wait_until_posted(other, "soon")
    other.unschedule("soon")
    other.schedule("late", name="late", every=3600)
    looks = asleep.looks
    other.schedule("sooner", name="sooner", every=0.3)
    wait_until_posted(other, "sooner")
    assert asleep.looks > looks
    other.unschedule("sooner")
    other.schedule("resumed", name="resumed", every=3600)
    other.pause_schedule("resumed")
    put_back(other, "resumed", 1)
    assert other.post_due() is not None
    other.resume_schedule("resumed")
    wait_until_posted(other, "resumed")
    other.unschedule("late")
    other.unschedule("resumed")


@pytest.mark.rule("The server wakes a poster when a schedule changes, and an idle poster sends nothing.")
def test_an_idle_poster_sends_nothing(
    backend: str, wire: Wire, board: JobBoard, sleeping: Callable[[JobBoard], Asleep], monkeypatch: Any
) -> None:
    """Without a schedule, and with one that is due late or paused, where the server can wake the poster."""
    monkeypatch.setattr(scheduler, "GLANCE", 0.05)
    for number in range(2):
        if backend in POLLS:
            asleep = sleeping(board)
            before = asleep.looks
            eventually(lambda: asleep.looks > before, LIMIT)  # noqa: B023
            continue
        if number:
            board.schedule("late", name="late", every=3600)
            board.schedule("paused", name="paused", every=0.1)
            board.pause_schedule("paused")
        far = wire.far(retry_for=5) if wire else None
        asleep = sleeping(far.board if far is not None else board)
        counter = wire._proxy.counter() if wire and wire._proxy is not None else None
        # The poster may hear of its own acts at first.
        eventually(lambda: quiet(asleep, counter), LIMIT)  # noqa: B023


def quiet(asleep: Asleep, counter: Any) -> bool:
    before = asleep.looks, counter and counter.count
    time.sleep(0.4)
    return (asleep.looks, counter and counter.count) == before
