"""A commit: what is compared, and what is put and deleted, in one Txn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobboard import retry
from jobboard.backends.etcd.keys import FENCE, EtcdTag, pack, pack_side, place_of, tag_of
from jobboard.backends.etcd.requests import below, delete, exists, is_at, made_at, put, within
from jobboard.engine import GATE, Change, Committed, Done, Mark, Side, Stale, Stored, reschedules
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, UNCLAIMED, Record

if TYPE_CHECKING:
    from jobboard.backends.etcd.store import EtcdStore

_TRIES = 50
_HASTY = 5
"""How many of these follow each other at once."""

LARGEST = 1_500_000
"""How large a request may be, in bytes, unless the server is told otherwise: 1.5 MiB with what is around it."""

AROUND = 50_000
"""How much of that may be anything else than postings and results: errors, keys, and what changes beside them."""


class TxnWriter:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        # Since which revision there is the key of the latest sequence: another one is another board.
        self.made = 0
        # For each priority the place of a fence. Another one replaces it before it goes, but on a restored server.
        self.fenced: dict[int, str] = {}

    def meets(self, made: int) -> None:
        """The board that is there now."""
        if made != self.made:
            self.made = made
            self.fenced = {}

    def commit(self, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side]) -> Committed:
        try:
            for number in range(_TRIES):
                if number > _HASTY:
                    time.sleep(retry.backoff(number - _HASTY, 0.001, 0.05))
                committed = _Commit(self._store, changes, marks, checks).carry_out()
                if committed is not None:
                    return committed
        except BaseException as error:
            # Unless others were quicker, what was to be claimed may be there, before all that was seen behind it.
            if _guards(changes) or not isinstance(error, Stale):
                self._store.fences.missed()
            raise
        raise ConnectionFailure(f"given up after {_TRIES} tries, in each of which others posted at the same moment")


class _Commit:
    """One try of it."""

    def __init__(
        self, store: EtcdStore, changes: Sequence[Change], marks: Sequence[Mark], checks: Sequence[Side]
    ) -> None:
        self._store = store
        self._keys = store.keys
        self._changes = changes
        self._marks = marks
        self._checks = checks
        self._now = self._next = store.clock.now()
        # For each priority the fence that is put, and the fence that must be there.
        self._ranks: dict[int, str] = {}
        self._relied: dict[int, str] = {}
        # As of which revision there must be what: the jobs that change, and side records and what is new.
        self._jobs: dict[str, int] = {}
        self._rest: dict[str, int] = {self._keys.side(each.kind, each.key): each.tag or 0 for each in checks}  # type: ignore[misc]
        self._lease: str | None = None
        self._puts: dict[str, bytes] = {}
        self._deletes: set[str] = set()
        self._stored: list[Stored] = []

    def carry_out(self) -> Committed | None:
        """None: it has to be tried again.

        :raises Stale: somebody was quicker.
        """
        tail, now = self._keys.tail, b"%014x" % self._now
        for change in self._changes:
            self._add(change)
        sides = [self._mark(mark) for mark in self._marks]
        if reschedules(self._changes, self._marks):
            self._puts[self._keys.schedules] = b""
        guards = _guards(self._changes)
        compare = [*guards, *(is_at(*each) for each in [*self._jobs.items(), *self._rest.items()])]
        if self._next > self._now:
            compare += [below(tail, now), made_at(tail, self._store.writer.made)]
            self._puts[tail] = b"%014x" % (self._next - 1)
        compare += [exists(self._keys.fences + place) for place in self._relied.values()]
        if self._lease is not None:
            compare.append(exists(self._keys.alive + self._lease))
        writes = [*map(delete, self._deletes), *(put(*each) for each in self._puts.items())]
        if tail not in self._puts and any(stored.record.lock_until is not None for stored in self._stored):
            # Who comes next must not be behind the time by which this ends.
            writes.append(within([below(tail, now)], [put(tail, now)]))
        size = sum(map(len, writes)) * 3 // 4
        if size > LARGEST:
            raise ValueError(
                f"it takes {size} bytes, and etcd takes {LARGEST} at once: post less at once, or smaller details"
            )
        answer = self._store.link.txn(compare, writes, never=self._keys.never)
        if not answer.succeeded:
            if guards:
                # Whatever it was, what comes next has to be looked for anew.
                raise Stale(sides=[GATE])
            self._refused()
            return None
        self._store.fences.claimed({change.before.record.uuid for change in self._changes if change.before is not None})
        fenced = self._store.writer.fenced
        fenced.update((priority, max(place, fenced.get(priority, ""))) for priority, place in self._ranks.items())
        jobs = [stored._replace(tag=tag_of(stored)._replace(revision=answer.revision)) for stored in self._stored]
        for stored in jobs:
            self._store.remember(stored)
        return Committed(jobs, [side._replace(tag=answer.revision) for side in sides if side is not None])

    def _refused(self) -> None:
        """:raises Stale: it was not for what this can do by itself, in another try."""
        for priority in self._relied:
            self._store.writer.fenced.pop(priority, None)
        alive = [] if self._lease is None else [self._keys.alive + self._lease]
        asked = {**self._jobs, **self._rest}
        (tail, *kvs), revision = self._store.gets([self._keys.tail, *asked, *alive])
        found = {key: 0 if kv is None else kv.revision for key, kv in zip(asked, kvs, strict=False)}
        other = {key for key, revision in self._rest.items() if found[key] != revision}
        sides = [*self._checks, *(mark.before for mark in self._marks)]
        known = {self._keys.side(side.kind, side.key): (side.kind, side.key) for side in sides}
        if other - known.keys():
            # It is something new that is there already.
            raise Stale
        before = [change.before for change in self._changes if change.before is not None]
        stale = [each.record.uuid for each in before if found[tag_of(each).key] != tag_of(each).revision]
        if stale or other:
            raise Stale(stale, [known[key] for key in other])
        self._store.saw(tail, revision)
        if self._lease is not None and kvs[-1] is None:
            self._store.keeper.forget(self._lease)

    # What goes into it

    def _add(self, change: Change) -> None:
        before, after, _ = change
        old: dict[str, bytes] = {}
        if before is not None:
            tag = tag_of(before)
            self._jobs[tag.key] = tag.revision
            old = {tag.key: b"", **self._keys.marks(before.record)}
        if after is None:
            assert before is not None
            self._store.forget(before.record.uuid)
            self._deletes |= old.keys()
            return
        if isinstance(after, Draft):
            after = after.record(self._next, self._now)
            self._next += 1
            self._rest[self._keys.job(after.uuid)] = 0
        lease = self._keeper(after)
        key = self._keys.record(after)
        new = {key: pack(after, lease), **self._keys.marks(after)}
        self._deletes |= old.keys() - new.keys()
        self._puts.update(each for each in new.items() if old.get(each[0]) != each[1])
        if after.state == UNCLAIMED and (before is not None or self._needs_fence(after)):
            self._puts[self._keys.fences + place_of(after)] = b""
            self._ranks[after.priority] = place_of(after)
        self._stored.append(Stored(after, EtcdTag(key, 0, lease)))

    def _needs_fence(self, record: Record) -> bool:
        if record.sequence % FENCE == 0 or record.priority in self._ranks:
            return record.sequence % FENCE == 0
        known = self._store.writer.fenced.get(record.priority)
        if known is not None:
            self._relied[record.priority] = known
        return known is None

    def _keeper(self, record: Record) -> str | None:
        """The lease that is to keep a claim."""
        if record.state != CLAIMED or record.lock_until is not None:
            return None
        self._lease = self._lease or self._store.keeper.hold()
        return self._lease

    def _mark(self, mark: Mark) -> Side | None:
        side, value = mark.before, mark.value
        key = self._keys.side(side.kind, side.key)
        self._rest[key] = side.tag or 0  # type: ignore[assignment]
        if mark.wakes:
            # The watch hears of what is put, and not of what goes.
            self._puts[self._keys.again] = b""
        if value is None:
            if side.tag is not None:
                self._deletes.add(key)
            return None
        until = mark.end(self._now)
        if side.kind == "outcome" and until is not None and (done := Done.of(side._replace(value=value))) is not None:
            place = self._keys.ended(done.record)
            self._puts[place] = b""
            # What another board has kept for longer than until now is dropped with the others of now.
            self._puts[self._keys.drop(max(until, self._now), side.key)] = place.encode()
        self._puts[key] = pack_side(value, until)
        return side._replace(value=value, until=until)


def _guards(changes: Sequence[Change]) -> list[str]:
    """What holds as long as nothing has come in before the last of the jobs that were seen ahead."""
    tags = [tag for change in changes if change.before is not None and (tag := tag_of(change.before)).guard]
    last = max(tags, key=lambda tag: tag.key[-16:], default=None)
    return [] if last is None or last.guard is None else last.guard(last.key[-16:])
