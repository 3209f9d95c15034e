"""Folders of names and records: where they lie, and walks through them in order.

::

    job/<bucket>/<uuid>                                     records, in 256 buckets; so are side/<kind>
    ready/<rank>.<sequence // 50,000>/<// 200>/<name>       so are live, and kept with a session in place of the rank
    timed/<1000 s>/<1 s>/<100 ms>.<sequence // 200 % 64>/<name>
    trash/<1000 s>/<1 s>/<100 ms>/<name>                    so are done and over
    holders/<session>                                       so is alive

Folders sort as the names in them do. A look lists no folder of more than about 1,000 names, whatever the size of the
board. Numbers of jobs have no gaps, so 200 jobs share a folder. Jobs of one instant are split by their numbers as well.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from zlib import crc32

from jobboard.kv import layout
from jobboard.kv.driver import ALIVE

T = TypeVar("T")

_SLOT = 10**5
"""The µs that share a folder."""

_BEGINNING = re.compile(r"([^./]*)(?:\.([0-9]*))?")

_BUCKETS = [f"{number:02x}" for number in range(256)]

List = Callable[[Sequence[str]], list[list[str]]]
"""Lists several folders."""


def _flat(name: str) -> tuple[str, ...]:
    return ()


def _ranked(name: str) -> tuple[str, ...]:
    first, sequence = _numbers(name)
    return f"{first}.{sequence // 50_000:012d}", f"{sequence // 200 % 250:03d}"


def _instant(name: str) -> tuple[str, ...]:
    when = int(re.sub("[^0-9].*", "", _numbers(name)[0]).ljust(18, "0"))
    return f"{when // 10**9:09d}", f"{when // 10**6 % 1000:03d}", f"{when // _SLOT % 10}"


def _timed(name: str) -> tuple[str, ...]:
    *above, slot = _instant(name)
    return *above, f"{slot}.{_numbers(name)[1] // 200 % 64:02d}"


def _numbers(name: str) -> tuple[str, int]:
    """Return the first part of a name and the number behind it. For the beginning of a name: the lowest number that can
    follow."""
    found = _BEGINNING.match(name)
    assert found is not None
    return found[1], int((found[2] or "").ljust(16, "0"))


def _bucket(name: str) -> tuple[str, ...]:
    return (_BUCKETS[crc32(name.encode()) & 0xFF],)


_FOLDERS: dict[str, Callable[[str], tuple[str, ...]]] = {
    **dict.fromkeys((layout.READY, layout.LIVE, layout.KEPT), _ranked),
    **dict.fromkeys((layout.TRASH, layout.DONE, layout.OVER), _instant),
    **dict.fromkeys((layout.HOLDERS, ALIVE), _flat),
    layout.TIMED: _timed,
}

INDEXES = tuple(_FOLDERS)


def is_top(folder: str) -> bool:
    """Return whether this folder is a top folder: an index, or a folder of records."""
    return "/" not in folder.removeprefix("side/")


def path_of(path: str) -> str:
    """Return the path of a record, or of a name of an index."""
    top, _, name = path.rpartition("/")
    return "/".join((top, *folders_of(top, name), name)) if top else path


def folders_of(top: str, name: str) -> tuple[str, ...]:
    return _FOLDERS.get(top, _bucket)(name)


def levels_of(top: str) -> int:
    """Return the number of levels of folders below a top folder."""
    return len(folders_of(top, "0"))


def folders_above(path: str, root: str) -> Iterator[str]:
    """Yield the folders that lead from the root to this one, and this one."""
    at = path.find("/", len(root) + 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
    if len(path) > len(root):
        yield path


class FolderWalk:
    """A walk through a top folder, in the order of its names.

    In ``timed`` a slot of 100 ms may hold thousands of names. While the slot lasts, all its folders are read at once,
    so the names come in their order. Before and after, none or all of the names are due, and folders are read singly.

    :param after: a name, or the beginning of a name. The walk begins behind it.
    :param now: the server's time in µs.
    :param read: lists folders. Most often it has listed the folders of the last walk already.
    """

    def __init__(self, top: str, after: str, now: int, read: List) -> None:
        self._top, self._after, self._now, self._read = top, after, now, read
        self._levels = levels_of(top)
        self._bound = folders_of(top, after) if after else ()

    @property
    def lowest(self) -> list[str]:
        """The folders that lead to ``after``."""
        return ["/".join((self._top, *self._bound[:level])) for level in range(len(self._bound) + 1)]

    def folders(self) -> Iterator[str]:
        """Yield the folders that hold the names, in order."""
        folders: Iterator[str] = iter([self._top])
        for level in range(self._levels):
            folders = self._below(folders, self._bound[: level + 1])
        return folders

    def _below(self, folders: Iterator[str], bound: tuple[str, ...]) -> Iterator[str]:
        """Yield the folders in these folders. Read them as needed, with a few ahead."""
        for some in growing(folders):
            for folder, names in zip(some, self._read(some), strict=True):
                for name in sorted(names):
                    if not bound or (*folder.removeprefix(self._top).split("/")[1:], name) >= bound:
                        yield f"{folder}/{name}"

    def names(self) -> Iterator[str]:
        """Yield the names, in order."""
        first = self._slot("/".join((self._top, *self._bound)))
        for runs in growing(list(run) for _, run in itertools.groupby(self.folders(), self._slot)):
            listed = iter(self._read([folder for run in runs for folder in run]))
            for run in runs:
                names = sorted(itertools.chain.from_iterable(itertools.islice(listed, len(run))))
                yield from (name for name in names if name > self._after or self._slot(run[0]) != first)

    def _slot(self, folder: str) -> str:
        """Return the common part of the folders whose names are read at once."""
        return folder.rpartition(".")[0] if self._is_mixed(folder) else folder

    def _is_mixed(self, folder: str) -> bool:
        """Return whether some of the names in this folder of ``timed`` may be due, and others not."""
        if self._top != layout.TIMED or "." not in folder:
            return False
        _, *parts, last = folder.split("/")
        digits = "".join((*parts, last[0]))
        return digits.isdecimal() and -_SLOT <= self._now - int(digits) * _SLOT < _SLOT


def growing(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in lists of one, two, four and more, so that few are read in vain."""
    rest, size = iter(items), 1
    while some := list(itertools.islice(rest, size)):
        yield some
        size = min(2 * size, 32)
