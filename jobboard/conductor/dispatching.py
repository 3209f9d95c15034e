"""What all conductors are made of: claims, hands out, and ends. Where handlers run is for those to say."""

from __future__ import annotations

import abc
import contextlib
import contextvars
import dataclasses
import datetime
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from jobboard import arguments, codec, logs
from jobboard.base import BATCH
from jobboard.board import JobBoard
from jobboard.conductor import events
from jobboard.conductor.calling import Registering
from jobboard.conductor.finishing import End, Finisher, Tally
from jobboard.conductor.handlers import Ending, Handler, Handlers, Handling, Wrapper
from jobboard.conductor.presence import Presence
from jobboard.conductor.scheduling import Scheduler
from jobboard.conductor.signals import stopped_by_signals
from jobboard.conductor.slots import Places, Run
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.job import Claim, Job
from jobboard.notifier import Notifier, check_callback
from jobboard.outcomes import GIVEN_BACK, RetryPolicy, refused_work
from jobboard.retry import outage_pause
from jobboard.standing import Trigger
from jobboard.threads import started

LOG = logs.Log(__name__)

RESERVE, RESERVED = 1.0, 0.2
"""Of the drain's time, so many seconds at most, and such a part of it at most, are kept for handing over."""

GLANCE = 1.0
"""Every so many seconds the main thread looks whether a signal has come."""

_THE_CONDUCTORS: Any = object()
"""The timeout that the conductor has for all."""

Posted = TypeVar("Posted")
"""What its board's ``post`` answers."""

W = TypeVar("W", bound=Wrapper)


