"""Claims, one or many at once, of small and of large jobs: each job is claimed once, and a refusal changes nothing."""

from __future__ import annotations

import contextlib
import gc
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure, JobFailures, NotFound, UnclaimableJob
from jobboard.job import Act, Claim, Job, Posting
from jobboard.primitives import BATCH, End
from jobboard.states import CLAIMED, COMPLETE, CONSUME, SCHEDULED, TRASHED, UNCLAIMED, Verb
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, claim_one, take, uuids
from jobboard.tracing import NO_TRACING, Tracing


class TestClaiming:
    def test_claim(self, board: JobBoard) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        assert isinstance(claim, Claim)
        assert claim is job.claim
        assert (claim.who, claim.job, claim.uuid, claim.lost) == ("anna", job, job.uuid, False)
        assert type(claim.token) is int
        assert claim.token > 0
        assert (job.attempts, job.seen_state, job.state) == (1, CLAIMED, CLAIMED)
        assert board.find_owner(job) == "anna"
        assert board.get(job.uuid).attempts == 1
        assert job.last_modified >= job.created_on

    def test_claim_next(self, board: JobBoard) -> None:
        posted = board.post("resize", details={"a": 1})
        job = board.claim_next("anna")
        assert job == posted
        assert job is not None
        assert job.claim is not None
        assert (job.claim.who, job.details, job.attempts, job.seen_state) == ("anna", {"a": 1}, 1, CLAIMED)
        assert board.find_owner(posted) == "anna"
        assert board.claim_next("anna") is None
        assert board.claim_many("anna", 5) == []

    def test_claim_many_takes_jobs_in_order(self, board: JobBoard) -> None:
        posted = board.post_many([Posting("resize")] * 250)
        some = board.claim_many("anna", 3)
        assert uuids(some) == uuids(posted[:3])
        rest = board.claim_many("bert", 1000)
        assert uuids(rest) == uuids(posted[3:])
        assert all(job.claim is not None and job.claim.who == "bert" and job.attempts == 1 for job in rest)
        assert board.claim_many("anna", 1) == []
        board.consume_many(some, "anna")
        board.consume_many(rest, "bert")
        assert board.job_count == 0

    def test_claim_takes_jobs_of_its_names_alone(self, board: JobBoard) -> None:
        jobs = {name: board.post(name) for name in ("a", "b", "c", "d")}
        assert board.claim_next("anna", names=["x"]) is None
        assert board.claim_next("anna", names=["c"]) == jobs["c"]
        assert board.claim_many("anna", 9, names=("d", "b", "x", "b")) == [jobs["b"], jobs["d"]]
        assert board.claim_next("anna", names=["b", "c", "d"]) is None
        assert board.claim_next("anna", names={"a"}) == jobs["a"]

    def test_one_of_several_claims_of_a_job_succeeds(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(4)]

        def try_to(board: JobBoard, uuid: str) -> bool:
            try:
                board.claim(board.get(uuid), "anna")
            except UnclaimableJob:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                job = boards[0].post("resize")
                assert sum(pool.map(try_to, boards, [job.uuid] * 4)) == 1

    @holds("Many threads of one handle claim no job twice.")
    def test_handle_serves_many_threads(self, board: JobBoard) -> None:
        board.post_many([Posting("resize")] * 40)

        def drain(who: str) -> int:
            done = 0
            while (job := board.claim_next(who)) is not None or (job := board.claim_next(who)) is not None:
                board.consume(job, who)
                done += 1
            return done

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(drain, ["anna", "bert", "cleo", "dora"])) == 40
        assert board.job_count == 0

    @holds("A claim that cannot be handed to its caller is given back.")
    @pytest.mark.parametrize(("claim", "expiry"), [("claim", LONG), ("claim_many", None)])
    def test_jobs_that_the_caller_does_not_get_are_given_back(
        self, board: JobBoard, claim: str, expiry: float | None
    ) -> None:
        """Jobs of an earlier request of the same call are given back, too."""
        jobs = board.post_many([Posting("resize")] * (1 if claim == "claim" else BATCH + 1))

        class Failing(Tracing):
            def claimed(self, job: Job, since: float) -> None:
                if job == jobs[-1]:
                    raise ValueError("nobody listens")

        board.tracing = Failing()
        args: dict[str, tuple[Any, ...]] = {"claim": (jobs[0], "anna"), "claim_many": ("anna", len(jobs))}
        with pytest.raises(ValueError, match="nobody listens"):
            getattr(board, claim)(*args[claim], expiry=expiry)
        assert board.stats().unclaimed == len(jobs)
        assert {job.attempts for job in board.iterjobs(ensure_fresh=True)} == {0}
        board.tracing = NO_TRACING
        assert len(board.claim_many("bert", len(jobs))) == len(jobs)

    def test_a_dropped_job_object_releases_nothing(self, board: JobBoard) -> None:
        job = board.post("resize")
        taken = board.claim_next("anna")
        assert taken is not None
        del taken
        gc.collect()
        assert board.find_owner(job) == "anna"
        assert board.claim_next("bert") is None


