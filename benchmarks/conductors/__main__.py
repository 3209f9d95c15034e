"""How fast one conductor process works off jobs that do nothing, against the workers of other libraries.

    PYTHONPATH=. python benchmarks/conductors                    # everything, on servers of its own
    PYTHONPATH=. python benchmarks/conductors --aio              # handlers that are coroutines
    PYTHONPATH=. python benchmarks/conductors --aio --killed     # what becomes of 300 jobs when their worker is killed
    PYTHONPATH=. python benchmarks/conductors --only redis --place "two cores"
    PYTHONPATH=. python benchmarks/conductors --venv /tmp/peers  # the peers are installed there on the first run

Redis: huey's consumer and RQ's SimpleWorker. PostgreSQL: pgqueuer and procrastinate. With --aio an AsyncConductor
stands against the Conductor with its threads, arq, SAQ and taskiq on Redis, and the same two on PostgreSQL. Each peer
runs with several settings, and is judged by its best. Ours has 100 jobs at once, with its leases, tokens and stored
answers. PostgreSQL waits for the disk with each commit; Redis appends to a file, with --durable or --aio it waits, too.
The peers give no token to a job, and huey no lease: who is killed there loses it.

All take turns within one run on one server, each in a process of its own that stays; the figures are medians of the
rounds' ratios. What is counted is from the start of a worker to its end, with all jobs finished; and the CPU time of
the worker and the server together.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple

from rich.console import Console

from tests.support import watchdog
from tests.support.servers import PostgreSQL, Redis, Server

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
COROUTINES = {
    "redis": (
        Peer("threads", (100,), 5_000, 1),
        Peer("arq", (10, 100), 500, 1),
        Peer("saq", (10, 100), 300, 1),
        Peer("taskiq", (100, 1000), 1_000, 1),
    ),
    "postgresql": (
        Peer("threads", (100,), 5_000, 1),
        Peer("pgqueuer", (100, 1000), 5_000, 1),
        Peer("procrastinate", (10, 100), 300, 1),
    ),
}
PACKAGES = {
    "": ("huey", "redis", "rq", "pgqueuer", "asyncpg", "procrastinate", "arq", "saq", "hiredis"),
    "taskiq": ("taskiq", "taskiq-redis", "hiredis"),
}
OWN = ("threads", "coroutines")
"""Run by this interpreter."""

KILLED = 300
PATIENCE = 30.0
"""Seconds that the second worker is given to find what the first one has left."""

PLACES = ("one core", "two cores")
WORKER = Path(__file__).with_name("worker.py")


class Pythons:
    """The interpreters that have the libraries; those in ``folder`` are installed when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, library: str) -> Path:
        if library in OWN:
            return Path(sys.executable)
        # arq wants an older redis-py.
        return self._in("taskiq") if library == "taskiq" else self._in("")

    def _in(self, which: str) -> Path:
        folder, packages = self._folder / which, PACKAGES[which]
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            with Console(stderr=True).status(f"installing the peers into {folder}"):
                subprocess.run([sys.executable, "-m", "venv", folder], check=True)
                subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
                (folder / "ready").touch()
        return python


class Worker:
    """A process that fills and drains a queue of its own."""

    def __init__(self, python: Path, library: str, uri: str, setting: int, core: int) -> None:
        command = ["taskset", "--cpu-list", str(core), python, WORKER.name, library, uri, str(setting)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=WORKER.parent
        )
        # One after the other: not all of them can make their tables at once.
        self._answer()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()

    def tell(self, *command: object) -> Any:
        self.begin(*command)
        return json.loads(self._answer())

    def begin(self, *command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"a worker has ended: {self._process.args}")

    def kill(self) -> None:
        self._process.kill()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"a worker has ended: {self._process.args}")
        return line

    def rate(self, jobs: int, server: Server) -> Rate:
        self.tell("fill", jobs)
        before = seconds_of(server)
        wall, spent = self.tell("drain", jobs)
        return Rate(jobs / wall, (spent + seconds_of(server) - before) / jobs)


class Rate(NamedTuple):
    """Jobs per second; and the CPU time of one, here and in the server."""

    speed: float
    cost: float


def seconds_of(server: Server) -> float:
    """The CPU time of a server so far, of those of its children that have ended included."""
    spent = 0
    for pid in watchdog.processes_in(server.folder):
        with suppress(OSError):
            times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, times[11:15]))
    return spent / os.sysconf("SC_CLK_TCK")


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


