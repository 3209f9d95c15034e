"""One call of the engine on a store: decided, committed if nobody was quicker, and answered once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, overload

from jobboard import notifier, retry
from jobboard.engine.answers import KEPT, Answer, Deed, slot_of
from jobboard.engine.store import Change, Committed, Found, Mark, Side, Stale, Store, Stored, weight
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import boottime
from jobboard.logs import tell_of_lapse
from jobboard.primitives import Draft, Nonce, batches
from jobboard.states import CLAIMED, LIVE, TRASHED, Record, Verb, lapse, settle

TRIES = 100
"""How often a call is decided anew because others were quicker, before it is given up."""

HASTY = 1
"""After how many tries there is a pause before the next: processes that go on in step are beaten again."""

AT_ONCE = 100
"""How many jobs one commit changes at most, beside new ones."""

NO_EXTRA: Mapping[str, Any] = MappingProxyType({})

PAGE = 500
"""How many side records one request lists."""

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
    """A bound on the age of a time that a commit stores. asked: when the server was asked for the time, on
    :func:`~jobboard.job.boottime`. within: how many seconds later the commit may be sent."""

    asked: float
    within: float

    def end(self, number: int) -> float:
        """Return until when this try may be sent. Each try has more time than the one before, so that a slow process
        gets through."""
        return self.asked + number * self.within


class Plan(NamedTuple):
    """The changes that a call is going to make, and its answer.

    sides: the side records of keys that were read for the changes, so that they are not read again.
    checks: the side records that the plan relies on.
    timely: decide anew where the commit would be sent too late.
    """

    changes: list[Change]
    done: list[Deed]
    sides: Sequence[Side] = ()
    marks: Sequence[Mark] = ()
    checks: Sequence[Side] = ()
    timely: Timely | None = None


class Result(NamedTuple):
    """The outcome of a call. stored: the jobs as the call left them; none where an earlier try is answered again.
    late: how many µs after its begin the commit was sent."""

    done: Sequence[Deed]
    stored: list[Stored]
    replayed: bool
    late: int = 0


@overload
def standing(stored: Stored, now: int) -> Record: ...
@overload
def standing(stored: Stored | None, now: int) -> Record | None: ...
def standing(stored: Stored | None, now: int) -> Record | None:
    """Return the job as of ``now``, with everything applied that has ended by itself; None where it is not stored."""
    if stored is None:
        return None
    record = settle(stored.record, now)
    if record.state == CLAIMED and record.lock_until is None and not stored.alive:
        return lapse(record, now)
    return record


class Committer:
    """The calls of one connected engine.

    :param store: gives the store, or raises ConnectionFailure if the board is closed.
    :param rest: sleeps for so many seconds, unless the board is closed.
    """

    def __init__(self, store: Callable[[], Store], rest: Callable[[float], None]) -> None:
        self._store = store
        self.before_call: Callable[[Nonce], None] = _nothing
        """Called before a call of a slot is begun."""
        self._rest = rest
        # The last call of each slot, and what the slot held after that call. The commit compares it.
        self._slots: dict[tuple[str, str], tuple[int, Side]] = {}

    @property
    def store(self) -> Store:
        """The open store.

        :raises ConnectionFailure: the board is closed.
        """
        return self._store()

    def tries(self) -> Iterator[int]:
        """Yield the numbers of tries, with a backoff.

        :raises ConnectionFailure: there were too many.
        """
        for number in range(1, TRIES + 1):
            yield number
            if number > HASTY:
                self._rest(retry.backoff(number - HASTY, 0.005, 0.1))
        raise ConnectionFailure(f"given up after {TRIES} tries, in each of which another process was quicker")

    def one(self, uuid: str, sides: Sequence[tuple[str, str]] = ()) -> tuple[Found, Stored | None, Record | None]:
        """Return a job as it is stored and as it stands, read with these side records."""
        found = self.store.read([uuid], sides)
        [stored] = found.jobs
        return found, stored, standing(stored, found.now)

    def listed(self, kind: str) -> Found:
        """Read every side record of a kind of which there are not many."""
        found, place = self.store.sides(kind, None, PAGE)
        while place is not None:
            more, place = self.store.sides(kind, place, PAGE)
            found.sides.extend(more.sides)
        return found

    # One call

    def do(
        self,
        nonce: Nonce | None,
        plan: Callable[[], Plan],
        again: Callable[[Answer], Plan | None] | None = None,
        beaten: Callable[[Stale], None] | None = None,
        extra: Mapping[str, Any] = NO_EXTRA,
    ) -> Result:
        """Do what ``plan`` returns, unless this call has done so already.

        :param nonce: None in a transaction of the caller's, where the store has such.
        :param again: returns what a stored answer leaves to be done; None: nothing.
        :param beaten: told of each try at which others were quicker.
        :param extra: for :meth:`Store.transaction`.
        """
        if nonce is None:
            return self._joined(plan, beaten, extra)
        self.before_call(nonce)
        began = boottime()
        slot, stored = self._remembered(nonce), None
        for number in self.tries():
            try:
                with self.store.transaction(**extra):
                    if slot is None:
                        slot = self.slot(nonce)
                        stored = Answer.of(slot)
                    if stored is not None and stored.call > nonce.call:
                        raise JobFailure("this call comes after a later one: its caller has long gone on")
                    if stored is None or stored.call < nonce.call:
                        made: Plan | None = plan()
                    else:
                        made = again(stored) if again is not None else None
                    if made is None:
                        assert stored is not None
                        self.commit([])
                        return Result(stored.done, [], True)
                    if not (made.changes or made.marks) and nonce.attempt == 1:
                        # A repetition stores its answer whatever that is, or a first try that was held up would act
                        # after it.
                        self._slots[slot_of(nonce)] = nonce.call, slot
                        self.commit([])
                        return Result(made.done, [], False)
                    answer = Mark(slot, Answer(nonce.call, nonce.attempt, tuple(made.done)).packed(), KEPT)
                    sent = boottime()
                    by = None if made.timely is None else made.timely.end(number)
                    if by is not None and sent > by:
                        continue
                    committed = self.commit(made.changes, [answer, *made.marks], made.sides, made.checks, by=by)
            except Stale as stale:
                if beaten is not None:
                    beaten(stale)
                if not (stale.uuids or stale.sides) or (slot and (slot.kind, slot.key) in stale.sides):
                    slot = stored = None
                continue
            self._slots[slot_of(nonce)] = nonce.call, committed.sides[0]
            return Result(made.done, committed.jobs, False, int((sent - began) * 1e6))
        raise AssertionError("unreachable")

    def _joined(
        self, plan: Callable[[], Plan], beaten: Callable[[Stale], None] | None, extra: Mapping[str, Any]
    ) -> Result:
        """Do so in a transaction of the caller's, which nobody repeats: it needs no answer."""
        for _ in self.tries():
            try:
                with self.store.transaction(**extra):
                    made = plan()
                    committed = self.commit(made.changes, made.marks, made.sides, made.checks)
                    return Result(made.done, committed.jobs, False)
            except Stale as stale:
                if beaten is not None:
                    beaten(stale)
        raise AssertionError("unreachable")

    def _remembered(self, nonce: Nonce) -> Side | None:
        """Return what this slot holds if nothing has gone wrong since an earlier call of it; None: it is to be read, as
        it may hold the answer of this very call, or of a later one."""
        if nonce.attempt > 1:
            return None
        if nonce.call == 1:
            return Side(*slot_of(nonce), None, None, None)
        # Gone until this call has been answered: one that breaks off reads it again.
        call, slot = self._slots.pop(slot_of(nonce), (nonce.call, None))
        return slot if call < nonce.call else None

    def forget(self, nonce: Nonce) -> None:
        """A fast path of the store has written this slot's answer."""
        self._slots.pop(slot_of(nonce), None)

    def slot(self, nonce: Nonce) -> Side:
        """Read the side record of this call's slot."""
        [side] = self.store.read([], [slot_of(nonce)]).sides
        return side

    def fence(self, nonce: Nonce) -> Answer | None:
        """Return what this call has done. If it has done nothing, make it impossible from now on."""
        for _ in self.tries():
            slot = self.slot(nonce)
            stored = Answer.of(slot)
            if stored is not None and stored.call >= nonce.call:
                return stored if stored.call == nonce.call else None
            try:
                self.commit([], [Mark(slot, Answer(nonce.call, nonce.attempt + TRIES, ()).packed(), KEPT)])
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
        waits: bool = True,
        by: float | None = None,
    ) -> Committed:
        """Store these with the keys that they take and set free. With nothing to store, as where an earlier try has
        done it all, the store makes that as safe as if it were stored now.

        :raises Stale: somebody was quicker.
        """
        return self.store.commit(changes, [*marks, *self._key_marks(changes, sides)], checks, waits=waits, by=by)

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
            # Where damage has given the key to another job as well, it stays with that one.
            elif side.value == freed[key].uuid.encode():
                until = freed[key].key_until
                # A key that was read before is to be free.
                runs = now and until is not None and until > now
                marks.append(Mark(side, side.value, until=until) if runs else Mark(side, None))
        return marks

    def alone(self, change: Change, marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> bool:
        """Store this change by itself; return whether nobody was quicker."""
        try:
            self.commit([change], marks, checks=checks, waits=False)
        except Stale:
            return False
        return True

    def apart(self, changes: Sequence[Change], checks: Sequence[Side] = ()) -> list[Change]:
        """Store changes that are independent of each other; return those at which nobody was quicker. A job that
        another transaction holds is not waited for."""
        stored: list[Change] = []
        for chunk in batches(changes, _weight, AT_ONCE, self.store.most_bytes or sys.maxsize):
            left = list(chunk)
            while left:
                try:
                    self.commit(left, checks=checks, waits=False)
                except Stale as stale:
                    tried, left = left, [each for each in left if _uuid(each) not in stale.uuids]
                    if len(left) == len(tried):
                        stored += [change for change in left if self.alone(change, checks=checks)]
                        break
                else:
                    stored += left
                    break
        return stored

    def sweep(self, overdue: Sequence[Stored], now: int) -> list[Record]:
        """Write down what has ended by itself; return the records, without those that somebody else has written."""
        swept: list[Record] = []
        for before, after, _ in self.apart([sweeping(each, now) for each in overdue]):
            if isinstance(after, Record):
                swept.append(after)
                # A store may only have noted anew when the lease ends.
                if before is not None and before.record.state == CLAIMED != after.state:
                    tell_of_lapse(after)
        return swept


def _nothing(nonce: Nonce) -> None:
    pass


def change_by(verb: Verb, stored: Stored, after: Record | None) -> Change:
    """Return what a verb makes of a job."""
    trashed = after is not None and after.state == TRASHED
    return Change(stored, after, notifier.TRASHED if trashed else _EVENTS.get(verb))


def sweeping(stored: Stored, now: int) -> Change:
    """Return what writes down that a lease or a delay has ended."""
    record = standing(stored, now)
    return Change(stored, record, notifier.TRASHED if record.state == TRASHED else None)


def _uuid(change: Change) -> str | None:
    job = change.after if change.before is None else change.before.record
    return None if job is None else job.uuid


def _weight(change: Change) -> int:
    return 0 if change.before is None else weight(change.before)


def held_key(job: Draft | Record) -> str | None:
    """Return the key that the job holds."""
    if isinstance(job, Record):
        return job.key if job.state in LIVE else None
    return job.key if job.arrival is None or job.arrival.trashed_on is None else None
