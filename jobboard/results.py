"""Results and outcomes of consumed jobs: their encoding, and their form for users."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from jobboard import codec, logs
from jobboard.ciphers import Seal
from jobboard.engine import RetryingEngine, StoredOutcome
from jobboard.exceptions import NoKey
from jobboard.job import Job
from jobboard.primitives import PAGE, End, Returned
from jobboard.states import Failure, moment, workers

LOG = logs.Log(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """The outcome of a job that was consumed on a board with ``keep_done``.

    job: a handle of the consumed job, in state COMPLETE; uuid to errors are its own. refused: the reason why the result
    could not be stored, None if nothing was refused. who: the holder that has consumed the job. workers: the holder of
    each known attempt, those of ``errors`` and the last one. posted_on, begun_on, ended_on: the times of the post, of
    the last claim and of the consume, by the server's clock. until: the time at which this outcome expires. stored: the
    outcome as the board stores it.

    Outcomes of one job are equal. ``repr()`` shows neither details nor result.
    """

    job: Job
    uuid: str
    name: str
    key: str | None
    group: str | None
    priority: int
    context: dict[str, str]
    attempts: int
    errors: tuple[Failure, ...]
    refused: str | None
    who: str | None
    workers: tuple[str, ...]
    posted_on: datetime.datetime
    begun_on: datetime.datetime
    ended_on: datetime.datetime
    until: datetime.datetime
    stored: StoredOutcome
    _result: Any

    @property
    def details(self) -> dict[str, Any]:
        """The details of the job.

        :raises NoKey: they are encrypted, and the board can't decrypt them.
        """
        return self.job.details

    @property
    def result(self) -> Any:
        """The result, as consumed; None if nothing or nothing storable was given.

        :raises NoKey: it is encrypted, and the board can't decrypt it.
        """
        if isinstance(self._result, NoKey):
            raise NoKey(f"the result of {self.job} is {self._result}", self._result)
        return self._result

    @classmethod
    def of(cls, done: StoredOutcome, job: Job, result: Any) -> Self:
        """Return a stored outcome, with its decoded result, or the NoKey that decoding it raised."""
        own = ("uuid", "name", "key", "group", "priority", "context", "attempts", "errors")
        return cls(
            job=job,
            **{name: getattr(job, name) for name in own},
            _result=result,
            refused=done.refused,
            who=job.who,
            workers=tuple(workers(job.errors, job.who, job.attempts)),
            posted_on=job.created_on,
            begun_on=moment(done.begun),
            ended_on=job.last_modified,
            until=moment(done.until),
            stored=done,
        )

    def __repr__(self) -> str:
        return f"<Outcome of {self.job}, {self.ended_on:%Y-%m-%d %H:%M:%S}Z by {self.who!r}>"

    def __eq__(self, other: object) -> bool:
        return self.job == other.job if isinstance(other, Outcome) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.job)


class Results:
    """The results that a board stores, and the outcomes that it reads.

    keep: the µs for which the outcome of a job is kept that is consumed through this board; None keeps none.
    form: the size limit, the encoding and the cipher of results; None where no result is kept.
    """

    def __init__(self, engine: RetryingEngine, keep_done: float, max_details: int, seal: Seal | None) -> None:
        self._engine = engine
        self._seal = seal
        self.keep = round(keep_done * 1e6) or None
        self.form = None if self.keep is None else (max_details, engine.wire, seal)

    def encoded(self, job: Job, result: Any) -> Returned | None:
        """Return a caller's result as it is stored; raise ValueError or TypeError if it can't be stored."""
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
        most = self._engine.backend.traits.most_kept
        if most is None or returned.result is None:
            return None
        size = len(job.record.posting) + len(returned.result)
        if size <= most:
            return None
        return (
            f"the details and the result take {size} bytes together, and {most} fit here; store large data elsewhere "
            "and give a reference to it"
        )

    def walk(self, after: StoredOutcome | None = None) -> Iterator[StoredOutcome]:
        """Yield the stored outcomes behind ``after``, the last consumed first."""
        while page := self._engine.outcome_page(after, PAGE):
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1]

    def of(self, uuid: str) -> StoredOutcome | None:
        """Return the stored outcome of a job."""
        [done] = self._engine.outcomes([uuid])
        return done

    def outcome(self, done: StoredOutcome, job: Job) -> Outcome:
        """Return a stored outcome as users see it. Damage to its result hides nothing else."""
        try:
            return Outcome.of(done, job, self.decoded(done.result))
        except NoKey as error:
            return Outcome.of(done, job, error)
        except codec.Undecodable as error:
            LOG.warning("%s: %s", job, error, extra=logs.fields(job))
            return Outcome.of(done._replace(refused=str(error)), job, None)

    def decoded(self, result: bytes | str | None) -> Any:
        """Return a stored result, or raise Undecodable or NoKey."""
        return None if result is None else codec.decode_result(result, self._engine.wire, self._seal)
