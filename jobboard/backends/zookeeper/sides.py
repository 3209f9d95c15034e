"""Side records: what is read of them, and what is dropped when its time is over."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from jobboard.backends.zookeeper.records import SideTag, unpack_side
from jobboard.backends.zookeeper.requests import Refused, children, delete, exists, get, put
from jobboard.engine import LAPSING, LISTED, Done, Found, Side, damaged_value, turns

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore
    from jobboard.backends.zookeeper.walking import TimedPlace

LOG = logging.getLogger(__name__)

PAUSE = 600
"""How long nobody tidies up again after somebody has, in seconds."""

_DROPPED = 50
"""How many outcomes are dropped in one step of a tidying."""

_TIDIED = 2000
"""How many side records are looked at to find those that are over."""


class ScheduleWatch:
    """Has the server tell of the next schedule that is set or removed.

    :param news: told then, or when that may have been missed.
    """

    def __init__(self, store: ZooKeeperStore, news: Callable[[], None]) -> None:
        self._store = store
        self._news = news
        self._hears = False

    def hear(self) -> bool:
        if not self._hears:
            # First, as it may ring at once.
            self._hears = True
            try:
                self._store.connection.read([exists(self._store.paths.schedules, self.rung)])
            except BaseException:
                self._hears = False
                raise
        return self._hears

    def rung(self, event: Any = None) -> None:
        self._hears = False
        self._news()


class Sides:
    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store

    def of(self, asked: Sequence[tuple[str, str]], found: Sequence[Any]) -> list[Side]:
        sides = []
        for (kind, key), data in zip(asked, found, strict=True):
            side = Side(kind, key, None, None, None)
            if kind == "gate" and data is not None and not data[0]:
                side = side._replace(tag=SideTag(data[1].version, ""))
            elif data is not None:
                try:
                    side = unpack_side(kind, key, data[0], data[1].version)
                except ValueError as error:
                    LOG.warning("%s is set aside: %s", self._store.paths.side(kind, key), error)
                    side = side._replace(value=damaged_value(kind), tag=SideTag(data[1].version, ""))
            sides.append(side)
        return sides

    def listed(self, kind: str) -> list[Side]:
        folder = f"{self._store.paths.sides}/{kind}"
        [listed] = self._store.connection.read([children(folder)], fresh=self._store.paths.root)
        names = [] if listed is None else sorted(listed[0])
        data = self._store.connection.read([get(f"{folder}/{name}") for name in names])
        sides = self.of([(kind, unquote(name)) for name in names], data)
        return [side for side in sides if side.value is not None]

    def walk(self, kind: str, left: list[str] | None) -> tuple[Found, list[str] | None]:
        """Of one of the folders that are left, None: of all; and which are left then."""
        folder = f"{self._store.paths.sides}/{kind}"
        if left is None:
            left = self._names(folder)
        if not left:
            return Found(self._store.judged([]), [], []), None
        path = f"{folder}/{left[0]}"
        names = self._names(path)
        data = self._store.connection.read([get(f"{path}/{name}") for name in names])
        sides = self.of([(kind, unquote(name)) for name in names], data)
        told = [side for side in sides if side.value is not None and (kind != "key" or side.until is not None)]
        return Found(self._store.judged([]), [], told), left[1:] or None

    def newest(self, kind: str, after: Side | None, limit: int) -> list[Side]:
        """One that can't be read, or was written anew since, is passed over."""
        ended = None if after is None else Done.of(after)
        last = None if ended is None else (ended.record.modified_on, ended.record.sequence)
        sides: list[Side] = []
        for entries in self._store.walker.minutes("done", last):
            for start in range(0, len(entries), limit):
                some = {entry.uuid: entry.when for entry in entries[start : start + limit]}
                for side in self._store.read([], [(kind, uuid) for uuid in some]).sides:
                    done = Done.of(side)
                    if done is not None and done.record.modified_on == some[side.key]:
                        sides.append(side)
                if len(sides) >= limit:
                    return sides[:limit]
        return sides

    def drop_outcomes(self, seconds: float) -> bool:
        """What has ended, some at a time; whether there may be more."""
        minutes = self._store.walker.minutes("over", (self._store.now(), 0))
        steps = (entries[at : at + _DROPPED] for entries in minutes for at in range(0, len(entries), _DROPPED))
        for _ in turns(seconds):
            some = next(steps, None)
            if some is None:
                return False
            self._drop(some)
        return True

    def _drop(self, entries: Sequence[TimedPlace]) -> None:
        store = self._store
        data = store.connection.read([get(store.paths.at(entry.path)) for entry in entries])
        sides = store.read([], [("outcome", entry.uuid) for entry in entries]).sides
        gone = []
        for entry, each, side in zip(entries, data, sides, strict=True):
            paths = [entry.path, *([each[0].decode()] if each is not None and each[0] else [])]
            ops = [delete(store.paths.at(path)) for path in paths]
            # Unless it was written anew since, and lives longer.
            if isinstance(side.tag, SideTag) and side.until == entry.when:
                path = store.paths.side("outcome", entry.uuid)
                ops += [delete(f"{path}/{side.tag.mark}"), delete(path, side.tag.version)]
            gone.append(ops)
        try:
            store.connection.commit([op for ops in gone for op in ops])
        except Refused:
            # Another drops some of them as well, or has written one anew.
            for ops in gone:
                try:
                    store.connection.commit(ops)
                except Refused:
                    store.connection.try_later(ops)

    def tidy(self) -> None:
        """At most every ten minutes, of all who have opened the board, and at a bounded cost: some folders of side
        records, picked at random."""
        [stat] = self._store.connection.read([exists(self._store.paths.sides)])
        now = self._store.now()
        if stat is None or (stat.version and stat.mtime * 1000 > now - PAUSE * 1_000_000):
            return
        with contextlib.suppress(Refused):
            self._store.connection.commit([put(self._store.paths.sides, b"", stat.version)])
            left = _TIDIED
            for kind in LAPSING:
                folders = [f"{self._store.paths.sides}/{kind}"]
                if kind not in LISTED:
                    names = self._names(folders[0])
                    folders = [f"{folders[0]}/{name}" for name in random.sample(names, len(names))]
                for folder in folders:
                    if left <= 0:
                        break
                    left -= self._tidy_folder(kind, folder, now)

    def _names(self, path: str) -> list[str]:
        [found] = self._store.connection.read([children(path)])
        return [] if found is None else list(found[0])

    def _tidy_folder(self, kind: str, folder: str, now: int) -> int:
        names = self._names(folder)
        names = random.sample(names, min(len(names), _TIDIED // 4))
        data = self._store.connection.read([get(f"{folder}/{name}") for name in names])
        for name, each in zip(names, data, strict=True):
            with contextlib.suppress(ValueError, Refused):
                side = unpack_side(kind, unquote(name), each[0], each[1].version) if each is not None else None
                if side is not None and side.until is not None and side.until <= now:
                    assert isinstance(side.tag, SideTag)
                    path = f"{folder}/{name}"
                    below = [delete(f"{path}/{side.tag.mark}")] if side.tag.mark else []
                    self._store.connection.commit([*below, delete(path, side.tag.version)])
        return len(names)
