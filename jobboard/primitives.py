"""Arguments and answers of the engine's calls; see :class:`jobboard.engine.Engine`.

The board checks arguments, decodes, translates, notifies, keeps claims and repeats after a lost connection. An
engine stores opaque postings and makes each of these calls atomic on its server; :mod:`jobboard.states` says what
each does to a record.

**Units.** Every time, delay and expiry is an integer of microseconds; instants since 1970 UTC on the server's clock.

**Nonces.** A mutation gets a :class:`Nonce`. The backend stores, atomically with the mutation, one answer per
(handle, slot) and overwrites it with that slot's next call. The same ``call`` again, whatever its ``attempt``, is
answered from what is stored and does nothing; a lower ``call`` than the stored one is refused, as nobody waits for it
any longer: that is how a first try which was held up on the way is kept from acting after its own repetition. So that
this holds, a repetition (``attempt`` > 1) stores its answer whatever that is, and a first try may leave it out only
where it changed nothing. Stored answers are ``(status, uuid, token)``: the record is read again on replay, and a
claim that has meanwhile lapsed or gone to another is answered as LOST (by a take: left out). An extend whose token
still stands is carried out again, and so is what ``insert`` did not store. An answer may be dropped after an hour.

**Failures.** A primitive raises :class:`~jobboard.exceptions.ConnectionFailure` when the server can't be reached or
the connection breaks, within a few seconds, and with ``outcome='unknown'`` if the request may have been carried out
or still may be; the board repeats the call with the same nonce. What the backend can repeat by itself at once (a
deadlock, a script cache that was flushed) it does.

**Margins.** A margin counts from when *this try* was sent; on a replay it is what is left. None means that the claim
stands as long as the process, which only memory can say.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Failure, Holder, Record, State, Status, Verb, settle

T = TypeVar("T")

POLL_CAP = 1.0
"""The longest sleep between two looks of a board that has to poll: with the jitter, it looks every 0.5 to 1 s."""


MENTIONED = 20
"""How many boards of a store are named to who has perhaps mistyped one."""


def mentioned(boards: Sequence[str]) -> str:
    """How a message about a board that is not there, or is empty, goes on."""
    return f"; boards there: {', '.join(map(repr, boards))}" if boards else ""


class Nonce(NamedTuple):
    """Names one call of one board handle, so that a repetition is recognised."""

    handle: str
    slot: int
    call: int
    attempt: int = 1


HELD_UNTIL = 7_258_118_400_000_000
"""The end of the lease of a job that is held, in the year 2200: one instant for all, and within what a double counts
exactly."""


class Arrival(NamedTuple):
    """What a job brings along from another board. It is stored as CLAIMED by ``who`` until :data:`HELD_UNTIL`, so that
    nobody takes it before ``who`` gives it free; or as TRASHED since ``trashed_on``, where its key is nobody's.

    ``token``: the least that it may get. It is above those that the job has had, as this server's clock may be behind
    the other's; and of two arrivals of one job, which may follow each other, a token must not fit both."""

    who: str
    attempts: int
    errors: tuple[Failure, ...]
    created_on: int
    trashed_on: int | None
    token: int
    retries: int = 0


class Draft(NamedTuple):
    """A job to be stored. ``priority`` is a rank, as in its record. At most one of ``delay`` (from now, on the server's
    clock) and ``due`` is given. ``key_for``: for how long from now on its key stays taken at least; ``replace``: what
    it brings goes to the job that has its key, if nobody has claimed that."""

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

    def record(self, sequence: int, now: int) -> Record:
        """The job as it is stored at ``now``."""
        # Each post makes one, and by keywords it would take three times as long.
        uuid, name, priority, key, version, posting, max_attempts, delay, due, came, group, key_for, _ = self
        until = due if delay is None else now + delay
        state = SCHEDULED
        if until is None or until <= now:
            state, until = UNCLAIMED, None
        claims = (state, 0, max_attempts, 0, None, None, until)
        more = (now, now, (), 0, group, None if key_for is None else now + key_for)
        record = Record._make((uuid, name, priority, sequence, key, version, posting, *claims, *more))
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
    """What became of a draft. ``status`` OK: it is stored; KEY: another job has its key; REPLACED: that job has got
    what the draft brings; LIVE: an arrival that is there already. ``uuid`` and ``record``: the job that answers the
    draft, None where that has left the board."""

    status: Status
    uuid: str
    record: Record | None


