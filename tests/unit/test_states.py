"""The functions of ``states.py`` compared with the table, for every state, owner, verb and caller."""

import itertools

import pytest

from jobboard import states
from jobboard.states import (
    CLAIMED,
    EXHAUSTED,
    FAILURE_BYTES,
    FAILURES,
    FINISHES,
    OK,
    SCHEDULED,
    TRANSITIONS,
    TRASHED,
    UNCLAIMED,
    Failure,
    FailureKind,
    Holder,
    Record,
    State,
    Status,
    Verb,
)
from tests.support.jobs import NOW, SECOND, TOKEN
from tests.support.jobs import make_record as record

OLD = (Failure(NOW - SECOND, "anna", 1, "old"),)


def lapsed(**other) -> Record:
    return record(CLAIMED, **{"lock_until": NOW - 1, **other})


STORED: dict[str, tuple[Record | None, State | None]] = {
    "unclaimed": (record(UNCLAIMED), UNCLAIMED),
    "scheduled": (record(SCHEDULED), SCHEDULED),
    "due": (record(SCHEDULED, lock_until=NOW), UNCLAIMED),
    "unclaimed, expires": (record(UNCLAIMED, lock_until=NOW + SECOND, expires=NOW + SECOND), UNCLAIMED),
    "due, expires": (record(SCHEDULED, lock_until=NOW, expires=NOW + SECOND), UNCLAIMED),
    "expired": (record(UNCLAIMED, lock_until=NOW, expires=NOW), TRASHED),
    "expired behind its delay": (record(SCHEDULED, lock_until=NOW - 2, expires=NOW - 1), TRASHED),
    "claimed": (record(CLAIMED), CLAIMED),
    "kept": (record(CLAIMED, keeper="h"), CLAIMED),
    "without a lease": (record(CLAIMED, keeper="h", lock_until=None), CLAIMED),
    "last attempt": (record(CLAIMED, max_attempts=1), CLAIMED),
    "lapsed": (lapsed(), UNCLAIMED),
    "lapsed last attempt": (lapsed(max_attempts=1), TRASHED),
    "lapsed and settled": (record(UNCLAIMED, who="anna"), UNCLAIMED),
    "trashed": (record(TRASHED, who="anna"), TRASHED),
    "absent": (None, None),
}
"""Stored records, each with its logical state."""

FRESH = record(UNCLAIMED, uuid="v", name="m", priority=9, sequence=8, version=2, posting=b"q", max_attempts=4)

HOLDERS = {
    "its token": Holder("anna", TOKEN),
    "an older token": Holder("anna", TOKEN - 1),
    "a later token": Holder("anna", TOKEN + 1),
    "its name": Holder("anna", None),
    "another name": Holder("bert", None),
}


def act(verb: Verb, stored: Record | None, holder: Holder) -> tuple[Status, Record | None]:
    if verb == Verb.CLAIM:
        return states.claim(stored, NOW, holder.who, None, NOW + 9 * SECOND)
    if verb == Verb.EXTEND:
        return states.extend(stored, holder, NOW, None, NOW + 9 * SECOND)
    if verb in FINISHES:
        return states.finish(stored, holder, NOW, verb)
    if verb == Verb.REPLACE:
        return states.replace(stored, NOW, FRESH)
    return getattr(states, verb)(stored, NOW)


VERBS = [verb for verb in Verb if verb not in (Verb.POST, Verb.DUE, Verb.LAPSE, Verb.EXPIRE)]


def rows(verb: Verb, source: State | None) -> set[State | None]:
    """Return the targets that the table gives a verb from a state."""
    return {target for row in TRANSITIONS if (row.verb, row.source) == (verb, source) for target in row.targets}


@pytest.mark.parametrize("name", [name for name in STORED if name != "absent"])
def test_settle_applies_lapses_and_due_times(name: str) -> None:
    stored, state = STORED[name]
    assert stored is not None
    settled = states.settle(stored, NOW)
    assert (settled.state, settled.token, settled.who) == (state, stored.token, stored.who)
    assert states.settle(settled, NOW) == settled
    if settled.state == stored.state:
        assert settled is stored
    else:
        verb = Verb.LAPSE if stored.state == CLAIMED else Verb.EXPIRE if state == TRASHED else Verb.DUE
        assert settled.lock_until == (stored.expires if verb == Verb.DUE else None)
        assert settled.state in rows(verb, stored.state)


