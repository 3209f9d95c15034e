"""What lies on the board that a move empties, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from jobboard.board import PAGE, JobBoard
from jobboard.codec import Wire
from jobboard.door import Origin
from jobboard.engine import Unreadable
from jobboard.exceptions import JobFailure
from jobboard.moving.marks import Departure, is_buried, is_sign
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED, Record, State

FREE = frozenset({UNCLAIMED, SCHEDULED})


class Left(NamedTuple):
    """What was not moved, and why: a job, or else ``what``, of which ``uuid`` is the id."""

    uuid: str
    name: str
    why: str
    what: str = "job"


@dataclass
class Moved:
    """What has become of a board's jobs: how many were moved, of those on the board and of those in its trash. And of
    its ``schedules``."""

    moved: int = 0
    trashed: int = 0
    schedules: int = 0
    left: list[Left] = field(default_factory=list)


def survey(source: Origin, wire: Wire, trash: bool = True) -> Moved:
    """What a move from there would do now, without any change: how many jobs it would move, and what it would leave.

    :param wire: that of the target.
    """
    found = Moved()
    if isinstance(source, JobBoard):
        _survey_schedules(source, wire, found)
    free = [record for page in pages(source, FREE) for record in page]
    buried = [] if not trash else [job for job in trash_of(source) if not is_sign(job) and not Departure.of(job)]
    for record in (*free, *buried):
        try:
            source.door.posting(record, wire)
        except JobFailure as error:
            found.left.append(Left(record.uuid, record.name, str(error)))
            continue
        if is_buried(record):
            found.trashed += 1
        else:
            found.moved += 1
    found.left += [Left(record.uuid, record.name, claimed_by(record)) for record in claimed_jobs(source)]
    return found


def _survey_schedules(source: JobBoard, wire: Wire, found: Moved) -> None:
    for each in source.door.schedules():
        if isinstance(each, Unreadable) or each.held is not None:
            why = each.why if isinstance(each, Unreadable) else f"held: {each.held}"
            found.left.append(Left(each.id, each.id, why, "schedule"))
            continue
        try:
            source.door.posting(each.draft, wire)
        except JobFailure as error:
            found.left.append(Left(each.id, each.draft.name, str(error), "schedule"))
        else:
            found.schedules += 1


def pages(source: Origin, states: frozenset[State]) -> Iterator[list[Record]]:
    source.door.sync()
    after: Record | None = None
    while page := source.door.page(after, PAGE, None, states):
        yield [seen.record for seen in page if seen.state in states and seen.record is not None]
        after = page[-1].record


def claimed_jobs(source: Origin) -> list[Record]:
    return [record for page in pages(source, frozenset({CLAIMED})) for record in page]


def claimed_by(record: Record) -> str:
    return f"claimed by {record.who}"


def trash_of(board: Origin) -> Iterator[Record]:
    after: Record | None = None
    while page := board.door.trash_page(after, PAGE):
        yield from page
        after = page[-1]
