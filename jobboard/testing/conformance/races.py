"""Races of several processes: each job is consumed once and in its order, as the recorded history shows."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, NotFound
from jobboard.job import Job, Posting
from jobboard.priorities import JobPriority
from jobboard.runtime import boottime
from jobboard.testing import holds
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.support import LIMIT, SHORT, Background, MakeBoard
from jobboard.testing.history import HistoryEntry, judge, left_over
from jobboard.testing.recording import Recorder, from_files, left_on, to_file

JOBS = 60

WORKERS = 4


class Journal:
    """Collects the entries of several recorders."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], HistoryEntry] = {}
        self._lock = threading.Lock()

    def recorder(self, board: JobBoard, process: str) -> Recorder:
        def write(number: int, entry: HistoryEntry) -> None:
            with self._lock:
                self._entries[process, number] = entry

        return Recorder(board, process, write)

    @property
    def entries(self) -> list[HistoryEntry]:
        return list(self._entries.values())


def mistreat(recorder: Recorder, job: Job, dice: random.Random) -> None:
    """Do to a claimed job one of the things that can be done to it; some of them end in losing it."""
    fate = dice.randrange(10)
    if fate < 5:
        recorder.consume(job)
    elif fate == 5:
        recorder.abandon(job)
    elif fate == 6:
        recorder.abandon(job, delay=SHORT, error="later")
    elif fate == 7:
        recorder.extend(job, SHORT)  # and leave it there
    elif fate == 8:
        recorder.release(recorder.board.get(job.uuid))
        recorder.consume(job)
    else:
        recorder.extend(job, SHORT)
        threading.Event().wait(SHORT * dice.choice((0.5, 1, 2)))
        recorder.consume(job)


class TestRaces:
    any_driver = True

    def test_random_acts_lose_no_job_and_consume_none_twice(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(WORKERS)]
        book = Journal()
        poster = book.recorder(boards[0], "poster")
        deadline = boottime() + 30

        def work(number: int) -> list[object]:
            recorder, dice = book.recorder(boards[number], f"worker {number}"), random.Random(number)
            while boards[number].job_count and boottime() < deadline:
                job = recorder.claim_next(f"worker {number % 2}", timeout=SHORT)
                if job is not None:
                    mistreat(recorder, job, dice)
            return [error for error in recorder.failures if not isinstance(error, (ClaimLost, NotFound))]

        priorities = list(JobPriority)
        poster.post_many([Posting(f"job {n}", priority=priorities[n % 5]) for n in range(JOBS)])
        with ThreadPoolExecutor(WORKERS) as pool:
            unexpected = [error for errors in pool.map(work, range(WORKERS)) for error in errors]
        assert unexpected == []
        board = left_on(boards[0])
        assert judge(book.entries, board) == []
        assert left_over(board) == []

    def test_order_is_exact_without_overlap(self, board: JobBoard) -> None:
        """The order is exact where no claims overlap, and the history shows that."""
        if not board.characteristics.exact_order:
            return
        book = Journal()
        recorder = book.recorder(board, "one")
        for priority in ("LOW", "HIGH", "NORMAL", "HIGH", "LOW", "NORMAL"):
            recorder.post_many([Posting("resize", priority=priority)])
        served = []
        while (job := recorder.claim_next("anna")) is not None:
            served.append(job)
            recorder.consume(job)
        assert served == sorted(served)
        assert judge(book.entries, left_on(board)) == []

    @pytest.mark.parametrize("together", [2, 8])
    def test_batches(self, make_board: MakeBoard, together: int) -> None:
        boards = [make_board() for _ in range(WORKERS)]
        book = Journal()
        book.recorder(boards[0], "poster").post_many([Posting("resize")] * JOBS)

        def work(number: int) -> int:
            recorder = book.recorder(boards[number], f"worker {number}")
            done = 0
            while jobs := recorder.claim_many("anna", together, timeout=SHORT):
                assert set(recorder.consume_many(jobs, "anna")) == {"ok"}
                done += len(jobs)
            assert recorder.failures == []
            return done

        with ThreadPoolExecutor(WORKERS) as pool:
            assert sum(pool.map(work, range(WORKERS))) == JOBS
        assert judge(book.entries, left_on(boards[0])) == []


