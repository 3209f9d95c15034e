"""Where a board lets somebody follow its jobs from who posts them to who works on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from jobboard.job import Job, Posting


class Tracing:
    """Set another one as ``board.tracing`` to be told, in the thread that acts; what it raises goes to the caller. Jobs
    that were claimed by then are given back first; that attempt does not count.

    What one process has to tell another about a job travels with it as its ``context``.
    """

    def post(self, postings: Sequence[Posting], insert: Callable[[Sequence[Posting]], list[Job]]) -> list[Job]:
        """Have ``insert`` post these, or the same with something in their ``context``."""
        return insert(postings)

    def claimed(self, job: Job, since: float) -> None:
        """``job`` was claimed by a request that was sent at ``since``, on :func:`~jobboard.job.boottime`. May set
        ``job.context`` for those who work on it in this process."""

    def refused(self, job: Job, why: str, since: float) -> None:
        """``claim(job)`` was refused, by a request that was sent at ``since``; ``why``: ``limited``, ``paused``,
        ``claimed``, ``scheduled``, ``trashed`` or ``absent``."""

    def run(self, job: Job) -> AbstractContextManager[object]:
        """What the work in a ``with board.working(…)`` is done within."""
        return nullcontext()


NO_TRACING = Tracing()