class TestHandles:
    """A handle without a claim of its own is checked by the owner's name, one with a claim by its token."""

    any_driver = True

    def test_another_handle_acts_by_the_owners_name(self, board: JobBoard, other: JobBoard) -> None:
        job = claim_one(board)
        other.extend(other.get(job.uuid), "anna", LONG)
        assert job.expires_in() == pytest.approx(LONG, abs=60)
        other.abandon(other.get(job.uuid), "anna", delay=LONG, error="later")
        assert (job.state, job.error) == (SCHEDULED, "later")

    @holds("An act on a board refuses a job of another board, and the refusal is not taken for the loss of the claim.")
    def test_another_board_refuses_the_job_and_spares_its_claim(self, board: JobBoard, make_board: MakeBoard) -> None:
        """The other board has no such job, and says nothing of its claim."""
        elsewhere = make_board("elsewhere")
        board.post("resize")
        job = take(board)
        for handle in (job, board.get(job.uuid)):
            for verb in ("consume", "trash", "abandon", "extend"):
                with pytest.raises(NotFound, match=elsewhere.name) as failure:
                    getattr(elsewhere, verb)(handle, "anna")
                assert board.name in str(failure.value)
            with pytest.raises(NotFound):
                elsewhere.release(handle)
        assert job.claim is not None
        assert not job.claim.lost
        assert board.find_owner(job) == "anna"
        board.consume(job, "anna")

    def test_another_who_is_refused_before_the_server_is_asked(self, board: JobBoard) -> None:
        job = claim_one(board)
        before = Harness(board).record(job)
        for verb in ("consume", "trash", "abandon", "extend"):
            with pytest.raises(JobFailure, match=r"'anna'.*'bert'") as failure:
                getattr(board, verb)(job, "bert")
            assert not isinstance(failure.value, ClaimLost), verb
            assert failure.value.job is job
        assert Harness(board).record(job) == before

    @holds("A claim's own verbs and the board's verbs have the same outcomes.")
    def test_the_verbs_of_a_claim(self, board: JobBoard) -> None:
        jobs = board.post_many([Posting("resize")] * 3)
        for job, verb in zip(jobs, ("consume", "trash", "abandon"), strict=True):
            claim = board.claim(job, "anna")
            claim.extend(LONG)
            assert job.expires_in() == pytest.approx(LONG, abs=60)
            getattr(claim, verb)()
        assert [job.state for job in jobs] == [COMPLETE, TRASHED, UNCLAIMED]

    def test_extend_expiry(self, board: JobBoard) -> None:
        job = board.post("resize")
        with pytest.raises(JobFailure, match="extend"):
            job.extend_expiry(LONG)
        board.claim(job, "anna")
        with pytest.raises(JobFailure):
            board.get(job.uuid).extend_expiry(LONG)
        assert job.expires_in() is None
        assert job.extend_expiry(LONG) is True
        assert job.expires_in() == pytest.approx(LONG, abs=60)


