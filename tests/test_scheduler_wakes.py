"""Those who post what is due sleep until then; what others change wakes them, by the server where it can."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.conductor import scheduler
from jobboard.conductor.scheduler import Scheduler
from jobboard.testing import eventually
from jobboard.testing.conformance.wire import Wire, wire

__all__ = ["wire"]
LIMIT = 20.0
POLLS = {"sqlite", "mariadb"}
"""Whose servers can't tell."""


class Asleep:
    """A scheduler on a thread of its own. It looks at once, and is asleep then."""

    def __init__(self, board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        post_due = board.engine.raw.post_due

        def looked(*args: Any) -> Any:
            answer = post_due(*args)
            self.looks += 1
            return answer

        monkeypatch.setattr(board.engine.raw, "post_due", looked)
        self.scheduler = Scheduler("anna", board, lambda: False)
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


def posted(board: JobBoard, name: str) -> float:
    """How long it takes until a job of this name is there."""
    began = time.monotonic()
    eventually(lambda: any(job.name == name for job in board.iterjobs(ensure_fresh=True)), LIMIT)
    return time.monotonic() - began


def test_what_another_sets_wakes_it(
    backend: str, board: JobBoard, other: JobBoard, sleeping: Callable[[JobBoard], Asleep], monkeypatch: Any
) -> None:
    """The first schedule of a board, one that is due sooner than the next, and one that goes."""
    if backend not in POLLS:
        monkeypatch.setattr(scheduler, "GLANCE", LIMIT * 10)
    asleep = sleeping(board)
    other.schedule("soon", name="soon", every=0.3)
    posted(other, "soon")
    other.unschedule("soon")
    other.schedule("late", name="late", every=3600)
    looks = asleep.looks
    other.schedule("sooner", name="sooner", every=0.3)
    posted(other, "sooner")
    assert asleep.looks > looks
    other.unschedule("sooner")
    other.unschedule("late")


def test_an_idle_one_sends_nothing(
    backend: str, wire: Wire, board: JobBoard, sleeping: Callable[[JobBoard], Asleep], monkeypatch: Any
) -> None:
    """Where the server can wake it; with a schedule and without."""
    monkeypatch.setattr(scheduler, "GLANCE", 0.05)
    for number in range(2):
        if backend in POLLS:
            asleep = sleeping(board)
            before = asleep.looks
            eventually(lambda: asleep.looks > before, LIMIT)  # noqa: B023
            continue
        if number:
            board.schedule("late", name="late", every=3600)
        far = wire.far(retry_for=5) if wire else None
        asleep = sleeping(far.board if far is not None else board)
        counter = wire._proxy.counter() if wire and wire._proxy is not None else None
        # It hears of its own doings, too.
        eventually(lambda: quiet(asleep, counter), LIMIT)  # noqa: B023


def quiet(asleep: Asleep, counter: Any) -> bool:
    before = asleep.looks, counter and counter.count
    time.sleep(0.4)
    return (asleep.looks, counter and counter.count) == before
