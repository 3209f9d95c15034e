"""The messages of etcd's JSON gateway, written by hand: keys and values are in Base64, which needs no escapes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

MOST = 128
"""How many operations a Txn has at most, and how many comparisons, unless the server is told otherwise. A Txn within a
Txn may have as many as the outer one has left."""

COMPARES = 110
"""How many comparisons one of ours has at most."""

_FOLD = 64


class KV(NamedTuple):
    key: str
    value: bytes
    created: int
    revision: int


class TxnAnswer(NamedTuple):
    """``found``: of each operation what it has read; ``more``: whether there is more of that."""

    succeeded: bool
    revision: int
    found: list[list[KV]]
    counts: list[int]


def _coded(text: str | bytes) -> str:
    return b64encode(text.encode() if isinstance(text, str) else text).decode()


def put(key: str, value: bytes = b"", lease: str | None = None) -> str:
    held = "" if lease is None else f',"lease":"{lease}"'
    return f'{{"request_put":{{"key":"{_coded(key)}","value":"{_coded(value)}"{held}}}}}'


def delete(key: str) -> str:
    return f'{{"request_delete_range":{{"key":"{_coded(key)}"}}}}'


def get(key: str, only: str = "", at: int = 0) -> str:
    """:param only: ``keys``, to read no more than that.
    :param at: the revision of which to read; 0: the latest."""
    more = f',"{only}_only":true' if only else ""
    more += f',"revision":"{at}"' if at else ""
    return f'{{"request_range":{{"key":"{_coded(key)}"{more}}}}}'


def span(start: str, end: str, limit: int = 0, only: str = "") -> str:
    """:param only: ``keys`` or ``count``, to read no more than that."""
    more = f',"{only}_only":true' if only else ""
    return f'{{"request_range":{{"key":"{_coded(start)}","range_end":"{_coded(end)}","limit":"{limit}"{more}}}}}'


def _compare(key: str, target: str, result: str, value: object, end: str = "") -> str:
    field = {"MOD": "mod_revision", "CREATE": "create_revision", "VALUE": "value"}[target]
    behind = f',"range_end":"{_coded(end)}"' if end else ""
    return f'{{"key":"{_coded(key)}"{behind},"target":"{target}","result":"{result}","{field}":"{value}"}}'


def is_at(key: str, revision: int) -> str:
    """Nobody has touched it since; 0: it is not there."""
    return _compare(key, "MOD", "EQUAL", revision)


def exists(key: str) -> str:
    return _compare(key, "CREATE", "GREATER", 0)


def made_at(key: str, revision: int) -> str:
    return _compare(key, "CREATE", "EQUAL", revision)


def untouched(key: str, revision: int) -> str:
    """It has not changed behind this revision."""
    return _compare(key, "MOD", "LESS", revision + 1)


def below(key: str, value: bytes) -> str:
    return _compare(key, "VALUE", "LESS", _coded(value))


def nothing_in(start: str, end: str) -> str:
    return _compare(start, "CREATE", "EQUAL", 0, end)


def none_since(start: str, end: str, revision: int) -> str:
    """No key there was put behind this revision."""
    return _compare(start, "MOD", "LESS", revision + 1, end)


def txn(compare: Sequence[str], success: Sequence[str]) -> str:
    """However many operations there are: where they are too many, Txns within it have them."""
    size = min(_FOLD, MOST - len(compare))
    return f'{{"compare":[{",".join(compare)}],"success":[{_folded(success, size)}]}}'


def within(compare: Sequence[str], success: Sequence[str]) -> str:
    """An operation that does these if what it compares holds, whatever becomes of the others."""
    return f'{{"request_txn":{txn(compare, success)}}}'


def _folded(operations: Sequence[str], size: int) -> str:
    if len(operations) > size:
        chunks = (operations[start : start + size] for start in range(0, len(operations), size))
        operations = [f'{{"request_txn":{{"success":[{",".join(chunk)}]}}}}' for chunk in chunks]
    return ",".join(operations)


def answered(body: Any) -> TxnAnswer:
    found: list[list[KV]] = []
    counts: list[int] = []
    _read(body.get("responses", ()), found, counts)
    return TxnAnswer(body.get("succeeded", False), int(body["header"]["revision"]), found, counts)


def _read(responses: Iterable[Any], found: list[list[KV]], counts: list[int]) -> None:
    for response in responses:
        if "response_txn" in response:
            _read(response["response_txn"].get("responses", ()), found, counts)
        else:
            read = response.get("response_range", {})
            found.append([_kv(kv) for kv in read.get("kvs", ())])
            counts.append(int(read.get("count", 0)))


def _kv(kv: Any) -> KV:
    value = b64decode(kv.get("value", ""))
    return KV(b64decode(kv["key"]).decode(), value, int(kv["create_revision"]), int(kv["mod_revision"]))


def watch(start: str, end: str, revision: int, without: str) -> str:
    return json.dumps(
        {
            "create_request": {
                "key": _coded(start),
                "range_end": _coded(end),
                "start_revision": str(revision),
                "filters": [without],
            }
        }
    )
