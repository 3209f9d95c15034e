"""The lifecycle of a job: the only table of its transitions, and pure functions over a stored record.

The state of a job is a function of its stored :class:`Record` and the server's time. :func:`settle` computes the record
as of an instant, and every other function begins with it. Times are integers: microseconds since 1970-01-01 UTC on the
*server's* clock. Nothing in this module reads a clock or sends a request.

A function that may refuse returns ``(status, record)``. On :data:`OK` the record is to be stored; None means that the
job leaves the store. On any other status the record is the settled record as it was found.
"""

from __future__ import annotations

import datetime
import enum
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple


class State(enum.StrEnum):
    """The logical state of a job."""

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
    """The transitions of a job. Those that end a claim are also the verbs of an :class:`~jobboard.job.Act`."""

    POST = "post"
    REPLACE = "replace"
    CLAIM = "claim"
    EXTEND = "extend"
    ABANDON = "abandon"
    CONSUME = "consume"
    TRASH = "trash"
    RELEASE = "release"
    CANCEL = "cancel"
    STOP = "stop"
    RESTORE = "restore"
    PURGE = "purge"
    DUE = "due"
    LAPSE = "lapse"
    EXPIRE = "expire"


CONSUME = Verb.CONSUME

FINISHES = frozenset({Verb.ABANDON, CONSUME, Verb.TRASH})
"""The verbs with which a holder ends its claim."""

OPERATIONS = frozenset({Verb.RELEASE, Verb.CANCEL, Verb.STOP, Verb.RESTORE, Verb.PURGE})
"""The verbs of operators. As an end with a holder, such a verb acts on a job that still is as it was seen: see
:func:`act_on_seen`."""


class Transition(NamedTuple):
    """A row of the table: ``verb`` moves a job from ``source`` to one of ``targets``. None is a job off the board."""

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
    _row(Verb.EXPIRE, UNCLAIMED, TRASHED),
    _row(Verb.EXPIRE, SCHEDULED, TRASHED),
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
    _row(Verb.STOP, UNCLAIMED, TRASHED),
    _row(Verb.STOP, SCHEDULED, TRASHED),
    _row(Verb.STOP, CLAIMED, TRASHED),
    _row(Verb.RESTORE, TRASHED, UNCLAIMED),
    _row(Verb.PURGE, TRASHED, None),
)


class Status(enum.StrEnum):
    """The answer of an engine to a request about one job."""

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
    FULL = "full"
    HELD = "held"
    MOVING = "moving"


OK = Status.OK

LAPSED = "the claim lapsed: its holder has died, or has not extended it in time"
"""The error of an attempt whose claim has lapsed."""

EXHAUSTED = "the claim lapsed and the job's attempts are used up"
"""The error of the last allowed attempt, with whose lapse the job goes to the trash. An operator's release of that
attempt adds this error only if the job has no error."""

EXPIRED = "the job expired before its first claim"
"""The error of a job that nobody has claimed in time."""

FAILURES = 10
"""The number of failures that a job remembers."""

FAILURE_BYTES = 16 * 1024
"""The bytes of UTF-8 that the texts of these failures have together. Clients clip a single text to this size."""


class FailureKind(enum.StrEnum):
    """The cause of a failure. Code compares kinds, and never texts."""

    LAPSE = "lapse"
    """The claim lapsed, or its holder lost it during the work."""

    EXHAUSTED = "exhausted"
    """The attempts are used up: the last claim lapsed or was released, or no policy allows another run."""

    ERROR = "error"
    """The work raised an error, or its holder abandoned the job with one."""

    RETRY = "retry"
    """The work raised Retry, or its holder asked for a retry."""

    TIMEOUT = "timeout"
    """The handler exceeded its timeout."""

    REJECTED = "rejected"
    """The work raised Reject, or its holder put the job into the trash."""

    RELEASED = "released"
    """An operator took the claim away."""

    CANCELLED = "cancelled"
    """An operator cancelled the job."""

    EXPIRED = "expired"
    """The job expired before anybody claimed it."""

    POISON = "poison"
    """The stored job cannot be decoded."""

    RESTORED = "restored"
    """An operator brought the job back from the trash: a note in the list of failures, and no error."""


