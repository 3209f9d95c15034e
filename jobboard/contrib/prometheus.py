"""Metrics of boards and conductors for prometheus-client; needs the extra ``prometheus``::

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(BoardCollector(board))
    ConductorMetrics(REGISTRY).observe(conductor)
    start_http_server(9100)

Boards have one collector in a process, and conductors one set of metrics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.contrib.figures import BUCKETS, EVENTS, OF_BOARDS, RUN, WAIT, BoardFigures, Figure, JobFigures, Reading
from jobboard.exceptions import MissingDriver

try:
    from prometheus_client import REGISTRY, Counter, Histogram, ProcessCollector, start_http_server
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError as error:
    raise MissingDriver(
        f"{__name__} needs {error.name}: pip install '.[prometheus]' in a clone of jobboard", error
    ) from error


class BoardCollector(Collector):
    """The figures of boards, counted for each scrape::

        jobboard_up{board="pictures"} 1.0
        jobboard_jobs{board="pictures",state="unclaimed"} 7.0
        jobboard_paused{board="pictures",job_name="resize"} 1.0     of everything, with an empty name
        jobboard_limit{board="pictures",job_name="resize",per="group"} 4.0
        jobboard_rate_limit{board="pictures",job_name="mail",per="name"} 1.67     claims per second
        jobboard_schedules{board="pictures"} 2.0
        jobboard_schedules_next_due_seconds{board="pictures"} 1.7e9     since 1970; where there is any
        jobboard_schedules_late_seconds{board="pictures"} 0.0     since when the latest is due
        jobboard_outcomes{board="pictures"} 7.0     not on ZooKeeper; on SQL up to 100,000
        jobboard_conductors{board="pictures"} 3.0
        jobboard_slots{board="pictures"} 24.0     of these conductors together
        jobboard_slots_hung{board="pictures"} 0.0     handlers that go on after their timeout
        jobboard_oldest_seconds{board="pictures"} 12.5     since the post of the oldest waiting job
        jobboard_name_waiting{board="pictures",job_name="resize"} 7.0     on SQL
        jobboard_name_oldest_seconds{board="pictures",job_name="resize"} 12.5     on SQL

    The last three are read at most every 15 s, and on SQL no more often than 7 s for each name, as SQL counts name by
    name. Other backends have no index by name: there ``jobboard_oldest_seconds`` is the oldest among the first 500 jobs
    in the order of serving. At most 100 names have series of their own, and the others share ``(other)``.

    A board that does not answer has ``jobboard_up`` 0 and no ``jobboard_jobs``; the rest of the scrape goes on.

    :param boards: boards of different names, which tell them apart.
    :param max_age: the seconds for which a count serves further scrapes. A count costs as much as ``stats()``.
    :param timeout: the seconds that a scrape waits: less than the scraper waits, which is 10 s by default.
    """

    def __init__(self, *boards: JobBoard, max_age: float = 5.0, timeout: float = 5.0) -> None:
        self._figures = BoardFigures(boards, max_age, timeout)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics without values, and without a request."""
        yield from self._families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = self._families()
        for figure, labels, value in self._figures.read():
            families[figure].add_metric(labels, value)
        yield from families.values()

    @staticmethod
    def _families() -> dict[Figure, GaugeMetricFamily]:
        return {each: GaugeMetricFamily(_name(each), each.description, labels=each.labels) for each in OF_BOARDS}


@contextlib.contextmanager
def serving(conductor: Conductor, port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve the metrics of a conductor, its board and this process within the block.

    :param port: 0 for any free port.
    :return: the address to scrape.
    :raises OSError: the port is taken.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(BoardCollector(conductor.board))
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


class ConductorMetrics(JobFigures):
    """The figures of the jobs of this process's conductors, by the names of the jobs::

        jobboard_job_events_total{board="pictures",job_name="resize",event="consumed"} 7.0
        jobboard_job_run_seconds      the run times of handlers
        jobboard_job_wait_seconds     the times from a job's post or due time to its first claim

    The events are those of :mod:`jobboard.conductor.events`, without their ``job_``. The first 100 names of jobs have
    series of their own, as posters may make up any name. The others share ``(other)``.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._events = Counter(_name(EVENTS), EVENTS.description, EVENTS.labels, registry=registry)
        self._histograms = {
            figure: Histogram(_name(figure), figure.description, figure.labels, buckets=BUCKETS, registry=registry)
            for figure in (RUN, WAIT)
        }

    def tell(self, reading: Reading) -> None:
        figure, labels, value = reading
        if figure == EVENTS:
            self._events.labels(*labels).inc(value)
        else:
            self._histograms[figure].labels(*labels).observe(value)


def _name(figure: Figure) -> str:
    return f"jobboard_{figure.name}" + "_seconds" * figure.seconds
