"""Starting points: where a look for ready jobs begins on a board whose indexes are full of dead entries.

PostgreSQL and MariaDB keep the index entry of a finished job for as long as any transaction may still see the job. A
look from the start of an index passes all these entries: under a transaction that stays open, one for each job that was
done since. So where that costs much, a look begins at a *starting point*, and reads

- of each priority, the jobs from an id on: the first unclaimed one lies there,
- the jobs that came back at an instant or later, by an index of their own: they have their old ids,
- the leases and delays that end at an instant or later.

A starting point makes a look short and decides nothing: rows are locked and compared as ever.

**It passes over no job.** Before a *survey*, a board notes a *moment*: the time, the highest stored id, and the
transactions that may write at that moment. The survey reads the first unclaimed job of each priority, without a lock,
so that jobs count which another transaction is claiming. An id rises to that job, and no further than to the highest id
of an earlier moment whose transactions have ended since; the instants rise to the time of that moment. So the survey
has seen what a transaction of that moment brought. A later transaction draws higher ids, and stores later instants:
each instant is no earlier than its statement.

- PostgreSQL lists the transactions that hold a lock for writing on the table. A reading snapshot holds none.
- MariaDB shows other transactions to administrators only. There a caller's transaction shares the lock of a row before
  its first act, one of :data:`CALLERS` rows in turn, and a moment notes the rows that are locked. The board's own
  transactions are short: they count as ended after :data:`COMMIT_SECONDS`.

A transaction that is open for longer than :data:`OPEN_SECONDS` is waited for no longer. The next *full survey* finds
what it brings: a full survey trusts no starting point and sets it again, downwards too. It comes every :data:`EVERY`
seconds, or every :data:`RARELY` times as long as one takes. A take that finds nothing looks from the beginning before
it returns. So does a take of the engine's, under limits, that finds fewer jobs than it asks for. With a condition,
behind full scopes and under pauses takes always look from the beginning.

Behind 6,000 dead entries a claim and its end read 160 pages on MariaDB, not 13,500, and 130 entries on PostgreSQL,
not 10,500: they took 5 ms instead of 24, and 1.1 ms instead of 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from jobboard import runtime
from jobboard.units import SECOND

COMMIT_SECONDS = 2.0
"""The seconds that a transaction of the board's own may take from the draw of an id to its commit on MariaDB, so that
looks find the job at once."""

OPEN_SECONDS = 60.0
"""The seconds for which a starting point waits for an open transaction. Looks pass the jobs of this time, if a
transaction that has written stays open."""

CALLERS = 8
"""The number of rows that callers' transactions lock on MariaDB, each for :data:`CALLERS_MICROS` in turn."""

CALLERS_MICROS = 2 * SECOND
"""The µs for which callers' transactions lock one row after they have begun."""

SURVEY_SECONDS = 0.25
"""The seconds for which a survey is used. Each look passes the entries of jobs that were consumed since the survey."""

EVERY = 1.0
"""The shortest time between two full surveys, in seconds."""

RARELY = 20
"""The least ratio of the time between two full surveys to the duration of a full survey."""

EXPENSIVE = 300
"""The least µs of a full survey with which looks use starting points. Otherwise looks go from the beginning, and find
late commits at once."""

MOST = 100
"""The number of lists of names for which one board has starting points at most."""

_BELOW, _ABOVE = -(2**15), 2**15 - 1


class Point(NamedTuple):
    """A starting point.

    :param ids: the id to begin at by priority, as it is stored. Other priorities are read from their first job on.
    :param returned: the instant from which on jobs that came back are looked up.
    :param wake: the instant from which on leases and delays may have ended.
    """

    ids: Mapping[int, int]
    returned: int
    wake: int = 0

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """The ranges of priorities: the first one, the id in that to begin at, and the first one past the range."""
        known = sorted(self.ids)
        begins = [(_BELOW, 0), *((priority, self.ids[priority]) for priority in known)]
        return [(*begin, past) for begin, past in zip(begins, [*known, _ABOVE], strict=True)]

    @property
    def instants(self) -> dict[str, int]:
        """The other arguments of statements."""
        return {"returned": self.returned, "wake": self.wake}


class WriteMoment(NamedTuple):
    """A moment before a survey.

    :param now: the time.
    :param highest: the highest stored id; None if no stored id is as high as the one that the caller knows.
    :param under_way: marks of the transactions that may have written before this moment, and may still commit.
    """

    now: int
    highest: int | None
    under_way: frozenset[str]


