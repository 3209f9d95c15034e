"""The pure functions of states.py against the table, for every state, owner, verb and caller."""

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
    Holder,
    Record,
    State,
    Status,
    Verb,
)

NOW = 1_000_000_000_000_000
SECOND = 1_000_000
TOKEN = 7
OLD = (Failure(NOW - SECOND, "anna", 1, "old"),)


def record(state: State = CLAIMED, **other) -> Record:
    """A claimed record is anna's, with token 7 and a lease of another second."""
    claimed = state == CLAIMED
    return Record(
        **{
            "uuid": "u",
            "name": "n",
            "priority": 2,
            "sequence": 3,
            "key": "k",
            "version": 1,
            "posting": b"p",
            "state": state,
            "attempts": 1,
            "max_attempts": None,
            "token": TOKEN,
            "who": "anna" if claimed else None,
            "keeper": None,
            "lock_until": NOW + SECOND if state in (CLAIMED, SCHEDULED) else None,
            "created_on": NOW - SECOND,
            "modified_on": NOW - SECOND,
            **other,
        }
    )


def lapsed(**other) -> Record:
    return record(CLAIMED, **{"lock_until": NOW - 1, **other})


STORED = {
    "unclaimed": record(UNCLAIMED),
    "scheduled": record(SCHEDULED),
    "due": record(SCHEDULED, lock_until=NOW),
    "claimed": record(CLAIMED),
    "kept": record(CLAIMED, keeper="h"),
    "without a lease": record(CLAIMED, keeper="h", lock_until=None),
    "last attempt": record(CLAIMED, max_attempts=1),
    "lapsed": lapsed(),
    "lapsed last attempt": lapsed(max_attempts=1),
    "lapsed and settled": record(UNCLAIMED, who="anna"),
    "trashed": record(TRASHED, who="anna"),
    "absent": None,
}

# What each of them is, whatever has been written down.
LOGICAL = {
    "unclaimed": UNCLAIMED,
    "scheduled": SCHEDULED,
    "due": UNCLAIMED,
    "claimed": CLAIMED,
    "kept": CLAIMED,
    "without a lease": CLAIMED,
    "last attempt": CLAIMED,
    "lapsed": UNCLAIMED,
    "lapsed last attempt": TRASHED,
    "lapsed and settled": UNCLAIMED,
    "trashed": TRASHED,
    "absent": None,
}

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


VERBS = [verb for verb in Verb if verb not in (Verb.POST, Verb.DUE, Verb.LAPSE)]


@pytest.mark.parametrize("name", STORED)
def test_settle(name: str) -> None:
    stored = STORED[name]
    if stored is None:
        return
    settled = states.settle(stored, NOW)
    assert settled.state == LOGICAL[name]
    assert settled.token == stored.token
    assert settled.who == stored.who
    assert states.settle(settled, NOW) == settled
    if settled.state == stored.state:
        assert settled is stored
    else:
        assert settled.lock_until is None
        verb = Verb.DUE if stored.state == SCHEDULED else Verb.LAPSE
        assert any(
            row.verb == verb and row.source == stored.state and settled.state in row.targets for row in TRANSITIONS
        )


def test_the_last_lapse_is_trashed_at_its_own_instant() -> None:
    trashed = states.settle(lapsed(max_attempts=1, lock_until=NOW - 5 * SECOND), NOW)
    at = NOW - 5 * SECOND
    assert (trashed.modified_on, trashed.errors) == (at, (Failure(at, "anna", 1, EXHAUSTED),))
    behind = (*OLD, Failure(NOW - 1, "anna", 1, EXHAUSTED))
    assert states.settle(lapsed(max_attempts=1, errors=OLD), NOW).errors == behind
    assert states.lapse(record(max_attempts=1), NOW + 1).modified_on == NOW + 1
    assert states.lapse(record(max_attempts=2), NOW + 1).state == UNCLAIMED


