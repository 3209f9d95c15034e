"""A process that runs handlers for a conductor, seen from within.

It hears from the conductor through a pipe: of jobs, and that it may end. When the pipe breaks, or its parent is gone,
so is the conductor, and with it the claim: the process kills itself and what it has started.

Until when the claim of the job at hand stands lies in memory that both share. So it lapses while the conductor is
stopped, too; and a handler that lets no other thread run, so that nobody reads the pipe, does not take it for lost.
"""

from __future__ import annotations

import contextvars
import math
import multiprocessing
import os
import pickle
import queue
import signal
import traceback
from ctypes import c_double
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

from jobboard.codec import Content, Wire
from jobboard.conductor.handlers import Ending, Handlers, fresh, perform
from jobboard.exceptions import JobFailure
from jobboard.job import Claim, Job, boottime
from jobboard.standing import Trigger
from jobboard.states import CLAIMED, Record
from jobboard.threads import started

READY = "ready"
END = "end"

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals for the conductor alone, be they sent to all the processes that it has started."""

GLANCE = 1.0
"""Every so many seconds the process looks whether its parent is there: the pipe does not tell where something that the
conductor's program has forked holds the other end open."""


class Task(NamedTuple):
    """A claimed job, as it travels."""

    record: Record
    content: Content
    context: Any
    who: str
    token: int
    keeps: tuple[int, Wire] | None
    """How large a result may be, and how it is encoded; None where none is kept."""


class Report(NamedTuple):
    """How a call of a handler has ended; what it raised travels as its traceback, and packed if that can be."""

    ending: Ending
    trace: str | None = None
    error: bytes | None = None


class Broken(NamedTuple):
    """Instead of READY: the handlers could not be loaded; the traceback."""

    trace: str


class Elsewhere:
    """Stands for the board of a job that is worked on in another process than its conductor's."""

    def __init__(self, keeps: tuple[int, Wire] | None) -> None:
        # What work returns is encoded here: not all of it could travel.
        self._keeps = keeps

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return "<the board is in the conductor's process>"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise JobFailure(
            "a handler in a process of its own can read its job, but not reach the board through it: return, or raise "
            "Retry or Reject, or fetch a board of its own"
        )

    _extend = _end = _refresh = _load_book = _result = _decoded = _refuse


def task_of(job: Job) -> Task:
    assert job.claim is not None
    return Task(job._record, job._content, job.context, job.claim.who, job.claim.token, job.board._keeps)


class KeptElsewhere(Claim):
    """A claim that the conductor keeps.

    :param lease: until when, on :func:`~jobboard.job.boottime`; infinite where no clock ends it.
    """

    __slots__ = ("_lease",)

    def __init__(self, job: Job, task: Task, lease: c_double) -> None:
        super().__init__(job, task.token, task.who, True, None)
        self._lease = lease

    def _is_lost(self) -> bool:
        return super()._is_lost() or (not self.ended and boottime() >= self._lease.value)


def job_of(task: Task, lease: c_double) -> Job:
    job = Job(Elsewhere(task.keeps), task.record, task.content, CLAIMED)
    job.context = task.context
    job.claim = KeptElsewhere(job, task, lease)
    return job


def lease_of(claim: Claim) -> float:
    """What the conductor writes into the memory that it shares with the process."""
    if claim._is_lost():
        return -math.inf
    return math.inf if claim.deadline is None else claim.deadline


def main(connection: Connection, handlers: bytes, lease: c_double) -> None:
    # A group of its own, to be killed together with what the handlers start; and a signal that is meant for the
    # conductor, but is sent to all that it has started, must not end the work at hand.
    os.setpgrp()
    for number in SIGNALS:
        signal.signal(number, _ignore)
    # The conductor has blocked them for the time before, and what the handlers start would inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    ear = _Orders(connection)
    try:
        found: Handlers = pickle.loads(handlers)
    except BaseException:  # noqa: BLE001 - importing a module of the user's may raise anything
        connection.send(Broken(traceback.format_exc()))
        return
    # With the variables that the import of the handlers has set.
    context = contextvars.copy_context()
    connection.send(READY)
    while (task := ear.next()) is not None:
        job = job_of(task, lease)
        report = _reported(fresh(context).run(perform, found.of(job), found.wrappers, job))
        # From now on the memory tells of another.
        assert job.claim is not None
        job.claim._step(Trigger.ENDED)
        connection.send(report)


def _ignore(*args: object) -> None:
    """Not SIG_IGN, which what the handlers start would inherit."""


class _Orders:
    """Hears what the conductor says while a handler is at work."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        parent = multiprocessing.parent_process()
        assert parent is not None
        # Not what is its parent now: the conductor may be gone already.
        self._parent = parent.pid
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        started("jobboard-conductor", self._hear)

    def next(self) -> Task | None:
        """What to work on; None if that is all."""
        return self._tasks.get()

    def _hear(self) -> None:
        while True:
            try:
                while not self._connection.poll(GLANCE):
                    if os.getppid() != self._parent:
                        raise EOFError
                message = self._connection.recv()
            except (EOFError, OSError):
                os.killpg(0, signal.SIGKILL)
            if message == END:
                self._tasks.put(None)
                return
            self._tasks.put(message)


def _reported(ending: Ending) -> Report:
    if ending.error is None:
        return Report(ending)
    text = "".join(traceback.format_exception(ending.error))
    try:
        error = pickle.dumps(ending.error)
    except Exception:  # noqa: BLE001 - errors of the user's own classes do what they like
        error = None
    return Report(ending._replace(error=None), text, error)
