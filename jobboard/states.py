"""The lifecycle of a job: the only table of its transitions, and pure functions over a stored record.

A backend stores a :class:`Record` and the server's time decides what it means: :func:`settle` turns a stored record
into the logical one at a given instant, and every other function starts from there. Times are integers, microseconds
since 1970-01-01 UTC on the *server's* clock. Nothing here reads a clock, and nothing here talks to anything.

A function that may refuse returns ``(status, record)``: on :data:`OK` the record to store (None: nothing is left to
store), on any other status the settled record as it was found.
"""

from __future__ import annotations

import datetime
import enum
import itertools
from collections.abc import Sequence
from typing import NamedTuple


class State(enum.StrEnum):
    """What a job is doing, as everybody sees it."""

    UNCLAIMED = "UNCLAIMED"
    SCHEDULED = "SCHEDULED"
    CLAIMED = "CLAIMED"
    TRASHED = "TRASHED"
    COMPLETE = "COMPLETE"


UNCLAIMED = State.UNCLAIMED
SCHEDULED = State.SCHEDULED
CLAIMED = State.CLAIMED
TRASHED = State.TRASHED
COMPLETE = State.COMPLETE

LIVE = frozenset({UNCLAIMED, SCHEDULED, CLAIMED})
"""The states in which a job is on the board."""


class Verb(enum.StrEnum):
    """What can happen to a job; the ones that end a claim are also the verbs of an :class:`~jobboard.job.Act`."""

    POST = "post"
    REPLACE = "replace"
    CLAIM = "claim"
    EXTEND = "extend"
    ABANDON = "abandon"
    CONSUME = "consume"
    TRASH = "trash"
    RELEASE = "release"
    CANCEL = "cancel"
    RESTORE = "restore"
    PURGE = "purge"
    DUE = "due"
    LAPSE = "lapse"


CONSUME = Verb.CONSUME

FINISHES = frozenset({Verb.ABANDON, CONSUME, Verb.TRASH})
"""The verbs with which a holder ends its claim."""

PARTINGS = frozenset({Verb.CANCEL, Verb.PURGE})
"""The verbs that take away a job which nobody holds, if it still is as it was seen: see :func:`part`."""


class Transition(NamedTuple):
    """One row of the table: ``verb`` moves a job from ``source`` to one of ``targets`` (None: off the board)."""

    verb: Verb
    source: State | None
    targets: frozenset[State | None]


def _row(verb: Verb, source: State | None, *targets: State | None) -> Transition:
    return Transition(verb, source, frozenset(targets))


TRANSITIONS: tuple[Transition, ...] = (
    _row(Verb.POST, None, UNCLAIMED, SCHEDULED),
    _row(Verb.REPLACE, UNCLAIMED, UNCLAIMED, SCHEDULED),
    _row(Verb.REPLACE, SCHEDULED, UNCLAIMED, SCHEDULED),
    _row(Verb.DUE, SCHEDULED, UNCLAIMED),
    _row(Verb.CLAIM, UNCLAIMED, CLAIMED),
    _row(Verb.LAPSE, CLAIMED, UNCLAIMED, TRASHED),
    _row(Verb.EXTEND, CLAIMED, CLAIMED),
    _row(Verb.EXTEND, UNCLAIMED, CLAIMED),  # the holder of a lapsed claim that nobody has taken since
    _row(Verb.ABANDON, CLAIMED, UNCLAIMED, SCHEDULED, TRASHED),
    _row(Verb.ABANDON, UNCLAIMED, UNCLAIMED, SCHEDULED, TRASHED),
    _row(Verb.CONSUME, CLAIMED, None),
    _row(Verb.CONSUME, UNCLAIMED, None),
    _row(Verb.TRASH, CLAIMED, TRASHED),
    _row(Verb.TRASH, UNCLAIMED, TRASHED),
    _row(Verb.RELEASE, CLAIMED, UNCLAIMED, TRASHED),
    _row(Verb.CANCEL, UNCLAIMED, TRASHED),
    _row(Verb.CANCEL, SCHEDULED, TRASHED),
    _row(Verb.RESTORE, TRASHED, UNCLAIMED),
    _row(Verb.PURGE, TRASHED, None),
)


