"""The requests that are sent: kazoo's own, and two that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import EXCEPTIONS, NoNodeError, RolledBackError
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
    write_string,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

EPHEMERAL, SEQUENCE = 1, 2

LIMIT = 900_000
"""The bytes that one request may have: the server's limit is 1 MiB, and a job must still fit when it has an owner, an
answer and an error of 16 KiB."""

Op = Any


class Data(NamedTuple):
    """A znode's content."""

    data: bytes
    stat: Any


class Refused(Exception):
    """A multi was not carried out, because of its operation number ``index``."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class Ops:
    """Makes the operations of a multi, as the bytes that are sent, with the ACL that what is created gets."""

    def __init__(self, acl: Sequence[Any] | None) -> None:
        acls = list(acl or OPEN_ACL_UNSAFE)
        parts = [_number(each.perms) + _text(each.id.scheme) + _text(each.id.id) for each in acls]
        self._acl = _number(len(acls)) + b"".join(parts)

    def create(self, path: str, data: bytes = b"", flags: int = 0) -> Op:
        return b"".join((_CREATE, _text(path), _number(len(data)), data, self._acl, _number(flags)))

    @staticmethod
    def delete(path: str, version: int) -> Op:
        return b"".join((_DELETE, _text(path), _number(version)))

    @staticmethod
    def set(path: str, data: bytes, version: int) -> Op:
        return b"".join((_SET, _text(path), _number(len(data)), data, _number(version)))

    @staticmethod
    def check(path: str, version: int) -> Op:
        return b"".join((_CHECK, _text(path), _number(version)))


_number: Callable[[int], bytes] = int_struct.pack


def _text(text: str) -> bytes:
    data = text.encode()
    return _number(len(data)) + data


_CREATE, _DELETE, _SET, _CHECK = (
    bytes(multiheader_struct.pack(each.type, False, -1)) for each in (Create, Delete, SetData, CheckVersion)
)
_END = bytes(multiheader_struct.pack(-1, True, -1))


class Multi:
    """All of its operations or none, at one instant. Creations answer a path, writes a stat, the others True."""

    type = 14

    def __init__(self, ops: Sequence[Op]) -> None:
        self._payload = b"".join((*ops, _END))
        self.size = len(self._payload)

    def serialize(self) -> bytes:
        return self._payload

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        return _results(data, offset)

    @staticmethod
    def check(results: list[Any]) -> list[Any]:
        """:raises Refused: it was not carried out."""
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                raise Refused(index, result)
        return results


class MultiRead:
    """Several reads in one request, of one instant. Data answer a :class:`Data`, children a list, nothing there None.

    A server before 3.6 does not know it."""

    type = 22

    def __init__(self, reads: Sequence[Op]) -> None:
        parts = [bytes(multiheader_struct.pack(op.type, False, -1) + op.serialize()) for op in reads]
        self._payload = b"".join((*parts, _END))

    def serialize(self) -> bytes:
        return self._payload

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        return [None if isinstance(each, NoNodeError) else each for each in _results(data, offset)]


def _results(data: bytes, offset: int) -> list[Any]:
    """What each operation of a multi was answered, an exception where it was refused."""
    results: list[Any] = []
    # By hand: kazoo's headers, objects of their own, take longer than all the rest.
    kind, done, _ = multiheader_struct.unpack_from(data, offset)
    offset += multiheader_struct.size
    while not done:
        if kind == GetData.type:
            content, offset = read_buffer(data, offset)
            stat = ZnodeStat._make(stat_struct.unpack_from(data, offset))
            offset += stat_struct.size
            results.append(Data(bytes(content or b""), stat))
        elif kind == Create.type:
            path, offset = read_string(data, offset)
            results.append(path)
        elif kind == SetData.type:
            results.append(ZnodeStat._make(stat_struct.unpack_from(data, offset)))
            offset += stat_struct.size
        elif kind == GetChildren.type:
            names = []
            (count,) = int_struct.unpack_from(data, offset)
            offset += int_struct.size
            for _ in range(count):
                name, offset = read_string(data, offset)
                names.append(name)
            results.append(names)
        elif kind == -1:
            results.append(EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]())
            offset += int_struct.size
        else:
            results.append(True)
        kind, done, _ = multiheader_struct.unpack_from(data, offset)
        offset += multiheader_struct.size
    return results


class RemoveWatches:
    """Has the server forget this session's watches on a path."""

    type = 18

    def __init__(self, path: str, kind: int) -> None:
        self._path = path
        self._kind = kind

    def serialize(self) -> bytes:
        return bytes(write_string(self._path) + int_struct.pack(self._kind))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> bool:
        return True


def get(path: str) -> Op:
    return GetData(path, None)


def children(path: str) -> Op:
    return GetChildren(path, None)
