"""The jobs that can be claimed, in the order in which they are served."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Iterable, Iterator

from jobboard.backends.zookeeper.paths import RANKS, Node

FEW = 32


def few(changes: int, length: int) -> bool:
    """Whether to change a sorted list of this length one by one; as each shifts the rest, many would take quadratic
    time, and the list is sorted once instead."""
    return changes <= FEW + length // 100


class Ready:
    """Guarded by the lock of whoever has it. An index by names is kept from when names are asked for first."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._ranks: list[list[Node]] = [[] for _ in RANKS]
        self._named: dict[tuple[int, str], list[Node]] | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def update(self, came: Iterable[Node], went: Iterable[Node]) -> None:
        """Add and remove; what is there already, or is not there at all, may be given."""
        added = [node for node in came if node.uuid not in self._nodes]
        removed = [node for node in went if node.uuid in self._nodes]
        if not added and not removed:
            return
        for node in added:
            self._nodes[node.uuid] = node
        for node in removed:
            del self._nodes[node.uuid]
        if few(len(added) + len(removed), len(self._nodes)):
            for node in added:
                for ready in self._lists(node):
                    bisect.insort(ready, node)
            for node in removed:
                for ready in self._lists(node):
                    del ready[bisect.bisect_left(ready, node)]
                self._tidy(node)
            return
        for rank, ready in enumerate(self._ranks):
            if removed:
                ready[:] = [node for node in ready if node.uuid in self._nodes]
            ready += [node for node in added if node.rank == rank]
            ready.sort()
        self._named = None

    def _lists(self, node: Node) -> list[list[Node]]:
        ranked = self._ranks[node.rank]
        if self._named is None:
            return [ranked]
        return [ranked, self._named.setdefault((node.rank, node.job), [])]

    def _tidy(self, node: Node) -> None:
        if self._named is not None and not self._named.get((node.rank, node.job)):
            self._named.pop((node.rank, node.job), None)

    def _index(self) -> dict[tuple[int, str], list[Node]]:
        self._named = {}
        for ready in self._ranks:
            for node in ready:
                self._named.setdefault((node.rank, node.job), []).append(node)
        return self._named

    def first(self, rank: int) -> Node | None:
        ready = self._ranks[rank]
        return ready[0] if ready else None

    def in_order(self, names: Collection[str] | None, readable: int) -> Iterator[Node]:
        """Those of these names and of a version that is not above ``readable``."""
        for rank, ready in enumerate(self._ranks):
            nodes: Iterable[Node] = ready
            if names is not None:
                named = self._index() if self._named is None else self._named
                nodes = heapq.merge(*(named[rank, name] for name in names if (rank, name) in named))
            for node in nodes:
                if node.version <= readable:
                    yield node

    def following(self, node: Node, count: int) -> list[Node]:
        ready = self._ranks[node.rank]
        start = bisect.bisect_left(ready, node)
        return ready[start : start + count]
