"""What a board holds: an engine, whose primitives a backend implements.

:mod:`jobboard.primitives` has what goes to and fro, and what all of them share: nonces, failures, margins.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from jobboard.conf import Option, Settings
from jobboard.engine.done import Done
from jobboard.engine.keys import Remembered
from jobboard.engine.rules import Rules
from jobboard.engine.scheduling import DuePosts, Make, StoredSchedule, Unreadable
from jobboard.exceptions import JobFailure
from jobboard.primitives import (
    POLL_CAP,
    Characteristics,
    Claimed,
    Draft,
    Finish,
    KeptStats,
    Limit,
    Nonce,
    Oddity,
    Peeked,
    Posted,
    Renewed,
    Seen,
    Taken,
)
from jobboard.states import Holder, Record, State, Status, Verb

T = TypeVar("T")

WRITES = (
    *("setup", "insert", "claim", "take", "renew", "extend", "finish", "operate", "pause", "resume", "enlist"),
    *("set_limit", "remove_limit", "delist", "tidy", "set_schedule", "remove_schedule", "post_due", "keep", "remember"),
)
"""The primitives that a board which was opened for looking only has not."""


class Life(Protocol):
    """What an engine may ask of the connected life of its board; see :class:`~jobboard.session.Session`."""

    handle: str
    closed: bool

    def query(self, primitive: Callable[..., T], *args: Any) -> T: ...
    def wake(self) -> None: ...
    def alarm(self) -> None: ...
    def nap(self, seconds: float) -> bool: ...
    def pause(self, seconds: float) -> None: ...
    def beat_soon(self) -> None: ...


@dataclass(frozen=True)
class Seat:
    """What a board hands to the engine that it makes.

    shown: where the board is, without secrets, for errors. heard: to be told what other processes do, while somebody
    listens.
    """

    name: str
    conf: Settings
    client: Any
    shown: str
    heard: Callable[[str, Record], None]


class Engine(abc.ABC):
    """What a board holds, and a backend implements. Every method may be called from several threads at once.

    Its namespace is its own: the board calls what stands here, and nothing else of it. Building one talks to nobody.
    """

    options: ClassVar[Mapping[str, Option]] = {}
    """The options of the backend, beside those that every board has."""

    uri_parts: ClassVar[Mapping[str, str]] = {}
    """Which option each part of a URI sets: user, password, host, port, path."""

    wire: ClassVar[Literal["msgpack", "json"]] = "msgpack"
    """How this backend wants postings: msgpack bytes, or JSON text for stores that people query."""

    extras: ClassVar[dict[str, frozenset[str]]] = {}
    """Public verb -> the keyword arguments that this backend adds to it; they arrive as ``**extra``."""

    poll_cap: float = POLL_CAP
    """The longest that ``wait`` may sleep without looking, in seconds; larger where the server wakes it."""

    most_kept: ClassVar[int | None] = None
    """How many bytes details and result of an outcome may have together; None: as many as either may have."""

    slot_calls: float = math.inf
    """After how many calls a slot is better replaced by a new one, where what is written again and again gets dear."""

    characteristics: Characteristics
    """What the board promises; set by :meth:`open`."""

    life: Life | None = None
    """The connected life of the board: from when it is open until it is closed, and a new one in a forked child."""

    def __init__(self, seat: Seat) -> None:
        """:raises ValueError, TypeError: the options, or the client, are not such as this backend takes."""
        self._name = seat.name
        self._conf = seat.conf
        self._client = seat.client
        self._shown = seat.shown
        self._heard = seat.heard
        self._ttl = int(seat.conf["claim_ttl"] * 1e6)
        self._creates = seat.conf["auto_setup"] and not seat.conf["read_only"]
        for primitive in WRITES if seat.conf["read_only"] else ():
            setattr(self, primitive, self._refuse)

    def _refuse(self, *args: Any, **extra: Any) -> Any:
        raise JobFailure(f"{self} was opened for looking only: leave out read_only to change anything")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name!r} at {self._shown}>"

    def __str__(self) -> str:
        return f"board {self._name!r} at {self._shown}"

    @property
    def connected(self) -> bool:
        """Whether an open board has a connection at this moment."""
        return True

    @property
    def has_replicas(self) -> bool:
        """Return whether a replica may take the place of the server, as far as the board knows."""
        return False

    @property
    def table(self) -> Any:
        """The jobs' table, where they lie in one."""
        raise AttributeError(f"the jobs of {self} lie in no table")

    def setup(self) -> None:  # noqa: B027 - most of them create what is missing when they are opened
        """What ``jobboard setup`` does before it opens the board, and never :meth:`open`: create what is missing, bring
        what is there up to date. Any number of times, in any number of processes at once."""

    @abc.abstractmethod
    def open(self) -> None:
        """Connect, create what is missing unless ``auto_setup`` forbids it, refuse a store that is too new, and set
        ``self.characteristics``. Safe when many processes do it at once. Never migrates."""

    def closing(self) -> None:  # noqa: B027 - most backends' requests end soon by themselves
        """The board is about to be closed: from now on no request may take longer than seconds."""

    @abc.abstractmethod
    def shut(self) -> None:
        """Drop the connections that this board made; never a client of the caller's."""

    @abc.abstractmethod
    def forked(self) -> None:
        """In a forked child, before anything else: let go of every inherited connection *without closing it* (the
        parent still talks through its socket), so that the next call opens a fresh one. Take no lock."""

    def listen(self, on: bool) -> None:  # noqa: B027 - most stores have nothing to tell
        """Somebody has begun to listen to the notifier, or the last one has stopped: where ``remote_events``, hear what
        other processes do and report it through ``self._heard(event, record)``."""

    def tidy(self, seconds: float = 1.0) -> bool:
        """Drop what nobody needs any longer: answers of an hour ago, entities whose time is up, what was purged a day
        ago, outcomes that have ended. For so many seconds at most; whether there may be more. Called when a board is
        opened, unless for looking only, and every ten minutes while it renews anything; with the next heartbeat where
        there is more."""
        return False

    def examine(self) -> Iterator[Oddity]:
        """What is odd in the store, beside what :meth:`page`, :meth:`trash_page` and :meth:`done_page` show. Reads in
        pages, and writes nothing."""
        yield from ()

    def joins(self, extra: dict[str, Any]) -> bool:
        """Whether these extra arguments put the call into a transaction of the caller's: it gets no nonce and is never
        repeated, as only the caller can repeat the whole."""
        return False

    def after_commit(self, extra: dict[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` when a mutation stands (now, or at the caller's commit), ``undone`` if it never will."""
        done()

    @abc.abstractmethod
    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[Posted]:
        """Store all the drafts or none, in their order: at most 500. A draft whose key another job holds, which lives
        or whose window runs, is not stored: that job is its answer, also when it is an earlier draft of this call, and
        a job that is unclaimed or scheduled gets what a draft with ``replace`` brings. Nor is an arrival stored whose
        uuid is on the board already, or in its trash; what was purged may arrive again.

        On a replay, a job that this call has stored, or an arrival that was there before, and that has left the board
        since, is answered without a record, and so are the drafts that were answered with it. But a draft that was
        kept out by a job that is not this call's, and that no longer holds the key, is tried anew: nothing was done
        for it. Only a later try than any that was answered does so, for nobody waits for an earlier one."""

    @abc.abstractmethod
    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        """Claim one job, if it is UNCLAIMED at this instant; one atomic compare and set. ``expiry`` None: keep it for
        this handle."""

    @abc.abstractmethod
    def take(
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
    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """Prolong the (uuid, token) claims in ``held`` (at most 1000) that the store marks as kept by ``handle``, to
        ``ttl`` from now, reviving what has lapsed and is nobody else's. Lost is what is absent, trashed, or of another
        token. What ``handle`` keeps no longer, as somebody has given it a fixed lease by its owner's name, say, is
        ``unkept``, and stays as it is. Skips, rather than waits for, a job that a transaction of the caller's holds:
        that one is neither renewed nor lost, but ``missed``."""

    def forsake(self, uuid: str, token: int) -> None:  # noqa: B027 - where a lease is stored, it ends by itself
        """The holder of a kept claim was told that it is lost, and it is not renewed any more: see to it that the job
        becomes free, even if what keeps the claim has survived, and the server refuses it at first. Must not block."""

    def doubt(self, nonce: Nonce) -> None:  # noqa: B027 - most stores forget what a broken connection has not sent
        """The retries of this mutation have run out and its outcome is unknown: what it may have claimed, or may still
        claim, is nobody's. Must not block."""

    @abc.abstractmethod
    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        """Compare the holder and set the lease (``expiry`` None: kept by this handle), atomically. (status, margin)."""

    @abc.abstractmethod
    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        """End each claim by its verb, or cancel or purge what nobody holds: at most 100 acts, each one atomic by
        itself, answered in their order. What was purged reads TRASHED for a day."""

    @abc.abstractmethod
    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        """release, cancel, restore or purge, atomically. A restore whose key is taken: KEY. What was purged reads
        TRASHED for a day. ``token``: release the claim that has it, and no other."""

    @abc.abstractmethod
    def read(self, uuids: Sequence[str]) -> list[Seen]:
        """The jobs as they stand, in the order asked for. Without a record: COMPLETE if absent, TRASHED if purged."""

    @abc.abstractmethod
    def page(
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
    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """The next trashed jobs behind ``after``, by (modified_on, sequence) downwards, those that no sweep has met
        included."""

    @abc.abstractmethod
    def outcomes(self, uuids: Sequence[str]) -> list[Done | None]:
        """What these jobs have left that were consumed to be kept, in the order asked for; None where nothing is."""

    @abc.abstractmethod
    def done_page(self, after: Done | None, limit: int) -> list[Done]:
        """The next outcomes behind ``after``, the one that was stored last first. Fewer than ``limit`` only at the
        end."""

    @abc.abstractmethod
    def keep(self, dones: Sequence[Done]) -> int:
        """Store outcomes of another board's, until they end: at most 40. One that is there already stays as it is. How
        many were stored just now."""

    @abc.abstractmethod
    def remembered(self, place: Any) -> tuple[list[Remembered], Any]:
        """Some of the keys whose windows run though no live job has them. ``place``: where to go on, None at the
        beginning; it answers the next one, None at the end."""

    @abc.abstractmethod
    def remember(self, keys: Sequence[Remembered]) -> int:
        """Keep these keys taken that another board has remembered: at most 100. One that is taken stays as it is. How
        many were stored just now."""

    def sync(self) -> None:  # noqa: B027 - a board without a cache has nothing to do
        """Make the next reads of this handle see everything that was acknowledged before."""

    @abc.abstractmethod
    def now(self) -> int:
        """The server's time."""

    @abc.abstractmethod
    def tally(self) -> dict[State, int]:
        """How many jobs are in each logical state but COMPLETE."""

    @abc.abstractmethod
    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        """Whether a take would find something; writes nothing."""

    @abc.abstractmethod
    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        """Sleep until something may have become claimable since ``mark`` was read, ``limit`` seconds have passed, or
        the board is closed. ``mark`` is opaque and was read *before* the look that found nothing, so that what came
        in between is not slept through. May wake for nothing. A wake-up meant for one who takes must not be lost on one
        who only peeked: the mark tells which it was."""

    def rouse(self) -> None:  # noqa: B027 - one that sleeps in Session.nap has been woken already
        """Make every ``wait`` of this handle that is under way return soon."""

    def forgo(self) -> None:  # noqa: B027 - where a wake-up reaches all who wait, it is not lost on one of them
        """This thread will not look, though its ``wait`` has returned: what was meant for it alone, a wake-up or a
        job that it has been given already, is due to another who waits."""

    @abc.abstractmethod
    def rules(self) -> Rules:
        """What holds for all claims of the board."""

    @abc.abstractmethod
    def pause(self, names: Sequence[str] | None, nonce: Nonce) -> None:
        """Give no more claims of jobs of these names, or (None) of any job. A claim that stands goes on, and so does
        what extends, revives or ends it. No call that begins after this one has returned makes a claim against it."""

    @abc.abstractmethod
    def resume(self, names: Sequence[str] | None, nonce: Nonce) -> None:
        """Take that back for these names, or (None) all of it, and wake those who wait."""

    @abc.abstractmethod
    def set_limit(self, limit: Limit, nonce: Nonce) -> None:
        """Bound the claims of some jobs from when this returns on. Those that stand go on, and count."""

    @abc.abstractmethod
    def remove_limit(self, name: str, per: str | None, nonce: Nonce) -> Status:
        """OK, or ABSENT. Who waits looks again. ``per`` None: both."""

    @abc.abstractmethod
    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """The uuids of those of these jobs, all of them unclaimed, that are neither paused nor have to wait for a slot,
        each by itself."""

    @abc.abstractmethod
    def schedules(self) -> list[StoredSchedule]:
        """Those that can be read here."""

    @abc.abstractmethod
    def all_schedules(self) -> list[StoredSchedule | Unreadable]:
        """The others, too."""

    @abc.abstractmethod
    def set_schedule(self, id: str, make: Make, nonce: Nonce) -> StoredSchedule | None:  # noqa: A002
        """Store what ``make`` answers to the time and to what stands there (None: nothing), if it is still as it was
        read. Where it answers that very thing, nothing is written. What it has answered last; on a replay, what stands
        there now."""

    @abc.abstractmethod
    def remove_schedule(self, id: str, nonce: Nonce) -> Status:  # noqa: A002
        """OK, or ABSENT."""

    @abc.abstractmethod
    def kept_stats(self) -> KeptStats:
        """How much is kept beside the jobs."""

    def hear_schedules(self) -> bool:
        """See to it that this handle hears of every schedule that is set or removed from now on, by whomever: its life
        gets an alarm then. False where the server can't tell, or not now."""
        return False

    @abc.abstractmethod
    def post_due(self, posted: DuePosts) -> int | None:
        """Post the jobs of all schedules that are due: one for each due time, whoever else does so, as the commit that
        posts it also writes down the next one. So it may be repeated as it is.

        :param posted: takes in what it has posted. A repetition gets the same again: of what a lost reply leaves open
            it finds out whether it is on the board.
        :returns: in how many µs something is due again, None if nothing is known of."""

    @abc.abstractmethod
    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        """Register or renew an entity (``metadata`` is JSON text) until ``ttl`` from now. Of two handles with the same
        kind and name the last one counts."""

    @abc.abstractmethod
    def delist(self, handle: str) -> None:
        """Remove every entity of this handle."""

    def boards(self, most: int) -> list[str]:
        """The names of boards in this store, at most so many, for people who have mistyped one: this board's own among
        them if it is there (where nothing is made for a board, if anything lies on it). Bounded in cost: a store that
        would have to search for long may leave names out, and one that can't tell answers none."""
        return []

    @abc.abstractmethod
    def roster(self) -> list[tuple[str, str, str]]:
        """The living entities as (kind, name, metadata), in any order."""
