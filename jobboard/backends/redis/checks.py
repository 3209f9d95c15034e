"""What a server is like, asked once at connect: whether a board may live there, and what it can promise."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from redis import exceptions as errors

from jobboard.backends.redis.links import RedisLinks
from jobboard.backends.redis.scripts import command
from jobboard.exceptions import JobFailure

LOG = logging.getLogger(__name__)

OLDEST = (6, 2)


@dataclass(frozen=True)
class ServerTraits:
    """``flags``: it takes scripts that say what they may do. ``durable``: it syncs each write to disk before it
    answers. ``replicas``: how many are connected."""

    flags: bool
    durable: bool
    replicas: int
    notes: str


def look_at(links: RedisLinks, allow_eviction: bool) -> ServerTraits:
    """:raises JobFailure: the server is too old, or would drop jobs when its memory is full."""
    try:
        info = _parsed(links.call(command(b"INFO", b"everything")))
    except errors.ResponseError as error:
        LOG.warning("the server does not let its INFO be read, so nothing about it is checked: %s", error)
        # Known from Redis 7 on: what the scripts themselves go by.
        flags = bool(links.call(command(b"EVAL", b"return redis.REDIS_VERSION_NUM or 0", b"0")))
        return ServerTraits(flags=flags, durable=False, replicas=0, notes="the server does not tell what it is like")
    name = "Valkey" if "valkey_version" in info else "Redis"
    text = info.get("valkey_version") or info.get("redis_version", "0")
    compatible = tuple(int(part) for part in info.get("redis_version", "0").split(".")[:2] if part.isdigit())
    if compatible < OLDEST:
        raise JobFailure(f"the server is {name} {text}; a board needs Redis 6.2 or newer, or Valkey")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") and not allow_eviction:
        raise JobFailure(
            f"the server's maxmemory-policy is {policy}: it would drop whole boards when its memory is full. "
            "Set it to noeviction (or a volatile- one), or the option allow_eviction=true if losing jobs is fine"
        )
    durable, persistence = _persistence(links, info)
    return ServerTraits(
        flags=compatible >= (7, 0),
        durable=durable and not policy.startswith("allkeys"),
        replicas=int(info.get("connected_slaves", "0")),
        notes=f"{name} {text}; {persistence}; maxmemory-policy {policy}",
    )


def _persistence(links: RedisLinks, info: Mapping[str, str]) -> tuple[bool, str]:
    if info.get("aof_enabled") != "1":
        return False, "no append-only file: a crash loses what came after the last snapshot"
    try:
        reply = links.call(command(b"CONFIG", b"GET", b"appendfsync"))
    except errors.ResponseError:
        return False, "append-only file, of unknown appendfsync"
    words = [word for pair in reply.items() for word in pair] if isinstance(reply, dict) else reply
    fsync = words[1].decode() if len(words) > 1 else "unknown"
    loses = {"always": "nothing", "everysec": "about a second of writes"}.get(fsync, "what the system has not written")
    return fsync == "always", f"append-only file, appendfsync {fsync}: a power loss loses {loses}"


def _parsed(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
