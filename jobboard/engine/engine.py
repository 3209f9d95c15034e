"""The engine: every transition of a job, once.

It reads, asks :mod:`jobboard.states`, and commits what changes if nobody was quicker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

from jobboard import codec, forks, states
from jobboard import notifier as events
from jobboard.conf import Option
from jobboard.engine import doctor
from jobboard.engine.answers import Answer, Deed
from jobboard.engine.calls import PAGE, Committer, Plan, Result, change_by, standing
from jobboard.engine.ends import DAY, Recent, ending
from jobboard.engine.entities import KIND as ENTITY
from jobboard.engine.entities import StoredEntity
from jobboard.engine.finding import Choice, Finder
from jobboard.engine.keeper import ClaimKeeper
from jobboard.engine.keys import Remembered, holder_of, holders_of
from jobboard.engine.limits import Grouped, IdleScopes, Limits, Rooms, free, reviving
from jobboard.engine.outcomes import KIND as OUTCOME
from jobboard.engine.outcomes import Done, outcomes_of
from jobboard.engine.rules import Rules
from jobboard.engine.schedules import DuePosts, Make, Schedules, StoredSchedule, Unreadable
from jobboard.engine.store import GATE, Change, ClaimTerms, Found, Hears, Look, Mark, Seat, Side, Stale, Store, Stored
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.logs import Log, tell_of_lapse
from jobboard.primitives import (
    Characteristics,
    Claimed,
    Draft,
    Finish,
    KeptStats,
    Limit,
    Nonce,
    Oddity,
    Peeked,
    Posted,
    Renewed,
    Seen,
    Taken,
)
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    FINISHES,
    LIVE,
    OK,
    TRASHED,
    Holder,
    Record,
    State,
    Status,
    Verb,
    serving_order,
)

LOG = Log(__name__)

WRITES = (
    *("setup", "insert", "claim", "take", "renew", "extend", "finish", "operate", "pause", "resume", "enlist"),
    *("set_limit", "remove_limit", "delist", "tidy", "set_schedule", "remove_schedule", "post_due", "keep", "remember"),
)
"""The methods that a board which was opened for looking only has not."""

CLOSING = 2.0
"""For how many seconds a request may take once its board is about to be closed."""


class BeatSoon(Protocol):
    """Renews kept claims now; see :meth:`~jobboard.claims.Claims.beat_soon`."""

    def __call__(self, start: bool = False) -> None: ...


@dataclass
class Life:
    """The connected life of a board, as its engine calls it.

    wake: have waiting threads look again. alarm: wake the posters of schedules. nap: sleep until a wake, and return
    whether it came. rest: sleep between two tries. happened: notify of an act of another process.
    """

    handle: str
    wake: Callable[[], None]
    alarm: Callable[[], None]
    nap: Callable[[float], bool]
    rest: Callable[[float], None]
    beat_soon: BeatSoon
    happened: Callable[[str, Record], None]


class Engine(Hears):
    """Decides what happens to jobs, over a :class:`~jobboard.engine.Store`. Every method may be called from several
    threads at once. Building an engine talks to nobody.

    Calls that change something take a nonce, the same one for each repetition of the call, and answer a repetition as
    they answered its first try.

    :param make: makes the store for a seat: a subclass of Store.
    :raises ValueError, TypeError: the options, or the client, are not such as this backend takes.
    """

    options: Mapping[str, Option] = {}
    uri_parts: Mapping[str, str] = {}
    """See :class:`~jobboard.engine.Store`. A subclass that makes its store by itself has its own."""

    characteristics: Characteristics
    """What the board promises; set by :meth:`open`."""

    life: Life | None = None
    """The connected life of the board: from when it is open until it is closed, and a new one in a forked child."""

    def __init__(self, seat: Seat, make: Callable[[Seat], Store]) -> None:
        self._seat = seat
        self._make = make
        self._store = store = make(seat)
        self.options, self.uri_parts, self.extras = store.options, store.uri_parts, store.extras
        self.wire, self.most_kept = store.wire, store.most_kept
        self._is_open = False
        self._ttl = int(seat.conf["claim_ttl"] * 1e6)
        self._creates = seat.conf["auto_setup"] and not seat.conf["read_only"]
        for name in WRITES if seat.conf["read_only"] else ():
            setattr(self, name, self._refuse)

    def _refuse(self, *args: Any, **extra: Any) -> Any:
        raise JobFailure(f"{self} was opened for looking only: leave out read_only to change anything")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._seat.name!r} at {self._seat.shown}>"

    def __str__(self) -> str:
        return f"board {self._seat.name!r} at {self._seat.shown}"

    # What the backend is like

    @property
    def store(self) -> Store:
        """The open store.

        :raises ConnectionFailure: the board is closed.
        """
        if not self._is_open:
            raise ConnectionFailure(f"{self} is closed")
        return self._store

    @property
    def poll_cap(self) -> float:
        """The longest that :meth:`wait` may sleep without a look, in seconds."""
        return self._store.poll_cap

    @property
    def slot_calls(self) -> float:
        """After how many calls a slot is better replaced by a new one."""
        return self._store.slot_calls

    @property
    def has_replicas(self) -> bool:
        """Return whether a replica may take the place of the server, as far as the board knows."""
        return self._store.has_replicas

    @property
    def reported_events(self) -> frozenset[str]:
        """The acts of other processes that listeners of an open board hear of."""
        return self._store.reported_events

    @property
    def connected(self) -> bool:
        """Return whether an open board has a connection at this moment."""
        return self._is_open and self._store.connected

    @property
    def table(self) -> Any:
        """The jobs' table, where they lie in one."""
        if self._store.table is None:
            raise AttributeError(f"the jobs of {self} lie in no table")
        return self._store.table

    # Life

    def setup(self) -> None:
        """Do what ``jobboard setup`` does before it opens the board: create what is missing, bring what is there up to
        date. Any number of times, in any number of processes at once."""
        self._make(self._seat).setup()

    def open(self) -> None:
        """Connect, create what is missing unless ``auto_setup`` forbids it, refuse a store that is too new. Safe when
        many processes do it at once. Never migrates."""
        # A store that was open, or that could not be opened, is no use any more.
        self._store = self._make(self._seat)
        self.characteristics = self._store.open(self, self._creates)
        self._is_open = True
        self._begin()

    def _begin(self) -> None:
        committer = self._committer = self._make_committer()
        self._keeper = ClaimKeeper(committer)
        self._schedules = Schedules(committer, lambda drafts: self._posting(drafts, {}), self.wire)
        self._recent = Recent()
        self._finder = Finder(committer, self._ttl)
        self._idle = IdleScopes(committer)

    def _make_committer(self) -> Committer:
        return Committer(lambda: self.store, self.rest)

    def hurry(self) -> None:
        """The board is about to be closed: from now on no request may take long."""
        self._store.patience = min(self._store.patience, CLOSING)

    def shut(self) -> None:
        """Drop the connections that this board made; never a client of the caller's."""
        if self._is_open:
            try:
                self._keeper.clear_up()
            except Exception as error:  # noqa: BLE001 - whatever it is, the connections are closed
                LOG.warning("claims that nobody holds are left to end by themselves: %s", error)
            self._is_open = False
            self._store.close()

    def forked(self) -> None:
        """Drop every inherited connection *without closing it*, first of all in a forked child: the parent still talks
        through its socket. The next call opens a fresh one. Take no lock."""
        if self._is_open:
            self._store.forked()
            self._begin()
        else:
            # Another thread may have been opening or closing the store.
            forks.keep(self._store)

    def tidy(self, seconds: float = 1.0) -> bool:
        """Drop what nobody needs any longer: answers of an hour ago, entities whose time is up, what was purged a day
        ago, outcomes that have ended, scopes of limits in which nothing stands. For so many seconds at most; return
        whether there may be more.

        Called when a board is opened, unless for looking only, and every ten minutes while it renews anything; with
        the next heartbeat where there is more."""
        end = time.monotonic() + seconds
        more = self.store.tidy(seconds)
        return self._idle.tidy(max(0.0, end - time.monotonic())) or more

    def examine(self) -> Iterator[Oddity]:
        """Yield what is odd in the store, beside what :meth:`page`, :meth:`trash_page` and :meth:`done_page` show.
        Reads in pages, and writes nothing."""
        return doctor.oddities(self._committer)

    def boards(self, most: int) -> list[str]:
        """Return the names of boards in this store, at most so many, for people who have mistyped one: this board's own
        among them if it is there. Bounded in cost: names may be missing where the search would be long."""
        return self.store.boards(most)

    # What the store reports: the Hears of its contract

    @property
    def handle(self) -> str:
        return "" if self.life is None else self.life.handle

    def news(self) -> None:
        if (life := self.life) is not None:
            life.wake()

    def rescheduled(self) -> None:
        if (life := self.life) is not None:
            life.alarm()

    def reconnected(self) -> None:
        if (life := self.life) is not None:
            life.beat_soon()

    def happened(self, event: str, record: Record) -> None:
        if (life := self.life) is not None:
            life.happened(event, record)

    def nap(self, seconds: float) -> bool:
        return (life := self.life) is not None and life.nap(seconds)

    def rest(self, seconds: float) -> None:
        if (life := self.life) is not None:
            life.rest(seconds)

    # Posting

    def insert(self, drafts: Sequence[Draft], nonce: Nonce | None, **extra: Any) -> list[Posted]:
        """Store all the drafts or none, in their order: at most 500. A draft whose key another job holds, which lives
        or whose window runs, is not stored: that job is its answer, also when it is an earlier draft of this call. A
        holder that is unclaimed or scheduled gets what a draft with ``replace`` brings. An arrival is not stored if its
        uuid is on the board or in its trash; what was purged may arrive again.

        On a replay, a job that this call has stored, or an arrival that was there before, and that has left the board
        since, is answered without a record. But a draft that was kept out by a job that is not this call's, and that no
        longer holds the key, is tried again, as nothing was done for it. Only a later try than any that was answered
        does so: nobody waits for an earlier one."""
        store = self.store
        if self._is_plain(nonce) and all(draft.key is None and draft.arrival is None for draft in drafts):
            stored = store.post(drafts, nonce)
            if stored is not None:
                self._committer.forget(nonce)
                return [Posted(OK, each.record.uuid, each.record) for each in stored]
        holders: dict[str, Record] = {}
        made = Plan([], [])

        def plan(drafts: Sequence[Draft] = drafts) -> Plan:
            nonlocal made
            made = self._posting(drafts, holders)
            return made

        def again(answer: Answer) -> Plan | None:
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

        result = self._committer.do(nonce, plan, again, extra=extra)
        for before, after, _ in made.changes:
            if before is not None and before.record.state == CLAIMED and isinstance(after, Record):
                # A job that another posting replaces begins anew.
                tell_of_lapse(after if after.state == TRASHED else before.record)
        # A short answer leaves out the uuids of the jobs that it has posted.
        deeds = [done._replace(uuid=done.uuid or draft.uuid) for done, draft in zip(result.done, drafts, strict=True)]
        records = {stored.record.uuid: stored.record for stored in result.stored}
        unknown = [done.uuid for done in deeds if done.uuid not in records and done.uuid not in holders]
        if unknown:
            with store.transaction(**extra):
                found = store.read(unknown)
            records |= {stored.record.uuid: standing(stored, found.now) for stored in found.jobs if stored is not None}
        # A holder was there when the key was refused, whatever has become of it since.
        return [Posted(status, uuid, records.get(uuid) or holders.get(uuid)) for status, uuid, _ in deeds]

    def _posting(self, drafts: Sequence[Draft], seen: dict[str, Record]) -> Plan:
        """:param seen: takes in the jobs that are here already: holders of keys, and earlier arrivals."""
        keys = list(dict.fromkeys(draft.key for draft in drafts if draft.key is not None))
        held = holders_of(self.store, keys)
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
                plan.changes.append(Change(None, draft, events.TRASHED if trashed else events.POSTED))
                plan.done.append(Deed(OK, draft.uuid))
                if draft.key is not None and not trashed:
                    held.by_key[draft.key] = draft.uuid
        return plan if plan.changes else plan._replace(marks=[])

    def _arrivals(self, uuids: Sequence[str]) -> tuple[list[Mark], dict[str, Record]]:
        """Return the marks to take back of those that were purged here, and those of the jobs that are here."""
        if not uuids:
            return [], {}
        found = self.store.read(uuids, [("purged", uuid) for uuid in uuids])
        there = {stored.record.uuid: standing(stored, found.now) for stored in found.jobs if stored is not None}
        return [Mark(side, None) for side in found.sides if side.value is not None and side.key not in there], there

    # Claiming

    def claim(self, uuid: str, who: str, expiry: int | None, nonce: Nonce) -> Claimed:
        """Claim one job, if it is UNCLAIMED now. ``expiry`` None: keep the claim for this handle."""
        if self._is_plain(nonce) and self._finder.ruled.gate.value is None:
            stored = self.store.claim(uuid, ClaimTerms(who, *self._lease(expiry, nonce, 0)), nonce)
            if stored is not None:
                self._committer.forget(nonce)
                self._recent.learn([stored])
                return Claimed(OK, stored.record, self._margin(expiry))
        lapsed: list[Record] = []

        def plan() -> Plan:
            nonlocal lapsed
            found, stored, record = self._committer.one(uuid, [GATE])
            status, after = states.claim(record, found.now, who, *self._lease(expiry, nonce, found.now))
            rules = Rules.of(found.sides[0])
            rooms = Rooms(self._committer, Limits(rules.limits), found.now, [], stored)
            if status == OK and after is not None:
                rooms.learn([after])
                if after.name in rules.paused:
                    status = Status.PAUSED
                elif rooms.full(after):
                    status = Status.LIMITED
            if status != OK or after is None or stored is None or record is None:
                return Plan([], [Deed(status, uuid)])
            rooms.hold(stored, after)
            rooms.enter(after)
            lapsed = [record] if stored.record.state == CLAIMED else []
            change = change_by(Verb.CLAIM, stored, after)
            made = Plan([change], [Deed(OK, uuid, after.token)], checks=found.sides)
            return made._replace(marks=rooms.marks(), timely=rooms.timely)

        result = self._committer.do(nonce, plan)
        status = result.done[0].status
        if status != OK:
            return Claimed(status, None, None)
        for each in lapsed:
            tell_of_lapse(each)
        records, margin = self._claims(result, expiry)
        return Claimed(OK, records[0], margin) if records else Claimed(Status.LOST, None, None)

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
        """Claim the first ``limit`` (at most 100) jobs in order of (priority, sequence), narrowed to ``names``,
        skipping postings of a version above ``readable``. Lapsed claims and due jobs come back to their old places
        first, at most 100 of them, again while that leaves nothing to take. Each claim is atomic; no job goes to two
        callers. A first try that finds nothing writes nothing that wakes anybody."""
        store = self.store
        if self._is_plain(nonce) and self._finder.ruled.gate.value is None and not extra:
            lease = ClaimTerms(who, *self._lease(expiry, nonce, 0))
            taken = store.take(lease, limit, names, readable, nonce)
            if taken is not None:
                jobs, event = taken
                if jobs:
                    self._committer.forget(nonce)
                    self._recent.learn(jobs)
                return Taken([stored.record for stored in jobs], self._margin(expiry), [], event, True)
        trashed: list[Record] = []
        choice = Choice(self._finder, limit, names, readable, trashed, **extra)
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

        result = self._committer.do(nonce, plan, beaten=choice.beaten)
        records, margin = self._claims(result, expiry)
        # A fast path stores its answer in any order.
        records.sort(key=serving_order)
        # A try that is made anew meets what it has met before.
        trashed = list({record.uuid: record for record in trashed}.values())
        return Taken(records, margin, trashed, look and look.next_event, True, result.replayed)

    def _is_plain(self, nonce: Nonce | None) -> TypeGuard[Nonce]:
        """Return whether a fast path of the store may be asked."""
        return nonce is not None and nonce.attempt == 1

    def _lease(self, expiry: int | None, nonce: Nonce, now: int) -> tuple[str | None, int | None]:
        """Return the keeper and the end of a lease that begins now."""
        if expiry is not None:
            return None, now + expiry
        return nonce.handle, now + self._ttl if self._store.keeps == "lease" else None

    def _margin(self, expiry: int | None) -> int | None:
        """Return for how long a claim that was just made, or renewed, stands for sure."""
        if self._store.keeps == "lease":
            return (self._ttl if expiry is None else expiry) - self._store.precision
        return self._store.margin if expiry is None else expiry

    def _claims(self, result: Result, expiry: int | None) -> tuple[list[Record], int | None]:
        """Return the claims of a call that stand, and for how long surely: of those just made, all and in full."""
        margin = self._margin(expiry)
        self._recent.learn(result.stored)
        if not result.replayed:
            if expiry is None and margin is not None and self._store.keeps == "session":
                # The session was alive when the commit came, however long the call had looked before.
                margin += result.late
            return [stored.record for stored in result.stored if stored.record.state == CLAIMED], margin
        found = self.store.read([done.uuid for done in result.done])
        records = []
        for done, stored in zip(result.done, found.jobs, strict=True):
            record = standing(stored, found.now)
            if record is not None and record.token == done.token and record.state == CLAIMED:
                records.append(record)
        left = [record.lock_until - found.now for record in records if record.lock_until is not None]
        return records, min(left, default=margin)

    # Keeping claims

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """Prolong the (uuid, token) claims in ``held`` (at most 1000) that ``handle`` keeps, to ``ttl`` from now,
        reviving what has lapsed and is nobody else's. A claim is lost if its job is absent, trashed, or of another
        token. A claim that ``handle`` no longer keeps, as somebody has given it a fixed lease by its owner's name, say,
        is ``unkept``, and stays as it is. A job that a transaction of the caller's holds is ``missed``: neither renewed
        nor lost."""
        return self._keeper.renew(handle, held, ttl)

    def extend(self, uuid: str, holder: Holder, expiry: int | None, nonce: Nonce) -> tuple[Status, int | None]:
        """Compare the holder and set the lease (``expiry`` None: kept by this handle). Return the status, and for how
        long the claim stands for sure."""

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
            revival = reviving(self._committer, stored, after)
            if revival is None:
                return made._replace(done=[Deed(Status.LOST, uuid, 0)])
            return made._replace(changes=[change], marks=revival.marks, checks=revival.checks)

        forsaken = self._keeper.recall(uuid, holder.token)
        try:
            # To extend again does no harm, and what has lapsed since the first try is revived by it.
            result = self._committer.do(nonce, plan, lambda answer: plan())
        except BaseException:
            if forsaken and holder.token is not None:
                self.forsake(uuid, holder.token)
            raise
        self._recent.learn(result.stored)
        return result.done[0].status, self._margin(expiry)

    def forsake(self, uuid: str, token: int) -> None:
        """The holder of a kept claim was told that it is lost, and it is not renewed any more: see to it that the job
        becomes free, even if what keeps the claim has survived, and the server refuses it at first. Does not block: the
        next heartbeat does it, where no lease does."""
        if self._store.keeps == "session":
            self._keeper.forsake(uuid, token)
            self._clear_up_soon()

    def doubt(self, nonce: Nonce) -> None:
        """The retries of this call have run out and its outcome is unknown: what it may have claimed, or may still
        claim, is nobody's. Does not block, as :meth:`forsake`."""
        if self._store.keeps == "session":
            self._keeper.doubt(nonce)
            self._clear_up_soon()

    def _clear_up_soon(self) -> None:
        if (life := self.life) is not None:
            life.beat_soon(start=True)

    def clear_up(self) -> None:
        """Give back what :meth:`forsake` and :meth:`doubt` have left; the heartbeat calls this.

        :raises Exception: something is left, for the next beat."""
        if self._is_open:
            self._keeper.clear_up()

    # Ending claims, and what operators do

    def finish(self, acts: Sequence[Finish], nonce: Nonce | None, **extra: Any) -> list[Status]:
        """End each claim by its verb, or cancel or purge what nobody holds: at most 100 acts, each one atomic by
        itself, answered in their order. What was purged reads TRASHED for a day."""
        store = self.store
        plain = self._finder.ruled.gate.value is None and all(map(_is_plain_end, acts))
        if plain and self._is_plain(nonce) and store.consume(acts, nonce):
            self._committer.forget(nonce)
            return [OK] * len(acts)
        recent = None if nonce is None else self._recent.pop(acts)
        made = Plan([], [])

        def plan() -> Plan:
            nonlocal recent, made
            known, recent = recent, None
            if known is not None:
                made = ending(acts, Found(store.now(), list(known), [self._finder.ruled.gate]))
                if all(deed.status == OK for deed in made.done):
                    return made
            purged = [("purged", act.uuid) for act in acts if act.end.verb == Verb.PURGE]
            # The gate, so that it is known whose slots come free. A transaction of the caller's would lock it for long.
            relied_on = [] if nonce is None else [GATE]
            sides = [*purged, *outcomes_of(acts), *relied_on]
            made = ending(acts, store.read([act.uuid for act in acts], sides))
            return made

        result = self._committer.do(nonce, plan, extra=extra)
        ended = [act for act, deed in zip(acts, result.done, strict=True) if deed.status == OK and act.name]
        if nonce is not None:
            self._freed(ended, made.checks)
        elif ended:
            store.after_commit(extra, lambda: self._freed(ended, ()), lambda: None)
        return [deed.status for deed in result.done]

    def operate(self, verb: Verb, uuid: str, error: str | None, nonce: Nonce, token: int | None = None) -> Status:
        """Release, cancel, restore or purge a job. A restore whose key is taken: KEY. What was purged reads TRASHED for
        a day. ``token``: release the claim that has it, and no other."""
        released: list[Record] = []
        gate: Sequence[Side] = ()

        def plan() -> Plan:
            nonlocal released, gate
            purged = [("purged", uuid)] if verb == Verb.PURGE else []
            found, stored, before = self._committer.one(uuid, [*purged, GATE])
            status, after = _operated(verb, before, found.now, error, token)
            if status != OK or stored is None or before is None:
                return Plan([], [Deed(status, uuid)])
            held = holders_of(self.store, [before.key] if verb == Verb.RESTORE and before.key is not None else [])
            if any(holder != uuid for holder in held.by_key.values()):
                return Plan([], [Deed(Status.KEY, uuid)])
            released = [before] if before.state == CLAIMED else []
            # It may be its own key that a lapse has set free.
            changes = [change for change in held.freed if change.before != stored]
            marks = [Mark(side, b"", DAY) for side in found.sides[: len(purged)]]
            gate = found.sides[len(purged) :]
            return Plan([*changes, change_by(verb, stored, after)], [Deed(OK, uuid)], held.sides, marks, gate)

        result = self._committer.do(nonce, plan)
        status = result.done[0].status
        if result.replayed and verb == Verb.RELEASE:
            # Nobody knows how far the try got that has released it.
            released = [stored.record for stored in self.store.read([uuid]).jobs if stored is not None]
        if status == OK:
            self._freed(released, gate)
        return status

    def _freed(self, jobs: Sequence[Grouped], gate: Sequence[Side]) -> None:
        """Claims of these jobs have ended, whatever is in the way here. Those who wait for their slots are woken.

        :param gate: as it was then; none: it is yet to be read."""
        if not jobs:
            return
        try:
            ruled = self._finder.ruled_by(gate[0]) if gate else self._finder.newest()
            if left := ruled.limits.left(jobs):
                free(self._committer, left)
        except JobBoardError as error:
            LOG.info("nobody could be told that slots are free: %s", error)

    # Looking

    def now(self) -> int:
        """Return the server's time."""
        return self.store.now()

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        """Return the jobs as they stand, in the order asked for. Without a record: COMPLETE if absent, TRASHED if
        purged."""
        store = self.store
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
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None,
        states: frozenset[State] | None,
        fresh: bool = False,
    ) -> list[Seen]:
        """Return the next ``limit`` (at most 500) live jobs in order of (priority, sequence) behind ``after``, narrowed
        to names and logical states; fewer only at the end. Others may be among them, and a page may stop early with
        one of those: the iterator leaves them out and goes on behind the last.

        :param fresh: show everything that was acknowledged before this call."""
        now, jobs = self.store.page(after, limit, names, LIVE if states is None else states, fresh)
        return [_seen(stored, now) for stored in jobs]

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """Return the next trashed jobs behind ``after``, by (modified_on, sequence) downwards, those that no sweep has
        met included."""
        return self.store.trash_page(after, limit)

    def tally(self) -> dict[State, int]:
        """Return how many jobs are in each logical state but COMPLETE."""
        return self.store.counts({*LIVE, TRASHED})

    def peek(self, names: Sequence[str] | None, readable: int) -> Peeked:
        """Return whether a take would find something; writes nothing."""
        return self._finder.peek(names, readable)

    # Waiting and hearing

    def wait(self, mark: object, names: Sequence[str] | None, limit: float) -> None:
        """Sleep until something may have become claimable since ``mark`` was read, ``limit`` seconds have passed, or
        the board is closed. ``mark`` was read *before* the look that found nothing, and shows whether that was a take
        or a peek. May wake for nothing."""
        self.store.wait(names, codec.VERSION, limit, takes=mark is not None)

    def rouse(self) -> None:
        """Make every :meth:`wait` of this handle that is under way return soon."""
        self._store.rouse()

    def forgo(self) -> None:
        """This thread will not look, though its :meth:`wait` has returned: what was meant for it alone is due to
        another waiter."""
        self._store.forgo()

    def watch(self, topic: Literal["jobs", "schedules", "events"], on: bool = True) -> bool:
        """See :meth:`Store.watch <jobboard.engine.Store.watch>`. News wake the life of the board, schedules that change
        are its alarm, and it is told of events."""
        return self._is_open and self._store.watch(topic, on)

    # Pauses and limits

    def rules(self) -> Rules:
        """Return what holds for all claims of the board."""
        return self._finder.newest().rules

    def pause(self, names: Sequence[str] | None, nonce: Nonce) -> None:
        """Give no more claims of jobs of these names, or (None) of any job. A claim that stands goes on, and so does
        what extends, revives or ends it. No call that begins after this one has returned makes a claim against it."""
        self._rule(lambda rules: rules.pause(names), nonce)
        self._store.commit((), settle=True)

    def resume(self, names: Sequence[str] | None, nonce: Nonce) -> None:
        """Take that back for these names, or (None) all of it, and wake the waiters."""
        self._rule(lambda rules: rules.resume(names), nonce)

    def set_limit(self, limit: Limit, nonce: Nonce) -> None:
        """Bound the claims of some jobs from when this returns on. Claims from before may stay uncounted."""
        self._rule(lambda rules: rules.limit(limit), nonce)
        self._store.commit((), settle=True)

    def remove_limit(self, name: str, per: str | None, nonce: Nonce) -> Status:
        """Return OK, or ABSENT. Waiters look again. ``per`` None: both."""
        return self._rule(lambda rules: rules.unlimit(name, per), nonce)

    def _rule(self, change: Callable[[Rules], Rules], nonce: Nonce) -> Status:
        """Change the rules, once; ABSENT: they were so before. A board without rules always looks the same: a first
        try that is late would meet that again, and only its call's answer keeps it from acting."""
        store = self.store

        def plan() -> Plan:
            [gate] = store.read([], [GATE]).sides
            rules = Rules.of(gate)
            left = change(rules)
            if left == rules:
                return Plan([], [Deed(Status.ABSENT, "")])
            return Plan([], [Deed(OK, "")], marks=[Mark(gate, left.packed(), wakes=True)])

        return self._committer.do(nonce, plan).done[0].status

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Return the uuids of those of these jobs, all of them unclaimed, that are neither paused nor have to wait for
        a slot, each by itself."""
        return self._finder.open_to_claims(jobs)

    # Outcomes and keys that outlive their jobs

    def outcomes(self, uuids: Sequence[str]) -> list[Done | None]:
        """Return what these jobs have left that were consumed to be kept, in the order asked for; None where nothing
        is."""
        found = self.store.read([], [(OUTCOME, uuid) for uuid in uuids])
        return [Done.of(side) if side.stands(found.now) else None for side in found.sides]

    def done_page(self, after: Done | None, limit: int) -> list[Done]:
        """Return the next outcomes behind ``after``, the one that was stored last first. Fewer than ``limit`` only at
        the end."""
        dones: list[Done] = []
        place: Any = None if after is None else after.place
        while len(dones) < limit:
            found, place = self.store.sides(OUTCOME, place, limit - len(dones))
            dones += [done for side in found.sides if side.stands(found.now) and (done := Done.of(side)) is not None]
            if place is None:
                break
        return dones

    def keep(self, dones: Sequence[Done]) -> int:
        """Store outcomes of another board's, until they end: at most 40. One that is there already stays as it is.
        Return how many were stored just now."""
        most, limit = max((len(done.packed()) for done in dones), default=0), self.most_kept
        if limit is not None and most > limit:
            raise ValueError(f"the outcome takes {most} bytes, and {limit} fit here")
        there = self.outcomes([done.record.uuid for done in dones])
        return self._keep([done for done, known in zip(dones, there, strict=True) if known is None])

    def _keep(self, dones: Sequence[Done]) -> int:
        marks = [
            Mark(Side(OUTCOME, done.record.uuid, None, None, None), done.packed(), until=done.until) for done in dones
        ]
        try:
            self._committer.commit([], marks)
        except Stale:
            # Another is quicker with some of them, or they are left of what has ended.
            return 0 if len(dones) == 1 else sum(self._keep([done]) for done in dones)
        return len(marks)

    def remembered(self, place: Any) -> tuple[list[Remembered], Any]:
        """Return some of the keys whose windows run though no live job has them. ``place``: where to go on, None at the
        beginning; it returns the next one, None at the end."""
        found, further = self.store.sides("key", place, PAGE)
        remembered = [
            Remembered(side.key, holder, side.until)
            for side in found.sides
            if side.until is not None and side.stands(found.now) and (holder := holder_of(side)) is not None
        ]
        return remembered, further

    def remember(self, keys: Sequence[Remembered]) -> int:
        """Keep these keys taken that another board has remembered: at most 100. One that is taken stays as it is.
        Return how many were stored just now."""
        for _ in self._committer.tries():
            found = self.store.read([], [("key", each.key) for each in keys])
            marks = [
                Mark(side, each.uuid.encode(), until=each.until)
                for each, side in zip(keys, found.sides, strict=True)
                if not side.stands(found.now) and each.until > found.now
            ]
            try:
                self._committer.commit([], marks)
            except Stale:
                continue
            return len(marks)
        raise AssertionError("unreachable")

    # Schedules

    def schedules(self) -> list[StoredSchedule]:
        """Return the schedules that can be read here."""
        return self._schedules.readable()

    def all_schedules(self) -> list[StoredSchedule | Unreadable]:
        """Return the others, too."""
        return self._schedules.listed()

    def set_schedule(self, id: str, make: Make, nonce: Nonce) -> StoredSchedule | None:  # noqa: A002 - as users have it
        """Store what ``make`` returns for the time and for what stands there (None: nothing), if it is still as it was
        read. Where that is the very same, nothing is written. Return what ``make`` has returned last; on a replay,
        what stands there now."""
        return self._schedules.set(id, make, nonce)

    def remove_schedule(self, id: str, nonce: Nonce) -> Status:  # noqa: A002 - as users have it
        """Return OK, or ABSENT."""
        return self._schedules.remove(id, nonce)

    def kept_stats(self) -> KeptStats:
        """Return how much is kept beside the jobs."""
        return self._schedules.stats()

    def post_due(self, posted: DuePosts) -> int | None:
        """Post the jobs of all schedules that are due: one for each due time, whoever else does so, as the commit that
        posts a job also writes down the next due time. So the call may be repeated as it is.

        :param posted: takes in what it has posted. A repetition gets the same again: of what a lost reply leaves open
            it finds out whether it is on the board.
        :returns: in how many µs something is due again, None if nothing is known of."""
        return self._schedules.post_due(posted)

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        """Register or renew an entity (``metadata`` is JSON text) until ``ttl`` from now. Of two handles with the same
        kind and name the last one counts."""
        key, value = json.dumps([kind, name]), json.dumps([handle, kind, name, metadata]).encode()
        for _ in self._committer.tries():
            [side] = self.store.read([], [(ENTITY, key)]).sides
            try:
                self._committer.commit([], [Mark(side, value, ttl)])
            except Stale:
                continue
            return

    def delist(self, handle: str) -> None:
        """Remove every entity of this handle."""
        for _ in self._committer.tries():
            sides = self._committer.listed(ENTITY).sides
            mine = [Mark(side, None) for side in sides if (entity := StoredEntity.of(side)) and entity.handle == handle]
            try:
                self._committer.commit([], mine)
            except Stale:
                continue
            return

    def roster(self) -> list[tuple[str, str, str]]:
        """Return the living entities as (kind, name, metadata), in any order."""
        found = self._committer.listed(ENTITY)
        stored = (StoredEntity.of(side) for side in found.sides if side.stands(found.now))
        return [entity[1:] for entity in stored if entity is not None]

    # Transactions of the caller's

    def joins(self, extra: dict[str, Any]) -> bool:
        """Return whether these extra arguments put the call into a transaction of the caller's: it gets no nonce and is
        never repeated, as only the caller can repeat the whole."""
        return "connection" in extra

    def after_commit(self, extra: dict[str, Any], done: Callable[[], None], undone: Callable[[], None]) -> None:
        """Call ``done`` when a mutation stands (now, or at the caller's commit), ``undone`` if it never will."""
        self._store.after_commit(extra, done, undone)


def _is_plain_end(act: Finish) -> bool:
    return act.end.verb in FINISHES and act.holder.token is not None


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
