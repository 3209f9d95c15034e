"""The board in memory: the reference for the others, and what to test one's own code with.

Boards of one name in one process share their jobs, which stay when a board is closed. Time is the stored board's: give
it a :class:`ManualClock` to make leases lapse and delays end at will::

    clock = ManualClock()
    board = jobboard.fetch("test", {"board": "memory", "clock": clock})

A kept claim has no lease here: its holder lives in this very process.
"""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from jobboard import conf, states
from jobboard.engine import Engine
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Characteristics, Claimed, Draft, Finish, Nonce, Peeked, Renewed, Seen, Taken
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    LIVE,
    OK,
    TRASHED,
    UNCLAIMED,
    Holder,
    Record,
    State,
    Status,
    Verb,
)

_DAY = 24 * 3600 * 1_000_000


class ManualClock:
    """A clock that goes only when told to. ``start`` in seconds since 1970 UTC."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self._stores: weakref.WeakSet[_Store] = weakref.WeakSet()

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake who waits for it."""
        self._now += seconds
        for store in list(self._stores):
            store.wake()


_Done = tuple[Status, str, int]
"""What was done to a job: status, uuid, and the token of a claim."""


class _Answer(NamedTuple):
    """What a call did, to be read again when it is repeated."""

    call: int
    attempt: int
    done: list[_Done]


