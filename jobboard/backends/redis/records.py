"""From what the scripts answer to records, and from drafts and acts to what they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from jobboard.backends.redis.keys import PLACE
from jobboard.primitives import HELD_UNTIL, Draft, Finish
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Record, State

LETTERS = {UNCLAIMED: "U", SCHEDULED: "S", CLAIMED: "C", TRASHED: "T"}
_STATES = {letter: state for state, letter in LETTERS.items()}


def record_of(uuid: bytes, blob: bytes, posting: bytes) -> Record:
    """A job as it is stored; Lua's false stands for None."""
    (
        name,
        priority,
        sequence,
        key,
        version,
        max_attempts,
        created_on,
        state,
        attempts,
        token,
        who,
        keeper,
        lock_until,
        modified_on,
        error,
        retries,
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
        None if error is False else error,
        retries,
    )


def packed_draft(draft: Draft) -> Sequence[Any]:
    came = draft.arrival
    return (
        draft.uuid,
        draft.name,
        draft.priority,
        draft.key,
        draft.version,
        draft.max_attempts,
        draft.delay,
        draft.due,
        came
        and (
            came.who,
            came.attempts,
            came.retries,
            came.error or False,
            came.created_on,
            came.trashed_on or HELD_UNTIL,
        ),
        came and came.trashed_on is not None,
    )


def packed_act(act: Finish) -> Sequence[Any]:
    uuid, holder, verb, delay, *rest = act
    return (uuid, holder.who, holder.token, verb, delay or None, *rest)


def place(record: Record) -> int:
    return record.priority * PLACE + record.sequence


def letters(states: frozenset[State]) -> list[str]:
    return [LETTERS[state] for state in states if state in LETTERS]
