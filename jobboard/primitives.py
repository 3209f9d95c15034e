"""The contract between :class:`~jobboard.board.JobBoard` and a backend: what each primitive takes and answers.

``board.py`` checks arguments, decodes, translates, notifies, keeps claims and repeats after a lost connection. A
backend stores opaque postings and makes each of these calls atomic on its server; :mod:`jobboard.states` says what
each does to a record, and :class:`~jobboard.backends.memory.MemoryJobBoard` does just that.

**Units.** Every time, delay and expiry is an integer of microseconds; instants since 1970 UTC on the server's clock.

**Nonces.** A mutation gets a :class:`Nonce`. The backend stores, atomically with the mutation, one answer per
(handle, slot) and overwrites it with that slot's next call. The same ``call`` again, whatever its ``attempt``, is
answered from what is stored and does nothing; a lower ``call`` than the stored one is refused, as nobody waits for it
any longer: that is how a first try which was held up on the way is kept from acting after its own repetition. So that
this holds, a repetition (``attempt`` > 1) stores its answer whatever that is, and a first try may leave it out only
where it changed nothing. Stored answers are ``(status, uuid, token)``: the record is read again on replay, and a
claim that has meanwhile lapsed or gone to another is answered as LOST (by a take: left out). An extend whose token
still stands is carried out again, and so is what ``_insert`` did not store. An answer may be dropped after an hour.

**Failures.** A primitive raises :class:`~jobboard.exceptions.ConnectionFailure` when the server can't be reached or
the connection breaks, within a few seconds, and with ``outcome='unknown'`` if the request may have been carried out
or still may be; the board repeats the call with the same nonce. What the backend can repeat by itself at once (a
deadlock, a script cache that was flushed) it does.

**Margins.** A margin counts from when *this try* was sent; on a replay it is what is left. None means that the claim
stands as long as the process, without any renewal, which only memory can say.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jobboard.states import Holder, Record, State, Status, Verb, settle

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
    nobody takes it before ``who`` gives it free; or as TRASHED since ``trashed_on``, where its key is nobody's."""

    who: str
    attempts: int
    error: str | None
    created_on: int
    trashed_on: int | None
    retries: int = 0


class Draft(NamedTuple):
    """A job to be stored. At most one of ``delay`` (from now, on the server's clock) and ``due`` is given."""

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

    def record(self, sequence: int, now: int) -> Record:
        """The job as it is stored at ``now``."""
        record = self._posted(sequence, now)
        came = self.arrival
        if came is None:
            return record
        held = came.trashed_on is None
        return record._replace(
            state=State.CLAIMED if held else State.TRASHED,
            attempts=came.attempts,
            retries=came.retries,
            # Of two arrivals of one job, which may follow each other, a token must not fit both.
            token=now,
            who=came.who,
            lock_until=HELD_UNTIL if held else None,
            created_on=came.created_on,
            modified_on=came.trashed_on or now,
            error=came.error,
        )

    def _posted(self, sequence: int, now: int) -> Record:
        until = self.due if self.delay is None else now + self.delay
        scheduled = until is not None and until > now
        return Record(
            uuid=self.uuid,
            name=self.name,
            priority=self.priority,
            sequence=sequence,
            key=self.key,
            version=self.version,
            posting=self.posting,
            state=State.SCHEDULED if scheduled else State.UNCLAIMED,
            attempts=0,
            max_attempts=self.max_attempts,
            token=0,
            who=None,
            keeper=None,
            lock_until=until if scheduled else None,
            created_on=now,
            modified_on=now,
            error=None,
        )


class Finish(NamedTuple):
    """One claim to end; ``refund`` gives the attempt back, and so does ``retry``, which is counted; ``due`` is the
    instant before which nobody may claim it.

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
    None if none is known. ``mark``: see ``_wait``. ``replayed``: this is a stored answer, so that fewer than asked
    for does not mean that there are no more."""

    records: list[Record]
    margin: int | None
    trashed: list[Record]
    next_event: int | None
    mark: object
    replayed: bool = False


class Renewed(NamedTuple):
    """The answer to a renewal: the (uuid, token) of claims that are lost, and for how long the others stand."""

    lost: list[tuple[str, int]]
    margin: int | None


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
        fixed = record.state == State.CLAIMED and record.keeper is None
        return cls(record.state, record, record.lock_until - now if fixed and record.lock_until is not None else None)