class _Store:
    """The jobs of one name. Every access holds ``lock`` and begins with :meth:`now`, which settles them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lock = threading.Condition()
        self.jobs: dict[str, Record] = {}
        self.keys: dict[str, str] = {}
        self.ready: dict[str, list[tuple[int, int, str]]] = {}
        self.timed: list[tuple[int, str]] = []
        self.purged: dict[str, int] = {}
        self.exhausted: list[Record] = []
        self.entities: dict[tuple[str, str], tuple[str, str]] = {}
        self.answers: dict[tuple[str, int], _Answer] = {}
        self.sequence = 0
        self.generation = 0
        if isinstance(clock, ManualClock):
            clock._stores.add(self)

    def wake(self) -> None:
        with self.lock:
            self.generation += 1
            self.lock.notify_all()

    def now(self) -> int:
        now = int(self.clock() * 1e6)
        while self.timed and self.timed[0][0] <= now:
            _, uuid = heapq.heappop(self.timed)
            record = self.jobs.get(uuid)
            if record is not None and (settled := states.settle(record, now)) is not record:
                self.put(settled)
                if settled.state == TRASHED:
                    self.exhausted.append(settled)
        return now

    def put(self, record: Record) -> None:
        self.jobs[record.uuid] = record
        if record.key is not None:
            if record.state in LIVE:
                self.keys[record.key] = record.uuid
            elif self.keys.get(record.key) == record.uuid:
                del self.keys[record.key]
        if record.state == UNCLAIMED:
            heapq.heappush(self.ready.setdefault(record.name, []), (record.priority, record.sequence, record.uuid))
            self.wake()
        if record.lock_until is not None:
            earlier = not self.timed or record.lock_until < self.timed[0][0]
            heapq.heappush(self.timed, (record.lock_until, record.uuid))
            if earlier:
                self.wake()  # who waits does so until what was the next event so far

    def drop(self, record: Record) -> None:
        del self.jobs[record.uuid]
        if record.key is not None and self.keys.get(record.key) == record.uuid:
            del self.keys[record.key]

    def bury(self, uuid: str, now: int) -> None:
        """Remember for a day that this job was purged."""
        self.purged = {known: at for known, at in self.purged.items() if at > now - _DAY}
        self.purged[uuid] = now

    def next_event(self, now: int) -> int | None:
        return max(0, self.timed[0][0] - now) if self.timed else None

    def first(self, names: Sequence[str] | None, readable: int) -> Record | None:
        """The job that is served next. What a heap still holds of jobs that are no longer claimable is dropped here."""
        best: Record | None = None
        for name in list(self.ready) if names is None else names:
            heap = self.ready.get(name, [])
            newer = []
            while heap:
                record = self.jobs.get(heap[0][2])
                if record is None or record.state != UNCLAIMED:
                    heapq.heappop(heap)
                elif record.version > readable:
                    newer.append(heapq.heappop(heap))
                else:
                    if best is None or (record.priority, record.sequence) < (best.priority, best.sequence):
                        best = record
                    break
            for entry in newer:
                heapq.heappush(heap, entry)
            if not heap:
                self.ready.pop(name, None)
        return best


_stores: dict[str, _Store] = {}
_stores_lock = threading.Lock()


def forget(name: str) -> None:
    """Drop the stored board of this name, with its jobs. Boards that are connected to it keep it to themselves."""
    with _stores_lock:
        _stores.pop(name, None)


def _clock(value: Any) -> Callable[[], float]:
    if not callable(value):
        raise TypeError("must be a callable that answers seconds since 1970, as time.time does")
    return value  # type: ignore[no-any-return]


class MemoryEngine(Engine):
    """A board in this process's memory. ``clock`` (in a dict) sets the clock of a board that is not stored yet."""

    options: ClassVar[Mapping[str, conf.Option]] = {
        "clock": conf.Option(_clock, None, "a callable that answers seconds since 1970 UTC"),
    }

    poll_cap = 3600.0

    def open(self) -> None:
        clock = self._conf["clock"]
        with _stores_lock:
            store = _stores.get(self._name)
            if store is None:
                store = _stores[self._name] = _Store(clock or time.time)
            elif clock not in (None, store.clock):
                raise JobFailure(f"the board {self._name!r} is stored with another clock; forget({self._name!r}) first")
        self._opened: _Store | None = store
        self.characteristics = Characteristics(
            durable=False,
            survives_failover=False,
            exact_order=True,
            blocking_wait=True,
            remote_events=False,
            transactional=False,
            claim_ttl=self._conf["claim_ttl"],
            notes="lives and dies with this process",
        )

    def shut(self) -> None:
        store, self._opened = self._store, None
        store.wake()

    def forked(self) -> None:
        # The child has a copy of everything, perhaps with the lock held by a thread that it has not.
        if self._opened is not None:
            self._opened.lock = threading.Condition()

    @property
    def _store(self) -> _Store:
        if self._opened is None:
            raise ConnectionFailure(f"{self!r} is closed")
        return self._opened

    def _once(self, nonce: Nonce | None, act: Callable[[], list[_Done]]) -> list[_Done]:
        """Do ``act`` unless this call was done already; what it did, either way. The lock is held."""
        assert nonce is not None  # there are no transactions of a caller's to take part in
        slot = (nonce.handle, nonce.slot)
        stored = self._store.answers.get(slot)
        if stored is not None and stored.call > nonce.call:
            raise JobFailure("this call comes after a later one: its caller has long gone on")
        if stored is None or stored.call < nonce.call:
            stored = self._store.answers[slot] = _Answer(nonce.call, nonce.attempt, act())
        return stored.done

    def _answered(self, nonce: Nonce) -> bool:
        stored = self._store.answers.get((nonce.handle, nonce.slot))
        return stored is not None and stored.call == nonce.call

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[tuple[bool, Record | None]]:
        store = self._store
        with store.lock:
            now = store.now()

            done = self._once(nonce, lambda: [self._insert_one(store, draft, now) for draft in drafts])
            assert nonce is not None
            slot = (nonce.handle, nonce.slot)
            if nonce.attempt > store.answers[slot].attempt:
                done = self._insert_again(store, drafts, done, now)
                store.answers[slot] = _Answer(nonce.call, nonce.attempt, done)
            return [(status == OK, store.jobs.get(uuid)) for status, uuid, _ in done]

    def _insert_again(self, store: _Store, drafts: Sequence[Draft], earlier: list[_Done], now: int) -> list[_Done]:
        """Try those anew that were kept out by another's job which does not have their key any longer."""
        mine = {uuid for status, uuid, _ in earlier if status == OK}
        return [
            self._insert_one(store, draft, now)
            if done[0] == Status.KEY and done[1] not in mine and store.keys.get(draft.key or "") != done[1]
            else done
            for draft, done in zip(drafts, earlier, strict=True)
        ]

    @staticmethod
    def _insert_one(store: _Store, draft: Draft, now: int) -> _Done:
        record = draft.record(store.sequence + 1, now)
        if draft.arrival is not None:
            if draft.uuid in store.jobs:
                return Status.LIVE, draft.uuid, 0
            store.purged.pop(draft.uuid, None)
        holder = None if draft.key is None or record.state == TRASHED else store.keys.get(draft.key)
        if holder is not None:
            return Status.KEY, holder, 0
        store.sequence += 1
        store.put(record)
        return OK, draft.uuid, 0

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        store = self._store
        with store.lock:
            now = store.now()
            [done] = self._once(nonce, lambda: [self._claim_one(store, uuid, who, expiry, nonce.handle, now)])
            if done[0] != OK:
                return Claimed(done[0], None, None)
            record = self._still(store, done)
            return Claimed(OK, record, _left([record], expiry, now)) if record else Claimed(Status.LOST, None, None)

    @staticmethod
    def _claim_one(store: _Store, uuid: str, who: str, expiry: int | None, handle: str, now: int) -> _Done:
        status, record = states.claim(store.jobs.get(uuid), now, who, *_lease(expiry, handle, now))
        if status != OK or record is None:
            return status, uuid, 0
        store.put(record)
        return OK, uuid, record.token

    @staticmethod
    def _still(store: _Store, done: _Done) -> Record | None:
        """The record of a claim that was just made, or is answered again; None if it does not stand any longer."""
        _, uuid, token = done
        record = store.jobs.get(uuid)
        return record if record is not None and record.token == token and record.state == CLAIMED else None

    def take(
        self,
        who: str,
        limit: int,
        expiry: int | None,
        names: Sequence[str] | None,
        readable: int,
        nonce: Nonce,
        **extra: Any,
    ) -> Taken:
        store = self._store
        with store.lock:
            mark = store.generation
            now = store.now()

            def act() -> list[_Done]:
                done: list[_Done] = []
                while len(done) < limit and (record := store.first(names, readable)) is not None:
                    done.append(self._claim_one(store, record.uuid, who, expiry, nonce.handle, now))
                return done

            replayed = self._answered(nonce)
            records = [record for done in self._once(nonce, act) if (record := self._still(store, done))]
            trashed, store.exhausted = store.exhausted, []
            return Taken(records, _left(records, expiry, now), trashed, store.next_event(now), mark, replayed)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        return Renewed([], None)  # a kept claim has no lease here

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        store = self._store
        with store.lock:
            now = store.now()

            def act() -> list[_Done]:
                status, record = states.extend(store.jobs.get(uuid), holder, now, *_lease(expiry, nonce.handle, now))
                if status == OK and record is not None:
                    store.put(record)
                return [(status, uuid, 0)]

            # To extend again does no harm, and what has lapsed since the first try is revived by it.
            done = act() if self._answered(nonce) else self._once(nonce, act)
            return done[0][0], expiry

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        store = self._store
        with store.lock:
            now = store.now()

            def act() -> list[_Done]:
                done: list[_Done] = []
                for finish in acts:
                    found = store.jobs.get(finish.uuid)
                    status, record = states.finish(found, finish.holder, now, *finish[2:])
                    if finish.verb == Verb.PURGE and status == OK:
                        store.bury(finish.uuid, now)
                    self._store_result(store, status, found, record)
                    done.append((status, finish.uuid, 0))
                return done

            return [status for status, _, _ in self._once(nonce, act)]

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        store = self._store
        with store.lock:
            now = store.now()

            def act() -> list[_Done]:
                found = store.jobs.get(uuid)
                if verb == Verb.RELEASE:
                    status, record = states.release(found, now, error, token)
                elif verb == Verb.CANCEL:
                    status, record = states.cancel(found, now, error)
                elif verb == Verb.RESTORE:
                    status, record = states.restore(found, now)
                    if status == OK and found is not None and found.key in store.keys:
                        status = Status.KEY
                else:
                    status, record = states.purge(found, now)
                    if status == OK:
                        store.bury(uuid, now)
                self._store_result(store, status, found, record)
                return [(status, uuid, 0)]

            return self._once(nonce, act)[0][0]

    @staticmethod
    def _store_result(store: _Store, status: Status, found: Record | None, record: Record | None) -> None:
        if status == OK and record is not None:
            store.put(record)
        elif status == OK and found is not None:
            store.drop(found)

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        store = self._store
        with store.lock:
            now = store.now()
            return [
                Seen.at(now, record)
                if (record := store.jobs.get(uuid)) is not None
                else Seen(TRASHED if uuid in store.purged else COMPLETE, None, None)
                for uuid in uuids
            ]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State] | None
    ) -> list[Seen]:
        store = self._store
        wanted = LIVE if states is None else states
        place = (-1, -1) if after is None else _place(after)
        with store.lock:
            now = store.now()
            found = (
                record
                for record in store.jobs.values()
                if record.state in wanted and (names is None or record.name in names) and _place(record) > place
            )
            return [Seen.at(now, record) for record in heapq.nsmallest(limit, found, key=_place)]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        store = self._store
        with store.lock:
            store.now()
            found = (record for record in store.jobs.values() if record.state == TRASHED)
            newest = sorted(found, key=_trashed_at, reverse=True)
            start = 0 if after is None else sum(_trashed_at(record) >= _trashed_at(after) for record in newest)
            return newest[start : start + limit]

    def now(self) -> int:
        with self._store.lock:
            return self._store.now()

    def tally(self) -> dict[State, int]:
        with self._store.lock:
            self._store.now()
            return Counter(record.state for record in self._store.jobs.values())

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        store = self._store
        with store.lock:
            mark = store.generation
            now = store.now()
            return Peeked(store.first(names, readable) is not None, store.next_event(now), mark)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        store = self._store
        with store.lock:
            store.lock.wait_for(lambda: store.generation != mark or self._opened is None, limit)

    def rouse(self) -> None:
        self._store.wake()

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        with self._store.lock:
            self._store.entities[kind, name] = (handle, metadata)

    def delist(self, handle: str) -> None:
        store = self._store
        with store.lock:
            store.entities = {key: value for key, value in store.entities.items() if value[0] != handle}

    def boards(self, most: int) -> list[str]:
        with _stores_lock:
            others = [name for name in _stores if name != self._name]
        return [self._name, *others][:most]

    def roster(self) -> list[tuple[str, str, str]]:
        with self._store.lock:
            return [(kind, name, metadata) for (kind, name), (_, metadata) in self._store.entities.items()]


def _left(records: Sequence[Record], expiry: int | None, now: int) -> int | None:
    """What is surely left of these claims: all of their expiry, but less in an answer that is given again."""
    if expiry is None:
        return None
    return min((record.lock_until - now for record in records if record.lock_until is not None), default=expiry)


def _lease(expiry: int | None, handle: str, now: int) -> tuple[str | None, int | None]:
    """The keeper and the end of a lease."""
    return (handle, None) if expiry is None else (None, now + expiry)


def _place(record: Record) -> tuple[int, int]:
    return record.priority, record.sequence


def _trashed_at(record: Record) -> tuple[int, int]:
    return record.modified_on, record.sequence
