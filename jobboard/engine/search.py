"""Searches: pages of jobs that meet conditions, out of a bounded number of jobs that a call looks at.

A search goes along one order after the other, by :meth:`Store.walk <jobboard.engine.Store.walk>`. A *position* names an
order, and a bookmark in it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from jobboard import marks, reasons
from jobboard.engine.committer import record_at
from jobboard.engine.store import ANY_JOB, Bookmark, NameCount, Order, Sieve, Store
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    EXHAUSTED,
    EXPIRED,
    LAPSED,
    LIVE,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Record,
    State,
)
from jobboard.units import MINUTE

LOOKED_FIRST = 200
"""The number of jobs that the first walk of a search looks at. Each further walk looks at :data:`GROWTH` times more."""

GROWTH = 5

COUNTED = 1000
"""The highest count of a name on a store with an index of names."""

WALKED = 20_000
"""The number of jobs among which other stores count names."""


class Position(NamedTuple):
    """An order, and a bookmark in it; None: its beginning.

    In the order of claims, behind is (modified_on, sequence) of the last shown job of those that were looked at from
    ``bookmark`` on, and shown of the last shown job of a page that looked at all claims.
    """

    order: Order
    bookmark: Bookmark | None = None
    behind: tuple[int, int] | None = None
    shown: tuple[int, int] | None = None


class Searched(NamedTuple):
    """The answer to a search.

    jobs: each with its logical state. after: the position behind them; None: there are no more. looked: the number of
    jobs that were looked at. complete: whether the search has reached the end.
    """

    jobs: list[tuple[Record, State]]
    after: Position | None
    looked: int
    complete: bool


def orders_of(states: Collection[State]) -> tuple[Order, ...]:
    """Return the orders in which jobs of these states are searched, one after the other."""
    live = LIVE.intersection(states)
    orders: list[Order] = []
    if live:
        orders.append("claims" if live == {CLAIMED} else "due" if live == {SCHEDULED} else "serving")
    if TRASHED in states:
        orders.append("trash")
    if COMPLETE in states:
        orders.append("outcomes")
    return tuple(orders)


def narrowed(states: frozenset[State], sieve: Sieve, after: Position | None) -> frozenset[State]:
    """Return the states in which jobs may fit.

    :raises ValueError: the position is in none of their orders.
    """
    if sieve.owner is not None:
        # Nobody holds an unclaimed job.
        states -= {UNCLAIMED, SCHEDULED}
    orders = orders_of(states)
    if after is not None and after.order not in orders:
        raise ValueError(f"after is a position in the order of {after.order}, and this search has {', '.join(orders)}")
    return states


def fits(sieve: Sieve, record: Record, state: State) -> bool:
    """Return whether a job meets all conditions but ``where``. Records of a move never do."""
    if not (
        (sieve.names is None or record.name in sieve.names)
        and (sieve.group is None or record.group == sieve.group)
        and (sieve.key is None or record.key == sieve.key)
        and (sieve.owner is None or (record.who == sieve.owner and state not in (UNCLAIMED, SCHEDULED)))
        and (sieve.error is None or sieve.error in (record.error or ""))
        and (sieve.posted_from is None or record.created_on >= sieve.posted_from)
        and (sieve.posted_before is None or record.created_on < sieve.posted_before)
    ):
        return False
    if sieve.cause is not None and reasons.cause_of(record.error) != sieve.cause:
        return False
    return not marks.is_of_move(record)


def search(
    store: Store, states: frozenset[State], sieve: Sieve, after: Position | None, limit: int, at_most: int
) -> Searched:
    """Return the next jobs in these states that fit, out of ``at_most`` that are looked at."""
    orders = orders_of(states)
    if after is not None:
        orders = orders[orders.index(after.order) :]
    position = after or Position(orders[0])
    jobs: list[tuple[Record, State]] = []
    looked = 0
    for order, following in zip(orders, (*orders[1:], None), strict=True):
        if position.order != order:
            position = Position(order)
        one = _search_claims if order == "claims" else _search_order
        # An order of live jobs may show a trashed job, too.
        shown = states & ({TRASHED} if order == "trash" else {COMPLETE} if order == "outcomes" else LIVE)
        found = one(store, shown, sieve, position, limit - len(jobs), at_most - looked)
        jobs += found.jobs
        looked += found.looked
        if found.after is None and following is not None and (len(jobs) >= limit or looked >= at_most):
            return Searched(jobs, Position(following), looked, False)
        if found.after is not None:
            return Searched(jobs, found.after, looked, found.complete and following is None)
    return Searched(jobs, None, looked, True)


def _search_order(
    store: Store, states: frozenset[State], sieve: Sieve, position: Position, limit: int, at_most: int
) -> Searched:
    """Search along an order in which jobs keep their positions. ``limit`` and ``at_most`` are positive."""
    order, bookmark = position.order, position.bookmark
    is_whole = order not in ("serving", "due") or states >= LIVE
    is_open = is_whole and all(each is None for each in sieve)
    asked = _asked(sieve)
    is_exact = asked == sieve and sieve.cause is None
    if not is_whole:
        asked = asked._replace(states=states)
    jobs: list[tuple[Record, State]] = []
    looked, size = 0, limit if is_open else max(limit, LOOKED_FIRST)
    if order == "trash":
        # Each page goes on, however many jobs are overdue.
        looked = store.overdue()
        at_most = max(at_most, looked + limit)
    while True:
        # One more than wanted tells whether there are more.
        fitting = limit - len(jobs) + 1 if is_exact else None
        walked = store.walk(order, bookmark, min(size, at_most - looked), asked, fitting)
        looked += walked.looked
        for at, stored in walked.jobs:
            record = record_at(stored, walked.now)
            if record.state in states and fits(sieve, record, record.state):
                jobs.append((record, record.state))
                if len(jobs) == limit and not (walked.last is None and stored is walked.jobs[-1][1]):
                    return Searched(jobs, Position(order, at), looked, False)
        if walked.last is None:
            return Searched(jobs, None, looked, True)
        bookmark = walked.last
        if looked >= at_most or len(jobs) >= limit:
            return Searched(jobs, Position(order, bookmark), looked, False)
        size *= GROWTH


def _search_claims(
    store: Store, states: frozenset[State], sieve: Sieve, position: Position, limit: int, at_most: int
) -> Searched:
    """Search among the claims that one call looks at, the longest first."""
    bookmark, found, looked = position.bookmark, dict[str, Record](), 0
    behind = max(filter(None, (position.behind, position.shown)), default=None)
    asked = _asked(sieve)
    fitting = limit + 1 if asked == sieve and sieve.cause is None else None
    asked = asked._replace(states=states, shorter=behind)
    while True:
        walked = store.walk("claims", bookmark, at_most - looked, asked, fitting)
        looked += walked.looked
        for _, stored in walked.jobs:
            record = record_at(stored, walked.now)
            if record.state in states and fits(sieve, record, record.state):
                found[record.uuid] = record
        bookmark = walked.last
        if bookmark is None or looked >= at_most:
            break
    ordered = sorted(found.values(), key=_age)
    left = [record for record in ordered if behind is None or _age(record) > behind]
    after = None if bookmark is None else Position("claims", bookmark, None, position.shown)
    if len(left) > limit:
        last, is_all = _age(left[limit - 1]), position.bookmark is None and bookmark is None
        ages = (None, last) if is_all else (last, position.shown)
        after = Position("claims", position.bookmark, *ages)
    return Searched([(record, record.state) for record in left[:limit]], after, looked, bookmark is None)


def _asked(sieve: Sieve) -> Sieve:
    """Return the conditions by which a store may leave jobs out.

    A store knows no causes, and no failures of leases and jobs that have expired since the last sweep.
    """
    error = reasons.literal_of(sieve.cause) or None if sieve.cause and sieve.error is None else sieve.error
    if error is not None and any(error in text for text in (LAPSED, EXHAUSTED, EXPIRED)):
        error = None
    return sieve._replace(error=error)


def _age(record: Record) -> tuple[int, int]:
    return record.modified_on, record.sequence


def count_names(store: Store, most: int | None) -> dict[str, NameCount]:
    """Count the first ``most`` live jobs by their names; on a store with an index of names, each name up to that."""
    counted = store.names(most or COUNTED)
    if counted is not None:
        return counted
    most = most or WALKED
    names: dict[str, NameCount] = {}
    bookmark, looked = None, 0
    while looked < most:
        walked = store.walk("serving", bookmark, most - looked, ANY_JOB)
        looked += walked.looked
        for _, stored in walked.jobs:
            record = record_at(stored, walked.now)
            if record.state in LIVE and not marks.is_of_move(record):
                names[record.name] = _counted(names.get(record.name, NameCount()), record)
        bookmark = walked.last
        if bookmark is None:
            break
    return names


def _counted(count: NameCount, record: Record) -> NameCount:
    if record.state == SCHEDULED:
        return count._replace(delayed=count.delayed + 1)
    if record.state == CLAIMED:
        return count._replace(running=count.running + 1)
    oldest = record.created_on if count.oldest is None else min(count.oldest, record.created_on)
    return count._replace(waiting=count.waiting + 1, oldest=oldest)


def count_minutes(store: Store, minutes: int, at_most: int) -> list[int] | None:
    """Count the outcomes by the minute of their ends, the last ``minutes`` minutes; None if there are too many."""
    counts = [0] * minutes
    now, bookmark, looked = store.now(), None, 0
    first = now // MINUTE - minutes + 1
    counted = store.minutes(first * MINUTE, at_most + 1)
    if counted is not None:
        seen, kept = counted
        for minute, count in kept.items():
            counts[min(minute // MINUTE - first, minutes - 1)] += count
        return counts if seen <= at_most else None
    while True:
        walked = store.walk("outcomes", bookmark, at_most - looked, ANY_JOB)
        looked += walked.looked
        for _, stored in walked.jobs:
            minute = stored.record.modified_on // MINUTE - first
            if minute < 0:
                return counts
            # Ends of the minute that begins meanwhile count as the last minute's.
            counts[min(minute, minutes - 1)] += 1
        bookmark = walked.last
        if bookmark is None:
            return counts
        if looked >= at_most:
            return None
