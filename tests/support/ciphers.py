"""Ciphers for tests, and the content of each store, past the library."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from cryptography.fernet import Fernet

import jobboard


class Keys:
    """A cipher with the keys of these numbers."""

    def __init__(self, *numbers: int) -> None:
        self._keys = {number: _key(number) for number in numbers}
        self.number = max(numbers)

    def encrypt(self, data: bytes) -> bytes:
        return self._keys[self.number].encrypt(data)

    def decrypt(self, number: int, data: bytes) -> bytes:
        if number not in self._keys:
            raise jobboard.NoKey(f"no key {number}")
        return self._keys[number].decrypt(data)


def _key(number: int) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"%d" % number).digest()))


OLD, BOTH = Keys(1), Keys(1, 2)


def report(job: jobboard.Job) -> dict[str, Any]:
    """A handler for processes: it tells what it has got, and notes and returns it."""
    seen = {"details": job.details, "checkpoint": job.checkpoint, "progress": job.progress and job.progress.text}
    job.note(job.details["secret"], checkpoint={"secret": job.details["secret"]}, flush=True)
    return jobboard.Then(seen, [jobboard.Posting("next", details=job.details)])  # type: ignore[return-value]


def large(job: jobboard.Job) -> Any:
    """A handler whose follow-ups fit into the limits as they stand, and not once they are encrypted."""
    posting = jobboard.Posting("next", details={"fill": "x" * job.details["size"]})
    return jobboard.Then(None, [posting] * job.details["number"])


def follow_up(job: jobboard.Job) -> Any:
    return jobboard.Then(None, [jobboard.Posting("next", details=job.details)])


def large_note(job: jobboard.Job) -> Any:
    """A handler whose second note fits as it stands, and not once it is encrypted: it returns the refusal."""
    job.note(checkpoint="small")
    try:
        job.note(checkpoint="x" * job.details["size"], flush=job.details["flush"])
    except ValueError as error:
        return [str(error), job.checkpoint]
    return [None, job.checkpoint]


def note_and_retry(job: jobboard.Job) -> None:
    job.note(job.details["secret"], checkpoint=[job.details["secret"]])
    raise jobboard.Retry(delay=600)


def forms(secret: bytes) -> Iterator[bytes]:
    """Yield the forms in which a text may show: as it is, in hex, and in base64 wherever it begins in its text."""
    yield secret
    yield secret.hex().encode()
    for skipped in range(3):
        # Without the characters that depend on the bytes around.
        yield base64.b64encode(b"\0" * skipped + secret)[-(-skipped * 4 // 3) + 1 : -5]


for _around in (b"", b"x", b"xy", b"xyz"):
    assert any(form in base64.b64encode(_around + b"a long secret" + _around) for form in forms(b"a long secret"))


def _sql(conf: dict[str, Any], engine: sa.Engine) -> Iterator[bytes]:
    with engine.connect() as connection:
        names = [name for name in sa.inspect(connection).get_table_names() if name.startswith(conf["table"])]
        assert len(names) > 1
        for name in names:
            for row in connection.execute(sa.select(sa.text("*")).select_from(sa.table(name))):
                for value in row:
                    yield bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()


def _sqlite(conf: dict[str, Any], _: object) -> Iterator[bytes]:
    path = Path(conf["board"].removeprefix("sqlite:///"))
    yield from (each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


def _redis(conf: dict[str, Any], _: object) -> Iterator[bytes]:
    import redis

    reads: dict[bytes, Callable[[Any, bytes], Any]] = {
        b"string": lambda client, key: [client.get(key)],
        b"hash": lambda client, key: [part for pair in client.hgetall(key).items() for part in pair],
        b"zset": lambda client, key: client.zrange(key, 0, -1),
        b"set": lambda client, key: client.smembers(key),
        b"list": lambda client, key: client.lrange(key, 0, -1),
        b"stream": lambda client, key: [str(client.xrange(key)).encode()],
    }
    with redis.Redis.from_url(conf["board"]) as client:
        for key in client.scan_iter(f"*{conf['namespace']}*"):
            yield key
            yield from reads[client.type(key)](client, key)


def _zookeeper(conf: dict[str, Any], _: object) -> Iterator[bytes]:
    from kazoo.client import KazooClient

    client = KazooClient(conf["board"].removeprefix("zookeeper://"))
    client.start()
    try:
        paths = [f"/{conf['namespace']}"]
        while paths:
            path = paths.pop()
            yield path.encode()
            yield client.get(path)[0]
            paths += [f"{path}/{child}" for child in client.get_children(path)]
    finally:
        client.stop()
        client.close()


def _etcd(conf: dict[str, Any], _: object) -> Iterator[bytes]:
    import json
    import urllib.request

    every = base64.b64encode(b"\0").decode()
    place = conf["board"].replace("etcd://", "http://")
    data = json.dumps({"key": every, "range_end": every}).encode()
    with urllib.request.urlopen(f"{place}/v3/kv/range", data) as answer:
        for pair in json.load(answer)["kvs"]:
            yield base64.b64decode(pair["key"])
            yield base64.b64decode(pair.get("value", ""))


DUMPS: dict[str, Callable[[dict[str, Any], Any], Iterator[bytes]]] = {
    "postgresql": _sql,
    "mariadb": _sql,
    "sqlite": _sqlite,
    "redis": _redis,
    "zookeeper": _zookeeper,
    "etcd": _etcd,
}
"""The functions that read all values of a store, by its backend. Some also read those of other boards."""
