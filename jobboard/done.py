"""What consumed jobs have left, as users see it."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Iterator
from typing import Any, final

from jobboard import arguments, codec, logs
from jobboard.base import BoardBase, about
from jobboard.engine import Done
from jobboard.exceptions import NotFound
from jobboard.job import Job
from jobboard.primitives import Oddity
from jobboard.session import Session
from jobboard.states import COMPLETE, Failure, moment, workers

LOG = logging.getLogger(__name__)

PAGE = 500


class Outcome:
    """What a job has left that was consumed on a board with ``keep_done``.

    ``job`` is a handle of it, in state COMPLETE. ``result`` is what its work has returned, or None; ``refused`` says
    why that could not be stored. ``repr()`` shows neither details nor result.
    """

    __slots__ = ("_done", "job", "result")

    def __init__(self, done: Done, job: Job, result: Any) -> None:
        self._done = done
        self.job = job
        self.result = result

    def __repr__(self) -> str:
        return f"<Outcome of {self.job}, {self.ended_on:%Y-%m-%d %H:%M:%S}Z by {self.who!r}>"

    def __eq__(self, other: object) -> bool:
        return self.job == other.job if isinstance(other, Outcome) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.job)

    @property
    def uuid(self) -> str:
        return self.job.uuid

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def key(self) -> str | None:
        return self.job.key

    @property
    def group(self) -> str | None:
        return self.job.group

    @property
    def priority(self) -> int:
        return self.job.priority

    @property
    def details(self) -> dict[str, Any]:
        return self.job.details

    @property
    def context(self) -> dict[str, str]:
        return self.job.context

    @property
    def attempts(self) -> int:
        """How often it was claimed, the last time included."""
        return self.job.attempts

    @property
    def errors(self) -> tuple[Failure, ...]:
        """Its failures before that: see :attr:`Job.errors <jobboard.job.Job.errors>`."""
        return self.job.errors

    @property
    def who(self) -> str | None:
        """Who has consumed it."""
        return self._done.record.who

    @property
    def workers(self) -> tuple[str, ...]:
        """Who has worked on it, one for each attempt that is known: those of :attr:`errors`, and the last one."""
        return tuple(workers(self.errors, self.who, self.attempts))

    @property
    def posted_on(self) -> datetime.datetime:
        return self.job.created_on

    @property
    def begun_on(self) -> datetime.datetime:
        """When the claim was made that has consumed it."""
        return moment(self._done.begun)

    @property
    def ended_on(self) -> datetime.datetime:
        return self.job.last_modified

    @property
    def until(self) -> datetime.datetime:
        """When this outcome will be gone."""
        return moment(self._done.until)

    @property
    def refused(self) -> str | None:
        return self._done.refused


class Keeping(BoardBase):
    """What a board keeps of the jobs that are consumed through it, and shows of those that were, through any."""

    @final
    def outcomes(self, *, names: Iterable[str] | None = None, after: Outcome | None = None) -> Iterator[Outcome]:
        """What consumed jobs have left, the last consumed first; see the option ``keep_done``.

        :param names: only jobs of these names.
        :param after: only those behind this one, which need not be there any more.
        """
        session, wanted = self._live(), arguments.names(names)
        if after is not None and not isinstance(after, Outcome):
            raise TypeError(f"after must be an Outcome, not {type(after).__name__}")
        return self._walk_outcomes(session, wanted, None if after is None else after._done)

    def _walk_outcomes(self, session: Session, names: tuple[str, ...] | None, after: Done | None) -> Iterator[Outcome]:
        while page := session.query(self.engine.done_page, after, PAGE):
            for done in page:
                if names is None or done.record.name in names:
                    yield self._outcome(done)
            if len(page) < PAGE:
                return
            after = page[-1]

    @final
    def outcome(self, job: Job) -> Outcome:
        """What a job has left.

        :raises NotFound: nothing is kept of it, or it has not been consumed.
        """
        [done] = self._live().query(self.engine.outcomes, [arguments.job(job).uuid])
        if done is None:
            raise about(
                NotFound(
                    f"{job} has left nothing: it was not consumed, or on a board without keep_done, or longer ago than "
                    "that"
                ),
                job,
            )
        return self._outcome(done)

    def _outcome(self, done: Done) -> Outcome:
        """Damage to the details or the result hides nothing else."""
        job = self._job_or_shell(done.record, COMPLETE)
        result = None
        if done.result is not None:
            try:
                result = codec.decode_result(done.result, self.engine.wire)
            except codec.Undecodable as error:
                LOG.warning("%s: %s", job, error, extra=logs.fields(job))
                done = done._replace(refused=str(error))
        return Outcome(done, job, result)

    def _odd_outcomes(self, session: Session) -> Iterator[Oddity]:
        after: Done | None = None
        while page := session.query(self.engine.done_page, after, PAGE):
            for done in page:
                if (why := self._unreadable(done)) is not None:
                    newer = "upgrade the library here; " if done.record.version > codec.VERSION else ""
                    advice = (
                        f"{newer}it is in nobody's way, and goes by itself at {moment(done.until):%Y-%m-%d %H:%M:%SZ}"
                    )
                    yield Oddity(f"outcome {done.record.uuid}", why, advice)
            if len(page) < PAGE:
                return
            after = page[-1]

    def _unreadable(self, done: Done) -> str | None:
        record = done.record
        if record.version > codec.VERSION:
            return f"its job was posted in version {record.version}, and this library reads up to {codec.VERSION}"
        try:
            self._content(record)
            if done.result is not None:
                codec.decode_result(done.result, self.engine.wire)
        except codec.Undecodable as error:
            return str(error)
        return None

    def _result(self, job: Job) -> Any:
        outcome = self.outcome(job)
        if outcome.refused is not None:
            raise about(NotFound(f"{job} has no result: {outcome.refused}"), job)
        return outcome.result

    def _done_job(self, uuid: str) -> Job:
        """:raises NotFound: nothing is kept of such a job."""
        [done] = self._live().query(self.engine.outcomes, [uuid])
        if done is None:
            raise NotFound(f"there is no job {uuid}")
        return self._job(done.record, COMPLETE)

    def _encoded(self, job: Job, result: Any) -> codec.Returned:
        """The result that was given with the end of a claim.

        :raises ValueError, TypeError: it can't be stored.
        """
        if result is None:
            return codec.NOTHING
        if isinstance(result, codec.Returned):
            large = self._too_large(job, result.result)
            return codec.Returned(None, large) if large else result
        if self._keeps is None:
            raise ValueError(
                f"a result is given for {job}, and this board keeps none: set its option keep_done to the seconds for "
                "which results are to be kept"
            )
        encoded = codec.encode_result(result, *self._keeps)
        if large := self._too_large(job, encoded):
            raise ValueError(large)
        return codec.Returned(encoded, None)

    def _too_large(self, job: Job, result: bytes | str | None) -> str | None:
        """Why an outcome with this result can't be stored."""
        most, size = self.engine.most_kept, len(job._record.posting) + len(result or "")
        if most is None or result is None or size <= most:
            return None
        return (
            f"the details and the result take {size} bytes together, and {most} fit here; store large data elsewhere "
            "and give a reference to it"
        )
