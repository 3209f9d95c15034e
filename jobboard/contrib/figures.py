"""Figures of boards and conductors: the one list for all libraries of metrics."""

from __future__ import annotations

import abc
import dataclasses
import datetime
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jobboard.board import JobBoard
from jobboard.conductor import Conductor, events
from jobboard.exceptions import JobBoardError, JobFailure
from jobboard.notifier import ANY
from jobboard.reading import LONG, BoardLook, BoardReader, has_index_by_name
from jobboard.states import UNCLAIMED

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
CONDUCTORS = Figure("conductors", "Conductors that are alive.")
SLOTS = Figure("slots", "Jobs that the conductors run at once, at most.")
HUNG = Figure("slots_hung", "Slots whose handlers still run although they were given up.")
OLDEST = Figure("oldest", "The age of the oldest waiting job.", seconds=True)
NAME_WAITING = Figure("name_waiting", "Waiting jobs by name.", ("board", "job_name"))
NAME_OLDEST = Figure("name_oldest", "The age of the oldest waiting job by name.", ("board", "job_name"), seconds=True)

PARTS = ("stats", "rules", "kept", "entities")
"""The parts of a look at a board that its figures need."""

OF_BOARDS = (
    *(UP, JOBS, PAUSED, LIMIT, RATE_LIMIT, SCHEDULES, NEXT_DUE, LATE, OUTCOMES, CONDUCTORS, SLOTS, HUNG),
    *(OLDEST, NAME_WAITING, NAME_OLDEST),
)
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
        self._names = _NamesWithSeries()

    def read(self) -> Iterator[Reading]:
        end = time.monotonic() + self._timeout
        # All boards at once: one that is slow must not take the time of the others.
        for reader, answer in [(each, each.ask(PARTS, self._max_age)) for each in self._readers]:
            try:
                look = answer(max(0.0, end - time.monotonic()))
                if look.cap is not None:
                    raise JobFailure("its jobs take too long to count")
            except (JobBoardError, TimeoutError) as error:
                LOG.warning("the board %r could not be counted: %s", reader.board.name, error)
                yield Reading(UP, (reader.board.name,), 0)
                continue
            yield from _readings(reader.board.name, look)
            yield from self._waiting(reader, max(0.0, end - time.monotonic()))

    def _waiting(self, reader: BoardReader, timeout: float) -> Iterator[Reading]:
        """Read the jobs that wait. They cost more, so that the reader says when: a look may be minutes old."""
        part = "names" if has_index_by_name(reader.board) else "jobs"
        look = reader.look([part])
        if part not in look.times:
            try:
                look = reader.read([part], LONG, timeout)
            except (JobBoardError, TimeoutError) as error:
                LOG.warning("the waiting jobs of %r could not be read: %s", reader.board.name, error)
                return
        board, since = reader.board.name, look.now - max(look.times.values()) + look.times[part]
        if part == "jobs":
            posts = [job.created_on for job in look.jobs or () if job.seen_state == UNCLAIMED]
            yield Reading(OLDEST, (board,), _age(since, min(posts, default=None)))
            return
        waiting: Counter[str] = Counter()
        ages: dict[str, float] = {}
        for each in look.names or ():
            name, age = self._names.label(each.name), _age(since, each.oldest)
            waiting[name] += each.waiting
            ages[name] = max(age, ages.get(name, 0.0))
        yield Reading(OLDEST, (board,), max(ages.values(), default=0.0))
        for name, age in ages.items():
            yield Reading(NAME_WAITING, (board, name), waiting[name])
            yield Reading(NAME_OLDEST, (board, name), age)


def _age(now: float, posted: datetime.datetime | None) -> float:
    return 0.0 if posted is None else max(0.0, now - posted.timestamp())


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
    conductors = look.conductors()
    yield Reading(CONDUCTORS, (board,), len(conductors))
    for figure, field in ((SLOTS, "slots"), (HUNG, "hung")):
        # The metadata may be those of another version, or of another program.
        numbers = [each.metadata.get(field) for each in conductors]
        yield Reading(figure, (board,), sum(each for each in numbers if isinstance(each, int)))


def twin_of(observed: object) -> Conductor | None:
    """Return a conductor, or the one within a conductor for asyncio; None for any other object."""
    twin = getattr(observed, "sync", observed)
    return twin if isinstance(twin, Conductor) else None


class _NamesWithSeries:
    """The names of jobs that have series of their own: posters may make up any names and labels."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def label(self, name: str) -> str:
        if len(self._names) < MAX_NAMES:
            self._names.add(name)
        return name if name in self._names else OTHER


class JobFigures(abc.ABC):
    """Readings of :data:`EVENTS`, :data:`RUN` and :data:`WAIT` of this process's conductors.

    The first 100 names have series of their own, and the others share ``(other)``.
    """

    def __init__(self) -> None:
        self._names = _NamesWithSeries()

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
        labels = board, self._names.label(job.label)
        self.tell(Reading(EVENTS, (*labels, event.removeprefix("job_")), 1))
        if event == events.JOB_FINISHED:
            self.tell(Reading(RUN, labels, told["seconds"]))
        elif event == events.JOB_CLAIMED and job.attempts + job.retries == 1:
            self.tell(Reading(WAIT, labels, (job.last_modified - job.ready_on).total_seconds()))