def compare(
    server: Server, core: int, pythons: Pythons, place: str, rounds: int, aio: bool, chosen: list[str] | None
) -> None:
    ours, known = ("coroutines", COROUTINES) if aio else ("threads", PEERS)
    peers = [peer for peer in known[server.kind] if chosen is None or peer.library in chosen]
    with ExitStack() as stack:

        def worker(library: str, setting: int) -> Worker:
            return stack.enter_context(Worker(pythons.of(library), library, server.uri, setting, core))

        contenders = {(ours, OURS): (worker(ours, OURS), JOBS)}
        for peer in peers:
            for setting in peer.settings:
                contenders[peer.library, setting] = worker(peer.library, setting), peer.jobs
        rates: dict[tuple[str, int], list[Rate]] = {key: [] for key in contenders}
        for number in range(rounds + 1):
            # Whoever begins has no better a place than the others.
            first = number % len(contenders)
            for key in (*list(contenders)[first:], *list(contenders)[:first]):
                contender, jobs = contenders[key]
                rate = contender.rate(jobs, server)
                # The first round warms up.
                if number:
                    rates[key].append(rate)
    mine = rates[ours, OURS]
    for peer in peers:
        best = max(peer.settings, key=lambda it: statistics.median(each.speed for each in rates[peer.library, it]))
        theirs = rates[peer.library, best]
        ratios = [my.speed / its.speed for my, its in zip(mine, theirs, strict=True)]
        costs = [its.cost / my.cost for my, its in zip(mine, theirs, strict=True)]
        ratio = statistics.median(ratios)
        print(
            f"{server.kind}, {place}: {ratio:.2f} (from {min(ratios):.2f} to {max(ratios):.2f}) times {peer.library} "
            f"at its best, {best}; {median(mine).speed:.0f} against {median(theirs).speed:.0f} jobs/s, "
            f"{median(mine).cost * 1e6:.0f} against {median(theirs).cost * 1e6:.0f} µs of CPU a job, by that "
            f"{statistics.median(costs):.2f} times; target {peer.target:g}: "
            f"{'reached' if ratio >= peer.target else 'MISSED'}",
            flush=True,
        )


def median(rates: list[Rate]) -> Rate:
    return Rate(*(statistics.median(each) for each in zip(*rates, strict=True)))


def kill(server: Server, core: int, pythons: Pythons) -> None:
    """How many of the jobs of a worker that is killed in the middle are done by another, and how often."""
    for library in ("coroutines", *(peer.library for peer in COROUTINES[server.kind] if peer.library != "threads")):
        python = pythons.of(library)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "done"
            file.touch()

            def done(file: Path = file) -> list[str]:
                return file.read_text().split()

            with Worker(python, library, server.uri, 10, core) as first:
                first.tell("fill", KILLED, str(file))
                first.begin("work")
                while len(done()) < KILLED / 3:
                    first.check()
                    time.sleep(0.001)
                first.kill()
            before, began = len(done()), time.monotonic()
            with Worker(python, library, server.uri, 10, core) as second:
                second.begin("work")
                while len(set(done())) < KILLED and time.monotonic() - began < PATIENCE:
                    time.sleep(0.1)
                seconds = time.monotonic() - began
                second.kill()
            numbers = done()
            lost = KILLED - len(set(numbers))
            print(
                f"{server.kind}, {library}: killed after {before} of {KILLED} jobs; {seconds:.0f} s later "
                f"{f'{lost} have not been done' if lost else 'all are done'}, {len(numbers) - len(set(numbers))} twice",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/conductors", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=tuple(PEERS), help="this backend alone")
    parser.add_argument("--aio", action="store_true", help="handlers that are coroutines, and their peers")
    parser.add_argument("--killed", action="store_true", help="kill those workers in the middle instead")
    parser.add_argument("--peer", action="append", help="against this one alone; may be given again")
    parser.add_argument("--durable", action="store_true", help="Redis waits for the disk with each write, too")
    parser.add_argument("--place", action="append", choices=PLACES, help="servers and workers share a core, or do not")
    parser.add_argument("--rounds", type=int, default=7, help="how often to take turns (%(default)s)")
    parser.add_argument(
        "--venv", type=Path, default=Path(gettempdir()) / "jobboard-peers", help="where the peers are installed"
    )
    given = parser.parse_args()
    pythons = Pythons(given.venv)
    if given.killed:
        given.place = PLACES[1:]
    for place in given.place or PLACES:
        for kind in [given.only] if given.only else PEERS:
            waits = given.durable or given.aio
            server = Redis(durable=waits) if kind == "redis" else PostgreSQL(durable=True)
            with placed(place) as core, server:
                if given.killed:
                    kill(server, core, pythons)
                else:
                    compare(server, core, pythons, place, given.rounds, given.aio, given.peer)


if __name__ == "__main__":
    main()
