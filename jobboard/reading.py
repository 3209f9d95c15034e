"""Readings of a board for people and for metrics: one reader for all who look, on a thread of its own.

The page, ``jobboard top`` and the metrics read through it. A board is read while somebody looks, and each part of a
look at its own pace.
"""

from __future__ import annotations

import datetime
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from jobboard import logs, obstacles, runtime, threads
from jobboard.board import JobBoard
from jobboard.engine import Rules
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.finding import ErrorGroups, NameStats
from jobboard.job import Entity, Job
from jobboard.primitives import BoardStats, KeptStats, Seen
from jobboard.retry import outage_backoff
from jobboard.states import CLAIMED, TRASHED

LOG = logs.Log(__name__)

SHORT, LONG = 5.0, 15.0
"""The least seconds between two readings of a part: of one that changes at once, and of one that costs more."""

SHARE = 10
"""The least pause after a reading, in lengths of the reading: a slow server gets little to do."""

LONGEST = 30.0
"""The longest pause after a reading for its length alone, in seconds: one slow answer may have been a hiccup."""

COUNTED = 10_000
"""The cap of counts on a board whose jobs take too long to count."""

NAMED = 2_000
"""The number of jobs that are counted by name where no index counts them."""

LISTED = 500
"""The number of claims in a look."""

ERRORS = 10
"""The number of trashed jobs in a look."""

SILENT = 4.0
"""The seconds of one reading after which a look says that the board does not answer."""

LINGER = 10.0
"""The seconds for which the thread of a reader waits for the next look."""

WATCHED = 15.0
"""The seconds for which a job that somebody has watched is read again."""

CLOCK = 60.0
"""The seconds for which the server's time follows from this machine's clock."""

SAMPLES = 240
"""The number of samples that a reader keeps: an hour or so, while somebody looks."""


def rest(took: float, interval: float) -> float:
    """Return the pause after a reading that took so many seconds."""
    return max(interval, min(LONGEST, SHARE * took))


@dataclass(frozen=True)
class BoardLook:
    """A board as it was last read. A part that was never read is None.

    now: the server's time of the last reading, in seconds. times: the time of each part on this machine's monotonic
    clock. trouble: the error for which the board can't be read now, or has not answered for some seconds; the parts are
    as last read. failed: the errors of single parts, such as counts that take too long.

    cap: the cap of ``stats``, where exact counts take too long. claims: the longest claims first, at most 500. jobs:
    the first jobs in the order of serving. trashed: the last jobs in the trash. names, causes, minutes: as the board
    returns them. watched: the jobs that somebody watches, by uuid.
    """

    now: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    trouble: JobBoardError | None = None
    failed: dict[str, JobBoardError] = field(default_factory=dict)
    cap: int | None = None
    stats: BoardStats | None = None
    rules: Rules | None = None
    kept: KeptStats | None = None
    entities: tuple[Entity, ...] | None = None
    claims: tuple[Job, ...] | None = None
    jobs: tuple[Job, ...] | None = None
    trashed: tuple[Job, ...] | None = None
    names: tuple[NameStats, ...] | None = None
    causes: ErrorGroups | None = None
    minutes: tuple[int, ...] | None = None
    watched: dict[str, Seen] = field(default_factory=dict)

    def age(self, part: str = "stats") -> float | None:
        """Return the seconds since a part was read; None before."""
        return runtime.monotonic() - self.times[part] if part in self.times else None

    def since(self, when: datetime.datetime) -> float:
        """Return the seconds from ``when`` to the look."""
        return max(0.0, self.now - when.timestamp())

    def conductors(self) -> list[Entity]:
        """Return the conductors."""
        return [each for each in self.entities or () if each.kind == "conductor"]

    def oldest(self) -> NameStats | None:
        """Return the name with the job that has waited longest."""
        waiting = [each for each in self.names or () if each.oldest is not None]
        return min(waiting, key=lambda each: each.oldest, default=None)  # type: ignore[arg-type,return-value]

    def unhandled(self) -> list[str]:
        """Return the names of waiting jobs that no conductor handles; [] before all parts are read."""
        if self.names is None or self.rules is None or self.entities is None or self.claims is None:
            return []
        waiting = Counter({each.name: each.waiting for each in self.names if each.waiting})
        running = {each.name for each in self.names if each.running} | {job.name for job in self.claims}
        return obstacles.unhandled_names(waiting, running, self.rules, self.entities)


class Sample(NamedTuple):
    """Counts at one time.

    now: the server's time in seconds. consumed: the number of jobs that the conductors have consumed so far.
    """

    now: float
    stats: BoardStats
    consumed: int


