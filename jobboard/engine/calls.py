"""How one call is carried out on a store: decided, committed if nobody was quicker, and answered once."""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, overload

import msgpack

from jobboard import notifier, retry
from jobboard.engine.store import Change, Committed, Found, Mark, Side, Stale, Store, Stored, weight
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import boottime
from jobboard.logs import tell_of_lapse
from jobboard.primitives import Draft, Nonce, batches
from jobboard.states import CLAIMED, LIVE, TRASHED, Record, Status, Verb, lapse, settle

TRIES = 100
"""How often a call is decided anew because others were quicker, before it is given up."""

HASTY = 1
"""After how many tries they don't follow each other at once: those who go on in step are beaten again."""

HOUR = 3600 * 1_000_000
DAY = 24 * HOUR

AT_ONCE = 100
"""How many jobs one commit changes at most, beside new ones."""


_EVENTS = {
    Verb.CLAIM: notifier.CLAIMED,
    Verb.EXTEND: notifier.EXTENDED,
    Verb.ABANDON: notifier.ABANDONED,
    Verb.CONSUME: notifier.CONSUMED,
    Verb.RELEASE: notifier.RELEASED,
    Verb.RESTORE: notifier.POSTED,
}
"""What others are told of a verb that does not lead to the trash."""


class Deed(NamedTuple):
    """What a call did to one job; ``token`` of a claim, 0 otherwise."""

    status: Status
    uuid: str
    token: int = 0


class Answer(NamedTuple):
    """What a call did, and which try of it, to be read when it is repeated."""

    call: int
    attempt: int
    done: tuple[Deed, ...]

    def packed(self) -> bytes:
        packed: bytes = msgpack.packb((self.call, self.attempt, self.done))
        return packed

    @classmethod
    def of(cls, side: Side) -> Answer | None:
        if side.value is None:
            return None
        call, attempt, done = msgpack.unpackb(side.value)
        return cls(call, attempt, tuple(Deed(Status(status), uuid, token) for status, uuid, token in done))


class Timely(NamedTuple):
    """What stores the server's time as it was asked for at ``asked``, on :func:`~jobboard.job.boottime`, is to be sent
    ``within`` seconds."""

    asked: float
    within: float

    def end(self, number: int) -> float:
        """Until when this try may be sent. Each has more time than the one before: who is always slow gets through."""
        return self.asked + number * self.within


class Plan(NamedTuple):
    """What a call is going to do, and what it answers then. ``sides``: what was read of side records that the changes
    touch, so that they are not read again; ``checks``: what it relies on beside these; ``timely``: it is decided anew
    where its commit would be sent too late."""

    changes: list[Change]
    done: list[Deed]
    sides: Sequence[Side] = ()
    marks: Sequence[Mark] = ()
    checks: Sequence[Side] = ()
    timely: Timely | None = None


class Result(NamedTuple):
    """What a call did; ``stored``: the jobs as it left them, which an answer that is given again has not; ``late``: how
    long after it began its commit was sent, in µs."""

    done: Sequence[Deed]
    stored: list[Stored]
    replayed: bool
    late: int = 0


@overload
def standing(stored: Stored, now: int) -> Record: ...
@overload
def standing(stored: Stored | None, now: int) -> Record | None: ...
def standing(stored: Stored | None, now: int) -> Record | None:
    """The job as it stands at ``now``, after what has ended by itself; None where it is not stored."""
    if stored is None:
        return None
    record = settle(stored.record, now)
    if record.state == CLAIMED and record.lock_until is None and not stored.alive:
        return lapse(record, now)
    return record


