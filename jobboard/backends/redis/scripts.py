"""The Lua scripts: read from ``lua/``, each behind ``writes.lua`` and ``board.lua``, and packed as requests."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgpack

from jobboard.backends.redis.keys import CONTAINERS, PLACE, Keys
from jobboard.backends.redis.records import FIELDS
from jobboard.engine import GATE
from jobboard.engine.calls import DAY, HOUR
from jobboard.engine.limits import AHEAD, REMEMBERED
from jobboard.primitives import RANKS, Limit
from jobboard.states import EXHAUSTED, FAILURE_BYTES, FAILURES, LAPSED

READ_ONLY = frozenset({"read", "listed", "newest", "remembered", "look", "page", "trash_page", "counts", "examine"})
"""These write nothing."""

IN_PASSING = frozenset({"setup", "bide", "leave", "peek", "tidy"})
"""What these write is written again by itself where a failover has lost it: they wait for no replica."""

NEEDS_ROOM = frozenset({"insert", "commit"})
"""All scripts but these go on when the server's memory is full, so that a full board drains."""

_ALL = ("writes", "board", "damage", "limits", "entries", "lanes", "waiters")
_MORE = {"take": "ready", "look": "ready", "peek": "ready", "bide": "ready", "insert": "posting", "commit": "posting"}
"""What stands before the script itself. A function costs each call that it stands before."""

_OF_A_LIMIT = [field.name for field in dataclasses.fields(Limit)]

_WORDS = {
    **{container.upper(): f"KEYS[{number}]" for number, container in enumerate(CONTAINERS, 1)},
    **{field.upper(): str(number) for number, field in enumerate(FIELDS, 1)},
    **{name.upper(): str(_OF_A_LIMIT.index(name) + 1) for name in ("concurrency", "rate", "binding")},
    "FIELDS": f"{{{str(FIELDS)[1:-1]}}}",
    "SEQUENCES": str(PLACE),  # they end here
    "STORABLE": str(2**53),  # times and tokens end here
    "RANKS": str(len(RANKS)),
    "FAILURES": str(FAILURES),
    "FAILURE_BYTES": str(FAILURE_BYTES),
    "EXHAUSTED": f'"{EXHAUSTED}"',
    "LAPSED": f'"{LAPSED}"',
    "AHEAD": str(AHEAD),
    "GATE": f"'{GATE[0]}\\0{GATE[1]}'",
    "REMEMBERED": str(REMEMBERED),
    "HOUR": str(HOUR),
    "DAY": str(DAY),
    "CAP": str(10_000_000),  # a waiter sleeps no longer, as RedisEngine.poll_cap has it
    "OVERDUE": "100",  # how many a take sweeps at most
    "LATER": str(60 * 1_000_000),  # after how many µs it looks again at a scope in which somebody has a claim
    "DROPPED": "200",  # how many side records a tidying drops before others have their turn
    "WORDS": "4000",  # Lua unpacks no more than 8000
    "MOST": "1000",  # a script that has met so many strays looks no further
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
        parts = (*_ALL, *filter(None, [_MORE.get(name)]), name)
        words = {
            **_WORDS,
            "WRITES": str(name not in READ_ONLY).lower(),
            "PUBLISH": repr("SPUBLISH" if flags else "PUBLISH"),
        }
        text = re.sub("[A-Z][A-Z_]+", lambda met: words.get(met[0], met[0]), "".join(map(_source, parts)))
        self.source = (_first_line(name, flags) + text).encode()
        digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        where = [b"%d" % len(keys.all), *keys.all]
        self._where = b"".join(map(_bulk, where))
        self._known = b"".join(map(_bulk, (b"EVALSHA", digest))) + self._where
        self._words = 2 + len(where)

    def request(self, args: Sequence[Any], postings: Sequence[bytes] = (), whole: bool = False) -> bytes:
        """A call of this script, as it goes over the wire.

        :param whole: for a server that does not know the script; it does then.
        """
        # To Redis's cmsgpack, bytes are text.
        words = b"".join(map(_bulk, (msgpack.packb(args, use_bin_type=False), *postings)))
        head = b"".join(map(_bulk, (b"EVAL", self.source))) + self._where if whole else self._known
        return b"*%d\r\n%b%b" % (self._words + 1 + len(postings), head, words)


def _first_line(name: str, flags: bool) -> str:
    if name in READ_ONLY:
        return "#!lua flags=no-writes\n" if flags else ""
    if name in NEEDS_ROOM:
        return "#!lua\n" if flags else ""
    # Before Redis 7, a script that has written anything is no longer refused for want of memory.
    return "#!lua flags=allow-oom\n" if flags else "redis.call('HDEL', KEYS[1], '')\n"


def command(*words: bytes) -> bytes:
    """A plain command, as it goes over the wire."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(_bulk, words)))


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
