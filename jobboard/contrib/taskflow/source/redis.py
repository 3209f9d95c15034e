"""TaskFlow's board on Redis: postings as msgpack in a hash, and a key for each job that somebody has claimed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import redis
from oslo_serialization import msgpackutils
from taskflow.jobs.backends import impl_redis

from jobboard.conf import Option, Settings, text
from jobboard.contrib.taskflow.source.store import NOTES, Folder, Leaving, OriginStore, StoredPosting, given, options
from jobboard.primitives import PAGE
from jobboard.states import OK, Status, instant

_Theirs = impl_redis.RedisJobBoard
_DEPART = Path(__file__).with_name("depart.lua").read_text("utf-8")


class RedisSource(OriginStore):
    server = "Redis"
    options: ClassVar[Mapping[str, Option]] = options(
        **dict(_Theirs.CLIENT_CONF_TRANSFERS),
        namespace=text,
        sentinel=text,
        sentinel_fallbacks=lambda value: value.split(","),
        sentinel_kwargs=json.loads,
    )
    parts: ClassVar[Mapping[str, str]] = {
        "host": "host",
        "port": "port",
        "user": "username",
        "password": "password",
        "path": "db",
    }
    unreachable = (redis.ConnectionError, redis.TimeoutError)
    denied = (redis.AuthenticationError,)
    failures = (redis.RedisError,)

    def __init__(self, settings: Settings) -> None:
        self._conf = given(settings)
        if "sentinel" in self._conf:
            self._conf = {"host": "localhost", "port": 26379, **self._conf}
        self.name = str(self._conf.get("namespace") or _Theirs.DEFAULT_NAMESPACE.decode())
        # Not connected: it gives the keys, and makes the client, as TaskFlow does from this configuration.
        self._board = board = _Theirs("source", self._conf)
        self._keys = {
            Folder.JOBS: board.listings_key,
            Folder.TRASH: board.trash_key,
            Folder.NOTES: board.join(NOTES),
        }

    def open(self, limit: float) -> None:
        self._client = _Theirs._make_client(self._conf)
        self._depart = self._client.register_script(_DEPART)
        self._client.ping()

    def close(self) -> None:
        self._client.close()

    def exists(self) -> bool:
        return bool(self._client.exists(self._board.sequence_key, *self._keys.values()))

    def read(self, folder: Folder, places: Sequence[str] | None = None) -> list[StoredPosting]:
        key = self._keys[folder]
        if places is None:
            found = self._client.hgetall(key)
            raws = {field.decode(errors="surrogateescape"): raw for field, raw in found.items()}
        else:
            found = self._client.hmget(key, [_field(place) for place in places]) if places else []
            raws = {place: raw for place, raw in zip(places, found, strict=True) if raw is not None}
        # After the postings, so that a job is not taken for unclaimed that was claimed while they were read.
        owners = self._beside(raws, _Theirs.OWNED_POSTFIX)
        stamps = self._beside(raws, _Theirs.LAST_MODIFIED_POSTFIX)
        return [
            StoredPosting(place, raw, None if owner is None else owner.decode(errors="replace"), _instant_in(stamp))
            for (place, raw), owner, stamp in zip(raws.items(), owners, stamps, strict=True)
        ]

    def remove(self, folder: Folder, places: Sequence[str]) -> list[Status]:
        with self._client.pipeline() as pipeline:
            for place in places:
                pipeline.hdel(self._keys[folder], _field(place))
                pipeline.delete(self._key(place, _Theirs.LAST_MODIFIED_POSTFIX))
            return [OK if removed else Status.ABSENT for removed in pipeline.execute()[::2]]

    def write_note(self, uuid: str, note: bytes) -> None:
        self._client.hset(self._keys[Folder.NOTES], uuid, note)

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        keys, words = [self._keys[Folder.JOBS], self._keys[Folder.NOTES]], []
        for each in leaving:
            keys += [self._key(each.place, end) for end in (_Theirs.OWNED_POSTFIX, _Theirs.LAST_MODIFIED_POSTFIX)]
            words += [_field(each.place), each.uuid, each.note]
        return [Status(answer.decode()) for answer in self._depart(keys=keys, args=words)]

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        return {**_unpacked(kept.raw)}

    def _beside(self, places: Iterable[str], postfix: bytes) -> list[bytes | None]:
        keys = [self._key(place, postfix) for place in places]
        starts = range(0, len(keys), PAGE)
        return [value for start in starts for value in self._client.mget(keys[start : start + PAGE])]

    def _key(self, place: str, postfix: bytes) -> bytes:
        key: bytes = self._board.join(_field(place) + postfix)
        return key


def _field(place: str) -> bytes:
    """Return the field of a place, which may be any bytes."""
    return place.encode(errors="surrogateescape")


def _instant_in(stamp: bytes | None) -> int | None:
    try:
        return instant(_unpacked(stamp).replace(tzinfo=datetime.UTC))
    # A damaged time is no reason to leave a job behind.
    except Exception:  # noqa: BLE001
        return None


def _unpacked(raw: bytes | None) -> Any:
    """Decode msgpack as TaskFlow does, but with numbers as keys, too: TaskFlow writes such jobs, and deletes them."""
    return msgpack.unpackb(raw, ext_hook=_extension, strict_map_key=False)


def _extension(code: int, data: bytes) -> Any:
    handler = msgpackutils.default_registry.get(code)
    if handler is None:
        raise ValueError(f"a value of the unknown type {code}")
    return handler.deserialize(data)
