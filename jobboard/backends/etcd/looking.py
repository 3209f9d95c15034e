"""What comes next: found at a cost that does not grow with the board, and remembered for the claims that follow."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from jobboard.backends.etcd.keys import EtcdTag, end_of
from jobboard.backends.etcd.requests import (
    KV,
    delete,
    exists,
    get,
    none_since,
    nothing_in,
    span,
    within,
)
from jobboard.engine import GATE, Look, Side, Stored
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


class HeadGuard(NamedTuple):
    """What holds as long as nothing has come in before a job. What comes back to an old place puts a fence there, and
    so does the first post of a priority; other posts of a higher priority come in behind its last fence; and since
    ``low`` nothing must have ended by itself."""

    revision: int
    fences: tuple[str, ...]
    low: str

    def compares(self, store: EtcdStore, place: str) -> list[str]:
        keys, ready = store.keys, f"{store.keys.root}ready/"
        last = {fence[:2]: fence for fence in self.fences if fence[:2] < place[:2]}
        return [
            none_since(keys.fences, keys.fences + place, self.revision),
            nothing_in(keys.times + self.low, f"{keys.times}{store.clock.now():014x}"),
            *(none_since(ready + fence, ready + _behind(rank), self.revision) for rank, fence in last.items()),
        ]


class Fences:
    """A range that etcd reads costs by all that lies in it, read or not, deleted since the last compaction or not. So
    a look reads short ranges. *Fences* part the places of jobs: none is more than some hundred posts behind the one
    before it, and each job that can be claimed has one before it, or at its own place. A fence with nothing behind it
    goes, unless it is the last one of its priority: that is where the next posts come."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._guess: list[tuple[str, str]] = []
        self._known: deque[Stored] = deque()
        self._known_for = 0
        self._gate = Side(*GATE, None, None, None)
        self._known_until = 0.0
        self._depth = 1
        self._all_times = 0.0
        self._scanned = 0

    # What is remembered

    def known(self, limit: int, names: Sequence[str] | None, readable: int) -> Look | None:
        with self._lock:
            if names is not None or readable != self._known_for or boottime() > self._known_until:
                return None
            if len(self._known) < limit:
                return None
            ready = [self._known.popleft() for _ in range(limit)]
            return Look(self._store.clock.now(), ready, [], None, self._gate)

    def missed(self) -> None:
        """Others are at it as well: what was seen ahead is most likely theirs."""
        with self._lock:
            self._known.clear()
            self._depth = -_CAREFUL

    # What is there

    def look(self, limit: int, names: Sequence[str] | None, readable: int, without: Sequence[str] = ()) -> Look:
        store, keys = self._store, self._store.keys
        with self._lock:
            if self._known:
                self._depth //= 2
            else:
                self._depth = min(_DEEP, 2 * self._depth) if self._depth > 0 else self._depth + 1
            self._known.clear()
            some = names is not None or bool(without)
            depth = limit if some else max(limit, self._depth)
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
        answer = store.link.read([*fixed, *(self._ready(each, depth) for each in guess)])
        tail, fence_kvs, timed, *_ = answer.found
        store.saw(tail[0] if tail else None, answer.revision)
        overdue = store.records([kv.value.decode() for kv in timed])
        if not timed:
            self._scanned = now
            self._all_times = boottime() + _OFTEN if whole else self._all_times
        if answer.counts[3] > answer.counts[4]:
            overdue += store.orphans(_OVERDUE)
        fences = [kv.key[len(keys.fences) :] for kv in fence_kvs]
        ahead = dict(zip(guess, answer.found[len(fixed) :], strict=True))
        if names is None and without:
            # Behind what was read before: of a name that comes in between, the watch tells.
            names = self._names_but(without)
        ready, intervals = self._walk(fences, ahead, depth, names, readable)
        gate = store.gate(answer.found[len(fixed) - 1])
        event = None if ready or overdue else self._next(now)
        if names is None:
            with self._lock:
                self._guess = intervals
                self._gate = gate
                self._known_until = boottime() + _KEPT
                self._known_for = readable
                guard = HeadGuard(answer.revision, tuple(dict(intervals)), low)
                # Another thread may have looked meanwhile, and seen the same: a job that is here twice would be claimed
                # twice by one call.
                self._known.clear()
                if not overdue and len(ready) > limit:
                    self._known.extend(each._replace(tag=_guarded(each.tag, guard)) for each in ready[limit:])
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

    def _walk(
        self,
        fences: list[str],
        ahead: dict[tuple[str, str], list[KV]],
        wanted: int,
        names: Sequence[str] | None,
        readable: int,
    ) -> tuple[list[Stored], list[tuple[str, str]]]:
        """The first jobs, and the intervals that these lie in, or lie before them."""
        ready: list[Stored] = []
        passed: list[tuple[str, str]] = []
        empty: list[tuple[str, str]] = []
        step = 1
        while fences and len(ready) < wanted and names != []:
            more = len(fences) >= _FENCES
            intervals = [
                (fence, min(following, _behind(fence[:2])))
                for fence, following in zip(fences, [*fences[1:], *([] if more else ["g"])], strict=False)
            ]
            while intervals and len(ready) < wanted:
                chunk, intervals = intervals[:step], intervals[step:]
                step = min(2 * step, 32)
                missing = [each for each in chunk if each not in ahead]
                ahead.update(zip(missing, self._read(missing, wanted, names), strict=True))
                for each in chunk:
                    kvs = ahead[each]
                    if len(ready) < wanted:
                        passed.append(each)
                        ready += self._readable(each, kvs, wanted - len(ready), names, readable, wanted)
                    if not kvs and names is None and len(each[1]) > 2:
                        empty.append(each)
            if not more or len(ready) >= wanted:
                break
            fences = self._further(fences[-1])
        if len(empty) >= _EMPTY and not self._store.read_only:
            self._clear(empty)
        return ready, passed

    def _readable(
        self,
        interval: tuple[str, str],
        kvs: list[KV],
        wanted: int,
        names: Sequence[str] | None,
        readable: int,
        limit: int,
    ) -> list[Stored]:
        """Those that this version can read; behind many that it can't there may be others."""
        found: list[Stored] = []
        while True:
            stored = [self._store.stored(kv) for kv in kvs]
            found += [each for each in stored if each is not None and each.record.version <= readable]
            if len(found) >= wanted or len(kvs) < limit:
                return found[:wanted]
            interval = (f"{kvs[-1].key[-16:]} ", interval[1])
            [kvs] = self._read([interval], limit, names)

    def _ready(self, interval: tuple[str, str], limit: int) -> str:
        ready = f"{self._store.keys.root}ready/"
        return span(ready + interval[0], ready + interval[1], limit)

    def _read(self, intervals: Sequence[tuple[str, str]], limit: int, names: Sequence[str] | None) -> list[list[KV]]:
        """The first jobs of each interval."""
        store = self._store
        if not intervals:
            return []
        if names is None:
            return store.link.read([self._ready(each, limit) for each in intervals]).found
        named = [store.keys.named(name) for name in names]
        spans = [span(name + lo, name + hi, limit, only="keys") for lo, hi in intervals for name in named]
        answer = store.link.read(spans)
        found = iter(answer.found)
        places = [sorted(kv.key[-16:] for _ in named for kv in next(found))[:limit] for _ in intervals]
        ready = f"{store.keys.root}ready/"
        # As they were then: what has been taken since must not look like the end of an interval.
        gets = [get(ready + place, at=answer.revision) for each in places for place in each]
        kvs = iter(store.link.read(gets).found if gets else ())
        return [[kv for _ in each for kv in next(kvs)] for each in places]

    def _further(self, fence: str) -> list[str]:
        keys = self._store.keys
        operation = span(keys.fences + fence, end_of(keys.fences), _FENCES, only="keys")
        [kvs] = self._store.link.read([operation]).found
        return [kv.key[len(keys.fences) :] for kv in kvs]

    def _clear(self, empty: Sequence[tuple[str, str]]) -> None:
        keys, ready = self._store.keys, f"{self._store.keys.root}ready/"
        removals = [
            within([nothing_in(ready + lo, ready + hi), exists(keys.fences + hi)], [delete(keys.fences + lo)])
            for lo, hi in empty
        ]
        self._store.link.txn((), removals, changes=False)

    def _next(self, now: int) -> int:
        """µs until something ends by itself, at most until one has to look again for that."""
        times = self._store.keys.times
        end = now + int(NEAR * 1e6)
        [kvs] = self._store.link.read([span(f"{times}{now:014x}", f"{times}{end:014x}", 1, only="keys")]).found
        return max(0, int(kvs[0].key[len(times) :][:14], 16) - now) if kvs else end - now


def _behind(rank: str) -> str:
    """What lies behind all places of this priority, and no place is."""
    return f"{int(rank, 16) + 1:02x}"


def _guarded(tag: object, guard: HeadGuard) -> object:
    return tag._replace(guard=guard) if isinstance(tag, EtcdTag) else tag
