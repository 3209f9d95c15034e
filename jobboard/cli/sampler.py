"""The knowledge of ``jobboard top`` and ``watch``: looks at a board, again and again, at a bounded cost.

**Cost.** One look at a time, :data:`LOOKS` a second at most, with a pause after each of :data:`SHARE` times its own
length. So a look that takes long (counting, on SQL) or is several requests (on ZooKeeper) never takes more than a small
share of the server. Every third look counts the jobs. The looks between them ask in turn for the claims, the first
waiting and scheduled jobs, the entities, the rules, the schedules, and the end of the trash. A page has :data:`PAGE`
jobs at most: on a larger board, "by name" is of the first ones.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from jobboard import notifier
from jobboard.board import JobBoard
from jobboard.cli.summary import unhandled
from jobboard.engine import Rules
from jobboard.job import Entity
from jobboard.primitives import PAGE, RANKS, BoardStats, KeptStats
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED, Record, State

T = TypeVar("T")

LOOKS = 1.8
"""The largest number of looks a second. A little below two leaves room for the pings of a driver."""

SHARE = 10
"""The pause after a look, in lengths of the look."""

LONGEST = 30.0
"""The longest pause after a look, in seconds: one slow answer may have been a hiccup."""

BESIDE = 2
"""The number of other looks between two counts."""

ERRORS = 10
HEADS = 10
"""The number of priorities behind the first page that are searched for the oldest waiting job."""

WINDOW = 30.0
"""The seconds over which a rate is taken: conductors report every ten."""

SHORTEST = 0.5
"""The seconds from which a rate is worth showing."""

EVENTS = {
    notifier.POSTED: "posted",
    notifier.CLAIMED: "started",
    notifier.CONSUMED: "consumed",
    notifier.ABANDONED: "abandoned",
    notifier.TRASHED: "trashed",
}
"""The events that are counted, and the names of their rates."""

COUNTS = {"dispatched": "started", "consumed": "consumed", "abandoned": "abandoned", "trashed": "trashed"}
"""The counts that conductors report, and the names of their rates."""

_LAST = 2**53 - 1
"""A sequence behind that of any job: some backends number jobs by the time in microseconds."""


class Pace:
    """Asks the server, and knows when the server may be asked again."""

    def __init__(self) -> None:
        self._ready = time.monotonic()

    def ask(self, function: Callable[..., T], *args: Any) -> T:
        began, share = time.monotonic(), 0
        try:
            answer = function(*args)
            share = SHARE
            return answer
        finally:
            # A server that was away has not worked for as long as it took to find out.
            now = time.monotonic()
            self._ready = now + max(1 / LOOKS, min(LONGEST, share * (now - began)))

    def pause(self) -> float:
        """Return the seconds for which the server is to be left alone now."""
        return max(0.0, self._ready - time.monotonic())


class Rates:
    """Rates of counters, per second. ``rates`` is empty until enough is known."""

    def __init__(self) -> None:
        self._before: deque[tuple[float, Counter[str]]] = deque()
        self.rates: dict[str, float] = {}

    def take(self, now: float, counters: Counter[str]) -> None:
        """Take in the counters at a time in seconds. A time that is not later than the last one tells nothing new."""
        if self._before and now <= self._before[-1][0]:
            return
        self._before.append((now, counters))
        while len(self._before) > 2 and self._before[0][0] < now - WINDOW:
            self._before.popleft()
        began, before = self._before[0]
        if now - began >= SHORTEST:
            self.rates = {name: (counters[name] - before[name]) / (now - began) for name in counters}


class Conductors:
    """Rates of the work of conductors, from the counts that each reports with its heartbeats.

    Conductors count by a clock of their own, so the age of a report does not matter. ``rates`` is the sum over the
    conductors with a known rate.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Rates] = {}
        self.rates: dict[str, float] = {}

    def hear(self, entities: Iterable[Entity]) -> None:
        """Take in the entities that are alive now."""
        known: dict[tuple[Any, ...], Rates] = {}
        for entity in entities:
            counts = entity.metadata
            if entity.kind == "conductor" and all(
                isinstance(counts.get(of), int | float) for of in ("seconds", *COUNTS)
            ):
                rates = known[_key(entity)] = self._known.get(_key(entity)) or Rates()
                rates.take(counts["seconds"], Counter({name: counts[count] for count, name in COUNTS.items()}))
        self._known = known
        each = [conductor.rates for conductor in known.values() if conductor.rates]
        self.rates = {name: sum(rates[name] for rates in each) for name in (COUNTS.values() if each else ())}

    def rates_of(self, entity: Entity) -> dict[str, float]:
        """Return the rates of one conductor; none if they are not known (yet)."""
        conductor = self._known.get(_key(entity))
        return {} if conductor is None else conductor.rates