class Status(enum.StrEnum):
    """A backend's answer to a request about one job."""

    OK = "ok"
    LOST = "lost"
    UNCLAIMED = "unclaimed"
    ABSENT = "absent"
    OTHER = "other"
    CLAIMED = "claimed"
    SCHEDULED = "scheduled"
    TRASHED = "trashed"
    KEY = "key"
    REPLACED = "replaced"
    LIVE = "live"
    PAUSED = "paused"
    LIMITED = "limited"


OK = Status.OK

LAPSED = "the claim lapsed: its holder has died, or has not extended it in time"
"""The error of an attempt whose claim has lapsed."""

EXHAUSTED = "the claim lapsed and the job's attempts are used up"
"""The same of the last allowed attempt, with which the job goes to the trash. An operator's release of that attempt has
this error only if the job has no other."""

FAILURES = 10
"""How many of its failures a job remembers."""

FAILURE_BYTES = 16 * 1024
"""How much text these have in all, in bytes of UTF-8. Clients clip a single one to that."""


class Failure(NamedTuple):
    """One thing that went wrong with a job: ``on``, in µs, and :attr:`when`, a datetime; ``who`` worked on it then
    (None: nobody's attempt, but an operator's act); how many attempts it had had; and what was told of it."""

    on: int
    who: str | None
    attempt: int
    text: str

    @property
    def when(self) -> datetime.datetime:
        """The time of :attr:`on`, by the server's clock."""
        return moment(self.on)


class Record(NamedTuple):
    """A job as it is stored. ``posting`` is opaque here; ``version`` is its codec's and lies outside of it.

    ``priority`` is a rank, 0 is served first. ``lock_until`` is the end of the lease of a claimed job (None: no lease,
    something else tells whether the holder lives), the due time of a scheduled one, and None otherwise. ``keeper`` is
    the handle of the board that keeps the claim alive, None when the lease is fixed; what it holds after a lapse is the
    store's business. ``sequence`` rises with each post of one priority. ``errors`` are the last failures, the latest
    at the end: see :func:`failed`. ``retries`` counts the claims whose attempts do not count, because the work asked to
    be done later. ``key_until``: until then the key stays taken, whatever becomes of the job (None: as long as the job
    is on the board).
    """

    uuid: str
    name: str
    priority: int
    sequence: int
    key: str | None
    version: int
    posting: bytes | str
    state: State
    attempts: int
    max_attempts: int | None
    token: int
    who: str | None
    keeper: str | None
    lock_until: int | None
    created_on: int
    modified_on: int
    errors: tuple[Failure, ...] = ()
    retries: int = 0
    group: str | None = None
    key_until: int | None = None

    @property
    def error(self) -> str | None:
        """What the last failure has told."""
        return self.errors[-1].text if self.errors else None

    @property
    def exhausted(self) -> bool:
        """Whether no further claim is allowed."""
        return self.max_attempts is not None and self.attempts >= self.max_attempts


def serving_order(record: Record) -> tuple[int, int]:
    """By this jobs are sorted: a higher priority first, and of one priority the oldest post."""
    return record.priority, record.sequence


class Holder(NamedTuple):
    """Who acts on a claim: by its ``token``, or (``token`` None) by the owner's name alone."""

    who: str
    token: int | None


def next_token(token: int, now: int) -> int:
    """The token that follows ``token``: rises even if a failover has lost the latest ones, as clocks go on. A store
    with a counter of its own may use that: only that tokens rise is promised."""
    return max(token + 1, now)


def failed(record: Record, on: int, who: str | None, text: str) -> Record:
    """The record with one more failure. It remembers :data:`FAILURES` of them, with :data:`FAILURE_BYTES` of text in
    all: the oldest go first, and the last one stays whatever its size."""
    errors = (*record.errors, Failure(on, who, record.attempts, text))[-FAILURES:]
    sizes = [len(failure.text.encode()) for failure in errors]
    while len(sizes) > 1 and sum(sizes) > FAILURE_BYTES:
        del sizes[0]
    return record._replace(errors=errors[-len(sizes) :])


