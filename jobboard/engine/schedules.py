"""Schedules: side records with a job to be posted, and its due times.

One commit posts a due job and writes the next due time. The commit compares the tag of the schedule, so that one
process alone posts the job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgpack

from jobboard import codec
from jobboard.engine.answers import Deed
from jobboard.engine.committer import Committer, Plan, record_at
from jobboard.engine.store import Mark, Side, Stale
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Draft, KeptStats, Nonce
from jobboard.states import COMPLETE, OK, Record, Status, moment
from jobboard.timetable import Timetable
from jobboard.units import SECOND

LOG = logging.getLogger(__name__)

KIND = "schedule"

VERSION = 1
"""The version of written schedules, and the highest readable version."""

MOST_POSTED = 100
"""The most missed jobs that one commit posts."""

MOST_POSTED_BYTES = 512 * 1024
"""The most bytes of postings that one commit posts, unless a single posting is larger."""

REPEAT_REFUSED = 10 * SECOND
"""The µs after which a schedule whose post was refused is tried again."""


class Newer(ValueError):
    """A schedule that a newer version of this library has set."""


def _without_defaults(fields: Any) -> Any:
    """Return a named tuple as a tuple without its last fields, as far as they have their defaults."""
    defaults = fields._field_defaults
    end = len(fields)
    while end and fields._fields[end - 1] in defaults and fields[end - 1] == defaults[fields._fields[end - 1]]:
        end -= 1
    return tuple(fields[:end])


class StoredSchedule(NamedTuple):
    """A schedule as it is stored.

    draft: the job to be posted. Its uuid identifies the setting, and determines the uuids of the jobs. due: the next
    due time, which only rises. last: the latest due time for which a job was posted, or its key was taken. held: the
    reason why nobody posts jobs for now: an unfinished move between two boards. skipped: the first of the latest due
    times in a row at which the key was taken; None if the latest one got its job. is_paused: an operator has paused
    the schedule.
    """

    id: str
    timetable: Timetable
    draft: Draft
    due: int
    last: int | None = None
    held: str | None = None
    skipped: int | None = None
    is_paused: bool = False

    @property
    def is_active(self) -> bool:
        """True if the schedule is posted at its due times."""
        return self.held is None and not self.is_paused

    def packed(self) -> bytes:
        """Return the value of the side record. Readers refuse fields that they do not know, so that only schedules that
        use a new field are refused by older versions of this library."""
        entry = self._replace(draft=_without_defaults(self.draft))
        packed: bytes = msgpack.packb((VERSION, *_without_defaults(entry)[1:]))
        return packed

    @classmethod
    def of(cls, side: Side) -> StoredSchedule:
        """Return the schedule of a side record.

        :raises ValueError: the schedule can't be read here; the message has the reason.
        """
        try:
            version, timetable, draft, due, *more = msgpack.unpackb(side.value or b"")
            known = ((timetable, Timetable), (draft, Draft), ((side.key, timetable, draft, due, *more), cls))
            if version > VERSION or any(len(found) > len(kind._fields) for found, kind in known):
                raise Newer("a newer version of this library has set it; upgrade this one to post its jobs here")
            entry = cls(side.key, Timetable(*timetable), Draft(*draft), due, *more)
            UUID(entry.draft.uuid)
            fits = type(due) is int and type(entry.draft.posting) in (bytes, str)
            fits = fits and type(entry.draft.expires_in) in (int, type(None))
            fits = fits and {type(entry.last), type(entry.skipped)} <= {int, type(None)}
            fits = fits and type(entry.held) in (str, type(None)) and type(entry.is_paused) is bool
            fits = fits and entry.timetable.has_right_types()
        except Newer:
            raise
        except Exception as error:
            raise ValueError(f"it is damaged, set it again: {type(error).__name__}") from error
        if not fits:
            raise ValueError("it is damaged, set it again")
        entry.timetable.check()
        return entry

    def job(self, due: int, wire: codec.Wire, uuid: str | None = None) -> Draft:
        """Return the job of a due time, whose uuid does not depend on the poster, unless ``uuid`` is given."""
        uuid = uuid or str(uuid5(UUID(self.draft.uuid), str(due)))
        posting = codec.add_to(self.draft.posting, wire, schedule=[self.id, due])
        expires_in = self.draft.expires_in
        if expires_in is None:
            return self.draft._replace(uuid=uuid, posting=posting)
        return self.draft._replace(uuid=uuid, posting=posting, expires_in=None, expires=due + expires_in)

    def advanced(self, due: int, posted: Mapping[int, bool]) -> StoredSchedule:
        """Return the schedule with another next due time.

        :param posted: the due times that have passed since, and whether each got its job.
        """
        skipped = self.skipped
        for time, has_job in posted.items():
            skipped = None if has_job else skipped or time
        return self._replace(due=due, last=max(posted, default=self.last), skipped=skipped)


class Unreadable(NamedTuple):
    """A schedule that can't be read here.

    why: the reason. newer: a newer version of this library has set the schedule."""

    id: str
    why: str
    newer: bool = False


Make = Callable[[int, StoredSchedule | None], StoredSchedule | None]
"""A function that returns the schedule to be stored, or None, from the time and the stored schedule."""

DuePosts = dict[str, Record | None]
"""The due jobs that all tries of a call have posted, by uuid; None where the reply was lost."""


class Schedules:
    """The schedules of a board.

    :param posting: plans the posting of drafts, as for a post.
    """

    def __init__(self, committer: Committer, posting: Callable[[Sequence[Draft]], Plan], wire: codec.Wire) -> None:
        self._committer = committer
        self._posting = posting
        self._wire = wire
        self._warned: dict[str, tuple[str, object]] = {}
        self._unsure = False

    def listed(self) -> list[StoredSchedule | Unreadable]:
        """Return all schedules."""
        return [schedule_of(side) for side in self._committer.read_all(KIND).sides]

    def readable(self) -> list[StoredSchedule]:
        """Return the readable schedules."""
        return [entry for side in self._committer.read_all(KIND).sides if (entry := self._readable(side)) is not None]

    def find(self, id: str) -> tuple[StoredSchedule | None, int]:  # noqa: A002 - as users have it
        """Return a readable schedule, or None; and the time."""
        side, now = self._read(id)
        return None if side.value is None else self._readable(side), now

    def set(self, id: str, make: Make, nonce: Nonce) -> StoredSchedule | None:  # noqa: A002 - as users have it
        entry: StoredSchedule | None = None

        def plan() -> Plan:
            nonlocal entry
            side, now = self._read(id)
            before = None if side.value is None else self._readable(side)
            entry = make(now, before)
            marks = [Mark(side, None if entry is None else entry.packed())] if entry != before else []
            return Plan([], [Deed(OK, "")], marks=marks)

        if self._committer.do(nonce, plan).replayed:
            return self.find(id)[0]
        return entry

    def remove(self, id: str, nonce: Nonce) -> Status:  # noqa: A002 - as users have it
        def plan() -> Plan:
            side, _ = self._read(id)
            there = side.value is not None
            return Plan([], [Deed(OK if there else Status.ABSENT, "")], marks=[Mark(side, None)] if there else [])

        return self._committer.do(nonce, plan).deeds[0].status

    def stats(self) -> KeptStats:
        """Count schedules and outcomes. An unreadable or paused schedule counts, and is never due."""
        found = self._committer.read_all(KIND)
        entries = (schedule_of(side) for side in found.sides)
        times = [each.due for each in entries if isinstance(each, StoredSchedule) and each.is_active]
        due = min(times, default=None)
        late = 0.0 if due is None else max(0.0, (found.now - due) / 1e6)
        outcomes = self._committer.store.counts({COMPLETE}).get(COMPLETE)
        return KeptStats(len(found.sides), None if due is None else moment(due), late, outcomes)

    def post_due(self, posted: DuePosts) -> int | None:
        """Post the due jobs of all schedules. A failed post of one schedule does not stop the others."""
        found = self._committer.read_all(KIND)
        coming: list[int] = []
        for side in found.sides:
            entry = self._readable(side)
            try:
                if entry is not None and not entry.is_active:
                    continue
                if entry is not None and entry.due <= found.now:
                    entry = self._post(entry, side, found.now, posted)
            except ConnectionFailure:
                # A job that was posted all the same is not due at the next look.
                self._unsure = True
                raise
            except (JobFailure, ValueError) as error:
                self._warn(side, str(error))
                if entry is not None:
                    coming.append(found.now + REPEAT_REFUSED)
                continue
            if entry is not None:
                coming.append(entry.due)
        if self._unsure:
            self._committer.store.sync()
            self._unsure = False
        self._learn(posted)
        return max(0, min(coming) - found.now) if coming else None

    def _learn(self, posted: DuePosts) -> None:
        """Read the jobs of tries whose replies were lost. Another process may have posted them, with the same uuids."""
        unknown = [uuid for uuid, record in posted.items() if record is None]
        if unknown:
            found = self._committer.store.read(unknown)
            posted.update((stored.record.uuid, record_at(stored, found.now)) for stored in found.jobs if stored)

    def _post(self, entry: StoredSchedule, side: Side, now: int, posted: DuePosts) -> StoredSchedule | None:
        """Post the due jobs of a schedule, unless another process has done so. Return the schedule after that; None if
        the schedule is gone."""
        tries = self._committer.tries()
        while entry.due <= now:
            times, due = self._next(entry, now)
            drafts = [entry.job(time, self._wire) for time in times]
            plan = self._posting(drafts)
            after = entry.advanced(due, dict(zip(times, (deed.status == OK for deed in plan.deeds), strict=True)))
            made = {draft.uuid for draft in drafts}
            try:
                done = self._committer.commit(plan.changes, [Mark(side, after.packed()), *plan.marks], plan.sides)
            except Stale:
                next(tries)
                side, now = self._read(side.key)
                if side.value is None:
                    return None
                entry = StoredSchedule.of(side)
                if not entry.is_active:
                    return None
                continue
            except ConnectionFailure:
                posted.update(dict.fromkeys(made))
                raise
            self._committer.note_act()
            posted.update((stored.record.uuid, stored.record) for stored in done.jobs if stored.record.uuid in made)
            entry, side = after, done.sides[0]
        return entry

    def _next(self, entry: StoredSchedule, now: int) -> tuple[list[int], int]:
        """Return the due times of the next commit, and the next due time after these."""
        times = entry.timetable.due_times(entry.due, now)
        most = max(1, min(MOST_POSTED, MOST_POSTED_BYTES // max(1, len(entry.draft.posting))))
        return times[:most], times[most] if len(times) > most else entry.timetable.after(now, entry.due)

    def _read(self, id: str) -> tuple[Side, int]:  # noqa: A002 - as users have it
        found = self._committer.store.read([], [(KIND, id)])
        return found.sides[0], found.now

    def _readable(self, side: Side) -> StoredSchedule | None:
        try:
            return StoredSchedule.of(side)
        except ValueError as error:
            self._warn(side, str(error))
            return None

    def _warn(self, side: Side, reason: str) -> None:
        """Log a warning once for each version of a schedule."""
        if self._warned.get(side.key) != (reason, side.tag):
            self._warned[side.key] = (reason, side.tag)
            LOG.warning("the schedule %r posts nothing here: %s", side.key, reason)


def schedule_of(side: Side) -> StoredSchedule | Unreadable:
    try:
        return StoredSchedule.of(side)
    except ValueError as error:
        return Unreadable(side.key, str(error), isinstance(error, Newer))
