"""The retrying engine: the calls of the engine, repeated while the backend is unreachable."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from jobboard import codec, logs, runtime
from jobboard.engine.engine import Engine
from jobboard.engine.store import Store
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Characteristics, Finish, Nonce, Renewed
from jobboard.retry import retrying

P = ParamSpec("P")
T = TypeVar("T")

LOG = logs.Log(__name__)


def time_left() -> float | None:
    """Return the seconds for which the call of this thread may still be repeated; None outside of any call."""
    return None if runtime.call.until is None else max(0.0, runtime.call.until - runtime.boottime())


def _repeatable(call: Callable[Concatenate[Engine, P], T]) -> Callable[Concatenate[RetryingEngine, P], T]:
    """Return the repeated form of a call that changes nothing, or that may be repeated as it is."""

    @functools.wraps(call)
    def repeated(self: RetryingEngine, /, *args: P.args, **extra: P.kwargs) -> T:
        answer: T = self.repeat(getattr(self.raw, call.__name__), *args, **extra)
        return answer

    return repeated


def _timed_mutation(
    call: Callable[Concatenate[Engine, Nonce, P], T],
) -> Callable[Concatenate[RetryingEngine, P], tuple[T, float]]:
    """Return the repeated form of a mutation, without its nonce. It also returns the time of the answered try, on
    :func:`~jobboard.runtime.boottime`."""

    @functools.wraps(call)
    def repeated(self: RetryingEngine, /, *args: P.args, **extra: P.kwargs) -> tuple[T, float]:
        answer: tuple[T, float] = self.mutate(getattr(self.raw, call.__name__), *args, **extra)
        return answer

    return repeated


def _mutation(call: Callable[Concatenate[Engine, Nonce, P], T]) -> Callable[Concatenate[RetryingEngine, P], T]:
    """Return the repeated form of a mutation, without its nonce. A call in a transaction of the caller's has no nonce,
    and is never repeated: only the caller can repeat the whole transaction."""

    @functools.wraps(call)
    def repeated(self: RetryingEngine, /, *args: P.args, **extra: P.kwargs) -> T:
        act = getattr(self.raw, call.__name__)
        answer: T = act(None, *args, **extra) if "connection" in extra else self.mutate(act, *args, **extra)[0]
        return answer

    return repeated


class RetryingEngine:
    """The engine of a board: the calls of :class:`~jobboard.engine.Engine`.

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
        self.handle = runtime.uuid4().hex
        self._slots: deque[Nonce] = deque()
        self._slot_count = 0
        self._lock = runtime.Lock()
        self._over = runtime.Event()
        self.is_open = True

    def end(self) -> None:
        """Accept no more calls, and repeat no running call."""
        if self.is_open:
            self.is_open = False
            self._over.set()

    def give_back(self, batches: Iterable[Sequence[Finish]], delist: bool) -> None:
        """Give claims back after :meth:`end`, and remove the entities of the handle if asked: one try for each."""
        around, runtime.call.until = runtime.call.until, runtime.boottime()
        try:
            for acts in batches:
                self.raw.finish(self._borrow(), acts)
            if delist:
                self.raw.delist(self.handle)
        finally:
            runtime.call.until = around

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
    def backend(self) -> Store:
        """The store, open or not."""
        return self.raw.backend

    @property
    def wire(self) -> codec.Wire:
        """The encoding of postings and results."""
        return self.backend.traits.wire

    @property
    def characteristics(self) -> Characteristics:
        """The promises of the board."""
        self.check_open()
        return self.raw.characteristics

    # Calls of the engine

    insert = _mutation(Engine.insert)
    claim = _timed_mutation(Engine.claim)
    take = _timed_mutation(Engine.take)
    extend = _timed_mutation(Engine.extend)
    finish = _mutation(Engine.finish)
    follow = _mutation(Engine.follow)
    operate = _mutation(Engine.operate)

    now = _repeatable(Engine.now)
    read = _repeatable(Engine.read)
    page = _repeatable(Engine.page)
    trash_page = _repeatable(Engine.trash_page)
    open_to_claims = _repeatable(Engine.open_to_claims)
    closed_scopes = _repeatable(Engine.closed_scopes)
    key_holders = _repeatable(Engine.key_holders)
    search = _repeatable(Engine.search)
    names = _repeatable(Engine.names)
    minutes = _repeatable(Engine.minutes)
    tally = _repeatable(Engine.tally)
    peek = _repeatable(Engine.peek)
    boards = _repeatable(Engine.boards)
    watch = _repeatable(Engine.watch)

    rules = _repeatable(Engine.rules)
    pause = _mutation(Engine.pause)
    resume = _mutation(Engine.resume)
    set_limit = _mutation(Engine.set_limit)
    remove_limit = _mutation(Engine.remove_limit)

    outcomes = _repeatable(Engine.outcomes)
    outcome_page = _repeatable(Engine.outcome_page)
    store_outcomes = _repeatable(Engine.store_outcomes)
    remembered_keys = _repeatable(Engine.remembered_keys)
    store_keys = _repeatable(Engine.store_keys)

    schedules = _repeatable(Engine.schedules)
    all_schedules = _repeatable(Engine.all_schedules)
    find_schedule = _repeatable(Engine.find_schedule)
    set_schedule = _mutation(Engine.set_schedule)
    remove_schedule = _mutation(Engine.remove_schedule)
    post_due = _repeatable(Engine.post_due)
    kept_stats = _repeatable(Engine.kept_stats)

    note = _repeatable(Engine.note)

    def renew(self, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """Renew kept claims, in one try: the heartbeat repeats it."""
        return self.raw.renew(self.handle, held, ttl)

    enlist = _repeatable(Engine.enlist)
    delist = _repeatable(Engine.delist)
    roster = _repeatable(Engine.roster)

    # Repetition

    def mutate(self, call: Callable[..., T], *args: Any, **extra: Any) -> tuple[T, float]:
        """Make a mutation, with the same nonce for each try. Return the answer, and the time of the answered try."""
        self.check_open()
        nonce, acts = self._borrow(), self.raw.acts
        sent = runtime.boottime()
        around, runtime.call.until = runtime.call.until, sent + self.retry_for
        is_worn = False
        try:
            answer = call(nonce, *args, **extra), sent
            # A slot whose last try failed is not worn: its next call refuses the try if that is still on its way.
            is_worn = nonce.call >= self.backend.traits.slot_calls
            return answer
        except ConnectionFailure as error:
            attempts = itertools.count(2)

            def again() -> tuple[T, float]:
                sent = runtime.boottime()
                return call(nonce._replace(attempt=next(attempts)), *args, **extra), sent

            return self._repeated(again, error, acts, nonce)
        except Exception:
            raise
        except BaseException:
            # An interrupted call leaves claims that nobody knows.
            self.raw.doubt(nonce)
            raise
        finally:
            runtime.call.until = around
            if not is_worn and nonce.handle == self.handle:
                self._slots.append(Nonce(nonce.handle, nonce.slot, nonce.call + 1))

    def repeat(self, call: Callable[..., T], *args: Any, **extra: Any) -> T:
        """Make a call that changes nothing, or that may be repeated as it is."""
        self.check_open()
        acts = self.raw.acts
        around, runtime.call.until = runtime.call.until, runtime.boottime() + self.retry_for
        try:
            return call(*args, **extra)
        except ConnectionFailure as error:
            return self._repeated(lambda: call(*args, **extra), error, acts)
        finally:
            runtime.call.until = around

    def _borrow(self) -> Nonce:
        """Return the next nonce of a slot that no other call uses."""
        try:
            return self._slots.pop()
        except IndexError:
            with self._lock:
                self._slot_count += 1
                return Nonce(self.handle, self._slot_count, 1)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Make the outcome of a ConnectionFailure in this block unknown if calls of the block have acted before."""
        acts = self.raw.acts
        try:
            yield
        except ConnectionFailure as error:
            self._note_outcome(error, acts)
            raise

    def _note_outcome(self, error: ConnectionFailure, acts: int) -> bool:
        """Note in the error of a failed call whether the outcome is unknown. Return that.

        :param acts: :attr:`Engine.acts` before the call. What a call has committed is not undone by a later failure.
        """
        if self.raw.acts > acts:
            error.outcome = "unknown"
        return error.outcome == "unknown"

    def _repeated(self, call: Callable[[], T], first: ConnectionFailure, acts: int, nonce: Nonce | None = None) -> T:
        """Repeat a call after its first failure.

        :param acts: as for :meth:`_note_outcome`.
        :param nonce: the nonce of a mutation. The engine clears up behind it if no try tells its outcome.
        """
        over = self._over
        is_unknown = self._note_outcome(first, acts)
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
                is_unknown = self._note_outcome(error, acts) or is_unknown
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
