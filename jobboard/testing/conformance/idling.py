"""What limits have counted goes when no claim stands, and never while somebody counts on it."""

from __future__ import annotations

from jobboard.board import JobBoard
from jobboard.engine.limits import SCOPE
from jobboard.job import Job, Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.between import at_each_request
from jobboard.testing.conformance.limits import post, store_of
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, let_lapse, take, uuids
from jobboard.testing.conformance.wire import Wire


def stored(board: JobBoard, *keys: str) -> list[bool]:
    """Whether there are side records of these scopes."""
    return [side.value is not None for side in store_of(board).read([], [(SCOPE, key) for key in keys]).sides]


def tidy(board: JobBoard) -> None:
    eventually(lambda: not board.engine.tidy(), LIMIT)


class TestIdleScopes:
    def test_what_was_counted_goes_when_no_claim_stands(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=2, per="group")
        board.set_limit("mail", concurrency=100)
        groups = [f"{number}" for number in range(30)]
        jobs = board.post_many([Posting("mail", group=group) for group in groups])
        held = board.claim_many("anna", 100)
        assert held == jobs
        scopes = ["mail", *(f"mail\n{group}" for group in groups)]
        assert all(stored(board, *scopes))
        board.consume_many(held[1:], "anna")
        tidy(other)
        assert stored(board, *scopes) == [True, True, *[False] * 29]
        again = post(board, 3, group="29")
        assert uuids(board.claim_many("anna", 3)) == again[:2], "it counts anew"
        post(board, 2, group="0")
        assert take(board).group == "0"
        assert board.claim_next("anna") is None

    def test_not_while_a_rate_counts_a_start(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", rate=(1, LONG))
        board.set_limit("resize", rate=(1, SHORT))
        post(board, 1, "mail")
        post(board, 1, "resize")
        board.consume_many(board.claim_many("anna", 2), "anna")
        later = board.engine.now() + int(SHORT * 1e6)
        eventually(lambda: board.engine.now() > later, LIMIT)
        tidy(other)
        assert stored(board, "mail", "resize") == [True, False]
        post(board, 1, "mail")
        assert board.claim_next("anna") is None

    def test_without_the_limit(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1, rate=(1, LONG))
        post(board, 1)
        board.consume(take(board), "anna")
        board.remove_limit("mail")
        tidy(other)
        assert stored(board, "mail") == [False]

    def test_a_lapsed_claim_is_revived_or_its_slot_is_anothers(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        job = board.post("mail")
        let_lapse(board, job)
        tidy(other)
        board.extend(job, "anna", LONG)
        post(board, 1)
        assert other.claim_next("bert") is None

    def test_a_claim_that_begins_meanwhile_is_counted(self, board: JobBoard, wire: Wire) -> None:
        """Before each request of a tidying in turn."""
        if not wire:
            return

        def prepare(board: JobBoard) -> list[Job]:
            board.set_limit("mail", concurrency=2)
            jobs = board.post_many([Posting("mail") for _ in range(4)])
            board.consume(take(board), "anna")
            return jobs

        def sweep(board: JobBoard, _: list[Job]) -> None:
            tidy(board)

        def claim(board: JobBoard, _: list[Job]) -> str:
            return take(board, "bert").uuid

        for jobs, _, theirs in at_each_request(board, wire, prepare, sweep, claim):
            assert theirs == jobs[1].uuid
            assert stored(board, "mail") == [True]
            assert uuids(board.claim_many("carl", 2)) == [jobs[2].uuid]
