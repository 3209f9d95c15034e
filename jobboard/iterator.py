"""Walks through a board page by page, in the order in which jobs are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jobboard.job import Board, Job
from jobboard.primitives import Seen
from jobboard.states import Record


class JobBoardIterator(Iterator[Job]):
    """Iterates over the jobs of a board, highest priority and oldest post first.

    Each job comes with the state that its page was read in, in ``seen_state``. A page is read when it is needed, one
    request for up to 500 jobs; what changes on the board behind the iterator's back is not seen again. A posting
    that can't be decoded is skipped with a warning.
    """

    def __init__(
        self,
        board: Board,
        read: Callable[[Record | None], list[Seen]],
        fits: Callable[[Seen], bool],
        make: Callable[[Seen], Job | None],
        page_size: int,
        *,
        after: Record | None = None,
        only_unclaimed: bool = False,
        ensure_fresh: bool = False,
    ) -> None:
        self.board = board
        self.only_unclaimed = only_unclaimed
        self.ensure_fresh = ensure_fresh
        self._jobs = self._walk(read, fits, make, page_size, after)

    def __iter__(self) -> JobBoardIterator:
        return self

    def __next__(self) -> Job:
        return next(self._jobs)

    @staticmethod
    def _walk(
        read: Callable[[Record | None], list[Seen]],
        fits: Callable[[Seen], bool],
        make: Callable[[Seen], Job | None],
        page_size: int,
        after: Record | None,
    ) -> Iterator[Job]:
        while page := read(after):
            for seen in page:
                job = make(seen) if fits(seen) else None
                if job is not None:
                    yield job
            if len(page) < page_size and fits(page[-1]):
                return
            after = page[-1].record
