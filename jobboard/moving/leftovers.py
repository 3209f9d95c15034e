"""Copies of outcomes and of keys, which jobs leave behind at the source.

A copy is passed over where the target has it already, so to copy again does no harm. Outcomes and keys stay at the
source until they end. A caller who waits there for a result finds it there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from jobboard.board import JobBoard
from jobboard.codec import Undecodable, Wire, transcode_result
from jobboard.engine import Remembered, StoredOutcome
from jobboard.exceptions import JobFailure
from jobboard.moving.origin import Left, posting_of
from jobboard.primitives import BATCH, PAGE, batches

BYTES = 256 * 1024
"""The bytes of one batch, unless a single record is larger."""


def keys_of(board: JobBoard) -> Iterator[list[Remembered]]:
    """Yield the keys that outlive their jobs, some at a time."""
    position = None
    while True:
        keys, position = board.engine.remembered_keys(position)
        yield keys
        if position is None:
            return


def copy_keys(source: JobBoard, target: JobBoard) -> int:
    """Copy the keys that outlive their jobs. Return the number of keys that the target did not have."""
    return sum(
        target.engine.store_keys(keys[start : start + BATCH])
        for keys in keys_of(source)
        for start in range(0, len(keys), BATCH)
    )


def outcomes_of(board: JobBoard) -> Iterator[list[StoredOutcome]]:
    """Yield the outcomes page by page, newest first."""
    after = None
    while page := board.engine.outcome_page(after, PAGE):
        yield page
        after = page[-1]


def copy_outcomes(
    source: JobBoard, target: JobBoard, leave: Callable[[Left], object], progress: Callable[[int, int], object]
) -> int:
    """Copy the outcomes. Return the number of outcomes that the target did not have.

    The oldest is copied first, as some stores list outcomes in the order in which they came.

    :param progress: called with the number of outcomes that are at the target, and of how many.
    """
    newest: list[StoredOutcome] = []
    ends: list[StoredOutcome] = []
    total = done = new = 0
    for page in outcomes_of(source):
        newest = newest or page
        ends.append(page[-1])
        total += len(page)
    # The newest page is not read again: other outcomes may stand before it by now.
    older = (source.engine.outcome_page(end, PAGE) for end in reversed(ends[:-1]))
    for page in itertools.chain(older, [newest] if newest else ()):
        copies = [copy for each in reversed(page) if (copy := copy_of(each, source, target.engine.wire, leave))]
        for batch in batches(copies, _size, BATCH, BYTES):
            try:
                new += target.engine.store_outcomes(batch)
            except ValueError as error:
                # Too large for the target.
                for each in batch:
                    leave(_left(each, str(error)))
        done += len(page)
        progress(min(done, total), total)
    return new


def copy_of(done: StoredOutcome, source: JobBoard, wire: Wire, leave: Callable[[Left], object]) -> StoredOutcome | None:
    """Return an outcome of the source for a board of that wire.

    :param leave: told of an outcome that such a board can't hold, for which None is returned.
    """
    try:
        record = done.record._replace(posting=posting_of(source, done.record, wire))
        result = None if done.result is None else transcode_result(done.result, source.engine.wire, wire)
    except (JobFailure, Undecodable) as error:
        leave(_left(done, str(error)))
        return None
    return done._replace(record=record, result=result)


def _left(done: StoredOutcome, why: str) -> Left:
    return Left(done.record.uuid, done.record.name, why, "outcome")


def _size(done: StoredOutcome) -> int:
    return len(done.record.posting) + len(done.result or "") + sum(len(each.text) for each in done.record.errors)
