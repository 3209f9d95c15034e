"""Who waits for a slot of a limit."""

from __future__ import annotations

import contextlib
import signal
from functools import partial

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.job import Job, Posting, boottime
from jobboard.states import UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.between import at_each_request
from jobboard.testing.conformance.late import MOST, clear
from jobboard.testing.conformance.limits import post
from jobboard.testing.conformance.processes import outcome, reaches
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    PATIENCE,
    MakeBoard,
    Waiter,
    let_lapse,
    lost_reply,
    take,
    uuids,
)
from jobboard.testing.conformance.wire import Wire
from jobboard.testing.puppet import Puppet

ASLEEP = 0.5
"""Seconds after which a waiter has sent the requests that it sends before it sleeps. If it has not, nothing fails."""


class TestSlotWaiters:
    def test_who_waits_for_a_slot_is_woken(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        board.claim(first, "anna")
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        assert waiter.running
        board.consume(first, "anna")
        assert waiter.wait() == second

    def test_who_waits_for_a_slot_of_a_limit_that_was_lowered(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=4)
        post(board, 4)
        held = board.claim_many("anna", 2)
        other.set_limit("mail", concurrency=2)
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        board.consume(held[0], "anna")
        assert waiter.wait() is not None

    @pytest.mark.parametrize("verb", ["consume", "consume_many", "abandon", "trash", "release"])
    @pytest.mark.parametrize("by", ["its board", "another"])
    def test_who_waits_for_a_claim_that_began_before_the_limit(
        self, board: JobBoard, make_board: MakeBoard, verb: str, by: str
    ) -> None:
        """Whoever ends it may have heard of no limit, and need not have made the claim."""
        jobs = [board.post("mail", max_attempts=1) for _ in range(3)]
        for job in jobs[:2]:
            board.claim(job, "anna")
        other = make_board()
        other.set_limit("mail", concurrency=2)
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        ending = board if by == "its board" else make_board()
        ended = jobs[0] if by == "its board" else ending.get(jobs[0].uuid)
        if verb == "release":
            ending.release(ended)
        elif verb == "consume_many":
            ending.consume_many([ended, jobs[1] if by == "its board" else ending.get(jobs[1].uuid)], "anna")
        elif verb == "abandon":
            ending.abandon(ended, "anna", delay=LONG)
        else:
            getattr(ending, verb)(ended, "anna")
        assert waiter.wait() == jobs[2]

    def test_who_waits_when_the_reply_to_an_end_is_lost(self, board: JobBoard, make_board: MakeBoard) -> None:
        first, second = board.post("mail"), board.post("mail")
        board.claim(first, "anna")
        other = make_board()
        other.set_limit("mail", concurrency=1)
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        with lost_reply(board, "finish"):
            board.consume(first, "anna")
        assert waiter.wait() == second

    @pytest.mark.parametrize("verb", ["set higher", "remove"])
    def test_who_waits_looks_again_when_a_limit_changes(self, board: JobBoard, other: JobBoard, verb: str) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        board.claim(first, "anna")
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        if verb == "remove":
            board.remove_limit("mail")
        else:
            board.set_limit("mail", concurrency=2)
        assert waiter.wait() == second

    def test_several_who_wait_get_all_slots_that_come_free(self, board: JobBoard, make_board: MakeBoard) -> None:
        board.set_limit("mail", concurrency=3)
        post(board, 6)
        held = board.claim_many("anna", 3)
        waiters = []
        for _ in range(3):
            other = make_board()
            waiters.append(Waiter(other, lambda other=other: other.claim_next("bob", timeout=PATIENCE)))  # type: ignore[misc]
        board.consume_many(held, "anna")
        assert all(waiter.wait() is not None for waiter in waiters)

    def test_the_slots_of_a_killed_worker_come_free(self, board: JobBoard, puppet: Puppet) -> None:
        if not reaches(board, puppet):
            return
        board.set_limit("mail", concurrency=2)
        first, second, _ = post(board, 3)
        assert [puppet("claim_next", "anna")[0] for _ in range(2)] == [first, second]
        assert board.claim_next("bert") is None
        puppet.signal(signal.SIGKILL)
        # By itself the waiter looks again once a lease of its own has passed, which most boards have for longer.
        assert take(board, "bert", timeout=LIMIT).uuid == first
        assert take(board, "bert", timeout=LIMIT).uuid == second
        assert board.claim_next("bert") is None

    def test_a_waiter_for_a_slot_knows_when_the_next_job_is_due(self, board: JobBoard, make_board: MakeBoard) -> None:
        waiting = make_board(claim_ttl=LONG)
        board.set_limit("mail", concurrency=1)
        post(board, 2)
        take(board)
        board.post("resize", delay=60)
        found = waiting.engine.raw.peek(None, codec.VERSION)
        assert not found.any
        assert found.next_event is not None
        assert found.next_event <= 60_000_000

    def test_wait_and_iterjobs_leave_out_what_has_no_room(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        assert uuids(board.iterjobs(only_unclaimed=True)) == [first.uuid, second.uuid]
        board.claim(first, "anna")
        assert list(board.iterjobs(only_unclaimed=True)) == []
        assert uuids(board.iterjobs(states=[UNCLAIMED])) == [second.uuid]
        with pytest.raises(NotFound):
            board.wait(timeout=0.1)
        board.consume(first, "anna")
        assert uuids(board.wait(timeout=LIMIT)) == [second.uuid]


class TestSlotsBetweenRequests:
    """What others do to a slot between two requests of a claim, or of a waiter."""

    any_driver = True

    def test_two_at_the_last_slot(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        board.set_limit("mail", concurrency=1)
        for (first, _), mine, theirs in at_each_request(
            board,
            wire,
            lambda far: board.post_many([Posting("mail")] * 2),
            lambda far, jobs: far.claim_next("anna"),
            lambda board, jobs: board.claim_next("bert"),
        ):
            assert [mine, theirs] in ([first, None], [None, first])
            assert board.stats().claimed == 1

    @pytest.mark.parametrize("stopped", ["the claim", "the revival"])
    def test_a_revival_while_its_slot_is_claimed(self, board: JobBoard, wire: Wire, stopped: str) -> None:
        if not wire:
            return
        board.set_limit("mail", concurrency=1)

        def lapsed(far: JobBoard) -> tuple[Job, Job]:
            first, second = board.post_many([Posting("mail")] * 2)
            let_lapse(board, first)
            return first, second

        def claim(board: JobBoard, jobs: tuple[Job, Job]) -> bool:
            return board.claim_next("bert", expiry=LONG) is not None

        def revive(board: JobBoard, jobs: tuple[Job, Job]) -> bool:
            return outcome(lambda: board.extend(jobs[0], "anna", LONG)) == "ok"

        do, others = (claim, revive) if stopped == "the claim" else (revive, claim)
        for _, mine, theirs in at_each_request(board, wire, lapsed, do, others):
            assert mine is not theirs
            assert board.stats().claimed == 1

    def test_a_holder_that_loses_its_slot(self, board: JobBoard, wire: Wire) -> None:
        """The slot is the claim's then, or free: the holder of before can't extend what is no longer its claim."""
        if not wire:
            return
        board.set_limit("mail", concurrency=1)

        def held(far: JobBoard) -> Job:
            first, _ = board.post_many([Posting("mail")] * 2)
            board.claim(first, "anna", LONG)
            return first

        for first, mine, theirs in at_each_request(
            board,
            wire,
            held,
            lambda far, first: far.claim_next("bert", expiry=LONG),
            lambda board, first: outcome(lambda: board.release(board.get(first.uuid))),
        ):
            extended = outcome(partial(board.extend, first, "anna", LONG))
            assert (theirs, extended) == ("ok", "ClaimLost")
            assert board.stats().claimed == (mine is not None)

    def test_a_slot_that_comes_free_while_a_waiter_looks(self, board: JobBoard, wire: Wire) -> None:
        """Between any two requests of the waiter, or once it sleeps: it does not sleep through that."""
        if not wire:
            return
        board.set_limit("mail", concurrency=1)
        far = wire.far()

        def race(nth: int) -> bool:
            """Return whether the waiter has sent so many requests before it slept."""
            first, second = board.post_many([Posting("mail")] * 2)
            board.claim(first, "anna")

            def free() -> None:
                outcome(lambda: board.consume(first, "anna"))

            stop = far.proxy.before(lambda: wire.meanwhile(nth, free), nth=nth)
            waiter = far.begin(lambda: (far.board.claim_next("bert", timeout=PATIENCE), boottime()))
            with contextlib.suppress(AssertionError):
                eventually(lambda: stop.happened or waiter.done(), ASLEEP)
            began, happened = boottime(), stop.happened
            if not happened:
                far.proxy.restore()
                free()
            job, ended = waiter.result(2 * PATIENCE)
            assert job == second
            assert ended - began < LIMIT, "at the end of its time a waiter looks in any case"
            clear(board)
            return happened

        assert race(1)
        for nth in range(2, MOST):
            if not race(nth):
                return
