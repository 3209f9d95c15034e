"""A move of limits, of keys and of outcomes, in memory."""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jobboard.backends import fetch
from jobboard.engine import Mark
from jobboard.exceptions import ConnectionFailure
from jobboard.moving import Mover, leftovers
from jobboard.primitives import Limit
from jobboard.states import TRASHED
from jobboard.testing.requests import requests
from tests.support.boards import Boards, Killed, boards

__all__ = ["boards"]

pytestmark = pytest.mark.backends("memory")


@pytest.mark.rule("Limits and pauses are at both boards after a move.")
def test_limits_are_at_both_boards(boards: Boards) -> None:
    source, target = boards.source, boards.target
    source.set_limit("mail", concurrency=2, rate=(3, 60))
    source.set_limit("mail", concurrency=1, per="group")
    target.set_limit("mail", concurrency=5, per="group")
    for _ in range(4):
        source.post("mail", group="one")
    boards.mover().run()
    assert source.limits() == [Limit("mail", "group", 1), Limit("mail", "name", 2, (3, 60))]
    # What has been set there stays.
    assert target.limits() == [Limit("mail", "group", 5), Limit("mail", "name", 2, (3, 60))]
    assert len(target.claim_many("anna", 10)) == 2


def test_the_rest_of_a_window_moves_with_the_key(boards: Boards) -> None:
    job, over = boards.source.post("a", key="k", key_for=600), boards.source.post("a", key="l", key_for=1e-6)
    buried = boards.source.post("a", key="m", key_for=600)
    boards.source.cancel(buried)
    boards.mover().run()
    for moved, created in ((job, False), (over, True)):
        target = boards.target
        target.claim(target.get(moved.uuid), "anna")
        target.consume(target.get(moved.uuid), "anna")
        assert target.post("a", key=moved.key).created == created
    # In the trash, its key is its own until the window ends.
    assert boards.target.get(buried.uuid).seen_state == TRASHED
    assert boards.target.post("a", key="m").uuid == buried.uuid
    boards.clock.advance(600)
    assert boards.target.post("a", key="m").created


@pytest.mark.rule("Outcomes and remembered keys are copied, also in a move that broke off.")
def test_outcomes_that_come_meanwhile_hide_none(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand before those that were seen, and none of these is passed over for them."""
    monkeypatch.setattr(leftovers, "PAGE", 3)
    source = fetch(boards.names[0], {"board": "memory", "keep_done": 600})
    source.connect()

    def consume(number: int) -> None:
        for _ in range(number):
            source.post("resize")
            source.consume(source.claim_next("anna"), "anna")
            boards.clock.advance(1)

    consume(7)
    stood = {outcome.uuid for outcome in source.outcomes()}
    told: list[int] = []

    def copied(number: int, of: int) -> None:
        if not told:
            consume(5)
        told.append(number)

    Mover(source, boards.target, copied=copied).run()
    assert stood <= {outcome.uuid for outcome in boards.target.outcomes()}
    source.close()


@pytest.mark.rule("Outcomes and remembered keys are copied, also in a move that broke off.")
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("step", range(5))
def test_outcomes_are_copied_though_a_mover_breaks_off(
    boards: Boards, monkeypatch: pytest.MonkeyPatch, step: int, lost: bool
) -> None:
    """Killed, or its reply lost, at each batch; the order is as it was."""
    monkeypatch.setattr(leftovers, "PAGE", 3)
    monkeypatch.setattr(leftovers, "BATCH", 2)
    source = fetch(boards.names[0], {"board": "memory", "keep_done": 600})
    source.connect()
    for number in range(7):
        source.post(f"job {number}")
        source.consume(source.claim_next("anna"), "anna", result=number)
        boards.clock.advance(1)
    mover = boards.mover()
    count = itertools.count()

    def breaks(commit: Callable[..., Any], changes: Any, marks: Sequence[Mark] = (), *args: Any, **extra: Any) -> Any:
        here = any(mark.before.kind == "outcome" for mark in marks) and next(count) == step
        if here and not lost:
            raise Killed
        answer = commit(changes, marks, *args, **extra)
        if here:
            raise ConnectionFailure("the connection broke", outcome="unknown")
        return answer

    requests(boards.ends[1]).around("commit", breaks)
    with contextlib.suppress(Killed):
        mover.run()
    boards.mover().run()
    assert [outcome.result for outcome in boards.target.outcomes()] == [6, 5, 4, 3, 2, 1, 0]
    boards.clock.advance(594.5)
    assert boards.mover().run().outcomes == 0
    assert [outcome.result for outcome in boards.target.outcomes()] == [6, 5, 4, 3, 2]
