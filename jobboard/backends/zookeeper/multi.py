"""Several reads, or several changes, in one request and of one instant.

The server's multiRead is one that kazoo lacks. Its own multi takes 25 µs for each operation, more than all that the
board does with it; this one takes two. Both are handed to kazoo by ``KazooClient._call``, which is not public: hence
the upper bound on kazoo's version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    GetChildren,
    GetData,
    SetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from jobboard.backends.zookeeper.requests import Op

_HEADERS = {
    each.type: bytes(multiheader_struct.pack(each.type, False, -1))
    for each in (GetData, GetChildren, Create, Delete, SetData, CheckVersion)
}
_END = bytes(multiheader_struct.pack(-1, True, -1))
_CREATE, _DELETE, _PUT, _CHECK = (_HEADERS[each.type] for each in (Create, Delete, SetData, CheckVersion))

_number: Callable[[int], bytes] = int_struct.pack


class Multi:
    """All of these or none. Creations answer a path, writes a stat, the others True. Where one is refused, each answers
    an exception.

    :param acl: of what is created; None: the client's own."""

    type = 14

    def __init__(self, client: KazooClient, ops: Sequence[Op], acl: Sequence[Any] | None) -> None:
        acls = list(acl or client.default_acl or OPEN_ACL_UNSAFE)
        allowed = b"".join(_number(each.perms) + _text(each.id.scheme) + _text(each.id.id) for each in acls)
        allowed = _number(len(acls)) + allowed
        chroot = client.chroot
        parts: list[bytes] = []
        for do, path, arguments in ops:
            name = (chroot + path).encode()
            if do == "create":
                data, _, ephemeral, sequence = arguments
                flags = _number(ephemeral + 2 * sequence)
                parts += (_CREATE, _number(len(name)), name, _number(len(data)), data, allowed, flags)
            elif do == "delete":
                parts += (_DELETE, _number(len(name)), name, _number(arguments[0]))
            elif do == "check":
                parts += (_CHECK, _number(len(name)), name, _number(arguments[0]))
            else:
                data, version = arguments
                parts += (_PUT, _number(len(name)), name, _number(len(data)), data, _number(version))
        self._payload = b"".join((*parts, _END))

    def serialize(self) -> bytes:
        return self._payload

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        return _results(data, offset)


class MultiRead:
    """``reads``: paths, and whether their children are asked for, which answers (names, stat), or their data, (data,
    stat). What is not there answers a NoNodeError, as in kazoo's own requests."""

    type = 22

    def __init__(self, chroot: str, reads: Sequence[tuple[str, bool]]) -> None:
        self._listed = [listed for _, listed in reads]
        parts: list[bytes] = []
        for path, listed in reads:
            name = (chroot + path).encode()
            payload = int_struct.pack(len(name)) + name + b"\0"
            if listed:
                parts += (_HEADERS[GetChildren.type], payload)
            parts += (_HEADERS[GetData.type], payload)
        self._payload = b"".join((*parts, _END))

    def serialize(self) -> bytes:
        return self._payload

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        results = iter(_results(data, offset))
        found: list[Any] = []
        for listed in self._listed:
            names = next(results) if listed else None
            answer = next(results)
            if listed and not isinstance(answer, Exception):
                answer = names if isinstance(names, Exception) else (names, answer[1])
            found.append(answer)
        return found


def send(client: KazooClient, request: Multi | MultiRead) -> Any:
    """kazoo's promise of the answer."""
    answer = client.handler.async_result()
    client._call(request, answer)
    return answer


def _text(text: str) -> bytes:
    data = text.encode()
    return _number(len(data)) + data


def _results(data: bytes, offset: int) -> list[Any]:
    results: list[Any] = []
    # By hand: kazoo's headers, objects of their own, take longer than all the rest.
    kind, done, _ = multiheader_struct.unpack_from(data, offset)
    offset += multiheader_struct.size
    while not done:
        if kind == GetData.type:
            content, offset = read_buffer(data, offset)
            stat = ZnodeStat._make(stat_struct.unpack_from(data, offset))
            offset += stat_struct.size
            results.append((bytes(content or b""), stat))
        elif kind == GetChildren.type:
            names = []
            (count,) = int_struct.unpack_from(data, offset)
            offset += int_struct.size
            for _ in range(count):
                name, offset = read_string(data, offset)
                names.append(name)
            results.append(names)
        elif kind == Create.type:
            path, offset = read_string(data, offset)
            results.append(path)
        elif kind == SetData.type:
            results.append(ZnodeStat._make(stat_struct.unpack_from(data, offset)))
            offset += stat_struct.size
        elif kind == -1:
            results.append(EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]())
            offset += int_struct.size
        else:
            results.append(True)
        kind, done, _ = multiheader_struct.unpack_from(data, offset)
        offset += multiheader_struct.size
    return results
