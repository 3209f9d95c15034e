"""Our boards behind TaskFlow's API: the classes of the entry points in ``taskflow.jobboards``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from taskflow import exceptions as theirs
from taskflow import logging
from taskflow.jobs import base
from taskflow.types import notifier

from jobboard import backends
from jobboard.contrib.taskflow import options
from jobboard.contrib.taskflow.encoding import encode_details
from jobboard.contrib.taskflow.job import TaskFlowIterator, TaskFlowJob, translated
from jobboard.job import Job
from jobboard.notifier import ANY
from jobboard.priorities import JobPriority
from jobboard.states import SCHEDULED

LOG = logging.getLogger(__name__)

_CLOSED = "CLOSED"
"""The state of a KazooClient that was never started, or was stopped."""

_starting = threading.Lock()


class TaskFlowBoard(base.NotifyingJobBoard):
    """A board on the backend that the option ``url`` names.

    :param name: a label; boards are told apart by ``path`` or ``namespace`` alone.
    :param conf: TaskFlow's options or ours, see :mod:`jobboard.contrib.taskflow.options`.
    :param client: a client of the caller's; a KazooClient is started if it was not.
    :param persistence: where the logbooks of jobs are.
    :param emit_notifications: whether ``notifier`` reports events.
    :raises ValueError, TypeError: an option does not fit.

    ``jobboard`` is our board underneath, which also has the trash, ``claim_next`` and counts.
    """

    scheme: ClassVar[str | None] = None

    def __init__(
        self,
        name: str,
        conf: Mapping[str, Any],
        client: Any = None,
        persistence: Any = None,
        emit_notifications: bool = True,
    ) -> None:
        super().__init__(name, conf)
        where = options.locate(conf, self.scheme, client)
        with translated():
            self.jobboard = backends.fetch(where.name, where.conf, client=client)
        self.notifier = RelayingNotifier(self._relay if emit_notifications else lambda on: None)
        self._client = client
        self._persistence = persistence
        self._expiry = where.expiry

    # Life

    @property
    def connected(self) -> bool:
        return self.jobboard.connected

    def connect(self) -> None:
        """
        :raises JobFailure: the backend can't be reached.
        """
        # Several boards that share a client connect at once.
        with _starting:
            if getattr(self._client, "client_state", None) == _CLOSED:
                try:
                    self._client.start()
                except self._client.handler.timeout_exception as error:
                    raise theirs.JobFailure(f"{self.jobboard} can't be reached", error) from error
        with translated():
            self.jobboard.connect()

    def close(self) -> None:
        """Give back the claims without an expiry. A client of the caller's stays open."""
        with translated():
            self.jobboard.close()

    # Posting and looking

    def post(
        self,
        name: str,
        book: Any = None,
        details: Any = None,
        priority: base.JobPriority | str = base.JobPriority.NORMAL,
    ) -> TaskFlowJob:
        """Post a job.

        :raises TypeError: TaskFlow's boards don't take these details either; nothing was posted.
        """
        number = JobPriority[base.JobPriority.convert(priority).name]
        with translated():
            job = self.jobboard.post(name, book, encode_details(details), number)
        return TaskFlowJob(self, job, self._persistence, book)

    def iterjobs(self, only_unclaimed: bool = False, ensure_fresh: bool = False) -> TaskFlowIterator:
        """Return the jobs in serving order: the highest priority first, then the oldest."""
        return TaskFlowIterator(self, LOG, self._fetch_jobs, only_unclaimed=only_unclaimed, ensure_fresh=ensure_fresh)

    def _fetch_jobs(self, ensure_fresh: bool = False, only_unclaimed: bool = False) -> Iterator[TaskFlowJob]:
        with translated():
            for job in self.jobboard.iterjobs(only_unclaimed, ensure_fresh):
                # TaskFlow has no state for jobs that are not due yet.
                if job.seen_state != SCHEDULED:
                    yield TaskFlowJob(self, job, self._persistence)

    def wait(
        self,
        timeout: float | None = None,
        initial_delay: float | None = None,
        max_delay: float | None = None,
        sleep_func: Callable[[float], object] | None = None,
    ) -> TaskFlowIterator:
        """Wait until a job can be claimed. Return the jobs that can.

        ``initial_delay``, ``max_delay`` and ``sleep_func`` have no effect: this board does not poll as TaskFlow's do.

        :raises NotFound: no job in time.
        """
        with translated():
            self.jobboard.wait(timeout)
        return self.iterjobs(only_unclaimed=True)

    @property
    def job_count(self) -> int:
        with translated():
            return self.jobboard.job_count

    def find_owner(self, job: TaskFlowJob) -> str | None:
        with translated():
            return self.jobboard.find_owner(job.jobboard_job)

    # Claims

    def claim(self, job: TaskFlowJob, who: str, expiry: float | None = None) -> None:
        """Claim the job for ``who``.

        :param expiry: seconds after which the claim lapses unless it is extended. None: the option ``ttl``, or else the
            claim is kept for as long as this process lives and the board is open.
        :raises UnclaimableJob: somebody has claimed the job, ``who`` included.
        :raises NotFound: the job is not on the board.
        """
        with translated():
            self.jobboard.claim(job.jobboard_job, who, self._expiry if expiry is None else expiry)
        # The content may have been replaced since this job was read.
        job.__dict__.pop("details", None)

    def consume(self, job: TaskFlowJob, who: str) -> None:
        self._end(self.jobboard.consume, job, who)

    def abandon(self, job: TaskFlowJob, who: str) -> None:
        self._end(self.jobboard.abandon, job, who)

    def trash(self, job: TaskFlowJob, who: str) -> None:
        self._end(self.jobboard.trash, job, who)

    def _end(self, verb: Callable[[Job, str], object], job: TaskFlowJob, who: str) -> None:
        with translated():
            verb(job.jobboard_job, who)

    # Around

    def register_entity(self, entity: Any) -> None:
        """Show an entity of any kind, a conductor for instance, for as long as this board is connected."""
        with translated():
            self.jobboard.register_entity(entity)

    def _relay(self, on: bool) -> None:
        """Begin, or end, to relay the events of the board."""
        if on:
            self.jobboard.notifier.register(ANY, self._notify)
        else:
            self.jobboard.notifier.deregister(ANY, self._notify)

    def _notify(self, event: str, details: dict[str, Any]) -> None:
        self.notifier.notify(event, {"job": TaskFlowJob(self, details["job"], self._persistence)})


class SQLTaskFlowBoard(TaskFlowBoard):
    scheme = "sql"


class RedisTaskFlowBoard(TaskFlowBoard):
    scheme = "redis"


class ZooKeeperTaskFlowBoard(TaskFlowBoard):
    scheme = "zookeeper"


class EtcdTaskFlowBoard(TaskFlowBoard):
    scheme = "etcd"


class RelayingNotifier(notifier.Notifier):
    """TaskFlow's notifier. It gets events only while it has listeners, as those of other processes cost requests."""

    def __init__(self, relay: Callable[[bool], None]) -> None:
        super().__init__()
        self._relay = relay
        self._relayed = False

    def register(self, *args: Any, **kwargs: Any) -> None:
        super().register(*args, **kwargs)
        self._follow()

    def deregister(self, *args: Any, **kwargs: Any) -> bool:
        known: bool = super().deregister(*args, **kwargs)
        self._follow()
        return known

    def deregister_event(self, event_type: str) -> int:
        count: int = super().deregister_event(event_type)
        self._follow()
        return count

    def reset(self) -> None:
        super().reset()
        self._follow()

    def _follow(self) -> None:
        wanted = len(self) > 0
        if wanted != self._relayed:
            self._relayed = wanted
            self._relay(wanted)
