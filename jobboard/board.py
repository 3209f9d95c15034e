"""The jobboard: the class that users of every backend see.

Its verbs check arguments, call a part, turn the answer into a result or an error, and notify. The engine decides every
transition, and a store only compares and stores. The parts of a board:

- ``engine``: each call of the engine, repeated while the backend is unreachable (:mod:`jobboard.engine.retrying`);
- ``claims``: the claims that the board keeps, and their heartbeat (:mod:`jobboard.claims`);
- ``waiters``: the threads that wait for something to do (:mod:`jobboard.waiting`);
- ``results``: results and outcomes of consumed jobs (:mod:`jobboard.results`);
- ``notifier``: the listeners to events (:mod:`jobboard.notifier`).
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import json
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, cast, get_args

from jobboard import arguments, codec, followups, logs, marks, notifier, outcomes, runtime, work
from jobboard import conf as configuration
from jobboard.ciphers import Cipher, Seal, Sealed
from jobboard.claims import Claims
from jobboard.engine import (
    DuePosts,
    Engine,
    Life,
    Position,
    RetryingEngine,
    Seat,
    Sieve,
    Store,
    StoredOutcome,
    StoredSchedule,
    weaknesses,
)
from jobboard.exceptions import (
    ClaimLost,
    ConnectionFailure,
    JobBoardError,
    JobFailure,
    JobFailures,
    NoKey,
    NotFound,
    UnclaimableJob,
)
from jobboard.finding import (
    AT_MOST,
    MOST_MINUTES,
    Acted,
    ErrorGroups,
    NameStats,
    OperatorVerb,
    Page,
    bounded,
    checked_states,
    grouped,
    position_of,
    position_text,
)
from jobboard.job import Act, Claim, ClaimedJob, Entity, Job, OnKey, Posting
from jobboard.primitives import (
    BATCH,
    GIVEN_BACK,
    MENTIONED,
    PAGE,
    POST_BATCH,
    POST_BYTES,
    RANKS,
    BoardStats,
    Characteristics,
    Draft,
    End,
    Finish,
    KeptStats,
    Limit,
    Oddity,
    Paused,
    Per,
    Posted,
    Seen,
    Taken,
    batches,
    span,
)
from jobboard.priorities import JobPriority
from jobboard.results import Outcome, Results
from jobboard.schedules import Schedule
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    CONSUME,
    FINISHES,
    LIVE,
    OK,
    OPERATIONS,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    FailureKind,
    Holder,
    Record,
    State,
    Status,
    Verb,
    failed,
    moment,
)
from jobboard.threads import started
from jobboard.timetable import Missed, Timetable, zone
from jobboard.tracing import NO_TRACING
from jobboard.waiting import Waiters
from jobboard.work import Working, claim_of, nothing_claimed

if TYPE_CHECKING:
    from jobboard.sqltypes import Condition, Connection

LOG = logs.Log(__name__)

CLAIMS_AT_ONCE = 5_000
"""The number of claims that :meth:`JobBoard.find` reads at once, and sorts."""

_VERBS = {("cancel", True): Verb.STOP, **{(str(verb), False): verb for verb in OPERATIONS}}
"""The verbs of the lifecycle, by the verb of an act and whether it stops running jobs."""

METADATA_BYTES = 64 * 1024
"""The maximum size of an entity's metadata, in bytes of compact UTF-8 JSON."""

TIDY_EVERY = 600.0
"""The seconds between two tidy runs. Many expired records bring the next run forward."""

_SeenRecord: TypeAlias = tuple[Record, State]
"""A job on the board, and its state at the read."""

UNREADABLE = codec.Content({}, None)
"""The content of a posting that can't be decoded."""

PUT_OFF_FOR = 60
"""The seconds for which a claimed job that this board can't read is given back to the others."""

PUT_OFF = GIVEN_BACK._replace(delay=PUT_OFF_FOR * 1_000_000)

_REFUSALS: dict[Status, tuple[type[JobBoardError], str]] = {
    Status.LOST: (ClaimLost, "the claim is lost: it lapsed, or was taken away"),
    Status.FULL: (ClaimLost, "the claim has lapsed, and set_limit() leaves no room for it"),
    Status.UNCLAIMED: (NotFound, "is not claimed"),
    Status.ABSENT: (NotFound, "is not on the board"),
    Status.TRASHED: (NotFound, "is in the trash"),
    Status.OTHER: (JobFailure, "is claimed by somebody else"),
    Status.CLAIMED: (UnclaimableJob, "is claimed already"),
    Status.SCHEDULED: (UnclaimableJob, "is not due yet"),
    Status.PAUSED: (UnclaimableJob, "is paused: resume() lets it be claimed again"),
    Status.LIMITED: (UnclaimableJob, "has to wait: as many of its name or group as set_limit() allows are claimed"),
    Status.KEY: (JobFailure, "can't come back: another job has taken its key"),
    Status.LIVE: (JobFailure, "is not in the trash"),
    Status.HELD: (JobFailure, "is held by a transaction that has not ended"),
    Status.MOVING: (JobFailure, "is a record of a move: `jobboard move` completes it"),
}


class WantedJobs(NamedTuple):
    """The checked arguments of a claim; ``span`` is its lease in µs, None to have the board keep the claim."""

    who: str
    span: int | None
    names: Sequence[str] | None
    extra: dict[str, Any]


@dataclass(slots=True)
class _ClaimEnd:
    """The end of one claim.

    postings: its follow-ups, as the caller has given them. act: its request. held: the claims of this board that the
    act ends. An act by the owner's name may end that of another handle. error: the reason why the claim was not ended.
    posted: the follow-ups, once posted."""

    job: Job
    claim: Claim | None
    end: End
    postings: Sequence[Posting] = ()
    act: Finish = field(init=False)
    held: list[Claim] = field(init=False)
    error: JobBoardError | None = None
    posted: Sequence[Job] = field(init=False)


