"""TaskFlow's board on ZooKeeper: postings as JSON in znodes of one folder, each with its lock beside it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kazoo import exceptions
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.paths import join
from taskflow.jobs.backends import impl_zookeeper
from taskflow.utils import kazoo_utils

from jobboard.conf import Option, Settings, text
from jobboard.contrib.taskflow.source.store import NOTES, Leaving, OriginStore, StoredPosting, given, options, owner_in
from jobboard.states import OK, Status

_Theirs = impl_zookeeper.ZookeeperJobBoard
_JOB = re.compile(f"{_Theirs.JOB_PREFIX}(\\d+)")
_AT_ONCE = 200
"""The most requests that are under way together."""
_RECONNECT = {"max_tries": -1, "max_delay": 1.0}
"""Calls are repeated for some seconds; kazoo's own pauses grow longer than that."""


class ZooKeeperSource(OriginStore):
    server = "ZooKeeper"
    options: ClassVar[Mapping[str, Option]] = options(
        **{name: parse or text for name, parse, _ in kazoo_utils.CONF_TRANSFERS},
        hosts=text,
        port=text,
        path=text,
        timeout=float,
    )
    parts: ClassVar[Mapping[str, str]] = {"host": "hosts", "port": "port", "path": "path"}
    unreachable = (
        KazooTimeoutError,
        exceptions.ConnectionLoss,
        exceptions.ConnectionClosedError,
        exceptions.SessionExpiredError,
        exceptions.OperationTimeoutError,
    )
    failures = (exceptions.KazooException,)

    def __init__(self, settings: Settings) -> None:
        conf = given(settings)
        if "port" in conf:
            conf["hosts"] = f"{conf.get('hosts', 'localhost')}:{conf.pop('port')}"
        if "path" in conf:
            conf["path"] = "/" + conf["path"].strip("/")
        self._client = kazoo_utils.make_client({**conf, "connection_retry": _RECONNECT})
        # Not connected: it gives the paths.
        self._board = _Theirs("source", conf, client=self._client)
        self._notes = join(self._board.path, NOTES)

    @property
    def name(self) -> str:
        return str(self._board.path)

    def open(self, limit: float) -> None:
        self._client.start(timeout=limit)

    def close(self) -> None:
        kazoo_utils.finalize_client(self._client)

    def exists(self) -> bool:
        return self._client.exists(self._board.path) is not None

    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        if places is None:
            self._client.sync(self._board.path)
            places = self._jobs_in(self._board.path)
        found = self._get(places)
        # After the postings, so that a job is not taken for unclaimed that was claimed while they were read.
        locks = self._get([place + _Theirs.LOCK_POSTFIX for place in found])
        owners = {lock.removesuffix(_Theirs.LOCK_POSTFIX): owner_in(raw) for lock, (raw, _) in locks.items()}
        return [StoredPosting(at, raw, owners.get(at), stat.ctime * 1000) for at, (raw, stat) in found.items()]

    def trash(self) -> list[StoredPosting]:
        found = self._get(self._jobs_in(self._board.trash_path))
        return [StoredPosting(place, raw, None, stat.ctime * 1000) for place, (raw, stat) in found.items()]

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        self._client.ensure_path(self._notes)
        return [_status(result) for result in self._all(self._departure, leaving)]

    def _departure(self, each: Leaving) -> Any:
        lock = each.place + _Theirs.LOCK_POSTFIX
        transaction = self._client.transaction()
        # Only by making a lock can a transaction check that there is none.
        transaction.create(lock)
        transaction.delete(lock)
        transaction.delete(each.place)
        transaction.create(join(self._notes, each.uuid), each.note)
        return transaction.commit_async()

    def remove_trash(self, places: Sequence[str]) -> list[Status]:
        return [Status.ABSENT if isinstance(result, NoNodeError) else OK for result in self._delete(places)]

    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        names = self._children(self._notes) if uuids is None else uuids
        found = self._get([join(self._notes, name) for name in names])
        return {path.rpartition("/")[2]: raw for path, (raw, _) in found.items()}

    def write_note(self, uuid: str, note: bytes) -> None:
        path = join(self._notes, uuid)
        try:
            self._client.set(path, note)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                self._client.create(path, note, makepath=True)

    def remove_notes(self, uuids: Sequence[str]) -> None:
        self._delete([join(self._notes, uuid) for uuid in uuids])

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        name = kept.place.rpartition("/")[2]
        return {**super().decode(kept), "sequence": name[len(_Theirs.JOB_PREFIX) :]}

    def _jobs_in(self, folder: str) -> list[str]:
        return [join(folder, name) for name in self._children(folder) if _JOB.fullmatch(name)]

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._client.get_children(path))
        except NoNodeError:
            return []

    def _get(self, paths: Sequence[str]) -> dict[str, tuple[bytes, Any]]:
        """Return the content of the znodes that exist."""
        results = zip(paths, self._all(self._client.get_async, paths, NoNodeError), strict=True)
        return {path: result for path, result in results if not isinstance(result, NoNodeError)}

    def _delete(self, paths: Sequence[str]) -> list[Any]:
        return self._all(self._client.delete_async, paths, NoNodeError)

    def _all(self, request: Callable[[Any], Any], of: Iterable[Any], expected: Any = ()) -> list[Any]:
        """Send many requests. Return the result of each, or its error if that was expected."""
        results: list[Any] = []
        waiting: list[Any] = list(of)
        for start in range(0, len(waiting), _AT_ONCE):
            under_way = [request(each) for each in waiting[start : start + _AT_ONCE]]
            for each in under_way:
                try:
                    results.append(each.get())
                except expected as error:
                    results.append(error)
        return results


_ROLLED_BACK = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


def _status(result: Sequence[Any]) -> Status:
    """Return the outcome of a departure."""
    locked, _, deleted, _ = result
    faults = [fault for fault in result if isinstance(fault, Exception)]
    if not faults:
        return OK
    if isinstance(locked, NodeExistsError):
        return Status.CLAIMED
    if isinstance(deleted, NoNodeError):
        return Status.ABSENT
    raise next(fault for fault in faults if not isinstance(fault, _ROLLED_BACK))
