"""Moving what jobs have left that are gone: outcomes, and keys whose windows run. Each is copied, stays at the source
until it ends, and is passed over where the target has it. So to do it again does no harm, and who waits at the source
for a result finds it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jobboard.board import JobBoard
from jobboard.codec import Undecodable, Wire, transcode_result
from jobboard.engine import Done, Remembered
from jobboard.exceptions import JobFailure
from jobboard.moving.listing import BYTES, Left
from jobboard.primitives import batches

_PAGE = 200
_BATCH = 40
"""How many are stored at once."""

_KEYS = 100


def keys_of(board: JobBoard) -> Iterator[list[Remembered]]:
    """Those that outlive their jobs, some at a time."""
    place = None
    while True:
        keys, place = board.door.remembered(place)
        yield keys
        if place is None:
            return


def carry_keys(source: JobBoard, target: JobBoard) -> int:
    """How many the target did not have."""
    return sum(
        target.door.remember(keys[start : start + _KEYS])
        for keys in keys_of(source)
        for start in range(0, len(keys), _KEYS)
    )


def outcomes_of(board: JobBoard) -> Iterator[list[Done]]:
    """The newest first, some at a time."""
    after = None
    while page := board.door.outcomes(after, _PAGE):
        yield page
        if len(page) < _PAGE:
            return
        after = page[-1]


def carry_outcomes(
    source: JobBoard, target: JobBoard, leave: Callable[[Left], object], told: Callable[[int, int], object]
) -> int:
    """How many the target did not have. They go in the order in which the jobs ended, as some stores list them by when
    they came.

    :param told: told how many have been copied, or were there, and of how many.
    """
    stretches: list[tuple[Done | None, Done]] = []
    total = done = new = 0
    for page in outcomes_of(source):
        total += len(page)
        stretches.append((stretches[-1][1] if stretches else None, page[-1]))
    for after, last in reversed(stretches):
        page = _stretch(source, after, last)[::-1]
        copies = [copy for each in page if (copy := _copy(source, target.door.wire, each, leave)) is not None]
        for batch in batches(copies, _size, _BATCH, BYTES):
            try:
                new += target.door.keep(batch)
            except ValueError as error:
                # Too large for the target.
                for each in batch:
                    leave(_left(each, str(error)))
        done += len(page)
        told(min(done, total), total)
    return new


def _stretch(source: JobBoard, after: Done | None, last: Done) -> list[Done]:
    """What lies behind ``after``, as far as ``last``: in front of the newest that were seen others may have come."""
    found: list[Done] = []
    while page := source.door.outcomes(after, _PAGE):
        found += page
        after = page[-1]
        if len(page) < _PAGE or any(each.record.uuid == last.record.uuid for each in page):
            break
    return found


def refused(source: JobBoard, wire: Wire, done: Done) -> Left | None:
    """Why an outcome can't be moved to a board of that wire."""
    reasons: list[Left] = []
    _copy(source, wire, done, reasons.append)
    return reasons[0] if reasons else None


def _copy(source: JobBoard, wire: Wire, done: Done, leave: Callable[[Left], object]) -> Done | None:
    try:
        record = done.record._replace(posting=source.door.posting(done.record, wire))
        result = None if done.result is None else transcode_result(done.result, source.door.wire, wire)
    except (JobFailure, Undecodable) as error:
        leave(_left(done, str(error)))
        return None
    return done._replace(record=record, result=result)


def _left(done: Done, why: str) -> Left:
    return Left(done.record.uuid, done.record.name, why, "outcome")


def _size(done: Done) -> int:
    return len(done.record.posting) + len(done.result or "") + sum(len(each.text) for each in done.record.errors)
