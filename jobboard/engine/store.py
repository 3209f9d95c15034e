"""The store contract: what a backend implements, and the only thing that it implements.

A store keeps jobs and side records, both with tags. It decides nothing about a job: it returns what is stored with the
server's time of the same request, and it commits what the engine has decided, all or nothing, unless another process
was quicker. Times are microseconds since 1970, as in :mod:`jobboard.states`.

**A tag never repeats** for a job or a side record: not across the trash, a purge, a deletion or a new arrival. What a
store remembers may make a call faster and never decides one: the commit compares with what is stored.
"""

from __future__ import annotations

import abc
import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jobboard.conf import Option, Settings
from jobboard.primitives import POLL_CAP, Characteristics, Draft, Finish, Nonce, Oddity
from jobboard.states import Record, State

# What goes to and fro


class Stored(NamedTuple):
    """A job as it is stored.

    tag: tells this version of the job from every other version that it ever had. Only the store knows what it is.
    alive: false where a claim without a lease has lost the session that kept it.
    passing: an earlier session of this very handle keeps the claim, and nobody prolongs that session.
    """

    record: Record
    tag: object
    alive: bool = True
    passing: bool = False


class Side(NamedTuple):
    """A side record: what a board keeps beside its jobs, by kind and key. :data:`KINDS` lists the kinds.

    :param value: opaque to the store. None: nothing is stored, and ``until`` is None too.
    :param until: the instant from which the record no longer counts, and may be dropped. None: never. The store returns
        the record until it has dropped it.
    :param tag: as in :class:`Stored`. None where nothing is stored, unless the store can tell one absence from another.
    """

    kind: str
    key: str
    value: bytes | None
    until: int | None
    tag: object

    def stands(self, now: int) -> bool:
        """Return whether the record is stored and counts at ``now``."""
        return self.value is not None and (self.until is None or self.until > now)


KINDS = {
    "answer": "the latest call of a handle's slot and its outcome, for a repetition: see jobboard.engine.answers",
    "key": "the uuid of the job that holds an idempotency key: while the job lives, or until the key's window ends",
    "purged": "a job that was purged within the last day",
    "entity": "an entity that is registered, a conductor for instance",
    "outcome": "what a consumed job has left, by its uuid; there may be millions",
    "scope": "the claims that a limit counts, of one name or of one name and group: see jobboard.engine.limits",
    "gate": "pauses and limits, which hold for all claims: one record at most, see jobboard.engine.rules",
    "schedule": "a job that is to be posted at certain times",
}
"""The kinds of side records. A store needs to know ``gate``, which is part of every look, and ``outcome``, which has an
order. :meth:`Store.sides` lists outcomes, keys, entities, scopes and schedules."""

LAPSING = ("entity", "answer", "key", "purged")
"""The kinds, beside outcomes, whose records :meth:`Store.tidy` drops once their ``until`` has passed."""

GATE = ("gate", "rules")
"""The kind and the key of the gate."""


class Found(NamedTuple):
    """The answer to a reading, in the order asked for. Of jobs that are not stored: None."""

    now: int
    jobs: list[Stored | None]
    sides: list[Side]


Lane = tuple[str, str]
"""A name and a group."""


class Look(NamedTuple):
    """The answer to a look for jobs to claim.

    :param ready: the jobs that can be claimed, in serving order.
    :param overdue: at most 100 jobs that the engine has to settle first. Their lease or delay has ended by ``now``, the
        session that kept their claim has ended, or their record cannot be decoded.
    :param next_event: µs until the next lease or delay ends, also where jobs are ready; None if there is none.
    :param gate: the gate as it was at the time of the look, or earlier.
    """

    now: int
    ready: list[Stored]
    overdue: list[Stored]
    next_event: int | None
    gate: Side


class ScopePlace(NamedTuple):
    """A scope, as a store that counts locks it.

    key: of its side record. name, group: of its jobs; None: of any group. parts: how many parts its lock has.
    """

    key: str
    name: str
    group: str | None
    parts: int


ScopeLock = Literal["free part", "part", "whole"]
"""How much of a scope to lock: a part if one is free, a part that is waited for, or all of its parts."""


