"""Pages of live jobs, of the trash, and counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jobboard.backends.zookeeper.paths import TREES, Entry, folder_number, level_of, minute_of, place_of, trashed_entry
from jobboard.backends.zookeeper.requests import children, delete, exists, get
from jobboard.engine import Stored
from jobboard.engine.calls import standing
from jobboard.states import CLAIMED, TRASHED, Record, State

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore

LOG = logging.getLogger(__name__)

_ROOTS = {*TREES.values(), "trash", "done", "over"}

_AT_ONCE = 100

_COUNTED = 10_000

_FAR = 20
"""How many folders a page walks through for a match."""


class TimedPlace(NamedTuple):
    when: int
    sequence: int
    uuid: str
    path: str


class Walker:
    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        # How many jobs lay in a folder, and what its stat was then.
        self._counted: dict[str, tuple[tuple[int, int] | None, int]] = {}

    def _lists(self, paths: list[str]) -> list[list[str]]:
        found = self._store.connection.read([children(self._store.paths.at(path)) for path in paths])
        if any(each is None and path in _ROOTS for path, each in zip(paths, found, strict=True)):
            self._store.mend()
        return [[] if each is None else each[0] for each in found]

    # Live jobs

    def page(
        self, after: Record | None, limit: int, names: Collection[str] | None, states: Collection[State]
    ) -> tuple[int, list[Stored]]:
        # What stands as claimed is stored so. The others come to their states by themselves.
        trees = [TREES[CLAIMED]] if set(states) == {CLAIMED} else list(TREES.values())
        page = self._page(after, limit, names, trees)
        if not page and after is None and not self._store.connection.alone():
            # What is empty has to be so on every server.
            self._store.sync()
            page = self._page(after, limit, names, trees)
        return self._store.judged(page), page

    def _page(self, after: Record | None, limit: int, names: Collection[str] | None, trees: list[str]) -> list[Stored]:
        page: list[Stored] = []
        passed: Entry | None = None
        for number, entries in enumerate(self._folders(after, trees)):
            wanted = [entry for entry in entries if names is None or entry.job in names][: limit - len(page)]
            page += self._read(wanted)
            if len(page) >= limit:
                break
            if entries:
                # One that was asked for would tell that this is the end.
                passed = None if wanted and entries[-1] == wanted[-1] else entries[-1]
            # The walk goes on behind it, if it is there still: nothing would tell that this is the end.
            if number >= _FAR and passed is not None and (last := self._read([passed])):
                page += last
                break
        return page

    def _read(self, entries: list[Entry]) -> list[Stored]:
        store = self._store
        data = store.connection.read([get(store.paths.job(entry.uuid)) for entry in entries]) if entries else []
        for entry in entries:
            store.remember_number(entry.uuid, entry.n)
        heads = [store.head(entry.uuid, each) for entry, each in zip(entries, data, strict=True)]
        return [stored for stored in store.whole(heads) if stored is not None and stored.record.state != TRASHED]

    def _folders(self, after: Record | None, trees: list[str]) -> Iterator[list[Entry]]:
        """Entries behind ``after``, of one folder after the other."""
        first, (folder, n) = (-1, (0, -1)) if after is None else (after.priority, place_of(after.sequence))
        for rank in self._union(trees):
            if int(rank) < first:
                continue
            for hi in self._union([f"{tree}/{rank}" for tree in trees]):
                if int(rank) == first and int(hi) < level_of(folder):
                    continue
                for lo in self._union([f"{tree}/{rank}/{hi}" for tree in trees]):
                    behind = (int(rank), folder_number(hi, lo))
                    if behind < (first, folder):
                        continue
                    entries = self._entries(f"{rank}/{hi}/{lo}", trees)
                    yield [entry for entry in entries if behind > (first, folder) or entry.n > n]

    def _union(self, paths: list[str]) -> list[str]:
        return sorted({name for names in self._lists(paths) for name in names if name.isdigit()})

    def _entries(self, folder: str, trees: list[str]) -> list[Entry]:
        # A job that goes over from one to the other in between is met in either.
        trees = [*trees, *trees][:-1]
        found: dict[str, Entry] = {}
        for tree, names in zip(trees, self._lists([f"{tree}/{folder}" for tree in trees]), strict=True):
            for name in names:
                try:
                    entry = Entry.parse(name)
                except ValueError as error:
                    if not name.startswith("-."):
                        LOG.warning("%s/%s/%s is set aside: %s", tree, folder, name, error)
                    continue
                found[entry.uuid] = entry
        return sorted(found.values())

    # The trash

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        last = None if after is None else (after.modified_on, after.sequence)
        page: list[Record] = []
        for entries in self.minutes("trash", last):
            for start in range(0, len(entries), limit):
                page += self._trashed(entries[start : start + limit])
                if len(page) >= limit:
                    break
            if len(page) >= limit:
                break
        for _, now, stored in self._met():
            record = standing(stored, now)
            if record.state == TRASHED and (last is None or (record.modified_on, record.sequence) < last):
                page.append(record)
        page.sort(key=lambda record: (record.modified_on, record.sequence), reverse=True)
        return page[:limit]

    def _trashed(self, entries: Sequence[TimedPlace]) -> Iterator[Record]:
        store = self._store
        found = store.read([entry.uuid for entry in entries]).jobs
        over = [store.paths.at(entry.path) for entry, stored in zip(entries, found, strict=True) if stored is None]
        if over and not store.read_only:
            # One that could not be read was purged: what it had here was not known.
            store.connection.try_later([delete(path) for path in over])
        for entry, stored in zip(entries, found, strict=True):
            if stored is not None and stored.record.state == TRASHED:
                yield stored.record._replace(modified_on=entry.when, sequence=entry.sequence)

    def minutes(self, tree: str, last: tuple[int, int] | None) -> Iterator[list[TimedPlace]]:
        """What lies there before, the newest first, of one minute after the other."""
        bound = "~" if last is None else minute_of(tree, last[0])
        for day in sorted(self._lists([tree])[0], reverse=True):
            if f"{tree}/{day}" > bound:
                continue
            for minute in sorted(self._lists([f"{tree}/{day}"])[0], reverse=True):
                folder = f"{tree}/{day}/{minute}"
                if folder > bound:
                    continue
                shelves = [f"{folder}/{name}" for name in self._lists([folder])[0]]
                entries: list[TimedPlace] = []
                for path, names in zip(shelves, self._lists(shelves), strict=True):
                    for name in names:
                        try:
                            entries.append(TimedPlace(*trashed_entry(name), f"{path}/{name}"))
                        except ValueError as error:
                            LOG.warning("%s/%s is set aside: %s", path, name, error)
                if not entries:
                    self._store.remove(shelves)
                yield sorted((each for each in entries if last is None or each[:2] < last), reverse=True)

    def _met(self) -> Iterator[tuple[State, int, Stored]]:
        """What has ended by itself, and nobody has written that down."""
        now, overdue = self._store.view.ended()
        for stored in overdue:
            yield stored.record.state, now, stored

    # Counts

    def counts(self) -> dict[State, int]:
        self._store.sync()
        counts: Counter[State] = Counter({state: self._children(tree) for state, tree in TREES.items()})
        counts[TRASHED] = self._children("trash")
        for state, now, stored in self._met():
            counts[state] -= 1
            counts[standing(stored, now).state] += 1
        return counts

    def _children(self, tree: str) -> int:
        """How many entries lie three folders down; what is none is left out."""
        store, total = self._store, 0
        parse = trashed_entry if tree == "trash" else Entry.parse
        for one in self._lists([tree])[0]:
            for two in self._lists([f"{tree}/{one}"])[0]:
                paths = [f"{tree}/{one}/{two}/{name}" for name in self._lists([f"{tree}/{one}/{two}"])[0]]
                stats = store.connection.read([exists(store.paths.at(path)) for path in paths])
                marks = {path: (stat.czxid, stat.cversion) for path, stat in zip(paths, stats, strict=True) if stat}
                changed = [path for path, mark in marks.items() if self._counted.get(path, (None, 0))[0] != mark]
                for start in range(0, len(changed), _AT_ONCE):
                    some = changed[start : start + _AT_ONCE]
                    for path, names in zip(some, self._lists(some), strict=True):
                        self._counted[path] = (marks[path], sum(_tells(parse, name) for name in names))
                total += sum(self._counted[path][1] for path in marks)
        while len(self._counted) > _COUNTED:
            del self._counted[next(iter(self._counted))]
        return total


def _tells(parse: Callable[[str], object], name: str) -> bool:
    try:
        parse(name)
    except ValueError:
        return False
    return True
