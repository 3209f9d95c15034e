"""Handlers that run in processes: one for each slot, so that killing one harms no other job."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from jobboard.conductor import child
from jobboard.conductor.handlers import Ending, Handlers, ending_of, timed_out
from jobboard.conductor.slots import Reports, Run
from jobboard.exceptions import JobFailure
from jobboard.job import Claim

TICK = 0.1
"""Seconds between two looks at the clock and the claim while a handler is at work."""

START_LIMIT = 60.0
"""Seconds for a process to start and to import the handlers."""

END_LIMIT = 5.0
"""Seconds for an idle process to end by itself."""


_IMPORTABLE = (
    "what runs in processes must be importable by its name: define it at the top level of a module, or run handlers in "
    "threads"
)


class WorkerDied(Exception):
    """The process of a handler ended in the middle of its job."""


def check_importable(handler: object) -> None:
    """What can be seen of a function while its module is still being made.

    :raises TypeError: no other process would find it by its name.
    """
    name = getattr(handler, "__qualname__", "")
    if "<" in name:
        raise TypeError(f"{_IMPORTABLE} (this is {name})")


def packed(handlers: Handlers) -> bytes:
    """The handlers as they travel.

    :raises TypeError: one of them can't, as another process would not find it by its name.
    """
    try:
        return pickle.dumps(handlers)
    except Exception as error:
        raise TypeError(f"{_IMPORTABLE} ({error})") from error


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Have a process that this thread starts inherit that the conductor's signals are blocked. They would end a process
    that has not begun to ignore them, and its job would have failed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, child.SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Process:
    """A process that runs handlers, seen from the conductor."""

    def __init__(self, name: str, handlers: bytes) -> None:
        # Not forked: threads, locks and connections of this process are nothing that a handler should inherit.
        context = multiprocessing.get_context("spawn")
        self._connection: Connection
        self._connection, other = context.Pipe()
        # Of one machine, so that both have one clock.
        self._lease = context.RawValue("d", math.inf)
        self._process = context.Process(target=child.main, args=(other, handlers, self._lease), name=name)
        # Where this has to start one, it unblocks the signals of this thread.
        resource_tracker.ensure_running()
        with _signals_blocked():
            self._process.start()
        other.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def send(self, message: object) -> None:
        """Nothing if it is dead: that is seen where its answer is missing."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def tell(self, claim: Claim) -> None:
        """How the claim of the job at hand stands."""
        self._lease.value = child.lease_of(claim)

    def answers(self, seconds: float) -> bool:
        """Whether it has answered, or died."""
        # What it has forked may hold the other end of the pipe open.
        return self._connection.poll(seconds) or not self.alive

    def answer(self) -> Any:
        """What it has answered; to be asked for once it has, or has died.

        :raises WorkerDied: it died instead.
        """
        try:
            if not self._connection.poll():
                raise EOFError
            return self._connection.recv()
        except (EOFError, OSError):
            # It has died a moment ago, so that nobody else can have its id, or that of its group.
            self._kill_group()
            self.kill()
            code = self._process.exitcode or 0
            how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it exited with status {code}"
            raise WorkerDied(f"the process of the handler died: {how}") from None

    def kill(self) -> None:
        """It, and what its handler has started."""
        if self.alive:
            self._kill_group()
            self._process.kill()
        self._join()
        self._connection.close()

    def end(self) -> None:
        self.send(child.END)
        self._join()
        self.kill()

    def _kill_group(self) -> None:
        # It has none before it has begun; and the BSDs refuse it for one in which all are dead.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.ident or 0, signal.SIGKILL)

    def _join(self) -> None:
        until = time.monotonic() + END_LIMIT
        # join() alone waits for the end of a pipe that what it has forked may hold open, too.
        while self.alive and time.monotonic() < until:
            if wait([self._process.sentinel], TICK):
                break
        self._process.join(TICK)


class _UnwantedError(Exception):
    """The conductor waits for the job no longer."""


class ProcessWorker:
    """Has a process call the handlers; another one after it had to be killed or has died."""

    def __init__(self, name: str, reports: Reports, handlers: bytes) -> None:
        self._name = name
        self._reports = reports
        self._handlers = handlers
        self._process: Process | None = None

    def work(self, run: Run) -> None:
        try:
            process = self._process if self._process is not None and self._process.alive else self._start(run)
            assert run.job.claim is not None
            process.tell(run.job.claim)
            self._reports.begun(run)
            process.send(child.task_of(run.job))
            report = self._await(process, run, run.handling.timeout)
            if report is None:
                self._drop()
                ending = timed_out(run.handling, run.job, run.seconds())
            else:
                ending = _received(report)
        except _UnwantedError:
            self._drop()
            return
        except Exception as error:  # noqa: BLE001 - a process that can't be started, or a job that can't travel
            self._drop()
            # Where in this process that was found out says nothing.
            ending = ending_of(error.with_traceback(None), run.job, run.handling, run.seconds())
        self._reports.ended(run, ending)

    def close(self) -> None:
        if self._process is not None:
            self._process.end()

    def _start(self, run: Run) -> Process:
        self._drop()
        self._process = Process(self._name, self._handlers)
        answer = self._await(self._process, run, START_LIMIT)
        if answer is None:
            raise WorkerDied(
                f"the process for the handler did not start within {START_LIMIT:g} s: its start includes the import of "
                "the handlers' modules"
            )
        if isinstance(answer, child.Broken):
            raise WorkerDied(f"the process for the handler could not load the handlers:\n{answer.trace}")
        return self._process

    def _await(self, process: Process, run: Run, limit: float | None) -> Any:
        """What the process answers; None if it does not within ``limit`` seconds."""
        until = math.inf if limit is None else time.monotonic() + limit
        assert run.job.claim is not None
        while not process.answers(max(0.0, min(TICK, until - time.monotonic()))):
            if run.decided:
                raise _UnwantedError
            if time.monotonic() >= until:
                return None
            process.tell(run.job.claim)
        return process.answer()

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _received(report: child.Report) -> Ending:
    if report.trace is None:
        return report.ending
    error: BaseException
    try:
        error = pickle.loads(report.error or b"")
        error.add_note(f"In the process of the handler:\n{report.trace}")
    except Exception:  # noqa: BLE001 - errors of the user's own classes do what they like
        error = JobFailure(f"the handler raised an error that can't be unpickled; its traceback:\n{report.trace}")
    return report.ending._replace(error=error)