class Dispatcher(abc.ABC, Generic[Posted]):
    """A conductor but for the places where its handlers run. Its arguments are those of
    :class:`~jobboard.conductor.Conductor`."""

    _workers: str
    """What it calls its places, among the entities."""

    _coroutines = False
    """Whether handlers may be coroutine functions."""

    def __init__(
        self,
        name: str,
        board: JobBoard,
        handlers: Mapping[str, Handler] | Handler | None,
        max_simultaneous_jobs: int,
        job_timeout: float | datetime.timedelta | None,
        drain_timeout: float | datetime.timedelta | None,
        retry: RetryPolicy | None,
        on_error: Callable[[Job, BaseException], object] | None,
        schedules: bool,
        extra: dict[str, Any],
    ) -> None:
        self._name = codec.check_text("a conductor's name", name)
        self._board = board
        self._count = arguments.limit(max_simultaneous_jobs, "max_simultaneous_jobs")
        self._timeout = arguments.seconds("job_timeout", job_timeout, positive=True)
        self._drain_timeout = arguments.seconds("drain_timeout", drain_timeout)
        self._retry = retry
        self._schedules = schedules
        known = board.engine.extras.get("claim_many", frozenset())
        self._extra = arguments.extras(board._conf.scheme, type(self).__name__, extra, known, type(self))
        self._notifier = Notifier(name, events=events.EVENTS)
        if on_error is not None:
            tell = self._listener(on_error)
            check_callback("on_error", tell)
            self._notifier.register(events.JOB_FAILED, lambda event, told: tell(told["job"], told["error"]))
        self._handlers = Handlers()
        if isinstance(handlers, Mapping):
            for job_name, handler in handlers.items():
                self._handlers.add(job_name, self._handling(handler))
        elif handlers is not None:
            self._handlers.any = self._handling(handlers)
        self._stopping = threading.Event()
        self._dispatching = False
        self._ran = False
        # Two for one lock: many a change makes room for more jobs, and few concern whoever waits for the end.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        # Jobs whose outcome the finisher has not got yet.
        self._unhandled: set[Run] = set()
        # Claims that have not ended, of jobs whose handlers have, included.
        self._open = 0
        self._counts = dict.fromkeys((field.name for field in dataclasses.fields(Tally)), 0)
        self._claiming = False
        self._over = False
        self._called_off = False
        self._broken: BaseException | None = None
        # That of the caller of run(), of which each job gets a copy.
        self._context = contextvars.copy_context()
        self._stopped_at: float | None = None
        self._places: Places
        self._finisher: Finisher

    def __repr__(self) -> str:
        return f"<Conductor {self._name!r} of {self._board!r}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def tally(self) -> Tally:
        """What came of the jobs so far."""
        return Tally(**self._counts)

    @property
    def dispatching(self) -> bool:
        """Whether ``run()`` is under way, its draining included."""
        return self._dispatching

    def handles(
        self,
        *names: str,
        retry: RetryPolicy | None = None,
        timeout: float | datetime.timedelta | None = _THE_CONDUCTORS,
    ) -> Registering[Posted]:
        """``@conductor.handles('resize')``: have jobs of these names handled by the function below.

        What is positional in its signature gets the job; what is keyword-only gets the detail of its name. A function
        has ``post`` from then on: ``resize.post(path="a.jpg")`` posts a job with these details on the conductor's
        board; see :class:`~jobboard.conductor.calling.Poster`.

        :param retry: for these jobs, instead of the conductor's own.
        :param timeout: for these jobs, instead of the conductor's ``job_timeout``; None for no limit.
        :raises TypeError: no names; or, from the decorator, a handler, a name or a limit that does not fit.
        :raises ValueError: from the decorator: one of the names, or any name, has a handler already; a name or a limit
            that does not fit.
        :raises RuntimeError: the conductor is running, and its handlers in processes.
        """
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError("handles() needs the names of the jobs to handle, as in handles('resize')")
        self._check_open()

        def register(handler: Handler) -> None:
            handling = self._handling(handler, retry, timeout)
            for name in names:
                self._handlers.add(name, handling)
            # The claim that waits does so for the names from before.
            self._board.wake()

        return Registering(register, self._post, names)

    @property
    @abc.abstractmethod
    def _post(self) -> Callable[..., Posted]:
        """Its board's."""

    def wraps(self, wrapper: W) -> W:
        """Run each handler within a context: ``wrapper(job)`` gives a context manager, which is entered before the
        handler is called and left after it, with what it raised. Of several, the first one is outermost.

        An exception of the context counts as one of the handler, and one that it swallows has not been raised.

        :raises TypeError: it can't be called; or no other process could import it, where handlers run in processes.
        :raises RuntimeError: the conductor is running, and its handlers in processes.
        """
        if not callable(wrapper):
            raise TypeError(f"what wraps handlers must be callable with a job, not {type(wrapper).__name__}")
        self._check_open()
        self._check(wrapper)
        self._handlers.wrappers.append(wrapper)
        return wrapper

    @abc.abstractmethod
    def _make_places(self) -> Places:
        """Where handlers run from now on."""

    def _listener(self, callback: Callable[..., object]) -> Callable[..., object]:
        """What the thread of the listeners calls for it."""
        return callback

    def _check(self, called: object) -> None:
        """:raises TypeError: a handler, or what wraps them, can't run there."""

    def _check_open(self) -> None:
        """:raises RuntimeError: it is too late to add anything."""

    def _handling(
        self,
        handler: Handler,
        retry: RetryPolicy | None = None,
        timeout: float | datetime.timedelta | None = _THE_CONDUCTORS,
    ) -> Handling:
        self._check(handler)
        limit = self._timeout if timeout is _THE_CONDUCTORS else arguments.seconds("timeout", timeout, positive=True)
        return Handling(handler, retry or self._retry, limit, self._coroutines)

    @contextlib.contextmanager
    def _running(self, max_dispatches: int | None, signals: bool = True) -> Iterator[int | None]:
        """Within, it runs; what it is limited to.

        :param signals: whether SIGTERM and SIGINT stop it.
        """
        limit = None if max_dispatches is None else arguments.limit(max_dispatches, "max_dispatches")
        if not self._handlers:
            raise ValueError(f"the conductor {self._name!r} has no handlers: give it some, or add them with handles()")
        if self._board._conf["read_only"]:
            raise ValueError(f"{self._board} is opened for looking only: leave out read_only to work on it")
        ours = False
        try:
            with self._changed:
                if self._dispatching:
                    raise RuntimeError(
                        f"the conductor {self._name!r} is running already: make another to run beside it"
                    )
                ours = self._dispatching = True
            self._context = contextvars.copy_context()
            with contextlib.ExitStack() as stack:
                if signals:
                    stack.enter_context(stopped_by_signals(self._name, self.stop, lambda: len(self._unhandled)))
                yield limit
        finally:
            if ours:
                with self._changed:
                    self._dispatching, self._ran = False, True
                    self._changed.notify_all()

    def stop(self) -> None:
        """Claim no more; ``run()`` returns once the work at hand is done.

        A stopped conductor stays stopped, also when it was not running yet. Not for signal handlers of one's own.
        """
        with self._changed:
            self._stopped_at = time.monotonic() if self._stopped_at is None else self._stopped_at
            self._stopping.set()
            self._changed.notify_all()
            self._room.notify()
        self._board.wake()

    def _has_ended(self) -> bool:
        """Whether ``run()`` has returned, or was stopped before it began; to be asked under the lock."""
        return not self._dispatching and (self._ran or self._stopping.is_set())

    def _run(self, limit: int | None) -> None:
        with self._board._borrowed(self._left):
            self._run_connected(limit)

    def _run_connected(self, limit: int | None) -> None:
        self._over, self._called_off, self._broken, self._claiming = False, False, None, True
        presence = Presence(self._name, lambda: self._handlers.names, self._workers, self._count, self._told)
        self._finisher = Finisher(self._name, self._board, self._counted)
        self._places = self._make_places()
        scheduler = Scheduler(self._name, self._board, self._stopping.is_set)
        try:
            self._finisher.start()
            if self._schedules:
                scheduler.start()
            # Not on this thread: a request that the backend does not answer must not hold up the end.
            started(f"{self._name}-claimer", self._claim, limit, presence)
            try:
                self._wait_for_work()
            except BaseException:
                # A signal handler of the caller's own has raised.
                self.stop()
                self._wait_for_work()
                raise
        except RuntimeError:
            # No thread could be started.
            raise
        except BaseException:
            # Nobody is left to work on the jobs that the claimer takes.
            self.stop()
            raise
        finally:
            scheduler.stop()
            with self._changed:
                self._over = True
            self._give_back(list(self._unhandled))
            self._places.close(self._left())
            self._finisher.close(self._left(), lambda: self._leave(presence))
            self._notifier.close(self._left())
        if self._broken is not None:
            raise self._broken

    def _wait_for_work(self) -> None:
        """Until there is nothing more to claim and to work on, or no time."""
        with self._changed:
            while (self._claiming or self._unhandled) and not self._called_off:
                left = self._left(self._reserve())
                if left is not None and left <= 0:
                    return
                # A signal that comes just before a thread goes to sleep on a lock does not wake it.
                self._changed.wait(GLANCE if left is None else min(left, GLANCE))

    def _left(self, reserve: float = 0.0) -> float | None:
        """Seconds until this has to end; None for no limit."""
        if self._drain_timeout is None or self._stopped_at is None:
            return None
        return max(0.0, self._stopped_at + self._drain_timeout - reserve - time.monotonic())

    def _reserve(self) -> float:
        """What is kept of the drain's time for handing over."""
        return min(RESERVE, (self._drain_timeout or 0.0) * RESERVED)

    def _give_back(self, runs: Iterable[Run]) -> None:
        for run in runs:
            if run.decide():
                LOG.warning("%s gives %s back, as it has to end", self._name, run.job, extra=logs.fields(run.job))
                self._finisher.put(run.job, GIVEN_BACK)
                _claim_of(run.job)._step(Trigger.GIVEN_UP)
                self._unhandled.discard(run)

    # Claiming

    def _claim(self, limit: int | None, presence: Presence) -> None:
        try:
            self._claim_on(limit, presence)
        except BaseException as error:  # noqa: BLE001 - run() raises it
            self._broken = error
        finally:
            with self._changed:
                self._claiming = False
                self._changed.notify_all()

    def _claim_on(self, limit: int | None, presence: Presence) -> None:
        begun = failures = 0
        registered = False
        while not self._stopping.is_set() and (limit is None or begun < limit):
            free = self._wait_for_slots()
            # By one request each, so that work on the first of many begins while the next are claimed.
            want = min(free, BATCH) if limit is None else min(free, BATCH, limit - begun)
            if not want:
                continue
            names = self._handlers.names
            try:
                if not registered:
                    self._show(presence)
                    registered = True
                jobs = self._board.claim_many(
                    self._name,
                    want,
                    names=names,
                    timeout=None,
                    unless=functools.partial(self._called_away, names),
                    **self._extra,
                )
            except JobBoardError as error:
                if self._board.closed:
                    raise
                failures += 1
                pause = outage_pause(failures)
                LOG.warning("%s could not claim, trying again in %.1f s: %s", self._name, pause, error)
                self._stopping.wait(pause)
                continue
            failures = 0
            begun += len(jobs)
            self._begin(jobs)

    def _called_away(self, names: tuple[str, ...] | None) -> bool:
        """Whether a claim of jobs of these names need wait no longer."""
        return self._stopping.is_set() or self._handlers.names != names

    def _begin(self, jobs: list[Job]) -> None:
        claimed = [Run(job, self._handlers.of(job)) for job in jobs]
        # Each before it shows as work that is under way.
        refused = {run: verdict for run in claimed if (verdict := refused_work(run.job, run.handling.retry))}
        runs = [run for run in claimed if run not in refused]
        with self._changed:
            over = self._over
            if not over:
                self._unhandled.update(runs)
                self._open += len(jobs)
                self._counts["dispatched"] += len(jobs)
        if over:
            # They came too late, after an outage: nobody is left to work on them.
            self._board._give_back(jobs)
            return
        try:
            self._tell((events.JOB_CLAIMED, job) for job in jobs)
            for run, verdict in refused.items():
                self._finisher.put(run.job, verdict)
            self._places.put(runs)
        except BaseException:
            self._give_back(runs)
            raise

    def _wait_for_slots(self) -> int:
        """How many jobs may be claimed now; 0 only when stopping."""
        with self._lock:
            self._room.wait_for(lambda: self._stopping.is_set() or self._free() > 0)
            return 0 if self._stopping.is_set() else self._free()

    def _free(self) -> int:
        # While results pile up, taking on more work would only make more of it to be done again after a crash.
        return min(self._places.free, 2 * self._count - self._open)

    def _told(self) -> dict[str, int]:
        """What others see of this one."""
        with self._lock:
            return {"running": len(self._unhandled), "hung": self._places.hung, **self._counts}

    def _show(self, presence: Presence) -> None:
        """:raises ConnectionFailure: the backend can't be reached."""
        try:
            self._board.register_entity(presence)
        except ConnectionFailure:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the jobs can be done
            LOG.warning("%s does not show among the entities: %s", self._name, error)

    def _leave(self, presence: Presence) -> None:
        try:
            self._board.deregister_entity(presence)
        except JobBoardError as error:
            LOG.warning("%s shows among the entities for a while: %s", self._name, error)

    # What becomes of the jobs

    def begun(self, run: Run) -> None:
        run.began = time.monotonic()
        if self._notifier.listened_to:
            self._notifier.notify(events.JOB_STARTED, {"job": run.job})

    def ended(self, run: Run, ending: Ending) -> bool:
        job = run.job
        if not run.decide():
            what = "ended after it was given up, and does not count"
            LOG.warning("%s: the work on %s %s", self._name, job, what, extra=logs.fields(job))
            return False
        self._tell_of_end(job, ending)
        self._finisher.put(job, ending.outcome)
        self._unhandled.discard(run)
        if not self._unhandled:
            with self._changed:
                self._changed.notify_all()
        return True

    def _tell_of_end(self, job: Job, ending: Ending) -> None:
        outcome, error, failed, seconds = ending
        if error is not None:
            what, extra = type(error).__name__, logs.fields(job)
            LOG.info("%s: the handler of %s raised %s", self._name, job, what, exc_info=error, extra=extra)
        if outcome.result is not None and outcome.result.refused is not None:
            why = outcome.result.refused
            LOG.warning("%s: the result of %s is not kept: %s", self._name, job, why, extra=logs.fields(job))
        if self._notifier.listened_to:
            told = {"job": job, "seconds": seconds, "error": error}
            self._notifier.notify(events.JOB_FINISHED, told)
            if failed:
                self._notifier.notify(events.JOB_FAILED, told)

    def _counted(self, ends: list[End]) -> None:
        with self._lock:
            self._open -= len(ends)
            for event, count in Counter([event for event, _ in ends]).items():
                self._counts[event.removeprefix("job_")] += count
            self._room.notify()
        self._tell(ends)

    def _tell(self, happened: Iterable[End]) -> None:
        for event, job in happened if self._notifier.listened_to else ():
            self._notifier.notify(event, {"job": job})


def _claim_of(job: Job) -> Claim:
    assert job.claim is not None
    return job.claim
