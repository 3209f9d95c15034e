"""Eight processes post what schedules say, while some of them are killed, some stopped, and half have a wrong clock."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing import eventually
from jobboard.testing.history import HistoryEntry, judge
from jobboard.testing.recording import Recorder, left_on
from tests.full import FULL

SCHEDULERS = Path(__file__).with_name("schedulers.py")
SECONDS = 30.0 if FULL else 3.0
COUNT = 8
EVERY = timedelta(seconds=0.2)


class Claimer:
    """Claims and consumes all jobs, and records a history."""

    def __init__(self, board: Any) -> None:
        self.entries: dict[int, HistoryEntry] = {}
        self._recorder = Recorder(board, "worker", self.entries.__setitem__)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._ends.is_set():
            if jobs := self._recorder.claim_many("worker", 20, timeout=0.1):
                self._recorder.consume_many(jobs, "worker")

    def occasions(self) -> set[str]:
        return {entry.occasion for entry in list(self.entries.values()) if entry.occasion is not None}

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture
def claimer(make_board: Callable[..., Any]) -> Iterator[Claimer]:
    made = Claimer(make_board())
    yield made
    made.end()


@pytest.fixture
def pids(make_board: Callable[..., Any], board_conf: dict[str, Any]) -> Iterator[list[int]]:
    """Of the processes that post, in the order in which they were started."""
    skewed = make_board().characteristics.server_clock
    given = json.dumps({"board": "board", "conf": board_conf, "count": COUNT, "skewed": skewed})
    command = [sys.executable, str(SCHEDULERS), given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        output, found = process.stdout, list[int]()
        assert output is not None
        thread = threading.Thread(target=lambda: found.extend(map(int, output)))
        thread.start()
        yield found
        process.kill()
        thread.join()


def stop_and_kill(pids: list[int]) -> None:
    one, another = random.sample(pids[-COUNT:], 2)
    try:
        # One of them may have been killed before.
        for pid, number in ((one, signal.SIGSTOP), (another, signal.SIGKILL)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(random.uniform(0.1, 0.4))
    finally:
        # Stopped for good, it might hold a lock that all the others wait for.
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGCONT)


@pytest.mark.backends("postgresql", "redis", *(("sqlite", "mariadb", "zookeeper", "etcd") if FULL else ()))
def test_one_job_for_each_due_time(make_board: Callable[..., Any], claimer: Claimer, pids: list[int]) -> None:
    board = make_board()
    for number in range(4):
        board.schedule(f"number {number}", name="report", every=EVERY, missed="all")
    eventually(lambda: len(pids) >= COUNT and claimer.occasions(), 60)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        stop_and_kill(pids)
    assert len(pids) > COUNT
    due = {schedule.id: schedule.next_due for schedule in board.schedules()}
    eventually(lambda: all(schedule.last_posted >= due[schedule.id] for schedule in board.schedules()), 60)
    for schedule in board.schedules():
        board.unschedule(schedule.id)
    eventually(lambda: board.job_count == 0, 60)
    claimer.end()
    assert judge(claimer.entries.values(), left_on(board)) == []
    times: dict[str, list[datetime]] = defaultdict(list)
    for occasion in claimer.occasions():
        schedule, _, due = occasion.rpartition(" at ")
        times[schedule].append(datetime.fromisoformat(due))
    assert len(times) == 4
    for found in map(sorted, times.values()):
        assert found == [found[0] + number * EVERY for number in range(len(found))]
        assert found[-1] - found[0] >= timedelta(seconds=SECONDS)