class SurveyResult(NamedTuple):
    """The answer to a survey that begins at a point.

    :param firsts: the priority and the id of the first unclaimed job of each name in each of the point's ranges of
        priorities. A job that came back counts only if it came back before the point's instant ``returned``.
    :param event: the end of the first lease or delay that has ended; None if none has ended.
    :param ran: the duration of the survey, in µs.
    """

    firsts: Sequence[tuple[int, int]]
    event: int | None
    ran: int


class SurveyRequests(Protocol):
    """The requests of a survey."""

    def moment(self, highest: int) -> WriteMoment | None:
        """Note a moment; None in a transaction that holds locks.

        :param highest: an id that is known to be drawn.
        """

    def survey(self, since: Point) -> SurveyResult:
        """Survey the jobs from a point on, by a statement that begins after the moment."""


class _Noted(NamedTuple):
    """A moment, with its highest known id, and the transactions of it that have not ended.

    at: on the monotonic clock, when the moment had been noted."""

    at: float
    now: int
    highest: int
    under_way: frozenset[str]


class Surveyor:
    """The surveys for the jobs of some names, and the starting point that they allow."""

    def __init__(self) -> None:
        self._turn = runtime.Lock()
        self._point: Point | None = None
        self._noted: list[_Noted] = []
        self._priorities: set[int] = set()
        self._period = EVERY
        self._last = self._due = self._until = float("-inf")

    def point(self, requests: SurveyRequests) -> Point | None:
        """Return where the next look begins; None: at the beginning."""
        at = runtime.monotonic()
        # A survey pays only if further looks follow.
        is_busy, self._last = at < self._last + self._period, at
        if is_busy and at >= self._due and self._turn.acquire(blocking=False):
            try:
                self._survey(at, requests)
            finally:
                self._turn.release()
        return self._point if runtime.monotonic() < self._until else None

    def _survey(self, begun: float, requests: SurveyRequests) -> None:
        known = self._noted[-1].highest if self._noted else 0
        moment = requests.moment(known)
        if moment is None:
            return
        ended = self._note(begun, moment._replace(highest=max(moment.highest or 0, known)))
        since = self._point if self._point is not None and begun < self._until else None
        is_full = since is None
        if since is None:
            # Jobs that came back before the instant from which on looks will look them up count as any others.
            since = Point(dict.fromkeys(self._priorities, 0), 0 if ended is None else ended.now)
        result = requests.survey(since)
        at = runtime.monotonic()
        if is_full:
            self._period = max(EVERY, RARELY * result.ran / 1e6)
            self._until = at + self._period
        if is_full and result.ran < EXPENSIVE:
            self._point, self._due = None, self._until
        elif ended is None:
            # At the beginning of the index. A look from a point reads without locks, and so MariaDB passes dead entries
            # faster.
            self._point, self._due = Point({}, moment.now), self._until
        else:
            self._point, self._due = _raised_point(since, result, ended), min(at + SURVEY_SECONDS, self._until)
        self._priorities = {*self._priorities, *(priority for priority, _ in result.firsts)}

    def _note(self, begun: float, moment: WriteMoment) -> _Noted | None:
        """Note a moment. Return the latest one whose transactions have ended; None without one."""
        assert moment.highest is not None
        noted = [each._replace(under_way=each.under_way & moment.under_way) for each in self._noted]
        ended = [
            number
            for number, each in enumerate(noted)
            if each.at <= begun - (OPEN_SECONDS if each.under_way else COMMIT_SECONDS)
        ]
        # Moments before the newest ended one are of no more use.
        self._noted = noted[ended[-1] if ended else 0 :]
        found = self._noted[0] if ended else None
        self._noted.append(_Noted(runtime.monotonic(), moment.now, moment.highest, moment.under_way))
        return found


def _raised_point(since: Point, result: SurveyResult, ended: _Noted) -> Point:
    """Return the point that a survey from ``since`` allows: nothing that the survey has seen lies before the point, and
    nothing that a transaction may bring which had not ended."""
    # Of a priority that begins no range the survey may have seen the first job of one name, and not that of another.
    ids = dict.fromkeys((priority for priority, _ in result.firsts), 0)
    for priority, begun in since.ids.items():
        first = min((id_ for found, id_ in result.firsts if found == priority), default=ended.highest)
        ids[priority] = max(begun, min(first, ended.highest))
    wake = ended.now if result.event is None else min(result.event, ended.now)
    return since._replace(ids=ids, wake=max(since.wake, wake))


class Starts:
    """The starting points of one board: one for each list of names that takes ask for."""

    def __init__(self) -> None:
        self._surveyors: dict[tuple[str, ...] | None, Surveyor] = {}

    def of(self, names: Sequence[str] | None) -> Surveyor:
        if len(self._surveyors) > MOST:
            self._surveyors = {}
        key = None if names is None else tuple(names)
        return self._surveyors.setdefault(key, Surveyor())
