"""Results and outcomes of consumed jobs: their encoding, and their form for users."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from typing import Any

from jobboard import codec, logs
from jobboard.engine import Done, RetryingEngine
from jobboard.job import Job
from jobboard.primitives import PAGE, End, Returned
from jobboard.states import Failure, moment, workers

LOG = logging.getLogger(__name__)


class Outcome:
    """The outcome of a job that was consumed on a board with ``keep_done``.

    ``job`` is a handle of the job, in state COMPLETE. ``result`` is the result of its work, or None; ``refused`` says
    why that result could not be stored. ``repr()`` shows neither details nor result.
    """

    __slots__ = {
        "_done": None,
        "job": "The consumed job.",
        "result": "The result, as consumed; None if nothing or nothing storable was given.",
    }

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
    def stored(self) -> Done:
        """The outcome as the board stores it."""
        return self._done

    @property
    def uuid(self) -> str:
        """The uuid of the job."""
        return self.job.uuid

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.job.name

    @property
    def key(self) -> str | None:
        """The key that the job had."""
        return self.job.key

    @property
    def group(self) -> str | None:
        """The group of the job."""
        return self.job.group

    @property
    def priority(self) -> int:
        """The priority of the job."""
        return self.job.priority

    @property
    def details(self) -> dict[str, Any]:
        """The details of the job, as posted."""
        return self.job.details

    @property
    def context(self) -> dict[str, str]:
        """The context of the job, as posted."""
        return self.job.context

    @property
    def attempts(self) -> int:
        """The number of its claims, the last one included."""
        return self.job.attempts

    @property
    def errors(self) -> tuple[Failure, ...]:
        """The failures before its success: see :attr:`Job.errors <jobboard.job.Job.errors>`."""
        return self.job.errors

    @property
    def who(self) -> str | None:
        """The holder that has consumed the job."""
        return self._done.record.who

    @property
    def workers(self) -> tuple[str, ...]:
        """The holder of each known attempt: those of :attr:`errors`, and the last one."""
        return tuple(workers(self.errors, self.who, self.attempts))

    @property
    def posted_on(self) -> datetime.datetime:
        """The time of the post, by the server's clock."""
        return self.job.created_on

    @property
    def begun_on(self) -> datetime.datetime:
        """The time of the claim that has consumed the job."""
        return moment(self._done.begun)

    @property
    def ended_on(self) -> datetime.datetime:
        """The time of the consume, by the server's clock."""
        return self.job.last_modified

    @property
    def until(self) -> datetime.datetime:
        """The time at which this outcome expires."""
        return moment(self._done.until)

    @property
    def refused(self) -> str | None:
        """The reason why the result could not be stored; None if nothing was refused."""
        return self._done.refused


class Results:
    """The results that a board stores, and the outcomes that it reads.

    keep: the µs for which the outcome of a job is kept that is consumed through this board; None keeps none.
    form: the size limit and the encoding of results; None where no result is kept.
    """

    def __init__(self, engine: RetryingEngine, keep_done: float, max_details: int) -> None:
        self._engine = engine
        self.keep = round(keep_done * 1e6) or None
        self.form = None if self.keep is None else (max_details, engine.wire)

    def encoded(self, job: Job, result: Any) -> Returned | None:
        """Return the result that a caller gives with the end of a claim, as it is stored.

        :raises ValueError, TypeError: the result can't be stored.
        """
        if result is None:
            return None
        if self.form is None:
            raise ValueError(
                f"a result is given for {job}, and this board keeps none: set its option keep_done to the seconds for "
                "which results are to be kept"
            )
        returned = Returned(codec.encode_result(result, *self.form))
        if large := self._too_large(job, returned):
            raise ValueError(large)
        return returned

    def storable(self, job: Job, end: End) -> End:
        """Return the end of a claim. A result that does not fit beside the details is refused."""
        large = None if end.result is None else self._too_large(job, end.result)
        return end if large is None else end._replace(result=Returned(refused=large))

    def _too_large(self, job: Job, returned: Returned) -> str | None:
        most = self._engine.most_kept
        if most is None or returned.result is None:
            return None
        size = len(job.record.posting) + len(returned.result)
        if size <= most:
            return None
        return (
            f"the details and the result take {size} bytes together, and {most} fit here; store large data elsewhere "
            "and give a reference to it"
        )

    def walk(self, after: Done | None = None) -> Iterator[Done]:
        """Yield the stored outcomes behind ``after``, the last consumed first."""
        while page := self._engine.done_page(after, PAGE):
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1]

    def of(self, uuid: str) -> Done | None:
        """Return the stored outcome of a job."""
        [done] = self._engine.outcomes([uuid])
        return done

    def outcome(self, done: Done, job: Job) -> Outcome:
        """Return a stored outcome as users see it. Damage to its result hides nothing else."""
        try:
            return Outcome(done, job, self.decoded(done))
        except codec.Undecodable as error:
            LOG.warning("%s: %s", job, error, extra=logs.fields(job))
            return Outcome(done._replace(refused=str(error)), job, None)

    def decoded(self, done: Done) -> Any:
        """Return the result of a stored outcome.

        :raises codec.Undecodable: the result is damaged.
        """
        return None if done.result is None else codec.decode_result(done.result, self._engine.wire)
