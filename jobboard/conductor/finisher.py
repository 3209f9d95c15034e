"""The finisher: a thread that ends the claims of a conductor's jobs."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobboard import logs, outcomes
from jobboard.board import JobBoard
from jobboard.conductor.events import JOB_ABANDONED, JOB_CONSUMED, JOB_LOST, JOB_TRASHED
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Job
from jobboard.primitives import BATCH, GIVEN_BACK, End
from jobboard.retry import outage_pause
from jobboard.states import COMPLETE, TRASHED
from jobboard.threads import started

LOG = logs.Log(__name__)

PUZZLED = 5.0
"""Seconds that a job stays away if its end has met an error that is none of the board's."""

REFUSED_FOR = 30.0
"""Seconds for which an end is repeated that the backend refuses, for want of rights for instance: the work is done."""

LEFT = "is left to be done again"
UNCOUNTED = "the work on it does not count, unless a try without an answer has counted"

Ended = tuple[str, Job]
"""An event, and the job whose claim has ended."""


@dataclass(frozen=True)
class Tally:
    """The counts of the jobs of a conductor, by outcome.

    ``lost``: results that did not count, as the claim had lapsed or was no longer the conductor's, the backend
    could not be reached any more to hand them over, or the handler's own end of the claim was still under way.
    """

    dispatched: int = 0
    consumed: int = 0
    abandoned: int = 0
    trashed: int = 0
    lost: int = 0


@dataclass(eq=False, slots=True)
class _Handover:
    """A job whose work has ended, how its claim is to end, and when (monotonic) the backend has first refused that."""

    job: Job
    end: End
    refused_on: float | None = None


class Finisher:
    """Ends claims on a thread of its own: the first at once, and those that come in meanwhile together.

    :param ended: is told which claims have ended, and how.
    """

    def __init__(self, name: str, board: JobBoard, ended: Callable[[Sequence[Ended]], None]) -> None:
        self._name = name
        self._board = board
        self._ended = ended
        self._queue: queue.SimpleQueue[_Handover | None] = queue.SimpleQueue()
        # In the order of their ends. Handovers that stay here are tried again.
        self._pending: dict[_Handover, None] = {}
        # Set once no handler works any more. Ends that cannot be handed over now are given up.
        self._hurry = threading.Event()
        self._then: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = started(f"{self._name}-finisher", self._run)

    def put(self, job: Job, end: End) -> None:
        self._queue.put(_Handover(job, end))

    def close(self, seconds: float | None, then: Callable[[], None]) -> None:
        """Hand over the remaining ends, then call ``then``. Return after so many seconds at most."""
        self._then = then
        self._hurry.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        failures = 0
        last = False
        while self._pending or not last:
            last = last or self._gather()
            final = self._hurry.is_set() or self._board.closed
            try:
                if self._pending:
                    self._finish(list(self._pending), final)
            except ConnectionFailure as error:
                if final:
                    self._ended([self._lost(done.job, LEFT, error, LOG.error) for done in self._pending])
                    self._pending.clear()
                else:
                    LOG.warning("%s could not finish, trying again: %s", self._name, error)
            failures = failures + 1 if self._pending else 0
            if failures:
                self._hurry.wait(outage_pause(failures))
        self._then()

    def _gather(self) -> bool:
        """Fill up the batch, waiting for its first; return whether no more will come."""
        with contextlib.suppress(queue.Empty):
            while len(self._pending) < BATCH:
                done = self._queue.get(block=not self._pending)
                if done is None:
                    return True
                claim = done.job.claim
                if claim is not None and self._board.claims.leave_to_end(claim):
                    self._ended([self._own_end(done)])
                else:
                    self._pending[done] = None
        return False

    def _finish(self, batch: Sequence[_Handover], final: bool) -> None:
        """End these claims. Those that are to be tried again stay pending, all of them after a ConnectionFailure.

        :param final: nothing is to be tried again.
        """
        try:
            errors = self._board.end_claims([(done.job, done.end) for done in batch], self._name)
        except Exception as error:
            # Of several requests, the first ones may have been answered.
            answered = [done for done in batch if done.job.claim is not None and done.job.claim.ended]
            self._close([(done, None) for done in answered])
            if isinstance(error, ConnectionFailure):
                raise
            others = [done for done in batch if done in self._pending]
            if len(batch) > 1:
                # One of them is to blame; the others must not suffer for it.
                for done in others:
                    self._finish([done], final)
                return
            [done] = batch
            if not others or (not final and self._may_pass(done, error)):
                return
            LOG.exception("%s could not finish %s", self._name, done.job, extra=logs.fields(done.job))
            with contextlib.suppress(Exception):
                self._board.abandon(done.job, self._name, delay=PUZZLED)
            self._close([(done, error)])
        else:
            self._close(list(zip(batch, errors, strict=True)))

    def _close(self, ended: Sequence[tuple[_Handover, Exception | None]]) -> None:
        """Count ends that are not to be tried again, with the error of each."""
        for done, _ in ended:
            del self._pending[done]
        self._ended(
            [self._end_of(done) if error is None else self._lost(done.job, UNCOUNTED, error) for done, error in ended]
        )

    def _may_pass(self, done: _Handover, error: Exception) -> bool:
        """Return whether to try again: the backend has refused the end, which may change, and the claim stands."""
        now, claim, job = time.monotonic(), done.job.claim, done.job
        if done.refused_on is None:
            done.refused_on = now
        # A claim that was given up stands, though it reads as lost.
        is_over = claim is None or claim.is_marked_or_lapsed() or now - done.refused_on > REFUSED_FOR
        if is_over or not isinstance(error, JobFailure):
            return False
        LOG.warning("%s may not finish %s, trying again: %s", self._name, job, error, extra=logs.fields(job))
        return True

    # Events of ended claims

    def _end_of(self, done: _Handover) -> Ended:
        job = done.job
        if job.seen_state == COMPLETE:
            return JOB_CONSUMED, job
        trashed = job.seen_state == TRASHED
        # The reason of a job that is given back has been logged. The job's error is that of an earlier failure.
        if done.end != GIVEN_BACK:
            what = "is in the trash" if trashed else "is to be tried again"
            why = outcomes.reason_line(job.error) or "no reason given"
            LOG.warning("%s: %s %s: %s", self._name, job, what, why, extra=logs.fields(job))
        if done.end.error == outcomes.IN_VAIN:
            return JOB_LOST, job
        return (JOB_TRASHED if trashed else JOB_ABANDONED), job

    def _own_end(self, done: _Handover) -> Ended:
        """Return the end of a claim that the handler has ended, or is about to end."""
        job = done.job
        if job.claim is not None and job.claim.ended:
            return self._end_of(_Handover(job, outcomes.CONSUMED))
        what = "leaves the end of its claim to the handler, whose transaction or request is not over:"
        LOG.warning("%s %s %s", self._name, what, job, extra=logs.fields(job))
        return JOB_LOST, job

    def _lost(self, job: Job, what: str, error: Exception, log: Callable[..., None] = LOG.warning) -> Ended:
        """Let the claim lapse, as its end is not tried again."""
        log("%s: %s: %s: %s", self._name, job, what, error, extra=logs.fields(job))
        if job.claim is not None:
            self._board.claims.let_lapse(job.claim)
        return JOB_LOST, job