def test_an_expired_job_is_trashed_at_its_own_instant() -> None:
    for name in ("expired", "expired behind its delay"):
        stored, _ = STORED[name]
        assert stored is not None
        trashed = states.settle(stored, NOW + SECOND)
        failure = Failure(stored.expires or 0, None, stored.attempts, states.EXPIRED, FailureKind.EXPIRED)
        assert (trashed.modified_on, trashed.errors) == (stored.expires, (failure,))


def test_the_last_lapse_is_trashed_at_its_own_instant() -> None:
    trashed = states.settle(lapsed(max_attempts=1, lock_until=NOW - 5 * SECOND), NOW)
    at = NOW - 5 * SECOND
    assert (trashed.modified_on, trashed.errors) == (at, (Failure(at, "anna", 1, EXHAUSTED, FailureKind.EXHAUSTED),))
    behind = (*OLD, Failure(NOW - 1, "anna", 1, EXHAUSTED, FailureKind.EXHAUSTED))
    assert states.settle(lapsed(max_attempts=1, errors=OLD), NOW).errors == behind
    assert states.lapse(record(max_attempts=1), NOW + 1).modified_on == NOW + 1
    assert states.lapse(record(max_attempts=2), NOW + 1).state == UNCLAIMED


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_keeps_to_the_table(verb: Verb) -> None:
    """An act that is done is a row of the table. A refused act changes nothing but what time has changed."""
    rises = verb in (Verb.CLAIM, Verb.RELEASE, Verb.CANCEL, Verb.STOP, Verb.RESTORE, Verb.REPLACE)
    for label, caller in itertools.product(STORED, HOLDERS):
        (stored, source), holder = STORED[label], HOLDERS[caller]
        status, after = act(verb, stored, holder)
        if status != OK:
            assert after == (stored and states.settle(stored, NOW)), (label, caller)
            continue
        assert (after and after.state) in rows(verb, source), (label, caller)
        if after is None:
            assert verb in (Verb.CONSUME, Verb.PURGE)
            continue
        assert stored is not None
        assert after.token == (NOW if rises else TOKEN), (label, caller)
        kept = ("uuid", "name", "sequence", "key", "max_attempts", "created_on")
        brought = ("priority", "version", "posting")
        source_of = FRESH if verb == Verb.REPLACE else stored
        assert [getattr(after, field) for field in brought] == [getattr(source_of, field) for field in brought]
        assert [getattr(after, field) for field in kept] == [getattr(stored, field) for field in kept]
        assert after.attempts == {Verb.CLAIM: 2, Verb.RESTORE: 0, Verb.REPLACE: 0}.get(verb, 1)
        assert (after.lock_until is not None) == (after.state in (CLAIMED, SCHEDULED))


FREE = ("unclaimed", "lost", "lost", "unclaimed", "unclaimed")
HELD = ("ok", "lost", "lost", "ok", "other")
LAPSED = ("ok", "lost", "lost", "unclaimed", "unclaimed")
ENDED = ("lost", "lost", "lost", "trashed", "trashed")
ANSWERS = {
    **dict.fromkeys(("unclaimed", "scheduled", "due", "unclaimed, expires", "due, expires"), FREE),
    **dict.fromkeys(("claimed", "kept", "without a lease", "last attempt"), HELD),
    **dict.fromkeys(("lapsed", "lapsed and settled"), LAPSED),
    **dict.fromkeys(("lapsed last attempt", "trashed", "expired", "expired behind its delay"), ENDED),
    "absent": ("absent",) * 5,
}
"""The answers to acts on a claim, in the order of HOLDERS."""


@pytest.mark.parametrize("name", STORED)
def test_only_the_holder_acts_on_a_claim(name: str) -> None:
    stored, _ = STORED[name]
    for verb in (Verb.EXTEND, *sorted(FINISHES)):
        assert tuple(act(verb, stored, holder)[0] for holder in HOLDERS.values()) == ANSWERS[name], verb
    assert tuple(states.check(stored, holder, NOW) for holder in HOLDERS.values()) == ANSWERS[name]


