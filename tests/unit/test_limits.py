"""Limits, with others at work in the middle of a call; what users see of them is in the conformance suite."""

from typing import Any

import pytest

from jobboard.engine import Mark
from jobboard.exceptions import ConnectionFailure
from jobboard.testing.conformance.support import PATIENCE, Waiter

pytestmark = pytest.mark.backends("memory")


def test_a_claim_of_the_same_job_that_begins_before_the_earlier_ones_slot_is_freed(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.set_limit("mail", concurrency=1)
    job, second = board.post("mail"), board.post("mail")
    board.claim(job, "anna")
    freed = board.engine.raw._freed

    def late(*args: Any) -> None:
        other.claim(other.get(job.uuid), "bob")
        freed(*args)

    monkeypatch.setattr(board.engine.raw, "_freed", late)
    board.abandon(job, "anna")
    assert board.claim_next("anna") is None
    assert second.state == "UNCLAIMED"


@pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\x01", b"\x92\x91\x05\x90", b"\x92\x91\x92\x05\x05\x90"])
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


def test_a_peek_meets_limits_that_were_set_since(board: Any, other: Any) -> None:
    first, _ = board.post("mail"), board.post("mail")
    assert other.engine.raw.peek(None, 1).any
    board.set_limit("mail", concurrency=1)
    board.claim(first, "anna")
    assert not other.engine.raw.peek(None, 1).any


@pytest.mark.parametrize("verb", ["consume", "release"])
def test_who_waits_is_woken_by_the_repetition_of_an_end(
    board: Any, other: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try has committed it, and has broken off before anything else."""
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
