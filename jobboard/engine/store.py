"""The contract of a store: the only interface that a backend implements.

A store keeps jobs and side records, both with tags. It decides nothing about a job. A reading returns the stored
records and the server's time of the same request. A commit stores the decision of the engine, all or nothing, unless
another process was quicker. Times are microseconds since 1970, as in :mod:`jobboard.states`.

**A tag never repeats** for a job or a side record: not across the trash, a purge, a deletion or a new arrival. A
store's memory may make a call faster, but decides none: the commit compares with the stored records.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar, Literal, NamedTuple

from jobboard import runtime
from jobboard.conf import Option, Settings
from jobboard.exceptions import JobFailure
from jobboard.primitives import POLL_CAP, Characteristics, CommitBound, Draft, Finish, Limit, Nonce, Oddity
from jobboard.states import TRASHED, Record, State

# Arguments and answers


class Stored(NamedTuple):
    """A job as it is stored.

    tag: differs between all versions that the job ever had. Only the store knows its content. alive: false for a claim
    without a lease whose session has ended. passing: an earlier session of this handle keeps the claim, and nobody
    prolongs that session. unknown: the fields of the record that only newer versions of this library know. A store
    that writes all fields of a changed job writes these, too.
    """

    record: Record
    tag: object
    alive: bool = True
    passing: bool = False
    unknown: Sequence[Any] = ()


class Side(NamedTuple):
    """A side record: a value that a board keeps beside its jobs, by kind and key. :data:`KINDS` lists the kinds.

    :param value: opaque to the store. None for an absent record, whose ``until`` is None, too.
    :param until: the instant from which the record no longer counts, and may be dropped; None: never. The store returns
        the record until the store has dropped it.
    :param tag: as in :class:`Stored`. None for an absent record, unless the store can tell one absence from another.
    """

    kind: str
    key: str
    value: bytes | None
    until: int | None
    tag: object

    def is_valid(self, now: int) -> bool:
        """Return whether the record is stored and counts at ``now``."""
        return self.value is not None and (self.until is None or self.until > now)


KINDS = {
    "answer": "the latest call of a handle's slot and its outcome, for a repetition: see jobboard.engine.answers",
    "key": "the uuid of the job that holds an idempotency key: while the job lives, or until the key's window ends",
    "purged": "a job that was purged within the last day",
    "entity": "an entity that is registered, a conductor for instance",
    "outcome": "the outcome of a consumed job, by its uuid; there may be millions",
    "scope": "the claims that a limit counts for one name, or for one name and group: see jobboard.engine.limits",
    "gate": "pauses and limits, which hold for all claims: one record at most, see jobboard.engine.rules",
    "schedule": "a job to be posted at certain times",
}
"""The kinds of side records. A store needs to know ``gate``, which is part of every look, and ``outcome``, which has an
order. :meth:`Store.sides` lists outcomes, keys, entities, scopes and schedules."""

LAPSING = ("entity", "answer", "key", "purged")
"""The kinds, beside outcomes, whose records :meth:`Store.tidy` drops once their ``until`` has passed."""

GATE = ("gate", "rules")
"""The kind and the key of the gate."""

NO_GATE = Side(*GATE, None, None, None)
"""The gate of a board without rules, as far as a handle knows before its first look."""

OVERDUE = 100
"""The most overdue jobs that a look returns."""

_NO_TRANSACTION = contextlib.nullcontext()

RETRY_HELD = 50_000
"""The µs until the next look at ready jobs that other transactions hold. Their rollback wakes nobody."""


class Found(NamedTuple):
    """The answer to a reading, in the order asked for; None for an absent job."""

    now: int
    jobs: list[Stored | None]
    sides: list[Side]


class Look(NamedTuple):
    """The answer to a look for jobs to claim.

    :param ready: the jobs that can be claimed, in serving order.
    :param overdue: at most :data:`OVERDUE` jobs that the engine has to settle first. Their lease or delay has ended by
        ``now``, the session that kept their claim has ended, or their record cannot be decoded.
    :param next_event: µs until the next lease or delay ends, also where jobs are ready; None if there is none. An
        expiry is no event, as it makes no job claimable; of many expiries in a row, one may be.
    :param gate: the gate as it was at the time of the look, or earlier.
    """

    now: int
    ready: list[Stored]
    overdue: list[Stored]
    next_event: int | None
    gate: Side


class LimitScope(NamedTuple):
    """A scope: the jobs whose claims a limit counts together.

    key: the key of its side record. name, group: of its jobs; None for any group.
    """

    key: str
    name: str
    group: str | None
    limit: Limit

    @property
    def most(self) -> int | None:
        """The number of claims at any instant, if the scope has no rate."""
        return self.limit.concurrency if self.limit.rate is None else None


class Occupied(NamedTuple):
    """The claimed jobs of a scope.

    claims: the number of jobs that are stored as claimed, without those of a mover. ended: the number of these claims
    that have lapsed before any sweep. lapsed: at most 100 of the latter. They are read a little later, so others may
    have swept or prolonged some.
    """

    claims: int
    ended: int
    lapsed: list[Stored]


Order = Literal["serving", "due", "claims", "trash", "outcomes"]
"""An order in which jobs are searched: all live jobs in serving order, scheduled jobs by due times, claimed jobs in any
order, trashed jobs and outcomes the newest first."""

Bookmark = Any
"""A position in an order: an int, a str or a list of them, as JSON has them. Only the store knows its content."""


class Sieve(NamedTuple):
    """The conditions of a search; None: any. ``fits`` in ``jobboard/engine/search.py`` judges a job.

    owner: the holder of a claim, or the last holder of a job off the board. error: a part of the text of the last
    failure. cause: see ``cause_of`` in ``jobboard/reasons.py``. posted_from, posted_before: instants. where: a
    condition of SQL's. states: the states of the jobs, by which a store may leave jobs out. shorter: (modified_on,
    sequence) of a claim, by which a store may leave out those that are not held for a shorter time.
    """

    names: tuple[str, ...] | None = None
    group: str | None = None
    owner: str | None = None
    key: str | None = None
    error: str | None = None
    cause: str | None = None
    posted_from: int | None = None
    posted_before: int | None = None
    where: Any = None
    states: frozenset[State] | None = None
    shorter: tuple[int, int] | None = None

    def texts(self) -> list[str]:
        """Return the texts that the record of each fitting job contains."""
        texts = (*(self.names or ())[:2], self.group, self.owner, self.key, self.error)
        start = 2 if self.names is not None and len(self.names) > 1 else 0
        return [text for text in texts[start:] if text]


ANY_JOB = Sieve()


class Walked(NamedTuple):
    """The answer to a walk along an order.

    jobs: the jobs that may fit, each behind its bookmark. An outcome has its COMPLETE record. looked: the number of
    entries that were looked at. last: the bookmark from which to go on; None at the end of the order.
    """

    now: int
    jobs: list[tuple[Bookmark, Stored]]
    looked: int
    last: Bookmark | None


class NameCount(NamedTuple):
    """The jobs of a name: how many wait, are delayed and run, and the instant at which the oldest that waits was
    posted."""

    waiting: int = 0
    delayed: int = 0
    running: int = 0
    oldest: int | None = None


class Change(NamedTuple):
    """The change of a job by a commit.

    before: the job as read; None for a new job. after: the record to be stored; None removes the job. The commit gives
    a draft its sequence and time, and stores ``draft.record(sequence, now)``. event: one of :mod:`jobboard.notifier`,
    for the listeners of other processes.
    """

    before: Stored | None
    after: Draft | Record | None
    event: str | None = None


class Mark(NamedTuple):
    """The change of a side record by a commit.

    before: the record as read. value: the new value; None removes the record. ttl, until: the record counts for ``ttl``
    µs from the commit on, or ``until`` an instant; with neither, for ever. wakes: wake all waiters, as other jobs may
    have become claimable.
    """

    before: Side
    value: bytes | None
    ttl: int | None = None
    until: int | None = None
    wakes: bool = False

    def end(self, now: int) -> int | None:
        """Return the end of a record that is stored at ``now``."""
        return self.until if self.ttl is None else now + self.ttl


class Committed(NamedTuple):
    """The outcome of a commit: the jobs that stay, and the side records of marks with a value, each in their order."""

    jobs: list[Stored]
    sides: list[Side]


class Stale(Exception):
    """The refusal of a commit: a job or a side record is not as it was read, and nothing was stored.

    :param uuids: jobs that have certainly changed.
    :param sides: kinds and keys of side records that may have changed. Without both, the store does not know.
    """

    def __init__(self, uuids: Iterable[str] = (), sides: Iterable[tuple[str, str]] = ()) -> None:
        self.uuids = frozenset(uuids)
        self.sides = frozenset(sides)
        super().__init__(*self.uuids)


class CommitTerms(NamedTuple):
    """The conditions of a commit beside its records. Otherwise the commit raises :class:`Stale`.

    is_patient: wait for the end of another transaction that holds a job of the commit. If False, that job counts as
    changed. by: the latest time to send the commit, on :func:`~jobboard.runtime.boottime`. A store whose commits take
    several requests compares the time before the last request. before: the instant, on the server's clock, before which
    the commit has to be stored. A server that compares no times gets the last request before that instant by what the
    client knows of it.
    """

    is_patient: bool = True
    by: float | None = None
    before: int | None = None


ANY_TERMS = CommitTerms()


class HeldTooLong(Stale):
    """The refusal of a lock that another transaction holds: a process may have been stopped in it."""


class ClaimTerms(NamedTuple):
    """The terms of a new claim.

    keeper: the handle that keeps the claim; None for a fixed lease. ttl: the µs from the commit to the end of the
    lease; None where a session or the process keeps the claim."""

    who: str
    keeper: str | None
    ttl: int | None


# Arguments from above


@dataclass(frozen=True)
class Seat:
    """The arguments of a new store: the name and the settings of its board, and the client of the caller.

    shown: the place of the board in errors, without secrets.
    """

    name: str
    conf: Settings
    client: Any
    shown: str


@dataclass
class Life:
    """The functions of one handle (a connected life of a board) that its engine calls.

    wake: have waiting threads look again. alarm: wake the posters of schedules. nap: sleep until a wake, and return
    whether one came. sleep_unless_closed: sleep between two tries. beat_soon: renew kept claims now; with
    ``start=True``, even without claims. happened: notify of an act of another process.
    """

    handle: str
    wake: Callable[[], None]
    alarm: Callable[[], None]
    nap: Callable[[float], bool]
    sleep_unless_closed: Callable[[float], None]
    beat_soon: Callable[..., None]
    happened: Callable[[str, Record], None]


class Hears:
    """The engine, as its store sees it: the receiver of the store's reports, from any thread.

    Reports are ignored while no board is connected."""

    life: Life | None = None
    """The connected life of the board: from open to close. A forked child has a new one."""

    @property
    def handle(self) -> str:
        """The handle of the connected board, as in the nonces of its calls; empty before the board is connected."""
        return "" if self.life is None else self.life.handle

    def news(self) -> None:
        """Wake the waiters of this board: jobs may have become claimable, or the next event may come sooner."""
        if (life := self.life) is not None:
            life.wake()

    def rescheduled(self) -> None:
        """Report that the schedules have changed."""
        if (life := self.life) is not None:
            life.alarm()

    def reconnected(self) -> None:
        """Report a new connection, perhaps in another session."""
        if (life := self.life) is not None:
            life.beat_soon()

    def happened(self, event: str, record: Record) -> None:
        """Report an act of another process, between ``watch("events")`` and :meth:`Store.unwatch`."""
        if (life := self.life) is not None:
            life.happened(event, record)

    def nap(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or until :meth:`news`. Return whether there was news since this thread's last look."""
        return (life := self.life) is not None and life.nap(seconds)

    def sleep_unless_closed(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the board is closed."""
        if (life := self.life) is not None:
            life.sleep_unless_closed(seconds)


class BoardMissing(JobFailure):
    """The store has no board, and none may be created."""


class BoardOutdated(JobFailure):
    """The board has an older layout, which set-up alone upgrades."""


class StoredLayout(NamedTuple):
    """The layout of a board, the oldest layout whose readers understand it, and the version that wrote both."""

    layout: int
    min_reader: int
    library: str | None = None

    def steps_to(self, own: StoredLayout) -> list[str]:
        """Return what a set-up does to reach the layout ``own`` of its version, in words."""
        if self.layout == own.layout and self.min_reader < own.min_reader:
            return [f"refuse versions of this library that are older than layout {own.min_reader}"]
        return [f"upgrade layout {each} to {each + 1}" for each in range(self.layout, own.layout)]


class SetupStep(NamedTuple):
    """A change that a set-up makes: in words that begin with a verb, and as SQL statements where there are any."""

    what: str
    statements: tuple[str, ...] = ()


@functools.cache
def library_version() -> str:
    """Return the version of this library, which stores note beside the layout that they write."""
    return metadata.version("jobboard")


def too_new(what: str, layout: int, reads: int, library: str | None) -> JobFailure:
    """Return the error about a board that this version of the library can't read.

    :param reads: the layout that this version reads. library: the version that wrote the board, where it is known.
    """
    here, advice = library_version(), f"upgrade this one, {library_version()}, which reads layout {reads}"
    if library is not None:
        is_later = _numbers(library) > _numbers(here)
        advice = f"{library} wrote it, and this is {here}: " + (
            f"upgrade this one to {library} or later"
            if is_later
            else f"an upgrade is none here, install that {library}"
        )
    return JobFailure(f"{what} has layout {layout} of a newer version of this library; {advice}")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


@dataclass(frozen=True)
class Traits:
    """The lasting properties of a store. :meth:`Store.open` may replace the traits that only the server knows."""

    keeps: Literal["process", "lease", "session"]
    """The keeper of a claim without an ``expiry``: the process itself, so that the claim never lapses; a lease, which
    is renewed; or a session with the server, whose end :attr:`Stored.alive` shows."""

    wire: Literal["msgpack", "json"] = "msgpack"
    """The form of postings: msgpack bytes, or JSON text for stores that people query."""

    poll_cap: float = POLL_CAP
    """The longest sleep of :meth:`Store.wait` without a look, in seconds; larger where the server wakes waiters."""

    most_kept: int | None = None
    """The bytes that an outcome may have; None for any number."""

    most_bytes: int | None = None
    """The bytes of postings that one commit of several jobs may change; None for any number."""

    commit_bound: CommitBound | None = None
    """The bytes of one commit; None for any number."""

    spare: int = 16
    """The number of additional jobs that a look reads where some of the first may not be claimable."""

    has_replicas: bool = False
    """True if a replica may take the place of the server, as far as the store knows."""

    reported_events: frozenset[str] = frozenset()
    """The acts of other processes that an open store reports to a listener, as events of :mod:`jobboard.notifier`."""

    gate_place: str = "the side record gate/rules"
    """The place of the gate, for an operator who has to delete a damaged gate."""

    slot_calls: float = math.inf
    """The number of calls after which a slot is better replaced by a new one, where repeated writes get slow."""

    table: Any = None
    """The table of the jobs on SQL; None elsewhere."""

    locks_scopes: bool = False
    """True if the store counts the claims in the scope of a limit under a lock: see :meth:`Store.lock_scopes`.
    Otherwise the side record of the scope lists the claims."""

    wakes: bool = False
    """True if :meth:`Store.wake` reaches other processes; for a store that ``locks_scopes``."""


class Store(abc.ABC):
    """The contract that a backend implements under :class:`~jobboard.engine.Engine`.

    Every method may be called from several threads at once. It raises ConnectionFailure where the server cannot be
    reached, with ``outcome='unknown'`` if a commit may have happened or may still happen. The constructor sends no
    request, and sets ``traits``. The attributes of the class are read before there is a store.
    """

    options: ClassVar[Mapping[str, Option]] = {}
    """The options of the backend, beside those that every board has."""

    uri_parts: ClassVar[Mapping[str, str]] = {}
    """The option that each part of a URI sets: user, password, host, port, path."""

    extras: ClassVar[Mapping[str, frozenset[str]]] = {}
    """Public verb -> the arguments that this backend adds to it. Users pass them in ``extra=``, except ``where=`` and
    ``connection=``, which each board's verbs declare."""

    traits: Traits

    precision: int = 0
    """The µs by which the time in an answer may lag behind the server's clock. The server may change them."""

    margin: int | None = None
    """The µs for which a claim of a session surely stands after an answer of the server; None for ever. The server may
    change them with each session."""

    def __init__(self, seat: Seat) -> None:
        """:raises ValueError, TypeError: the backend does not accept the options or the client."""
        self.seat = seat
        self.hears = Hears()
        # Whether a set-up opens the store, and what a set-up has to do, as the last opening has found.
        self._sets_up = False
        self._due: list[SetupStep] = []

    # Life

    def setup(self) -> list[SetupStep]:
        """Create the missing parts of the store, and bring the others up to date. Keep the jobs. Return what was done.

        The store is not open. Any number of processes may call this any number of times."""
        steps = self.setup_steps()
        self._sets_up = True
        try:
            self.open(Hears(), create=True)
        finally:
            self._sets_up = False
        try:
            self.sync()
        finally:
            self.close()
        return steps

    def setup_steps(self) -> list[SetupStep]:
        """Return what :meth:`setup` would do. Write nothing. The store is not open."""
        try:
            self.open(Hears(), create=False)
        except BoardMissing:
            return [SetupStep(f"create the board {self.seat.name!r}")]
        except BoardOutdated:
            return self._due
        self.close()
        return self._due

    def check_layout(self, what: str, found: StoredLayout, own: StoredLayout) -> bool:
        """Check the layout of a board, for :meth:`open`. Return whether this is a set-up that has to store ``own``.

        :raises JobFailure: this version cannot read the board, or set-up has to upgrade it.
        """
        if found.min_reader > own.layout:
            raise too_new(what, found.layout, own.layout, found.library)
        self._due = list(map(SetupStep, found.steps_to(own)))
        if found.layout < own.layout and not self._sets_up:
            raise BoardOutdated(f"{what} has the older layout {found.layout}; `jobboard setup` upgrades it")
        return self._sets_up and bool(self._due)

    @abc.abstractmethod
    def open(self, hears: Hears, create: bool) -> Characteristics:
        """Connect. Create missing parts if ``create`` is true. Never migrate. An implementation keeps ``hears`` as
        ``self.hears``.

        :raises BoardMissing: the board is missing.
        :raises JobFailure: the board is of another layout: :meth:`check_layout`.
        """

    def hurry(self, seconds: float) -> None:  # noqa: B027 - requests of some stores end in time anyway
        """Let no request take more than ``seconds`` from now on, as the board is about to be closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Drop the connections of this store; never a client of the caller's."""

    @abc.abstractmethod
    def forked(self) -> None:
        """Drop every inherited connection *without closing it*, before anything else in a forked child.

        The parent still uses the socket. The next call opens a new connection. Take no lock."""

    @property
    def connected(self) -> bool:
        """True if an open store has a connection at this moment."""
        return True

    # Reading

    @abc.abstractmethod
    def now(self) -> int:
        """Return the server's time, or an estimate that is not ahead of it."""

    @abc.abstractmethod
    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        """Read jobs by their uuids, and side records by kind and key.

        The answer shows everything that was acknowledged before this call. The jobs are read first, or everything at
        one instant."""

    @abc.abstractmethod
    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[LimitScope] = (),
        where: Any = None,
    ) -> Look:
        """Find the first ``limit`` jobs that are stored as UNCLAIMED, by (priority, sequence).

        All jobs that were acknowledged before this call count. Fewer jobs mean that there are no more. A limit of 0, or
        an empty list of names, finds none.

        :param names: only jobs of these names.
        :param readable: only postings of this version or below.
        :param without: no jobs of these names.
        :param full: no jobs of these scopes of groups, which may be most of the board. Each store leaves them out:
            ``not_full`` in the statements of SQL, ``ready_beside`` in ``jobboard/backends/sql/scopes.py``, ``look.lua``
            on Redis, and ``LookFilter`` in ``jobboard/kv/store.py``.
        :param where: only jobs that meet this condition. Only a store with the extra argument ``where`` gets one.
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

        The page may hold jobs of other names and states. Before the end, the page may be shorter than ``limit`` only if
        its last job is such a job.

        :param fresh: show everything that was acknowledged before this call. Otherwise the answer may be some ms old.
        """

    @abc.abstractmethod
    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """Read the records of the next TRASHED jobs as of now, by (modified_on, sequence) downwards.

        A job whose last allowed claim has lapsed counts, even before a sweep."""

    @abc.abstractmethod
    def walk(self, order: Order, after: Bookmark | None, most: int, sieve: Sieve, fitting: int | None = None) -> Walked:
        """Look at the next entries of an order behind ``after``, at most ``most`` of them. Entries of other jobs that
        an index holds in between count, too.

        The answer has the jobs among these entries that may fit. It may leave out jobs that surely do not fit, and has
        to leave out those that do not meet ``where``. The jobs of the trash include those that no sweep has written
        down as trashed. A store may look for these among overdue jobs: see :meth:`overdue`.

        :param fitting: the answer may end with this many jobs. ``last`` is then the bookmark of the last of them, and
            ``looked`` may count entries behind it. Of the order of claims, these are the ones held longest, and
            ``last`` is the same as without ``fitting``.
        """

    def overdue(self) -> int:
        """Return the number of overdue jobs that each walk along the trash looks at, to find those that no sweep has
        written down as trashed."""
        return 0

    def names(self, most: int) -> dict[str, NameCount] | None:
        """Count the live jobs by name, each count up to ``most``. None: the store has no index of names, and the engine
        walks along the jobs."""
        return None

    def minutes(self, since: int, most: int) -> tuple[int, dict[int, int]] | None:
        """Count the outcomes of the jobs that have ended since an instant, up to ``most``. None: the store has no index
        for it, and the engine walks along the outcomes.

        :returns: the number of outcomes that were looked at, and by the beginning of the minute in which they ended,
            the number of outcomes that have not expired.
        """
        return None

    @abc.abstractmethod
    def sides(self, kind: str, position: Any, limit: int) -> tuple[Found, Any]:
        """Read about ``limit`` side records of a kind, outcomes newest first, others in any order.

        The keys that outlive their jobs are listed. Other keys may be among them.

        :param position: the position that the last call has returned; None at the beginning. For outcomes, also the
            side record of any outcome, which may be gone: the answer begins behind it.
        :returns: the records and the next position; None at the end.
        """

    @abc.abstractmethod
    def counts(self, states: Collection[State], cap: int | None = None) -> dict[State, int]:
        """Count the jobs in each of these states as of now. COMPLETE counts the outcomes. It is left out where the cost
        would grow with their number.

        :param cap: no count needs to go beyond this.
        :raises JobFailure: the count takes too long.
        """

    # Writing

    def transaction(self, **extra: Any) -> contextlib.AbstractContextManager[None]:
        """Return the block of one try of a call of this thread.

        At first the block has no transaction: a reading locks nothing, and a commit stands at once. A transaction
        begins with :meth:`hold`, :meth:`grab`, :meth:`lock_scopes` or ``connection=``. It stands once the block has
        ended without an exception, or once the caller has committed. It never stands if the block commits nothing. A
        reading in a transaction of the caller's locks the jobs.

        :param extra: ``connection``: the caller's own transaction, where the store has this extra argument.
        :raises Stale: at the end of the block, or at any request in it: the transaction has lost against another.
        """
        return _NO_TRANSACTION

    def hold(self, jobs: Sequence[Stored]) -> list[Stored]:
        """Wait for other transactions that hold these jobs, and lock the jobs until the end of the block's transaction.
        Return the jobs as the other transactions have left them."""
        return list(jobs)

    def grab(self, jobs: Sequence[Stored], limit: int) -> list[Stored]:
        """Lock the first ``limit`` of these jobs, in serving order, that are unchanged and that no other transaction
        holds, until the end of the block's transaction. Return the locked jobs.

        The caller has to claim the locked jobs, as others pass them over."""
        return list(jobs)[:limit]

    def occupied(self, scopes: Sequence[LimitScope]) -> tuple[int, list[Occupied]]:
        """Return the time, and the claims in each of these scopes. Only for a store that ``locks_scopes``."""
        raise NotImplementedError

    def lock_scopes(self, scopes: Sequence[LimitScope], wait: float) -> tuple[int, list[int | None]]:
        """Lock scopes until the end of the transaction, and count the jobs of each that are stored as claimed.

        Locks are taken in one order. The count is a statement that begins under the locks. Missing records are created.
        A transaction locks scopes once: a try that needs more scopes begins again. Only for a store that
        ``locks_scopes``.

        :param wait: the seconds to wait for another transaction; some stores wait for whole seconds. With 0, lock the
            scopes that are free.
        :returns: the time, and the counts; None for a scope that another transaction holds.
        :raises HeldTooLong: the wait was too long.
        """
        raise NotImplementedError

    def wake(self) -> None:  # noqa: B027 - only where it ``wakes``
        """Wake the waiters of all processes, as a claim has left a full scope."""

    def after_commit(self, extra: Mapping[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` once a mutation stands, or ``undone`` if it never will.

        That is at once, or at the end of the caller's transaction with ``connection`` among the extra arguments."""
        done()

    @abc.abstractmethod
    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        checks: Sequence[Side] = (),
        terms: CommitTerms = ANY_TERMS,
    ) -> Committed:
        """Store all changes and marks, if all jobs and side records are as they were read and no new job exists.

        A commit has a change or a mark, and at most 500 drafts and 100 changes of other jobs. It wakes waiters where a
        job becomes UNCLAIMED, where a lease or delay is stored, and for marks with ``wakes``.

        :param checks: side records that have to be as they were read: the gate.
        :raises Stale: a record is not as it was read, or the terms do not hold; nothing was stored.
        """

    def sync(self) -> None:  # noqa: B027 - what most servers have acknowledged is as safe as it gets
        """Return once everything stored so far is as safe as a commit."""

    def outlast_gates(self) -> None:  # noqa: B027 - where each commit compares the gate, there is nothing to wait for
        """Return once all transactions that read an older gate have ended.

        :raises JobFailure: the transactions go on for too long.
        """

    # Fast paths: one request for the plain case. None or False leaves the call to the engine. All but renew serve first
    # tries alone, and compare and store the slot's answer as the engine does: see jobboard.engine.answers. take and
    # claim leave the call to the engine where the gate has a value.

    def answered(self, nonce: Nonce) -> Side | None:
        """Return the side record of a call's slot, without its value, as a fast path has left it. None: the next call
        that needs the record reads it."""
        return None

    def post(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Stored] | None:
        """Store all drafts, in their order. They have no keys, and are no arrivals."""
        return None

    def take(
        self, lease: ClaimTerms, limit: int, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[list[Stored], int | None] | None:
        """Claim the first ``limit`` jobs of these names. Return the claims, and the µs until the next event.

        Leave the call to the engine where a job is overdue. Write nothing where no job can be claimed."""
        return None

    def take_limited(
        self,
        lease: ClaimTerms,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        gate: Side,
        scopes: Callable[[str, str | None], Sequence[LimitScope]],
    ) -> Stored | None:
        """Claim the first job of these names that has room in its scopes.

        Leave the call to the engine where a job is overdue, where no job surely has room, and where the board has other
        rules than those of ``gate``.

        :param scopes: returns the scopes of a job by its name and group.
        """
        return None

    def claim(self, uuid: str, lease: ClaimTerms, nonce: Nonce) -> Stored | None:
        """Claim a job if it is UNCLAIMED now. Leave a lapsed claim to the engine, which records the lapse."""
        return None

    def consume(self, acts: Sequence[Finish], nonce: Nonce, gate: Side) -> bool:
        """End all claims by the verbs of the acts, or none. Each act has a token. An act with ``keep`` leaves an
        outcome.

        Leave the call to the engine where a job has a key, or is not claimed with the token now, and where the board
        has other rules than those of ``gate``."""
        return False

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Sequence[tuple[str, int]]:
        """Prolong the living claims (uuid, token) that ``handle`` keeps, to ``ttl`` from now. Return the others, which
        the engine examines one by one."""
        return held

    # Waits and reports

    def watch(self, topic: Literal["jobs", "schedules", "events"]) -> bool:
        """Report to ``hears`` from now on: news for waiters, changed schedules, or acts of other processes.

        :returns: whether the store can report now. Otherwise the caller polls.
        """
        return False

    def unwatch(self) -> None:  # noqa: B027 - where events are not reported, there is nothing to end
        """End the reports of events, as the last listener has gone."""

    def wait(self, names: Sequence[str] | None, readable: int, limit: float, takes: bool) -> None:
        """Sleep until a job of these names may have become claimable since this thread's last look.

        Sleep for at most ``limit`` seconds, or until the board is closed. May return early for nothing.

        :param takes: true if this thread is going to claim. A wake-up for one claimer must not go to a thread that only
            looks.
        """
        self.watch("jobs")
        self.hears.nap(limit)

    def rouse(self) -> None:  # noqa: B027 - one that sleeps in Hears.nap has been woken already
        """Make every running :meth:`wait` return soon."""

    def forgo(self) -> None:  # noqa: B027 - where a wake-up reaches all waiters, none is lost
        """Pass the wake-up of this thread on to another waiter, as this thread will not look after its :meth:`wait`."""

    # Upkeep

    def tidy(self, seconds: float) -> bool:
        """Drop expired side records in short steps, for at most ``seconds``. Return whether there may be more.

        See :data:`LAPSING` and :func:`turns`."""
        return False

    def place(self, uuid: str) -> str:
        """Return the name of a job's record on the server, for an operator."""
        return f"the job {uuid}"

    def oddities(self) -> Iterator[Oddity]:
        """Yield the damaged records except the gate, each with its place for an operator.

        Reads in pages, and writes nothing."""
        return iter(())

    def boards(self, most: int) -> list[str]:
        """Return the names of at most ``most`` boards in this store, with this board's own if the board exists.

        The cost is bounded: names may be missing where the search would be long."""
        return []


def walk_trash(store: Store, after: Bookmark | None, most: int) -> Walked:
    """Return a walk along the trash, by the pages of a store."""
    page = store.trash_page(None if after is None else _PLACED._replace(**dict(zip(_NEWEST, after, strict=True))), most)
    jobs: list[tuple[Bookmark, Stored]] = [
        ([getattr(job, name) for name in _NEWEST], Stored(job, None)) for job in page
    ]
    return Walked(0, jobs, len(page), jobs[-1][0] if len(page) == most else None)


_NEWEST = ("modified_on", "sequence", "uuid")
"""The fields of a record that are its place in the trash."""

_PLACED = Record("", "", 0, 0, None, 0, b"", TRASHED, 0, None, 0, None, None, None, 0, 0)
"""A record without content, for a place alone."""


def weight(stored: Stored) -> int:
    """Return the bytes that a commit of a change of this job stores."""
    record = stored.record
    return len(record.posting) + len(record.note or "") + sum(len(failure.text) for failure in record.errors)


def reschedules(changes: Sequence[object], marks: Sequence[Mark]) -> bool:
    """Return whether a commit changes schedules. A commit that also posts a job only advances a schedule."""
    return not changes and any(mark.before.kind == "schedule" for mark in marks)


_REST = 0.002
"""The seconds between two steps of a tidy run, in which a thread that waits for a lock wakes up."""


def turns(seconds: float) -> Iterator[None]:
    """Yield once for each step of a tidying, once or more, with a rest between steps."""
    until = runtime.monotonic() + seconds
    yield
    while runtime.monotonic() < until:
        runtime.sleep(_REST)
        yield
