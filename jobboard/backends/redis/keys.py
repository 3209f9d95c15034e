"""The containers of a board on the server: their keys, all under one hash tag, so that a cluster keeps them together.

``<namespace>:{<name>}:jobs`` and so on. There is no key per job, and nothing has a time to live.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

CONTAINERS = {
    "meta": "hash",  # layout, the last number that was given, the last news for waiters
    "jobs": "hash",  # uuid -> record: see records.py
    "postings": "hash",  # uuid -> posting
    "ready": "zset",  # what can be claimed: see records.py for this and for the next five
    "live": "zset",
    "due": "zset",
    "leases": "zset",
    "final": "zset",
    "trash": "zset",
    "sides": "hash",  # kind and key of a side record -> its tag, its end, its value
    "ends": "zset",  # the same by when it may be dropped
    "listed": "zset",  # the same, of the kinds that are listed; of outcomes in the order of the newest
    "waiters": "zset",  # for what each waiter waits, and since when
    "bells": "hash",  # id of a waiter -> its members in `waiters`
}
"""Name -> type, in the order in which every script declares them. All scores but those of ``ends`` are 0: members are
in the order of their bytes."""


class Keys(NamedTuple):
    """The keys of a board, in the order of :data:`CONTAINERS`."""

    all: tuple[bytes, ...]

    @property
    def tag(self) -> bytes:
        """Any key, to find out which node of a cluster has them all."""
        return self.all[0]

    def of(self, container: str) -> bytes:
        return self.all[list(CONTAINERS).index(container)]


def keys_of(namespace: bytes, name: str) -> Keys:
    """Two different pairs never share a key: what would end a part early is percent-encoded."""
    prefix = b"%b:{%b}:" % (_quoted(namespace), _quoted(name.encode()))
    return Keys(tuple(prefix + container.encode() for container in CONTAINERS))


def search_of(namespace: bytes) -> bytes:
    """A pattern that fits one key of each board of a namespace."""
    begin = _quoted(namespace)
    for special in b"\\*?[]":
        begin = begin.replace(b"%c" % special, b"\\%c" % special)
    return begin + b":{*}:meta"


def name_of(key: bytes) -> str:
    """The board's name of such a key."""
    return unquote(key[key.index(b"{") + 1 : key.rindex(b"}")].decode())


def _quoted(part: bytes) -> bytes:
    for special in b"%:{}":
        part = part.replace(b"%c" % special, b"%%%02X" % special)
    return part
