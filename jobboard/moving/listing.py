"""What lies on the board that a move empties, and what becomes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from jobboard.board import PAGE
from jobboard.door import Origin
from jobboard.states import CLAIMED, SCHEDULED, UNCLAIMED, Record, State

FREE = frozenset({UNCLAIMED, SCHEDULED})

BYTES = 256 * 1024
"""How much one batch carries, unless a single thing is larger."""


class Left(NamedTuple):
    """What was not moved, and why: a job, or else ``what``, of which ``uuid`` is the id."""

    uuid: str
    name: str
    why: str
    what: str = "job"


@dataclass
class Moved:
    """What has become of a board's jobs: how many were moved, of those on the board and of those in its trash. And of
    its ``schedules``; and how many ``outcomes`` were copied, and ``keys`` whose windows outlive their jobs."""

    moved: int = 0
    trashed: int = 0
    schedules: int = 0
    outcomes: int = 0
    keys: int = 0
    left: list[Left] = field(default_factory=list)


def pages(source: Origin, states: frozenset[State]) -> Iterator[list[Record]]:
    after: Record | None = None
    while page := source.door.page(after, PAGE, None, states, fresh=after is None):
        yield [seen.record for seen in page if seen.state in states and seen.record is not None]
        after = page[-1].record


def claimed_jobs(source: Origin) -> Iterator[Record]:
    return itertools.chain.from_iterable(pages(source, frozenset({CLAIMED})))


def claimed_by(record: Record) -> str:
    return f"claimed by {record.who}"


def trash_of(board: Origin) -> Iterator[Record]:
    after: Record | None = None
    while page := board.door.trash_page(after, PAGE):
        yield from page
        after = page[-1]
