"""The whole table: every state × verb × caller, against the pure functions of :mod:`jobboard.states`.

For each case a job is brought into a state and somebody acts on it. What :mod:`jobboard.states` says about the stored
record is what has to come out: the same outcome, and the same record afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from jobboard import states
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure, NotFound, UnclaimableJob
from jobboard.job import Job
from jobboard.states import OK, SCHEDULED, TRASHED, UNCLAIMED, FailureKind, Holder, Record, Status, Verb
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, take

MINUTE = 60_000_000


class Start(NamedTuple):
    """A way into a state: ``go(board, job)`` after the post. ``job`` then has its latest claim, if any."""

    go: Callable[[JobBoard, Job], object]
    posting: dict[str, Any] = {}  # noqa: RUF012 - never changed
    lapses: bool = False


def _claimed(board: JobBoard, job: Job) -> None:
    board.claim(job, "anna")


def _then(*verbs: str) -> Callable[[JobBoard, Job], None]:
    def go(board: JobBoard, job: Job) -> None:
        board.claim(job, "anna")
        for verb in verbs:
            if verb == "stop":
                board.cancel(board.get(job.uuid), running=True)
            elif verb in ("release", "cancel", "restore", "purge"):
                getattr(board, verb)(board.get(job.uuid))
            elif verb == "claim":
                board.claim(board.get(job.uuid), "anna")
            else:
                getattr(board, verb)(job, "anna")

    return go


STARTS: dict[str, Start] = {
    "posted": Start(lambda board, job: None),
    "scheduled": Start(lambda board, job: None, {"delay": LONG}),
    "due": Start(lambda board, job: None, {"delay": SHORT}, lapses=True),
    "expires later": Start(lambda board, job: None, {"expires": LONG}),
    "scheduled, expires later": Start(lambda board, job: None, {"delay": LONG, "expires": 2 * LONG}),
    "due, expires later": Start(lambda board, job: None, {"delay": SHORT, "expires": LONG}, lapses=True),
    "expired": Start(lambda board, job: None, {"expires": SHORT}, lapses=True),
    "expired behind its delay": Start(lambda board, job: None, {"delay": SHORT, "expires": 2 * SHORT}, lapses=True),
    "kept": Start(_claimed),
    "fixed": Start(lambda board, job: board.claim(job, "anna", LONG)),
    "last attempt": Start(_claimed, {"max_attempts": 1}),
    "lapsed": Start(lambda board, job: board.claim(job, "anna", SHORT), lapses=True),
    "lapsed last attempt": Start(lambda board, job: board.claim(job, "anna", SHORT), {"max_attempts": 1}, lapses=True),
    "abandoned": Start(_then("abandon")),
    "consumed": Start(_then("consume")),
    "trashed": Start(_then("trash")),
    "cancelled": Start(lambda board, job: board.cancel(job)),
    "stopped": Start(_then("stop")),
    "released": Start(_then("release")),
    "released and claimed again": Start(_then("release", "claim")),
    "restored": Start(_then("trash", "restore")),
    "restored and claimed again": Start(_then("trash", "restore", "claim")),
    "purged": Start(_then("trash", "purge")),
}

VERBS: dict[str, tuple[Verb, dict[str, Any]]] = {
    "claim": (Verb.CLAIM, {}),
    "claim for a while": (Verb.CLAIM, {"expiry": LONG}),
    "keep": (Verb.EXTEND, {}),
    "extend": (Verb.EXTEND, {"expiry": LONG}),
    "abandon": (Verb.ABANDON, {}),
    "put off": (Verb.ABANDON, {"delay": LONG, "error": "later"}),
    "consume": (Verb.CONSUME, {}),
    "trash": (Verb.TRASH, {"reason": "bad"}),
    "release": (Verb.RELEASE, {}),
    "cancel": (Verb.CANCEL, {"reason": "no use"}),
    "cancel a running job": (Verb.STOP, {"reason": "no use"}),
    "restore": (Verb.RESTORE, {}),
    "purge": (Verb.PURGE, {}),
}

HOLDERS_VERBS = {Verb.EXTEND, Verb.ABANDON, Verb.CONSUME, Verb.TRASH}

OPERATORS_VERBS = {Verb.RELEASE, Verb.CANCEL, Verb.STOP, Verb.RESTORE, Verb.PURGE}

CALLERS = ("the handle", "anna by name", "bert by name")


def callers(verb: str) -> tuple[str, ...]:
    """Return the callers that a verb tells apart. Anybody may operate, and a claim is nobody's before."""
    if VERBS[verb][0] in HOLDERS_VERBS:
        return CALLERS
    return ("the handle", "bert by name") if VERBS[verb][0] == Verb.CLAIM else ("the handle",)


