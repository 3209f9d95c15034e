"""Limits, with acts of others in the middle of a call. The conformance suite has the other rules."""

from typing import Any

import pytest

from jobboard.engine import Mark
from jobboard.engine.limits import Listed
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Limit
from jobboard.testing.conformance.support import PATIENCE, Waiter

pytestmark = pytest.mark.backends("memory")


@pytest.mark.rule("A slot is not freed by an earlier claim of a job that has been claimed again.")
def test_a_freed_slot_of_an_earlier_claim_leaves_the_next_claim_its_slot(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.set_limit("mail", concurrency=1)
    job, second = board.post("mail"), board.post("mail")
    board.claim(job, "anna")
    store = board.engine.store
    commit = store.commit

    def late(*args: Any, **more: Any) -> Any:
        """The other claims the job between its end and the update of the scope."""
        committed = commit(*args, **more)
        monkeypatch.setattr(store, "commit", commit)
        other.claim(other.get(job.uuid), "bob")
        return committed

    monkeypatch.setattr(store, "commit", late)
    board.abandon(job, "anna")
    assert board.claim_next("anna") is None
    assert second.state == "UNCLAIMED"


@pytest.mark.rule("A damaged list of claims begins again, so that no job waits for ever.")
@pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\x92\x91\x92\x05\x05\x90"])
def test_a_damaged_scope_begins_anew(board: Any, other: Any, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    board.set_limit("mail", concurrency=1)
    store = board.engine.store
    [side] = store.read([], [("scope", "mail")]).sides
    store.commit([], [Mark(side, value)])
    first, second = board.post("mail"), board.post("mail")
    assert other.claim_next("anna") == first
    assert other.claim_next("anna") is None
    assert second.state == "UNCLAIMED"
    assert "'mail' begins anew: it is damaged" in caplog.text


@pytest.mark.rule("A peek obeys limits that were set since the last look.")
def test_a_peek_obeys_a_limit_that_was_set_since(board: Any, other: Any) -> None:
    first, _ = board.post("mail"), board.post("mail")
    assert other.engine.peek().any
    board.set_limit("mail", concurrency=1)
    board.claim(first, "anna")
    assert not other.engine.peek().any


@pytest.mark.rule("A waiter for a slot is woken by the repetition of an end whose reply was lost.")
@pytest.mark.parametrize("verb", ["consume", "release"])
def test_the_repetition_of_an_end_wakes_waiters(
    board: Any, other: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try has committed the end, and has broken off behind the commit."""
    board.set_limit("mail", concurrency=1)
    held, second = board.post("mail", max_attempts=1), board.post("mail")
    board.claim(held, "anna")
    waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
    store = board.engine.store
    commit = store.commit

    def lost(*args: Any, **kwargs: Any) -> None:
        monkeypatch.undo()
        commit(*args, **kwargs)
        raise ConnectionFailure("the connection broke", outcome="unknown")

    monkeypatch.setattr(store, "commit", lost)
    board.consume(held, "anna") if verb == "consume" else board.release(held)
    assert waiter.wait() == second


@pytest.mark.rule("A rate from before the clock was set back, or that was removed, keeps nobody out.")
@pytest.mark.parametrize(("rate", "hours"), [(None, 1), ((1, 0.1), 1), ((1, 7200.0), 2)])
def test_starts_are_remembered_for_an_hour_and_while_a_rate_counts_them(
    rate: tuple[int, float] | None, hours: int
) -> None:
    now, hour = 10**15, 3_600_000_000
    limit = None if rate is None else Limit("mail", "name", None, rate)
    for start, counts in ((now - hours * hour + 1, True), (now - hours * hour, False), (now + hours * hour, False)):
        assert Listed(starts=(start,)).remembers(limit, now) == counts
