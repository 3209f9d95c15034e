"""Fences: keys that divide a long index of names into short ranges.

etcd pays for all keys of a range, whatever the limit of the reading. Keys behind the limit count, and keys that were
deleted since the last compaction. So the names of a long index are read part by part.

A *window* is all names of one beginning. A *fence* is a key at a name, or at the beginning of a window. Each name has a
fence at or before it in its own window. A *part* goes from one fence to the next, or to the end of its window. A
reading lists the fences, and then reads their parts: it meets every name.

- About each 256th name brings a fence of its own, so that no part is long.
- A commit that adds a name to a window without a fence before that name puts one at the window's beginning.
- A reading that passes parts without names deletes their fences. Most of the deleted keys lie there.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from zlib import crc32

from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.requests import KV, delete, end_of, exists, get, nothing_in, put, within
from jobboard.kv.driver import Range

WINDOWS = {"ready": 15, "timed": 11, "done": 11, "over": 11}
"""The indexes that have fences, and how many characters the names of a window have in common. In ``ready`` the names
differ in the last five digits of their sequence, which are 195 revisions. In the others they differ in the last seven
digits of their time, which are 10 s."""

_OFTEN = 256
_LISTED = 64
"""The fences that are read at once."""

_ABREAST = 32
"""The most parts that are read at once."""

_EMPTY = 2
"""The parts without names that a reading must pass to delete their fences, unless that is its purpose."""

Walk = Generator[list[str], list[list[KV]], list[str]]
"""A reading in steps: it yields operations, gets their answers, and returns names."""

Part = tuple[str, str]
"""The beginnings of a part and of the next part, as names. No job needs to have these names."""


class Fences:
    """The fences of one board.

    :param root: the beginning of the board's keys.
    """

    def __init__(self, link: Gateway, root: str, read_only: bool) -> None:
        self._link = link
        self._root = root
        self._read_only = read_only
        # By index: the fences of the last reading and the number of its parts, which the next reading asks for at once.
        self._seen: dict[str, tuple[list[str], int]] = {}

    def added(self, index: str, names: Iterable[str]) -> Iterator[str]:
        """Return the further operations of a commit that adds these names."""
        ordered = sorted(names)
        for window, some in itertools.groupby(ordered, key=lambda name: name[: WINDOWS[index]]):
            fence, first = self._fence(index, window), self._fence(index, next(some))
            yield within([nothing_in(fence, first + "\0")], [put(fence)])
        yield from (put(self._fence(index, name)) for name in ordered if not crc32(name.encode()) % _OFTEN)

    def walk(self, wanted: Range, least: int = _EMPTY) -> Walk:
        """Read the names of an index that has fences.

        :param least: the parts without names that the reading must pass to delete their fences.
        """
        index, most, after = wanted
        fences, depth = self._seen.get(index, ([], 0))
        guess = list(itertools.islice(self._parts(index, after, fences), depth))
        listed, *found = yield [self._list(index, after), *(self._span(index, part, most) for part in guess)]
        known = dict(zip(guess, found, strict=True))
        seen = fences = self._fenced(index, listed)
        names: list[str] = []
        passed: list[Part] = []
        empty: list[Part] = []
        # The guessed parts come first. A further one would need a further request.
        parts, step = self._parts(index, after, fences), max(1, len(guess))
        while len(names) < most:
            chunk = list(itertools.islice(parts, step))
            if not chunk:
                if len(fences) < _LISTED:
                    break
                [listed] = yield [self._list(index, fences[-1], inclusive=True)]
                fences = self._fenced(index, listed)
                parts = self._parts(index, "", fences)
                continue
            step = min(2 * step, _ABREAST)
            missing = [part for part in chunk if part not in known]
            if missing:
                known.update(zip(missing, (yield [self._span(index, part, most) for part in missing]), strict=True))
            for part in chunk:
                if len(names) < most:
                    passed.append(part)
                    names += self._names(index, known[part])
                if not known[part] and part[0] in fences:
                    empty.append(part)
        self._seen[index] = seen, min(len(passed), _ABREAST)
        if len(empty) >= least and not self._read_only:
            self._link.txn((), [self._removal(index, part) for part in empty], changes=False)
        return names[:most]

    def _parts(self, index: str, after: str, fences: Sequence[str]) -> Iterator[Part]:
        """Return the parts behind ``after``. If there may be more fences, the last one only ends a part."""
        window = WINDOWS[index]
        starts = [after + "\0"] if len(after) >= window else []
        starts += (fence for fence in fences if fence > after)
        ends = starts[1:] if len(fences) == _LISTED else [*starts[1:], "\x7f"]
        return ((start, min(end, end_of(start[:window]))) for start, end in zip(starts, ends, strict=False))

    def _removal(self, index: str, part: Part) -> str:
        """Return the operation that deletes the fence of an empty part, if later names keep a fence before them."""
        start, end = (self._fence(index, name) for name in part)
        window = WINDOWS[index]
        behind = [exists(end)] if part[0][:window] == part[1][:window] else []
        names = [nothing_in(f"{self._root}{index}/{part[0]}", f"{self._root}{index}/{part[1]}")]
        return within([*names, *behind], [delete(start)])

    def _fence(self, index: str, name: str) -> str:
        return f"{self._root}fence/{index}/{name}"

    def _list(self, index: str, after: str, inclusive: bool = False) -> str:
        start = self._fence(index, after if inclusive or not after else after + "\0")
        return get(start, end_of(self._fence(index, "")), _LISTED, only="keys")

    def _fenced(self, index: str, kvs: Sequence[KV]) -> list[str]:
        start = len(self._fence(index, ""))
        return [kv.key[start:] for kv in kvs]

    def _span(self, index: str, part: Part, most: int) -> str:
        start, end = (f"{self._root}{index}/{name}" for name in part)
        return get(start, end, max(most, 1), only="keys")

    def _names(self, index: str, kvs: Sequence[KV]) -> list[str]:
        start = len(f"{self._root}{index}/")
        return [kv.key[start:] for kv in kvs]
