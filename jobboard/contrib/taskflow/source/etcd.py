"""TaskFlow's board on etcd: postings as JSON under keys of one prefix, each with its lock beside it.

TaskFlow's own board is not even connected here: it would listen for postings, and delete those that it can't decode.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import etcd3gw
import requests
from taskflow.jobs.backends import impl_etcd

from jobboard.conf import Option, Settings, text
from jobboard.contrib.taskflow.source.store import NOTES, Leaving, OriginStore, StoredPosting, given, options, owner_in
from jobboard.states import OK, Status

_Theirs = impl_etcd.EtcdJobBoard
_DATA, _LOCK, _MODIFIED = _Theirs.DATA_POSTFIX, _Theirs.LOCK_POSTFIX, _Theirs.LAST_MODIFIED_POSTFIX
_TOGETHER = 100
"""The most requests of one transaction, of the 128 that etcd takes by default; one may hold a few of its own."""
_KEY = re.compile(rf"{_Theirs.JOB_PREFIX}\d+(\.\w+)?")


class EtcdSource(OriginStore):
    server = "etcd"
    options: ClassVar[Mapping[str, Option]] = options(**dict(_Theirs.ETCD_CONFIG_OPTIONS), path=text, ttl=float)
    parts: ClassVar[Mapping[str, str]] = {"host": "host", "port": "port", "path": "path"}
    unreachable = (etcd3gw.exceptions.ConnectionFailedError, etcd3gw.exceptions.ConnectionTimeoutError)
    failures = (etcd3gw.exceptions.Etcd3Exception, requests.RequestException)

    def __init__(self, settings: Settings) -> None:
        conf = given(settings)
        self._path = str(conf.pop("path", _Theirs.DEFAULT_PATH)).strip("/")
        conf.pop("ttl", None)
        self._client = etcd3gw.Etcd3Client(**{"timeout": 30.0, **conf})
        self._root = f"{_Theirs.ROOT_PATH}/{self._path}"
        self._trash = f"{_Theirs.TRASH_PATH}/{self._path}"

    @property
    def name(self) -> str:
        return self._path

    def open(self, limit: float) -> None:
        self._client.status()

    def close(self) -> None:
        self._client.session.close()

    def exists(self) -> bool:
        return bool(self._client.get(f"{self._root}/{_Theirs.SEQUENCE_KEY}"))

    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        found = self._under(self._root) if places is None else self._read([_prefixed(f"{each}.") for each in places])
        return [
            StoredPosting(place, raw, None if lock is None else owner_in(lock), None)
            for key, raw in found.items()
            if key.endswith(_DATA)
            for place in [key.removesuffix(_DATA)]
            for lock in [found.get(place + _LOCK)]
        ]

    def trash(self) -> list[StoredPosting]:
        return [StoredPosting(key, raw, None, None) for key, raw in self._under(self._trash).items()]

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        return [_status(answer) for answer in self._all([{"request_txn": self._departure(each)} for each in leaving])]

    def _departure(self, each: Leaving) -> dict[str, Any]:
        data, lock, note = (_coded(key) for key in (each.place + _DATA, each.place + _LOCK, self._note(each.uuid)))
        return {
            "compare": [_made(lock, "EQUAL"), _made(data, "GREATER")],
            "success": [
                {"request_delete_range": {"key": data}},
                {"request_delete_range": {"key": _coded(each.place + _MODIFIED)}},
                {"request_put": {"key": note, "value": _coded(each.note)}},
            ],
            "failure": [{"request_range": {"key": data}}],
        }

    def remove_trash(self, places: Sequence[str]) -> list[Status]:
        return [OK if "deleted" in answer else Status.ABSENT for answer in self._delete(places)]

    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        wanted = [_prefixed(self._note(""))] if uuids is None else [{"key": _coded(self._note(uuid))} for uuid in uuids]
        found = self._read(wanted)
        return {key.rpartition("/")[2]: raw for key, raw in found.items()}

    def write_note(self, uuid: str, note: bytes) -> None:
        self._all([{"request_put": {"key": _coded(self._note(uuid)), "value": _coded(note)}}])

    def remove_notes(self, uuids: Sequence[str]) -> None:
        self._delete([self._note(uuid) for uuid in uuids])

    def _note(self, uuid: str) -> str:
        return f"{self._root}/{NOTES}/{uuid}"

    def _under(self, folder: str) -> dict[str, bytes]:
        """Return the keys of jobs in this folder, without those of boards in folders below it."""
        found = self._read([_prefixed(f"{folder}/{_Theirs.JOB_PREFIX}")])
        return {key: raw for key, raw in found.items() if _KEY.fullmatch(key.removeprefix(f"{folder}/"))}

    def _read(self, ranges: Sequence[dict[str, Any]]) -> dict[str, bytes]:
        answers = self._all([{"request_range": each} for each in ranges])
        return {key: raw for answer in answers for key, raw in _pairs(answer)}

    def _delete(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        return self._all([{"request_delete_range": {"key": _coded(key)}} for key in keys])

    def _all(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send requests together, and return the answer to each. Each stands by itself."""
        answers: list[dict[str, Any]] = []
        for start in range(0, len(requests), _TOGETHER):
            answer = self._client.transaction({"success": list(requests[start : start + _TOGETHER])})
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


def _made(key: str, result: str) -> dict[str, Any]:
    """Return a comparison: EQUAL, the key is absent; GREATER, it exists."""
    return {"key": key, "target": "CREATE", "result": result, "create_revision": 0}


def _coded(value: str | bytes) -> str:
    """Encode a text as etcd3gw does."""
    return base64.b64encode(value.encode("latin-1") if isinstance(value, str) else value).decode()
