"""How claims end."""

from __future__ import annotations

import contextlib
import datetime
import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, final

from jobboard import arguments, codec, notifier
from jobboard.base import BATCH, POST_BYTES, about
from jobboard.done import Keeping
from jobboard.exceptions import ClaimLost, JobBoardError, JobFailure, JobFailures
from jobboard.job import Act, Claim, Job
from jobboard.primitives import Finish, batches
from jobboard.session import Session
from jobboard.states import COMPLETE, CONSUME, FINISHES, OK, SCHEDULED, TRASHED, UNCLAIMED, Holder, Status, Verb, failed


class _End(NamedTuple):
    """One claim to end, as the public verbs hand it on."""

    job: Job
    claim: Claim | None
    verb: Verb
    delay: int | None = None
    error: str | None = None
    refund: bool = False
    retry: bool = False
    result: codec.Returned = codec.NOTHING


def _batches(asked: list[tuple[int, Finish]], ends: list[_End]) -> Iterator[list[tuple[int, Finish]]]:
    """As many at once as a request may have: of those whose details stay, in an outcome or with the job, no more than
    fit."""

    def size(each: tuple[int, Finish]) -> int:
        index, act = each
        goes = act.verb == CONSUME and act.keep is None
        return 0 if goes else len(ends[index].job._record.posting) + len(act.result or "")

    yield from batches(asked, size, BATCH, POST_BYTES)


def _claims(ends: Iterable[_End]) -> list[Claim]:
    return [end.claim for end in ends if end.claim is not None]


class Finishing(Keeping):
    """The verbs with which a claim is prolonged and ended."""

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
        /,
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
    def consume(self, /, job: Job, who: str, *, result: Any = None, **extra: Any) -> None:
        """The work on a claimed job is done: take it off the board. Errors as :meth:`extend`.

        :param result: what the work has led to, for :meth:`Job.result <jobboard.job.Job.result>` and :meth:`outcomes`:
            of JSON's shape, at most ``max_details`` bytes as JSON.
        :raises ValueError, TypeError: the result can't be stored, or the board's option ``keep_done`` is 0, so that it
            keeps none; the job was not consumed.
        """
        self._end(arguments.job(job), job.claim, who, CONSUME, result=result, **self._extras("consume", extra))

    @final
    def trash(self, /, job: Job, who: str, *, reason: str | None = None, **extra: Any) -> None:
        """Put a claimed job into the trash, with a reason. Errors as :meth:`extend`."""
        self._end(arguments.job(job), job.claim, who, Verb.TRASH, None, reason, **self._extras("trash", extra))

    @final
    def consume_many(self, /, jobs: Iterable[Job], who: str, **extra: Any) -> None:
        """Consume all of these, in as few requests as can be.

        :raises JobFailures: with one error for each that could not be; the others were consumed.
        """
        ends = [_End(arguments.job(job), job.claim, CONSUME) for job in jobs]
        self._end_many(ends, who, self._extras("consume_many", extra))

    @final
    def finish_many(self, /, acts: Iterable[Act], who: str, **extra: Any) -> None:
        """End many claims, each by its own verb; errors as :meth:`consume_many`."""
        ends = []
        for act in acts:
            if not isinstance(act, Act):
                raise TypeError(f"finish_many() takes Acts, as Act(job, 'consume'), and not a {type(act).__name__}")
            verb = act.verb if isinstance(act.verb, Verb) else Verb(act.verb)
            if verb not in FINISHES:
                raise ValueError(f"{verb} does not end a claim; {', '.join(sorted(FINISHES))} do")
            error, delay = codec.clip_error(act.error), arguments.micros("delay", act.delay)
            if act.result is not None and verb != CONSUME:
                raise ValueError(f"a result goes with {CONSUME}, not with {verb}")
            result = self._encoded(arguments.job(act.job), act.result)
            ends.append(_End(act.job, act.job.claim, verb, delay, error, act.refund, act.retry, result))
        self._end_many(ends, who, self._extras("finish_many", extra))

    def _extend(self, job: Job, claim: Claim | None, who: str, expiry: float | None) -> None:
        holder = self._holder(job, claim, codec.check_text("who", who))
        span = arguments.micros("expiry", expiry, positive=True)
        session = self._live()
        with contextlib.nullcontext() if claim is None else session.extending(claim):
            (status, margin), start = session.mutate(self.engine.extend, job.uuid, holder, span)
            if status != OK:
                raise self._refusal(status, job, claim)
            if claim is not None:
                session.extended(claim, None if margin is None else start + margin / 1e6, span is None)
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
        *,
        result: Any = None,
        **extra: Any,
    ) -> None:
        span, text = arguments.micros("delay", delay), codec.clip_error(error)
        end = _End(job, claim, verb, span, text, False, retry, self._encoded(job, result))
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
        keep = self._keep
        for index, (job, claim, verb, delay, error, refund, retried, result) in enumerate(ends):
            try:
                holder = self._holder(job, claim, who)
            except JobFailure as failure:
                results[index] = failure
                continue
            # A claim that stands twice in a batch is ended once: to a backend it would look like a repetition.
            original = first.setdefault((job.uuid, holder), index)
            if original == index:
                act = Finish(
                    job.uuid, holder, verb, delay or None, error, refund, None, retried, name=job.name, group=job.group
                )
                if keep is not None and verb == CONSUME:
                    act = act._replace(keep=keep, **result._asdict())
                asked.append((index, act))
            else:
                repeated.append((index, original))
        for chunk in _batches(asked, ends):
            begun = session.ending(_claims(ends[index] for index, _ in chunk))
            try:
                statuses = self._mutate(self.engine.finish, [act for _, act in chunk], **extra)
            except BaseException:
                session.over(begun)
                raise
            told = [(index, status) for (index, _), status in zip(chunk, statuses, strict=True)]
            done = [ends[index] for index, status in told if status == OK]
            refused = [(index, status) for index, status in told if status != OK]
            refusals = self._refusals([(status, ends[index].job, ends[index].claim) for index, status in refused])
            for (index, _), refusal in zip(refused, refusals, strict=True):
                results[index] = refusal
            session.let_go(*_claims(ends[index] for index, _ in refused))
            self.engine.after_commit(
                extra,
                functools.partial(self._ended, session, begun, done, who),
                functools.partial(session.over, begun),
            )
        for index, original in repeated:
            results[index] = results[original] or self._refusal(Status.ABSENT, ends[index].job, ends[index].claim)
        return results

    def _leave(self, claim: Claim) -> bool:
        """Whether who is done with the work has nothing to end: the claim has ended, or its end is under way. That may
        be in a transaction of the caller's, whose locks whoever ended it as well would wait for. If that is rolled
        back, the job comes back when the lease has lapsed, as nobody works on it any more."""
        session = self._session
        return claim.ended or (session is not None and session.leave(claim))

    def _ended(self, session: Session, begun: list[Claim], ends: list[_End], who: str) -> None:
        session.over(begun, _claims(ends))
        abandoned: list[Job] = []
        consumed: list[Job] = []
        trashed: list[Job] = []
        for job, claim, verb, delay, error, refund, retried, _ in ends:
            if claim is None:
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
