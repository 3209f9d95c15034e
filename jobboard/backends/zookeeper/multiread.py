"""Several reads in one request, of one instant: the server's multiRead, which kazoo lacks.

It is handed to kazoo by ``KazooClient._call``, which is not public: hence the upper bound on kazoo's version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

_HEADERS = {kind: bytes(multiheader_struct.pack(kind, False, -1)) for kind in (GetData.type, GetChildren.type)}
_END = bytes(multiheader_struct.pack(-1, True, -1))


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

    def send(self, client: KazooClient) -> Any:
        answer = client.handler.async_result()
        client._call(self, answer)
        return answer

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
        else:
            results.append(EXCEPTIONS.get(int_struct.unpack_from(data, offset)[0], NoNodeError)())
            offset += int_struct.size
        kind, done, _ = multiheader_struct.unpack_from(data, offset)
        offset += multiheader_struct.size
    return results
