"""Five workers at a board with many free jobs, while leases lapse, delays end and claims are consumed late: no claim
returns without a job, and each consumed job leaves its result."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.job import Job, Posting
from jobboard.testing.conformance.support import Background
from jobboard.testing.history import HistoryEntry, judge
from jobboard.testing.recording import Recorder, left_on
from tests.full import FULL, IN_FULL

ROUNDS = 1000 if FULL else 150
WORKERS = 5
JOBS = 150 + WORKERS * ROUNDS // 10
LATE = 5
"""The number of claims after which a short claim is consumed."""


def work(recorder: Recorder, dice: random.Random) -> None:
    who, numbers = recorder.process, itertools.count()
    held: list[Job] = []
    for _ in range(ROUNDS):
        consumes = dice.random() < 0.1
        # Many of these claims have lapsed when they are consumed, and others write that down.
        for job in recorder.claim_many(who, 1, expiry=0.03 if consumes else 10):
            if consumes:
                held.append(job)
            else:
                recorder.abandon(job, delay=dice.choice([None, 0.02, 0.05]))
        while len(held) > LATE:
            recorder.consume(held.pop(0), f"{who} {next(numbers)}")


@pytest.mark.rule("No claim is empty beside free jobs, whatever lapses, comes due or is claimed by others meanwhile.")
@pytest.mark.rule("An acknowledged consume leaves its result, also as its claim lapses.")
@pytest.mark.backends("memory", "sqlite", "postgresql", "mariadb", "redis", "zookeeper", *IN_FULL)
def test_no_claim_is_empty_beside_free_jobs_and_no_result_is_lost(make_board: Callable[..., Any]) -> None:
    entries: dict[tuple[str, int], HistoryEntry] = {}

    def recorder(process: str) -> Recorder:
        def write(number: int, entry: HistoryEntry) -> None:
            entries[process, number] = entry

        return Recorder(make_board(keep_done=600), process, write)

    poster = recorder("poster")
    poster.post_many([Posting("job") for _ in range(JOBS)])
    workers = [recorder(f"worker {number}") for number in range(WORKERS)]
    runs = [Background(lambda each=each: work(each, random.Random(each.process))) for each in workers]
    for run in runs:
        run.wait(120)
    faults = judge(entries.values(), left_on(poster.board))
    assert faults == []
