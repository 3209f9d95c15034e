"""Handles of jobs and claims, and the records that callers pass to a board."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jobboard import forks, runtime
from jobboard.codec import KEYS, Content, Note, Undecodable, decode_note
from jobboard.exceptions import JobFailure, JobTrashed, NoKey, NotFound
from jobboard.primitives import RANKS
from jobboard.priorities import JobPriority, rank_of
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, Failure, Record, State, Verb, moment

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.sqltypes import Connection

RESULT_DELAY = 1.0
"""The longest time between two looks of :meth:`Job.result`, in seconds."""


OnKey = Literal["keep", "replace"]
"""The effect of a post on an unclaimed job that has its key."""


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
    on_key: OnKey = "keep"
    expires: float | datetime.timedelta | datetime.datetime | None = None


class Act(NamedTuple):
    """An end of a claim, for :meth:`JobBoard.finish_many <jobboard.board.JobBoard.finish_many>`.

    ``verb`` is abandon, consume or trash; ``delay`` (seconds) goes with abandon, ``error`` with abandon and trash. An
    abandon with ``refund`` gives the attempt back, too: it does not count. One with ``retry`` does so as well, and
    ``job.retries`` counts it. ``result`` and ``then`` go with consume: see :meth:`JobBoard.consume
    <jobboard.board.JobBoard.consume>`.
    """

    job: Job
    verb: Verb | str
    delay: float | datetime.timedelta | None = None
    error: str | None = None
    refund: bool = False
    retry: bool = False
    result: Any = None
    then: Iterable[Posting | Mapping[str, Any]] = ()


class Progress(NamedTuple):
    """The progress of a job, as its holder has noted it. on: the time of the note, by the clock of the holder's
    machine."""

    text: str | None
    percent: float | None
    on: datetime.datetime


@dataclass(frozen=True)
class Entity:
    """A member of the board's roster while it is alive, a conductor for instance."""

    kind: str
    name: str
    metadata: dict[str, Any] = field(default_factory=dict)


