"""What lies under the verbs of a board: its settings, its life, and what its verbs share."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast, final

from jobboard import arguments, codec, logs, notifier
from jobboard import conf as configuration
from jobboard.door import Door
from jobboard.engine import Engine, Seat, Store
from jobboard.exceptions import (
    ClaimLost,
    ConnectionFailure,
    JobBoardError,
    JobFailure,
    NotFound,
    UnclaimableJob,
)
from jobboard.job import Board, Claim, Job, boottime, load_book
from jobboard.primitives import RANKS, BoardStats, Characteristics, Finish, Seen, batches
from jobboard.session import Session
from jobboard.standing import Trigger
from jobboard.states import Holder, Record, State, Status, Verb
from jobboard.threads import started
from jobboard.tracing import NO_TRACING

LOG = logs.Log(__name__)

BATCH = 100
"""How many jobs one request claims or finishes at most."""

POST_BYTES = 512 * 1024
"""How much postings, or what jobs leave, may have together in one request."""

METADATA_BYTES = 64 * 1024
"""How much an entity may tell of itself, in bytes of compact UTF-8 JSON."""

RENEW_BATCH = 1000
"""How many claims one request renews at most."""

_TIDYING = 1 / 30
"""Which part of a lease one tidying takes at most; heartbeats come after a third."""

TIDY_EVERY = 600.0
"""Every how many seconds a board that renews anything tidies up."""


UNREADABLE = codec.Content({}, None)
"""Stands for the content of a posting that can't be decoded."""

_REFUSALS: dict[Status, tuple[type[JobBoardError], str]] = {
    Status.LOST: (ClaimLost, "the claim is lost: it lapsed, or was taken away"),
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
}


