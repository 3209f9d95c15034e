"""How a board gives out claims, and how claims end."""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, final

from jobboard import arguments, codec, logs, notifier, outcomes, retry
from jobboard.base import BATCH, UNREADABLE, BoardBase, about
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobBoardError, JobFailure, JobFailures, NotFound
from jobboard.job import Act, Claim, Job
from jobboard.primitives import POLL_CAP, Finish
from jobboard.session import Session
from jobboard.standing import Trigger
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    CONSUME,
    FINISHES,
    OK,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Holder,
    Record,
    Status,
    Verb,
    failed,
)

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class _End(NamedTuple):
    """One claim to end, as the public verbs hand it on."""

    job: Job
    claim: Claim | None
    verb: Verb
    delay: int | None = None
    error: str | None = None
    refund: bool = False
    retry: bool = False


class _Round(NamedTuple):
    """One look for something to do; ``end`` on the monotonic clock, None for never."""

    session: Session
    number: int
    end: float | None

    def left(self) -> float:
        return math.inf if self.end is None else self.end - time.monotonic()


class Working(contextlib.AbstractContextManager[Job, bool]):
    """The work on a job, as a block or as a function; see :meth:`~jobboard.board.JobBoard.working`."""

    def __init__(self, begin: Callable[[], contextlib.AbstractContextManager[Job]]) -> None:
        self._begin = begin
        self._block: contextlib.AbstractContextManager[Job] | None = None

    def __enter__(self) -> Job:
        if self._block is not None:
            raise RuntimeError("this block is being worked in already; ask the board for another one")
        block = self._begin()
        job = block.__enter__()
        self._block = block
        return job

    def __exit__(self, *error: Any) -> bool:
        block, self._block = self._block, None
        assert block is not None
        return bool(block.__exit__(*error))

    def __call__(self, function: Callable[Concatenate[Job, P], T]) -> Callable[P, T | None]:
        outcomes.check_handler(function)

        @functools.wraps(function)
        def work(*args: P.args, **kwargs: P.kwargs) -> T | None:
            with self._begin() as job:
                result = function(job, *args, **kwargs)
                outcomes.check_result(result)
                return result
            return None  # type: ignore[unreachable]  # the block swallows Retry and Reject

        return work


