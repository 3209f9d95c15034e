"""Works through a task loop, again and again."""

from __future__ import annotations

import contextvars
import enum
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from jobboard import arguments, codec, outcomes
from jobboard.conductor.handlers import fresh
from jobboard.conductor.signals import stopped_by_signals
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.forks import ForkGuard
from jobboard.retry import backoff, outage_pause
from jobboard.taskloop.loop import ONE_HOUR, Held, IdsLost, TaskLoop, number, positive

LOG = logging.getLogger(__name__)

IDLE_BASE, IDLE_CAP = 1.0, 10.0
TOLD_WITHIN = 0.1
"""For how many seconds to gather what has ended, before the loop is told of it in one statement."""


class LoopResult(enum.Enum):
    """How a handler's call has ended."""

    DONE = enum.auto()
    FAILED = enum.auto()
    NOT_BEGUN = enum.auto()


@dataclass(frozen=True)
class LoopTally:
    """What became of the ids so far. ``failed``: their handlers raised; ``lost``: another took them meanwhile, or may
    have; ``returned``: not begun when it was stopped."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    returned: int = 0


class LoopConductor:
    """Gets ids from a task loop, calls a handler for each, and marks those as updated whose handler has returned.

    ::

        LoopConductor("updater-1", loop, update_foo).run()

    While it works it keeps the ids locked, so that ``lock_for`` may be short. An id whose handler raised stays locked
    for ``retry_after``, and then goes before what is unlocked; the error is logged.

    :param name: who works; kept in the table beside the ids that it has.
    :param loop: on a table with the columns that tell who holds an id, see :meth:`TaskLoop.get`. It must be on an
        engine, or on a callable: what it does for one batch must not wait for a transaction of yours.
    :param handler: called with one id at a time, in threads: a plain function, or an instance that has ``__call__``.
    :param limit: how many ids to get at once.
    :param max_simultaneous: how many to work on at once.
    :param lock_for: how soon others may have the ids once this process has died, in seconds; at least 3.
    :param min_loop_time: as :meth:`TaskLoop.get` has it.
    :param retry_after: for how many seconds an id rests after its handler has raised.
    :raises TypeError, ValueError: an argument does not fit.
    """

    def __init__(
        self,
        name: str,
        loop: TaskLoop,
        handler: Callable[[Any], object],
        *,
        limit: int = 100,
        max_simultaneous: int = 8,
        lock_for: float = 60,
        min_loop_time: float = ONE_HOUR,
        retry_after: float = 60,
    ) -> None:
        self._name = codec.check_text("a conductor's name", name)
        self._loop = loop
        self._handler = outcomes.check_handler(handler)
        self._limit = arguments.limit(limit)
        self._slots = arguments.limit(max_simultaneous, "max_simultaneous")
        number("lock_for", lock_for)
        if lock_for < 3:
            raise ValueError(f"lock_for={lock_for!r}: must be 3 seconds or more")
        self._lock_for = lock_for
        self._min_loop_time = number("min_loop_time", min_loop_time)
        self._retry_after = positive("retry_after", retry_after)
        self._stopping = threading.Event()
        self._tally = LoopTally()
        # That of the caller of run(), of which the work on each id gets a copy.
        self._context = contextvars.copy_context()

    def __repr__(self) -> str:
        return f"<LoopConductor {self._name!r} of {self._loop!r}>"

    @property
    def tally(self) -> LoopTally:
        """What it has done so far."""
        return self._tally

    def stop(self) -> None:
        """Begin no more; :meth:`run` returns once the work at hand is done. A stopped conductor stays stopped."""
        self._stopping.set()

    def run(self, max_batches: int | None = None) -> None:
        """Work until :meth:`stop`, or for so many batches.

        In the main thread SIGTERM and SIGINT stop it too; a second SIGINT, a second or more later, ends the process. A
        database that can't be reached is tried again for as long as it takes.

        :raises JobFailure: the database refuses, for want of a table or its columns.
        :raises TypeError, ValueError: ``max_batches`` is no int, or less than 1.
        """
        limit = None if max_batches is None else arguments.limit(max_batches, "max_batches")
        self._context = contextvars.copy_context()
        batches = idle = 0
        with stopped_by_signals(self._name, self.stop), ThreadPoolExecutor(self._slots, self._name) as pool:
            try:
                while not self._stopping.is_set() and (limit is None or batches < limit):
                    held = self._get()
                    if held:
                        batches, idle = batches + 1, 0
                        self._work(pool, held)
                    else:
                        idle += 1
                        self._stopping.wait(backoff(idle, IDLE_BASE, IDLE_CAP))
            finally:
                # After an error nobody is left to tell the loop of what is not begun.
                pool.shutdown(cancel_futures=True)

    def _get(self) -> Held | None:
        try:
            found = self._loop.get(self._limit, self._lock_for, self._min_loop_time, who=self._name)
        except ConnectionFailure as error:
            LOG.warning("%s could not get ids, and will try again: %s", self._name, error)
            return None
        assert isinstance(found, Held)
        return found

    def _work(self, pool: ThreadPoolExecutor, held: Held) -> None:
        pending: dict[Future[LoopResult], Any] = {}
        begun: set[Any] = set()
        try:
            for id_ in held:
                pending[pool.submit(fresh(self._context).run, self._call, id_, begun)] = id_
            self._follow(held, pending)
        except BaseException:
            # No thread could be started, say. Nobody goes on with these ids.
            pool.shutdown(cancel_futures=True)
            done = [id_ for future, id_ in pending.items() if id_ in begun and future.result() is LoopResult.DONE]
            self._give_back(held.only(done), held.only(id_ for id_ in held if id_ not in begun))
            raise

    def _give_back(self, done: Held, rest: Held) -> None:
        try:
            if done:
                self._loop.did(done)
            if rest:
                self._loop.unlock(rest)
        except JobFailure as error:
            LOG.error("%s leaves %d ids locked: %s", self._name, len(done) + len(rest), error)

    def _follow(self, held: Held, pending: dict[Future[LoopResult], Any]) -> None:
        """Tell the loop what becomes of the ids that are being worked on."""
        extend_at = time.monotonic() + self._lock_for / 3
        while pending:
            # What has ended is told while the rest goes on, or a crash would have all of the batch done again.
            ended, _ = wait(pending, max(0, extend_at - time.monotonic()), FIRST_COMPLETED)
            if ended:
                ended, _ = wait(pending, TOLD_WITHIN)
            results: dict[LoopResult, list[Any]] = {result: [] for result in LoopResult}
            for future in ended:
                results[future.result()].append(pending.pop(future))
            if pending and time.monotonic() >= extend_at:
                extend_at = time.monotonic() + self._lock_for / 3
                # What is lost already is found out when it is done, too: a bumped id may still be nobody else's.
                rest = held.only(pending.values())
                self._tell(rest, lambda held: self._loop.extend(held, self._lock_for))
            done = self._tell(held.only(results[LoopResult.DONE]), lambda held: self._loop.did(held, strict=True))
            failed = self._tell(
                held.only(results[LoopResult.FAILED]), lambda held: self._loop.extend(held, self._retry_after)
            )
            returned = self._tell(
                held.only(results[LoopResult.NOT_BEGUN]), lambda held: self._loop.unlock(held, strict=True)
            )
            was = self._tally
            self._tally = LoopTally(
                was.done + done,
                was.failed + failed,
                was.lost + len(ended) - done - failed - returned,
                was.returned + returned,
            )

    def _call(self, id_: Any, begun: set[Any]) -> LoopResult:
        if self._stopping.is_set():
            return LoopResult.NOT_BEGUN
        begun.add(id_)
        try:
            with ForkGuard():
                outcomes.check_result(self._handler(id_))
        except BaseException as error:
            LOG.warning("%s: %r raised %s", self._name, id_, type(error).__name__, exc_info=True)
            return LoopResult.FAILED
        return LoopResult.DONE

    def _tell(self, held: Held, verb: Callable[[Held], int]) -> int:
        """Tell the loop what became of ids; of how many it could still be told."""
        failures = 0
        while held:
            try:
                return verb(held)
            except IdsLost as error:
                LOG.warning("%s: %s", self._name, error)
                return len(held) - len(error.ids)
            except ConnectionFailure as error:
                if self._stopping.is_set():
                    LOG.error("%s leaves %d ids to be done again: %s", self._name, len(held), error)
                    break
                failures += 1
                pause = outage_pause(failures)
                LOG.warning("%s could not tell of its work, trying again in %.1f s: %s", self._name, pause, error)
                self._stopping.wait(pause)
        return 0
