"""Every primitive, written once: read, ask :mod:`jobboard.states`, commit what changes if nobody was quicker."""

from __future__ import annotations

import abc
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from jobboard import notifier, states
from jobboard.engine.calls import (
    DAY,
    Answer,
    Committer,
    Deed,
    Plan,
    Result,
    change_by,
    standing,
)
from jobboard.engine.contract import Engine
from jobboard.engine.done import DoneEngine, asked
from jobboard.engine.ending import Recent, ending
from jobboard.engine.examining import odd_sides
from jobboard.engine.finding import Choice, Finder
from jobboard.engine.idling import IdleScopes
from jobboard.engine.keeping import ClaimKeeper
from jobboard.engine.keys import KeyEngine, holders_of
from jobboard.engine.limiting import LimitEngine
from jobboard.engine.limits import Limits, Rooms, reviving
from jobboard.engine.roster import entity_of
from jobboard.engine.rules import GATE, Rules
from jobboard.engine.scheduling import ScheduleEngine, Schedules
from jobboard.engine.store import Change, Found, Look, Mark, Side, Stale, Store, Stored
from jobboard.exceptions import ConnectionFailure
from jobboard.logs import tell_of_lapse
from jobboard.primitives import Claimed, Draft, Finish, Nonce, Oddity, Peeked, Posted, Renewed, Seen, Taken
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    LIVE,
    OK,
    TRASHED,
    Holder,
    Record,
    State,
    Status,
    Verb,
)

S = TypeVar("S", bound=Store)

_PATIENCE = 2.0
"""For how many seconds the end of a board waits for what is being tidied up."""