class Part(NamedTuple):
    """A part of a look.

    read: returns the values of fields of the look. interval: the least seconds between two readings.
    """

    read: Callable[[BoardReader], dict[str, Any]]
    interval: float


def _stats(reader: BoardReader) -> dict[str, Any]:
    if reader.seen.cap is None:
        try:
            return {"stats": reader.board.stats()}
        except ConnectionFailure:
            raise
        except JobFailure:
            LOG.info("the jobs of %r take too long to count: counts end at %d", reader.board.name, COUNTED)
    return {"stats": reader.board.stats(cap=COUNTED), "cap": COUNTED}


def _claims(reader: BoardReader) -> dict[str, Any]:
    return {"claims": reader.board.find_page(LISTED, states=[CLAIMED]).jobs}


def _trashed(reader: BoardReader) -> dict[str, Any]:
    return {
        "trashed": tuple(
            Job(reader.board, each, each.posting, TRASHED) for each in reader.board.engine.trash_page(None, ERRORS)
        )
    }


def has_index_by_name(board: JobBoard) -> bool:
    """Return whether the board counts its jobs by name by an index. Before it has connected: False."""
    # Only SQL, which alone knows transactions, has such an index.
    return board.connected and board.characteristics.transactional


def _names(reader: BoardReader) -> dict[str, Any]:
    found = reader.board.names() if has_index_by_name(reader.board) else reader.board.names(at_most=NAMED)
    return {"names": tuple(sorted(found, key=lambda each: (-each.waiting, each.name)))}


def _minutes(reader: BoardReader) -> dict[str, Any]:
    found = reader.board.finished()
    return {"minutes": None if found is None else tuple(found)}


def _watched(reader: BoardReader) -> dict[str, Any]:
    uuids = reader.watched_uuids()
    return {"watched": dict(zip(uuids, reader.board.engine.read(uuids) if uuids else [], strict=True))}


PARTS = {
    "stats": Part(_stats, SHORT),
    "rules": Part(lambda reader: {"rules": reader.board.engine.rules()}, SHORT),
    "entities": Part(lambda reader: {"entities": tuple(reader.board.entities())}, SHORT),
    "claims": Part(_claims, SHORT),
    "watched": Part(_watched, SHORT),
    "kept": Part(lambda reader: {"kept": reader.board.kept_stats()}, LONG),
    "jobs": Part(lambda reader: {"jobs": tuple(obstacles.first_jobs(reader.board))}, LONG),
    "trashed": Part(_trashed, LONG),
    "names": Part(_names, LONG),
    "causes": Part(lambda reader: {"causes": reader.board.error_groups()}, LONG),
    "minutes": Part(_minutes, LONG),
}
"""The parts of a look, in the order in which they are read."""


