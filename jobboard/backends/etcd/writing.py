"""A commit: what is compared, and what is put and deleted, in one Txn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobboard import retry
from jobboard.backends.etcd.keys import FENCE, EtcdTag, pack, pack_side, place_of
from jobboard.backends.etcd.requests import (
    COMPARES,
    below,
    delete,
    exists,
    is_at,
    made_at,
    put,
    untouched,
    within,
)
from jobboard.engine import Change, Committed, Done, Mark, Side, Stale, Stored
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, UNCLAIMED, Record

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

_TRIES = 50
_HASTY = 5
"""How many of these follow each other at once."""

LARGEST = 1_500_000
"""How large a request may be, in bytes, unless the server is told otherwise: 1.5 MiB with what is around it."""


class TxnWriter:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        # Since which revision there is the key of the latest sequence: another one is another board.
        self.made = 0
        # The priorities that have a fence, and so always will.
        self._fenced: set[int] = set()

    def meets(self, made: int) -> None:
        """The board that is there now."""
        if made != self.made:
            self.made = made
            self._fenced = set()

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side]) -> Committed:
        guarded = any(change.before is not None and change.before.tag.guard for change in changes)  # type: ignore[attr-defined]
        done = False
        try:
            for number in range(_TRIES):
                if number > _HASTY:
                    time.sleep(retry.backoff(number - _HASTY, 0.001, 0.05))
                committed = _Commit(self._store, self._fenced, changes, marks, checks).carry_out()
                if committed is not None:
                    done = True
                    return committed
        finally:
            if guarded and not done:
                self._store.fences.missed()
        raise ConnectionFailure(f"given up after {_TRIES} tries, in each of which others posted at the same moment")


class _Commit:
    """One try of it."""

    def __init__(
        self,
        store: EtcdStore,
        fenced: set[int],
        changes: Sequence[Change],
        marks: Sequence[Mark],
        checks: Sequence[Side],
    ) -> None:
        self._store = store
        self._keys = store.keys
        self._fenced = fenced
        self._changes = changes
        self._marks = marks
        self._now = store.clock.now()
        self._next = self._now
        self._ranks: set[int] = set()
        # Of the jobs that change, of what else is compared, and of what must not be there: the revision.
        self._jobs: dict[str, int] = {}
        self._sides: dict[str, int] = {self._keys.side(each.kind, each.key): each.tag or 0 for each in checks}  # type: ignore[misc]
        self._new: dict[str, int] = {}
        self._lease: str | None = None
        self._puts: dict[str, tuple[bytes, str | None]] = {}
        self._deletes: set[str] = set()
        self._stored: list[tuple[Record, str, str | None]] = []
        self._guard: list[str] = []

    def carry_out(self) -> Committed | None:
        """None: it has to be tried again.

        :raises Stale: somebody was quicker.
        """
        drafts = any(isinstance(change.after, Draft) for change in self._changes)
        for change in self._changes:
            self._add(change)
        kept = [self._mark(mark) for mark in self._marks]
        self._guards()
        compare = [*self._guard, *(is_at(key, revision) for key, revision in self._jobs.items())]
        if drafts:
            tail = b"%014x" % (self._next - 1)
            compare += [below(self._keys.tail, b"%014x" % self._now), made_at(self._keys.tail, self._store.writer.made)]
            self._puts[self._keys.tail] = (tail, None)
        if self._lease is not None:
            compare.append(exists(self._keys.alive + self._lease))
        compare += self._rest(COMPARES - len(compare))
        writes = [*map(delete, self._deletes), *(put(key, *value) for key, value in self._puts.items())]
        if not drafts and any(record.lock_until is not None for record, *_ in self._stored):
            # Who comes next must not be behind the time by which this ends.
            now = b"%014x" % self._now
            writes.append(within([below(self._keys.tail, now)], [put(self._keys.tail, now)]))
        body_size = sum(len(each) for each in writes) * 3 // 4
        if body_size > LARGEST:
            raise JobFailure(
                f"it takes {body_size} bytes, and etcd takes {LARGEST} at once: post less at once, or smaller details"
            )
        answer = self._store.link.txn(compare, writes)
        if answer.succeeded:
            self._fenced |= self._ranks
            return self._committed(answer.revision, kept)
        alive = [] if self._lease is None else [self._keys.alive + self._lease]
        asked = [*self._jobs, *self._sides, *self._new]
        kvs, revision = self._store.gets([self._keys.tail, *asked, *alive])
        self._refuse({key: 0 if kv is None else kv.revision for key, kv in zip(asked, kvs[1:], strict=False)})
        self._store.saw(kvs[0], revision)
        if self._lease is not None and kvs[-1] is None:
            self._store.keeper.forget(self._lease)
        return None

    def _refuse(self, found: dict[str, int]) -> None:
        """:raises Stale: it was not for what this can do by itself, in another try."""
        if any(found[key] != revision for key, revision in (self._sides | self._new).items()):
            raise Stale
        stale = [
            change.before.record.uuid
            for change in self._changes
            if change.before is not None and found[_tag(change.before).key] != _tag(change.before).revision
        ]
        if not stale and self._guard:
            stale = [each.before.record.uuid for each in self._changes if each.before and _tag(each.before).guard]
        if stale:
            raise Stale(stale)

    def _committed(self, revision: int, kept: Sequence[Side | None]) -> Committed:
        jobs = []
        for record, key, lease in self._stored:
            tag = EtcdTag(key, revision, lease)
            self._store.remember(record, tag)
            jobs.append(Stored(record, tag))
        return Committed(jobs, [side._replace(tag=revision) for side in kept if side is not None])

    # What goes into it

    def _add(self, change: Change) -> None:
        before, after, _ = change
        old: dict[str, bytes] = {}
        if before is not None:
            tag = _tag(before)
            self._jobs[tag.key] = tag.revision
            old = {tag.key: b"", **self._keys.marks(before.record, tag.lease)}
        if after is None:
            assert before is not None
            self._store.remember(before.record, None)
            self._deletes |= old.keys()
            return
        record, place = self._record(after), ""
        lease = self._keeper(record)
        key = self._keys.record(record)
        new = self._keys.marks(record, lease)
        if record.state == UNCLAIMED:
            place = place_of(record, record.sequence)
            if before is not None or self._needs_fence(record):
                self._puts[self._keys.fences + place] = (b"", None)
                self._ranks.add(record.priority)
        if before is None:
            self._new[self._keys.job(record.uuid)] = 0
        pointer = self._keys.job(record.uuid)
        if before is not None and new[pointer] == self._keys.marks(before.record, None)[pointer]:
            del new[pointer], old[pointer]
        self._deletes |= old.keys() - new.keys() - {key}
        for name in new.keys() - old.keys() | new.keys() & {pointer}:
            self._puts[name] = (new[name], None)
        self._puts[key] = (pack(record, lease), None)
        self._stored.append((record, key, lease))

    def _record(self, after: Draft | Record) -> Record:
        if isinstance(after, Record):
            return after
        record = after.record(self._next, self._now)
        self._next += 1
        return record

    def _needs_fence(self, record: Record) -> bool:
        rank = record.priority
        return record.sequence % FENCE == 0 or (rank not in self._fenced and rank not in self._ranks)

    def _keeper(self, record: Record) -> str | None:
        """The lease that is to keep a claim."""
        if record.state != CLAIMED or record.lock_until is not None:
            return None
        self._lease = self._lease or self._store.keeper.hold()
        return self._lease

    def _mark(self, mark: Mark) -> Side | None:
        side, value = mark.before, mark.value
        key = self._keys.side(side.kind, side.key)
        self._sides[key] = side.tag or 0  # type: ignore[assignment]
        if side.kind == "gate":
            # The watch hears of what is put, and not of what goes.
            self._puts[f"{self._keys.wake}gate"] = (b"", None)
        if value is None:
            if side.tag is not None:
                self._deletes.add(key)
            return None
        until = mark.end(self._now)
        if side.kind == "outcome" and until is not None and (done := Done.of(side._replace(value=value))) is not None:
            place = self._keys.ended(done.record)
            self._puts[place] = (b"", None)
            self._puts[self._keys.drop(until, side.key)] = (place.encode(), None)
        self._puts[key] = (pack_side(value, until), None)
        return side._replace(value=value, until=until)

    def _guards(self) -> None:
        guarded = [_tag(change.before) for change in self._changes if change.before and _tag(change.before).guard]
        if guarded:
            last = max(tag.key[-16:] for tag in guarded)
            self._guard = guarded[0].guard.compares(self._store, last)  # type: ignore[attr-defined]

    def _rest(self, room: int) -> list[str]:
        """Compare the side records, and that what is new is not there. Where these are too many for one Txn, they are
        read before it, and it compares that nothing of their kind has changed since: keys, and arrivals with uuids of
        their own, count their changes. Other uuids are random, and never meet."""
        counted = len(self._marks) > 1 or any(
            isinstance(change.after, Draft) and change.after.arrival is not None for change in self._changes
        )
        if counted:
            self._puts[self._keys.changes] = (b"", None)
        rest = {**self._sides, **self._new}
        if len(rest) <= room:
            return [is_at(key, revision) for key, revision in rest.items()]
        kvs, revision = self._store.gets(list(rest))
        found = {key: 0 if kv is None else kv.revision for key, kv in zip(rest, kvs, strict=True)}
        stale = [key for key in self._new if found[key]]
        if any(found[key] != at for key, at in self._sides.items()) or stale:
            raise Stale
        left = [key for key in self._sides if "/side/answer/" in key or key == self._keys.gate]
        self._sides = {key: self._sides[key] for key in left}
        return [untouched(self._keys.changes, revision), *(is_at(key, self._sides[key]) for key in left)]


def _tag(stored: Stored) -> EtcdTag:
    assert isinstance(stored.tag, EtcdTag)
    return stored.tag