class Failure(NamedTuple):
    """A failure of a job.

    on: its time in µs. who: the holder; None for an act of an operator. attempt: the number of attempts so far. text:
    the error. kind: a :class:`FailureKind`; a plain str if a newer version of this library has stored another kind.
    """

    on: int
    who: str | None
    attempt: int
    text: str
    kind: str = FailureKind.ERROR

    @property
    def when(self) -> datetime.datetime:
        """The time of :attr:`on`, by the server's clock."""
        return moment(self.on)


def stored_failure(
    on: int, who: str | None, attempt: int, text: str, kind: Any = FailureKind.ERROR, *_unknown: Any
) -> Failure:
    """Return a failure from its stored fields. A missing or damaged kind becomes ERROR, and an unknown kind stays.
    Fields of a newer writer are left out."""
    return Failure(on, who, attempt, text, _KINDS.get(kind, kind) if isinstance(kind, str) else FailureKind.ERROR)


_KINDS: dict[str, str] = {str(kind): kind for kind in FailureKind}


class Record(NamedTuple):
    """A job as it is stored.

    priority: a rank; 0 is served first. sequence: rises with each post of one priority. version: of the codec of
    ``posting``, which is opaque here. lock_until: the end of the lease of a claimed job, None where something else
    shows that the holder lives; the due time of a scheduled job; ``expires`` of an unclaimed job; None in the trash.
    keeper: the handle of the board that keeps the claim alive; None for a fixed lease; undefined after a lapse. errors:
    the latest failures, the newest last: see :func:`failed`. retries: the claims that used up no attempt, as the work
    asked to be done later. key_until: the instant until which the key stays taken beside the job; None for the life of
    the job alone. expires: the instant at which a job that nobody has begun goes to the trash; None: never. It has no
    effect on a claimed job, and serves again if the claim ends as if it had never been.
    note: the last note of a holder, encoded by ``jobboard/codec.py``; opaque here.
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
    expires: int | None = None
    note: bytes | str | None = None

    @property
    def error(self) -> str | None:
        """The text of the last failure. A restore is none."""
        return next((each.text for each in reversed(self.errors) if each.kind != FailureKind.RESTORED), None)

    @property
    def exhausted(self) -> bool:
        """True if no further claim is allowed."""
        return self.max_attempts is not None and self.attempts >= self.max_attempts


def serving_order(record: Record) -> tuple[int, int]:
    """Return the sort key of a job: a higher priority goes first, and within one priority the oldest post."""
    return record.priority, record.sequence


class Holder(NamedTuple):
    """The caller of an act on a claim, known by its ``token``, or by the owner's name alone if ``token`` is None."""

    who: str
    token: int | None


def next_token(token: int, now: int) -> int:
    """Return the token that follows ``token``. The clock makes it rise even where a failover has lost the latest
    tokens.

    A store may use a counter of its own. The promise is that tokens rise."""
    return max(token + 1, now)


def failed(record: Record, on: int, who: str | None, text: str, kind: str) -> Record:
    """Return the record with one more failure. A record remembers :data:`FAILURES` failures with
    :data:`FAILURE_BYTES` of text together. The oldest go first, and the last one stays whatever its size."""
    errors = (*record.errors, Failure(on, who, record.attempts, text, kind))[-FAILURES:]
    sizes = [len(failure.text.encode()) for failure in errors]
    while len(sizes) > 1 and sum(sizes) > FAILURE_BYTES:
        del sizes[0]
    return record._replace(errors=errors[-len(sizes) :])


def workers(failures: Sequence[Failure], last: str | None, attempt: int) -> list[str]:
    """Return the holders of the known attempts, one for each attempt.

    The holder of a lapsed claim may still end or extend the claim, which is no further attempt.

    :param last: the holder of the last attempt, if that has not failed.
    :param attempt: the number of that attempt.
    """
    ends = [(each.who, each.attempt, each.kind == FailureKind.LAPSE) for each in failures]
    pairs = itertools.pairwise([*ends, (last, attempt, False)])
    earlier = [who for (who, number, lapsed), then in pairs if not (lapsed and then[:2] == (who, number))]
    return [who for who in (*earlier, last) if who is not None]