class Committer:
    """The calls of one connected engine.

    :param pause: sleeps for so many seconds, unless the board is closed.
    """

    def __init__(self, store: Store, pause: Callable[[float], None]) -> None:
        self.store = store
        self._pause = pause
        # What each slot held when it was last seen. The commit compares it.
        self._slots: dict[tuple[str, int], Side] = {}

    def tries(self) -> Iterator[int]:
        """Numbers of tries, with a backoff.

        :raises ConnectionFailure: there were too many.
        """
        for number in range(1, TRIES + 1):
            yield number
            if number > HASTY:
                self._pause(retry.backoff(number - HASTY, 0.005, 0.1))
        raise ConnectionFailure(f"given up after {TRIES} tries, in each of which another process was quicker")

    def one(self, uuid: str, sides: Sequence[tuple[str, str]] = ()) -> tuple[Found, Stored | None, Record | None]:
        """A job as it is stored and as it stands, read with these side records."""
        found = self.store.read([uuid], sides)
        [stored] = found.jobs
        return found, stored, standing(stored, found.now)

    # One call

    def do(
        self,
        nonce: Nonce | None,
        plan: Callable[[], Plan],
        again: Callable[[Answer], Plan | None] | None = None,
        beaten: Callable[[Stale], None] | None = None,
    ) -> Result:
        """Do what ``plan`` says, unless this call has done so already.

        :param nonce: None: in a transaction of the caller's, where the store has such.
        :param again: what an answer that was stored already leaves to be done; None: nothing.
        :param beaten: told of each try at which others were quicker.
        """
        assert nonce is not None
        began = boottime()
        slot, stored = self._remembered(nonce), None
        for number in self.tries():
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
                # A repetition stores its answer whatever that is, or a first try that was held up would act after it.
                self._slots[nonce.handle, nonce.slot] = slot
                self.commit([])
                return Result(made.done, [], False)
            answer = Mark(slot, Answer(nonce.call, nonce.attempt, tuple(made.done)).packed(), HOUR)
            sent = boottime()
            if made.timely is not None and sent > made.timely.end(number):
                continue
            try:
                committed = self.commit(made.changes, [answer, *made.marks], made.sides, made.checks)
            except Stale as stale:
                if beaten is not None:
                    beaten(stale)
                if not (stale.uuids or stale.sides) or (slot.kind, slot.key) in stale.sides:
                    slot = stored = None
                continue
            self._slots[nonce.handle, nonce.slot] = committed.sides[0]
            return Result(made.done, committed.jobs, False, int((sent - began) * 1e6))
        raise AssertionError("unreachable")

    def _remembered(self, nonce: Nonce) -> Side | None:
        """What this slot must hold, if nothing has gone wrong since its last call."""
        if nonce.attempt > 1:
            return None
        if nonce.call == 1:
            return _absent("answer", _slot_key(nonce))
        # Gone until this call has been answered: one that breaks off reads it again.
        return self._slots.pop((nonce.handle, nonce.slot), None)

    def slot(self, nonce: Nonce) -> Side:
        """The side record of this call's slot."""
        [side] = self.store.read([], [("answer", _slot_key(nonce))]).sides
        return side

    def fence(self, nonce: Nonce) -> Answer | None:
        """What this call has done; if nothing, it will not do anything from now on."""
        for _ in self.tries():
            slot = self.slot(nonce)
            stored = Answer.of(slot)
            if stored is not None and stored.call >= nonce.call:
                return stored if stored.call == nonce.call else None
            try:
                self.commit([], [Mark(slot, Answer(nonce.call, nonce.attempt + TRIES, ()).packed(), HOUR)])
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
    ) -> Committed:
        """Store these with the keys that they take and set free. With nothing to store, as where an earlier try has
        done it all, that is to be as safe as if it were stored now.

        :raises Stale: somebody was quicker.
        """
        if not (changes or marks):
            self.store.secure()
            return Committed([], [])
        return self.store.commit(changes, [*marks, *self._key_marks(changes, sides)], checks)

    def _key_marks(self, changes: Sequence[Change], sides: Sequence[Side]) -> list[Mark]:
        freed: dict[str, Record] = {}
        taken: dict[str, str] = {}
        for before, after, _ in changes:
            if (before.record if before is not None else after).key is None:  # type: ignore[union-attr]
                continue
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
        missing = [("key", key) for key in keys if key not in known]
        now = None
        if missing:
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
                # What was known is to be free.
                runs = now is not None and until is not None and until > now
                marks.append(Mark(side, side.value, until=until) if runs else Mark(side, None))
        return marks

    def alone(self, change: Change, marks: Sequence[Mark] = (), checks: Sequence[Side] = ()) -> bool:
        """Store this change by itself, which is given up if somebody was quicker."""
        try:
            self.commit([change], marks, checks=checks)
        except Stale:
            return False
        return True

    def apart(self, changes: Sequence[Change], checks: Sequence[Side] = ()) -> list[Change]:
        """Store changes that have nothing to do with each other: those of them at which nobody was quicker."""
        stored: list[Change] = []
        for chunk in batches(changes, _weight, AT_ONCE, self.store.most_bytes or sys.maxsize):
            try:
                self.commit(chunk, checks=checks)
                stored += chunk
            except Stale:
                stored += [change for change in chunk if self.alone(change, checks=checks)]
        return stored

    def sweep(self, overdue: Sequence[Stored], now: int) -> list[Record]:
        """Write down what has ended by itself; not what somebody else has written down meanwhile."""
        stored = self.apart([sweeping(each, now) for each in overdue])
        swept: list[Record] = []
        for before, after, _ in stored:
            if isinstance(after, Record):
                swept.append(after)
                if before is not None and before.record.state == CLAIMED:
                    tell_of_lapse(after)
        return swept


class EnginePart(abc.ABC):
    """Some of the primitives of :class:`~jobboard.engine.StoreEngine`."""

    @abc.abstractmethod
    def _call(self, nonce: Nonce | None) -> Committer:
        """For a call of this slot.

        :raises ConnectionFailure: the engine is closed.
        """


def change_by(verb: Verb, stored: Stored, after: Record | None) -> Change:
    """What a verb makes of a job."""
    trashed = after is not None and after.state == TRASHED
    return Change(stored, after, notifier.TRASHED if trashed else _EVENTS.get(verb))


def sweeping(stored: Stored, now: int) -> Change:
    """Write down what has ended by itself."""
    record = standing(stored, now)
    return Change(stored, record, notifier.TRASHED if record.state == TRASHED else None)


def _weight(change: Change) -> int:
    return 0 if change.before is None else weight(change.before)


def held_key(job: Draft | Record) -> str | None:
    """The key that the job holds."""
    if isinstance(job, Record):
        return job.key if job.state in LIVE else None
    return job.key if job.arrival is None or job.arrival.trashed_on is None else None


def _slot_key(nonce: Nonce) -> str:
    return f"{nonce.handle}:{nonce.slot}"


def _absent(kind: str, key: str) -> Side:
    return Side(kind, key, None, None, None)
