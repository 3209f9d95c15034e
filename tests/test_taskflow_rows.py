"""What docs/taskflow.rst says of our side, where that is not what TaskFlow does."""

from __future__ import annotations

import datetime
import enum
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import JobFailure, NotFound
from jobboard.priorities import JobPriority
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite", "redis")


class Theirs(enum.Enum):
    """As TaskFlow's JobPriority."""

    HIGH = "HIGH"


def test_priorities(make_board: Any) -> None:
    assert JobPriority.HIGH == 50 != Theirs.HIGH
    assert str(JobPriority.HIGH) == Theirs.HIGH.value
    with pytest.raises(TypeError, match="not a priority"):
        make_board().post("a", priority=Theirs.HIGH)
    assert make_board().post("a", priority=Theirs.HIGH.value).priority == JobPriority.HIGH == JobPriority("HIGH") == 50
    assert JobPriority.reorder(("LOW", 1), ("HIGH", 2)) == (2, 1)


@pytest.mark.parametrize("value", [datetime.datetime(2020, 1, 1), {1}, b"x"])  # noqa: DTZ001
def test_details(make_board: Any, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="details"):
        make_board().post("a", details={"x": value})


def test_times_are_aware(make_board: Any) -> None:
    job = make_board().post("a")
    assert job.created_on.tzinfo == job.last_modified.tzinfo == datetime.UTC
    assert job.last_modified == job.created_on


def test_expiry(make_board: Any) -> None:
    board, other = make_board(), make_board()
    job = board.post("a")
    with pytest.raises(NotFound):
        job.expires_in()
    with pytest.raises(JobFailure):
        job.extend_expiry(60)
    board.claim(job, "me")
    assert job.expires_in() is None
    theirs = other.get(job.uuid)
    with pytest.raises(JobFailure, match="not claimed through this object"):
        theirs.extend_expiry(60)
    assert job.extend_expiry(60) is True
    assert 50 < theirs.expires_in() <= 60
    other.extend(theirs, "me", 600)
    assert 500 < job.expires_in() <= 600


def test_listeners(make_board: Any, backend: str) -> None:
    board, other = make_board(), make_board()
    heard: list[tuple[Any, ...]] = []
    board.notifier.register("POSTED", lambda *args, **kwargs: heard.append((args, kwargs)), (1,), {"x": 2})
    with pytest.raises(TypeError):
        board.notifier.register("POSTED", 3)
    job = board.post("a")
    eventually(lambda: heard)
    assert heard == [(("POSTED", {"job": job}, 1), {"x": 2})]
    other.post("b")
    if board.characteristics.remote_events:
        eventually(lambda: len(heard) == 2)
    last = board.post("c")
    eventually(lambda: heard[-1][0][1]["job"] == last)
    assert len(heard) == (2 if backend == "sqlite" else 3)


def test_waiting_and_looking(make_board: Any) -> None:
    board = make_board()
    board.claim(board.post("a"), "me")
    assert board.job_count == 1
    with pytest.raises(NotFound):
        board.wait(0)
    jobs = board.iterjobs()
    jobs.only_unclaimed = True
    [job] = jobs
    board.trash(job, "me")
    assert job.state == "TRASHED"


def test_conductors(make_board: Any) -> None:
    board = make_board()
    assert not jobboard.Conductor("one", board, print).dispatching
    with pytest.raises(ValueError, match="max_simultaneous_jobs"):
        jobboard.Conductor("one", board, print, max_simultaneous_jobs=0)