def workers(failures: Sequence[Failure], last: str | None, attempt: int) -> list[str]:
    """Return who has worked on a job, once for each attempt that is known.

    A claim that has lapsed may still be ended or extended by its holder, which is no further attempt.

    :param last: the holder of the last attempt, if that has not failed.
    :param attempt: the number of that attempt.
    """
    ends = [(each.who, each.attempt, each.text == LAPSED) for each in failures]
    pairs = itertools.pairwise([*ends, (last, attempt, False)])
    earlier = [who for (who, number, lapsed), then in pairs if not (lapsed and then[:2] == (who, number))]
    return [who for who in (*earlier, last) if who is not None]


def replace(record: Record | None, now: int, fresh: Record) -> tuple[Status, Record | None]:
    """UNCLAIMED or SCHEDULED -> what ``fresh``, another post of its key, brings: details, priority and due time."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state not in (UNCLAIMED, SCHEDULED):
        return Status(record.state.lower()), record
    return OK, record._replace(
        priority=fresh.priority,
        version=fresh.version,
        posting=fresh.posting,
        state=fresh.state,
        lock_until=fresh.lock_until,
        attempts=0,
        retries=0,
        token=next_token(record.token, now),
        who=None,
        keeper=None,
        modified_on=now,
    )


def settle(record: Record, now: int) -> Record:
    """Return the record as of ``now``, with lapsed leases and passed due times applied."""
    until = record.lock_until
    if until is None or until > now:
        return record
    if record.state == SCHEDULED:
        return record._replace(state=UNCLAIMED, lock_until=None)
    return lapse(record, until)


def lapse(record: Record, at: int) -> Record:
    """Return a claimed record after the lapse of its claim, which is one more failure. ``at`` is the instant of the
    lapse, or of the read that found it where nothing stamps that instant."""
    if record.exhausted:
        return _trashed(failed(record, at, record.who, EXHAUSTED), at)
    return failed(record, at, record.who, LAPSED)._replace(state=UNCLAIMED, lock_until=None)


def claim(
    record: Record | None, now: int, who: str, keeper: str | None, lock_until: int | None
) -> tuple[Status, Record | None]:
    """UNCLAIMED -> CLAIMED, with one more attempt and a new token."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state != UNCLAIMED:
        return Status(record.state.lower()), record
    # By _replace it would take twice as long, and every job is claimed.
    *posted, _, attempts, max_attempts, token, _, _, _, created_on, _, errors, retries, group, key_until = record
    lease = (next_token(token, now), who, keeper, lock_until)
    kept = (created_on, now, errors, retries, group, key_until)
    claimed = (*posted, CLAIMED, attempts + 1, max_attempts, *lease, *kept)
    return OK, Record._make(claimed)


def check(record: Record | None, holder: Holder, now: int) -> Status:
    """Whether ``holder`` may act on the claim of this job."""
    if record is None:
        return Status.ABSENT
    record = settle(record, now)
    if holder.token is None:
        if record.state == CLAIMED:
            return OK if record.who == holder.who else Status.OTHER
        return Status.TRASHED if record.state == TRASHED else Status.UNCLAIMED
    if record.state == TRASHED or record.token != holder.token:
        return Status.LOST
    return Status.UNCLAIMED if record.who is None else OK


def extend(
    record: Record | None, holder: Holder, now: int, keeper: str | None, lock_until: int | None
) -> tuple[Status, Record | None]:
    """CLAIMED -> CLAIMED until later; revives a lapsed claim that nobody has taken since.

    Of a record as it is stored, a revived claim shows no lapse unless a sweep has written the lapse down."""
    status = check(record, holder, now)
    if record is None or status != OK:
        return status, record and settle(record, now)
    return OK, record._replace(state=CLAIMED, keeper=keeper, lock_until=lock_until)