class StoreEngine(ScheduleEngine, LimitEngine, DoneEngine, KeyEngine, Engine, Generic[S]):
    """An engine over a :class:`~jobboard.engine.Store`, which a backend gives it."""

    _opened: S | None = None

    _relied_on: ClassVar[Sequence[tuple[str, str]]] = [GATE]
    """What the end of a claim reads beside its job, and its commit compares, so that it is known whose slots come free.
    Nothing: the gate is read once the claim has ended."""

    @abc.abstractmethod
    def _make_store(self) -> S: ...

    def _make_committer(self, store: S) -> Committer:
        return Committer(store, self._pause)

    # Life

    def open(self) -> None:
        store = self._make_store()
        self.characteristics = store.open()
        self._begin(store)

    def _begin(self, store: S) -> None:
        self._committer = self._make_committer(store)
        self._keeper = ClaimKeeper(self._committer)
        self._schedules = Schedules(self._call, lambda drafts: self._posting(drafts, {}), self.wire)
        self._recent = Recent()
        self._finder = Finder(self._committer, self._ttl)
        self._idle = IdleScopes(self._committer)
        self._opened = store

    def closing(self) -> None:
        if self._opened is not None:
            self._opened.closing()

    def shut(self) -> None:
        store = self._opened
        if store is not None:
            self._keeper.close(_PATIENCE)
            self._opened = None
            store.close()

    def forked(self) -> None:
        store = self._opened
        if store is not None:
            store.forked()
            self._begin(store)

    @property
    def connected(self) -> bool:
        return self._opened is not None and self._opened.connected

    @property
    def has_replicas(self) -> bool:
        return self._live.has_replicas

    @property
    def _live(self) -> S:
        if self._opened is None:
            raise ConnectionFailure(f"{self} is closed")
        return self._opened

    def _pause(self, seconds: float) -> None:
        if self.life is not None:
            self.life.pause(seconds)

    def news(self) -> None:
        """The store calls this when something may have become claimable, or the next event comes sooner."""
        life = self.life
        if life is not None:
            life.wake()

    def rescheduled(self) -> None:
        """The store calls this when the schedules have changed, or the time has."""
        life = self.life
        if life is not None:
            life.alarm()

    def reconnected(self) -> None:
        """The store calls this when there is a connection again, perhaps in another session."""
        self._keeper.reconnected()
        if self.life is not None:
            self.life.beat_soon()

    def listen(self, on: bool) -> None:
        if self._opened is not None:
            self._opened.listen(on)

    def tidy(self, seconds: float = 1.0) -> bool:
        end = time.monotonic() + seconds
        more = self._live.tidy(seconds)
        return self._idle.tidy(max(0.0, end - time.monotonic())) or more

    def examine(self) -> Iterator[Oddity]:
        store = self._live
        yield from self._odd_gate(store.gate_place)
        yield from store.examine()
        yield from odd_sides(store)

    # Posting

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[Posted]:
        store = self._live
        holders: dict[str, Record] = {}
        made = Plan([], [])

        def plan(drafts: Sequence[Draft] = drafts) -> Plan:
            nonlocal made
            made = self._posting(drafts, holders)
            return made

        def again(answer: Answer) -> Plan | None:
            """A draft that another job's key kept out is tried anew if that job has gone meanwhile, by a later try than
            any that was answered: nobody waits for an earlier one."""
            if nonce is None or nonce.attempt <= answer.attempt:
                return None
            mine = {uuid for status, uuid, _ in answer.done if status == OK}
            found = store.read([uuid for _, uuid, _ in answer.done])
            gone = {
                index
                for index, ((status, uuid, _), stored) in enumerate(zip(answer.done, found.jobs, strict=True))
                if status == Status.KEY
                and uuid not in mine
                and ((holder := standing(stored, found.now)) is None or holder.state not in LIVE)
            }
            anew = plan([drafts[index] for index in sorted(gone)])
            done = iter(anew.done)
            return anew._replace(done=[next(done) if i in gone else each for i, each in enumerate(answer.done)])

        result = self._call(nonce).do(nonce, plan, again)
        for before, after, _ in made.changes:
            if before is not None and before.record.state == CLAIMED and isinstance(after, Record):
                # A job that another posting replaces begins anew.
                tell_of_lapse(after if after.state == TRASHED else before.record)
        # A short answer leaves out the uuids of the jobs that it has posted.
        deeds = [done._replace(uuid=done.uuid or draft.uuid) for done, draft in zip(result.done, drafts, strict=True)]
        records = {stored.record.uuid: stored.record for stored in result.stored}
        unknown = [done.uuid for done in deeds if done.uuid not in records and done.uuid not in holders]
        if unknown:
            found = store.read(unknown)
            records |= {stored.record.uuid: standing(stored, found.now) for stored in found.jobs if stored is not None}
        # A holder was there when the key was refused, whatever has become of it since.
        return [Posted(status, uuid, records.get(uuid) or holders.get(uuid)) for status, uuid, _ in deeds]

    def _posting(self, drafts: Sequence[Draft], seen: dict[str, Record]) -> Plan:
        """:param seen: takes in the jobs that are here already: holders of keys, and earlier arrivals."""
        keys = list(dict.fromkeys(draft.key for draft in drafts if draft.key is not None))
        held = holders_of(self._live, keys)
        marks, there = self._arrivals([draft.uuid for draft in drafts if draft.arrival is not None])
        seen.update(held.seen())
        seen.update(there)
        plan = Plan(held.freed, [], held.sides, marks)
        for draft in drafts:
            trashed = draft.arrival is not None and draft.arrival.trashed_on is not None
            holder = None if draft.key is None or trashed else held.by_key.get(draft.key)
            if holder == draft.uuid:
                # Its key has come before it, as it was not alive then; or a part of this call was written before.
                holder = None
            if draft.uuid in there:
                plan.done.append(Deed(Status.LIVE, draft.uuid))
            elif holder is not None:
                replaced = draft.replace and held.replace(plan.changes, holder, draft)
                plan.done.append(Deed(Status.REPLACED if replaced else Status.KEY, holder))
            else:
                plan.changes.append(Change(None, draft, notifier.TRASHED if trashed else notifier.POSTED))
                plan.done.append(Deed(OK, draft.uuid))
                if draft.key is not None and not trashed:
                    held.by_key[draft.key] = draft.uuid
        return plan if plan.changes else plan._replace(marks=[])

    def _arrivals(self, uuids: Sequence[str]) -> tuple[list[Mark], dict[str, Record]]:
        """Those of the jobs that are here, and the marks to take back of those that were purged here."""
        if not uuids:
            return [], {}
        found = self._live.read(uuids, [("purged", uuid) for uuid in uuids])
        there = {stored.record.uuid: standing(stored, found.now) for stored in found.jobs if stored is not None}
        return [Mark(side, None) for side in found.sides if side.value is not None and side.key not in there], there

    # Claiming

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        lapsed: list[Record] = []

        def plan() -> Plan:
            nonlocal lapsed
            found, stored, record = self._committer.one(uuid, [GATE])
            status, after = states.claim(record, found.now, who, *self._lease(expiry, nonce, found.now))
            rules = Rules.of(found.sides[0])
            rooms = Rooms(self._committer, Limits(rules.limits), found.now, [])
            if status == OK and after is not None:
                rooms.learn([after])
                if after.name in rules.paused:
                    status = Status.PAUSED
                elif rooms.full(after):
                    status = Status.LIMITED
            if status != OK or after is None or stored is None or record is None:
                return Plan([], [Deed(status, uuid)])
            rooms.enter(after)
            lapsed = [record] if stored.record.state == CLAIMED else []
            change = change_by(Verb.CLAIM, stored, after)
            made = Plan([change], [Deed(OK, uuid, after.token)], checks=found.sides)
            return made._replace(marks=rooms.marks(), timely=rooms.timely)

        result = self._call(nonce).do(nonce, plan)
        status = result.done[0].status
        if status != OK:
            return Claimed(status, None, None)
        for each in lapsed:
            tell_of_lapse(each)
        records, margin = self._claims(result, expiry)
        return Claimed(OK, records[0], margin) if records else Claimed(Status.LOST, None, None)

    def _lease(self, expiry: int | None, nonce: Nonce, now: int) -> tuple[str | None, int | None]:
        """The keeper and the end of a lease."""
        if expiry is not None:
            return None, now + expiry
        return nonce.handle, now + self._ttl if self._live.keeps == "lease" else None

    def _margin(self, expiry: int | None) -> int | None:
        """For how long a claim that was just made, or renewed, stands for sure."""
        if expiry is not None:
            return expiry
        return self._ttl if self._live.keeps == "lease" else self._live.margin

    def _claims(self, result: Result, expiry: int | None) -> tuple[list[Record], int | None]:
        """The claims of a call that stand, and for how long surely: of those just made, all and in full."""
        margin = self._margin(expiry)
        self._recent.learn(result.stored)
        if not result.replayed:
            if expiry is None and margin is not None and self._live.keeps == "session":
                # The session was alive when the commit came, however long the call had looked before.
                margin += result.late
            return [stored.record for stored in result.stored if stored.record.state == CLAIMED], margin
        found = self._live.read([done.uuid for done in result.done])
        records = []
        for done, stored in zip(result.done, found.jobs, strict=True):
            record = standing(stored, found.now)
            if record is not None and record.token == done.token and record.state == CLAIMED:
                records.append(record)
        left = [record.lock_until - found.now for record in records if record.lock_until is not None]
        return records, min(left, default=margin)

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
        choice = Choice(self._finder, limit, names, readable, trashed)
        look: Look | None = None

        def plan() -> Plan:
            nonlocal look
            look, rooms = choice.next(), choice.rooms
            made = Plan([], [], checks=[look.gate])
            lease = self._lease(expiry, nonce, look.now)
            for stored in look.ready:
                status, record = states.claim(stored.record, look.now, who, *lease)
                if status == OK and record is not None:
                    made.changes.append(change_by(Verb.CLAIM, stored, record))
                    made.done.append(Deed(OK, record.uuid, record.token))
                    if rooms is not None:
                        rooms.enter(record)
            return made if rooms is None else made._replace(marks=rooms.marks(), timely=rooms.timely)

        result = self._call(nonce).do(nonce, plan, beaten=choice.beaten)
        records, margin = self._claims(result, expiry)
        return Taken(records, margin, trashed, look and look.next_event, None, result.replayed)

    # Keeping claims

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        return self._keeper.renew(handle, held, ttl)

    def forsake(self, uuid: str, token: int) -> None:
        if self._opened is not None and self._opened.keeps == "session":
            self._keeper.forsake(uuid, token)

    def doubt(self, nonce: Nonce) -> None:
        if self._opened is not None and self._opened.keeps == "session":
            self._keeper.doubt(nonce)

    def _call(self, nonce: Nonce | None) -> Committer:
        """For a call of this slot, once it is known what became of the one before."""
        _ = self._live
        if nonce is not None:
            self._keeper.clear_up_before(nonce)
        return self._committer

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        def plan() -> Plan:
            found, stored, record = self._committer.one(uuid)
            status, after = states.extend(record, holder, found.now, *self._lease(expiry, nonce, found.now))
            made = Plan([], [Deed(status, uuid, 0)])
            if status != OK or stored is None or record is None or after is None:
                return made
            # A lapse that no sweep has written down is not to show.
            change = change_by(Verb.EXTEND, stored, after._replace(errors=stored.record.errors))
            if record.state == CLAIMED:
                return made._replace(changes=[change])
            revival = reviving(self._committer, after)
            if revival is None:
                return made._replace(done=[Deed(Status.LOST, uuid, 0)])
            return made._replace(changes=[change], marks=revival.marks, checks=revival.checks)

        # To extend again does no harm, and what has lapsed since the first try is revived by it.
        calls = self._call(nonce)
        with self._keeper.wanted_again(uuid, holder.token):
            result = calls.do(nonce, plan, lambda answer: plan())
        self._recent.learn(result.stored)
        return result.done[0].status, self._margin(expiry)

    # Ending claims, and what operators do

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        recent = self._recent.pop(acts)
        made = Plan([], [])

        def plan() -> Plan:
            nonlocal recent, made
            known, recent = recent, None
            if known is not None:
                made = ending(acts, Found(self._live.judged(known), list(known), [self._finder.ruled.gate]))
                if all(deed.status == OK for deed in made.done):
                    return made
            purged = [("purged", act.uuid) for act in acts if act.verb == Verb.PURGE]
            sides = [*purged, *asked(acts), *self._relied_on]
            made = ending(acts, self._live.read([act.uuid for act in acts], sides))
            return made

        result = self._call(nonce).do(nonce, plan)
        ended = [act for act, deed in zip(acts, result.done, strict=True) if deed.status == OK and act.name]
        self._freed(ended, made.checks)
        return [deed.status for deed in result.done]

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        released: list[Record] = []
        gate: Sequence[Side] = ()

        def plan() -> Plan:
            nonlocal released, gate
            purged = [("purged", uuid)] if verb == Verb.PURGE else []
            found, stored, before = self._committer.one(uuid, [*purged, *self._relied_on])
            status, after = _operated(verb, before, found.now, error, token)
            if status != OK or stored is None or before is None:
                return Plan([], [Deed(status, uuid)])
            held = holders_of(self._live, [before.key] if verb == Verb.RESTORE and before.key is not None else [])
            if any(holder != uuid for holder in held.by_key.values()):
                return Plan([], [Deed(Status.KEY, uuid)])
            released = [before] if before.state == CLAIMED else []
            # It may be its own key that a lapse has set free.
            changes = [change for change in held.freed if change.before != stored]
            marks = [Mark(side, b"", DAY) for side in found.sides[: len(purged)]]
            gate = found.sides[len(purged) :]
            return Plan([*changes, change_by(verb, stored, after)], [Deed(OK, uuid)], held.sides, marks, gate)

        result = self._call(nonce).do(nonce, plan)
        status = result.done[0].status
        if result.replayed and verb == Verb.RELEASE:
            # Nobody knows how far the try got that has released it.
            released = [stored.record for stored in self._live.read([uuid]).jobs if stored is not None]
        if status == OK:
            self._freed(released, gate)
        return status

    # Looking

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        store = self._live
        found = store.read(uuids)
        gone = [uuid for uuid, stored in zip(uuids, found.jobs, strict=True) if stored is None]
        purged = set()
        if gone:
            marks = store.read([], [("purged", uuid) for uuid in gone])
            purged = {side.key for side in marks.sides if side.stands(marks.now)}
        return [
            _seen(stored, found.now)
            if stored is not None
            else Seen(TRASHED if uuid in purged else COMPLETE, None, None)
            for uuid, stored in zip(uuids, found.jobs, strict=True)
        ]

    def page(
        self, after: Record | None, limit: int, names: Sequence[str] | None, states: frozenset[State] | None
    ) -> list[Seen]:
        now, jobs = self._live.page(after, limit, names, LIVE if states is None else states)
        return [_seen(stored, now) for stored in jobs]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        return self._live.trash_page(after, limit)

    def sync(self) -> None:
        self._live.sync()

    def now(self) -> int:
        return self._live.now()

    def tally(self) -> dict[State, int]:
        return self._live.counts()

    def boards(self, most: int) -> list[str]:
        return self._live.boards(most)

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        _ = self._live
        return self._finder.peek(names, readable)

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        life = self.life
        if life is not None:
            life.nap(limit)

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        key = json.dumps([kind, name])
        value = json.dumps([handle, kind, name, metadata]).encode()
        for _ in self._committer.tries():
            [side] = self._live.read([], [("entity", key)]).sides
            try:
                self._committer.commit([], [Mark(side, value, ttl)])
            except Stale:
                continue
            return

    def delist(self, handle: str) -> None:
        for _ in self._committer.tries():
            sides = self._live.listed("entity").sides
            mine = [Mark(side, None) for side in sides if (entity := entity_of(side)) and entity[0] == handle]
            try:
                if mine:
                    self._committer.commit([], mine)
            except Stale:
                continue
            return

    def roster(self) -> list[tuple[str, str, str]]:
        found = self._live.listed("entity")
        told = (entity_of(side) for side in found.sides if side.stands(found.now))
        return [entity[1:] for entity in told if entity is not None]


def _seen(stored: Stored, now: int) -> Seen:
    return Seen.at(now, standing(stored, now))


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
