"""Fixtures for pytest. In the ``conftest.py`` of the tests' root::

    pytest_plugins = ["jobboard.testing.fixtures"]

Each test has a board and a clock of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from jobboard.backends import backend
from jobboard.backends.memory import ManualClock, forget
from jobboard.board import JobBoard


@pytest.fixture
def memory_clock() -> ManualClock:
    """The clock of ``memory_board``, which only the test moves."""
    return ManualClock()


@pytest.fixture
def memory_board(memory_clock: ManualClock) -> Iterator[JobBoard]:
    """A connected board in memory, of a random name, which keeps results. Its jobs go with the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    with backend(name, {"board": "memory", "clock": memory_clock, "keep_done": 86400}) as board:
        yield board
    forget(name)