def finish(
    record: Record | None,
    holder: Holder,
    now: int,
    verb: Verb,
    delay: int | None = None,
    error: str | None = None,
    refund: bool = False,
    due: int | None = None,
    retry: bool = False,
) -> tuple[Status, Record | None]:
    """End a claim by ``verb``, one of :data:`FINISHES`. ``delay`` in µs, or ``due``, the instant; ``refund``: this
    attempt does not count; ``retry``: it counts as a retry instead."""
    if verb in PARTINGS:
        return part(record, holder, now, verb, error)
    status = check(record, holder, now)
    if record is None or status != OK:
        return status, record and settle(record, now)
    if verb == CONSUME:
        return OK, None
    record = settle(record, now)
    if error is not None:
        record = failed(record, now, record.who, error)
    record = record._replace(
        attempts=max(0, record.attempts - 1) if refund or retry else record.attempts,
        retries=record.retries + retry,
    )
    if verb == Verb.TRASH or record.exhausted:
        return OK, _trashed(record, now)
    until = now + delay if delay else due
    scheduled = until is not None and until > now
    return OK, record._replace(
        state=SCHEDULED if scheduled else UNCLAIMED,
        who=None,
        keeper=None,
        lock_until=until if scheduled else None,
        modified_on=now,
    )


def part(
    record: Record | None, seen: Holder, now: int, verb: Verb, error: str | None = None
) -> tuple[Status, Record | None]:
    """Cancel or purge a job, unless it has changed since ``seen``: its token, and who held it last ("": nobody).

    Both together tell every version of a job that nobody holds: a claim changes the token, and the holder of one that
    has lapsed, who may still abandon it, is gone from the record then."""
    status, after = cancel(record, now, error) if verb == Verb.CANCEL else purge(record, now)
    if record is not None and status == OK and (record.who or "", record.token) != seen:
        return Status.LOST, settle(record, now)
    return status, after


def release(
    record: Record | None, now: int, error: str | None = None, token: int | None = None
) -> tuple[Status, Record | None]:
    """An operator takes a claim away from its holder, whose token no longer counts; with ``token`` that claim only."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state != CLAIMED:
        return Status.TRASHED if record.state == TRASHED else Status.UNCLAIMED, record
    if token not in (None, record.token):
        return Status.LOST, record
    if error:
        record = failed(record, now, None, error)
    record = record._replace(token=next_token(record.token, now))
    if record.exhausted:
        return OK, _trashed(record if record.errors else failed(record, now, None, EXHAUSTED), now)
    return OK, record._replace(state=UNCLAIMED, who=None, keeper=None, lock_until=None, modified_on=now)


def cancel(record: Record | None, now: int, error: str | None = None) -> tuple[Status, Record | None]:
    """UNCLAIMED or SCHEDULED -> TRASHED."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state not in (UNCLAIMED, SCHEDULED):
        return Status(record.state.lower()), record
    if error:
        record = failed(record, now, None, error)
    return OK, _trashed(record._replace(token=next_token(record.token, now)), now)


def restore(record: Record | None, now: int) -> tuple[Status, Record | None]:
    """TRASHED -> UNCLAIMED at its old place, due at once, attempts and retries from 0; its key must be free."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state != TRASHED:
        return Status.LIVE, record
    return OK, record._replace(
        state=UNCLAIMED, attempts=0, retries=0, token=next_token(record.token, now), who=None, modified_on=now
    )


def purge(record: Record | None, now: int) -> tuple[Status, Record | None]:
    """TRASHED -> gone."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    return (OK, None) if record.state == TRASHED else (Status.LIVE, record)


def _trashed(record: Record, at: int) -> Record:
    return record._replace(state=TRASHED, keeper=None, lock_until=None, modified_on=at)


def moment(instant: int) -> datetime.datetime:
    """The time of an instant that is stored: µs since 1970, UTC. Of one that is damaged the nearest that there is."""
    try:
        return _EPOCH + instant * _MICROSECOND
    except OverflowError:
        return _LAST if instant > 0 else _FIRST


def instant(moment: datetime.datetime) -> int:
    """An aware time as it is stored."""
    return (moment - _EPOCH) // _MICROSECOND


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)