ANYBODY = {
    Verb.CLAIM: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "scheduled", CLAIMED: "claimed", TRASHED: "trashed"},
    Verb.RELEASE: {None: "absent", UNCLAIMED: "unclaimed", SCHEDULED: "unclaimed", CLAIMED: "ok", TRASHED: "trashed"},
    Verb.CANCEL: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "ok", CLAIMED: "claimed", TRASHED: "trashed"},
    Verb.STOP: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "ok", CLAIMED: "ok", TRASHED: "trashed"},
    Verb.REPLACE: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "ok", CLAIMED: "claimed", TRASHED: "trashed"},
    Verb.RESTORE: {None: "absent", UNCLAIMED: "live", SCHEDULED: "live", CLAIMED: "live", TRASHED: "ok"},
    Verb.PURGE: {None: "absent", UNCLAIMED: "live", SCHEDULED: "live", CLAIMED: "live", TRASHED: "ok"},
}


@pytest.mark.parametrize("verb", ANYBODY)
def test_verbs_of_anybody_are_refused_by_state_alone(verb: Verb) -> None:
    found = {name: act(verb, stored, HOLDERS["another name"])[0] for name, (stored, _) in STORED.items()}
    assert found == {name: ANYBODY[verb][state] for name, (_, state) in STORED.items()}


@pytest.mark.rule("A release by token takes that claim away, and no newer one.")
@pytest.mark.parametrize("verb", [Verb.RELEASE, Verb.CANCEL, Verb.STOP, Verb.RESTORE, Verb.PURGE])
def test_operators_act_on_the_version_with_their_token(verb: Verb) -> None:
    """A claim with another token is lost, also to a cancel that does not stop work."""
    for name, (stored, state) in STORED.items():
        plain = states.operate(stored, NOW, verb)
        assert plain == act(verb, stored, HOLDERS["another name"]), name
        assert states.operate(stored, NOW, verb, token=TOKEN) == plain, name
        other = ("lost", stored and states.settle(stored, NOW))
        is_bound = plain[0] == OK or (verb == Verb.CANCEL and state == CLAIMED)
        assert states.operate(stored, NOW, verb, token=TOKEN - 1) == (other if is_bound else plain), name


def test_a_stop_keeps_the_holder_and_the_attempts() -> None:
    before = record(keeper="h", errors=OLD)
    after = states.stop(before, NOW, "no use")[1]
    assert after == before._replace(
        state=TRASHED,
        token=NOW,
        keeper=None,
        lock_until=None,
        modified_on=NOW,
        errors=(*OLD, Failure(NOW, None, 1, "no use", FailureKind.CANCELLED)),
    )


def test_every_row_of_the_table_can_happen() -> None:
    happened = set()
    for (stored, source), verb, holder in itertools.product(STORED.values(), VERBS, HOLDERS.values()):
        status, after = act(verb, stored, holder)
        if status == OK:
            happened.add((verb, source, after and after.state))
    for stored in (record(), lapsed(max_attempts=2)):
        after = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, SECOND)[1]
        happened.add((Verb.ABANDON, states.settle(stored, NOW).state, after and after.state))
    for stored in (record(UNCLAIMED), record(SCHEDULED)):
        after = states.replace(stored, NOW, record(SCHEDULED))[1]
        happened.add((Verb.REPLACE, stored.state, after and after.state))
    wanted = {(row.verb, row.source, target) for row in TRANSITIONS for target in row.targets if row.verb in VERBS}
    # A lapsed last attempt is trashed before anybody could abandon it.
    assert wanted - happened == {(Verb.ABANDON, UNCLAIMED, TRASHED)}
    assert happened <= wanted


def test_a_claim_has_a_new_token_and_one_more_attempt() -> None:
    after = states.claim(record(UNCLAIMED, errors=OLD), NOW, "bert", "h", NOW + SECOND)[1]
    assert after == record(
        CLAIMED, who="bert", keeper="h", attempts=2, token=NOW, modified_on=NOW, lock_until=NOW + SECOND, errors=OLD
    )


def test_tokens_rise_by_the_clock_and_without_it() -> None:
    assert states.next_token(0, NOW) == NOW
    assert states.next_token(NOW, NOW) == NOW + 1
    assert states.next_token(NOW + 5, NOW) == NOW + 6


