"""Who waits for a slot of a limit."""

from __future__ import annotations

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.states import UNCLAIMED
from jobboard.testing.conformance.limits import post
from jobboard.testing.conformance.support import LIMIT, LONG, PATIENCE, MakeBoard, Waiter, lost_reply, uuids


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
