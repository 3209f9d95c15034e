"""The board that a move empties, its listings, and the report of a move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from jobboard import codec
from jobboard.exceptions import JobFailure
from jobboard.primitives import PAGE, BoardStats, Draft, Finish, Posted, Seen
from jobboard.states import Record, State, Status

UNREADABLE = -1
"""The version of a job of another library that can't be moved. Its posting is the reason, as text."""


class OriginEngine(Protocol):
    """The calls of an origin, as in :class:`~jobboard.engine.RetryingEngine`."""

    @property
    def wire(self) -> codec.Wire: ...
    def insert(self, drafts: Sequence[Draft]) -> list[Posted]: ...
    def finish(self, acts: Sequence[Finish]) -> list[Status]: ...
    def read(self, uuids: Sequence[str]) -> list[Seen]: ...
    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
        fresh: bool = False,
    ) -> list[Seen]: ...
    def trash_page(self, after: Record | None, limit: int) -> list[Record]: ...
    def now(self) -> int: ...


class Origin(Protocol):
    """A board that jobs are moved from: a :class:`~jobboard.board.JobBoard`, or a board of another library."""

    @property
    def name(self) -> str: ...
    @property
    def location(self) -> str: ...
    @property
    def engine(self) -> OriginEngine: ...
    def stats(self) -> BoardStats: ...


class Left(NamedTuple):
    """A record that was not moved. ``what`` is its kind, a job by default; ``uuid`` its id; ``why`` the reason."""

    uuid: str
    name: str
    why: str
    what: str = "job"


@dataclass
class Moved:
    """The result of a move: the numbers of jobs, jobs in the trash and schedules that were moved, the numbers of
    outcomes and of keys that were copied, and the things that stay."""

    moved: int = 0
    trashed: int = 0
    schedules: int = 0
    outcomes: int = 0
    keys: int = 0
    left: list[Left] = field(default_factory=list)


def place_of(board: Origin) -> str:
    return f"{board.name!r} at {board.location}"


def posting_of(board: Origin, job: Record | Draft, wire: codec.Wire) -> bytes | str:
    """Return the posting of a job of this board for a board of another wire.

    :raises JobFailure: the other board can't hold the posting.
    """
    if job.version == UNREADABLE:
        raise JobFailure(f"the posting can't be moved: {job.posting!s}")
    if codec.is_newer(job.version) and wire != board.engine.wire:
        raise JobFailure("posted by a newer version of this library; upgrade to move it")
    try:
        return codec.transcode(job.posting, board.engine.wire, wire)
    except codec.Undecodable as error:
        raise JobFailure(str(error), error) from error


def pages_of(board: Origin, *states: State) -> Iterator[list[Record]]:
    """Yield the jobs of these states, page by page."""
    wanted, after = frozenset(states), None
    while page := board.engine.page(after, PAGE, None, wanted, fresh=after is None):
        yield [seen.record for seen in page if seen.state in wanted and seen.record is not None]
        after = page[-1].record


def trash_of(board: Origin) -> Iterator[Record]:
    """Yield the jobs in the trash, newest first."""
    after: Record | None = None
    while page := board.engine.trash_page(after, PAGE):
        yield from page
        after = page[-1]
