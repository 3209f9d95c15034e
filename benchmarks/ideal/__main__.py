"""How fast the boards are against the *ideal*, and against other libraries.

    PYTHONPATH=. python benchmarks/ideal                               # all backends, on durable servers of its own
    PYTHONPATH=. python benchmarks/ideal --backend redis --rounds 3    # two minutes
    PYTHONPATH=. python benchmarks/ideal --pin --json pinned.json      # client and server share a core
    PYTHONPATH=. python benchmarks/ideal --volatile --folder /dev/shm  # no disk: CPU and round trips alone

The ideal is the shortest hand-written code that does a step with the same driver and keeps no promise: ideals.py. The
others are used as their documentation shows, in bulk where they can: peers.py. Those that are not installed are left
out, and named; this brings all of them (in two steps, as bullmq and pgqueuer disagree about a third):

    pip install huey rq bullmq procrastinate litequeue persist-queue doloop
    pip install pgqueuer asyncpg

All take turns within each round, in this process, on one server, each with a queue of its own; speeds are medians of
the rounds' ratios. Jobs have 200 bytes of details and do nothing. Servers have their own settings, and wait for the
disk with each commit. Statements and round trips are counted in a pass of their own, through a proxy.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from contender import BATCH, Contender
from ideals import IDEALS
from ours import Ours
from parts import sampled
from peer import version
from peers import PEERS
from report import STEPS, Found, as_json, document
from scene import BACKENDS, Scene, on
from wire import counted

ONE_BY_ONE = ("post", "finish")
POSTS = ("post", "post_many")


class Stand:
    """One contender in a run, with what it has posted and not finished yet."""

    def __init__(self, contender: Contender, jobs: int) -> None:
        self.contender = contender
        self.jobs = jobs
        self.pending = 0
        self.setting = contender.settings[0]

    def amount(self, step: str) -> int:
        """How many jobs a measurement has."""
        if step in ONE_BY_ONE:
            return self.jobs
        return BATCH * max(1, self.jobs // (100 if self.contender.slow else 10))

    def can(self, step: str) -> bool:
        return getattr(type(self.contender), step) is not getattr(Contender, step)

    def prepare(self, step: str, jobs: int) -> None:
        """Have as many jobs on the board as are about to be finished, and no more, as some work off all that is."""
        if step in POSTS:
            return
        if self.pending < jobs:
            self.do("post_many" if self.can("post_many") else "post", jobs - self.pending)
        if step == "conduct" and self.pending > jobs:
            self.do("finish", self.pending - jobs)

    def do(self, step: str, jobs: int) -> None:
        if step == "post_many":
            jobs = -(-jobs // BATCH) * BATCH
        more = (self.setting,) if step == "conduct" else ()
        getattr(self.contender, step)(jobs, *more)
        self.pending += jobs if step in POSTS else -jobs

    def clear(self) -> None:
        """Finish what no step has."""
        if self.pending >= BATCH and self.can("finish_many"):
            self.do("finish_many", self.pending // BATCH * BATCH)
        if self.pending:
            self.do("finish", self.pending)

    def choose(self, scene: Scene) -> None:
        """The best of its conductor's settings, by one try of each."""
        times = {}
        jobs = self.amount("conduct")
        for setting in self.contender.settings if self.can("conduct") else ():
            self.setting = setting
            self.clear()
            self.prepare("conduct", jobs)
            before = scene.spent()
            self.do("conduct", jobs)
            times[scene.spent().since(before).wall] = setting
        self.setting = times[min(times)] if times else 0


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def compare(scene: Scene, found: Found, rounds: int, stands: list[Stand]) -> None:
    for stand in stands:
        for step in STEPS:
            if stand.can(step):
                # A setting is tried as the conductor's step warms up.
                jobs = stand.amount(step)
                stand.prepare(step, jobs)
                if step != "conduct":
                    stand.do(step, jobs)
        stand.choose(scene)
        progress(f"{found.backend}: {stand.contender.library} is warm")
    for number in range(rounds):
        for step in STEPS:
            able = [stand for stand in stands if stand.can(step)]
            # Who goes first changes, so that nobody always meets what the same one has left.
            first = number % len(able)
            for stand in able[first:] + able[:first]:
                jobs = stand.amount(step)
                stand.prepare(step, jobs)
                before = scene.spent()
                stand.do(step, jobs)
                spent = scene.spent().since(before)
                found.rounds.setdefault((stand.contender.library, step), []).append((jobs, spent))
                progress(
                    f"{found.backend}, round {number + 1} of {rounds}, {STEPS[step]}: {stand.contender.library} "
                    f"{jobs / spent.wall:,.0f} jobs/s"
                )
        for stand in stands:
            stand.clear()


