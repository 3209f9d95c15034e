"""A job of ours as one of TaskFlow's, the iterator over a board's jobs, and errors of ours as TaskFlow's."""

from __future__ import annotations

import contextlib
import datetime
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from taskflow import exceptions as theirs
from taskflow import states
from taskflow.jobs import base

from jobboard.contrib.taskflow.encoding import decode_details
from jobboard.exceptions import (
    ClaimLost,
    ConnectionFailure,
    JobBoardError,
    JobFailure,
    JobTrashed,
    MissingDriver,
    NoKey,
    NotFound,
    UnclaimableJob,
)
from jobboard.job import Job
from jobboard.priorities import JobPriority
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED

DOES_NOT_EXPIRE, NOT_CLAIMED = -1, -2
"""Values of ``expires_in``: TaskFlow's DOES_NOT_EXPIRE and KEY_NOT_FOUND. Their module needs redis-py."""

_STATES = {
    UNCLAIMED: states.UNCLAIMED,
    SCHEDULED: states.UNCLAIMED,
    CLAIMED: states.CLAIMED,
    COMPLETE: states.COMPLETE,
    TRASHED: states.COMPLETE,
}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise TaskFlow's exception of the same name, with ours as its cause, or else TaskFlow's ``JobFailure``."""
    try:
        yield
    except (NotFound, MissingDriver) as error:
        raise theirs.NotFound(error.message, error) from error
    except (UnclaimableJob, NoKey) as error:
        # TaskFlow's conductors go on to the next job.
        raise theirs.UnclaimableJob(error.message, error) from error
    except JobBoardError as error:
        raise theirs.JobFailure(error.message, error) from error


@functools.total_ordering
class TaskFlowJob(base.Job):
    """A job on a board of this bridge. ``jobboard_job`` is our job underneath."""

    def __init__(self, board: Any, job: Job, persistence: Any = None, book: Any = None) -> None:
        kept: dict[str, str | None] = {}
        # The claim of a job that can't be decrypted is refused.
        with contextlib.suppress(NoKey):
            kept = {} if book is not None else {"name": job.book_name, "uuid": job.book_uuid}
        super().__init__(board, job.name, job.uuid, backend=persistence, book=book, book_data=kept)
        self.jobboard_job = job

    @functools.cached_property
    def details(self) -> Any:
        try:
            with translated():
                return decode_details(self.jobboard_job.details)
        except ValueError as error:
            raise theirs.JobFailure(f"{self} has details that can't be read: {error}", error) from error

    @property
    def priority(self) -> base.JobPriority:
        """TaskFlow's nearest priority at or below that of the job."""
        number = self.jobboard_job.priority
        return base.JobPriority[next((name for name in JobPriority if name <= number), JobPriority.VERY_LOW).name]

    @property
    def sequence(self) -> int:
        return self.jobboard_job.sequence

    @property
    def created_on(self) -> datetime.datetime:
        """The time of the post, in UTC and without a zone, as on TaskFlow's Redis board."""
        return self.jobboard_job.created_on.replace(tzinfo=None)

    @property
    def last_modified(self) -> datetime.datetime:
        """The time of the last change, as :attr:`created_on`. The server is asked."""
        with translated():
            self.jobboard_job.state  # noqa: B018 - it reads the record anew
        return self.jobboard_job.last_modified.replace(tzinfo=None)

    @property
    def state(self) -> str:
        with translated():
            return _STATES[self.jobboard_job.state]

    def wait(
        self,
        timeout: float | None = None,
        delay: float = 0.01,
        delay_multiplier: float = 2.0,
        max_delay: float = 60.0,
        sleep_func: Callable[[float], object] = time.sleep,
    ) -> bool:
        """Wait until the job is complete; False if it is not after ``timeout`` seconds.

        A trashed job is complete, as :attr:`state` says.
        """
        with translated():
            try:
                return self.jobboard_job.wait(timeout, delay, delay_multiplier, max_delay, sleep_func)
            except JobTrashed:
                return True

    def expires_in(self) -> float:
        """Return the seconds left of the claim; -1: a board keeps it; -2: the job is not claimed."""
        with translated():
            try:
                left = self.jobboard_job.expires_in()
            except NotFound:
                return NOT_CLAIMED
        return DOES_NOT_EXPIRE if left is None else left

    def extend_expiry(self, expiry: float) -> bool:
        """Have the claim expire in so many seconds. Return whether there is a claim that may be extended.

        The handle that has made a claim extends that very claim. Another handle, as of a thread that scans the board,
        extends the claim of the job's owner, but makes no claim expire that a board keeps.
        """
        job = self.jobboard_job
        with translated():
            try:
                if job.claim is not None:
                    job.claim.extend(expiry)
                elif job.expires_in() is not None:
                    self.board.jobboard.extend(job, job.owner, expiry)
            except ConnectionFailure:
                raise
            except (NotFound, ClaimLost, JobFailure):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return self.jobboard_job == other.jobboard_job if isinstance(other, TaskFlowJob) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.jobboard_job < other.jobboard_job if isinstance(other, TaskFlowJob) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.jobboard_job)

    def __str__(self) -> str:
        """Return a text without the details, which hold private data in real use."""
        return f"{type(self).__name__}: {self.name} (priority={self.priority}, uuid={self.uuid})"


class TaskFlowIterator(base.JobBoardIterator):
    """An iterator over a board's jobs, page by page, each with the state of its page. TaskFlow's own iterator sends a
    request for each job. ``only_unclaimed`` and ``ensure_fresh`` may be set until the first job."""

    _walk: Iterator[TaskFlowJob] | None = None

    def __next__(self) -> TaskFlowJob:
        if self._walk is None:
            self._walk = self._board_fetch_func(ensure_fresh=self.ensure_fresh, only_unclaimed=self.only_unclaimed)
        return next(self._walk)
