"""Jobs that expire: nobody begins a job after its time, and it holds nothing from then on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.engine import Change, Stale
from jobboard.exceptions import JobFailure, NotFound
from jobboard.job import Act, Job
from jobboard.states import TRASHED, UNCLAIMED, FailureKind, moment
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.schedules import put_back
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, assert_order, take, uuids


def expire(board: JobBoard, job: Job) -> None:
    """Wait until the job has expired."""
    eventually(lambda: board.get(job.uuid).seen_state == TRASHED, LIMIT)


class TestExpiry:
    any_driver = True

    @holds("An unclaimed job goes to the trash at the instant of its expiry, whoever looks, and frees its key.")
    def test_expired_job_is_trashed_and_frees_its_key(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", expires=SHORT, key="k", group="g")
        assert job.expires is not None
        expire(other, job)
        found = other.get(job.uuid)
        [failure] = found.errors
        assert (failure.kind, failure.who, failure.when) == (FailureKind.EXPIRED, None, job.expires)
        assert found.last_modified == job.expires
        assert (board.job_count, board.stats().trashed, uuids(board.trashed())) == (0, 1, [job.uuid])
        with pytest.raises(NotFound):
            other.claim(found, "anna")
        again = other.post("resize", key="k")
        assert again.created
        with pytest.raises(JobFailure, match="key"):
            board.restore(found)
        assert take(board).uuid == again.uuid
        assert board.claim_next("anna") is None
        board.consume(board.get(again.uuid), "anna")
        board.restore(found)
        restored = take(other)
        assert (restored.uuid, restored.attempts, other.get(job.uuid).expires) == (job.uuid, 1, None)

    @holds("A claim ends the expiry of a job, on the fast paths, too, unless the claim is given back unworked.")
    @pytest.mark.parametrize("is_limited", [False, True])
    def test_jobs_that_expire_are_served_in_order(self, board: JobBoard, other: JobBoard, is_limited: bool) -> None:
        if is_limited:
            board.set_limit("resize", concurrency=9)
        gone = board.post("resize", expires=SHORT, priority=100)
        jobs = board.post_many([{"name": "resize", "expires": LONG if number % 2 else None} for number in range(6)])
        expire(board, gone)
        names = ["resize", "crop"]
        taken = [take(board), *other.claim_many("anna", 2), take(other, names=["resize"]), take(board, names=names)]
        board.claim(jobs[5], "anna")
        assert_order(board, uuids([*taken, jobs[5]]), uuids([*jobs[:4], jobs[4], jobs[5]]))
        expires = [job.expires for job in jobs]
        assert [other.get(job.uuid).expires for job in jobs] == expires
        board.finish_many([Act(job, "abandon", refund=True) for job in [taken[1], taken[4]]], "anna")
        board.finish_many([Act(jobs[3], "abandon"), Act(jobs[5], "abandon", refund=True, error="no")], "anna")
        expires[3] = expires[5] = None
        assert [other.get(job.uuid).expires for job in jobs] == expires
        free = [job.record for job in map(other.get, uuids(jobs)) if job.owner is None]
        assert [record.lock_until for record in free] == [record.expires for record in free]
        assert other.get(gone.uuid).seen_state == TRASHED

    @holds("Every count takes a job for trashed from the instant of its expiry, and the trash shows it.")
    @pytest.mark.parametrize("delay", [None, SHORT / 2])
    def test_counts_of_expired_jobs(self, board: JobBoard, other: JobBoard, delay: float | None) -> None:
        kept = board.post("resize", expires=LONG)
        gone = board.post_many([{"name": "resize", "delay": delay, "expires": SHORT + n / 100} for n in range(5)])
        gone.append(board.post("crop", delay=delay, expires=SHORT))
        for job in gone:
            expire(other, job)
        count = board.stats()
        assert (count.unclaimed, count.scheduled, count.claimed, count.trashed) == (1, 0, 0, 6)
        assert (board.stats(cap=3).unclaimed, board.stats(cap=3).trashed) == (1, 3)
        names = board.names()
        assert [(each.name, each.waiting, each.delayed, each.running) for each in names] == [("resize", 1, 0, 0)]
        assert list(board.iterjobs()) == list(board.find(states=[UNCLAIMED])) == [kept]
        order = uuids(sorted(gone, key=lambda job: (job.expires, job.sequence), reverse=True))
        assert uuids(board.trashed()) == uuids(board.find(states=[TRASHED])) == order
        pages = [board.engine.trash_page(None, 4)]
        pages.append(board.engine.trash_page(pages[0][-1], 4))
        assert [record.uuid for page in pages for record in page] == order
        # A sweep changes none of it.
        assert board.claim_many("anna", 9) == [kept]
        assert (board.stats().trashed, uuids(board.trashed())) == (6, order)

    @holds("The expiry of a job wakes no waiter, and a waiter wakes for the lapse behind any number of expiries.")
    def test_expiries_wake_no_waiter(self, board: JobBoard, other: JobBoard) -> None:
        asked: list[float] = []

        def unless() -> bool:
            asked.append(time.monotonic())
            return False

        held = other.post("resize")
        # A board that waits for the first time may only begin to listen, and looks once more then.
        assert board.claim_next("anna", names=["dig"], timeout=0.1) is None
        other.post_many([{"name": "crop", "expires": 1 + number / 100} for number in range(90)])
        assert board.claim_next("anna", names=["dig"], timeout=2, unless=unless) is None
        # Twice in each turn. A store that wakes nobody looks after 10 ms, 20 ms, and so on.
        assert len(asked) / 2 < 15
        other.claim(held, "bert", expiry=2)
        other.post_many([{"name": "crop", "expires": 1 + number / 1000} for number in range(250)])
        assert board.claim_next("anna", names=["resize"], timeout=LIMIT) == held
        assert board.job_count == 1

    @holds("A job that was given back unworked expires as it was posted, also within its delay.")
    @pytest.mark.parametrize("delay", [None, LONG])
    def test_job_that_was_given_back_expires(self, board: JobBoard, other: JobBoard, delay: float | None) -> None:
        posting: dict[str, Any] = {"name": "resize", "expires": 3 * HALF}
        jobs = board.post_many([{**posting, "key": "k"}, posting, posting, posting, {**posting, "max_attempts": 1}])
        assert board.claim_many("anna", 5) == jobs
        back = [Act(job, "abandon", delay=delay, refund=True) for job in jobs[:2]]
        begun = [Act(jobs[2], "abandon", delay=delay), Act(jobs[3], "abandon", delay=delay, retry=True)]
        board.finish_many([*back, *begun], "anna")
        for job in jobs[:2]:
            expire(other, job)
        count = board.stats()
        assert (count.trashed, count.claimed, count.unclaimed + count.scheduled) == (2, 1, 2)
        assert {name.waiting + name.delayed + name.running for name in board.names()} == {3}
        assert {*uuids(board.trashed())} == {*uuids(jobs[:2])}
        again = other.post("resize", key="k")
        assert again.created
        # Nobody could have given back this job before the instant at which it expires.
        board.finish_many([Act(jobs[4], "abandon", refund=True)], "anna")
        taken = other.claim_many("bert", 9)
        assert taken == ([] if delay else jobs[2:4]) + [again]
        for job in (*jobs[:2], jobs[4]):
            found = other.get(job.uuid)
            assert (found.seen_state, found.attempts, found.last_modified) == (TRASHED, 0, job.expires)
            assert [failure.kind for failure in found.errors] == [FailureKind.EXPIRED]

    @holds("The outcome of a consumed job has no expiry.")
    def test_outcome_has_no_expiry(self, make_board: MakeBoard) -> None:
        board = make_board(keep_done=LONG)
        for expires in (LONG, None):
            board.post("resize", expires=expires)
            board.consume(take(board), "anna")
        assert [done.job.expires for done in board.outcomes()] == [None, None]

    @holds("A lapsed claim ends the expiry of a job.")
    def test_job_whose_claim_lapsed_does_not_expire(self, board: JobBoard, other: JobBoard) -> None:
        times = (LONG, LONG, 2 * HALF)
        lapses, released, late = board.post_many([{"name": "resize", "expires": each} for each in times])
        board.claim(late, "anna", expiry=3 * HALF)
        board.claim(lapses, "anna", expiry=SHORT)
        board.claim(released, "anna")
        other.release(other.get(released.uuid))
        eventually(lambda: other.get(late.uuid).owner is None, LIMIT)
        assert (board.stats().unclaimed, board.stats().trashed) == (3, 0)
        assert [name.waiting for name in board.names()] == [3]
        assert list(board.trashed()) == []
        # Nobody has swept it yet.
        other.cancel(late)
        # The holder revives the claim, and returns the job as if nobody had claimed it.
        board.extend(lapses, "anna", LONG)
        board.finish_many([Act(lapses, "abandon", refund=True)], "anna")
        assert other.get(lapses.uuid).expires == lapses.expires
        assert [other.get(job.uuid).expires for job in other.claim_many("bert", 5)] == [lapses.expires, None]

    @holds("Nothing is committed that rests on a job which has expired meanwhile.")
    @pytest.mark.parametrize("what", ["claim", "claim_next", "replace"])
    def test_job_expires_before_the_commit_of_an_act(self, board: JobBoard, other: JobBoard, what: str) -> None:
        board.set_limit("resize", concurrency=9)
        job = board.post("resize", expires=HALF, key="k")
        met: list[Job | None] = []

        def late(commit: Callable[..., Any], *args: Any, **more: Any) -> Any:
            if not met:
                met.append(None)
                expire(other, job)
            return commit(*args, **more)

        with Harness(board).replaced("take_limited", lambda *_: None), Harness(board).replaced("commit", late):
            if what == "claim":
                with pytest.raises(NotFound):
                    board.claim(job, "anna")
            elif what == "claim_next":
                assert board.claim_next("anna") is None
            else:
                assert board.post("resize", key="k", on_key="replace").created
        assert met
        found = other.get(job.uuid)
        assert (found.seen_state, found.attempts, found.errors[-1].kind) == (TRASHED, 0, FailureKind.EXPIRED)

    @holds("A take passes over an expired job that another transaction holds.")
    def test_expired_job_that_cannot_be_swept_hides_no_other(self, board: JobBoard, other: JobBoard) -> None:
        gone = board.post("resize", priority=100, expires=SHORT)
        job = board.post("resize")
        expire(other, gone)

        def held(commit: Callable[..., Any], changes: Sequence[Change], *args: Any, **more: Any) -> Any:
            if any(change.before is not None and change.before.record.uuid == gone.uuid for change in changes):
                raise Stale([gone.uuid])
            return commit(changes, *args, **more)

        with Harness(board).replaced("commit", held):
            assert next(board.wait(0)).uuid == job.uuid
            assert take(board).uuid == job.uuid
        assert board.claim_next("anna") is None

    def test_replacement_brings_its_own_expiry(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", key="k", expires=LONG)
        for expires in (None, 2 * LONG, timedelta(seconds=3 * LONG), moment(Harness(board).now() + 1_000_000_000)):
            again = board.post("resize", key="k", on_key="replace", expires=expires)
            found = other.get(job.uuid)
            assert (again.replaced, found.expires) == (True, again.expires)
            assert (found.expires is None) == (expires is None)
        soon = board.post("resize", key="k", on_key="replace", expires=SHORT)
        expire(other, soon)
        assert board.post_again(board.get(job.uuid)).expires is None

    def test_expiry_is_after_the_job_is_due(self, board: JobBoard) -> None:
        later, now = timedelta(seconds=LONG), moment(Harness(board).now())
        times: list[dict[str, Any]] = [{"delay": LONG}, {"due": now + later}]
        for when in times:
            same = LONG if "delay" in when else when["due"]
            for expires in (LONG / 2, later / 2, now + later / 2, same):
                with pytest.raises(ValueError, match="due"):
                    board.post("resize", **when, expires=expires)
            board.post("resize", **when, expires=2 * later)
            board.post("resize", **when, expires=now + 2 * later)
        assert board.stats().scheduled == 4

    def test_jobs_of_a_schedule_expire_by_their_due_times(self, board: JobBoard, other: JobBoard) -> None:
        setting: dict[str, Any] = {"name": "ping", "every": 60, "missed": "all"}
        assert board.schedule("ping", **setting, expires=LONG).expires == LONG
        due = put_back(board, "ping", 1)
        other.post_due()
        [job] = board.iterjobs()
        assert job.expires == due + timedelta(seconds=LONG)
        # An equal setting changes nothing, and this is another one.
        assert board.schedule("ping", **setting, expires=30).next_due > due
        put_back(board, "ping", 61)
        board.post_due()
        late, fresh = sorted(board.find(names=["ping"], states=[UNCLAIMED, TRASHED]), key=lambda each: each.sequence)[
            1:
        ]
        assert late.seen_state == TRASHED
        assert fresh.seen_state == UNCLAIMED


HALF = 0.5
"""Seconds within which a call has read a job, on a busy machine."""