class TestManyAtOnce:
    def test_consume_many(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 230)
        jobs = board.claim_many("anna", 230)
        other.release(other.get(jobs[3].uuid))
        with pytest.raises(JobFailures) as failures:
            board.consume_many(jobs, "anna")
        assert isinstance(failures.value, JobFailure)
        assert isinstance(failures.value, ExceptionGroup)
        [failure] = failures.value.exceptions
        assert isinstance(failure, ClaimLost)
        assert failure.job is jobs[3]
        assert uuids(board.iterjobs()) == [jobs[3].uuid]
        board.consume_many([], "anna")

    @holds("A job that stands twice in a batch is finished once.")
    def test_job_that_stands_twice_is_ended_once(self, board: JobBoard) -> None:
        board.post("resize")
        [job] = board.claim_many("anna", 2)
        with pytest.raises(JobFailures) as failures:
            board.consume_many([job, job], "anna")
        assert [type(failure) for failure in failures.value.exceptions] == [NotFound]
        assert job.state == COMPLETE

    @holds("Two claims of one job in a batch are judged each by its own token.")
    @holds("A consume of a lost claim is never reported as done because another claim of the job was consumed.")
    @pytest.mark.parametrize("lost", [False, True])
    def test_later_claim_of_a_job_counts(self, board: JobBoard, lost: bool) -> None:
        """Only the later claim counts, also in the answer to a repetition."""
        for verb, order in itertools.product((Verb.CONSUME, Verb.ABANDON), (1, -1)):
            handle = board.post("resize", priority="HIGH")
            former = take(board)
            board.release(handle)
            latter = take(board)
            assert handle == former == latter
            acts = [Act(job, verb) for job in (former, latter)][::order]
            reply = Harness(board).lost_reply() if lost else contextlib.nullcontext()
            with reply, pytest.raises(JobFailures) as failures:
                board.finish_many(acts, "anna")
            [failure] = failures.value.exceptions
            assert isinstance(failure, ClaimLost | NotFound)
            assert failure.job is former
            assert latter.state == {"consume": COMPLETE, "abandon": UNCLAIMED}[verb]
            if verb == Verb.ABANDON:
                board.cancel(handle)

    @holds("Two claims of one job in a batch are judged each by its own token.")
    @pytest.mark.parametrize("lost", [False, True])
    def test_job_by_name_and_by_claim_is_ended_once(self, board: JobBoard, lost: bool) -> None:
        for order in (1, -1):
            board.post("resize")
            job = take(board)
            handles = [board.get(job.uuid), job][::order]
            reply = Harness(board).lost_reply() if lost else contextlib.nullcontext()
            with reply, pytest.raises(JobFailures) as failures:
                board.consume_many(handles, "anna")
            [failure] = failures.value.exceptions
            assert isinstance(failure, ClaimLost | NotFound)
            assert failure.job is handles[1]

    def test_finish_many(self, board: JobBoard) -> None:
        posted = board.post_many([Posting("resize")] * 6)
        jobs = board.claim_many("anna", 5)
        stranger = board.claim_many("bert", 1)[0]
        board.release(board.get(jobs[4].uuid))
        acts = [
            Act(jobs[0], "consume"),
            Act(jobs[1], "abandon", delay=LONG, error="later"),
            Act(jobs[4], "consume"),
            Act(stranger, "consume"),
            Act(jobs[2], "trash", error="never"),
            Act(jobs[3], "abandon"),
        ]
        with pytest.raises(JobFailures) as failures:
            board.finish_many(acts, "anna")
        kinds = {getattr(failure, "job"): type(failure) for failure in failures.value.exceptions}  # noqa: B009
        assert kinds == {jobs[4]: ClaimLost, stranger: JobFailure}
        states = [board.get(job.uuid).seen_state for job in posted[1:]]
        assert states == [SCHEDULED, TRASHED, UNCLAIMED, UNCLAIMED, CLAIMED]
        assert posted[0].state == COMPLETE
        assert [board.get(job.uuid).error for job in posted[1:4]] == ["later", "never", None]


DETAILS = {"picture": "x" * 60_000}


def post(board: JobBoard, number: int, **arguments: object) -> list[Job]:
    return board.post_many([Posting("resize", details=DETAILS, **arguments) for _ in range(number)])  # type: ignore[arg-type]


class TestSizes:
    any_driver = True

    def test_large_jobs_due_together_delay_no_small_one(self, board: JobBoard) -> None:
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
        returned = codec.returned(large, 850_000, Harness(board).calls.wire)
        assert board.end_claims([(other, End(CONSUME, result=returned))], "anna") == [None]
        assert other.state == COMPLETE
        if fits:
            assert other.result() == large
        else:
            with pytest.raises(NotFound, match="details and the result take 16"):
                other.result()