def replace(record: Record | None, now: int, fresh: Record) -> tuple[Status, Record | None]:
    """Give an UNCLAIMED or SCHEDULED job the details, priority and due time of ``fresh``, another post of its key."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state not in (UNCLAIMED, SCHEDULED):
        return Status(record.state.lower()), record
    return OK, record._replace(
        priority=fresh.priority,
        expires=fresh.expires,
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
        note=None,
    )


def settle(record: Record, now: int) -> Record:
    """Return the record as of ``now``, with lapsed leases and passed due times applied."""
    until = record.lock_until
    if until is None or until > now:
        return record
    if record.state == CLAIMED:
        return lapse(record, until)
    expires = record.expires
    if expires is not None and expires <= now:
        return _trashed(failed(record, expires, None, EXPIRED, FailureKind.EXPIRED), expires)
    return record._replace(state=UNCLAIMED, lock_until=expires)


def lapse(record: Record, at: int) -> Record:
    """Return the record after its claim has lapsed, which is one more failure.

    ``at`` is the end of the lease. If a session kept the claim, ``at`` is the time of the read."""
    if record.exhausted:
        return _trashed(failed(record, at, record.who, EXHAUSTED, FailureKind.EXHAUSTED), at)
    record = failed(record, at, record.who, LAPSED, FailureKind.LAPSE)
    return record._replace(state=UNCLAIMED, lock_until=None, expires=None)


def claim(
    record: Record | None, now: int, who: str, keeper: str | None, lock_until: int | None
) -> tuple[Status, Record | None]:
    """Claim an UNCLAIMED job, with one more attempt and a new token."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state != UNCLAIMED:
        return Status(record.state.lower()), record
    # Every job is claimed, and _replace takes twice as long. The fields behind modified_on stay.
    *posted, _, attempts, max_attempts, token, _, _, _, created_on, _ = record[:16]
    lease = (next_token(token, now), who, keeper, lock_until)
    return OK, Record._make((*posted, CLAIMED, attempts + 1, max_attempts, *lease, created_on, now, *record[16:]))


def check(record: Record | None, holder: Holder, now: int) -> Status:
    """Return OK if ``holder`` may act on the claim of this job, and the reason otherwise."""
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
    """Extend a claim, or revive a lapsed claim that nobody has taken since.

    The revived record shows the lapse only if a sweep has written the lapse down."""
    status = check(record, holder, now)
    if record is None or status != OK:
        return status, record and settle(record, now)
    return OK, record._replace(state=CLAIMED, keeper=keeper, lock_until=lock_until)


def prolonged(record: Record, now: int, ttl: int) -> tuple[str | None, int | None]:
    """Return the keeper and the end of the lease of a claim that a caller without the claim extends.

    The claim stays kept by its board, or fixed: the caller would not renew it. It lasts for ``ttl`` µs from now at
    least."""
    return record.keeper, record.lock_until and max(record.lock_until, now + ttl)


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
    kind: str = FailureKind.ERROR,
    note: bytes | str | None = None,
) -> tuple[Status, Record | None]:
    """Apply an abandon, a consume or a trash to a claimed job. Verbs in :data:`OPERATIONS` are passed to
    :func:`act_on_seen`.

    :param delay: µs before which nobody may claim an abandoned job.
    :param due: the same as an instant.
    :param refund: do not count this attempt.
    :param retry: count a retry instead of this attempt.
    :param kind: the kind of ``error``.
    :param note: the last note of the holder; None: the stored one.
    """
    if verb in OPERATIONS:
        return act_on_seen(record, holder, now, verb, error)
    status = check(record, holder, now)
    if record is None or status != OK:
        return status, record and settle(record, now)
    if verb == CONSUME:
        return OK, None
    record = settle(record, now)
    if error is not None:
        record = failed(record, now, record.who, error, kind)
    if note is not None:
        record = record._replace(note=note)
    record = record._replace(
        attempts=max(0, record.attempts - 1) if refund or retry else record.attempts,
        retries=record.retries + retry,
    )
    if verb == Verb.TRASH or record.exhausted:
        return OK, _trashed(record, now)
    until = now + delay if delay else due
    scheduled = until is not None and until > now
    # Nobody has begun a job whose only attempt does not count, nor a job that was moved. Such a job expires as posted.
    expires = record.expires if record.attempts == record.retries == 0 and error is None else None
    ends = [instant for instant in (until if scheduled else None, expires) if instant is not None]
    return OK, record._replace(
        state=SCHEDULED if scheduled else UNCLAIMED,
        who=None,
        keeper=None,
        lock_until=min(ends, default=None),
        modified_on=now,
        expires=expires,
    )


