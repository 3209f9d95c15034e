"""The jobs at work in one run of a conductor, from the claim until their worker is free again."""

from __future__ import annotations

import contextvars
import math
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobboard import logs, outcomes, runtime
from jobboard.board import JobBoard
from jobboard.conductor import events
from jobboard.conductor.finisher import Finisher
from jobboard.conductor.handlers import Handlers, Handling, timed_out
from jobboard.job import ClaimedJob, Job
from jobboard.notifier import Notifier
from jobboard.primitives import GIVEN_BACK, End
from jobboard.states import Record
from jobboard.threads import stack_of

LOG = logs.Log(__name__)

GLANCE = 1.0
"""Seconds between two looks of the thread of run(). A signal that arrives just before a thread sleeps on a lock does
not wake the thread."""

HANGING = 10
"""The number of jobs whose handlers hang that the metadata name."""


@dataclass(eq=False, slots=True)
class Run:
    """A claimed job on its way through a worker.

    decided: its end is known, and the conductor waits for the handler no longer. hangs: it took too long. thread: the
    id of a thread that can't be ended, and has to be given up after the timeout. claimed: the record of the job as it
    was claimed.
    """

    job: ClaimedJob
    handling: Handling
    # Not the function itself, which may be replaced later.
    began: float = field(default_factory=lambda: runtime.monotonic())  # noqa: PLW0108
    decided: bool = False
    hangs: bool = False
    thread: int | None = None
    claimed: Record = field(init=False)

    def __post_init__(self) -> None:
        self.claimed = self.job.record

    @property
    def deadline(self) -> float:
        """The end of the timeout on the monotonic clock."""
        return math.inf if self.handling.timeout is None else self.began + self.handling.timeout


