"""Up to where a connection to MariaDB has seen that nothing is ready, so that a skim need not look there again.

A skim takes less for a dead entry than a plain look, but it meets all of them: under an old snapshot, those of all jobs
that were done since. *Behind the lows* of its connection it looks for

- jobs whose id is above ``low``, along the primary key: those that were posted lately, whatever their priority;
- jobs that have come back since ``back``, along an index of their own. What becomes ready but by its post has the time
  written beside it, and whoever claims it takes that away.

Nothing needs a look up to ``wake``, an instant. Lows make a look short, and decide nothing: what is found is locked and
compared as ever.

Why nothing is passed over. Every :data:`LAG` seconds a **survey** reads what is behind the lows: first what is
committed, so that a claim that is taken back later holds its job here, and then, at READ UNCOMMITTED, also what is not
committed yet. It raises the lows to just before what it has seen first, and no higher than its **mark** of the survey
before: the highest id that was drawn then, and the time it was. Posts that are not committed, as their transaction goes
on, do not hold ``low`` back: their ids are remembered, and asked for beside it.

What is not seen up to there has an id that was drawn, or a time that was read, before that mark, and :data:`LAG` later
has no row, or no entry in the index of what has come back. A statement gets from the one to the other at once, unless
it waits for a lock on the way, as one of several rows may that are not the board's. For this, for a claim whose end is
taken back when its lease is over, and for what people change in the table by hand, there is the **net**: once a minute,
or less often where that is dear, a survey trusts no low. So what a look passes over comes a minute late, or a hundred
times as late as such a survey takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from jobboard.backends.sql.dear import AFRESH, RARELY

LAG = 2.0
"""How old a mark must be, in seconds: so long a statement may take from an id, or a time, to its entry in an index."""
NEAR = 16_384
"""How many ids there may be above ``low``."""
CROWD = 500
"""And how many jobs. Where more wait, or for longer, the first ones are found sooner by their index."""
RETURNED = 200
"""How many that have come back are looked at one by one."""
OPENED = 100
"""How many that are not committed are."""


class Watermark(NamedTuple):
    """The highest id that was drawn, None if that may not be seen; the server's time; and which server it is."""

    drawn: int | None
    now: int
    place: str

    def follows(self, before: Watermark) -> bool:
        """Not so where the table was emptied, the clock set back, or another server has come to answer."""
        return self.place == before.place and self.now >= before.now and (self.drawn or -1) >= (before.drawn or -1)


class Told(NamedTuple):
    """What a survey has seen behind the lows: the first id whose job is ready as it is committed, and how many there
    are; the first time and the first instant in either view; and which ids are ready below that, but not committed:
    some new ones, and those that were known."""

    first: int | None
    met: int
    back: int | None
    wake: int | None
    opened: list[int]
    kept: set[int]

    @classmethod
    def of(cls, row: Sequence[Any]) -> Told:
        first, met, back, wake, *lists = row
        opened, *kept = (json.loads(each or "[]") for each in lists)
        return cls(first, met, back, wake, opened, {id_ for ids in kept for id_ in ids})


class Lows:
    """Of one connection, and the jobs of one name or all."""

    def __init__(self) -> None:
        self._forget()
        self._due = self._soon = self._late = 0.0

    def _forget(self) -> None:
        self._low = -1
        self._back = self._wake = 0
        self._opened: list[int] = []
        self._crowded = False
        self._marks: list[Watermark] = []

    def params(self, afresh: bool = False) -> dict[str, Any]:
        """Of a look or a survey.

        :param afresh: trust none.
        """
        low, back, wake = (-1, 0, 0) if afresh else (self._low, self._back, self._wake)
        return {"p_low": low, "p_back": back, "p_wake": wake, "p_opened": json.dumps([] if afresh else self._opened)}

    @property
    def close(self) -> bool:
        """Whether few ids are above ``low``."""
        drawn = self._marks[-1].drawn if self._marks else None
        return self._low >= 0 and drawn is not None and drawn - self._low <= NEAR

    @property
    def near(self) -> bool:
        """Whether to look behind them."""
        return self.close and not self._crowded

    def due(self) -> bool:
        """Whether a mark is to be made before the next look."""
        return time.monotonic() >= self._due

    def mark(self, mark: Watermark) -> None:
        if self._marks and not mark.follows(self._marks[-1]):
            self._forget()
        self._marks = [*self._marks[-1:], mark]
        self._due = time.monotonic() + LAG

    def met(self, jobs: int) -> None:
        """:param jobs: how many are ready behind them."""
        self._crowded = jobs > CROWD

    @property
    def _bound(self) -> Watermark | None:
        """One that is old enough."""
        return self._marks[0] if len(self._marks) == 2 else None

    @property
    def unsure(self) -> bool:
        """Whether the next survey is to trust no low."""
        return self._bound is not None and time.monotonic() >= (self._late if self.close else self._soon)

    def learn(self, told: Told, afresh: bool, seconds: float) -> None:
        """:param seconds: how long the survey took."""
        bound = self._bound
        if bound is None or bound.drawn is None:
            return
        low, opened = _before(told.first, bound.drawn), sorted(told.kept)
        for id_ in told.opened:
            if id_ <= low:
                if len(opened) == OPENED:
                    low = id_ - 1
                    break
                opened.append(id_)
        self._low, self._opened = low, opened
        self.met(told.met)
        self._back, self._wake = _before(told.back, bound.now), _before(told.wake, bound.now)
        if afresh:
            at, rarely = time.monotonic(), RARELY * seconds
            self._soon, self._late = at + max(LAG, rarely), at + max(AFRESH, rarely)


def _before(first: int | None, bound: int) -> int:
    return bound if first is None else min(bound, first - 1)
