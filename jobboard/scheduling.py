"""Schedules: what a board posts by itself, as long as a conductor or ``jobboard schedule run`` is there to do it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from jobboard import arguments, codec, logs
from jobboard.base import BoardBase
from jobboard.engine import DuePosts, StoredSchedule
from jobboard.exceptions import NotFound
from jobboard.job import Posting
from jobboard.primitives import Draft, KeptStats
from jobboard.priorities import JobPriority, rank_of
from jobboard.session import Session
from jobboard.states import OK, Record, moment
from jobboard.timetable import Missed, Timetable, zone

LOG = logs.Log(__name__)


@dataclass(frozen=True)
class Schedule:
    """A schedule as it was when it was asked for.

    cron, tz; or every: when it is due; ``every`` in seconds. next_due: when next. last_posted: the latest due time that
    was posted for, None before the first. missed: what becomes of times at which nobody posted. held: why nobody posts
    it for now, a ``jobboard move`` that has not come to its end; else None. The rest is what is posted.
    """

    id: str
    cron: str | None
    every: float | None
    tz: str
    missed: str
    next_due: datetime.datetime
    last_posted: datetime.datetime | None
    name: str
    details: dict[str, Any] = field(repr=False)
    priority: int
    key: str | None
    group: str | None
    max_attempts: int | None
    context: dict[str, str] = field(repr=False)
    held: str | None = None


class Scheduling(BoardBase):
    """The verbs of schedules."""

    @final
    def schedule(
        self,
        /,
        id: str,  # noqa: A002 - as its users have it
        cron: str | None = None,
        name: str | None = None,
        *,
        every: float | datetime.timedelta | None = None,
        details: Mapping[str, Any] | None = None,
        priority: int | str = JobPriority.NORMAL,
        key: str | None = None,
        max_attempts: int | None = None,
        group: str | None = None,
        context: Mapping[str, str] | None = None,
        tz: str = "UTC",
        missed: Missed = "one",
    ) -> Schedule:
        """Have a job posted at certain times: by any conductor of this board, or by ``jobboard schedule run``.

        For each due time one job is posted, however many do it. A schedule that has this id already is replaced, from
        now on: ``every`` begins anew, and what was missed is not made up for; what it has posted stays. One that is set
        again with the same arguments stays as it is, with its next due time: each start of a process may set it.

        :param id: at most 255 characters.
        :param cron: five fields, as in a crontab, or ``@daily`` and the like; at most 255 characters.
        :param name: of the jobs; this and what follows is as in :meth:`post <jobboard.board.JobBoard.post>`.
        :param every: instead of ``cron``: seconds (or a timedelta) between two due times, at least 0.1, counted from
            now on the server's clock.
        :param key: with it no job is posted while an earlier one is on the board; that due time counts as done.
        :param tz: the time zone of ``cron``, as in ``Europe/Berlin``. Where its clock is put forward, what is skipped
            is due right after; where it is put back, it is due once. An hour of ``*`` takes each hour as it comes.
        :param missed: of the times at which nobody posted, ``one``, the latest, ``all``, the latest 1,000, or ``none``,
            once it is more than a minute late.
        :raises TypeError, ValueError: an argument does not fit; nothing was changed.
        """
        codec.check_text("a schedule's id", id)
        if name is None:
            raise TypeError("schedule() needs the name of the jobs that it posts")
        if cron is not None and not isinstance(cron, str):
            raise TypeError(f"cron must be a str, not {type(cron).__name__}")
        if not isinstance(tz, str):
            raise TypeError(f"tz must be the name of a time zone, not {type(tz).__name__}")
        timetable = Timetable(cron, arguments.micros("every", every, positive=True), tz, missed)
        timetable.check()
        # With every=, too, which needs no zone: a mistyped one would show among the schedules.
        zone(tz)
        posting = Posting(
            name, None, details, priority, key=key, max_attempts=max_attempts, context=context, group=group
        )
        [draft] = arguments.drafts([posting], self._conf["max_details"], self.engine.wire)

        made: StoredSchedule

        def make(now: int, before: StoredSchedule | None) -> StoredSchedule:
            nonlocal made
            last = None if before is None else before.last
            made = StoredSchedule(id, timetable, draft, timetable.first(now, last), last)
            if before is not None and self._is_alike(before, timetable, draft):
                made = before
            return made

        session = self._live()
        entry, _ = session.mutate(self.engine.set_schedule, id, make)
        session.alarm()
        # Others may have removed it before a repetition has told that it was set.
        return self._schedule(entry or made)

    def _is_alike(self, before: StoredSchedule, timetable: Timetable, draft: Draft) -> bool:
        """Whether this says what the stored one says already."""
        # Each setting has a uuid of its own, and equal details may be told in another order.
        told = before.draft._replace(uuid=draft.uuid, posting=draft.posting)
        if before.timetable != timetable or told != draft:
            return False
        try:
            return self._decoded(before.draft.posting) == self._decoded(draft.posting)
        except codec.Undecodable:
            return False

    @final
    def schedules(self) -> list[Schedule]:
        """The schedules of this board, by their ids; those that can't be read are left out, with a warning."""
        found = []
        for entry in sorted(self._live().query(self.engine.schedules)):
            try:
                found.append(self._schedule(entry))
            except codec.Undecodable as error:
                LOG.warning("the schedule %r is left out: %s", entry.id, error)
        return found

    @final
    def kept_stats(self) -> KeptStats:
        """How many schedules and outcomes there are, and how late the schedules are."""
        return self._live().query(self.engine.kept_stats)

    @final
    def unschedule(self, id: str) -> None:  # noqa: A002 - as its users have it
        """Remove a schedule; the jobs that it has posted stay.

        :raises NotFound: there is none of this id.
        """
        session = self._live()
        status, _ = session.mutate(self.engine.remove_schedule, codec.check_text("a schedule's id", id))
        if status != OK:
            raise NotFound(f"there is no schedule {id!r}")
        session.alarm()

    def _schedule(self, entry: StoredSchedule) -> Schedule:
        timetable, draft = entry.timetable, entry.draft
        content = self._decoded(draft.posting)
        return Schedule(
            id=entry.id,
            cron=timetable.cron,
            every=None if timetable.every is None else timetable.every / 1e6,
            tz=timetable.tz,
            missed=timetable.missed,
            next_due=moment(entry.due),
            last_posted=None if entry.last is None else moment(entry.last),
            name=draft.name,
            details=content.details,
            priority=rank_of(draft.priority),
            key=draft.key,
            group=draft.group,
            max_attempts=draft.max_attempts,
            context=content.context or {},
            held=entry.held,
        )

    # For those who post

    def _post_due(self) -> float | None:
        """In how many seconds something is due again, as far as is known."""
        session = self._live()
        posted: DuePosts = {}
        try:
            left = session.query(self.engine.post_due, posted)
        finally:
            # Also where it has broken off at a later one.
            self._tell_posted(session, [record for record in posted.values() if record is not None])
        return None if left is None else left / 1e6

    def _tell_posted(self, session: Session, posted: Sequence[Record]) -> None:
        for record in posted:
            LOG.info("the schedule of %r has posted job %s", record.name, record.uuid)
        if posted:
            self._posted(session, [self._job_or_shell(record, record.state) for record in posted])

    def _hears_schedules(self) -> bool:
        """Whether there will be an alarm when a schedule is set or removed, by whomever."""
        return self._live().query(self.engine.watch, "schedules")

    def _alarms(self) -> int:
        """How often somebody who sleeps until something is due has been woken; to be asked before looking."""
        session = self._session
        return 0 if session is None else session.alarms

    def _sleep_until_due(self, seconds: float, alarms: int) -> None:
        """Sleep for so long, or until the schedules may have changed since there had been so many alarms."""
        session = self._session
        if session is not None:
            session.sleep_until_due(seconds, alarms)
