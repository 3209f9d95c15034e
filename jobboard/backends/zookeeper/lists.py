"""The lists of folders, as they were read last."""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jobboard.backends.zookeeper.batch import created
from jobboard.backends.zookeeper.paths import Entry
from jobboard.backends.zookeeper.requests import Read, children, exists
from jobboard.engine import Lane

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore

LOG = logging.getLogger(__name__)

_SMALL = 64
"""A list of up to so many names is read anew together with what tells whether it has grown."""

_LISTS = 128
"""How many lists of entries are kept."""

_PASSED = 10_000
"""Of how many folders more it is known whose jobs lie there."""

_LANES = 8
"""As long as these are no more."""


class Unknown(Exception):
    """It would have to be read."""


class Names(NamedTuple):
    """Of which names a look is to find jobs; ``only`` None: of any but those in ``without``. None of the lanes
    that are ``full``."""

    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    full: frozenset[Lane] = frozenset()

    @classmethod
    def of(cls, only: Iterable[str] | None, without: Iterable[str], full: Iterable[Lane] = ()) -> Names:
        return cls(None if only is None else frozenset(only), frozenset(without), frozenset(full))

    def take(self, name: str, group: str | None) -> bool:
        return (self.only is None or name in self.only) and name not in self.without and (name, group) not in self.full


class Growth(NamedTuple):
    """Becomes another when something comes into a folder, or it is made anew."""

    made: int
    children: int

    @classmethod
    def of(cls, stat: Any) -> Growth:
        return cls(stat.czxid, created(stat))


class Lying(NamedTuple):
    """Of which names and groups the jobs of a folder are at most."""

    lanes: frozenset[tuple[str, str | None]]
    growth: Growth

    def passed_by(self, names: Names) -> bool:
        """Whether none of them can be what is looked for."""
        return not any(names.take(*lane) for lane in self.lanes)


class KeptList:
    """The sorted names of a folder: of other folders, or of entries, which are also kept apart by the names of their
    jobs from when these are asked for first."""

    def __init__(self, names: list[Any], stat: Any) -> None:
        self.names = names
        self._named: dict[str, list[Entry]] | None = None
        self._lying: Lying | None = None
        # As it was read, whatever this process has put in since.
        self.growth = Growth.of(stat)

    def of(self, jobs: Names) -> list[Any]:
        if jobs.without or jobs.full:
            lying = self.lying()
            if len(lying.lanes) <= _LANES and lying.passed_by(jobs):
                return []
        if jobs.only is None:
            found = [entry for entry in self.names if entry.job not in jobs.without] if jobs.without else self.names
        else:
            if self._named is None:
                self._named = {}
                for entry in self.names:
                    self._named.setdefault(entry.job, []).append(entry)
            named = [self._named[job] for job in jobs.only if job in self._named]
            found = named[0] if len(named) == 1 else sorted(itertools.chain(*named))
        return [entry for entry in found if (entry.job, entry.group) not in jobs.full] if jobs.full else found

    def lying(self) -> Lying:
        """Of a folder of entries."""
        if self._lying is None:
            lanes = frozenset((entry.job, entry.group) for entry in self.names)
            self._lying = Lying(lanes, self.growth)
        return self._lying

    def _all(self, name: Any) -> Iterator[list[Any]]:
        yield self.names
        if self._named is not None:
            yield self._named.setdefault(name.job, [])

    def add(self, name: Any) -> None:
        """Unless it is there already."""
        self._lying = None
        for names in self._all(name):
            at = bisect.bisect_left(names, name)
            if names[at : at + 1] != [name]:
                names.insert(at, name)

    def drop(self, name: Any) -> None:
        for names in self._all(name):
            at = bisect.bisect_left(names, name)
            if names[at : at + 1] == [name]:
                del names[at]