class Occupied(NamedTuple):
    """The jobs of a scope that are claimed.

    claims: how many are stored as claimed, those of a mover left out.
    ended: how many of these claims have lapsed, and nobody has written that down.
    lapsed: at most 100 of the latter, read a little later: others may have written them down, or prolonged them.
    """

    claims: int
    ended: int
    lapsed: list[Stored]


class Change(NamedTuple):
    """One job's step: from what was read (None: the job is new) to what is to be stored (None: nothing is left).

    The commit gives a draft its sequence and its time: it stores ``draft.record(sequence, now)``.

    event: reported to the listeners of other processes; one of :mod:`jobboard.notifier`.
    """

    before: Stored | None
    after: Draft | Record | None
    event: str | None = None


class Mark(NamedTuple):
    """One side record's step: from what was read to ``value`` (None: nothing is left).

    The record counts for ``ttl`` µs from the commit on, or ``until`` an instant; with neither, for ever.

    wakes: wake all waiters, as other jobs may have become claimable.
    """

    before: Side
    value: bytes | None
    ttl: int | None = None
    until: int | None = None
    wakes: bool = False

    def end(self, now: int) -> int | None:
        """Return until when the record counts if it is stored at ``now``."""
        return self.until if self.ttl is None else now + self.ttl


class Committed(NamedTuple):
    """The outcome of a commit: the jobs that stay, and the side records of marks with a value, each in their order."""

    jobs: list[Stored]
    sides: list[Side]


class Stale(Exception):
    """Nothing was committed: a job or a side record is not as it was read.

    :param uuids: jobs that have certainly changed.
    :param sides: kinds and keys of side records that may have changed. With neither, the store cannot tell.
    """

    def __init__(self, uuids: Iterable[str] = (), sides: Iterable[tuple[str, str]] = ()) -> None:
        self.uuids = frozenset(uuids)
        self.sides = frozenset(sides)
        super().__init__(*self.uuids)


class ClaimTerms(NamedTuple):
    """The terms of a new claim. keeper: the handle that keeps it, None for a fixed lease. ttl: µs from the commit to
    the end of the lease, None where a session or the process keeps the claim."""

    who: str
    keeper: str | None
    ttl: int | None


# What a store gets from above


@dataclass(frozen=True)
class Seat:
    """The place of a board: what a store is made for.

    shown: where the board is, without secrets, for errors.
    """

    name: str
    conf: Settings
    client: Any
    shown: str