class BoardReader:
    """A reader of one board, for any number of threads that look.

    A reading begins when somebody looks at a part whose last reading is older than its interval. So an open page, which
    looks every few seconds, costs the same as a hundred, and a board that nobody looks at costs nothing.

    ``seen`` is the last look, and ``samples`` has the counts of the last looks.

    :param connects: connect the board before the first reading. A board that its owner closes later stays closed.
    """

    board: JobBoard

    def __init__(self, board: JobBoard, *, connects: bool = False) -> None:
        self.board = board
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._connects = connects
        self._connecting = runtime.Lock()
        self.seen = BoardLook()
        self._watching: dict[str, float] = {}
        self._news = runtime.Condition()
        self._thread: runtime.Thread | None = None
        self._wanted: set[str] = set()
        self._read_at: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._failed_at = self._again_at = float("-inf")
        self._failures = 0
        self._clock: tuple[float, float] | None = None
        self._began: float | None = None

    def connect(self) -> None:
        """Connect a board that is to be connected before its first reading.

        :raises JobBoardError: see :meth:`JobBoard.connect`.
        """
        with self._connecting:
            if self._connects:
                self.board.connect()
                self._connects = False

    def look(self, parts: Iterable[str]) -> BoardLook:
        """Return the last look at once, and have those parts read that are due."""
        now = runtime.monotonic()
        with self._news:
            if now >= self._again_at:
                self._want([part for part in parts if now >= self._due.get(part, now)])
            if self._began is None or self.seen.trouble is not None or now - self._began <= SILENT:
                return self.seen
            # A frozen server refuses nothing: its error comes once the driver gives up, a minute later or never.
            error = ConnectionFailure(f"the board {self.board.name!r} has not answered for {now - self._began:.0f} s")
            return replace(self.seen, trouble=error)

    def read(self, parts: Sequence[str], max_age: float = 0.0, timeout: float | None = None) -> BoardLook:
        """Return a look whose parts were read at most ``max_age`` seconds ago. Callers share readings.

        :param timeout: the longest wait in seconds; None for any.
        :raises TimeoutError: the board did not answer in time.
        :raises JobBoardError: the board can't be read, or not one of these parts.
        """
        return self.ask(parts, max_age)(timeout)

    def ask(self, parts: Sequence[str], max_age: float = 0.0) -> Callable[[float | None], BoardLook]:
        """Begin :meth:`read`, and return a function of its timeout that ends it."""
        began = runtime.monotonic()

        def is_read(part: str) -> bool:
            return self._read_at.get(part, float("-inf")) >= began - max_age

        def end(timeout: float | None) -> BoardLook:
            with self._news:
                if not self._news.wait_for(lambda: self._failed_at >= began or all(map(is_read, parts)), timeout):
                    raise TimeoutError(f"the board {self.board.name!r} did not answer in time")
                look = self.seen
            for error in (look.trouble, *(look.failed.get(part) for part in parts)):
                if error is not None:
                    raise error
            return look

        with self._news:
            self._want([part for part in parts if not is_read(part)])
        return end

    def watch(self, uuid: str) -> Seen | None:
        """Return a job as last read; None before. It is read again while somebody watches it."""
        with self._news:
            if uuid not in self._watching:
                self._due.pop("watched", None)
            self._watching[uuid] = runtime.monotonic()
        return self.look(["watched"]).watched.get(uuid)

    def watched_uuids(self) -> list[str]:
        """Return the uuids of the jobs that somebody watches."""
        with self._news:
            youngest = sorted(self._watching.items(), key=lambda each: -each[1])[:LISTED]
            since = runtime.monotonic() - WATCHED
            self._watching = {uuid: at for uuid, at in youngest if at >= since}
            return list(self._watching)

    def expire(self) -> None:
        """Make all parts due, as an act has changed the board."""
        with self._news:
            self._due.clear()

    def _want(self, parts: Iterable[str]) -> None:
        self._wanted.update(parts)
        if not self._wanted:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threads.started(f"{self.board.name}-reader", self._run)
        self._news.notify_all()

    def _run(self) -> None:
        while True:
            with self._news:
                if not self._news.wait_for(lambda: self._wanted, LINGER):
                    # Within the lock: the next look starts another thread.
                    self._thread = None
                    return
                part = next(part for part in PARTS if part in self._wanted)
                self._began = began = runtime.monotonic()
            self._read(part, began)

    def _read(self, part: str, began: float) -> None:
        error: JobBoardError | None = None
        values: dict[str, Any] = {}
        try:
            now = self._server_time()
            values = PARTS[part].read(self)
        except JobBoardError as failure:
            error = failure
        except Exception as failure:
            LOG.exception("the %s of the board %r could not be read", part, self.board.name)
            error = JobFailure(f"{type(failure).__name__}: {failure}", failure)
        ended = runtime.monotonic()
        with self._news:
            self._began = None
            if isinstance(error, ConnectionFailure):
                self._failures += 1
                self._wanted.clear()
                self._clock = None
                self._failed_at, self._again_at = ended, ended + outage_backoff(self._failures)
                self.seen = replace(self.seen, trouble=error)
            else:
                self._failures = 0
                self._wanted.discard(part)
                self._read_at[part] = began
                self._due[part] = ended + rest(ended - began, PARTS[part].interval)
                failed = {name: each for name, each in self.seen.failed.items() if name != part}
                if error is None:
                    times = {**self.seen.times, part: ended}
                    self.seen = replace(self.seen, now=now, times=times, trouble=None, failed=failed, **values)
                else:
                    self.seen = replace(self.seen, trouble=None, failed={**failed, part: error})
            if part == "stats" and error is None:
                self._sample()
            self._news.notify_all()

    def _server_time(self) -> float:
        """Return the server's time in seconds. Ask the server now and then."""
        self.connect()
        now = runtime.monotonic()
        if self._clock is None or now - self._clock[0] > CLOCK:
            self._clock = (now, self.board.engine.now() / 1e6)
        return self._clock[1] + now - self._clock[0]

    def _sample(self) -> None:
        look = self.seen
        assert look.stats is not None
        tallies = (each.metadata.get("consumed") for each in look.conductors())
        self.samples.append(Sample(look.now, look.stats, sum(each for each in tallies if isinstance(each, int))))
