"""Looks that leave out jobs of full groups, and what they have gone by: it is not read again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jobboard.backends.etcd.keys import end_of, tag_of
from jobboard.backends.etcd.requests import AT_MOST, KV, span
from jobboard.engine import Lane, Stored
from jobboard.states import Record

if TYPE_CHECKING:
    from jobboard.backends.etcd.looking import Fences
    from jobboard.backends.etcd.store import EtcdStore

Interval = tuple[str, str]
"""From one fence to the next."""

_PAGE = 1000
"""How many jobs of an interval are read at once: all of them, as a rule."""

_STEP = 8
"""How many intervals are read at once, at most."""

_AHEAD = 512
"""How many intervals are counted at once, at most."""

_TRIED = 10
"""How many stretches are counted at once, each half as long as the one before it: down to a single interval."""

_CHANGED = 100
"""How many jobs may have come back to a stretch before it is read anew."""

_STRETCHES = 64
"""How many are remembered."""

_WISHES = 8
"""Of how many combinations of names stretches are remembered."""


class Sought(NamedTuple):
    """``full``: jobs of these names and groups are left out."""

    most: int
    names: Sequence[str] | None
    readable: int
    full: frozenset[Lane] = frozenset()

    def wants(self, record: Record) -> bool:
        return (self.names is None or record.name in self.names) and record.version <= self.readable

    @property
    def wish(self) -> tuple[object, int]:
        return (None if self.names is None else tuple(sorted(self.names))), self.readable


class _Stretch(NamedTuple):
    """From ``low`` to ``high`` all jobs that could be claimed at ``revision`` were of these lanes, but for those at the
    places of ``others``."""

    low: str
    high: str
    lanes: frozenset[Lane]
    revision: int
    others: tuple[str, ...] = ()


class Stretches:
    """A group that is full may hold most of the jobs. A look goes by them without reading them where they lie together:
    there are as many jobs as there are of that group. Once it has, the next one jumps over them.

    A stretch ends at a fence with jobs of its priority before and behind it, so that no post comes into it any more.
    What comes back into it puts a fence at its place: there the next look looks again."""

    def __init__(self, store: EtcdStore, fences: Fences) -> None:
        self._store = store
        self._fences = fences
        self._passed: dict[tuple[object, int], list[_Stretch]] = {}

    def first(self, fences: Sequence[KV], wanted: Sought, revision: int) -> list[Stored]:
        """The first jobs that are not of full lanes.

        :param fences: the first of them, as of this revision."""
        if wanted.names == [] or not wanted.most:
            return []
        remembered = self._passed.get(wanted.wish, [])
        usable, back = self._refreshed([each for each in remembered if each.lanes <= wanted.full], wanted)
        found = {tag_of(job).key: job for job in back}
        met: list[_Stretch] = []
        outside = 0
        for interval, jobs in self._walk(fences, usable, met, wanted):
            left = [job for job in jobs if _lane(job) not in wanted.full]
            found.update((tag_of(job).key, job) for job in left)
            outside += len(left)
            if not left and _is_closed(interval):
                _add(met, _Stretch(*interval, frozenset(map(_lane, jobs)), revision))  # type: ignore[arg-type]
            if outside >= wanted.most:
                break
        self._remember(wanted.wish, met, [*usable, *(each for each in remembered if not each.lanes <= wanted.full)])
        return [found[key] for key in sorted(found)[: wanted.most]]

    def _walk(
        self, fences: Sequence[KV], stretches: Sequence[_Stretch], met: list[_Stretch], wanted: Sought
    ) -> Iterator[tuple[Interval, list[Stored]]]:
        """Each interval that lies in no stretch, with its jobs.

        :param met: takes in the stretches that are jumped over."""
        folder, step = self._store.keys.fences, 1
        page = wanted._replace(most=_PAGE)
        while True:
            places = [kv.key[len(folder) :] for kv in fences[: step + 1]]
            if len(places) <= step:
                places.append("g")
            chunk: list[Interval] = []
            jump = None
            for low, following in itertools.pairwise(places):
                jump = next((each for each in stretches if each.low <= low < each.high), None)
                if jump is not None:
                    break
                chunk.append((low, min(following, behind(low[:2]))))
            for interval, kvs in zip(chunk, self._fences.read(chunk, page), strict=True):
                yield interval, list(self._fences.jobs(interval, kvs, page))
            if jump is not None:
                _add(met, jump)
            start = places[-1] if jump is None else jump.high
            if start == "g":
                return
            while jump is None and met and met[-1].high == start:
                more = self._more(met[-1].lanes, start, wanted)
                if more is None:
                    break
                _add(met, more)
                start = more.high
            step = min(2 * step, _STEP)
            [fences] = self._store.link.read([span(folder + start, end_of(folder), step + 1, only="keys")]).found

    def _more(self, lanes: frozenset[Lane], start: str, wanted: Sought) -> _Stretch | None:
        """The longest stretch from there on that has no more jobs than these full lanes have in it."""
        link, keys = self._store.link, self._store.keys
        folders = [keys.named(name) for name in wanted.names] if wanted.names else [f"{keys.root}ready/"]
        of_lanes = [keys.lane(*lane) for lane in lanes if lane[1] is not None]
        if not of_lanes or len(folders) + len(of_lanes) > AT_MOST:
            return None
        fences = keys.fences
        ahead = span(fences + start, fences + behind(start[:2]), _AHEAD + 1, only="keys")
        places = [kv.key[len(fences) :] for kv in link.read([ahead]).found[0]]
        ends = [places[last] for tried in range(_TRIED) if (last := (len(places) - 1) >> tried) > 0]
        if not ends:
            return None
        counted = [*folders, *of_lanes]
        answer = link.read([span(each + start, each + end, only="count") for end in ends for each in counted])
        for at, end in enumerate(ends):
            counts = answer.counts[at * len(counted) : (at + 1) * len(counted)]
            if sum(counts[: len(folders)]) == sum(counts[len(folders) :]):
                return _Stretch(start, end, lanes, answer.revision)
        return None

    def _refreshed(self, stretches: list[_Stretch], wanted: Sought) -> tuple[list[_Stretch], list[Stored]]:
        """These as of now, without those to which much has come back; and what can be claimed in them."""
        if not stretches:
            return [], []
        store, folder = self._store, self._store.keys.fences
        answer = store.link.read(
            [
                span(folder + each.low, folder + each.high, _CHANGED + 1, only="keys", since=each.revision + 1)
                for each in stretches
            ]
        )
        places = [
            sorted({*each.others, *(kv.key[len(folder) :] for kv in kvs)})
            for each, kvs in zip(stretches, answer.found, strict=True)
        ]
        few = [(each, some) for each, some in zip(stretches, places, strict=True) if len(some) <= _CHANGED]
        ready = f"{store.keys.root}ready/"
        kvs = store.gets([ready + place for _, some in few for place in some], answer.revision)[0]
        there = {kv.key[len(ready) :]: job for kv in kvs if kv is not None and (job := store.stored(kv)) is not None}
        refreshed: list[_Stretch] = []
        back: list[Stored] = []
        for each, some in few:
            jobs = {place: there[place] for place in some if place in there and wanted.wants(there[place].record)}
            others = {place: job for place, job in jobs.items() if _lane(job) not in each.lanes}
            back += [job for job in others.values() if _lane(job) not in wanted.full]
            refreshed.append(each._replace(revision=answer.revision, others=tuple(others)))
        return refreshed, back

    def _remember(self, wish: tuple[object, int], met: list[_Stretch], rest: list[_Stretch]) -> None:
        apart = [each for each in rest if all(each.high <= other.low or other.high <= each.low for other in met)]
        self._passed.pop(wish, None)
        self._passed[wish] = sorted([*met, *apart], key=lambda each: each.low)[:_STRETCHES]
        while len(self._passed) > _WISHES:
            del self._passed[next(iter(self._passed))]


def behind(rank: str) -> str:
    """What lies behind all places of this priority, and no place is."""
    return f"{int(rank, 16) + 1:02x}"


def _is_closed(interval: Interval) -> bool:
    """Whether there is a fence of the same priority behind it."""
    low, high = interval
    return len(high) > 2 and low[:2] == high[:2]


def _lane(job: Stored) -> tuple[str, str | None]:
    return job.record.name, job.record.group


def _add(met: list[_Stretch], stretch: _Stretch) -> None:
    """Make one of it and of the stretch before it, where they touch and are alike: one is of use as long as all its
    lanes are full."""
    last = met[-1] if met else None
    if last and last.high == stretch.low and (last.lanes == stretch.lanes or not (last.lanes and stretch.lanes)):
        met.pop()
        stretch = _Stretch(
            last.low,
            stretch.high,
            last.lanes | stretch.lanes,
            min(last.revision, stretch.revision),
            (*last.others, *stretch.others),
        )
    met.append(stretch)
