"""TaskFlow's board on ZooKeeper: postings as JSON in znodes of one folder, each with its lock beside it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    Leaving,
    OriginStore,
    StoredPosting,
    decoded_json,
    given,
    options,
    owner_in,
    refused,
)
from jobboard.exceptions import ConnectionFailure
from jobboard.states import OK, Status

_Theirs = impl_zookeeper.ZookeeperJobBoard
_JOB = re.compile(f"{_Theirs.JOB_PREFIX}(\\d+)")
_AT_ONCE = 200
"""So many requests are under way together."""
_RECONNECT = {"max_tries": -1, "max_delay": 1.0}
"""Calls are repeated for some seconds; kazoo's own pauses grow longer than that."""
_UNREACHABLE = (
    KazooTimeoutError,
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.OperationTimeoutError,
)


class ZooKeeperSource(OriginStore):
    options: ClassVar[Mapping[str, Option]] = options(
        **{name: parse or text for name, parse, _ in kazoo_utils.CONF_TRANSFERS},
        hosts=text,
        port=text,
        path=text,
        timeout=float,
    )
    parts: ClassVar[Mapping[str, str]] = {"host": "hosts", "port": "port", "path": "path"}

    def __init__(self, settings: Settings) -> None:
        conf = given(settings)
        if "port" in conf:
            conf["hosts"] = f"{conf.get('hosts', 'localhost')}:{conf.pop('port')}"
        if "path" in conf:
            conf["path"] = "/" + conf["path"].strip("/")
        self._conf = conf
        self._client = kazoo_utils.make_client({**conf, "connection_retry": _RECONNECT})
        # Not connected: it tells the paths.
        self._board = _Theirs("source", conf, client=self._client)
        self._notes = join(self._board.path, NOTES)

    @property
    def name(self) -> str:
        return str(self._board.path)

    def open(self, limit: float) -> None:
        with _told():
            self._client.start(timeout=limit)

    def close(self) -> None:
        kazoo_utils.finalize_client(self._client)

    def exists(self) -> bool:
        with _told():
            return self._client.exists(self._board.path) is not None

    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        with _told():
            if places is not None:
                return self._read(places, [place + _Theirs.LOCK_POSTFIX for place in places])
            self._client.sync(self._board.path)
            children = set(self._children(self._board.path))
            jobs = [name for name in children if _JOB.fullmatch(name)]
            locks = [lock for name in jobs if (lock := name + _Theirs.LOCK_POSTFIX) in children]
            return self._read(*([join(self._board.path, name) for name in names] for names in (jobs, locks)))

    def trash(self) -> list[StoredPosting]:
        with _told():
            folder = self._board.trash_path
            return self._read([join(folder, name) for name in self._children(folder) if _JOB.fullmatch(name)], [])

    def _read(self, places: Sequence[str], locks: Sequence[str]) -> list[StoredPosting]:
        owners = {lock: owner_in(raw) for lock, (raw, _) in self._get(locks).items()}
        return [
            StoredPosting(place, raw, owners.get(place + _Theirs.LOCK_POSTFIX), stat.ctime * 1000)
            for place, (raw, stat) in self._get(places).items()
        ]

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        with _told():
            self._client.ensure_path(self._notes)
            return [_status(result) for result in self._all(self._depart, leaving)]

    def _depart(self, each: Leaving) -> Any:
        lock = each.place + _Theirs.LOCK_POSTFIX
        transaction = self._client.transaction()
        # That there is no lock can only be checked by making one.
        transaction.create(lock)
        transaction.delete(lock)
        transaction.delete(each.place)
        transaction.create(join(self._notes, each.uuid), each.note)
        return transaction.commit_async()

    def remove_trash(self, places: Sequence[str]) -> list[Status]:
        with _told():
            return self._delete(places)

    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        with _told():
            names = self._children(self._notes) if uuids is None else uuids
            found = self._get([join(self._notes, name) for name in names])
            return {path.rpartition("/")[2]: raw for path, (raw, _) in found.items()}

    def write_note(self, uuid: str, note: bytes) -> None:
        path = join(self._notes, uuid)
        with _told():
            try:
                self._client.set(path, note)
            except NoNodeError:
                with contextlib.suppress(NodeExistsError):
                    self._client.create(path, note, makepath=True)

    def remove_notes(self, uuids: Sequence[str]) -> None:
        with _told():
            self._delete([join(self._notes, uuid) for uuid in uuids])

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        name = kept.place.rpartition("/")[2]
        return {**decoded_json(kept.raw), "sequence": name[len(_Theirs.JOB_PREFIX) :]}

    def _children(self, path: str) -> list[str]:
        try:
            children: list[str] = self._client.get_children(path)
        except NoNodeError:
            return []
        return children

    def _get(self, paths: Sequence[str]) -> dict[str, tuple[bytes, Any]]:
        """What is stored at these paths, without those that are not there."""
        found = {}
        for path, result in zip(paths, self._all(self._client.get_async, paths), strict=True):
            if isinstance(result, NoNodeError):
                continue
            if isinstance(result, Exception):
                raise result
            found[path] = result
        return found

    def _delete(self, paths: Sequence[str]) -> list[Status]:
        statuses = []
        for result in self._all(self._client.delete_async, paths):
            if isinstance(result, Exception) and not isinstance(result, NoNodeError):
                raise result
            statuses.append(Status.ABSENT if isinstance(result, NoNodeError) else OK)
        return statuses

    def _all(self, request: Callable[[Any], Any], of: Iterable[Any]) -> list[Any]:
        """The results of many requests, or what they have failed with."""
        results: list[Any] = []
        waiting: list[Any] = list(of)
        for start in range(0, len(waiting), _AT_ONCE):
            under_way = [request(each) for each in waiting[start : start + _AT_ONCE]]
            for each in under_way:
                try:
                    results.append(each.get())
                except exceptions.KazooException as error:
                    results.append(error)
        return results


_ROLLED_BACK = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


def _status(result: Any) -> Status:
    """What has become of a departure."""
    if isinstance(result, Exception):
        raise result
    locked, _, deleted, _ = result
    faults = [fault for fault in result if isinstance(fault, Exception)]
    if not faults:
        return OK
    if isinstance(locked, NodeExistsError):
        return Status.CLAIMED
    if isinstance(deleted, NoNodeError):
        return Status.ABSENT
    raise next(fault for fault in faults if not isinstance(fault, _ROLLED_BACK))


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except _UNREACHABLE as error:
        why = str(error) or type(error).__name__
        raise ConnectionFailure(f"TaskFlow's ZooKeeper can't be reached: {why}", error, outcome="unknown") from error
    except exceptions.KazooException as error:
        raise refused(error) from error