def act_on_seen(
    record: Record | None, seen: Holder, now: int, verb: Verb, error: str | None = None
) -> tuple[Status, Record | None]:
    """Apply an act of an operator, unless the token or the last holder ("": nobody) has changed since ``seen``.

    Token and last holder together identify each version of a job that nobody holds, and the token each claim. A claim
    changes the token. The holder of a lapsed claim may still abandon it, which clears the holder."""
    status, after = operate(record, now, verb, error)
    if record is not None and status == OK and (record.who or "", record.token) != seen:
        return Status.LOST, settle(record, now)
    return status, after


def operate(
    record: Record | None, now: int, verb: Verb, error: str | None = None, token: int | None = None
) -> tuple[Status, Record | None]:
    """Apply an operator's release, cancel, stop, restore or purge.

    :param token: act on a job with this token only; another token is LOST."""
    acts = {Verb.RELEASE: release, Verb.CANCEL: cancel, Verb.STOP: stop, Verb.RESTORE: restore}
    status, after = purge(record, now) if verb == Verb.PURGE else acts[verb](record, now, error)
    if record is not None and status in (OK, Status.CLAIMED) and token not in (None, record.token):
        return Status.LOST, settle(record, now)
    return status, after


def release(record: Record | None, now: int, error: str | None = None) -> tuple[Status, Record | None]:
    """Take a claim away from its holder, whose token no longer counts."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state != CLAIMED:
        return Status.TRASHED if record.state == TRASHED else Status.UNCLAIMED, record
    if error:
        record = failed(record, now, None, error, FailureKind.RELEASED)
    record = record._replace(token=next_token(record.token, now))
    if record.exhausted:
        if record.error is None:
            record = failed(record, now, None, EXHAUSTED, FailureKind.EXHAUSTED)
        return OK, _trashed(record, now)
    return OK, record._replace(state=UNCLAIMED, who=None, keeper=None, lock_until=None, modified_on=now, expires=None)


def cancel(record: Record | None, now: int, error: str | None = None) -> tuple[Status, Record | None]:
    """Move an UNCLAIMED or SCHEDULED job to the trash."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    return (Status.CLAIMED, record) if record.state == CLAIMED else stop(record, now, error)


def stop(record: Record | None, now: int, error: str | None = None) -> tuple[Status, Record | None]:
    """Move a live job to the trash. The token of its claim no longer counts; its holder stays to be seen."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state == TRASHED:
        return Status.TRASHED, record
    if error:
        record = failed(record, now, None, error, FailureKind.CANCELLED)
    return OK, _trashed(record._replace(token=next_token(record.token, now)), now)


def restore(record: Record | None, now: int, reason: str | None = None) -> tuple[Status, Record | None]:
    """Return a TRASHED job to its old place, due at once, with attempts and retries from 0. It does not expire again.
    Its key must be free.

    :param reason: kept among the failures, and never as the job's error."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    if record.state != TRASHED:
        return Status.LIVE, record
    if reason:
        record = failed(record, now, None, reason, FailureKind.RESTORED)
    token = next_token(record.token, now)
    return OK, record._replace(
        state=UNCLAIMED, attempts=0, retries=0, token=token, who=None, modified_on=now, expires=None
    )


def purge(record: Record | None, now: int) -> tuple[Status, Record | None]:
    """Remove a TRASHED job."""
    if record is None:
        return Status.ABSENT, None
    record = settle(record, now)
    return (OK, None) if record.state == TRASHED else (Status.LIVE, record)


def _trashed(record: Record, at: int) -> Record:
    return record._replace(state=TRASHED, keeper=None, lock_until=None, modified_on=at)


def moment(instant: int) -> datetime.datetime:
    """Return a stored instant as a datetime in UTC; for a damaged one out of range, the nearest datetime."""
    try:
        return _EPOCH + instant * _MICROSECOND
    except OverflowError:
        return _LAST if instant > 0 else _FIRST


def instant(moment: datetime.datetime) -> int:
    """Return an aware datetime as a stored instant."""
    return (moment - _EPOCH) // _MICROSECOND


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)
