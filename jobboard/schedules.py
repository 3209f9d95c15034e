"""Schedules as users see them. The stored schedules are those of :mod:`jobboard.engine.schedules`."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Self

from jobboard.ciphers import Seal
from jobboard.codec import Content, open_content
from jobboard.engine import StoredSchedule
from jobboard.exceptions import NoKey
from jobboard.priorities import rank_of
from jobboard.states import moment


@dataclass(frozen=True)
class Schedule:
    """A schedule as it was read.

    cron, tz; or every: its due times; ``every`` in seconds. next_due: the next due time. last_posted: the latest due
    time for which a job was posted, or was not posted because its ``key`` was taken; None before the first. missed: the
    rule for due times at which nobody posted. held: the reason why nobody posts it for now, an unfinished
    ``jobboard move``; else None. skipped_since: the first of the latest due times that got no job, as the key was
    taken; None if the latest one got its job. expires: the seconds from its due time after which a job goes to the
    trash unless somebody has claimed it; None: never. is_paused: nobody posts it until
    :meth:`~jobboard.board.JobBoard.resume_schedule`. The other fields are posted.
    """

    id: str
    cron: str | None
    every: float | None
    tz: str
    missed: str
    next_due: datetime.datetime
    last_posted: datetime.datetime | None
    name: str
    priority: int
    key: str | None
    group: str | None
    max_attempts: int | None
    context: dict[str, str] = field(repr=False)
    held: str | None = None
    skipped_since: datetime.datetime | None = None
    is_paused: bool = False
    expires: float | None = None
    _details: Any = field(default=None, repr=False)

    @property
    def details(self) -> dict[str, Any]:
        """The details of the posted jobs.

        :raises NoKey: they are encrypted, and the board can't decrypt them.
        """
        if isinstance(self._details, NoKey):
            raise NoKey(f"the schedule {self.id!r} is {self._details}", self._details)
        found: dict[str, Any] = self._details
        return found

    @classmethod
    def of(cls, entry: StoredSchedule, content: Content, seal: Seal | None) -> Self:
        """Return a stored schedule, with the content of its postings."""
        timetable, draft = entry.timetable, entry.draft
        details: dict[str, Any] | NoKey
        try:
            details = open_content(content, seal).details
        except NoKey as error:
            details = error
        return cls(
            id=entry.id,
            cron=timetable.cron,
            every=None if timetable.every is None else timetable.every / 1e6,
            tz=timetable.tz,
            missed=timetable.missed,
            next_due=moment(entry.due),
            last_posted=None if entry.last is None else moment(entry.last),
            name=draft.name,
            priority=rank_of(draft.priority),
            key=draft.key,
            group=draft.group,
            max_attempts=draft.max_attempts,
            context=content.context or {},
            held=entry.held,
            skipped_since=None if entry.skipped is None else moment(entry.skipped),
            is_paused=entry.is_paused,
            expires=None if draft.expires_in is None else draft.expires_in / 1e6,
            _details=details,
        )
