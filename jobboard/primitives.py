"""Arguments and answers of the calls of :class:`jobboard.engine.Engine`, and the public ones among their types.

The board checks arguments, decodes postings, notifies listeners and keeps claims. The engine stores opaque postings and
makes each call atomic on its server. :mod:`jobboard.states` decides the effect of a call on a record.

**Units.** Every time, delay and expiry is an integer of microseconds; instants since 1970 UTC on the server's clock.

**Nonces.** Each mutation has a :class:`Nonce`. The commit of the mutation also stores one answer for the (handle, slot)
of the nonce, in place of the answer to the slot's earlier call.

- The same ``call`` again, with any ``attempt``, gets the stored answer and changes nothing.
- A ``call`` below the stored one is refused. Nobody waits for its answer.
- A repetition (``attempt`` > 1) stores its answer in any case, so that a delayed first try cannot act after it. A first
  try that changes nothing may leave its answer out.
- Stored answers are ``(status, uuid, token)``. A replay reads the record again. A claim that has lapsed or that another
  holds by then is answered as LOST; a take leaves it out. An extend whose token still stands is done again.
- A store may drop an answer after an hour.

**Failures.** A call raises :class:`~jobboard.exceptions.ConnectionFailure` within a few seconds where the server cannot
be reached. Its ``outcome`` is ``'unknown'`` if the request may have been carried out, or still may be. The board
repeats the call with the same nonce. A backend itself repeats a request after a deadlock or a flushed script cache.

**Margins.** A margin counts from the time at which *this try* was sent. On a replay, it is the time left. None means
that the claim stands as long as the process, as only a board in memory can promise.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from jobboard.states import (
    CLAIMED,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Failure,
    FailureKind,
    Holder,
    Record,
    State,
    Status,
    Verb,
    finish,
    settle,
)

T = TypeVar("T")

BATCH = 100
"""The number of jobs that one request claims, finishes or moves at most."""

PAGE = 500
"""The number of jobs, outcomes or side records that one request lists at most."""

POST_BATCH = 500
"""The number of postings that one request stores at most, so that :meth:`~jobboard.JobBoard.post_many` is atomic up to
it."""

POST_BYTES = 512 * 1024
"""The bytes that postings, or the remains of jobs, have together in one request at most."""


class CommitBound(NamedTuple):
    """The bound of a store on one commit.

    most: bytes. around: the bytes that a new job takes beside its posting, its name, its group and its key.
    """

    most: int
    around: int


POLL_CAP = 1.0
"""The longest sleep between two looks of a polling board: with the jitter, it looks every 0.5 to 1 s."""


MENTIONED = 20
"""The number of boards that an error names to a user who may have mistyped one."""


def mentioned(boards: Sequence[str]) -> str:
    """Return the end of a message about an absent or empty board."""
    return f"; boards there: {', '.join(map(repr, boards))}" if boards else ""


def span(seconds: float) -> str:
    """Return a time in two units at most."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    units = (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86400, "h", 3600))
    unit, length, part, below = next((each for each in units if seconds < 100 * each[1]), units[-1])
    whole, rest = divmod(int(seconds), length)
    return f"{whole}{unit}{rest // below:02d}{part}"


class Nonce(NamedTuple):
    """The name of one call of one board handle, by which a repetition is recognised."""

    handle: str
    slot: int
    call: int
    attempt: int = 1


HELD_UNTIL = 7_258_118_400_000_000
"""The end of the lease of a held job, in the year 2200: one instant for all, which a double counts exactly."""


class Arrival(NamedTuple):
    """The past of a job that arrives from another board.

    The job is stored as CLAIMED by ``who`` until :data:`HELD_UNTIL`. No worker takes the job before ``who`` releases
    it. With ``trashed_on``, the job is stored as TRASHED since that instant, without its key.

    token: the least token of the job on this board. This token exceeds all earlier tokens of the job, even if the clock
    of this server is behind the clock of the other server. Two arrivals have different tokens.
    """

    who: str
    attempts: int
    errors: tuple[Failure, ...]
    created_on: int
    trashed_on: int | None
    token: int
    retries: int = 0


