"""Looks at a board again and again without being a burden to it: what ``jobboard top`` and ``watch`` know.

**What it costs.** One look at a time, :data:`LOOKS` a second at most; and after each a pause of :data:`SHARE` times as
long as it took, so that what does grow with the board (counting, on SQL) or is several requests (a look on ZooKeeper)
never takes more than a small share of the server. The counts are asked for with every look and the rest in turn: the
claims, the first jobs that wait, who is there, what is paused or limited, the schedules, and the last of the trash. A
page has :data:`PAGE` jobs at most: on a larger board, "by name" is of the first ones.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from jobboard import notifier
from jobboard.board import PAGE, JobBoard
from jobboard.cli.rates import Conductors, Rate, Rates
from jobboard.engine import Rules
from jobboard.job import Entity
from jobboard.primitives import RANKS, BoardStats, KeptStats, Seen
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED, Record

T = TypeVar("T")

LOOKS = 1.8
"""How many looks a second, at most: a little below two leaves room for the pings of a driver."""

SHARE = 10
"""How many times as long as a look took the server is left alone."""

LONGEST = 30.0
"""But not for longer than this, in seconds: it may have been but one hiccup."""

BESIDE = 2
"""How many other looks come between two counts."""

ERRORS = 10
HEADS = 10
"""Of how many priorities behind the first page the first job is looked for."""

_LAST = 2**53 - 1
"""A sequence behind that of any job: some backends number jobs by the time in microseconds."""

RATES = {
    notifier.POSTED: "posted",
    notifier.CLAIMED: "started",
    notifier.CONSUMED: "consumed",
    notifier.ABANDONED: "abandoned",
    notifier.TRASHED: "trashed",
}
"""The events that are counted, and what that is called."""


class Pace:
    """Asks the server, and knows when it may be asked again."""

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
        """For how many seconds the server is to be left alone now."""
        return max(0.0, self._ready - time.monotonic())


class Sampler:
    """What is known of a board so far. :meth:`look` makes the next request; what it learns replaces what was known, so
    that another thread may read all of it at any time."""

    def __init__(self, board: JobBoard) -> None:
        self.board = board
        self.pace = Pace()
        self.told = board.engine.reported_events >= RATES.keys()
        """Whether the board reports all of :data:`RATES`; if not, conductors report the rates of their own work."""
        self.stats: BoardStats | None = None
        self.conductors = Conductors()
        self.entities: Sequence[Entity] = ()
        self.rules = Rules()
        self.kept = KeptStats(0, None, 0.0, None)
        self.trashed: Sequence[Record] = ()
        self.complete = False
        """Whether everything has been asked for at least once."""
        self.counted_at: float | None = None
        self.interval = 0.0
        """How many seconds lay between the last two counts."""
        self.running_at = 0.0
        """When the claims were seen, by the server's time: how long they have lasted since is not known."""
        self._offset = 0.0
        self._claims: Sequence[Seen] = ()
        self._ahead: Sequence[Seen] = ()
        self._heads: Sequence[Seen] = ()
        self._later: Sequence[Seen] = ()
        self._all_claims = self._all_ahead = self._all_heads = False
        self._events: Counter[str] = Counter(dict.fromkeys(RATES.values(), 0))
        self._counts = Rates()
        self._happened = Rates()
        self._steps = self._turns()
        if self.told:
            for event in RATES:
                board.notifier.register(event, self._heard)

    def _heard(self, event: str, details: dict[str, Any]) -> None:
        self._events[RATES[event]] += 1

    # Asking

    def look(self) -> None:
        """Look at what is next in turn.

        :raises ConnectionFailure: the board can't be reached; call it again for the next try.
        """
        step = next(self._steps)
        step()

    def _turns(self) -> Iterator[Callable[[], None]]:
        """A count, then two of the others, and so on. (No step runs in here: an error would end the turns.)"""
        yield self._ask_clock
        others = self._others()
        while True:
            yield self._count
            for _ in range(BESIDE):
                yield next(others)

    def _others(self) -> Iterator[Callable[[], None]]:
        while True:
            stats = self.stats
            if stats is not None and stats.on_board <= PAGE:
                yield self._ask_all
            elif stats is not None:
                # What is not there is not asked for.
                if stats.claimed:
                    yield self._ask_claims
                if stats.scheduled:
                    yield self._ask_later
                if stats.unclaimed:
                    yield self._ask_ahead
                while self._behind() is not None:
                    yield self._ask_head
            yield self._ask_entities
            yield self._ask_rules
            yield self._ask_kept
            yield self._ask_trash

    def _ask_clock(self) -> None:
        self._offset = self.pace.ask(self.board.door.now) / 1e6 - time.time()

    def _count(self) -> None:
        stats = self.pace.ask(self.board.stats)
        now = time.monotonic()
        if self.counted_at is not None:
            self.interval = now - self.counted_at
        self.counted_at = now
        self._counts.take(now, Counter({**asdict(stats), "on_board": stats.on_board}))
        if self.told:
            self._happened.take(now, self._events.copy())
        if not stats.claimed:
            self._claims, self._all_claims = (), True
        if not stats.scheduled:
            self._later = ()
        if not stats.unclaimed:
            self._ahead, self._heads = (), ()
            self._all_ahead = self._all_heads = True
        self.stats = stats

    def _ask_all(self) -> None:
        self._claims = self._ahead = self._later = self.pace.ask(self.board.door.page, None, PAGE, None, None)
        self.running_at = self.now
        self._heads = ()
        self._all_claims = self._all_ahead = self._all_heads = True

    def _ask_claims(self) -> None:
        assert self.stats is not None
        # They come early in the order of serving, as they were taken from there: who asks for no more of them than
        # there are does not have a store without an index of them walk to the end.
        limit = min(PAGE, self.stats.claimed) or 1
        self._claims = self.pace.ask(self.board.door.page, None, limit, None, frozenset({CLAIMED}))
        self.running_at = self.now
        self._all_claims = len(self._claims) < limit

    def _ask_later(self) -> None:
        assert self.stats is not None
        limit = min(PAGE, self.stats.scheduled) or 1
        self._later = self.pace.ask(self.board.door.page, None, limit, None, frozenset({SCHEDULED}))

    def _ask_ahead(self) -> None:
        assert self.stats is not None
        limit = min(PAGE, self.stats.unclaimed) or 1
        self._ahead = self.pace.ask(self.board.door.page, None, limit, None, frozenset({UNCLAIMED}))
        self._heads, self._all_ahead = (), len(self.waiting) >= self.stats.unclaimed
        self._all_heads = self._all_ahead

    def _behind(self) -> Record | None:
        """The last job of the first page, or the head that was found last, where a lower priority may have another."""
        last = (self._heads or self._ahead)[-1:]
        if self._all_heads or len(self._heads) >= HEADS or not last or last[0].record is None:
            return None
        return None if last[0].record.priority >= RANKS[-1] else last[0].record

    def _ask_head(self) -> None:
        """Each priority's oldest job is its first: one small page for the first of those behind a full page."""
        last = self._behind()
        assert last is not None
        # Behind all the jobs of that priority.
        after = last._replace(sequence=_LAST)
        found = self.pace.ask(self.board.door.page, after, 1, None, frozenset({UNCLAIMED}))
        self._heads = (*self._heads, *found)
        self._all_heads = not found

    def _ask_entities(self) -> None:
        self.entities = self.pace.ask(self.board.entities)
        self.conductors.hear(self.entities)

    def _ask_rules(self) -> None:
        self.rules = self.pace.ask(self.board.door.rules)

    def _ask_kept(self) -> None:
        self.kept = self.pace.ask(self.board.kept_stats)

    def _ask_trash(self) -> None:
        self.trashed = self.pace.ask(self.board.door.trash_page, None, ERRORS)
        self.complete = self.stats is not None

    # What is known

    @property
    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.time() + self._offset

    @property
    def changes(self) -> dict[str, Rate]:
        """How fast the counts change."""
        return self._counts.rates

    @property
    def rates(self) -> dict[str, Rate]:
        """How fast jobs are posted, started and done; what is not known is not there."""
        return self._happened.rates if self.told else self.conductors.rates

    @property
    def running(self) -> list[Record]:
        """The claims that were seen, the oldest first."""
        seen = {each.record.uuid: each.record for each in (*self._ahead, *self._claims) if each.record is not None}
        claimed = [record for record in seen.values() if record.state == CLAIMED]
        return sorted(claimed, key=lambda record: record.modified_on)

    @property
    def waiting(self) -> list[Record]:
        """The first jobs that can be claimed, in the order in which they will be."""
        return [seen.record for seen in self._ahead if seen.record is not None and seen.state == UNCLAIMED]

    @property
    def scheduled(self) -> list[Record]:
        """The first jobs that are not due yet: those that have failed and are tried again later are among them."""
        return [seen.record for seen in self._later if seen.record is not None and seen.state == SCHEDULED]

    @property
    def waiting_of(self) -> int:
        """How many wait, those that were not looked at included."""
        return len(self.waiting) if self._all_ahead or self.stats is None else self.stats.unclaimed

    @property
    def running_of(self) -> int:
        """How many are claimed, those that were not looked at included."""
        return len(self.running) if self._all_claims or self.stats is None else self.stats.claimed

    @property
    def oldest_waiting(self) -> Record | None:
        heads = [seen.record for seen in self._heads if seen.record is not None and seen.state == UNCLAIMED]
        return min([*self.waiting, *heads], key=lambda record: record.created_on, default=None)

    @property
    def by_name(self) -> list[tuple[str, int, int, int]]:
        """(name, waiting, scheduled, running) among the jobs that were seen, the most frequent first."""
        waiting, scheduled, running = (
            Counter(record.name for record in each) for each in (self.waiting, self.scheduled, self.running)
        )
        total = waiting + scheduled + running
        names = sorted(total, key=lambda name: (-total[name], name))
        return [(name, waiting[name], scheduled[name], running[name]) for name in names]

    @property
    def errors(self) -> list[tuple[Record, str]]:
        """The last that went wrong, as far as was seen, and what: trashed jobs, and those that will be tried again."""
        records = [*self.trashed, *self.waiting, *self.scheduled, *self.running]
        failed = {record.uuid: record for record in records if record.error}
        latest = sorted(failed.values(), key=lambda record: record.modified_on, reverse=True)
        return [(record, record.error) for record in latest[:ERRORS] if record.error]
