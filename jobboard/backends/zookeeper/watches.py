"""What this process knows of a board: one listing for all its threads, refreshed as seldom as order allows.

A look reads the folders' stats in one small request. A folder's list is shipped again only where the stats tell that
something was created in it, or where others have been quicker than we, and then at most every 20 to 100 ms. Claims lie
in a folder of their own, so that those of others do not ship the jobs again.

The bell is a znode that is written when something may have become claimable. Who waits is woken by it, and by the
claims that vanish. Who claims has the server compare its version with that of the latest look: as long as it stands,
what is known of the order is true, however old it is.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError

from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.folders import SMALL, Folder, created
from jobboard.backends.zookeeper.paths import (
    DUE,
    LAST_KEPT,
    LAST_LEASE,
    LEASE,
    RANKS,
    Node,
    Paths,
    Timed,
    Trashed,
    timed_of,
)
from jobboard.backends.zookeeper.ready import Ready, few
from jobboard.backends.zookeeper.wire import children, get
from jobboard.exceptions import JobFailure
from jobboard.job import boottime
from jobboard.states import CLAIMED, LIVE, Record

_BUSY, _CROWDED, _PARTIAL, _QUIET = 0.002, 0.02, 0.1, 0.5
"""For how many seconds a look will do: while the bell rings, while others are quicker, where it has not shipped a list
again that had changed, and otherwise."""

NOTED = 1000
"""How many posts of its own a process that never looks keeps in mind."""

_SLACK = 50_000
"""How far, in µs, our idea of the server's clock is trusted."""


def _when(trashed: Trashed) -> tuple[int, int]:
    return trashed.when, trashed.node.sequence


