"""The work, and the board that it lies on: what the service and its workers share."""

import asyncio
import os
from pathlib import Path

import jobboard
from jobboard.aio import AsyncConductor, fetch

board = fetch("reports", os.environ.get("JOBBOARD_URL", "sqlite:///reports.db"))
conductor = AsyncConductor(None, board, max_simultaneous_jobs=100)
FOLDER = Path(os.environ.get("REPORTS", "reports")).absolute()


@conductor.handles("report", retry=jobboard.RetryPolicy(max_attempts=5))
async def report(*, customer: str, pages: int = 1) -> None:
    await asyncio.sleep(0.1 * pages)  # a database is asked, say
    if customer == "nobody":
        raise jobboard.Reject("there is no such customer")  # to the trash: the next try would fail just so
    await asyncio.to_thread(write, FOLDER / f"{customer}.txt", f"{pages} pages about {customer}\n")


def write(path: Path, text: str) -> None:
    """Nobody ever sees half a file, however often it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.urandom(8).hex()}")
    part.write_text(text)
    part.replace(path)
