"""Handlers that run in the threads of the conductor itself."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import traceback
from collections.abc import Sequence

from jobboard import logs
from jobboard.conductor.handlers import Wrapper, fresh, perform, timed_out
from jobboard.conductor.slots import Reports, Run
from jobboard.standing import Trigger
from jobboard.threads import started

LOG = logs.Log(__name__)


class ThreadWorker:
    """Calls handlers in the thread of its slot, each in a fresh copy of ``context``."""

    def __init__(
        self, reports: Reports, wrappers: Sequence[Wrapper], timekeeper: Timekeeper, context: contextvars.Context
    ) -> None:
        self._reports = reports
        self._wrappers = wrappers
        self._timekeeper = timekeeper
        self._context = context

    def work(self, run: Run) -> None:
        self._reports.begun(run)
        timed = run.handling.timeout is not None
        if timed:
            self._timekeeper.watch(run)
        ending = fresh(self._context).run(perform, run.handling, self._wrappers, run.job)
        if timed:
            self._timekeeper.forget(run)
        self._reports.ended(run, ending)

    def close(self) -> None: ...


class Timekeeper:
    """Gives up the runs that take too long.

    A thread can't be killed: it is told (``job.claim.lost``, and so :func:`jobboard.cancelled`), what it returns does
    not count, and its slot stays taken until it ends.
    """

    def __init__(self, name: str, reports: Reports) -> None:
        self._name = name
        self._reports = reports
        self._runs: dict[Run, int] = {}
        self._hung: set[Run] = set()
        self._news = threading.Condition()
        self._until: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def hung(self) -> int:
        """How many handlers go on though they were given up."""
        return len(self._hung)

    def watch(self, run: Run) -> None:
        """From the thread that calls the handler."""
        with self._news:
            if self._thread is None:
                self._thread = started(f"{self._name}-timekeeper", self._keep)
            self._runs[run] = threading.get_ident()
            deadline = run.deadline
            if self._until is None or (deadline is not None and deadline < self._until):
                self._news.notify()

    def forget(self, run: Run) -> None:
        with self._news:
            self._runs.pop(run, None)
            self._hung.discard(run)

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()

    def _keep(self) -> None:
        with self._news:
            while not self._closed:
                deadlines = {run: run.deadline for run in self._runs}
                self._until = min((each for each in deadlines.values() if each is not None), default=None)
                now = time.monotonic()
                if self._until is None or self._until > now:
                    self._news.wait(None if self._until is None else self._until - now)
                    continue
                for run, deadline in deadlines.items():
                    if deadline is not None and deadline <= now:
                        self._give_up(run, self._runs.pop(run))

    def _give_up(self, run: Run, thread: int) -> None:
        frame = sys._current_frames().get(thread)
        where = "" if frame is None else "".join(["Where it was:\n", *traceback.format_stack(frame)])
        if self._reports.ended(run, timed_out(run.handling, run.job, run.seconds(), where)):
            assert run.job.claim is not None
            run.job.claim._step(Trigger.GIVEN_UP)
            self._hung.add(run)
            what = "is still at work after its timeout, and keeps its slot until it ends: so do"
            LOG.warning("%s: %s %s %d now", self._name, run.job, what, self.hung, extra=logs.fields(run.job))
