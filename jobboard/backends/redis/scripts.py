"""The Lua scripts: read from ``lua/``, each behind ``prelude.lua``, and packed as requests."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgpack

from jobboard.backends.redis.keys import CONTAINERS, Keys
from jobboard.backends.redis.records import LAST, TAG
from jobboard.engine.answers import HOUR
from jobboard.engine.store import GATE
from jobboard.primitives import HELD_UNTIL

READ_ONLY = frozenset({"read", "look", "scan", "counts"})
"""These write nothing."""

IN_PASSING = frozenset({"setup", "wait", "leave", "tidy"})
"""What these write is written again by itself where a failover has lost it: they wait for no replica."""

POST = "post"
"""A commit that stores new jobs. A server whose memory is full refuses it, and no other script, so that a full board
drains."""

CAP = 30.0
"""A waiter sleeps no longer, in seconds; nobody is told of leases and delays that last as long."""

_FIELDS = (
    *("tail", "name", "priority", "sequence", "key", "version", "posting", "state", "attempts", "most", "token"),
    *("who", "keeper", "until", "created", "modified"),
)
"""The first fields of a record as it is packed; the first one is beside it."""

_WORDS = {
    **{container.upper(): f"KEYS[{number}]" for number, container in enumerate(CONTAINERS, 1)},
    **{f"N_{container.upper()}": str(number) for number, container in enumerate(CONTAINERS, 1)},
    **{field.upper(): str(number) for number, field in enumerate(_FIELDS, 2)},
    "FIELDS": str(len(_FIELDS)),
    "HEADER": "'\\220\\0\\20'",  # an array of twenty
    "BEGIN": str(TAG + 3),  # behind the tag and the header
    "VALUE": str(2 * TAG),  # how much of a side record stands before its value
    "GATE": f"'{GATE[0]}\\0{GATE[1]}'",
    "LAST": str(LAST),
    "HELD_UNTIL": str(HELD_UNTIL),
    "HOUR": str(HOUR),
    "CAP": str(int(CAP * 1e6)),
    "OVERDUE": "100",  # how many jobs that have ended by themselves a look tells of
    "DROPPED": "200",  # how many side records a tidying drops before others have their turn
    "WALK": "2000",  # how many jobs a page looks through before others have their turn
    "WORDS": "4000",  # Lua unpacks no more than 8000; even, as words come in pairs
}
"""What scripts have in capitals. As locals of theirs, all these would cost each call more than what most of them do."""


@functools.cache
def _source(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


class Script:
    """One script of one board."""

    def __init__(self, name: str, keys: Keys, flags: bool) -> None:
        """:param flags: whether the server (from Redis 7) takes a first line that says what a script may do."""
        self.is_relied_on = name not in READ_ONLY | IN_PASSING
        words = {
            **_WORDS,
            "PUBLISH": "'SPUBLISH'" if flags else "'PUBLISH'",
            "NUMSUB": "'SHARDNUMSUB'" if flags else "'NUMSUB'",
        }
        text = _source("prelude") + _source("commit" if name == POST else name)
        text = re.sub("(?<!['A-Z_])[A-Z][A-Z_]+(?!['A-Z_])", lambda met: words.get(met[0], met[0]), text)
        self.source = (_first_line(name, flags) + text).encode()
        digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        where = [b"%d" % len(keys.all), *keys.all]
        self._whole = b"".join(map(_bulk, (b"EVAL", self.source, *where)))
        self._known = b"".join(map(_bulk, (b"EVALSHA", digest, *where)))
        self._words = 3 + len(where)

    def request(self, args: Sequence[Any], whole: bool = False) -> bytes:
        """A call of this script, as it goes over the wire.

        :param whole: for a server that does not know the script; it does then.
        """
        # To Redis's cmsgpack, bytes are text.
        words = _bulk(msgpack.packb(args, use_bin_type=False))
        return b"*%d\r\n%b%b" % (self._words, self._whole if whole else self._known, words)


def _first_line(name: str, flags: bool) -> str:
    if name in READ_ONLY:
        return "#!lua flags=no-writes\n" if flags else ""
    if name == POST:
        return "#!lua\n" if flags else ""
    # Before Redis 7, a script that has written anything is no longer refused for want of memory.
    return "#!lua flags=allow-oom\n" if flags else "redis.call('HDEL', KEYS[1], '')\n"


def command(*words: bytes) -> bytes:
    """A plain command, as it goes over the wire."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(_bulk, words)))


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