class View:
    """All methods may be called from any thread; ``lock`` guards what is known."""

    def __init__(
        self,
        connection: Connection,
        paths: Paths,
        wake: Callable[[], None],
        need: Callable[..., list[Any]],
        mend: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._paths = paths
        self._wake = wake
        self._need = need
        self._mend = mend
        self.lock = threading.RLock()
        self._looking = threading.Lock()
        self._jobs = [Folder(path) for path in paths.jobs]
        self._claims, self._timed_folder, self._trash = (
            Folder(path) for path in (paths.claims, paths.timed, paths.trash)
        )
        self._nodes: dict[str, Node] = {}
        self._ready = Ready()
        # All live jobs in order, for those who walk; some that have gone may still be among them. None: not sorted yet.
        self._walks: list[list[Node] | None] = [None for _ in RANKS]
        self._claimed: set[str] = set()
        self._timed: dict[str, Timed] = {}
        self._times: list[tuple[int, str]] = []
        self._lasts: set[str] = set()
        self._damaged: set[str] = set()
        self._overdue: set[str] = set()
        self._aside: set[str] = set()
        self._trashed: dict[str, Trashed] = {}
        self._trash_walk: list[Trashed] | None = None
        self._dirty = True
        self._ringing = False
        self._hearing = False
        self._looked = 0.0
        self._pause = _BUSY
        self._offset: float | None = None
        self.bell = -1
        """The bell's version; what is known is at least as young."""
        self.spread = 1
        self._noted = 0

    # Looking

    def freshen(self) -> None:
        """Look, unless that was done not long ago: what is missed then, the bell's version tells when a job is claimed.
        Where the bell rings all the time, or others take the jobs, that costs more than to look more often."""
        pause = _CROWDED if self.spread > 1 else self._pause
        if self._dirty or boottime() - self._looked >= pause:
            self.look()

    def doubt(self) -> None:
        """What is known is not true any longer."""
        self._dirty = True

    def rang(self, version: int) -> None:
        """This process has rung, and knows why; the lock is held since it knows."""
        if version == self.bell + 1:
            self.bell = version
        else:
            self._dirty = True

    def look(self, sync: bool = False, everything: bool = False, trash: bool = False) -> None:
        """Learn what has changed.

        :param sync: have the server catch up with the ensemble first.
        :param everything: ship every folder that has changed at all.
        """
        with self._looking:
            folders = [*self._jobs, self._claims, self._timed_folder, *([self._trash] if trash else [])]
            start = boottime()
            self._dirty = False
            self._noted = 0
            small = [folder for folder in folders if len(folder.names) <= SMALL]
            ops = [get(folder.path) for folder in folders] + [children(folder.path) for folder in small]
            bell, *found = self._need([get(self._paths.bell), *ops], sync=self._paths.root if sync else None)
            stats = dict(zip((folder.path for folder in folders), found, strict=False))
            names = dict(zip((folder.path for folder in small), found[len(folders) :], strict=True))
            now = boottime()
            rest = [
                folder
                for folder in folders
                if folder.path not in names and self._stale(folder, stats[folder.path].stat, now, everything or trash)
            ]
            if rest:
                found = self._need([op for each in rest for op in (get(each.path), children(each.path))])
                for folder, stat, listed in zip(rest, found[::2], found[1::2], strict=True):
                    stats[folder.path], names[folder.path] = stat, listed
            spent = boottime() - now
            with self.lock:
                quiet = self.bell == bell.stat.version
                self.bell = bell.stat.version
                for folder in folders:
                    if folder.path in names:
                        self._ship(folder, names[folder.path], stats[folder.path].stat)
                        folder.shipped = boottime()
                        folder.spent = spent if folder in rest else 0.0
                partial = any(self._changed(folder, stats[folder.path].stat) for folder in folders)
                self._pause = _BUSY if not quiet else _PARTIAL if partial else _QUIET
                if everything:
                    aside, self._aside = self._aside, set()
                    self._sort_in(aside)
            self._looked = start

    def _changed(self, folder: Folder, stat: Any) -> bool:
        """Whether more has changed in it than what others have taken off, which shows when it is tried or read."""
        return created(stat) != folder.created if folder in self._jobs else bool(stat.pzxid != folder.changed)

    def _stale(self, folder: Folder, stat: Any, now: float, everything: bool) -> bool:
        if folder in self._jobs:
            # What others have taken off is shipped only where that happens often.
            changed = self._changed(folder, stat)
            if not changed and (self.spread == 1 or stat.pzxid == folder.changed):
                return False
            # What is posted behind jobs that are known does not matter yet.
            urgent = changed and (everything or self._ready.first(self._jobs.index(folder)) is None)
            return urgent or now - folder.shipped >= folder.interval()
        if not self._changed(folder, stat):
            return False
        return everything or now - folder.shipped >= folder.interval()

    def _ship(self, folder: Folder, listed: Sequence[str], stat: Any) -> None:
        names = set(listed)
        came, went = names - folder.names, folder.names - names
        folder.names = names
        folder.created, folder.changed = created(stat), stat.pzxid
        touched: set[str] = set()
        if folder is self._claims:
            self._claimed = names
            touched = came | went | self._aside
            self._aside = set()
        elif folder is self._timed_folder:
            for timed in folder.parsed(Timed.parse, went, came=False):
                if self._timed.get(timed.uuid) == timed:
                    self._forget_timed(timed.uuid)
                touched.add(timed.uuid)
            fresh = folder.parsed(Timed.parse, came)
            self._note_timed(fresh)
            touched.update(timed.uuid for timed in fresh)
        elif folder is self._trash:
            self._trash_walk = None
            for trashed in folder.parsed(Trashed.parse, went, came=False):
                self._trashed.pop(trashed.node.uuid, None)
            self._trashed.update((trashed.node.uuid, trashed) for trashed in folder.parsed(Trashed.parse, came))
        else:
            rank = self._jobs.index(folder)
            parse = functools.partial(Node.parse, rank=rank)
            self._forget(folder.parsed(parse, went, came=False))
            for node in folder.parsed(parse, came):
                self._learn(node)
                touched.add(node.uuid)
            if came:
                self._walks[rank] = None
        self._sort_in(touched)

    def _learn(self, node: Node) -> None:
        known = self._nodes.get(node.uuid)
        if known is not None and known != node:
            # It was restored, and lies elsewhere now.
            self._forget([known])
        self._nodes[node.uuid] = node

    def _forget(self, nodes: Iterable[Node]) -> None:
        """These places are empty; a job that has gone from one of them to another is still known there."""
        nodes = [node for node in nodes if self._nodes.get(node.uuid) == node]
        self._ready.update([], nodes)
        for node in nodes:
            self._nodes.pop(node.uuid, None)
            walk = self._walks[node.rank]
            if walk is not None and len(walk) > 2 * len(self._nodes) + 1000:
                self._walks[node.rank] = None

    def _note_timed(self, entries: Sequence[Timed]) -> None:
        # Of two of one job, one is left over from what something else has done to the board.
        entries = list({timed.uuid: timed for timed in entries}.values())
        for timed in entries:
            self._forget_timed(timed.uuid)
            self._timed[timed.uuid] = timed
            if timed.kind in (LAST_LEASE, LAST_KEPT):
                self._lasts.add(timed.uuid)
        times = [(timed.until, timed.uuid) for timed in entries if timed.kind != LAST_KEPT]
        if few(len(times), len(self._times)):
            for time in times:
                bisect.insort(self._times, time)
        else:
            self._times += times
            self._times.sort()

    def _forget_timed(self, uuid: str) -> None:
        timed = self._timed.pop(uuid, None)
        self._lasts.discard(uuid)
        if timed is not None and timed.kind != LAST_KEPT and uuid not in self._overdue:
            del self._times[bisect.bisect_left(self._times, (timed.until, uuid))]
        self._overdue.discard(uuid)

    def _sort_in(self, uuids: Iterable[str]) -> None:
        """Put jobs among those that are ready, or take them out of them."""
        free: list[Node] = []
        others: list[Node] = []
        for uuid in uuids:
            node = self._nodes.get(uuid)
            if node is not None:
                (free if self._is_free(uuid) else others).append(node)
        self._ready.update(free, others)

    def _is_free(self, uuid: str) -> bool:
        if uuid in self._claimed or uuid in self._aside:
            return False
        timed = self._timed.get(uuid)
        return timed is None or (timed.kind in (LEASE, DUE) and uuid in self._overdue)

    # What is known

    def place(self, uuid: str) -> Node | None:
        return self._nodes.get(uuid)

    def trashed_place(self, uuid: str) -> Trashed | None:
        return self._trashed.get(uuid)

    def candidates(self, limit: int, names: Collection[str] | None, readable: int) -> list[Node]:
        """The jobs to try: the first ones, or, where others were quicker, some ones from among the first."""
        wanted = limit * self.spread
        with self.lock:
            found: list[Node] = []
            for node in self._ready.in_order(names, readable):
                if found and node.rank != found[0].rank and len(found) >= limit:
                    break
                found.append(node)
                if len(found) >= wanted:
                    break
        if len(found) > limit:
            start = random.randrange(len(found) - limit + 1)
            return found[start : start + limit]
        return found

    def following(self, node: Node, count: int) -> list[Node]:
        """The jobs that are likely to be wanted next after this one."""
        with self.lock:
            return self._ready.following(node, count)

    def any(self, names: Collection[str] | None, readable: int) -> bool:
        with self.lock:
            return next(self._ready.in_order(names, readable), None) is not None

    def page(self, after: tuple[int, int], limit: int, names: Collection[str] | None) -> list[Node]:
        """The live jobs behind a (rank, sequence), in order."""
        page: list[Node] = []
        with self.lock:
            for rank in RANKS[max(0, after[0]) :]:
                walk = self._walk(rank)
                start = bisect.bisect_right(walk, after, key=lambda node: (node.rank, node.sequence))
                for node in itertools.islice(walk, start, None):
                    if node.uuid in self._nodes and (names is None or node.job in names):
                        page.append(node)
                        if len(page) == limit:
                            return page
        return page

    def _walk(self, rank: int) -> list[Node]:
        walk = self._walks[rank]
        if walk is None:
            walk = self._walks[rank] = sorted(node for node in self._nodes.values() if node.rank == rank)
        return walk

    def trash_page(self, before: tuple[int, int] | None, limit: int) -> list[Trashed]:
        """The trashed jobs below a (when, sequence), downwards."""
        with self.lock:
            if self._trash_walk is None:
                self._trash_walk = sorted(self._trashed.values(), key=_when)
            walk = self._trash_walk
            end = len(walk) if before is None else bisect.bisect_left(walk, before, key=_when)
            return walk[max(0, end - limit) : end][::-1]

    # Time

    def has_times(self) -> bool:
        return bool(self._timed)

    def learn_time(self, now: int, at: float) -> None:
        """The server's clock said ``now`` (µs) when ours said ``at``."""
        self._offset = now / 1e6 - at

    def may_be_overdue(self) -> bool:
        """Whether the server's clock has to be asked: something that is timed may have come since."""
        first = self._times[:1]
        if not first or self._offset is None:
            return bool(first)
        return first[0][0] <= (boottime() + self._offset) * 1e6 + _SLACK

    def settle(self, now: int) -> None:
        """Bring back what is overdue at this time."""
        with self.lock:
            end = bisect.bisect_right(self._times, now, key=lambda time: time[0])
            uuids = [uuid for _, uuid in self._times[:end]]
            del self._times[:end]
            self._overdue.update(uuids)
            self._sort_in(uuids)

    def next_event(self) -> int | None:
        """µs until the next lease or delay ends, by our idea of the server's clock."""
        first = self._times[:1]
        if not first:
            return None
        return max(0, int(first[0][0] - (boottime() + (self._offset or 0)) * 1e6))

    def exhausted(self) -> list[Node]:
        """Jobs whose last claim has lapsed, or whose records can't be read: they belong into the trash."""
        if not self._lasts and not self._damaged:
            return []
        with self.lock:
            lapsed = [
                uuid
                for uuid in self._lasts
                if uuid in self._overdue or (self._timed[uuid].kind == LAST_KEPT and uuid not in self._claimed)
            ]
            return [self._nodes[uuid] for uuid in [*lapsed, *self._damaged] if uuid in self._nodes]

    # What this process has done itself, or found out

    def posted(self, node: Node, record: Record) -> None:
        with self.lock:
            trashed = self._trashed.pop(node.uuid, None)
            if trashed is not None:
                # It may be trashed again under this very name.
                self._trash.names.discard(trashed.name)
                self._trash_walk = None
            self._noted += 1
            if self._noted > NOTED:
                # Who only posts would remember it all for ever.
                self._dirty = True
                return
            folder = self._jobs[node.rank]
            if node.name not in folder.names:
                folder.names.add(node.name)
                folder.created += 1
            self._learn(node)
            walk = self._walks[node.rank]
            if walk and walk[-1] < node:
                walk.append(node)
            else:
                self._walks[node.rank] = None
        self.changed(node, record)

    def changed(self, node: Node, record: Record | None) -> None:
        """A job is now as in ``record``; None: it is gone from among the live ones."""
        uuid = node.uuid
        with self.lock:
            self._damaged.discard(uuid)
            live = record is not None and record.state in LIVE
            if live and record is not None:
                if record.state == CLAIMED and record.keeper is not None:
                    self._claimed.add(uuid)
                else:
                    self._claimed.discard(uuid)
                timed = timed_of(record)
                if timed != self._timed.get(uuid):
                    old = self._timed.get(uuid)
                    if old is not None:
                        self._timed_folder.names.discard(old.name)
                    self._forget_timed(uuid)
                    if timed is not None:
                        self._note_timed([timed])
                        # So that it is missed when others have deleted it before it was ever listed.
                        self._timed_folder.names.add(timed.name)
                self._aside.discard(uuid)
                self._sort_in([uuid])
            else:
                self._jobs[node.rank].names.discard(node.name)
                if self._nodes.get(uuid, node) != node:
                    return
                self._claimed.discard(uuid)
                self._forget_timed(uuid)
                self._aside.discard(uuid)
                self._forget([node])

    @property
    def strays(self) -> int:
        """How many znodes lie among the jobs that are none."""
        return sum(len(folder.strays) for folder in self._jobs)

    def set_aside(self, node: Node, damaged: bool = False) -> None:
        """Somebody else has this job, for as far as is known; the next list of claims will tell."""
        with self.lock:
            if damaged:
                self._damaged.add(node.uuid)
            self._aside.add(node.uuid)
            self._sort_in([node.uuid])

    def lost_race(self) -> None:
        self.spread = min(64, self.spread * 2)

    def won_race(self) -> None:
        self.spread = max(1, self.spread // 2)

    # Being woken

    def listen(self) -> None:
        """Be told of the bell and of claims that vanish; to be called before the look that finds nothing."""
        if not self._ringing:
            self._ringing = True
            try:
                self._watch(self._connection.watch_data, self._paths.bell, self._rung)
            except BaseException:
                self._ringing = False
                raise
        if not self._hearing:
            self._hearing = True
            try:
                self._watch(self._connection.watch_children, self._paths.claims, self._vanished)
            except BaseException:
                self._hearing = False
                raise

    def _watch(self, watch: Callable[..., None], path: str, call: Callable[[Any], None]) -> None:
        try:
            watch(path, call)
        except JobFailure as error:
            if not isinstance(error.cause, NoNodeError):
                raise
            self._mend()
            watch(path, call)

    def _rung(self, event: Any) -> None:
        self._ringing = False
        self._dirty = True
        self._wake()

    def _vanished(self, event: Any) -> None:
        self._hearing = False
        self._dirty = True
        self._wake()

    def deaf(self) -> None:
        """The connection broke, and the watches with it."""
        self._ringing = self._hearing = False
        self._dirty = True
        self._looked = 0.0
        self._wake()
