"""The stored form of a job: its record, its posting, and its members in the containers.

A stored record is a tag of 18 digits and the record as :func:`jobboard.engine.records.pack` packs it, without the
posting and with the *tail*, which is the end of most members. Scripts read and change the first fields, and pass the
others through. A note lies behind the posting, so that renewals do not write it again; the record has its length.

========  =========================================================================  =====================
ready     NUL and the tail; its name, NUL and the tail                               UNCLAIMED
live      the tail                                                                   all but TRASHED
due       until, sequence, uuid                                                      SCHEDULED
leases    until, sequence, uuid                                                      CLAIMED
final     until, sequence, uuid of a job that goes to the trash if its claim lapses  CLAIMED
expiries  expires, sequence, uuid of a job that expires                              UNCLAIMED, SCHEDULED
trash     LAST - modified_on, LAST - sequence, uuid                                  TRASHED
tail      rank (3 digits), sequence, uuid, NUL, version, NUL, name, NUL, group
========  =========================================================================  =====================

All numbers but the version and the rank have 18 digits, so that members sort as numbers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgpack

from jobboard.engine import Side, Stored, damaged_value, records
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Record

TAG = 18
"""The length of a tag."""

LAST = 9 * 10**15
"""The minuend of numbers that sort downwards: their members have LAST - number, which Lua computes exactly."""

BEHIND = Record._fields[Record._fields.index("expires") + 1 :]
"""The last fields of a record, which a new job has from the draft's fields of the same names. Scripts pass them on."""

assert Draft._fields[-len(BEHIND) :] == BEHIND, "a new field is the last one of a draft and of a record"

_NONE = [None] * len(BEHIND)

Entry = tuple[str, str]
"""A container and a member of it."""


class Damaged(NamedTuple):
    """The tag of a job whose record cannot be decoded, and the entries by which the job was found."""

    tag: bytes
    entries: frozenset[Entry]


def text_of(raw: bytes) -> str:
    """Return text of the server, and escapes for bytes that are no text."""
    return raw.decode("utf-8", "backslashreplace")


def tail_of(record: Record) -> str:
    rank, sequence, group = record.priority, record.sequence, record.group or ""
    return f"{rank:03d}{sequence:018d}{record.uuid}\0{record.version}\0{record.name}\0{group}"


def entries_of(record: Record) -> set[Entry]:
    """Return the entries of a job: its members in containers."""
    if record.state == TRASHED:
        return {("trash", newest(record.modified_on, record.sequence) + record.uuid)}
    tail = tail_of(record)
    entries, job = {("live", tail)}, f"{record.sequence:018d}{record.uuid}"
    if record.state == UNCLAIMED:
        entries |= ready_entries(tail)
    elif record.lock_until is not None:
        clock = "due" if record.state == SCHEDULED else "final" if record.exhausted else "leases"
        entries.add((clock, f"{record.lock_until:018d}{job}"))
    if record.expires is not None and record.state != CLAIMED:
        entries.add(("expiries", f"{record.expires:018d}{job}"))
    return entries


def ready_entries(tail: str) -> set[Entry]:
    return {("ready", "\0" + tail), ("ready", tail.split("\0")[2] + "\0" + tail)}


def newest(when: int, sequence: int) -> str:
    """Return the beginning of a member of the trash."""
    return f"{LAST - when:018d}{LAST - sequence:018d}"


def pack(record: Record, unknown: Sequence[Any]) -> bytes:
    """Return a record for commit.lua, which gives it a tag."""
    # The posting is text here, as a script does not know bytes.
    beside = record._replace(posting="", note=None if record.note is None else len(record.note))  # type: ignore[arg-type]
    return records.pack(beside, tail_of(record), unknown)


def body_of(job: Record | Draft) -> bytes | str:
    """Return the posting and the note, as they lie together."""
    return job.posting if job.note is None else job.posting + job.note  # type: ignore[operator]


def stored_of(uuid: bytes, blob: bytes, posting: Any, now: int, entries: frozenset[Entry] = frozenset()) -> Stored:
    """Return a job from the reply of a script. ``entries``: those by which it was found."""
    job = text_of(uuid)
    try:
        record, tail, unknown = records.unpack(job, blob[TAG:], posting or b"")
        if tail != tail_of(record):
            raise ValueError("its record can't be decoded: it contradicts its entries")
        if record.note is not None:
            record = _with_note(record, record.note)
    except ValueError as error:
        return Stored(records.damaged(job, posting or blob, error, now), Damaged(blob[:TAG], entries))
    return Stored(record, blob[:TAG], unknown=unknown)


def _with_note(record: Record, length: Any) -> Record:
    """Return a record with its posting and its note, which come as one."""
    body = record.posting
    if type(length) is not int or not 0 < length <= len(body):
        raise ValueError(f"its record can't be decoded: no note has {length!r} bytes")
    return record._replace(posting=body[:-length], note=body[-length:])


def packed_draft(draft: Draft, event: str | None) -> list[Any]:
    """Return a draft for commit.lua."""
    uuid, name, rank, key, version, body, most, delay, due, came, group, key_for, _, span, expires, *behind = draft
    arrival = last = None
    if behind != _NONE:
        body = body_of(draft)
        stored = draft if draft.note is None else draft._replace(note=len(draft.note))  # type: ignore[arg-type]
        last = b"".join(map(msgpack.packb, stored[-len(BEHIND) :]))
    if came is not None:
        past = (came.who, came.attempts, came.retries, came.created_on, came.token, came.trashed_on)
        arrival = (*past, msgpack.packb(came.errors))
    return [uuid, rank, name, version, group, delay, due, key_for, span, expires, most, key, body, event, arrival, last]


def side_of(kind: str, key: str, blob: bytes | Literal[False]) -> Side:
    """Return a side record from the reply of a script."""
    if blob is False:
        return Side(kind, key, None, None, None)
    tag, end, value = blob[:TAG], blob[TAG : 2 * TAG], blob[2 * TAG :]
    if not (tag + end).isdigit() or len(end) < TAG:
        return Side(kind, key, damaged_value(kind), None, tag)
    return Side(kind, key, value, int(end) or None, tag)
