"""Up to where a connection to MariaDB knows all that is ready, so that a skim need not look there again.

A skim takes less for a dead entry than a plain look, but it meets all of them: under an old snapshot, those of all jobs
that were done since. *Behind the lows* of its connection it looks for

- *young* jobs, whose id is above ``low``, along the primary key: those posted lately, whatever their priority;
- of the older ones those that are *known*, by their ids;
- where many of a priority wait, young or not, the first ones from its *floor* on, an id, along the primary key as well;
- jobs that have come back since ``back``, along an index of their own. What becomes ready but by its post has the time
  written beside it, and whoever claims it takes that away.

Nothing needs a look up to ``wake``, an instant. Lows make a look short, and decide nothing: what is found is locked and
compared as ever.

Why nothing is passed over. Every :data:`LAG` seconds a **survey** reads what is behind the lows: first what is
committed, so that a claim that is taken back later leaves its job known, and then, at READ UNCOMMITTED, also what is
not committed yet. What is ready in either view, and no younger than the **mark** of the survey before, is known from
then on, or behind a floor; and the lows rise to that mark: the highest id that was drawn then, and the time it was. A
floor is the first one that is committed: a post whose transaction goes on is known by its id, and holds no floor back.

What is not seen up to there has an id that was drawn, or a time that was read, before that mark, and :data:`LAG` later
has no row, or no entry in the index of what has come back. A statement gets from the one to the other at once, unless
it waits for a lock on the way, as one of several rows may that are not the board's. For this, for a claim whose end is
taken back when its lease is over, and for what people change in the table by hand, there is the **net**: once a minute,
or less often where that is dear, a survey reads all that is there, committed or not, from the start of the indexes. So
what a look passes over comes a minute late, or a hundred times as late as such a survey takes. What is committed it
reads behind the lows, as others do: a job that was passed over and that somebody is just claiming comes with the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobboard.backends.sql.dear import AFRESH, RARELY

LAG = 2.0
"""How old a mark must be, in seconds: so long a statement may take from an id, or a time, to its entry in an index."""
NEAR = 16_384
"""How many ids there may be above ``low``."""
FEW = 100
"""So many of a priority are known one by one."""
KNOWN = 500
"""And so many of all."""
FLOORS = 3
"""How many priorities may have a floor: each is a part of each look's statement, and is looked for among all jobs from
there on, so that it would be dear to look in this way for those of which few wait."""
RETURNED = 500
"""How many that have come back are looked at one by one."""

SOON = 10
"""Where lows are of no use, a survey that trusts none comes after so many times what the last one took: it costs as
much as a few of the looks that go without. One that a stall made long would hold the next off for minutes."""

Found = Mapping[int, Sequence[int]]
"""The first ids of each priority, one more than :data:`FEW` at most."""


class Watermark(NamedTuple):
    """The highest id that was drawn, None if that may not be seen; the server's time; and which server it is."""

    drawn: int | None
    now: int
    place: str

    def follows(self, before: Watermark) -> bool:
        """Not so where the table was emptied, the clock set back, or another server has come to answer."""
        return self.place == before.place and self.now >= before.now and (self.drawn or -1) >= (before.drawn or -1)


class Told(NamedTuple):
    """What a survey has seen: what is ready as it is committed, and as it is there; and the first instant."""

    committed: Found
    there: Found
    wake: int | None

    @classmethod
    def of(cls, row: Sequence[Any]) -> Told:
        committed, there, wake = row
        return cls(_found(committed), _found(there), wake)


class Lows:
    """Of one connection, and the jobs of one name or all."""

    def __init__(self) -> None:
        self._forget()
        self._due = self._soon = self._late = 0.0

    def _forget(self) -> None:
        self._low = -1
        self._back = self._wake = 0
        self._known: list[int] = []
        self._floors: list[tuple[int, int]] = []
        self._marks: list[Watermark] = []

    def params(self, afresh: bool = False) -> dict[str, Any]:
        """Of a look or a survey.

        :param afresh: begin with the first instant that there is.
        """
        params: dict[str, Any] = {"p_low": self._low, "p_back": self._back, "p_known": json.dumps(self._known)}
        params["p_wake"] = 0 if afresh else self._wake
        for number, floor in enumerate(self._floors):
            params |= zip((f"p_rank{number}", f"p_floor{number}"), floor, strict=True)
        return params

    @property
    def floors(self) -> int:
        """How many there are."""
        return len(self._floors)

    @property
    def blank(self) -> bool:
        """Whether there are none."""
        return self._low < 0

    @property
    def near(self) -> bool:
        """Whether to look behind them."""
        drawn = self._marks[-1].drawn if self._marks else None
        return not self.blank and drawn is not None and drawn - self._low <= NEAR

    def due(self) -> bool:
        """Whether a mark is to be made before the next look."""
        return time.monotonic() >= self._due

    def mark(self, mark: Watermark) -> None:
        if self._marks and not mark.follows(self._marks[-1]):
            self._forget()
        self._marks = [*self._marks[-1:], mark]
        self._due = time.monotonic() + LAG

    @property
    def _bound(self) -> Watermark | None:
        """One that is old enough."""
        return self._marks[0] if len(self._marks) == 2 else None

    @property
    def unsure(self) -> bool:
        """Whether the next survey is to trust no low."""
        return self._bound is not None and time.monotonic() >= (self._late if self.near else self._soon)

    def learn(self, told: Told, afresh: bool, seconds: float) -> None:
        """:param seconds: how long the survey took."""
        bound = self._bound
        if bound is None or bound.drawn is None:
            return
        self._known, self._floors = [], []
        for priority in sorted({*told.committed, *told.there}):
            known, floor = _parted(told.committed.get(priority, ()), told.there.get(priority, ()), bound.drawn)
            self._known += known
            if floor is not None:
                self._floors.append((priority, floor))
        self._low, self._back, self._wake = bound.drawn, bound.now, _before(told.wake, bound.now)
        if len(self._known) > KNOWN or len(self._floors) > FLOORS:
            self._low, self._known, self._floors = -1, [], []
        if afresh:
            at = time.monotonic()
            self._soon, self._late = at + max(LAG, SOON * seconds), at + max(AFRESH, RARELY * seconds)


def _found(told: str | None) -> Found:
    return {priority: [int(id_) for id_ in ids.split(",")] for priority, ids in json.loads(told or "[]")}


def _parted(committed: Sequence[int], there: Sequence[int], last: int) -> tuple[list[int], int | None]:
    """Of the ids of a priority, up to ``last``, those that are to be known one by one, and where the floor is."""
    floor = None
    if len(committed) > FEW:
        floor = committed[0]
    if len(there) > FEW:
        # Of what comes after that nothing was told.
        floor = min(there[-1], floor or there[-1])
    if floor is not None and floor > last:
        floor = None
    end = last + 1 if floor is None else floor
    return sorted({id_ for id_ in (*committed, *there) if id_ < end}), floor


def _before(first: int | None, bound: int) -> int:
    return bound if first is None else min(bound, first - 1)
