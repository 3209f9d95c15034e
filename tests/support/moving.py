"""A board with jobs of all kinds, and what is to be seen of them before and after a move."""

from __future__ import annotations

from typing import Any

from jobboard.board import JobBoard
from jobboard.job import Act, Job, Posting
from jobboard.testing.conformance.support import trash_one

_PRIORITIES = ["LOW", 51, "NORMAL", "HIGH"]


def fill(board: JobBoard, plain: int = 4) -> list[Job]:
    """``plain`` jobs that were just posted, six with a story of their own, and two in the trash."""
    retried = board.post("retried", details={"a": [1]}, max_attempts=9)
    board.claim(retried, "worker")
    board.finish_many([Act(retried, "abandon", retry=True)], "worker")
    board.claim(retried, "worker")
    board.abandon(retried, "worker", delay=500, error="try later")
    restored = trash_one(board, "restored", max_attempts=1)
    board.restore(restored)
    failed = board.post("failed", max_attempts=2, group="ours")
    board.claim(failed, "worker")
    board.abandon(failed, "worker", error="once more")
    return [
        *board.post_many(
            Posting(f"job {n}", details={"n": n, "é": [None, 0.5]}, priority=_PRIORITIES[n % 4]) for n in range(plain)
        ),
        board.post("keyed", key="k", max_attempts=3),
        board.post("delayed", delay=1000),
        retried,
        restored,
        failed,
        trash_one(board, "trashed", key="k2"),
        trash_one(board, "trashed too", key="k2", max_attempts=1),
    ]


def shown(board: JobBoard) -> list[tuple[Any, ...]]:
    """All that is on a board and in its trash, in order, with all that a move leaves as it is."""
    live = [(*_shown(job), job.due) for job in board.iterjobs()]
    return [*live, *((*_shown(job), job.last_modified) for job in board.trashed())]


def _shown(job: Job) -> tuple[Any, ...]:
    fields = (
        job.uuid,
        job.name,
        job.details,
        job.priority,
        job.key,
        job.attempts,
        job.retries,
        job.max_attempts,
        job.errors,
        job.group,
    )
    return (*fields, job.created_on, job.seen_state)
