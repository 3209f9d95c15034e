"""Results of searches and of acts on many jobs, and the text of a position in a search."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from jobboard.arguments import limit as positive
from jobboard.engine import Position
from jobboard.exceptions import JobBoardError
from jobboard.job import Job
from jobboard.reasons import cause_of, reason_line
from jobboard.states import State

OperatorVerb = Literal["release", "cancel", "restore", "purge", "post_again"]
"""The verbs of :meth:`JobBoard.act <jobboard.board.JobBoard.act>`."""

AT_MOST = 20_000
"""The number of jobs that a page of a search looks at, unless its caller says otherwise."""

MOST_MINUTES = 1440
"""The longest time of :meth:`JobBoard.finished <jobboard.board.JobBoard.finished>`: a day."""


@dataclass(frozen=True)
class Page:
    """A page of a search.

    jobs: the jobs. after: where the next page begins, fit for a URL; None: there is no next page. looked: the number
    of jobs that the search looked at. complete: whether the search has seen all jobs up to the end.
    """

    jobs: tuple[Job, ...]
    after: str | None
    looked: int
    complete: bool


@dataclass(frozen=True)
class Acted:
    """The outcome of an act on many jobs: the number of jobs that were acted on, and an error for each other job, whose
    ``job`` it is."""

    done: int
    skipped: tuple[JobBoardError, ...] = ()


@dataclass(frozen=True)
class NameStats:
    """The live jobs of one name: the numbers that wait, are delayed and run, and the time of the oldest post among
    those that wait."""

    name: str
    waiting: int
    delayed: int
    running: int
    oldest: datetime.datetime | None


@dataclass(frozen=True)
class ErrorGroup:
    """Trashed jobs whose last failures have one cause.

    cause: the text that they share, for ``find(cause=)``. count: their number. names, labels: those of the jobs, the
    most frequent first. sample: the reason of the newest. first, last: the times of the oldest and of the newest.
    """

    cause: str
    count: int
    names: tuple[str, ...]
    labels: tuple[str, ...]
    sample: str
    first: datetime.datetime
    last: datetime.datetime


@dataclass(frozen=True)
class ErrorGroups:
    """The causes of the newest trashed jobs, the most frequent first, and the number of jobs that were looked at."""

    groups: tuple[ErrorGroup, ...]
    looked: int


def grouped(jobs: Iterable[Job], looked: int) -> ErrorGroups:
    """Return trashed jobs by their causes.

    :param looked: the number of jobs that were looked at.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(cause_of(job.error), []).append(job)
    made = [_group(cause, found) for cause, found in groups.items()]
    return ErrorGroups(tuple(sorted(made, key=lambda group: -group.count)), looked)


def _group(cause: str, jobs: list[Job]) -> ErrorGroup:
    names, labels = (
        tuple(text for text, _ in Counter(texts).most_common())
        for texts in ((job.name for job in jobs), (job.label for job in jobs))
    )
    newest, oldest = jobs[0], jobs[-1]
    times = oldest.last_modified, newest.last_modified
    return ErrorGroup(cause, len(jobs), names, labels, reason_line(newest.error), *times)


def checked_states(states: Iterable[State | str] | None, default: frozenset[State]) -> frozenset[State]:
    """Return the states of a search.

    :raises ValueError, TypeError: there is no such state, or none is given.
    """
    if states is None:
        return default
    if isinstance(states, str):
        raise TypeError(f"states must be a list of states, not a str: write [{states!r}]")
    wanted = frozenset(State(state) for state in states)
    if not wanted:
        raise ValueError("states is empty: leave it out to search the jobs on the board")
    return wanted


def bounded(limit: int, at_most: int) -> None:
    """Check the bounds of a page."""
    positive(limit)
    positive(at_most, "at_most")


def position_text(board: str, position: Position | None) -> str | None:
    """Return the text of a position on a board."""
    if position is None:
        return None
    data = json.dumps(list(position), separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_sum(board, data) + data).decode().rstrip("=")


def position_of(board: str, text: str | None) -> Position | None:
    """Return the position that a text names.

    :raises ValueError: the text is damaged, or another board's.
    :raises TypeError: it is no text.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"after must be the text of a page, not {type(text).__name__}")
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if raw[:4] != _sum(board, raw[4:]) or base64.urlsafe_b64encode(raw).decode().rstrip("=") != text:
            raise ValueError("its sum differs")
        order, bookmark, *ages = json.loads(raw[4:])
    except (ValueError, binascii.Error) as error:
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        raise ValueError(f"after={shown!r}: is no position on the board {board!r}; begin without it") from error
    return Position(order, bookmark, *(age and cast("tuple[int, int]", tuple(age)) for age in ages))


def _sum(board: str, data: bytes) -> bytes:
    return zlib.crc32(board.encode() + b"\0" + data).to_bytes(4, "big")
