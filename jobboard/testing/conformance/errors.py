"""Failures of a job: the last ten, each with its time, worker, attempt and text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.job import Act, ClaimedJob, Job
from jobboard.outcomes import Reject, Retry
from jobboard.states import CLAIMED, EXHAUSTED, FAILURE_BYTES, LAPSED, TRASHED, UNCLAIMED, Failure
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LONG, MakeBoard, let_lapse, take


def told(job: Job) -> list[tuple[str | None, int, str]]:
    return [failure[1:4] for failure in job.errors]


class TestErrors:
    """``error=`` and ``reason=`` take whatever a failure brings along."""

    def test_error_is_stored_as_far_as_it_fits(self, board: JobBoard) -> None:
        for given, kept in (
            ("", ""),
            ("plain", "plain"),
            ("a\x00b", "a\ufffdb"),
            ("lone \ud800 surrogate", "lone ? surrogate"),
            ("\U0001f980 'quoted' \"too\" %s \\ \r\n\t\x1b[31m", "\U0001f980 'quoted' \"too\" %s \\ \r\n\t\x1b[31m"),
            ("x" * 100_000 + "the end", ("x" * 100_000 + "the end")[-16 * 1024 :]),
            ("\x00" * 100_000, "\ufffd" * (16 * 1024 // 3)),
            ("é" * 50_000, "é" * (8 * 1024)),
            ("y" + "é" * 50_000 + "z", "é" * (8 * 1024 - 1) + "z"),
        ):
            job = board.post("resize")
            abandoned = take(board)
            board.abandon(abandoned, "anna", error=given)
            assert abandoned.error == board.get(job.uuid).error == kept
            board.trash(take(board), "anna", reason=given)
            assert board.get(job.uuid).error == kept
            cancelled = board.post("resize")
            board.cancel(cancelled, reason=given)
            assert (board.get(cancelled.uuid).error or "") == kept

    @holds("An end without a new error keeps the last error.")
    def test_last_error_stays_without_a_new_one(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.abandon(take(board), "anna", error="first")
        assert take(board).error == "first"
        board.abandon(board.get(job.uuid), "anna")
        assert board.get(job.uuid).error == "first"
        board.abandon(take(board), "anna", error="second")
        assert board.get(job.uuid).error == "second"


class TestFailures:
    @holds("A job remembers its last ten failures, each with its attempt and time.")
    def test_each_failure_is_shown_with_its_attempt(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.abandon(take(board), "anna", error="first")
        board.claim(board.get(job.uuid), "bert")
        board.release(job, reason="it hangs")
        board.finish_many([Act(take(board), "abandon", error="later", retry=True)], "anna")
        board.claim(board.get(job.uuid), "bert")
        board.trash(board.get(job.uuid), "bert", reason="no use")
        found = board.get(job.uuid)
        told_now = [("anna", 1, "first"), (None, 2, "it hangs"), ("anna", 3, "later"), ("bert", 3, "no use")]
        assert told(found) == told_now
        times = [failure.when for failure in found.errors]
        assert times == sorted(times)
        assert job.created_on <= times[0]
        assert times[-1] == found.last_modified
        board.restore(found)
        board.cancel(board.get(job.uuid), reason="after all")
        again = board.get(job.uuid)
        assert told(again) == [*told_now, (None, 0, "after all")]
        assert again.error == "after all"

    def test_the_end_of_the_last_attempt(self, board: JobBoard) -> None:
        lapsed = board.post("resize", max_attempts=1)
        let_lapse(board, lapsed)
        released = board.post("resize", max_attempts=1)
        board.claim(released, "anna")
        board.release(released)
        told_before = board.post("resize", max_attempts=2)
        board.abandon(take(board), "anna", error="broken")
        let_lapse(board, board.get(told_before.uuid))
        found = [board.get(job.uuid) for job in (lapsed, released, told_before)]
        assert [job.seen_state for job in found] == [TRASHED] * 3
        expected = [[("anna", 1, EXHAUSTED)], [(None, 1, EXHAUSTED)]]
        expected.append([("anna", 1, "broken"), ("anna", 2, EXHAUSTED)])
        assert [told(job) for job in found] == expected
        assert found[0].errors[0].when == found[0].last_modified
        # And once a sweep has written it down.
        assert board.claim_next("bert") is None
        assert [told(board.get(job.uuid)) for job in found] == expected
        assert board.get(lapsed.uuid).errors == found[0].errors

    @holds("The remembered failures of a job are bounded in bytes.")
    def test_oldest_failures_go_at_the_size_limit(self, board: JobBoard) -> None:
        job = board.post("resize")
        whole, half = "\N{CRAB}" * (FAILURE_BYTES // 4), "\N{CRAB}" * (FAILURE_BYTES // 8)
        for text, kept in (
            ("first", ["first"]),
            (half, ["first", half]),
            (half, [half, half]),
            ("", [half, half, ""]),
            ("x", [half, "", "x"]),
            (whole, [whole]),
            ("last", ["last"]),
        ):
            board.abandon(take(board), "anna", error=text)
            assert [failure.text for failure in board.get(job.uuid).errors] == kept


SWEEPS: dict[str, Callable[[JobBoard, Job], object]] = {
    "a claim of another job": lambda board, job: take(board, "bert", names=["later"]),
    "a claim of the job": lambda board, job: board.claim(board.get(job.uuid), "bert"),
    "a post that frees the key": lambda board, job: board.post("resize", key="k").created,
    "a post that replaces": lambda board, job: (
        board.post("resize", details={"a": 1}, key="k", on_key="replace").replaced
    ),
}
"""Acts that write a lapse down."""


ATTEMPTS: dict[str, Callable[[ClaimedJob], object]] = {}


def _attempt(work: Callable[[ClaimedJob], object]) -> Callable[[ClaimedJob], object]:
    ATTEMPTS[work.__name__] = work
    return work


@_attempt
def error(job: ClaimedJob) -> None:
    raise OSError("no space")


@_attempt
def retry(job: ClaimedJob) -> None:
    raise Retry("busy")


@_attempt
def rejected(job: ClaimedJob) -> None:
    raise Reject("no image")


@_attempt
def timeout(job: ClaimedJob) -> None:
    # A thread cannot be stopped.
    eventually(lambda: job.claim.lost or job.claim.ended)


class TestKinds:
    """The kind of each failure is stored, and no text decides anything."""

    @holds("Each failure is stored with its kind.")
    @pytest.mark.parametrize("workers", ["threads", "processes"])
    @pytest.mark.parametrize("kind", ATTEMPTS)
    def test_a_conductor_stores_the_kind(
        self, board: JobBoard, kind: str, workers: Literal["threads", "processes"]
    ) -> None:
        job = board.post("resize")
        limit = 0.5 if kind == "timeout" else None
        Conductor("anna", board, ATTEMPTS[kind], workers=workers, job_timeout=limit).run(max_dispatches=1)
        [failure] = board.get(job.uuid).errors
        assert failure[1:3] == ("anna", 1)
        assert failure.kind == kind

    @holds("Each failure is stored with its kind.")
    def test_holders_and_operators_store_the_kind(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.abandon(take(board), "anna", error="broken")
        board.finish_many([Act(take(board), "abandon", error="later", retry=True)], "anna")
        let_lapse(board, board.get(job.uuid))
        board.claim(board.get(job.uuid), "anna")
        board.release(job, reason="it hangs")
        board.cancel(board.get(job.uuid), reason="not now")
        board.restore(board.get(job.uuid), reason="now")
        board.trash(take(board), "anna", reason="no use")
        kinds = ["error", "retry", "lapse", "released", "cancelled", "restored", "rejected"]
        assert [failure.kind for failure in board.get(job.uuid).errors] == kinds
        last = board.post("resize", max_attempts=1)
        let_lapse(board, last)
        assert [failure.kind for failure in board.get(last.uuid).errors] == ["exhausted"]
        assert board.claim_next("bert") is None
        assert [failure.kind for failure in board.get(last.uuid).errors] == ["exhausted"]

    @holds("Each failure is stored with its kind.")
    def test_kind_of_a_posting_that_cannot_be_decoded(self, board: JobBoard) -> None:
        Harness(board).plant()
        assert board.claim_next("anna") is None
        [job] = board.trashed()
        assert [failure.kind for failure in job.errors] == ["poison"]

    @holds("The reason of a restore stands among the failures, and is no error of the job.")
    def test_reason_of_a_restore_is_no_error(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        board.cancel(job, reason="not now")
        board.restore(job, reason="now")
        found = other.get(job.uuid)
        assert [(failure.who, failure.text, failure.kind) for failure in found.errors] == [
            (None, "not now", "cancelled"),
            (None, "now", "restored"),
        ]
        assert found.error == "not now"

    @holds("Each failure is stored with its kind.")
    def test_outcome_keeps_the_kinds(self, make_board: MakeBoard) -> None:
        board = make_board(keep_done=LONG)
        job = board.post("resize")
        let_lapse(board, job)
        board.consume(take(board), "anna")
        assert [failure.kind for failure in board.outcome(job).errors] == ["lapse"]

    @holds("An unknown kind of a failure stays as it is stored, and a damaged kind reads as an error.")
    @pytest.mark.parametrize(("stored", "read"), [("newer", "newer"), (3, "error"), (None, "error"), ([], "error")])
    def test_unknown_kind_stays_and_a_damaged_kind_reads_as_an_error(
        self, board: JobBoard, stored: Any, read: str
    ) -> None:
        harness = Harness(board)
        draft = harness.arrival()
        assert draft.arrival is not None
        failures = (Failure(1, "bert", 1, "it broke", stored),)
        record = harness.arrive(draft._replace(arrival=draft.arrival._replace(errors=failures)))
        harness.free(record)
        for job in (board.get(record.uuid), take(board)):
            assert [(each.text, each.kind) for each in job.errors] == [("it broke", read)]
        board.abandon(job, "anna", error="again")
        assert [each.kind for each in board.get(record.uuid).errors] == [read, "error"]


class TestLapseErrors:
    """A lapse is a failure of the attempt. Reads show the failure before and after a sweep writes the lapse down."""

    @holds("A lapse of a claim is a failure of the job, with its time, holder and attempt, before and after a sweep.")
    def test_a_lapse_is_one_of_the_errors(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        let_lapse(board, job)
        seen = other.get(job.uuid)
        assert (seen.seen_state, told(seen), seen.error) == (UNCLAIMED, [("anna", 1, LAPSED)], LAPSED)
        assert job.created_on < seen.errors[0].when <= board.post("later").created_on
        listed, _ = other.iterjobs()
        taken = take(board, "bert")
        assert (taken, taken.attempts) == (job, 2)
        found = [each.errors for each in (listed, taken, other.get(job.uuid))]
        assert found == [seen.errors] * 3

    @pytest.mark.parametrize("act", SWEEPS)
    def test_act_that_writes_a_lapse_down_keeps_and_logs_it(
        self, board: JobBoard, other: JobBoard, caplog: pytest.LogCaptureFixture, act: str
    ) -> None:
        job = board.post("resize", key="k", max_attempts=1 if "frees" in act else None)
        board.post("later")
        let_lapse(board, job)
        seen = other.get(job.uuid).errors
        assert len(seen) == 1
        assert SWEEPS[act](board, job)
        written = f"job {job.uuid}: the claim of 'anna', attempt 1, has lapsed"
        [told] = [message for message in caplog.messages if message.startswith(written)]
        assert ("the job goes to the trash" in told) == ("frees" in act)
        assert other.get(job.uuid).errors == seen

    @holds("Lapses use up attempts, those of dead workers included.")
    def test_lapses_use_the_attempts_up(self, board: JobBoard) -> None:
        job = board.post("resize", max_attempts=3)
        for _ in range(3):
            let_lapse(board, board.get(job.uuid))
        found = board.get(job.uuid)
        expected = [("anna", 1, LAPSED), ("anna", 2, LAPSED), ("anna", 3, EXHAUSTED)]
        assert (found.seen_state, told(found)) == (TRASHED, expected)
        assert board.claim_next("bert") is None
        assert board.get(job.uuid).errors == found.errors
        [trashed] = board.trashed()
        assert trashed.errors == found.errors

    @holds("A holder that extends its lapsed claim before a sweep leaves no lapse in the errors.")
    @pytest.mark.parametrize("swept", [False, True])
    def test_extension_leaves_a_lapse_only_after_a_sweep(self, board: JobBoard, other: JobBoard, swept: bool) -> None:
        job, _ = board.post_many([{"name": "resize"}, {"name": "later"}])
        let_lapse(board, job)
        if swept:
            take(other, "bert", names=["later"])
        board.extend(job, "anna", LONG)
        found = other.get(job.uuid)
        assert (found.seen_state, told(found)) == (CLAIMED, [("anna", 1, LAPSED)] if swept else [])

    def test_an_end_after_the_lapse(self, make_board: MakeBoard) -> None:
        board, other = make_board(keep_done=LONG), make_board()
        abandoned, trashed, consumed = board.post_many({"name": name} for name in "abc")
        for job in (abandoned, trashed, consumed):
            let_lapse(board, job)
        board.abandon(abandoned, "anna", error="late")
        board.trash(trashed, "anna", reason="no use")
        board.consume(consumed, "anna")
        assert told(other.get(abandoned.uuid)) == [("anna", 1, LAPSED), ("anna", 1, "late")]
        assert told(other.get(trashed.uuid)) == [("anna", 1, LAPSED), ("anna", 1, "no use")]
        outcome = other.outcome(consumed)
        assert ([failure[1:4] for failure in outcome.errors], outcome.workers) == ([("anna", 1, LAPSED)], ("anna",))
