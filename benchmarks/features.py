"""What limits, groups and outcomes cost: eight workers with them and without, in turn in one run.

    PYTHONPATH=. python benchmarks/features.py  # all backends
    PYTHONPATH=. python benchmarks/features.py --backend postgresql --rounds 5
    PYTHONPATH=. python benchmarks/features.py --backend mariadb --case plain --case one --folder /dev/shm --volatile

Each case has a board of its own on one server, filled with jobs that do nothing. Processes claim and consume them one
by one for some seconds. A figure is the jobs a second in terms of *plain*, in which the same jobs have their groups
and no limit binds them; the median of the rounds, with the least and the most.

*room*   a limit for each of 1,000 groups, which never binds
*hot*    one limit for all jobs of the name, which never binds: all workers change one record
*one*    one job at a time of each of 1,000 groups, dealt round
*runs*   the same, where the jobs of each group come in runs of 100
*done*   what consumed jobs leave is kept

Then how long a take of a single worker lasts in milliseconds, the median of 50, behind so many jobs of one full group,
with forty other groups behind it. Servers are durable, and begin anew for each backend.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Theirs are the servers, here as there.
sys.path.insert(0, str(Path(__file__).parent / "ideal"))

from scene import BACKENDS, on

import jobboard

NAME = "resize"
GROUPS = 1000
TAKES = 50
BEHIND = (1_000, 99_000)


class Case(NamedTuple):
    """How a board is set up. ``run``: how many jobs of a group come in a row."""

    limit: dict[str, Any] | None = None
    run: int = 1
    options: dict[str, Any] | None = None


CASES = {
    "plain": Case(),
    "room": Case({"per": "group", "concurrency": 100}),
    "hot": Case({"per": "name", "concurrency": 1000}),
    "one": Case({"per": "group", "concurrency": 1}),
    "runs": Case({"per": "group", "concurrency": 1}, 100),
    "done": Case(options={"keep_done": 3600}),
}


class Worker:
    """A process that works on one board after the other."""

    def __init__(self, context: Any, uri: str, number: int) -> None:
        self._mine, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, uri, f"worker{number}"), daemon=True)
        self._process.start()

    def say(self, what: Any) -> None:
        self._mine.send(what)

    def hear(self) -> Any:
        return self._mine.recv()

    def stop(self) -> None:
        self._mine.send(None)
        self._process.join()


def _work(pipe: Any, uri: str, who: str) -> None:
    while (said := pipe.recv()) is not None:
        name, options, seconds = said
        with jobboard.backend(name, {"board": uri, **options}) as board:
            # What a connection does once is not counted, nor is what differs between those that have just begun.
            _drain(board, who, seconds / 5)
            pipe.send("ready")
            pipe.recv()
            pipe.send(_drain(board, who, seconds))


def _drain(board: Any, who: str, seconds: float) -> int:
    done, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        job = board.claim_next(who)
        if job is not None:
            board.consume(job, who)
            done += 1
    return done


def fill(board: Any, groups: Iterator[str], jobs: int) -> None:
    for start in range(0, jobs, 5000):
        board.post_many(
            [
                {"name": NAME, "details": {"path": "/srv/images/" + "x" * 165}, "group": next(groups)}
                for _ in range(min(5000, jobs - start))
            ]
        )


def dealt(run: int) -> Iterator[str]:
    number = 0
    while True:
        yield f"group {number // run % GROUPS}"
        number += 1


def throughput(uri: str, workers: list[Worker], name: str, case: Case, given: argparse.Namespace) -> float:
    options = case.options or {}
    with jobboard.backend(name, {"board": uri, **options}) as board:
        fill(board, dealt(case.run), given.jobs)
        if case.limit is not None:
            board.set_limit(NAME, **case.limit)
        for worker in workers:
            worker.say((name, options, given.seconds))
        for worker in workers:
            worker.hear()
        for worker in workers:
            worker.say("go")
        done = sum(worker.hear() for worker in workers)
        if not board.job_count:
            sys.exit(f"{name}: there were too few jobs for {given.seconds:g} s: give more with --jobs")
        clear(board)
    return done / given.seconds


def clear(board: Any) -> None:
    """Nothing that is left weighs on the boards that come."""
    for rule in board.limits():
        board.remove_limit(rule.name, rule.per)
    while jobs := board.claim_many("end", 100):
        board.consume_many(jobs, "end")


def behind(uri: str, name: str, jobs: int) -> float:
    """Milliseconds of a take behind so many jobs of a group that is full."""
    with jobboard.backend(name, {"board": uri}) as board:
        fill(board, iter(["full"] * jobs), jobs)
        fill(board, dealt(1), 4000)
        board.set_limit(NAME, per="group", concurrency=1)
        assert board.claim_next("holder").group == "full"
        times = []
        for _ in range(2 * TAKES):
            start = time.perf_counter()
            job = board.claim_next("one")
            times.append(time.perf_counter() - start)
            board.consume(job, "one")
        clear(board)
    # The first ones find out what is in the way.
    return statistics.median(times[TAKES:]) * 1000


def measure(backend: str, given: argparse.Namespace) -> Iterator[str]:
    with on(backend, given.folder, given.volatile) as scene:
        context = multiprocessing.get_context("spawn")
        workers = [Worker(context, scene.uri, number) for number in range(given.workers)]
        rates: dict[str, list[float]] = {name: [] for name in given.case}
        for turn in range(given.rounds):
            for name in given.case:
                rates[name].append(throughput(scene.uri, workers, f"{name} {turn}", CASES[name], given))
                _progress(f"{backend}, round {turn + 1} of {given.rounds}: {name} {rates[name][-1]:,.0f} jobs/s")
        for worker in workers:
            worker.stop()
        yield f"{scene.version()}, plain {statistics.median(rates['plain']):,.0f} jobs/s"
        for name in given.case:
            shares = sorted(rate / plain for rate, plain in zip(rates[name], rates["plain"], strict=True))
            yield f"  {name:6} {statistics.median(shares):.2f} ({shares[0]:.2f} to {shares[-1]:.2f})"
        for jobs in given.behind:
            yield f"  behind {jobs:,}: {behind(scene.uri, f'behind {jobs}', jobs):.1f} ms"
            _progress(f"{backend}: behind {jobs:,}")


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=(*BACKENDS, "etcd"), help="this one; may be given again")
    parser.add_argument("--case", action="append", choices=[*CASES], help="this one, and plain; may be given again")
    parser.add_argument("--workers", type=int, default=8, help="how many processes (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often all take turns (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each measurement (%(default)s)")
    parser.add_argument("--jobs", type=int, default=20_000, help="on each board (%(default)s)")
    parser.add_argument("--behind", type=int, action="append", help="jobs of a full group; 0: don't (1,000 and 99,000)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where servers keep their files")
    parser.add_argument("--volatile", action="store_true", help="take a folder in memory, too")
    given = parser.parse_args()
    given.case = list(dict.fromkeys(["plain", *(given.case or CASES)]))
    given.behind = [jobs for jobs in given.behind or BEHIND if jobs]
    for backend in given.backend or BACKENDS:
        for line in measure(backend, given):
            print(line, flush=True)


if __name__ == "__main__":
    main()
