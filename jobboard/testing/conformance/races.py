"""Many at once, with all that can happen to a claim; :mod:`jobboard.testing.history` judges what was recorded."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, NotFound
from jobboard.job import Job, Posting, boottime
from jobboard.priorities import JobPriority
from jobboard.testing.conformance.support import SHORT, MakeBoard
from jobboard.testing.history import HistoryEntry, judge, left_over
from jobboard.testing.recording import Recorder, left_on

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

    def test_whatever_happens_nothing_is_lost_or_done_twice(self, make_board: MakeBoard) -> None:
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

    def test_one_after_the_other(self, board: JobBoard) -> None:
        """Where nothing overlaps the order is exact, and the history can tell."""
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
        claims = [entry for entry in book.entries if entry.verb == "claim"]
        turned = [entry._replace(uuid=claims[-1 - n].uuid) for n, entry in enumerate(claims)]
        posts = [entry for entry in book.entries if entry.verb == "post"]
        assert any("out of order" in fault for fault in judge(posts + turned, {}))

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
