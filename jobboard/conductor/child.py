"""The child process of a worker: it runs handlers, and decides the end of each call.

The process gets its jobs through a pipe. When its parent is gone, the conductor is gone, and the claim with it: the
process kills itself and what it has started.

The deadline of the current job's claim lies in memory that both sides share. So the claim lapses while the conductor is
stopped, too, and stands while a handler lets no other thread run. So does the number of the task to stop: a signal has
the process look there.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator
from ctypes import Structure, c_double, c_longlong
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn, cast

from jobboard import arguments, runtime
from jobboard.codec import Content, Wire, decode_note
from jobboard.conductor.handlers import Call, Handlers, Handling, perform
from jobboard.exceptions import JobFailure
from jobboard.followups import PostingForm
from jobboard.job import Claim, ClaimedJob, Job
from jobboard.outcomes import Cancelled, cancelled_work
from jobboard.primitives import End
from jobboard.states import CLAIMED, Record
from jobboard.threads import started
from jobboard.tracing import Tracing

READY = "ready"

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals for the conductor alone, also when they are sent to all the processes that it has started."""

GLANCE = 1.0
"""Seconds between two checks that the parent lives. The pipe does not show it: the pipe stays open while a fork of the
conductor's program holds the other end."""

LENGTH = 8
"""The number of bytes before each message in the pipe. They hold the length of the message."""


STOP = signal.SIGTERM
"""The signal by which the process checks for a stop of its task."""


class Shared(Structure):
    """The memory that the conductor shares with the process.

    lease: the deadline of the claim on :func:`~jobboard.runtime.boottime`; infinite where no clock ends it.
    stopped: the number of the task whose job was taken away.
    """

    _fields_ = (("lease", c_double), ("stopped", c_longlong))
    lease: float
    stopped: int


class Task(NamedTuple):
    """A claimed job, as it travels to the process. The tasks of a process are numbered from 1."""

    number: int
    record: Record
    content: Content
    context: Any
    who: str
    token: int
    keeps: tuple[int, Wire] | None
    """The size limit and the encoding of the result; None if the board keeps no results."""
    posts: PostingForm
    """The form of follow-ups."""
    wire: Wire
    """The encoding of notes."""
    encrypts: bool
    """Whether the conductor encrypts the notes. Only then it knows whether they fit."""


class Report(NamedTuple):
    """The end of a call, as it travels back, with the traceback of its error, and the error if it can be pickled.

    A report without an end says that the handlers could not be loaded.
    """

    end: End | None
    trace: str | None = None
    error: bytes | None = None


Refusal = tuple[type[Exception], str]
"""The class and the text of the error about a note."""


class HandlerNote(NamedTuple):
    """A note of the handler, as it travels back before the report. If it ``waits``, the process waits for the answer:
    None or a :data:`Refusal`."""

    note: bytes | str
    flush: bool
    waits: bool


class BoardStandIn:
    """The stand-in for the board of a job, in a process that has no board.

    :param tell: makes a note under a claim, sends it to the conductor, and returns the answer.
    """

    def __init__(
        self, task: Task, tracing: Tracing, tell: Callable[[Claim, Callable[[], HandlerNote]], Refusal | None]
    ) -> None:
        # Results and follow-ups are encoded here: not all of them could travel.
        self.result_form, self.posting_form, self.tracing = task.keeps, task.posts, tracing
        self._wire, self._waits = task.wire, task.encrypts
        self._tell = tell

    def note(
        self,
        job: ClaimedJob,
        text: str | None = None,
        *,
        percent: float | None = None,
        checkpoint: Any = None,
        flush: bool = False,
    ) -> None:
        """See :meth:`JobBoard.note <jobboard.board.JobBoard.note>`."""
        self._note(job.claim, text, percent, checkpoint, flush)

    def _note(self, claim: Claim, text: str | None, percent: float | None, checkpoint: Any, flush: bool) -> None:
        job, before = claim.job, claim.job.record

        def make() -> HandlerNote:
            note = arguments.note(decode_note(job.record.note), text, percent, checkpoint, self._wire)
            job.record = job.record._replace(note=note)
            return HandlerNote(note, flush, flush or self._waits)

        if (refusal := self._tell(claim, make)) is not None:
            kind, reason = refusal
            if not issubclass(kind, JobFailure):
                job.record = before
            raise kind(reason)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise JobFailure(
            "a handler in a process of its own can read its job, but not reach the board through it: return, or raise "
            "Retry or Reject, or fetch a board of its own"
        )

    def __repr__(self) -> str:
        return "<the board is in the conductor's process>"


