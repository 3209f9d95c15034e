"""Claiming: who gets what, once, and what is refused without a change."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure, JobFailures, NotFound, UnclaimableJob
from jobboard.job import Act, Claim, Job, Posting
from jobboard.primitives import BATCH
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing.conformance.support import LONG, MakeBoard, lost_reply, record_of, take, trash_one, uuids
from jobboard.tracing import NO_TRACING, Tracing

BAD_WHO: list[tuple[Any, type[Exception]]] = [
    (1, TypeError),
    (None, TypeError),
    (b"anna", TypeError),
    ("", ValueError),
    ("an\nna", ValueError),
    ("\ud800", ValueError),
    ("x" * 256, ValueError),
]

BAD_EXPIRY: list[tuple[Any, type[Exception]]] = [
    (0, ValueError),
    (-1, ValueError),
    (float("nan"), ValueError),
    (float("inf"), ValueError),
    ("1", TypeError),
    (True, TypeError),
]


class TestClaiming:
    def test_claim(self, board: JobBoard) -> None:
        job = board.post("resize")
        before = board.engine.raw.now()
        claim = board.claim(job, "anna")
        assert isinstance(claim, Claim)
        assert claim is job.claim
        assert (claim.who, claim.job, claim.uuid, claim.lost) == ("anna", job, job.uuid, False)
        assert type(claim.token) is int
        assert claim.token > 0
        assert (job.attempts, job.seen_state, job.state) == (1, CLAIMED, CLAIMED)
        assert board.find_owner(job) == "anna"
        assert board.get(job.uuid).attempts == 1
        record = record_of(board, job)
        assert record is not None
        assert record.modified_on >= before

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

    @pytest.mark.parametrize("who", ["anna", "bert"])
    def test_a_claimed_job_can_not_be_claimed(self, board: JobBoard, other: JobBoard, who: str) -> None:
        job = board.post("resize")
        board.claim(job, "anna", expiry=LONG)
        before = record_of(board, job)
        for claimer, handle in ((board, job), (board, board.get(job.uuid)), (other, other.get(job.uuid))):
            with pytest.raises(UnclaimableJob):
                claimer.claim(handle, who, expiry=2 * LONG)
            with pytest.raises(UnclaimableJob):
                claimer.claim(handle, who)
        assert record_of(board, job) == before  # the lease neither
        board.consume(job, "anna")

    def test_a_scheduled_job_can_not_be_claimed(self, board: JobBoard) -> None:
        job = board.post("resize", delay=LONG)
        before = record_of(board, job)
        with pytest.raises(UnclaimableJob):
            board.claim(job, "anna")
        assert record_of(board, job) == before
        assert job.claim is None

    def test_what_is_not_on_the_board_can_not_be_claimed(self, board: JobBoard) -> None:
        consumed, trashed, purged = board.post("a"), trash_one(board), trash_one(board)
        board.consume(take(board), "anna")
        board.purge(purged)
        for job in (consumed, trashed, purged):
            with pytest.raises(NotFound):
                board.claim(job, "anna")
        assert (consumed.state, trashed.state, purged.state) == (COMPLETE, TRASHED, TRASHED)

    def test_many(self, board: JobBoard) -> None:
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

    def test_names(self, board: JobBoard) -> None:
        jobs = {name: board.post(name) for name in ("a", "b", "c", "d")}
        assert board.claim_next("anna", names=["x"]) is None
        assert board.claim_next("anna", names=["c"]) == jobs["c"]
        assert board.claim_many("anna", 9, names=("d", "b", "x", "b")) == [jobs["b"], jobs["d"]]
        assert board.claim_next("anna", names=["b", "c", "d"]) is None
        assert board.claim_next("anna", names={"a"}) == jobs["a"]

    def test_at_the_same_time(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(4)]
        boards[0].post_many([Posting("resize")] * 60)

        def drain(board: JobBoard) -> list[tuple[str, int]]:
            taken = []
            while (job := board.claim_next("anna")) is not None or (job := board.claim_next("anna")) is not None:
                assert job.claim is not None
                taken.append((job.uuid, job.claim.token))
            return taken

        with ThreadPoolExecutor(4) as pool:
            taken = [each for some in pool.map(drain, boards) for each in some]
        assert len(taken) == len({uuid for uuid, _ in taken}) == 60

    def test_one_job_at_the_same_time(self, make_board: MakeBoard) -> None:
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

    def test_one_handle_from_many_threads(self, board: JobBoard) -> None:
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

    @pytest.mark.parametrize("claim", ["claim", "claim_many"])
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_what_is_not_handed_out_is_given_back(self, board: JobBoard, claim: str, expiry: float | None) -> None:
        """Also what was claimed by a request before that after which something has failed."""
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


class TestArguments:
    any_driver = True

    def test_who(self, board: JobBoard) -> None:
        free, job = board.post("free"), board.post("resize")
        board.claim(job, "anna")
        before = record_of(board, job)
        acts: list[Callable[[Any], object]] = [
            lambda who: board.claim(free, who),
            board.claim_next,
            lambda who: board.claim_many(who, 1),
            lambda who: board.extend(job, who),
            lambda who: board.abandon(job, who),
            lambda who: board.consume(job, who),
            lambda who: board.trash(job, who),
            lambda who: board.consume_many([job], who),
            lambda who: board.finish_many([Act(job, "consume")], who),
            lambda who: board.working(who, timeout=0).__enter__(),
        ]
        for act, (who, kind) in itertools.product(acts, BAD_WHO):
            with pytest.raises(kind):
                act(who)
        assert record_of(board, job) == before
        assert free.state == UNCLAIMED

    def test_expiry(self, board: JobBoard) -> None:
        free, job = board.post("free"), board.post("resize")
        claim = board.claim(job, "anna")
        before = record_of(board, job)
        acts: list[Callable[[Any], object]] = [
            lambda expiry: board.claim(free, "anna", expiry),
            lambda expiry: board.claim_next("anna", expiry=expiry),
            lambda expiry: board.claim_many("anna", 1, expiry=expiry),
            lambda expiry: board.extend(job, "anna", expiry),
            claim.extend,
        ]
        for act, (expiry, kind) in itertools.product(acts, BAD_EXPIRY):
            with pytest.raises(kind, match="expiry"):
                act(expiry)
        assert record_of(board, job) == before
        assert free.state == UNCLAIMED

    def test_of_claim_next(self, board: JobBoard) -> None:
        job = board.post("resize")
        bad: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"names": "resize"}, TypeError, r"\['resize'\]"),
            ({"names": b"resize"}, TypeError, "bytes"),
            ({"names": [1]}, TypeError, "int"),
            ({"names": []}, ValueError, "empty"),
            ({"names": [""]}, ValueError, "empty"),
            ({"names": 5}, TypeError, "iterable"),
            ({"timeout": -1}, ValueError, "timeout"),
            ({"timeout": float("nan")}, ValueError, "timeout"),
            ({"timeout": "1"}, ValueError, "timeout"),
            ({"flavour": 1}, TypeError, "flavour"),
        ]
        for arguments, kind, match in bad:
            with pytest.raises(kind, match=match):
                board.claim_next("anna", **arguments)
            with pytest.raises(kind, match=match):
                board.claim_many("anna", 1, **arguments)
            if "names" in arguments:
                with pytest.raises(kind, match=match):
                    board.iterjobs(**arguments)
        assert job.state == UNCLAIMED

    def test_limit(self, board: JobBoard) -> None:
        bad: list[tuple[Any, type[Exception]]] = [
            (0, ValueError),
            (-1, ValueError),
            (1.0, TypeError),
            (True, TypeError),
        ]
        for limit, kind in bad:
            with pytest.raises(kind, match="limit"):
                board.claim_many("anna", limit)

    def test_unknown_arguments_of_other_verbs(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        for verb in (board.consume, board.abandon, board.trash):
            with pytest.raises(TypeError, match="flavour"):
                verb(job, "anna", flavour=1)
        assert job.state == CLAIMED

    @pytest.mark.parametrize("delay", [-1, float("nan"), "1", True])
    def test_delay_of_abandon(self, board: JobBoard, delay: Any) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        acts: list[Callable[[], object]] = [
            lambda: board.abandon(job, "anna", delay=delay),
            lambda: claim.abandon(delay=delay),
            lambda: board.finish_many([Act(job, "abandon", delay=delay)], "anna"),
        ]
        for act in acts:
            with pytest.raises((TypeError, ValueError), match="delay"):
                act()
        assert job.state == CLAIMED

    def test_error_is_a_str(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        with pytest.raises(TypeError, match="str"):
            board.abandon(job, "anna", error=ValueError("x"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="str"):
            board.trash(job, "anna", reason=b"x")  # type: ignore[arg-type]
        assert job.state == CLAIMED


class TestHandles:
    """A handle without a claim of its own is checked by the owner's name, one with a claim by its token."""

    any_driver = True

    def test_another_handle_of_the_owner(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        other.extend(other.get(job.uuid), "anna", LONG)
        assert job.expires_in() == pytest.approx(LONG, abs=60)
        other.abandon(other.get(job.uuid), "anna", delay=LONG, error="later")
        assert (job.state, job.error) == (SCHEDULED, "later")

    @pytest.mark.parametrize("verb", ["consume", "trash", "abandon", "extend"])
    def test_on_another_board(self, board: JobBoard, make_board: MakeBoard, verb: str) -> None:
        """It has none of these jobs, and says nothing of a claim."""
        elsewhere = make_board("elsewhere")
        board.post("resize")
        job = take(board)
        with pytest.raises(NotFound, match=elsewhere.name) as failure:
            getattr(elsewhere, verb)(job, "anna")
        assert board.name in str(failure.value)
        assert job.claim is not None
        assert not job.claim.lost
        assert board.find_owner(job) == "anna"
        board.consume(job, "anna")

    @pytest.mark.parametrize("verb", ["consume", "trash", "abandon", "extend"])
    def test_somebody_elses(self, board: JobBoard, verb: str) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        before = record_of(board, job)
        with pytest.raises(JobFailure) as failure:
            getattr(board, verb)(board.get(job.uuid), "bert")
        assert not isinstance(failure.value, (ClaimLost, UnclaimableJob))
        assert record_of(board, job) == before

    @pytest.mark.parametrize("verb", ["consume", "trash", "abandon", "extend"])
    def test_another_who_is_refused_before_the_server_is_asked(self, board: JobBoard, verb: str) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        before = record_of(board, job)
        with pytest.raises(JobFailure, match=r"'anna'.*'bert'") as failure:
            getattr(board, verb)(job, "bert")
        assert not isinstance(failure.value, ClaimLost)
        assert failure.value.job is job
        assert record_of(board, job) == before

    @pytest.mark.parametrize("verb", ["consume", "trash", "abandon", "extend"])
    def test_an_unclaimed_job(self, board: JobBoard, verb: str) -> None:
        free, later, trashed, absent = board.post("a"), board.post("b", delay=LONG), trash_one(board), board.post("c")
        handles = [board.get(job.uuid) for job in (free, later, trashed, absent)]
        board.consume(take(board, names=["c"]), "anna")
        for handle in handles:
            before = record_of(board, handle)
            with pytest.raises(NotFound):
                getattr(board, verb)(handle, "anna")
            assert record_of(board, handle) == before

    def test_after_its_own_end(self, board: JobBoard) -> None:
        consumed, trashed, abandoned = board.post("a"), board.post("b"), board.post("c")
        for job, verb in ((consumed, "consume"), (trashed, "trash"), (abandoned, "abandon")):
            claim = board.claim(job, "anna")
            getattr(claim, verb)()
            assert not claim.lost
        for job in (consumed, abandoned):
            for verb in ("consume", "trash", "abandon", "extend"):
                with pytest.raises(NotFound):
                    getattr(board, verb)(job, "anna")
        with pytest.raises(ClaimLost):  # that it was this handle which put it there is not known any more
            board.consume(trashed, "anna")

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

    def test_a_job_that_stands_twice(self, board: JobBoard) -> None:
        board.post("resize")
        [job] = board.claim_many("anna", 2)
        with pytest.raises(JobFailures) as failures:
            board.consume_many([job, job], "anna")
        assert [type(failure) for failure in failures.value.exceptions] == [NotFound]
        assert job.state == COMPLETE

    @pytest.mark.parametrize("verb", ["consume", "abandon", "trash"])
    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize("lost", [False, True])
    def test_two_claims_of_one_job(self, board: JobBoard, verb: str, order: int, lost: bool) -> None:
        """The later one alone counts, also in the answer to a repetition."""
        handle = board.post("resize")
        former = take(board)
        board.release(handle)
        latter = take(board)
        acts = [Act(job, verb) for job in (former, latter)][::order]
        reply = lost_reply(board, "finish") if lost else contextlib.nullcontext()
        with reply, pytest.raises(JobFailures) as failures:
            board.finish_many(acts, "anna")
        [failure] = failures.value.exceptions
        assert isinstance(failure, ClaimLost | NotFound)
        assert failure.job is former
        assert latter.state == {"consume": COMPLETE, "abandon": UNCLAIMED, "trash": TRASHED}[verb]

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize("lost", [False, True])
    def test_by_name_and_by_claim(self, board: JobBoard, order: int, lost: bool) -> None:
        board.post("resize")
        job = take(board)
        handles = [board.get(job.uuid), job][::order]
        reply = lost_reply(board, "finish") if lost else contextlib.nullcontext()
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

    @pytest.mark.parametrize("verb", ["claim", "release", "extend", "nonsense"])
    def test_verbs_that_end_no_claim(self, board: JobBoard, verb: str) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        with pytest.raises(ValueError, match=verb):
            board.finish_many([Act(job, verb)], "anna")
        assert job.state == CLAIMED

    def test_jobs_in_place_of_acts(self, board: JobBoard) -> None:
        board.post("resize")
        job = take(board)
        with pytest.raises(TypeError, match=r"Act\(job, 'consume'\), and not a Job"):
            board.finish_many([job], "anna")  # type: ignore[list-item]
        assert board.find_owner(job) == "anna"
