"""How a job and a side record are stored."""

from __future__ import annotations

import logging
import operator
from typing import Any, NamedTuple

import msgpack

from jobboard.backends.zookeeper.paths import UNKNOWN, sequence_of
from jobboard.engine import Side
from jobboard.states import CLAIMED, LIVE, SCHEDULED, TRASHED, Failure, Record, State

LOG = logging.getLogger(__name__)

INLINE = 2048
"""Up to how many bytes posting and errors are kept in the job's own znode."""


class Tag(NamedTuple):
    """Tells a version of a job from every other: the version of its znode, and where its entry lies, whose path is
    never made twice. The rest is what a change has to take down.

    ``listed``: the other entry, of its end, its keeper or its time in the trash. ``body``: names the znode of its
    posting and errors, "" where these are in the job's own."""

    version: int
    folder: int
    n: int
    entry: str
    listed: str
    body: str

    @property
    def keeper(self) -> str | None:
        """What keeps the claim, if a session does."""
        tree, _, listed = self.listed.partition("/")
        return listed.partition("/")[0] if tree == "kept" else None


class Guard(NamedTuple):
    """What holds as long as nothing has come in before a job that was known to be the next one: the bell's version, and
    the keepers that live."""

    bell: int
    keepers: tuple[str, ...]


class Guarded(NamedTuple):
    """The tag of a job that was known to be the next one, and was not looked for."""

    tag: Tag
    guard: Guard


_TEXT, _NUMBER = (str, type(None)), (int, type(None))
_FIELDS: dict[str, Any] = {
    "name": str,
    "priority": int,
    "key": _TEXT,
    "version": int,
    "state": str,
    "attempts": int,
    "max_attempts": _NUMBER,
    "token": int,
    "who": _TEXT,
    "keeper": _TEXT,
    "lock_until": _NUMBER,
    "created_on": int,
    "modified_on": int,
    "retries": int,
    "group": _TEXT,
    "key_until": _NUMBER,
}
_values = operator.attrgetter(*_FIELDS)
_FAILURE = (int, _TEXT, int, str)
_TYPES = (int, int, str, str, bytes, *_FIELDS.values())


def pack(record: Record, tag: Tag, content: bytes) -> bytes:
    """A job's znode. ``content``: posting and errors, unless they lie in a znode of their own."""
    packed: bytes = msgpack.packb((tag.folder, tag.n, tag.listed, tag.body, content, *_values(record)))
    return packed


def pack_content(record: Record) -> bytes:
    return bytes(msgpack.packb((record.posting, record.errors)))


def _unpacked(data: bytes, types: tuple[Any, ...]) -> list[Any]:
    """:raises ValueError: it is of another form."""
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"its record can't be decoded: {error}") from error
    return _typed(fields, types)


def _typed(fields: Any, types: tuple[Any, ...]) -> list[Any]:
    """:raises ValueError: it is of another form."""
    if not isinstance(fields, list) or len(fields) != len(types) or not all(map(isinstance, fields, types)):
        raise ValueError("its record can't be decoded: it is of another form")
    return fields


class Head(NamedTuple):
    """A job's znode: all but the name of its entry, and a content that lies elsewhere."""

    uuid: str
    tag: Tag
    record: Record
    content: bytes

    @classmethod
    def unpack(cls, uuid: str, data: bytes, version: int) -> Head:
        """:raises ValueError: this is no job."""
        folder, n, index, body, content, *fields = _unpacked(data, _TYPES)
        values = dict(zip(_FIELDS, fields, strict=True))
        numbers = [folder, n + 1, *(field for field in fields if isinstance(field, int))]
        # A token must have room to rise.
        if min(numbers) < 0 or max(numbers) >= 2**62:
            raise ValueError("its record can't be decoded: a number is out of range")
        state, who = values["state"], values["who"]
        held = who is not None and (values["keeper"] is not None or values["lock_until"] is not None)
        if (
            state not in (*LIVE, TRASHED)
            or (state == CLAIMED and not held)
            or (state == SCHEDULED and values["lock_until"] is None)
        ):
            raise ValueError(f"its record can't be decoded: it contradicts its state, {state!r}")
        values["state"] = State(state)
        sequence = sequence_of(values["priority"], folder, n)
        record = Record(uuid=uuid, sequence=sequence, posting=b"", **values)
        return cls(uuid, Tag(version, folder, n, "", index, body), record, content)

    @classmethod
    def damaged(cls, uuid: str, data: bytes, version: int, error: ValueError, at: int) -> Head:
        """One that can't be read counts as trashed, and whoever meets it moves there what there is of it."""
        LOG.warning("job %s is set aside: %s", uuid, error)
        record = Record(
            uuid=uuid,
            name="",
            priority=0,
            sequence=0,
            key=None,
            version=0,
            posting=data[: INLINE * 100],
            state=TRASHED,
            attempts=0,
            max_attempts=None,
            token=0,
            who=None,
            keeper=None,
            lock_until=None,
            created_on=at,
            modified_on=at,
            errors=(Failure(at, None, 0, str(error)),),
        )
        return cls(uuid, Tag(version, 0, UNKNOWN, "", "", ""), record, b"")

    @property
    def is_damaged(self) -> bool:
        return bool(self.record.errors)

    def whole(self, content: bytes) -> Record:
        """:raises ValueError: this is not a job's content."""
        posting, errors = _unpacked(content, ((bytes, str), list))
        try:
            told = tuple(Failure(*_typed(each, _FAILURE)) for each in errors)
        except ValueError as error:
            raise ValueError(f"its errors can't be decoded: {error}") from error
        return self.record._replace(posting=posting, errors=told)


class SideTag(NamedTuple):
    """``mark``: what lies under the side record's znode as long as it stands."""

    version: int
    mark: str


def pack_side(mark: str, until: int | None, value: bytes) -> bytes:
    return bytes(msgpack.packb((mark, until, value)))


def unpack_side(kind: str, key: str, data: bytes, version: int) -> Side:
    """:raises ValueError: this is no side record."""
    mark, until, value = _unpacked(data, (str, _NUMBER, bytes))
    return Side(kind, key, value, until, SideTag(version, mark))