@pytest.mark.parametrize("delay", [None, 0, SECOND])
def test_abandon_clears_the_owner_and_keeps_the_error(delay: int | None) -> None:
    after = states.finish(record(keeper="h"), HOLDERS["its token"], NOW, Verb.ABANDON, delay, "broken")[1]
    assert after == record(
        SCHEDULED if delay else UNCLAIMED,
        lock_until=NOW + SECOND if delay else None,
        modified_on=NOW,
        errors=(Failure(NOW, "anna", 1, "broken"),),
    )


def test_an_error_is_remembered_with_its_attempt() -> None:
    stored = record(errors=OLD)
    for verb in (Verb.ABANDON, Verb.TRASH):
        for error in (None, "new", ""):
            after = states.finish(stored, HOLDERS["its name"], NOW, verb, error=error, refund=True)[1]
            assert after is not None
            assert after.errors == (OLD if error is None else (*OLD, Failure(NOW, "anna", 1, error)))
            assert after.error == ("old" if error is None else error)


@pytest.mark.rule("A job remembers its last ten failures, each with its attempt and time.")
@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["a"] * FAILURES, FAILURES),
        (["a"] * (FAILURES + 5), FAILURES),
        (["é" * (FAILURE_BYTES // 4)] * 3, 2),
        (["é" * (FAILURE_BYTES // 4)] * 2 + ["a"], 2),
        (["é" * (FAILURE_BYTES // 4)] * 2 + [""], 3),
        (["a" * (FAILURE_BYTES - 1), "", "a", ""], 4),
        (["a", "a" * FAILURE_BYTES], 1),
        (["a", "a" * (FAILURE_BYTES + 1)], 1),
    ],
)
def test_the_last_failures_are_remembered(texts: list[str], kept: int) -> None:
    found = record()
    for number, text in enumerate(texts):
        found = states.failed(found, number, "anna", text, FailureKind.TIMEOUT)
    assert (
        found.errors
        == tuple(Failure(number, "anna", 1, text, FailureKind.TIMEOUT) for number, text in enumerate(texts))[-kept:]
    )


def test_a_retry_is_a_refund_that_is_numbered() -> None:
    stored = record(attempts=1, max_attempts=1, retries=4)
    given_back = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, refund=True)[1]
    assert (given_back.attempts, given_back.retries) == (0, 4)
    again = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, retry=True)[1]
    assert again == given_back._replace(retries=5)
    assert states.restore(record(TRASHED, attempts=3, retries=4), NOW)[1].retries == 0


def test_a_release_raises_the_token_and_clears_the_owner() -> None:
    after = states.release(record(keeper="h", errors=OLD), NOW)[1]
    assert after == record(UNCLAIMED, token=NOW, modified_on=NOW, errors=OLD)
    after = states.release(record(max_attempts=1), NOW)[1]
    assert (after.state, after.errors) == (TRASHED, (Failure(NOW, None, 1, EXHAUSTED, FailureKind.EXHAUSTED),))
    assert states.release(record(max_attempts=1), NOW, "why")[1].errors == (
        Failure(NOW, None, 1, "why", FailureKind.RELEASED),
    )
    assert states.release(record(errors=OLD), NOW, "why")[1].errors == (
        *OLD,
        Failure(NOW, None, 1, "why", FailureKind.RELEASED),
    )
    assert states.release(record(errors=OLD), NOW, "")[1].errors == OLD


def test_cancel_and_restore_raise_the_token() -> None:
    cancelled = states.cancel(record(SCHEDULED), NOW, "why")[1]
    why = (Failure(NOW, None, 1, "why", FailureKind.CANCELLED),)
    assert cancelled == record(TRASHED, token=NOW, modified_on=NOW, errors=why)
    restored = states.restore(cancelled, NOW + 1)[1]
    assert restored == record(UNCLAIMED, attempts=0, token=NOW + 1, modified_on=NOW + 1, errors=why)
    assert states.cancel(record(UNCLAIMED, errors=OLD), NOW)[1].errors == OLD


def test_the_reason_of_a_restore_is_no_error() -> None:
    restored = states.restore(record(TRASHED, errors=OLD), NOW, "fixed")[1]
    assert restored.errors == (*OLD, Failure(NOW, None, 1, "fixed", FailureKind.RESTORED))
    assert restored.error == "old"
    assert states.restore(record(TRASHED), NOW, "fixed")[1].error is None
    assert states.restore(record(TRASHED, errors=OLD), NOW, "")[1].errors == OLD
