"""Whoever waits for a limit to have room: it sleeps, and is woken by whatever gives room, whenever that comes."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost
from jobboard.job import Job, Posting, boottime
from jobboard.states import CLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.between import at_each_request
from jobboard.testing.conformance.processes import TTL, puppet, reaches
from jobboard.testing.conformance.support import LIMIT, LONG, PATIENCE, SHORT, Waiter, let_lapse, take
from jobboard.testing.conformance.wire import Wire, wire
from jobboard.testing.puppet import Puppet

__all__ = ["puppet", "wire"]

pytestmark = pytest.mark.backends("zookeeper")

REQUESTS = 8
"""So many are sent by one who finds all full before it sleeps."""


class Sleeper:
    """A board whose waiter is seen to sleep."""

    def __init__(self, board: Any) -> None:
        self._naps = 0
        self._session = board._session
        self._nap = self._session.nap
        self._session.nap = self._napping

    def _napping(self, seconds: float) -> bool:
        self._naps += 1
        try:
            return bool(self._nap(seconds))
        finally:
            self._naps -= 1

    def sleeps(self) -> bool:
        return bool(self._naps and self._session._news._waiters)


def sent(board: Any) -> int:
    return int(board.engine._opened.connection.sent)


def claimed(board: JobBoard) -> list[Job]:
    return list(board.iterjobs(states=[CLAIMED], ensure_fresh=True))


def no_limit(board: JobBoard) -> None:
    """What follows clears the board of its jobs."""
    for limit in board.limits():
        board.remove_limit(limit.name)


def one_held(board: JobBoard) -> Job:
    """Of two jobs, as many as there is room for."""
    board.set_limit("mail", concurrency=1, per="group")
    held, _ = board.post_many([Posting("mail", group="one")] * 2)
    board.claim(held, "anna")
    return held


def test_nothing_is_sent_until_a_slot_is_free(make_board: Any) -> None:
    board, waiting = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.set_limit("mail", concurrency=1)
    held, second = board.post_many([Posting("mail")] * 2)
    board.post_many([Posting("resize")] * 20)
    board.claim(held, "anna")
    sleeper = Sleeper(waiting)
    waiter = Waiter(waiting, lambda: waiting.claim_next("bert", names=["mail"], timeout=PATIENCE))
    eventually(sleeper.sleeps)
    before = sent(waiting)
    for _ in range(20):
        board.consume(take(board, names=["resize"]), "anna")
    board.extend(held, "anna")
    assert waiter.running
    assert sent(waiting) == before, "it looks though no slot is free"
    # It is woken, finds what is full, and sleeps again.
    board.post("mail")
    eventually(lambda: sent(waiting) > before and sleeper.sleeps())
    assert waiter.running
    board.consume(held, "anna")
    assert waiter.wait() == second

    assert sent(waiting) - before < 25


def test_a_slot_that_comes_free_between_any_two_requests(board: JobBoard, wire: Wire) -> None:
    """Of one who finds the other job full before that, and goes to sleep."""
    timeouts = iter([SHORT])

    def wait(far: JobBoard, held: Job) -> tuple[Job | None, float]:
        began = boottime()
        return far.claim_next("bert", timeout=next(timeouts, LIMIT)), boottime() - began

    rounds = at_each_request(
        board,
        wire,
        lambda far: one_held(board),
        wait,
        lambda board, held: board.consume(board.get(held.uuid), "anna"),
    )
    for held, (mine, waited), _ in itertools.islice(rounds, REQUESTS):
        assert mine not in (None, held)
        # At the end of its time it would find the job in any case.
        assert waited < LIMIT / 2
        no_limit(board)


def test_a_limit_that_is_set_between_look_and_commit(board: JobBoard, wire: Wire) -> None:
    def stands(far: JobBoard) -> Job:
        held, job = board.post_many([Posting("mail", group="one")] * 2)
        board.claim(held, "anna")
        return job

    for _, mine, _ in at_each_request(
        board,
        wire,
        stands,
        lambda far, job: far.claim_next("bert"),
        lambda board, job: board.set_limit("mail", concurrency=1, per="group"),
    ):
        # Once set_limit() has returned nobody enters what is full.
        assert mine is None
        assert len(claimed(board)) == 1
        assert board.claim_next("carl") is None
        no_limit(board)


@pytest.mark.parametrize("how", ["its session ends", "its lease ends"])
def test_a_holder_that_is_lost_between_count_and_commit(
    board: JobBoard, make_board: Any, wire: Wire, expire: Callable[[Any], None], how: str
) -> None:
    """Its next beat, or its next extension, enters the scope anew, or has lost the claim."""
    holders: list[Any] = []

    def prepared(far: JobBoard) -> Job:
        holders.append(make_board(claim_ttl=60))
        board.set_limit("mail", concurrency=1)
        held, _ = board.post_many([Posting("mail")] * 2)
        held = holders[-1].get(held.uuid)
        holders[-1].claim(held, "anna", LONG if "lease" in how else None)
        return held  # type: ignore[no-any-return]

    def lost(board: JobBoard, held: Job) -> None:
        if "lease" in how:
            board.release(board.get(held.uuid))
        else:
            holder = holders[-1]
            keeper = holder.engine._opened.keeper()
            expire(holder)
            # The beat of before may have taken it up again already.
            eventually(lambda: holder.engine._opened.keeper() != keeper)

    for held, mine, _ in at_each_request(
        board, wire, prepared, lambda far, held: far.claim_next("bert", expiry=LONG), lost
    ):
        holder = holders.pop()
        try:
            holder.extend(held, "anna", LONG)
            extended = True
        except ClaimLost:
            extended = False
        standing = claimed(board)
        assert len(standing) == 1 or (not standing and mine is None and not extended)
        assert not (mine is not None and extended)
        holder.close()
        no_limit(board)


def test_a_revival_that_races_with_a_claim_of_its_slot(board: JobBoard, wire: Wire) -> None:
    """Whichever is stopped on its way: one of them has the slot then."""

    def lapsed(far: JobBoard) -> Job:
        first, _ = board.post_many([Posting("mail")] * 2)
        far.get(first.uuid)
        let_lapse(board, first)
        board.set_limit("mail", concurrency=1)
        return first

    def extended(board: JobBoard, first: Job) -> bool:
        try:
            first.board.extend(first, "anna", LONG)
        except ClaimLost:
            return False
        return True

    for _, mine, theirs in at_each_request(
        board, wire, lapsed, lambda far, first: far.claim_next("bert", names=["mail"], expiry=LONG), extended
    ):
        assert (mine is not None) != theirs
        assert len(claimed(board)) == 1
        no_limit(board)


def test_the_slots_of_a_killed_worker_are_free_within_its_claim_ttl(board: JobBoard, puppet: Puppet) -> None:
    assert reaches(board, puppet)
    board.set_limit("mail", concurrency=2)
    posted = board.post_many([Posting("mail")] * 3)
    for job in posted[:2]:
        uuid, _ = puppet("claim_next", "anna")
        assert uuid == job.uuid
    assert board.claim_next("bert") is None
    puppet.signal(signal.SIGKILL)
    # The server looks at its sessions once in a tick.
    assert take(board, "bert", timeout=max(TTL, board.characteristics.claim_ttl) + 1) == posted[0]
    assert [take(board, "bert")] == posted[1:2]
    assert board.claim_next("bert") is None
