"""TaskFlow's board on Redis: postings as msgpack in a hash, and a key for each job that somebody has claimed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import redis
from oslo_serialization import msgpackutils
from taskflow.jobs.backends import impl_redis

from jobboard.conf import Option, Settings, text
from jobboard.contrib.taskflow.source.store import NOTES, Leaving, OriginStore, StoredPosting, decoded, given, options
from jobboard.states import OK, Status, instant

_Theirs = impl_redis.RedisJobBoard
_PAGE = 500
_DEPART = Path(__file__).with_name("depart.lua").read_text()


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
        conf = given(settings)
        if "sentinel" in conf:
            conf = {"host": "localhost", "port": 26379, **conf}
        # Not connected: it gives the keys, and makes the client, as TaskFlow does from this configuration.
        self._board = _Theirs("source", conf)
        self._conf = conf
        self._notes = self._board.join(NOTES)

    @property
    def name(self) -> str:
        return str(self._conf.get("namespace") or _Theirs.DEFAULT_NAMESPACE.decode())

    def open(self, limit: float) -> None:
        self._client = _Theirs._make_client(self._conf)
        self._depart = self._client.register_script(_DEPART)
        self._client.ping()

    def close(self) -> None:
        self._client.close()

    def exists(self) -> bool:
        return bool(self._client.exists(self._board.sequence_key, self._board.listings_key, self._board.trash_key))

    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        raws = self._hash(self._board.listings_key, places)
        owners = self._values([self._key(field, _Theirs.OWNED_POSTFIX) for field in raws])
        return [
            StoredPosting(field, raw, None if owner is None else owner.decode(errors="replace"), None)
            for (field, raw), owner in zip(raws.items(), owners, strict=True)
        ]

    def trash(self) -> list[StoredPosting]:
        raws = self._hash(self._board.trash_key)
        stamps = self._values([self._key(field, _Theirs.LAST_MODIFIED_POSTFIX) for field in raws])
        return [
            StoredPosting(field, raw, None, _instant_in(stamp))
            for (field, raw), stamp in zip(raws.items(), stamps, strict=True)
        ]

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        keys, words = [self._board.listings_key, self._notes], []
        for each in leaving:
            keys += [self._key(each.place, end) for end in (_Theirs.OWNED_POSTFIX, _Theirs.LAST_MODIFIED_POSTFIX)]
            words += [_field(each.place), each.uuid, each.note]
        return [Status(answer.decode()) for answer in self._depart(keys=keys, args=words)]

    def remove_trash(self, places: Sequence[str]) -> list[Status]:
        with self._client.pipeline() as pipeline:
            for place in places:
                pipeline.hdel(self._board.trash_key, _field(place))
                pipeline.delete(self._key(place, _Theirs.LAST_MODIFIED_POSTFIX))
            return [OK if removed else Status.ABSENT for removed in pipeline.execute()[::2]]

    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        return self._hash(self._notes, uuids)

    def write_note(self, uuid: str, note: bytes) -> None:
        self._client.hset(self._notes, uuid, note)

    def remove_notes(self, uuids: Sequence[str]) -> None:
        self._client.hdel(self._notes, *uuids)

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        return decoded(_unpacked(kept.raw))

    def _hash(self, key: bytes, fields: Sequence[str] | None = None) -> dict[str, bytes]:
        if fields is None:
            return {field.decode(errors="surrogateescape"): raw for field, raw in self._client.hgetall(key).items()}
        raws = self._client.hmget(key, [_field(field) for field in fields]) if fields else []
        return {field: raw for field, raw in zip(fields, raws, strict=True) if raw is not None}

    def _values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        starts = range(0, len(keys), _PAGE)
        return [value for start in starts for value in self._client.mget(keys[start : start + _PAGE])]

    def _key(self, field: str, postfix: bytes) -> bytes:
        key: bytes = self._board.join(_field(field) + postfix)
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
    """Decode msgpack as TaskFlow does, but with numbers as keys, too: TaskFlow writes such jobs, and deletes them when
    it lists them."""
    return msgpack.unpackb(raw, ext_hook=_extension, strict_map_key=False)


def _extension(code: int, data: bytes) -> Any:
    handler = msgpackutils.default_registry.get(code)
    if handler is None:
        raise ValueError(f"a value of the unknown type {code}")
    return handler.deserialize(data)
