"""Errors, as one tree::

    JobBoardError                 everything of this library's own
    ├── NotFound                  not on the board, not claimed, or not in time; an unknown board type
    ├── MissingDriver             a backend's package is not installed; names the extra that brings it
    └── JobFailure                the request was understood and refused, or could not be carried out
        ├── UnclaimableJob        somebody has claimed it, or it is not due yet
        ├── ClaimLost             the claim is no longer this holder's; nothing was changed
        ├── JobTrashed            the job that was waited for ended in the trash
        ├── NoKey                 the content is encrypted, and this board can't decrypt it
        ├── ConnectionFailure     the backend is closed or can't be reached; see its ``outcome``
        └── JobFailures           several of them at once, also an ExceptionGroup

Arguments of a wrong type or value raise Python's own TypeError and ValueError, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal


class JobBoardError(Exception):
    """The root of the tree. ``cause`` is the exception underneath, which is also its ``__cause__``; ``job`` is the job
    that a refused verb was about."""

    job: Any = None

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        if cause is not None:
            self.__cause__ = cause

    @property
    def message(self) -> str:
        return str(self.args[0])


class NotFound(JobBoardError):
    """The job is not on the board, is not claimed, or did not come in time."""


class MissingDriver(JobBoardError):
    """The package that a backend needs is not installed; the message names the extra to install."""


class JobFailure(JobBoardError):
    """The request was refused, or could not be carried out.

    ``posted``: the jobs that stand, where a ``post_many`` failed after some of its batches. ``acted``: the part of an
    ``act`` that stands, as its :class:`~jobboard.finding.Acted`.
    """

    posted: tuple[Any, ...] = ()
    acted: Any = None


class UnclaimableJob(JobFailure):
    """The job is claimed, SCHEDULED, paused or limited; nothing was changed."""


class ClaimLost(JobFailure):
    """The claim has lapsed and gone to another, or was taken away; nothing was changed."""


class JobTrashed(JobFailure):
    """The awaited job will not complete: it lies in the trash."""


class NoKey(JobFailure):
    """The content of the job is encrypted, and the board has no cipher or not the key. A cipher's ``decrypt`` raises
    it, too."""


class ConnectionFailure(JobFailure):
    """The backend is closed or can't be reached.

    ``outcome`` is ``'none'`` when the request surely did not happen and ``'unknown'`` when the retries ran out on a
    request that may have happened: look at the board before you repeat it by hand.

    ``refused`` is true where the backend answers, but not to this user or password, or without such a database, and
    where a file can't be opened: to try again helps only after somebody has changed that.
    """

    def __init__(
        self,
        message: str,
        cause: BaseException | None = None,
        outcome: Literal["none", "unknown"] = "none",
        refused: bool = False,
    ) -> None:
        super().__init__(message, cause)
        self.outcome = outcome
        self.refused = refused


class JobFailures(JobFailure, ExceptionGroup[Exception]):
    """The failed acts of a batch, with an exception for each; the other acts are done.

    ``except*`` reaches into it. ``exceptions`` holds the single failures, each with the ``job`` that it is about.
    """

    def __new__(cls, message: str, exceptions: Sequence[Exception], cause: BaseException | None = None) -> JobFailures:
        return super().__new__(cls, message, exceptions)

    def __init__(self, message: str, exceptions: Sequence[Exception], cause: BaseException | None = None) -> None:
        super().__init__(message, cause)

    def derive(self, excs: Sequence[Any]) -> JobFailures:  # type: ignore[override]
        return JobFailures(self.message, excs)
