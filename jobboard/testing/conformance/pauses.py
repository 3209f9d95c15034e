"""Jobs that are paused: nobody gets a claim of them, and whatever is claimed already goes on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError, UnclaimableJob
from jobboard.job import Posting
from jobboard.primitives import Paused
from jobboard.states import CLAIMED, COMPLETE, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.interleavings import at_each_request
from jobboard.testing.conformance.races import Journal
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    PATIENCE,
    SHORT,
    MakeBoard,
    Waiter,
    let_lapse,
    take,
    until_free,
    uuids,
)
from jobboard.testing.conformance.wire import Wire
from jobboard.testing.history import judge
from jobboard.testing.recording import left_on

WORKERS = 3

TURNS = 6


class TestPause:
    def test_paused_name_is_not_claimed(self, board: JobBoard, other: JobBoard) -> None:
        first, second, third = (board.post(name) for name in ("mail", "resize", "mail"))
        board.pause(["mail"])
        for each in (board, other):
            assert each.paused() == Paused(False, ("mail",))
            assert "mail" in each.paused()
            assert "resize" not in each.paused()
            assert each.claim_next("anna", names=["mail"]) is None
        assert uuids(other.claim_many("anna", 5)) == [second.uuid]
        assert board.claim_many("anna", 5) == []
        other.resume(["mail"])
        assert not board.paused()
        assert uuids(board.claim_many("anna", 5)) == [first.uuid, third.uuid]

    def test_pause_of_everything_stops_claims(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("mail")
        board.pause()
        assert other.paused() == Paused(True, ())
        assert "mail" in other.paused()
        assert board.claim_next("anna") is None
        assert other.claim_next("anna", names=["mail"]) is None
        assert other.post("mail").state == UNCLAIMED
        other.resume()
        assert board.paused() == Paused()
        assert take(board) == job

    @holds("A pause of everything is a flag beside the paused names.")
    def test_a_pause_of_everything_is_a_flag_beside_the_paused_names(self, board: JobBoard) -> None:
        job = board.post("mail")
        board.pause(["mail", "resize"])
        board.pause()
        board.resume(["mail"])
        assert board.paused() == Paused(True, ("resize",))
        assert board.claim_next("anna") is None
        board.resume()
        assert board.paused() == Paused()
        assert take(board) == job

    @holds("A claim is decided by one gate, whatever other threads of its board have seen.")
    @holds("No claim takes a paused job once pause() has returned.")
    def test_another_handle_obeys_a_pause_at_once(self, board: JobBoard, other: JobBoard) -> None:
        """The other handle has claimed jobs in a row, and may know the next one without asking."""
        jobs = board.post_many([Posting(name) for name in ("mail", "resize") * 20])
        for job in jobs[:6]:
            assert take(other) == job
        board.pause(["mail"])
        assert [take(other).name for _ in range(5)] == ["resize"] * 5
        board.pause()
        assert other.claim_next("anna") is None
        board.resume()
        assert take(other) == jobs[6]

    def test_pause_can_be_repeated(self, board: JobBoard) -> None:
        for _ in range(2):
            board.resume(["mail"])
            board.resume()
        for _ in range(2):
            board.pause(["resize", "mail"])
        assert board.paused() == Paused(False, ("mail", "resize"))
        board.resume(["resize", "nothing"])
        assert board.paused().names == ("mail",)

    def test_existing_claim_goes_on_during_a_pause(self, board: JobBoard, other: JobBoard) -> None:
        jobs = board.post_many([Posting("mail")] * 4)
        kept, fixed, given_back, lapsed = [take(other, expiry=each) for each in (None, LONG, None, SHORT)]
        until_free(board, lapsed)
        board.pause()
        other.extend(fixed, "anna", LONG)
        other.extend(lapsed, "anna")
        assert [job.state for job in jobs] == [CLAIMED] * 4
        other.abandon(given_back, "anna")
        assert given_back.state == UNCLAIMED
        other.consume_many([kept, fixed, lapsed], "anna")
        assert [job.state for job in jobs] == [COMPLETE, COMPLETE, UNCLAIMED, COMPLETE]
        assert other.claim_next("anna") is None

    def test_a_job_by_itself_is_unclaimable(self, board: JobBoard, other: JobBoard) -> None:
        mail, resize = board.post("mail"), board.post("resize")
        board.pause(["mail"])
        for each in (board, other):
            with pytest.raises(UnclaimableJob, match="is paused"):
                each.claim(each.get(mail.uuid), "anna")
        other.claim(resize, "anna")
        board.pause()
        with pytest.raises(UnclaimableJob, match="claimed already"):
            board.claim(resize, "anna")
        assert mail.state == UNCLAIMED
        board.resume()
        board.claim(mail, "anna")

    def test_returned_job_stays_paused(self, board: JobBoard) -> None:
        lapsed, due = board.post("mail"), board.post("mail", delay=SHORT)
        let_lapse(board, lapsed)
        until_free(board, due)
        board.pause(["mail"])
        assert board.claim_many("anna", 5) == []
        resize = board.post("resize")
        assert take(board) == resize
        board.resume(["mail"])
        assert uuids(board.claim_many("anna", 5)) == [lapsed.uuid, due.uuid]

    def test_reads_pass_over_paused_jobs(self, board: JobBoard, other: JobBoard) -> None:
        jobs = board.post_many([Posting("mail"), Posting("resize"), Posting("mail", delay=LONG)])
        board.pause(["mail"])
        assert list(other.iterjobs()) == jobs
        assert list(other.iterjobs(only_unclaimed=True)) == [jobs[1]]
        assert list(other.wait(0)) == [jobs[1]]
        assert other.stats().unclaimed == 2
        board.pause()
        assert list(other.iterjobs(only_unclaimed=True)) == []
        waiter = Waiter(other, lambda: list(other.wait(PATIENCE)))
        board.resume()
        assert waiter.wait() == jobs[:2]

    def test_wrong_names_are_refused(self, board: JobBoard) -> None:
        with pytest.raises(TypeError, match="list of str"):
            board.pause("mail")
        with pytest.raises(ValueError, match="name"):
            board.pause([""])
        assert not board.paused()


class TestPauseUnderWay:
    any_driver = True

    def test_no_claim_begins_while_its_name_is_paused(self, make_board: MakeBoard) -> None:
        """Handles that claim as fast as they can, or wait, while names are paused and resumed."""
        boards = [make_board() for _ in range(WORKERS)]
        book, over = Journal(), threading.Event()
        chief = book.recorder(make_board(), "chief")

        def work(number: int) -> list[JobBoardError]:
            recorder = book.recorder(boards[number], f"worker {number}")
            while not over.is_set():
                for job in recorder.claim_many("anna", number + 1, timeout=SHORT):
                    recorder.consume(job)
            return recorder.failures

        with ThreadPoolExecutor(WORKERS) as pool:
            working = [pool.submit(work, number) for number in range(WORKERS)]
            try:
                for turn in range(TURNS):
                    names = [["mail"], ["resize", "mail"], None][turn % 3]
                    chief.post_many([Posting(name) for name in ("mail", "resize", "print") * 2])
                    chief.pause(names)
                    chief.post_many([Posting(name) for name in ("mail", "resize", "print")])
                    chief.resume(names)
                eventually(lambda: boards[0].job_count == 0, 3 * LIMIT)
            finally:
                over.set()
        assert [failure for each in working for failure in each.result()] == []
        assert judge(book.entries, left_on(boards[0]), pauses=chief.pauses) == []


class TestPauseBetweenRequests:
    @holds("A claim is decided by one gate, whatever other threads of its board have seen.")
    @holds("No claim takes a paused job once pause() has returned.")
    def test_a_claim_that_was_decided_before_a_pause_is_decided_again(self, board: JobBoard, wire: Wire) -> None:
        """The claim compares the gate that it was decided by. A transaction may have begun before."""
        if not wire:
            return
        for job, claimed, _ in at_each_request(
            board,
            wire,
            lambda far: far.post("mail"),
            lambda far, job: far.claim_next("anna") is not None,
            lambda here, job: here.pause(["mail"]),
        ):
            assert claimed == (board.find_owner(board.get(job.uuid)) == "anna")
            assert board.characteristics.transactional or not claimed
            assert board.claim_next("bert") is None
            board.resume()


class TestPausedWaiters:
    def test_resume_wakes_a_waiter(self, board: JobBoard, make_board: MakeBoard) -> None:
        waiting = make_board()
        job = board.post("mail")
        board.pause(["mail"])
        waiter = Waiter(waiting, lambda: waiting.claim_next("anna", timeout=PATIENCE))
        board.resume(["mail"])
        assert waiter.wait() == job

    def test_a_paused_job_is_given_to_nobody_who_waits(self, board: JobBoard, make_board: MakeBoard) -> None:
        waiting = make_board()
        waiter = Waiter(waiting, lambda: waiting.claim_next("anna", timeout=PATIENCE))
        board.pause(["mail"])
        mail, resize = board.post("mail"), board.post("resize")
        assert waiter.wait() == resize
        assert mail.state == UNCLAIMED
        waiter = Waiter(waiting, lambda: waiting.claim_next("anna", timeout=PATIENCE))
        board.resume()
        assert waiter.wait() == mail
