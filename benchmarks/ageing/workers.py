"""The processes of the ageing benchmark: each sends [(verb, seconds), …] and how many jobs it has finished, about once
a second. They have a file of their own, as a process that is spawned imports what it runs by name."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jobboard

DETAILS = {"path": "/srv/images/" + "x" * 165, "width": 640}
TICK = 0.05
"""How often a poster posts, in seconds."""
RETRIED, KEPT = 0.05, 0.01
KEPT_FOR = 10.0


class Reporter:
    def __init__(self, told: Any) -> None:
        self._told = told
        self._times: list[tuple[str, float]] = []
        self._done = 0
        self._sent = time.monotonic()

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._times.append((verb, time.perf_counter() - start))

    def forget(self) -> None:
        """The latest time is not to count: nothing was there to be claimed."""
        self._times.pop()

    def finished(self, jobs: int) -> None:
        self._done += jobs
        if time.monotonic() - self._sent > 0.5:
            self.send()

    def send(self) -> None:
        self._told.put((self._times, self._done))
        self._times, self._done, self._sent = [], 0, time.monotonic()


@dataclass(frozen=True)
class Work:
    """What the processes are to do. ``rate`` 0: drain what is there. mixed: with retries and long jobs. lease: of each
    claim, in seconds; a heartbeat comes every third of that."""

    uri: str
    batch: int
    rate: int
    mixed: bool
    lease: float


def post_steadily(work: Work, told: Any, stop: Any) -> None:
    reporter = Reporter(told)
    owed, last = 0.0, time.monotonic()
    with jobboard.backend("ageing", {"board": work.uri}) as board:
        while not stop.wait(TICK):
            now = time.monotonic()
            owed, last = owed + (now - last) * work.rate, now
            some, owed = int(owed), owed % 1
            if some:
                with reporter.timed("post"):
                    board.post_many([{"name": "resize", "details": DETAILS}] * some)
            reporter.finished(0)


def work_on(work: Work, who: str, told: Any, stop: Any) -> None:
    reporter, dice, kept = Reporter(told), random.Random(who), []
    with jobboard.backend("ageing", {"board": work.uri, "claim_ttl": work.lease}) as board:
        while not stop.is_set():
            with reporter.timed("claim"):
                jobs = board.claim_many(who, work.batch)
            if not jobs:
                reporter.forget()
                # Retried jobs may be yet to come.
                if not (work.rate or kept or board.job_count):
                    break
                # Not a synchronisation: an idle worker would look again after about as long.
                stop.wait(TICK)
            done = []
            for job in jobs:
                fate = dice.random() if work.mixed else 1.0
                if fate < RETRIED and job.attempts == 1:
                    with reporter.timed("abandon"):
                        board.abandon(job, who, delay=dice.random() * 2)
                elif RETRIED <= fate < RETRIED + KEPT:
                    kept.append((time.monotonic() + KEPT_FOR, job))
                    with reporter.timed("extend"):
                        job.claim.extend()
                else:
                    done.append(job)
            while kept and kept[0][0] < time.monotonic():
                done.append(kept.pop(0)[1])
            if done:
                with reporter.timed("consume"):
                    board.consume_many(done, who)
            reporter.finished(len(done))
        reporter.send()
