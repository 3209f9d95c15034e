"""Details of TaskFlow's jobs as JSON.

Values of JSON's shape stay as they are, so that people can query them and plain handlers can read them. Any other value
becomes an object of one key, which names the type: ``{"$datetime": "2026-11-22T12:00:00"}``. An object of a user's own
that looks like that becomes ``{"$dict": [["$set", 1]]}``, as does an object with keys other than texts.
"""

from __future__ import annotations

import base64
import datetime
import math
import uuid
import zoneinfo
from collections.abc import Callable, Mapping, Set
from typing import Any

_LEAST, _MOST = -(2**63), 2**63 - 1


def encode_details(details: Any) -> dict[str, Any]:
    """Return the details of one of TaskFlow's jobs as a jobboard takes them.

    :raises TypeError: the details hold a value of a type that TaskFlow's boards don't take either.
    """
    encoded = encode(details or {})
    return encoded if isinstance(encoded, dict) else {"$value": encoded}


def decode_details(details: Mapping[str, Any]) -> Any:
    """Return the details that :func:`encode_details` was given. Tuples have become lists, as on TaskFlow's boards.

    :raises ValueError: a tag is followed by a value that is not of its type.
    """
    return decode(details)


def encode(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if _LEAST <= value <= _MOST else {"$int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Mapping):
        return _encode_mapping(value)
    if isinstance(value, (list, tuple)):
        return [encode(each) for each in value]
    for kind, tag, write in _WRITERS:
        if isinstance(value, kind):
            return {tag: write(value)}
    raise TypeError(f"details of type {type(value).__name__} can't be stored")


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        [(tag, content)] = value.items()
        if tag in _READERS:
            try:
                return _READERS[tag](content)
            except (TypeError, ValueError, LookupError) as error:
                raise ValueError(f"details hold {tag!r} with what is not one") from error
    return {key: decode(each) for key, each in value.items()}


def _encode_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    texts = all(isinstance(key, str) for key in value)
    if texts and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: encode(each) for key, each in value.items()}
    return {"$dict": [[encode(key), encode(each)] for key, each in value.items()]}


def _decode_mapping(pairs: Any) -> dict[Any, Any]:
    return {_hashable(decode(key)): decode(each) for key, each in pairs}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _members(value: Set[Any]) -> list[Any]:
    # Sorted, so that the same set is always written in the same way.
    return sorted((encode(each) for each in value), key=repr)


def _write_datetime(value: datetime.datetime) -> str:
    zone = f"[{value.tzinfo.key}]" if isinstance(value.tzinfo, zoneinfo.ZoneInfo) else ""
    return value.isoformat() + zone


def _read_datetime(text: str) -> datetime.datetime:
    instant, bracket, zone = text.removesuffix("]").partition("[")
    value = datetime.datetime.fromisoformat(instant)
    return value.astimezone(zoneinfo.ZoneInfo(zone)) if bracket else value


# The first type that fits is taken: a datetime is a date, too.
_WRITERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (datetime.datetime, "$datetime", _write_datetime),
    (datetime.date, "$date", datetime.date.isoformat),
    (uuid.UUID, "$uuid", str),
    (bytes, "$bytes", lambda value: base64.b64encode(value).decode()),
    (frozenset, "$frozenset", _members),
    (set, "$set", _members),
)

_READERS: dict[str, Callable[[Any], Any]] = {
    "$value": decode,
    "$int": int,
    "$float": float,
    "$dict": _decode_mapping,
    "$datetime": _read_datetime,
    "$date": datetime.date.fromisoformat,
    "$uuid": uuid.UUID,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$frozenset": lambda members: frozenset(_hashable(decode(each)) for each in members),
    "$set": lambda members: {_hashable(decode(each)) for each in members},
}
