"""The naps of waiting threads."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.waiting import Waiters


@pytest.fixture
def waiters() -> Waiters:
    engine: Any = SimpleNamespace(check_open=lambda: None, poll_cap=1.0)
    waiters = Waiters(engine)
    waiters.begin()
    return waiters


class TestNaps:
    def test_woken(self, waiters: Waiters) -> None:
        next(waiters.rounds(None))
        threading.Timer(0.02, waiters.wake).start()
        assert waiters.nap(10)

    def test_what_came_since_the_look_is_not_slept_through(self, waiters: Waiters) -> None:
        next(waiters.rounds(None))
        waiters.wake()
        assert waiters.nap(10)
        assert waiters.nap(10)  # until the next look
        next(waiters.rounds(None))
        assert not waiters.nap(0.01)

    def test_the_end_wakes(self, waiters: Waiters) -> None:
        next(waiters.rounds(None))
        threading.Timer(0.02, waiters.end).start()
        start = time.monotonic()
        assert waiters.nap(100)
        waiters.sleep_until_due(100, waiters.alarms)
        assert time.monotonic() - start < 60
