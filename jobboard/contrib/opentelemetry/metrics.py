"""The instruments of boards and conductors: see :func:`measure`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.contrib.figures import (
    BUCKETS,
    EVENTS,
    OF_BOARDS,
    RUN,
    WAIT,
    BoardFigures,
    Figure,
    JobFigures,
    Reading,
    twin_of,
)
from jobboard.contrib.opentelemetry.spans import SCOPE

if TYPE_CHECKING:
    from jobboard.aio import AsyncConductor


def measure(
    *measured: JobBoard | Conductor | AsyncConductor,
    meter_provider: MeterProvider | None = None,
    max_age: float = 5.0,
    timeout: float = 5.0,
) -> None:
    """Measure boards and conductors as long as the process lives. Call this once, with all of them.

    A board has observable gauges, read when a reader collects: ``jobboard.up``, ``jobboard.jobs``, ``jobboard.paused``,
    ``jobboard.limit``, ``jobboard.rate_limit``, ``jobboard.schedules``, ``jobboard.schedules_next_due`` and
    ``jobboard.schedules_late`` (seconds), ``jobboard.outcomes``, ``jobboard.conductors``, ``jobboard.slots``,
    ``jobboard.slots_hung``, ``jobboard.oldest`` (seconds), and on SQL ``jobboard.name_waiting`` and
    ``jobboard.name_oldest`` (seconds). A conductor has the counter ``jobboard.job_events`` and the histograms
    ``jobboard.job_run`` and ``jobboard.job_wait`` (seconds). The board of a conductor is measured only if it is named
    itself; one process per board is enough. The meanings and attributes are those of
    :mod:`jobboard.contrib.prometheus`, and an exporter to Prometheus gives the same names.

    :param measured: boards of different names, and conductors. ``board.sync`` stands for a board for asyncio.
    :param meter_provider: the global provider if None.
    :param max_age: the seconds for which a count serves further collections.
    :param timeout: the seconds that a collection waits for the boards.
    """
    for each in measured:
        if not isinstance(each, JobBoard) and twin_of(each) is None:
            raise TypeError(f"measure() takes a board or a conductor, not {type(each).__name__}")
    boards = [each for each in measured if isinstance(each, JobBoard)]
    figures = BoardFigures(boards, max_age, timeout)
    meter = get_meter(SCOPE, meter_provider=meter_provider)
    if boards:
        collected = _Collected(figures.read)
        for figure in OF_BOARDS:
            observe = functools.partial(collected.observe, figure)
            meter.create_observable_gauge(_name(figure), [observe], _unit(figure), figure.description)
    conductors = [twin for each in measured if (twin := twin_of(each)) is not None]
    if conductors:
        instruments = _JobInstruments(meter)
        for conductor in conductors:
            instruments.observe(conductor)


class _Collected:
    """The readings of one collection. The readings for the first instrument serve the others."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._readings: list[Reading] = []
        self._unasked: set[Figure] = set()

    def observe(self, figure: Figure, options: CallbackOptions) -> list[Observation]:
        with self._lock:
            if figure not in self._unasked:
                self._readings = list(self._read())
                self._unasked = set(OF_BOARDS)
            self._unasked.discard(figure)
            return [Observation(each.value, _attributes(each)) for each in self._readings if each.figure == figure]


class _JobInstruments(JobFigures):
    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._events = meter.create_counter(_name(EVENTS), _unit(EVENTS), EVENTS.description)
        self._histograms = {
            figure: meter.create_histogram(
                _name(figure), _unit(figure), figure.description, explicit_bucket_boundaries_advisory=BUCKETS
            )
            for figure in (RUN, WAIT)
        }

    def tell(self, reading: Reading) -> None:
        if reading.figure == EVENTS:
            self._events.add(reading.value, _attributes(reading))
        else:
            self._histograms[reading.figure].record(reading.value, _attributes(reading))


def _name(figure: Figure) -> str:
    return f"jobboard.{figure.name}"


def _unit(figure: Figure) -> str:
    return "s" if figure.seconds else ""


def _attributes(reading: Reading) -> dict[str, str]:
    return dict(zip(reading.figure.labels, reading.labels, strict=True))