@pytest.mark.parametrize(("name", "verb", "holder"), list(itertools.product(STORED, VERBS, HOLDERS)))
def test_every_verb_keeps_to_the_table(name: str, verb: Verb, holder: str) -> None:
    """What is done is a row of the table; what is refused changes nothing but what time has changed."""
    stored, source = STORED[name], LOGICAL[name]
    status, after = act(verb, stored, HOLDERS[holder])
    if status != OK:
        assert after == (stored and states.settle(stored, NOW))
        return
    target = after.state if after is not None else None
    assert any(row.verb == verb and row.source == source and target in row.targets for row in TRANSITIONS)
    if after is None:
        assert verb in (Verb.CONSUME, Verb.PURGE)
        return
    assert stored is not None
    rises = verb in (Verb.CLAIM, Verb.RELEASE, Verb.CANCEL, Verb.RESTORE, Verb.REPLACE)
    assert (after.token > stored.token) == rises
    assert after.token == (NOW if rises else TOKEN)
    kept = ("uuid", "name", "sequence", "key", "max_attempts", "created_on")
    brought = ("priority", "version", "posting")
    source_of = FRESH if verb == Verb.REPLACE else stored
    assert [getattr(after, field) for field in brought] == [getattr(source_of, field) for field in brought]
    assert [getattr(after, field) for field in kept] == [getattr(stored, field) for field in kept]
    assert after.attempts == {Verb.CLAIM: 2, Verb.RESTORE: 0, Verb.REPLACE: 0}.get(verb, 1)
    assert (after.lock_until is not None) == (after.state in (CLAIMED, SCHEDULED))


REFUSED = {
    # Who may act on a claim, by the token and by the name.
    "unclaimed": ("unclaimed", "lost", "lost", "unclaimed", "unclaimed"),
    "scheduled": ("unclaimed", "lost", "lost", "unclaimed", "unclaimed"),
    "due": ("unclaimed", "lost", "lost", "unclaimed", "unclaimed"),
    "claimed": ("ok", "lost", "lost", "ok", "other"),
    "kept": ("ok", "lost", "lost", "ok", "other"),
    "without a lease": ("ok", "lost", "lost", "ok", "other"),
    "last attempt": ("ok", "lost", "lost", "ok", "other"),
    "lapsed": ("ok", "lost", "lost", "unclaimed", "unclaimed"),
    "lapsed last attempt": ("lost", "lost", "lost", "trashed", "trashed"),
    "lapsed and settled": ("ok", "lost", "lost", "unclaimed", "unclaimed"),
    "trashed": ("lost", "lost", "lost", "trashed", "trashed"),
    "absent": ("absent",) * 5,
}


@pytest.mark.parametrize(("name", "verb"), list(itertools.product(STORED, [Verb.EXTEND, *sorted(FINISHES)])))
def test_who_may_act_on_a_claim(name: str, verb: Verb) -> None:
    found = tuple(act(verb, STORED[name], holder)[0] for holder in HOLDERS.values())
    assert found == REFUSED[name]
    assert tuple(states.check(STORED[name], holder, NOW) for holder in HOLDERS.values()) == REFUSED[name]


ANYBODY = {
    Verb.CLAIM: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "scheduled", CLAIMED: "claimed", TRASHED: "trashed"},
    Verb.RELEASE: {None: "absent", UNCLAIMED: "unclaimed", SCHEDULED: "unclaimed", CLAIMED: "ok", TRASHED: "trashed"},
    Verb.CANCEL: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "ok", CLAIMED: "claimed", TRASHED: "trashed"},
    Verb.REPLACE: {None: "absent", UNCLAIMED: "ok", SCHEDULED: "ok", CLAIMED: "claimed", TRASHED: "trashed"},
    Verb.RESTORE: {None: "absent", UNCLAIMED: "live", SCHEDULED: "live", CLAIMED: "live", TRASHED: "ok"},
    Verb.PURGE: {None: "absent", UNCLAIMED: "live", SCHEDULED: "live", CLAIMED: "live", TRASHED: "ok"},
}


@pytest.mark.parametrize(("name", "verb"), list(itertools.product(STORED, ANYBODY)))
def test_what_anybody_may_do(name: str, verb: Verb) -> None:
    assert act(verb, STORED[name], HOLDERS["another name"])[0] == ANYBODY[verb][LOGICAL[name]]


def test_every_row_of_the_table_can_happen() -> None:
    happened = set()
    for name, verb, holder in itertools.product(STORED, VERBS, HOLDERS):
        stored = STORED[name]
        status, after = act(verb, stored, HOLDERS[holder])
        if status == OK:
            happened.add((verb, LOGICAL[name], after and after.state))
    for stored, delay in itertools.product((record(), lapsed(max_attempts=2)), (SECOND,)):
        after = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, delay)[1]
        happened.add((Verb.ABANDON, states.settle(stored, NOW).state, after and after.state))
    for stored in (record(UNCLAIMED), record(SCHEDULED)):
        after = states.replace(stored, NOW, record(SCHEDULED))[1]
        happened.add((Verb.REPLACE, stored.state, after and after.state))
    wanted = {(row.verb, row.source, target) for row in TRANSITIONS for target in row.targets}
    wanted = {row for row in wanted if row[0] in VERBS}
    # A lapsed last attempt is trashed before anybody could abandon it.
    assert wanted - happened == {(Verb.ABANDON, UNCLAIMED, TRASHED)}
    assert happened <= wanted


