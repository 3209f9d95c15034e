"""The conductor whose handlers run in threads, or each in a process."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Literal

from jobboard.board import JobBoard
from jobboard.conductor import processes
from jobboard.conductor.dispatching import Dispatcher
from jobboard.conductor.handlers import Handler
from jobboard.conductor.slots import Places, Slots, Worker
from jobboard.conductor.threads import ThreadWorker, Timekeeper
from jobboard.job import Job
from jobboard.notifier import Notifier
from jobboard.outcomes import RetryPolicy

WORKERS = ("threads", "processes")


class Conductor(Dispatcher[Job]):
    """Works on the jobs of a board, several at once.

    :param name: who claims; also shown among the board's entities, as a ``conductor``. Conductors that run at the same
        time need names of their own, or only one of them is shown.
    :param board: connected by :meth:`run` if it is not, and then closed by it too; of several conductors that run on it
        at the same time, by the last one.
    :param handlers: job names and what to call with a :class:`~jobboard.job.Job` of each, or one callable for the jobs
        of any name; with a mapping (or :meth:`handles`) only jobs of those names are claimed.
    :param max_simultaneous_jobs: how many jobs at once. At most twice as many are claimed at any time: those that run,
        and those that are done and about to be finished.
    :param workers: handlers run in threads of this process, or each in a process of its own, which is started when it
        is first needed and used for many jobs. Handlers for processes must be importable by name, and a program that
        runs them as a script needs ``if __name__ == "__main__":``. Their job can be read, but does not know its board.
    :param job_timeout: seconds, or a timedelta, after which a handler is given up, and its job abandoned as a failure;
        :meth:`handles` takes another for its own. A process is killed, with all that the handler has started. A thread
        is told by ``job.claim.lost`` and :func:`jobboard.cancelled`, what it returns does not count, and it keeps its
        slot until it ends.
    :param drain_timeout: seconds, or a timedelta, after :meth:`stop`, or a signal, within which :meth:`run` returns.
        Jobs that still run by then are given back, and that attempt does not count. None: for as long as they take.
    :param retry: when the jobs come back whose handlers fail; :meth:`handles` takes another for its own.
    :param on_error: called with the job and the exception of each handler that failed (not of Retry and Reject), on the
        thread of the listeners; an error of its own is logged and does no harm.
    :param schedules: it also posts what the board's schedules say, whatever the names of those jobs.
    :param extra: further arguments of the board's ``claim_many``, ``where=`` on SQL for instance.
    :raises TypeError, ValueError: an argument does not fit.
    """

    def __init__(
        self,
        name: str,
        board: JobBoard,
        handlers: Mapping[str, Handler] | Handler | None = None,
        *,
        max_simultaneous_jobs: int = 8,
        workers: Literal["threads", "processes"] = "threads",
        job_timeout: float | datetime.timedelta | None = None,
        drain_timeout: float | datetime.timedelta | None = None,
        retry: RetryPolicy | None = None,
        on_error: Callable[[Job, BaseException], object] | None = None,
        schedules: bool = True,
        **extra: Any,
    ) -> None:
        if workers not in WORKERS:
            raise ValueError(f"workers={workers!r}: must be one of {', '.join(WORKERS)}")
        self._workers = workers
        super().__init__(
            name, board, handlers, max_simultaneous_jobs, job_timeout, drain_timeout, retry, on_error, schedules, extra
        )
        if workers == "processes":
            processes.packed(self._handlers)

    @property
    def board(self) -> JobBoard:
        return self._board

    @property
    def notifier(self) -> Notifier:
        """Where to listen to what becomes of the jobs: the events of :mod:`jobboard.conductor.events`."""
        return self._notifier

    def run(self, max_dispatches: int | None = None) -> None:
        """Work until :meth:`stop`, or until ``max_dispatches`` jobs have been begun; then finish what was begun.

        In the main thread SIGTERM and SIGINT stop it too, for as long as it runs; a second SIGINT ends the
        process. A backend that can't be reached later on is tried again for as long as it takes.

        :raises ConnectionFailure: the board was not connected and its backend can't be reached, or the board was closed
            meanwhile.
        :raises ValueError: there are no handlers, ``max_dispatches`` is less than 1, or the board is ``read_only``.
        :raises TypeError: ``max_dispatches`` is no int; or no other process could import a handler that runs in one.
        :raises RuntimeError: it is running already; or the system lets it start no thread. What it has claimed by then
            is given back.
        """
        with self._running(max_dispatches) as limit:
            self._run(limit)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`run` has returned; False if it has not after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(self._has_ended, timeout)

    @property
    def _post(self) -> Callable[..., Job]:
        return self._board.post

    def _make_places(self) -> Places:
        if self._workers == "processes":
            packed = processes.packed(self._handlers)
            return self._slots(lambda: processes.ProcessWorker(self._name, self, packed), None)
        timekeeper = Timekeeper(self._name, self)
        return self._slots(lambda: ThreadWorker(self, self._handlers.wrappers, timekeeper, self._context), timekeeper)

    def _slots(self, make: Callable[[], Worker], timekeeper: Timekeeper | None) -> Slots:
        return Slots(self._name, self._count, self, make, self._lock, self._room, timekeeper)

    def _check(self, called: object) -> None:
        if self._workers == "processes":
            processes.check_importable(called)

    def _check_open(self) -> None:
        if self._workers == "processes" and self._dispatching:
            raise RuntimeError(
                f"the conductor {self._name!r} is running, and its processes know only the handlers from before: add "
                "others before run()"
            )
