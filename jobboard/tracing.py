"""Tracing: the hook by which a program follows jobs from their posts to their work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from jobboard.job import Job, Posting


class Tracing:
    """The hook ``board.tracing``. A program sets a subclass, whose methods are called in the acting thread.

    Their errors go to the caller; jobs that were claimed by then are given back first, and that attempt does not count.
    Messages from one process to another about a job travel as its ``context``.
    """

    def post(self, postings: Sequence[Posting], insert: Callable[[Sequence[Posting]], list[Job]]) -> list[Job]:
        """Have ``insert`` post these postings, or the same postings with more ``context``."""
        return insert(postings)

    def claimed(self, job: Job, since: float) -> None:
        """Record a claim by a request that was sent at ``since``, on :func:`~jobboard.runtime.boottime`. This may set
        ``job.context`` for the work in this process."""

    def refused(self, job: Job, why: str, since: float) -> None:
        """Record a refused ``claim(job)`` by a request that was sent at ``since``. ``why`` is ``limited``, ``paused``,
        ``claimed``, ``scheduled``, ``trashed`` or ``absent``."""

    def run(self, job: Job) -> AbstractContextManager[object]:
        """Return the block around the work of ``with board.working(…)``."""
        return nullcontext()


NO_TRACING = Tracing()
