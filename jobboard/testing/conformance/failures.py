"""Failures: a lost reply is not a lost job, and a broken posting harms nobody."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobBoardError, JobFailure, NotFound, UnclaimableJob
from jobboard.job import Job, Posting
from jobboard.primitives import Draft, End, Finish, Nonce
from jobboard.priorities import JobPriority
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED, Holder, Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    SHORT,
    Background,
    EventLog,
    MakeBoard,
    first_call,
    lost_reply,
    plant,
    record_of,
    replaced,
    take,
    trash_one,
    uuids,
)


class TestLostReplies:
    """The request was carried out, its reply got lost, and the library asks again."""

    any_driver = True

    def test_post(self, board: JobBoard) -> None:
        with lost_reply(board, "insert"):
            job = board.post("resize", details={"a": 1}, key="k")
        assert uuids(board.iterjobs()) == [job.uuid]
        assert board.get(job.uuid).details == job.details == {"a": 1}
        with lost_reply(board, "insert"):
            assert board.post("resize", key="k").uuid == job.uuid
        assert board.job_count == 1

    def test_post_of_a_job_that_is_consumed_meanwhile(self, board: JobBoard, other: JobBoard) -> None:
        with lost_reply(board, "insert", lambda: other.consume(take(other), "anna")):
            job = board.post("resize")
        assert job.state == COMPLETE
        assert board.job_count == 0

    def test_post_many(self, board: JobBoard) -> None:
        with lost_reply(board, "insert"):
            jobs = board.post_many([Posting("resize", key=f"k{n % 40}") for n in range(60)])
        assert board.job_count == 40
        assert uuids(board.iterjobs()) == uuids(jobs[:40])
        assert uuids(jobs[40:]) == uuids(jobs[:20])

    def test_post_tells_its_listeners_once(self, board: JobBoard) -> None:
        events = EventLog(board)
        with lost_reply(board, "insert"):
            job = board.post("resize")
        events.expect(job, "POSTED")

    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_claim(self, board: JobBoard, expiry: float | None) -> None:
        job = board.post("resize")
        with lost_reply(board, "claim"):
            claim = board.claim(job, "anna", expiry)
        record = record_of(board, job)
        assert record is not None
        assert (record.token, record.attempts, record.who) == (claim.token, 1, "anna")
        assert not claim.lost
        board.consume(job, "anna")

    def test_claim_that_was_refused(self, board: JobBoard, other: JobBoard) -> None:
        """What the first try changed nothing about may be tried afresh; the answer is true either way."""
        job = board.post("resize")
        taken = take(other, "bert")
        owner = None
        with lost_reply(board, "claim", lambda: other.abandon(taken, "bert")), contextlib.suppress(UnclaimableJob):
            owner = board.claim(job, "anna").who
        assert board.find_owner(job) == owner

    @pytest.mark.parametrize("then", ["lapsed", "taken"])
    def test_claim_that_has_lapsed_meanwhile(self, board: JobBoard, other: JobBoard, then: str) -> None:
        job = board.post("resize")

        def lapse() -> None:
            eventually(lambda: other.find_owner(other.get(job.uuid)) is None, LIMIT)
            if then == "taken":
                take(other, "anna")

        with lost_reply(board, "claim", lapse), pytest.raises(ClaimLost):
            board.claim(job, "anna", expiry=SHORT)
        assert job.state == (CLAIMED if then == "taken" else UNCLAIMED)

    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_claim_next(self, board: JobBoard, expiry: float | None) -> None:
        posted = board.post_many([Posting("resize")] * 3)
        with lost_reply(board, "take"):
            job = take(board, expiry=expiry)
        assert job == posted[0]
        assert uuids(board.iterjobs(states=[CLAIMED])) == [job.uuid]
        assert job.attempts == board.get(job.uuid).attempts == 1
        board.consume(job, "anna")

    @pytest.mark.parametrize("then", ["lapsed", "taken"])
    def test_claim_next_takes_another_for_one_that_has_lapsed(
        self, board: JobBoard, other: JobBoard, then: str
    ) -> None:
        first, second = board.post_many([Posting("resize")] * 2)

        def lapse() -> None:
            eventually(lambda: other.find_owner(other.get(first.uuid)) is None, LIMIT)
            if then == "taken":
                assert take(other, "bert") == first

        with lost_reply(board, "take", lapse):
            job = take(board, expiry=SHORT)
        assert job == (second if then == "taken" else first)

    def test_claim_many(self, board: JobBoard) -> None:
        posted = board.post_many([Posting("resize")] * 7)
        with lost_reply(board, "take"):
            jobs = board.claim_many("anna", 5)
        assert jobs == posted[:5]
        assert board.stats().claimed == 5
        board.consume_many(jobs, "anna")
        assert board.job_count == 2

    def test_claim_many_in_serving_order(self, board: JobBoard) -> None:
        posted = board.post_many([Posting("resize", priority=priority) for priority in ("LOW", "NORMAL", "HIGH")])
        with lost_reply(board, "take"):
            jobs = board.claim_many("anna", 3)
        assert jobs == posted[::-1]

    @pytest.mark.parametrize(
        ("verb", "arguments", "state"),
        [
            ("consume", {}, COMPLETE),
            ("abandon", {}, UNCLAIMED),
            ("abandon", {"delay": LONG, "error": "later"}, SCHEDULED),
            ("trash", {"reason": "no use"}, TRASHED),
        ],
    )
    def test_the_ends_of_a_claim(self, board: JobBoard, verb: str, arguments: dict[str, Any], state: str) -> None:
        events = EventLog(board, {"consume": "CONSUMED", "abandon": "ABANDONED", "trash": "TRASHED"}[verb])
        job = board.post("resize")
        board.claim(job, "anna")
        with lost_reply(board, "finish"):
            getattr(board, verb)(job, "anna", **arguments)
        assert job.state == state
        assert job.attempts == 1
        assert job.claim is not None
        assert not job.claim.lost
        events.expect(job, {"consume": "CONSUMED", "abandon": "ABANDONED", "trash": "TRASHED"}[verb])

    @pytest.mark.parametrize("verb", ["consume", "abandon"])
    def test_an_end_that_another_follows(self, board: JobBoard, other: JobBoard, verb: str) -> None:
        """By name, a repeated act would hit the next claim of the same owner."""
        job = board.post("resize")
        board.claim(job, "anna")
        by_name = board.get(job.uuid)

        def again() -> None:
            if verb == "abandon":
                take(other, "anna")

        with lost_reply(board, "finish", again):
            getattr(board, verb)(by_name, "anna")
        assert job.state == (CLAIMED if verb == "abandon" else COMPLETE)

    def test_consume_many(self, board: JobBoard) -> None:
        board.post_many([Posting("resize")] * 5)
        jobs = board.claim_many("anna", 5)
        with lost_reply(board, "finish"):
            board.consume_many(jobs, "anna")
        assert board.job_count == 0

    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_extend(self, board: JobBoard, expiry: float | None) -> None:
        job = board.post("resize")
        board.claim(job, "anna", 2 * LONG)
        with lost_reply(board, "extend"):
            board.extend(job, "anna", expiry)
        assert job.expires_in() == (expiry and pytest.approx(expiry, abs=60))

    def test_release(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        with lost_reply(board, "operate", lambda: take(other, "bert")):
            board.release(job)
        assert board.find_owner(job) == "bert"  # the repetition did not hit the next claim
        assert job.attempts == 2

    def test_cancel(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        with lost_reply(board, "operate", lambda: other.restore(other.get(job.uuid))):
            board.cancel(job)
        assert job.state == UNCLAIMED

    def test_restore(self, board: JobBoard, other: JobBoard) -> None:
        job = trash_one(board, key="k")
        with lost_reply(board, "operate", lambda: take(other, "bert")):
            board.restore(job)
        assert board.find_owner(job) == "bert"

    def test_purge(self, board: JobBoard) -> None:
        job = trash_one(board)
        with lost_reply(board, "operate"):
            board.purge(job)
        assert board.stats().trashed == 0

    def test_close(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 3)
        board.claim_many("anna", 3)
        with lost_reply(board, "finish"):
            board.close()
        assert [(job.seen_state, job.attempts) for job in other.iterjobs(ensure_fresh=True)] == [(UNCLAIMED, 0)] * 3

    def test_several_times_in_a_row(self, board: JobBoard) -> None:
        board.post_many([Posting("resize")] * 3)
        tries: list[int] = []

        def lose_twice(original: Callable[..., Any], *args: Any) -> Any:
            answer = original(*args)
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionFailure("the connection broke", outcome="unknown")
            return answer

        with replaced(board, "take", lose_twice):
            take(board)
        assert len(tries) == 3
        assert board.stats().claimed == 1

    def test_calls_in_between_keep_their_answers_apart(self, board: JobBoard) -> None:
        """While one call waits to be repeated, others of the same handle go on."""
        board.post_many([Posting("resize")] * 30)
        others: list[Job] = []

        def meanwhile() -> None:
            for _ in range(5):
                others.extend(Background(lambda: board.claim_many("bert", 2)).wait())

        with lost_reply(board, "take", meanwhile):
            mine = board.claim_many("anna", 3)
        assert len({*mine, *others}) == 13
        assert board.stats().claimed == 13
        board.consume_many(mine, "anna")
        board.consume_many(others, "bert")


class TestLateRequests:
    """A first try that was held up on the way must not do again what its repetition has done."""

    any_driver = True

    @pytest.mark.parametrize("gone_on", [False, True])
    def test_insert(self, board: JobBoard, gone_on: bool) -> None:
        first = first_call()
        retry = first._replace(attempt=2)
        posting = codec.encode(codec.Content({}, None), board.engine.wire)
        draft = Draft("00000000-0000-4000-8000-00000000abcd", "late", 0, None, codec.VERSION, posting, None, None, None)
        board.engine.raw.insert([draft], retry)
        board.consume(take(board), "anna")
        if gone_on:
            next_draft = draft._replace(uuid="00000000-0000-4000-8000-00000000abce", name="next")
            board.engine.raw.insert([next_draft], first._replace(call=2))
            board.consume(take(board), "anna")
        with pytest.raises(JobBoardError) if gone_on else contextlib.nullcontext():
            board.engine.raw.insert([draft], first)
        assert board.job_count == 0

    @pytest.mark.parametrize("gone_on", [False, True])
    def test_take(self, board: JobBoard, gone_on: bool) -> None:
        board.post_many([Posting("resize")] * 4)
        first = first_call()
        board.engine.raw.take("anna", 1, None, None, codec.VERSION, first._replace(attempt=2))
        if gone_on:
            board.engine.raw.take("anna", 1, None, None, codec.VERSION, first._replace(call=2))
        with pytest.raises(JobBoardError) if gone_on else contextlib.nullcontext():
            board.engine.raw.take("anna", 1, None, None, codec.VERSION, first)
        assert board.stats().claimed == 1 + gone_on

    @pytest.mark.parametrize(
        ("primitive", "gone_on"),
        # Without a later call an extend is carried out again, which does no harm to a claim that still stands.
        [(verb, gone_on) for verb in ("claim", "finish", "release") for gone_on in (False, True)] + [("extend", True)],
    )
    def test_acts_on_one_job(self, board: JobBoard, primitive: str, gone_on: bool) -> None:
        """The late request is about a job that its owner, of the same name, has claimed again meanwhile."""
        job, another = board.post("resize"), board.post("crop")
        by_name = Holder("anna", None)
        acts: dict[str, Callable[[str, Nonce], Any]] = {
            "claim": lambda uuid, nonce: board.engine.raw.claim(uuid, "anna", None, nonce),
            "finish": lambda uuid, nonce: board.engine.raw.finish([Finish(uuid, by_name, End(Verb.ABANDON))], nonce),
            "extend": lambda uuid, nonce: board.engine.raw.extend(uuid, by_name, 1_000_000_000, nonce),
            "release": lambda uuid, nonce: board.engine.raw.operate(Verb.RELEASE, uuid, None, nonce),
        }
        act, first = acts[primitive], first_call()
        if primitive != "claim":
            board.claim(job, "anna")
            board.claim(another, "anna")
        act(job.uuid, first._replace(attempt=2))
        if gone_on:
            act(another.uuid, first._replace(call=2))
        theirs = board.get(job.uuid)
        if primitive == "claim":
            board.abandon(theirs, "anna")
        elif primitive == "extend":
            board.extend(theirs, "anna")
        else:
            board.claim(theirs, "anna")
        before = record_of(board, job)
        with pytest.raises(JobBoardError) if gone_on else contextlib.nullcontext():
            act(job.uuid, first)
        assert record_of(board, job) == before


class TestUnreachable:
    def test_retries_that_run_out(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0.2)
        job = board.post("resize")
        board.claim(job, "anna")
        outcomes: list[str] = []

        def fail(original: Callable[..., Any], *args: Any) -> Any:
            raise ConnectionFailure("the connection broke", outcome=outcomes.pop(0) if outcomes else "none")  # type: ignore[arg-type]

        for told, expected in ((["none"], "none"), (["unknown"], "unknown"), (["none", "unknown", "none"], "unknown")):
            outcomes[:] = told
            with replaced(board, "finish", fail), pytest.raises(ConnectionFailure) as failure:
                board.consume(job, "anna")
            assert failure.value.outcome == expected
            assert job.state == CLAIMED
            assert job.claim is not None
            assert not job.claim.lost
        board.consume(job, "anna")  # the handle still stands

    def test_reading(self, make_board: MakeBoard) -> None:
        board = make_board()
        job = board.post("resize")
        broken: list[int] = []

        def fail_once(original: Callable[..., Any], *args: Any) -> Any:
            if not broken:
                broken.append(1)
                raise ConnectionFailure("the connection broke")
            return original(*args)

        looks: dict[str, Callable[[], bool]] = {
            "read": lambda: board.get(job.uuid) == job,
            "page": lambda: list(board.iterjobs()) == [job],
            "tally": lambda: board.job_count == 1,
            "peek": lambda: list(board.wait(0)) == [job],
        }
        for primitive, look in looks.items():
            broken.clear()
            with replaced(board, primitive, fail_once):
                assert look()
            assert broken

    def test_no_retry_once_closed(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=60)
        failing: list[int] = []

        def fail(original: Callable[..., Any], *args: Any) -> Any:
            failing.append(1)
            raise ConnectionFailure("the connection broke")

        with replaced(board, "tally", fail):
            call = Background(lambda: board.job_count)
            eventually(lambda: failing, LIMIT)
            board.close()
            with pytest.raises(ConnectionFailure):
                call.wait()


class TestPoison:
    """Postings that can't be decoded, and those of a newer version."""

    @staticmethod
    def broken(board: JobBoard) -> list[bytes | str]:
        return (
            [b"\xc1", b"", b"\x01", b"\x80"] if board.engine.wire == "msgpack" else ["[]", "{}", '"x"', '{"details":1}']
        )

    def test_a_claim_moves_it_to_the_trash(self, board: JobBoard) -> None:
        planted = [plant(board, posting) for posting in self.broken(board)]
        events = EventLog(board)
        good = board.post("resize", priority=JobPriority.LOW)
        assert take(board) == good
        assert board.claim_next("anna") is None
        assert board.stats().trashed == len(planted)
        trashed = list(board.trashed())
        assert sorted(uuids(trashed)) == sorted(planted)
        assert all(job.error and "decoded" in job.error and job.details == {} for job in trashed)
        for uuid in planted:
            events.expect(uuid, "TRASHED", "REMOVAL")

    def test_within_a_batch(self, board: JobBoard) -> None:
        board.post_many([Posting("resize", priority="VERY_HIGH")] * 2)
        plant(board, self.broken(board)[0])
        board.post_many([Posting("resize")] * 2)
        assert len(board.claim_many("anna", 4)) == 4
        assert board.stats().trashed == 1

    def test_one_that_can_not_be_trashed_takes_no_other_with_it(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0)
        first = board.post("resize")
        plant(board, self.broken(board)[0])
        jobs = [first, board.post("resize")]

        def fail(*args: Any, **extra: Any) -> Any:
            raise ConnectionFailure("away")

        with replaced(board, "finish", fail):
            assert board.claim_many("anna", 3) == jobs
        board.consume_many(jobs, "anna")
        assert board.job_count == 1

    def test_reading_skips_it_with_a_warning(self, board: JobBoard, caplog: pytest.LogCaptureFixture) -> None:
        uuid = plant(board, self.broken(board)[0])
        good = board.post("resize")
        with caplog.at_level(logging.WARNING, "jobboard"):
            assert uuids(board.iterjobs()) == [good.uuid]
        assert uuid in caplog.text
        assert board.job_count == 2
        with pytest.raises(JobFailure, match="decoded"):
            board.get(uuid)
        assert board.stats().trashed == 0  # looking moves nothing

    def test_examining_shows_them(self, board: JobBoard) -> None:
        good = board.post("resize", key="k")
        board.claim(good, "anna", expiry=LONG)
        board.post_many([Posting("resize", delay=LONG), Posting("resize")])
        # How a server of the tests is set up is no concern of this.
        usual = list(board.examine())
        assert all("job" not in odd.place for odd in usual)
        broken = plant(board, self.broken(board)[0])
        newer = plant(board, self.broken(board)[0], version=codec.VERSION + 1)
        found = [odd for odd in board.examine() if odd not in usual]
        assert sorted(odd.place for odd in found) == sorted([f"job {broken}", f"job {newer}"])
        assert all(odd.reason and odd.advice for odd in found)
        assert board.stats().trashed == 0

    def test_a_newer_version_is_skipped_and_does_not_block(
        self, board: JobBoard, caplog: pytest.LogCaptureFixture
    ) -> None:
        newer = [plant(board, self.broken(board)[0], version=codec.VERSION + 1) for _ in range(3)]
        good = board.post("resize", priority=JobPriority.VERY_LOW)
        assert board.claim_many("anna", 5) == [good]
        assert board.claim_next("anna", names=["poison"]) is None
        assert board.stats().unclaimed == 3
        with caplog.at_level(logging.WARNING, "jobboard"):
            assert uuids(board.iterjobs()) == [good.uuid]
        assert newer[0] in caplog.text
        with pytest.raises(JobFailure, match="newer"):
            board.get(newer[0])
        with pytest.raises(NotFound):
            board.wait(0)
        assert list(board.trashed()) == []
        board.consume(good, "anna")
        assert board.job_count == 3

    def test_more_newer_ones_than_a_page(self, board: JobBoard) -> None:
        posting = self.broken(board)[0]
        drafts = [
            Draft(f"00000000-0000-4000-9000-{n:012d}", "newer", 0, None, codec.VERSION + 1, posting, None, None, None)
            for n in range(501)
        ]
        board.engine.raw.insert(drafts[:500], first_call())
        board.engine.raw.insert(drafts[500:], first_call())
        good = board.post("resize", priority="LOW")
        assert uuids(board.iterjobs()) == [good.uuid]
        assert take(board) == good
