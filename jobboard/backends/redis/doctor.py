"""What is odd in the containers of a board, and how its server is set up: for ``board.examine()``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

from jobboard.backends.redis.checks import ServerTraits
from jobboard.backends.redis.keys import CONTAINERS, Keys
from jobboard.primitives import Oddity

_ZREM, _HDEL = "redis-cli{quoted} ZREM {key} {entry}", "redis-cli{quoted} HDEL {key} {entry}"
_BACK = "'jobboard cancel {shown}', then 'jobboard trash restore {shown}' puts it where it belongs"

_ODD = {
    "type": ("it is of another type than a board's", "no call goes well: rename {key}, and see what it is"),
    "damaged": (
        "the record of the job is damaged",
        "the call that meets it next puts what can be read of it into the trash; 'jobboard cancel {shown}' does so now",
    ),
    "bare": (
        "the record of the job is damaged, and its details are missing",
        "the call that meets it drops it, or: " + _HDEL,
    ),
    "left": ("the record of its job is damaged, and does not tell the key", "it does no harm, or: " + _HDEL),
    "lost": ("the job is not where it would be served from", _BACK),
    "lost claim": ("the claim of the job will never lapse", "'jobboard release {shown}'"),
    "lost in trash": ("the trash does not show the job", "'jobboard trash restore {shown}', or purge it"),
    "key": ("the job's key is not held: another job can be posted with it", "let it be worked off, or cancel it"),
    "details": ("the details of the job are missing", "the claim that meets it puts it into the trash"),
    "uuid": ("its name is no uuid: no board has posted it", _HDEL),
    "no job": ("its job is missing", ""),
    "elsewhere": ("its job is in another state", ""),
    "entry": ("it can't be read", _HDEL),
    "no side": ("its side record is missing", ""),
    "unlisted": ("no list of outcomes shows it", "it does no harm, or: " + _HDEL),
    "end": ("nothing will ever drop it", _HDEL),
    "no lane": ("none of its jobs is ready", ""),
    "no bell": ("nobody is there who would wait", _ZREM),
    "layout": ("it names no layout", "it is written anew when a board connects"),
    "counter": ("it counts no posts", "the next post makes it go on from the time"),
}


def examine(run: Callable[..., Any], keys: Keys, server: ServerTraits, allow_eviction: bool) -> Iterator[Oddity]:
    if allow_eviction and "allkeys" in server.notes:
        yield Oddity(
            "server", server.notes, "set maxmemory-policy noeviction, or the board is dropped for want of room"
        )
    for number, container in enumerate(CONTAINERS, 1):
        cursor = b"0"
        while True:
            cursor, found = run("examine", number, cursor.decode(), list(CONTAINERS.values()))
            for entry, what in found:
                if what == b"type":
                    yield _oddity(keys, list(CONTAINERS)[entry - 1], b"", "type")
                    return
                yield _oddity(keys, container, entry, what.decode())
            if cursor == b"0":
                break


def _oddity(keys: Keys, container: str, entry: bytes, what: str) -> Oddity:
    reason, advice = _ODD[what]
    if not advice:
        advice = (
            "it goes with the claim that meets it, or: " if CONTAINERS[container] == "zset" else "it does no harm, or: "
        ) + (_HDEL if CONTAINERS[container] == "hash" else _ZREM)
    shown = entry.decode("utf-8", "backslashreplace")
    where = container if what == "type" else f"{container} {shown}"
    return Oddity(where, reason, advice.format(shown=shown, **_words(keys.of(container), entry)))


def _words(key: bytes, entry: bytes) -> dict[str, str]:
    """A key and what it contains, as a shell is to be given them for redis-cli: what can't be typed is escaped."""
    plain = all(32 <= byte < 127 for byte in key + entry)
    key_word, entry_word = (each.decode() if plain else f'"{_escaped(each)}"' for each in (key, entry))
    return {
        "quoted": "" if plain else " --quoted-input",
        "key": shlex.quote(key_word),
        "entry": shlex.quote(entry_word),
    }


def _escaped(word: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word)