class Claiming(BoardBase):
    """The verbs with which a job is claimed, and those with which the claim ends."""

    # Claiming

    @final
    def claim(self, job: Job, who: str, expiry: float | None = None) -> Claim:
        """Claim this job for ``who``. The claim is attached to ``job``, as ``job.claim``.

        :param expiry: seconds after which the claim lapses unless it is extended; None: the board keeps it alive for
            as long as this process lives.
        :raises UnclaimableJob: somebody has claimed it, ``who`` included, or it is not due; nothing was changed.
        :raises NotFound: it is not on the board.
        :raises ClaimLost: the claim was made, but its answer came so late that it has lapsed.
        """
        codec.check_text("who", who)
        span = arguments.micros("expiry", expiry, positive=True)
        answer, start = self._live().mutate(self.engine.claim, arguments.job(job).uuid, who, span)
        if answer.status != OK or answer.record is None:
            raise self._refusal(answer.status, job)
        job._record = answer.record
        job.seen_state = CLAIMED
        self._attach([job], who, span, start, answer.margin)
        assert job.claim is not None
        return job.claim

    @final
    def claim_next(
        self,
        who: str,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        **extra: Any,
    ) -> Job | None:
        """Claim the job that is next in order; it comes with its ``claim``. None, and at once, if there is none:
        ``timeout`` makes it wait for one.

        :param names: take only jobs of these names.
        :param timeout: seconds to wait for one; 0, the default, does not wait, None waits for ever.
        :param unless: asked before each look; once it answers true the wait is over. After making it true, call
            :meth:`wake`, so that it is asked at once.
        """
        jobs = self._take_jobs(who, 1, expiry, names, timeout, self._extras("claim_next", extra), unless)
        return jobs[0] if jobs else None

    @final
    def claim_many(
        self,
        who: str,
        limit: int,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        **extra: Any,
    ) -> list[Job]:
        """Claim up to ``limit`` jobs at once; waits only while there is none. Otherwise as :meth:`claim_next`."""
        limit = arguments.limit(limit)
        return self._take_jobs(who, limit, expiry, names, timeout, self._extras("claim_many", extra), unless)

    @final
    def wake(self) -> None:
        """Have everybody who waits on this board object look again, and ask their ``unless``."""
        session = self._session
        if session is not None:
            session.wake()
            self.engine.rouse()

    @final
    def working(
        self, who: str, *, names: Iterable[str] | None = None, timeout: float | None = None, **extra: Any
    ) -> Working:
        """``with board.working(who) as job:`` claims a job and ends its claim by what becomes of the body. It waits for
        a job for ever, unless ``timeout`` says for how long; :meth:`claim_next` does not wait unless that says so.

        A body that ends well consumes the job, unless it has finished it itself. :class:`~jobboard.outcomes.Retry` and
        :class:`~jobboard.outcomes.Reject` steer and go no further; any other exception abandons the job, with a backoff
        and the traceback, and is raised again.

        ``@board.working(who)`` makes a function of a job into one that does so with each call: the job is its first
        argument, before those that the caller gives. It returns what the function returns, None after Retry and Reject.

        :param names: take only jobs of these names.
        :param timeout: seconds to wait for one; None, the default, waits for ever, 0 does not wait.
        :param extra: further arguments of :meth:`claim_next`: ``expiry=`` and ``unless=``, and ``where=`` on SQL.
        :raises NotFound: no job in time, or before ``unless`` was true.
        :raises ClaimLost: the body ended well, but the claim was lost meanwhile.
        """
        return Working(lambda: self._working(who, {"names": names, "timeout": timeout, **extra}))

    @contextlib.contextmanager
    def _working(self, who: str, wish: dict[str, Any]) -> Iterator[Job]:
        job = self.claim_next(who, **wish)
        if job is None or job.claim is None:
            timeout = wish["timeout"]
            raise NotFound("no job was claimed" if timeout is None else f"no job to claim in {timeout:g} s")
        try:
            with outcomes.working_on(job), self.tracing.run(job):
                yield job
        except BaseException as error:
            try:
                self._conclude(job.claim, outcomes.outcome_of(error, job))
            except JobBoardError as failure:
                LOG.warning("could not give back %s: %s", job, failure, extra=logs.fields(job))
            if not isinstance(error, (outcomes.Retry, outcomes.Reject)):
                raise
        else:
            outcome = outcomes.outcome_of(None, job)
            self._conclude(job.claim, outcome)
            if outcome is outcomes.GIVEN_UP:
                raise about(ClaimLost(f"{job}: the claim was lost during the work, which does not count"), job)

    def _conclude(self, claim: Claim, outcome: outcomes.Outcome) -> None:
        if not claim.ended:
            self._end(claim.job, claim, claim.who, outcome.verb, outcome.delay, outcome.error, outcome.retry)

    def _take_jobs(
        self,
        who: str,
        limit: int,
        expiry: float | None,
        names: Iterable[str] | None,
        timeout: float | None,
        extra: dict[str, Any],
        unless: Callable[[], bool] | None = None,
    ) -> list[Job]:
        codec.check_text("who", who)
        span = arguments.micros("expiry", expiry, positive=True)
        wanted = arguments.names(names)
        for turn in self._rounds(timeout):
            if unless is not None and unless():
                self.engine.forgo()
                break
            jobs: list[Job] = []
            while True:
                want = min(BATCH, limit - len(jobs))
                try:
                    taken, start = turn.session.mutate(
                        self.engine.take, who, want, span, wanted, codec.VERSION, **extra
                    )
                except ConnectionFailure as error:
                    if not jobs:
                        raise
                    LOG.warning("claimed %d of %d jobs, then: %s", len(jobs), limit, error)
                    return jobs
                for record in taken.trashed:
                    self._gone(notifier.TRASHED, self._job_or_shell(record, TRASHED))
                claimed = [job for record in taken.records if (job := self._claimed_job(record, who)) is not None]
                self._attach(claimed, who, span, start, taken.margin)
                jobs += claimed
                if (len(taken.records) < want and not taken.replayed) or len(jobs) >= limit:
                    break
            if jobs:
                return jobs
            # Asked again after the mark was read: what wakes from here on is not slept through.
            if turn.left() <= 0 or (unless is not None and unless()):
                break
            self._doze(turn, taken.mark, wanted, taken.next_event)
        return []

    def _rounds(self, timeout: float | None) -> Iterator[_Round]:
        """Rounds of looking for something to do, without end: whoever looks breaks off when no time is left."""
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
            raise ValueError(f"timeout={timeout!r}: must be 0 or more seconds, or None to wait for ever")
        end = None if timeout is None else time.monotonic() + timeout
        for number in itertools.count(1):
            session = self._live()
            session.look()
            yield _Round(session, number, end)

    def _doze(self, turn: _Round, mark: object, names: Sequence[str] | None, next_event: int | None) -> None:
        """Sleep between two rounds, until something may have changed."""
        polls = self.engine.poll_cap <= POLL_CAP
        limit = retry.backoff(turn.number, 0.01, self.engine.poll_cap) if polls else self.engine.poll_cap
        if next_event is not None:
            limit = min(limit, max(next_event / 1e6, 0.001))
        self.engine.wait(mark, names, min(limit, turn.left()))

    def _claimed_job(self, record: Record, who: str) -> Job | None:
        try:
            return Job(self, record, self._content(record), CLAIMED)
        except codec.Undecodable as error:
            poison = Finish(record.uuid, Holder(who, record.token), Verb.TRASH, error=str(error))
            shell = Job(self, record, UNREADABLE, TRASHED)
            LOG.warning("%s goes to the trash: %s", shell, error, extra=logs.fields(shell))
            try:
                self._live().mutate(self.engine.finish, [poison])
            except ConnectionFailure as failure:
                # The others of the batch are claimed, and must not be forgotten; this one comes back to somebody.
                LOG.warning("%s could not be trashed: %s", shell, failure, extra=logs.fields(shell))
                self.engine.forsake(record.uuid, record.token)
            else:
                self._gone(notifier.TRASHED, shell)
            return None

    def _attach(self, jobs: Sequence[Job], who: str, span: int | None, start: float, margin: int | None) -> None:
        deadline = None if margin is None else start + margin / 1e6
        claims = [Claim(job, job._record.token, who, span is None, deadline) for job in jobs]
        for job, claim in zip(jobs, claims, strict=True):
            job.claim = claim
        if span is None:
            self._live().hold(*claims)
        for job in jobs:
            self.tracing.claimed(job, start)
        self._notify(notifier.CLAIMED, *jobs)

    # Ending a claim

    @final
    def extend(self, job: Job, who: str, expiry: float | None = None) -> None:
        """Prolong the claim of ``who``: fixed to ``expiry`` seconds from now, or (None) kept by this board.

        :raises ClaimLost: this handle's claim has gone to another, or was taken away.
        :raises JobFailure: somebody else's.
        :raises NotFound: the job is not claimed, or not on the board.
        """
        self._extend(arguments.job(job), job.claim, who, expiry)

    @final
    def abandon(
        self,
        job: Job,
        who: str,
        *,
        delay: float | datetime.timedelta | None = None,
        error: str | None = None,
        **extra: Any,
    ) -> None:
        """Give a claimed job back to the board, at its old place; to the trash if its attempts are used up.

        :param delay: seconds before which nobody can claim it.
        :param error: why; its last 16 KiB are kept as ``job.error``.
        :raises ClaimLost, JobFailure, NotFound: as :meth:`extend`.
        """
        self._end(arguments.job(job), job.claim, who, Verb.ABANDON, delay, error, **self._extras("abandon", extra))

    @final
    def consume(self, job: Job, who: str, **extra: Any) -> None:
        """The work on a claimed job is done: take it off the board. Errors as :meth:`extend`."""
        self._end(arguments.job(job), job.claim, who, CONSUME, **self._extras("consume", extra))

    @final
    def trash(self, job: Job, who: str, *, reason: str | None = None, **extra: Any) -> None:
        """Put a claimed job into the trash, with a reason. Errors as :meth:`extend`."""
        self._end(arguments.job(job), job.claim, who, Verb.TRASH, None, reason, **self._extras("trash", extra))

    @final
    def consume_many(self, jobs: Iterable[Job], who: str, **extra: Any) -> None:
        """Consume all of these, in as few requests as can be.

        :raises JobFailures: with one error for each that could not be; the others were consumed.
        """
        ends = [_End(arguments.job(job), job.claim, CONSUME) for job in jobs]
        self._end_many(ends, who, self._extras("consume_many", extra))

    @final
    def finish_many(self, acts: Iterable[Act], who: str, **extra: Any) -> None:
        """End many claims, each by its own verb; errors as :meth:`consume_many`."""
        ends = []
        for act in acts:
            verb = act.verb if isinstance(act.verb, Verb) else Verb(act.verb)
            if verb not in FINISHES:
                raise ValueError(f"{verb} does not end a claim; {', '.join(sorted(FINISHES))} do")
            error, delay = codec.clip_error(act.error), arguments.micros("delay", act.delay)
            ends.append(_End(arguments.job(act.job), act.job.claim, verb, delay, error, act.refund, act.retry))
        self._end_many(ends, who, self._extras("finish_many", extra))

    def _extend(self, job: Job, claim: Claim | None, who: str, expiry: float | None) -> None:
        holder = self._holder(job, claim, codec.check_text("who", who))
        span = arguments.micros("expiry", expiry, positive=True)
        session = self._live()
        (status, margin), start = session.mutate(self.engine.extend, job.uuid, holder, span)
        if status != OK:
            raise self._refusal(status, job, claim)
        if claim is not None:
            claim._stands_until(None if margin is None else start + margin / 1e6, span is None, Trigger.EXTENDED)
            if span is None:
                session.hold(claim)
            else:
                session.let_go(claim)
        self._notify(notifier.EXTENDED, job)

    def _end(
        self,
        job: Job,
        claim: Claim | None,
        who: str,
        verb: Verb,
        delay: float | datetime.timedelta | None = None,
        error: str | None = None,
        retry: bool = False,
        **extra: Any,
    ) -> None:
        end = _End(job, claim, verb, arguments.micros("delay", delay), codec.clip_error(error), retry=retry)
        [failure] = self._end_all([end], who, extra)
        if failure is not None:
            raise failure

    def _end_many(self, ends: list[_End], who: str, extra: dict[str, Any]) -> None:
        failures = [failure for failure in self._end_all(ends, who, extra) if failure is not None]
        if failures:
            raise JobFailures(f"{len(failures)} of {len(ends)} jobs could not be finished", failures)

    def _end_all(self, ends: list[_End], who: str, extra: dict[str, Any]) -> list[JobBoardError | None]:
        session = self._live()
        results: list[JobBoardError | None] = [None] * len(ends)
        asked: list[tuple[int, Finish]] = []
        first: dict[tuple[str, Holder], int] = {}
        repeated: list[tuple[int, int]] = []
        if ends:
            codec.check_text("who", who)
        for index, (job, claim, verb, delay, error, refund, retried) in enumerate(ends):
            try:
                holder = self._holder(job, claim, who)
            except JobFailure as failure:
                results[index] = failure
                continue
            # A claim that stands twice in a batch is ended once: to a backend it would look like a repetition.
            original = first.setdefault((job.uuid, holder), index)
            if original == index:
                asked.append((index, Finish(job.uuid, holder, verb, delay or None, error, refund, None, retried)))
            else:
                repeated.append((index, original))
        for start in range(0, len(asked), BATCH):
            chunk = asked[start : start + BATCH]
            # A claim leaves the heartbeat before it is ended, so that no beat takes its end for a loss.
            kept = session.let_go(*(claim for index, _ in chunk if (claim := ends[index].claim) is not None))
            try:
                statuses = self._mutate(self.engine.finish, [act for _, act in chunk], **extra)
            except BaseException:
                session.hold(*kept)
                raise
            done = []
            for (index, _), status in zip(chunk, statuses, strict=True):
                if status == OK:
                    done.append(ends[index])
                else:
                    results[index] = self._refusal(status, ends[index].job, ends[index].claim)
            self.engine.after_commit(
                extra,
                functools.partial(self._ended, session, done, who),
                functools.partial(self._not_ended, session, done, kept),
            )
        for index, original in repeated:
            results[index] = results[original] or self._refusal(Status.ABSENT, ends[index].job, ends[index].claim)
        return results

    @staticmethod
    def _not_ended(session: Session, ends: list[_End], kept: set[Claim]) -> None:
        """The caller's transaction was rolled back: the claims stand as before."""
        session.hold(*(claim for end in ends if (claim := end.claim) in kept and claim is not None))

    def _ended(self, session: Session, ends: list[_End], who: str) -> None:
        abandoned: list[Job] = []
        consumed: list[Job] = []
        trashed: list[Job] = []
        for job, claim, verb, delay, error, refund, retried in ends:
            if claim is not None:
                claim._step(Trigger.ENDED)
            else:
                session.let_go_of(job.uuid)
            if claim is None and verb == Verb.ABANDON:
                self._refresh(job)  # only the claim's own handle knows how many attempts are left
            elif error is not None:
                # By this machine's clock, until it is read again.
                job._record = failed(job._record, int(time.time() * 1e6), who, error)
            if verb == CONSUME:
                job.seen_state = COMPLETE
                consumed.append(job)
            elif verb == Verb.ABANDON and (refund or retried or not job._record.exhausted):
                job.seen_state = SCHEDULED if delay else UNCLAIMED
                abandoned.append(job)
            else:
                job.seen_state = TRASHED
                trashed.append(job)
        self._gone(notifier.CONSUMED, *consumed)
        self._gone(notifier.TRASHED, *trashed)
        if abandoned:
            self._notify(notifier.ABANDONED, *abandoned)
            session.wake()

    @staticmethod
    def _holder(job: Job, claim: Claim | None, who: str) -> Holder:
        if claim is None:
            return Holder(who, None)
        if claim.who != who:
            raise about(JobFailure(f"{job} was claimed as {claim.who!r}, not as {who!r}"), job)
        if claim.inherited:
            raise about(ClaimLost(f"{job}: the claim belongs to the process that this one was forked from"), job)
        return Holder(who, claim.token)
