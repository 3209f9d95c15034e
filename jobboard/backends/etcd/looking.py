"""What comes next: found at a cost that does not grow with the board, and remembered for the claims that follow."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jobboard.backends.etcd.keys import end_of, tag_of
from jobboard.backends.etcd.requests import KV, delete, exists, get, none_since, nothing_in, span, within
from jobboard.backends.etcd.stretches import Interval, Sought, Stretches, behind
from jobboard.engine import GATE, Lane, Look, Side, Stored
from jobboard.job import boottime

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

NEAR = 60.0
"""How far ahead a waiter knows of what ends by itself, in seconds; then it looks again."""

_OVERDUE = 100
_FENCES = 64
_EMPTY = 4
"""From how many fences on with nothing behind them these are taken away."""

_DEEP = 64
"""How many jobs are looked at ahead, where one claims them all."""

_CAREFUL = 8
"""How many looks see no more than what is asked for once others have been quicker."""

_KEPT = 1.0
"""For how many seconds what was seen ahead is gone by: it can't tell of a keeper that has died since."""

_OFTEN = 10.0
"""After how many seconds all times are looked at, of those too that lie far behind."""

_SLACK = 60_000_000
"""By how much one may be behind the time up to which others have looked, in µs, and still be found at once."""


class Fences:
    """A range that etcd reads costs by all that lies in it, read or not, deleted since the last compaction or not. So
    a look reads short ranges. *Fences* part the places of jobs: none is more than some hundred posts behind the one
    before it, and each job that can be claimed has one before it, or at its own place. A fence with nothing behind it
    goes, unless it is the last one of its priority: that is where the next posts come."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # Where the last look has found jobs, and what it has seen ahead.
        self._guess: list[Interval] = []
        self._known: deque[Stored] = deque()
        self._known_for = 0
        # Whether that is all that the look has found.
        self._whole = False
        self._gate = Side(*GATE, None, None, None)
        self._known_until = 0.0
        self._depth = 1
        self._all_times = 0.0
        self._scanned = 0
        self._stretches = Stretches(store, self)
        self._breaks = 0

    # What is remembered

    def known(self, limit: int, names: Sequence[str] | None, readable: int) -> Look | None:
        with self._lock:
            if names is not None or readable != self._known_for or boottime() > self._known_until:
                return None
            if len(self._known) < limit:
                return None
            if self._gate.value is not None:
                # What has no room now may have some at the next look.
                ready = list(itertools.islice(self._known, limit))
            else:
                ready = [self._known.popleft() for _ in range(limit)]
            return Look(self._store.clock.now(), ready, [], None, self._gate)

    def claimed(self, uuids: Container[str]) -> None:
        """These are not to be seen again."""
        if not self._whole:
            return
        with self._lock:
            self._known = deque(each for each in self._known if each.record.uuid not in uuids)

    def missed(self) -> None:
        """Others are at it as well: what was seen ahead is most likely theirs."""
        with self._lock:
            self._known.clear()
            self._depth = -_CAREFUL

    # What is there

    def look(
        self,
        limit: int,
        names: Sequence[str] | None,
        readable: int,
        without: Sequence[str] = (),
        full: Sequence[Lane] = (),
    ) -> Look:
        store, keys = self._store, self._store.keys
        with self._lock:
            if len(self._known) >= (limit if self._whole else 1):
                self._depth //= 2
            else:
                self._depth = min(_DEEP, 2 * self._depth) if self._depth > 0 else self._depth + 1
            self._known.clear()
            some = names is not None or bool(without) or bool(full)
            wanted = Sought(limit if some else max(limit, self._depth), names, readable, frozenset(full))
            guess = [] if some else self._guess
            whole = boottime() > self._all_times
        now = store.clock.now()
        # Where the clock has gone on by much, so has the range.
        low = "" if whole else f"{min(now, self._scanned) - _SLACK:014x}"
        fixed = [
            get(keys.tail),
            span(keys.fences, end_of(keys.fences), _FENCES, only="keys"),
            span(keys.times + low, f"{keys.times}{now:014x}g", _OVERDUE),
            span(keys.holders, end_of(keys.holders), only="count"),
            span(keys.alive, end_of(keys.alive), only="count"),
            get(keys.gate),
        ]
        answer = store.link.read([*fixed, *(self._ready(each, wanted) for each in guess)])
        tail, fences, timed, *_ = answer.found
        if self._breaks != store.link.breaks:
            # Another server may answer now, with older data.
            self._breaks = store.link.breaks
            self._stretches = Stretches(store, self)
        # Where only some of it is looked at, who sleeps then must be told of the rest from an earlier revision on.
        store.saw(tail[0] if tail else None, 0 if full or names == [] else answer.revision)
        overdue = store.records([kv.value.decode() for kv in timed])
        if not timed:
            self._scanned = now
            self._all_times = boottime() + _OFTEN if whole else self._all_times
        if answer.counts[3] > answer.counts[4]:
            overdue += itertools.islice(store.orphans(), _OVERDUE)
        read = dict(zip(guess, answer.found[len(fixed) :], strict=True))
        if names is None and without:
            # Behind what was read before: of a name that comes in between, the watch tells.
            names = self._names_but(without)
            wanted = wanted._replace(names=names)
        if full:
            ready = self._stretches.first(fences, wanted, answer.revision)
        else:
            ready, passed = self._walk(fences, read, wanted)
        gate = store.gate(answer.found[len(fixed) - 1])
        event = None if ready or overdue else self._next(now)
        if not some:
            guard = functools.partial(self._head_stands, answer.revision, tuple(dict(passed)), low)
            with self._lock:
                self._guess = passed
                self._gate = gate
                self._known_until = boottime() + _KEPT
                self._known_for = readable
                # Another thread may have looked meanwhile, and seen the same: a job that is here twice would be claimed
                # twice by one call.
                self._known.clear()
                if not overdue and len(ready) > limit:
                    # What is asked for one by one, is claimed; of many, some may be left, which are still the next.
                    self._whole = limit > 1 or gate.value is not None
                    ahead = ready if self._whole else ready[limit:]
                    self._known.extend(each._replace(tag=tag_of(each)._replace(guard=guard)) for each in ahead)
        return Look(max(now, store.clock.floor), ready[:limit], overdue[:_OVERDUE], event, gate)

    def _names_but(self, without: Sequence[str]) -> list[str]:
        """The names of all that is ready, but these: one small read for each."""
        folder = start = self._store.keys.named("")[:-1]
        found: list[str] = []
        while True:
            [kvs] = self._store.link.read([span(start, end_of(folder), 1, only="keys")]).found
            if not kvs:
                return found
            name = kvs[0].key[len(folder) :].partition("/")[0]
            start = end_of(f"{folder}{name}/")
            if unquote(name) not in without:
                found.append(unquote(name))

    def _head_stands(self, revision: int, fences: Sequence[str], low: str, place: str) -> list[str]:
        """What holds as long as nothing has come in before this job since a look. What comes back to an old place puts
        a fence there, and so does the first post of a priority; other posts of a higher priority come in behind its
        last fence; and since ``low`` nothing must have ended by itself."""
        keys, ready = self._store.keys, f"{self._store.keys.root}ready/"
        last = {fence[:2]: fence for fence in fences if fence[:2] < place[:2]}
        return [
            none_since(keys.fences, keys.fences + place, revision),
            nothing_in(keys.times + low, f"{keys.times}{self._store.clock.now():014x}"),
            *(none_since(ready + fence, ready + behind(rank), revision) for rank, fence in last.items()),
        ]

    def _walk(
        self, fences: list[KV], ahead: dict[Interval, list[KV]], wanted: Sought
    ) -> tuple[list[Stored], list[Interval]]:
        """The first jobs, and the intervals that these lie in, or lie before them."""
        ready: list[Stored] = []
        passed: list[Interval] = []
        empty: list[Interval] = []
        intervals, step = self._intervals(fences if wanted.names != [] else []), 1
        while len(ready) < wanted.most and (chunk := list(itertools.islice(intervals, step))):
            step = min(2 * step, 32)
            missing = [each for each in chunk if each not in ahead]
            ahead.update(zip(missing, self.read(missing, wanted), strict=True))
            for each in chunk:
                if len(ready) < wanted.most:
                    passed.append(each)
                    ready += itertools.islice(self.jobs(each, ahead[each], wanted), wanted.most - len(ready))
                if not ahead[each] and wanted.names is None and len(each[1]) > 2:
                    empty.append(each)
        if len(empty) >= _EMPTY and not self._store.read_only:
            fence, ready_tree = self._store.keys.fences, f"{self._store.keys.root}ready/"
            removals = [
                within([nothing_in(ready_tree + lo, ready_tree + hi), exists(fence + hi)], [delete(fence + lo)])
                for lo, hi in empty
            ]
            self._store.link.txn((), removals, changes=False)
        return ready, passed

    def _intervals(self, fences: list[KV]) -> Iterator[Interval]:
        """:param fences: the first of them, which may be all."""
        start = self._store.keys.fences
        while fences:
            places = [kv.key[len(start) :] for kv in fences]
            fences = fences[_FENCES - 1 :]
            for fence, following in zip(places, places[1:] if fences else [*places[1:], "g"], strict=False):
                yield fence, min(following, behind(fence[:2]))
            if fences:
                [fences] = self._store.link.read([span(fences[0].key, end_of(start), _FENCES, only="keys")]).found

    def jobs(self, interval: Interval, kvs: list[KV], wanted: Sought) -> Iterator[Stored]:
        """Those that this version can read; behind many that it can't there may be others."""
        while True:
            for kv in kvs:
                stored = self._store.stored(kv)
                if stored is not None and stored.record.version <= wanted.readable:
                    yield stored
            if len(kvs) < wanted.most:
                return
            interval = (f"{kvs[-1].key[-16:]} ", interval[1])
            [kvs] = self.read([interval], wanted)

    def _ready(self, interval: Interval, wanted: Sought) -> str:
        ready = f"{self._store.keys.root}ready/"
        return span(ready + interval[0], ready + interval[1], wanted.most)

    def read(self, intervals: Sequence[Interval], wanted: Sought) -> list[list[KV]]:
        """The first jobs of each interval."""
        link, keys = self._store.link, self._store.keys
        if not intervals:
            return []
        if wanted.names is None:
            return link.read([self._ready(each, wanted) for each in intervals]).found
        named = [keys.named(name) for name in wanted.names]
        spans = [span(name + lo, name + hi, wanted.most, only="keys") for lo, hi in intervals for name in named]
        answer = link.read(spans)
        found = iter(answer.found)
        places = [sorted(kv.key[-16:] for _ in named for kv in next(found))[: wanted.most] for _ in intervals]
        # As they were then: what has been taken since must not look like the end of an interval.
        gets = [get(f"{keys.root}ready/{place}", at=answer.revision) for each in places for place in each]
        kvs = iter(link.read(gets).found if gets else ())
        return [[kv for _ in each for kv in next(kvs)] for each in places]

    def _next(self, now: int) -> int:
        """µs until something ends by itself, at most until one has to look again for that."""
        times = self._store.keys.times
        end = now + int(NEAR * 1e6)
        [kvs] = self._store.link.read([span(f"{times}{now:014x}", f"{times}{end:014x}", 1, only="keys")]).found
        return max(0, int(kvs[0].key[len(times) :][:14], 16) - now) if kvs else end - now
