"""What a holder learns of its claim, where somebody else has acted upon it by the owner's name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, NotFound
from jobboard.job import Claim, Job
from jobboard.testing import eventually
from jobboard.testing.conformance.support import (
    HELD,
    LIMIT,
    LONG,
    SHORT,
    EventLog,
    MakeBoard,
    replaced,
    take,
    until_free,
)


def held(board: JobBoard) -> list[Claim]:
    return board.claims.held()


def beat(board: JobBoard) -> None:
    """What the heartbeat does when its time has come."""
    board.claims.beat()


def kept(board: JobBoard) -> tuple[Job, Claim]:
    """A claim that the board keeps."""
    board.post("resize")
    job = take(board)
    assert job.claim is not None
    assert job.claim.kept
    return job, job.claim


class TestHolding:
    any_driver = True

    def test_a_holder_learns_of_its_loss(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        events = EventLog(board, "LOST")
        job = board.post("resize")
        claim = board.claim(job, "anna")
        other.release(other.get(job.uuid))
        events.expect(job, "LOST")
        assert claim.lost

    @pytest.mark.parametrize("by", ["its board", "another"])
    def test_a_fixed_lease_by_the_owners_name(self, board: JobBoard, other: JobBoard, by: str) -> None:
        job, claim = kept(board)
        acting = board if by == "its board" else other
        acting.extend(acting.get(job.uuid), "anna", LONG)
        beat(board)
        theirs, mine = job.expires_in(), claim.expires_in()
        assert theirs is not None
        assert mine is not None
        assert LONG - 60 < mine <= theirs
        assert (claim.kept, claim.lost, held(board)) == (False, False, [])
        claim.extend()
        assert (claim.kept, claim.expires_in(), held(board)) == (True, None, [claim])
        beat(board)
        assert (claim.lost, job.expires_in()) == (False, None)
        board.consume(job, "anna")

    @pytest.mark.parametrize("met", ["before its end", "after its end"])
    def test_the_lease_by_the_owners_name_ends(self, board: JobBoard, other: JobBoard, met: str) -> None:
        """The holder's beats do not push it on, and the holder is told no later than anybody else may have the job."""
        job, claim = kept(board)
        other.extend(other.get(job.uuid), "anna", 6 * SHORT if met == "before its end" else SHORT)
        if met == "after its end":
            until_free(other, job)
        beat(board)
        until_free(other, job)
        assert claim.lost
        assert (claim.kept, claim.expires_in(), held(board)) == (False, 0, [])
        beat(board)
        assert take(other, "bert") == job
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")

    def test_the_beat_comes_by_itself(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        job, claim = kept(board)
        other.extend(other.get(job.uuid), "anna", SHORT)
        eventually(lambda: claim.lost, LIMIT)
        assert other.find_owner(job) is None

    def test_given_back_by_the_owners_name(self, board: JobBoard, other: JobBoard) -> None:
        events = EventLog(board, "LOST")
        job, claim = kept(board)
        other.abandon(other.get(job.uuid), "anna")
        beat(board)
        assert claim.lost
        assert held(board) == []
        events.expect(job, "LOST")
        with pytest.raises(NotFound):
            board.consume(job, "anna")
        assert take(other, "bert") == job

    def test_the_same_job_through_another_board(self, board: JobBoard, other: JobBoard) -> None:
        """It is fixed there, or kept there from now on; the board that has made the claim has no more to do with it."""
        job, claim = kept(board)
        other.extend(job, "anna", LONG)
        beat(board)
        assert (claim.kept, held(board), held(other)) == (False, [], [])
        claim.extend()
        other.extend(job, "anna")
        beat(board)
        assert (claim.kept, claim.expires_in(), held(board), held(other)) == (True, None, [], [claim])
        beat(other)
        board.close()
        assert not claim.lost
        assert other.find_owner(other.get(job.uuid)) == "anna"
        other.consume(job, "anna")

    @pytest.mark.parametrize("expiry", [None, 2 * LONG])
    def test_what_is_extended_meanwhile(self, board: JobBoard, other: JobBoard, expiry: float | None) -> None:
        """The answer of the beat tells of what was before."""
        job, claim = kept(board)
        other.extend(other.get(job.uuid), "anna", LONG)

        def late(original: Callable[..., Any], *args: Any) -> Any:
            answer = original(*args)
            claim.extend(expiry)
            return answer

        with replaced(board, "renew", late):
            beat(board)
        left = claim.expires_in()
        if expiry is None:
            assert (claim.kept, left, held(board)) == (True, None, [claim])
        else:
            assert left is not None
            assert (claim.kept, left > LONG, held(board)) == (False, True, [])
        assert not claim.lost

    @pytest.mark.parametrize("read", ["before", "after"])
    def test_read_as_lost_while_it_is_renewed(self, make_board: MakeBoard, read: str) -> None:
        """Its holder may have dropped the job. The renewal under way is the last, whether the server has carried it out
        yet or not."""
        board, other = make_board(claim_ttl=HELD), make_board()
        job, claim = kept(board)
        if claim.deadline is None:
            return  # as in memory, where the process itself is the lease
        renewed: list[tuple[str, int]] = []

        def late(original: Callable[..., Any], handle: str, asked: list[tuple[str, int]], ttl: int) -> Any:
            renewed.extend(asked)
            if read == "before":
                eventually(lambda: claim.lost, LIMIT)
            answer = original(handle, asked, ttl)
            eventually(lambda: claim.lost, LIMIT)
            return answer

        with replaced(board, "renew", late):
            eventually(lambda: renewed, LIMIT)
            eventually(lambda: not claim.kept, LIMIT)
            assert take(other, "bert", timeout=LIMIT) == job
        assert renewed == [(job.uuid, claim.token)]
        assert (claim.lost, claim.seen_lost, claim.expires_in(), held(board)) == (True, True, 0, [])
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")

    def test_read_as_lost_and_extended(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        events = EventLog(board, "LOST")
        job, claim = kept(board)
        if claim.deadline is None:
            return

        def fail(original: Callable[..., Any], *args: Any) -> Any:
            raise ConnectionFailure("down")

        with replaced(board, "renew", fail):
            eventually(lambda: claim.lost, LIMIT)
            events.expect(job, "LOST")
        beat(board)
        assert (claim.lost, claim.kept, held(board)) == (True, False, [])
        claim.extend()
        beat(board)
        assert (claim.lost, claim.kept, held(board)) == (False, True, [claim])
        assert other.find_owner(other.get(job.uuid)) == "anna"

    def test_a_claim_of_a_later_batch_that_is_read_as_lost(
        self, make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A beat that has begun asks for the renewal of no claim that was read as lost meanwhile."""
        monkeypatch.setattr("jobboard.claims.RENEW_BATCH", 1)
        board = make_board(claim_ttl=HELD)
        first, second = kept(board)[1], kept(board)[1]
        if second.deadline is None:
            return
        renewed: list[str] = []

        def late(original: Callable[..., Any], handle: str, asked: list[tuple[str, int]], ttl: int) -> Any:
            renewed.extend(uuid for uuid, _ in asked)
            eventually(lambda: second.lost, LIMIT)
            return original(handle, asked, ttl)

        with replaced(board, "renew", late):
            eventually(lambda: not second.kept, LIMIT)
        # The next beat may have begun, too.
        assert set(renewed) == {first.uuid}

    def test_extended_while_the_heartbeat_finds_it_lost(self, make_board: MakeBoard) -> None:
        """The extension has succeeded: what the heartbeat does about the loss takes the job away no more."""
        board, other = make_board(claim_ttl=HELD), make_board()
        _, claim = kept(board)
        if claim.deadline is None:
            return  # as in memory, where the process itself is the lease
        extended, forsaken = threading.Event(), threading.Event()

        def fail(original: Callable[..., Any], *args: Any) -> None:
            raise ConnectionFailure("no server answers")

        def forsake(original: Callable[..., Any], *args: Any) -> None:
            extended.wait(LIMIT)
            original(*args)
            forsaken.set()

        def extend(original: Callable[..., Any], *args: Any) -> Any:
            answer = original(*args)
            extended.set()
            forsaken.wait(SHORT)
            return answer

        with replaced(board, "forsake", forsake), replaced(board, "renew", fail):
            eventually(lambda: claim.lost, LIMIT)
            with replaced(board, "extend", extend):
                claim.extend()
            assert other.claim_next("bert", timeout=SHORT) is None
        assert (claim.lost, claim.kept, held(board)) == (False, True, [claim])
