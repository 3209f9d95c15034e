"""Jobs whose details, each as large as they may be, are more together than a server takes at once."""

from __future__ import annotations

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.job import Act, Job, Posting
from jobboard.primitives import End
from jobboard.states import COMPLETE, CONSUME
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, SHORT, MakeBoard, take

DETAILS = {"picture": "x" * 60_000}


def post(board: JobBoard, number: int, **arguments: object) -> list[Job]:
    return board.post_many([Posting("resize", details=DETAILS, **arguments) for _ in range(number)])  # type: ignore[arg-type]


class TestSizes:
    any_driver = True

    def test_what_comes_due_together_keeps_nobody_waiting(self, board: JobBoard) -> None:
        post(board, 40, delay=SHORT)
        first = board.post("small", priority=100)
        eventually(lambda: board.stats().unclaimed == 41, LIMIT)
        assert take(board) == first
        assert len(list(board.iterjobs(only_unclaimed=True))) == 40

    def test_claimed_and_ended_together(self, board: JobBoard) -> None:
        posted, held = post(board, 40), list[Job]()
        while jobs := board.claim_many("anna", 40):
            held += jobs
        assert held == posted
        board.finish_many([Act(job, "abandon", error="e" * 1000) for job in held[:20]], "anna")
        board.finish_many([Act(job, "trash") for job in held[20:]], "anna")
        assert board.stats().unclaimed == board.stats().trashed == 20

    def test_given_back_by_who_closes_the_board(self, board: JobBoard, make_board: MakeBoard) -> None:
        going = make_board()
        posted = post(board, 40)
        while going.claim_many("anna", 40):
            pass
        going.close()
        assert take(board) == posted[0]

    def test_lapses_that_come_together(self, board: JobBoard, other: JobBoard) -> None:
        posted = post(board, 40)
        for job in posted:
            board.claim(job, "anna", expiry=10 * SHORT)
        eventually(lambda: other.stats().unclaimed == 40, LIMIT)
        assert take(other) == posted[0]

    def test_a_result_that_does_not_fit_beside_the_details(self, make_board: MakeBoard) -> None:
        board = make_board(max_details=850_000, keep_done=60)
        large = "x" * 800_000
        job, other = (board.post("resize", details={"picture": large}) for _ in range(2))
        board.claim(job, "anna")
        try:
            board.consume(job, "anna", result=large)
        except ValueError as error:
            assert "details and the result take 16" in str(error)  # noqa: PT017
            assert board.find_owner(job) == "anna"
            board.consume(job, "anna")
            assert board.outcome(job).refused is None
            fits = False
        else:
            assert job.result() == large
            fits = True
        # What a handler has returned is no reason to do the work again.
        board.claim(other, "anna")
        returned = codec.returned(large, 850_000, board.engine.wire)
        assert board.end_claims([(other, End(CONSUME, result=returned))], "anna") == [None]
        assert other.state == COMPLETE
        if fits:
            assert other.result() == large
        else:
            with pytest.raises(NotFound, match="details and the result take 16"):
                other.result()