class Draft(NamedTuple):
    """A job to be stored.

    priority: a rank, as in its record. delay, due: at most one is given; the delay counts from now on the server's
    clock. key_for: the µs from now for which its key stays taken at least. replace: the unclaimed job that has its key
    gets the posting. expires, expires_in: at most one is given: the instant at which the job goes to the trash unless
    somebody has begun it, or the µs until then. note: of the holder of an arrival.
    """

    uuid: str
    name: str
    priority: int
    key: str | None
    version: int
    posting: bytes | str
    max_attempts: int | None
    delay: int | None
    due: int | None
    arrival: Arrival | None = None
    group: str | None = None
    key_for: int | None = None
    replace: bool = False
    expires_in: int | None = None
    expires: int | None = None
    note: bytes | str | None = None

    @property
    def is_plain(self) -> bool:
        """True if the fast path of a post stores the whole job."""
        return self.key is None and self.arrival is None and self.expires is self.expires_in is None

    def record(self, sequence: int, now: int) -> Record:
        """Return the job as it is stored at ``now``.

        ``commit.lua`` in ``jobboard/backends/redis/lua`` does the same on Redis, where the server makes the record.
        """
        # Each post makes a record. By keywords this would take three times as long.
        uuid, name, rank, key, version, posting, most, delay, due, came, group, key_for, _, span, expires, *last = self
        if span is not None:
            expires = now + span
        until = due if delay is None else now + delay
        state = SCHEDULED
        if until is None or until <= now:
            state, until = UNCLAIMED, expires
        claims = (state, 0, most, 0, None, None, until)
        key_until = None if key_for is None else now + key_for
        more = (now, now, (), 0, group, key_until, expires, *last)
        record = Record._make((uuid, name, rank, sequence, key, version, posting, *claims, *more))
        if came is None:
            return record
        held = came.trashed_on is None
        return record._replace(
            state=CLAIMED if held else TRASHED,
            attempts=came.attempts,
            retries=came.retries,
            token=max(came.token, now),
            who=came.who,
            lock_until=HELD_UNTIL if held else None,
            created_on=came.created_on,
            modified_on=came.trashed_on or now,
            errors=came.errors,
        )


class Posted(NamedTuple):
    """The answer to a draft.

    status: OK (the draft is stored), KEY (another job has its key), REPLACED (that job has got its posting) or LIVE (an
    arrival is there already). uuid, record, state: the job of the answer; without a record, the job has left the board.
    """

    status: Status
    uuid: str
    record: Record | None
    state: State


class Returned(NamedTuple):
    """The encoded result of work, or the reason why the result could not be stored."""

    result: bytes | str | None = None
    refused: str | None = None


class End(NamedTuple):
    """The checked end of a claim: one record from the handler of a conductor to the store.

    verb: abandon, consume or trash. delay: µs before which nobody can claim the abandoned job. error: the failure to
    remember, at most 16 KiB. refund: the attempt does not count. retry: the attempt does not count, and ``retries``
    rises. result: the result of consumed work. kind: the :class:`~jobboard.states.FailureKind` of ``error``. then: the
    jobs that the commit of a consume posts.
    """

    verb: Verb
    delay: int | None = None
    error: str | None = None
    refund: bool = False
    retry: bool = False
    result: Returned | None = None
    kind: str = FailureKind.ERROR
    then: Sequence[Draft] = ()


GIVEN_BACK = End(Verb.ABANDON, refund=True)
"""The end of a claim under which nobody has worked."""


class Finish(NamedTuple):
    """The end of one claim, as a store gets it.

    due: the instant before which nobody may claim the abandoned job. keep: the µs for which a consumed job leaves an
    outcome; None leaves none. name, group: the job's own; they select the limits that counted the claim. note: the note
    that the holder has not sent yet; None: none.

    An act of an operator is done if ``holder`` is still the last one of the job: see ``act_on_seen`` in ``states.py``.
    """

    uuid: str
    holder: Holder
    end: End
    due: int | None = None
    keep: int | None = None
    name: str = ""
    group: str | None = None
    note: bytes | str | None = None

    def applied_to(self, record: Record | None, now: int) -> tuple[Status, Record | None]:
        """Return what :func:`~jobboard.states.finish` makes of the job at ``now``."""
        verb, delay, error, refund, retry, _, kind, _ = self.end
        return finish(record, self.holder, now, verb, delay, error, refund, self.due, retry, kind, self.note)

    @classmethod
    def of_seen(cls, seen: Record, verb: Verb, error: str | None = None) -> Finish:
        """Return the act of an operator on a job, which is refused if the job has changed since it was read."""
        name = seen.name if seen.state == CLAIMED else ""
        return cls(seen.uuid, Holder(seen.who or "", seen.token), End(verb, error=error), name=name, group=seen.group)


class Finished(NamedTuple):
    """The answer to the end of a claim: its status, and the answers to the drafts that its commit has posted."""

    status: Status
    posted: Sequence[Posted] = ()


class Claimed(NamedTuple):
    """The answer to a claim: the µs for which it surely stands, and its record where ``status`` is OK."""

    status: Status
    record: Record | None
    margin: int | None


class Taken(NamedTuple):
    """The answer to a take.

    margin: the smallest margin of its claims. trashed: known jobs that this call moved to the trash, as a lapse used up
    their last attempt or they expired. next_event: the µs until the next lapse or due time, None if none is known.
    replayed: the answer was stored, so that fewer jobs than asked for do not mean that there are no more.
    """

    records: list[Record]
    margin: int | None
    trashed: list[Record]
    next_event: int | None
    replayed: bool = False


