"""The stored form of a job: its record, its posting, and the members of the containers in which it is found.

A record is its tag, 18 digits, and :func:`jobboard.engine.records.pack` of it without its posting; beside it stands its
*tail*, the end of most members. Scripts read and change the first fields, and pass the others through.

========  =========================================================================  =====================
ready     NUL and the tail; its name, NUL and the tail                               UNCLAIMED
live      the tail                                                                   on the board
due       until, sequence, uuid                                                      SCHEDULED
leases    until, sequence, uuid                                                      CLAIMED
final     the same, of a claim that goes to the trash when it lapses                 CLAIMED
trash     LAST - modified_on, LAST - sequence, uuid                                  TRASHED
tail      rank (3 digits), sequence, uuid, NUL, version, NUL, name, NUL, group
========  =========================================================================  =====================

Numbers but the version and the rank have 18 digits, so that members sort as numbers do.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgpack

from jobboard.engine import Side, Stored, damaged_value, records
from jobboard.primitives import Draft
from jobboard.states import SCHEDULED, TRASHED, UNCLAIMED, Record

TAG = 18
"""How long a tag is."""

LAST = 9 * 10**15
"""What stands for numbers that are to sort downwards is this minus the number: exact in Lua."""

_NONE = msgpack.packb(())

Place = tuple[str, str]
"""A container and a member of it."""


class Damaged(NamedTuple):
    """The tag of a job whose record can't be decoded, and where the job was found: its record does not tell."""

    tag: bytes
    places: frozenset[Place]


def tail_of(record: Record) -> str:
    rank, sequence, group = record.priority, record.sequence, record.group or ""
    return f"{rank:03d}{sequence:018d}{record.uuid}\0{record.version}\0{record.name}\0{group}"


def places_of(record: Record) -> set[Place]:
    """Return the members under which a job is found."""
    if record.state == TRASHED:
        return {("trash", newest(record.modified_on, record.sequence) + record.uuid)}
    tail = tail_of(record)
    if record.state == UNCLAIMED:
        return {*ready_places(tail), ("live", tail)}
    clock = "due" if record.state == SCHEDULED else "final" if record.exhausted else "leases"
    return {("live", tail), (clock, f"{record.lock_until:018d}{record.sequence:018d}{record.uuid}")}


def ready_places(tail: str) -> set[Place]:
    return {("ready", "\0" + tail), ("ready", tail.split("\0")[2] + "\0" + tail)}


def newest(when: int, sequence: int) -> str:
    """Return the beginning of a member of the trash."""
    return f"{LAST - when:018d}{LAST - sequence:018d}"


def pack(record: Record) -> bytes:
    """A record as commit.lua takes it, which gives it its tag."""
    # As text: a script does not know bytes.
    return records.pack(record._replace(posting=""), tail_of(record))


def stored_of(uuid: bytes, blob: bytes, posting: Any, now: int, places: frozenset[Place] = frozenset()) -> Stored:
    """A job as a script returns it. :param places: where it was found."""
    job = uuid.decode("utf-8", "backslashreplace")
    try:
        record, tail = records.unpack(job, blob[TAG:])
        if tail != tail_of(record):
            raise ValueError("its record can't be decoded: it contradicts its place")
    except ValueError as error:
        return Stored(records.damaged(job, posting or blob, error, now), Damaged(blob[:TAG], places))
    return Stored(record._replace(posting=posting or b""), blob[:TAG])


def packed_draft(draft: Draft, event: str | None) -> list[Any]:
    """A draft as commit.lua takes it."""
    came = draft.arrival
    failures = msgpack.packb(came.errors) if came else _NONE
    times = (draft.delay, None if draft.delay is not None else draft.due, draft.key_for)
    job = (draft.max_attempts, draft.key, failures, draft.posting, event)
    arrival = came and (came.who, came.attempts, came.retries, came.created_on, came.token, came.trashed_on)
    return [draft.uuid, draft.priority, draft.name, draft.version, draft.group, *times, *job, arrival]


def side_of(kind: str, key: str, blob: bytes | Literal[False]) -> Side:
    """A side record as a script returns it."""
    if blob is False:
        return Side(kind, key, None, None, None)
    tag, end, value = blob[:TAG], blob[TAG : 2 * TAG], blob[2 * TAG :]
    if not (tag + end).isdigit() or len(end) < TAG:
        return Side(kind, key, damaged_value(kind), None, tag)
    return Side(kind, key, value, int(end) or None, tag)
