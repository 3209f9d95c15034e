"""The containers of a board on the server: their keys, all under one hash tag, so that a cluster keeps them together.

``<namespace>:{<name>}:jobs`` and so on. There is no key per job, and nothing has a time to live.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

CONTAINERS = {
    "meta": "hash",  # layout, the last sequence, whether somebody listens
    "jobs": "hash",  # uuid -> record, msgpack; see board.lua
    "postings": "hash",  # uuid -> posting
    "ready": "zset",  # uuid by place, of what can be claimed
    "names": "zset",  # name, place and uuid of the same, ordered as text
    "lanes": "zset",  # the same by name and group, where a limit counts by these; see lanes.lua
    "heads": "zset",  # names, or names and groups, by the place of their first job, while there are limits
    "busy": "zset",  # uuid by place, of what is claimed or scheduled
    "leases": "zset",  # uuid by the end of its lease
    "final": "zset",  # the same, of claims that go to the trash when they lapse
    "due": "zset",  # uuid by due time
    "trash": "zset",  # sequence and uuid by when it was trashed
    "sides": "hash",  # kind and key of a side record -> its value; see board.lua
    "ends": "zset",  # the same by when it may be dropped
    "listed": "zset",  # the same, of the kinds that are listed, ordered as text
    "waiters": "zset",  # what each waiter waits for, its place in the queue and its id, ordered as text
    "bells": "hash",  # id of a waiter -> when it came, its ticket, its entries in `waiters`
}
"""Name -> type, in the order in which every script declares them."""

PLACE = 2**45
"""A job's place is its rank times this, plus its sequence: exact in the doubles that scores are."""


class Keys(NamedTuple):
    """Where a board lies: its keys in the order of :data:`CONTAINERS`."""

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
