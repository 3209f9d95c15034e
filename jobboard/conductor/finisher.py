"""The finisher: a thread that ends the claims of a conductor's jobs."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobboard import logs, outcomes, reasons, runtime
from jobboard.board import JobBoard
from jobboard.conductor.events import JOB_ABANDONED, JOB_CONSUMED, JOB_LOST, JOB_TRASHED
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobBoardError, JobFailure
from jobboard.job import ClaimedJob, Job
from jobboard.primitives import BATCH, GIVEN_BACK, End
from jobboard.retry import outage_backoff
from jobboard.states import COMPLETE, TRASHED, FailureKind, Record, Verb
from jobboard.threads import started

LOG = logs.Log(__name__)

ERROR_DELAY = 5.0
"""The delay of a job that is given back after an unexpected error at its end, in seconds."""

REFUSED_FOR = 30.0
"""Seconds for which the finisher repeats an end that the backend refuses, for instance for missing rights. The work is
done and should count."""

LEFT = "is left to be done again"
UNCOUNTED = "the work on it does not count, unless a try without an answer has counted"

Ended = tuple[str, Job]
"""An event and the job whose claim has ended."""


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
    """A job whose work has ended, how its claim is to end, and its record as it was claimed.

    refused_on: the time (monotonic) at which the backend first refused the end. tries, again_on: the number of failed
    tries apart from other ends, and the time of the next one.
    """

    job: Job
    end: End
    claimed: Record
    refused_on: float | None = None
    tries: int = 0
    again_on: float = 0.0


class Finisher:
    """Ends claims on a thread of its own: the first at once, and those that come in meanwhile together.

    The claimer of the same conductor takes part:

    - After an outage it makes no claim before the ends that are held here were tried: :meth:`note_outage` and
      :meth:`catch_up`.
    - It may claim a job whose end is held here, once the lease has lapsed: :meth:`claiming` and :meth:`take_over`.

    :param ended: is told which claims have ended, and how.
    """

    def __init__(self, name: str, board: JobBoard, ended: Callable[[Sequence[Ended]], None]) -> None:
        self._name = name
        self._board = board
        self._ended = ended
        self._queue: runtime.SimpleQueue[_Handover | None] = runtime.SimpleQueue()
        # For the thread alone, in the order of their ends. Handovers that stay here are tried again, those in the
        # second each by itself.
        self._pending: dict[_Handover, None] = {}
        self._apart: dict[_Handover, None] = {}
        # For the claimer, too: the newest handover of each job, those that no try has reached since an outage, and
        # those whose job the claimer of this conductor may be getting.
        self._lock = runtime.Lock()
        self._tried = runtime.Condition(self._lock)
        self._held: dict[str, _Handover] = {}
        self._untried: set[_Handover] = set()
        self._overtaken: dict[_Handover, Exception] = {}
        self._is_claiming = self._is_closing = False
        # Set once no handler works any more. Ends that cannot be handed over now are given up.
        self._hurry = runtime.Event()
        # Ends a pause between two tries.
        self._answers = runtime.Event()
        self._then: Callable[[], None] = lambda: None
        self._thread: runtime.Thread | None = None

    def start(self) -> None:
        self._thread = started(f"{self._name}-finisher", self._run)

    def put(self, job: Job, end: End, claimed: Record) -> None:
        """End the claim of a job.

        :param claimed: the record of the job as it was claimed.
        """
        done = _Handover(job, end, claimed)
        with self._lock:
            newest = self._held.get(job.uuid)
            if not self._is_closing and (newest is None or newest.claimed.token < claimed.token):
                self._held[job.uuid] = done
            self._queue.put(done)

    def close(self, seconds: float | None, then: Callable[[], None]) -> None:
        """Hand over the remaining ends, then call ``then``. Return after at most ``seconds``."""
        self._then = then
        self._hurry.set()
        with self._lock:
            self._is_closing = True
        self._end_overtaken()
        self._answers.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    # For the claimer

    def note_outage(self) -> None:
        """Note an outage of the server: the ends that are held here have not reached it."""
        with self._lock:
            self._untried = set(self._held.values())

    @property
    def untried(self) -> list[str]:
        """The uuids of jobs whose ends were not tried since an outage."""
        with self._lock:
            return [done.job.uuid for done in self._untried]

    def catch_up(self, seconds: float) -> None:
        """Try the held ends now, as the server answers again. Return once each end was tried, or after ``seconds``: an
        end may wait for a lock."""
        self._answers.set()
        with self._lock:
            self._tried.wait_for(lambda: not self._untried, seconds)
            self._untried.clear()

    @contextlib.contextmanager
    def claiming(self) -> Iterator[None]:
        """A block in which the claimer claims jobs and passes them to :meth:`take_over`.

        The claim of a held end may be lost to this very claim. So a lost end counts as lost after the block."""
        with self._lock:
            self._is_claiming = True
        try:
            yield
        finally:
            with self._lock:
                self._is_claiming = False
            self._end_overtaken()

    @property
    def has_overtaken(self) -> bool:
        """True while lost ends wait for the end of :meth:`claiming`."""
        return bool(self._overtaken)

    def take_over(self, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Apply ends that are held here to new claims of their jobs. Return the other jobs: they are to run."""
        with self._lock:
            return [job for job in jobs if not self._take_over_one(job)]

    def _take_over_one(self, job: ClaimedJob) -> bool:
        """Apply the held end of a job to a new claim of the job. Return whether there is such an end."""
        done = self._held.get(job.uuid)
        # The lapse already stands for an end in vain.
        if done is None or done.end.kind == FailureKind.LAPSE or not _has_only_lapsed(done.claimed, job.record):
            return False
        claim = done.job.claim
        if claim is None or self._board.claims.leave_to_end(claim):
            return False
        self._board.claims.let_go(claim)
        done.job, done.claimed, done.refused_on = job, job.record, None
        if done.end.verb == Verb.ABANDON:
            # No handler has run under the new claim. The lapse has used up the attempt.
            done.end = done.end._replace(refund=True)
        if self._overtaken.pop(done, None) is not None:
            self._queue.put(done)
        what = "has claimed a job again whose work had ended, and only hands over its end:"
        LOG.warning("%s %s %s", self._name, what, job, extra=logs.fields(job))
        return True

    def _end_overtaken(self) -> None:
        with self._lock:
            overtaken, self._overtaken = self._overtaken, {}
            self._forget(overtaken)
        if overtaken:
            self._ended([self._let_lapse(done.job, UNCOUNTED, error) for done, error in overtaken.items()])

    # The thread

    def _run(self) -> None:
        failures = 0
        last = False
        while self._pending or self._apart or not last:
            last = last or self._gather()
            final = self._hurry.is_set() or self._board.closed
            try:
                for batch in self._batches(final):
                    self._hand_over(batch, final)
                failures = 0
            except ConnectionFailure as error:
                left = [*self._pending, *self._apart]
                if final:
                    self._close([(done, done.job, error) for done in left])
                    continue
                self._pending, self._apart = dict.fromkeys(left), {}
                self.note_outage()
                LOG.warning("%s could not finish, trying again: %s", self._name, error)
                failures += 1
                self._answers.wait(outage_backoff(failures))
                self._answers.clear()
        self._then()

    def _gather(self) -> bool:
        """Fill up the batch. Return whether no more ends will come.

        Wait for the first, or until an end that is tried apart is to be tried again."""
        with contextlib.suppress(queue.Empty):
            while len(self._pending) < BATCH:
                next_try = min((done.again_on for done in self._apart), default=None)
                wait = None if next_try is None else max(0.0, next_try - runtime.monotonic())
                done = self._queue.get(not self._pending, wait)
                if done is None:
                    return True
                claim = done.job.claim
                if claim is not None and self._board.claims.leave_to_end(claim):
                    with self._lock:
                        self._forget([done])
                    self._ended([self._own_end(done)])
                else:
                    self._pending[done] = None
        return False

    def _batches(self, final: bool) -> Iterator[list[_Handover]]:
        """Yield the batches to try now: the ends that share a request, and the first end that needs a request of its
        own."""
        if self._pending:
            yield list(self._pending)
        now = runtime.monotonic()
        due = [done for done in self._apart if final or done.again_on <= now]
        yield from ([done] for done in (due if final else due[:1]))

    def _hand_over(self, batch: Sequence[_Handover], final: bool) -> None:
        """End these claims.

        :raises ConnectionFailure: the server is away.
        """
        begun = runtime.monotonic()
        try:
            self._finish(batch, final)
            return
        except ConnectionFailure:
            left = self._left_of(batch)
            if final or not left or self._is_away(left[0]):
                raise
        # The server answers, but one end waits for a locked row. The other ends must not wait with it.
        if len(left) == 1:
            self._retry_alone(left[0], runtime.monotonic() - begun)
            return
        has_failed = False
        for done in left:
            begun = runtime.monotonic()
            try:
                self._finish([done], final)
                has_failed = False
            except ConnectionFailure:
                if has_failed or self._hurry.is_set():
                    raise
                has_failed = True
                self._retry_alone(done, runtime.monotonic() - begun)

    def _left_of(self, batch: Sequence[_Handover]) -> list[_Handover]:
        return [done for done in batch if done in self._pending or done in self._apart]

    def _is_away(self, done: _Handover) -> bool:
        try:
            self._board.engine.raw.read([done.job.uuid])
        except ConnectionFailure:
            return True
        except JobBoardError:
            pass
        return False

    def _retry_alone(self, done: _Handover, took: float) -> None:
        """Try an end again later, in a request of its own.

        :param took: the seconds of the failed try. Other ends get as much time before the next one.
        """
        self._pending.pop(done, None)
        self._apart.pop(done, None)
        done.tries += 1
        done.again_on = runtime.monotonic() + max(took, outage_backoff(done.tries))
        self._apart[done] = None
        with self._lock:
            self._note_try([done])

    def _finish(self, batch: Sequence[_Handover], final: bool) -> None:
        """End these claims. Those that are to be tried again stay pending, all of them after a ConnectionFailure.

        :param final: nothing is to be tried again.
        """
        with self._lock:
            asked = [(done, done.job, done.end) for done in batch]
        try:
            errors = self._board.end_claims([(job, end) for _, job, end in asked], self._name)
        except Exception as error:
            # Of several requests, the first ones may have been answered.
            self._close([(done, job, None) for done, job, _ in asked if job.claim is not None and job.claim.ended])
            if isinstance(error, ConnectionFailure):
                raise
            others = self._left_of(batch)
            if len(batch) > 1:
                # One end is refused. The others must not be refused with it.
                for done in others:
                    self._finish([done], final)
                return
            [(done, job, _)] = asked
            if not others:
                return
            if not final and self._note_refusal(done, error):
                self._retry_alone(done, 0.0)
                return
            LOG.exception("%s could not finish %s", self._name, job, extra=logs.fields(job))
            why = f"the end of the work was refused: {type(error).__name__}: {error}"
            with contextlib.suppress(Exception):
                self._board.abandon(job, self._name, delay=ERROR_DELAY, error=why)
            self._close([(done, job, error)])
        else:
            self._close([(done, job, error) for (done, job, _), error in zip(asked, errors, strict=True)])

    def _close(self, answers: Sequence[tuple[_Handover, Job, Exception | None]]) -> None:
        """Count ends that will not be tried again. Each answer has the end, its job in the request, and the error."""
        closed = []
        with self._lock:
            self._note_try([done for done, _, _ in answers])
            for done, job, error in answers:
                # If the claimer has claimed the job again, this end belongs to the new claim.
                if done.job is not job:
                    continue
                self._pending.pop(done, None)
                self._apart.pop(done, None)
                if isinstance(error, ClaimLost) and self._is_claiming and not self._is_closing:
                    self._overtaken[done] = error
                    continue
                self._forget([done])
                closed.append((done, error))
            overtakes = bool(self._overtaken)
        if overtakes:
            # The claimer may be waiting for other jobs.
            self._board.wake()
        self._ended([self._end_of(done) if error is None else self._given_up(done, error) for done, error in closed])

    def _given_up(self, done: _Handover, error: Exception) -> Ended:
        if isinstance(error, ConnectionFailure):
            return self._let_lapse(done.job, LEFT, error, LOG.error)
        return self._let_lapse(done.job, UNCOUNTED, error)

    def _note_try(self, tried: Iterable[_Handover]) -> None:
        self._untried.difference_update(tried)
        if not self._untried:
            self._tried.notify_all()

    def _forget(self, ended: Collection[_Handover]) -> None:
        self._note_try(ended)
        for done in ended:
            if self._held.get(done.job.uuid) is done:
                del self._held[done.job.uuid]

    def _note_refusal(self, done: _Handover, error: Exception) -> bool:
        """Note that the backend has refused an end. Return whether to try again: the reason may pass, and the claim
        stands."""
        now, claim, job = runtime.monotonic(), done.job.claim, done.job
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
        # The reason of a job that is given back has been logged. The job's error belongs to an earlier failure.
        if done.end != GIVEN_BACK:
            what = "is in the trash" if trashed else "is to be tried again"
            why = reasons.reason_line(job.error) or "no reason given"
            LOG.warning("%s: %s %s: %s", self._name, job, what, why, extra=logs.fields(job))
        if done.end.kind == FailureKind.LAPSE:
            return JOB_LOST, job
        return (JOB_TRASHED if trashed else JOB_ABANDONED), job

    def _own_end(self, done: _Handover) -> Ended:
        """Return the end of a claim that the handler has ended, or is about to end."""
        job = done.job
        if job.claim is not None and job.claim.ended:
            return self._end_of(_Handover(job, outcomes.CONSUMED, done.claimed))
        what = "leaves the end of its claim to the handler, whose transaction or request is not over:"
        LOG.warning("%s %s %s", self._name, what, job, extra=logs.fields(job))
        return JOB_LOST, job

    def _let_lapse(self, job: Job, what: str, error: Exception, log: Callable[..., None] = LOG.warning) -> Ended:
        """Let the claim lapse, as its end is not tried again. Return the event of a lost claim."""
        if (act := self._act_of_operator(job)) is not None:
            log("%s: %s", self._name, act, extra=logs.fields(job))
        else:
            log("%s: %s: %s: %s", self._name, job, what, error, extra=logs.fields(job))
        if job.claim is not None:
            self._board.claims.let_lapse(job.claim)
        return JOB_LOST, job

    def _act_of_operator(self, job: Job) -> str | None:
        """Return what an operator has done to a job whose token was refused, with the reason; None if nothing shows."""
        if job.claim is None or not job.claim.refused:
            return None
        record = None
        # The claim is lost already, so an outage costs the reason alone.
        with contextlib.suppress(JobBoardError):
            [seen] = self._board.engine.read([job.uuid])
            record = seen.record
        if record is None or record.token == job.claim.token:
            return None
        last = record.errors[-1] if record.errors else None
        kind = None if last is None or last in job.record.errors else last.kind
        # A stop keeps the holder, and a reason is its failure.
        if record.state == TRASHED and (kind == FailureKind.CANCELLED or record.errors == job.record.errors):
            act = "was stopped"
        elif kind == FailureKind.RELEASED:
            act = "was released"
        else:
            return None
        why = reasons.reason_line(record.error) if kind is not None else None
        return f"{job} {act}: {why or 'no reason given'}"


def _has_only_lapsed(claimed: Record, again: Record) -> bool:
    """Return whether only the lapse of the first claim has changed the job between two claims. The work of the first
    claim then still counts: the job asks for the same work, and no other worker has begun it."""
    last = again.errors[-1] if again.errors else None
    if last is None or last in claimed.errors or (again.version, again.posting) != (claimed.version, claimed.posting):
        return False
    lapse = (claimed.who, claimed.attempts, FailureKind.LAPSE, claimed.attempts + 1, claimed.retries)
    return (last.who, last.attempt, last.kind, again.attempts, again.retries) == lapse
