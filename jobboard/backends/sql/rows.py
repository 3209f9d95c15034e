"""What the rows of the jobs' table mean, as records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobboard.backends.sql.statements import DAY
from jobboard.backends.sql.tables import PURGED, RECORD, STORED
from jobboard.codec import failures_as_json, failures_from_json
from jobboard.engine import Change, Stored
from jobboard.primitives import Draft
from jobboard.sql.prepared import Row
from jobboard.states import SCHEDULED, TRASHED, UNCLAIMED, Record, State


def record_of(row: Sequence[Any]) -> Record | None:
    """The job in a row; None if it was purged."""
    state = STORED.get(row[7])
    return None if state is None else record_in(row, state)


def record_in(row: Sequence[Any], state: State) -> Record:
    """The job in a row, in this state."""
    return Record._make((*row[:7], state, *row[8:16], failures_from_json(row[16]), *row[17:RECORD]))


def changed(record: Record, was: Record) -> dict[str, Any]:
    """The parameters that write a changed record."""
    live = record.state != TRASHED
    return {
        "p_id": record.sequence,
        "p_was_token": was.token,
        "p_was_state": was.state.value,
        "p_state": record.state.value,
        "p_attempts": record.attempts,
        "p_token": record.token,
        "p_who": record.who,
        "p_keeper": record.keeper,
        "p_lock_until": record.lock_until,
        "p_modified_on": record.modified_on,
        "p_errors": failures_as_json(record.errors),
        "p_retries": record.retries,
        "p_live_key": record.key if live else None,
        "p_wake_at": record.lock_until,
        "p_gone_on": None if live else record.modified_on,
    }


def restated(record: Record, was: Record) -> dict[str, Any]:
    """The same of a record that has got what another post has brought."""
    return {
        **changed(record, was),
        "p_priority": record.priority,
        "p_version": record.version,
        "p_posting": record.posting,
    }


def inserted(record: Record) -> dict[str, Any]:
    """The parameters that write a new record, beside its board."""
    live = record.state != TRASHED
    return {
        "p_uuid": record.uuid,
        "p_name": record.name,
        "p_priority": record.priority,
        "p_key": record.key,
        "p_version": record.version,
        "p_posting": record.posting,
        "p_state": record.state.value,
        "p_attempts": record.attempts,
        "p_max_attempts": record.max_attempts,
        "p_token": record.token,
        "p_who": record.who,
        "p_lock_until": record.lock_until,
        "p_created_on": record.created_on,
        "p_modified_on": record.modified_on,
        "p_errors": failures_as_json(record.errors),
        "p_retries": record.retries,
        "p_job_group": record.group,
        "p_key_until": record.key_until,
        "p_live_key": record.key if live else None,
        "p_wake_at": record.lock_until,
        "p_gone_on": None if live else record.modified_on,
    }


def stored_in(row: Row | None) -> Stored | None:
    record = None if row is None else record_of(row)
    return None if record is None else Stored(record, None)


def holding(uuid: str) -> tuple[bytes, None, object]:
    """Value, end and tag of the side record of a key that this job holds."""
    return uuid.encode(), None, uuid


def purged_in(row: Row | None) -> tuple[bytes | None, int | None, object]:
    """The same of the one that tells that a job was purged."""
    return (b"", row[15] + DAY, row[3]) if row is not None and row[7] == PURGED else (None, None, None)


def wakes(change: Change) -> bool:
    """Whether something becomes claimable by this, or sooner than those who wait have reckoned with."""
    after = change.after
    if after is None:
        return False
    if isinstance(after, Draft):
        return True
    if after.state in (UNCLAIMED, SCHEDULED):
        return True
    was = None if change.before is None else change.before.record.lock_until
    return was is not None and after.lock_until is not None and after.lock_until < was
