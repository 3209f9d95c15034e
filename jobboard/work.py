"""Work on a claimed job, from its claim to its end: ``working()``, and its parts for asyncio."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from jobboard import arguments, followups, logs, outcomes, runtime
from jobboard.claims import Claims
from jobboard.exceptions import ClaimLost, JobBoardError, NotFound
from jobboard.followups import Then
from jobboard.forks import ForkGuard
from jobboard.job import Claim, ClaimedJob, Job
from jobboard.primitives import End
from jobboard.tracing import Tracing

LOG = logs.Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class _Board(Protocol):
    """What work asks of its board, which is a :class:`~jobboard.board.JobBoard`."""

    tracing: Tracing
    claims: Claims

    def claim_next(self, who: str, *args: Any, **kwargs: Any) -> ClaimedJob | None: ...
    def end_claim(self, claim: Claim, end: End) -> None: ...


class Working(contextlib.AbstractContextManager[ClaimedJob, bool]):
    """The work on a job, as a block or as a function; see :meth:`~jobboard.board.JobBoard.working`."""

    def __init__(self, begin: Callable[[], contextlib.AbstractContextManager[ClaimedJob]]) -> None:
        self._begin = begin
        self._block: contextlib.AbstractContextManager[ClaimedJob] | None = None

    def __enter__(self) -> ClaimedJob:
        if self._block is not None:
            raise RuntimeError("this block is being worked in already; ask the board for another one")
        # Kept before the wait for a job, as another thread may enter meanwhile.
        self._block = block = self._begin()
        try:
            return block.__enter__()
        except BaseException:
            self._block = None
            # An interrupt may have come as soon as a job was claimed.
            block.__exit__(*sys.exc_info())
            raise

    def __exit__(self, *error: Any) -> bool:
        block, self._block = self._block, None
        assert block is not None
        return bool(block.__exit__(*error))

    def __call__(self, function: Callable[Concatenate[ClaimedJob, P], T]) -> Callable[P, T | None]:
        outcomes.check_handler(function)

        @functools.wraps(function)
        def work(*args: P.args, **kwargs: P.kwargs) -> T | None:
            with self._begin() as job:
                result = function(job, *args, **kwargs)
                if isinstance(result, Then):
                    follow(job, result)
                outcomes.check_result(result)
                return result
            return None  # type: ignore[unreachable]  # the block swallows Retry, Reject and Cancelled

        return work


@contextlib.contextmanager
def block(board: _Board, who: str, wish: dict[str, Any]) -> Iterator[ClaimedJob]:
    """Claim a job, and end its claim by the outcome of this block.

    :param wish: the arguments of :meth:`~jobboard.board.JobBoard.claim_next`; ``names`` and ``timeout`` are there.
    """
    job: ClaimedJob | None = None
    try:
        try:
            for each in wishes(wish):
                job = board.claim_next(who, **each)
                if job is None:
                    raise nothing_claimed(wish["timeout"])
                end = outcomes.refused_work(job)
                if end is None:
                    break
                refused, job = job, None
                refuse(board, refused, end)
            assert job is not None
            with around(board, job):
                yield job
        except BaseException as error:
            if job is None or not conclude(board, job, error):
                raise
        else:
            conclude(board, job, None)
    except BaseException:
        if job is not None:
            # After an interrupt before the end of the claim began, nobody else lets go of the claim.
            board.claims.let_lapse(claim_of(job))
        raise


def follow(job: ClaimedJob, then: Then) -> None:
    """Consume a job with the follow-ups that its work has returned.

    :raises TypeError, ValueError: a follow-up does not fit.
    """
    end = followups.end_of(job, then)
    # Work that has seen its claim lost does not count: the end of the block says so.
    if not job.claim.lost:
        job.board.end_claim(job.claim, end)


def refuse(board: _Board, job: Job, end: End) -> None:
    """End the claim of a job whose work is not to run. An error is raised unless somebody else has taken the job."""
    claim = claim_of(job)
    try:
        board.end_claim(claim, end)
    except BaseException as error:
        board.claims.let_lapse(claim)
        if not isinstance(error, ClaimLost | NotFound):
            raise
    else:
        LOG.warning("%s is in the trash: %s", job, end.error, extra=logs.fields(job))


@contextlib.contextmanager
def around(board: _Board, job: Job) -> Iterator[None]:
    """Do the work on ``job`` within this block."""
    with outcomes.working_on(job), board.tracing.run(job), ForkGuard():
        yield


def conclude(board: _Board, job: Job, error: BaseException | None) -> bool:
    """End the claim of a job whose work has returned or raised ``error``. Return whether ``error`` goes no further.

    :raises ClaimLost: the work has returned, but does not count.
    :raises JobBoardError: the work has returned, but the job could not be consumed.
    :raises Exception: ``error`` asks for the impossible; this error counts in its place.
    """
    claim = claim_of(job)
    end, counts = outcomes.judged(error, job)
    if not board.claims.leave_to_end(claim):
        try:
            board.end_claim(claim, end)
        except BaseException as failure:
            board.claims.let_lapse(claim)
            if error is None or not isinstance(failure, JobBoardError):
                raise
            if not isinstance(counts, outcomes.Cancelled):
                LOG.warning("could not give back %s: %s", job, failure, extra=logs.fields(job))
        if error is None and end is not outcomes.CONSUMED:
            lost = ClaimLost(f"{job}: {outcomes.IN_VAIN}")
            lost.job = job
            raise lost
    if isinstance(counts, outcomes.STEERING):
        return True
    if counts is not None and counts is not error:
        raise counts
    return False


def claim_of(job: Job) -> Claim:
    """Return the claim of a claimed job."""
    assert job.claim is not None
    return job.claim


def wishes(wish: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of one claim after another. Each claim waits for the rest of the first one's timeout."""
    begun, timeout = runtime.monotonic(), wish["timeout"]
    # The names may come from an iterator, which gives them once.
    wish = {**wish, "names": arguments.names(wish["names"])}
    yield wish
    while True:
        left = None if timeout is None else max(0.0, begun + timeout - runtime.monotonic())
        yield {**wish, "timeout": left}


def nothing_claimed(timeout: float | None) -> NotFound:
    """Return the error of a wait without a job."""
    return NotFound("no job was claimed" if timeout is None else f"no job to claim in {timeout:g} s")
