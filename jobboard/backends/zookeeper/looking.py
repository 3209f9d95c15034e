"""Reading a board: pages, counts, the trash, and who is there."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from jobboard.backends.zookeeper.paths import DUE, LAST_KEPT, LAST_LEASE, Timed
from jobboard.backends.zookeeper.records import Found, stands
from jobboard.backends.zookeeper.store import Store
from jobboard.backends.zookeeper.wire import children, get
from jobboard.primitives import Seen
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Record, State


class Reader:
    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        found = self._store.read(uuids)
        now = self._now([it for it in found if not isinstance(it, State)])
        return [Seen(it, None, None) if isinstance(it, State) else Seen.at(now, stands(it, now)) for it in found]

    def _now(self, found: Sequence[Found]) -> int:
        """The server's time, where any of these depends on it."""
        lapsed = any(it.record.exhausted and it.held is None for it in found)
        return self._store.now() if lapsed or any(it.record.lock_until is not None for it in found) else 0

    def page(self, after: Record | None, limit: int, names: Sequence[str] | None) -> list[Seen]:
        wanted = None if names is None else frozenset(names)
        # Who wants to see all that was acknowledged anywhere asks for it; that there is nothing must be true anyhow.
        return self._page(after, limit, wanted, sync=False) or self._page(after, limit, wanted, sync=True)

    def _page(self, after: Record | None, limit: int, wanted: frozenset[str] | None, sync: bool) -> list[Seen]:
        store = self._store
        store.view.look(sync=sync, everything=True)
        place = (-1, -1) if after is None else (after.priority, after.sequence)
        page: list[Found] = []
        while len(page) < limit:
            nodes = store.view.page(place, limit - len(page), wanted)
            if not nodes:
                break
            for node, it in zip(nodes, store.read_nodes(nodes), strict=True):
                if it is None:
                    store.view.changed(node, None)
                else:
                    page.append(it)
            place = nodes[-1].rank, nodes[-1].sequence
        now = self._now(page)
        return [Seen.at(now, stands(it, now)) for it in page]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        store = self._store
        store.view.look(sync=True, everything=True, trash=True)
        if store.view.has_times():
            store.view.settle(store.now())
        unswept = [it for it in store.read_nodes(store.view.exhausted()) if it is not None]
        now = self._now(unswept)
        records = [record for it in unswept if (record := stands(it, now)).state == TRASHED]
        before = None if after is None else (after.modified_on, after.sequence)
        if before is not None:
            records = [record for record in records if (record.modified_on, record.sequence) < before]
        read = 0
        # Some may be restored or purged just now.
        while read < limit and (places := store.view.trash_page(before, limit - read)):
            there = store.read_trash(places)
            read += len(there)
            records += there
            before = places[-1].when, places[-1].node.sequence
        return heapq.nlargest(limit, records, key=lambda record: (record.modified_on, record.sequence))

    def tally(self) -> dict[State, int]:
        """From the lists of claims and times, and from how many jobs the stats tell of: no job is read."""
        store, paths, view = self._store, self._store.paths, self._store.view
        view.look(sync=True, everything=True)
        reads = [*(get(path) for path in paths.jobs), get(paths.trash), children(paths.claims), children(paths.timed)]
        *stats, claims, names = store.need(reads, sync=paths.root)
        timed = [each for name in names if (each := _timed(name)) is not None]
        if any(view.place(uuid) is None for uuid in [*claims, *(each.uuid for each in timed)]):
            view.look(everything=True)
        now = store.now() if any(each.kind != LAST_KEPT for each in timed) else 0
        seen: dict[str, State] = {}
        for each in timed:
            if each.kind == LAST_KEPT or (each.kind == LAST_LEASE and each.until <= now):
                seen[each.uuid] = TRASHED
            elif each.until > now:
                seen[each.uuid] = SCHEDULED if each.kind == DUE else CLAIMED
        seen |= dict.fromkeys(claims, CLAIMED)
        # What is no job does not count, nor a claim or a time of one that is not there.
        tally = Counter(state for uuid, state in seen.items() if view.place(uuid) is not None)
        live = sum(stat.stat.numChildren for stat in stats[:-1]) - view.strays
        tally[UNCLAIMED] = max(0, live - tally.total())
        tally[TRASHED] += stats[-1].stat.numChildren
        return dict(tally)


def _timed(name: str) -> Timed | None:
    try:
        return Timed.parse(name)
    except ValueError:
        return None
