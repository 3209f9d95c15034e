"""The committer: it decides a call, commits the changes if nobody was quicker, and stores one answer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, overload

from jobboard import notifier, retry, runtime
from jobboard.engine import tries
from jobboard.engine.answers import KEPT, Answer, Deed, slot_of
from jobboard.engine.store import (
    ANY_TERMS,
    Change,
    Committed,
    CommitTerms,
    Found,
    Mark,
    Side,
    Stale,
    Store,
    Stored,
    weight,
)
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.logs import log_lapse
from jobboard.primitives import PAGE, Draft, Nonce, batches
from jobboard.states import CLAIMED, LIVE, TRASHED, Record, Verb, lapse, settle

MOST_CHANGES = 100
"""The most jobs that one commit changes, beside new jobs."""

NO_EXTRA: Mapping[str, Any] = MappingProxyType({})

_EVENTS = {
    Verb.CLAIM: notifier.CLAIMED,
    Verb.EXTEND: notifier.EXTENDED,
    Verb.ABANDON: notifier.ABANDONED,
    Verb.CONSUME: notifier.CONSUMED,
    Verb.RELEASE: notifier.RELEASED,
    Verb.RESTORE: notifier.POSTED,
}
"""The event of a verb that does not lead to the trash."""


class Timely(NamedTuple):
    """A bound on the age of a time that a commit stores.

    asked: the time of the request for the server's time, on :func:`~jobboard.runtime.boottime`. within: the seconds
    after ``asked`` in which the commit may be sent."""

    asked: float
    within: float

    def end(self, number: int) -> float:
        """Return the latest time at which this try may be sent. Each try has more time than the one before, so that a
        slow process succeeds in the end."""
        return self.asked + number * self.within


class Plan(NamedTuple):
    """The planned changes of a call, and its answer.

    sides: the side records of keys that were read for the plan. checks: the side records that the plan relies on.
    timely: the time after which the plan is too old to be committed. before: the instant, on the server's clock, before
    which the plan has to be committed, see :func:`worn_at`.
    """

    changes: list[Change]
    deeds: list[Deed]
    sides: Sequence[Side] = ()
    marks: Sequence[Mark] = ()
    checks: Sequence[Side] = ()
    timely: Timely | None = None
    before: int | None = None


class Result(NamedTuple):
    """The outcome of a call.

    stored: the jobs as the call left them; empty on a replay. late: the µs between the begin of the call and its
    commit."""

    deeds: Sequence[Deed]
    stored: list[Stored]
    replayed: bool
    late: int = 0


@overload
def record_at(stored: Stored, now: int) -> Record: ...
@overload
def record_at(stored: Stored | None, now: int) -> Record | None: ...
def record_at(stored: Stored | None, now: int) -> Record | None:
    """Return the record of a job as of ``now``, with lapses and due times applied; None for an absent job.

    A claim whose session has ended has lapsed."""
    if stored is None:
        return None
    record = settle(stored.record, now)
    if record.state == CLAIMED and record.lock_until is None and not stored.alive:
        return lapse(record, now)
    return record


def worn_at(jobs: Iterable[Stored | None], now: int) -> int | None:
    """Return the first instant at which one of these jobs goes to the trash, as its claim was the last that is allowed,
    or as it expires; None if none does.

    From that instant on, everybody sees the job in the trash. An act on the job has to be stored before."""
    first: int | None = None
    for stored in jobs:
        if stored is None:
            continue
        record = stored.record
        if record.lock_until is None:
            # Nothing ends by itself.
            continue
        end = record.expires
        if record.state == CLAIMED:
            end = record.lock_until if record.exhausted else None
        if end is not None and end > now and record.state != TRASHED and (first is None or end < first):
            first = end
    return first


class Committer:
    """The commits of one connected engine, and the answers to its calls.

    :param store: returns the store, or raises ConnectionFailure if the board is closed.
    :param sleep: sleeps for a number of seconds, unless the board is closed.
    """

    def __init__(self, store: Callable[[], Store], sleep: Callable[[float], None]) -> None:
        self._store = store
        self.before_call: Callable[[Nonce], None] = _nothing
        """A function that is called before each call of a slot."""
        self._sleep = sleep
        self._acts = runtime.Local(count=0)
        self.on_commit: Callable[[Sequence[Mark]], None] = _nothing
        """A function that is called with the marks of each commit that stands."""
        # The last call of each slot, and the slot's side record after that call. The next commit compares the record.
        self._slots: dict[tuple[str, str], tuple[int, Side]] = {}

    @property
    def store(self) -> Store:
        """The open store.

        :raises ConnectionFailure: the board is closed.
        """
        return self._store()

    @property
    def acts(self) -> int:
        """The number of commits by which calls of this thread have acted. Upkeep, such as sweeps, does not count."""
        count: int = self._acts.count
        return count

    def note_act(self) -> None:
        """Note that a commit of the running call stands, even if the rest of the call fails."""
        self._acts.count += 1

    def tries(self) -> Iterator[int]:
        """Yield the numbers of tries, with a backoff between tries.

        :raises ConnectionFailure: :data:`tries.CALL` tries were not enough.
        """
        for number in range(1, tries.CALL + 1):
            yield number
            if number > tries.UNPAUSED:
                self._sleep(retry.backoff(number - tries.UNPAUSED, 0.005, 0.1))
        raise ConnectionFailure(f"given up after {tries.CALL} tries, in each of which another process was quicker")

    def read_job(self, uuid: str, sides: Sequence[tuple[str, str]] = ()) -> tuple[Found, Stored | None, Record | None]:
        """Read a job and side records. Return all of them, the job as stored, and its record as of now."""
        found = self.store.read([uuid], sides)
        [stored] = found.jobs
        return found, stored, record_at(stored, found.now)

    def read_all(self, kind: str) -> Found:
        """Read every side record of a kind with few records."""
        found, position = self.store.sides(kind, None, PAGE)
        while position is not None:
            more, position = self.store.sides(kind, position, PAGE)
            found.sides.extend(more.sides)
        return found

    # One call

    def do(
        self,
        nonce: Nonce | None,
        plan: Callable[[], Plan],
        repeats: bool = False,
        on_refusal: Callable[[Stale], None] | None = None,
        extra: Mapping[str, Any] = NO_EXTRA,
        is_patient: bool = True,
    ) -> Result:
        """Commit the plan of a call, unless an earlier try of the call has done so.

        :param nonce: None in a transaction of the caller's.
        :param plan: decides the call. Called again at each try.
        :param repeats: a repetition acts again, and is not answered by the stored answer.
        :param on_refusal: receives the refusal of each try in which another process was quicker.
        :param extra: arguments of :meth:`Store.transaction`.
        :param is_patient: wait for other transactions that hold jobs of the plan: see :class:`CommitTerms`.
        """
        if nonce is None:
            return self._commit_joined(plan, extra)
        self.before_call(nonce)
        began = runtime.boottime()
        key = slot_of(nonce)
        slot, stored = self._known_slot(nonce, key), None
        for number in self.tries():
            try:
                with self.store.transaction(**extra):
                    if slot is None:
                        slot = self.read_slot(nonce)
                        stored = Answer.of(slot)
                    if stored is not None and stored.call > nonce.call:
                        raise JobFailure("this call came too late: a later call of its slot is stored")
                    if stored is not None and stored.call == nonce.call and not repeats:
                        self.note_act()
                        self.store.sync()
                        return Result(stored.deeds, [], True)
                    made = plan()
                    if not (made.changes or made.marks) and nonce.attempt == 1:
                        # A repetition stores its answer in any case: a delayed first try would act after it.
                        self._slots[key] = nonce.call, slot
                        self.store.sync()
                        return Result(made.deeds, [], False)
                    answer = Mark(slot, Answer(nonce.call, nonce.attempt, tuple(made.deeds)).packed(), KEPT)
                    sent = runtime.boottime()
                    by = None if made.timely is None else made.timely.end(number)
                    if by is not None and sent > by:
                        continue
                    terms = CommitTerms(is_patient, by, made.before)
                    committed = self.commit(made.changes, [answer, *made.marks], made.sides, made.checks, terms)
            except Stale as stale:
                if on_refusal is not None:
                    on_refusal(stale)
                if not (stale.uuids or stale.sides) or (slot and (slot.kind, slot.key) in stale.sides):
                    slot = stored = None
                continue
            self.note_act()
            self._slots[key] = nonce.call, committed.sides[0]
            return Result(made.deeds, committed.jobs, False, int((sent - began) * 1e6))
        raise AssertionError("unreachable")

    def _commit_joined(self, plan: Callable[[], Plan], extra: Mapping[str, Any]) -> Result:
        """Commit a plan in a transaction of the caller's. Nobody repeats the call, so no answer is stored."""
        for _ in self.tries():
            with contextlib.suppress(Stale), self.store.transaction(**extra):
                made = plan()
                terms = CommitTerms(before=made.before)
                committed = self.commit(made.changes, made.marks, made.sides, made.checks, terms)
                return Result(made.deeds, committed.jobs, False)
        raise AssertionError("unreachable")

    def _known_slot(self, nonce: Nonce, key: tuple[str, str]) -> Side | None:
        """Return the side record of the slot as the call before has left it, or None if the record must be read from
        the store.

        :param key: the kind and the key of the record.
        """
        if nonce.attempt > 1:
            return None
        if nonce.call == 1:
            return Side(*key, None, None, None)
        # The entry returns with the answer. A call that breaks off has the next one read the slot.
        call, slot = self._slots.pop(key, (nonce.call, None))
        return slot if call < nonce.call else None

    def note_fast_path(self, nonce: Nonce) -> None:
        """Note that a fast path of the store has done a call, and has stored its answer."""
        self.note_act()
        if (slot := self.store.answered(nonce)) is not None:
            self._slots[slot_of(nonce)] = nonce.call, slot
        else:
            self._slots.pop(slot_of(nonce), None)

    def read_slot(self, nonce: Nonce) -> Side:
        """Read the side record of this call's slot."""
        [side] = self.store.read([], [slot_of(nonce)]).sides
        return side

    def fence(self, nonce: Nonce) -> Answer | None:
        """Return the stored answer of a call. If there is none, bar the call from acting later, and return None."""
        for _ in self.tries():
            slot = self.read_slot(nonce)
            stored = Answer.of(slot)
            if stored is not None and stored.call >= nonce.call:
                return stored if stored.call == nonce.call else None
            try:
                self.commit([], [Mark(slot, Answer(nonce.call, nonce.attempt + tries.CALL, ()).packed(), KEPT)])
            except Stale:
                continue
            return None
        raise AssertionError("unreachable")

    # One commit

    def commit(
        self,
        changes: Sequence[Change],
        marks: Sequence[Mark] = (),
        sides: Sequence[Side] = (),
        checks: Sequence[Side] = (),
        terms: CommitTerms = ANY_TERMS,
    ) -> Committed:
        """Commit changes together with the keys that they take and free. Without any change, only sync the store.

        :raises Stale: others were quicker.
        """
        all_marks = [*marks, *self._key_marks(changes, sides)]
        if not (changes or all_marks):
            self.store.sync()
            return Committed([], [])
        committed = self.store.commit(changes, all_marks, checks, terms)
        self.on_commit(all_marks)
        return committed

    def _key_marks(self, changes: Sequence[Change], sides: Sequence[Side]) -> list[Mark]:
        freed: dict[str, Record] = {}
        taken: dict[str, str] = {}
        for before, after, _ in changes:
            had = None if before is None else held_key(before.record)
            has = None if after is None else held_key(after)
            if before is not None and had is not None and had != has:
                freed[had] = before.record
            if after is not None and has is not None and had != has:
                taken[has] = after.uuid
        keys = freed.keys() | taken.keys()
        if not keys:
            return []
        known = {side.key: side for side in sides if side.kind == "key"}
        now = 0
        if missing := [("key", key) for key in keys if key not in known]:
            found = self.store.read([], missing)
            known |= {side.key: side for side in found.sides}
            now = found.now
        marks = []
        for key in sorted(keys):
            side = known[key]
            if key in taken:
                marks.append(Mark(side, taken[key].encode()))
            # After damage, another job may have the key. The key then stays with that job.
            elif side.value == freed[key].uuid.encode():
                until = freed[key].key_until
                # The caller has read these keys in order to free them, so their windows do not matter.
                runs = now and until is not None and until > now
                marks.append(Mark(side, side.value, until=until) if runs else Mark(side, None))
        return marks

    def commit_one(self, change: Change, checks: Sequence[Side] = (), before: int | None = None) -> bool:
        """Commit a single change. Return false if others were quicker, or ``before`` has passed."""
        try:
            self.commit([change], checks=checks, terms=CommitTerms(is_patient=False, before=before))
        except Stale:
            return False
        return True

    def commit_each(
        self, changes: Sequence[Change], checks: Sequence[Side] = (), before: int | None = None
    ) -> list[Change]:
        """Commit independent changes. Return the stored changes, without jobs that another process has changed.

        Do not wait for a job that another transaction holds, and store nothing from the instant ``before`` on."""
        terms = CommitTerms(is_patient=False, before=before)
        stored: list[Change] = []
        for chunk in batches(changes, _weight, MOST_CHANGES, self.store.traits.most_bytes or sys.maxsize):
            left = list(chunk)
            while left:
                try:
                    self.commit(left, checks=checks, terms=terms)
                except Stale as stale:
                    tried, left = left, [each for each in left if _uuid(each) not in stale.uuids]
                    if len(left) == len(tried):
                        stored += [change for change in left if self.commit_one(change, checks, before)]
                        break
                else:
                    stored += left
                    break
        return stored

    def commit_marks_each(self, marks: Sequence[Mark], checks: Sequence[Side] = ()) -> int:
        """Commit independent marks. Return the number of stored marks."""
        try:
            self.commit([], marks, checks=checks)
        except Stale:
            return 0 if len(marks) == 1 else sum(self.commit_marks_each([mark], checks) for mark in marks)
        self.note_act()
        return len(marks)

    def write(self, marks: Callable[[], Sequence[Mark]]) -> int:
        """Commit the marks that ``marks`` returns, which is called again after a refusal. Return their number."""
        for _ in self.tries():
            made = marks()
            try:
                self.commit([], made)
            except Stale:
                continue
            self.note_act()
            return len(made)
        raise AssertionError("unreachable")

    def sweep(self, overdue: Sequence[Stored], now: int) -> list[Record]:
        """Write down lapses and passed due times. Return the written records: others may have written the rest."""
        swept: list[Record] = []
        for before, after, _ in self.commit_each([sweep_change(each, now) for each in overdue]):
            if isinstance(after, Record):
                swept.append(after)
                # The record of a job that is claimed again has only a new end of its lease.
                if before is not None and before.record.state == CLAIMED != after.state:
                    log_lapse(after)
        return swept


def _nothing(_: object) -> None:
    pass


def change_by(verb: Verb, stored: Stored, after: Record | None) -> Change:
    """Return the change of a job by a verb, with its event."""
    trashed = after is not None and after.state == TRASHED
    return Change(stored, after, notifier.TRASHED if trashed else _EVENTS.get(verb))


def sweep_change(stored: Stored, now: int) -> Change:
    """Return the change that writes down the end of a lease or delay."""
    record = record_at(stored, now)
    return Change(stored, record, notifier.TRASHED if record.state == TRASHED else None)


def _uuid(change: Change) -> str | None:
    job = change.after if change.before is None else change.before.record
    return None if job is None else job.uuid


def _weight(change: Change) -> int:
    before, after, _ = change
    if before is None:
        return 0
    note = after.note if isinstance(after, Record) and after.note != before.record.note else None
    return weight(before) + len(note or "")


def held_key(job: Draft | Record) -> str | None:
    """Return the key that the job holds."""
    if isinstance(job, Record):
        return job.key if job.state in LIVE else None
    return job.key if job.arrival is None or job.arrival.trashed_on is None else None
