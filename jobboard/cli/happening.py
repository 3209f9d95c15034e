"""What happens on a board: as its backend tells it, or as it shows from one look to the next."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jobboard.board import PAGE
from jobboard.cli.sampling import Pace
from jobboard.exceptions import ConnectionFailure
from jobboard.notifier import ABANDONED, CLAIMED, CONSUMED, EXTENDED, POSTED, RELEASED, REMOTE, REMOVAL, TRASHED
from jobboard.primitives import Seen
from jobboard.retry import outage_pause
from jobboard.states import Record, State

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Job

LOG = logging.getLogger(__name__)

NOTICED = REMOTE - {EXTENDED}
"""The events that show from one look to the next: a claim is extended by each heartbeat, too."""


class Happening(NamedTuple):
    event: str
    uuid: str
    name: str
    who: str | None


def told(board: JobBoard) -> Iterator[Happening]:
    """What the backend tells of, without end."""
    heard: queue.SimpleQueue[tuple[str, Job]] = queue.SimpleQueue()
    board.notifier.register(board.notifier.ANY, lambda event, details: heard.put((event, details["job"])))
    holders: dict[str, str] = {}
    while True:
        event, job = heard.get()
        # Who gives a job back no longer stands in it.
        who = job._record.who or holders.get(job.uuid)
        if who is not None and event in (CLAIMED, EXTENDED):
            holders[job.uuid] = who
        else:
            holders.pop(job.uuid, None)
        yield Happening(event, job.uuid, job.name, who)


def noticed(board: JobBoard, names: Sequence[str]) -> Iterator[Happening]:
    """What shows from one look at the first :data:`PAGE` jobs to the next, without end.

    :param names: look only at jobs of these names; at all of them, if there are none.
    """
    comparison = Comparison(board, names)
    failures = 0
    while True:
        pause = 0.0
        try:
            yield from comparison.look()
            failures = 0
        except ConnectionFailure as error:
            if board.closed:
                raise
            failures += 1
            pause = outage_pause(failures)
            LOG.warning("can't look at the board, trying again in %.1f s: %s", pause, error)
        time.sleep(max(pause, comparison.pace.pause()))


class Comparison:
    """Looks at the first :data:`PAGE` jobs of a board, and compares them with what they were before."""

    def __init__(self, board: JobBoard, names: Sequence[str] = ()) -> None:
        self.pace = Pace()
        self._board = board
        self._names = names or None
        self._before: dict[str, Seen] | None = None
        self._end: tuple[int, int] | None = None

    def look(self) -> list[Happening]:
        """What has happened since the last look; nothing at the first one."""
        page = self.pace.ask(self._board.door.page, None, PAGE, self._names, None)
        now = {seen.record.uuid: seen for seen in page if seen.record is not None}
        end = _place(page[-1]) if len(page) == PAGE else None
        before, last_end = self._before, self._end
        known = (before or {}).items()
        gone = [uuid for uuid, seen in known if uuid not in now and (not end or _place(seen) < end)]
        became = self.pace.ask(self._board.door.read, gone) if gone else []
        # Only now: what could not be read is asked for again by the next look.
        self._before, self._end = now, end
        if before is None:
            return []
        happenings: list[Happening] = []
        for uuid, seen in now.items():
            was = before.get(uuid)
            if was is not None:
                happenings += _changed(was, seen)
            # What has only moved up into the page was there already.
            elif last_end is None or _place(seen) <= last_end:
                happenings += _came(seen)
        for uuid, after in zip(gone, became, strict=True):
            happenings += _went(before[uuid], after)
        return happenings


def _place(seen: Seen) -> tuple[int, int]:
    assert seen.record is not None
    return seen.record.priority, seen.record.sequence


def _holder(seen: Seen) -> str | None:
    return seen.record.who if seen.record is not None and seen.state == State.CLAIMED else None


def _of(seen: Seen, event: str, who: str | None) -> Happening:
    assert seen.record is not None
    return Happening(event, seen.record.uuid, seen.record.name, who)


def _came(seen: Seen) -> list[Happening]:
    posted = [_of(seen, POSTED, None)]
    return [*posted, _of(seen, CLAIMED, _holder(seen))] if seen.state == State.CLAIMED else posted


def _changed(was: Seen, seen: Seen) -> list[Happening]:
    assert was.record is not None
    assert seen.record is not None
    again = seen.record.token != was.record.token
    if seen.state == State.CLAIMED:
        return [_of(seen, CLAIMED, _holder(seen))] if again else []
    if was.state == State.CLAIMED and again and _tries(seen.record) == _tries(was.record):
        return [_of(seen, RELEASED, _holder(was))]
    # Who has lost a claim by a lapse still stands in the record.
    if seen.record.who is not None or not (was.state == State.CLAIMED or again):
        return []
    # A post that replaces raises the token as well, and lets the attempts begin anew.
    tried = was.state == State.CLAIMED or sum(_tries(seen.record)) > sum(_tries(was.record))
    return [_of(seen, ABANDONED if tried else POSTED, _holder(was))]


def _tries(record: Record) -> tuple[int, int]:
    return record.attempts, record.retries


def _went(was: Seen, after: Seen) -> list[Happening]:
    event = {State.COMPLETE: CONSUMED, State.TRASHED: TRASHED}.get(after.state)
    return [] if event is None else [_of(was, event, _holder(was)), _of(was, REMOVAL, _holder(was))]