def _key(entity: Entity) -> tuple[Any, ...]:
    """Return what tells a conductor from one that was started anew, and counts from 0."""
    return entity.kind, entity.name, *(str(entity.metadata.get(field)) for field in ("host", "pid", "started"))


class Sampler:
    """The knowledge of a board so far. :meth:`look` makes the next request, and replaces old knowledge."""

    def __init__(self, board: JobBoard) -> None:
        self.board = board
        self.pace = Pace()
        self.is_reported = board.engine.reported_events >= EVENTS.keys()
        """Whether the board reports all of :data:`EVENTS`; if not, conductors report the rates of their own work."""
        self.stats: BoardStats | None = None
        self.conductors = Conductors()
        self.entities: Sequence[Entity] = ()
        self.rules = Rules()
        self.kept = KeptStats(0, None, 0.0, None)
        self.complete = False
        """Whether everything has been asked for at least once."""
        self.counted_at: float | None = None
        self.interval = 0.0
        """The seconds between the last two counts."""
        self.running_at = 0.0
        """The server's time, in seconds, at which the claims were seen."""
        self.running: Sequence[Record] = ()
        """The claimed jobs that were seen, the oldest claim first."""
        self.waiting: Sequence[Record] = ()
        """The first claimable jobs, in the order of serving."""
        self.scheduled: Sequence[Record] = ()
        """The first jobs that are not due yet; failed jobs that are tried again later are among them."""
        self.heads: Sequence[Record] = ()
        """The first jobs of priorities behind the waiting jobs that were seen."""
        self.trashed: Sequence[Record] = ()
        self._all_heads = True
        self._offset = 0.0
        self._events: Counter[str] = Counter(dict.fromkeys(EVENTS.values(), 0))
        self._changes = Rates()
        self._reported = Rates()
        self._steps = self._turns()
        for event in EVENTS if self.is_reported else ():
            board.notifier.register(event, self._heard)

    def _heard(self, event: str, details: dict[str, Any]) -> None:
        self._events[EVENTS[event]] += 1

    # Asking

    def look(self) -> None:
        """Look at what is next in turn.

        :raises ConnectionFailure: the board can't be reached; the next call is the next try.
        """
        step = next(self._steps)
        step()

    def _turns(self) -> Iterator[Callable[[], None]]:
        """Yield a count, then two of the others, and so on. No step runs in here: an error would end the turns."""
        yield self._ask_clock
        others = self._others()
        while True:
            yield self.count
            for _ in range(BESIDE):
                yield next(others)

    def _others(self) -> Iterator[Callable[[], None]]:
        while True:
            # No look asks for jobs that are not there.
            if self.stats is not None and self.stats.claimed:
                yield self._ask_running
            if self.stats is not None and self.stats.scheduled:
                yield self._ask_scheduled
            if self.stats is not None and self.stats.unclaimed:
                yield self._ask_waiting
            for _ in range(HEADS):
                if self._behind() is None:
                    break
                yield self._ask_head
            yield self.ask_entities
            yield self._ask_rules
            yield self._ask_kept
            yield self._ask_trash

    def _ask_clock(self) -> None:
        self._offset = self.pace.ask(self.board.engine.now) / 1e6 - time.time()

    def count(self) -> None:
        stats = self.pace.ask(self.board.stats)
        now = time.monotonic()
        if self.counted_at is not None:
            self.interval = now - self.counted_at
        self.counted_at = now
        self._changes.take(now, Counter({**asdict(stats), "on_board": stats.on_board}))
        if self.is_reported:
            self._reported.take(now, self._events.copy())
        if not stats.claimed:
            self.running = ()
        if not stats.scheduled:
            self.scheduled = ()
        if not stats.unclaimed:
            self.waiting = self.heads = ()
        self.stats = stats

    def _ask_running(self) -> None:
        claims = self._page(CLAIMED, self.stats.claimed if self.stats else 1)
        self.running_at = self.now
        self.running = sorted(claims, key=lambda record: record.modified_on)

    def _ask_scheduled(self) -> None:
        self.scheduled = self._page(SCHEDULED, self.stats.scheduled if self.stats else 1)

    def _ask_waiting(self) -> None:
        self.waiting, self.heads = self._page(UNCLAIMED, self.stats.unclaimed if self.stats else 1), ()
        self._all_heads = len(self.waiting) < PAGE

    def _page(self, state: State, count: int, after: Record | None = None) -> list[Record]:
        """Return the first jobs in a state.

        :param count: the number of them, so that a store without an index of states does not walk to the end.
        """
        limit, states = min(PAGE, count) or 1, frozenset({state})
        page = self.pace.ask(self.board.engine.page, after, limit, None, states)
        if any(seen.state != state for seen in page):
            # Nobody has swept jobs that are due, or lapsed, and they took the places of others.
            page = self.pace.ask(self.board.engine.page, after, PAGE, None, states)
        return [seen.record for seen in page if seen.record is not None and seen.state == state]

    def _behind(self) -> Record | None:
        """Return the last job of the last priority that was seen, if a lower priority may have jobs."""
        last = (*self.waiting, *self.heads)[-1:]
        return last[0] if last and not self._all_heads and last[0].priority < RANKS[-1] else None

    def _ask_head(self) -> None:
        """Look at the first, and so the oldest, job of the next priority behind a full page."""
        last = self._behind()
        found = [] if last is None else self._page(UNCLAIMED, 1, last._replace(sequence=_LAST))[:1]
        self.heads, self._all_heads = (*self.heads, *found), not found

    def ask_entities(self) -> None:
        self.entities = self.pace.ask(self.board.entities)
        self.conductors.hear(self.entities)

    def _ask_rules(self) -> None:
        self.rules = self.pace.ask(self.board.engine.rules)

    def _ask_kept(self) -> None:
        self.kept = self.pace.ask(self.board.kept_stats)

    def _ask_trash(self) -> None:
        self.trashed = self.pace.ask(self.board.engine.trash_page, None, ERRORS)
        self.complete = self.stats is not None

    # What is known

    @property
    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.time() + self._offset

    @property
    def changes(self) -> dict[str, float]:
        """The rates of the counts."""
        return self._changes.rates

    @property
    def rates(self) -> dict[str, float]:
        """The rates of posts, starts and ends, as far as they are known."""
        return self._reported.rates if self.is_reported else self.conductors.rates

    @property
    def waiting_of(self) -> int:
        """The number of waiting jobs, those included that were not looked at."""
        return self.stats.unclaimed if self.stats and len(self.waiting) >= PAGE else len(self.waiting)

    @property
    def running_of(self) -> int:
        """The number of claimed jobs, those included that were not looked at."""
        return self.stats.claimed if self.stats and len(self.running) >= PAGE else len(self.running)

    @property
    def oldest_waiting(self) -> Record | None:
        return min((*self.waiting, *self.heads), key=lambda record: record.created_on, default=None)

    @property
    def by_name(self) -> list[tuple[str, int, int, int]]:
        """(name, waiting, scheduled, running) of the jobs that were seen, the most frequent name first."""
        counts = [Counter(record.name for record in each) for each in (self.waiting, self.scheduled, self.running)]
        total = sum(counts, Counter())
        names = sorted(total, key=lambda name: (-total[name], name))
        return [(name, *(count[name] for count in counts)) for name in names]  # type: ignore[misc]

    @property
    def unhandled(self) -> list[str]:
        """The names of waiting jobs that no conductor handles."""
        waiting, running = ([record.name for record in each] for each in (self.waiting, self.running))
        return unhandled(waiting, running, self.rules, self.entities) if self.complete else []

    @property
    def errors(self) -> list[Record]:
        """The jobs with the latest errors that were seen: in the trash, or to be tried again."""
        records = (*self.trashed, *self.waiting, *self.scheduled, *self.running)
        failed = {record.uuid: record for record in records if record.error}
        return sorted(failed.values(), key=lambda record: record.modified_on, reverse=True)[:ERRORS]
