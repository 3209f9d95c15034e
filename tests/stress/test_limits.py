"""Eight processes at a board with limits, while some of them are killed and some stopped beyond their leases: no limit
is exceeded, and a dead one's slots come free with its leases."""

import contextlib
import os
import random
import signal
import time
from collections import Counter

import pytest

from jobboard.job import Posting
from jobboard.runtime import boottime
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.history import judge
from jobboard.testing.recording import left_on
from tests.full import FULL
from tests.stress.test_drain import Crew, crew

__all__ = ["crew"]

pytestmark = [
    pytest.mark.backends("postgresql", "redis", *(("sqlite", "mariadb", "zookeeper", "etcd") if FULL else ())),
    pytest.mark.timeout(300),
]

SECONDS = 100.0 if FULL else 4.0
COUNT = 8
TTL = 1.0


def test_no_limit_is_exceeded_in_a_storm(crew: Crew) -> None:
    poster, dice = crew.poster, random.Random(1)
    poster.set_limit("mail", concurrency=3)
    poster.set_limit("resize", concurrency=1, per="group")
    poster.set_limit("print", rate=(5, 0.5))

    def post() -> None:
        if crew.board.job_count < 60:
            poster.post_many(
                [Posting(["mail", "resize", "print", "free"][n % 4], group=f"g{n % 12}") for n in range(40)]
            )

    def start() -> None:
        number = len(crew.processes)
        crew.start("anna", together=1 + number % 3, pause=0.01 * (number % 3), claim_ttl=TTL)

    # A worker ends when the board is empty, which it is not before this one is cancelled.
    last = crew.board.post("last", delay=86_400)
    post()
    for _ in range(COUNT):
        start()
    eventually(lambda: any(entry.verb == Verb.CLAIM for entry in crew.entries()), 30)
    until = boottime() + SECONDS
    while boottime() < until:
        post()
        alive = [process for process in crew.processes if process.poll() is None]
        killed, stopped = dice.sample(alive, 2)
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGSTOP)
            killed.kill()
            start()
            # For longer than a lease, now and then.
            time.sleep(dice.choice((0.1, 0.3, 1.5 * TTL)))
            os.kill(stopped.pid, signal.SIGCONT)
    crew.board.cancel(last)
    crew.board.purge(last)
    assert crew.join(150) == []
    entries = crew.entries()
    assert judge(entries, left_on(crew.board), limits=poster.limits) == []
    done = Counter(entry.name for entry in entries if entry.verb == Verb.POST)
    assert len(done) == 4
    assert crew.board.job_count == 0
