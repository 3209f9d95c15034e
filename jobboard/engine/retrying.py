"""The retrying engine: the calls of the engine, repeated while the backend is unreachable."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from oslo_utils import uuidutils

from jobboard import codec, logs
from jobboard.conf import Option
from jobboard.engine.engine import Engine
from jobboard.engine.keys import Remembered
from jobboard.engine.outcomes import Done
from jobboard.engine.rules import Rules
from jobboard.engine.schedules import DuePosts, Make, StoredSchedule, Unreadable
from jobboard.engine.store import Store
from jobboard.exceptions import ConnectionFailure
from jobboard.job import boottime
from jobboard.primitives import (
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
from jobboard.retry import retrying
from jobboard.states import Holder, Record, State, Status, Verb

T = TypeVar("T")

LOG = logs.Log(__name__)


class _Calls(threading.local):
    until: float | None = None


_calls = _Calls()


def time_left() -> float | None:
    """Return the seconds for which the call of this thread may still be repeated; None outside of any call."""
    return None if _calls.until is None else max(0.0, _calls.until - boottime())


class RetryingEngine:
    """The engine of a board, with one method for each call of :class:`~jobboard.engine.Engine`.

    A call that loses its connection is repeated for ``retry_for`` seconds in all, with the nonce of its first try. A
    call in a transaction of the caller's is never repeated.

    :param raw: the engine itself, which does each call once.

    Every call raises ConnectionFailure before :meth:`begin` and after :meth:`end`.
    """

    def __init__(self, raw: Engine, retry_for: float) -> None:
        self.raw = raw
        self.retry_for = retry_for
        self.is_open = False
        self.handle = ""

    # Life

    def begin(self) -> None:
        """Accept calls, under a new handle. A forked child calls this, too: take no lock."""
        self.handle = uuidutils.generate_uuid(dashed=False)
        self._slots: deque[Nonce] = deque()
        self._slot_count = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.is_open = True

    def end(self) -> None:
        """Accept no more calls, and repeat no running call."""
        if self.is_open:
            self.is_open = False
            self._over.set()

    def give_back(self, batches: Iterable[Sequence[Finish]], delist: bool) -> None:
        """Give claims back after :meth:`end`, and remove the entities of the handle if asked: one try for each."""
        around, _calls.until = _calls.until, boottime()
        try:
            for acts in batches:
                self.raw.finish(acts, self._borrow())
            if delist:
                self.raw.delist(self.handle)
        finally:
            _calls.until = around

    def check_open(self) -> None:
        """:raises ConnectionFailure: the board is not connected."""
        if not self.is_open:
            raise ConnectionFailure(f"{self.raw} is not connected; call connect() first")

    def sleep_unless_closed(self, seconds: float) -> None:
        """Sleep between two tries, until the board is closed at most."""
        self._over.wait(seconds)

    # Properties of the backend

    @property
    def store(self) -> Store:
        """The open store."""
        return self.raw.store

    @property
    def options(self) -> Mapping[str, Option]:
        """The options that the backend adds to those of every board."""
        return self.raw.options

    @property
    def extras(self) -> Mapping[str, frozenset[str]]:
        """The arguments that the backend adds to verbs, by verb."""
        return self.raw.extras

    @property
    def reported_events(self) -> frozenset[str]:
        """The acts of other processes of which listeners of an open board hear."""
        return self.raw.reported_events

    @property
    def wire(self) -> codec.Wire:
        """The encoding of postings and results."""
        return self.raw.wire

    @property
    def most_kept(self) -> int | None:
        """The number of bytes that details and result may take together; None for any number."""
        return self.raw.most_kept

    @property
    def characteristics(self) -> Characteristics:
        """The promises of the board."""
        self.check_open()
        return self.raw.characteristics

    @property
    def poll_cap(self) -> float:
        """The longest sleep of :meth:`wait` without a look, in seconds."""
        return self.raw.poll_cap

    # Posting

    def insert(self, drafts: Sequence[Draft], **extra: Any) -> list[Posted]:
        """Store all the drafts or none."""
        if extra and self.raw.joins(extra):
            return self.raw.insert(drafts, None, **extra)
        return self._mutate(self.raw.insert, drafts, **extra)[0]

    # Claims

    def claim(self, uuid: str, who: str, expiry: int | None) -> tuple[Claimed, float]:
        """Claim one job. Return also the time of the answered try, on :func:`~jobboard.job.boottime`."""
        return self._mutate(self.raw.claim, uuid, who, expiry)

    def take(
        self, who: str, limit: int, expiry: int | None, names: Sequence[str] | None, **extra: Any
    ) -> tuple[Taken, float]:
        """Claim the next jobs in order. Return also the time of the answered try."""
        return self._mutate(self.raw.take, who, limit, expiry, names, codec.VERSION, **extra)

    def extend(self, uuid: str, holder: Holder, expiry: int | None) -> tuple[Status, int | None, float]:
        """Prolong a claim. Return also the time of the answered try."""
        (status, margin), sent = self._mutate(self.raw.extend, uuid, holder, expiry)
        return status, margin, sent

    def renew(self, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """Renew kept claims, in one try: the heartbeat repeats it."""
        return self.raw.renew(self.handle, held, ttl)

    def forsake(self, uuid: str, token: int) -> None:
        """Have a kept claim freed that nobody renews any more. Does not block."""
        self.raw.forsake(uuid, token)

    def finish(self, acts: Sequence[Finish], **extra: Any) -> list[Status]:
        """End claims, or remove jobs that nobody holds."""
        if extra and self.raw.joins(extra):
            return self.raw.finish(acts, None, **extra)
        return self._mutate(self.raw.finish, acts, **extra)[0]

    def after_commit(self, extra: dict[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` once a mutation stands, ``undone`` if it never will."""
        self.raw.after_commit(extra, done, undone)

    def operate(self, verb: Verb, uuid: str, error: str | None = None, token: int | None = None) -> Status:
        """Release, cancel, restore or purge a job."""
        return self._mutate(self.raw.operate, verb, uuid, error, token=token)[0]

    # Looking

    def now(self) -> int:
        """Return the server's time."""
        return self._query(self.raw.now)

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        """Return the jobs as they stand, in the order asked for."""
        return self._query(self.raw.read, uuids)

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
        fresh: bool = False,
    ) -> list[Seen]:
        """Return the next live jobs in order behind ``after``."""
        return self._query(self.raw.page, after, limit, names, states, fresh)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """Return the next trashed jobs behind ``after``, the last trashed first."""
        return self._query(self.raw.trash_page, after, limit)

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Return the uuids of those unclaimed jobs that no pause and no limit holds back."""
        return self._query(self.raw.open_to_claims, jobs)

    def tally(self) -> dict[State, int]:
        """Return how many jobs are in each logical state but COMPLETE."""
        return self._query(self.raw.tally)

    def peek(self, names: Sequence[str] | None = None) -> Peeked:
        """Return whether a take would find something."""
        return self._query(self.raw.peek, names, codec.VERSION)

    def examine(self) -> Iterator[Oddity]:
        """Yield defects of the store, in one try for each page."""
        return self.raw.examine()

    def boards(self, most: int) -> list[str]:
        """Return the names of boards in this store, at most so many."""
        return self._query(self.raw.boards, most)

    # Waiting and hearing

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        """Sleep until something may have become claimable since ``mark`` was read."""
        self.raw.wait(mark, names, limit)

    def rouse(self) -> None:
        """Make every :meth:`wait` under way return soon."""
        self.raw.rouse()

    def forgo(self) -> None:
        """Pass on a wake that was meant for this thread alone."""
        self.raw.forgo()

    def watch(self, topic: Literal["jobs", "schedules", "events"], on: bool = True) -> bool:
        """Return whether the board will hear of this topic, whoever acts."""
        return self._query(self.raw.watch, topic, on)

    # Pauses and limits

    def rules(self) -> Rules:
        """Return the pauses and limits of the board."""
        return self._query(self.raw.rules)

    def pause(self, names: Sequence[str] | None) -> None:
        """Give no more claims of jobs of these names, or (None) of any job."""
        self._mutate(self.raw.pause, names)

    def resume(self, names: Sequence[str] | None) -> None:
        """Take a pause back for these names, or (None) all of it."""
        self._mutate(self.raw.resume, names)

    def set_limit(self, limit: Limit) -> None:
        """Bound the claims of some jobs."""
        self._mutate(self.raw.set_limit, limit)

    def remove_limit(self, name: str, per: str | None) -> Status:
        """Remove limits of a name. Return OK, or ABSENT."""
        return self._mutate(self.raw.remove_limit, name, per)[0]

    # Outcomes and keys that outlive their jobs

    def outcomes(self, uuids: Sequence[str]) -> list[Done | None]:
        """Return the outcomes of these jobs, in the order asked for; None where there is none."""
        return self._query(self.raw.outcomes, uuids)

    def done_page(self, after: Done | None, limit: int) -> list[Done]:
        """Return the next outcomes behind ``after``, the one that was stored last first."""
        return self._query(self.raw.done_page, after, limit)

    def keep(self, dones: Sequence[Done]) -> int:
        """Store outcomes of another board. Return how many were stored."""
        return self._query(self.raw.keep, dones)

    def remembered(self, place: Any) -> tuple[list[Remembered], Any]:
        """Return some of the keys whose windows run though no live job has them, and where to go on."""
        return self._query(self.raw.remembered, place)

    def remember(self, keys: Sequence[Remembered]) -> int:
        """Keep keys taken that another board has remembered. Return how many were stored."""
        return self._query(self.raw.remember, keys)

    # Schedules

    def schedules(self) -> list[StoredSchedule]:
        """Return the readable schedules."""
        return self._query(self.raw.schedules)

    def all_schedules(self) -> list[StoredSchedule | Unreadable]:
        """Return all schedules, those of newer versions and damaged ones included."""
        return self._query(self.raw.all_schedules)

    def set_schedule(self, id: str, make: Make) -> StoredSchedule | None:  # noqa: A002 - as users have it
        """Store the schedule that ``make`` returns."""
        return self._mutate(self.raw.set_schedule, id, make)[0]

    def remove_schedule(self, id: str) -> Status:  # noqa: A002 - as users have it
        """Remove a schedule. Return OK, or ABSENT."""
        return self._mutate(self.raw.remove_schedule, id)[0]

    def post_due(self, posted: DuePosts) -> int | None:
        """Post the due jobs of all schedules. Return the µs until something is due again."""
        return self._query(self.raw.post_due, posted)

    def kept_stats(self) -> KeptStats:
        """Return counts of schedules and outcomes."""
        return self._query(self.raw.kept_stats)

    # Entities

    def enlist(self, kind: str, name: str, metadata: str, ttl: int) -> None:
        """Register or renew an entity of this handle."""
        self._query(self.raw.enlist, self.handle, kind, name, metadata, ttl)

    def delist(self) -> None:
        """Remove every entity of this handle."""
        self._query(self.raw.delist, self.handle)

    def roster(self) -> list[tuple[str, str, str]]:
        """Return the living entities as (kind, name, metadata)."""
        return self._query(self.raw.roster)

    # Repetition

    def _mutate(self, call: Callable[..., T], *args: Any, **extra: Any) -> tuple[T, float]:
        """Make a mutation, with the same nonce for each try. Return the answer, and the time of the answered try."""
        self.check_open()
        nonce = self._borrow()
        around, _calls.until = _calls.until, boottime() + self.retry_for
        is_worn = False
        try:
            sent = boottime()
            answer = call(*args, nonce, **extra), sent
            # A slot whose last try failed is not worn: its next call refuses the try if that is still on its way.
            is_worn = nonce.call >= self.raw.slot_calls
            return answer
        except ConnectionFailure as error:
            attempts = itertools.count(2)

            def again() -> tuple[T, float]:
                sent = boottime()
                return call(*args, nonce._replace(attempt=next(attempts)), **extra), sent

            return self._repeated(again, error, nonce)
        except Exception:
            raise
        except BaseException:
            # An interrupted call leaves claims that nobody knows.
            self.raw.doubt(nonce)
            raise
        finally:
            _calls.until = around
            if not is_worn and nonce.handle == self.handle:
                self._slots.append(Nonce(nonce.handle, nonce.slot, nonce.call + 1))

    def _query(self, call: Callable[..., T], *args: Any) -> T:
        """Make a call that changes nothing, or that may be repeated as it is."""
        self.check_open()
        around, _calls.until = _calls.until, boottime() + self.retry_for
        try:
            return call(*args)
        except ConnectionFailure as error:
            return self._repeated(lambda: call(*args), error)
        finally:
            _calls.until = around

    def _borrow(self) -> Nonce:
        """Return the next nonce of a slot that no other call uses."""
        try:
            return self._slots.pop()
        except IndexError:
            with self._lock:
                self._slot_count += 1
                return Nonce(self.handle, self._slot_count, 1)

    def _repeated(self, call: Callable[[], T], first: ConnectionFailure, nonce: Nonce | None = None) -> T:
        """Repeat a call after its first failure.

        :param nonce: the nonce of a mutation. The engine clears up behind it if no try tells its outcome.
        """
        over = self._over
        is_unknown = first.outcome == "unknown"
        left = time_left()
        if not left or over.is_set():
            if is_unknown and nonce is not None:
                self.raw.doubt(nonce)
            raise first

        def attempt() -> T:
            nonlocal is_unknown
            try:
                return call()
            except ConnectionFailure as error:
                is_unknown = is_unknown or error.outcome == "unknown"
                raise

        def worth_it(error: BaseException) -> bool:
            return isinstance(error, ConnectionFailure) and not over.is_set() and bool(time_left())

        def sleep(seconds: float) -> None:
            self.sleep_unless_closed(min(seconds, time_left() or 0))

        LOG.warning("trying again for %.3g s: %s", left, first)
        try:
            return retrying(worth_it, left, sleep=sleep)(attempt)
        except BaseException as error:
            if is_unknown:
                if isinstance(error, ConnectionFailure):
                    error.outcome = "unknown"
                # A refused try says nothing of an earlier one.
                if nonce is not None:
                    self.raw.doubt(nonce)
            raise
