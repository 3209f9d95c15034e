"""How fast a conductor for asyncio works off coroutines that do nothing, against the one with threads.

    python benchmarks/aio.py                     # on Redis and PostgreSQL, on servers of its own
    python benchmarks/aio.py --only redis --rounds 9

Both take turns within one process, on one board; the figures are medians of the rounds' ratios. What is counted is
from the start of a conductor to its end, with all jobs finished.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from jobboard import Conductor, aio
from jobboard.job import Job
from jobboard.testing.servers import PostgreSQL, Redis

JOBS = 5_000
AT_ONCE = 100


async def nothing(job: Job) -> None: ...


async def compare(uri: str, rounds: int, at_once: int) -> tuple[list[float], list[float]]:
    rates: tuple[list[float], list[float]] = ([], [])
    async with aio.backend("bench", uri) as board:
        for number in range(rounds + 1):
            # Whoever begins has no better a place than the other.
            for which in (0, 1) if number % 2 else (1, 0):
                await board.post_many([{"name": "nothing"}] * JOBS)
                if which == 0:
                    mine = aio.AsyncConductor("bench", board, nothing, max_simultaneous_jobs=at_once)
                    began = time.perf_counter()
                    await mine.run(JOBS)
                else:
                    other = Conductor("bench", board.sync, lambda job: None, max_simultaneous_jobs=AT_ONCE)
                    began = time.perf_counter()
                    await asyncio.to_thread(other.run, JOBS)
                # The first round warms up.
                if number:
                    rates[which].append(JOBS / (time.perf_counter() - began))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/aio.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("redis", "postgresql"))
    parser.add_argument("--rounds", type=int, default=7, help="how often to take turns (%(default)s)")
    parser.add_argument("--at-once", type=int, default=1000, help="coroutines at once (%(default)s)")
    given = parser.parse_args()
    for name in [given.only] if given.only else ["redis", "postgresql"]:
        with Redis() if name == "redis" else PostgreSQL(durable=True) as server:
            tasks, threads = asyncio.run(compare(server.uri, given.rounds, given.at_once))
        ratios = [fast / slow for fast, slow in zip(tasks, threads, strict=True)]
        print(
            f"{name}: coroutines at {statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f}) "
            f"times the speed of threads; {statistics.median(tasks):.0f} against {statistics.median(threads):.0f} "
            "jobs/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
