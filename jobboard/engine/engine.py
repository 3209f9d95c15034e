"""The engine: the calls of a board, decided once for all backends.

Each call reads, asks :mod:`jobboard.states`, and commits the changes if nobody was quicker."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard

from jobboard import codec, forks, marks, runtime, states
from jobboard import notifier as events
from jobboard.engine import doctor
from jobboard.engine.answers import Deed
from jobboard.engine.committer import Committer, Plan, Result, change_by, record_at, worn_at
from jobboard.engine.ends import (
    PURGE_REMEMBERED,
    HeldJobs,
    Recent,
    is_plain_end,
    plan_ends,
    purged_outcomes,
    restored_keys,
)
from jobboard.engine.entities import KIND as ENTITY
from jobboard.engine.entities import StoredEntity
from jobboard.engine.expirations import Expirations
from jobboard.engine.finder import Choice, Finder
from jobboard.engine.keeper import ClaimKeeper
from jobboard.engine.keys import Remembered, holder_of, holders_of
from jobboard.engine.limits import ClosedScope, IdleScopes, Rooms, free_slots, plan_revival
from jobboard.engine.outcomes import KIND as OUTCOME
from jobboard.engine.outcomes import StoredOutcome, outcomes_of
from jobboard.engine.rules import Grouped, Rules
from jobboard.engine.schedules import DuePosts, Make, Schedules, StoredSchedule, Unreadable
from jobboard.engine.search import Position, Searched, count_minutes, count_names, fits, narrowed, search
from jobboard.engine.store import (
    GATE,
    Change,
    ClaimTerms,
    Found,
    Hears,
    Look,
    Mark,
    NameCount,
    Seat,
    SetupStep,
    Side,
    Sieve,
    Stale,
    Store,
    Stored,
)
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.logs import Log, log_lapse
from jobboard.primitives import (
    PAGE,
    Characteristics,
    Claimed,
    Draft,
    Finish,
    Finished,
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
    CONSUME,
    LIVE,
    OK,
    SCHEDULED,
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
    *("setup", "insert", "claim", "take", "renew", "note", "extend", "finish", "operate", "pause", "resume", "enlist"),
    *(
        "follow",
        "set_limit",
        "remove_limit",
        "delist",
        "tidy",
        "set_schedule",
        "remove_schedule",
        "post_due",
        "store_outcomes",
        "store_keys",
    ),
)
"""The methods that a read-only board refuses."""

CLOSING = 2.0
"""The seconds that a request may take once its board is about to be closed."""


class Engine(Hears):
    """The calls of a board over a :class:`~jobboard.engine.Store`.

    Every method may be called from several threads at once. The constructor sends no request. A call that changes
    something takes a nonce, the same one for each repetition. A repetition gets the answer of the first try.

    :param make: makes the store for a seat: a subclass of Store.
    :raises ValueError, TypeError: the backend does not accept the options or the client.
    """

    characteristics: Characteristics
    """The promises of the board; set by :meth:`open`."""

    def __init__(self, seat: Seat, make: Callable[[Seat], Store]) -> None:
        self._seat = seat
        self._make = make
        self.backend = make(seat)
        """The store, open or not."""
        self._is_open = False
        self.readable = codec.version_of(seat.conf["cipher"])
        """The highest version of postings that the board claims."""
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

    # Properties of the backend

    @property
    def store(self) -> Store:
        """The open store.

        :raises ConnectionFailure: the board is closed.
        """
        if not self._is_open:
            raise ConnectionFailure(f"{self} is closed")
        return self.backend

    @property
    def connected(self) -> bool:
        """True if the board is open and has a connection at this moment."""
        return self._is_open and self.backend.connected

    @property
    def acts(self) -> int:
        """The number of commits by which calls of this thread have acted since the board was opened."""
        return self._committer.acts

    # Life

    def setup(self) -> list[SetupStep]:
        """Create the missing parts of the store, and bring the others up to date. Return what was done.

        Any number of processes may call this any number of times."""
        return self._make(self._seat).setup()

    def setup_steps(self) -> list[SetupStep]:
        """Return what :meth:`setup` would do, and do nothing."""
        return self._make(self._seat).setup_steps()

    def open(self) -> None:
        """Connect, and create the missing parts of the store unless ``auto_setup`` forbids it. Never migrate.

        Many processes may do so at once.

        :raises JobFailure: the store is too new for this version of the library.
        """
        # A closed store, or one that could not be opened, cannot be opened again.
        self.backend = self._make(self._seat)
        self.characteristics = self.backend.open(self, self._creates)
        self._is_open = True
        self._begin()

    def _begin(self) -> None:
        committer = self._committer = self._make_committer()
        self._keeper = ClaimKeeper(committer)
        self._schedules = Schedules(committer, lambda drafts: self._posting(drafts, {}), self.backend.traits.wire)
        self._recent = Recent()
        self._finder = Finder(committer, self._ttl, self.readable)
        self._idle = IdleScopes(committer)
        self._expirations = Expirations(self._clear_up_soon)
        committer.on_commit = self._expirations.note

    def _make_committer(self) -> Committer:
        return Committer(lambda: self.store, self.sleep_unless_closed)

    def hurry(self) -> None:
        """Let no request take long from now on, as the board is about to be closed."""
        self.backend.hurry(CLOSING)

    def shut(self) -> None:
        """Drop the connections of this board; never a client of the caller's."""
        if self._is_open:
            try:
                self._keeper.clear_up(math.inf)
            except Exception as error:  # noqa: BLE001 - the connections are closed after any error
                LOG.warning("claims that nobody holds are left to end by themselves: %s", error)
            self._is_open = False
            self.backend.close()

    def forked(self) -> None:
        """Drop every inherited connection *without closing it*, before anything else in a forked child.

        The parent still uses the socket. The next call opens a new connection. Take no lock."""
        if self._is_open:
            self.backend.forked()
            self._begin()
        else:
            # Another thread may have been opening or closing the store.
            forks.keep(self.backend)

    def tidy(self, seconds: float = 1.0) -> bool:
        """Drop expired side records: answers, entities, marks of purged jobs, outcomes, and idle scopes of limits.

        A board calls this when it is opened, unless read-only, every ten minutes while it renews anything, and when
        :attr:`has_leftovers`. Where there is more, the next heartbeat calls this again.

        :param seconds: the longest time that this may take.
        :returns: whether there may be more.
        """
        end = runtime.monotonic() + seconds
        self._expirations.clear()
        more = self.store.tidy(seconds)
        return self._idle.tidy(max(0.0, end - runtime.monotonic())) or more

    @property
    def has_leftovers(self) -> bool:
        """True if so many records of this handle's calls have expired that :meth:`tidy` is worth its requests."""
        return self._expirations.are_many

    def examine(self) -> Iterator[Oddity]:
        """Yield the defects of the store that :meth:`page`, :meth:`trash_page` and :meth:`outcome_page` do not show.

        Reads in pages, and writes nothing."""
        return doctor.oddities(self._committer)

    def boards(self, most: int) -> list[str]:
        """Return the names of at most ``most`` boards in this store, for users who have mistyped a name.

        This board's own name is among them if the board exists. Names may be missing where the search would be long."""
        return self.store.boards(most)

    # Posting

    def insert(self, nonce: Nonce | None, /, drafts: Sequence[Draft], **extra: Any) -> list[Posted]:
        """Store all drafts or none, in their order: at most 500.

        - A draft is not stored while another job holds its key. The answer is that job, which may be an earlier draft
          of this call. A draft with ``replace`` gives its posting to an unclaimed or scheduled holder.
        - An arrival is not stored if its uuid is on the board or in the trash. A purged job may arrive again.
        - On a replay, a job that has left the board since is answered without a record.
        """
        store = self.store
        if self._is_plain(nonce) and all(draft.is_plain for draft in drafts):
            stored = store.post(drafts, nonce)
            if stored is not None:
                self._committer.note_fast_path(nonce)
                return [Posted(OK, each.record.uuid, each.record, each.record.state) for each in stored]
        holders: dict[str, Seen] = {}
        made = Plan([], [])

        def plan() -> Plan:
            nonlocal made
            made = self._posting(drafts, holders)
            return made

        result = self._committer.do(nonce, plan, extra=extra)
        for before, after, _ in made.changes:
            if before is not None and before.record.state == CLAIMED and isinstance(after, Record):
                # The new posting clears the failures of the job, so the lapse shows in the log alone.
                log_lapse(after if after.state == TRASHED else before.record)
        return self._posted(drafts, result.deeds, result.stored, holders)

    def _posted(
        self, drafts: Sequence[Draft], deeds: Sequence[Deed], stored: Sequence[Stored], holders: dict[str, Seen]
    ) -> list[Posted]:
        """Return the answers to drafts.

        :param stored: the jobs as their commit has left them; none on a replay.
        :param holders: the jobs that existed already.
        """
        # A short answer leaves out the uuids of the jobs that it has posted.
        deeds = [
            deed if deed.uuid else deed._replace(uuid=draft.uuid) for deed, draft in zip(deeds, drafts, strict=True)
        ]
        seen = holders | {each.record.uuid: Seen.at(0, each.record) for each in stored}
        # Only the answer of an earlier try names other jobs.
        unknown = [deed.uuid for deed in deeds if deed.uuid not in seen]
        seen |= zip(unknown, self.read(unknown) if unknown else (), strict=True)
        return [Posted(status, uuid, seen[uuid].record, seen[uuid].state) for status, uuid, _ in deeds]

    def _posting(self, drafts: Sequence[Draft], seen: dict[str, Seen], ends: Sequence[Change] = ()) -> Plan:
        """Return the plan of a post.

        :param seen: receives the jobs that exist already: holders of keys, and earlier arrivals.
        :param ends: changes of the same commit. The plan begins with them.
        """
        self._check_expiries(drafts)
        keys = list(dict.fromkeys(draft.key for draft in drafts if draft.key is not None))
        held = holders_of(self.store, keys).behind(ends)
        marks, there = self._read_arrivals([draft.uuid for draft in drafts if draft.arrival is not None])
        seen.update(held.seen())
        seen.update(self._read_absent([uuid for uuid in held.by_key.values() if uuid not in seen]))
        seen.update(there)
        changes, deeds = [*ends, *held.freed], list[Deed]()
        for draft in drafts:
            uuid, key, came = draft.uuid, draft.key, draft.arrival
            trashed = came is not None and came.trashed_on is not None
            holder = None if key is None or trashed else held.by_key.get(key)
            if holder == uuid:
                # The key has arrived before its job, or an earlier try has written a part of this call.
                holder = None
            if uuid in there:
                deeds.append(Deed(Status.LIVE, uuid))
            elif holder is not None:
                replaced = draft.replace and held.replace(changes, holder, draft)
                deeds.append(Deed(Status.REPLACED if replaced else Status.KEY, holder))
            else:
                changes.append(Change(None, draft, events.TRASHED if trashed else events.POSTED))
                deeds.append(Deed(OK, uuid))
                if key is not None and not trashed:
                    held.by_key[key] = uuid
        if not changes:
            return Plan([], deeds, held.sides)
        worn = worn_at([before for before, _, _ in changes if before is not None], held.now)
        return Plan(changes, deeds, held.sides, marks, before=worn)

    def _check_expiries(self, drafts: Sequence[Draft]) -> None:
        """Check that no job expires before it is due, by the server's clock.

        :raises ValueError: one would, or at that instant.
        """
        mixed = [
            draft
            for draft in drafts
            if (draft.expires is not None and draft.delay) or (draft.expires_in is not None and draft.due)
        ]
        now = self.store.now() if mixed else 0
        for draft in mixed:
            record = draft.record(0, now)
            if record.state == SCHEDULED and record.expires <= record.lock_until:  # type: ignore[operator]
                raise ValueError(f"expires of the job {draft.name!r}: must be after the job is due")

    def _read_arrivals(self, uuids: Sequence[str]) -> tuple[list[Mark], dict[str, Seen]]:
        """Read these jobs. Return marks that forget their purges, and the jobs that exist here."""
        if not uuids:
            return [], {}
        found = self.store.read(uuids, [("purged", uuid) for uuid in uuids])
        there = {stored.record.uuid: _seen(stored, found.now) for stored in found.jobs if stored is not None}
        return [Mark(side, None) for side in found.sides if side.value is not None and side.key not in there], there

    # Claiming

    def claim(self, nonce: Nonce, /, uuid: str, who: str, expiry: int | None) -> Claimed:
        """Claim a job if it is UNCLAIMED now. Without ``expiry``, this handle keeps the claim."""
        if self._is_plain(nonce) and self._finder.rules.gate.value is None:
            stored = self.store.claim(uuid, ClaimTerms(who, *self._lease(expiry, nonce, 0)), nonce)
            if stored is not None:
                self._committer.note_fast_path(nonce)
                self._recent.learn([stored])
                return Claimed(OK, stored.record, self._margin(expiry))
        lapsed: list[Record] = []

        def plan() -> Plan:
            nonlocal lapsed
            found, stored, record = self._committer.read_job(uuid, [GATE])
            status, after = states.claim(record, found.now, who, *self._lease(expiry, nonce, found.now))
            rules = Rules.of(found.sides[0])
            rooms = Rooms(self._committer, rules, found.now, [], stored)
            if status == OK and after is not None:
                rooms.learn([after])
                if after.name in rules.paused:
                    status = Status.PAUSED
                elif rooms.full_scopes(after):
                    status = Status.LIMITED
            if status != OK or after is None or stored is None or record is None:
                return Plan([], [Deed(status, uuid)])
            rooms.hold(stored, after)
            rooms.enter(after)
            lapsed = [record] if stored.record.state == CLAIMED else []
            change = change_by(Verb.CLAIM, stored, after)
            made = Plan([change], [Deed(OK, uuid, after.token)], checks=found.sides)
            return made._replace(marks=rooms.marks(), timely=rooms.timely, before=worn_at([stored], found.now))

        result = self._committer.do(nonce, plan)
        status = result.deeds[0].status
        if status != OK:
            return Claimed(status, None, None)
        for each in lapsed:
            log_lapse(each)
        records, margin = self._claims(result, expiry)
        return Claimed(OK, records[0], margin) if records else Claimed(Status.LOST, None, None)

    def take(
        self, nonce: Nonce, /, who: str, limit: int, expiry: int | None, names: Sequence[str] | None, **extra: Any
    ) -> Taken:
        """Claim the first ``limit`` jobs, at most 100, in order of (priority, sequence).

        Lapsed claims and due jobs first return to their old places, 100 at a time, until there is a job to take. Each
        claim is atomic, and no job goes to two callers. A first try without a result wakes nobody.

        :param names: claim only jobs of these names.
        """
        store = self.store
        if self._is_plain(nonce) and not extra:
            lease, rules = ClaimTerms(who, *self._lease(expiry, nonce, 0)), self._finder.rules
            taken = None
            if rules.gate.value is None:
                taken = store.take(lease, limit, names, self.readable, nonce)
            elif limit == 1 and not rules.paused:
                job = store.take_limited(lease, names, self.readable, nonce, rules.gate, rules.scopes)
                taken = job and ([job], None)
            if taken is not None:
                jobs, event = taken
                if jobs:
                    self._committer.note_fast_path(nonce)
                    self._recent.learn(jobs)
                return Taken([stored.record for stored in jobs], self._margin(expiry), [], event)
        trashed: list[Record] = []
        choice = Choice(self._finder, limit, names, trashed, **extra)
        look: Look | None = None

        def plan() -> Plan:
            nonlocal look
            look, rooms = choice.next(), choice.rooms
            lease = self._lease(expiry, nonce, look.now)
            changes, deeds, expired = list[Change](), list[Deed](), []
            for stored in look.ready:
                status, record = states.claim(stored.record, look.now, who, *lease)
                if status == OK and record is not None:
                    changes.append(Change(stored, record, events.CLAIMED))
                    deeds.append(Deed(OK, record.uuid, record.token))
                    if rooms is not None:
                        rooms.enter(record)
                else:
                    expired.append(stored.record.uuid)
            if expired:
                # Another transaction holds them, so that no sweep can move them.
                raise Stale(expired)
            marks, timely = ([], None) if rooms is None else (rooms.marks(), rooms.timely)
            worn = worn_at(look.ready, look.now)
            return Plan(changes, deeds, marks=marks, checks=[look.gate], timely=timely, before=worn)

        result = self._committer.do(nonce, plan, on_refusal=choice.note_refusal)
        records, margin = self._claims(result, expiry)
        # The stored answer of a fast path has any order.
        records.sort(key=serving_order)
        # Several tries may have met the same job.
        trashed = list({record.uuid: record for record in trashed}.values())
        return Taken(records, margin, trashed, look and look.next_event, result.replayed)

    def _is_plain(self, nonce: Nonce | None) -> TypeGuard[Nonce]:
        """Return whether a fast path of the store may do the call."""
        return nonce is not None and nonce.attempt == 1

    def _lease(self, expiry: int | None, nonce: Nonce, now: int) -> tuple[str | None, int | None]:
        """Return the keeper and the end of a lease that begins now."""
        if expiry is not None:
            return None, now + expiry
        return nonce.handle, now + self._ttl if self.backend.traits.keeps == "lease" else None

    def _margin(self, expiry: int | None) -> int | None:
        """Return the µs for which a new or renewed claim surely stands."""
        if self.backend.traits.keeps == "lease":
            return (self._ttl if expiry is None else expiry) - self.backend.precision
        return self.backend.margin if expiry is None else expiry

    def _claims(self, result: Result, expiry: int | None) -> tuple[list[Record], int | None]:
        """Return the claims of a call that still stand, and the µs for which they surely stand."""
        margin = self._margin(expiry)
        self._recent.learn(result.stored)
        if not result.replayed:
            if expiry is None and margin is not None and self.backend.traits.keeps == "session":
                # The session was alive at the commit, so the time of the looks before does not count.
                margin += result.late
            return [stored.record for stored in result.stored if stored.record.state == CLAIMED], margin
        found = self.store.read([deed.uuid for deed in result.deeds])
        records = []
        for deed, stored in zip(result.deeds, found.jobs, strict=True):
            record = record_at(stored, found.now)
            if record is not None and record.token == deed.token and record.state == CLAIMED:
                records.append(record)
        ends = [record.lock_until for record in records if record.lock_until is not None]
        return records, min(ends) - found.now - self.backend.precision if ends else margin

    # Keeping claims

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """Prolong the claims of ``handle`` to ``ttl`` from now, and revive lapsed ones that nobody else has taken.

        - A claim is *lost* if its job is absent or trashed, or has another token.
        - A claim is *unkept* if ``handle`` no longer keeps it: somebody has given it a fixed lease by its owner's name,
          for instance. It stays as it is.
        - A claim is *missed* if a transaction of a caller's holds the job. It is neither renewed nor lost.

        :param held: the (uuid, token) of the claims, at most 1000.
        """
        return self._keeper.renew(handle, held, ttl)

    def note(self, handle: str, notes: Sequence[tuple[str, int, bytes | str]], ttl: int) -> list[Status | None]:
        """Store notes of the holders of claims that ``handle`` keeps, or that have a fixed lease.

        A stored note of a higher number stays, so the call may be repeated without a nonce. A lapsed claim that
        ``handle`` keeps is renewed first.

        :param notes: the uuid and the token of each claim, and its encoded note: at most 100.
        :param ttl: as for :meth:`renew`.
        :returns: OK or LOST for each; None if another transaction holds the job, and nothing was stored.
        """
        return self._keeper.note(handle, notes, ttl)

    def extend(self, nonce: Nonce, /, uuid: str, holder: Holder, expiry: int | None) -> tuple[Status, int | None]:
        """Set the lease of a claim if ``holder`` has the claim.

        Without ``expiry``, this handle keeps the claim, if ``holder`` has its token. A handle without the token has no
        claim to renew: see :func:`~jobboard.states.prolonged`.

        Return the status, and the µs for which the claim surely stands."""

        def plan() -> Plan:
            found, stored, record = self._committer.read_job(uuid)
            lease = self._lease(expiry, nonce, found.now)
            if record is not None and holder.token is None and expiry is None:
                lease = states.prolonged(record, found.now, self._ttl)
            status, after = states.extend(record, holder, found.now, *lease)
            made = Plan([], [Deed(status, uuid, 0)])
            if status != OK or stored is None or record is None or after is None:
                return made
            if holder.token is None and after == record:
                # The owner's session keeps the claim, without a lease.
                return made
            # The record shows no lapse that no sweep has written down.
            after = after._replace(errors=stored.record.errors, expires=stored.record.expires)
            change = change_by(Verb.EXTEND, stored, after)
            if record.state == CLAIMED:
                return made._replace(changes=[change], before=worn_at([stored], found.now))
            revival = plan_revival(self._committer, stored, after)
            if revival is None:
                return made._replace(deeds=[Deed(Status.FULL, uuid, 0)])
            return made._replace(changes=[change], marks=revival.marks, checks=revival.checks)

        forsaken = self._keeper.recall(uuid, holder.token)
        try:
            # A second extend does no harm, and revives a claim that has lapsed since the first try.
            result = self._committer.do(nonce, plan, repeats=True)
        except BaseException:
            if forsaken is not None and holder.token is not None:
                self.forsake(uuid, holder.token, forsaken)
            raise
        self._recent.learn(result.stored)
        return result.deeds[0].status, self._margin(expiry)

    def forsake(self, uuid: str, token: int, since: float = 0) -> None:
        """Free the job of a kept claim whose holder was told that the claim is lost.

        A lease ends by itself. Behind a session or a process, the next heartbeat gives the claim back, and repeats that
        until it succeeds. Does not block.

        :param since: the time, on :func:`~jobboard.runtime.boottime`, until which the holder works under the claim.
        """
        if self.backend.traits.keeps != "lease":
            self._keeper.forsake(uuid, token, since)
            self._clear_up_soon()

    def doubt(self, nonce: Nonce) -> None:
        """Free the jobs that a call may have claimed, or may still claim, whose outcome stays unknown.

        Does not block, as :meth:`forsake`."""
        if self.backend.traits.keeps != "lease":
            self._keeper.doubt(nonce)
            self._clear_up_soon()

    def _clear_up_soon(self) -> None:
        if self.life is not None:
            self.life.beat_soon(start=True)

    def clear_up(self) -> None:
        """Give back the claims of :meth:`forsake` and :meth:`doubt`. The heartbeat calls this.

        :raises Exception: a claim is left for the next beat.
        """
        if self._is_open:
            self._keeper.clear_up()

    # Ends of claims, and acts of operators

    def finish(
        self, nonce: Nonce | None, /, acts: Sequence[Finish], is_patient: bool = True, **extra: Any
    ) -> list[Status]:
        """End claims by their verbs, or do acts of operators on jobs that are as they were seen: at most 100 acts.

        Each act is atomic by itself. The answers have the order of the acts. A purged job reads TRASHED for a day, and
        a purge of an outcome leaves the job COMPLETE.

        :param is_patient: wait for other transactions that hold the jobs. If False, such a job is HELD.
        """
        store = self.store
        held = None if is_patient else HeldJobs()
        gate = self._finder.rules.gate
        if self._is_plain(nonce) and all(map(is_plain_end, acts)) and store.consume(acts, nonce, gate):
            self._committer.note_fast_path(nonce)
            for act in acts:
                if act.keep:
                    self._expirations.add(1, act.keep / 1e6)
            if gate.value is not None:
                self._freed([act for act in acts if act.name], [gate])
            return [OK] * len(acts)
        recent = None if nonce is None else self._recent.pop(acts)
        made = Plan([], [])

        def plan() -> Plan:
            nonlocal recent, made
            known, recent = recent, None
            if known is not None:
                # The end of a claim by its token holds whatever the time, and a job that leaves takes no time along. So
                # the time of the claim serves, and saves a request.
                leave = all(is_plain_end(act) and act.end.verb == CONSUME and not act.keep for act in acts)
                now = max((stored.record.modified_on for stored in known), default=0) if leave else store.now()
                made = plan_ends(acts, Found(now, list(known), [self._finder.rules.gate]))
                if all(deed.status == OK for deed in made.deeds):
                    return made
            made = self._ends(nonce, acts, held)
            return made

        on_refusal = None if held is None else held.note_refusal
        result = self._committer.do(nonce, plan, on_refusal=on_refusal, extra=extra, is_patient=is_patient)
        self._free_slots(nonce, acts, result.deeds, made.checks, extra)
        return [deed.status for deed in result.deeds]

    def follow(self, nonce: Nonce | None, /, acts: Sequence[Finish], **extra: Any) -> list[Finished]:
        """End claims as :meth:`finish`, and post the drafts of each act in the commit that ends its claim.

        A refused act posts nothing. The acts have at most 500 drafts together."""
        holders: dict[str, Seen] = {}
        made = Plan([], [])

        def plan() -> Plan:
            nonlocal made
            ends = self._ends(nonce, acts)
            drafts = [draft for act in _done(acts, ends.deeds) for draft in act.end.then]
            posting = self._posting(drafts, holders, ends.changes)
            made = ends._replace(changes=posting.changes, deeds=[*ends.deeds, *posting.deeds], sides=posting.sides)
            return made._replace(before=min(filter(None, (ends.before, posting.before)), default=None))

        result = self._committer.do(nonce, plan, extra=extra)
        deeds, posts = result.deeds[: len(acts)], result.deeds[len(acts) :]
        self._free_slots(nonce, acts, deeds, made.checks, extra)
        drafts = [draft for act in _done(acts, deeds) for draft in act.end.then]
        posted = iter(self._posted(drafts, posts, result.stored, holders))
        return [
            Finished(deed.status, list(itertools.islice(posted, len(act.end.then))) if deed.status == OK else ())
            for act, deed in zip(acts, deeds, strict=True)
        ]

    def _ends(self, nonce: Nonce | None, acts: Sequence[Finish], held: HeldJobs | None = None) -> Plan:
        """Read the jobs of these acts, and return the plan of their ends.

        :param held: the jobs of the call that other transactions hold; None: the call waits for these.
        """
        purged = [("purged", act.uuid) for act in acts if act.end.verb == Verb.PURGE]
        # The gate shows whose slots come free. A transaction of the caller's would lock it for long.
        relied_on = [] if nonce is None else [GATE]
        sides = [*purged, *outcomes_of(acts), *relied_on]
        found = self.store.read([act.uuid for act in acts], sides)
        if outcomes := purged_outcomes(acts, found):
            found.sides.extend(self.store.read([], outcomes).sides)
        if held is None:
            return plan_ends(acts, found, holders_of(self.store, restored_keys(acts, found)))
        found = held.without(found)
        return held.judged(plan_ends(acts, found, holders_of(self.store, restored_keys(acts, found))))

    def _free_slots(
        self,
        nonce: Nonce | None,
        acts: Sequence[Finish],
        deeds: Sequence[Deed],
        gate: Sequence[Side],
        extra: Mapping[str, Any],
    ) -> None:
        """Wake waiters for the slots of the claims that these acts have ended, once their ends stand."""
        ended = [act for act in _done(acts, deeds) if act.name]
        if nonce is not None:
            self._freed(ended, gate)
        elif ended:
            self.store.after_commit(extra, lambda: self._freed(ended, ()), lambda: None)

    def operate(
        self, nonce: Nonce, /, verb: Verb, uuid: str, error: str | None = None, token: int | None = None
    ) -> Status:
        """Release, cancel, stop, restore or purge a job. A purged job reads TRASHED for a day.

        :param token: act on a job with this token only.
        :returns: KEY for a restore whose key another job has.
        """
        released: list[Record] = []
        gate: Sequence[Side] = ()

        def plan() -> Plan:
            nonlocal released, gate
            purged = [("purged", uuid)] if verb == Verb.PURGE else []
            found, stored, before = self._committer.read_job(uuid, [*purged, GATE])
            status, after = states.operate(before, found.now, verb, error, token)
            if stored is None and verb == Verb.PURGE:
                return self._plan_outcome_purge(uuid, token)
            if status != OK or stored is None or before is None:
                return Plan([], [Deed(status, uuid)])
            if verb != Verb.CANCEL and marks.is_of_move(before):
                return Plan([], [Deed(Status.MOVING, uuid)])
            held = holders_of(self.store, [before.key] if verb == Verb.RESTORE and before.key is not None else [])
            if any(holder != uuid for holder in held.by_key.values()):
                return Plan([], [Deed(Status.KEY, uuid)])
            released = [before] if before.state == CLAIMED else []
            # The job may itself be the holder whose lapse has freed the key.
            changes = [change for change in held.freed if change.before != stored]
            purges = [Mark(side, b"", PURGE_REMEMBERED) for side in found.sides[: len(purged)]]
            gate = found.sides[len(purged) :]
            made = Plan([*changes, change_by(verb, stored, after)], [Deed(OK, uuid)], held.sides, purges, gate)
            return made._replace(before=worn_at([stored], found.now))

        result = self._committer.do(nonce, plan)
        status = result.deeds[0].status
        if result.replayed and verb in (Verb.RELEASE, Verb.STOP):
            # The try that ended the claim may not have woken anybody.
            released = [stored.record for stored in self.store.read([uuid]).jobs if stored is not None]
        if status == OK:
            self._freed(released, gate)
        return status

    def _plan_outcome_purge(self, uuid: str, token: int | None) -> Plan:
        """Return the plan that purges the outcome of a job. The job stays COMPLETE."""
        found = self.store.read([], [(OUTCOME, uuid)])
        done = StoredOutcome.of(found.sides[0]) if found.sides[0].is_valid(found.now) else None
        if done is None:
            return Plan([], [Deed(Status.ABSENT, uuid)])
        if token not in (None, done.record.token):
            return Plan([], [Deed(Status.LOST, uuid)])
        return Plan([], [Deed(OK, uuid)], marks=[Mark(found.sides[0], None)])

    def _freed(self, jobs: Sequence[Grouped], gate: Sequence[Side]) -> None:
        """Wake waiters for the slots of ended claims. Errors are logged, as the claims have ended all the same.

        :param gate: the gate at the end of the claims; empty if it has to be read.
        """
        if not jobs:
            return
        try:
            rules = self._finder.rules_of(gate[0]) if gate else self._finder.read_rules()
            if left := rules.slots_of(jobs):
                free_slots(self._committer, left)
        except JobBoardError as error:
            LOG.info("waiters could not be told of free slots: %s", error)

    # Looking

    def now(self) -> int:
        """Return the server's time."""
        return self.store.now()

    def read(self, uuids: Sequence[str]) -> list[Seen]:
        """Return the jobs as of now, in the order asked for. An absent job is COMPLETE, and a purged one TRASHED, both
        without a record."""
        store = self.store
        found = store.read(uuids)
        gone = self._read_absent([uuid for uuid, stored in zip(uuids, found.jobs, strict=True) if stored is None])
        return [
            gone[uuid] if stored is None else _seen(stored, found.now)
            for uuid, stored in zip(uuids, found.jobs, strict=True)
        ]

    def _read_absent(self, uuids: Sequence[str]) -> dict[str, Seen]:
        """Read the states of absent jobs: COMPLETE, or TRASHED if they were purged lately."""
        if not uuids:
            return {}
        found = self.store.read([], [("purged", uuid) for uuid in uuids])
        return {side.key: Seen(TRASHED if side.is_valid(found.now) else COMPLETE, None, None) for side in found.sides}

    def page(
        self,
        after: Record | None,
        limit: int,
        names: Sequence[str] | None = None,
        states: frozenset[State] | None = None,
        fresh: bool = False,
    ) -> list[Seen]:
        """Return the next ``limit`` live jobs, at most 500, in order of (priority, sequence) behind ``after``.

        A page may hold jobs of other names and states, and may end early with such a job. The iterator leaves these
        jobs out, and goes on behind the last one. Otherwise a page is shorter than ``limit`` only at the end.

        :param names: return only jobs of these names.
        :param states: return only jobs in these logical states.
        :param fresh: show everything that was acknowledged before this call.
        """
        now, jobs = self.store.page(after, limit, names, LIVE if states is None else states, fresh)
        return [_seen(stored, now) for stored in jobs]

    def search(
        self, states: frozenset[State], sieve: Sieve, after: Position | None, limit: int, at_most: int
    ) -> Searched:
        """Return the next jobs in these states that meet the conditions: see :mod:`jobboard.engine.search`."""
        states = narrowed(states, sieve, after)
        if sieve.key is not None and states <= LIVE and sieve.where is None:
            return self._by_key(sieve.key, states, sieve)
        return search(self.store, states, sieve, after, limit, at_most) if states else Searched([], None, 0, True)

    def _by_key(self, key: str, states: frozenset[State], sieve: Sieve) -> Searched:
        """Return the job that holds a key: the only live one that may have it."""
        seen = self.read(list(holders_of(self.store, [key]).by_key.values()))
        jobs = [
            (each.record, each.state)
            for each in seen
            if each.record is not None and each.state in states and fits(sieve, each.record, each.state)
        ]
        return Searched(jobs, None, len(seen), True)

    def names(self, most: int | None = None) -> dict[str, NameCount]:
        """Count the live jobs by name: see :func:`~jobboard.engine.search.count_names`."""
        return count_names(self.store, most)

    def minutes(self, minutes: int, at_most: int) -> list[int] | None:
        """Count outcomes by the minute: see :func:`~jobboard.engine.search.count_minutes`."""
        return count_minutes(self.store, minutes, at_most)

    def trash_page(self, after: Record | None, limit: int) -> list[Record]:
        """Return the next trashed jobs behind ``after``, by (modified_on, sequence) downwards. Jobs that no sweep has
        written down as trashed are included."""
        return self.store.trash_page(after, limit)

    def tally(self, cap: int | None = None) -> dict[State, int]:
        """Return the number of jobs in each logical state but COMPLETE; ``cap`` means that many or more."""
        counts = self.store.counts({*LIVE, TRASHED}, cap)
        return counts if cap is None else {state: min(count, cap) for state, count in counts.items()}

    def peek(self, names: Sequence[str] | None = None) -> Peeked:
        """Return whether a take would find a job. Write nothing."""
        look = Choice(self._finder, 1, names).next()
        return Peeked(bool(look.ready), look.next_event)

    # Waits and reports

    def watch(self, topic: Literal["jobs", "schedules", "events"]) -> bool:
        """See :meth:`Store.watch <jobboard.engine.Store.watch>`. The reports reach the :attr:`life` of the board."""
        return self._is_open and self.backend.watch(topic)

    def unwatch(self) -> None:
        """End the reports of events."""
        if self._is_open:
            self.backend.unwatch()

    # Pauses and limits

    def rules(self) -> Rules:
        """Return the pauses and limits of the board."""
        return self._finder.read_rules()

    def pause(self, nonce: Nonce, /, names: Sequence[str] | None) -> None:
        """Pause jobs of these names, or (None) all jobs. Existing claims go on, and can be extended, revived and ended.

        No call that begins after this one has returned claims a paused job."""
        self._change_rules(lambda rules: rules.pause(names), nonce)
        self.backend.outlast_gates()

    def resume(self, nonce: Nonce, /, names: Sequence[str] | None) -> None:
        """Resume jobs of these names, or (None) all jobs, and wake the waiters."""
        self._change_rules(lambda rules: rules.resume(names), nonce)

    def set_limit(self, nonce: Nonce, /, limit: Limit) -> None:
        """Bound the claims of some jobs once this returns. Claims from before may stay uncounted."""
        self._change_rules(lambda rules: rules.limit(limit), nonce)
        self.backend.outlast_gates()

    def remove_limit(self, nonce: Nonce, /, name: str, per: str | None) -> Status:
        """Remove limits of a name, and have waiters look again. Without ``per``, remove both. Return OK or ABSENT."""
        return self._change_rules(lambda rules: rules.unlimit(name, per), nonce)

    def _change_rules(self, change: Callable[[Rules], Rules], nonce: Nonce) -> Status:
        """Change the rules once. Return ABSENT if that changes nothing.

        The stored answer alone keeps a delayed first try from acting, as the rules may have come back meanwhile."""
        store = self.store

        def plan() -> Plan:
            [gate] = store.read([], [GATE]).sides
            rules = Rules.of(gate)
            left = change(rules)
            if left == rules:
                return Plan([], [Deed(Status.ABSENT, "")])
            return Plan([], [Deed(OK, "")], marks=[Mark(gate, left.packed(), wakes=True)])

        return self._committer.do(nonce, plan).deeds[0].status

    def open_to_claims(self, jobs: Sequence[Record]) -> set[str]:
        """Return the uuids of the unclaimed jobs that the rules admit: neither paused nor in a full scope. Each job is
        judged by itself."""
        return self._finder.open_to_claims(jobs)

    def closed_scopes(self, jobs: Sequence[Record]) -> dict[str, list[ClosedScope]]:
        """Return the scopes of limits without room for these unclaimed jobs, by the uuids of the jobs."""
        return self._finder.closed_scopes(jobs)

    def key_holders(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the uuids of the jobs that hold these keys, by key. A window may hold a key for a job that is gone."""
        return holders_of(self.store, keys).by_key

    # Outcomes and keys that outlive their jobs

    def outcomes(self, uuids: Sequence[str]) -> list[StoredOutcome | None]:
        """Return the outcomes of these jobs, in the order asked for; None for a job without an outcome."""
        found = self.store.read([], [(OUTCOME, uuid) for uuid in uuids])
        return [StoredOutcome.of(side) if side.is_valid(found.now) else None for side in found.sides]

    def outcome_page(self, after: StoredOutcome | None, limit: int) -> list[StoredOutcome]:
        """Return the next outcomes behind ``after``, the newest first. Fewer than ``limit`` mean the end."""
        dones: list[StoredOutcome] = []
        position: Any = None if after is None else after.position
        while len(dones) < limit:
            found, position = self.store.sides(OUTCOME, position, limit - len(dones))
            stored = (StoredOutcome.of(side) for side in found.sides if side.is_valid(found.now))
            dones += [done for done in stored if done is not None]
            if position is None:
                break
        return dones

    def store_outcomes(self, dones: Sequence[StoredOutcome]) -> int:
        """Store at most 100 outcomes of another board. Outcomes that exist already stay as they are. Return the number
        of stored ones."""
        most, limit = max((len(done.packed()) for done in dones), default=0), self.backend.traits.most_kept
        if limit is not None and most > limit:
            raise ValueError(f"the outcome takes {most} bytes, and {limit} fit here")
        there = self.outcomes([done.record.uuid for done in dones])
        # Others may store some of them meanwhile, and expired records of these uuids may be left.
        return self._committer.commit_marks_each(
            [
                Mark(Side(OUTCOME, done.record.uuid, None, None, None), done.packed(), until=done.until)
                for done, known in zip(dones, there, strict=True)
                if known is None
            ]
        )

    def remembered_keys(self, position: Any) -> tuple[list[Remembered], Any]:
        """Return some keys that outlive their jobs, and the next position; None at the end.

        :param position: the position that the last call has returned; None at the beginning.
        """
        found, further = self.store.sides("key", position, PAGE)
        remembered = [
            Remembered(side.key, holder, side.until)
            for side in found.sides
            if side.until is not None and side.is_valid(found.now) and (holder := holder_of(side)) is not None
        ]
        return remembered, further

    def store_keys(self, keys: Sequence[Remembered]) -> int:
        """Take at most 100 keys that another board has remembered. Taken keys stay as they are. Return the number of
        stored ones."""

        def taken() -> list[Mark]:
            found = self.store.read([], [("key", each.key) for each in keys])
            return [
                Mark(side, each.uuid.encode(), until=each.until)
                for each, side in zip(keys, found.sides, strict=True)
                if not side.is_valid(found.now) and each.until > found.now
            ]

        return self._committer.write(taken)

    # Schedules

    def schedules(self) -> list[StoredSchedule]:
        """Return the readable schedules."""
        return self._schedules.readable()

    def all_schedules(self) -> list[StoredSchedule | Unreadable]:
        """Return all schedules, unreadable ones included."""
        return self._schedules.listed()

    def find_schedule(self, id: str) -> tuple[StoredSchedule | None, int]:  # noqa: A002 - as users have it
        """Return a readable schedule, or None; and the server's time."""
        return self._schedules.find(id)

    def set_schedule(self, nonce: Nonce, /, id: str, make: Make) -> StoredSchedule | None:  # noqa: A002 - as users have it
        """Set a schedule to the result of ``make``. An equal schedule is not written again.

        :param make: returns the schedule (None: none) from the time and the stored schedule. Called again if others
            were quicker.
        :returns: the last result of ``make``; on a replay, the stored schedule.
        """
        return self._schedules.set(id, make, nonce)

    def remove_schedule(self, nonce: Nonce, /, id: str) -> Status:  # noqa: A002 - as users have it
        """Remove a schedule. Return OK or ABSENT."""
        return self._schedules.remove(id, nonce)

    def kept_stats(self) -> KeptStats:
        """Count schedules and outcomes."""
        return self._schedules.stats()

    def post_due(self, posted: DuePosts) -> int | None:
        """Post the jobs of all due schedules, one for each due time.

        The commit that posts a job also writes the next due time, so that no other process posts the job again. The
        call may be repeated without a nonce.

        :param posted: receives the posted jobs. A repetition gets the same mapping again, and adds the jobs whose
            replies were lost.
        :returns: the µs until the next due time; None without one.
        """
        return self._schedules.post_due(posted)

    # Entities

    def enlist(self, handle: str, kind: str, name: str, metadata: str, ttl: int) -> None:
        """Register or renew an entity until ``ttl`` from now. Two handles may each have an entity of one kind and name.

        :param metadata: JSON text.
        """
        key, value = json.dumps([kind, name, handle]), json.dumps([handle, kind, name, metadata]).encode()
        self._committer.write(lambda: [Mark(self.store.read([], [(ENTITY, key)]).sides[0], value, ttl)])

    def delist(self, handle: str) -> None:
        """Remove every entity of this handle."""

        def gone() -> list[Mark]:
            sides = self._committer.read_all(ENTITY).sides
            return [Mark(side, None) for side in sides if (each := StoredEntity.of(side)) and each.handle == handle]

        self._committer.write(gone)

    def roster(self) -> list[tuple[str, str, str]]:
        """Return the living entities as (kind, name, metadata), in any order."""
        found = self._committer.read_all(ENTITY)
        stored = (StoredEntity.of(side) for side in found.sides if side.is_valid(found.now))
        return [entity[1:] for entity in stored if entity is not None]


def _done(acts: Sequence[Finish], deeds: Sequence[Deed]) -> Iterator[Finish]:
    """Yield the acts that were not refused."""
    return (act for act, deed in zip(acts, deeds, strict=True) if deed.status == OK)


def _seen(stored: Stored, now: int) -> Seen:
    return Seen.at(now, record_at(stored, now))
