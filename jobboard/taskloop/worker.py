"""LoopConductor: works through a task loop, again and again."""

from __future__ import annotations

import contextvars
import enum
import logging
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from jobboard import arguments, codec, outcomes, runtime
from jobboard.conductor.signals import stopped_by_signals
from jobboard.exceptions import ConnectionFailure
from jobboard.forks import ForkGuard
from jobboard.retry import backoff, outage_backoff
from jobboard.taskloop.loop import ONE_HOUR, Held, IdsLost, TaskLoop, checked_positive, checked_seconds

LOG = logging.getLogger(__name__)

IDLE_BASE, IDLE_CAP = 1.0, 10.0
TOLD_WITHIN = 0.1
"""The seconds for which ended ids are gathered, before one statement writes them."""


class LoopResult(enum.Enum):
    """The end of a handler's call."""

    DONE = enum.auto()
    FAILED = enum.auto()
    NOT_BEGUN = enum.auto()


@dataclass(frozen=True)
class LoopTally:
    """The numbers of ids so far. ``failed``: the handler raised. ``lost``: another worker took the id, or may have.
    ``returned``: the conductor was stopped before the id began."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    returned: int = 0


class LoopConductor:
    """Gets ids from a task loop, calls a handler for each, and marks an id as updated once its call returns.

    ::

        LoopConductor("updater-1", loop, update_foo).run()

    The conductor keeps the ids locked while it works, so that ``lock_for`` may be short. An id whose call raises stays
    locked for ``retry_after``, and then goes before unlocked ids. The error is logged.

    :param name: the worker's name, which the table keeps beside the locked ids.
    :param loop: a loop on a table with the columns for holders, see :meth:`TaskLoop.get`. It is on an engine or a
        callable, as no batch may wait for a transaction of the caller's.
    :param handler: called with one id at a time, in threads: a function, or an instance with ``__call__``.
    :param limit: the number of ids to get at once.
    :param max_simultaneous: the number of ids to work on at once.
    :param lock_for: the seconds after which other workers get the ids of a dead process; at least 3.
    :param min_loop_time: as for :meth:`TaskLoop.get`.
    :param retry_after: the seconds for which an id rests after its call has raised.
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
        checked_seconds("lock_for", lock_for)
        if lock_for < 3:
            raise ValueError(f"lock_for={lock_for!r}: must be 3 seconds or more")
        self._lock_for = lock_for
        self._min_loop_time = checked_seconds("min_loop_time", min_loop_time)
        self._retry_after = checked_positive("retry_after", retry_after)
        self._stopping = runtime.Event()
        self._tally = LoopTally()
        self._verbs: dict[LoopResult, Callable[[Held], int]] = {
            LoopResult.DONE: lambda held: self._loop.did(held, strict=True),
            LoopResult.FAILED: lambda held: self._loop.extend(held, self._retry_after),
            LoopResult.NOT_BEGUN: lambda held: self._loop.unlock(held, strict=True),
        }

    def __repr__(self) -> str:
        return f"<LoopConductor {self._name!r} of {self._loop!r}>"

    @property
    def tally(self) -> LoopTally:
        """The numbers of ids so far."""
        return self._tally

    def stop(self) -> None:
        """Begin no more ids. :meth:`run` returns once the calls at work have ended; the conductor stays stopped."""
        self._stopping.set()

    def run(self, max_batches: int | None = None) -> None:
        """Work until :meth:`stop`, or for a number of batches.

        In the main thread SIGTERM and SIGINT stop the conductor, too. A second SIGINT, a second or more later, ends the
        process. The conductor waits as long as the database can't be reached.

        :raises JobFailure: the database refuses, as without the table or its columns.
        :raises TypeError, ValueError: ``max_batches`` is no int, or less than 1.
        """
        limit = None if max_batches is None else arguments.limit(max_batches, "max_batches")
        # Each call gets a copy of the context in which run() was called.
        self._context = contextvars.copy_context()
        batches = idle = 0
        with stopped_by_signals(self._name, self.stop), ThreadPoolExecutor(self._slots, self._name) as pool:
            try:
                while not self._stopping.is_set() and (limit is None or batches < limit):
                    if held := self._get():
                        batches, idle = batches + 1, 0
                        self._work(pool, held)
                    else:
                        idle += 1
                        self._stopping.wait(backoff(idle, IDLE_BASE, IDLE_CAP))
            finally:
                # After an error nobody would write the results of further ids.
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
        """Call the handler for these ids, and write the results as the calls end, until all have ended."""
        pending: dict[Future[LoopResult], Any] = {
            pool.submit(self._context.copy().run, self._call, id_): id_ for id_ in held
        }
        extend_at = runtime.monotonic() + self._lock_for / 3
        while pending:
            # Write results while other calls are at work: otherwise a crash would repeat the whole batch.
            ended, _ = wait(pending, max(0, extend_at - runtime.monotonic()), FIRST_COMPLETED)
            if ended:
                ended, _ = wait(pending, TOLD_WITHIN)
            ids: dict[LoopResult, list[Any]] = {result: [] for result in LoopResult}
            for future in ended:
                ids[future.result()].append(pending.pop(future))
            if pending and runtime.monotonic() >= extend_at:
                extend_at = runtime.monotonic() + self._lock_for / 3
                # Ids are found to be lost when their calls end, as nobody else may have a bumped id yet.
                self._tell(held.only(pending.values()), lambda rest: self._loop.extend(rest, self._lock_for))
            counts = {result: self._tell(held.only(ids[result]), verb) for result, verb in self._verbs.items()}
            was = self._tally
            self._tally = LoopTally(
                was.done + counts[LoopResult.DONE],
                was.failed + counts[LoopResult.FAILED],
                was.lost + len(ended) - sum(counts.values()),
                was.returned + counts[LoopResult.NOT_BEGUN],
            )

    def _call(self, id_: Any) -> LoopResult:
        if self._stopping.is_set():
            return LoopResult.NOT_BEGUN
        try:
            with ForkGuard():
                outcomes.check_result(self._handler(id_))
        except BaseException as error:
            LOG.warning("%s: %r raised %s", self._name, id_, type(error).__name__, exc_info=True)
            return LoopResult.FAILED
        return LoopResult.DONE

    def _tell(self, held: Held, verb: Callable[[Held], int]) -> int:
        """Call a verb with ids, through outages, and return the number of ids that were not lost."""
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
                pause = outage_backoff(failures)
                LOG.warning(
                    "%s could not write its results, and will try again in %.1f s: %s", self._name, pause, error
                )
                self._stopping.wait(pause)
        return 0
