"""Order: a higher priority first, then the oldest post; what comes back, comes back to its old place."""

from __future__ import annotations

import random

from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.priorities import JobPriority
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, SHORT, assert_order, take, until_free, uuids

PRIORITIES: list[int | str] = [100, 99, 1, JobPriority.NORMAL, -1, "LOW", -99, -100]


def drain(board: JobBoard) -> list[str]:
    served = []
    while (job := board.claim_next("anna")) is not None:
        served.append(job.uuid)
    return served


def post_mixed(board: JobBoard, count: int = 25) -> list[Job]:
    """Jobs of all priorities, mixed; in the order in which they are to be served."""
    dice = random.Random(7)
    ranks = [dice.randrange(len(PRIORITIES)) for _ in range(count)]
    jobs = [board.post(f"job {number}", priority=PRIORITIES[rank]) for number, rank in enumerate(ranks)]
    return [job for _, _, job in sorted((rank, number, job) for number, (rank, job) in enumerate(zip(ranks, jobs)))]  # noqa: B905


class TestOrder:
    def test_claim_next(self, board: JobBoard) -> None:
        expected = post_mixed(board)
        assert_order(board, drain(board), uuids(expected))

    def test_claim_many(self, board: JobBoard) -> None:
        expected = post_mixed(board)
        first = board.claim_many("anna", 7)
        assert_order(board, uuids([*first, *board.claim_many("anna", 50)]), uuids(expected))

    def test_iterjobs_and_sorted(self, board: JobBoard) -> None:
        expected = post_mixed(board)
        assert_order(board, uuids(board.iterjobs()), uuids(expected))
        jobs = list(board.iterjobs())
        random.Random(3).shuffle(jobs)
        assert sorted(jobs) == expected

    def test_posted_by_several_boards(self, board: JobBoard, other: JobBoard) -> None:
        posted = [(board, other)[number % 2].post("resize") for number in range(10)]
        assert sorted(posted) == posted
        assert_order(board, drain(board), uuids(posted))

    def test_order_holds_among_names(self, board: JobBoard) -> None:
        names = ["a", "b", "c"]
        jobs = [board.post(names[n % 3], priority=PRIORITIES[n % 2 + 1]) for n in range(12)]
        wanted = [job for job in sorted(jobs) if job.name != "b"]
        assert_order(board, uuids(board.iterjobs(names=["c", "a"])), uuids(wanted))
        served = [take(board, names=["c", "a"]) for _ in range(3)] + board.claim_many("anna", 9, names=["a", "c"])
        assert_order(board, uuids(served), uuids(wanted))


class TestPlaces:
    """A job keeps its place until its end."""

    def check(self, board: JobBoard, jobs: list[Job]) -> None:
        assert_order(board, uuids(board.iterjobs(only_unclaimed=True)), uuids(jobs))
        assert_order(board, drain(board), uuids(jobs))

    def test_abandoned_and_released(self, board: JobBoard) -> None:
        jobs = [board.post("resize") for _ in range(5)]
        for job in (jobs[3], jobs[1]):
            board.claim(job, "anna")
        board.abandon(jobs[3], "anna")
        board.release(jobs[1])
        self.check(board, jobs)

    def test_lapsed(self, board: JobBoard) -> None:
        jobs = [board.post("resize", priority=priority) for priority in ("HIGH", "HIGH", "LOW", "LOW")]
        for job in (jobs[2], jobs[0]):
            board.claim(job, "anna", expiry=SHORT)
        for job in (jobs[2], jobs[0]):
            until_free(board, job)
        self.check(board, jobs)

    def test_due(self, board: JobBoard) -> None:
        jobs = [board.post("resize", delay=SHORT * (4 - n) if n % 2 else None) for n in range(4)]
        jobs.append(board.post("resize", delay=SHORT, priority="LOW"))
        eventually(lambda: board.stats().scheduled == 0, LIMIT)
        self.check(board, jobs)

    def test_abandoned_with_a_delay(self, board: JobBoard) -> None:
        jobs = [board.post("resize") for _ in range(3)]
        board.abandon(take(board), "anna", delay=SHORT)
        eventually(lambda: board.stats().scheduled == 0, LIMIT)
        self.check(board, jobs)

    def test_restored(self, board: JobBoard) -> None:
        jobs = [board.post("resize", priority=priority) for priority in ("HIGH", "NORMAL", "NORMAL", "LOW")]
        board.cancel(jobs[1])
        board.claim(jobs[0], "anna")
        board.trash(jobs[0], "anna")
        jobs.append(board.post("resize", priority="LOW"))
        board.restore(jobs[1])
        board.restore(jobs[0])
        self.check(board, jobs)

    def test_overdue_jobs_keep_their_order(self, board: JobBoard) -> None:
        """More than one sweep brings back; nothing is forgotten, and an empty answer is not given too early."""
        board.post_many([Posting("resize", delay=SHORT)] * 150 + [Posting("crop")] * 5)
        held = board.claim_many("anna", 5, expiry=SHORT, names=["crop"])
        assert [job.name for job in held] == ["crop"] * 5
        eventually(lambda: board.stats().unclaimed == 155, LIMIT)
        assert len(drain(board)) == 155
        assert board.stats().claimed == 155

    def test_a_name_behind_many_overdue_of_another(self, board: JobBoard) -> None:
        board.post_many([Posting("resize", delay=SHORT)] * 230)
        last = board.post("crop", delay=SHORT * 2)
        eventually(lambda: board.stats().unclaimed == 231, LIMIT)
        assert take(board, names=["crop"]) == last
