"""Events: what the notifier tells, to whom, and what a broken listener can't break."""

from __future__ import annotations

from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, EventLog, claim_one, let_lapse, take


class TestEvents:
    any_driver = True

    def test_each_act_of_a_job_is_reported(self, board: JobBoard) -> None:
        events = EventLog(board)
        job = claim_one(board)
        board.extend(job, "anna", LONG)
        board.abandon(job, "anna")
        board.claim(job, "anna")
        board.release(job)
        board.cancel(job)
        board.restore(job)
        taken = take(board)
        board.trash(taken, "anna")
        board.restore(taken)
        board.consume(take(board), "anna")
        events.expect(
            job,
            *("POSTED", "CLAIMED", "EXTENDED", "ABANDONED", "CLAIMED", "RELEASED"),
            *("TRASHED", "REMOVAL", "POSTED", "CLAIMED", "TRASHED", "REMOVAL", "POSTED"),
            *("CLAIMED", "CONSUMED", "REMOVAL"),
        )

    def test_acts_of_a_batch_are_reported(self, board: JobBoard) -> None:
        events = EventLog(board)
        jobs = board.post_many([Posting("resize", key=f"k{n}") for n in range(3)])
        board.post("resize", key="k0")  # posts nothing
        board.consume_many(board.claim_many("anna", 3), "anna")
        for job in jobs:
            events.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")

    def test_an_abandon_that_uses_the_attempts_up(self, board: JobBoard) -> None:
        job = board.post("resize", max_attempts=1)
        events = EventLog(board)
        board.abandon(take(board), "anna")
        events.expect(job, "CLAIMED", "TRASHED", "REMOVAL")

    def test_a_lapse_that_uses_the_attempts_up(self, board: JobBoard) -> None:
        job = board.post("resize", max_attempts=1)
        let_lapse(board, job)
        events = EventLog(board)
        assert board.claim_next("bert") is None  # this sweeps
        events.expect(job, "TRASHED", "REMOVAL")

    def test_refused_act_is_not_reported(self, board: JobBoard) -> None:
        job = board.post("resize")
        taken = take(board)
        events = EventLog(board)
        for act in (
            lambda: board.claim(job, "bert"),
            lambda: board.consume(job, "bert"),
            lambda: board.restore(job),
            lambda: board.cancel(job),
        ):
            with pytest.raises(Exception, match="Job"):
                act()
        board.consume(taken, "anna")
        events.expect(job, "CONSUMED", "REMOVAL")

    @holds("A board hears what other processes do.")
    def test_acts_of_another_handle_are_reported(self, board: JobBoard, other: JobBoard) -> None:
        """The board reports another handle's acts if it says so. Each act waits for the report of the one
        before: a board that compares lists misses a job that comes and goes between two lists."""
        reported = Harness(board).store.traits.reported_events
        assert bool(reported) is board.characteristics.remote_events
        events = EventLog(board)
        expected: dict[str, list[str]] = {}

        def heard(job: Job, *happened: str) -> None:
            told = expected.setdefault(job.uuid, [])
            told += [event for event in happened if event in reported]
            eventually(lambda: events.of(job) == told, LIMIT)

        job = other.post("resize")
        heard(job, "POSTED")
        other.claim(job, "anna", LONG)
        heard(job, "CLAIMED")
        other.extend(job, "anna", LONG)
        heard(job, "EXTENDED")
        other.abandon(job, "anna")
        heard(job, "ABANDONED")
        other.claim(job, "anna")
        heard(job, "CLAIMED")
        other.release(job)
        heard(job, "RELEASED")
        other.claim(job, "anna")
        heard(job, "CLAIMED")
        other.consume(job, "anna")
        heard(job, "CONSUMED", "REMOVAL")
        bad = other.post("bad")
        heard(bad, "POSTED")
        other.cancel(bad)
        heard(bad, "TRASHED", "REMOVAL")
        other.restore(bad)
        heard(bad, "POSTED")
        mine = board.post("mine")
        other.cancel(bad)
        heard(bad, "TRASHED", "REMOVAL")
        events.expect(mine, "POSTED")
        board.consume(take(board), "anna")
        heard(other.post("resize"), "POSTED")
        events.expect(mine, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")
        assert {uuid: events.of(uuid) for uuid in expected} == expected

    def test_a_listener_may_use_the_board(self, board: JobBoard) -> None:
        def follow(event: str, details: dict[str, Any]) -> None:
            if details["job"].name == "first":
                board.post("second")

        board.notifier.register("POSTED", follow)
        board.post("first")
        assert take(board, names=["second"], timeout=LIMIT)

    def test_close_delivers_what_is_queued(self, board: JobBoard) -> None:
        events = EventLog(board)
        job = board.post("resize", delay=SHORT)
        board.close()
        assert events.of(job) == ["POSTED"]
        board.connect()
        again = board.post("resize")
        events.expect(again, "POSTED")