class JobBoard:
    """A place to post jobs on, and to claim them from.

    :param name: the board's name; boards of different names never share jobs.
    :param conf: a URI, the plain name of a backend, or a dict with ``board`` and options.
    :param client: a connected client of the caller's own, which the board uses and never closes.
    :param persistence: a TaskFlow persistence backend, from which ``job.book`` is loaded.
    :param cipher: a :class:`~jobboard.ciphers.Cipher`, which encrypts details, books, notes and results.
    :param store: the class of the backend's store.
    :raises ValueError: an option is unknown or does not fit.

    Building one talks to nobody; :meth:`connect` does. All verbs may be called from any thread.
    """

    def __init__(
        self,
        name: str,
        conf: str | Mapping[str, Any],
        client: Any = None,
        persistence: Any = None,
        cipher: Cipher | None = None,
        *,
        store: type[Store],
    ) -> None:
        self._name = codec.check_text("a board's name", name)
        if cipher is not None:
            conf = {**({"board": conf} if isinstance(conf, str) else conf), "cipher": cipher}
        self._conf = configuration.parse(conf, {**configuration.COMMON, **store.options}, store.uri_parts)
        self._persistence = persistence
        self._seal: Seal | None = self._conf["cipher"]
        # The reasons for which jobs were put off, each logged once.
        self._put_off: set[str] = set()
        self._ttl = int(self._conf["claim_ttl"] * 1e6)
        self.tracing = NO_TRACING
        raw = Engine(Seat(name, self._conf, client, self._conf.location), store)
        self.engine = RetryingEngine(raw, self._conf["retry_for"])
        self.claims = Claims(name, self.engine, self._ttl, lost=self._claim_lost, chores=self._do_chores)
        self.waiters = Waiters(self.engine)
        self.results = Results(self.engine, self._conf["keep_done"], self._conf["max_details"], self._seal)
        self.result_form = self.results.form
        bound = self.engine.backend.traits.commit_bound
        self.posting_form = followups.PostingForm(self._conf["max_details"], self.engine.wire, bound, self._seal)
        self._notifier = notifier.Notifier(name, self._listen)
        self._lifecycle = runtime.RLock()
        # A token for each caller that uses a board connected only for such callers. The last one closes the board.
        self._borrowers: set[object] = set()
        self._stats: tuple[float, int | None, BoardStats] | None = None
        self._tidied = 0.0
        _boards.add(self)

    def __repr__(self) -> str:
        return f"<JobBoard {self._name!r} at {self.location}{', closed' if self.closed else ''}>"

    def __str__(self) -> str:
        return f"board {self._name!r} at {self.location}"

    def __reduce__(self) -> Any:
        raise TypeError("a board does not travel to another process: fetch one there, from the same configuration")

    @property
    def name(self) -> str:
        """The name of the board."""
        return self._name

    @property
    def location(self) -> str:
        """The URI of the board, without secrets."""
        return self._conf.location

    @property
    def scheme(self) -> str:
        """The name of the backend, as in the URI."""
        return self._conf.scheme

    @property
    def options(self) -> Mapping[str, Any]:
        """The options in force, without secrets."""
        return self._conf.public()

    @property
    def notifier(self) -> notifier.Notifier:
        """The notifier, which tells listeners about events on the board."""
        return self._notifier

    @property
    def connected(self) -> bool:
        """True while the board is open; on ZooKeeper, while it also has a connection."""
        return not self.closed and self.engine.raw.connected

    @property
    def closed(self) -> bool:
        """True while the board needs a :meth:`connect` before use. An open board whose backend is away comes back by
        itself."""
        return not self.engine.is_open

    @property
    def characteristics(self) -> Characteristics:
        """The promises of this board; known once it is connected."""
        return self.engine.characteristics

    @property
    def table(self) -> Any:
        """The table of the jobs on SQL, for conditions of claims: ``where=board.table.c.attempts < 2``. The board need
        not be connected.

        :raises AttributeError: the board is not on SQL.
        """
        if self.engine.backend.traits.table is None:
            raise AttributeError(f"the jobs of {self} lie in no table")
        return self.engine.backend.traits.table

    # Life

    def setup(self) -> list[str]:
        """Create the board's tables or keys on its backend, or bring existing ones up to date. The jobs stay. Return
        what was done, as ``"create the table 'jobboard'"``; [] if all was there.

        ``jobboard setup`` does this, too. Any number of processes may call it at once, any number of times, and the
        board need not be connected.

        :raises ConnectionFailure: the backend can't be reached.
        """
        return [step.what for step in self.engine.raw.setup()]

    def connect(self) -> None:
        """Open the board, creating what is missing (unless ``auto_setup=false``). Does nothing on an open board.

        :raises ConnectionFailure: the backend can't be reached.
        :raises JobFailure: the store has another layout, or is missing.
        """
        with self._lifecycle:
            if self.closed:
                raw = self.engine.raw
                raw.open()
                try:
                    self._tidy_up()
                    self._begin()
                    if self._notifier.listened_to:
                        raw.watch("events")
                except BaseException:
                    # close() does nothing for a board that is not connected.
                    self.engine.end()
                    raw.shut()
                    raise

    def close(self) -> None:
        """Give back the claims that the board keeps (that attempt does not count) and disconnect from the backend.

        Claims of a fixed lease run on. A closed board can be connected again.
        """
        with self._lifecycle:
            if self.closed:
                return
            raw = self.engine.raw
            raw.life = None
            self.engine.end()
            self.waiters.end()
            self._borrowers.clear()
            raw.hurry()
            kept = [claim for claim in self.claims.end() if not claim.inherited]
            acts = (
                [
                    Finish(c.uuid, Holder(c.who, c.token), GIVEN_BACK, note=self.claims.unsent.pop(c, None))
                    for c in claims
                ]
                for claims in batches(
                    kept,
                    lambda claim: len(claim.job.record.posting) + len(claim.job.record.note or ""),
                    BATCH,
                    POST_BYTES,
                )
            )
            try:
                self.engine.give_back(acts, delist=bool(self._entities))
                # The notes of fixed claims, which go on.
                self.claims.send_notes()
            except JobBoardError as error:
                LOG.warning("could not give back %d claims, which lapse by themselves: %s", len(kept), error)
            finally:
                for claim in kept:
                    claim.mark_lost()
                raw.shut()
                self._notifier.close()

    def __enter__(self) -> Self:
        """Connect the board for a block, and close it at the block's end, also where it was open before."""
        try:
            self.connect()
        except BaseException:
            # An interrupted call may have connected the board all the same.
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextlib.contextmanager
    def borrowed(self, left: Callable[[], float | None]) -> Iterator[None]:
        """Keep the board connected within this block. The last of concurrent blocks closes a board that the first one
        has connected.

        :param left: returns the seconds to wait for the close; None for any time.
        :raises ConnectionFailure: the backend can't be reached.
        """
        token = object()
        try:
            with self._lifecycle:
                was_closed = self.closed
                try:
                    self.connect()
                    if was_closed or self._borrowers:
                        self._borrowers.add(token)
                except BaseException:
                    # An interrupted call may have connected the board all the same.
                    if was_closed:
                        self.close()
                    raise
            yield
        finally:
            if token in self._borrowers:
                self._return(token, left())

    def _return(self, token: object, seconds: float | None) -> None:
        def end() -> None:
            with self._lifecycle:
                if token in self._borrowers:
                    self._borrowers.remove(token)
                    if not self._borrowers:
                        self.close()

        closer: runtime.Thread | None = None
        if seconds is not None:
            # A silent backend must not hold up a caller that has no more time.
            with contextlib.suppress(RuntimeError):
                closer = started(f"{self._name}-closer", end)
        if closer is None:
            # Where no thread can be started, close late rather than never: nobody else would.
            end()
        else:
            closer.join(seconds)

    def _begin(self) -> None:
        """Begin a connected life. In a forked child, too: no lock is taken here."""
        raw = self.engine.raw
        self._entities: dict[tuple[str, str], Any] = {}
        # Held while entities are registered or deregistered on the backend.
        self._roster = runtime.Lock()
        self._borrowers.clear()
        self.claims.begin(raw.characteristics.claim_ttl / 3)
        self.waiters.begin()
        self.engine.begin()
        raw.life = Life(
            handle=self.engine.handle,
            wake=self.waiters.wake,
            alarm=self.waiters.alarm,
            nap=self.waiters.nap,
            sleep_unless_closed=self.engine.sleep_unless_closed,
            beat_soon=self.claims.beat_soon,
            happened=self._heard,
        )

    def _forked_child(self) -> None:
        # Another thread may have been connecting or closing the board, which is then closed here.
        self._lifecycle = runtime.RLock()
        self._notifier._after_fork()
        self.engine.raw.forked()
        if not self.closed:
            self._begin()

    def _do_chores(self) -> None:
        """Do the work of a heartbeat beside the renewal of claims."""
        self.give_back([claim.job for claim in self.claims.undeliverable()])
        with self._roster:
            for (kind, name), metadata in self._shown_entities():
                self.engine.raw.enlist(self.engine.handle, kind, name, metadata, self._ttl)
        self.engine.raw.clear_up()
        if runtime.monotonic() - self._tidied > TIDY_EVERY or self.engine.raw.has_leftovers:
            self._tidy_up()

    def _tidy_up(self) -> None:
        self._tidied = runtime.monotonic()
        if self._conf["read_only"]:
            return
        try:
            # A million outcomes take their time. Neither claims, whose heartbeats come after a third of a lease, nor
            # connecting callers wait for that.
            more = self.engine.raw.tidy(min(1.0, self._ttl / 30e6))
        except ConnectionFailure as error:
            LOG.warning("could not tidy up, trying again: %s", error)
            more = True
        if more:
            # The rest goes with the next heartbeats.
            self._tidied -= TIDY_EVERY

    # Posting

    def post(
        self,
        name: str,
        book: Any = None,
        details: Mapping[str, Any] | None = None,
        priority: int | str = JobPriority.NORMAL,
        *,
        key: str | None = None,
        delay: float | datetime.timedelta | None = None,
        due: datetime.datetime | None = None,
        max_attempts: int | None = None,
        context: Mapping[str, str] | None = None,
        group: str | None = None,
        key_for: float | datetime.timedelta | None = None,
        on_key: OnKey = "keep",
        expires: float | datetime.timedelta | datetime.datetime | None = None,
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Job:
        """Put a job on the board. ``job.created`` tells whether this post has made it, or another job had its key.

        :param name: the kind of work; handlers and ``names=`` go by it. At most 255 characters.
        :param book: a logbook of TaskFlow's, or anything with a ``name`` and a ``uuid``.
        :param details: the input of the work, of JSON's shape, at most ``max_details`` bytes as JSON.
        :param priority: an integer from -100 to 100, or the name of one (:class:`~jobboard.job.JobPriority`); a higher
            one is served first.
        :param key: at most one live job has it; posting it again returns that job, unchanged.
        :param delay: seconds (or a timedelta) from now, on the server's clock, before which nobody can claim the job.
        :param due: the same as an aware datetime; a past one is due at once.
        :param max_attempts: the number of the claim with which the job goes to the trash, unless that claim consumes
            it. A lapsed claim counts, as after the death of a worker; a :class:`~jobboard.outcomes.Retry` does not.
        :param context: messages between programs around the work, as in the headers of a request: str to str, at
            most 16 KiB of JSON. ``board.tracing`` may add to it.
        :param group: the owner of the work, a customer for instance; at most 255 characters.
        :param key_for: seconds (or a timedelta) from this post for which the key stays taken at least, whatever becomes
            of the job. Posting it again returns that job, and does not extend the time. Once the job has left the
            board, the handle is COMPLETE and has the details of this post, as its own are gone.
        :param on_key: ``"replace"``: an unclaimed job that has the key gets the details (book and context, too), the
            priority and the due time of this post, and its attempts begin anew (``job.replaced``). A claimed or
            finished job stays as it is.
        :param expires: seconds (or a timedelta) from now, or an aware datetime, at which the job goes to the trash
            unless somebody has claimed it; after it is due. Its first claim ends this, unless that claim is given back
            unworked, and so do a replacement and a restore.
        :param connection: a transaction of the caller's on SQL, a connection or a session of SQLAlchemy's. The job is
            posted when the caller commits.
        :param extra: arguments of a backend of a third party.
        :raises TypeError, ValueError: an argument does not fit; nothing was posted.
        """
        posting = Posting(
            name=name,
            book=book,
            details=details,
            priority=priority,
            key=key,
            delay=delay,
            due=due,
            max_attempts=max_attempts,
            context=context,
            group=group,
            key_for=key_for,
            on_key=on_key,
            expires=expires,
        )
        return self._post([posting], "post", self._extras("post", extra, connection=connection))[0]

    def post_many(
        self,
        postings: Iterable[Posting | Mapping[str, Any]],
        *,
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[Job]:
        """Put many jobs on the board: all or none of each 500 postings or 512 KiB, all checked beforehand.

        :raises TypeError, ValueError: a posting does not fit. The error tells its number, counted from 0; nothing was
            posted.
        :raises JobFailure: it failed between two such batches; its ``posted`` holds the posted jobs.
        """
        extras = self._extras("post_many", extra, connection=connection)
        return self._post(arguments.postings(postings), "post_many", extras)

    def _post(self, postings: Sequence[Posting], verb: str, extra: dict[str, Any]) -> list[Job]:
        return self.tracing.post(postings, lambda traced: self._insert_all(traced, verb, extra))

    def _insert_all(self, postings: Sequence[Posting], verb: str, extra: dict[str, Any]) -> list[Job]:
        self.engine.check_open()
        numbered = verb == "post_many"
        form = self.posting_form
        drafts = arguments.drafts(postings, form.max_details, form.wire, form.seal, numbered=numbered)
        pairs = zip(drafts, postings, strict=True)
        jobs: list[Job] = []
        for batch in batches(pairs, lambda pair: len(pair[0].posting), POST_BATCH, POST_BYTES):
            try:
                answers = self.engine.insert([draft for draft, _ in batch], **extra)
            except JobFailure as error:
                error.posted = tuple(jobs)
                raise
            posted = [
                self._posted_job(answer, draft, posting.book)
                for answer, (draft, posting) in zip(answers, batch, strict=True)
            ]
            fresh = [job for job in posted if job.created or job.replaced]
            # A posting that is rolled back leaves nothing to undo here.
            self.engine.backend.after_commit(extra, functools.partial(self._tell_posted, fresh), lambda: None)
            jobs += posted
        return jobs

    def _posted_job(self, answer: Posted, draft: Draft, book: Any) -> Job:
        """Return the job of a post, which ``draft`` has made or found."""
        status, uuid, record, state = answer
        if record is None:
            job = Job(self, draft.record(0, 0)._replace(uuid=uuid), draft.posting, state, book)
        elif status == OK:
            job = Job(self, record, record.posting, state, book)
        else:
            # Other postings of the call are stored, so that an unreadable holder of the key is no error.
            job = self._job_or_shell(record, state)
        job.created, job.replaced = status == OK, status == Status.REPLACED
        return job

    def _tell_posted(self, jobs: Sequence[Job]) -> None:
        self.waiters.wake()
        self._notify(notifier.POSTED, *jobs)

    # Looking

    def iterjobs(
        self,
        only_unclaimed: bool = False,
        ensure_fresh: bool = False,
        *,
        names: Iterable[str] | None = None,
        states: Iterable[State | str] | None = None,
        after: Job | None = None,
    ) -> JobBoardIterator:
        """Iterate over the jobs on the board, in any state, in the order in which they are served.

        :param only_unclaimed: only jobs that can be claimed now; no paused jobs, and none that wait for a limit.
        :param ensure_fresh: see everything that was acknowledged before, also where reads are cached.
        :param names: only jobs of these names.
        :param states: only jobs in these states.
        :param after: only jobs that are served after this one, which may have left the board.
        """
        self.engine.check_open()
        wanted = None if states is None else frozenset(State(state) for state in states)
        if only_unclaimed:
            wanted = frozenset({UNCLAIMED}) if wanted is None else wanted & {UNCLAIMED}
        if wanted is not None and wanted - LIVE:
            raise ValueError("iterjobs() shows what is on the board; see trashed() for the trash")
        place = None if after is None else arguments.job(after).record
        # The first page is read by the first step of the iteration.
        jobs = self._walk(self._pages(place, arguments.names(names), wanted, ensure_fresh), only_unclaimed)
        return JobBoardIterator(self, jobs, only_unclaimed=only_unclaimed, ensure_fresh=ensure_fresh)

    def _walk(self, pages: Iterator[list[_SeenRecord]], only_claimable: bool) -> Iterator[Job]:
        for page in pages:
            if only_claimable and page:
                may_go = self.engine.open_to_claims([record for record, _ in page])
                readable = self.engine.raw.readable
                page = [seen for seen in page if seen[0].uuid in may_go and seen[0].version <= readable]  # noqa: PLW2901
            for record, state in page:
                try:
                    yield self._job(record, state)
                except JobFailure as error:
                    LOG.warning("skipped: %s", error, extra=logs.fields(Job(self, record, UNREADABLE, state)))

    def _pages(
        self,
        after: Record | None = None,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
        fresh: bool = False,
    ) -> Iterator[list[_SeenRecord]]:
        """Yield the jobs on the board in serving order, page by page."""
        while page := self.engine.page(after, PAGE, names, states, fresh):
            fresh = False
            # An unswept lapse may have trashed a job of the page, so that all states are compared.
            fitting = [
                (seen.record, seen.state)
                for seen in page
                if seen.state in (LIVE if states is None else states)
                and seen.record is not None
                and (names is None or seen.record.name in names)
            ]
            yield fitting
            after = page[-1].record
            if len(page) < PAGE and fitting and fitting[-1][0] is after:
                return

    def get(self, uuid: str) -> Job:
        """Return the job with this uuid, on the board, in the trash, or consumed and kept: see :meth:`outcomes`.

        :raises NotFound: there is none.
        """
        try:
            codec.check_text("a uuid", uuid)
        except ValueError as error:
            # No job has such a uuid, and not every backend can be asked for it.
            raise NotFound(f"there is no job {uuid!r}: {error}") from None
        [seen] = self.engine.read([uuid])
        if seen.record is not None:
            return self._job(seen.record, seen.state)
        done = self.results.of(uuid)
        if done is None:
            raise NotFound(f"there is no job {uuid}")
        return self._job(done.record, COMPLETE)

    def find_owner(self, job: Job) -> str | None:
        """Return the holder of the job's claim; None if nobody has claimed the job, or it is gone."""
        [seen] = self.refresh([arguments.job(job)])
        return seen.record.who if seen.record is not None and seen.state == CLAIMED else None

    def refresh(self, jobs: Sequence[Job]) -> list[Seen]:
        """Read jobs of this board again, into their handles."""
        seen = self.engine.read([job.uuid for job in jobs])
        for job, its in zip(jobs, seen, strict=True):
            job.seen_state = its.state
            if its.record is not None:
                job.record = its.record
        return seen

    def _refresh_behind(self, *jobs: Job) -> None:
        """Read the jobs of an act that stands, whether or not the backend answers now."""
        try:
            self.refresh(jobs)
        except ConnectionFailure as error:
            for job in jobs:
                LOG.info("%s could not be read again: %s", job, error, extra=logs.fields(job))

    @property
    def job_count(self) -> int:
        """The number of jobs on the board, in any state but trashed."""
        tally = self.engine.tally()
        return sum(tally.get(state, 0) for state in LIVE)

    def stats(self, max_age: float = 0, *, cap: int | None = None) -> BoardStats:
        """Return the number of jobs in each state. An answer up to ``max_age`` seconds old is good enough.

        :param cap: no count goes beyond this: a count of ``cap`` means so many jobs or more.
        :raises JobFailure: the count takes too long. A cap bounds it.
        """
        self.engine.check_open()
        if cap is not None:
            arguments.limit(cap, "cap")
        if self._stats is None or self._stats[1] != cap or runtime.monotonic() - self._stats[0] >= max_age:
            tally = self.engine.tally(cap)
            counts = {state.lower(): tally.get(state, 0) for state in (UNCLAIMED, SCHEDULED, CLAIMED, TRASHED)}
            self._stats = (runtime.monotonic(), cap, BoardStats(**counts))
        return self._stats[2]

    def names(self, *, at_most: int | None = None) -> list[NameStats]:
        """Return the numbers of live jobs by name, in the order of the names.

        :param at_most: on SQL, the highest count, 1,000 by default: a count of ``at_most`` means so many jobs or more.
            Elsewhere, the number of jobs that are looked at, in serving order, 20,000 by default; those behind them do
            not count.
        :raises JobFailure: the count takes too long.
        """
        if at_most is not None:
            arguments.limit(at_most, "at_most")
        return [
            NameStats(name, *count[:3], None if count.oldest is None else moment(count.oldest))
            for name, count in sorted(self.engine.names(at_most).items())
        ]

    def find(
        self,
        *,
        names: Iterable[str] | None = None,
        states: Iterable[State | str] | None = None,
        group: str | None = None,
        owner: str | None = None,
        key: str | None = None,
        error: str | None = None,
        cause: str | None = None,
        posted_after: datetime.datetime | None = None,
        posted_before: datetime.datetime | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Iterator[Job]:
        """Iterate over the jobs that meet all of these conditions. A job whose details can't be read comes without
        them. The jobs are read in pages, each when it is needed.

        Live jobs come in serving order, and SCHEDULED ones alone by their due times. CLAIMED jobs alone come the
        longest first among each 5,000. Then come TRASHED jobs and then COMPLETE ones, both the newest first. Records of
        a running move are left out.

        :param names: of the jobs.
        :param states: the states; None: all jobs on the board. ``["TRASHED"]`` is the trash, and ``["COMPLETE"]`` the
            consumed jobs with an outcome.
        :param group: of the jobs.
        :param owner: the holder of the claim; of a trashed or consumed job, the last holder.
        :param key: as posted.
        :param error: a part of the text of the last failure.
        :param cause: the cause of the last failure, as in :meth:`error_groups`.
        :param posted_after, posted_before: aware datetimes, by the server's clock. ``posted_after`` itself is included.
        :param where: on SQL, only jobs for which this condition on :attr:`table` holds; no consumed ones.
        :param extra: arguments of a backend of a third party.
        """
        wanted = checked_states(states, LIVE)
        times = posted_after, posted_before
        sieve = self._sieve(wanted, names, group, owner, key, error, cause, times, where, extra)
        return self._found(wanted, sieve)

    def _found(self, states: frozenset[State], sieve: Sieve) -> Iterator[Job]:
        # Claims come in one order as far as they are read together.
        is_claims = states & LIVE == {CLAIMED} or sieve.owner is not None
        bounds = (CLAIMS_AT_ONCE, CLAIMS_AT_ONCE) if is_claims else (PAGE, AT_MOST)
        after: Position | None = None
        while True:
            found = self.engine.search(states, sieve, after, *bounds)
            yield from itertools.starmap(self._job_or_shell, found.jobs)
            after = found.after
            if after is None:
                return

    def find_page(
        self,
        limit: int = 50,
        *,
        after: str | None = None,
        at_most: int = AT_MOST,
        names: Iterable[str] | None = None,
        states: Iterable[State | str] | None = None,
        group: str | None = None,
        owner: str | None = None,
        key: str | None = None,
        error: str | None = None,
        cause: str | None = None,
        posted_after: datetime.datetime | None = None,
        posted_before: datetime.datetime | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Page:
        """Return one page of :meth:`find`, out of a bounded number of jobs. CLAIMED jobs alone come the longest first
        among those that the page looks at.

        :param limit: the number of jobs on the page.
        :param after: the ``after`` of the page before, with the same conditions.
        :param at_most: the number of jobs that this page looks at. A page that ends for it may be short or empty, and
            the next page goes on from there.
        :raises ValueError: ``after`` is damaged, another board's, or a position in an order of other states.
        """
        bounded(limit, at_most)
        wanted = checked_states(states, LIVE)
        times = posted_after, posted_before
        sieve = self._sieve(wanted, names, group, owner, key, error, cause, times, where, extra)
        found = self.engine.search(wanted, sieve, position_of(self._name, after), limit, at_most)
        jobs = tuple(itertools.starmap(self._job_or_shell, found.jobs))
        return Page(jobs, position_text(self._name, found.after), found.looked, found.complete)

    def _sieve(
        self,
        states: frozenset[State],
        names: Iterable[str] | None,
        group: str | None,
        owner: str | None,
        key: str | None,
        error: str | None,
        cause: str | None,
        times: tuple[datetime.datetime | None, datetime.datetime | None],
        where: Condition | None,
        extra: Mapping[str, Any] | None,
    ) -> Sieve:
        """Return the checked conditions of a search."""
        self.engine.check_open()
        for what, text in (("group", group), ("owner", owner), ("key", key)):
            if text is not None:
                codec.check_text(what, text)
        for what, text in (("error", error), ("cause", cause)):
            if text is not None and not isinstance(text, str):
                raise TypeError(f"{what} must be a str, not {type(text).__name__}")
        since, until = (
            None if time is None else arguments.aware(what, time)
            for what, time in zip(("posted_after", "posted_before"), times, strict=True)
        )
        condition = self._extras("find", extra, where=where).get("where")
        if condition is not None and COMPLETE in states:
            raise ValueError("where= is a condition on jobs that are not consumed: leave COMPLETE out of the states")
        return Sieve(arguments.names(names), group, owner, key, error, cause, since, until, condition)

    def error_groups(self, at_most: int = 2_000) -> ErrorGroups:
        """Return the causes of the failures of the newest trashed jobs, the most frequent first. Failures of one cause
        differ in uuids, numbers and quoted texts at most.

        :param at_most: the number of jobs that are looked at.
        """
        arguments.limit(at_most, "at_most")
        found = self.engine.search(frozenset({TRASHED}), Sieve(), None, at_most, at_most)
        return grouped(itertools.starmap(self._job_or_shell, found.jobs), len(found.jobs))

    def finished(self, minutes: int = 60, *, at_most: int = AT_MOST) -> list[int] | None:
        """Return the number of consumed jobs with an outcome in each of the last minutes, the present minute last. Jobs
        without an outcome, and those whose outcome has expired, do not count.

        :param at_most: the number of outcomes that are looked at. None is returned if there are more.
        """
        arguments.limit(minutes, "minutes", MOST_MINUTES)
        arguments.limit(at_most, "at_most")
        return self.engine.minutes(minutes, at_most)

    def trashed(self) -> Iterator[Job]:
        """Iterate over the jobs in the trash, the last trashed first; ``job.error`` has the reason."""
        for page in self._trash_pages():
            for record in page:
                yield self._job_or_shell(record, TRASHED)

    def _trash_pages(self) -> Iterator[list[Record]]:
        after: Record | None = None
        while page := self.engine.trash_page(after, PAGE):
            yield page
            after = page[-1]

    def wait(self, timeout: float | None = None) -> JobBoardIterator:
        """Wait until a job can be claimed, and iterate over the claimable jobs.

        :param timeout: seconds; None waits for ever.
        :raises NotFound: no job in time.
        """
        for turn in self.waiters.rounds(timeout):
            peeked = self.engine.peek()
            if peeked.any:
                return self.iterjobs(only_unclaimed=True)
            if turn.left() <= 0:
                break
            self.waiters.doze(turn, False, None, peeked.next_event)
        raise nothing_claimed(timeout)

    def examine(self) -> Iterator[Oddity]:
        """Yield the defects of the board: damaged jobs, pauses and limits, unreadable schedules, postings and outcomes,
        characteristics that weaken the promise, and clocks that differ.

        This reads the whole board page by page, and changes nothing. Acts of others meanwhile do not count as damage,
        but look again before you act on a defect.
        """
        asked = runtime.wall_time()
        now = self.engine.now() / 1e6
        most = self.characteristics.claim_ttl / 10
        # The duration of the request is no skew.
        skew = max(asked - now, now - runtime.wall_time(), 0.0)
        if skew > most:
            if self.characteristics.server_clock:
                reason = f"this machine's clock and the server's differ by {span(skew)}"
                advice = "leases go by the server's; set both by NTP, or what people are shown is wrong"
            else:
                reason = f"the board's time is {span(skew)} ahead of this machine's clock: that of a client was"
                advice = "set the clocks of all clients by NTP, and see Clocks on the page about etcd"
            yield Oddity("clock", reason, advice)
        yield from weaknesses(self.characteristics, self.engine.store.traits.has_replicas)
        try:
            yield from self.engine.raw.examine()
            yield from self._unreadable()
        except ConnectionFailure:
            raise
        except JobFailure as error:
            yield Oddity("store", f"it can't be read any further: {error}", "see what refuses it, and why")

    def _unreadable(self) -> Iterator[Oddity]:
        """Yield the postings and outcomes that can't be read."""
        for record, _ in itertools.chain.from_iterable(self._pages()):
            yield from self._unread("job", record, "the claim that meets it puts it into the trash")
        for done in self.results.walk():
            advice = f"it is in nobody's way, and goes by itself at {moment(done.until):%Y-%m-%d %H:%M:%SZ}"
            yield from self._unread("outcome", done.record, advice, done)

    def _unread(self, kind: str, record: Record, advice: str, done: StoredOutcome | None = None) -> Iterator[Oddity]:
        place = f"{kind} {record.uuid}"
        if codec.is_newer(record.version):
            why = f"it was posted in version {record.version}, and this library reads up to {codec.VERSION}"
            until_then = "until then, this process passes the job over" if done is None else advice
            yield Oddity(place, why, f"upgrade the library here; {until_then}")
            return
        try:
            self._content(record)
            if done is not None:
                self.results.decoded(done.result)
        except NoKey:
            # Another board has the key.
            return
        except codec.Undecodable as error:
            yield Oddity(place, str(error), advice)

    # Claiming

    def claim(self, job: Job, who: str, expiry: float | None = None) -> Claim:
        """Claim this job for ``who``. The claim is attached to ``job``, as ``job.claim``.

        :param expiry: seconds after which the claim lapses unless it is extended; None: the board keeps the claim alive
            for as long as this process lives.
        :raises UnclaimableJob: somebody has claimed the job, ``who`` included, or it is not due; nothing was changed.
        :raises NotFound: the job is not on the board.
        :raises NoKey: the job is encrypted, and this board can't decrypt it; nothing was changed. If the job has
            changed since it was read, the claim was given back at once.
        :raises ClaimLost: the claim was made, but its answer came so late that the claim has lapsed.
        """
        codec.check_text("who", who)
        span = arguments.micros("expiry", expiry, positive=True)
        arguments.job(job).check_key()
        answer, sent = self.engine.claim(arguments.job(job).uuid, who, span)
        if answer.status != OK or answer.record is None:
            self.tracing.refused(job, answer.status, sent)
            raise self._refusal(answer.status, job)
        record, earlier, has_ended = answer.record, job.claim, False
        try:
            try:
                job.show_claimed(record, self._content_of_version(record))
                self._hold([job], who, span, sent, answer.margin)
                # A cipher may take its time, and the heartbeat renews the claim from here on.
                job.check_key()
            except NoKey:
                job.seen_state = UNCLAIMED
                self._let_go_unread(job, record, earlier)
                self._end_unread(job, record, who, GIVEN_BACK)
                has_ended = True
                raise
            except codec.Undecodable as error:
                self._let_go_unread(job, record, earlier)
                self._trash_unread(job, record, who, error)
                has_ended = True
                raise self._refusal(Status.TRASHED, job) from error
            self._tell_claimed([job], sent)
        except BaseException:
            if job.claim is not None and job.claim.token == record.token and not job.claim.ended:
                self.give_back([job])
            elif not has_ended:
                # An interrupt may have come before the job had its claim.
                self.engine.raw.forsake(record.uuid, record.token)
            raise
        return claim_of(job)

    def _let_go_unread(self, job: Job, record: Record, earlier: Claim | None) -> None:
        """Stop holding the claim of a job that can't be read here, if the job has it already."""
        claim = job.claim
        if claim is not None and claim.token == record.token:
            self.claims.let_go(claim)
            claim.mark_ended()
            job.claim = earlier

    def claim_next(
        self,
        who: str,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> ClaimedJob | None:
        """Claim the job that is next in order; it comes with its ``claim``. Return None at once if there is no job;
        ``timeout`` makes this wait for one.

        :param names: take only jobs of these names.
        :param timeout: seconds to wait for a job; 0, the default, does not wait, None waits for ever.
        :param unless: asked before each look; once it returns true the wait is over. After making it true, call
            :meth:`wake`, so that it is asked at once.
        :param where: on SQL, take only jobs for which this condition on :attr:`table` holds.
        :param extra: arguments of a backend of a third party.
        """
        wanted = self.wanted("claim_next", who, expiry, names, where, extra)
        jobs = self._claim_jobs(wanted, 1, timeout, unless)
        return jobs[0] if jobs else None

    def claim_many(
        self,
        who: str,
        limit: int,
        *,
        expiry: float | None = None,
        names: Iterable[str] | None = None,
        timeout: float | None = 0,
        unless: Callable[[], bool] | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[ClaimedJob]:
        """Claim up to ``limit`` jobs at once; wait only while there is none. Otherwise as :meth:`claim_next`."""
        limit = arguments.limit(limit)
        wanted = self.wanted("claim_many", who, expiry, names, where, extra)
        return self._claim_jobs(wanted, limit, timeout, unless)

    def wake(self) -> None:
        """Have every waiting thread of this board object look again, and ask its ``unless``."""
        if not self.closed:
            self.waiters.wake()
            self.waiters.alarm()
            self.engine.backend.rouse()

    def wanted(
        self,
        verb: str,
        who: str,
        expiry: float | None,
        names: Iterable[str] | None,
        where: Condition | None,
        extra: Mapping[str, Any] | None,
    ) -> WantedJobs:
        """Return the checked arguments of a claim by ``verb``, for :meth:`look`."""
        extras = self._extras(verb, extra, where=where)
        codec.check_text("who", who)
        span = arguments.micros("expiry", expiry, positive=True)
        return WantedJobs(who, span, arguments.names(names), extras)

    def _claim_jobs(
        self, wanted: WantedJobs, limit: int, timeout: float | None, unless: Callable[[], bool] | None
    ) -> list[ClaimedJob]:
        try:
            for turn in self.waiters.rounds(timeout):
                if unless is not None and unless():
                    self.engine.backend.forgo()
                    break
                jobs, taken = self.look(wanted, limit)
                if jobs:
                    return jobs
                # Asked again after the mark was read: a wake from here on shortens the nap.
                if turn.left() <= 0 or (unless is not None and unless()):
                    break
                self.waiters.doze(turn, True, wanted.names, taken.next_event)
        except BaseException:
            # A wake that was meant for this wait is of no use to a later call.
            self.engine.backend.forgo()
            raise
        return []

    def look(self, wanted: WantedJobs, limit: int) -> tuple[list[ClaimedJob], Taken]:
        """Claim jobs that can be claimed now. Return them, and the last answer of the engine."""
        who, span, names, extra = wanted
        jobs: list[ClaimedJob] = []
        while True:
            claimed: list[ClaimedJob] = []
            want = min(BATCH, limit - len(jobs))
            try:
                taken, sent = self.engine.take(who, want, span, names, **extra)
            except JobBoardError as error:
                # Nobody else knows of the jobs that are claimed already.
                if not jobs:
                    raise
                LOG.warning("claimed %d of %d jobs, then: %s", len(jobs), limit, error)
                return jobs, taken
            try:
                for record in taken.trashed:
                    self._notify(notifier.TRASHED, self._job_or_shell(record, TRASHED))
                claimed = [job for record in taken.records if (job := self._claimed_job(record, who)) is not None]
                self._hold(claimed, who, span, sent, taken.margin)
                # A cipher may take its time, and the heartbeat renews these claims from here on.
                claimed = self._with_keys(claimed)
                self._tell_claimed(claimed, sent)
                jobs += claimed
                if (len(taken.records) < want and not taken.replayed) or len(jobs) >= limit:
                    return jobs, taken
            except BaseException:
                found = dict.fromkeys([*jobs, *claimed])
                mine = [job for job in found if job.claim is not None and not job.claim.ended]
                self.give_back(mine)
                for record in taken.records:
                    # An interrupt may have come before the job had its claim.
                    if record.uuid not in {job.uuid for job in mine}:
                        self.engine.raw.forsake(record.uuid, record.token)
                raise

    def _claimed_job(self, record: Record, who: str) -> ClaimedJob | None:
        """Return a claimed job. None: its posting can't be decoded, and goes to the trash; or a newer version of this
        library has to read it, and the job is put off."""
        try:
            return ClaimedJob(self, record, self._content_of_version(record), CLAIMED)
        except NoKey as error:
            self._put_off_unread(ClaimedJob(self, record, UNREADABLE, CLAIMED), record, who, error)
        except codec.Undecodable as error:
            self._trash_unread(ClaimedJob(self, record, UNREADABLE, CLAIMED), record, who, error)
        return None

    def _with_keys(self, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Return the claimed jobs that this board can decrypt. Put off the others."""
        readable = []
        for job in jobs:
            try:
                job.check_key()
            except NoKey as error:
                claim = job.claim
                self.claims.let_go(claim)
                claim.mark_ended()
                self._put_off_unread(job, job.record, claim.who, error)
            else:
                readable.append(job)
        return readable

    def _put_off_unread(self, job: Job, record: Record, who: str, error: NoKey) -> None:
        """Give a claimed job back for a while, as another process has to read it."""
        job.seen_state = SCHEDULED
        if (why := str(error.cause or error)) not in self._put_off:
            self._put_off.add(why)
            what = f"goes back for {PUT_OFF_FOR} s, as do others without a further warning"
            LOG.warning("%s %s: %s", job, what, why, extra=logs.fields(job))
        self._end_unread(job, record, who, PUT_OFF)

    def _trash_unread(self, job: Job, record: Record, who: str, error: codec.Undecodable) -> None:
        """Move a claimed job whose posting is damaged to the trash."""
        job.seen_state = TRASHED
        LOG.warning("%s goes to the trash: %s", job, error, extra=logs.fields(job))
        if self._end_unread(job, record, who, End(Verb.TRASH, error=str(error), kind=FailureKind.POISON)):
            self._notify(notifier.TRASHED, job)

    def _end_unread(self, job: Job, record: Record, who: str, end: End) -> bool:
        """End the claim of a job that can't be read here. Return whether the claim has ended."""
        try:
            self.engine.finish(
                [Finish(record.uuid, Holder(who, record.token), end, name=record.name, group=record.group)]
            )
        except JobBoardError as failure:
            # The other jobs of the batch are claimed, and must not be forgotten. This job comes back by itself.
            LOG.warning("%s could not be put back or trashed: %s", job, failure, extra=logs.fields(job))
            self.engine.raw.forsake(record.uuid, record.token)
            return False
        return True

    def _hold(self, jobs: Sequence[Job], who: str, span: int | None, sent: float, margin: int | None) -> None:
        """Attach claims to jobs, and keep them. Their leases count from ``sent``, when the request was sent."""
        deadline = None if margin is None else sent + margin / 1e6
        claims = [Claim(job, job.record.token, who, span is None, deadline) for job in jobs]
        for job, claim in zip(jobs, claims, strict=True):
            job.claim = claim
        if span is None:
            self.engine.check_open()
            self.claims.hold(*claims)

    def _tell_claimed(self, jobs: Sequence[Job], sent: float) -> None:
        for job in jobs:
            self.tracing.claimed(job, sent)
        self._notify(notifier.CLAIMED, *jobs)

    def give_back(self, jobs: Sequence[Job]) -> None:
        """End the claims of jobs that nobody here will run. Their attempts do not count."""
        for who, group in itertools.groupby(jobs, lambda job: claim_of(job).who):
            mine = list(group)
            try:
                self._end_many([_ClaimEnd(job, job.claim, GIVEN_BACK) for job in mine], who, {})
            except JobBoardError as error:
                LOG.warning("could not give back %d jobs, which lapse by themselves: %s", len(mine), error)
                for job in mine:
                    self.claims.let_lapse(claim_of(job))

    # Working

    def working(
        self,
        who: str,
        *,
        names: Iterable[str] | None = None,
        timeout: float | None = None,
        expiry: float | None = None,
        unless: Callable[[], bool] | None = None,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Working:
        """``with board.working(who) as job:`` claims a job and ends its claim by the outcome of the body. It waits for
        a job for ever, unless ``timeout`` says for how long; :meth:`claim_next` does not wait unless that says so.

        A body that ends well consumes the job. :class:`~jobboard.outcomes.Retry` and :class:`~jobboard.outcomes.Reject`
        steer and go no further; any other exception abandons the job, with a backoff and the traceback, and is raised
        again. A job that the body has finished itself is left alone, also in a transaction of the caller's that is
        still open: if that is rolled back after the block, the job comes back when its lease has lapsed.

        ``@board.working(who)`` makes a function of a job into one that does so with each call: the job is its first
        argument, before those that the caller gives. It returns what the function returns, None after Retry and Reject.

        A claim of a job without an attempt left puts the job into the trash, and the body does not run: every claim
        counts as an attempt, those of dead workers included. A job has the ``max_attempts`` of its posting, else the
        default of :class:`~jobboard.outcomes.RetryPolicy`.

        A child that the body forks ends where it would leave the body, as by ``os._exit``: the code behind the block is
        the parent's. Its status is 0, or Python's own for an exception.

        :param names: take only jobs of these names.
        :param timeout: seconds to wait for a job; None, the default, waits for ever, 0 does not wait.
        :param expiry, unless, where, extra: as in :meth:`claim_next`.
        :raises NotFound: no job in time, or before ``unless`` was true.
        :raises ClaimLost: the body ended well, but the claim was lost meanwhile.
        :raises ConnectionFailure: the body ended well, but the job could not be consumed. Unless it was consumed all
            the same, it comes back when its lease has lapsed, as nobody works on it any more.
        """
        wish = {"names": names, "timeout": timeout, "expiry": expiry, "unless": unless, "where": where, "extra": extra}
        return Working(lambda: work.block(self, who, wish))

    # Ending claims

    def extend(self, job: Job, who: str, expiry: float | None = None) -> None:
        """Prolong the claim of ``who``: fixed to ``expiry`` seconds from now, or (None) kept by this board.

        A job that was not claimed through this object goes by its owner's name. Without ``expiry``, its claim stays
        kept by the owner's board, or fixed, and lasts for ``claim_ttl`` from now at least.

        :raises ClaimLost: the claim of this handle has gone to another, or was taken away.
        :raises JobFailure: the claim is somebody else's.
        :raises NotFound: the job is not claimed, or not on the board.
        """
        self._extend(arguments.job(job), job.claim, who, expiry)

    def note(
        self,
        job: Job,
        text: str | None = None,
        *,
        percent: float | None = None,
        checkpoint: Any = None,
        flush: bool = False,
    ) -> None:
        """Note the progress of the work on a job that was claimed through this handle. ``job.progress`` and
        ``job.checkpoint`` show the note to every reader, and to the next holder: the note stays with the job until the
        job is consumed.

        The next heartbeat sends the note, within a third of ``claim_ttl``, or the end of the claim does. A later note
        takes the place of an unsent one. The note of a lost claim is dropped.

        :param text: a line for people.
        :param percent: the finished part of the work, from 0 to 100.
        :param checkpoint: data of JSON's shape, from which another attempt can go on. A part that is None stays as
            noted before. The whole note has at most 16 KiB as JSON.
        :param flush: send the note now.
        :raises JobFailure: the job is not claimed through this handle, or with ``flush``, another transaction holds the
            job now: the next heartbeat sends the note.
        :raises ClaimLost: with ``flush``, the claim is lost.
        """
        claim = arguments.job(job).claim
        if claim is None or job.board is not self:
            raise _unclaimed(job)
        self._note(claim, text, percent, checkpoint, flush)

    def _note(self, claim: Claim, text: str | None, percent: float | None, checkpoint: Any, flush: bool) -> None:
        given = (text, percent, checkpoint, self.engine.wire, self._seal)
        self.keep_note(claim, lambda before: arguments.note(before, *given), flush)

    def keep_note(self, claim: Claim, make: Callable[[codec.Note], bytes | str], flush: bool) -> None:
        """Keep the note that ``make`` returns, and send it now if ``flush``: see :meth:`note`."""
        self.engine.check_open()
        job = claim.job
        # An inherited claim is refused.
        _holder(job, claim, claim.who)
        if not self.claims.note(claim, make):
            raise _unclaimed(job)
        if not flush:
            return
        status = self.claims.send_note(claim)
        if status == Status.LOST:
            raise _unclaimed(job) if claim.ended else self._refusal(status, job, claim)
        if status is None:
            raise _about(JobFailure(f"{job}: another act holds the job; the next heartbeat sends the note"), job)

    def abandon(
        self,
        job: Job,
        who: str,
        *,
        delay: float | datetime.timedelta | None = None,
        error: str | None = None,
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Give a claimed job back to the board, at its old place; to the trash if its attempts are used up.

        :param delay: seconds before which nobody can claim the job.
        :param error: the reason; its last 16 KiB are kept as ``job.error``.
        :param connection, extra: as in :meth:`post`.
        :raises ClaimLost, JobFailure, NotFound: as :meth:`extend`.
        """
        extras = self._extras("abandon", extra, connection=connection)
        self._end(arguments.job(job), job.claim, who, Verb.ABANDON, delay, error, extras=extras)

    def consume(
        self,
        job: Job,
        who: str,
        *,
        result: Any = None,
        then: Iterable[Posting | Mapping[str, Any]] = (),
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[Job]:
        """Take a claimed job off the board, as its work is done. Return the posted jobs. Errors as :meth:`extend`.

        :param result: the result of the work, for :meth:`Job.result <jobboard.job.Job.result>` and :meth:`outcomes`:
            of JSON's shape, at most ``max_details`` bytes as JSON.
        :param then: follow-ups: postings, or mappings of the arguments of :meth:`post`, which the same commit posts. If
            the job is not consumed, nothing is posted. At most 500 postings, and 512 KiB with the result, or less where
            one commit of the backend holds less. The key of the consumed job is free for them, unless its ``key_for``
            runs.
        :raises ValueError, TypeError: the result can't be stored, the board's option ``keep_done`` is 0, so that it
            keeps none, or the follow-ups do not fit; the job was not consumed.
        """
        extras = self._extras("consume", extra, connection=connection)
        return self._consume(arguments.job(job), job.claim, who, result, then, extras)

    def trash(
        self,
        job: Job,
        who: str,
        *,
        reason: str | None = None,
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Put a claimed job into the trash, with a reason. Errors as :meth:`extend`."""
        extras = self._extras("trash", extra, connection=connection)
        self._end(arguments.job(job), job.claim, who, Verb.TRASH, None, reason, extras=extras)

    def consume_many(
        self,
        jobs: Iterable[Job],
        who: str,
        *,
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Consume all of these jobs, in as few requests as possible.

        :raises JobFailures: with one error for each job that could not be consumed; the others were consumed.
        """
        ends = [_ClaimEnd(arguments.job(job), job.claim, outcomes.CONSUMED) for job in jobs]
        self._end_many(ends, who, self._extras("consume_many", extra, connection=connection))

    def finish_many(
        self,
        acts: Iterable[Act],
        who: str,
        *,
        connection: Connection | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """End many claims, each by its own verb; errors as :meth:`consume_many`. The commit of an act posts its
        follow-ups."""
        ends: list[_ClaimEnd] = []
        for act in acts:
            if not isinstance(act, Act):
                raise TypeError(f"finish_many() takes Acts, as Act(job, 'consume'), and not a {type(act).__name__}")
            verb = act.verb if isinstance(act.verb, Verb) else Verb(act.verb)
            if verb not in FINISHES:
                raise ValueError(f"{verb} does not end a claim; {', '.join(sorted(FINISHES))} do")
            error, delay = codec.clip_error(act.error), arguments.micros("delay", act.delay)
            if act.result is not None and verb != CONSUME:
                raise ValueError(f"a result goes with {CONSUME}, not with {verb}")
            postings = followups.checked(act.then) if act.then else ()
            if postings and verb != CONSUME:
                raise ValueError(f"then goes with {CONSUME}, not with {verb}")
            result = self.results.encoded(arguments.job(act.job), act.result)
            end = End(
                verb,
                delay=delay,
                error=error,
                refund=act.refund,
                retry=act.retry,
                result=result,
                kind=_kind(verb, act.retry),
            )
            ends.append(_ClaimEnd(act.job, act.job.claim, end, postings))
        extras = self._extras("finish_many", extra, connection=connection)
        self._end_traced(ends, lambda: self._end_many(ends, who, extras))

    def end_claims(self, ends: Iterable[tuple[Job, End]], who: str) -> list[JobBoardError | None]:
        """End many claims by checked records, as conductors do. Return an error or None for each."""
        return self._end_all([_ClaimEnd(job, job.claim, self.results.storable(job, end)) for job, end in ends], who, {})

    def end_claim(self, claim: Claim, end: End) -> None:
        """End a claim by a checked record.

        :raises JobBoardError: the claim was not ended; errors as :meth:`extend`.
        """
        self._end_one(_ClaimEnd(claim.job, claim, end), claim.who, {})

    def _extend(self, job: Job, claim: Claim | None, who: str, expiry: float | None) -> None:
        holder = _holder(job, claim, codec.check_text("who", who))
        span = arguments.micros("expiry", expiry, positive=True)
        with contextlib.nullcontext() if claim is None else self.claims.extending(claim):
            (status, margin), sent = self.engine.extend(job.uuid, holder, span)
            if status != OK:
                raise self._refusal(status, job, claim)
            if claim is not None:
                self.claims.end_extension(claim, None if margin is None else sent + margin / 1e6, span is None)
        self._notify(notifier.EXTENDED, job)

    def _end(
        self,
        job: Job,
        claim: Claim | None,
        who: str,
        verb: Verb,
        delay: float | datetime.timedelta | None = None,
        error: str | None = None,
        *,
        extras: dict[str, Any],
    ) -> None:
        span, text = arguments.micros("delay", delay), codec.clip_error(error)
        self._end_one(_ClaimEnd(job, claim, End(verb, delay=span, error=text, kind=_kind(verb))), who, extras)

    def _consume(
        self,
        job: Job,
        claim: Claim | None,
        who: str,
        result: Any,
        then: Iterable[Posting | Mapping[str, Any]],
        extras: dict[str, Any],
    ) -> list[Job]:
        postings = followups.checked(then) if then else ()
        end = _ClaimEnd(job, claim, End(CONSUME, result=self.results.encoded(job, result)), postings)
        return self._end_traced([end], lambda: self._end_one(end, who, extras))

    def _end_traced(self, ends: Sequence[_ClaimEnd], end: Callable[[], None]) -> list[Job]:
        """Draft the follow-ups of these ends, and call ``end``. Return the posted jobs."""
        followed = [each for each in ends if each.postings]

        def insert(traced: Sequence[Posting]) -> list[Job]:
            left, form, keeps = iter(traced), self.posting_form, self.results.keep is not None
            for each in followed:
                each.postings = list(itertools.islice(left, len(each.postings)))
                drafts = followups.drafts(each.job, each.postings, each.end.result, form, keeps)
                each.end = each.end._replace(then=drafts)
            end()
            return [job for each in followed for job in each.posted]

        if followed:
            return self.tracing.post([posting for each in followed for posting in each.postings], insert)
        end()
        return []

    def _end_one(self, end: _ClaimEnd, who: str, extra: dict[str, Any]) -> None:
        [error] = self._end_all([end], who, extra)
        if error is not None:
            raise error

    def _end_many(self, ends: list[_ClaimEnd], who: str, extra: dict[str, Any]) -> None:
        failures = [failure for failure in self._end_all(ends, who, extra) if failure is not None]
        if failures:
            raise JobFailures(f"{len(failures)} of {len(ends)} jobs could not be finished", failures)

    def _end_all(self, ends: list[_ClaimEnd], who: str, extra: dict[str, Any]) -> list[JobBoardError | None]:
        """End claims, in as few requests as can be. Return an error or None for each."""
        self.engine.check_open()
        codec.check_text("who", who)
        asked: dict[tuple[str, Holder], _ClaimEnd] = {}
        follows = False
        for each in ends:
            job, end, record = each.job, each.end, each.job.record
            try:
                holder = _holder(job, each.claim, who)
            except JobFailure as failure:
                each.error = failure
                continue
            uuid = record.uuid
            if asked.setdefault((uuid, holder), each) is not each:
                # To a backend, the second end would look like a repetition.
                each.error = _about(NotFound(f"{job} stands twice in the batch"), job)
                continue
            keep = self.results.keep if end.verb == CONSUME else None
            each.act = Finish(uuid, holder, end, None, keep, record.name, record.group)
            follows = follows or bool(end.then)
        with self.engine.acting():
            for chunk in batches(asked.values(), self._size, BATCH, POST_BYTES):
                for each in chunk:
                    claim = each.claim
                    each.held = self.claims.held_by(each.job.uuid, who) if claim is None else [claim]
                begun = self.claims.begin_ends(_claims(chunk))
                # From now on, no note goes before the ends.
                if unsent := self.claims.unsent:
                    for each in chunk:
                        for claim in each.held:
                            each.act = each.act._replace(note=unsent.get(claim))
                try:
                    acts = [each.act for each in chunk]
                    statuses, posted = (
                        self._follow(chunk, acts, extra) if follows else (self.engine.finish(acts, **extra), ())
                    )
                except BaseException:
                    self.claims.complete_ends(begun)
                    raise
                answers = list(zip(chunk, statuses, strict=True))
                done = [each for each, status in answers if status == OK]
                refused = [(each, status) for each, status in answers if status != OK]
                errors = self._refusals([(status, each.job, each.claim) for each, status in refused])
                for (each, _), error in zip(refused, errors, strict=True):
                    each.error = error
                self.claims.let_go(*[each.claim for each, _ in refused if each.claim is not None])
                self.engine.backend.after_commit(
                    extra,
                    functools.partial(self._ended, begun, done, who, posted),
                    functools.partial(self.claims.complete_ends, begun),
                )
        return [each.error for each in ends]

    def _follow(
        self, ends: Sequence[_ClaimEnd], acts: Sequence[Finish], extra: dict[str, Any]
    ) -> tuple[Sequence[Status], Sequence[Job]]:
        """End these claims by one call that posts their follow-ups. Return the statuses, and the follow-ups."""
        answers = self.engine.follow(acts, **extra)
        for each, (_, posted) in zip(ends, answers, strict=True):
            # The postings of a handler are known as drafts alone.
            books = [posting.book for posting in each.postings] or [None] * len(posted)
            parts = zip(posted, each.end.then, books, strict=False)
            each.posted = [self._posted_job(answer, draft, book) for answer, draft, book in parts]
        return [status for status, _ in answers], [job for each in ends for job in each.posted]

    def _size(self, each: _ClaimEnd) -> int:
        """Return the bytes that the end of a claim leaves: in an outcome, with the job, or in follow-ups."""
        verb, _, _, _, _, returned, _, then = each.end
        keep = each.act.keep
        if then:
            return followups.weight(each.job, each.end, self.posting_form.bound, keep is not None)
        if verb == CONSUME and keep is None:
            return 0
        result, record = "" if returned is None else returned.result, each.job.record
        return len(record.posting) + len(result or "") + len(record.note or "")

    def _ended(self, begun: list[Claim], ends: list[_ClaimEnd], who: str, posted: Sequence[Job]) -> None:
        """Bring the handles up to date, and notify, once ends of claims stand.

        :param posted: their follow-ups."""
        if self.results.keep is not None:
            for each in ends:
                for claim in each.held:
                    claim.returned = None if each.end.result is None else each.end.result.result
        self.claims.complete_ends(begun, _claims(ends))
        abandoned: list[Job] = []
        consumed: list[Job] = []
        trashed: list[Job] = []
        for each in ends:
            job, (verb, delay, error, refund, retry, _, kind, _) = each.job, each.end
            if each.claim is None and verb == Verb.ABANDON:
                # Only the claim's own handle knows how many attempts are left.
                self._refresh_behind(job)
            elif error is not None:
                # By this machine's clock, until the job is read again.
                job.record = failed(job.record, int(runtime.wall_time() * 1e6), who, error, kind)
            if verb == CONSUME:
                job.seen_state = COMPLETE
                consumed.append(job)
            elif verb == Verb.ABANDON and (refund or retry or not job.record.exhausted):
                job.seen_state = SCHEDULED if delay else UNCLAIMED
                abandoned.append(job)
            else:
                job.seen_state = TRASHED
                trashed.append(job)
        self._notify(notifier.CONSUMED, *consumed)
        self._notify(notifier.TRASHED, *trashed)
        if posted:
            self._tell_posted([job for job in posted if job.created or job.replaced])
        if abandoned:
            self._notify(notifier.ABANDONED, *abandoned)
            self.waiters.wake()

    # Operating

    def release(self, job: Job, *, reason: str | None = None, token: int | None = None) -> None:
        """Take a claimed job away from its holder, who gets ClaimLost.

        :param reason: kept in ``job.error``.
        :param token: release the claim that has this token, and never a later one.
        :raises NotFound: the job is not claimed, or not on the board.
        :raises ClaimLost: the job is claimed with another token; nothing was changed.
        """
        self._operate_on(Verb.RELEASE, job, reason, token)

    def cancel(self, job: Job, *, reason: str | None = None, running: bool = False, token: int | None = None) -> None:
        """Put a job into the trash.

        :param reason: kept in ``job.error``.
        :param running: also take the job from a holder, who gets ClaimLost. A conductor that runs the job learns of the
            loss by its next heartbeat, after ``claim_ttl`` / 3 at most. The conductor cancels a coroutine, raises
            :class:`~jobboard.outcomes.Cancelled` in a worker process, and tells a thread by ``claim.lost`` and
            :func:`jobboard.cancelled`.
        :param token: cancel the job only while it has this token, such as the token of the claim that is to be stopped.
        :raises UnclaimableJob: the job is claimed, and ``running`` is False.
        :raises NotFound: the job is not on the board.
        :raises ClaimLost: the job has another token; nothing was changed.
        """
        self._operate_on(Verb.STOP if running else Verb.CANCEL, job, reason, token)

    def restore(self, job: Job, *, reason: str | None = None, token: int | None = None) -> None:
        """Bring a job back from the trash, to its old place and with all its attempts.

        :param reason: kept in ``job.errors`` by its kind ``restored``, and never as ``job.error``.
        :param token: restore the job only while it has this token.
        :raises JobFailure: the job is not in the trash, or another job has taken its key.
        :raises NotFound: the job is gone.
        :raises ClaimLost: the job has another token; nothing was changed.
        """
        self._operate_on(Verb.RESTORE, job, reason, token)

    def post_again(self, job: Job) -> Job:
        """Post a job anew, with the name, details, book, context, priority, group and ``max_attempts`` of this one, but
        without its key, due time and history. This job may be in any state, and stays as it is. An encrypted job needs
        no key: the new one has the same encrypted details and book.

        :raises TypeError, ValueError: the details do not fit this board.
        :raises JobFailure: the details can't be read.
        """
        return self._post([self._anew(arguments.job(job))], "post", {})[0]

    def _anew(self, job: Job) -> Posting:
        """Return the posting of a job, for another job."""
        record = job.board._job(job.record, job.seen_state).record
        content, book = job.content, None
        if content.book is not None:
            book = SimpleNamespace(**content.book)
        details: Any = content.details if content.sealed is None else Sealed(content.sealed)
        own = Posting(record.name, book, details, job.priority, max_attempts=record.max_attempts)
        return own._replace(context=job.context or None, group=record.group)

    def act(
        self,
        verb: OperatorVerb,
        jobs: Iterable[Job | Outcome],
        *,
        reason: str | None = None,
        running: bool = False,
    ) -> Acted:
        """Release, cancel, restore, purge or ``post_again`` many jobs, in commits of up to 100.

        An act compares the job with the one that was read: a job with another token or another last holder is skipped,
        and so is a job whose state has no such verb, or that a caller's transaction holds. ``post_again`` compares
        nothing.

        :param jobs: jobs and outcomes as they were read, such as those of :meth:`find`. Each batch is read when it is
            needed. A purge deletes an outcome; its job stays COMPLETE.
        :param reason: kept in ``job.error`` by release and cancel.
        :param running: cancel claimed jobs, too, as :meth:`cancel` does.
        :returns: the number of jobs that were acted on, and an error for each skipped job: ClaimLost, NotFound,
            UnclaimableJob or JobFailure.
        :raises ValueError: there is no such verb.
        :raises JobFailure: it failed after some jobs; its ``acted`` holds their number and the errors.
        """
        if verb not in get_args(OperatorVerb):
            raise ValueError(f"verb={verb!r}: must be one of {', '.join(get_args(OperatorVerb))}")
        if running and verb != "cancel":
            raise ValueError(f"running=True: belongs to the verb 'cancel', not to {verb!r}")
        self.engine.check_open()
        error, done, skipped = codec.clip_error(reason), 0, list[JobBoardError]()
        handles = (arguments.job(each.job if isinstance(each, Outcome) else each) for each in jobs)
        most = min(POST_BYTES, self.engine.backend.traits.most_bytes or POST_BYTES)
        try:
            with self.engine.acting():
                for chunk in batches(handles, _weight, BATCH, most):
                    if verb == "post_again":
                        acted, refused = self._post_again_each(chunk)
                    else:
                        acted, refused = self._act_on(_VERBS[verb, running], chunk, reason, error)
                    done += acted
                    skipped += refused
        except JobFailure as failure:
            failure.acted = Acted(done, tuple(skipped))
            raise
        return Acted(done, tuple(skipped))

    def _post_again_each(self, jobs: Sequence[Job]) -> tuple[int, list[JobBoardError]]:
        postings, skipped = list[Posting](), list[JobBoardError]()
        for job in jobs:
            try:
                postings.append(self._anew(job))
            except ConnectionFailure:
                raise
            except JobFailure as error:
                skipped.append(_about(error, job))
        return len(self._post(postings, "post_many", {})) if postings else 0, skipped

    def _act_on(
        self, verb: Verb, jobs: Sequence[Job], reason: str | None, error: str | None
    ) -> tuple[int, list[JobBoardError]]:
        """Act on jobs that are as they were read. Return the number of these, and the errors of the others."""
        moving = [job for job in jobs if marks.is_of_move(job.record)]
        own = [job for job in jobs if job not in moving]
        # Before the request: this board may claim a job again after it.
        mine = self.claims.held()
        acts = [Finish.of_seen(job.record, verb, error) for job in own]
        # One transaction of a caller's must not hold up the acts on all other jobs.
        statuses = self.engine.finish(acts, is_patient=False) if acts else []
        pairs = list(zip(own, statuses, strict=True))
        acted = [job for job, status in pairs if status == OK]
        self._conclude_acts(verb, acted, reason, mine)
        refused = [*((job, status) for job, status in pairs if status != OK), *((job, Status.MOVING) for job in moving)]
        errors = [_refused_act(verb, job, status, "has changed since it was read") for job, status in refused]
        rest = [(status, job, None) for (job, status), error in zip(refused, errors, strict=True) if error is None]
        return len(acted), [*filter(None, errors), *self._refusals(rest)]

    def _conclude_acts(self, verb: Verb, jobs: Sequence[Job], reason: str | None, mine: Sequence[Claim]) -> None:
        """Bring handles up to date, notify and log, after acts of an operator.

        :param mine: the claims that this board held before the acts.
        """
        if not jobs or verb == Verb.PURGE:
            return
        uuids = {job.uuid for job in jobs}
        self.claims.refuse([claim for claim in mine if claim.uuid in uuids])
        for job in jobs:
            fields = logs.fields(job)
            what = {Verb.RELEASE: f"was taken away from {fields['who']!r}", Verb.RESTORE: "was restored"}
            LOG.info("%s %s: %s", job, what.get(verb, "was cancelled"), reason or "no reason given", extra=fields)
            is_live = verb == Verb.RESTORE or (verb == Verb.RELEASE and not job.record.exhausted)
            job.seen_state = UNCLAIMED if is_live else TRASHED
        if verb == Verb.RESTORE:
            self._tell_posted(jobs)
        elif verb == Verb.RELEASE:
            self._notify(notifier.RELEASED, *jobs)
            self._refresh_behind(*jobs)
            self.waiters.wake()
        self._notify(notifier.TRASHED, *(job for job in jobs if job.seen_state == TRASHED))

    def purge(self, job: Job, *, token: int | None = None) -> None:
        """Remove a job from the trash for good, or the outcome of a consumed job, which stays COMPLETE.

        :param token: purge the job only while it has this token.
        :raises JobFailure: the job is not in the trash.
        :raises NotFound: the job is gone.
        :raises ClaimLost: the job has another token; nothing was changed.
        """
        self._operate_on(Verb.PURGE, job, token=token)

    def purge_trash(self, older_than: float | datetime.timedelta) -> int:
        """Purge jobs that have been in the trash for longer than this, in seconds or a timedelta. Return their number.
        A job that leaves the trash meanwhile stays, though it may come back at once.

        ``last_modified`` of a trashed job, on the server's clock, is the time at which it was trashed.
        """
        age = arguments.micros("older_than", older_than)
        assert age is not None
        limit = self.engine.now() - age
        purged = 0
        with self.engine.acting():
            for page in self._trash_pages():
                # Only jobs that are as they were listed: one that was restored and trashed again is another failure.
                acts = [Finish.of_seen(record, Verb.PURGE) for record in page if record.modified_on <= limit]
                for start in range(0, len(acts), BATCH):
                    purged += self.engine.finish(acts[start : start + BATCH]).count(OK)
        return purged

    def _operate_on(self, verb: Verb, job: Job, reason: str | None = None, token: int | None = None) -> None:
        """Act on a job whatever was read of it, or on the version with ``token`` alone."""
        arguments.job(job)
        error = codec.clip_error(reason)
        if token is not None:
            arguments.integer("token", token)
        # Before the request: this board may claim the job again after it.
        takes = verb in (Verb.RELEASE, Verb.STOP)
        mine = [claim for claim in self.claims.held() if claim.uuid == job.uuid] if takes else []
        status = self.engine.operate(verb, job.uuid, error, token)
        if status != OK:
            raise _refused_act(verb, job, status, f"has another token than {token}") or self._refusal(status, job)
        self._conclude_acts(verb, [job], reason, mine)

    def siblings(self, limit: int = MENTIONED) -> list[str]:
        """Return the names of other boards in the same store, at most ``limit``.

        People tell an empty board from a mistyped name by them. Programs should not rely on them: a store need not find
        all boards. On SQL a board exists while a job lies on it or in its trash. In a Redis Cluster, only this board's
        node is searched.
        """
        arguments.limit(limit)
        found = self.engine.boards(limit + 1)
        return sorted(name for name in found if name != self._name)[:limit]

    # Limits and pauses

    def pause(self, names: Iterable[str] | None = None) -> None:
        """Pause jobs of these names; without names, all jobs. No process can claim a paused job until :meth:`resume`.

        Existing claims go on: they are kept, extended and ended as before. Paused jobs can be posted, and stay
        UNCLAIMED. ``claim(job)`` raises UnclaimableJob.

        ``pause()`` is a switch of its own, beside the names: ``resume(names)`` does not undo it.

        :raises JobFailure: more than 1,000 names would be paused.
        """
        wanted = arguments.names(names)
        self.engine.pause(wanted)
        LOG.info("board %r: paused %s", self._name, _listed(wanted))

    def resume(self, names: Iterable[str] | None = None) -> None:
        """Allow claims of jobs of these names again; without names, of all jobs. Waiting workers look again."""
        wanted = arguments.names(names)
        self.engine.resume(wanted)
        LOG.info("board %r: no longer paused: %s", self._name, _listed(wanted))
        self.waiters.wake()

    def paused(self) -> Paused:
        """Return the pauses: ``everything``, and the ``names`` beside it. ``name in board.paused()`` asks for one."""
        return self.engine.rules().paused

    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per: Per = "name",
        rate: tuple[int, float | datetime.timedelta] | None = None,
    ) -> Limit:
        """Bound the claims of jobs of this name, in all processes together, once this returns.

        A job without room stays UNCLAIMED, and claims pass over it; claimable jobs keep their order. ``claim(job)``
        raises UnclaimableJob. Existing claims go on. On SQL they count; elsewhere claims from before the first limit
        of their scope may stay uncounted. A claim gives its slot back when it ends, and when it lapses: a late
        extension raises ClaimLost if another claim has the slot.

        Another limit of the same name and ``per`` replaces this one.

        :param concurrency: the number of claims at any instant, from 1 to 10,000. It counts claims, not threads: a
            handler in a thread that goes on after its timeout runs beside the job's next claim. Workers in processes
            are killed instead.
        :param per: "name": all jobs of the name together; "group": the jobs of each ``group`` by themselves, and
            jobs without a group are not bound. There may be one limit of each; both then need room.
        :param rate: the number of claims that may begin within a number of seconds, ``(100, 60)`` for instance; from 1
            to 10,000, and by the server's clock. Every claim counts, whatever its end; an extension does not.
        :raises ValueError: neither is given, or one is out of range.
        :raises JobFailure: 1,000 limits are set already; or, on SQL, transactions of others that were open before
            have not ended in time: the limit may not count their claims then, until it is set again.
        """
        limit = arguments.bound(name, per, concurrency, rate)
        self.engine.set_limit(limit)
        LOG.info("board %r: limit of %r set: %s", self._name, name, limit)
        self.waiters.wake()
        return limit

    def limits(self) -> list[Limit]:
        """Return the limits of this board, by name."""
        return list(self.engine.rules().limits)

    def remove_limit(self, name: str, per: Per | None = None) -> None:
        """Remove the limit of jobs of this name; without ``per``, both limits. Waiting workers look again.

        :raises NotFound: there is none.
        """
        if per is not None:
            arguments.per(per)
        if self.engine.remove_limit(codec.check_text("a job's name", name), per) != OK:
            which = "" if per is None else f" per {per}"
            raise NotFound(f"there is no limit of {name!r}{which}; limits() lists them")
        LOG.info("board %r: limit of %r removed", self._name, name)
        self.waiters.wake()

    # Schedules

    def schedule(
        self,
        /,
        id: str,  # noqa: A002 - as its users have it
        cron: str | None = None,
        name: str | None = None,
        *,
        every: float | datetime.timedelta | None = None,
        details: Mapping[str, Any] | None = None,
        priority: int | str = JobPriority.NORMAL,
        key: str | None = None,
        max_attempts: int | None = None,
        group: str | None = None,
        context: Mapping[str, str] | None = None,
        expires: float | datetime.timedelta | None = None,
        tz: str = "UTC",
        missed: Missed = "one",
    ) -> Schedule:
        """Have a job posted at certain times: by any conductor of this board, or by ``jobboard schedule run``.

        Each due time gets one job, however many posters there are. A schedule that has this id already is replaced,
        from now on: ``every`` begins anew, and missed times are not made up for; posted jobs and a pause stay. A
        schedule that is set again with the same arguments stays as it is, with its next due time: each start of a
        process may set it.

        :param id: at most 255 characters.
        :param cron: five fields, as in a crontab, or ``@daily`` and the like; at most 255 characters.
        :param name: the name of the jobs; this and the next arguments are as in :meth:`post
            <jobboard.board.JobBoard.post>`.
        :param every: instead of ``cron``: seconds (or a timedelta) between two due times, at least 0.1, counted from
            now on the server's clock.
        :param key: with it no job is posted while an earlier one is on the board; that due time counts as done.
        :param expires: seconds (or a timedelta) from its due time at which a job goes to the trash unless somebody has
            claimed it.
        :param tz: the time zone of ``cron``, as in ``Europe/Berlin``. Where its clock is put forward, skipped times
            are due right after; where it is put back, a time is due once. An hour of ``*`` takes each hour as it comes.
        :param missed: of the times at which nobody posted, ``one``, the latest, ``all``, the latest 1,000, or ``none``,
            once it is more than a minute late.
        :raises TypeError, ValueError: an argument does not fit; nothing was changed.
        """
        codec.check_text("a schedule's id", id)
        timetable = Timetable(cron, arguments.micros("every", every, positive=True), tz, missed)
        timetable.check()
        # With every=, too, which needs no zone: a mistyped zone would show among the schedules.
        zone(tz)
        codec.check_text("a job's name", name)
        if isinstance(expires, datetime.datetime):
            raise TypeError("expires of a schedule counts from each due time: give seconds or a timedelta")
        posting = Posting(
            cast(str, name),
            details=details,
            priority=priority,
            key=key,
            max_attempts=max_attempts,
            context=context,
            group=group,
            expires=expires,
        )
        form = self.posting_form
        [draft] = arguments.drafts([posting], form.max_details, form.wire, form.seal)

        made: StoredSchedule

        def make(now: int, before: StoredSchedule | None) -> StoredSchedule:
            nonlocal made
            last = None if before is None else before.last
            is_paused = before is not None and before.is_paused
            made = StoredSchedule(id, timetable, draft, timetable.first(now, last), last, is_paused=is_paused)
            if before is not None and self._is_alike(before, timetable, draft):
                made = before
            return made

        entry = self.engine.set_schedule(id, make)
        self.waiters.alarm()
        # Others may have removed it before a repetition has told that it was set.
        entry = entry or made
        return Schedule.of(entry, self._decoded(entry.draft.posting), self._seal)

    def _is_alike(self, before: StoredSchedule, timetable: Timetable, draft: Draft) -> bool:
        """Return whether a setting equals the stored schedule."""
        # Each setting has a uuid of its own, and equal details may have another order.
        same = before.draft._replace(uuid=draft.uuid, posting=draft.posting)
        if before.timetable != timetable or same != draft:
            return False
        postings = before.draft.posting, draft.posting
        try:
            one, other = (codec.open_content(self._decoded(each), self._seal) for each in postings)
        except (codec.Undecodable, NoKey):
            return False
        return one == other

    def schedules(self) -> list[Schedule]:
        """Return the schedules of this board, by their ids. Unreadable ones are left out, with a warning."""
        found = []
        for entry in sorted(self.engine.schedules()):
            try:
                found.append(Schedule.of(entry, self._decoded(entry.draft.posting), self._seal))
            except codec.Undecodable as error:
                LOG.warning("the schedule %r is left out: %s", entry.id, error)
        return found

    def pause_schedule(self, id: str) -> None:  # noqa: A002 - as its users have it
        """Post no job of a schedule until :meth:`resume_schedule`; posted jobs stay.

        :raises NotFound: there is none of this id.
        :raises JobFailure: an unfinished ``jobboard move`` holds the schedule.
        """
        self._pause_schedule(id, True)

    def resume_schedule(self, id: str) -> None:  # noqa: A002 - as its users have it
        """Post the jobs of a paused schedule again. ``missed`` of the schedule decides about due times in the pause.

        :raises NotFound: there is none of this id.
        :raises JobFailure: an unfinished ``jobboard move`` holds the schedule.
        """
        self._pause_schedule(id, False)

    def _pause_schedule(self, id: str, is_paused: bool) -> None:  # noqa: A002 - as its users have it
        found: StoredSchedule | None = None

        def make(now: int, before: StoredSchedule | None) -> StoredSchedule | None:
            nonlocal found
            found = before
            return None if before is None else _unheld(before)._replace(is_paused=is_paused)

        self.engine.set_schedule(codec.check_text("a schedule's id", id), make)
        if found is None:
            raise _unreadable_schedule(id)
        LOG.info("board %r: schedule %r %s", self._name, id, "paused" if is_paused else "resumed")
        self.waiters.alarm()

    def post_now(self, id: str) -> Job:  # noqa: A002 - as its users have it
        """Post a job of a schedule now, also while the schedule is paused. The next due time stays.

        ``job.schedule`` has the time of this post. If another job has the key of the schedule, that job is returned:
        ``job.created`` is false.

        :raises NotFound: there is none of this id.
        :raises JobFailure: an unfinished ``jobboard move`` holds the schedule.
        """
        entry, now = self.engine.find_schedule(codec.check_text("a schedule's id", id))
        if entry is None:
            raise _unreadable_schedule(id)
        draft = _unheld(entry).job(now, self.engine.wire, uuid=str(runtime.uuid4()))
        [answer] = self.engine.insert([draft])
        job = self._posted_job(answer, draft, None)
        if job.created:
            self._tell_posted([job])
        return job

    def kept_stats(self) -> KeptStats:
        """Return the numbers of schedules and outcomes, and the delay of the schedules."""
        return self.engine.kept_stats()

    def unschedule(self, id: str) -> None:  # noqa: A002 - as its users have it
        """Remove a schedule; posted jobs stay.

        :raises NotFound: there is none of this id.
        """
        if self.engine.remove_schedule(codec.check_text("a schedule's id", id)) != OK:
            raise NotFound(f"there is no schedule {id!r}")
        self.waiters.alarm()

    def post_due(self) -> float | None:
        """Post the due jobs of all schedules, as conductors do. Return the seconds until the next due time, or None."""
        posted: DuePosts = {}
        try:
            left = self.engine.post_due(posted)
        finally:
            # Also where a later schedule has failed.
            records = [record for record in posted.values() if record is not None]
            for record in records:
                LOG.info("the schedule of %r has posted job %s", record.name, record.uuid)
            if records:
                self._tell_posted([self._job_or_shell(record, record.state) for record in records])
        return None if left is None else left / 1e6

    # Outcomes of consumed jobs

    def outcomes(self, *, names: Iterable[str] | None = None, after: Outcome | None = None) -> Iterator[Outcome]:
        """Iterate over the outcomes of consumed jobs, the last consumed first; see the option ``keep_done``.

        :param names: only jobs of these names.
        :param after: only outcomes behind this one, which may have expired.
        """
        self.engine.check_open()
        wanted = arguments.names(names)
        if after is not None and not isinstance(after, Outcome):
            raise TypeError(f"after must be an Outcome, not {type(after).__name__}")
        stored = self.results.walk(None if after is None else after.stored)
        return (
            self.results.outcome(done, self._job_or_shell(done.record, COMPLETE))
            for done in stored
            if wanted is None or done.record.name in wanted
        )

    def outcome(self, job: Job) -> Outcome:
        """Return the outcome of a consumed job.

        :raises NotFound: the job has no outcome.
        """
        done = self.results.of(arguments.job(job).uuid)
        if done is None:
            why = "the job was not consumed, keep_done was 0, or the outcome has expired"
            raise _about(NotFound(f"{job} has no outcome: {why}"), job)
        return self.results.outcome(done, self._job_or_shell(done.record, COMPLETE))

    def result_of(self, job: Job) -> Any:
        """Return the result of a consumed job, as :meth:`Job.result <jobboard.job.Job.result>` does.

        :raises NotFound: the job has no outcome, or its result could not be stored.
        """
        outcome = self.outcome(job)
        if outcome.refused is not None:
            raise _about(NotFound(f"{job} has no result: {outcome.refused}"), job)
        return outcome.result

    # Entities

    def register_entity(self, entity: Any) -> None:
        """Show an entity, a conductor for instance, to all readers of the board while this board is connected.

        :param entity: anything with a ``kind``, a ``name`` and (of JSON's shape) ``metadata``, which is read anew with
            each heartbeat, every third of ``claim_ttl``: at most 64 KiB of JSON.
        :raises TypeError, ValueError: its metadata can't be shown.
        """
        kind = codec.check_text("an entity's kind", entity.kind)
        name = codec.check_text("an entity's name", entity.name)
        metadata = self._metadata_of(entity)
        self.engine.check_open()
        with self._roster:
            self.engine.enlist(self.engine.handle, kind, name, metadata, self._ttl)
            self.claims.start_beating()
            self._entities[kind, name] = entity

    def deregister_entity(self, entity: Any) -> None:
        """Stop showing an entity that was registered through this board object. Do nothing if it was not."""
        self.engine.check_open()
        # A heartbeat that is under way must not bring it back.
        with self._roster:
            if self._entities.pop((entity.kind, entity.name), None) is None:
                return
            self.engine.delist(self.engine.handle)
            for (kind, name), metadata in self._shown_entities():
                self.engine.enlist(self.engine.handle, kind, name, metadata, self._ttl)

    def entities(self, kind: str | None = None) -> list[Entity]:
        """Return the living entities, by kind and name. Two boards may each have an entity of one kind and name."""
        found = []
        for of, name, metadata in sorted(self.engine.roster()):
            if kind in (None, of):
                try:
                    found.append(Entity(of, name, dict(json.loads(metadata))))
                except (ValueError, TypeError):
                    LOG.warning("the %s %r is not shown, as its metadata can't be read: %r", of, name, metadata)
        return found

    def _shown_entities(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the registered entities, with their present metadata."""
        for (kind, name), entity in self._entities.items():
            try:
                yield (kind, name), self._metadata_of(entity)
            except Exception:
                # The other entities are still shown.
                LOG.exception("the %s %r is not shown: its metadata can't be stored", kind, name)

    def _metadata_of(self, entity: Any) -> str:
        metadata = getattr(entity, "metadata", None)
        return json.dumps(codec.check_details(metadata, METADATA_BYTES, "metadata", "their limit"))

    # Jobs from records

    def _job(self, record: Record, state: State) -> Job:
        """Return the job of a record.

        :raises JobFailure: the posting can't be read here.
        """
        if codec.is_newer(record.version):
            raise JobFailure(f"job {record.uuid} was posted by a newer version of this library; upgrade to read it")
        try:
            return Job(self, record, self._content(record), state)
        except codec.Undecodable as error:
            raise JobFailure(f"job {record.uuid}: {error}", error) from error

    def _job_or_shell(self, record: Record, state: State) -> Job:
        """Return the job; without its details where they can't be read."""
        try:
            return self._job(record, state)
        except JobFailure:
            return Job(self, record, UNREADABLE, state)

    def _content_of_version(self, record: Record) -> codec.Content:
        """Return the content of a claimed job of any version.

        :raises NoKey: a newer version of this library has posted it. The look of a board with a cipher shows it."""
        version = record.version
        if version != codec.VERSION and codec.is_newer(version):
            raise NoKey(f"posted in version {record.version} by a newer version of this library")
        return self._content(record)

    def _content(self, record: Record) -> codec.Content:
        """Return the content of a job, which may be encrypted.

        :raises codec.Undecodable: the record is damaged.
        """
        if record.priority not in RANKS:
            raise codec.Undecodable(f"its priority is {record.priority!r}, which is none")
        return self._decoded(record.posting)

    def _decoded(self, posting: bytes | str) -> codec.Content:
        return codec.decode(posting, self.engine.wire)

    def _open(self, content: codec.Content, job: Job) -> codec.Content:
        """Return the content of a job, decrypted.

        :raises NoKey: the content can't be decrypted here.
        """
        with _naming(job):
            return codec.open_content(content, self._seal)

    def _open_note(self, note: codec.Note, job: Job) -> codec.Note:
        """Return the note of a job, decrypted.

        :raises NoKey: the note can't be decrypted here.
        """
        with _naming(job):
            return codec.open_note(note, self._seal)

    def opened_record(self, job: Job) -> Record:
        """Return the record of a job for a process without the cipher, with a decrypted note."""
        note = job.record.note
        if self._seal is None or note is None:
            return job.record
        opened = self._open_note(codec.decode_note(note), job)
        return job.record._replace(note=codec.encode_note(opened, self.engine.wire))

    def sealed_note(self, note: bytes | str) -> bytes | str:
        """Return a note from a process without the cipher, encrypted."""
        return note if self._seal is None else codec.encode_note(codec.decode_note(note), self.engine.wire, self._seal)

    def _load_book(self, uuid: str) -> Any:
        if self._persistence is None:
            return None
        with contextlib.closing(self._persistence.get_connection()) as connection:
            return connection.get_logbook(uuid)

    # Arguments and errors

    def _extras(self, verb: str, extra: Mapping[str, Any] | None, **named: Any) -> dict[str, Any]:
        return arguments.extras(self.scheme, verb, extra, self.engine.backend.extras.get(verb, frozenset()), **named)

    def _refusal(self, status: Status, job: Job, claim: Claim | None = None) -> JobBoardError:
        [error] = self._refusals([(status, job, claim)])
        return error

    def _refusals(self, refused: Sequence[tuple[Status, Job, Claim | None]]) -> list[JobBoardError]:
        """Return the error of each refused act."""
        elsewhere = self._elsewhere([job for status, job, _ in refused if status == Status.ABSENT])
        errors = []
        for status, job, claim in refused:
            if status == Status.ABSENT and job in elsewhere:
                # This says nothing of a claim on the job's own board.
                errors.append(_about(NotFound(f"{job} is not on {self}, but on {job.board}"), job))
                continue
            if status == Status.ABSENT and claim is not None and not claim.ended:
                status = Status.LOST  # noqa: PLW2901
            if status == Status.LOST and claim is not None:
                claim.refuse()
            if status == Status.FULL and claim is not None:
                # Nobody has refused the token, and nobody has the job.
                claim.mark_lost()
            kind, text = _REFUSALS[status]
            errors.append(_about(kind(f"{job}: {text}" if kind is ClaimLost else f"{job} {text}"), job))
        return errors

    def _elsewhere(self, absent: Sequence[Job]) -> set[Job]:
        """Return the absent jobs that are another board's. Nothing is known of a board that does not answer."""
        # Other configurations may lead to this board. So a board of the same name is asked, once for all its jobs.
        found = {job for job in absent if job.board.name != self._name}
        for board in {job.board for job in absent} - {self}:
            if jobs := [job for job in absent if job.board is board and job not in found]:
                with contextlib.suppress(JobBoardError):
                    seen = board.engine.read([job.uuid for job in jobs])
                    found.update(job for job, its in zip(jobs, seen, strict=True) if its.record is not None)
        return found

    # Events

    def _listen(self, on: bool) -> None:
        """Start or stop the reports of other processes' acts."""
        if self.closed:
            return
        if on:
            self.engine.raw.watch("events")
        else:
            self.engine.raw.unwatch()

    def _heard(self, event: str, record: Record) -> None:
        """Notify of an act of another process, which the backend reports."""
        self._notify(event, self._job_or_shell(record, record.state))

    def _claim_lost(self, claim: Claim) -> None:
        self._notify(notifier.LOST, claim.job)
        self.engine.raw.forsake(claim.uuid, claim.token)

    def _notify(self, event: str, *jobs: Job) -> None:
        """Notify of an event; of the removal, too, if the event takes its job off the board."""
        is_logged = LOG.isEnabledFor(logging.DEBUG)
        if not (is_logged or self._notifier.listened_to):
            return
        events = (event, notifier.REMOVAL) if event in (notifier.CONSUMED, notifier.TRASHED) else (event,)
        for job, each in itertools.product(jobs, events):
            if is_logged:
                LOG.debug("%s: %s", job, each, extra=logs.fields(job))
            self._notifier.notify(each, {"job": job})


def _about(error: JobBoardError, job: Job) -> JobBoardError:
    """Return the error, with the job that it is about."""
    error.job = job
    return error


@contextlib.contextmanager
def _naming(job: Job) -> Iterator[None]:
    """Name the job in the error of its decryption."""
    try:
        yield
    except NoKey as error:
        raise _about(NoKey(f"{job} is {error}", error), job) from error


def _unclaimed(job: Job) -> JobBoardError:
    return _about(JobFailure(f"{job} is not claimed through this handle: only its holder makes notes"), job)


def _holder(job: Job, claim: Claim | None, who: str) -> Holder:
    """Return the holder that acts on a job, by its claim or by its name; raise JobFailure if the claim is another's."""
    if claim is None:
        return Holder(who, None)
    if claim.who != who:
        raise _about(JobFailure(f"{job} was claimed as {claim.who!r}, not as {who!r}"), job)
    if claim.inherited:
        raise _about(ClaimLost(f"{job}: the claim belongs to the process that this one was forked from"), job)
    return Holder(who, claim.token)


def _unreadable_schedule(id: str) -> NotFound:  # noqa: A002 - as its users have it
    return NotFound(f"there is no schedule {id!r} that can be read here")


def _unheld(entry: StoredSchedule) -> StoredSchedule:
    """Return the schedule.

    :raises JobFailure: a move holds it.
    """
    if entry.held is not None:
        raise JobFailure(f"the schedule {entry.id!r} is held by a move: `jobboard move` completes it")
    return entry


def _refused_act(verb: Verb, job: Job, status: Status, lost: str) -> JobBoardError | None:
    """Return the error of an operator's act that has one of its own.

    :param lost: what is said of a job that has changed.
    """
    if status == Status.LOST:
        return _about(ClaimLost(f"{job} {lost}"), job)
    if verb == Verb.CANCEL and status == Status.CLAIMED:
        return _about(UnclaimableJob(f"{job} is claimed: cancel(job, running=True) takes it from its holder"), job)
    return None


def _weight(job: Job) -> int:
    """Return the bytes that an act on a job stores."""
    return len(job.record.posting) + sum(len(failure.text) for failure in job.record.errors)


def _claims(ends: Iterable[_ClaimEnd]) -> list[Claim]:
    return [claim for end in ends for claim in end.held]


def _kind(verb: Verb, retry: bool = False) -> FailureKind:
    """Return the kind of the failure with which a holder ends its claim."""
    if verb == Verb.TRASH:
        return FailureKind.REJECTED
    return FailureKind.RETRY if retry else FailureKind.ERROR


def _listed(names: Iterable[str] | None) -> str:
    return "everything" if names is None else ", ".join(map(repr, names))


class JobBoardIterator(Iterator[Job]):
    """An iterator over the jobs of a board, highest priority and oldest post first.

    Each job comes with the state that its page was read in, in ``seen_state``. A page is read when it is needed, one
    request for up to 500 jobs; later changes on the board do not show. An undecodable posting is skipped with a
    warning.
    """

    def __init__(
        self, board: JobBoard, jobs: Iterator[Job], *, only_unclaimed: bool = False, ensure_fresh: bool = False
    ) -> None:
        self.board = board
        self.only_unclaimed = only_unclaimed
        self.ensure_fresh = ensure_fresh
        self._jobs = jobs

    def __next__(self) -> Job:
        return next(self._jobs)


_boards: weakref.WeakSet[JobBoard] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    errors: list[Exception] = []
    for board in list(_boards):
        try:
            board._forked_child()
        except Exception as error:  # noqa: BLE001 - Python shows it; the other boards must not act as the parent's
            errors.append(error)
    if errors:
        raise ExceptionGroup("these boards are of no use in this forked child", errors)


os.register_at_fork(after_in_child=_after_fork_in_child)
