"""Idempotency keys: a job holds its key until the later of its own end and the end of the key's window.

The record of the job has the end of the window, ``key_until``. A commit that ends the job earlier moves the end of the
window to the side record of the key: see ``_key_marks`` of :mod:`jobboard.engine.committer`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from jobboard import notifier, states
from jobboard.engine.committer import record_at, sweep_change
from jobboard.engine.store import Change, Side, Store, Stored
from jobboard.primitives import Draft, Seen
from jobboard.states import LIVE, OK, Record

LOG = logging.getLogger(__name__)


class Holders(NamedTuple):
    """The holders of the keys of a call.

    sides: the side records of the keys. by_key: the uuids of the holders. jobs: the stored holders by uuid. freed:
    changes that write down lapses which have freed a key.
    """

    now: int
    sides: list[Side]
    by_key: dict[str, str]
    jobs: dict[str, Stored]
    freed: list[Change]

    def seen(self) -> dict[str, Seen]:
        """Return the holders as of the reading."""
        return {uuid: Seen.at(self.now, record_at(stored, self.now)) for uuid, stored in self.jobs.items()}

    def behind(self, changes: Sequence[Change]) -> Holders:
        """Return the holders as other changes of the same commit leave them.

        A job that these changes end frees its key, unless the window of the key runs."""
        if not (changes and self.sides):
            return self
        ends = {before.record.uuid: (before, after) for before, after, _ in changes if before is not None}
        by_key, jobs, windows = dict(self.by_key), dict(self.jobs), set()
        for key, uuid in self.by_key.items():
            if uuid not in ends:
                continue
            before, after = ends[uuid]
            jobs.pop(uuid, None)
            if isinstance(after, Record):
                jobs[uuid] = before._replace(record=after)
            if not (isinstance(after, Record) and after.state in LIVE):
                if (before.record.key_until or 0) > self.now:
                    windows.add(key)
                else:
                    del by_key[key]
        # The commit reads a key with a window anew, and keeps its window.
        sides = [side for side in self.sides if side.key not in windows]
        freed = [change for change in self.freed if change.before is None or change.before.record.uuid not in ends]
        return Holders(self.now, sides, by_key, jobs, freed)

    def replace(self, changes: list[Change], holder: str, draft: Draft) -> bool:
        """Give a holder the posting of ``draft``. Return false if the holder is claimed or has ended.

        :param changes: receives the change. The holder may be an earlier draft among them.
        """
        for index, (before, job, event) in enumerate(changes):
            if job is not None and job.uuid == holder:
                after = _replaced(job, draft, self.now)
                if after is not None:
                    changes[index] = Change(before, after, event)
                return after is not None
        stored = self.jobs.get(holder)
        renewed = None if stored is None else _replaced(record_at(stored, self.now), draft, self.now)
        if renewed is not None:
            changes.append(Change(stored, renewed, notifier.POSTED))
        return renewed is not None


NO_HOLDERS = Holders(0, [], {}, {}, [])
"""The holders of no keys, to be read alone."""


def _replaced(job: Draft | Record, draft: Draft, now: int) -> Draft | Record | None:
    if isinstance(job, Record):
        status, after = states.replace(job, now, draft.record(job.sequence, now))
        return after if status == OK else None
    return job._replace(**{name: getattr(draft, name) for name in _REPLACED})


_REPLACED = ("priority", "version", "posting", "delay", "due", "expires_in", "expires")
"""The fields of a draft that another one of its key replaces."""


class Remembered(NamedTuple):
    """A key whose window outlives its job."""

    key: str
    uuid: str
    until: int


def holder_of(side: Side) -> str | None:
    """Return the uuid of the job that holds a key; None for a damaged record, whose key nobody holds."""
    try:
        return (side.value or b"").decode()
    except UnicodeDecodeError:
        LOG.warning("the holder of the key %r can't be read: %r", side.key, side.value)
        return None


def holders_of(store: Store, keys: Sequence[str]) -> Holders:
    """Read the holders of these keys."""
    if not keys:
        return Holders(0, [], {}, {}, [])
    found = store.read([], [("key", key) for key in keys])
    holding = ((side.key, holder_of(side)) for side in found.sides if side.is_valid(found.now))
    held = {key: uuid for key, uuid in holding if uuid is not None}
    there = store.read(list(held.values())) if held else found
    holders = Holders(there.now, found.sides, held, {}, [])
    remembered = {side.key for side in found.sides if side.until is not None}
    for (key, uuid), stored in zip(list(held.items()), there.jobs, strict=True):
        if stored is None:
            if key not in remembered:
                del held[key]
            continue
        record = record_at(stored, there.now)
        if record.state in LIVE or (record.key_until or 0) > there.now:
            holders.jobs[uuid] = stored
        else:
            del held[key]
            if stored.record.state in LIVE:
                holders.freed.append(sweep_change(stored, there.now))
    return holders