REFUSALS: dict[Status, type[Exception]] = {
    Status.LOST: ClaimLost,
    Status.UNCLAIMED: NotFound,
    Status.ABSENT: NotFound,
    Status.TRASHED: NotFound,
    Status.OTHER: JobFailure,
    Status.CLAIMED: UnclaimableJob,
    Status.SCHEDULED: UnclaimableJob,
    Status.LIVE: JobFailure,
}


class Case(NamedTuple):
    verb: str
    caller: str
    job: Job

    def act(self, board: JobBoard) -> type[BaseException] | None:
        """Do it; the class of what was raised."""
        verb, arguments = VERBS[self.verb]
        who = () if verb in OPERATORS_VERBS else (self.who,)
        try:
            if verb == Verb.STOP:
                board.cancel(self.job, running=True, **arguments)
            else:
                getattr(board, verb)(self.job, *who, **arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            return type(error)
        return None

    @property
    def who(self) -> str:
        return "bert" if self.caller.startswith("bert") else "anna"

    def expected(self, record: Record | None, now: int) -> tuple[type[Exception] | None, Record | None]:
        """Return the error and the record that :mod:`jobboard.states` expects."""
        verb, arguments = VERBS[self.verb]
        mine = self.job.claim
        holder = Holder(self.who, mine.token if mine is not None else None)
        expiry = arguments.get("expiry")
        lease: tuple[str | None, int | None] = ("handle", now) if expiry is None else (None, now + int(expiry * 1e6))
        if verb == Verb.EXTEND and expiry is None and record is not None and mine is None:
            lease = states.prolonged(record, now, 0)
        delay = int(arguments.get("delay", 0) * 1e6) or None
        error = arguments.get("error", arguments.get("reason"))
        kind = FailureKind.REJECTED if verb == Verb.TRASH else FailureKind.ERROR
        status, after = {
            Verb.CLAIM: lambda: states.claim(record, now, self.who, *lease),
            Verb.EXTEND: lambda: states.extend(record, holder, now, *lease),
            Verb.RELEASE: lambda: states.release(record, now),
            Verb.CANCEL: lambda: states.cancel(record, now, error),
            Verb.STOP: lambda: states.stop(record, now, error),
            Verb.RESTORE: lambda: states.restore(record, now),
            Verb.PURGE: lambda: states.purge(record, now),
        }.get(verb, lambda: states.finish(record, holder, now, verb, delay, error, kind=kind))()
        if status == OK:
            if verb == Verb.EXTEND and after is not None and record is not None and record.state == states.UNCLAIMED:
                # No sweep comes before the extension, which so leaves no lapse. What was read shows the lapse as last.
                after = after._replace(errors=record.errors[:-1])
            return None, after
        if status == Status.ABSENT and verb in HOLDERS_VERBS and mine is not None and not mine.ended:
            status = Status.LOST
        return REFUSALS[status], after


def differences(found: Record | None, expected: Record | None, before: Record | None, refused: bool) -> list[str]:
    """Return the differences, apart from instants and tokens, which only the server knows."""
    if found is None or expected is None:
        return [] if found is expected is None else [f"{found} is stored, not {expected}"]
    differing = [
        f"{field}: {getattr(found, field)!r} instead of {getattr(expected, field)!r}"
        for field in Record._fields
        if field not in ("token", "keeper", "lock_until", "modified_on", "errors")
        and getattr(found, field) != getattr(expected, field)
    ]
    if [failure[1:] for failure in found.errors] != [failure[1:] for failure in expected.errors]:
        differing.append(f"errors: {found.errors} instead of {expected.errors}")
    assert before is not None
    if (found.token > before.token) != (expected.token > before.token):
        differing.append(f"token: from {before.token} to {found.token}")
    if found.state == states.CLAIMED and (found.keeper is None) != (expected.keeper is None):
        differing.append(f"keeper: {found.keeper} instead of {expected.keeper}")
    if expected.keeper is None and (found.lock_until is None) != (expected.lock_until is None):
        differing.append(f"lock_until: {found.lock_until} instead of {expected.lock_until}")
    if expected.keeper is None and abs((found.lock_until or 0) - (expected.lock_until or 0)) > MINUTE:
        differing.append(f"lock_until: {found.lock_until} instead of {expected.lock_until}")
    if refused and found.modified_on != expected.modified_on:
        differing.append(f"modified_on: {found.modified_on} instead of {expected.modified_on}")
    return differing


class TestLifecycle:
    @holds("A fast path of SQL does what the table of transitions says, or leaves the call to the engine.")
    @pytest.mark.parametrize("start", STARTS)
    def test_every_verb_and_caller(self, board: JobBoard, start: str) -> None:
        cases = self.prepare(board, start)
        wrong = []
        for case in cases:
            before, now = Harness(board).record(case.job), Harness(board).now()
            error, record = case.expected(before, now)
            got = case.act(board)
            if got is not error:
                wrong.append(f"{case.verb} by {case.caller}: {got} instead of {error}")
            found = Harness(board).record(case.job)
            wrong += [
                f"{case.verb} by {case.caller}: {difference}"
                for difference in differences(settled(board, found), record, before, error is not None)
            ]
        assert wrong == []

    def prepare(self, board: JobBoard, start: str, verbs: Iterable[str] = VERBS) -> list[Case]:
        """Return a job for each verb and caller, all in the state to start from."""
        how = STARTS[start]
        cases = []
        for verb in verbs:
            for caller in callers(verb):
                job = board.post("resize", **how.posting)
                how.go(board, job)
                if caller != "the handle" and Harness(board).record(job) is not None:
                    job = board.get(job.uuid)
                elif caller != "the handle":
                    job.claim = None
                cases.append(Case(verb, caller, job))
        if how.lapses:
            gone = (TRASHED,) if start.startswith("expired") else (UNCLAIMED, TRASHED)
            eventually(lambda: all(case.job.state in gone for case in cases), LIMIT)
        return cases

    def test_the_states_to_start_from(self, board: JobBoard) -> None:
        """So that the table above is not about fewer states than it seems."""
        found = {start: self.prepare(board, start, ["claim"])[0].job.state for start in STARTS}
        scheduled = [start for start, state in found.items() if state == SCHEDULED]
        assert scheduled == ["scheduled", "scheduled, expires later"]
        assert {state: sum(each == state for each in found.values()) for state in found.values()} == {
            "UNCLAIMED": 8,
            "SCHEDULED": 2,
            "CLAIMED": 5,
            "TRASHED": 7,
            "COMPLETE": 1,
        }


class TestTags:
    any_driver = True

    @holds("No version of a job has the tag of another, whichever act made it.")
    def test_each_version_of_a_job_has_a_tag_of_its_own(self, board: JobBoard, other: JobBoard) -> None:
        """A commit compares the tag that it was decided by."""
        job = board.post("resize")
        mine = Harness(board)
        versions: dict[Any, Record] = {}

        def note(act: str) -> Record:
            [stored] = Harness(other).store.read([job.uuid]).jobs
            record: Record = stored.record
            assert versions.setdefault(stored.tag, record) == record, f"{act} has left the tag"
            return record

        def renew(ttl: float) -> None:
            mine.calls.renew([(job.uuid, note("").token)], int(ttl * 1e6))

        def release() -> None:
            board.release(board.get(job.uuid))

        acts: list[tuple[str, Callable[[], object]]] = [
            ("claim", lambda: board.claim(job, "anna")),
            ("renew", lambda: renew(LONG)),
            ("renew", lambda: renew(2 * LONG)),
            ("extend", lambda: board.extend(job, "anna", LONG)),
            ("abandon", lambda: board.abandon(job, "anna")),
            ("cancel", lambda: board.cancel(board.get(job.uuid))),
            ("restore", lambda: board.restore(board.get(job.uuid))),
            ("take", lambda: take(board)),
            ("release", release),
            ("claim", lambda: board.claim(board.get(job.uuid), "anna")),
            ("stop", lambda: board.cancel(board.get(job.uuid), running=True)),
            ("restore", lambda: board.restore(board.get(job.uuid))),
            ("take of a name", lambda: take(board, names=["resize"])),
            ("release", release),
            ("take of names", lambda: take(board, names=["crop", "resize"])),
            ("release", release),
        ]
        note("post")
        for _ in range(2):
            for name, act in acts:
                act()
                note(name)


def settled(board: JobBoard, record: Record | None) -> Record | None:
    """Return the record with its lapse applied, which a server may leave to the next sweep."""
    return record and states.settle(record, Harness(board).now())
