"""How often those who wait look while the bell does not stop ringing."""

from typing import Any

import pytest

from jobboard.backends.zookeeper import board as board_module
from jobboard.job import boottime
from jobboard.testing.conformance.support import LONG

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
    monkeypatch.setattr(board_module, "boottime", clock)
    return clock


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
