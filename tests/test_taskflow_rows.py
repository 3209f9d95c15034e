"""Differences from TaskFlow's own jobboards that docs/taskflow.rst lists."""

from __future__ import annotations

import datetime
import enum
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import JobFailure, NotFound
from jobboard.priorities import JobPriority
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite")


class Theirs(enum.Enum):
    """As TaskFlow's JobPriority."""

    HIGH = "HIGH"


def test_priorities_are_numbers_with_names(make_board: Any) -> None:
    assert JobPriority.HIGH == 50 != Theirs.HIGH
    assert str(JobPriority.HIGH) == Theirs.HIGH.value
    with pytest.raises(TypeError, match="not a priority"):
        make_board().post("a", priority=Theirs.HIGH)
    assert make_board().post("a", priority=Theirs.HIGH.value).priority == JobPriority.HIGH == JobPriority("HIGH") == 50
    assert JobPriority.reorder(("LOW", 1), ("HIGH", 2)) == (2, 1)


@pytest.mark.parametrize("value", [datetime.datetime(2020, 1, 1), {1}, b"x"])  # noqa: DTZ001
def test_details_that_json_lacks_are_refused(make_board: Any, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="details"):
        make_board().post("a", details={"x": value})


def test_times_are_aware_and_in_utc(make_board: Any) -> None:
    job = make_board().post("a")
    assert job.created_on.tzinfo == job.last_modified.tzinfo == datetime.UTC
    assert job.last_modified == job.created_on


def test_expiry_of_unclaimed_and_kept_jobs_is_no_time(make_board: Any) -> None:
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


@pytest.mark.backends("sqlite", "redis")
def test_listeners_get_positional_and_keyword_arguments(make_board: Any, backend: str) -> None:
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


def test_waits_and_walks_tell_claimed_jobs_from_unclaimed(make_board: Any) -> None:
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


def test_a_conductor_needs_a_slot(make_board: Any) -> None:
    board = make_board()
    assert not jobboard.Conductor("one", board, print).dispatching
    with pytest.raises(ValueError, match="max_simultaneous_jobs"):
        jobboard.Conductor("one", board, print, max_simultaneous_jobs=0)
