"""Claims jobs, runs their handlers, and ends each claim by what became of the work::

    conductor = Conductor("resizer", board)

    @conductor.handles("resize")
    def resize(job):
        ...

    conductor.run()

A handler that returns has its job consumed. One that raises has it abandoned, to be tried again after a backoff, with
the traceback in ``job.error``; :class:`~jobboard.outcomes.Retry` and :class:`~jobboard.outcomes.Reject` steer.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeVar

from jobboard import arguments, codec, outcomes
from jobboard.base import BATCH
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobBoardError, JobFailures, NotFound
from jobboard.job import Act, Entity, Job
from jobboard.outcomes import Outcome
from jobboard.retry import backoff
from jobboard.states import COMPLETE, TRASHED

LOG = logging.getLogger(__name__)

Handler = Callable[[Job], object]
F = TypeVar("F", bound=Handler)

OUTAGE_BASE = 0.1
OUTAGE_CAP = 5.0
IMPATIENCE = 1.0
"""A SIGINT that follows another after so many seconds means it: the process ends at once."""


@dataclass(frozen=True)
class Tally:
    """What a conductor has done so far. ``lost``: results that did not count, as the claim was no longer the
    conductor's, or the backend could not be reached any more to hand them over."""

    dispatched: int = 0
    consumed: int = 0
    abandoned: int = 0
    trashed: int = 0
    lost: int = 0


class _Done:
    """A job whose handler has ended, and how its claim is to end."""

    __slots__ = ("act", "doubtful", "job")

    def __init__(self, job: Job, outcome: Outcome) -> None:
        self.job = job
        self.act = Act(job, outcome.verb, outcome.delay, outcome.error)
        # An earlier try to end the claim may have been carried out without our hearing of it.
        self.doubtful = False


