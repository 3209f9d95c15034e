"""What a service holds in its hands: jobs, claims, priorities, and what it posts."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from jobboard import forks
from jobboard.codec import Content, Wire
from jobboard.conf import shortened
from jobboard.exceptions import JobFailure, JobTrashed, NotFound
from jobboard.primitives import RANKS, Seen
from jobboard.priorities import JobPriority, rank_of
from jobboard.standing import ENDED, STEPS, TOLD, Standing, Trigger
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, Failure, Record, State, Verb, moment

T = TypeVar("T")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


LONGEST = 3_155_760_000
"""A hundred years in seconds: from now on, they end before the last instant that every backend stores."""


def check_longest(timeout: float | None) -> float | None:
    """:raises ValueError: a wait that would be longer than any, but for one without an end."""
    if timeout is not None and LONGEST < timeout < math.inf:
        raise ValueError(f"timeout={shortened(timeout)}: must be at most {LONGEST} seconds, or None to wait for ever")
    return timeout


def boottime() -> float:
    """Seconds on a clock of this machine that goes on while the process is stopped or the machine suspended."""
    return time.clock_gettime(_CLOCK)


class Posting(NamedTuple):
    """A job to be posted: the arguments of :meth:`JobBoard.post <jobboard.board.JobBoard.post>`."""

    name: str
    book: Any = None
    details: Mapping[str, Any] | None = None
    priority: int | str = JobPriority.NORMAL
    key: str | None = None
    delay: float | datetime.timedelta | None = None
    due: datetime.datetime | None = None
    max_attempts: int | None = None
    context: Mapping[str, str] | None = None
    group: str | None = None
    key_for: float | datetime.timedelta | None = None
    on_key: Literal["keep", "replace"] = "keep"


class Act(NamedTuple):
    """One end of a claim, for :meth:`JobBoard.finish_many <jobboard.board.JobBoard.finish_many>`.

    ``verb`` is abandon, consume or trash; ``delay`` (seconds) goes with abandon, ``error`` with abandon and trash. An
    abandon with ``refund`` gives the attempt back, too: it does not count. One with ``retry`` does so as well, and
    ``job.retries`` counts it. ``result`` goes with consume: see :meth:`JobBoard.consume
    <jobboard.board.JobBoard.consume>`.
    """

    job: Job
    verb: Verb | str
    delay: float | datetime.timedelta | None = None
    error: str | None = None
    refund: bool = False
    retry: bool = False
    result: Any = None


@dataclass(frozen=True)
class Entity:
    """Somebody who shows on the board while alive, a conductor for instance."""

    kind: str
    name: str
    metadata: dict[str, Any] = field(default_factory=dict)


class Board(Protocol):
    """What a job asks of its board. ``_keeps``: how large a result may be, and how it is encoded; None where none is
    kept."""

    _keeps: tuple[int, Wire] | None

    @property
    def name(self) -> str: ...
    def _extend(self, job: Job, claim: Claim | None, who: str, expiry: float | None) -> None: ...
    def _end(
        self,
        job: Job,
        claim: Claim | None,
        who: str,
        verb: Verb,
        delay: float | datetime.timedelta | None = None,
        error: str | None = None,
        *,
        result: Any = None,
    ) -> None: ...
    def _result(self, job: Job) -> Any: ...
    def _refresh(self, job: Job) -> Seen: ...
    def _refresh_all(self, jobs: Sequence[Job]) -> list[Seen]: ...
    def _load_book(self, uuid: str) -> Any: ...
    def _decoded(self, posting: bytes | str) -> Content: ...


class Claim:
    """The right to work on a job, from a successful claim until it ends.

    ``token`` rises with every claim of the job: hand it on to a storage of your own to have that refuse writes of a
    claim that was overtaken.
    """

    __slots__ = ("_generation", "_job", "_lock", "_standing", "deadline", "kept", "token", "who")

    def __init__(self, job: Job, token: int, who: str, kept: bool, deadline: float | None) -> None:
        self._job = job
        self.token = token
        self.who = who
        self.kept = kept
        self.deadline = deadline
        self._standing = Standing.HELD
        self._generation = forks.generation
        # The holder, the heartbeat and the conductor step at once. Reentrant, as a signal handler may read it, too.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<Claim {self._job.uuid} by {self.who!r}, token {self.token}{', lost' if self._is_lost() else ''}>"

    @property
    def uuid(self) -> str:
        return self._job.uuid

    @property
    def job(self) -> Job:
        return self._job

    @property
    def lost(self) -> bool:
        """Whether somebody else may have the job by now: the board was told so, or the lease's end has passed on this
        machine's own clock. A claim that was read as lost stays lost, and the board no longer keeps it, until an
        :meth:`extend` succeeds. Also true for good once the conductor that runs the work has given the job up: it took
        too long, or the conductor has to end."""
        if not self._reads_lost():
            return False
        if self.inherited:
            return True
        with self._lock:
            # The holder may have extended it a moment ago.
            lost = self._reads_lost()
            if lost:
                self._step(Trigger.READ_LOST)
            return lost

    def _reads_lost(self) -> bool:
        return self._standing in TOLD or self._is_lost()

    def _is_lost(self) -> bool:
        """Return whether the server, the clock or the holder says so. A claim that was given up is still renewed."""
        if self._is_found_lost():
            return True
        return not self.ended and self.deadline is not None and boottime() >= self.deadline

    def _is_found_lost(self) -> bool:
        """Return whether the heartbeat leaves the claim out, as its holder may have dropped the job."""
        return self._standing == Standing.LOST or self.inherited

    @property
    def seen_lost(self) -> bool:
        """True if :attr:`lost` has been true before now: it was read so, or the board was told of the loss, and no
        :meth:`extend` has succeeded since. This reads no clock, so it may be False while :attr:`lost` is true."""
        return self._standing in TOLD

    @property
    def ended(self) -> bool:
        """Whether it was ended through this object."""
        return self._standing in ENDED

    @property
    def inherited(self) -> bool:
        """Whether the claim is that of a process from which this one was forked."""
        return self._generation != forks.generation

    def expires_in(self) -> float | None:
        """Seconds surely left of a fixed lease, by this machine's clock; None while the board keeps the claim; 0 once
        :attr:`lost` was read as true."""
        if self._is_found_lost():
            return 0.0
        if self.kept or self.deadline is None:
            return None
        return max(0.0, self.deadline - boottime())

    def extend(self, expiry: float | None = None) -> None:
        """Prolong the claim: fixed to ``expiry`` seconds from now, or (None) kept by the board."""
        self._job.board._extend(self._job, self, self.who, expiry)

    def abandon(self, *, delay: float | datetime.timedelta | None = None, error: str | None = None) -> None:
        """Give the job back to the board."""
        self._job.board._end(self._job, self, self.who, Verb.ABANDON, delay, error)

    def consume(self, *, result: Any = None) -> None:
        """The work is done: take the job off the board. ``result``: see :meth:`JobBoard.consume
        <jobboard.board.JobBoard.consume>`."""
        self._job.board._end(self._job, self, self.who, Verb.CONSUME, result=result)

    def trash(self, *, reason: str | None = None) -> None:
        """Put the job into the trash."""
        self._job.board._end(self._job, self, self.who, Verb.TRASH, None, reason)

    def _stands_until(self, deadline: float | None, kept: bool, trigger: Trigger | None = None) -> None:
        """The server has confirmed the claim: by an act of its holder, or, without a trigger, by a heartbeat."""
        with self._lock:
            self.deadline = deadline
            self.kept = kept
            if trigger is not None:
                self._step(trigger)

    def _step(self, trigger: Trigger) -> None:
        # Inherited, it is lost for good, and its lock may be held by a thread that is not there.
        if not self.inherited:
            with self._lock:
                self._standing = STEPS[self._standing].get(trigger, self._standing)


@functools.total_ordering
class Job:
    """A job on a board.

    Equal and hashable by ``uuid``; sorted in the order in which jobs are served. ``claim`` is the :class:`Claim` of a
    claim made through this object and stays attached when it ends or is lost. ``seen_state`` is the state that the last
    read brought along; :attr:`state` asks the server. Neither ``str()`` nor ``repr()`` shows the details.

    ``created``: this is the answer to a post, which has made the job; False where another job had its key.
    ``replaced``: that job has got the details, priority and due time of this post, by ``on_key="replace"``.
    """

    __slots__ = (
        *("__weakref__", "_book", "_context", "_posted", "_record", "board", "claim", "created", "replaced"),
        "seen_state",
    )

    def __init__(
        self, board: Board, record: Record, posted: Content | bytes | str, seen_state: State, book: Any = None
    ) -> None:
        self.board = board
        self.claim: Claim | None = None
        self.seen_state = seen_state
        self.created = self.replaced = False
        self._record = record
        self._posted = posted
        self._book = book
        self._context: dict[str, str] | None = None

    @property
    def uuid(self) -> str:
        return self._record.uuid

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def _content(self) -> Content:
        """What was posted. Whoever has just posted it seldom asks, so that it is decoded only then."""
        if not isinstance(self._posted, Content):
            self._posted = self.board._decoded(self._posted)
        return self._posted

    @property
    def details(self) -> dict[str, Any]:
        return self._content.details

    @property
    def context(self) -> dict[str, str]:
        if self._context is None:
            self._context = self._content.context or {}
        return self._context

    @context.setter
    def context(self, context: dict[str, str]) -> None:
        self._context = context

    @property
    def priority(self) -> int:
        """From -100 to 100, a higher one is served first; :class:`JobPriority` names some."""
        # A damaged record is shown in the trash, where it has one that is none.
        rank = self._record.priority
        return rank_of(rank if rank in RANKS else RANKS[-1])

    @property
    def sequence(self) -> int:
        """The place in the order of posts; comparable within one board."""
        return self._record.sequence

    @property
    def key(self) -> str | None:
        return self._record.key

    @property
    def group(self) -> str | None:
        """The group that it was posted in."""
        return self._record.group

    @property
    def attempts(self) -> int:
        """How often the job was claimed, as last seen: without the claims that :attr:`retries` counts, and those that
        a board or a conductor gave back at its end."""
        return self._record.attempts

    @property
    def retries(self) -> int:
        """How often the work has asked for the job to be done later (:class:`~jobboard.outcomes.Retry`), which uses up
        no attempt, as last seen."""
        return self._record.retries

    @property
    def max_attempts(self) -> int | None:
        return self._record.max_attempts

    @property
    def owner(self) -> str | None:
        """Who has claimed the job, as last seen; None if nobody has. ``board.find_owner(job)`` asks the server."""
        return self._record.who if self.seen_state == CLAIMED else None

    @property
    def error(self) -> str | None:
        """What the last failure or the trash left, as last seen: at most the last 16 KiB."""
        return self._record.error

    @property
    def errors(self) -> tuple[Failure, ...]:
        """The last ten failures, the latest at the end, as last seen; 16 KiB of text in all, the oldest go first. Each
        has ``when``, ``who`` (None: an operator's act), ``attempt`` and ``text``."""
        return self._record.errors

    @property
    def created_on(self) -> datetime.datetime:
        return moment(self._record.created_on)

    @property
    def last_modified(self) -> datetime.datetime:
        return moment(self._record.modified_on)

    @property
    def due(self) -> datetime.datetime | None:
        """When a scheduled job becomes claimable, as last seen; None for any other."""
        record = self._record
        return moment(record.lock_until) if record.state == SCHEDULED and record.lock_until else None

    @property
    def ready_on(self) -> datetime.datetime:
        """From when on it could be claimed for the first time: its due time, or the end of its delay, or its post."""
        content = self._content
        return moment(max(self._record.created_on, content.due or 0) + (content.delay or 0))

    @property
    def schedule(self) -> tuple[str, datetime.datetime] | None:
        """Which schedule has posted it, by its id, and for which due time; None of any other job."""
        known = self._content.schedule
        return (known[0], moment(known[1])) if known else None

    @property
    def book_name(self) -> str | None:
        book = self._content.book
        return book.get("name") if book else None

    @property
    def book_uuid(self) -> str | None:
        book = self._content.book
        return book.get("uuid") if book else None

    @property
    def book(self) -> Any:
        """The logbook posted with the job: loaded from the board's ``persistence`` when first asked for, None if the
        job has no book or the board no persistence."""
        if self._book is None and self.book_uuid is not None:
            self._book = self.board._load_book(self.book_uuid)
        return self._book

    @property
    def state(self) -> State:
        """The state as the server has it now (one round trip, which refreshes the rest); COMPLETE once consumed."""
        self.board._refresh(self)
        return self.seen_state

    def expires_in(self) -> float | None:
        """Seconds left of the claim's lease, whoever holds it, by the server's clock; None if a board keeps it.

        :raises NotFound: the job is not claimed.
        """
        seen = self.board._refresh(self)
        if seen.state != CLAIMED:
            raise NotFound(f"{self} is not claimed")
        return None if seen.left is None else seen.left / 1e6

    def extend_expiry(self, expiry: float) -> bool:
        """Fix the lease of this handle's own claim to ``expiry`` seconds from now; True, or raises as
        :meth:`Claim.extend`.

        :raises JobFailure: this handle holds no claim: whose claim would it extend?
        """
        if self.claim is None:
            raise JobFailure(f"{self} was not claimed through this object; use board.extend(job, who, expiry)")
        self.claim.extend(expiry)
        return True

    def wait(
        self,
        timeout: float | None = None,
        delay: float = 0.01,
        delay_multiplier: float = 2.0,
        max_delay: float = 60.0,
        sleep_func: Callable[[float], object] = time.sleep,
    ) -> bool:
        """Wait until the job is complete: True then, False when ``timeout`` seconds have passed.

        It looks every ``delay`` seconds, which grow by ``delay_multiplier`` up to ``max_delay``.

        :raises JobTrashed: the job lies in the trash and will not complete by itself.
        """
        looks = self._looks(timeout, delay, delay_multiplier, max_delay)
        self.board._refresh(self)
        while isinstance(pause := next(looks), float):
            sleep_func(pause)
            self.board._refresh(self)
        return pause

    def result(self, timeout: float | None = None) -> Any:
        """What the work on the job has returned, once it is done; None if it has returned nothing. For as long as the
        ``keep_done`` of the board through which it was consumed says; this board needs no such option.

        :param timeout: seconds to wait for its end, as :meth:`wait` does; None waits for ever.
        :raises TimeoutError: it was not consumed in time.
        :raises JobTrashed: the job lies in the trash and will not complete by itself.
        :raises NotFound: nothing is kept of it, or what its work has returned could not be stored.
        """
        if not self.wait(timeout):
            raise self._not_done(timeout)
        return self.board._result(self)

    def _not_done(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self} was not consumed within {timeout:g} s")

    def _looks(
        self, timeout: float | None, delay: float, delay_multiplier: float, max_delay: float
    ) -> Iterator[float | bool]:
        """To be asked after each look: for how long to sleep until the next one, or what :meth:`wait` answers."""
        check_longest(timeout)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        return self._pauses(deadline, delay, delay_multiplier, max_delay)

    def _pauses(
        self, deadline: float, delay: float, delay_multiplier: float, max_delay: float
    ) -> Iterator[float | bool]:
        while self.seen_state != COMPLETE:
            if self.seen_state == TRASHED:
                purged = ", or was purged, as it is once it was moved to another board"
                raise JobTrashed(f"{self} is in the trash" + (f": {self.error}" if self.error else purged))
            if (left := deadline - time.monotonic()) <= 0:
                yield False
            yield float(min(delay, max_delay, left))
            delay = min(delay * delay_multiplier, max_delay)
        yield True

    def __eq__(self, other: object) -> bool:
        return self._record.uuid == other._record.uuid if isinstance(other, Job) else NotImplemented

    def __lt__(self, other: Job) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        mine, others = self._record, other._record
        return (mine.priority, mine.sequence) < (others.priority, others.sequence)

    def __hash__(self) -> int:
        return hash(self._record.uuid)

    def __str__(self) -> str:
        return f"Job {self._record.name!r} ({self._record.uuid})"

    def __repr__(self) -> str:
        return f"<Job {self._record.name!r} {self._record.uuid} {JobPriority.convert(self.priority)} {self.seen_state}>"


def load_book(persistence: Any, uuid: str) -> Any:
    """A logbook from a duck-typed TaskFlow persistence backend; None without one."""
    if persistence is None:
        return None
    with contextlib.closing(persistence.get_connection()) as connection:
        return connection.get_logbook(uuid)
