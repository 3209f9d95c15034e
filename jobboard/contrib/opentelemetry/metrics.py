"""The figures of boards and conductors as instruments: see :func:`measure`."""

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
    """Have these boards and conductors measured, for as long as the process lives; call it once, with all of them.

    Of a board the instruments are observable gauges, read when a reader collects: ``jobboard.up``, ``jobboard.jobs``,
    ``jobboard.paused``, ``jobboard.limit``, ``jobboard.rate_limit``, ``jobboard.schedules``,
    ``jobboard.schedules_next_due`` and ``jobboard.schedules_late`` (seconds), ``jobboard.outcomes``. Of a conductor
    they are the counter ``jobboard.job_events`` and the histograms ``jobboard.job_run`` and ``jobboard.job_wait``
    (seconds); its board is measured where it is named itself, which is enough in one process for each board. What they
    mean, and their attributes, are those of :mod:`jobboard.contrib.prometheus`; an exporter to Prometheus gives them
    the same names.

    :param measured: boards of different names; of one for asyncio, its twin: ``board.sync``.
    :param meter_provider: None: the global one.
    :param max_age: for how many seconds a count may serve further collections.
    :param timeout: how many seconds a collection waits for the boards.
    """
    for each in measured:
        if not isinstance(each, JobBoard) and twin_of(each) is None:
            raise TypeError(f"what is measured must be a board or a conductor, not {type(each).__name__}")
    boards = [each for each in measured if isinstance(each, JobBoard)]
    figures = BoardFigures(boards, max_age, timeout)
    meter = get_meter(SCOPE, meter_provider=meter_provider)
    if boards:
        collected = _Collected(figures.read)
        for figure in OF_BOARDS:
            observe = functools.partial(collected.observe, figure)
            meter.create_observable_gauge(_name(figure), [observe], _unit(figure), figure.told)
    conductors = [twin for each in measured if (twin := twin_of(each)) is not None]
    if conductors:
        instruments = _JobInstruments(meter)
        for conductor in conductors:
            instruments.observe(conductor)


class _Collected:
    """Each instrument is asked by itself: what was read for the first of them serves the others of a collection."""

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
        self._events = meter.create_counter(_name(EVENTS), _unit(EVENTS), EVENTS.told)
        self._histograms = {
            figure: meter.create_histogram(
                _name(figure), _unit(figure), figure.told, explicit_bucket_boundaries_advisory=BUCKETS
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