class Conductor:
    """Works on the jobs of a board, several at once, each in a thread.

    :param name: who claims; also shown among the board's entities, as a ``conductor``.
    :param board: connected by :meth:`run` if it is not, and then closed by it too.
    :param handlers: job names and what to call with a :class:`~jobboard.job.Job` of each, or one callable for the jobs
        of any name; with a mapping (or :meth:`handles`) only jobs of those names are claimed.
    :param max_simultaneous_jobs: how many jobs at once. At most twice as many are claimed at any time: those that run,
        and those that are done and about to be finished.
    :param extra: further arguments of the board's ``claim_many``, ``where=`` on SQL for instance.
    """

    def __init__(
        self,
        name: str,
        board: JobBoard,
        handlers: Mapping[str, Handler] | Handler | None = None,
        *,
        max_simultaneous_jobs: int = 8,
        **extra: Any,
    ) -> None:
        self._name = codec.check_text("a conductor's name", name)
        self._board = board
        self._any: Handler | None = None
        self._handlers: dict[str, Handler] = {}
        self._slots = arguments.limit(max_simultaneous_jobs)
        self._extra = extra
        if isinstance(handlers, Mapping):
            for job_name, handler in handlers.items():
                self._add(job_name, handler)
        elif handlers is not None:
            self._any = _checked(handlers)
        self._stopping = threading.Event()
        self._dispatching = False
        self._ran = False
        self._running = 0
        # Claims that have not ended, of jobs whose handlers have, included.
        self._open = 0
        self._tally = Tally()
        self._changed = threading.Condition()
        # Set when nobody is working any more: what can't be handed over now is given up.
        self._hurry = threading.Event()
        self._done: queue.SimpleQueue[_Done | None] = queue.SimpleQueue()

    def __repr__(self) -> str:
        return f"<Conductor {self._name!r} of {self._board!r}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def board(self) -> JobBoard:
        return self._board

    @property
    def tally(self) -> Tally:
        """What came of the jobs so far."""
        return self._tally

    @property
    def dispatching(self) -> bool:
        """Whether :meth:`run` is under way, its draining included."""
        return self._dispatching

    def handles(self, *names: str) -> Callable[[F], F]:
        """``@conductor.handles('resize')``: have jobs of these names handled by the function below."""
        if not names:
            raise TypeError("handles() takes the names of the jobs to handle")

        def register(handler: F) -> F:
            for name in names:
                self._add(name, handler)
            return handler

        return register

    def _add(self, name: str, handler: Handler) -> None:
        codec.check_text("a job's name", name)
        if self._any is not None:
            raise ValueError("this conductor has one handler for the jobs of any name")
        if name in self._handlers:
            raise ValueError(f"jobs named {name!r} have a handler already")
        self._handlers[name] = _checked(handler)

    def run(self, max_dispatches: int | None = None) -> None:
        """Work until :meth:`stop`, or until ``max_dispatches`` jobs have been begun; then finish what was begun.

        In the main thread SIGTERM and SIGINT stop it too, for as long as it runs; a second SIGINT, a second or more
        later, ends the process. A backend that can't be reached later on is tried again for as long as it takes.

        :raises ConnectionFailure: the backend can't be reached at the start, or the board was closed meanwhile.
        """
        limit = None if max_dispatches is None else arguments.limit(max_dispatches)
        if self._any is None and not self._handlers:
            raise ValueError(f"the conductor {self._name!r} has no handlers")
        with self._changed:
            if self._dispatching:
                raise RuntimeError(f"the conductor {self._name!r} is running already")
            self._dispatching = True
        try:
            with self._signals(), self._connected():
                self._run(limit)
        finally:
            with self._changed:
                self._dispatching, self._ran = False, True
                self._changed.notify_all()

    def stop(self) -> None:
        """Claim no more; :meth:`run` returns once the work at hand is done.

        A stopped conductor stays stopped, also when it was not running yet. Not for signal handlers of one's own.
        """
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._board.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`run` has returned; False if it has not after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._dispatching and (self._ran or self._stopping.is_set()), timeout
            )

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        if self._board.connected:
            yield
            return
        self._board.connect()
        try:
            yield
        finally:
            self._board.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Drain on SIGTERM and SIGINT, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # A signal's handler runs between any two instructions of this very thread, which may hold any lock: it only
        # puts into the one queue that allows for that, and another thread does the rest.
        came: queue.SimpleQueue[int] = queue.SimpleQueue()
        interrupted: list[float] = []

        def handler(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGINT:
                interrupted.append(time.monotonic())
                if interrupted[-1] - interrupted[0] >= IMPATIENCE:
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                    os.kill(os.getpid(), signal.SIGINT)
            came.put(number)

        def watch() -> None:
            while number := came.get():
                LOG.info("%s: stopping on %s", self._name, signal.Signals(number).name)
                self.stop()

        watcher = threading.Thread(target=watch, name=f"{self._name}-signals", daemon=True)
        watcher.start()
        # What a shell has had ignored, as it does for SIGINT in the background, stays ignored.
        numbers = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
        previous = {number: signal.signal(number, handler) for number in numbers}
        try:
            yield
        finally:
            for number, old in previous.items():
                # None: not installed from Python, and so not to be put back from there.
                signal.signal(number, signal.SIG_DFL if old is None else old)
            came.put(0)
            watcher.join()

    def _run(self, limit: int | None) -> None:
        self._hurry.clear()
        finisher = threading.Thread(target=self._finish_all, name=f"{self._name}-finisher", daemon=True)
        finisher.start()
        pool = ThreadPoolExecutor(self._slots, thread_name_prefix=self._name)
        try:
            self._dispatch(pool, limit)
        finally:
            with self._changed:
                self._changed.wait_for(lambda: self._running == 0)
            pool.shutdown()
            self._hurry.set()
            self._done.put(None)
            finisher.join()

    # Claiming

    def _dispatch(self, pool: ThreadPoolExecutor, limit: int | None) -> None:
        begun = failures = 0
        registered = False
        while not self._stopping.is_set() and (limit is None or begun < limit):
            free = self._wait_for_slots()
            want = free if limit is None else min(free, limit - begun)
            if not want:
                continue
            try:
                if not registered:
                    self._register()
                    registered = True
                jobs = self._board.claim_many(
                    self._name,
                    want,
                    names=None if self._any else tuple(self._handlers),
                    timeout=None,
                    unless=self._stopping.is_set,
                    **self._extra,
                )
            except JobBoardError as error:
                if not self._board.connected:
                    raise
                failures += 1
                pause = backoff(failures, OUTAGE_BASE, OUTAGE_CAP)
                LOG.warning("%s could not claim, trying again in %.1f s: %s", self._name, pause, error)
                self._stopping.wait(pause)
                continue
            failures = 0
            begun += len(jobs)
            with self._changed:
                self._running += len(jobs)
                self._open += len(jobs)
                self._tally = replace(self._tally, dispatched=self._tally.dispatched + len(jobs))
            for job in jobs:
                pool.submit(self._work, job)

    def _wait_for_slots(self) -> int:
        """How many jobs may be claimed now; 0 only when stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or self._free() > 0)
            return 0 if self._stopping.is_set() else self._free()

    def _free(self) -> int:
        # While results pile up, taking on more work would only make more of it to be done again after a crash.
        return min(self._slots - self._running, 2 * self._slots - self._open)

    def _register(self) -> None:
        metadata = {"host": socket.gethostname(), "pid": os.getpid(), "names": sorted(self._handlers) or None}
        self._board.register_entity(Entity("conductor", self._name, metadata))

    # Working

    def _work(self, job: Job) -> None:
        try:
            handler = self._any or self._handlers[job.name]
            error: BaseException | None = None
            try:
                with outcomes.working_on(job):
                    _check_result(handler(job))
            except BaseException as raised:
                error = raised
                LOG.info("%s: %s raised %s", self._name, job, type(raised).__name__, exc_info=True)
            self._done.put(_Done(job, _outcome(error, job)))
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    # Finishing

    def _finish_all(self) -> None:
        """Ends claims as their jobs are done: one at once, and together what comes in meanwhile."""
        failures = 0
        batch: list[_Done] = []
        last = False
        while batch or not last:
            last = self._gather(batch, last)
            final = self._hurry.is_set()
            try:
                self._finish(batch)
                failures = 0
            except ConnectionFailure as error:
                for done in batch:
                    done.doubtful = done.doubtful or error.outcome == "unknown"
                if final or not self._board.connected:
                    LOG.error("%s leaves %d jobs to be done again: %s", self._name, len(batch), error)
                    self._count(lost=len(batch))
                    batch.clear()
                else:
                    failures += 1
                    pause = backoff(failures, OUTAGE_BASE, OUTAGE_CAP)
                    LOG.warning("%s could not finish, trying again in %.1f s: %s", self._name, pause, error)
                    self._hurry.wait(pause)

    def _gather(self, batch: list[_Done], last: bool) -> bool:
        """Fill up ``batch`` with what is done, waiting for the first; whether that was all there will ever be."""
        with contextlib.suppress(queue.Empty):
            while not last and len(batch) < BATCH:
                done = self._done.get(block=not batch)
                if done is None:
                    return True
                if done.job.claim is not None and done.job.claim.ended:
                    self._count_end(done.job)
                else:
                    batch.append(done)
        return last

    def _finish(self, batch: list[_Done]) -> None:
        """End the claims of ``batch`` and empty it; what is left in it after an error has not been ended."""
        if not batch:
            return
        failed: dict[Job, Exception] = {}
        try:
            self._board.finish_many([done.act for done in batch], self._name)
        except JobFailures as failures:
            failed = {failure.job: failure for failure in failures.exceptions if isinstance(failure, JobBoardError)}
        except ConnectionFailure:
            raise
        except Exception as error:
            if len(batch) > 1:
                # One of them is to blame; the others must not suffer for it.
                while batch:
                    self._finish(batch[:1])
                    del batch[0]
                return
            LOG.exception("%s could not finish %s", self._name, batch[0].job)
            failed = {batch[0].job: error}
            with contextlib.suppress(Exception):
                self._board.abandon(batch[0].job, self._name, delay=OUTAGE_CAP)
        for done in batch:
            if done.job in failed:
                self._not_counted(done, failed[done.job])
            else:
                self._count_end(done.job)
        batch.clear()

    def _not_counted(self, done: _Done, error: Exception) -> None:
        if done.doubtful and isinstance(error, ClaimLost | NotFound):
            LOG.warning("%s: %s was finished by a try without an answer, or its claim is lost", self._name, done.job)
        else:
            LOG.warning("%s: the work on %s does not count: %s", self._name, done.job, error)
        self._count(lost=1)

    def _count_end(self, job: Job) -> None:
        if job.seen_state == COMPLETE:
            self._count(consumed=1)
        elif job.seen_state == TRASHED:
            self._count(trashed=1)
            LOG.warning("%s: %s is in the trash: %s", self._name, job, _last_line(job.error))
        else:
            self._count(abandoned=1)
            LOG.warning("%s: %s is to be tried again: %s", self._name, job, _last_line(job.error))

    def _count(self, **more: int) -> None:
        """Note how so many claims have ended."""
        with self._changed:
            self._open -= sum(more.values())
            self._tally = replace(self._tally, **{key: getattr(self._tally, key) + n for key, n in more.items()})
            self._changed.notify_all()


def _checked(handler: Any) -> Handler:
    if not callable(handler):
        raise TypeError(f"a handler must be callable, not {type(handler).__name__}")
    if inspect.iscoroutinefunction(handler) or inspect.isgeneratorfunction(handler):
        raise TypeError(
            "a handler must be a plain function: to call a coroutine or generator function is not to run it"
        )
    return handler  # type: ignore[no-any-return]


def _check_result(result: object) -> None:
    """A handler that answers a promise of work has done none: its job must not be consumed."""
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"the handler returned a {type(result).__name__}, which nobody runs")


def _outcome(error: BaseException | None, job: Job) -> Outcome:
    """The outcome of ``error``; one that asks for what can't be done is a failure like any other."""
    try:
        outcome = outcomes.outcome_of(error, job)
        arguments.micros("delay", outcome.delay)
        codec.clip_error(outcome.error)
    except Exception as mistake:
        LOG.exception("the handler of %s asked for what can't be done", job)
        return outcomes.outcome_of(mistake, job)
    return outcome


def _last_line(error: str | None) -> str:
    return (error or "").strip().rpartition("\n")[2] or "no reason given"
