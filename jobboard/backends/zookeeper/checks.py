"""What lies on a board that the board has not left there, or not so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from jobboard.backends.zookeeper.paths import TREES, UNKNOWN, Entry, entry_of, folder_of, plain, quoted
from jobboard.backends.zookeeper.records import Head, unpack_side
from jobboard.backends.zookeeper.requests import children, exists, get
from jobboard.engine import LISTED, Done
from jobboard.engine.calls import held_key
from jobboard.exceptions import ConnectionFailure, JobFailure

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore


class Odd(NamedTuple):
    """Where something is odd, and what that is and what to do. ``seen``: the change of the server's that has written
    last what this rests on, a job as a rule; None where nothing is stored of it."""

    place: str
    what: str
    seen: int | None = None


_STRAY = "nothing of a board's has such a name, or belongs here: delete it"

_FULL = "something lies in it, so that this job can't leave: delete that"

_AT_ONCE = 200

_ROOT = {"layout", "bell", "clock", "gate", "jobs", "tail", *TREES.values(), "timed", "trash", "alive", "kept"} | {
    *("slots", "done", "over", "sides", "listeners", "events")
}


def oddities(store: ZooKeeperStore) -> list[Odd]:
    """It reads the whole board, and writes nothing.

    A board is read in many requests, and while others work on it they don't go together: a job that moves is met where
    it was, or nowhere. So it is read twice, and odd is what was so both times and nobody has written in between: what
    has been read of it the first time did go together."""
    first = list(_Inspection(store).all())
    if not first:
        return []
    again = set(_Inspection(store).all())
    return [each for each in first if each in again]


def boards(store: ZooKeeperStore, name: str, most: int) -> list[str]:
    """What lies beside this board may belong to something else: a board has a layout."""
    folder, mine = store.paths.folder, quoted(name)
    try:
        [listed] = store.connection.read([children(folder)])
        likely = sorted(listed[0] if listed is not None else (), key=lambda name: (name != mine, name))[:most]
        layouts = store.connection.read([exists(f"{folder}/{name}/layout") for name in likely])
    except ConnectionFailure:
        raise
    except JobFailure:
        return []  # an account that may not list them
    return [unquote(name) for name, layout in zip(likely, layouts, strict=True) if layout is not None]


class _Inspection:
    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        self._paths = store.paths
        self._keys: dict[str, str] = {}
        self._expected: dict[str, str] = {}
        self._unnumbered: dict[str, str] = {}
        self._damaged: set[str] = set()
        self._seen: dict[str, int] = {}
        self._bodies: set[str] = set()

    def all(self) -> Iterator[Odd]:
        yield from (Odd(self._paths.at(name), _STRAY) for name in self._names("") if name not in _ROOT)
        for bucket in self._names("jobs"):
            names = self._names(f"jobs/{bucket}")
            if len(bucket) != 2:
                yield Odd(self._paths.at(f"jobs/{bucket}"), _STRAY)
            yield from self._jobs(f"jobs/{bucket}", names)
        lying: set[str] = set()
        for tree in (*TREES.values(), "timed", "trash"):
            lying.update(self._below(tree, 4))
        lying.update(self._below("kept", 2))
        for path in sorted(lying):
            folder, _, name = path.rpartition("/")
            if self._expected.pop(path, None) is None and not name.startswith("-."):
                uuid = next((part for part in name.split(".") if len(part) == 36), "")
                if self._unnumbered.get(uuid) == folder and _is_entry(name):
                    del self._unnumbered[uuid]
                elif uuid not in self._damaged:
                    yield Odd(self._paths.at(path), _STRAY, self._seen.get(uuid))
        for uuid in (*self._expected.values(), *self._unnumbered):
            what = f"job {uuid} is not listed where it belongs: release, cancel or purge it"
            yield Odd(self._paths.job(uuid), what, self._seen[uuid])
        yield from self._sides()

    def _names(self, folder: str) -> list[str]:
        [found] = self._store.connection.read([children(self._paths.at(folder).rstrip("/"))])
        return [] if found is None else sorted(found[0])

    def _below(self, folder: str, depth: int) -> Iterator[str]:
        for name in self._names(folder):
            if depth == 1:
                yield f"{folder}/{name}"
            elif name.isdigit() or (depth == 2 and name.isalnum() and folder.startswith(("timed", "trash", "kept"))):
                yield from self._below(f"{folder}/{name}", depth - 1)
            else:
                yield f"{folder}/{name}"

    def _jobs(self, folder: str, names: list[str]) -> Iterator[Odd]:
        bodies = [name for name in names if "~" in name]
        jobs = [name for name in names if "~" not in name]
        for start in range(0, len(jobs), _AT_ONCE):
            chunk = jobs[start : start + _AT_ONCE]
            data = self._store.connection.read([get(self._paths.at(f"{folder}/{name}")) for name in chunk])
            for name, each in zip(chunk, data, strict=True):
                if each is not None:
                    yield from self._job(f"{folder}/{name}", name, each)
        yield from (Odd(self._paths.at(f"{folder}/{name}"), _STRAY) for name in bodies if name not in self._bodies)

    def _job(self, path: str, name: str, data: tuple[bytes, Any]) -> Iterator[Odd]:
        stat = data[1]
        if not plain(name) or self._paths.job(name) != self._paths.at(path):
            yield Odd(self._paths.at(path), _STRAY)
            return
        self._seen[name] = stat.mzxid
        if stat.numChildren:
            yield Odd(self._paths.at(path), _FULL)
        try:
            head = Head.unpack(name, data[0], 0)
            if not head.tag.body:
                head.whole(head.content)
        except ValueError as error:
            yield Odd(self._paths.at(path), f"{error}; the next claim that meets it moves it to the trash, or purge it")
            # What goes with it is not known.
            self._damaged.add(name)
            return
        record, tag = head.record, head.tag
        if tag.body:
            self._bodies.add(f"{name}~{tag.body}")
        if tag.listed:
            self._expected[tag.listed] = name
        if tag.n == UNKNOWN:
            self._unnumbered[name] = folder_of(record.state, record.priority, tag.folder)
        elif entry := entry_of(record, tag.folder, tag.n):
            self._expected[entry] = name
        if (key := held_key(record)) is not None:
            self._keys[key] = name

    def _sides(self) -> Iterator[Odd]:
        for kind in self._names("sides"):
            for one in self._names(f"sides/{kind}"):
                if kind in LISTED:
                    yield from self._side(kind, f"sides/{kind}/{one}", one)
                    continue
                for name in self._names(f"sides/{kind}/{one}"):
                    yield from self._side(kind, f"sides/{kind}/{one}/{name}", name)
        for key, uuid in self._keys.items():
            what = f"the key of job {uuid} is not held: another job can be posted with {key!r}"
            yield Odd(self._paths.job(uuid), what, self._seen[uuid])

    def _side(self, kind: str, path: str, name: str) -> Iterator[Odd]:
        [data] = self._store.connection.read([get(self._paths.at(path))])
        if data is None:
            return
        try:
            side = unpack_side(kind, name, data[0], 0)
        except ValueError as error:
            yield Odd(self._paths.at(path), f"{error}: delete it")
            return
        if kind == "outcome" and Done.of(side._replace(key=unquote(name))) is None:
            yield Odd(self._paths.at(path), "this outcome can't be read: delete it, and what lies under it")
        if kind == "key":
            uuid = self._keys.get(unquote(name), "")
            if uuid.encode() == side.value:
                del self._keys[unquote(name)]
            elif side.until is None:
                yield Odd(self._paths.at(path), "no job holds this key: delete it", data[1].mzxid)


def _is_entry(name: str) -> bool:
    try:
        Entry.parse(name)
    except ValueError:
        return False
    return True
