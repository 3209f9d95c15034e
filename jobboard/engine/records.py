"""Records of jobs as bytes, for stores that keep bytes, and the replacements of damaged records."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from typing import Any

import msgpack

from jobboard.primitives import Oddity
from jobboard.states import TRASHED, Failure, FailureKind, Record, State, stored_failure

_STORED = 100_000
"""The bytes of a damaged record that the trash keeps."""

_POSTING, _STATE, _ERRORS = map(Record._fields.index, ("posting", "state", "errors"))

_STATES = {str(state): state for state in State}
"""The states by their stored texts. A read of a job needs one; to call the enumeration takes ten times as long."""

_KNOWN = len(Record._fields)


def pack(record: Record, beside: str | None = None, unknown: Sequence[Any] = ()) -> bytes:
    """Return a record as msgpack, without its uuid, which is a part of its place.

    :param beside: a text that the store keeps with the record. :func:`unpack` returns it.
    :param unknown: the fields of a newer writer, as :func:`unpack` has returned them.
    """
    packed: bytes = msgpack.packb((beside, *record[1:], *unknown))
    return packed


def unpack(uuid: str, value: bytes, posting: bytes | None = None) -> tuple[Record, str | None, Sequence[Any]]:
    """Return a packed record, the text beside it, and the fields behind those that this version knows. Fields that an
    older writer did not know get their defaults.

    :param posting: the posting, if the store keeps it in another place.
    :raises ValueError: the record is damaged; the message says how.
    """
    try:
        fields = msgpack.unpackb(value)
        beside, fields[0] = fields[0], uuid
        fields[_STATE] = _STATES[fields[_STATE]]
        fields[_ERRORS] = tuple(itertools.starmap(stored_failure, fields[_ERRORS]))
        if posting is not None:
            fields[_POSTING] = posting
        return Record(*fields[:_KNOWN]), beside, tuple(fields[_KNOWN:])
    except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
        raise ValueError(f"its record can't be decoded: {str(error) or type(error).__name__}") from error


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
        errors=(Failure(now, None, 0, str(error), FailureKind.POISON),),
    )


def odd_job(uuid: str, place: str, reason: object) -> Oddity:
    """Return the doctor's report of a job whose record can't be decoded."""
    purge = f"'jobboard trash purge {shlex.quote(uuid)}' removes it"
    return Oddity(place, f"job {uuid}: {reason}", f"the claim that meets it puts it into the trash; {purge}")
