"""How often a board is looked at, and which of its jobs are tried, while others are there."""

from typing import Any

import pytest

from jobboard.backends.zookeeper import board as board_module
from jobboard.backends.zookeeper import watches
from jobboard.backends.zookeeper.watches import SMALL, Folder
from jobboard.job import boottime
from jobboard.testing.conformance.support import LONG, take

pytestmark = pytest.mark.backends("zookeeper")


class Clock:
    """This process's own, which stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = boottime()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (board_module, watches):
        monkeypatch.setattr(module, "boottime", clock)
    return clock


class Picking:
    """Takes the first or the last one, where one is picked at random."""

    last = False

    def randrange(self, count: int) -> int:
        return count - 1 if self.last else 0


def test_order_is_exact_until_a_race_is_lost(make_board: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is lost doubles the number of jobs from among which one is picked, each that is won halves it."""
    board, other = make_board(), make_board()
    jobs = board.post_many([{"name": "resize"}] * 40)
    picking = Picking()
    monkeypatch.setattr(watches, "random", picking)
    picking.last = True
    assert [take(board), take(board)] == jobs[:2]
    view = board.engine._opened.view
    assert other.claim_many("bert", 3) == jobs[2:5]
    # As for who has looked just now, before the others came.
    view._looked, view._dirty = clock.now + LONG, False
    picking.last = False
    assert take(board) == jobs[5]
    picking.last = True
    # Three were lost and one was won: from among four, two, and one again.
    assert [take(board) for _ in range(4)] == [jobs[9], jobs[7], jobs[6], jobs[8]]


def test_races_lost_without_end_spread_over_64_jobs(make_board: Any) -> None:
    view = make_board().engine._opened.view
    for _ in range(10):
        view.lost_race()
    assert view.spread == 64


@pytest.mark.parametrize(("spent", "interval"), [(0, 0.02), (0.01, 0.04), (1, 0.1)])
def test_a_list_is_shipped_again_after_20_to_100_ms(spent: float, interval: float) -> None:
    folder = Folder("/jobs")
    folder.spent = spent
    assert folder.interval() == pytest.approx(interval)


@pytest.mark.parametrize("which", ["claims", "jobs"])
def test_looks_do_not_ship_a_long_list_each_time(make_board: Any, clock: Clock, which: str) -> None:
    """That of the jobs not either where races are lost, and what others take off is of interest."""
    board, other = make_board(), make_board()
    board.post_many([{"name": "resize"}] * (2 * SMALL + 20))
    other.claim_many("bert", SMALL + 5)
    view = board.engine._opened.view
    view.look()
    view.lost_race()
    [job] = other.claim_many("bert", 1)
    if which == "jobs":
        other.consume(job, "bert")
    folder = view._claims if which == "claims" else view._jobs[job.priority.rank]
    known = folder.names
    for later in (0, 0.015):
        clock.now += later
        view.look()
        assert folder.names == known
    clock.now += 0.015
    view.look()
    assert len(folder.names ^ known) == 1


def test_who_waits_looks_at_once_and_then_every_20_ms(
    make_board: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the bell rings; what is put off is the second look, not the first one after some quiet."""
    board = make_board()
    session = board._session
    pauses: list[float] = []
    monkeypatch.setattr(session, "pause", pauses.append)

    def woken(later: float, limit: float = LONG) -> list[float]:
        clock.now += later
        pauses.clear()
        session.look()
        session.wake()
        board.engine.wait(None, None, limit)
        return pauses

    assert woken(1) == []
    assert woken(0.005) == [pytest.approx(0.015)]
    assert woken(0.015, limit=0.001) == [0.001]
    assert woken(0.03) == []


def test_who_is_not_woken_does_not_pause(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    board = make_board()
    monkeypatch.setattr(board._session, "pause", lambda seconds: pytest.fail("slept longer than was asked"))
    board._session.look()
    board.engine._woken = boottime()
    board.engine.wait(None, None, 0.001)
