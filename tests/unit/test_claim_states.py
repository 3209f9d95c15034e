"""The standing of a claim: every step from every state, by what the claim shows."""

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.job import STEPS, Claim, Standing, Trigger
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


def test_the_whole_table() -> None:
    for state, *after in (line.split() for line in WHOLE.split("\n") if line):
        assert shown(claim_in(state)) == SHOWN[state]
        for trigger, then in zip(STEP, after, strict=True):
            claim = claim_in(state)
            STEP[trigger](claim)
            assert shown(claim) == SHOWN[then], f"{trigger} in {state}"


def test_the_table_has_only_steps_that_change_the_state() -> None:
    assert list(STEPS) == list(Standing)
    assert [(state, step) for state, steps in STEPS.items() for step, after in steps.items() if after == state] == []


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


class Blocking(dict[Trigger, Standing]):
    """Steps from one state, where a thread that has read the state stops until ``go_on``."""

    def __init__(self, steps: dict[Trigger, Standing], go_on: Callable[[], object]) -> None:
        super().__init__(steps)
        self._go_on = go_on

    def get(self, trigger: Trigger, default: Any = None) -> Any:
        if trigger == Trigger.LOST:
            self._go_on()
        return super().get(trigger, default)


def stop_losses(monkeypatch: pytest.MonkeyPatch, go_on: Callable[[], object]) -> None:
    table = {**STEPS, Standing.HELD: Blocking(STEPS[Standing.HELD], go_on)}
    monkeypatch.setattr(sys.modules[Claim.__module__], "STEPS", table)


def test_a_forked_child_reads_a_claim_whose_lock_a_thread_of_the_parent_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    claim, locked, done = claim_in("HELD"), threading.Event(), threading.Event()

    def hold() -> None:
        locked.set()
        done.wait(60)

    stop_losses(monkeypatch, hold)
    holder = threading.Thread(target=claim.refuse)
    holder.start()
    try:
        assert locked.wait(60)
        assert in_child(lambda: [claim.inherited, claim.lost, claim.ended])() == [True, True, False]
    finally:
        done.set()
        holder.join()


def test_no_step_overwrites_that_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conductor gives the claim up while the holder reads that it is lost: it stays given up."""
    claim = claim_in("HELD", deadline=0.0)
    other = threading.Thread(target=claim.give_up)

    def overtake() -> None:
        other.start()
        # The other thread waits for the lock, or would have taken its step by then.
        other.join(0.1)

    stop_losses(monkeypatch, overtake)
    assert claim.lost
    other.join()
    assert shown(claim) == SHOWN["GIVEN_UP"]