class Lists:
    """Those of ready jobs' folders that one process knows. Until :meth:`refresh` says otherwise, nothing has come into
    them.

    Of folders whose lists would be too many it keeps whose jobs lie there, so that a look passes by those of jobs that
    it is not to find.
    """

    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        self._kept: dict[str, KeptList] = {}
        self._passed: dict[str, Lying] = {}
        # What was read together with the rest of a first look.
        self.ahead: dict[str, Any] = {}

    def names(self, path: str, known: bool = False) -> list[Any]:
        """:param known: read nothing.
        :raises Unknown: it would have to be read."""
        kept = self._kept.get(path)
        if kept is None:
            if known:
                raise Unknown
            found = self.listing(path)
            if found is None:
                return []
            kept = self._keep(path, found)
        return kept.names

    def of(self, folder: str, names: Names) -> list[Any]:
        """Those of its entries that are known."""
        kept = self._kept.get(folder)
        return [] if kept is None else list(kept.of(names))

    def passed_by(self, folder: str, names: Names) -> bool:
        """Whether it is known, though its list is not, that none of its jobs is looked for."""
        lying = self._passed.get(folder)
        return lying is not None and lying.passed_by(names)

    def listing(self, path: str) -> Any:
        """Names and stat; once what was read ahead."""
        found = self.ahead.pop(path, None)
        if found is None:
            [found] = self._store.connection.read([children(self._store.paths.at(path))])
        return found

    def _keep(self, path: str, found: Any) -> KeptList:
        names, stat = found
        if _is_folder(path):
            entries = []
            for name in names:
                try:
                    entries.append(Entry.parse(name))
                except ValueError as error:
                    # A number that is reserved is soon gone again.
                    if not name.startswith("-."):
                        LOG.warning("%s/%s is set aside: %s", path, name, error)
            names = entries
            if path not in self._kept and len(self._kept) >= _LISTS:
                self._let_go(next(filter(_is_folder, self._kept)))
        else:
            names = [name for name in names if name.isdigit()]
        self._passed.pop(path, None)
        kept = self._kept[path] = KeptList(sorted(names), stat)
        return kept

    def _let_go(self, folder: str) -> None:
        lying = self._kept.pop(folder).lying()
        if len(lying.lanes) <= _LANES:
            while len(self._passed) >= _PASSED:
                del self._passed[next(iter(self._passed))]
            self._passed[folder] = lying

    def forget(self, path: str) -> None:
        self._kept.pop(path, None)

    def drop(self, folder: str, entry: Entry) -> None:
        kept = self._kept.get(folder)
        if kept is not None:
            kept.drop(entry)

    def add(self, folder: str, entry: Any) -> None:
        """Whether a list has it already is not known: it may have been read before this is told. So what the list is
        compared with, to see that it has grown, stays as it was read."""
        self._passed.pop(folder, None)
        kept = self._kept.get(folder)
        if kept is not None:
            kept.add(entry)

    def knows(self, folder: str) -> bool:
        return folder in self._kept or folder in self._passed

    def refresh(self) -> None:
        """Have those go into which something has come."""
        kept, passed = list(self._kept.items()), list(self._passed.items())
        at = self._store.paths.at
        asked: list[Read] = [(children if len(each.names) <= _SMALL else exists)(at(path)) for path, each in kept]
        asked += [exists(at(path)) for path, _ in passed]
        found: Sequence[Any] = self._store.connection.read(asked) if asked else ()
        for (path, each), told in zip(kept, found, strict=False):
            if told is None:
                del self._kept[path]
            elif len(each.names) <= _SMALL:
                if each.growth != Growth.of(told[1]):
                    self._keep(path, told)
            elif each.growth != Growth.of(told):
                del self._kept[path]
        for (path, lying), stat in zip(passed, found[len(kept) :], strict=True):
            if stat is None or lying.growth != Growth.of(stat):
                del self._passed[path]


def _is_folder(path: str) -> bool:
    """Whether entries lie there, not other folders."""
    return path.count("/") == 3