class ClaimStandIn(Claim):
    """A claim that the conductor keeps."""

    __slots__ = ("_number", "_shared")

    def __init__(self, job: Job, task: Task, shared: Shared) -> None:
        super().__init__(job, task.token, task.who, True, None)
        self._number = task.number
        self._shared = shared

    def is_marked_or_lapsed(self) -> bool:
        return super().is_marked_or_lapsed() or (not self.ended and runtime.boottime() >= self._shared.lease)

    @property
    def refused(self) -> bool:
        return not self.ended and self._shared.stopped == self._number


class Stopper:
    """The handler of the signal: it raises Cancelled in the work on a job that was taken away, once."""

    def __init__(self) -> None:
        self._job: ClaimedJob | None = None
        self._is_held = False
        self._thread = runtime.get_ident()

    def __call__(self, *args: object) -> None:
        job = self._job
        # The signal may be about an earlier task, or have been sent to all processes of the group.
        if job is not None and not self._is_held and job.claim.refused:
            self._job = None
            raise cancelled_work(job)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise nothing within this block, and what is due behind it: half a message would be the end of the process.
        Only the main thread runs handlers of signals, whichever thread the signal interrupts."""
        if runtime.get_ident() != self._thread:
            yield
            return
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self()

    def run(self, work: Callable[[], Call], job: ClaimedJob, handling: Handling) -> Call:
        """Return the ended call of ``work``, also if the signal comes at its very end."""
        try:
            try:
                self._job = job
                # The signal may have come before the task.
                self()
                return work()
            finally:
                self._job = None
        except Cancelled as error:
            with Call(handling, job) as call:
                raise error
            return call


def lease_of(claim: Claim) -> float:
    """Return the deadline that the conductor writes into the shared memory."""
    if claim.is_marked_or_lapsed():
        return -math.inf
    return math.inf if claim.deadline is None else claim.deadline


def packed(message: object) -> bytes:
    """Return a message as it goes through the pipe."""
    data = pickle.dumps(message)
    return len(data).to_bytes(LENGTH) + data


def main(connection: Connection, handlers: bytes, shared: Shared) -> None:
    # The processes that handlers start are killed with this group. A signal that is meant for the conductor, but sent
    # to all its processes, must not end the current work.
    os.setpgrp()
    stopper = Stopper()
    for number in SIGNALS:
        signal.signal(number, stopper if number == STOP else _ignore)
    # The conductor has blocked them until now, and the processes that handlers start would inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    started("jobboard-conductor", _end_with_parent)
    incoming = os.fdopen(connection.fileno(), "rb", closefd=False)
    outgoing = os.fdopen(connection.fileno(), "wb", closefd=False)

    def send(message: object) -> None:
        outgoing.write(packed(message))
        outgoing.flush()

    def receive() -> Any:
        length = int.from_bytes(incoming.read(LENGTH))
        data = incoming.read(length)
        if len(data) < length or not data:
            raise EOFError
        return pickle.loads(data)

    # Threads of the handler make notes, too, perhaps after its end.
    talking = runtime.Lock()

    def tell(claim: Claim, make: Callable[[], HandlerNote]) -> Refusal | None:
        with stopper.held(), talking:
            if claim.ended:
                return JobFailure, f"{claim.job}: the call of its handler has ended"
            noted = make()
            send(noted)
            answer: Refusal | None = receive() if noted.waits else None
            return answer

    try:
        found: Handlers
        found, tracing = pickle.loads(handlers)
    except BaseException:  # noqa: BLE001 - importing a module of the user's may raise anything
        send(Report(end=None, trace=traceback.format_exc()))
        return
    # With the variables that the import of the handlers has set.
    context = contextvars.copy_context()
    send(READY)
    with contextlib.suppress(EOFError, OSError):
        while (task := receive()) is not None:
            job = ClaimedJob(cast(Any, BoardStandIn(task, tracing, tell)), task.record, task.content, CLAIMED)
            job.context = task.context
            job.claim = ClaimStandIn(job, task, shared)
            handling = found.of(job)
            work = functools.partial(context.copy().run, perform, handling, found.wrappers, job)
            report = _report_of(stopper.run(work, job, handling))
            with talking:
                # The shared memory belongs to the next job from now on.
                job.claim.mark_ended()
                send(report)
        return
    # The conductor is gone.
    os.killpg(0, signal.SIGKILL)


def _ignore(*args: object) -> None:
    """Do nothing. The processes that handlers start would inherit SIG_IGN."""


def _end_with_parent() -> None:
    # The parent may have been gone before this process began to look.
    parent = multiprocessing.parent_process()
    while parent is not None and os.getppid() == parent.pid:
        runtime.sleep(GLANCE)
    os.killpg(0, signal.SIGKILL)


def _report_of(call: Call) -> Report:
    if call.error is None:
        return Report(end=call.end)
    trace = "".join(traceback.format_exception(call.error))
    try:
        return Report(end=call.end, trace=trace, error=pickle.dumps(call.error))
    except Exception:  # noqa: BLE001 - errors of the user's own classes do what they like
        return Report(end=call.end, trace=trace)
