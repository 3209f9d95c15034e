"""How a claim stands: every step from every state, and what a claim shows of it."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard import forks
from jobboard.job import STEPS, Claim, Standing, Trigger

# From each state, where these lead: EXTENDED, LOST, GIVEN_UP, ENDED.
WHOLE = """
HELD        HELD        LOST        GIVEN_UP    ENDED
LOST        HELD        LOST        GIVEN_UP    ENDED
GIVEN_UP    GIVEN_UP    GIVEN_UP    GIVEN_UP    ENDED_LOST
ENDED       ENDED       ENDED_LOST  ENDED_LOST  ENDED
ENDED_LOST  ENDED_LOST  ENDED_LOST  ENDED_LOST  ENDED_LOST
"""
# What a claim without a lease shows in each: lost, seen_lost, ended.
SHOWN = {
    Standing.HELD: (False, False, False),
    Standing.LOST: (True, True, False),
    Standing.GIVEN_UP: (True, True, False),
    Standing.ENDED: (False, False, True),
    Standing.ENDED_LOST: (True, True, True),
}


def rows() -> dict[str, list[str]]:
    return {state: after for state, *after in (line.split() for line in WHOLE.split("\n") if line)}


def claim_in(standing: Standing, deadline: float | None = None) -> Claim:
    claim = Claim(SimpleNamespace(uuid="u"), 7, "anna", True, deadline)  # type: ignore[arg-type]
    claim._standing = standing
    return claim


def test_the_whole_table() -> None:
    found = {}
    for before in Standing:
        found[before.name] = []
        for trigger in Trigger:
            claim = claim_in(before)
            claim._step(trigger)
            found[before.name].append(claim._standing.name)
    assert found == rows()


def test_the_table_has_only_what_changes() -> None:
    assert list(STEPS) == list(Standing)
    assert [(state, step) for state, steps in STEPS.items() for step, after in steps.items() if after == state] == []


@pytest.mark.parametrize("standing", Standing)
def test_what_a_claim_shows(standing: Standing) -> None:
    claim = claim_in(standing)
    assert (claim.lost, claim.seen_lost, claim.ended) == SHOWN[standing]


@pytest.mark.parametrize("standing", Standing)
def test_past_its_deadline(standing: Standing) -> None:
    """Its clock makes lost whatever is not ended, and no renewal undoes what the holder has read."""
    claim = claim_in(standing, deadline=0.0)
    assert claim.lost == (standing != Standing.ENDED)
    claim.confirm(None, kept=True)
    assert claim.lost == claim.seen_lost == (standing != Standing.ENDED)


def test_one_that_was_given_up_is_renewed_for_as_long_as_it_is_not_ended() -> None:
    claim = claim_in(Standing.GIVEN_UP)
    assert claim.lost
    assert not claim.is_lapsed()


def test_in_a_forked_child_nothing_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the lock asked for, which a thread of the parent's may have held."""
    claim = claim_in(Standing.HELD)
    locked = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with claim._lock:
            locked.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(10)
    monkeypatch.setattr(forks, "generation", 1)
    asker = threading.Thread(target=lambda: claim.lost, daemon=True)
    asker.start()
    asker.join(5)
    done.set()
    holder.join(5)
    assert not asker.is_alive()
    assert claim._standing == Standing.HELD


def test_no_step_overwrites_that_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder reads that the claim is lost while the conductor gives it up: given up is what stays."""
    claim = claim_in(Standing.HELD, deadline=0.0)
    others: list[threading.Thread] = []

    class Slow(dict[Trigger, Standing]):
        def get(self, trigger: Trigger, default: Any = None) -> Any:
            """Where a thread that has read the state is overtaken."""
            if trigger == Trigger.LOST:
                others.append(threading.Thread(target=claim.give_up))
                others[0].start()
                others[0].join(0.1)
            return super().get(trigger, default)

    table = {**STEPS, Standing.HELD: Slow(STEPS[Standing.HELD])}
    monkeypatch.setattr(sys.modules[Claim.__module__], "STEPS", table)
    assert claim.lost
    others[0].join(5)
    assert claim._standing == Standing.GIVEN_UP
