"""The walk through the jobs of a board, in the order in which they are served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobboard.job import Job

if TYPE_CHECKING:
    from jobboard.board import JobBoard


class JobBoardIterator(Iterator[Job]):
    """An iterator over the jobs of a board, highest priority and oldest post first.

    Each job comes with the state that its page was read in, in ``seen_state``. A page is read when it is needed, one
    request for up to 500 jobs; later changes on the board do not show. An undecodable posting is skipped with a
    warning.
    """

    def __init__(
        self, board: JobBoard, jobs: Iterator[Job], *, only_unclaimed: bool = False, ensure_fresh: bool = False
    ) -> None:
        self.board = board
        self.only_unclaimed = only_unclaimed
        self.ensure_fresh = ensure_fresh
        self._jobs = jobs

    def __next__(self) -> Job:
        return next(self._jobs)
