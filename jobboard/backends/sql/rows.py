"""Rows of a board's tables, as the records, side records and outcomes of the engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from jobboard.backends.sql.tables import OUTCOME_COLUMNS, RECORD_COLUMNS, STORED
from jobboard.codec import failures_as_json, failures_from_json
from jobboard.engine import Answer, Change, Deed, Mark, Side, Stored, StoredOutcome
from jobboard.primitives import Draft
from jobboard.states import COMPLETE, OK, SCHEDULED, TRASHED, UNCLAIMED, Record, Status

Row = Any
"""A sequence, as a driver returns it."""

# Jobs


def stored_of(row: Row) -> Stored:
    """Return the job in a row of ``{record}, tag``."""
    return Stored(record_of(row), (row[3], row[RECORD_COLUMNS]))


def record_of(row: Row) -> Record:
    return Record._make(
        (*row[:7], STORED.get(row[7], TRASHED), *row[8:16], failures_from_json(row[16]), *row[17:RECORD_COLUMNS])
    )


def changed(record: Record) -> dict[str, Any]:
    """Return the columns that a change of a job writes."""
    live = record.state != TRASHED
    return {
        "id": record.sequence,
        "state": record.state.value,
        "attempts": record.attempts,
        "token": record.token,
        "who": record.who,
        "keeper": record.keeper,
        "lock_until": record.lock_until,
        "wake_at": record.lock_until,
        "modified_on": record.modified_on,
        "errors": failures_as_json(record.errors),
        "retries": record.retries,
        "live_key": record.key if live else None,
        "gone_on": None if live else record.modified_on,
    }


def replaced(record: Record) -> dict[str, Any]:
    """Return the columns of a job whose content is replaced by another post."""
    return {
        **changed(record),
        "priority": record.priority,
        "version": record.version,
        "posting": record.posting,
    }


def inserted(record: Record) -> dict[str, Any]:
    """Return the columns of a new job, beside its board and its id."""
    row = {
        **replaced(record),
        "uuid": record.uuid,
        "name": record.name,
        "key": record.key,
        "max_attempts": record.max_attempts,
        "created_on": record.created_on,
        "job_group": record.group,
        "key_until": record.key_until,
    }
    del row["id"], row["keeper"]
    return row


def wakes(change: Change, cap: float) -> bool:
    """Return whether a job becomes claimable by this change, or sooner than waiters expect.

    :param cap: the seconds after which waiters look by themselves. A wake-up costs a lock of the whole server.
    """
    after = change.after
    if after is None:
        return False
    if isinstance(after, Draft) or after.state in (UNCLAIMED, SCHEDULED):
        return True
    was = None if change.before is None else change.before.record.lock_until
    if after.lock_until is None:
        return False
    return after.lock_until < (after.modified_on + int(cap * 1e6) if was is None else was)


# Answers: a text that a statement of a fast path can build. It has items with a comma between, each of uuids with "+"
# between, a token, and the status unless that is OK. One "*" in place of uuids stands for so many jobs that the caller
# knows, each done, and without a token.

_ALL, _JOINT = "*", "+"


def answer_text(answer: Answer) -> str:
    # Only deeds that follow each other are joined: their order counts.
    runs = itertools.groupby(
        answer.deeds, key=lambda deed: (deed.token, "" if deed.status == OK else f" {deed.status}")
    )
    return ",".join(f"{_JOINT.join(deed.uuid for deed in deeds)} {token}{status}" for (token, status), deeds in runs)


def answer_of(key: str, row: Row, kept: int) -> Side:
    """Return the side record of a slot from a row of call, attempt, answer and stamp.

    :param kept: the µs for which an answer counts."""
    call, attempt, text, stamp = row
    done: list[Deed] = []
    for item in text.split(",") if text else ():
        uuids, number, *status = item.split(" ")
        if uuids == _ALL:
            done += [Deed(OK, "")] * int(number)
        else:
            how = Status(status[0]) if status else OK
            done += [Deed(how, uuid, int(number)) for uuid in uuids.split(_JOINT)]
    return Side("answer", key, Answer(call, attempt, tuple(done)).packed(), stamp + kept, (call, attempt))


# Outcomes


def outcome_of(row: Row) -> Side:
    """Return the side record of an outcome from a row of :data:`~jobboard.backends.sql.tables.OUTCOME_COLUMNS`."""
    values = dict(zip(OUTCOME_COLUMNS, row, strict=True))
    begun, until, result, refused = (values.pop(name) for name in ("begun", "until", "result", "refused"))
    values |= {"sequence": values.pop("id"), "group": values.pop("job_group")}
    values["errors"] = failures_from_json(values["errors"])
    record = Record(**values, state=COMPLETE, keeper=None, lock_until=None)
    done = StoredOutcome(record, begun, until, result, refused)
    # A page goes on after this value.
    return Side("outcome", record.uuid, done.packed(), until, (record.modified_on, record.sequence))


def outcome_row(mark: Mark) -> dict[str, Any]:
    """Return the columns that an outcome's mark writes, beside its board."""
    done = StoredOutcome.of(mark.before._replace(value=mark.value))
    assert done is not None
    record = done.record
    same = ("uuid", "name", "priority", "key", "version", "posting", "attempts", "max_attempts", "token", "who")
    return {
        **{name: getattr(record, name) for name in (*same, "created_on", "modified_on", "retries")},
        "id": record.sequence,
        "errors": failures_as_json(record.errors),
        "job_group": record.group,
        "begun": done.begun,
        "until": mark.end(record.modified_on),
        "result": done.result,
        "refused": done.refused,
    }


def by_uuid(rows: Sequence[Row]) -> dict[str, Row]:
    return {row[0]: row for row in rows}
