"""Two checkouts of jobboard in turn on the same durable servers, so that what the machine does meets both.

    PYTHONPATH=. python benchmarks/versus.py ../jobboard-before        # SQLite, PostgreSQL and MariaDB, seven minutes
    PYTHONPATH=. python benchmarks/versus.py ../jobboard-before --backend sqlite --rounds 3
    PYTHONPATH=. python benchmarks/versus.py ../jobboard-before --pin  # under limits, hold a snapshot meanwhile

The first part has one process of each checkout. It posts, and claims and consumes, one by one and in batches of 100,
and has a conductor work. A figure is jobs a second, first before, then now. The ratio is the median of the rounds,
with the least and the most.

The second part has eight processes of each checkout that claim and consume one by one: without a limit, with one
scope (a limit per name) and with eight scopes (a limit per group). No limit ever binds. A figure is the share of what
the same checkout does without a limit in the same round.

On Redis, ZooKeeper, etcd and in memory (``--backend redis``) there is the first part alone. Each checkout has tables or
a namespace of its own. In memory, the seconds are those of CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "ideal"))

DATABASES = ("sqlite", "postgresql", "mariadb")
STEPS = {
    "post": "post",
    "finish": "claim + consume",
    "post_many": "post, 100",
    "finish_many": "claim + consume, 100",
    "conduct": "one conductor",
}
LIMITS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "one": {"concurrency": 1000},
    "eight": {"concurrency": 1000, "per": "group"},
}
NAME = "resize"
GROUPS = 8
WORKERS = 8


def serve(uri: str, tree: str) -> None:
    """Run a process of a checkout: a line of its input is a function of this module's :class:`Hand`, a line of its
    output the answer."""
    from ours import Ours

    import jobboard

    if not Path(jobboard.__file__).is_relative_to(tree):
        raise SystemExit(f"{jobboard.__file__} is not of {tree}")
    hand = Hand(uri, Ours)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(hand, name)(*arguments)), flush=True)


class Hand:
    """What a process does."""

    def __init__(self, uri: str, ours: Any) -> None:
        self._uri, self._ours = uri, ours(uri)
        self._boards: dict[str, Any] = {}

    def step(self, name: str, jobs: int) -> float:
        """Return the seconds that the step takes."""
        if name not in ("post", "post_many"):
            self._ours.post_many(jobs)
        more = (100,) if name == "conduct" else ()
        clock = time.process_time if self._uri.startswith("memory:") else time.perf_counter
        start = clock()
        getattr(self._ours, name)(jobs, *more)
        seconds = clock() - start
        # So that each step begins on an empty board.
        if name in ("post", "post_many"):
            self._ours.finish_many(jobs)
        return seconds

    def fill(self, name: str, jobs: int) -> None:
        """Have so many jobs on the board of a limit."""
        board, groups = self._board(name), itertools.cycle(range(GROUPS))
        limit = LIMITS[name]
        if limit is not None and not board.limits():
            board.set_limit(NAME, **limit)
        details = {"path": "/srv/images/" + "x" * 165}
        while (missing := jobs - board.job_count) > 0:
            some = range(min(500, missing))
            board.post_many([{"name": NAME, "details": details, "group": f"group {next(groups)}"} for _ in some])

    def drain(self, name: str, seconds: float) -> int:
        """Return how many jobs were claimed and consumed."""
        board, who, done = self._board(name), str(os.getpid()), 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (job := board.claim_next(who)) is not None:
                board.consume(job, who)
                done += 1
        return done

    def _board(self, name: str) -> Any:
        import jobboard

        if name not in self._boards:
            self._boards[name] = jobboard.fetch(f"limit {name}", self._uri)
            self._boards[name].connect()
        return self._boards[name]


class Process:
    """A process of a checkout, as its parent has it."""

    def __init__(self, tree: Path, uri: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", uri, str(tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tree)},
        )

    def tell(self, *what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit("a process has ended: its error stands above")
        return json.loads(line)

    def __call__(self, *what: Any) -> Any:
        self.tell(*what)
        return self.answer()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def uri_of(backend: str, uri: str, number: int) -> str:
    if backend == "sqlite":
        return f"{uri}.{number}"
    if backend == "memory":
        return uri
    return f"{uri}?{'table' if backend in DATABASES else 'namespace'}=jobboard{number}"


def compare(backend: str, processes: list[Process], given: argparse.Namespace) -> Iterator[str]:
    amounts = {step: given.jobs if step in ("post", "finish") else 10 * given.jobs for step in STEPS}
    rates: dict[str, list[tuple[float, float]]] = {step: [] for step in STEPS}
    for turn in range(given.rounds + 1):
        for step, jobs in amounts.items():
            order = (0, 1) if turn % 2 else (1, 0)
            took = {number: processes[number]("step", step, jobs) for number in order}
            # The first round warms up.
            if turn:
                rates[step].append((jobs / took[0], jobs / took[1]))
        _progress(f"{backend}, round {turn} of {given.rounds}")
    for step, pairs in rates.items():
        before, now = (statistics.median(each) for each in zip(*pairs, strict=True))
        yield f"  {STEPS[step]:22} {before:8,.0f} {now:8,.0f}   {_median([new / old for old, new in pairs])}"


def limited(backend: str, crews: list[list[Process]], given: argparse.Namespace) -> Iterator[str]:
    rates: dict[str, list[list[int]]] = {name: [[], []] for name in LIMITS}
    for turn in range(given.limit_rounds + 1):
        for name in LIMITS:
            for number in (0, 1) if turn % 2 else (1, 0):
                crew = crews[number]
                crew[0]("fill", name, given.board)
                for process in crew:
                    process.tell("drain", name, given.seconds if turn else 0.5)
                done = sum(process.answer() for process in crew)
                if done > given.board - 2 * WORKERS:
                    sys.exit(f"{done} jobs were done: put more on the board with --board")
                if turn:
                    rates[name][number].append(done)
        _progress(f"{backend}, limits, round {turn} of {given.limit_rounds}")
    for name, both in rates.items():
        if name == "none":
            told = "   ".join(f"{statistics.median(each) / given.seconds:,.0f} jobs/s" for each in both)
        else:
            free = rates["none"]
            told = "   ".join(
                _median([done / plain for done, plain in zip(both[number], free[number], strict=True)])
                for number in (0, 1)
            )
        yield f"  {WORKERS} workers, scopes: {name:6} {told}"


def _median(figures: list[float]) -> str:
    return f"{statistics.median(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})"


@contextlib.contextmanager
def pinned(backend: str, uri: str, wanted: bool) -> Iterator[None]:
    """Hold a snapshot open, but on SQLite, where it costs nothing."""
    if not wanted or backend == "sqlite":
        yield
        return
    import sqlalchemy as sa

    drivers = {"postgresql:": "postgresql+psycopg:", "mariadb:": "mariadb+pymysql:"}
    kind, rest = uri.split("//", 1)
    engine = sa.create_engine(f"{drivers[kind]}//{rest}", isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        for number in (0, 1):
            connection.exec_driver_sql(f"SELECT count(*) FROM jobboard{number}")  # noqa: S608
        yield
    engine.dispose()


def measure(backend: str, given: argparse.Namespace) -> Iterator[str]:
    from scene import on

    with on(backend, given.folder, given.volatile) as scene, contextlib.ExitStack() as stack:
        crews = []
        for number, tree in enumerate((given.before, given.now)):
            uri = uri_of(backend, scene.uri, number)
            crews.append([Process(tree, uri) for _ in range(WORKERS)])
            for process in crews[-1]:
                stack.callback(process.end)
            # Makes the tables.
            crews[-1][0]("fill", "none", 1)
        yield f"{scene.version()}: before, now, ratio"
        yield from compare(backend, [crew[0] for crew in crews], given)
        if backend not in DATABASES:
            return
        with pinned(backend, scene.uri, given.pin):
            yield from limited(backend, crews, given)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="another checkout of jobboard")
    parser.add_argument("--now", type=Path, default=HERE.parent, help="the checkout to compare with it (this one)")
    others = ("redis", "zookeeper", "etcd", "memory")
    parser.add_argument("--backend", action="append", choices=(*DATABASES, *others), help="may be given again")
    parser.add_argument("--rounds", type=int, default=5, help="how often both take turns (%(default)s)")
    parser.add_argument("--jobs", type=int, default=200, help="for each step; ten times that in batches (%(default)s)")
    parser.add_argument("--limit-rounds", type=int, default=3, help="the same under limits (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each of these rounds (%(default)s)")
    parser.add_argument("--board", type=int, default=8000, help="how many jobs wait then at first (%(default)s)")
    parser.add_argument("--pin", action="store_true", help="hold a snapshot open while limits are measured")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where servers keep their files")
    parser.add_argument("--volatile", action="store_true", help="take a folder in memory, too")
    given = parser.parse_args()
    given.before, given.now = given.before.resolve(), given.now.resolve()
    for backend in given.backend or DATABASES:
        for line in measure(backend, given):
            print(line, flush=True)


if __name__ == "__main__":
    main()