class Hears:
    """The engine above a store: what the store reports to it, from any thread, and may ask of it.

    This class hears nothing: it is for a store without an engine."""

    @property
    def handle(self) -> str:
        """The name of this connected board, the same as in the nonces of its calls; empty before it is connected."""
        return ""

    def news(self) -> None:
        """Jobs may have become claimable, or the next event may come sooner: wake this board's waiters."""

    def rescheduled(self) -> None:
        """The schedules have changed."""

    def reconnected(self) -> None:
        """There is a connection again, perhaps in another session."""

    def happened(self, event: str, record: Record) -> None:
        """Another process has done something; only between ``watch("events")`` and ``watch("events", on=False)``."""

    def nap(self, seconds: float) -> bool:
        """Sleep until :meth:`news`, which this thread has not slept through since its last look, or for ``seconds``;
        return whether there was news."""
        return False

    def rest(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the board is closed."""


class Store(abc.ABC):
    """The contract that a backend implements under :class:`~jobboard.engine.Engine`.

    Every method may be called from several threads at once, and raises ConnectionFailure where the server cannot be
    reached: with ``outcome='unknown'`` where a commit may have happened, or may still happen. Building a store talks to
    nobody.
    """

    options: ClassVar[Mapping[str, Option]] = {}
    """The options of the backend, beside those that every board has."""

    uri_parts: ClassVar[Mapping[str, str]] = {}
    """The option that each part of a URI sets: user, password, host, port, path."""

    wire: ClassVar[Literal["msgpack", "json"]] = "msgpack"
    """The form of postings: msgpack bytes, or JSON text for stores that people query."""

    extras: ClassVar[Mapping[str, frozenset[str]]] = {}
    """Public verb -> the keyword arguments that this backend adds to it."""

    keeps: Literal["process", "lease", "session"]
    """What keeps a claim without an ``expiry``: the process itself, so that the claim never lapses; a lease, which is
    renewed; or a session with the server, whose end :attr:`Stored.alive` shows."""

    poll_cap: float = POLL_CAP
    """The longest that :meth:`wait` may sleep without a look, in seconds; larger where the server wakes waiters."""

    most_kept: int | None = None
    """How many bytes an outcome may have; None: any number."""

    most_bytes: int | None = None
    """How many bytes of postings the jobs may have that one commit changes, unless it is a single one; None: any."""

    spare: int = 16
    """How many jobs more than asked for a look reads where some of the first may not be claimable."""

    precision: int = 0
    """By how many µs the time in an answer may lag behind the server's clock."""

    margin: int | None = None
    """For how many µs a claim that a session keeps stands for sure after an answer of the server; None: for ever."""

    has_replicas: bool = False
    """Whether a replica may take the place of the server, as far as the store knows."""

    reported_events: frozenset[str] = frozenset()
    """The acts of other processes that an open store reports to a listener, as events of :mod:`jobboard.notifier`."""

    gate_place: str = "the side record gate/rules"
    """Where an operator finds the gate, to delete a damaged one."""

    slot_calls: float = math.inf
    """After how many calls a slot is better replaced by a new one, where what is written again and again gets slow."""

    patience: float = 10.0
    """For how many seconds one request may take. The engine lowers it when the board is about to be closed."""

    table: Any = None
    """The table of the jobs, where they lie in one."""

    locks_scopes: bool = False
    """Whether the store counts the claims in the scope of a limit by itself, under a lock: see :meth:`occupied`. If
    not, the side record of the scope lists the claims."""

    scope_parts: int = 1
    """How many parts the lock of a scope has, each for a claim that begins while there is room for one of each part. 1:
    the lock keeps all other transactions out, as on SQLite, and nobody waits for it alone."""

    wakes: bool = False
    """Whether :meth:`wake` reaches other processes; for a store that ``locks_scopes``."""

    def __init__(self, seat: Seat) -> None:
        """:raises ValueError, TypeError: the options, or the client, are not such as this backend takes."""
        self.seat = seat
        self.hears = Hears()

    # Life

    def setup(self) -> None:
        """Create what is missing, and bring what is there up to date, keeping the jobs. Any number of times, in any
        number of processes at once; on a store that is not open."""
        self.open(Hears(), create=True)
        self.close()

    @abc.abstractmethod
    def open(self, hears: Hears, create: bool) -> Characteristics:
        """Connect, and create what is missing if ``create`` is true. Never migrate. An implementation keeps ``hears``
        as ``self.hears``.

        :raises JobFailure: the board is missing, or of a layout that only a newer version of this library reads.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Drop the connections that this store made; never a client of the caller's."""

    @abc.abstractmethod
    def forked(self) -> None:
        """Drop every inherited connection *without closing it*, first of all in a forked child: the parent still uses
        the socket. The next call connects anew. Take no lock."""

    @property
    def connected(self) -> bool:
        """Return whether an open store has a connection at this moment."""
        return True

    # Reading

    @abc.abstractmethod
    def now(self) -> int:
        """Return the server's time. It may be an estimate that is not ahead of the server's clock."""

    @abc.abstractmethod
    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        """Read these jobs, and the side records of these kinds and keys. Shows everything that was acknowledged before
        this call. The jobs are read first, or all at one instant."""

    @abc.abstractmethod
    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
        where: Any = None,
    ) -> Look:
        """Find the first ``limit`` jobs that are stored as UNCLAIMED, by (priority, sequence), of all that were
        acknowledged before this call; fewer only where there are no more. With a limit of 0, or with no names: none.

        :param names: only jobs of these names.
        :param readable: only postings of this version or below.
        :param without: no jobs of these names.
        :param full: no jobs of these names and groups; they may be most of the board.
        :param where: only jobs that meet this condition, which only a store with the extra argument ``where`` gets.
        """

    @abc.abstractmethod
    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State],
        fresh: bool = False,
    ) -> tuple[int, list[Stored]]:
        """Read the next live jobs behind ``after``, by (priority, sequence), and the time.

        The page may hold jobs of other names and states; it may be shorter than ``limit`` before the end only if its
        last job is such a one.

        :param fresh: show everything that was acknowledged before this call; else the answer may be some ms old.
        """

    @abc.abstractmethod
    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """Read the next jobs that are TRASHED now, by (modified_on, sequence) downwards, as they stand. A job counts
        whose last lease has lapsed, even if nobody has written that down."""

    @abc.abstractmethod
    def sides(self, kind: str, place: Any, limit: int) -> tuple[Found, Any]:
        """Read some side records of a kind, about ``limit``: of outcomes the newest first, of others in any order. Of
        keys, those whose job no longer lives; others may be among them.

        :param place: None at the beginning, then what the call before has returned. For outcomes it may be any
            outcome's side record, behind which to go on, and which may be gone by now.
        :returns: the records and the next place; None at the end.
        """

    @abc.abstractmethod
    def counts(self, states: Collection[State]) -> dict[State, int]:
        """Count the jobs in each of these states now. COMPLETE counts the outcomes; it is left out where the cost would
        grow with their number."""

    # Writing

    def transaction(self, **extra: Any) -> contextlib.AbstractContextManager[None]:
        """Return the block of one try of a call of this thread.

        At first there is no transaction: a reading locks nothing, and a commit stands at once. But from :meth:`lock` or
        :meth:`occupied` on, or with ``connection=``, everything that is read and committed in the block belongs
        together. It stands once the block has been left without an exception, or once the caller has committed, and
        never if the block commits nothing. A reading in a transaction of the caller's locks the jobs.

        :param extra: ``connection``: the caller's own transaction, where the store has this extra argument.
        :raises Stale: at the end of the block, or at any request in it: the transaction has lost against another.
        """
        return contextlib.nullcontext()

    def lock(self, jobs: Sequence[Stored], limit: int | None = None) -> list[Stored]:
        """Return the jobs that are as they were read and that no other transaction holds. They stay so until the end of
        the block's transaction. What the caller locks it has to claim, as others pass it over.

        :param limit: lock the first so many, in serving order. None: wait for the other transactions, and return the
            jobs as those have left them.
        """
        return list(jobs)

    def occupied(
        self, scopes: Sequence[ScopePlace], locks: ScopeLock | None = None
    ) -> tuple[int, list[Occupied | None]]:
        """Count the claims in each of these scopes. Return the time too. Only for a store that ``locks_scopes``.

        :param locks: first lock so much of each of these scopes until the end of the transaction, in one order. Then
            count, by a statement that begins under the locks. The records to be locked are made where they are missing,
            but for a free part: a scope of which no part is free is not counted, and None. Once in a transaction: where
            more scopes turn out to be needed, the try begins anew.
        """
        raise NotImplementedError

    def wake(self) -> None:  # noqa: B027 - only where it ``wakes``
        """Wake the waiters of all processes: a claim has left a full scope."""

    def after_commit(self, extra: Mapping[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` once a mutation stands, or ``undone`` if it never will: at once, or with ``connection`` among
        the extra arguments at the end of the caller's transaction."""
        done()

    @abc.abstractmethod
    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        settle: bool = False,
        waits: bool = True,
        by: float | None = None,
    ) -> Committed:
        """Store every change and every mark if all the jobs and side records are as they were read, those in ``checks``
        (the gate, today) included, and if what is new is not there. At most 500 drafts, or 100 changes of other jobs.

        Waiters are woken where a job becomes UNCLAIMED, where a lease or delay is stored, and by marks that say so.
        With nothing to store, return once everything stored by now is as safe as what a commit returns from.

        :param settle: return only once no commit can be stored any more that relies on an older gate. A store whose
            commits compare the gate has nothing to do.
        :param waits: false: a job that another transaction holds counts as changed. Otherwise the commit waits for the
            end of that transaction.
        :param by: until when the commit may be sent, on :func:`~jobboard.job.boottime`. A store that takes several
            requests for a commit raises Stale if that has passed before the last one.
        :raises Stale: something is not as it was read; nothing was stored.
        """

    # Fast paths: one request for the plain case, or None or False, and the engine does the call. All but the last
    # are asked for first tries only. They compare and store the slot's answer as the engine does, see
    # jobboard.engine.answers. Where the gate has a value, take, claim and consume leave the call to the engine.

    def post(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Stored] | None:
        """Store all of these drafts, in their order. None has a key, and none is an arrival."""
        return None

    def take(
        self, lease: ClaimTerms, limit: int, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[list[Stored], int | None] | None:
        """Claim the first ``limit`` jobs of these names. Return the claims, and the µs until the next event.

        Leave the call to the engine where a job is overdue. Where nothing can be claimed, write nothing."""
        return None

    def claim(self, uuid: str, lease: ClaimTerms, nonce: Nonce) -> Stored | None:
        """Claim this job if it is UNCLAIMED now. A claim that has lapsed is left to the engine, which records that."""
        return None

    def consume(self, acts: Sequence[Finish], nonce: Nonce) -> bool:
        """End all of these claims, each by its verb, or none of them. Each names a token. An act with ``keep`` leaves
        an outcome.

        Leave the call to the engine where a job is not claimed by this token now, or has a key."""
        return False

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Sequence[tuple[str, int]]:
        """Prolong those of these claims (uuid, token) that live and that ``handle`` keeps, to ``ttl`` from now. Return
        the others, at which the engine looks one by one."""
        return held

    # Waiting and hearing

    def watch(self, topic: Literal["jobs", "schedules", "events"], on: bool = True) -> bool:
        """Have ``hears`` told, from now on, of news for waiters, of changed schedules, or of the acts of others.

        :param on: false: the last listener has gone; of events alone.
        :returns: whether that can be done now. If not, the caller polls.
        """
        return False

    def wait(self, names: Sequence[str] | None, readable: int, limit: float, takes: bool) -> None:
        """Sleep until a job of these names may have become claimable since this thread's last look, for ``limit``
        seconds at most, or until the board is closed. May return early for nothing.

        :param takes: whether this thread is going to claim. A wake-up that is meant for one claimer must not be lost on
            one that only looks.
        """
        self.watch("jobs")
        self.hears.nap(limit)

    def rouse(self) -> None:  # noqa: B027 - one that sleeps in Hears.nap has been woken already
        """Make every :meth:`wait` that is under way return soon."""

    def forgo(self) -> None:  # noqa: B027 - where a wake-up reaches all waiters, none is lost
        """This thread will not look, though its :meth:`wait` has returned: a wake-up that was meant for it alone is due
        to another waiter."""

    # Upkeep

    def tidy(self, seconds: float) -> bool:
        """Drop side records whose time has passed, in short steps, for so many seconds at most; return whether there
        may be more. See :data:`LAPSING` and :func:`turns`."""
        return False

    def oddities(self) -> Iterator[Oddity]:
        """Yield the records that can't be decoded, but for the gate, each with where an operator finds it. Reads in
        pages, and writes nothing."""
        return iter(())

    def boards(self, most: int) -> list[str]:
        """Return the names of boards in this store, at most so many, this board's own among them if it is there. The
        cost is bounded: names may be missing where the search would be long."""
        return []


def weight(stored: Stored) -> int:
    """Return how many bytes a commit stores that changes this job."""
    record = stored.record
    return len(record.posting) + sum(len(failure.text) for failure in record.errors)


def reschedules(changes: Sequence[object], marks: Sequence[Mark]) -> bool:
    """Return whether this commit changes the schedules. One that also posts a job only puts a schedule off."""
    return not changes and any(mark.before.kind == "schedule" for mark in marks)


_REST = 0.002
"""Seconds between two steps of a tidying: long enough for a thread that waits for a lock to wake up."""


def turns(seconds: float) -> Iterator[None]:
    """Yield once for each step of a tidying, at least once, with a rest between two steps."""
    until = time.monotonic() + seconds
    yield
    while time.monotonic() < until:
        time.sleep(_REST)
        yield
