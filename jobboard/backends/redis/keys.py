"""The keys of a board: one for each container, all with one hash tag, so that they lie on one node of a cluster.

A key is ``<namespace>:{<name>}:<container>``. No job has a key of its own, and no key has a time to live.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

CONTAINERS = {
    "meta": "hash",  # layout, who wrote it, the last number, the number of the last news for waiters
    "jobs": "hash",  # uuid -> record: see records.py
    "postings": "hash",  # uuid -> posting
    "ready": "zset",  # claimable jobs; see records.py for the members here and of the next six
    "live": "zset",
    "due": "zset",
    "leases": "zset",
    "final": "zset",
    "expiries": "zset",
    "trash": "zset",
    "sides": "hash",  # kind, NUL and key of a side record -> its tag, end and value
    "ends": "zset",  # side records by their end
    "listed": "zset",  # side records of listed kinds; outcomes with the newest first
    "waiters": "zset",  # name, time of arrival, readable version and id of waiters
    "bells": "hash",  # id of a waiter -> its members in waiters
}
"""The name and the type of each container, in the order in which scripts declare them. All scores but those of ``ends``
are 0, so that members are in the order of their bytes."""


class Keys(NamedTuple):
    """The keys of a board, in the order of :data:`CONTAINERS`."""

    all: tuple[bytes, ...]

    @property
    def tag(self) -> bytes:
        """A key, which tells the node of a cluster that has all keys."""
        return self.all[0]

    def of(self, container: str) -> bytes:
        return self.all[list(CONTAINERS).index(container)]


def keys_of(namespace: bytes, name: str) -> Keys:
    """Return the keys of a board. Different boards share no key: bytes that would end a part are percent-encoded."""
    prefix = b"%b:{%b}:" % (_quoted(namespace), _quoted(name.encode()))
    return Keys(tuple(prefix + container.encode() for container in CONTAINERS))


def search_of(namespace: bytes) -> bytes:
    """Return a pattern that matches one key of each board of a namespace."""
    begin = _quoted(namespace)
    for special in b"\\*?[]":
        begin = begin.replace(b"%c" % special, b"\\%c" % special)
    return begin + b":{*}:meta"


def name_of(key: bytes) -> str:
    """Return the name of the board that a key belongs to."""
    return unquote(key[key.index(b"{") + 1 : key.rindex(b"}")].decode())


def _quoted(part: bytes) -> bytes:
    for special in b"%:{}":
        part = part.replace(b"%c" % special, b"%%%02X" % special)
    return part
