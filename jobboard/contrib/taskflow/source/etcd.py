"""TaskFlow's board on etcd: postings as JSON under keys of one prefix, each with its lock beside it.

TaskFlow's own board is not even connected here: it would listen for postings, and delete those that it can't decode.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import etcd3gw
import requests
from taskflow.jobs.backends import impl_etcd

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

_Theirs = impl_etcd.EtcdJobBoard
_DATA, _LOCK, _MODIFIED = _Theirs.DATA_POSTFIX, _Theirs.LOCK_POSTFIX, _Theirs.LAST_MODIFIED_POSTFIX
_TOGETHER = 100
"""So many requests are one, of the 128 that etcd takes unless it is told otherwise; one may hold a few of its own."""
_KEY = re.compile(rf"{_Theirs.JOB_PREFIX}\d+(\.\w+)?")


class EtcdSource(OriginStore):
    options: ClassVar[Mapping[str, Option]] = options(**dict(_Theirs.ETCD_CONFIG_OPTIONS), path=text, ttl=float)
    parts: ClassVar[Mapping[str, str]] = {"host": "host", "port": "port", "path": "path"}

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
        with _told():
            self._client.status()

    def close(self) -> None:
        self._client.session.close()

    def exists(self) -> bool:
        with _told():
            return bool(self._client.get(f"{self._root}/{_Theirs.SEQUENCE_KEY}"))

    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        if places is None:
            found = self._under(f"{self._root}/")
        else:
            ranges = [{"request_range": _prefixed(f"{place}.")} for place in places]
            found = {key: raw for each in self._all(ranges) for key, raw in _pairs(each)}
        return [
            StoredPosting(place, raw, owner_in(found[place + _LOCK]) if place + _LOCK in found else None, None)
            for key, raw in found.items()
            if key.endswith(_DATA)
            for place in [key.removesuffix(_DATA)]
        ]

    def trash(self) -> list[StoredPosting]:
        return [StoredPosting(key, raw, None, None) for key, raw in self._under(f"{self._trash}/").items()]

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        answers = self._all([{"request_txn": self._departure(each)} for each in leaving])
        return [_status(answer) for answer in answers]

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
        answers = self._all([{"request_delete_range": {"key": _coded(place)}} for place in places])
        return [OK if "deleted" in answer else Status.ABSENT for answer in answers]

    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        wanted = [_prefixed(self._note(""))] if uuids is None else [{"key": _coded(self._note(uuid))} for uuid in uuids]
        answers = self._all([{"request_range": each} for each in wanted])
        return {key.rpartition("/")[2]: raw for answer in answers for key, raw in _pairs(answer)}

    def write_note(self, uuid: str, note: bytes) -> None:
        self._all([{"request_put": {"key": _coded(self._note(uuid)), "value": _coded(note)}}])

    def remove_notes(self, uuids: Sequence[str]) -> None:
        self._all([{"request_delete_range": {"key": _coded(self._note(uuid))}} for uuid in uuids])

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        return decoded_json(kept.raw)

    def _note(self, uuid: str) -> str:
        return f"{self._root}/{NOTES}/{uuid}"

    def _under(self, folder: str) -> dict[str, bytes]:
        """The keys of jobs in this folder, without those of boards in folders below it."""
        [answer] = self._all([{"request_range": _prefixed(folder + _Theirs.JOB_PREFIX)}])
        return {key: raw for key, raw in _pairs(answer) if _KEY.fullmatch(key.removeprefix(folder))}

    def _all(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to many requests, which are sent together, and each of which stands by itself."""
        answers: list[dict[str, Any]] = []
        for start in range(0, len(requests), _TOGETHER):
            with _told():
                answer = self._client.transaction({"success": list(requests[start : start + _TOGETHER])})
            answers += [next(iter(each.values())) for each in answer["responses"]]
        return answers


def _status(answer: dict[str, Any]) -> Status:
    """What has become of a departure."""
    if answer.get("succeeded"):
        return OK
    [stored] = answer["responses"]
    return Status.CLAIMED if _pairs(stored["response_range"]) else Status.ABSENT


def _prefixed(prefix: str) -> dict[str, Any]:
    return {"key": _coded(prefix), "range_end": _coded(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def _pairs(answer: dict[str, Any]) -> list[tuple[str, bytes]]:
    """The keys and values that a range has found."""
    found = [(base64.b64decode(kv["key"]), base64.b64decode(kv.get("value", ""))) for kv in answer.get("kvs", ())]
    return [(key.decode("latin-1"), value) for key, value in found]


def _made(key: str, result: str) -> dict[str, Any]:
    """A comparison: EQUAL, the key is not there; GREATER, it is."""
    return {"key": key, "target": "CREATE", "result": result, "create_revision": 0}


def _coded(value: str | bytes) -> str:
    """Texts are put into bytes as etcd3gw does it."""
    return base64.b64encode(value.encode("latin-1") if isinstance(value, str) else value).decode()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (etcd3gw.exceptions.ConnectionFailedError, etcd3gw.exceptions.ConnectionTimeoutError) as error:
        raise ConnectionFailure(f"TaskFlow's etcd can't be reached: {error}", error, outcome="unknown") from error
    except (etcd3gw.exceptions.Etcd3Exception, requests.RequestException) as error:
        raise refused(error) from error
