"""TaskFlow's board on etcd: postings as JSON under keys of one prefix, each with its lock beside it.

TaskFlow's own board is not even connected here: it would listen for postings, and delete those that it can't decode.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import etcd3gw
import requests
from taskflow.jobs.backends import impl_etcd

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

_Theirs = impl_etcd.EtcdJobBoard
_TOGETHER = 100
"""The most requests of one transaction, of the 128 that etcd takes by default; one may hold a few of its own."""
_JOB = re.compile(rf"{_Theirs.JOB_PREFIX}\d+")


class EtcdSource(OriginStore):
    server = "etcd"
    options: ClassVar[Mapping[str, Option]] = options(**dict(_Theirs.ETCD_CONFIG_OPTIONS), path=text, ttl=float)
    parts: ClassVar[Mapping[str, str]] = {"host": "host", "port": "port", "path": "path"}
    unreachable = (etcd3gw.exceptions.ConnectionFailedError, etcd3gw.exceptions.ConnectionTimeoutError)
    failures = (etcd3gw.exceptions.Etcd3Exception, requests.RequestException)

    def __init__(self, settings: Settings) -> None:
        conf = given(settings)
        self.name = str(conf.pop("path", _Theirs.DEFAULT_PATH)).strip("/")
        conf.pop("ttl", None)
        self._client = etcd3gw.Etcd3Client(**{"timeout": 30.0, **conf})
        root = f"{_Theirs.ROOT_PATH}/{self.name}"
        self._folders = {
            Folder.JOBS: root,
            Folder.TRASH: f"{_Theirs.TRASH_PATH}/{self.name}",
            Folder.NOTES: f"{root}/{NOTES}",
        }

    def open(self, limit: float) -> None:
        self._client.status()

    def close(self) -> None:
        self._client.session.close()

    def exists(self) -> bool:
        return bool(self._client.get(f"{self._folders[Folder.JOBS]}/{_Theirs.SEQUENCE_KEY}"))

    def read(self, folder: Folder, places: Sequence[str] | None = None) -> list[StoredPosting]:
        data, lock = (_Theirs.DATA_POSTFIX, _Theirs.LOCK_POSTFIX) if folder is Folder.JOBS else ("", "")
        if places is None:
            begin = "" if folder is Folder.NOTES else _Theirs.JOB_PREFIX
            found = self._read([_prefixed(f"{self._folders[folder]}/{begin}")])
        else:
            keys = [f"{self._folders[folder]}/{place}{end}" for place in places for end in dict.fromkeys((data, lock))]
            found = self._read([{"key": _coded(key)} for key in keys])
        found = {key.removeprefix(f"{self._folders[folder]}/"): raw for key, raw in found.items()}
        return [
            StoredPosting(place, raw, owner_in(found.get(place + lock)) if lock else None, None)
            for key, raw in found.items()
            if key.endswith(data)
            for place in [key.removesuffix(data)]
            # Others are on boards in folders below this one.
            if folder is Folder.NOTES or _JOB.fullmatch(place)
        ]

    def remove(self, folder: Folder, places: Sequence[str]) -> list[Status]:
        keys = [_coded(f"{self._folders[folder]}/{place}") for place in places]
        answers = self._all({"request_delete_range": {"key": key}} for key in keys)
        return [OK if "deleted" in answer else Status.ABSENT for answer in answers]

    def write_note(self, uuid: str, note: bytes) -> None:
        self._all([_put(f"{self._folders[Folder.NOTES]}/{uuid}", note)])

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        return [_status(answer) for answer in self._all({"request_txn": self._departure(each)} for each in leaving)]

    def _departure(self, each: Leaving) -> dict[str, Any]:
        posting = f"{self._folders[Folder.JOBS]}/{each.place}"
        ends = (_Theirs.DATA_POSTFIX, _Theirs.LOCK_POSTFIX, _Theirs.LAST_MODIFIED_POSTFIX)
        data, lock, modified = (_coded(posting + end) for end in ends)
        return {
            "compare": [_compared(lock, "EQUAL"), _compared(data, "GREATER")],
            "success": [
                {"request_delete_range": {"key": data}},
                {"request_delete_range": {"key": modified}},
                _put(f"{self._folders[Folder.NOTES]}/{each.uuid}", each.note),
            ],
            "failure": [{"request_range": {"key": data}}],
        }

    def _read(self, ranges: Sequence[dict[str, Any]]) -> dict[str, bytes]:
        return dict(pair for answer in self._all({"request_range": each} for each in ranges) for pair in _pairs(answer))

    def _all(self, requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send requests together, and return the answer to each. Each stands by itself."""
        waiting, answers = list(requests), list[dict[str, Any]]()
        for start in range(0, len(waiting), _TOGETHER):
            answer = self._client.transaction({"success": waiting[start : start + _TOGETHER]})
            answers += [next(iter(each.values())) for each in answer["responses"]]
        return answers


def _status(answer: dict[str, Any]) -> Status:
    """Return the outcome of a departure."""
    if answer.get("succeeded"):
        return OK
    [stored] = answer["responses"]
    return Status.CLAIMED if _pairs(stored["response_range"]) else Status.ABSENT


def _prefixed(prefix: str) -> dict[str, Any]:
    return {"key": _coded(prefix), "range_end": _coded(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def _pairs(answer: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Return the keys and values that a range has found."""
    found = [(base64.b64decode(kv["key"]), base64.b64decode(kv.get("value", ""))) for kv in answer.get("kvs", ())]
    return [(key.decode("latin-1"), value) for key, value in found]


def _put(key: str, value: bytes) -> dict[str, Any]:
    return {"request_put": {"key": _coded(key), "value": _coded(value)}}


def _compared(key: str, result: str) -> dict[str, Any]:
    """Return a comparison: EQUAL, the key is absent; GREATER, it exists."""
    return {"key": key, "target": "CREATE", "result": result, "create_revision": 0}


def _coded(value: str | bytes) -> str:
    """Encode a text as etcd3gw does."""
    return base64.b64encode(value.encode("latin-1") if isinstance(value, str) else value).decode()
