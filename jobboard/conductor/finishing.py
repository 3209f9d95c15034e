"""How a conductor hands over what became of its jobs."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobboard import logs, outcomes
from jobboard.base import BATCH
from jobboard.board import JobBoard
from jobboard.conductor.events import JOB_ABANDONED, JOB_CONSUMED, JOB_LOST, JOB_TRASHED
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobBoardError, JobFailure, JobFailures, NotFound
from jobboard.job import Act, Job
from jobboard.outcomes import Verdict
from jobboard.retry import outage_pause
from jobboard.states import COMPLETE, TRASHED
from jobboard.threads import started

LOG = logs.Log(__name__)

PUZZLED = 5.0
"""Seconds that a job stays away whose end the board has met with an error that is none of its own."""

REFUSED_FOR = 30.0
"""For how many seconds an end is tried again that the backend refuses, for want of rights, say: the work is done."""

End = tuple[str, Job]
"""An event, and the job that it is about."""


@dataclass(frozen=True)
class Tally:
    """What a conductor has done so far. ``lost``: results that did not count, as the claim had lapsed or was no longer
    the conductor's, the backend could not be reached any more to hand them over, or the handler's own end of the claim
    was still under way."""

    dispatched: int = 0
    consumed: int = 0
    abandoned: int = 0
    trashed: int = 0
    lost: int = 0


class _Handover:
    """A job whose work has ended, and how its claim is to end."""

    __slots__ = ("act", "doubtful", "job", "refused_on")

    def __init__(self, job: Job, outcome: Verdict) -> None:
        self.job = job
        self.act = Act(job, *outcome)
        # An earlier try to end the claim may have been carried out without our hearing of it.
        self.doubtful = False
        # When the backend has first refused to end it, on this machine's clock.
        self.refused_on: float | None = None


class Finisher:
    """Ends claims on a thread of its own: one at once, and together what comes in meanwhile.

    :param ended: told of jobs how their claims have ended: the events.
    """

    def __init__(self, name: str, board: JobBoard, ended: Callable[[list[End]], None]) -> None:
        self._name = name
        self._board = board
        self._ended = ended
        self._done: queue.SimpleQueue[_Handover | None] = queue.SimpleQueue()
        # Set when nobody is working any more: what can't be handed over now is given up.
        self._hurry = threading.Event()
        self._then: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread of the finisher."""
        self._thread = started(f"{self._name}-finisher", self._run)

    def put(self, job: Job, outcome: Verdict) -> None:
        self._done.put(_Handover(job, outcome))

    def close(self, seconds: float | None, then: Callable[[], None]) -> None:
        """Hand over what is left and do ``then``, for at most so many seconds."""
        self._then = then
        self._hurry.set()
        self._done.put(None)
        if self._thread is None:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            LOG.error("%s leaves jobs to be done again: they could not be handed over in time", self._name)

    def _run(self) -> None:
        failures = 0
        batch: list[_Handover] = []
        last = False
        while batch or not last:
            last = self._gather(batch, last)
            final = self._hurry.is_set()
            try:
                self._finish(batch, final or self._board.closed)
                failures = failures + 1 if batch else 0
            except ConnectionFailure as error:
                for done in batch:
                    done.doubtful = done.doubtful or error.outcome == "unknown"
                if final or self._board.closed:
                    for done in batch:
                        extra = logs.fields(done.job)
                        LOG.error("%s leaves %s to be done again: %s", self._name, done.job, error, extra=extra)
                    self._ended([self._lost(done.job) for done in batch])
                    batch.clear()
                else:
                    failures += 1
                    LOG.warning("%s could not finish, trying again: %s", self._name, error)
            if batch:
                self._hurry.wait(outage_pause(failures))
        self._then()

    def _gather(self, batch: list[_Handover], last: bool) -> bool:
        """Fill up ``batch`` with what is done, waiting for the first; whether that was all there will ever be."""
        with contextlib.suppress(queue.Empty):
            while not last and len(batch) < BATCH:
                done = self._done.get(block=not batch)
                if done is None:
                    return True
                claim = done.job.claim
                if claim is not None and self._board._leave(claim):
                    self._ended([self._end_of(done.job) if claim.ended else self._undecided(done.job)])
                else:
                    batch.append(done)
        return last

    def _finish(self, batch: list[_Handover], final: bool) -> None:
        """End the claims of ``batch`` and empty it. What is left in it, also after an error, has not been ended and is
        to be tried again, unless this is ``final``."""
        if not batch:
            return
        # By the handle: of a job that was lost and claimed again, both runs may end in one batch.
        failed: dict[int, Exception] = {}
        try:
            self._board.finish_many([done.act for done in batch], self._name)
        except JobFailures as failures:
            failed = {id(failure.job): failure for failure in failures.exceptions if isinstance(failure, JobBoardError)}
        except ConnectionFailure:
            raise
        except Exception as error:
            if len(batch) > 1:
                # One of them is to blame; the others must not suffer for it.
                self._finish_each(batch, final)
                return
            if not final and self._may_pass(batch[0], error):
                return
            LOG.exception("%s could not finish %s", self._name, batch[0].job, extra=logs.fields(batch[0].job))
            failed = {id(batch[0].job): error}
            with contextlib.suppress(Exception):
                self._board.abandon(batch[0].job, self._name, delay=PUZZLED)
        ends = [
            self._not_counted(done, failed[id(done.job)])
            if id(done.job) in failed
            else self._end_of(done.job, done.act.error == outcomes.IN_VAIN)
            for done in batch
        ]
        batch.clear()
        self._ended(ends)

    def _finish_each(self, batch: list[_Handover], final: bool) -> None:
        index = 0
        while index < len(batch):
            one = batch[index : index + 1]
            self._finish(one, final)
            if one:
                index += 1
            else:
                del batch[index]

    def _may_pass(self, done: _Handover, error: Exception) -> bool:
        """Whether to try again: the backend has refused it, which may change, and the claim stands."""
        now = time.monotonic()
        if done.refused_on is None:
            done.refused_on = now
        claim = done.job.claim
        if not isinstance(error, JobFailure) or claim is None or claim.lost or now - done.refused_on > REFUSED_FOR:
            return False
        LOG.warning("%s may not finish %s, trying again: %s", self._name, done.job, error, extra=logs.fields(done.job))
        return True

    def _not_counted(self, done: _Handover, error: Exception) -> End:
        job = done.job
        if done.doubtful and isinstance(error, ClaimLost | NotFound):
            why = "was finished by a try without an answer, or its claim is lost"
            LOG.warning("%s: %s %s", self._name, job, why, extra=logs.fields(job))
        else:
            LOG.warning("%s: the work on %s does not count: %s", self._name, job, error, extra=logs.fields(job))
        return self._lost(job)

    def _undecided(self, job: Job) -> End:
        what = "leaves the end of its claim to the handler, whose transaction or request is not over:"
        LOG.warning("%s %s %s", self._name, what, job, extra=logs.fields(job))
        return JOB_LOST, job

    def _lost(self, job: Job) -> End:
        # Nobody tries to end its claim any more.
        if job.claim is not None:
            self._board._let_lapse(job.claim, self._board._session)
        return JOB_LOST, job

    def _end_of(self, job: Job, in_vain: bool = False) -> End:
        if job.seen_state == COMPLETE:
            return JOB_CONSUMED, job
        trashed = job.seen_state == TRASHED
        what = "is in the trash" if trashed else "is to be tried again"
        why = outcomes.last_line(job.error) or "no reason given"
        LOG.warning("%s: %s %s: %s", self._name, job, what, why, extra=logs.fields(job))
        return (JOB_LOST if in_vain else JOB_TRASHED if trashed else JOB_ABANDONED), job