class Claim:
    """The right to work on a job, from a successful claim until it ends.

    ``token`` rises with every claim of the job: hand it on to a storage of your own to have that refuse writes of a
    claim that was overtaken.
    """

    # The server decides about the job, by the fencing token. The process itself knows four things of its claim:
    #
    # - _marked: the server has refused it, or its holder has read that it is lost, and may have dropped the job. The
    #   heartbeat renews it no longer, and only an extension by the holder shows that it still stands.
    # - _refused: the server has refused the token, which marks the claim, too. Work under the claim is stopped.
    # - _given_up: the conductor no longer waits for the work. The claim stands until it is ended.
    # - _ended: it was ended through this object. A mark that comes later, or that it was given up, is for work that
    #   goes on under it.
    #
    # Whether a claim is lost has four readings. Only ``lost`` changes anything: a read of True marks the claim.
    #
    # =======================  ======  ========  =====  =========================================================
    # name                     marked  given up  clock  used by
    # =======================  ======  ========  =====  =========================================================
    # lost                     yes     yes       yes    the holder of the claim
    # seen_lost                yes     yes       no     the holder, to learn what the holder or the board has seen
    # is_marked_or_lapsed()    yes     no        yes    Claims and the conductor, which report and end lost claims
    # is_marked_lost()         yes     no        no     Claims, to renew the others alone, and expires_in()
    # =======================  ======  ========  =====  =========================================================
    #
    # _is_lost() is ``lost`` without the mark. A claim that has ended has no mark from before its end, and no clock.

    __slots__ = {
        **dict.fromkeys(("_ended", "_generation", "_given_up", "_job", "_lock", "_marked", "_on_refusal", "_refused")),
        "deadline": "The end of the lease for sure, on this machine's clock; None for a claim as long as its process.",
        "noted": "The last note that was made under the claim, encoded; None before.",
        "returned": "The result that a consume under the claim has stored, encoded; None before.",
        "kept": "Whether the board keeps the claim by heartbeats. The lease of another claim is fixed.",
        "token": "The fencing token, which rises with each claim of the job.",
        "who": "The name that the claim was made with.",
    }

    def __init__(self, job: Job, token: int, who: str, kept: bool, deadline: float | None) -> None:
        self._job = job
        self.token = token
        self.who = who
        self.kept = kept
        self.deadline = deadline
        self.noted: bytes | str | None = None
        self.returned: bytes | str | None = None
        self._marked = self._refused = self._given_up = self._ended = False
        self._on_refusal: Callable[[], object] | None = None
        self._generation = forks.generation
        # The holder, the heartbeat and the conductor act at once. Reentrant, as a signal handler may read it, too.
        self._lock = runtime.RLock()

    def __repr__(self) -> str:
        lost = ", lost" if self.is_marked_or_lapsed() else ""
        return f"<Claim {self._job.uuid} by {self.who!r}, token {self.token}{lost}>"

    @property
    def uuid(self) -> str:
        """The uuid of the job."""
        return self._job.uuid

    @property
    def job(self) -> Job:
        """The claimed job."""
        return self._job

    @property
    def lost(self) -> bool:
        """True if another worker may have the job by now: the server has said so, or the lease has ended by this
        machine's clock.

        A claim that was read as lost stays lost, and the board no longer keeps it, until an :meth:`extend` succeeds. It
        stays lost for good once the conductor has given the job up, as its work takes too long, or the conductor ends.
        """
        if not self._is_lost():
            return False
        if self.inherited:
            return True
        with self._lock:
            # The holder may have extended it a moment ago.
            lost = self._is_lost()
            self._marked |= lost
            return lost

    def _is_lost(self) -> bool:
        """Return the value of :attr:`lost` without marking the claim."""
        return self.seen_lost or self.is_marked_or_lapsed()

    def is_marked_or_lapsed(self) -> bool:
        """Return True if the claim was refused, was read as lost, or is past its deadline.

        This method does not mark the claim as lost. It ignores that the conductor has given a claim up."""
        if self.is_marked_lost():
            return True
        return not self.ended and self.deadline is not None and runtime.boottime() >= self.deadline

    def is_marked_lost(self) -> bool:
        """Return True if the claim was marked as lost. The heartbeat does not renew such a claim.

        The holder may have dropped the job. An inherited claim counts as marked."""
        return (self._marked and not self._given_up and not self._ended) or self.inherited

    @property
    def seen_lost(self) -> bool:
        """True if :attr:`lost` has been true before now: it was read so, or the board was told of the loss, and no
        :meth:`extend` has succeeded since. This reads no clock, so it may be False while :attr:`lost` is true."""
        return self._marked or self._given_up

    @property
    def ended(self) -> bool:
        """True once the claim was ended through this object."""
        return self._ended

    @property
    def inherited(self) -> bool:
        """True in a child that was forked from the process that has made the claim."""
        return self._generation != forks.generation

    def expires_in(self) -> float | None:
        """Return the seconds surely left of a fixed lease, by this machine's clock; None while the board keeps the
        claim; 0 once :attr:`lost` was read as true."""
        if self.is_marked_lost():
            return 0.0
        if self.kept or self.deadline is None:
            return None
        return max(0.0, self.deadline - runtime.boottime())

    def extend(self, expiry: float | None = None) -> None:
        """Prolong the claim: fixed to ``expiry`` seconds from now, or (None) kept by the board."""
        self._job.board._extend(self._job, self, self.who, expiry)

    def note(
        self, text: str | None = None, *, percent: float | None = None, checkpoint: Any = None, flush: bool = False
    ) -> None:
        """Note the progress of the work: see :meth:`JobBoard.note <jobboard.board.JobBoard.note>`."""
        self._job.board._note(self, text, percent, checkpoint, flush)

    def abandon(
        self,
        *,
        delay: float | datetime.timedelta | None = None,
        error: str | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Give the job back to the board.

        :param connection: see :meth:`JobBoard.post <jobboard.board.JobBoard.post>`.
        """
        extras = self._extras("abandon", connection)
        self._job.board._end(self._job, self, self.who, Verb.ABANDON, delay, error, extras=extras)

    def consume(
        self,
        *,
        result: Any = None,
        then: Iterable[Posting | Mapping[str, Any]] = (),
        connection: Connection | None = None,
    ) -> list[Job]:
        """Take the job off the board, as its work is done. Return the posted jobs.

        :param result, then: see :meth:`JobBoard.consume <jobboard.board.JobBoard.consume>`.
        :param connection: see :meth:`JobBoard.post <jobboard.board.JobBoard.post>`.
        """
        extras = self._extras("consume", connection)
        return self._job.board._consume(self._job, self, self.who, result, then, extras)

    def trash(self, *, reason: str | None = None, connection: Connection | None = None) -> None:
        """Put the job into the trash.

        :param connection: see :meth:`JobBoard.post <jobboard.board.JobBoard.post>`.
        """
        extras = self._extras("trash", connection)
        self._job.board._end(self._job, self, self.who, Verb.TRASH, None, reason, extras=extras)

    def _extras(self, verb: str, connection: Connection | None) -> dict[str, Any]:
        return self._job.board._extras(verb, None, connection=connection)

    # For boards and conductors

    def confirm(self, deadline: float | None, *, kept: bool, extended: bool = False) -> None:
        """Apply a confirmation of the claim by the server, until ``deadline``.

        :param extended: by an act of the holder, not by a heartbeat.
        """
        with self._lock:
            self.deadline = deadline
            self.kept = kept
            if extended and not self._ended:
                self._marked = self._refused = False

    @property
    def refused(self) -> bool:
        """True if the server has refused the token: the job was stopped, released, trashed or taken over. Work under
        the claim is to be stopped."""
        return self._refused and not self._ended

    def mark_lost(self) -> None:
        """Mark the claim lost, though no server has refused its token: the board has given it back at its end, or a
        full limit leaves no room for a lapsed claim."""
        with self._lock:
            self._marked = True

    def refuse(self) -> None:
        """Mark the claim lost: the server has refused its token."""
        with self._lock:
            self._marked = self._refused = True
            stop, self._on_refusal = self._on_refusal, None
        if stop is not None and not self._ended:
            stop()

    def when_refused(self, stop: Callable[[], object]) -> None:
        """Call ``stop`` once the server has refused the token, on the thread that learns of it. ``stop`` must neither
        block nor raise."""
        with self._lock:
            if not self._refused:
                self._on_refusal = stop
                return
        stop()

    def give_up(self) -> None:
        """Mark the claim lost for its work, which the conductor awaits no longer."""
        self._given_up = True

    def mark_ended(self) -> None:
        """Mark the claim ended: an act of its holder has ended it."""
        # The lock of an inherited claim may be held by a thread that is not there.
        with contextlib.nullcontext() if self.inherited else self._lock:
            if not self._ended:
                self._ended, self._marked = True, False


@functools.total_ordering
class Job:
    """A job on a board.

    Equal and hashable by ``uuid``; sorted in the order in which jobs are served. ``claim`` is the :class:`Claim` of a
    claim made through this object and stays attached when it ends or is lost. ``seen_state`` is the state that the last
    read brought along; :attr:`state` asks the server. Neither ``str()`` nor ``repr()`` shows the details.

    ``created``: this is the answer to a post, which has made the job; False where another job had its key.
    ``replaced``: that job has got the details, priority and due time of this post, by ``on_key="replace"``.
    """

    __slots__ = {
        **dict.fromkeys(("__weakref__", "_book", "_context", "_opened", "_posted", "record")),
        "board": "The board of the job.",
        "claim": "The claim made through this handle, also after its end; None before.",
        "created": "Whether the post that returned this handle has made the job; False if another job had the key.",
        "replaced": "Whether that post has replaced the content of the job, by ``on_key='replace'``.",
        "seen_state": "The state at the last read; :attr:`state` asks the server.",
    }

    def __init__(
        self, board: JobBoard, record: Record, posted: Content | bytes | str, seen_state: State, book: Any = None
    ) -> None:
        self.board = board
        self.claim: Claim | None = None
        self.seen_state = seen_state
        self.created = self.replaced = False
        self.record = record
        self._posted = posted
        self._opened: Content | None = None
        self._book = book
        self._context: dict[str, str] | None = None

    @property
    def uuid(self) -> str:
        """The id of the job, in the store and for people."""
        return self.record.uuid

    @property
    def name(self) -> str:
        """The name, by which handlers and ``names=`` select jobs."""
        return self.record.name

    @property
    def label(self) -> str:
        """The text that stands for the job in lists, events and metrics: ``context["label"]``, else the name."""
        try:
            return self.context.get("label") or self.name
        except Undecodable:
            return self.name

    @property
    def content(self) -> Content:
        """The content of the posting. It is decoded when it is first asked for, as posters seldom ask."""
        if not isinstance(self._posted, Content):
            self._posted = self.board._decoded(self._posted)
        return self._posted

    @property
    def opened(self) -> Content:
        """The content of the posting, decrypted when it is first asked for.

        :raises NoKey: the board can't decrypt it.
        """
        if self._opened is None:
            content = self.content
            self._opened = content if content.sealed is None else self.board._open(content, self)
        return self._opened

    def show_claimed(self, record: Record, content: Content) -> None:
        """Show the job as it was claimed. Somebody may have replaced its content since this handle has read it."""
        self.record, self.seen_state = record, CLAIMED
        if self.content != content:
            self._posted, self._opened, self._book, self._context = content, None, None, None

    def check_key(self) -> None:
        """Check that the board can decrypt the details and the last note.

        :raises NoKey: it can't.
        """
        record = self.record
        if self.content.sealed is not None or record.version >= KEYS:
            self.opened  # noqa: B018 - it raises
        if record.note is not None:
            self._noted()

    @property
    def is_encrypted(self) -> bool:
        """True if the details and the book are stored encrypted, as of a board with a ``cipher``, whether or not this
        board has the key."""
        return self.record.version >= KEYS

    @property
    def details(self) -> dict[str, Any]:
        """The data of the work, as posted.

        :raises NoKey: they are encrypted, and the board can't decrypt them.
        """
        return self.opened.details

    @property
    def context(self) -> dict[str, str]:
        """The data of the programs around the work, such as the ids of traces."""
        if self._context is None:
            self._context = self.content.context or {}
        return self._context

    @context.setter
    def context(self, context: dict[str, str]) -> None:
        self._context = context

    @property
    def priority(self) -> int:
        """The priority, from -100 to 100; a higher one is served first. :class:`JobPriority` names some."""
        # A damaged record is shown in the trash, where it has one that is none.
        rank = self.record.priority
        return rank_of(rank if rank in RANKS else RANKS[-1])

    @property
    def sequence(self) -> int:
        """The place in the order of posts; comparable within one board."""
        return self.record.sequence

    @property
    def key(self) -> str | None:
        """The idempotency key, as posted: at most one live job has it."""
        return self.record.key

    @property
    def group(self) -> str | None:
        """The group of the posting."""
        return self.record.group

    @property
    def attempts(self) -> int:
        """The number of claims, as last seen: without those that :attr:`retries` counts, and those that a board or a
        conductor gave back at its end."""
        return self.record.attempts

    @property
    def retries(self) -> int:
        """The number of free retries (:class:`~jobboard.outcomes.Retry`), which use up no attempt, as last seen."""
        return self.record.retries

    @property
    def max_attempts(self) -> int | None:
        """The number of attempts, as posted, with whose failure the job goes to the trash; None for no limit."""
        return self.record.max_attempts

    @property
    def owner(self) -> str | None:
        """The holder of the job's claim, as last seen; None without one. ``board.find_owner(job)`` asks the server."""
        return self.record.who if self.seen_state == CLAIMED else None

    @property
    def who(self) -> str | None:
        """The holder of the last claim, as last seen: also after a lapse, and None once the claim was given back."""
        return self.record.who

    @property
    def token(self) -> int:
        """The fencing token of the last claim, as last seen."""
        return self.record.token

    @property
    def error(self) -> str | None:
        """The text of the last failure, or the reason of the trash, as last seen: at most the last 16 KiB."""
        return self.record.error

    @property
    def errors(self) -> tuple[Failure, ...]:
        """The last ten failures, the latest at the end, as last seen; 16 KiB of text in all, the oldest go first. Each
        has ``when``, ``who`` (None: an operator's act), ``attempt``, ``text`` and ``kind``: a
        :class:`~jobboard.states.FailureKind`."""
        return self.record.errors

    @property
    def progress(self) -> Progress | None:
        """The text and percentage of the last :meth:`note`, as last seen; None without them. The text is "encrypted"
        where the board can't decrypt the note."""
        try:
            noted = self._noted()
        except NoKey:
            return Progress("encrypted", None, moment(decode_note(self.record.note).on))
        if noted.text is None and noted.percent is None:
            return None
        return Progress(noted.text, noted.percent, moment(noted.on))

    @property
    def checkpoint(self) -> Any:
        """The data from which the work can go on, as last noted in this attempt or an earlier one; None without.

        :raises NoKey: it is encrypted, and the board can't decrypt it.
        """
        return self._noted().checkpoint

    def _noted(self) -> Note:
        noted = decode_note(self.record.note)
        return noted if noted.sealed is None else self.board._open_note(noted, self)

    @property
    def created_on(self) -> datetime.datetime:
        """The time of the post, by the server's clock."""
        return moment(self.record.created_on)

    @property
    def last_modified(self) -> datetime.datetime:
        """The time of the last change, by the server's clock."""
        return moment(self.record.modified_on)

    @property
    def due(self) -> datetime.datetime | None:
        """The time at which a scheduled job becomes claimable, as last seen; None for any other job."""
        record = self.record
        return moment(record.lock_until) if record.state == SCHEDULED and record.lock_until else None

    @property
    def expires(self) -> datetime.datetime | None:
        """The time at which the job goes to the trash unless somebody has claimed it, as last seen; None: never.

        A claimed job has the time that counts if its claim is given back unworked."""
        return None if self.record.expires is None else moment(self.record.expires)

    @property
    def ready_on(self) -> datetime.datetime:
        """The first time at which the job could be claimed: its due time, the end of its delay, or its post."""
        content = self.content
        return moment(max(self.record.created_on, content.due or 0) + (content.delay or 0))

    @property
    def schedule(self) -> tuple[str, datetime.datetime] | None:
        """The id of the schedule that has posted the job, and the due time; None for any other job."""
        known = self.content.schedule
        return (known[0], moment(known[1])) if known else None

    @property
    def book_name(self) -> str | None:
        """The name of the logbook, as posted. It is encrypted with the details."""
        book = self.opened.book
        return book.get("name") if book else None

    @property
    def book_uuid(self) -> str | None:
        """The uuid of the logbook, as posted. It is encrypted with the details."""
        book = self.opened.book
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
        """The state as the server has it now, by one round trip; COMPLETE once consumed.

        The job's record is read anew with it: attempts, owner, priority, errors and times. Its content stays as it was
        read: details, context and book, which :meth:`JobBoard.get <jobboard.board.JobBoard.get>` reads anew.
        """
        self.board.refresh([self])
        return self.seen_state

    def expires_in(self) -> float | None:
        """Return the seconds left of any holder's lease, by the server's clock; None if a board keeps the claim.

        :raises NotFound: the job is not claimed.
        """
        [seen] = self.board.refresh([self])
        if seen.state != CLAIMED:
            raise NotFound(f"{self} is not claimed")
        return None if seen.left is None else seen.left / 1e6

    def extend_expiry(self, expiry: float) -> bool:
        """Fix the lease of this handle's own claim to ``expiry`` seconds from now. Return True, or raise as
        :meth:`Claim.extend`.

        :raises JobFailure: this handle holds no claim.
        """
        if self.claim is None:
            raise JobFailure(f"{self} was not claimed through this object; use board.extend(job, who, expiry)")
        self.claim.extend(expiry)
        return True

    def note(
        self, text: str | None = None, *, percent: float | None = None, checkpoint: Any = None, flush: bool = False
    ) -> None:
        """Note the progress of the work: see :meth:`JobBoard.note <jobboard.board.JobBoard.note>`. Without ``flush``
        this sends no request."""
        self.board.note(self, text, percent=percent, checkpoint=checkpoint, flush=flush)

    def wait(
        self,
        timeout: float | None = None,
        delay: float = 0.01,
        delay_multiplier: float = 2.0,
        max_delay: float = 60.0,
        sleep_func: Callable[[float], object] | None = None,
    ) -> bool:
        """Wait until the job is complete. Return True then, False after ``timeout`` seconds.

        The job is read every ``delay`` seconds, which grow by ``delay_multiplier`` up to ``max_delay``.

        :raises JobTrashed: the job lies in the trash and will not complete by itself.
        """
        looks = self.looks(timeout, delay, delay_multiplier, max_delay)
        self.board.refresh([self])
        while isinstance(pause := next(looks), float):
            (sleep_func or runtime.sleep)(pause)
            self.board.refresh([self])
        return pause

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the work, once the job is consumed; None if the work has returned nothing. The result
        is kept for the ``keep_done`` of the consumer's board; this board needs no such option.

        The job is read at least every second.

        :param timeout: seconds to wait for its end; None waits for ever.
        :raises TimeoutError: the job was not consumed in time.
        :raises JobTrashed: the job lies in the trash and will not complete by itself.
        :raises NotFound: the job has no outcome, or its result could not be stored.
        """
        if not self.wait(timeout, max_delay=RESULT_DELAY):
            raise self.not_done(timeout)
        return self.board.result_of(self)

    def not_done(self, timeout: float | None) -> TimeoutError:
        """Return the error of :meth:`result` after ``timeout`` seconds."""
        return TimeoutError(f"{self} was not consumed within {timeout:g} s")

    def looks(
        self, timeout: float | None, delay: float, delay_multiplier: float, max_delay: float
    ) -> Iterator[float | bool]:
        """Yield, after each look at the state, the seconds until the next look, or the answer of :meth:`wait`."""
        deadline = math.inf if timeout is None else runtime.monotonic() + timeout
        return self._pauses(deadline, delay, delay_multiplier, max_delay)

    def _pauses(
        self, deadline: float, delay: float, delay_multiplier: float, max_delay: float
    ) -> Iterator[float | bool]:
        while self.seen_state != COMPLETE:
            if self.seen_state == TRASHED:
                purged = ", or was purged, as it is once it was moved to another board"
                raise JobTrashed(f"{self} is in the trash" + (f": {self.error}" if self.error else purged))
            if (left := deadline - runtime.monotonic()) <= 0:
                yield False
            yield float(min(delay, max_delay, left))
            delay = min(delay * delay_multiplier, max_delay)
        yield True

    def __eq__(self, other: object) -> bool:
        return self.record.uuid == other.record.uuid if isinstance(other, Job) else NotImplemented

    def __lt__(self, other: Job) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        mine, others = self.record, other.record
        return (mine.priority, mine.sequence) < (others.priority, others.sequence)

    def __hash__(self) -> int:
        return hash(self.record.uuid)

    def __str__(self) -> str:
        return f"Job {self.record.name!r} ({self.record.uuid})"

    def __repr__(self) -> str:
        return f"<Job {self.record.name!r} {self.record.uuid} {JobPriority.convert(self.priority)} {self.seen_state}>"


if TYPE_CHECKING:

    class ClaimedJob(Job):
        """A job with its claim. For type checkers only: at run time it is a :class:`Job`."""

        claim: Claim

else:
    ClaimedJob = Job
