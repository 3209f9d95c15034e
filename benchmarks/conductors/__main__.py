"""How fast one conductor process works off jobs that do nothing, against the workers of other libraries.

    python benchmarks/conductors                                # everything, on servers of its own
    python benchmarks/conductors --only redis --place "two cores"
    python benchmarks/conductors --venv /tmp/peers              # the peers are installed there on the first run

Redis: huey's consumer and RQ's SimpleWorker. PostgreSQL: pgqueuer and procrastinate. Each peer runs with several
settings, and is judged by its best. Ours has 100 jobs at once, with its leases, tokens and stored answers. PostgreSQL
waits for the disk with each commit; Redis appends to a file, with --durable it waits too. The peers give no token to a
job, and huey no lease: who is killed there loses it.

All take turns within one run on one server, each in a process of its own that stays; the figures are medians of the
rounds' ratios. What is counted is from the start of a worker to its end, with all jobs finished.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

from rich.console import Console

from jobboard.testing.servers import PostgreSQL, Redis, Server

OURS = 100
JOBS = 5_000


class Peer(NamedTuple):
    library: str
    settings: tuple[int, ...]
    jobs: int
    target: float


PEERS = {
    "redis": (Peer("huey", (1, 8, 100), 2_000, 2), Peer("rq", (1,), 300, 10)),
    "postgresql": (Peer("pgqueuer", (10, 100, 1000), 5_000, 2), Peer("procrastinate", (1, 10, 100), 300, 50)),
}
PLACES = ("one core", "two cores")
WORKER = Path(__file__).with_name("worker.py")


def install(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        with Console(stderr=True).status(f"installing the peers into {folder}"):
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            packages = ["huey", "redis", "rq", "pgqueuer", "asyncpg", "procrastinate"]
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
            (folder / "ready").touch()
    return python


class Worker:
    """A process that fills and drains a queue of its own."""

    def __init__(self, python: Path | str, library: str, uri: str, setting: int, core: int) -> None:
        command = ["taskset", "--cpu-list", str(core), python, WORKER.name, library, uri, str(setting)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=WORKER.parent
        )
        # One after the other: not all of them can make their tables at once.
        self._answer()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    def _tell(self, *command: object) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"a worker has ended: {self._process.args}")
        return line

    def rate(self, jobs: int) -> float:
        """Jobs per second."""
        self._tell("fill", jobs)
        return jobs / self._tell("drain", jobs)


@contextmanager
def placed(place: str) -> Iterator[int]:
    """Where servers that are started meanwhile run; the core for the workers."""
    cores = sorted(os.sched_getaffinity(0))
    if place == "two cores" and len(cores) < 2:
        raise SystemExit("there is only one core; leave two cores out with --place 'one core'")
    os.sched_setaffinity(0, {cores[-1] if place == "one core" else cores[-2]})
    try:
        yield cores[-1]
    finally:
        os.sched_setaffinity(0, set(cores))


def compare(server: Server, core: int, python: Path, place: str, rounds: int) -> None:
    with ExitStack() as stack:
        ours = stack.enter_context(Worker(sys.executable, "jobboard", server.uri, OURS, core))
        peers = [
            (peer, setting, stack.enter_context(Worker(python, peer.library, server.uri, setting, core)))
            for peer in PEERS[server.kind]
            for setting in peer.settings
        ]
        mine: list[float] = []
        others: dict[tuple[str, int], list[float]] = {}
        for number in range(rounds + 1):
            rate = ours.rate(JOBS)
            theirs = {(peer.library, setting): worker.rate(peer.jobs) for peer, setting, worker in peers}
            # The first round warms up.
            if number:
                mine.append(rate)
                for key, value in theirs.items():
                    others.setdefault(key, []).append(value)
    for peer in PEERS[server.kind]:
        best = max(peer.settings, key=lambda setting: statistics.median(others[peer.library, setting]))
        rates = others[peer.library, best]
        ratios = [fast / slow for fast, slow in zip(mine, rates, strict=True)]
        ratio = statistics.median(ratios)
        print(
            f"{server.kind}, {place}: {ratio:.1f} (from {min(ratios):.1f} to {max(ratios):.1f}) times {peer.library} "
            f"at its best, {best}; {statistics.median(mine):.0f} against {statistics.median(rates):.0f} jobs/s; "
            f"target {peer.target:g}: {'reached' if ratio >= peer.target else 'MISSED'}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/conductors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=tuple(PEERS), help="this backend alone")
    parser.add_argument("--durable", action="store_true", help="Redis waits for the disk with each write, too")
    parser.add_argument("--place", action="append", choices=PLACES, help="servers and workers share a core, or do not")
    parser.add_argument("--rounds", type=int, default=7, help="how often to take turns (%(default)s)")
    parser.add_argument(
        "--venv", type=Path, default=Path(gettempdir()) / "jobboard-peers", help="where the peers are installed"
    )
    given = parser.parse_args()
    python = install(given.venv)
    for place in given.place or PLACES:
        for kind in [given.only] if given.only else PEERS:
            server = Redis(durable=given.durable) if kind == "redis" else PostgreSQL(durable=True)
            with placed(place) as core, server:
                compare(server, core, python, place, given.rounds)


if __name__ == "__main__":
    main()
