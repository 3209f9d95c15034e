"""Outcomes of consumed jobs: written with the end, visible to every reader, and gone after ``keep_done``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure, JobTrashed, NotFound
from jobboard.job import Act, Job, Posting
from jobboard.states import COMPLETE, TRASHED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, Background, MakeBoard, let_lapse, take, uuids


@pytest.fixture
def keeper(make_board: MakeBoard) -> JobBoard:
    """A handle with ``keep_done``, which leaves outcomes of the jobs that it consumes."""
    return make_board(keep_done=LONG)


def done(keeper: JobBoard, result: Any = None, **posting: Any) -> Job:
    """Return a job that was consumed."""
    job = keeper.post("resize", **posting)
    keeper.claim(job, "anna")
    keeper.consume(job, "anna", result=result)
    return job


class TestOutcomes:
    def test_outcome_has_all_that_is_known_of_a_job(self, keeper: JobBoard, other: JobBoard) -> None:
        details = {"päth": "a.jpg", "n": [1, 2.5, None, True]}
        job = keeper.post(
            "resize", details=details, priority=7, key="k\u20ac", group="g", context={"trace": "1"}, max_attempts=3
        )
        keeper.abandon(take(keeper, "anna"), "anna", error="no luck")
        keeper.consume(take(keeper, "bert"), "bert", result={"wïdth": [1, {"b": None}], "big": 2**62})
        [left] = other.outcomes()
        assert (left.uuid, left.name, left.details, left.priority) == (job.uuid, "resize", details, 7)
        assert (left.key, left.group, left.context) == ("k\u20ac", "g", {"trace": "1"})
        assert (left.result, left.refused) == ({"wïdth": [1, {"b": None}], "big": 2**62}, None)
        assert (left.attempts, left.who, left.workers) == (2, "bert", ("anna", "bert"))
        assert [(failure.who, failure.attempt, failure.text) for failure in left.errors] == [("anna", 1, "no luck")]
        assert left.posted_on == job.created_on
        assert left.posted_on <= left.begun_on <= left.ended_on
        assert abs((left.until - left.ended_on).total_seconds() - LONG) < 1
        assert (left.job, left.job.seen_state, left.job.owner) == (job, COMPLETE, None)
        for text in (repr(left), str(left)):
            assert job.uuid in text
            assert "a.jpg" not in text
            assert "dth" not in text

    def test_restored_job_leaves_its_whole_history(self, keeper: JobBoard, other: JobBoard) -> None:
        """A job leaves no outcome while it lies in the trash, and all its history at its end."""
        job = keeper.post("resize", key="k", max_attempts=1)
        keeper.abandon(take(keeper), "anna", error="no luck")
        assert (job.state, list(other.outcomes())) == (TRASHED, [])
        other.restore(next(iter(other.trashed())))
        keeper.consume(take(keeper, "bert"), "bert", result=7)
        [left] = other.outcomes()
        assert (left.uuid, left.key, left.result, left.who) == (job.uuid, "k", 7, "bert")
        assert [failure.text for failure in left.errors] == ["no luck"]
        assert list(other.trashed()) == []
        assert other.post("resize", key="k").created

    def test_outcome_is_no_job_on_the_board(self, keeper: JobBoard, other: JobBoard) -> None:
        job = done(keeper, 1, key="k")
        seen = other.get(job.uuid)
        assert (seen, seen.seen_state, seen.state, job.state, other.find_owner(seen)) == (job, *[COMPLETE] * 3, None)
        assert (other.job_count, list(other.iterjobs()), list(other.trashed())) == (0, [], [])
        assert (other.stats().on_board, other.stats().trashed) == (0, 0)
        assert other.claim_next("anna") is None
        acts: dict[str, Callable[[], object]] = {
            "claim": lambda: other.claim(seen, "anna"),
            "extend": lambda: other.extend(seen, "anna"),
            "consume": lambda: other.consume(seen, "anna"),
            "release": lambda: other.release(seen),
            "cancel": lambda: other.cancel(seen),
            "restore": lambda: other.restore(seen),
            "expires_in": seen.expires_in,
        }
        for act in acts.values():
            with pytest.raises(NotFound):
                act()
        assert other.post("resize", key="k") != job
        assert uuids(other.outcomes()) == [job.uuid]

    def test_no_outcome_without_keep_done(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        board.consume(job, "anna")
        assert list(other.outcomes()) == []
        for handle in (job, other):
            with pytest.raises(NotFound):
                handle.result() if isinstance(handle, Job) else handle.get(job.uuid)

    def test_consume_alone_leaves_an_outcome(self, keeper: JobBoard) -> None:
        for end in ("abandon", "trash"):
            keeper.post("resize")
            keeper.finish_many([Act(take(keeper), end)], "anna")
        [job] = keeper.iterjobs()
        keeper.cancel(job)
        assert list(keeper.outcomes()) == []

    @pytest.mark.parametrize("by_name", [False, True])
    def test_lapsed_claim_and_claim_by_name_leave_an_outcome(self, keeper: JobBoard, by_name: bool) -> None:
        job = keeper.post("resize")
        if by_name:
            keeper.claim(job, "anna", LONG)
            keeper.consume(keeper.get(job.uuid), "anna", result="a")
        else:
            let_lapse(keeper, job)
            keeper.consume(job, "anna", result="a")
        [left] = keeper.outcomes()
        assert (left.who, left.result, left.attempts) == ("anna", "a", 1)

    def test_batch_leaves_outcomes(self, keeper: JobBoard) -> None:
        jobs = keeper.post_many([Posting("resize")] * 6)
        keeper.claim_many("anna", 6)
        mine = [keeper.get(job.uuid) for job in jobs]
        keeper.consume_many(mine[:2], "anna")
        keeper.finish_many([Act(job, "consume", result=number) for number, job in enumerate(mine[2:])], "anna")
        assert [job.result(0) for job in jobs] == [None, None, 0, 1, 2, 3]

    @holds("More outcomes than one request can hold are listed.")
    def test_more_than_one_request_can_hold(self, keeper: JobBoard) -> None:
        details, result = {"a": "x" * 40_000}, "y" * 60_000
        jobs = keeper.post_many([Posting("resize", details=details)] * 12)
        keeper.finish_many([Act(job, "consume", result=result) for job in keeper.claim_many("anna", 12)], "anna")
        left = list(keeper.outcomes())
        assert {each.uuid for each in left} == set(uuids(jobs))
        assert all((each.details, each.result) == (details, result) for each in left)

    def test_outcomes_are_listed_by_name(self, keeper: JobBoard) -> None:
        for name in "abab":
            keeper.post(name)
            keeper.consume(take(keeper), "anna")
        assert [left.name for left in keeper.outcomes(names=["a"])] == ["a", "a"]
        with pytest.raises(TypeError):
            keeper.outcomes(names="a")
        with pytest.raises(TypeError, match="Outcome"):
            keeper.outcomes(after="x")  # type: ignore[arg-type]

    def test_the_newest_first_page_by_page(self, keeper: JobBoard, other: JobBoard) -> None:
        jobs = keeper.post_many([Posting("resize")] * 250)
        # Whole batches end at one instant.
        while claimed := keeper.claim_many("anna", 100):
            keeper.consume_many(claimed, "anna")
        seen = list(other.outcomes())
        assert {left.uuid for left in seen} == set(uuids(jobs))
        assert len(seen) == 250
        instants = [left.ended_on for left in seen]
        assert instants == sorted(instants, reverse=True)
        behind = itertools.islice(other.outcomes(after=seen[99]), 3)
        assert uuids(behind) == uuids(seen[100:103])


class TestResults:
    def test_waiting_poster_gets_the_result(self, keeper: JobBoard, other: JobBoard) -> None:
        job = other.post("resize")
        waiting = Background(lambda: other.get(job.uuid).result(LIMIT))
        keeper.consume(take(keeper), "anna", result="done")
        assert waiting.wait() == "done"

    def test_result_of_an_unconsumed_job_raises(self, keeper: JobBoard) -> None:
        job = keeper.post("resize")
        with pytest.raises(TimeoutError, match=job.uuid):
            job.result(0)
        keeper.cancel(job)
        with pytest.raises(JobTrashed):
            job.result()

    def test_result_is_stored_unchanged(self, keeper: JobBoard) -> None:
        for result in (0, False, "", [], {}, "x" * 60_000, {"ö" * 20_000: -(2**63)}, [[[[1.5]]]]):
            assert repr(done(keeper, result).result()) == repr(result)


class TestKeptOutcomes:
    def test_an_answer_that_is_given_again(self, keeper: JobBoard, other: JobBoard) -> None:
        job = keeper.post("resize")
        keeper.claim(job, "anna")
        with Harness(keeper).lost_reply():
            keeper.consume(job, "anna", result="once")
        assert [(left.job, left.result) for left in other.outcomes()] == [(job, "once")]

    @holds("An end that is refused leaves no outcome.")
    def test_refused_consume_leaves_no_outcome(self, keeper: JobBoard, other: JobBoard) -> None:
        job = keeper.post("resize")
        keeper.claim(job, "anna")
        other.release(job)
        with pytest.raises(JobFailure):
            keeper.consume(job, "anna", result=1)
        assert list(keeper.outcomes()) == []

    @holds("An outcome is invisible once its time is over.")
    def test_outcome_is_gone_after_keep_done(self, keeper: JobBoard, make_board: MakeBoard) -> None:
        kept = done(keeper, "long")
        brief = make_board(keep_done=SHORT)
        job = done(brief, "brief")
        eventually(lambda: uuids(keeper.outcomes()) == [kept.uuid], LIMIT)
        with pytest.raises(NotFound):
            keeper.get(job.uuid)
        with pytest.raises(NotFound, match="keep_done"):
            job.result()
        Harness(keeper).tidy()
        assert uuids(keeper.outcomes()) == [kept.uuid]
        assert kept.result() == "long"

    def test_boards_of_other_names_do_not_see_it(self, keeper: JobBoard, make_board: MakeBoard) -> None:
        job = done(keeper)
        elsewhere = make_board("elsewhere", keep_done=LONG)
        assert list(elsewhere.outcomes()) == []
        with pytest.raises(NotFound):
            elsewhere.get(job.uuid)