class Renewed(NamedTuple):
    """The answer to a renewal.

    lost: the (uuid, token) of lost claims. margin: the µs for which the other claims stand. missed: claims whose jobs
    others hold in transactions; they stand as long as before. unkept: claims that the handle keeps no longer, as
    somebody has acted by their owner's name, each with the µs for which it stands: 0 or less after a lapse or an end,
    None where another handle keeps it.
    """

    lost: list[tuple[str, int]]
    margin: int | None
    missed: Sequence[tuple[str, int]] = ()
    unkept: Sequence[tuple[str, int, int | None]] = ()


class Peeked(NamedTuple):
    """The answer to a peek: whether anything can be claimed now, and the µs until the next lapse or due time."""

    any: bool
    next_event: int | None


class Seen(NamedTuple):
    """A job as it stands: its logical state, and the µs left of a fixed lease (None: kept, or no lease)."""

    state: State
    record: Record | None
    left: int | None

    @classmethod
    def at(cls, now: int, record: Record) -> Seen:
        """Return a stored job as it stands at ``now``, before any sweep."""
        record = settle(record, now)
        fixed = record.state == CLAIMED and record.keeper is None
        return cls(record.state, record, record.lock_until - now if fixed and record.lock_until is not None else None)

    @property
    def lease_left(self) -> int | None:
        """The µs for which its claim stands by itself: 0 without a claim; None where a board keeps it."""
        return self.left if self.state == CLAIMED else 0


@dataclass(frozen=True)
class Characteristics:
    """The promises of a connected board, for code that does not know the backend.

    durable: acknowledged data survive a crash of the server's machine. survives_failover: and a switch to a
    replica. exact_order: jobs are served exactly by priority and post. blocking_wait: the server wakes waiters; else
    they poll. remote_events: the notifier also reports acts of other processes, all of them or some.
    transactional: verbs take ``connection=``. claim_ttl: the lease of a kept claim that is in force, in seconds.
    server_clock: the server tells the time by which leases and delays end; else it is that of the clients, which must
    be synchronised.
    """

    durable: bool
    survives_failover: bool
    exact_order: bool
    blocking_wait: bool
    remote_events: bool
    transactional: bool
    claim_ttl: float
    notes: str = ""
    server_clock: bool = True


@dataclass(frozen=True)
class BoardStats:
    """The number of jobs in each state."""

    unclaimed: int
    scheduled: int
    claimed: int
    trashed: int

    @property
    def on_board(self) -> int:
        """The number of jobs in any state but trashed."""
        return self.unclaimed + self.scheduled + self.claimed


@dataclass(frozen=True)
class KeptStats:
    """The numbers of a board's schedules and outcomes.

    schedules: their number. next_due: the next due time of those that are not paused, which may have passed; None
    without one. late: the seconds for which nobody has posted a due job, 0.0 if nothing is due. outcomes: their number,
    with those that have just expired. On SQL, 100,000 means so many or more. None on ZooKeeper, where a count would
    list all.
    """

    schedules: int
    next_due: datetime.datetime | None
    late: float
    outcomes: int | None


@dataclass(frozen=True)
class Paused:
    """The pauses of a board: ``everything``, and the jobs of these names beside that. ``name in paused`` tells of one
    name, and ``if paused`` whether anything is paused."""

    everything: bool = False
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    def __contains__(self, name: object) -> bool:
        return self.everything or name in self.names


Per = Literal["name", "group"]
"""The scope of a limit."""


@dataclass(frozen=True)
class Limit:
    """A limit of the claims of jobs of this name.

    concurrency: the number of claims at any instant. rate: the number of claims that may begin within its seconds,
    ``(100, 60)`` for instance. None allows any number. per: "name" counts all jobs of the name together; "group" counts
    the jobs of each group by themselves, and does not bind jobs without a group.
    """

    name: str
    per: Per = "name"
    concurrency: int | None = None
    rate: tuple[int, float] | None = None


class Oddity(NamedTuple):
    """A defect of a stored board, or a setting that weakens its promise: its place, reason and advice."""

    place: str
    reason: str
    advice: str = ""


RANKS = range(201)
"""The priorities in records: 0, which is served first, stands for 100, and 200 for -100."""


def batches(things: Iterable[T], size: Callable[[T], int], most: int, bytes_: int) -> Iterator[list[T]]:
    """Yield batches of at most ``most`` things and ``bytes_`` bytes. A larger thing makes a batch by itself."""
    batch: list[T] = []
    together = 0
    for each in things:
        more = size(each)
        if batch and (len(batch) == most or together + more > bytes_):
            yield batch
            batch, together = [], 0
        batch.append(each)
        together += more
    if batch:
        yield batch
