"""The naps of waiting threads."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.waiting import Waiters


@pytest.mark.rule("A waiter does not sleep through news that came after its look.")
def test_what_came_since_the_look_is_not_slept_through() -> None:
    engine: Any = SimpleNamespace(check_open=lambda: None)
    waiters = Waiters(engine)
    waiters.begin()
    next(waiters.rounds(None))
    waiters.wake()
    assert waiters.nap(10)
    assert waiters.nap(10)  # until the next look
    next(waiters.rounds(None))
    assert not waiters.nap(0.01)
