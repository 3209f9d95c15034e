"""The standing of a claim: every step from every state, by what the claim shows."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from jobboard.job import Claim
from jobboard.testing.conformance.processes import in_child

STEP: dict[str, Callable[[Claim], None]] = {
    "EXTENDED": lambda claim: claim.confirm(None, kept=True, extended=True),
    "LOST": Claim.refuse,
    "GIVEN_UP": Claim.give_up,
    "ENDED": Claim.mark_ended,
}
WAYS = {"HELD": [], "LOST": ["LOST"], "GIVEN_UP": ["GIVEN_UP"], "ENDED": ["ENDED"], "ENDED_LOST": ["ENDED", "LOST"]}
# The next state after EXTENDED, LOST, GIVEN_UP and ENDED.
WHOLE = """
HELD        HELD        LOST        GIVEN_UP    ENDED
LOST        HELD        LOST        GIVEN_UP    ENDED
GIVEN_UP    GIVEN_UP    GIVEN_UP    GIVEN_UP    ENDED_LOST
ENDED       ENDED       ENDED_LOST  ENDED_LOST  ENDED
ENDED_LOST  ENDED_LOST  ENDED_LOST  ENDED_LOST  ENDED_LOST
"""
# A claim without a lease in each state: seen_lost, lost, ended, and left out by the heartbeat.
SHOWN = {
    "HELD": (False, False, False, False),
    "LOST": (True, True, False, True),
    "GIVEN_UP": (True, True, False, False),
    "ENDED": (False, False, True, False),
    "ENDED_LOST": (True, True, True, False),
}


def claim_in(state: str, deadline: float | None = None) -> Claim:
    claim = Claim(SimpleNamespace(uuid="u"), 7, "anna", True, deadline)  # type: ignore[arg-type]
    for trigger in WAYS[state]:
        STEP[trigger](claim)
    return claim


def shown(claim: Claim) -> tuple[bool, bool, bool, bool]:
    return claim.seen_lost, claim.lost, claim.ended, claim.is_marked_lost()


@pytest.mark.rule("A claim takes every step from every standing, and no step overwrites the step of another thread.")
def test_the_whole_table() -> None:
    for state, *after in (line.split() for line in WHOLE.split("\n") if line):
        assert shown(claim_in(state)) == SHOWN[state]
        for trigger, then in zip(STEP, after, strict=True):
            claim = claim_in(state)
            STEP[trigger](claim)
            assert shown(claim) == SHOWN[then], f"{trigger} in {state}"


@pytest.mark.parametrize("state", WAYS)
def test_a_claim_past_its_deadline_is_lost_unless_it_has_ended(state: str) -> None:
    """No renewal undoes a loss that the holder has read."""
    claim = claim_in(state, deadline=0.0)
    assert claim.lost == (state != "ENDED")
    claim.confirm(None, kept=True)
    assert claim.lost == claim.seen_lost == (state != "ENDED")


def test_a_claim_that_was_given_up_is_renewed_until_it_ends() -> None:
    claim = claim_in("GIVEN_UP")
    assert claim.lost
    assert not claim.is_marked_or_lapsed()


def test_a_forked_child_reads_a_claim_whose_lock_a_thread_of_the_parent_holds() -> None:
    claim, locked, done = claim_in("HELD"), threading.Event(), threading.Event()

    def hold() -> None:
        with claim._lock:
            locked.set()
            done.wait(60)

    def read() -> list[bool]:
        claim.mark_ended()
        return [claim.inherited, claim.lost, claim.ended]

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert locked.wait(60)
        assert in_child(read)() == [True, True, True]
    finally:
        done.set()
        holder.join()


@pytest.mark.rule("A claim takes every step from every standing, and no step overwrites the step of another thread.")
def test_no_step_overwrites_that_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder extends the claim while another thread of it reads that it is lost: it stands."""
    claim, extended, readings = claim_in("HELD", deadline=0.0), threading.Event(), iter([1, 2])

    def extend() -> None:
        claim.confirm(None, kept=True, extended=True)
        extended.set()

    def clock() -> float:
        if next(readings, 0) == 2:
            other.start()
            # The other thread waits for the lock, or would have taken its step by then.
            extended.wait(0.1)
        return 1.0

    other = threading.Thread(target=extend)
    monkeypatch.setattr("jobboard.runtime.boottime", clock)
    assert claim.lost
    other.join()
    assert shown(claim) == SHOWN["HELD"]
