"""Traits of the server, read once at connect: a refusal of unfit servers, and the grounds of what a board promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redis import exceptions as errors

from jobboard.backends.redis.connections import Connections
from jobboard.backends.redis.scripts import command
from jobboard.exceptions import JobFailure

OLDEST = (6, 2)


@dataclass(frozen=True)
class Server:
    """A server, as far as a board depends on it.

    :param since_7: the server is Redis from 7 on, or Valkey, and knows flags of scripts and sharded channels.
    :param durable: the server writes each change to disk before it replies.
    :param replicas: the number of connected replicas.
    :param notes: the server in words.
    """

    since_7: bool
    durable: bool
    replicas: int
    notes: str


def server_of(connections: Connections, allow_eviction: bool) -> Server:
    """Ask the server what it is.

    :raises JobFailure: the server is too old, or evicts keys when its memory is full.
    """
    info = _parsed(connections.call(command(b"INFO", b"everything")))
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
    durable, persistence = _persistence(connections, info)
    return Server(
        since_7=compatible >= (7, 0),
        durable=durable and not policy.startswith("allkeys"),
        replicas=int(info.get("connected_slaves", "0")),
        notes=f"{name} {text}; {persistence}; maxmemory-policy {policy}",
    )


def _persistence(connections: Connections, info: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether the server is durable, and its persistence in words."""
    if info.get("aof_enabled") != "1":
        return False, "no append-only file: a crash loses all changes since the last snapshot"
    try:
        reply = connections.call(command(b"CONFIG", b"GET", b"appendfsync"))
    except errors.ResponseError:
        return False, "append-only file, of unknown appendfsync"
    words = [word for pair in reply.items() for word in pair] if isinstance(reply, dict) else reply
    fsync = words[1].decode() if len(words) > 1 else "unknown"
    loses = {"always": "nothing", "everysec": "about a second of writes"}.get(fsync, "what the system has not written")
    return fsync == "always", f"append-only file, appendfsync {fsync}: a power loss loses {loses}"


def _parsed(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
