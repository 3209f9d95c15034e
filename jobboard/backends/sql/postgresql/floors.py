"""Up to where a connection to PostgreSQL has seen that nothing is ready, so that it need not look there again.

A dead entry of an index stays until no snapshot can see it any more: under a long transaction of anybody's, for as long
as that takes. A look that begins at the start of an index meets the entries of all jobs that were done since.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from jobboard.backends.sql.dear import AFRESH, BATCH, RARELY
from jobboard.sql.links import Link
from jobboard.sql.prepared import Prepared

OFTEN = 32
"""How many looks one survey serves, at most."""
SECOND = 1.0
"""For how many seconds, at most: others may do a thousand jobs meanwhile."""

_BEYOND = 2**15


class Bound(NamedTuple):
    """What one survey knows of all transactions that got their ids later than it: their jobs' ids are above ``number``,
    and the instants at which these need a look after ``time``."""

    xid: int
    number: int
    time: int


_NOTHING = Bound(-1, -1, 0)


class Floors:
    """What one connection remembers of where to look, from one survey to the next.

    ``floors``: for each priority that was met, the id up to which no job is ready. Jobs that have come back to it are
    found by another index, behind ``returned``: by the transaction that gave them back. Up to ``wake`` nothing needs a
    look. A floor makes a look short, and decides nothing: rows are locked and compared as ever.

    Why nothing is passed over. Whoever makes a job ready, or gives it an instant at which it needs a look, **gets its
    transaction's id first, then draws the job's id, and then reads the clock.** A survey tells its snapshot, its own
    transaction's id and, as they were before it got that, the time and the highest id that was drawn: its *bound*.
    What has an id up to the bound is then of a transaction that is older than the bound. The next survey sees what each
    of these has done, but for those that are still open in its snapshot, its *doubts*. So it raises a floor to the
    first ready job that it sees, at most to the bound of the survey before. Up to there, what becomes ready later is of

    - a doubt. Each is kept with the latest bound that is older than it: what it does is above that. As soon as a look's
      own snapshot shows that it has ended, that look begins no higher.
    - a transaction that gives a job back. It writes its own id beside it, and so is found behind ``returned``. There,
      too, a survey stops at the first ready job and at the bound before, and a doubt takes looks back to its own id.

    A claim that is not committed, or is taken back, leaves its job ready in every other snapshot: it holds the floor.
    Prepared transactions are in snapshots. A new connection knows nothing. A look trusts no floor where another server
    has come to answer or the table was emptied, as ids may then be given once more; nor does a survey that sees the
    sequence or the clock set back. What is put into the table by hand with an old id is found within a minute or so, as
    once in a while a survey trusts no floor anyway.
    """

    def __init__(self) -> None:
        self.floors: dict[int, int] = {}
        self._met: set[int] = set()
        self._returned = -1
        self._wake = 0
        self._highest = -1
        self._place = ""
        self._bounds: list[Bound] = []
        self._doubts: dict[int, Bound] = {}
        self._time = 0
        self._looks = 0
        self._until = self._afresh = 0.0
        self._params = self._written()

    # When to look around

    def due(self) -> bool:
        """Whether a survey should come before the next look."""
        self._looks += 1
        return not self.floors or self._looks > OFTEN or time.monotonic() > self._until

    @property
    def stale(self) -> bool:
        """Whether that one should trust no floor."""
        return time.monotonic() > self._afresh

    # What is asked

    def params(self, afresh: bool = False) -> dict[str, str | int]:
        """The parameters of a look or a survey.

        :param afresh: trust nothing.
        """
        return {**self._params, "p_place": ""} if afresh else self._params

    def _written(self) -> dict[str, str | int]:
        # Each priority's range reaches to the next that is known: what lies between is looked at as well.
        known = sorted({*self.floors, *self._met})
        return {
            "p_starts": _array([-1, *known]),
            "p_stops": _array([*known, _BEYOND]),
            "p_floors": _array([-1, *(self.floors.get(priority, -1) for priority in known)]),
            "p_xids": _array([0, *self._doubts]),
            "p_numbers": _array(bound.number for bound in (_NOTHING, *self._doubts.values())),
            "p_wakes": _array(bound.time for bound in (_NOTHING, *self._doubts.values())),
            "p_returned": self._returned,
            "p_wake": self._wake,
            "p_place": self._place,
        }

    # What is learnt

    def met(self, records: Collection[Any]) -> None:
        """Learn of claimed jobs."""
        self._looks += len(records) // BATCH
        for record in records:
            self._highest = max(self._highest, record.sequence)
        if records and not self._met.issuperset(new := {record.priority for record in records}):
            self._met |= new
            self._params = self._written()

    def learn(self, told: Any, seconds: float, afresh: bool) -> None:
        """Learn from a survey.

        :param told: its row.
        :param seconds: how long it took.
        """
        snapshot, xid, drawn, now, place, returned, wake, firsts = told
        if xid is None:
            # A server that takes no writes, as the look will find out.
            return
        if place != self._place or now < self._time or (drawn is not None and drawn < self._highest):
            self._forget(place)
        running = _running(snapshot)
        if self._bounds:
            before = self._bounds[-1]
            self._doubts = {each: self._doubts.get(each) or self._older(each) for each in running if each < before.xid}
            self._raise(before.number, _pairs(firsts))
            self._returned = before.xid if returned is None else min(before.xid, returned - 1)
            self._wake = before.time if wake is None else min(before.time, wake - 1)
        else:
            self._met.update(priority for priority, _ in _pairs(firsts))
        highest = max(self._highest, -1 if drawn is None else drawn)
        self._bounds = [*self._bounds[-1:], Bound(xid, highest, now)]
        self._time = now
        self._looks, at = 0, time.monotonic()
        self._until = at + SECOND
        if afresh:
            self._afresh = at + max(AFRESH, RARELY * seconds)
        self._params = self._written()

    def _raise(self, highest: int, firsts: Iterable[tuple[int, int]]) -> None:
        there = dict(firsts)
        known = {*self.floors, *self._met, *there}
        self.floors = {each: min(highest, there.get(each, highest + 1) - 1) for each in known}

    def _older(self, xid: int) -> Bound:
        """The latest bound that is older than a transaction."""
        return next((bound for bound in reversed(self._bounds) if bound.xid < xid), _NOTHING)

    def _forget(self, place: str) -> None:
        self._place = place
        self.floors.clear()
        self._bounds.clear()
        self._doubts.clear()
        self._returned, self._wake, self._highest, self._time = -1, 0, -1, 0


class Surveyed(WeakKeyDictionary[Link, Floors]):
    """What each connection remembers, of the same jobs."""

    def look_around(self, link: Link, survey: Prepared, params: Mapping[str, Any]) -> Floors:
        """What this one remembers, after a survey if one is due."""
        floors = self.get(link)
        if floors is None:
            floors = self[link] = Floors()
        if floors.due():
            afresh, begun = floors.stale, time.monotonic()
            [told] = link.rows(survey, {**params, **floors.params(afresh)})
            floors.learn(told, time.monotonic() - begun, afresh)
        return floors


def _array(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _running(snapshot: str) -> list[int]:
    """The transactions that are open in a snapshot, as it is written: oldest:next:open,open,…"""
    listed = snapshot.rsplit(":", 1)[1]
    return list(map(int, listed.split(","))) if listed else []


def _pairs(firsts: str | None) -> list[tuple[int, int]]:
    """Priorities, and the first id in each."""
    pairs = (each.split(":") for each in firsts.split(",")) if firsts else ()
    return [(int(priority), int(id_)) for priority, id_ in pairs]
