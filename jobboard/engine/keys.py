"""Who has a key, and what that means for those who post it again: a job holds it for as long as it lives, or until its
window ends, whichever comes later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from jobboard import notifier, states
from jobboard.engine.calls import EnginePart, standing, sweeping
from jobboard.engine.store import Change, Mark, Side, Stale, Store, Stored
from jobboard.primitives import Draft
from jobboard.states import LIVE, OK, Record

LOG = logging.getLogger(__name__)


class Holders(NamedTuple):
    """Who has the keys that a call is about: ``by_key`` the uuids, ``jobs`` what is stored of these. ``sides``: what
    was read; ``freed``: lapses that nobody has met yet, and that set a key free."""

    now: int
    sides: list[Side]
    by_key: dict[str, str]
    jobs: dict[str, Stored]
    freed: list[Change]

    def seen(self) -> dict[str, Record]:
        """The holders as they stand."""
        return {uuid: standing(stored, self.now) for uuid, stored in self.jobs.items()}

    def replace(self, changes: list[Change], holder: str, draft: Draft) -> bool:
        """Have a holder get what ``draft`` brings; False where it is claimed, or has come to its end.

        :param changes: takes that in; the holder may be among them already.
        """
        for index, (before, job, event) in enumerate(changes):
            if job is not None and job.uuid == holder:
                after = _replaced(job, draft, self.now)
                assert after is not None
                changes[index] = Change(before, after, event)
                return True
        stored = self.jobs.get(holder)
        renewed = None if stored is None else _replaced(standing(stored, self.now), draft, self.now)
        if renewed is not None:
            changes.append(Change(stored, renewed, notifier.POSTED))
        return renewed is not None


def _replaced(job: Draft | Record, draft: Draft, now: int) -> Draft | Record | None:
    if isinstance(job, Record):
        status, after = states.replace(job, now, draft.record(job.sequence, now))
        return after if status == OK else None
    return job._replace(
        priority=draft.priority, version=draft.version, posting=draft.posting, delay=draft.delay, due=draft.due
    )


class Remembered(NamedTuple):
    """A key that outlives its job, until its window ends."""

    key: str
    uuid: str
    until: int


class KeyEngine(EnginePart):
    """What :class:`~jobboard.engine.StoreEngine` has of an engine's primitives for keys that outlive their jobs."""

    def remembered(self, place: Any) -> tuple[list[Remembered], Any]:
        found, further = self._call(None).store.walk("key", place)
        keys = [
            Remembered(side.key, holder, side.until)
            for side in found.sides
            if side.until is not None and side.stands(found.now) and (holder := holder_of(side)) is not None
        ]
        return keys, further

    def remember(self, keys: Sequence[Remembered]) -> int:
        calls = self._call(None)
        for _ in calls.tries():
            found = calls.store.read([], [("key", each.key) for each in keys])
            marks = [
                Mark(side, each.uuid.encode(), until=each.until)
                for each, side in zip(keys, found.sides, strict=True)
                if not side.stands(found.now) and each.until > found.now
            ]
            try:
                calls.commit([], marks)
            except Stale:
                continue
            return len(marks)
        raise AssertionError("unreachable")


def holder_of(side: Side) -> str | None:
    """The uuid of the job that has a key; None where that is damaged: then nobody has it."""
    try:
        return (side.value or b"").decode()
    except UnicodeDecodeError:
        LOG.warning("who has the key %r can't be read: %r", side.key, side.value)
        return None


def holders_of(store: Store, keys: Sequence[str]) -> Holders:
    if not keys:
        return Holders(0, [], {}, {}, [])
    found = store.read([], [("key", key) for key in keys])
    holding = ((side.key, holder_of(side)) for side in found.sides if side.stands(found.now))
    held = {key: uuid for key, uuid in holding if uuid is not None}
    there = store.read(list(held.values())) if held else found
    holders = Holders(there.now, found.sides, held, {}, [])
    remembered = {side.key for side in found.sides if side.until is not None}
    for (key, uuid), stored in zip(list(held.items()), there.jobs, strict=True):
        if stored is None:
            if key not in remembered:
                del held[key]
            continue
        record = standing(stored, there.now)
        if record.state in LIVE or (record.key_until or 0) > there.now:
            holders.jobs[uuid] = stored
        else:
            del held[key]
            if stored.record.state in LIVE:
                holders.freed.append(sweeping(stored, there.now))
    return holders
