"""Records of jobs as bytes, for stores that keep bytes, and the replacements of damaged records."""

from __future__ import annotations

import itertools
import operator
import shlex
from typing import Any

import msgpack

from jobboard.primitives import Oddity
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, Failure, Record, State

_MOST = 2**62
"""A token must have room to rise."""

_STORED = 100_000
"""The bytes of a damaged record that the trash keeps."""

Forms = frozenset[tuple[type, ...]]
"""The types of all fields of a stored thing, in each combination. One look-up checks a record, as every claim does."""

_TEXT, _NUMBER = (str, type(None)), (int, type(None))
_TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "priority": (int,),
    "sequence": (int,),
    "key": _TEXT,
    "version": (int,),
    "posting": (bytes, str),
    "state": (str,),
    "attempts": (int,),
    "max_attempts": _NUMBER,
    "token": (int,),
    "who": _TEXT,
    "keeper": _TEXT,
    "lock_until": _NUMBER,
    "created_on": (int,),
    "modified_on": (int,),
    "errors": (list,),
    "retries": (int,),
    "group": _TEXT,
    "key_until": _NUMBER,
}
"""The types of the fields of a record behind its uuid, in their order."""

_FAILURE: tuple[tuple[type, ...], ...] = ((int,), _TEXT, (int,), (str,))

_FORMS: Forms = frozenset(itertools.product(_TEXT, *_TYPES.values()))
_FAILURE_FORMS: Forms = frozenset(itertools.product(*_FAILURE))

_POSTING, _STATE, _ERRORS = map(Record._fields.index, ("posting", "state", "errors"))
_numbers_of = operator.itemgetter(*(Record._fields.index(field) for field, types in _TYPES.items() if int in types))


def pack(record: Record, beside: str | None = None) -> bytes:
    """Return a record as msgpack, without its uuid, which is a part of its place.

    :param beside: a text that the store keeps with the record. :func:`unpack` returns it.
    """
    packed: bytes = msgpack.packb((beside, *record[1:]))
    return packed


def unpack(uuid: str, value: bytes, posting: bytes | None = None) -> tuple[Record, str | None]:
    """Return a packed record, and the text beside it.

    :param posting: the posting, if the store keeps it in another place.
    :raises ValueError: the record is damaged; the message says how.
    """
    try:
        fields = msgpack.unpackb(value)
        _check(fields, _FORMS)
        numbers = [number for number in _numbers_of(fields) if number is not None]
        beside, fields[0] = fields[0], uuid
        fields[_STATE] = State(fields[_STATE])
        fields[_ERRORS] = tuple(map(_failure, fields[_ERRORS]))
        if posting is not None:
            fields[_POSTING] = posting
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        why = str(error) or type(error).__name__
        raise ValueError(f"its record can't be decoded: {why}") from error
    if min(numbers) < 0 or max(numbers) >= _MOST:
        raise ValueError("its record can't be decoded: a number is out of range")
    record = Record._make(fields)
    if (record.state == CLAIMED and (record.who is None or (record.keeper is None and record.lock_until is None))) or (
        record.state == SCHEDULED and record.lock_until is None
    ):
        raise ValueError(f"its record can't be decoded: it contradicts its state, {str(record.state)!r}")
    return record, beside


def damaged(uuid: str, value: bytes, error: ValueError, now: int) -> Record:
    """Return the record that replaces a damaged one: a job in the trash, with the reason. The first claim that meets
    the damaged record stores the replacement."""
    return Record(
        uuid=uuid,
        name="damaged",
        priority=0,
        sequence=0,
        key=None,
        version=1,
        posting=value[:_STORED],
        state=TRASHED,
        attempts=0,
        max_attempts=None,
        token=0,
        who=None,
        keeper=None,
        lock_until=None,
        created_on=now,
        modified_on=now,
        errors=(Failure(now, None, 0, str(error)),),
    )


def odd_job(uuid: str, place: str, reason: object) -> Oddity:
    """Return the doctor's report of a job whose record can't be decoded."""
    purge = f"'jobboard trash purge {shlex.quote(uuid)}' removes it"
    return Oddity(place, f"job {uuid}: {reason}", f"the claim that meets it puts it into the trash; {purge}")


def _failure(fields: Any) -> Failure:
    _check(fields, _FAILURE_FORMS)
    return Failure._make(fields)


def _check(fields: Any, forms: Forms) -> None:
    if not isinstance(fields, list) or tuple(map(type, fields)) not in forms:
        raise ValueError("it has another form")
