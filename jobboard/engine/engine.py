"""Every primitive, written once: read, ask :mod:`jobboard.states`, commit what changes if nobody was quicker."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jobboard import retry, states
from jobboard.engine.contract import Engine
from jobboard.engine.store import Answer, Change, Stale, Store, Stored
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Claimed, Draft, Finish, Nonce, Peeked, Renewed, Seen, Taken
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
    settle,
)

TRIES = 100
"""How often a call is decided anew because others were quicker, before it is given up."""

HASTY = 5
"""How many of these tries follow each other at once."""


class Plan(NamedTuple):
    """What a call is going to do, and what it answers then."""

    changes: list[Change]
    done: list[tuple[Status, str, int]]


class Result(NamedTuple):
    """What a call did; ``stored``: its claims' records, which an answer that is given again has not."""

    done: Sequence[tuple[Status, str, int]]
    stored: list[Stored]
    replayed: bool


class StoreEngine(Engine):
    """An engine over a :class:`~jobboard.engine.Store`, which a backend gives it."""

    _opened: Store | None = None

    @abc.abstractmethod
    def _make_store(self) -> Store: ...

    # Life

    def open(self) -> None:
        store = self._make_store()
        self.characteristics = store.open()
        self._opened = store

    def shut(self) -> None:
        store, self._opened = self._opened, None
        if store is not None:
            store.close()

    def forked(self) -> None:
        if self._opened is not None:
            self._opened.forked()

    @property
    def _live(self) -> Store:
        if self._opened is None:
            raise ConnectionFailure(f"{self!r} is closed")
        return self._opened

    def tidy(self) -> None:
        self._live.tidy()

    def news(self) -> None:
        """The store calls this when something may have become claimable, or the next event comes sooner."""
        life = self.life
        if life is not None:
            life.wake()

    # One call

    def _tries(self) -> Iterator[int]:
        for number in range(1, TRIES + 1):
            yield number
            life = self.life
            if number > HASTY and life is not None:
                life.pause(retry.backoff(number - HASTY, 0.001, 0.1))
        raise ConnectionFailure(f"given up after {TRIES} tries, in each of which another process was quicker")

    def _do(
        self, nonce: Nonce, plan: Callable[[], Plan], again: Callable[[Answer], Plan | None] | None = None
    ) -> Result:
        """Do what ``plan`` says, unless this call has done so already.

        :param again: what an answer that was stored already leaves to be done; None: nothing.
        """
        store = self._live
        for _ in self._tries():
            slot = store.slot(nonce.handle, nonce.slot)
            stored = slot.answer
            if stored is not None and stored.call > nonce.call:
                raise JobFailure("this call comes after a later one: its caller has long gone on")
            made: Plan | None
            if stored is None or stored.call < nonce.call:
                made = plan()
            else:
                made = again(stored) if again is not None else None
                if made is None:
                    return Result(stored.done, [], True)
            if not made.changes and nonce.attempt == 1:
                # A repetition stores its answer whatever that is, or a first try that was held up would act after it.
                return Result(made.done, [], False)
            try:
                kept = store.commit(made.changes, slot, Answer(nonce.call, nonce.attempt, tuple(made.done)))
            except Stale:
                continue
            return Result(made.done, kept, False)
        raise AssertionError("unreachable")

    def _settle(self, overdue: Sequence[Stored], now: int) -> list[Record]:
        """Bring these back, or to the trash: what went there."""
        settled = [Change(each, settle(each.record, now)) for each in overdue]
        try:
            self._live.commit(settled)
        except Stale:
            # Somebody else has done so for some of them: each by itself.
            settled = [change for change in settled if self._settled(change)]
        return [
            change.after for change in settled if isinstance(change.after, Record) and change.after.state == TRASHED
        ]

    def _settled(self, change: Change) -> bool:
        try:
            self._live.commit([change])
        except Stale:
            return False
        return True

    # Posting

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[tuple[bool, Record | None]]:
        assert nonce is not None  # there are no transactions of a caller's to take part in
        store = self._live
        holders: dict[str, Record] = {}

        def again(answer: Answer) -> Plan | None:
            """A draft that another job's key kept out is tried anew if that job has gone meanwhile, by a later try than
            any that was answered: nobody waits for an earlier one."""
            if nonce.attempt <= answer.attempt:
                return None
            mine = {uuid for status, uuid, _ in answer.done if status == OK}
            found = store.read([uuid for _, uuid, _ in answer.done])
            gone = {
                index
                for index, ((status, uuid, _), stored) in enumerate(zip(answer.done, found.jobs, strict=True))
                if status == Status.KEY and uuid not in mine and _state(stored, found.now) not in LIVE
            }
            made = self._posting([drafts[index] for index in sorted(gone)], holders)
            done = iter(made.done)
            return Plan(made.changes, [next(done) if i in gone else each for i, each in enumerate(answer.done)])

        done = self._do(nonce, lambda: self._posting(drafts, holders), again).done
        found = store.read([uuid for _, uuid, _ in done])
        return [
            # A holder was there when the key was refused, whatever has become of it since.
            (status == OK, settle(stored.record, found.now) if isinstance(stored, Stored) else holders.get(uuid))
            for (status, uuid, _), stored in zip(done, found.jobs, strict=True)
        ]

    def _posting(self, drafts: Sequence[Draft], seen: dict[str, Record]) -> Plan:
        """:param seen: takes in the holders of keys that are taken."""
        store = self._live
        live, settled = self._holders([draft.key for draft in drafts if draft.key is not None])
        seen.update({record.uuid: record for record in live.values()})
        holders = {key: record.uuid for key, record in live.items()}
        arriving = [draft.uuid for draft in drafts if draft.arrival is not None]
        there = dict(zip(arriving, store.read(arriving).jobs, strict=True)) if arriving else {}
        plan = Plan(list(settled), [])
        for draft in drafts:
            trashed = draft.arrival is not None and draft.arrival.trashed_on is not None
            holder = None if draft.key is None or trashed else holders.get(draft.key)
            if isinstance(there.get(draft.uuid), Stored):
                plan.done.append((Status.LIVE, draft.uuid, 0))
            elif holder is not None:
                plan.done.append((Status.KEY, holder, 0))
            else:
                plan.changes.append(Change(None, draft))
                plan.done.append((OK, draft.uuid, 0))
                if draft.key is not None and not trashed:
                    holders[draft.key] = draft.uuid
        return plan

    def _holders(self, keys: Sequence[str]) -> tuple[dict[str, Record], list[Change]]:
        """Who holds these keys, and what to commit with whatever relies on it: a lapse that nobody has met yet may have
        set a key free."""
        if not keys:
            return {}, []
        store = self._live
        holders = store.keyed(keys)
        found = store.read(list(holders.values()))
        live: dict[str, Record] = {}
        settled: list[Change] = []
        for key, stored in zip(holders, found.jobs, strict=True):
            if isinstance(stored, Stored):
                record = settle(stored.record, found.now)
                if record.state in LIVE:
                    live[key] = record
                else:
                    settled.append(Change(stored, record))
        return live, settled

    # Claiming

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        def plan() -> Plan:
            found = self._live.read([uuid])
            [stored] = found.jobs
            status, record = states.claim(_record(stored), found.now, who, *self._lease(expiry, nonce, found.now))
            if status != OK or record is None or not isinstance(stored, Stored):
                return Plan([], [(status, uuid, 0)])
            return Plan([Change(stored, record)], [(OK, uuid, record.token)])

        result = self._do(nonce, plan)
        status = result.done[0][0]
        if status != OK:
            return Claimed(status, None, None)
        records, margin = self._standing(result, expiry)
        return Claimed(OK, records[0], margin) if records else Claimed(Status.LOST, None, None)

    def _lease(self, expiry: int | None, nonce: Nonce, now: int) -> tuple[str | None, int | None]:
        """The keeper and the end of a lease."""
        return (nonce.handle, None) if expiry is None else (None, now + expiry)

    def _standing(self, result: Result, expiry: int | None) -> tuple[list[Record], int | None]:
        """The claims of a call that stand, and for how long surely: of those just made, all and in full."""
        if not result.replayed:
            return [stored.record for stored in result.stored if stored.record.state == CLAIMED], expiry
        found = self._live.read([uuid for _, uuid, _ in result.done])
        records = []
        for (_, _, token), stored in zip(result.done, found.jobs, strict=True):
            record = settle(stored.record, found.now) if isinstance(stored, Stored) else None
            if record is not None and record.token == token and record.state == CLAIMED:
                records.append(record)
        left = [record.lock_until - found.now for record in records if record.lock_until is not None]
        return records, None if expiry is None else min(left, default=expiry)

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
        trashed: list[Record] = []
        next_event: int | None = None

        def plan() -> Plan:
            nonlocal next_event
            store = self._live
            look = store.look(limit, names, readable)
            settled = False
            while look.overdue and not (settled and look.ready):
                trashed.extend(self._settle(look.overdue, look.now))
                look, settled = store.look(limit, names, readable), True
            next_event = look.next_event
            made = Plan([], [])
            for stored in look.ready:
                status, record = states.claim(stored.record, look.now, who, *self._lease(expiry, nonce, look.now))
                if status == OK and record is not None:
                    made.changes.append(Change(stored, record))
                    made.done.append((OK, record.uuid, record.token))
            return made

        result = self._do(nonce, plan)
        records, margin = self._standing(result, expiry)
        return Taken(records, margin, trashed, next_event, None, result.replayed)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        return Renewed([], None)

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        def plan() -> Plan:
            found = self._live.read([uuid])
            [stored] = found.jobs
            lease = self._lease(expiry, nonce, found.now)
            status, record = states.extend(_record(stored), holder, found.now, *lease)
            changes = [Change(stored, record)] if status == OK and isinstance(stored, Stored) else []
            return Plan(changes, [(status, uuid, 0)])

        # To extend again does no harm, and what has lapsed since the first try is revived by it.
        return self._do(nonce, plan, lambda answer: plan()).done[0][0], expiry

    # Ending claims, and what operators do

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        assert nonce is not None

        def plan() -> Plan:
            found = self._live.read([act.uuid for act in acts])
            before = {act.uuid: stored for act, stored in zip(acts, found.jobs, strict=True)}
            # A job may stand twice in a batch: the second act meets what the first has made of it.
            after = {uuid: _record(stored) for uuid, stored in before.items()}
            touched: dict[str, bool] = {}
            done = []
            for act in acts:
                status, record = states.finish(after[act.uuid], act.holder, found.now, *act[2:])
                if status == OK:
                    after[act.uuid] = record
                    touched[act.uuid] = act.verb == Verb.PURGE
                done.append((status, act.uuid, 0))
            changes = [
                Change(stored, after[uuid], purged)
                for uuid, purged in touched.items()
                if isinstance(stored := before[uuid], Stored)
            ]
            return Plan(changes, done)

        return [status for status, _, _ in self._do(nonce, plan).done]

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        def plan() -> Plan:
            found = self._live.read([uuid])
            [stored] = found.jobs
            before = _record(stored)
            status, after = _operated(verb, before, found.now, error, token)
            changes: list[Change] = []
            if status == OK and verb == Verb.RESTORE and before is not None and before.key is not None:
                holders, settled = self._holders([before.key])
                status = Status.KEY if holders else OK
                # It may be its own key that a lapse has set free.
                changes = [change for change in settled if change.before != stored]
            if status == OK and isinstance(stored, Stored):
                changes.append(Change(stored, after, purged=verb == Verb.PURGE))
            return Plan(changes if status == OK else [], [(status, uuid, 0)])

        return self._do(nonce, plan).done[0][0]

    # Looking

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        found = self._live.read(uuids)
        return [
            Seen.at(found.now, stored.record) if isinstance(stored, Stored) else Seen(stored, None, None)
            for stored in found.jobs
        ]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State] | None
    ) -> list[Seen]:
        now, records = self._live.page(after, limit, names, LIVE if states is None else states)
        return [Seen.at(now, record) for record in records]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self._live.trash_page(after, limit)

    def now(self) -> int:
        return self._live.now()

    def tally(self) -> dict[State, int]:
        return self._live.counts()

    def boards(self, most: int) -> list[str]:
        return self._live.boards(most)

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        look = self._live.look(1, names, readable)
        coming = any(
            settle(record, look.now).state == UNCLAIMED
            and (names is None or record.name in names)
            and record.version <= readable
            for record, _ in look.overdue
        )
        return Peeked(bool(look.ready) or coming, look.next_event, None)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        life = self.life
        if life is not None:
            life.nap(limit)

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        self._live.enlist(handle, kind, name, metadata, ttl)

    def delist(self, handle: str) -> None:
        self._live.delist(handle)

    def roster(self) -> list[tuple[str, str, str]]:
        return self._live.roster()


def _record(stored: Stored | State) -> Record | None:
    return stored.record if isinstance(stored, Stored) else None


def _state(stored: Stored | State, now: int) -> State:
    return settle(stored.record, now).state if isinstance(stored, Stored) else COMPLETE


def _operated(
    verb: Verb, record: Record | None, now: int, error: str | None, token: int | None
) -> tuple[Status, Record | None]:
    if verb == Verb.RELEASE:
        return states.release(record, now, error, token)
    if verb == Verb.CANCEL:
        return states.cancel(record, now, error)
    if verb == Verb.RESTORE:
        return states.restore(record, now)
    return states.purge(record, now)
