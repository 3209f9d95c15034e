"""Running jobs that are cancelled: the job goes to the trash, and nothing that its holder does later counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure, JobFailures, NotFound, UnclaimableJob
from jobboard.job import Job, Posting
from jobboard.outcomes import cancelled, raise_if_cancelled
from jobboard.states import COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import (
    HELD,
    LIMIT,
    LONG,
    PATIENCE,
    EventLog,
    MakeBoard,
    Waiter,
    let_lapse,
    take,
    trash_one,
)


def stop(board: JobBoard, job: Job, reason: str | None = None) -> None:
    """Cancel the job by a handle without a claim."""
    board.cancel(board.get(job.uuid), running=True, reason=reason)


class TestStops:
    any_driver = True

    @holds("A stop of a running job is one commit: nothing that the holder does later counts.")
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_a_claimed_job_goes_to_the_trash(self, board: JobBoard, other: JobBoard, expiry: float | None) -> None:
        job = board.post("resize", max_attempts=3)
        claim, events = board.claim(job, "anna", expiry), EventLog(other)
        theirs = other.get(job.uuid)
        with pytest.raises(UnclaimableJob, match="running=True"):
            other.cancel(theirs)
        other.cancel(theirs, running=True, reason="no use")
        seen = other.get(job.uuid)
        assert (seen.seen_state, seen.who, seen.owner, seen.error, seen.attempts) == (
            TRASHED,
            "anna",
            None,
            "no use",
            1,
        )
        assert (seen.errors[-1].who, seen.errors[-1].kind, seen.token > claim.token) == (None, "cancelled", True)
        eventually(lambda: "TRASHED" in events.of(job), LIMIT)
        for act in (claim.consume, claim.abandon, claim.trash, claim.extend):
            with pytest.raises(ClaimLost):
                act()
        assert (claim.lost, claim.refused) == (True, True)
        assert Harness(other).record(job) == seen.record, "the holder's acts have changed nothing"
        with pytest.raises(NotFound):
            other.cancel(theirs, running=True)

    def test_the_heartbeat_tells_the_holder(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        claim, events = board.claim(job, "anna"), EventLog(board, "LOST")
        stopped: list[bool] = []
        claim.when_refused(lambda: stopped.append(True))
        stop(other, job)
        Harness(board).beat()
        assert (claim.lost, claim.refused, stopped) == (True, True, [True])
        events.expect(job, "LOST")

    def test_the_heartbeat_comes_by_itself(self, make_board: MakeBoard, other: JobBoard) -> None:
        board = make_board(claim_ttl=HELD)
        job = board.post("resize")
        claim = board.claim(job, "anna")
        stop(other, job)
        eventually(lambda: claim.refused, LIMIT)

    def test_the_board_that_keeps_the_claim_is_told_at_once(self, board: JobBoard) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        stop(board, job)
        assert claim.refused

    @holds("Work is stopped by the server's word, and never by a lease that ends by this machine's clock.")
    def test_a_lease_that_ends_by_the_clock_stops_nothing(self, board: JobBoard) -> None:
        """The job may be its holder's still, who ends it."""
        job = board.post("resize")
        let_lapse(board, job)
        assert job.claim is not None
        assert (job.claim.lost, job.claim.refused) == (True, False)
        board.consume(job, "anna")
        assert job.state == COMPLETE

    @pytest.mark.parametrize("way", ["release", "trash", "taken over"])
    def test_other_ways_to_lose_a_claim_stop_the_work(self, board: JobBoard, other: JobBoard, way: str) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        theirs = other.get(job.uuid)
        if way == "trash":
            other.trash(theirs, "anna")
        else:
            other.release(theirs)
        if way == "taken over":
            take(other, "bert")
        Harness(board).beat()
        assert claim.refused

    def test_a_job_that_nobody_holds(self, board: JobBoard) -> None:
        lapsed, later, waiting = board.post("a"), board.post("b", delay=LONG), board.post("c")
        let_lapse(board, lapsed)
        for job in (lapsed, later, waiting):
            stop(board, job, "no use")
            assert (job.state, board.get(job.uuid).error) == (TRASHED, "no use")
        with pytest.raises(ClaimLost):
            board.extend(lapsed, "anna", LONG)

    @pytest.mark.parametrize("running", [False, True])
    def test_a_finished_job_is_not_found(self, make_board: MakeBoard, running: bool) -> None:
        board = make_board(keep_done=LONG)
        consumed, purged = board.post("resize"), trash_one(board)
        board.claim(consumed, "anna")
        board.consume(consumed, "anna")
        board.purge(purged)
        for job in (consumed, purged, trash_one(board)):
            for token in (None, job.token - 1):
                with pytest.raises(NotFound):
                    board.cancel(job, running=running, token=token)

    def test_only_the_claim_with_the_token(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        first = board.claim(job, "anna").token
        board.abandon(job, "anna")
        newer = take(board)
        before, theirs = Harness(other).record(job), other.get(job.uuid)
        for running in (False, True):
            with pytest.raises(ClaimLost, match=f"another token than {first}"):
                other.cancel(theirs, running=running, token=first)
        for verb in (other.restore, other.purge):
            with pytest.raises(JobFailure, match="not in the trash"):
                verb(theirs, token=first)
        with pytest.raises(TypeError):
            other.cancel(theirs, running=True, token="1")  # type: ignore[arg-type]
        assert Harness(other).record(job) == before
        other.cancel(theirs, running=True, token=newer.token)
        trashed = other.get(job.uuid)
        for verb in (other.restore, other.purge):
            with pytest.raises(ClaimLost):
                verb(trashed, token=newer.token)
        other.restore(trashed, token=trashed.token)
        for running in (False, True):
            with pytest.raises(ClaimLost):
                other.cancel(trashed, running=running, token=trashed.token)
        assert job.state == UNCLAIMED

    def test_a_restored_job_is_not_the_holders(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        stop(other, job)
        other.restore(other.get(job.uuid))
        again = take(other, "bert")
        assert (again, again.attempts) == (job, 1)
        for act in (claim.consume, claim.extend):
            with pytest.raises(ClaimLost):
                act()
        other.consume(again, "bert")

    def test_the_key_is_free_and_its_window_stays(self, board: JobBoard) -> None:
        for key, key_for in (("k", None), ("w", LONG)):
            job = board.post("resize", key=key, key_for=key_for)
            board.claim(job, "anna")
            stop(board, job)
            assert board.post("resize", key=key).created == (key_for is None)

    @holds("A repeated stop wakes a waiter for the slot that its first try has freed.")
    @pytest.mark.parametrize("lost", [False, True])
    def test_the_slot_of_a_limit_wakes_a_waiter(self, board: JobBoard, other: JobBoard, lost: bool) -> None:
        """Also if the reply of the first try is lost, and another process has died before it woke anybody."""
        board.set_limit("resize", concurrency=1)
        first, second = board.post_many([Posting("resize")] * 2)
        board.claim(first, "anna", LONG)
        waiter = Waiter(other, lambda: other.claim_next("bert", timeout=PATIENCE))
        if lost:
            with Harness(board).lost_reply():
                stop(board, first)
        else:
            stop(board, first)
        assert waiter.wait() == second

    @holds("A stop of a running job is one commit: nothing that the holder does later counts.")
    def test_a_lost_reply_is_no_second_act(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        theirs = other.get(job.uuid)

        def restore_and_claim() -> None:
            board.restore(board.get(job.uuid))
            board.claim(job, "anna")

        with Harness(other).lost_reply(restore_and_claim):
            other.cancel(theirs, running=True)
        assert board.find_owner(job) == "anna", "the repetition has not stopped the new claim"
        board.consume(job, "anna")

    def test_a_claim_of_this_board_after_the_stop_goes_on(self, board: JobBoard) -> None:
        """The board that stops the job may claim the job again before its own call returns."""
        job = board.post("resize")
        first = board.claim(job, "anna")
        again: list[Job] = []

        def restore_and_claim() -> None:
            board.restore(board.get(job.uuid))
            again.append(take(board))

        with Harness(board).lost_reply(restore_and_claim):
            stop(board, job)
        assert again[0].claim is not None
        assert (first.refused, again[0].claim.refused) == (True, False)
        board.consume(again[0], "anna")

    def test_a_batch_ends_the_other_claims(self, board: JobBoard, other: JobBoard) -> None:
        jobs = board.post_many([Posting("resize")] * 3)
        mine = board.claim_many("anna", 3)
        stop(other, jobs[1])
        with pytest.raises(JobFailures) as failures:
            board.consume_many(mine, "anna")
        assert [getattr(error, "job", None) for error in failures.value.exceptions] == [jobs[1]]
        assert [job.state for job in jobs] == [COMPLETE, TRASHED, COMPLETE]

    def test_the_body_of_working_ends_quietly(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        with board.working("anna") as mine:
            raise_if_cancelled()
            stop(other, job)
            Harness(board).beat()
            assert cancelled()
            raise_if_cancelled()
            raise AssertionError("the work goes on")
        assert (mine, mine.claim.lost, job.state) == (job, True, TRASHED)

    def test_work_that_returns_does_not_count(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        with pytest.raises(ClaimLost), board.working("anna"):
            stop(other, job)
        assert job.state == TRASHED

    @pytest.mark.parametrize("verb", ["consume", "abandon", "trash"])
    def test_an_end_before_the_stop_counts(self, board: JobBoard, other: JobBoard, verb: str) -> None:
        """Between the decision of the stop and its commit."""
        job = board.post("resize")
        board.claim(job, "anna", LONG)
        theirs = other.get(job.uuid)
        acted: list[bool] = []

        def meanwhile(commit: Callable[..., object], *args: object, **extra: object) -> object:
            if not acted:
                acted.append(True)
                getattr(board, verb)(job, "anna")
            return commit(*args, **extra)

        with Harness(other).replaced("commit", meanwhile):
            if verb == "abandon":
                other.cancel(theirs, running=True)
            else:
                with pytest.raises(NotFound):
                    other.cancel(theirs, running=True)
        assert acted
        assert job.state == (COMPLETE if verb == "consume" else TRASHED)