def count(scene: Scene, found: Found, kinds: list[type[Contender]], settings: list[int]) -> None:
    with counted(scene, found.backend) as (uri, counts):
        for kind, setting in zip(kinds, settings, strict=True):
            with contextlib.closing(kind(uri)) as contender:
                stand = Stand(contender, 20)
                stand.setting = setting
                for step in [*STEPS, *STEPS]:
                    # The second time counts: what is said once in a connection's life has been said then.
                    if not stand.can(step):
                        continue
                    jobs = stand.amount(step)
                    stand.prepare(step, jobs)
                    statements, trips = counts.now()
                    stand.do(step, jobs)
                    statements, trips = counts.now()[0] - statements, less(counts.now()[1], trips)
                    found.counts[kind.library, step] = (statements / jobs, None if trips is None else trips / jobs)
                stand.clear()
            progress(f"{found.backend}: {kind.library} is counted")


def profile(found: Found, stand: Stand, patience: float) -> None:
    """Where the board's time goes.

    :param patience: how many seconds of CPU time to sample for each step, if that takes no more than ten times as long.
        The system gives some 250 samples in a second.
    """
    # A conductor works in threads of its own, of which no samples are taken.
    for step in (step for step in STEPS if step != "conduct"):
        jobs, done, spent, samples = stand.amount(step), 0, 0.0, collections.Counter[str]()
        limit = time.monotonic() + 10 * patience
        while spent < patience and time.monotonic() < limit:
            stand.prepare(step, jobs)
            start = time.process_time()
            with sampled(samples):
                stand.do(step, jobs)
            spent += time.process_time() - start
            done += jobs
            stand.clear()
        found.sampled(step, samples, spent / done)
    progress(f"{found.backend}: the board is profiled")


def less(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def measure(backend: str, given: argparse.Namespace) -> Found:
    with on(backend, given.folder, given.volatile) as scene:
        found = Found(backend, scene.version())
        kinds: list[type[Contender]] = [IDEALS[backend], Ours]
        for peer in () if given.no_peers else PEERS[backend]:
            there = version(peer)
            if there is None:
                found.missing.append(peer.distribution)
                continue
            kinds.append(peer)
            found.notes.append(
                f"{peer.library} {there}: the job of a killed worker is {peer.keeps}.".replace(" :", ":")
            )
        with contextlib.ExitStack() as stack:
            stands = [Stand(stack.enter_context(contextlib.closing(kind(scene.uri))), given.jobs) for kind in kinds]
            compare(scene, found, given.rounds, stands)
            settings = [stand.setting for stand in stands]
            if given.profile:
                profile(found, stands[1], given.jobs / 100)
        count(scene, found, kinds, settings)
        return found


@contextlib.contextmanager
def pinned(wanted: bool) -> Iterator[None]:
    """Have this process, and the servers that it starts meanwhile, share one core."""
    cores = os.sched_getaffinity(0)
    if wanted:
        # What interrupts the machine falls on its first core most of the time.
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def positive(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small, {least} is the least")
        return value

    return number


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/ideal", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="this one alone; may be given again")
    parser.add_argument("--rounds", type=positive(1), default=7, help="how often all take turns (%(default)s)")
    parser.add_argument(
        "--jobs", type=positive(10), default=200, help="for each measurement; ten times that in batches (%(default)s)"
    )
    parser.add_argument("--pin", action="store_true", help="client and server share one core")
    parser.add_argument("--no-peers", action="store_true", help="the ideal and the board alone")
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp"), help="where servers keep their files, on a disk (%(default)s)"
    )
    parser.add_argument(
        "--volatile", action="store_true", help="take a folder in memory, too, to leave the disk out of it"
    )
    parser.add_argument("--profile", action="store_true", help="tell where the board's client spends its time, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds to this file")
    given = parser.parse_args()
    with pinned(given.pin):
        found = [measure(backend, given) for backend in given.backend or BACKENDS]
    if given.json:
        settings = {"rounds": given.rounds, "jobs": given.jobs, "pin": given.pin, "cores": os.cpu_count()}
        given.json.write_text(json.dumps(as_json(found, settings), indent=1) + "\n")
    if given.volatile:
        print("Files may have been in memory. No commit waits for a disk then: this shows CPU and round trips alone.\n")
    print(document(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
