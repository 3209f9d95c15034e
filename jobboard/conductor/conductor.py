"""The conductor: claims jobs, has workers run their handlers, and ends each claim by the outcome of the work."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jobboard import arguments, codec, logs, outcomes, runtime
from jobboard.board import JobBoard
from jobboard.conductor import events, processes, workers
from jobboard.conductor.details import Invalid, Takes, Unknown
from jobboard.conductor.finisher import Tally
from jobboard.conductor.handlers import Handler, Handlers, Handling, Wrapper
from jobboard.conductor.poster import Registering
from jobboard.conductor.runs import GLANCE, Run, Runs
from jobboard.conductor.scheduler import Scheduler
from jobboard.conductor.signals import stopped_by_signals
from jobboard.exceptions import ConnectionFailure, JobBoardError
from jobboard.job import ClaimedJob, Job
from jobboard.notifier import Notifier, check_callback
from jobboard.outcomes import RetryPolicy
from jobboard.primitives import BATCH
from jobboard.retry import outage_backoff
from jobboard.threads import started

if TYPE_CHECKING:
    from jobboard.sqltypes import Condition

LOG = logs.Log(__name__)

KINDS = {kind.name: kind for kind in (workers.THREADS, processes.PROCESSES)}

RESERVE, RESERVED = 1.0, 0.2
"""The time that a drain keeps for handing over the ends of jobs: at most these seconds, and this share of the drain."""

PRECEDENCE = 2.0
"""The longest wait for the ends of finished work before the first claim after an outage, in seconds."""

NAMED = 10
"""The number of job names that a summary shows."""

UNSET: Any = object()
"""The timeout that the conductor has for all jobs."""

W = TypeVar("W", bound=Wrapper)


class Conductor:
    """Works on the jobs of a board, several at once.

    :param name: the name of the worker in claims, and of the entity of kind ``conductor`` that the board shows. None
        makes one of the host, the process id and a random suffix. Conductors that run at the same time need names of
        their own, or nobody can tell which of them holds a job.
    :param board: the board. :meth:`run` connects a closed board and closes it at its end. Of several conductors that
        run on it at the same time, the last one closes it.
    :param handlers: a mapping of job names to handlers, or one handler for the jobs of any name. A handler is called
        with a :class:`~jobboard.job.Job`. With a mapping, or :meth:`handles`, only jobs of these names are claimed.
    :param max_simultaneous_jobs: the number of jobs at work at once. :meth:`handles` takes a lower limit for jobs of
        its names. At most twice as many jobs are claimed at any time: running jobs, and done jobs whose claims are
        about to end.
    :param workers: ``threads`` of this process, or ``processes``: each slot has a process, which is started when it is
        first needed and used for many jobs. Handlers for processes must be importable by name, and a program that runs
        them as a script needs ``if __name__ == "__main__":``. Their job can be read, but does not know its board.
    :param job_timeout: seconds, or a timedelta, after which a handler is given up, and its job abandoned as a failure;
        :meth:`handles` takes another for its own. A process is killed, with all that the handler has started. A thread
        is told by ``job.claim.lost`` and :func:`jobboard.cancelled`, its result does not count, and it keeps its slot
        until it ends. Its claim has ended by then: a limit of the board does not count the thread. Choose processes
        where no more than so many handlers may ever run.
    :param drain_timeout: seconds, or a timedelta, after :meth:`stop`, or a signal, within which :meth:`run` returns.
        Jobs that still run by then are given back, and that attempt does not count. None sets no limit.
    :param cancel_grace: seconds, or a timedelta, that a handler in a process has to end once its job was taken away, as
        by :meth:`cancel(running=True) <jobboard.board.JobBoard.cancel>`. :class:`~jobboard.outcomes.Cancelled` is
        raised in the handler. A process that goes on is killed, with all that the handler has started. A thread is told
        as after ``job_timeout``.
    :param max_jobs_per_process: the number of jobs after which a process is replaced, as handlers may leak memory. The
        old process has ended before the slot takes another job, for which the next one starts. None: never.
    :param retry: the time at which failed jobs come back; :meth:`handles` takes another policy for its own.
    :param on_error: called with the job and the exception of each handler that failed (not of Retry, Reject and
        Cancelled), on the thread of the listeners; an error of its own is logged and does no harm.
    :param on_success: called in the same way with each consumed job and its result as stored, after the commit. The
        result is None without ``keep_done``. A process that dies in between calls nothing: post follow-ups by
        :class:`~jobboard.followups.Then`.
    :param schedules: also post the due jobs of the board's schedules, of all names.
    :param where: on SQL, claim only jobs for which this condition on ``board.table`` holds.
    :param extra: arguments that a third party's backend adds to ``claim_many``.
    :raises TypeError, ValueError: an argument does not fit.

    ``name`` and ``board`` are attributes, too. ``notifier`` reports the ends of jobs: the events of
    :mod:`jobboard.conductor.events`.
    """

    def __init__(
        self,
        name: str | None,
        board: JobBoard,
        handlers: Mapping[str, Handler] | Handler | None = None,
        *,
        max_simultaneous_jobs: int = 8,
        workers: Literal["threads", "processes"] | workers.Kind = "threads",
        job_timeout: float | datetime.timedelta | None = None,
        drain_timeout: float | datetime.timedelta | None = None,
        cancel_grace: float | datetime.timedelta = 10.0,
        max_jobs_per_process: int | None = None,
        retry: RetryPolicy | None = None,
        on_error: Callable[[ClaimedJob, BaseException], object] | None = None,
        on_success: Callable[[ClaimedJob, Any], object] | None = None,
        schedules: bool = True,
        where: Condition | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        name = arguments.worker_name() if name is None else name
        kind = KINDS.get(workers) if isinstance(workers, str) else workers
        if kind is None:
            raise ValueError(f"workers={workers!r}: must be one of {', '.join(KINDS)}")
        self._kind = kind
        self.name = codec.check_text("a conductor's name", name)
        self.board = board
        self._slots = arguments.limit(max_simultaneous_jobs, "max_simultaneous_jobs")
        self._timeout = arguments.seconds("job_timeout", job_timeout, positive=True)
        self._drain_timeout = arguments.seconds("drain_timeout", drain_timeout)
        self._grace = arguments.seconds("cancel_grace", cancel_grace) or 0.0
        self._per_process = max_jobs_per_process
        if max_jobs_per_process is not None:
            arguments.limit(max_jobs_per_process, "max_jobs_per_process")
            if kind is not processes.PROCESSES:
                raise ValueError(
                    f"max_jobs_per_process={max_jobs_per_process}: handlers run in {kind.name}: add workers='processes'"
                )
        self._retry = retry
        self._schedules = schedules
        # The board checks the names of all its arguments before the first claim.
        self._extra: dict[str, Any] = {"where": where, "extra": extra}
        board.wanted("claim_many", name, None, None, where, extra)
        self.notifier = Notifier(name, events=events.EVENTS)
        if on_error is not None:
            check_callback("on_error", on_error)
            self.notifier.register(events.JOB_FAILED, lambda event, told: on_error(told["job"], told["error"]))
        if on_success is not None:
            check_callback("on_success", on_success)
            decoded = board.results.decoded
            self.notifier.register(
                events.JOB_CONSUMED, lambda event, told: on_success(told["job"], decoded(told["job"].claim.returned))
            )
        self._handlers = Handlers()
        if isinstance(handlers, Mapping):
            for job_name, handler in handlers.items():
                self._handlers.add(job_name, self._handling(handler))
        elif handlers is not None:
            self._handlers.any = self._handling(handlers)
        self._tally = Counter({field.name: 0 for field in dataclasses.fields(Tally)})
        self._changed = runtime.Condition()
        self._dispatching = self._ran = False
        self._stopping = runtime.Event()
        self._stopped_at: float | None = None
        self._drains = True
        self._runs: Runs | None = None

    def __repr__(self) -> str:
        return f"<Conductor {self.name!r} of {self.board!r}>"

    @property
    def tally(self) -> Tally:
        """The counts of jobs by their outcome so far."""
        return Tally(**self._tally)

    @property
    def summary(self) -> str:
        """The names of the jobs, the number of slots and the kind of workers, in words."""
        names = [] if self._handlers.any else list(self._handlers.named)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        jobs = ", ".join(names[:NAMED]) + more or "jobs of any name"
        return f"{jobs}; {self._slots} at once, in {self._kind.name}"

    @property
    def dispatching(self) -> bool:
        """True while ``run()`` is under way, its draining included."""
        return self._dispatching

    @property
    def alive(self) -> bool:
        """True before :meth:`run`, and while its thread has looked within three ``claim_ttl``. False once it has
        returned. A conductor that waits for a job, for room or for the backend looks each second."""
        if not self._dispatching:
            return not self._ran
        return (runs := self._runs) is None or runs.is_alive

    @property
    def ready(self) -> bool:
        """True while :meth:`run` takes jobs: it is not draining, and its board is connected. A lost connection shows
        here on ZooKeeper alone; :func:`jobboard.conductor.health.serving` asks the backend."""
        return self._dispatching and not self._stopping.is_set() and self.board.connected

    @property
    def handlers(self) -> Any:
        """The handlers with their options, as another conductor takes them: ``Conductor(None, another_board,
        conductor.handlers)``. A mapping, or one handler for jobs of any name; None before there is one."""
        return self._handlers.any or self._handlers.named or None

    # Handlers

    def handles(
        self,
        *names: str,
        retry: RetryPolicy | None = None,
        timeout: float | datetime.timedelta | None = UNSET,
        max_simultaneous: int | None = None,
        invalid: Invalid = "retry",
        unknown: Unknown = "ignore",
    ) -> Registering[Job]:
        """``@conductor.handles('resize')``: have jobs of these names handled by the function below.

        A positional parameter receives the job. A keyword-only parameter receives the detail of the same name, checked
        and converted by its annotation. A positional parameter that is a dataclass, a TypedDict or a pydantic model
        receives all details. A function has ``post`` from then on: ``resize.post(path="a.jpg")`` posts a job with these
        details on the conductor's board; see :class:`~jobboard.conductor.poster.Poster`.

        :param retry: for these jobs, instead of the conductor's own.
        :param timeout: for these jobs, instead of the conductor's ``job_timeout``; None for no limit. A thread goes on
            after it, and no limit of the board counts the thread: see ``job_timeout``.
        :param max_simultaneous: how many jobs of each of these names run at once in this conductor, so that slow jobs
            leave slots to others. The conductor claims no more of them than it can begin. None: up to
            ``max_simultaneous_jobs``.
        :param invalid: what becomes of a job whose details do not fit the handler: the call fails like any other
            (``retry``), or the job goes to the trash.
        :param unknown: what becomes of a job with details that the handler does not take. The handler does not see them
            (``ignore``), the job comes back without using up an attempt (``retry``), or it goes to the trash. Unknown
            details are looked for before ``invalid`` counts.
        :raises TypeError: no names; or, from the decorator, a handler, an annotation, a name or a limit that does not
            fit.
        :raises MissingDriver: from the decorator: an annotation needs a conversion, and pydantic is not installed.
        :raises ValueError: from the decorator: one of the names, or any name, has a handler already; a name or a limit
            that does not fit.
        :raises RuntimeError: the conductor is running, and its handlers in processes.
        """
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError("handles() needs the names of the jobs to handle, as in handles('resize')")
        self._check_open()

        def register(handler: Handler) -> Handling:
            handling = self._handling(handler, retry, timeout, max_simultaneous, invalid, unknown)
            for name in names:
                self._handlers.add(name, handling)
            # A claim that is waiting knows only the earlier names.
            self.board.wake()
            return handling

        return Registering(register, self.board.post, names)

    def wraps(self, wrapper: W) -> W:
        """Run each handler within the context manager that ``wrapper(job)`` returns.

        The context is entered before the handler is called, and left after it, with its exception. Of several wrappers
        the first one is outermost. An exception of the context counts as one of the handler. An exception that the
        context swallows has not been raised.

        :raises TypeError: the wrapper can't be called.
        :raises RuntimeError: the conductor is running, and its handlers in processes.
        """
        if not callable(wrapper):
            raise TypeError(f"a wrapper of handlers must be callable with a job, not {type(wrapper).__name__}")
        self._check_open()
        self._handlers.wrappers.append(wrapper)
        return wrapper

    def _handling(
        self,
        handler: Handler | Handling,
        retry: RetryPolicy | None = None,
        timeout: float | datetime.timedelta | None = UNSET,
        max_simultaneous: int | None = None,
        invalid: Invalid = "retry",
        unknown: Unknown = "ignore",
    ) -> Handling:
        takes = None
        if isinstance(handler, Handling):
            # Another conductor has registered it. Its own options go before those of this conductor.
            own, takes, handler = handler, handler.takes, handler.handler
            retry, max_simultaneous = own.retry, own.max_simultaneous
            timeout = UNSET if own.timeout is None else own.timeout
        outcomes.check_handler(handler, self._kind.coroutines)
        policy = retry or self._retry
        if not isinstance(policy, RetryPolicy | None):
            raise TypeError(f"retry must be a RetryPolicy, not {type(policy).__name__}")
        if timeout is not UNSET:
            timeout = arguments.seconds("timeout", timeout, positive=True)
        if max_simultaneous is not None:
            arguments.limit(max_simultaneous, "max_simultaneous")
        return Handling(
            handler=handler,
            takes=takes or Takes.of(handler, invalid, unknown),
            retry=policy,
            timeout=self._timeout if timeout is UNSET else timeout,
            max_simultaneous=max_simultaneous,
        )

    def _check_open(self) -> None:
        if self._kind.fixed and self._dispatching:
            raise RuntimeError(
                f"the conductor {self.name!r} is running, and its {self._kind.name} know only the handlers from "
                "before: add others before run()"
            )

    # Life

    def run(self, max_dispatches: int | None = None, *, until_empty: bool = False) -> None:
        """Work until :meth:`stop`, or until ``max_dispatches`` jobs have begun; then finish the begun jobs.

        :param until_empty: also return once nothing can be done: no job of the handled names can be claimed, and this
            conductor holds none, so that none is given back or followed up. Due schedules are posted before. Scheduled,
            paused and limited jobs do not count, nor do the claims of other conductors. A handler that hangs in the
            last slot, or in the last of its name, does.

        In the main thread SIGTERM, SIGINT and SIGHUP stop it too, for as long as it runs; a second SIGINT ends the
        process. SIGHUP is left to a program that handles or ignores it. A backend that can't be reached later on is
        tried again for as long as it takes.

        :raises ConnectionFailure: the board was not connected and its backend can't be reached, or the board was closed
            meanwhile.
        :raises JobFailure: the backend refuses the first claim, for want of rights for example. A later refusal is
            repeated, as an outage is.
        :raises ValueError: there are no handlers, ``max_dispatches`` is less than 1, or the board is ``read_only``.
        :raises TypeError: ``max_dispatches`` is no int; or no other process could import a handler that runs in one.
        :raises RuntimeError: it is running already; or the system lets it start no thread. Claimed jobs are given back.
        """
        limit = None if max_dispatches is None else arguments.limit(max_dispatches, "max_dispatches")
        if not self._handlers:
            raise ValueError(f"the conductor {self.name!r} has no handlers: give it some, or add them with handles()")
        if self.board.options["read_only"]:
            raise ValueError(f"{self.board} is opened for looking only: leave out read_only to work on it")
        ours = False
        try:
            with self._changed:
                if self._dispatching:
                    raise RuntimeError(f"the conductor {self.name!r} is running already: make another to run beside it")
                ours = self._dispatching = True
                self._runs = None
            with stopped_by_signals(self.name, self.stop, lambda: self.at_work), self.board.borrowed(self._left):
                self._run(limit, until_empty)
        finally:
            if ours:
                with self._changed:
                    self._dispatching, self._ran = False, True
                    self._changed.notify_all()

    def stop(self, drain: bool = True) -> None:
        """Claim no more jobs. ``run()`` returns once the running jobs are done.

        A stopped conductor stays stopped, also if it has not run yet. Do not call this in a signal handler: it takes
        locks.

        :param drain: False gives the running jobs back at once, as at the end of ``drain_timeout``.
        """
        with self._changed:
            self._stopped_at = runtime.monotonic() if self._stopped_at is None else self._stopped_at
            self._drains = self._drains and drain
            self._stopping.set()
            self._changed.notify_all()
        if (runs := self._runs) is not None:
            runs.wake()
        self.board.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`run` has returned; False if it has not after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._dispatching and (self._ran or self._stopping.is_set()), timeout
            )

    @property
    def at_work(self) -> int:
        """The number of jobs at work, in the workers or before them."""
        return 0 if self._runs is None else self._runs.at_work

    def _run(self, limit: int | None, until_empty: bool) -> None:
        self._runs = runs = Runs(
            self.name,
            self.board,
            self._kind.name,
            self._slots,
            self._handlers,
            self.notifier,
            self._stopping,
            self._tally,
            self._grace,
            self._per_process,
            until_empty,
        )
        scheduler = Scheduler(self.name, self.board)
        pool = self._kind.start(runs)
        broken: list[BaseException] = []

        def claim() -> None:
            try:
                self._claim(limit, runs, pool)
            except BaseException as error:  # noqa: BLE001 - run() raises it
                broken.append(error)
            finally:
                runs.note_last_claim()
                if runs.closed:
                    # The claimer may have shown the conductor after the finisher has hidden it.
                    self._leave(runs)

        try:
            runs.finisher.start()
            if self._schedules:
                scheduler.start()
            # Not on this thread: a request that the backend does not answer must not hold up the end.
            started(f"{self.name}-claimer", claim)
            try:
                self._wait_for_work(runs, pool)
            except BaseException:
                # The caller's own signal handler has raised.
                self.stop()
                self._wait_for_work(runs, pool)
                raise
        finally:
            runs.close()
            left = self._left()
            # The other half is for handing over.
            pool.close(None if left is None else left / 2)
            runs.finisher.close(self._left(), lambda: self._leave(runs))
            if runs.claims:
                LOG.error("%s leaves jobs to be done again: they could not be handed over in time", self.name)
            scheduler.stop(self._left())
            self.notifier.close(self._left())
        for error in broken:
            raise error

    def _wait_for_work(self, runs: Runs, pool: workers.WorkerThreads) -> None:
        """Wait until no job is left to claim or to run, or the time is up."""
        while self._drains:
            pool.look()
            left = self._left(min(RESERVE, (self._drain_timeout or 0.0) * RESERVED))
            if left == 0 or runs.wait(GLANCE if left is None else min(left, GLANCE)):
                return

    def _left(self, reserve: float = 0.0) -> float | None:
        """Return the seconds until the conductor must end; None for no limit."""
        if self._drain_timeout is None or self._stopped_at is None:
            return None
        return max(0.0, self._stopped_at + self._drain_timeout - reserve - runtime.monotonic())

    def _leave(self, runs: Runs) -> None:
        try:
            self.board.deregister_entity(runs)
        except JobBoardError as error:
            # The end of a board removes its entities.
            if not self.board.closed:
                LOG.warning("%s shows among the entities for a while: %s", self.name, error)

    # Claiming

    def _claim(self, limit: int | None, runs: Runs, pool: workers.WorkerThreads) -> None:
        begun = failures = 0
        has_claimed = was_away = False
        # The life of the board in which the entity was registered: the end of a board removes its entities.
        shown: str | None = None
        while (limit is None or begun < limit) and (room := runs.wait_for_room()):
            # One request each: work on the first jobs begins while the next jobs are claimed.
            most = min(room, BATCH) if limit is None else min(room, BATCH, limit - begun)
            try:
                if shown != (handle := self.board.engine.handle):
                    self._show(runs)
                    if shown is None:
                        self._warn_of_limits()
                    shown = handle
                if was_away:
                    runs.finisher.note_outage()
                    was_away = False
                self._catch_up(runs)
                found, is_last = 0, runs.has_nothing
                if is_last and self._schedules:
                    self.board.post_due()
                for count, names, waits in runs.wishes(most):
                    with runs.finisher.claiming():
                        jobs = self.board.claim_many(
                            self.name,
                            count,
                            names=names,
                            timeout=None if waits else 0,
                            unless=functools.partial(runs.called_off, names) if waits else None,
                            **self._extra,
                        )
                        has_claimed = True
                        found += len(jobs)
                        begun += self._begin(jobs, runs, pool)
                    if len(jobs) < count:
                        break
                failures = 0
                if is_last and not found:
                    return
            except JobBoardError as error:
                # Only an administrator can lift a refusal, so the first refusal ends the run.
                is_refusal = not isinstance(error, ConnectionFailure) or error.refused
                if self.board.closed:
                    closed = f"{self.board} was closed while the conductor {self.name!r} worked"
                    raise ConnectionFailure(f"{closed}: leave it open, in handlers too", error) from error
                if is_refusal and not has_claimed:
                    raise
                was_away = isinstance(error, ConnectionFailure)
                failures += 1
                pause = outage_backoff(failures)
                LOG.warning("%s could not claim, trying again in %.1f s: %s", self.name, pause, error)
                self._stopping.wait(pause)

    def _catch_up(self, runs: Runs) -> None:
        """Have the ends that an outage has held up tried before the next claim."""
        while (untried := runs.finisher.untried) and not runs.stopped:
            self.board.engine.read(untried[:1])
            runs.finisher.catch_up(PRECEDENCE)

    def _begin(self, jobs: Sequence[ClaimedJob], runs: Runs, pool: workers.WorkerThreads) -> int:
        """Begin the work on claimed jobs, and return their number, without jobs whose work has ended before."""
        try:
            jobs = runs.finisher.take_over(jobs)
            claimed = [Run(job, self._handlers.of(job)) for job in jobs]
            # Before the job is shown as running.
            ends = {run: outcomes.refused_work(run.job, run.handling.retry) for run in claimed}
        except BaseException:
            # Only this thread knows these jobs. Without this, the board would renew their claims for ever.
            self.board.give_back(jobs)
            raise
        allowed = [run for run, end in ends.items() if end is None]
        if not runs.add(allowed, [(run.job, end) for run, end in ends.items() if end is not None]):
            # These claims arrived too late, after an outage: no worker is left to run the jobs.
            self.board.give_back(jobs)
            return 0
        try:
            pool.put(allowed)
        except BaseException:
            runs.give_back(allowed)
            raise
        return len(jobs)

    def _warn_of_limits(self) -> None:
        """Warn of handlers in threads that may outlast their claim, and so exceed a limit of their name."""
        timed = {
            name: handling
            for name, handling in [(None, self._handlers.any), *self._handlers.named.items()]
            if handling is not None and handling.timeout is not None and not handling.is_coroutine
        }
        if self._kind.fixed or not timed:
            return
        try:
            limited = {limit.name for limit in self.board.limits() if limit.concurrency is not None}
        except JobBoardError:
            # The claim that comes next says why.
            return
        if names := sorted(limited if None in timed else limited & timed.keys()):
            LOG.warning(
                "%s: %s: a concurrency limit counts claims, not threads: a handler that goes on after its timeout runs "
                "beside the next one; workers='processes' kills it",
                self.name,
                ", ".join(map(repr, names)),
            )

    def _show(self, runs: Runs) -> None:
        """
        :raises ConnectionFailure: the backend can't be reached.
        """
        try:
            self.board.register_entity(runs)
        except Exception as error:
            # Jobs can be done all the same, unless the backend can't be reached.
            if isinstance(error, ConnectionFailure) and not error.refused:
                raise
            LOG.warning("%s does not show among the entities: %s", self.name, error)
