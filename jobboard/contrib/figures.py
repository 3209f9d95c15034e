"""Figures of boards and conductors: the one list for all libraries of metrics."""

from __future__ import annotations

import abc
import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jobboard.board import JobBoard
from jobboard.conductor import Conductor, events
from jobboard.exceptions import JobBoardError, JobFailure
from jobboard.notifier import ANY
from jobboard.reading import BoardLook, BoardReader

if TYPE_CHECKING:
    from jobboard.aio import AsyncConductor

LOG = logging.getLogger(__name__)

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
"""The bounds of histograms in seconds, from short work to a job that runs over night."""

MAX_NAMES = 100
"""The number of job names that have series of their own, about forty each."""

OTHER = "(other)"


class Figure(NamedTuple):
    """A metric. Each library adds a prefix to its name, and some the unit."""

    name: str
    description: str
    labels: tuple[str, ...] = ("board",)
    seconds: bool = False


_LIMITED = ("board", "job_name", "per")

UP = Figure("up", "1 if the board answers, 0 otherwise.")
JOBS = Figure("jobs", "Jobs on the board, and in its trash.", ("board", "state"))
PAUSED = Figure("paused", "Names of jobs that are paused.", ("board", "job_name"))
LIMIT = Figure("limit", "The largest number of claims at once.", _LIMITED)
RATE_LIMIT = Figure("rate_limit", "The largest number of claims that begin per second.", _LIMITED)
SCHEDULES = Figure("schedules", "Schedules of the board.")
NEXT_DUE = Figure("schedules_next_due", "The due time of the next schedule, since 1970.", seconds=True)
LATE = Figure("schedules_late", "The delay of the earliest due post.", seconds=True)
OUTCOMES = Figure("outcomes", "Outcomes of consumed jobs.")

PARTS = ("stats", "rules", "kept")
"""The parts of a look at a board that its figures need."""

OF_BOARDS = (UP, JOBS, PAUSED, LIMIT, RATE_LIMIT, SCHEDULES, NEXT_DUE, LATE, OUTCOMES)
"""The figures of a board, read on demand."""

EVENTS = Figure("job_events", "Events of jobs.", ("board", "job_name", "event"))
RUN = Figure("job_run", "Run times of handlers.", ("board", "job_name"), seconds=True)
WAIT = Figure(
    "job_wait",
    "Waits of jobs for their first claim, from their post or due time.",
    ("board", "job_name"),
    seconds=True,
)


class Reading(NamedTuple):
    """The value of a figure, and the values of its labels."""

    figure: Figure
    labels: tuple[str, ...]
    value: float


class BoardFigures:
    """Readings of :data:`OF_BOARDS`. :class:`jobboard.contrib.prometheus.BoardCollector` has the same parameters."""

    def __init__(self, boards: Sequence[JobBoard], max_age: float, timeout: float) -> None:
        names = sorted(board.name for board in boards)
        if len(set(names)) < len(names):
            raise ValueError(f"boards are told apart by their names, and these are {', '.join(map(repr, names))}")
        self._readers = [BoardReader(board) for board in boards]
        self._max_age, self._timeout = max_age, timeout

    def read(self) -> Iterator[Reading]:
        end = time.monotonic() + self._timeout
        # All boards at once: one that is slow must not take the time of the others.
        for name, answer in [(each.board.name, each.ask(PARTS, self._max_age)) for each in self._readers]:
            try:
                look = answer(max(0.0, end - time.monotonic()))
                if look.cap is not None:
                    raise JobFailure("its jobs take too long to count")
            except (JobBoardError, TimeoutError) as error:
                LOG.warning("the board %r could not be counted: %s", name, error)
                yield Reading(UP, (name,), 0)
                continue
            yield from _readings(name, look)


def _readings(board: str, look: BoardLook) -> Iterator[Reading]:
    stats, rules, kept = look.stats, look.rules, look.kept
    assert stats is not None
    assert rules is not None
    assert kept is not None
    yield Reading(UP, (board,), 1)
    for state, number in dataclasses.asdict(stats).items():
        yield Reading(JOBS, (board, state), number)
    for job_name in ("",) * rules.paused.everything + rules.paused.names:
        yield Reading(PAUSED, (board, job_name), 1)
    for limit in rules.limits:
        if limit.concurrency is not None:
            yield Reading(LIMIT, (board, limit.name, limit.per), limit.concurrency)
        if limit.rate is not None:
            yield Reading(RATE_LIMIT, (board, limit.name, limit.per), limit.rate[0] / limit.rate[1])
    yield Reading(SCHEDULES, (board,), kept.schedules)
    if kept.next_due is not None:
        yield Reading(NEXT_DUE, (board,), kept.next_due.timestamp())
    yield Reading(LATE, (board,), kept.late)
    if kept.outcomes is not None:
        yield Reading(OUTCOMES, (board,), kept.outcomes)


def twin_of(observed: object) -> Conductor | None:
    """Return a conductor, or the one within a conductor for asyncio; None for any other object."""
    twin = getattr(observed, "sync", observed)
    return twin if isinstance(twin, Conductor) else None


class JobFigures(abc.ABC):
    """Readings of :data:`EVENTS`, :data:`RUN` and :data:`WAIT` of this process's conductors.

    Posters may make up any names of jobs: the first 100 names have series of their own, and the others share
    ``(other)``.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    @abc.abstractmethod
    def tell(self, reading: Reading) -> None:
        """Add a reading to the metrics of the library."""

    def observe(self, conductor: Conductor | AsyncConductor) -> None:
        """Count the jobs of this conductor from now on."""
        twin = twin_of(conductor)
        assert twin is not None
        twin.notifier.register(ANY, self._hear, args=(twin.board.name,))

    def _hear(self, event: str, told: dict[str, Any], board: str) -> None:
        job = told["job"]
        labels = board, self._label(job.name)
        self.tell(Reading(EVENTS, (*labels, event.removeprefix("job_")), 1))
        if event == events.JOB_FINISHED:
            self.tell(Reading(RUN, labels, told["seconds"]))
        elif event == events.JOB_CLAIMED and job.attempts + job.retries == 1:
            self.tell(Reading(WAIT, labels, (job.last_modified - job.ready_on).total_seconds()))

    def _label(self, name: str) -> str:
        if len(self._names) < MAX_NAMES:
            self._names.add(name)
        return name if name in self._names else OTHER
