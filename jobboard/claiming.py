"""How a board gives out claims."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, final

from jobboard import arguments, codec, logs, notifier, outcomes, retry
from jobboard.base import BATCH, UNREADABLE, about
from jobboard.conf import shortened
from jobboard.exceptions import ClaimLost, JobBoardError, NotFound
from jobboard.finishing import Finishing
from jobboard.forks import ForkGuard
from jobboard.job import Act, Claim, Job, check_longest
from jobboard.primitives import POLL_CAP, Finish, Taken
from jobboard.session import Session
from jobboard.states import CLAIMED, OK, TRASHED, Holder, Record, Verb

LOG = logs.Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Turn(NamedTuple):
    """One look for something to do; ``end`` on the monotonic clock, None for never."""

    session: Session
    number: int
    end: float | None

    def left(self) -> float:
        return math.inf if self.end is None else self.end - time.monotonic()


class WantedJobs(NamedTuple):
    """What a claim is made for; ``span`` of its lease in µs, None to have the board keep it."""

    who: str
    span: int | None
    names: Sequence[str] | None
    extra: dict[str, Any]


class Working(contextlib.AbstractContextManager[Job, bool]):
    """The work on a job, as a block or as a function; see :meth:`~jobboard.board.JobBoard.working`."""

    def __init__(self, begin: Callable[[], contextlib.AbstractContextManager[Job]]) -> None:
        self._begin = begin
        self._block: contextlib.AbstractContextManager[Job] | None = None
        # From before the wait for a job on: another thread may come meanwhile.
        self._taken = threading.Lock()

    def __enter__(self) -> Job:
        if not self._taken.acquire(blocking=False):
            raise RuntimeError("this block is being worked in already; ask the board for another one")
        block = self._begin()
        try:
            self._block = block
            return block.__enter__()
        except BaseException:
            self._block = None
            self._taken.release()
            # An interrupt may have come as soon as a job was claimed.
            block.__exit__(*sys.exc_info())
            raise

    def __exit__(self, *error: Any) -> bool:
        block, self._block = self._block, None
        assert block is not None
        self._taken.release()
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


class Claiming(Finishing):
    """The verbs with which a job is claimed."""

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
            self.tracing.refused(job, answer.status, start)
            raise self._refusal(answer.status, job)
        job._record = answer.record
        job.seen_state = CLAIMED
        self._attach([job], who, span, start, answer.margin)
        assert job.claim is not None
        return job.claim

    @final
    def claim_next(
        self,
        /,
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
        /,
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
            session.alarm()
            self.engine.rouse()

    @final
    def working(
        self, /, who: str, *, names: Iterable[str] | None = None, timeout: float | None = None, **extra: Any
    ) -> Working:
        """``with board.working(who) as job:`` claims a job and ends its claim by what becomes of the body. It waits for
        a job for ever, unless ``timeout`` says for how long; :meth:`claim_next` does not wait unless that says so.

        A body that ends well consumes the job. :class:`~jobboard.outcomes.Retry` and :class:`~jobboard.outcomes.Reject`
        steer and go no further; any other exception abandons the job, with a backoff and the traceback, and is raised
        again. A job that the body has finished itself is left alone, be it in a transaction of the caller's that is
        still open: if that is rolled back after the block, the job comes back when its lease has lapsed.

        ``@board.working(who)`` makes a function of a job into one that does so with each call: the job is its first
        argument, before those that the caller gives. It returns what the function returns, None after Retry and Reject.

        A claim of a job without an attempt left puts the job into the trash, and the body does not run: every claim
        counts as an attempt, those of dead workers included. A job has the ``max_attempts`` of its posting, else 25.

        A child that the body forks ends where it would leave the body, as by ``os._exit``: the code behind the block is
        the parent's. Its status is 0, or Python's own for an exception.

        :param names: take only jobs of these names.
        :param timeout: seconds to wait for one; None, the default, waits for ever, 0 does not wait.
        :param extra: further arguments of :meth:`claim_next`: ``expiry=`` and ``unless=``, and ``where=`` on SQL.
        :raises NotFound: no job in time, or before ``unless`` was true.
        :raises ClaimLost: the body ended well, but the claim was lost meanwhile.
        :raises ConnectionFailure: the body ended well, but the job could not be consumed: unless that has been done all
            the same, it comes back when its lease has lapsed, as nobody works on it any more.
        """
        return Working(lambda: self._working(who, {"names": names, "timeout": timeout, **extra}))

    @contextlib.contextmanager
    def _working(self, who: str, wish: dict[str, Any]) -> Iterator[Job]:
        job: Job | None = None
        try:
            try:
                for each in wishes(wish):
                    job = self.claim_next(who, **each)
                    if job is None:
                        raise nothing_claimed(wish["timeout"])
                    verdict = outcomes.refused_work(job)
                    if verdict is None:
                        break
                    refused, job = job, None
                    self._refuse(refused, verdict)
                assert job is not None
                with self._work_on(job):
                    yield job
            except BaseException as error:
                if job is None or not self._work_ended(job, error):
                    raise
            else:
                self._work_ended(job, None)
        except BaseException:
            if job is not None:
                # Interrupted before the end of the claim began, nobody else lets go of it.
                self._let_lapse(_claim_of(job), self._session)
            raise

    def _refuse(self, job: Job, verdict: outcomes.Verdict) -> None:
        """End the claim of a job whose work is not to run.

        :raises JobBoardError: the claim could not be ended, and nobody else has taken the job.
        """
        claim = _claim_of(job)
        try:
            self._conclude(claim, verdict)
        except BaseException as error:
            self._let_lapse(claim, self._session)
            if not isinstance(error, ClaimLost | NotFound):
                raise
        else:
            LOG.warning("%s is in the trash: %s", job, verdict.error, extra=logs.fields(job))

    @contextlib.contextmanager
    def _work_on(self, job: Job) -> Iterator[None]:
        """What the work itself is done within."""
        with outcomes.working_on(job), self.tracing.run(job), ForkGuard():
            yield

    def _work_ended(self, job: Job, error: BaseException | None) -> bool:
        """End the claim by what became of the work; whether ``error``, which it raised, goes no further.

        :raises ClaimLost: the work has ended well, but does not count.
        :raises JobBoardError: it has ended well, but the job could not be consumed.
        :raises Exception: ``error`` asks for what can't be done; this is what counts in its place.
        """
        claim = _claim_of(job)
        outcome, counts = outcomes.judged(error, job)
        if not self._leave(claim):
            try:
                self._conclude(claim, outcome)
            except BaseException as failure:
                self._let_lapse(claim, self._session)
                if error is None or not isinstance(failure, JobBoardError):
                    raise
                LOG.warning("could not give back %s: %s", job, failure, extra=logs.fields(job))
            if error is None and outcome is not outcomes.CONSUMED:
                raise about(ClaimLost(f"{job}: {outcomes.IN_VAIN}"), job)
        if counts is not None and counts is not error:
            raise counts
        return isinstance(error, (outcomes.Retry, outcomes.Reject))

    def _conclude(self, claim: Claim, outcome: outcomes.Verdict) -> None:
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
        wanted = self._wanted(who, expiry, names, extra)
        try:
            for turn in self._rounds(timeout):
                if unless is not None and unless():
                    self.engine.forgo()
                    break
                jobs, taken = self._look(turn.session, wanted, limit)
                if jobs:
                    return jobs
                # Asked again after the mark was read: what wakes from here on is not slept through.
                if turn.left() <= 0 or (unless is not None and unless()):
                    break
                self._doze(turn, taken.mark, wanted.names, taken.next_event)
        except BaseException:
            # What a store has claimed for this wait is for no later call.
            self.engine.forgo()
            raise
        return []

    def _wanted(self, who: str, expiry: float | None, names: Iterable[str] | None, extra: dict[str, Any]) -> WantedJobs:
        codec.check_text("who", who)
        span = arguments.micros("expiry", expiry, positive=True)
        return WantedJobs(who, span, arguments.names(names), extra)

    def _look(self, session: Session, wanted: WantedJobs, limit: int) -> tuple[list[Job], Taken]:
        """Claim what can be claimed at this moment, and what the store has said to that last."""
        who, span, names, extra = wanted
        jobs: list[Job] = []
        while True:
            want = min(BATCH, limit - len(jobs))
            try:
                taken, start = session.mutate(self.engine.take, who, want, span, names, codec.VERSION, **extra)
            except JobBoardError as error:
                # Of those claimed already nobody else knows.
                if not jobs:
                    raise
                LOG.warning("claimed %d of %d jobs, then: %s", len(jobs), limit, error)
                return jobs, taken
            try:
                for record in taken.trashed:
                    self._gone(notifier.TRASHED, self._job_or_shell(record, TRASHED))
                claimed = [job for record in taken.records if (job := self._claimed_job(record, who)) is not None]
                self._attach(claimed, who, span, start, taken.margin, jobs)
                jobs += claimed
                if (len(taken.records) < want and not taken.replayed) or len(jobs) >= limit:
                    return jobs, taken
            except BaseException:
                self._give_back([job for job in jobs if not _claim_of(job).ended])
                self._give_back_unheld(session, taken.records, who)
                raise

    def _give_back(self, jobs: Sequence[Job]) -> None:
        """End the claims of jobs that nobody here will work on; that attempt does not count."""
        session = self._live()
        for who, group in itertools.groupby(jobs, lambda job: _claim_of(job).who):
            mine = list(group)
            try:
                self.finish_many([Act(job, *outcomes.GIVEN_BACK) for job in mine], who)
            except JobBoardError as error:
                LOG.warning("could not give back %d jobs, which lapse by themselves: %s", len(mine), error)
                for job in mine:
                    self._let_lapse(_claim_of(job), session)

    def _give_back_unheld(self, session: Session, records: Sequence[Record], who: str) -> None:
        """End claims that no job has been given yet, as an interrupt came between; that attempt does not count."""
        acts = [Finish(each.uuid, Holder(who, each.token), Verb.ABANDON, refund=True) for each in records]
        try:
            session.mutate(self.engine.finish, acts)
        except JobBoardError as error:
            LOG.warning("could not give back %d jobs, which lapse by themselves: %s", len(acts), error)

    def _let_lapse(self, claim: Claim, session: Session | None) -> None:
        """Nobody works under it. Kept any longer, it would never come back."""
        if not claim.ended and session is not None and session.let_go(claim):
            self.engine.forsake(claim.uuid, claim.token)

    def _rounds(self, timeout: float | None) -> Iterator[Turn]:
        """Rounds of looking for something to do, without end: whoever looks breaks off when no time is left."""
        timeout_of(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        for number in itertools.count(1):
            session = self._live()
            session.look()
            yield Turn(session, number, end)

    def _doze(self, turn: Turn, mark: object, names: Sequence[str] | None, next_event: int | None) -> None:
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
            holder = Holder(who, record.token)
            poison = Finish(record.uuid, holder, Verb.TRASH, error=str(error), name=record.name, group=record.group)
            shell = Job(self, record, UNREADABLE, TRASHED)
            LOG.warning("%s goes to the trash: %s", shell, error, extra=logs.fields(shell))
            try:
                self._live().mutate(self.engine.finish, [poison])
            except JobBoardError as failure:
                # The others of the batch are claimed, and must not be forgotten; this one comes back to somebody.
                LOG.warning("%s could not be trashed: %s", shell, failure, extra=logs.fields(shell))
                self.engine.forsake(record.uuid, record.token)
            else:
                self._gone(notifier.TRASHED, shell)
            return None

    def _attach(
        self,
        jobs: Sequence[Job],
        who: str,
        span: int | None,
        start: float,
        margin: int | None,
        earlier: Sequence[Job] = (),
    ) -> None:
        """:param earlier: claimed by the same call before. Where this fails, its caller gets none of them."""
        deadline = None if margin is None else start + margin / 1e6
        claims = [Claim(job, job._record.token, who, span is None, deadline) for job in jobs]
        for job, claim in zip(jobs, claims, strict=True):
            job.claim = claim
        try:
            if span is None:
                self._live().hold(*claims)
            for job in jobs:
                self.tracing.claimed(job, start)
            self._notify(notifier.CLAIMED, *jobs)
        except BaseException:
            self._give_back([*earlier, *jobs])
            raise


def _claim_of(job: Job) -> Claim:
    assert job.claim is not None
    return job.claim


def wishes(wish: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the arguments of one claim after another. Each claim waits for what is left of the first one's timeout."""
    begun, timeout = time.monotonic(), wish["timeout"]
    # They may come from an iterator, which gives them once.
    wish = {**wish, "names": arguments.names(wish["names"])}
    yield wish
    while True:
        left = None if timeout is None else max(0.0, begun + timeout - time.monotonic())
        yield {**wish, "timeout": left}


def nothing_claimed(timeout: float | None) -> NotFound:
    return NotFound("no job was claimed" if timeout is None else f"no job to claim in {timeout:g} s")


def timeout_of(timeout: float | None) -> float | None:
    """:raises ValueError: it is none."""
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
        raise ValueError(f"timeout={shortened(timeout)}: must be 0 or more seconds, or None to wait for ever")
    return check_longest(timeout)
