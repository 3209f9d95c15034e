"""Moving between real servers, by processes that are killed on the way, while both boards are worked on."""

import itertools
import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import jobboard
from jobboard import codec
from jobboard.board import JobBoard
from jobboard.job import Act, Posting
from jobboard.moving import Mover
from jobboard.states import Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import plant
from tests.full import FULL, IN_FULL
from tests.support.moving import fill, shown
from tests.support.servers import selected_backends

KINDS = ("sqlite", "postgresql", "redis", "zookeeper", *IN_FULL)
pytestmark = [pytest.mark.backends(*KINDS), pytest.mark.timeout(300)]

MOVER = Path(__file__).parents[1] / "support/mover.py"
KILLED = -9


CHOSEN = [kind for kind in KINDS if kind in selected_backends()]
# Each backend once as the source, and once as the target.
SOME = list(zip(CHOSEN, CHOSEN[1:] + CHOSEN[:1], strict=True))
ALL = list(itertools.permutations(CHOSEN, 2)) if FULL and len(CHOSEN) > 1 else SOME


class Move:
    """Two boards of these kinds."""

    def __init__(self, confs: list[dict[str, Any]]) -> None:
        self._confs = confs
        self.source, self.target = (self.board(conf) for conf in confs)

    def board(self, conf: dict[str, Any]) -> JobBoard:
        board: JobBoard = jobboard.fetch("board", conf)
        board.connect()
        return board

    def start(self, kills: list[tuple[int, float]]) -> subprocess.Popen[str]:
        uris = [f"{conf['board']}?{urlencode({k: v for k, v in conf.items() if k != 'board'})}" for conf in self._confs]
        given = {"words": ["move", *uris, "--name", "board", "--wait"], "kills": kills}
        command = [sys.executable, str(MOVER), json.dumps(given)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def close(self) -> None:
        self.source.close()
        self.target.close()


@pytest.fixture
def move(request: pytest.FixtureRequest, conf_of: Callable[[str], dict[str, Any]]) -> Iterator[Move]:
    made = Move([conf_of(kind) for kind in request.param])
    yield made
    made.close()


def ended(process: subprocess.Popen[str], seconds: float = 90) -> list[int]:
    """Return the statuses of the killed movers. The last one has come to its end."""
    out, error = process.communicate(timeout=seconds)
    assert process.returncode == 0, error
    statuses: list[int] = json.loads(out.splitlines()[-1])
    assert statuses[-1] == 0, error
    return statuses[:-1]


@pytest.mark.parametrize("move", ALL, indirect=True, ids="-to-".join)
def test_killed_movers_lose_nothing(move: Move) -> None:
    chance = random.Random()
    for number in range(5):
        move.source.schedule(f"number {number}", name="report", every=3600, details={"n": number})
    done = move.source.post("done", key="done", key_for=600)
    move.source.claim(done, "anna")
    move.source.consume(done, "anna")
    jobs = fill(move.source, plain=33)
    before, schedules = shown(move.source), move.source.schedules()
    # The first mover has at least so many changes to make.
    kills = [(chance.randint(3, most), chance.uniform(0, 0.005)) for most in (12, 30, 30, 30, 30)]
    statuses = ended(move.start(kills))
    assert KILLED in statuses
    assert shown(move.target) == before, f"killed at {kills}"
    assert len(before) == len(jobs) == 40
    assert shown(move.source) == []
    assert (move.source.schedules(), move.target.schedules()) == ([], schedules)
    assert move.target.post("done", key="done").uuid == done.uuid


class Worker(threading.Thread):
    """Executes what it can claim."""

    def __init__(self, board: JobBoard, together: int) -> None:
        super().__init__(daemon=True)
        self._board = board
        self._together = together
        self.done: list[str] = []
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.is_set():
            for job in self._board.claim_many("worker", self._together, timeout=0.02):
                self.done.append(job.uuid)
                self._board.consume(job, "worker")


@pytest.mark.parametrize("move", ALL if FULL else SOME[::2], indirect=True, ids="-to-".join)
def test_two_movers_killed_while_both_boards_are_worked_on(move: Move) -> None:
    chance = random.Random()
    jobs = fill(move.source, plain=150)
    source, target = Worker(move.source, 1), Worker(move.target, 5)
    kills = [[(chance.randint(3, 12), chance.uniform(0, 0.005)) for _ in range(4)] for _ in range(2)]
    processes = [move.start(each) for each in kills]
    target.start()
    eventually(lambda: target.done, 60)
    source.start()
    assert KILLED in [status for process in processes for status in ended(process)]
    source.end()
    eventually(lambda: move.target.stats().on_board == 2, 60)
    target.end()
    assert move.source.stats().on_board == move.source.stats().trashed == 0
    left = [*move.target.iterjobs(states=["SCHEDULED"]), *move.target.trashed()]
    assert Counter([*source.done, *target.done, *(job.uuid for job in left)]) == Counter(job.uuid for job in jobs), (
        kills
    )


@pytest.mark.rule("Jobs that were trashed at one instant keep their order across a move.")
@pytest.mark.parametrize("move", SOME, indirect=True, ids="-to-".join)
def test_jobs_that_were_trashed_at_once_keep_their_order(move: Move) -> None:
    move.source.post_many([Posting("job") for _ in range(20)])
    claimed = move.source.claim_many("worker", 20)
    move.source.finish_many([Act(job, Verb.TRASH, error="no use") for job in claimed], "worker")
    before = [job.uuid for job in move.source.trashed()]
    assert Mover(move.source, move.target).run().trashed == 20
    trash = list(move.target.trashed())
    assert [job.uuid for job in trash] == before
    for job in trash:
        move.target.restore(job)
    assert [job.uuid for job in move.target.iterjobs()] == before[::-1]


@pytest.mark.backends("zookeeper")
@pytest.mark.parametrize("move", [("sqlite", "zookeeper")], indirect=True, ids="-to-".join)
def test_jobs_too_large_for_a_request_stay_alone(move: Move) -> None:
    """Jobs that are too large together move in several requests."""
    jobs = [move.source.post("job", details={"a": "é" * 20_000}) for _ in range(40)]
    for job in move.source.claim_many("worker", 40):
        move.source.abandon(job, "worker", error="ø" * 8192)
    posting = codec.encode(codec.Content({"a": "x" * 2**20}), move.source.engine.wire)
    huge = plant(move.source, posting)
    [left] = Mover(move.source, move.target).run().left
    assert left.uuid == huge
    assert "1 MB" in left.why
    assert [(job.uuid, job.details, job.error) for job in move.target.iterjobs()] == [
        (job.uuid, job.details, "ø" * 8192) for job in jobs
    ]
