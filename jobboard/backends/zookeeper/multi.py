"""The multi of a commit: its operations on znodes, and the changes to them after a refusal.

A record has a *mark*, 16 random digits. The record's value begins with the mark, and its only child has the mark as its
name. A znode that is created again begins with version 0 again, but has another mark. A commit that compares a record
compares both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import ZnodeStat

from jobboard import runtime
from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.folders import folders_above, path_of
from jobboard.backends.zookeeper.requests import MultiRefused, ZnodeOp, check, create, delete, put
from jobboard.exceptions import JobFailure
from jobboard.kv.driver import ALIVE, Node, Op, Refused

_MARK = re.compile(rb"[0-9a-f]{16}")

_KNOWN = 50_000
"""The most folders that a driver remembers to exist."""

COUNTERS = "next/"
"""The beginning of the paths of counters. Their znodes are no records."""


class RecordVersion(NamedTuple):
    """A record's mark, empty where damage has left none, and the version of its znode."""

    mark: str
    number: int


def node_of(found: tuple[bytes, ZnodeStat] | None) -> Node | None:
    """Return the record of a znode that was read."""
    if found is None:
        return None
    data, stat = found
    mark = _MARK.match(data)
    if mark is None:
        return Node(data, RecordVersion("", stat.version))
    return Node(data[mark.end() :], RecordVersion(mark[0].decode(), stat.version))


class Multi:
    """The multi of a commit, built again after each refusal until it fits the znodes.

    :param root: the board's path.
    :param known: the folders that exist as far as the driver knows. The multi corrects them.
    :param failure: returns the failure of a commit that misses a znode that every board has.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        connection: Connection,
        root: str,
        known: set[str],
        failure: Callable[[], JobFailure],
    ) -> None:
        self._connection, self._root, self._known, self._failure = connection, root, known, failure
        self._steps = [_Step(op, f"{root}/{_path(op)}") for op in ops]
        self._children: dict[str, list[str]] = {}
        """By path: the children of records that have others beside their marks."""
        self._there: set[str] = set()
        """The names of this commit that exist, once that is known."""
        self._looked = False
        """True if the driver has looked for names and folders."""

    def build(self) -> list[ZnodeOp]:
        self._made: list[ZnodeOp] = []
        self._owners: list[_Step | None] = []
        """The step of each operation; None: the operation creates a folder."""
        self._folders: dict[str, None] = {}
        for step in self._steps:
            znodes = list(self._znodes(step))
            if step.needs_folder and (above := step.path.rpartition("/")[0]) not in self._known:
                self._make_folders(above)
            self._made += znodes
            self._owners += [step] * len(znodes)
        return self._made

    def _make_folders(self, lowest: str) -> None:
        for folder in folders_above(lowest, self._root):
            if folder not in self._known and folder not in self._folders:
                self._folders[folder] = None
                self._made.append(create(folder))
                self._owners.append(None)

    def _znodes(self, step: _Step) -> Iterator[ZnodeOp]:
        (do, _, value, version), path = step.op, step.path
        if do == "add":
            yield check(path) if path in self._there else create(path)
        elif do == "remove":
            if path in self._there or not self._looked:
                yield delete(path)
        elif do == "ring":
            yield put(path, b"")
        elif do == "lives":
            yield check(path)
        elif do == "create":
            yield create(path, value if step.is_counter else step.mark.encode() + value)
            if not step.is_counter:
                yield create(f"{path}/{step.mark}")
        elif step.is_counter:
            yield put(path, b"", version) if do == "put" else delete(path, version)
        else:
            yield from self._compared(step, version)

    def _compared(self, step: _Step, version: RecordVersion) -> Iterator[ZnodeOp]:
        """Put, delete or check a record that has this version."""
        (do, _, value, _), path, (mark, number) = step.op, step.path, version
        if do == "delete":
            for child in self._children.get(path, [mark] if mark else []):
                yield delete(f"{path}/{child}")
            yield delete(path, number)
            return
        yield put(path, (mark or step.mark).encode() + value, number) if do == "put" else check(path, number)
        if mark:
            yield check(f"{path}/{mark}")
        elif do == "put":
            yield create(f"{path}/{step.mark}")

    def learn(self, refusal: MultiRefused) -> None:
        """Learn from a refusal, so that the next multi fits the znodes.

        :raises Refused: the next multi would be refused as well.
        """
        step, znode, error = self._owners[refusal.index], self._made[refusal.index], refusal.error
        is_absent = isinstance(error, NoNodeError)
        if step is None or step.op.do in ("add", "remove") or (is_absent and isinstance(znode, Create)):
            if is_absent and znode.path.count("/") == self._root.count("/") + 1:
                raise self._failure()
            self._look()
        elif step.op.do == "ring":
            raise self._failure()
        elif isinstance(error, NotEmptyError):
            self._children[znode.path] = self._connection.read([], [znode.path])[1][0] or []
        else:
            raise Refused(step.op.path)

    def _look(self) -> None:
        """Find out which folders and names of this commit exist."""
        folders = {each for step in self._steps if step.needs_folder for each in folders_above(step.folder, self._root)}
        names = [step.path for step in self._steps if step.op.do in ("add", "remove")]
        found, _ = self._connection.read([*folders, *names])
        for folder, each in zip(folders, found, strict=False):
            (self._known.discard if each is None else self._known.add)(folder)
        self._there = {name for name, each in zip(names, found[len(folders) :], strict=True) if each is not None}
        self._looked = True

    def done(self, results: Sequence[Any]) -> tuple[dict[str, RecordVersion], dict[str, int]]:
        """Return the versions of the records and those of the counters that were created or put."""
        if len(self._known) > _KNOWN:
            self._known.clear()
        self._known.update(self._folders)
        records: dict[str, RecordVersion] = {}
        counters: dict[str, int] = {}
        for step, znode, result in zip(self._owners, self._made, results, strict=True):
            if step is None or step.op.do not in ("create", "put") or znode.path != step.path:
                continue
            number = result.version if isinstance(result, ZnodeStat) else 0
            if step.is_counter:
                counters[step.op.path] = number
            else:
                records[step.op.path] = RecordVersion(znode.data[:16].decode(), number)
        return records, counters


class _Step:
    """An operation of the commit, and the path of its znode."""

    def __init__(self, op: Op, path: str) -> None:
        self.op, self.path = op, path
        self.is_counter = op.path.startswith(COUNTERS)
        self.needs_folder = op.do == "add" or (op.do == "create" and not self.is_counter)
        self.mark = runtime.urandom(8).hex() if op.do in ("create", "put") else ""

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


def _path(op: Op) -> str:
    if op.do == "ring":
        return f"bell/{op.path}"
    if op.do == "lives":
        return f"{ALIVE}/{op.path}"
    return op.path if op.path.startswith(COUNTERS) else path_of(op.path)
