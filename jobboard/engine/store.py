"""What a store keeps for the engine: jobs, and side records, both with tags, which it compares and sets.

A store decides nothing about a job. It answers with what is stored and with the server's time of the same request, and
it commits what the engine has decided, all or nothing, if nobody was quicker. Times are microseconds, as in
:mod:`jobboard.states`.

**A tag never repeats** for a job or a side record: not across the trash, a purge, a deletion or a new arrival. What a
store remembers may make a call faster, and never decides one: the commit compares with what is stored.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from jobboard.primitives import Characteristics, Draft, Oddity
from jobboard.states import Record, State


class Stored(NamedTuple):
    """A record as it is stored. ``tag`` tells this version of the job from every other that it ever had; only the store
    knows what it is. ``alive``: False where a claim without a lease has lost the session that kept it. ``passing``: an
    earlier session of this very handle keeps it, which nobody prolongs any more."""

    record: Record
    tag: object
    alive: bool = True
    passing: bool = False


class Side(NamedTuple):
    """A side record: what a board keeps beside its jobs, by ``kind`` and ``key``. See :data:`KINDS`.

    ``value`` is opaque to the store; ``until``: from when on it counts for nothing, and may be dropped (None: never).
    A store answers it until it has dropped it. Where nothing is stored, value, until and tag are None."""

    kind: str
    key: str
    value: bytes | None
    until: int | None
    tag: object

    def stands(self, now: int) -> bool:
        """Whether it is stored, and counts."""
        return self.value is not None and (self.until is None or self.until > now)


KINDS = {
    "answer": "what the latest call of a handle's slot did, for its repetition; not listed",
    "key": "the uuid of the job that holds a key: for as long as it lives, or until its window ends; not listed",
    "purged": "that a job was purged within a day; not listed",
    "entity": "one entry of the roster",
    "outcome": "what a consumed job has left, by its uuid; not listed, but paged, and there may be millions",
    "scope": "what a limit counts of the jobs of one name, or of one name and group: see jobboard.engine.limits",
    "gate": "what holds for all claims, see jobboard.engine.rules; one at most, and not listed",
    "schedule": "what is posted at which times",
}
"""The kinds of side records."""

HELD = object()
"""The tag of a side record that another's transaction holds, where a store has such, so that it can't be told."""

LISTED = frozenset({"entity", "schedule"})
"""Those of them that are listed."""

WALKED = frozenset({"key", "scope"})
"""Those which :meth:`Store.walk` comes by: for moves, and to tidy up."""

LAPSING = ("entity", "answer", "key", "purged")
"""Those whose time goes by, and which :meth:`Store.tidy` drops then; outcomes have an order of their own."""

PAGED = frozenset({"outcome"})
"""Those of which :meth:`Store.newest` is asked."""


_REST = 0.002
"""Between two steps of a tidying: a lock is free for long enough that one who waits for it wakes up."""


def turns(seconds: float) -> Iterator[None]:
    """One for each step of a tidying, at least one, between which others have theirs."""
    until = time.monotonic() + seconds
    yield
    while time.monotonic() < until:
        time.sleep(_REST)
        yield


class Found(NamedTuple):
    """The answer to a read; None for a job, and a side without a value, that is not stored."""

    now: int
    jobs: list[Stored | None]
    sides: list[Side]


class Look(NamedTuple):
    """What can be claimed, in serving order, and what must be settled first: at most 100 whose lease or delay has
    ended, or whose keeper has gone. ``next_event``: µs until the next such end, None if none is known. ``gate``: the
    side record of that kind, as it was then."""

    now: int
    ready: list[Stored]
    overdue: list[Stored]
    next_event: int | None
    gate: Side


Lane = tuple[str, str]
"""A name and a group."""


class Change(NamedTuple):
    """One job's step: from what was read (None: it is new) to what is to be stored (None: nothing is left). A draft
    gets its sequence, and its time, where it is stored.

    ``event``: what those who listen in other processes are told; one of :mod:`jobboard.notifier`."""

    before: Stored | None
    after: Draft | Record | None
    event: str | None = None


class Mark(NamedTuple):
    """One side record's step: from what was read to ``value`` (None: nothing is left), which counts for ``ttl`` µs from
    the commit on, or ``until`` an instant (both None: for ever). ``wakes``: all who wait for a job look again."""

    before: Side
    value: bytes | None
    ttl: int | None = None
    until: int | None = None
    wakes: bool = False

    def end(self, now: int) -> int | None:
        """Until when it counts, if it is stored now."""
        return self.until if self.ttl is None else now + self.ttl


def weight(stored: Stored) -> int:
    """How many bytes a commit stores anew that changes this job."""
    record = stored.record
    return len(record.posting) + sum(len(failure.text) for failure in record.errors)


def reschedules(changes: Sequence[object], marks: Sequence[Mark]) -> bool:
    """Whether those who post what is due are to look again behind this commit. With a job, a schedule is put off."""
    return not changes and any(mark.before.kind == "schedule" for mark in marks)


class Committed(NamedTuple):
    """What is stored now, of the jobs that stay and of the marks that have a value, each in their order."""

    jobs: list[Stored]
    sides: list[Side]


class Stale(Exception):
    """Nothing was committed: a job or a side record is not as it was read.

    :param uuids: the jobs that have surely changed.
    :param sides: the kinds and keys of side records that may have. With the gate, what was looked for is to be looked
        for anew. With neither, the store can't tell.
    """

    def __init__(self, uuids: Iterable[str] = (), sides: Iterable[tuple[str, str]] = ()) -> None:
        self.uuids = frozenset(uuids)
        self.sides = frozenset(sides)
        super().__init__(*self.uuids)


class Store(abc.ABC):
    """What a backend implements under :class:`~jobboard.engine.StoreEngine`. Any method may be called from several
    threads at once, and raises ConnectionFailure where the server can't be reached."""

    keeps: ClassVar[Literal["process", "lease", "session"]]
    """What keeps a claim without an ``expiry``: the process itself, so that it never lapses; a lease, which is renewed;
    or a session with the server, which :attr:`Stored.alive` tells of."""

    spare: ClassVar[int] = 16
    """How many jobs more than asked for a look takes in where some of the first may not be had."""

    most_bytes: ClassVar[int | None] = None
    """How many bytes of postings the jobs may have that one commit changes, unless it is a single one."""

    has_replicas: bool = False
    """True if a replica may take the place of the server, as far as the store knows."""

    examines: ClassVar[frozenset[str]] = frozenset()
    """Of the kinds ``entity``, ``scope`` and ``key`` those that its :meth:`examine` looks through by itself; of keys,
    those of live jobs."""

    precision: int = 0
    """By how many µs its clock may lag within a reading."""

    gate_place: str = "the side record gate/rules"
    """Where an operator finds the gate, to delete it."""

    margin: int | None = None
    """For how long a claim that a session keeps stands for sure after an answer of the server, in µs."""

    @abc.abstractmethod
    def open(self) -> Characteristics:
        """Connect, and create what is missing unless ``auto_setup`` forbids it."""

    def closing(self) -> None:  # noqa: B027 - most stores' requests end soon by themselves
        """:meth:`close` is coming: from now on no request may take longer than seconds."""

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def forked(self) -> None:
        """In a forked child: let go of inherited connections without closing them. Take no lock."""

    @property
    def connected(self) -> bool:
        return True

    @abc.abstractmethod
    def now(self) -> int: ...

    def judged(self, jobs: Sequence[Stored]) -> int:
        """The time by which to judge these jobs. It may be an estimate that is not ahead of the server's, where none of
        them has ended by then."""
        return self.now()

    @abc.abstractmethod
    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        """These jobs, and the side records of these kinds and keys."""

    def lost(self, jobs: Sequence[Stored]) -> set[str]:
        """Which of these jobs have changed since they were read, as far as is seen at the cost of reading them."""
        found = self.read([stored.record.uuid for stored in jobs]).jobs
        return {
            stored.record.uuid
            for stored, now in zip(jobs, found, strict=True)
            if now is None or now.record != stored.record
        }

    def sync(self) -> None:  # noqa: B027 - most stores answer with what is newest
        """Make the next reads see everything that was acknowledged before."""

    @abc.abstractmethod
    def listed(self, kind: str) -> Found:
        """Every side record of a kind that is listed: there are not many of these."""

    def newest(self, kind: str, after: Side | None, limit: int) -> Found:
        """Side records of a kind that is paged, the one that was stored last first: those behind ``after``, which need
        not be there any more. Fewer than ``limit`` only at the end. Not asked of a store whose engine answers with
        outcomes by itself."""
        raise NotImplementedError

    @abc.abstractmethod
    def walk(self, kind: str, place: Any) -> tuple[Found, Any]:
        """Some of the side records of a kind that is walked; of keys those that tell of a job which no longer holds
        them, and perhaps some whose time has gone by. ``place``: where to go on, None at the beginning; it answers the
        next one, None at the end. A store whose engine tidies scopes by itself is asked for keys alone."""

    @abc.abstractmethod
    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        """The first ``limit`` jobs that are stored as UNCLAIMED, by (priority, sequence), of all that was acknowledged
        before this call; with a limit of 0, none. With names, of these only; else of all but those in ``without``, at
        the cost of a look for the other names. None of the names and groups in ``full``, which may hold most of the
        jobs: at the cost, where the store can, of a look for each of the other groups."""

    def known(self, limit: int, names: Sequence[str] | None, readable: int, without: Sequence[str] = ()) -> Look | None:
        """What :meth:`look` would answer if nothing has come in since the last one, where this store can tell that
        without a request. Their tags have the commit of a claim compare that nothing has."""
        return None

    @abc.abstractmethod
    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State]
    ) -> tuple[int, list[Stored]]:
        """The next live jobs behind ``after``, by (priority, sequence), and the time. It may answer with jobs of other
        names and states, but for the last one of a page that is not full; see :meth:`Engine.page
        <jobboard.engine.Engine.page>`."""

    @abc.abstractmethod
    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """The next jobs that are trashed by now, by (modified_on, sequence) downwards, as they stand."""

    @abc.abstractmethod
    def counts(self) -> dict[State, int]:
        """How many jobs stand in each state now."""

    def boards(self, most: int) -> list[str]:
        """See :meth:`Engine.boards <jobboard.engine.Engine.boards>`."""
        return []

    @abc.abstractmethod
    def commit(self, changes: Sequence[Change], marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> Committed:
        """Store every change and every mark if all the jobs and side records are as they were read, those in ``checks``
        (the gate, today) included, and what is new is not there. At most 500 drafts, or 100 changes of other jobs.

        :raises Stale: something is not; nothing was stored.
        """

    def secure(self) -> None:  # noqa: B027 - most stores commit nothing less safely than what others read of it
        """Return when all that is stored by now is as safe as what :meth:`commit` has returned from."""

    def settled(self, counted: bool) -> None:  # noqa: B027 - a commit that compares the gate comes too late by then
        """Return when each commit has been stored, or never will be, that was decided by a gate of before this call.

        :param counted: only of claims that are listed in their scopes, as a limit has bound them before.
        :raises JobFailure: others have not ended their transactions in time.
        """

    def tidy(self, seconds: float) -> bool:
        """Drop side records whose time has gone by, in short steps, for so many seconds at most; whether there may be
        more. See :func:`turns`."""
        return False

    def listen(self, on: bool) -> None:  # noqa: B027 - most stores have nothing to tell
        """See :meth:`Engine.listen <jobboard.engine.Engine.listen>`."""

    def outcome_count(self) -> int | None:
        """How many outcomes are stored, where that does not cost what there are of them."""
        return None

    def hear_schedules(self) -> bool:
        """See :meth:`Engine.hear_schedules <jobboard.engine.Engine.hear_schedules>` and :func:`reschedules`."""
        return False

    def examine(self) -> Iterator[Oddity]:
        """See :meth:`Engine.examine <jobboard.engine.Engine.examine>`."""
        yield from ()
