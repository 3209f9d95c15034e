"""What a job remembers of its failures: the last ten, each with its time, whose attempt it was, and a text."""

from __future__ import annotations

import datetime

import pytest

from jobboard.board import JobBoard
from jobboard.job import Act, Job
from jobboard.states import EXHAUSTED, FAILURE_BYTES, TRASHED, moment
from jobboard.testing.conformance.support import let_lapse, take, trash_one

ASIDE = datetime.timedelta(minutes=1)
"""By how much this machine's clock may differ from the server's."""


def told(job: Job) -> list[tuple[str | None, int, str]]:
    return [failure[1:] for failure in job.errors]


class TestErrors:
    """``error=`` and ``reason=`` take whatever a failure brings along."""

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ("", ""),
            ("plain", "plain"),
            ("a\x00b", "a\ufffdb"),
            ("lone \ud800 surrogate", "lone ? surrogate"),
            ("\U0001f980 'quoted' \"too\" %s \\ \r\n\t\x1b[31m", "\U0001f980 'quoted' \"too\" %s \\ \r\n\t\x1b[31m"),
            ("x" * 100_000 + "the end", ("x" * 100_000 + "the end")[-16 * 1024 :]),
            ("\x00" * 100_000, "\ufffd" * (16 * 1024 // 3)),
            ("é" * 50_000, "é" * (8 * 1024)),
            ("y" + "é" * 50_000 + "z", "é" * (8 * 1024 - 1) + "z"),
        ],
        ids=["empty", "plain", "nul", "surrogate", "odd", "long", "nuls", "wide", "cut within a character"],
    )
    def test_kept(self, board: JobBoard, given: str, kept: str) -> None:
        job = board.post("resize")
        abandoned = take(board)
        board.abandon(abandoned, "anna", error=given)
        assert abandoned.error == board.get(job.uuid).error == kept
        board.trash(take(board), "anna", reason=given)
        assert board.get(job.uuid).error == kept
        cancelled = board.post("resize")
        board.cancel(cancelled, reason=given)
        assert (board.get(cancelled.uuid).error or "") == kept

    def test_without_a_new_one_the_last_stays(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.abandon(take(board), "anna", error="first")
        assert take(board).error == "first"
        board.abandon(board.get(job.uuid), "anna")
        assert board.get(job.uuid).error == "first"
        board.abandon(take(board), "anna", error="second")
        assert board.get(job.uuid).error == "second"


class TestFailures:
    def test_each_is_told_with_its_attempt(self, board: JobBoard) -> None:
        before = board.engine.now()
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
        assert moment(before) <= times[0]
        assert times[-1] == found.last_modified
        board.restore(found)
        board.cancel(board.get(job.uuid), reason="after all")
        again = board.get(job.uuid)
        assert told(again) == [*told_now, (None, 0, "after all")]
        assert again.error == "after all"

    def test_who_ends_a_claim_knows_them_at_once(self, board: JobBoard, other: JobBoard) -> None:
        board.post("resize")
        abandoned = take(board)
        board.abandon(abandoned, "anna", error="first")
        trashed = take(board)
        theirs = other.get(trashed.uuid)
        other.abandon(theirs, "anna", error="second")
        assert told(theirs) == [("anna", 1, "first"), ("anna", 2, "second")]
        trashed = take(board)
        board.trash(trashed, "anna", reason="third")
        assert told(abandoned) == [("anna", 1, "first")]
        assert told(trashed) == told(board.get(trashed.uuid)) == [*told(theirs), ("anna", 3, "third")]
        assert abs(trashed.errors[-1].when - board.get(trashed.uuid).errors[-1].when) < ASIDE

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
        expected = [[("anna", 1, EXHAUSTED)], [(None, 1, EXHAUSTED)], [("anna", 1, "broken")]]
        assert [told(job) for job in found] == expected
        assert found[0].errors[0].when == found[0].last_modified
        # And once a sweep has written it down.
        assert board.claim_next("bert") is None
        assert [told(board.get(job.uuid)) for job in found] == expected
        assert board.get(lapsed.uuid).errors == found[0].errors

    def test_the_last_ten(self, board: JobBoard) -> None:
        job = board.post("resize", max_attempts=20)
        for number in range(12):
            board.abandon(take(board), "anna", error=f"{number}")
        assert told(board.get(job.uuid)) == [("anna", number + 1, f"{number}") for number in range(2, 12)]

    def test_so_much_text(self, board: JobBoard) -> None:
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

    def test_in_the_trash_and_on_pages(self, board: JobBoard) -> None:
        trash_one(board)
        board.post("resize")
        board.abandon(take(board), "anna", error="broken")
        [trashed], [live] = list(board.trashed()), list(board.iterjobs())
        assert (told(trashed), told(live)) == ([("anna", 1, "no use")], [("anna", 1, "broken")])
