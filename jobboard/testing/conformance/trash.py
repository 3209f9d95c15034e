"""The trash: what gets there, what can be seen of it, and the ways out; and what an operator may do."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobTrashed, NotFound
from jobboard.job import Act, Job, Posting
from jobboard.states import COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, take, trash_one, uuids


class TestTrash:
    def test_holder_trashes_its_job(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", details={"a": 1})
        board.claim(job, "anna")
        board.trash(job, "anna", reason="no use")
        assert (job.seen_state, job.error) == (TRASHED, "no use")
        [seen] = other.trashed()
        assert (seen, seen.seen_state, seen.error, seen.details) == (job, TRASHED, "no use", {"a": 1})
        assert other.get(job.uuid).seen_state == TRASHED
        assert other.find_owner(seen) is None
        assert (board.job_count, list(board.iterjobs()), board.stats().trashed) == (0, [], 1)
        assert board.claim_next("anna") is None
        with pytest.raises(NotFound):
            seen.expires_in()

    def test_trash_without_a_reason(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.abandon(take(board), "anna", error="first")
        board.trash(take(board), "anna")
        assert job.state == TRASHED
        assert job.error == "first"

    def test_the_trash_is_read_newest_first(self, board: JobBoard) -> None:
        jobs = board.post_many([Posting("resize", max_attempts=1)] * 4)
        board.claim(jobs[2], "anna", expiry=SHORT)
        eventually(lambda: board.find_owner(jobs[2]) is None, LIMIT)
        for number in (3, 0, 1):
            board.cancel(jobs[number])
            # Some clocks go in steps of a millisecond, in which several could be trashed.
            trashed_on = board.get(jobs[number].uuid).record.modified_on
            eventually(lambda trashed_on=trashed_on: Harness(board).now() > trashed_on, LIMIT)  # type: ignore[misc]
        assert uuids(board.trashed()) == [jobs[number].uuid for number in (1, 0, 3, 2)]

    def test_more_jobs_than_one_page_are_read_and_purged(self, board: JobBoard) -> None:
        board.post_many([Posting("resize")] * 520)
        jobs = board.claim_many("anna", 520)
        board.finish_many([Act(job, "trash", error="bad") for job in jobs], "anna")
        seen = list(board.trashed())
        assert len(seen) == len(set(seen)) == 520
        assert set(seen) == set(jobs)
        moments = [job.last_modified for job in seen]
        assert moments == sorted(moments, reverse=True)
        assert board.purge_trash(LONG) == 0
        assert board.purge_trash(0) == 520
        assert list(board.trashed()) == []


class TestCancel:
    @pytest.mark.parametrize("arguments", [{}, {"delay": LONG}])
    def test_unclaimed_job_is_cancelled(self, board: JobBoard, arguments: dict[str, Any]) -> None:
        job = board.post("resize", **arguments)
        board.cancel(job, reason="changed my mind")
        assert job.seen_state == TRASHED
        assert (job.state, job.error, job.attempts) == (TRASHED, "changed my mind", 0)
        board.restore(job)
        assert job.state == UNCLAIMED  # due at once
        assert take(board) == job


class TestRelease:
    @holds("An operator's reason for a release or a cancel is kept with the job.")
    def test_the_reason_of_a_release_is_kept_with_the_job(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", max_attempts=2)
        for fate in (UNCLAIMED, TRASHED):
            claimed = take(board)
            theirs = other.get(job.uuid)
            owners = [theirs.owner]
            other.release(theirs, reason=f"it hangs, {fate}")
            assert [*owners, theirs.owner] == ["anna", None]
            assert (claimed.state, claimed.error) == (fate, f"it hangs, {fate}")

    @holds("A release by token takes that claim away, and no newer one.")
    def test_release_by_token_spares_a_newer_claim(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        first = board.claim(job, "anna").token
        theirs = other.get(job.uuid)
        board.abandon(job, "anna")
        newer = take(board, "anna")
        before = Harness(board).record(job)
        with pytest.raises(ClaimLost, match=str(first)):
            other.release(theirs, token=first)
        assert Harness(board).record(job) == before
        assert newer.claim is not None
        newer.claim.extend()
        other.release(theirs, token=newer.claim.token, reason="it hangs")
        assert (newer.state, newer.error) == (UNCLAIMED, "it hangs")
        with pytest.raises(NotFound):
            other.release(theirs, token=newer.claim.token)
        with pytest.raises(TypeError, match="token"):
            other.release(theirs, token="1")  # type: ignore[arg-type]


class TestRestore:
    def test_restore(self, board: JobBoard, other: JobBoard) -> None:
        job = trash_one(board, details={"a": 1}, max_attempts=1)
        theirs = other.get(job.uuid)
        other.restore(theirs)
        assert theirs.seen_state == UNCLAIMED
        assert (theirs.state, theirs.attempts, theirs.error, theirs.details) == (UNCLAIMED, 0, "no use", {"a": 1})
        assert list(board.trashed()) == []
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")
        board.consume(take(board), "anna")
        assert job.state == COMPLETE


class TestPurge:
    def test_purge(self, board: JobBoard, other: JobBoard) -> None:
        job, stays = trash_one(board), trash_one(board)
        theirs = other.get(job.uuid)
        board.purge(job)
        assert uuids(board.trashed()) == [stays.uuid]
        assert board.stats().trashed == 1
        for handle in (job, theirs):
            assert handle.state == TRASHED  # for a day: a waiter must not take it for complete
            with pytest.raises(JobTrashed):
                handle.wait(0)
            assert board.find_owner(handle) is None
        with pytest.raises(NotFound):
            board.get(job.uuid)
        for verb in (board.purge, board.restore, board.cancel, board.release):
            with pytest.raises(NotFound):
                verb(theirs)

    def test_purge_trash(self, board: JobBoard) -> None:
        old = trash_one(board)
        board.cancel(board.post("resize"))
        live = board.post("resize")
        assert board.purge_trash(datetime.timedelta(days=1)) == 0
        assert board.stats().trashed == 2
        mark = Harness(board).now()
        eventually(lambda: Harness(board).now() > mark + 20_000, LIMIT)
        young = trash_one(board)
        age = (Harness(board).now() - mark) / 1e6
        assert board.purge_trash(age) == 2
        assert uuids(board.trashed()) == [young.uuid]
        assert old.state == TRASHED
        assert live.state == UNCLAIMED
        assert board.purge_trash(0) == 1

    @holds("A purge of the trash spares a job that has come back since it was listed.")
    @pytest.mark.parametrize("who", ["anna", "bert"])
    def test_purge_trash_spares_a_job_that_was_trashed_again_since_it_was_listed(
        self, board: JobBoard, other: JobBoard, who: str
    ) -> None:
        job, old = trash_one(board), trash_one(board)

        def listed(original: Callable[..., Any], *args: Any) -> Any:
            page = original(*args)
            if not again:
                again.append(other.get(job.uuid))
                other.restore(again[0])
                other.claim(again[0], who)
                other.trash(again[0], who, reason="another failure")
            return page

        again: list[Job] = []
        with Harness(board).replaced("trash_page", listed):
            assert board.purge_trash(0) == 1
        [left] = board.trashed()
        assert (left, left.error) == (job, "another failure")
        with pytest.raises(NotFound):
            board.get(old.uuid)

    @holds("A purge of the trash spares a job that has come back since it was listed.")
    def test_purge_trash_spares_a_job_that_is_restored_meanwhile(self, board: JobBoard, other: JobBoard) -> None:
        job = trash_one(board)

        def restored(original: Callable[..., Any], *args: Any) -> Any:
            page = original(*args)
            if page:
                other.restore(other.get(job.uuid))
            return page

        with Harness(board).replaced("trash_page", restored):
            assert board.purge_trash(0) == 0
        assert take(other) == job
