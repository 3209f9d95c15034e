"""TaskFlow's board on ZooKeeper: postings as JSON in znodes of one folder, each with its lock beside it."""

from __future__ import annotations

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
from jobboard.contrib.taskflow.source.store import (
    NOTES,
    Folder,
    Leaving,
    OriginStore,
    StoredPosting,
    given,
    options,
    owner_in,
)
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
        board = _Theirs("source", conf, client=self._client)
        self.name = board.path
        self._folders = {
            Folder.JOBS: board.path,
            Folder.TRASH: board.trash_path,
            Folder.NOTES: join(board.path, NOTES),
        }

    def open(self, limit: float) -> None:
        self._client.start(timeout=limit)

    def close(self) -> None:
        kazoo_utils.finalize_client(self._client)

    def exists(self) -> bool:
        return self._client.exists(self.name) is not None

    def read(self, folder: Folder, places: Sequence[str] | None = None) -> list[StoredPosting]:
        if places is None:
            self._client.sync(self.name)
            try:
                names = self._client.get_children(self._folders[folder])
            except NoNodeError:
                return []
            places = [name for name in names if folder is Folder.NOTES or _JOB.fullmatch(name)]
        found = self._get(folder, places)
        # After the postings, so that a job is not taken for unclaimed that was claimed while they were read.
        locks = self._get(folder, [place + _Theirs.LOCK_POSTFIX for place in found]) if folder is Folder.JOBS else {}
        return [
            StoredPosting(place, raw, owner_in(locks.get(place + _Theirs.LOCK_POSTFIX, (None,))[0]), stat.ctime * 1000)
            for place, (raw, stat) in found.items()
        ]

    def remove(self, folder: Folder, places: Sequence[str]) -> list[Status]:
        results = self._all(self._client.delete_async, self._paths(folder, places), NoNodeError)
        return [Status.ABSENT if isinstance(result, NoNodeError) else OK for result in results]

    def write_note(self, uuid: str, note: bytes) -> None:
        [path] = self._paths(Folder.NOTES, [uuid])
        self._client.ensure_path(path)
        self._client.set(path, note)

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        self._client.ensure_path(self._folders[Folder.NOTES])
        return [_status(result) for result in self._all(self._departure, leaving)]

    def _departure(self, each: Leaving) -> Any:
        [place, lock] = self._paths(Folder.JOBS, [each.place, each.place + _Theirs.LOCK_POSTFIX])
        transaction = self._client.transaction()
        # Only by making a lock can a transaction check that there is none.
        transaction.create(lock)
        transaction.delete(lock)
        transaction.delete(place)
        transaction.create(*self._paths(Folder.NOTES, [each.uuid]), each.note)
        return transaction.commit_async()

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        return {**super().decode(kept), "sequence": kept.place[len(_Theirs.JOB_PREFIX) :]}

    def _paths(self, folder: Folder, places: Iterable[str]) -> list[str]:
        return [join(self._folders[folder], place) for place in places]

    def _get(self, folder: Folder, places: Sequence[str]) -> dict[str, tuple[bytes, Any]]:
        """Return the content of the znodes that exist."""
        results = self._all(self._client.get_async, self._paths(folder, places), NoNodeError)
        return {
            place: result for place, result in zip(places, results, strict=True) if not isinstance(result, NoNodeError)
        }

    def _all(self, request: Callable[[Any], Any], of: Sequence[Any], expected: Any = ()) -> list[Any]:
        """Send many requests. Return the result of each, or its error if that was expected."""
        results: list[Any] = []
        for start in range(0, len(of), _AT_ONCE):
            for each in [request(each) for each in of[start : start + _AT_ONCE]]:
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
