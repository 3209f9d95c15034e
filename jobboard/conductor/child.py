"""The side of a process that runs handlers for a conductor.

The process hears from the conductor through a pipe: of jobs, and that it may end. When the pipe breaks, or the parent
is gone, the conductor is gone, and the claim with it: the process kills itself and what it has started.

The deadline of the current job's claim lies in memory that both sides share. So the claim lapses while the conductor is
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
from jobboard.conductor.handlers import Call, Handlers, fresh, perform
from jobboard.exceptions import JobFailure
from jobboard.job import Claim, ClaimedJob, Job, boottime
from jobboard.primitives import End
from jobboard.states import CLAIMED, Record
from jobboard.threads import started

READY = "ready"
END = "end"

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals for the conductor alone, also when they are sent to all the processes that it has started."""

GLANCE = 1.0
"""Seconds between two looks for the parent. The pipe does not break while a fork of the conductor's program holds the
other end open."""


class Task(NamedTuple):
    """A claimed job, as it travels to the process."""

    record: Record
    content: Content
    context: Any
    who: str
    token: int
    keeps: tuple[int, Wire] | None
    """How large a result may be, and how it is encoded; None where none is kept."""


class Report(NamedTuple):
    """The end of a call, as it travels back, with the traceback of its error, and the error itself if that is possible.

    A report without an end says that the handlers could not be loaded.
    """

    end: End | None
    trace: str | None = None
    error: bytes | None = None


class Elsewhere:
    """Stands for the board of a job in a process that has no board."""

    def __init__(self, keeps: tuple[int, Wire] | None) -> None:
        # Results are encoded here: not all of them could travel.
        self.result_form = keeps

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

    _extend = _end = refresh = _load_book = result_of = _decoded = _refuse


class KeptElsewhere(Claim):
    """A claim that the conductor keeps.

    :param lease: its deadline on :func:`~jobboard.job.boottime`; infinite where no clock ends it.
    """

    __slots__ = ("_lease",)

    def __init__(self, job: Job, task: Task, lease: c_double) -> None:
        super().__init__(job, task.token, task.who, True, None)
        self._lease = lease

    def is_marked_or_lapsed(self) -> bool:
        return super().is_marked_or_lapsed() or (not self.ended and boottime() >= self._lease.value)


def task_of(job: Job) -> Task:
    assert job.claim is not None
    return Task(
        record=job.record,
        content=job.content,
        context=job.context,
        who=job.claim.who,
        token=job.claim.token,
        keeps=job.board.result_form,
    )


def lease_of(claim: Claim) -> float:
    """Return what the conductor writes into the shared memory."""
    if claim.is_marked_or_lapsed():
        return -math.inf
    return math.inf if claim.deadline is None else claim.deadline


def main(connection: Connection, handlers: bytes, lease: c_double) -> None:
    # The processes that handlers start are killed with this group. A signal that is meant for the conductor, but sent
    # to all its processes, must not end the current work.
    os.setpgrp()
    for number in SIGNALS:
        signal.signal(number, _ignore)
    # The conductor has blocked them until now, and the processes that handlers start would inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    started("jobboard-conductor", _hear, connection, tasks)
    try:
        found: Handlers = pickle.loads(handlers)
    except BaseException:  # noqa: BLE001 - importing a module of the user's may raise anything
        connection.send(Report(end=None, trace=traceback.format_exc()))
        return
    # With the variables that the import of the handlers has set.
    context = contextvars.copy_context()
    connection.send(READY)
    while (task := tasks.get()) is not None:
        job = ClaimedJob(Elsewhere(task.keeps), task.record, task.content, CLAIMED)
        job.context = task.context
        job.claim = KeptElsewhere(job, task, lease)
        report = _report_of(fresh(context).run(perform, found.of(job), found.wrappers, job))
        # The shared memory belongs to the next job from now on.
        job.claim.mark_ended()
        connection.send(report)


def _ignore(*args: object) -> None:
    """Do nothing. The processes that handlers start would inherit SIG_IGN."""


def _hear(connection: Connection, tasks: queue.SimpleQueue[Task | None]) -> None:
    """Hear the conductor while a handler is at work, and end with it."""
    parent = multiprocessing.parent_process()
    while True:
        try:
            while not connection.poll(GLANCE):
                # The parent may have been gone before this process began to look.
                if parent is None or os.getppid() != parent.pid:
                    raise EOFError
            message = connection.recv()
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)
        if message == END:
            tasks.put(None)
            return
        tasks.put(message)


def _report_of(call: Call) -> Report:
    if call.error is None:
        return Report(end=call.end)
    trace = "".join(traceback.format_exception(call.error))
    try:
        return Report(end=call.end, trace=trace, error=pickle.dumps(call.error))
    except BaseException:  # noqa: BLE001 - errors of the user's own classes do what they like
        return Report(end=call.end, trace=trace)
