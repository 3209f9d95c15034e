"""Boards and conductors for asyncio::

    async with jobboard.aio.backend("pictures", "redis://cache") as board:
        await board.post("resize", details={"path": "a.jpg"})
        async with board.working("me") as job:
            ...

A verb runs on one of the board's few threads, through the board that everybody else uses; whoever waits for a job holds
neither a thread nor a connection of their own. Nothing is decided here a second time.
"""

from jobboard.aio.board import AsyncJobBoard, AsyncWorking, backend, fetch
from jobboard.aio.conductor import AsyncConductor

__all__ = ["AsyncConductor", "AsyncJobBoard", "AsyncWorking", "backend", "fetch"]