@dataclass(frozen=True)
class Characteristics:
    """What a connected board can promise, so that code can ask instead of knowing the backend.

    durable: what was acknowledged survives a crash of the server's machine. survives_failover: and a switch to a
    replica. exact_order: jobs are served exactly by priority and post. blocking_wait: the server wakes waiters; else
    they poll. remote_events: the notifier also hears other processes. transactional: verbs take ``connection=``.
    claim_ttl: the lease of a kept claim that is in force, in seconds.
    """

    durable: bool
    survives_failover: bool
    exact_order: bool
    blocking_wait: bool
    remote_events: bool
    transactional: bool
    claim_ttl: float
    notes: str = ""


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


class Oddity(NamedTuple):
    """Something that no board leaves behind, or a setting that weakens its promise: where it is, what it is, and what
    to do about it."""

    place: str
    reason: str
    advice: str = ""


RANKS = range(5)
"""The priorities, as records have them: 0 is served first."""


class Primitives(abc.ABC):
    """What a backend implements. Every method may be called from several threads at once."""

    wire: ClassVar[Literal["msgpack", "json"]] = "msgpack"
    """How this backend wants postings: msgpack bytes, or JSON text for stores that people query."""

    extras: ClassVar[dict[str, frozenset[str]]] = {}
    """Public verb -> the keyword arguments that this backend adds to it; they arrive as ``**extra``."""

    hears_all: ClassVar[bool] = True
    """Where ``remote_events``: whether each act of others is heard, and not what shows from one look to the next."""

    poll_cap: float = POLL_CAP
    """The longest that ``_wait`` may sleep without looking, in seconds; larger where the server wakes it."""

    @property
    def _requests(self) -> int | None:
        """How many requests this board's reads have sent to its server, where a primitive may need several of them;
        None where each is one."""
        return None

    @abc.abstractmethod
    def _open(self) -> None:
        """Connect, create what is missing unless ``auto_setup`` forbids it, refuse a store that is too new, and set
        ``self._characteristics``. Safe when many processes do it at once. Never migrates."""

    def _closing(self) -> None:  # noqa: B027 - most backends' requests end soon by themselves
        """The board is about to be closed: from now on no request may take longer than seconds."""

    @abc.abstractmethod
    def _shut(self) -> None:
        """Drop the connections that this board made; never a client of the caller's."""

    @abc.abstractmethod
    def _forked(self) -> None:
        """In a forked child, before anything else: let go of every inherited connection *without closing it* (the
        parent still talks through its socket), so that the next call opens a fresh one. Take no lock."""

    def _listen(self, on: bool) -> None:  # noqa: B027 - most stores have nothing to tell
        """Somebody has begun to listen to the notifier, or the last one has stopped: where ``remote_events``, hear what
        other processes do and report it through ``self._heard(event, record)``."""

    def _tidy(self) -> None:  # noqa: B027 - what drops by itself what nobody needs has nothing to do
        """Drop what nobody needs any longer: answers of an hour ago, entities whose time is up, what was purged a day
        ago. Called when a board is opened, one that only looks too, and every ten minutes while it renews anything."""

    def _examine(self) -> Iterator[Oddity]:
        """What is odd in the store, beside what :meth:`_page` and :meth:`_trash_page` show. Reads in pages, and writes
        nothing."""
        yield from ()

    def _joins(self, extra: dict[str, Any]) -> bool:
        """Whether these extra arguments put the call into a transaction of the caller's: it gets no nonce and is never
        repeated, as only the caller can repeat the whole."""
        return False

    def _when_settled(self, extra: dict[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` when a mutation stands (now, or at the caller's commit), ``undone`` if it never will."""
        done()

    @abc.abstractmethod
    def _insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[tuple[bool, Record | None]]:
        """Store all the drafts or none, in their order: at most 500. A draft whose key a live job holds is not stored:
        its answer is ``(False, that job's record)``, also when that job is an earlier draft of this call. Nor is an
        arrival whose uuid is on the board already, or in its trash, with ``(False, its record)``; what was purged may
        arrive again.

        On a replay, a job that this call has stored, or an arrival that was there before, and that has left the board
        since, is answered without a record, and so are the drafts that were answered with it. But a draft that was
        kept out by a job that is not this call's, and that no longer holds the key, is tried anew: nothing was done
        for it. Only a later try than any that was answered does so, for nobody waits for an earlier one."""

    @abc.abstractmethod
    def _claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        """Claim one job, if it is UNCLAIMED at this instant; one atomic compare and set. ``expiry`` None: keep it for
        this handle."""

    @abc.abstractmethod
    def _take(
        self,
        who: str,
        limit: int,
        expiry: int | None,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        **extra: Any,
    ) -> Taken:
        """Claim the first ``limit`` (at most 100) jobs in order of (priority, sequence), narrowed to ``names``,
        skipping postings of a version above ``readable``. Lapsed claims and due jobs come back to their old places
        first, at most 100 of them, again while that leaves nothing to take. Each claim is atomic; no job goes to two
        callers. A first try that finds nothing writes nothing that wakes anybody."""

    @abc.abstractmethod
    def _renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """Prolong the (uuid, token) claims in ``held`` (at most 1000) that the store marks as kept by ``handle``, to
        ``ttl`` from now, reviving what has lapsed and is nobody else's. Lost is what is absent, trashed, or of another
        token; not what somebody has given a fixed lease. Skips, rather than waits for, a job that a transaction of the
        caller's holds: that one is neither renewed nor lost."""

    def _forsake(self, uuid: str, token: int) -> None:  # noqa: B027 - where a lease is stored, it ends by itself
        """The holder of a kept claim was told that it is lost, and it is not renewed any more: see to it that the job
        becomes free, even if what keeps the claim has survived. Must not block."""

    def _doubt(self, nonce: Nonce) -> None:  # noqa: B027 - most stores forget what a broken connection has not sent
        """The retries of this mutation have run out and its outcome is unknown: what it may have claimed, or may still
        claim, is nobody's. Must not block."""

    @abc.abstractmethod
    def _extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        """Compare the holder and set the lease (``expiry`` None: kept by this handle), atomically. (status, margin)."""

    @abc.abstractmethod
    def _finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        """End each claim by its verb, or cancel or purge what nobody holds: at most 100 acts, each one atomic by
        itself, answered in their order. What was purged reads TRASHED for a day."""

    @abc.abstractmethod
    def _operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        """release, cancel, restore or purge, atomically. A restore whose key is taken: KEY. What was purged reads
        TRASHED for a day. ``token``: release the claim that has it, and no other."""

    @abc.abstractmethod
    def _read(self, uuids: Sequence[str]) -> list[Seen]:
        """The jobs as they stand, in the order asked for. Without a record: COMPLETE if absent, TRASHED if purged."""

    @abc.abstractmethod
    def _page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State] | None,
    ) -> list[Seen]:
        """The next ``limit`` (at most 500) live jobs in order of (priority, sequence) behind ``after``, narrowed to
        names and logical states; fewer only at the end. One round trip, nothing is written. A store that would have to
        walk far for a match may answer others too, and stop early with one of those, to say how far it looked: the
        iterator leaves them out and goes on behind the last."""

    @abc.abstractmethod
    def _trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """The next trashed jobs behind ``after``, by (modified_on, sequence) downwards, those that no sweep has met
        included."""

    def _sync(self) -> None:  # noqa: B027 - a board without a cache has nothing to do
        """Make the next reads of this handle see everything that was acknowledged before."""

    @abc.abstractmethod
    def _now(self) -> int:
        """The server's time."""

    @abc.abstractmethod
    def _tally(self) -> dict[State, int]:
        """How many jobs are in each logical state but COMPLETE."""

    @abc.abstractmethod
    def _peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        """Whether a take would find something; writes nothing."""

    @abc.abstractmethod
    def _wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        """Sleep until something may have become claimable since ``mark`` was read, ``limit`` seconds have passed, or
        the board is closed. ``mark`` is opaque and was read *before* the look that found nothing, so that what came
        in between is not slept through. May wake for nothing. A wake-up meant for one who takes must not be lost on one
        who only peeked: the mark tells which it was."""

    def _rouse(self) -> None:  # noqa: B027 - one that sleeps in Session.nap has been woken already
        """Make every ``_wait`` of this handle that is under way return soon."""

    def _forgo(self) -> None:  # noqa: B027 - where a wake-up reaches all who wait, it is not lost on one of them
        """This thread will not look, though its ``_wait`` has returned: what was meant for it alone, a wake-up or a
        job that it has been given already, is due to another who waits."""

    @abc.abstractmethod
    def _enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        """Register or renew an entity (``metadata`` is JSON text) until ``ttl`` from now. Of two handles with the same
        kind and name the last one counts."""

    @abc.abstractmethod
    def _delist(self, handle: str) -> None:
        """Remove every entity of this handle."""

    def _boards(self, most: int) -> list[str]:
        """The names of boards in this store, at most so many, for people who have mistyped one: this board's own among
        them if it is there (where nothing is made for a board, if anything lies on it). Bounded in cost: a store that
        would have to search for long may leave names out, and one that can't tell answers none."""
        return []

    @abc.abstractmethod
    def _roster(self) -> list[tuple[str, str, str]]:
        """The living entities as (kind, name, metadata), in any order."""