CLAIMANTS = 3

BEFORE, MEANWHILE = 60, 60

PRIORITIES = ("VERY_LOW", "LOW", "NORMAL", "HIGH", "VERY_HIGH")

NAMES = ("mail", "print", "resize")


class Claimant(NamedTuple):
    """A worker: how many jobs it takes at once, of which names, and the share that it gives back."""

    together: int
    names: tuple[str, ...] | None = None
    gives_back: int | None = None

    def work(self, board: JobBoard, process: str, folder: Path) -> list[str]:
        """Claim and consume until nothing more comes; what went wrong."""
        recorder, dice = Recorder(board, process, to_file(folder / process)), random.Random(process)
        over, deadline = folder / "over", boottime() + LIMIT
        while boottime() < deadline:
            last = over.exists()
            jobs = recorder.claim_many(process, self.together, names=self.names)
            back = [job for job in jobs if self.gives_back and not dice.randrange(self.gives_back)]
            for job in back:
                recorder.abandon(job)
            recorder.consume_many([job for job in jobs if job not in back], process)
            if last and not jobs:
                break
        return [repr(error) for error in recorder.failures]


ALIKE = [Claimant(1)] * CLAIMANTS

MIXED = [Claimant(1), Claimant(2, NAMES[:2]), Claimant(3, gives_back=2)]


def posting(dice: random.Random, priority: str | None = None) -> Posting:
    return Posting(dice.choice(NAMES), group=dice.choice("xyz"), priority=priority or dice.choice(PRIORITIES))


def post(board: JobBoard, folder: Path) -> None:
    """While others claim: most of it in any order, and the last of it with rising priorities."""
    recorder, dice = Recorder(board, "poster", to_file(folder / "poster")), random.Random(1)
    for number in range(MEANWHILE):
        rising = PRIORITIES[(number - MEANWHILE // 2) * len(PRIORITIES) // (MEANWHILE // 2)]
        recorder.post_many([posting(dice, None if number < MEANWHILE // 2 else rising)])
    (folder / "over").touch()


def shared(board: JobBoard) -> bool:
    """Return whether a forked child's board is the parent's, and not a copy."""
    uuid = in_child(lambda: board.post("to be seen").uuid)()
    try:
        job = board.get(uuid)
    except NotFound:
        assert not board.characteristics.durable
        return False
    board.cancel(job)
    board.purge(job)
    return True


class TestContention:
    any_driver = True

    @holds("A take of several names serves nobody before a better job.")
    @pytest.mark.parametrize(
        ("workers", "limited"),
        [(ALIKE, False), (MIXED, False), (MIXED, True)],
        ids=["one", "mixed", "limited"],
    )
    def test_nobody_is_served_before_a_better_one(
        self,
        board: JobBoard,
        make_board: MakeBoard,
        board_conf: dict[str, Any],
        tmp_path: Path,
        workers: list[Claimant],
        limited: bool,
    ) -> None:
        """Limited: by limits with room for all, which take other ways."""
        if not board.characteristics.exact_order:
            return
        folder = tmp_path / "history"
        folder.mkdir()

        def child(worker: Claimant, process: str) -> Callable[[], Any]:
            def run() -> list[str]:
                mine = jobboard.fetch(board.name, board_conf)
                mine.connect()
                return worker.work(mine, process, folder)

            return in_child(run)

        def thread(worker: Claimant, process: str) -> Callable[[], Any]:
            mine = make_board()
            return Background(lambda: worker.work(mine, process, folder)).wait

        start = child if shared(board) else thread
        first = Recorder(board, "first", to_file(folder / "first"))
        dice = random.Random(workers[0].together)
        for name in NAMES if limited else ():
            first.set_limit(name, per="group", concurrency=BEFORE + MEANWHILE)
        first.post_many([posting(dice) for _ in range(BEFORE)])
        answers = [start(worker, f"worker {number}") for number, worker in enumerate(workers)]
        post(board, folder)
        assert [answer() for answer in answers] == [[]] * CLAIMANTS
        entries = from_files(file for file in folder.iterdir() if file.name != "over")
        assert judge(entries, left_on(board), contended=True, limits=first.limits) == []
        assert left_over(left_on(board)) == []
