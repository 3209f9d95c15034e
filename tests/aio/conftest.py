"""Runs coroutines, on asyncio's own loop and on uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from jobboard.aio import AsyncJobBoard
from tests.full import FULL

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """``run(coroutine)`` on a new loop."""

    def on_a_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(coroutine, 60))

    return on_a_loop


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On uvloop only without a server, but in full runs: threads talk to servers, and the loop never does."""
    gone = [item for item in items if not FULL and _on_uvloop_with_a_server(item)]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in set(gone)]


def _on_uvloop_with_a_server(item: pytest.Item) -> bool:
    told = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return told.get("run") == "uvloop" and told.get("backend") not in (None, "memory", "sqlite")


async def waiting(board: AsyncJobBoard, *calls: Any) -> list[asyncio.Task[Any]]:
    """Tasks of these calls, once the thread of each line sleeps."""
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    while not all(line.is_asleep for line, _ in board._loops.values() if not line.is_empty):
        await asyncio.sleep(0.001)
    return tasks