@dataclass(eq=False)
class Runs:
    """The jobs at work, and the entity that shows them on the board.

    A worker calls for each run, in this order: ``take``, ``begin``, ``end`` and ``free_worker``. A run that takes too
    long, or that the conductor gives back at its own end, is decided before its handler has ended. Its worker stays
    taken until then.

    :param workers: the kind of workers, for the entity.
    :param stopping: set once no more jobs are to be claimed; :meth:`wake` comes next.
    :param tally: the counts that these runs add to.
    :param grace: the seconds that a handler in a process has to end once its job was taken away.
    :param per_process: the number of jobs after which a process is replaced; None for any number.
    :param until_empty: the conductor ends once nothing can be done.

    ``closed`` is set once the conductor ends, whether or not its claimer has ended.
    """

    kind = "conductor"
    name: str
    board: JobBoard
    workers: str
    slots: int
    handlers: Handlers
    notifier: Notifier
    stopping: runtime.Event
    tally: Counter[str]
    grace: float
    per_process: int | None
    until_empty: bool

    def __post_init__(self) -> None:
        self.finisher = Finisher(self.name, self.board, self._count_ends)
        self._began = runtime.monotonic(), runtime.utc_now()
        self._looked, self._ttl = runtime.monotonic(), self.board.characteristics.claim_ttl
        # The context of run(). Each job gets a copy.
        self.context = contextvars.copy_context()
        # Two conditions of one lock: many changes make room for more jobs, and few end the work.
        self._lock = runtime.Lock()
        self._room = runtime.Condition(self._lock)
        self._idle = runtime.Condition(self._lock)
        self._claiming, self.closed = True, False
        # Claims that have not ended, runs that wait for a worker, and runs whose end the finisher has not got.
        self._claims = self._waiting = self._undone = 0
        self._placed: set[Run] = set()
        # Placed runs of the names that have a limit of their own.
        self._by_name: Counter[str] = Counter()

    # For the claimer

    @property
    def stopped(self) -> bool:
        """True once no more jobs are to be claimed."""
        return self.closed or self.stopping.is_set()

    def wait_for_room(self) -> int:
        """Wait until jobs may be claimed, and return how many; 0 once the conductor is stopped."""
        with self._lock:
            self._room.wait_for(lambda: self.stopped or self._free() > 0)
            return 0 if self.stopped else self._free()

    def _free(self) -> int:
        if self._waiting or self.names() == ():
            # Short jobs that wait are done in a moment: few large claims cost less than many small ones.
            return 0
        # While unsent ends pile up, each further job would be one more job to repeat after a crash.
        return min(self.slots - len(self._placed), 2 * self.slots - self._claims)

    def names(self) -> tuple[str, ...] | None:
        """Return the names of which another job may run; None for any name."""
        return None if self.handlers.any else tuple(name for name in self.handlers.named if self._room_for(name) > 0)

    def _room_for(self, name: str) -> float:
        """Return the number of further jobs of this name that may run; infinity for any number."""
        most = self.handlers.named[name].max_simultaneous
        return math.inf if most is None else most - self._by_name[name]

    def called_off(self, names: tuple[str, ...] | None) -> bool:
        """Return whether a claim of jobs of these names should stop waiting."""
        return self.stopped or self.finisher.has_overtaken or self.names() != names or self.has_nothing

    @property
    def has_nothing(self) -> bool:
        """True if the conductor is to end with the next claim in vain: it holds no job, and has room for any."""
        return (
            self.until_empty
            and not self._claims
            and (self.handlers.any is not None or self.names() == tuple(self.handlers.named))
        )

    def wishes(self, most: int) -> Iterator[tuple[int, tuple[str, ...] | None, bool]]:
        """Yield claims to make: how many jobs, of which names, and whether to wait for one.

        A claim takes jobs of any of its names, so that it may ask for no more than each name has room for. A second
        claim, of the names without a limit, fills the other slots.
        """
        names = self.names()
        first = int(min([most, *map(self._room_for, names or ())]))
        yield first, names, not self.has_nothing
        others = tuple(name for name in names or () if self._room_for(name) == math.inf)
        if first < most and others:
            yield most - first, others, False

    def add(self, runs: Sequence[Run], refused: Sequence[tuple[Job, End]]) -> bool:
        """Add runs of claimed jobs. Return False if the conductor has ended meanwhile.

        :param refused: claimed jobs that are not to run, and how their claims are to end.
        """
        jobs = [*(run.job for run in runs), *(job for job, _ in refused)]
        with self._lock:
            if self.closed:
                return False
            self._waiting += len(runs)
            self._undone += len(runs)
            self._claims += len(jobs)
            self.tally["dispatched"] += len(jobs)
            self._placed.update(runs)
            self._by_name.update(run.job.name for run in runs if run.handling.max_simultaneous is not None)
        self._tell((events.JOB_CLAIMED, job) for job in jobs)
        for job, end in refused:
            self.finisher.put(job, end, job.record)
        return True

    def note_last_claim(self) -> None:
        """Note that no more runs are added, as the claimer has ended."""
        self._claiming = False
        self.wake()

    # For workers

    def take(self, run: Run) -> bool:
        """Note that a worker has the run. Return False for a run that must not begin: its job was given back, or taken
        away."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                self._room.notify()
        if run.job.claim.refused and self._decide(run):
            # The board refuses this end, which counts the claim as lost.
            self.finisher.put(run.job, GIVEN_BACK, run.claimed)
            self._count_decided()
        return not run.decided

    def begin(self, run: Run) -> None:
        """Start the clock of the timeout: the handler is about to be called."""
        run.began = runtime.monotonic()
        if run.thread is not None and run.handling.timeout is not None:
            # The thread of run() must now watch the deadline of this run.
            self.wake()
        self.notifier.notify(events.JOB_STARTED, {"job": run.job})

    def end(self, run: Run, end: End, error: BaseException | None = None) -> bool:
        """Decide the run: its handler has ended, or is given up. Return False for a run that was decided before.

        :param error: the error of the handler.
        """
        job = run.job
        if not self._decide(run):
            what = "ended after it was given up, and does not count"
            LOG.warning("%s: the work on %s %s", self.name, job, what, extra=logs.fields(job))
            return False
        if error is not None:
            what = type(error).__name__
            LOG.info("%s: the handler of %s raised %s", self.name, job, what, exc_info=error, extra=logs.fields(job))
        if end.result is not None and end.result.refused is not None:
            why = end.result.refused
            LOG.warning("%s: the result of %s is not kept: %s", self.name, job, why, extra=logs.fields(job))
        told = {"job": job, "seconds": runtime.monotonic() - run.began, "error": error}
        self.notifier.notify(events.JOB_FINISHED, told)
        if error is not None and not isinstance(error, outcomes.STEERING) and not job.claim.lost:
            self.notifier.notify(events.JOB_FAILED, told)
        self.finisher.put(job, end, run.claimed)
        self._count_decided()
        return True

    def free_worker(self, run: Run) -> None:
        """Free the worker of this run."""
        is_limited = run.handling.max_simultaneous is not None
        with self._lock:
            self._placed.discard(run)
            was_full = is_limited and self._room_for(run.job.name) <= 0
            if is_limited:
                self._by_name[run.job.name] -= 1
            if not self._waiting:
                self._room.notify()
        if was_full:
            # The claimer may wait for jobs of other names alone.
            self.board.wake()

    def overdue(self, run: Run, where: str) -> bool:
        """Give up a run that takes too long. Its worker stays taken. Return False for a run that was decided before.

        :param where: the traceback of the handler as it is now.
        """
        if not self.end(run, *timed_out(run.handling, run.job, where)):
            return False
        run.hangs = True
        run.job.claim.give_up()
        return True

    # For the thread of run()

    def wait(self, seconds: float) -> bool:
        """Wait for a change, and give up runs that take too long. Return whether no job is left to claim or to run."""
        with self._lock:
            if not self._claiming and not self._undone:
                return True
            now = runtime.monotonic()
            timed = [run for run in self._placed if run.thread is not None and not run.decided]
            late = [run for run in timed if run.deadline <= now]
            if not late:
                self._idle.wait(min([seconds, *(run.deadline - now for run in timed)]))
        for run in late:
            where = stack_of(run.thread or 0)
            if self.overdue(run, where and f"Where it was:\n{where}"):
                what = "is still at work after its timeout, and keeps its slot until it ends: so do"
                LOG.warning("%s: %s %s %d now", self.name, run.job, what, self.hung, extra=logs.fields(run.job))
        return False

    def look(self) -> None:
        """Note that the thread of run() goes on."""
        self._looked = runtime.monotonic()

    @property
    def is_alive(self) -> bool:
        """True while the thread of run() has looked within three ``claim_ttl``."""
        return runtime.monotonic() - self._looked <= 3 * max(self._ttl, GLANCE)

    def wake(self) -> None:
        """Have the claimer and the thread of run() look again."""
        with self._lock:
            self._room.notify_all()
            self._idle.notify_all()

    def close(self) -> None:
        """Take no more runs, and give back those that are not decided."""
        with self._lock:
            self.closed = True
            self._room.notify_all()
        self.give_back(list(self._placed))

    def give_back(self, runs: Iterable[Run]) -> None:
        for run in runs:
            if self._decide(run):
                LOG.warning("%s gives %s back, as it has to end", self.name, run.job, extra=logs.fields(run.job))
                self.finisher.put(run.job, GIVEN_BACK, run.claimed)
                run.job.claim.give_up()
                self._count_decided()

    # Counts

    @property
    def at_work(self) -> int:
        """The number of jobs whose end is not known yet."""
        return self._undone

    @property
    def claims(self) -> int:
        """The number of claims that have not ended."""
        return self._claims

    @property
    def hung(self) -> int:
        """The number of handlers that still run although they were given up."""
        return sum(run.hangs for run in list(self._placed))

    @property
    def metadata(self) -> dict[str, Any]:
        """The conductor as the board shows it. The board reads this again at each heartbeat."""
        since, started = self._began
        hanging = [run for run in list(self._placed) if run.hangs]
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "workers": self.workers,
            "slots": self.slots,
            "started": started.isoformat(timespec="seconds"),
            "names": None if self.handlers.any else sorted(self.handlers.named),
            # By a clock that does not jump.
            "seconds": round(runtime.monotonic() - since, 3),
            "running": self._undone,
            "hung": len(hanging),
            # When each handler was called, by this machine's clock.
            "hanging": [
                {
                    "uuid": run.job.uuid,
                    "name": run.job.name,
                    "since": runtime.wall_time() + run.began - runtime.monotonic(),
                }
                for run in sorted(hanging, key=lambda run: run.began)[:HANGING]
            ],
            # Readers compare this clock with theirs: the metadata are at most as old as a lease.
            "clock": runtime.wall_time(),
            "claim_ttl": self._ttl,
            # It passes over postings of a higher version, as of a newer key than its own.
            "readable": self.board.engine.raw.readable,
            **self.tally,
        }

    # Within

    def _count_ends(self, ends: Sequence[tuple[str, Job]]) -> None:
        """Count ended claims, each by its event, and notify the listeners."""
        with self._lock:
            self._claims -= len(ends)
            self.tally.update(event.removeprefix("job_") for event, _ in ends)
            self._room.notify()
        if self.has_nothing:
            # The claimer may wait for another job.
            self.board.wake()
        self._tell(ends)

    def _tell(self, happened: Iterable[tuple[str, Job]]) -> None:
        for event, job in happened:
            self.notifier.notify(event, {"job": job})

    def _decide(self, run: Run) -> bool:
        with self._lock:
            decided, run.decided = run.decided, True
        return not decided

    def _count_decided(self) -> None:
        with self._lock:
            self._undone -= 1
            if not self._undone and not self._claiming:
                self._idle.notify_all()
