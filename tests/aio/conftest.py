"""Runs coroutines, on asyncio's own loop or on uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from jobboard.aio import AsyncJobBoard
from jobboard.testing import eventually

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ON_BOTH_LOOPS = pytest.mark.parametrize("run", ["asyncio", "uvloop"], indirect=True)
"""For tests of calls between threads and a loop, of tasks, cancellations and signals."""


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """``run(coroutine)`` on a new loop, asyncio's own unless the test says otherwise."""
    factory = uvloop.new_event_loop if getattr(request, "param", "asyncio") == "uvloop" else asyncio.new_event_loop

    def on_a_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(coroutine, 100))

    return on_a_loop


async def waiting(board: AsyncJobBoard, *calls: Any) -> list[asyncio.Task[Any]]:
    """Return tasks of these calls, once the thread of each line sleeps."""
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    while not all(line.asleep for line, _ in board._loops.values() if line.waiters):
        await asyncio.sleep(0.001)
    return tasks


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, which is asked on another thread."""
    await asyncio.to_thread(eventually, condition)
