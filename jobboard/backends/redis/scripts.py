"""The Lua scripts: read from ``lua/``, each behind ``board.lua``, and packed as requests."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgpack

from jobboard.backends.redis.keys import Keys

READ_ONLY = frozenset({"read", "page", "trash_page", "tally", "peek", "roster", "examine"})
"""These write nothing."""

_ALL = ("board", "damage", "waiters")
_MORE = {
    "take": ("ready",),
    "peek": ("ready",),
    "bide": ("ready",),
    "insert": ("keys",),
    "operate": ("ending", "keys"),
    "finish": ("ending",),
}
"""What stands before the script itself. A function costs each call that it stands before."""

NEEDS_ROOM = "insert"
"""All scripts but this one go on when the server's memory is full, so that a full board drains."""


@functools.cache
def _source(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


class Script:
    """One script of one board."""

    def __init__(self, name: str, keys: Keys, flags: bool) -> None:
        """:param flags: whether the server (from Redis 7) takes a first line that says what a script may do."""
        parts = (*_ALL, *_MORE.get(name, ()), name)
        writes = f"local WRITES = {str(name not in READ_ONLY).lower()}\n"
        self.source = (_first_line(name, flags) + writes + "".join(map(_source, parts))).encode()
        digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        where = [b"%d" % len(keys.all), *keys.all]
        self._where = b"".join(map(_bulk, where))
        self._known = b"".join(map(_bulk, (b"EVALSHA", digest))) + self._where
        self._words = 2 + len(where)

    def request(self, args: Sequence[Any], postings: Sequence[bytes] = (), whole: bool = False) -> bytes:
        """A call of this script, as it goes over the wire.

        :param whole: for a server that does not know the script; it does then.
        """
        words = b"".join(map(_bulk, (msgpack.packb(args), *postings)))
        head = b"".join(map(_bulk, (b"EVAL", self.source))) + self._where if whole else self._known
        return b"*%d\r\n%b%b" % (self._words + 1 + len(postings), head, words)


def _first_line(name: str, flags: bool) -> str:
    if name in READ_ONLY:
        return "#!lua flags=no-writes\n" if flags else ""
    if name == NEEDS_ROOM:
        return "#!lua\n" if flags else ""
    # Before Redis 7, a script that has written anything is no longer refused for want of memory.
    return "#!lua flags=allow-oom\n" if flags else "redis.call('HDEL', KEYS[1], '')\n"


def command(*words: bytes) -> bytes:
    """A plain command, as it goes over the wire."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(_bulk, words)))


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
