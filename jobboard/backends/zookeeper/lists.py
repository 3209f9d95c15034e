"""The list of one folder, as it was read last."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jobboard.backends.zookeeper.batch import created
from jobboard.backends.zookeeper.paths import Entry


class Names(NamedTuple):
    """Of which names a look is to find jobs; ``only`` None: of any but those in ``without``."""

    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()

    @classmethod
    def of(cls, only: Iterable[str] | None, without: Iterable[str]) -> Names:
        return cls(None if only is None else frozenset(only), frozenset(without))


class KeptList:
    """The sorted names of a folder: of other folders, or of entries, which are also kept apart by the names of their
    jobs from when these are asked for first."""

    def __init__(self, names: list[Any], stat: Any) -> None:
        self.names = names
        self._named: dict[str, list[Entry]] | None = None
        self.folder = stat.czxid
        self.created = created(stat)

    def of(self, jobs: Names) -> list[Any]:
        if jobs.only is None:
            return [entry for entry in self.names if entry.job not in jobs.without] if jobs.without else self.names
        if self._named is None:
            self._named = {}
            for entry in self.names:
                self._named.setdefault(entry.job, []).append(entry)
        found = [self._named[job] for job in jobs.only if job in self._named]
        return found[0] if len(found) == 1 else sorted(itertools.chain(*found))

    def _all(self, name: Any) -> Iterator[list[Any]]:
        yield self.names
        if self._named is not None:
            yield self._named.setdefault(name.job, [])

    def add(self, name: Any) -> None:
        """Unless it is there already."""
        for names in self._all(name):
            at = bisect.bisect_left(names, name)
            if names[at : at + 1] != [name]:
                names.insert(at, name)

    def drop(self, name: Any) -> None:
        for names in self._all(name):
            at = bisect.bisect_left(names, name)
            if names[at : at + 1] == [name]:
                del names[at]

    def grown(self, stat: Any) -> bool:
        """Whether something has come into it since, or it was made anew."""
        return (stat.czxid, created(stat)) != (self.folder, self.created)