class Finish(NamedTuple):
    """One claim to end; ``refund`` gives the attempt back, and so does ``retry``, which is counted; ``due`` is the
    instant before which nobody may claim it.

    A CONSUME with ``keep`` leaves an outcome for so many µs, with its ``result``, encoded as postings are, or why that
    is ``refused``.

    ``name`` and ``group`` of the job tell which limits have counted its claim, as far as these are known.

    With CANCEL or PURGE it is no claim but a job that nobody holds, which goes if ``holder`` is still the last one that
    it had: see :func:`~jobboard.states.part`."""

    uuid: str
    holder: Holder
    verb: Verb
    delay: int | None = None
    error: str | None = None
    refund: bool = False
    due: int | None = None
    retry: bool = False
    keep: int | None = None
    result: bytes | str | None = None
    refused: str | None = None
    name: str = ""
    group: str | None = None

    @property
    def terms(self) -> tuple[Any, ...]:
        """What :func:`~jobboard.states.finish` takes behind holder and time."""
        return self[2:8]

    @classmethod
    def parting(cls, seen: Record, verb: Verb, error: str | None = None) -> Finish:
        """Cancel or purge a job, unless it has changed since it was read."""
        return cls(seen.uuid, Holder(seen.who or "", seen.token), verb, error=error)


class Claimed(NamedTuple):
    """The answer to a claim: for how long it surely stands, and its record where ``status`` is OK."""

    status: Status
    record: Record | None
    margin: int | None


class Taken(NamedTuple):
    """The answer to a take. ``margin``: the smallest of its claims. ``trashed``: what this call moved to the trash
    because a lapse used up the last attempt, as far as is known. ``next_event``: µs until the next lapse or due time,
    None if none is known. ``mark``: see ``wait``. ``replayed``: this is a stored answer, so that fewer than asked
    for does not mean that there are no more."""

    records: list[Record]
    margin: int | None
    trashed: list[Record]
    next_event: int | None
    mark: object
    replayed: bool = False


class Renewed(NamedTuple):
    """The answer to a renewal: the (uuid, token) of claims that are lost, and for how long the others stand; of those
    that were ``missed``, as others hold their jobs, it is not known to be any longer than before. ``unkept``: those
    that the handle keeps no longer, as somebody has acted by their owner's name, and for how long each stands: 0 or
    less where it has lapsed or was given back, None where another handle keeps it."""

    lost: list[tuple[str, int]]
    margin: int | None
    missed: Sequence[tuple[str, int]] = ()
    unkept: Sequence[tuple[str, int, int | None]] = ()


class Peeked(NamedTuple):
    """Whether anything can be claimed now; the rest as in :class:`Taken`."""

    any: bool
    next_event: int | None
    mark: object


class Seen(NamedTuple):
    """A job as it stands: ``state`` is the logical one, ``left`` the µs left of a fixed lease (None: kept, or none)."""

    state: State
    record: Record | None
    left: int | None

    @classmethod
    def at(cls, now: int, record: Record) -> Seen:
        """A stored job as it stands at ``now``, though nobody has swept."""
        record = settle(record, now)
        fixed = record.state == CLAIMED and record.keeper is None
        return cls(record.state, record, record.lock_until - now if fixed and record.lock_until is not None else None)

    @property
    def stands(self) -> int | None:
        """For how many µs its claim stands by itself: 0 where it has none; None where a board keeps it."""
        return self.left if self.state == CLAIMED else 0


@dataclass(frozen=True)
class Characteristics:
    """What a connected board can promise, so that code can ask instead of knowing the backend.

    durable: what was acknowledged survives a crash of the server's machine. survives_failover: and a switch to a
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
    """How many jobs are in each state."""

    unclaimed: int
    scheduled: int
    claimed: int
    trashed: int

    @property
    def on_board(self) -> int:
        """All but the trashed ones."""
        return self.unclaimed + self.scheduled + self.claimed


@dataclass(frozen=True)
class KeptStats:
    """How much a board keeps beside its jobs.

    schedules: how many. next_due: when the next of them is due, or has been since; None where there is none. late: for
    how many seconds nobody has posted what is due, 0.0 if nothing is. outcomes: how many there are, those included that
    have just ended; None where counting them costs what there are of them, on SQL and ZooKeeper.
    """

    schedules: int
    next_due: datetime.datetime | None
    late: float
    outcomes: int | None


@dataclass(frozen=True)
class Paused:
    """What a board gives no claims of: ``everything``, and the jobs of these names beside that. ``name in paused``
    tells of one name, and ``if paused`` whether there is anything."""

    everything: bool = False
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    def __contains__(self, name: object) -> bool:
        return self.everything or name in self.names


@dataclass(frozen=True)
class Limit:
    """How many claims of jobs of this name a board allows: ``concurrency`` at any instant, and as many as ``rate`` says
    to begin within its seconds, ``(100, 60)`` for instance (None: any number). ``per`` "name": of all of them together;
    "group": of those of each group by itself, and of any number of jobs without a group."""

    name: str
    per: str = "name"
    concurrency: int | None = None
    rate: tuple[int, float] | None = None


class Oddity(NamedTuple):
    """Something that no board leaves behind, or a setting that weakens its promise: where it is, what it is, and what
    to do about it."""

    place: str
    reason: str
    advice: str = ""


RANKS = range(201)
"""The priorities, as records have them: 0, which is served first, stands for 100, and 200 for -100."""


def batches(things: Iterable[T], size: Callable[[T], int], most: int, bytes_: int) -> Iterator[list[T]]:
    """As many at once as a request may have: ``most``, and no more than fit, unless a single one is larger."""
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
