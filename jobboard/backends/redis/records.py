"""From what the scripts answer to records, and from drafts, acts and records to what they take.

Lua's false stands for None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from jobboard.backends.redis.keys import PLACE
from jobboard.engine import Stored
from jobboard.primitives import HELD_UNTIL, Draft, Finish
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Failure, Record, State

FIELDS = (*(field for field in Record._fields if field not in ("uuid", "posting")), "stamp")
"""What a record has in Redis, in this order: see board.lua."""

LETTERS = {UNCLAIMED: "U", SCHEDULED: "S", CLAIMED: "C", TRASHED: "T"}
_STATES = {letter: state for state, letter in LETTERS.items()}


def record_of(uuid: bytes, blob: bytes, posting: bytes, odd: object = None) -> Record:
    """A job as a script answers it; ``odd``: what is stored of it where that is damaged."""
    (
        name,
        priority,
        sequence,
        key,
        version,
        state,
        attempts,
        max_attempts,
        token,
        who,
        keeper,
        lock_until,
        created_on,
        modified_on,
        errors,
        retries,
        group,
        key_until,
        _,
    ) = msgpack.unpackb(blob, unicode_errors="backslashreplace")
    return Record(
        uuid.decode("utf-8", "backslashreplace"),
        name,
        priority,
        sequence,
        key or None,
        version,
        posting,
        _STATES[state],
        attempts,
        max_attempts or None,
        token,
        who or None,
        keeper or None,
        lock_until or None,
        created_on,
        modified_on,
        tuple(Failure(on, by or None, attempt, text) for on, by, attempt, text in errors) if errors else (),
        retries,
        group or None,
        key_until or None,
    )


def stored_of(uuid: bytes, blob: bytes, posting: bytes, odd: object = None) -> Stored:
    """The same with its tag: the very bytes that are stored."""
    return Stored(record_of(uuid, blob, posting), odd or blob)


def packed(record: Record) -> list[Any]:
    """A record as commit takes it, which gives it its stamp."""
    values = {**record._asdict(), "state": LETTERS[record.state], "errors": _packed_errors(record.errors), "stamp": 0}
    return [False if values[field] is None else values[field] for field in FIELDS]


def packed_draft(draft: Draft) -> Sequence[Any]:
    uuid, name, priority, key, version, _, max_attempts, delay, due, came, group, key_for, replace = draft
    job = (uuid, name, priority, key, version, max_attempts, delay, due, group, key_for, replace)
    if came is None:
        return job
    who, attempts, errors, created_on, trashed_on, token, retries = came
    until = trashed_on or HELD_UNTIL
    return *job, (who, attempts, retries, _packed_errors(errors), created_on, until, token), trashed_on is not None


def _packed_errors(errors: Sequence[Failure]) -> list[Any]:
    return [(on, who or False, attempt, text) for on, who, attempt, text in errors]


def packed_act(act: Finish) -> Sequence[Any]:
    uuid, (who, token), verb, delay, error, refund, due, retry, keep, result, refused, *_ = act
    packed = (uuid, verb, False, who, token, error, delay or None, refund, due, retry)
    return packed if keep is None else (*packed, None, None, keep, result, refused)


def place(record: Record) -> int:
    return record.priority * PLACE + record.sequence


def letters(states: frozenset[State]) -> list[str]:
    return [LETTERS[state] for state in states if state in LETTERS]
