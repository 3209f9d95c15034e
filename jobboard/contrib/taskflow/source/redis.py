"""TaskFlow's board on Redis: postings as msgpack in a hash, and a key for each job that somebody has claimed."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import redis
from oslo_serialization import msgpackutils
from taskflow.jobs.backends import impl_redis

from jobboard.conf import Option, Settings, text
from jobboard.contrib.taskflow.source.store import NOTES, Leaving, OriginStore, StoredPosting, given, options, refused
from jobboard.exceptions import ConnectionFailure
from jobboard.states import OK, Status, instant

_Theirs = impl_redis.RedisJobBoard
_PAGE = 500
_DEPART = Path(__file__).with_name("depart.lua").read_text()


class RedisSource(OriginStore):
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
        with _told():
            self._client.ping()

    def close(self) -> None:
        self._client.close()

    def exists(self) -> bool:
        with _told():
            return bool(self._client.exists(self._board.sequence_key, self._board.listings_key, self._board.trash_key))

    def jobs(self, places: Sequence[str] | None = None) -> list[StoredPosting]:
        with _told():
            raws = self._hash(self._board.listings_key, places)
            found: list[StoredPosting] = []
            fields = list(raws)
            for start in range(0, len(fields), _PAGE):
                page = fields[start : start + _PAGE]
                owners = self._client.mget([self._owner_key(field) for field in page])
                found += [
                    StoredPosting(field, raws[field], None if owner is None else _shown(owner), None)
                    for field, owner in zip(page, owners, strict=True)
                ]
            return found

    def trash(self) -> list[StoredPosting]:
        with _told():
            raws = self._hash(self._board.trash_key)
            fields = list(raws)
            found: list[StoredPosting] = []
            for start in range(0, len(fields), _PAGE):
                page = fields[start : start + _PAGE]
                stamps = self._client.mget([self._modified_key(field) for field in page])
                found += [
                    StoredPosting(field, raws[field], None, _instant_in(stamp))
                    for field, stamp in zip(page, stamps, strict=True)
                ]
            return found

    def depart(self, leaving: Sequence[Leaving]) -> list[Status]:
        keys = [self._board.listings_key, self._notes]
        for each in leaving:
            keys += [self._owner_key(each.place), self._modified_key(each.place)]
        words = [word for each in leaving for word in (_field(each.place), each.uuid, each.note)]
        with _told():
            return [Status(answer.decode()) for answer in self._depart(keys=keys, args=words)]

    def remove_trash(self, places: Sequence[str]) -> list[Status]:
        with _told(), self._client.pipeline() as pipeline:
            for place in places:
                pipeline.hdel(self._board.trash_key, _field(place))
                pipeline.delete(self._modified_key(place))
            removed = pipeline.execute()[::2]
        return [OK if count else Status.ABSENT for count in removed]

    def notes(self, uuids: Sequence[str] | None = None) -> dict[str, bytes]:
        with _told():
            return self._hash(self._notes, uuids)

    def write_note(self, uuid: str, note: bytes) -> None:
        with _told():
            self._client.hset(self._notes, uuid, note)

    def remove_notes(self, uuids: Sequence[str]) -> None:
        with _told():
            self._client.hdel(self._notes, *uuids)

    def decode(self, kept: StoredPosting) -> dict[str, Any]:
        found = _unpacked(kept.raw)
        if not isinstance(found, dict):
            raise TypeError("it is not a map")
        return found

    def _hash(self, key: bytes, fields: Sequence[str] | None = None) -> dict[str, bytes]:
        if fields is None:
            return {_text(field): raw for field, raw in self._client.hgetall(key).items()}
        raws = self._client.hmget(key, [_field(field) for field in fields]) if fields else []
        return {field: raw for field, raw in zip(fields, raws, strict=True) if raw is not None}

    def _owner_key(self, field: str) -> bytes:
        key: bytes = self._board.join(_field(field) + _Theirs.OWNED_POSTFIX)
        return key

    def _modified_key(self, field: str) -> bytes:
        key: bytes = self._board.join(_field(field) + _Theirs.LAST_MODIFIED_POSTFIX)
        return key


# A field may be anything, and must be the same again.


def _text(field: bytes) -> str:
    return field.decode(errors="surrogateescape")


def _field(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _shown(owner: bytes) -> str:
    return owner.decode(errors="replace")


def _instant_in(stamp: bytes | None) -> int | None:
    try:
        return instant(_unpacked(stamp).replace(tzinfo=datetime.UTC))
    # A time of damage is no reason to leave a job.
    except Exception:  # noqa: BLE001
        return None


def _unpacked(raw: bytes | None) -> Any:
    """As TaskFlow does it, but with numbers as keys, too: it writes these, and deletes such a job when it lists it."""
    return msgpack.unpackb(raw, ext_hook=_extension, strict_map_key=False)


def _extension(code: int, data: bytes) -> Any:
    handler = msgpackutils.default_registry.get(code)
    if handler is None:
        raise ValueError(f"a value of the unknown type {code}")
    return handler.deserialize(data)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except redis.AuthenticationError as error:
        raise ConnectionFailure(f"TaskFlow's Redis refuses this user: {error}", error, refused=True) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise ConnectionFailure(f"TaskFlow's Redis can't be reached: {error}", error, outcome="unknown") from error
    except redis.RedisError as error:
        raise refused(error) from error
