"""What lies on a board that the board has not left there, or not so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgpack

from jobboard.backends.zookeeper.paths import RANKS, Node, Timed, Trashed, timed_of
from jobboard.backends.zookeeper.records import decode, entity_of, token_of, unpack
from jobboard.backends.zookeeper.store import READ_AT_ONCE, Store
from jobboard.backends.zookeeper.wire import Data, children, get
from jobboard.states import CLAIMED, Record

Odd = tuple[str, str]
"""Where something is odd, and what that is and what to do."""

_STRAY = "nothing of a board's has such a name: delete it"

_FULL = "something lies in it, so that this job can't leave: delete that"


def oddities(store: Store) -> list[Odd]:
    """What is odd, as (path, what and what to do). It reads the whole board, and writes nothing."""
    first = list(_Look(store).all())
    if not first:
        return []
    # A board is read in many requests, and while others work on it they don't go together. What is odd, stays so.
    again = set(_Look(store).all())
    return [each for each in first if each in again]


class _Look:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._paths = store.paths
        self._live: dict[str, tuple[str, Record | None]] = {}

    def all(self) -> Iterator[Odd]:
        yield from self._layout()
        for rank in RANKS:
            yield from self._jobs(rank)
        times, keys = self._names(self._paths.timed), self._contents(self._paths.keys)
        yield from self._claims()
        yield from self._times(times)
        yield from self._keys(keys)
        yield from self._trash()
        yield from self._asides()
        for path, record in self._live.values():
            if record is None:
                continue
            timed = timed_of(record)
            if timed is not None and timed.name not in times:
                yield path, f"when job {record.uuid} is due or free again is not listed: release or cancel it"
            if record.key is not None and not any(each == self._paths.key(record.key) for each, _ in keys):
                yield path, f"the key of job {record.uuid} is not held: another job can be posted with it"

    def _names(self, folder: str) -> list[str]:
        [names] = self._store.connection.read([children(folder)])
        return names or []

    def _contents(self, folder: str) -> list[tuple[str, Data]]:
        return list(self._read([f"{folder}/{name}" for name in self._names(folder)]))

    def _read(self, paths: Sequence[str]) -> Iterator[tuple[str, Data]]:
        for start in range(0, len(paths), READ_AT_ONCE):
            chunk = paths[start : start + READ_AT_ONCE]
            for path, data in zip(chunk, self._store.connection.read([get(path) for path in chunk]), strict=True):
                if data is not None:
                    yield path, data

    def _layout(self) -> Iterator[Odd]:
        own = [path for path in self._paths.everything() if path.startswith(self._paths.root)]
        there = dict(self._read(own))
        for path in own:
            if path not in there:
                yield path, "it is missing: make an empty znode there"
        known = {path.removeprefix(self._paths.root + "/").partition("/")[0] for path in own}
        for name in self._names(self._paths.root):
            if name not in known:
                yield f"{self._paths.root}/{name}", _STRAY
        for name in self._names(self._paths.arrivals):
            if f"{self._paths.arrivals}/{name}" not in self._paths.jobs:
                yield f"{self._paths.arrivals}/{name}", _STRAY

    def _jobs(self, rank: int) -> Iterator[Odd]:
        for path, data in self._contents(self._paths.jobs[rank]):
            try:
                node = Node.parse(path.rpartition("/")[2], rank)
            except ValueError:
                yield path, _STRAY
                continue
            if node.uuid in self._live:
                yield path, f"job {node.uuid} is also at {self._live[node.uuid][0]}: delete one of the two"
                continue
            self._live[node.uuid] = path, None
            if data.stat.numChildren:
                yield path, _FULL
            try:
                unpack(data.data)
            except ValueError as error:
                yield path, f"{error}; the claim that meets it moves it to the trash"
            else:
                self._live[node.uuid] = path, decode(node, data)

    def _claims(self) -> Iterator[Odd]:
        for path, data in self._contents(self._paths.claims):
            uuid = path.rpartition("/")[2]
            _, record = self._live.get(uuid, (None, None))
            if uuid not in self._live:
                yield path, "no such job is on the board: delete it"
            elif token_of(data) is None:
                yield path, "it does not say whose claim it is: release the job"
            elif record is not None and (record.state != CLAIMED or record.keeper is None):
                yield path, "nobody keeps a claim of this job, which is not served because of it: delete it"

    def _times(self, names: Sequence[str]) -> Iterator[Odd]:
        for name in names:
            path = f"{self._paths.timed}/{name}"
            try:
                timed = Timed.parse(name)
            except ValueError:
                yield path, _STRAY
                continue
            _, record = self._live.get(timed.uuid, (None, None))
            if timed.uuid not in self._live:
                yield path, "no such job is on the board: delete it"
            elif record is not None and timed_of(record) != timed:
                yield path, "its job says otherwise: delete it"

    def _keys(self, contents: Sequence[tuple[str, Data]]) -> Iterator[Odd]:
        for path, data in contents:
            _, record = self._live.get(data.data.decode(errors="replace"), (None, None))
            if record is None or record.key is None or self._paths.key(record.key) != path:
                yield path, "the job that it names is not on the board, or has another key: delete it"

    def _trash(self) -> Iterator[Odd]:
        for path, data in self._contents(self._paths.trash):
            try:
                Trashed.parse(path.rpartition("/")[2])
            except ValueError:
                yield path, _STRAY
                continue
            if data.stat.numChildren:
                yield path, _FULL
            try:
                unpack(data.data)
            except ValueError as error:
                yield path, f"{error}; purge it"

    def _asides(self) -> Iterator[Odd]:
        for path, data in self._contents(self._paths.answers):
            try:
                if data.data:
                    msgpack.unpackb(data.data)
            except (ValueError, TypeError, msgpack.UnpackException):
                yield path, "it is no answer: delete it"
        for path, data in self._contents(self._paths.entities):
            try:
                entity_of(data.data)
            except ValueError:
                yield path, "it tells of no entity: delete it"
        for name in self._names(self._paths.purged):
            if len(name) != 36:
                yield f"{self._paths.purged}/{name}", _STRAY