class BoardBase(Board):
    """The life of a board and of the engine that it holds. Its verbs are in the classes above it."""

    def __init__(
        self,
        name: str,
        conf: str | Mapping[str, Any],
        client: Any = None,
        persistence: Any = None,
        *,
        engine: type[Store] | type[Engine],
    ) -> None:
        self._name = codec.check_text("a board's name", name)
        self._conf = configuration.parse(conf, {**configuration.COMMON, **engine.options}, engine.uri_parts)
        self._shown = configuration.redacted(conf, self._conf, engine.uri_parts)
        self._persistence = persistence
        self._ttl = int(self._conf["claim_ttl"] * 1e6)
        # For how many µs the outcomes of jobs are kept that are consumed here.
        self._keep = round(self._conf["keep_done"] * 1e6) or None
        self.tracing = NO_TRACING
        self._notifier = notifier.Notifier(name, self._listening)
        self._session: Session | None = None
        self._stats: tuple[float, BoardStats] | None = None
        self._lifecycle = threading.RLock()
        self._tidied = 0.0
        seat, make = Seat(name, self._conf, client, self._shown), cast(Any, engine)
        self.engine: Engine = Engine(seat, make) if issubclass(engine, Store) else make(seat)
        self._keeps = None if self._keep is None else (self._conf["max_details"], self.engine.wire)

    def __repr__(self) -> str:
        return f"<JobBoard {self._name!r} at {self._shown}{', closed' if self.closed else ''}>"

    def __str__(self) -> str:
        return f"board {self._name!r} at {self._shown}"

    def __reduce__(self) -> Any:
        raise TypeError("a board does not travel to another process: fetch one there, from the same configuration")

    @property
    def name(self) -> str:
        return self._name

    @property
    def notifier(self) -> notifier.Notifier:
        """Where to listen to what happens on the board."""
        return self._notifier

    @property
    def connected(self) -> bool:
        """Whether the board is open; on ZooKeeper, whether it also has a connection at this moment."""
        return not self.closed and self.engine.connected

    @property
    def closed(self) -> bool:
        """Whether it takes a :meth:`connect` to use the board. One whose backend is away comes back by itself."""
        return self._session is None

    @property
    def characteristics(self) -> Characteristics:
        """What this board promises; known once it is connected."""
        self._live()
        return self.engine.characteristics

    @property
    def table(self) -> Any:
        """On SQL: the table of the jobs, for conditions as ``where=board.table.c.attempts < 2`` in a claim; there
        before the board is connected.

        :raises AttributeError: the board is not on SQL.
        """
        return self.engine.table

    @property
    def door(self) -> Door:
        """The engine, for what works below the verbs: its calls, repeated as those of the verbs are."""
        return Door(self.engine, self._live())

    # Life

    @final
    def setup(self) -> None:
        """Create what the board needs on its backend, or bring what is there up to date, keeping the jobs: what
        ``jobboard setup`` does. Any number of times, in any number of processes at once, also on a board that is not
        connected.

        :raises ConnectionFailure: the backend can't be reached.
        """
        self.engine.setup()

    @final
    def connect(self) -> None:
        """Open the board, creating what is missing (unless ``auto_setup=false``). Does nothing on an open one.

        :raises ConnectionFailure: the backend can't be reached.
        :raises JobFailure: what is stored there is of another layout, or missing.
        """
        with self._lifecycle:
            if self._session is None:
                self.engine.open()
                try:
                    self._tidy_up()
                    self._begin()
                except BaseException:
                    # close() does nothing for a board that is not connected.
                    self.engine.shut()
                    raise
                _boards.add(self)
                if self._notifier.listened_to:
                    self.engine.watch("events")

    @final
    def close(self) -> None:
        """Give back the claims that the board keeps (that attempt does not count) and let go of the backend.

        Claims of a fixed lease run on. A closed board can be connected again.
        """
        with self._lifecycle:
            session, self._session, self.engine.life = self._session, None, None
            if session is None:
                return
            _boards.discard(self)
            self.engine.hurry()
            kept = [claim for claim in session.end() if not claim.inherited]
            try:
                for claims in batches(kept, lambda claim: len(claim.job._record.posting), BATCH, POST_BYTES):
                    acts = [Finish(c.uuid, Holder(c.who, c.token), Verb.ABANDON, refund=True) for c in claims]
                    session.mutate(self.engine.finish, acts)
                if session.entities:
                    session.query(self.engine.delist, session.handle)
            except JobBoardError as error:
                LOG.warning("could not give back %d claims, which lapse by themselves: %s", len(kept), error)
            finally:
                for claim in kept:
                    claim._step(Trigger.REFUSED)
                self.engine.shut()
                self._notifier.close()

    def __enter__(self) -> Self:
        """Connect the board for a block, and close it at the block's end, also where it was open before."""
        try:
            self.connect()
        except BaseException:
            # Interrupted, the board may be connected all the same.
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _borrowed(self, left: Callable[[], float | None]) -> Iterator[None]:
        """Within, the board is connected. One that was not is closed by the last of those who use it at the same time.

        :param left: for how many seconds to wait for that; None for as long as it takes.
        :raises ConnectionFailure: the backend can't be reached.
        """
        borrowed: Session | None = None
        try:
            with self._lifecycle:
                opened = self._session is None
                try:
                    self.connect()
                    session = self._live()
                except BaseException:
                    # Interrupted, the board may be connected all the same.
                    if opened:
                        self.close()
                    raise
                if opened or session.borrowers > 0:
                    session.borrowers += 1
                    borrowed = session
            yield
        finally:
            if borrowed is not None:
                self._return(borrowed, left())

    def _return(self, session: Session, seconds: float | None) -> None:
        def end() -> None:
            with self._lifecycle:
                session.borrowers -= 1
                if not session.borrowers and self._session is session:
                    self.close()

        closer: threading.Thread | None = None
        if seconds is not None:
            # A backend that does not answer must not hold up whoever has no more time.
            with contextlib.suppress(RuntimeError):
                closer = started(f"{self._name}-closer", end)
        if closer is None:
            # Late, where no thread can be started, rather than never: nobody else would do it.
            end()
        else:
            closer.join(seconds)

    def _begin(self) -> None:
        self.engine.life = self._session = Session(
            self._name,
            interval=self.engine.characteristics.claim_ttl / 3,
            retry_for=self._conf["retry_for"],
            renew=self._renew_held,
            on_lost=self._claim_lost,
            on_doubt=self.engine.doubt,
            on_event=self._heard,
            slot_calls=self.engine.slot_calls,
        )

    def _claim_lost(self, claim: Claim) -> None:
        self._notify(notifier.LOST, claim.job)
        self.engine.forsake(claim.uuid, claim.token)

    def _listening(self, on: bool) -> None:
        if self._session is not None:
            self.engine.watch("events", on)

    def _live(self) -> Session:
        session = self._session
        if session is None:
            raise ConnectionFailure(f"{self} is not connected; call connect() first")
        return session

    def _forked_child(self) -> None:
        self._lifecycle = threading.RLock()
        self._notifier._after_fork()
        self.engine.forked()
        self._begin()

    def _tidy_up(self) -> None:
        self._tidied = time.monotonic()
        if self._conf["read_only"]:
            return
        try:
            # A million outcomes take their time, and neither a claim nor who connects waits for that.
            more = self.engine.tidy(min(1.0, self._ttl * _TIDYING / 1e6))
        except ConnectionFailure as error:
            LOG.warning("could not tidy up, trying again: %s", error)
            more = True
        if more:
            # What is left goes with the next heartbeats.
            self._tidied -= TIDY_EVERY

    def _renew_held(self, session: Session) -> None:
        asked = session.held()
        for first in range(0, len(asked), RENEW_BATCH):
            chunk = session.renewable(asked[first : first + RENEW_BATCH])
            if not chunk:
                continue
            sent = boottime()
            held = [(claim.uuid, claim.token) for claim in chunk]
            session.confirm(chunk, sent, self.engine.renew(session.handle, held, self._ttl))
        with session.roster:
            self._renew_entities(session)
        self.engine.clear_up()
        if time.monotonic() - self._tidied > TIDY_EVERY:
            self._tidy_up()

    def _renew_entities(self, session: Session) -> None:
        for (kind, name), entity in session.entities.items():
            try:
                metadata = self._metadata_of(entity)
            except Exception:
                # It is its own affair: the others go on being shown.
                LOG.exception("the %s %r tells of itself what can't be shown", kind, name)
                continue
            self.engine.enlist(session.handle, kind, name, metadata, self._ttl)

    def _metadata_of(self, entity: Any) -> str:
        metadata = getattr(entity, "metadata", None)
        return json.dumps(codec.check_details(metadata, METADATA_BYTES, "metadata", "their limit"))

    # Within

    def _mutate(self, primitive: Any, what: Any, **extra: Any) -> Any:
        if extra and self.engine.joins(extra):
            return primitive(what, None, **extra)
        return self._live().mutate(primitive, what, **extra)[0]

    def _extras(self, verb: str, extra: dict[str, Any]) -> dict[str, Any]:
        if not extra:
            return extra
        known = self.engine.extras.get(verb, frozenset())
        return arguments.extras(self._conf.scheme, verb, extra, known, getattr(type(self), verb))

    def _refresh(self, job: Job) -> Seen:
        [seen] = self._refresh_all([job])
        return seen

    def _refresh_all(self, jobs: Sequence[Job]) -> list[Seen]:
        seen = self._live().query(self.engine.read, [job.uuid for job in jobs])
        for job, its in zip(jobs, seen, strict=True):
            job.seen_state = its.state
            if its.record is not None:
                job._record = its.record
        return seen

    def _load_book(self, uuid: str) -> Any:
        return load_book(self._persistence, uuid)

    def _refusal(self, status: Status, job: Job, claim: Claim | None = None) -> JobBoardError:
        [error] = self._refusals([(status, job, claim)])
        return error

    def _refusals(self, refused: Sequence[tuple[Status, Job, Claim | None]]) -> list[JobBoardError]:
        elsewhere = self._elsewhere([job for status, job, _ in refused if status == Status.ABSENT])
        return [about(self._refused(*each, each[1] in elsewhere), each[1]) for each in refused]

    def _refused(self, status: Status, job: Job, claim: Claim | None, elsewhere: bool) -> JobBoardError:
        if elsewhere and status == Status.ABSENT:
            # Which says nothing of a claim on the board where it is.
            return NotFound(f"{job} is not on {self}, but on {job.board}")
        if claim is not None:
            if status == Status.ABSENT and not claim.ended:
                status = Status.LOST
            if status == Status.LOST:
                claim._step(Trigger.REFUSED)
        kind, text = _REFUSALS[status]
        return kind(f"{job}: {text}" if status == Status.LOST else f"{job} {text}")

    def _elsewhere(self, absent: Sequence[Job]) -> set[Job]:
        """Those of the jobs which are not here that are another board's, be it of the same name. Many a configuration
        may lead to one board, so that what they came from is asked where the name does not tell. Of one that does not
        answer nothing is said."""
        found = {job for job in absent if job.board.name != self._name}
        others = {job.board for job in absent if job not in found and job.board is not self}
        for board in others:
            if isinstance(board, BoardBase):
                jobs = [job for job in absent if job.board is board]
                with contextlib.suppress(JobBoardError):
                    seen = board._live().query(board.engine.read, [job.uuid for job in jobs])
                    found.update(job for job, its in zip(jobs, seen, strict=True) if its.record is not None)
        return found

    def _job(self, record: Record, state: State) -> Job:
        if record.version > codec.VERSION:
            raise JobFailure(f"job {record.uuid} was posted by a newer version of this library; upgrade to read it")
        try:
            return Job(self, record, self._content(record), state)
        except codec.Undecodable as error:
            raise JobFailure(f"job {record.uuid}: {error}", error) from error

    def _content(self, record: Record) -> codec.Content:
        """:raises codec.Undecodable: the record is damaged."""
        if record.priority not in RANKS:
            raise codec.Undecodable(f"its priority is {record.priority!r}, which is none")
        return self._decoded(record.posting)

    def _decoded(self, posting: bytes | str) -> codec.Content:
        return codec.decode(posting, self.engine.wire)

    def _readable(self, seen: Seen) -> Job | None:
        assert seen.record is not None
        try:
            return self._job(seen.record, seen.state)
        except JobFailure as error:
            shell = Job(self, seen.record, UNREADABLE, seen.state)
            LOG.warning("skipped: %s", error, extra=logs.fields(shell))
            return None

    def _heard(self, event: str, record: Record) -> None:
        """A backend reports what another process has done."""
        job = self._job_or_shell(record, record.state)
        if event in (notifier.CONSUMED, notifier.TRASHED):
            self._gone(event, job)
        else:
            self._notify(event, job)

    def _job_or_shell(self, record: Record, state: State) -> Job:
        """The job; without its details where they can't be read."""
        try:
            return self._job(record, state)
        except JobFailure:
            return Job(self, record, UNREADABLE, state)

    def _gone(self, event: str, *jobs: Job) -> None:
        for job in jobs if self._told() else ():
            self._notify(event, job)
            self._notify(notifier.REMOVAL, job)

    def _notify(self, event: str, *jobs: Job) -> None:
        for job in jobs if self._told() else ():
            if LOG.isEnabledFor(logging.DEBUG):
                LOG.debug("%s: %s", job, event, extra=logs.fields(job))
            self._notifier.notify(event, {"job": job})

    def _posted(self, session: Session, jobs: list[Job]) -> None:
        session.wake()
        self._notify(notifier.POSTED, *jobs)

    def _told(self) -> bool:
        """Whether anybody is told of events: asked once for all the jobs of a request."""
        return self._notifier.listened_to or LOG.isEnabledFor(logging.DEBUG)


def about(error: JobBoardError, job: Job) -> JobBoardError:
    """Tell which job an error is about."""
    error.job = job
    return error


_boards: weakref.WeakSet[BoardBase] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for board in list(_boards):
        board._forked_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
