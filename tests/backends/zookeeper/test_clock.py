"""Bounds of the server's clock. They may delay the end of a lease, and never cause it."""

from collections.abc import Callable

import pytest

from jobboard.backends.zookeeper.clock import ClockBounds
from jobboard.board import JobBoard
from jobboard.runtime import boottime
from jobboard.states import UNCLAIMED
from jobboard.testing.conformance.support import LONG, SHORT, record_of, take, until_free
from tests.backends.zookeeper.conftest import driver_of

pytestmark = pytest.mark.backends("zookeeper")


def lag(board: JobBoard, seconds: float) -> None:
    """Widen the bounds of a board, as requests of that duration do."""
    driver, arrived = driver_of(board), boottime()
    mtime = int(driver.now(exact=True) / 1000 - seconds * 1000)
    driver.clock = ClockBounds()
    driver.clock.learn(mtime, arrived - seconds, arrived, asked=True)


@pytest.mark.rule("A lease ends no sooner than its holder counts.")
def test_a_lease_ends_no_sooner_than_its_holder_counts(board: JobBoard, other: JobBoard) -> None:
    job = board.post("resize")
    lag(board, 5)
    before = driver_of(other).now(exact=True)
    board.claim(job, "anna", LONG)
    record = record_of(other, job)
    assert record is not None
    assert record.lock_until is not None
    assert record.lock_until >= before + LONG * 10**6


@pytest.mark.rule("A lease ends no sooner than its holder counts.")
def test_a_board_that_lags_takes_a_lapsed_job_later(board: JobBoard, other: JobBoard) -> None:
    job = board.post("resize")
    lag(other, 0.5)
    board.claim(job, "anna", SHORT)
    until_free(board, job)
    assert take(other, "bert", timeout=LONG) == job


@pytest.mark.rule("A handle shows a lapse that another handle has seen, whatever it knows of the clock.")
def test_a_board_that_lags_sees_a_lapse_that_another_has_seen(board: JobBoard, other: JobBoard) -> None:
    job = board.post("resize", key="k")
    board.claim(job, "anna", SHORT)
    until_free(board, job)
    looks: list[Callable[[], bool]] = [
        lambda: other.get(job.uuid).seen_state == UNCLAIMED,
        lambda: other.stats().unclaimed == 1,
        lambda: other.post("resize", key="k", on_key="replace").replaced,
    ]
    for look in looks:
        lag(other, 5)
        assert look()


def test_bounds_narrow_with_each_change(board: JobBoard) -> None:
    driver = driver_of(board)
    lag(board, 5)
    assert driver.precision > 5 * 10**6
    board.post("resize")
    assert driver.precision < 5 * 10**6