def test_claim() -> None:
    after = states.claim(record(UNCLAIMED, errors=OLD), NOW, "bert", "h", NOW + SECOND)[1]
    assert after == record(
        CLAIMED, who="bert", keeper="h", attempts=2, token=NOW, modified_on=NOW, lock_until=NOW + SECOND, errors=OLD
    )


def test_tokens_rise_by_the_clock_and_without_it() -> None:
    assert states.next_token(0, NOW) == NOW
    assert states.next_token(NOW, NOW) == NOW + 1
    assert states.next_token(NOW + 5, NOW) == NOW + 6


def test_extend_revives_and_replaces_the_lease() -> None:
    for stored in (record(), lapsed(), record(UNCLAIMED, who="anna")):
        status, after = states.extend(stored, HOLDERS["its token"], NOW, "h", None)
        assert status == OK
        assert after is not None
        assert (after.state, after.keeper, after.lock_until, after.token) == (CLAIMED, "h", None, TOKEN)


@pytest.mark.parametrize("delay", [None, 0, SECOND])
def test_abandon(delay: int | None) -> None:
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
        found = states.failed(found, number, "anna", text)
    assert found.errors == tuple(Failure(number, "anna", 1, text) for number, text in enumerate(texts))[-kept:]


def test_refund() -> None:
    stored = record(attempts=1, max_attempts=1)
    after = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, refund=True)[1]
    assert after is not None
    assert (after.state, after.attempts) == (UNCLAIMED, 0)
    restored = record(attempts=0)
    assert states.finish(restored, HOLDERS["its token"], NOW, Verb.ABANDON, refund=True)[1].attempts == 0
    after = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, delay=SECOND)[1]
    assert after.state == TRASHED


def test_a_retry_is_a_refund_that_is_numbered() -> None:
    stored = record(attempts=1, max_attempts=1, retries=4)
    given_back = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, refund=True)[1]
    assert (given_back.attempts, given_back.retries) == (0, 4)
    again = states.finish(stored, HOLDERS["its token"], NOW, Verb.ABANDON, retry=True)[1]
    assert again == given_back._replace(retries=5)
    assert states.restore(record(TRASHED, attempts=3, retries=4), NOW)[1].retries == 0


def test_release() -> None:
    after = states.release(record(keeper="h", errors=OLD), NOW)[1]
    assert after == record(UNCLAIMED, token=NOW, modified_on=NOW, errors=OLD)
    after = states.release(record(max_attempts=1), NOW)[1]
    assert (after.state, after.errors) == (TRASHED, (Failure(NOW, None, 1, EXHAUSTED),))
    assert states.release(record(max_attempts=1), NOW, "why")[1].errors == (Failure(NOW, None, 1, "why"),)
    assert states.release(record(errors=OLD), NOW, "why")[1].errors == (*OLD, Failure(NOW, None, 1, "why"))
    assert states.release(record(errors=OLD), NOW, "")[1].errors == OLD


@pytest.mark.parametrize("name", STORED)
def test_a_release_of_one_claim_spares_every_other(name: str) -> None:
    stored = STORED[name]
    assert states.release(stored, NOW, "why", TOKEN) == states.release(stored, NOW, "why")
    status, after = states.release(stored, NOW, "why", TOKEN - 1)
    assert status == ("lost" if LOGICAL[name] == CLAIMED else states.release(stored, NOW)[0])
    assert after == (stored and states.settle(stored, NOW))


def test_cancel_and_restore() -> None:
    cancelled = states.cancel(record(SCHEDULED), NOW, "why")[1]
    why = (Failure(NOW, None, 1, "why"),)
    assert cancelled == record(TRASHED, token=NOW, modified_on=NOW, errors=why)
    restored = states.restore(cancelled, NOW + 1)[1]
    assert restored == record(UNCLAIMED, attempts=0, token=NOW + 1, modified_on=NOW + 1, errors=why)
    assert states.cancel(record(UNCLAIMED, errors=OLD), NOW)[1].errors == OLD


def test_exhausted() -> None:
    assert not record(attempts=5).exhausted
    assert not record(attempts=1, max_attempts=2).exhausted
    assert record(attempts=2, max_attempts=2).exhausted
    assert record(attempts=3, max_attempts=2).exhausted
