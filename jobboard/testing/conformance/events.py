"""Events: what the notifier tells, to whom, and what a broken listener can't break."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, EventLog, let_lapse, take


class TestEvents:
    any_driver = True

    def test_of_a_jobs_life(self, board: JobBoard) -> None:
        events = EventLog(board)
        job = board.post("resize")
        board.claim(job, "anna")
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

    def test_of_many_at_once(self, board: JobBoard) -> None:
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

    def test_refused_acts_tell_nothing(self, board: JobBoard) -> None:
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

    def test_a_single_event(self, board: JobBoard) -> None:
        consumed = EventLog(board, "CONSUMED")
        everything = EventLog(board)
        job = board.post("resize")
        board.consume(take(board), "anna")
        everything.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")
        consumed.expect(job, "CONSUMED")

    def test_what_others_do(self, board: JobBoard, other: JobBoard) -> None:
        """The acts of another handle are reported as far as the board says so. Each act waits for the report of the one
        before: a board that compares lists misses a job that comes and goes between two lists."""
        reported = board.engine.raw.reported_events
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

    def test_a_broken_listener(self, board: JobBoard, caplog: pytest.LogCaptureFixture) -> None:
        def broken(event: str, details: dict[str, Any]) -> None:
            raise ValueError("a bug of the listener's")

        board.notifier.register("*", broken)
        events = EventLog(board)
        with caplog.at_level(logging.ERROR, "jobboard"):
            job = board.post("resize")
            board.consume(take(board), "anna")
            events.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")
        assert "a bug of the listener's" in caplog.text

    def test_a_slow_listener_holds_nobody_up(self, board: JobBoard) -> None:
        go_on, threads = threading.Event(), set()

        def slow(event: str, details: dict[str, Any]) -> None:
            threads.add(threading.current_thread())
            go_on.wait(LIMIT)

        board.notifier.register("*", slow)
        events = EventLog(board)
        job = board.post("resize")
        board.consume(take(board), "anna")
        assert events.of(job) == []
        go_on.set()
        events.expect(job, "POSTED", "CLAIMED", "CONSUMED", "REMOVAL")
        assert len(threads) == 1
        assert threading.current_thread() not in threads

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
