"""Rows of a board's tables, as the records, side records and outcomes of the engine."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

from jobboard.backends.sql.columns import CHANGED, INSERTED, KEPT, OUTCOME_COLUMNS, RECORD_COLUMNS, REPLACED
from jobboard.backends.sql.tables import STORED
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
    fields = list(row[:RECORD_COLUMNS])
    fields[_STATE] = STORED.get(fields[_STATE], TRASHED)
    fields[_ERRORS] = failures_from_json(fields[_ERRORS])
    return Record._make(fields)


_STATE, _ERRORS = map(Record._fields.index, ("state", "errors"))

_changed, _inserted, _kept = (operator.attrgetter(*fields) for fields in (CHANGED, INSERTED, KEPT))

brought = operator.attrgetter(*REPLACED)
"""Return the values of a record that another post brings."""


def changed(record: Record) -> dict[str, Any]:
    """Return the columns that a change of a job writes."""
    row = dict(zip(CHANGED.values(), _changed(record), strict=True))
    return {"id": record.sequence, **row, **_derived(record)}


def replaced(record: Record) -> dict[str, Any]:
    """Return the columns of a job whose content is replaced by another post."""
    return changed(record) | dict(zip(REPLACED.values(), brought(record), strict=True))


def inserted(record: Record) -> dict[str, Any]:
    """Return the columns of a new job, beside its board and its id."""
    return dict(zip(INSERTED.values(), _inserted(record), strict=True)) | _derived(record)


def _derived(record: Record) -> dict[str, Any]:
    """Return the columns that the database stores in another form, and those that follow from the record."""
    live = record.state != TRASHED
    return {
        "state": record.state.value,
        "errors": failures_as_json(record.errors),
        "wake_at": record.lock_until,
        "live_key": record.key if live else None,
        "gone_on": None if live else record.modified_on,
    }


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
    values = {field: values[name] for field, name in KEPT.items()}
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
    return {
        **dict(zip(KEPT.values(), _kept(record), strict=True)),
        "errors": failures_as_json(record.errors),
        "begun": done.begun,
        "until": mark.end(record.modified_on),
        "result": done.result,
        "refused": done.refused,
    }


def by_uuid(rows: Sequence[Row]) -> dict[str, Row]:
    return {row[0]: row for row in rows}
