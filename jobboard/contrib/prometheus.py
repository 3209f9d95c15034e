"""Boards and conductors as metrics of prometheus-client; needs the extra ``prometheus``::

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(BoardCollector(board))
    ConductorMetrics(REGISTRY).observe(conductor)
    start_http_server(9100)

Boards have one collector in a process, and conductors one set of metrics.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from jobboard.board import JobBoard
from jobboard.conductor import events
from jobboard.conductor.dispatching import Dispatcher
from jobboard.engine import Rules
from jobboard.exceptions import JobBoardError, MissingDriver
from jobboard.notifier import ANY
from jobboard.primitives import BoardStats, KeptStats

try:
    from prometheus_client import REGISTRY, Counter, Histogram, ProcessCollector, start_http_server
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError as error:
    raise MissingDriver(
        f"{__name__} needs {error.name}: pip install '.[prometheus]' in a clone of jobboard", error
    ) from error

LOG = logging.getLogger(__name__)

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
"""In seconds: from what a thread does in between to what runs over night."""

MAX_NAMES = 100
"""How many names of jobs have series of their own: each costs about forty."""

OTHER = "(other)"

_LIMITED = ["board", "job_name", "per"]


class BoardCollector(Collector):
    """How many jobs are in each state, counted when a scrape asks for it::

        jobboard_up{board="pictures"} 1.0
        jobboard_jobs{board="pictures",state="unclaimed"} 7.0
        jobboard_paused{board="pictures",job_name="resize"} 1.0     of everything, with an empty name
        jobboard_limit{board="pictures",job_name="resize",per="group"} 4.0
        jobboard_rate_limit{board="pictures",job_name="mail",per="name"} 1.67     claims per second
        jobboard_schedules{board="pictures"} 2.0
        jobboard_schedules_next_due_seconds{board="pictures"} 1.7e9     since 1970; where there is any
        jobboard_schedules_late_seconds{board="pictures"} 0.0     since when the latest is due
        jobboard_outcomes{board="pictures"} 7.0     not on SQL and ZooKeeper

    A board that does not answer has ``jobboard_up`` 0 and no ``jobboard_jobs``; the rest of the scrape goes on.

    :param boards: of different names, as they are told apart by these.
    :param max_age: for how many seconds a count may serve further scrapes: counting costs what ``stats()`` costs.
    :param timeout: how many seconds a scrape waits; less than the scraper does, which is 10 s by default.
    """

    def __init__(self, *boards: JobBoard, max_age: float = 5.0, timeout: float = 5.0) -> None:
        names = sorted(board.name for board in boards)
        if len(set(names)) < len(names):
            raise ValueError(f"boards are told apart by their names, and these are {', '.join(map(repr, names))}")
        self._counts = [_Count(board, max_age) for board in boards]
        self._timeout = timeout

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """What to expect, without asking any board."""
        yield from self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up, jobs, paused, limits, rates, *kept = self._families()
        end = time.monotonic() + self._timeout
        for name, look in [(count.board.name, count.begin()) for count in self._counts]:
            try:
                stats, rules, beside = look.result(max(0.0, end - time.monotonic()))
            except (JobBoardError, TimeoutError) as error:
                LOG.warning("the board %r could not be counted: %s", name, error or "no answer in time")
                up.add_metric([name], 0)
                continue
            up.add_metric([name], 1)
            for state, number in dataclasses.asdict(stats).items():
                jobs.add_metric([name, state], number)
            for job_name in ("",) * rules.paused.everything + rules.paused.names:
                paused.add_metric([name, job_name], 1)
            for limit, _ in rules.limits:
                if limit.concurrency is not None:
                    limits.add_metric([name, limit.name, limit.per], limit.concurrency)
                if limit.rate is not None:
                    rates.add_metric([name, limit.name, limit.per], limit.rate[0] / limit.rate[1])
            due = None if beside.next_due is None else beside.next_due.timestamp()
            for family, value in zip(kept, (beside.schedules, due, beside.late, beside.outcomes), strict=True):
                if value is not None:
                    family.add_metric([name], value)
        yield from (up, jobs, paused, limits, rates, *kept)

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, ...]:
        return (
            GaugeMetricFamily("jobboard_up", "Whether the board answers.", labels=["board"]),
            GaugeMetricFamily("jobboard_jobs", "Jobs on the board, and in its trash.", labels=["board", "state"]),
            GaugeMetricFamily("jobboard_paused", "Names of jobs that are paused.", labels=["board", "job_name"]),
            GaugeMetricFamily("jobboard_limit", "How many may be claimed at once.", labels=_LIMITED),
            GaugeMetricFamily("jobboard_rate_limit", "How many claims may begin per second.", labels=_LIMITED),
            *(
                GaugeMetricFamily(f"jobboard_{name}", told, labels=["board"])
                for name, told in (
                    ("schedules", "Schedules of the board."),
                    ("schedules_next_due_seconds", "When the next schedule is due, since 1970."),
                    ("schedules_late_seconds", "For how long nobody has posted what is due."),
                    ("outcomes", "What consumed jobs have left."),
                )
            ),
        )


@contextlib.contextmanager
def serving(conductor: Dispatcher[Any], port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Answer scrapes with the metrics of a conductor, its board and this process, within the block.

    :param port: 0 for any that is free.
    :return: the address to scrape.
    :raises OSError: the port is taken.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(BoardCollector(conductor._board))
    ConductorMetrics(registry).observe(conductor)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise OSError(f"can't listen on {host}:{port}: {error.strerror}") from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Count:
    """Counts a board on a thread of its own, one count at a time however many scrapes wait for it."""

    def __init__(self, board: JobBoard, max_age: float) -> None:
        self.board = board
        self._max_age = max_age
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{board.name}-counter")
        self._look: Future[tuple[BoardStats, Rules, KeptStats]] | None = None

    def begin(self) -> Future[tuple[BoardStats, Rules, KeptStats]]:
        with self._lock:
            if self._look is None or self._look.done():
                self._look = self._thread.submit(self._count)
            return self._look

    def _count(self) -> tuple[BoardStats, Rules, KeptStats]:
        return self.board.stats(self._max_age), self.board.door.rules(), self.board.kept_stats()


class ConductorMetrics:
    """What becomes of the jobs of this process's conductors, by the names of the jobs::

        jobboard_job_events_total{board="pictures",job_name="resize",event="consumed"} 7.0
        jobboard_job_run_seconds      how long the handlers have run, whatever came of it
        jobboard_job_wait_seconds     from when a job could be claimed for the first time until it was

    The events are those of :mod:`jobboard.conductor.events`, without their ``job_``. The first 100 names of jobs have
    series of their own, as whoever posts may make up any; further ones share ``(other)``.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        labels = ("board", "job_name")
        self._events = Counter("jobboard_job_events", "What has become of jobs.", (*labels, "event"), registry=registry)
        self._run = Histogram(
            "jobboard_job_run_seconds", "How long handlers have run.", labels, buckets=BUCKETS, registry=registry
        )
        self._wait = Histogram(
            "jobboard_job_wait_seconds",
            "How long jobs have waited for their first claim, from their post or due time.",
            labels,
            buckets=BUCKETS,
            registry=registry,
        )
        self._names: set[str] = set()

    def observe(self, conductor: Dispatcher[Any]) -> None:
        """Count the jobs of this conductor, too, from now on."""
        conductor._notifier.register(ANY, self._count, args=(conductor._board.name,))

    def _count(self, event: str, told: dict[str, Any], board: str) -> None:
        job = told["job"]
        labels = board, self._label(job.name)
        self._events.labels(*labels, event.removeprefix("job_")).inc()
        if event == events.JOB_FINISHED:
            self._run.labels(*labels).observe(told["seconds"])
        elif event == events.JOB_CLAIMED and job.attempts + job.retries == 1:
            self._wait.labels(*labels).observe((job.last_modified - job.ready_on).total_seconds())

    def _label(self, name: str) -> str:
        if len(self._names) < MAX_NAMES:
            self._names.add(name)
        return name if name in self._names else OTHER
