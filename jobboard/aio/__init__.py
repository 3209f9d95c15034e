"""Boards and conductors for asyncio::

    async with jobboard.aio.backend("pictures", "redis://cache") as board:
        await board.post("resize", details={"path": "a.jpg"})
        async with board.working("me") as job:
            ...

A verb runs on one of the board's few threads, through the sync board. Coroutines that wait for jobs share one thread
and one connection. Here lie threads, waits, cancellations and tasks; nothing about jobs is decided here: outcomes are
those of :mod:`jobboard.board` and :mod:`jobboard.conductor`.
"""

from jobboard.aio.board import AsyncJobBoard, AsyncWorking, backend, fetch
from jobboard.aio.conductor import AsyncConductor

__all__ = ["AsyncConductor", "AsyncJobBoard", "AsyncWorking", "backend", "fetch"]
