"""Running jobs that are stopped under load, on a real server.

    python tests/stress/stops.py postgresql                          # also: redis, mariadb, etcd, zookeeper
    python tests/stress/stops.py redis --jobs 1000 --claim-ttl 6

Conductors in several processes run long jobs, all at once. Other workers post, claim and consume short jobs meanwhile.
Then an operator stops each long job. One line of figures follows. The status is 1 if a stopped job was consumed, is
anywhere but in the trash, has run again, or if its holder was not told.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.runtime import boottime
from jobboard.testing import eventually
from tests.support.servers import KINDS

LIMIT = 120.0


def hold(conf: dict[str, Any], path: str, number: int, slots: int) -> None:
    """Run long jobs. Write down when each begins, and when it is told to stop."""
    with Path(path).open("a", buffering=1) as file:

        async def long(job: jobboard.Job) -> None:
            file.write(f"{json.dumps(['begun', job.uuid, boottime()])}\n")
            try:
                await asyncio.Event().wait()
            finally:
                file.write(f"{json.dumps(['told', job.uuid, boottime()])}\n")

        async def main() -> None:
            board = AsyncJobBoard(jobboard.fetch("board", conf))
            conductor = AsyncConductor(f"holder-{number}", board, {"long": long}, max_simultaneous_jobs=slots)
            await conductor.run()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(main())


def load(conf: dict[str, Any], path: str, number: int) -> None:
    """Post, claim and consume short jobs."""
    with jobboard.backend("board", conf) as board:
        done = 0
        while not Path(path).exists():
            board.post_many([{"name": "short"}] * 5)
            for job in board.claim_many(f"load-{number}", 5, names=["short"]):
                board.consume(job, f"load-{number}")
                done += 1
        Path(f"{path}.{number}").write_text(str(done))


def entries(folder: Path, what: str) -> list[tuple[str, float]]:
    lines = [json.loads(line) for path in folder.glob("holder-*") for line in path.read_text().splitlines()]
    return [(uuid, at) for kind, uuid, at in lines if kind == what]


def run(conf: dict[str, Any], folder: Path, jobs: int, processes: int) -> dict[str, Any]:
    context, over = get_context("spawn"), folder / "over"
    with jobboard.backend("board", conf) as board:
        posted = [job for _ in range(0, jobs, 100) for job in board.post_many([{"name": "long"}] * min(100, jobs))]
        slots = -(-len(posted) // processes)
        holders = [
            context.Process(target=hold, args=(conf, str(folder / f"holder-{number}"), number, slots))
            for number in range(processes)
        ]
        loads = [context.Process(target=load, args=(conf, str(over), number)) for number in range(2)]
        for process in (*holders, *loads):
            process.start()
        try:
            eventually(lambda: len(entries(folder, "begun")) >= len(posted), LIMIT)
            stopped: dict[str, float] = {}
            lock = threading.Lock()

            def stop(job: jobboard.Job) -> None:
                board.cancel(job, running=True, reason="stopped")
                with lock:
                    stopped[job.uuid] = boottime()

            began = boottime()
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(stop, posted))
            took = boottime() - began
            with contextlib.suppress(AssertionError):
                eventually(lambda: len(entries(folder, "told")) >= len(posted), LIMIT)
            over.touch()
            for process in loads:
                process.join(LIMIT)
            states = [job.state for job in posted]
        finally:
            over.touch()
            for process in holders:
                process.terminate()
                process.join(LIMIT)
    begun, told = entries(folder, "begun"), dict(entries(folder, "told"))
    waits = sorted(max(0.0, told[uuid] - at) for uuid, at in stopped.items() if uuid in told)
    return {
        "stopped": len(stopped),
        "consumed": states.count("COMPLETE"),
        "not in the trash": len(states) - states.count("TRASHED"),
        "run again": len(begun) - len({uuid for uuid, _ in begun}),
        "not told": len(stopped) - len(waits),
        "stops per second": round(len(stopped) / took),
        "told after": {"median": round(statistics.median(waits), 2), "p95": round(waits[int(len(waits) * 0.95)], 2)}
        | {"max": round(waits[-1], 2)},
        "short jobs meanwhile": sum(int(path.read_text()) for path in folder.glob("over.*")),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=list(KINDS))
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--claim-ttl", type=float, default=6.0)
    given = parser.parse_args()
    with KINDS[given.backend]() as server, TemporaryDirectory() as folder:
        conf = {"board": str(server.uri), "claim_ttl": given.claim_ttl}
        figures = run(conf, Path(folder), given.jobs, given.processes)
    sys.stdout.write(json.dumps({"backend": given.backend, "claim_ttl": given.claim_ttl, **figures}) + "\n")
    return any(figures[fault] for fault in ("consumed", "not in the trash", "run again", "not told"))


if __name__ == "__main__":
    sys.exit(main())
