"""The Lua scripts of ``lua/``, each behind ``prelude.lua``, and their requests as bytes."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgpack

from jobboard.backends.redis.keys import CONTAINERS, Keys
from jobboard.backends.redis.records import BEHIND, LAST, TAG
from jobboard.engine.store import GATE, OVERDUE
from jobboard.primitives import HELD_UNTIL
from jobboard.states import Record
from jobboard.units import HOUR, SECOND

READ_ONLY = frozenset({"read", "look", "scan", "counts"})
"""Scripts that write nothing."""

IN_PASSING = frozenset({"setup", "wait", "leave", "tidy"})
"""Scripts that wait for no replica: their changes are made again if a failover loses them."""

POST = "post"
"""The commit script for new jobs. A server whose memory is full refuses this script alone, so that a full board
drains."""

CAP = 30.0
"""Seconds that a waiter sleeps at most. Scripts publish no lease or delay that ends later."""

_FIELDS = (
    *("tail", "name", "priority", "sequence", "key", "version", "posting", "state", "attempts", "most", "token"),
    *("who", "keeper", "until", "created", "modified"),
)
"""The first fields of a packed record, which scripts read and change. The tail is no field of the record itself."""

_WORDS = {
    **{container.upper(): f"KEYS[{number}]" for number, container in enumerate(CONTAINERS, 1)},
    **{f"N_{container.upper()}": str(number) for number, container in enumerate(CONTAINERS, 1)},
    **{field.upper(): str(number) for number, field in enumerate(_FIELDS, 2)},
    "FIELDS": str(len(_FIELDS)),
    "HEADER": f"'\\220\\0\\{len(Record._fields)}'",  # an array of so many fields
    "NO_FAILURES": "'\\144'",  # an empty array
    "NONE_BEHIND": "'" + len(BEHIND) * "\\192" + "'",  # the last fields of most new jobs, which are nil
    "BEGIN": str(TAG + 3),  # behind the tag and the header
    "VALUE": str(2 * TAG),  # the length of a side record before its value
    "GATE": f"'{GATE[0]}\\0{GATE[1]}'",
    "LAST": str(LAST),
    "HELD_UNTIL": str(HELD_UNTIL),
    "HOUR": str(HOUR),
    "SECOND": str(SECOND),
    "CAP": str(int(CAP * SECOND)),
    "OVERDUE": str(OVERDUE),
    "AHEAD": "1000",  # the jobs that a look reads at once where scopes are full
    "DROPPED": "200",  # the most side records that one request drops
    "WALK": "2000",  # the most jobs that one request for a page passes over
    "WORDS": "4000",  # the most words of a command: Lua unpacks 8000 at most, and words come in pairs
}
"""The words in capitals in scripts, and their text. As Lua locals, they would cost more than the work of most calls."""


@functools.cache
def _source(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


class Script:
    """A script of one board.

    :param since_7: the server knows flags of scripts and sharded channels: Redis from 7, and Valkey.
    """

    def __init__(self, name: str, keys: Keys, since_7: bool) -> None:
        self.is_relied_on = name not in READ_ONLY | IN_PASSING
        words = {
            **_WORDS,
            "PUBLISH": "'SPUBLISH'" if since_7 else "'PUBLISH'",
            "NUMSUB": "'SHARDNUMSUB'" if since_7 else "'NUMSUB'",
        }
        text = _source("prelude") + _source("commit" if name == POST else name)
        text = re.sub("(?<!['A-Z_])[A-Z][A-Z_]+(?!['A-Z_])", lambda met: words.get(met[0], met[0]), text)
        self.source = (_first_line(name, since_7) + text).encode()
        digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        where = [b"%d" % len(keys.all), *keys.all]
        self._whole = b"".join(map(_bulk, (b"EVAL", self.source, *where)))
        self._known = b"".join(map(_bulk, (b"EVALSHA", digest, *where)))
        self._words = 3 + len(where)

    def request(self, args: Sequence[Any], whole: bool = False) -> bytes:
        """Return a request for a call of this script, as bytes.

        :param whole: send the text of the script, for a server that does not know it yet.
        """
        # The cmsgpack of Redis has no type for bytes.
        words = _bulk(msgpack.packb(args, use_bin_type=False))
        return b"*%d\r\n%b%b" % (self._words, self._whole if whole else self._known, words)


def _first_line(name: str, since_7: bool) -> str:
    if name in READ_ONLY:
        return "#!lua flags=no-writes\n" if since_7 else ""
    if name == POST:
        return "#!lua\n" if since_7 else ""
    # Before Redis 7, a server whose memory is full refuses a script only until the script has written something.
    return "#!lua flags=allow-oom\n" if since_7 else "redis.call('HDEL', KEYS[1], '')\n"


def command(*words: bytes) -> bytes:
    """Return the request for a plain command, as bytes."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(_bulk, words)))


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
