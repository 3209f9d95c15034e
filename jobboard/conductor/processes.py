"""Worker processes, seen from the conductor: one for each slot, so that killing one harms no other job.

:mod:`jobboard.conductor.child` is the program of the processes. An error of a handler is decided there.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import select
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

from jobboard import followups, outcomes, runtime
from jobboard.conductor import child
from jobboard.conductor.handlers import timed_out
from jobboard.conductor.runs import Run, Runs
from jobboard.conductor.workers import Kind, Worker, WorkerThreads
from jobboard.exceptions import JobFailure
from jobboard.primitives import End
from jobboard.tracing import NO_TRACING, Tracing

TICK = 0.1
"""Seconds between two checks of the timeout and the claim while a handler runs."""

CHUNK = 1 << 16
"""The number of bytes of one write to the pipe, or one read."""

START_LIMIT = 60.0
"""Seconds for a process to start and to import the handlers."""

END_LIMIT = 5.0
"""Seconds for an idle process to end by itself."""


class WorkerDied(Exception):
    """The process of a handler ended in the middle of its job."""


class WorkerProcesses(WorkerThreads):
    """Processes that run handlers, and a thread with each.

    :raises TypeError: another process would not find a handler or a wrapper by its name.
    """

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs)
        try:
            self._handlers = pickle.dumps((runs.handlers, _travelling(runs.board.tracing)))
        except Exception as error:
            raise TypeError(
                "a handler or wrapper that runs in processes must be importable by its name: define it at the top "
                f"level of a module, or run handlers in threads ({error})"
            ) from error

    def close(self, seconds: float | None) -> None:
        until = None if seconds is None else runtime.monotonic() + seconds
        super().close(seconds)
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - runtime.monotonic()))

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        """Work on one run after the other in a process. Start a new process after a killed or dead one."""
        process: Process | None = None

        def work(run: Run) -> None:
            nonlocal process
            done: tuple[End, BaseException | None] | None = None
            try:
                if process is None or not process.alive:
                    process = Process(self._runs.name, self._handlers, self._runs.grace)
                    process.wait_until_ready(run)
                if not run.decided:
                    self._runs.begin(run)
                    done = process.perform(run)
                if done is None:
                    process.kill()
                    if not run.decided:
                        done = _given_up(run)
            except Exception as failure:  # noqa: BLE001 - a process that can't be started, or a job that can't travel
                if process is not None and process.alive:
                    process.kill()
                # The traceback of this process says nothing about the handler.
                done = outcomes.decide_end(failure.with_traceback(None), run.job, run.handling.retry)
            if done is not None:
                self._runs.end(run, *done)
            if process is not None and process.tasks == self._runs.per_process:
                # Before the slot is free: the old and the new process never take memory at once.
                process.end()

        try:
            yield work
        finally:
            if process is not None:
                process.end()


PROCESSES = Kind("processes", WorkerProcesses, fixed=True)


class Process:
    """A process that runs handlers, seen from the conductor.

    tasks: the number of jobs that it got.
    """

    def __init__(self, name: str, handlers: bytes, grace: float) -> None:
        self._grace = grace
        self.tasks = 0
        # Not forked: a handler must not inherit threads, locks and connections of this process.
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        os.set_blocking(self._connection.fileno(), False)
        # Both processes are on one machine and share its clock.
        self._shared = context.RawValue(child.Shared, math.inf, 0)
        self._process = context.Process(target=child.main, args=(other, handlers, self._shared), name=name)
        # If this has to start the tracker, it unblocks the signals of this thread.
        resource_tracker.ensure_running()
        # The process inherits that the conductor's signals are blocked. They would end a process that has not begun to
        # ignore them, and its job would have failed.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, child.SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        other.close()

    @property
    def alive(self) -> bool:
        """False for a killed process, even if the system has not ended it yet."""
        if self._connection.closed or not self._process.is_alive():
            return False
        try:
            # If the program ignores or handles SIGCHLD, the status of a dead process is lost.
            os.kill(self._process.ident or 0, 0)
        except ProcessLookupError:
            return False
        return True

    def wait_until_ready(self, run: Run) -> None:
        """Wait until the process has loaded the handlers, or the run is decided.

        :raises WorkerDied: the process has died before.
        """
        answer = self._exchange(run, START_LIMIT)
        if answer is None and not run.decided:
            raise WorkerDied(
                f"the process for the handler did not start within {START_LIMIT:g} s: its start includes the import of "
                "the handlers' modules"
            )
        if isinstance(answer, child.Report):
            raise WorkerDied(f"the process for the handler could not load the handlers:\n{answer.trace}")

    def perform(self, run: Run) -> tuple[End, BaseException | None] | None:
        """Return how the call of the handler has ended; None if it took too long, or the run is decided.

        :raises WorkerDied: the process has died.
        """
        job, claim, board = run.job, run.job.claim, run.job.board
        self.tasks += 1
        # The cipher stays here.
        keeps = None if board.result_form is None else board.result_form[:2]
        form = board.posting_form
        forms = keeps, form._replace(seal=None), board.engine.wire, form.seal is not None
        task = child.Task(self.tasks, board.opened_record(job), job.opened, job.context, claim.who, claim.token, *forms)
        report = self._exchange(run, run.handling.timeout, child.packed(task))
        return None if report is None else (followups.sealed(job, report.end), _error_of(report))

    def _exchange(self, run: Run, limit: float | None, message: bytes = b"") -> Any:
        """Send a message, and return the answer; None after ``limit`` seconds, or once the run is decided.

        The process may stop at any byte, so neither the message nor the answer is waited for without a limit.

        :raises WorkerDied: the process has died.
        """
        until = math.inf if limit is None else runtime.monotonic() + limit
        pipe, unsent, received = self._connection.fileno(), memoryview(message), bytearray()
        poll = select.poll()
        try:
            while True:
                # The process has to see the loss before it is told to look.
                self._shared.lease = child.lease_of(run.job.claim)
                if message and run.job.claim.refused and self._shared.stopped != self.tasks:
                    self._shared.stopped = self.tasks
                    # It looks there.
                    os.kill(self._process.ident or 0, child.STOP)
                    until = min(until, runtime.monotonic() + self._grace)
                poll.register(pipe, select.POLLIN | (select.POLLOUT if unsent else 0))
                ready = poll.poll(1000 * max(0.0, min(TICK, until - runtime.monotonic())))
                # A fork of the process may hold the other end of the pipe open.
                if not ready and not self.alive and not (ready := poll.poll(0)):
                    raise EOFError
                for _, events in ready:
                    if events & select.POLLOUT:
                        with contextlib.suppress(BlockingIOError):
                            unsent = unsent[os.write(pipe, unsent[:CHUNK]) :]
                    if events & ~select.POLLOUT:
                        read = os.read(pipe, CHUNK)
                        if not read:
                            raise EOFError
                        received += read
                        while len(received) >= (end := child.LENGTH + int.from_bytes(received[: child.LENGTH])):
                            answer = pickle.loads(received[child.LENGTH : end])
                            if not isinstance(answer, child.HandlerNote):
                                return answer
                            del received[:end]
                            unsent = memoryview(bytes(unsent) + _noted(run, answer))
                if run.decided or runtime.monotonic() >= until:
                    return None
        except (EOFError, OSError):
            # It has died a moment ago, so its id and its group's id cannot belong to another process yet.
            self.kill()
            raise WorkerDied(f"the process of the handler died: {_how_ended(self._process.exitcode)}") from None

    def end(self) -> None:
        """Have an idle process end by itself; kill it if it does not."""
        with contextlib.suppress(OSError):
            os.write(self._connection.fileno(), child.packed(None))
        self._join()
        if self.alive:
            self.kill()

    def kill(self) -> None:
        """Kill the process, and what its handler has started."""
        # A process has no group before it has begun, and the BSDs refuse to signal a group of dead processes.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.ident or 0, signal.SIGKILL)
        self._process.kill()
        self._join()
        self._connection.close()

    def _join(self) -> None:
        until = runtime.monotonic() + END_LIMIT
        # A fork of the process may hold open the pipe that a longer join() waits for.
        while self.alive and runtime.monotonic() < until:
            self._process.join(TICK)


def _noted(run: Run, noted: child.HandlerNote) -> bytes:
    """Keep a note of the handler, and return the answer that its process waits for."""
    answer: child.Refusal | None = None
    try:
        board = run.job.board
        board.keep_note(run.job.claim, lambda _: board.sealed_note(noted.note), noted.flush)
    except (JobFailure, ValueError) as error:
        answer = type(error), str(error)
    return child.packed(answer) if noted.waits else b""


def _travelling(tracing: Tracing) -> Tracing:
    """Return the tracing of follow-ups in another process: none if the board's own can't travel."""
    try:
        pickle.dumps(tracing)
    except Exception:  # noqa: BLE001 - objects of the user's own classes do what they like
        return NO_TRACING
    return tracing


def _given_up(run: Run) -> tuple[End, BaseException | None]:
    """Return the end of a call whose process was killed."""
    if run.job.claim.refused:
        return outcomes.decide_end(outcomes.cancelled_work(run.job), run.job)
    return timed_out(run.handling, run.job)


def _how_ended(code: int | None) -> str:
    """Return how a process has ended."""
    if code is None:
        return "its status is unknown, as the program ignores or handles SIGCHLD"
    if code >= 0:
        return f"it exited with status {code}"
    # Most real-time signals have no name.
    return f"it was ended by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"


def _error_of(report: child.Report) -> BaseException | None:
    if report.trace is None:
        return None
    error: BaseException
    try:
        error = pickle.loads(report.error or b"")
        error.add_note(f"In the process of the handler:\n{report.trace}")
    except Exception:  # noqa: BLE001 - errors of the user's own classes do what they like
        error = JobFailure(f"the handler raised an error that can't be unpickled; its traceback:\n{report.trace}")
    return error
