"""Messages of etcd's JSON gateway. They are written by hand, as keys and values in Base64 need no escapes."""

from __future__ import annotations

import itertools
import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

AT_MOST = 40
"""The most comparisons, and the most operations, of one Txn.

A server adds up the Txns that lie within each other, each with the larger of its two numbers. The sum may be 128,
unless the server is configured otherwise. Three levels of 40 leave room for small Txns of :func:`within`, and hold
64,000 operations."""

MOST_GETS = 2000
"""The most keys that are read at once."""


class KV(NamedTuple):
    key: str
    value: bytes
    revision: int


class TxnAnswer(NamedTuple):
    """The answer to a Txn. ``found``: the keys that each operation read. ``counts``: the number of its keys in all."""

    succeeded: bool
    revision: int
    found: list[list[KV]]
    counts: list[int]


def end_of(prefix: str) -> str:
    """Return the first key behind all keys that begin with ``prefix``."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _coded(text: str | bytes) -> str:
    return b2a_base64(text.encode() if isinstance(text, str) else text, newline=False).decode()


# Operations


def put(key: str, value: bytes = b"", lease: str | None = None) -> str:
    held = "" if lease is None else f',"lease":"{lease}"'
    return f'{{"request_put":{{"key":"{_coded(key)}","value":"{_coded(value)}"{held}}}}}'


def put_again(key: str) -> str:
    """Put the value that the key has. The server refuses the whole Txn if the key is absent."""
    return f'{{"request_put":{{"key":"{_coded(key)}","ignore_value":true}}}}'


def delete(key: str) -> str:
    return f'{{"request_delete_range":{{"key":"{_coded(key)}"}}}}'


def get(key: str, end: str = "", limit: int = 0, only: str = "") -> str:
    """Read a key, or the range of keys up to ``end``. ``only``: ``keys`` leaves out the values, ``count`` the keys
    too."""
    more = f',"range_end":"{_coded(end)}","limit":"{limit}"' if end else ""
    if only:
        more += f',"{only}_only":true'
    return f'{{"request_range":{{"key":"{_coded(key)}"{more}}}}}'


def within(compare: Sequence[str], success: Sequence[str], failure: str = "") -> str:
    """Return an operation that does ``success`` if its comparisons hold, and ``failure`` if not. It has no effect on
    the other operations."""
    return f'{{"request_txn":{_message(compare, success, failure)}}}'


# Comparisons


_FIELDS = {"MOD": "mod_revision", "CREATE": "create_revision", "VALUE": "value"}


def _compare(key: str, target: str, result: str, value: object, end: str = "") -> str:
    behind = f',"range_end":"{_coded(end)}"' if end else ""
    return f'{{"key":"{_coded(key)}"{behind},"target":"{target}","result":"{result}","{_FIELDS[target]}":"{value}"}}'


def is_at(key: str, revision: int) -> str:
    """Compare that the key was put last at this revision; 0: that the key is absent."""
    return _compare(key, "MOD", "EQUAL", revision)


def exists(key: str) -> str:
    return _compare(key, "CREATE", "GREATER", 0)


def below(key: str, value: bytes) -> str:
    return _compare(key, "VALUE", "LESS", _coded(value))


def nothing_in(start: str, end: str) -> str:
    return _compare(start, "CREATE", "EQUAL", 0, end)


# A Txn and its answer


REFUSED = "key not found"
"""The error of a server when a comparison of an inner Txn fails; see :func:`txn`."""


def txn(compare: Sequence[str], success: Sequence[str], never: str = "") -> str:
    """Return a Txn of any number of comparisons and operations. Inner Txns have those that are too many.

    An inner Txn with comparisons insists on them. If they fail, the inner Txn keeps the value of an absent key, so the
    server refuses the whole Txn.

    :param never: the beginning of keys that never exist.
    """
    first, *more = _chunks(compare) or [()]
    operations: Sequence[str] = success
    if more or len(success) > AT_MOST:
        operations = [
            within(chunk, some, put_again(f"{never}{number}"))
            for number, (chunk, some) in enumerate(itertools.zip_longest(more, _chunks(success), fillvalue=()))
        ]
    while len(operations) > AT_MOST:
        operations = [within((), chunk) for chunk in _chunks(operations)]
    return _message(first, operations)


def _message(compare: Sequence[str], success: Sequence[str], failure: str = "") -> str:
    otherwise = f',"failure":[{failure}]' if failure else ""
    return f'{{"compare":[{",".join(compare)}],"success":[{",".join(success)}]{otherwise}}}'


def _chunks(each: Sequence[str]) -> list[Sequence[str]]:
    return [each[start : start + AT_MOST] for start in range(0, len(each), AT_MOST)]


def answered(body: Any) -> TxnAnswer:
    ranges = [response.get("response_range", {}) for response in _flat(body.get("responses", ()))]
    found = [[_kv(kv) for kv in read.get("kvs", ())] for read in ranges]
    counts = [int(read.get("count", 0)) for read in ranges]
    return TxnAnswer(body.get("succeeded", False), int(body["header"]["revision"]), found, counts)


def _flat(responses: Iterable[Any]) -> Iterable[Any]:
    return itertools.chain.from_iterable(
        _flat(each["response_txn"].get("responses", ())) if "response_txn" in each else (each,) for each in responses
    )


def _kv(kv: Any) -> KV:
    value = a2b_base64(kv.get("value", ""))
    return KV(a2b_base64(kv["key"]).decode("utf-8", "backslashreplace"), value, int(kv["mod_revision"]))


def watch(folder: str, revision: int, without: str) -> str:
    """Return the request of a watch.

    :param revision: the first revision to hear of.
    :param without: the events to leave out, ``NOPUT`` or ``NODELETE``.
    """
    wanted = {"key": _coded(folder), "range_end": _coded(end_of(folder)), "filters": [without]}
    return json.dumps({"create_request": {**wanted, "start_revision": str(revision)}})
