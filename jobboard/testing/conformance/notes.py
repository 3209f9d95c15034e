"""Notes: the progress and the checkpoint of a claimed job, from their holder to every reader and the next holder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.engine import Stale
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure
from jobboard.job import Act, Job, Posting
from jobboard.moving import Mover
from jobboard.states import CLAIMED, Status
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, take, until_free


def claimed(board: JobBoard, expiry: float | None = None, **posting: Any) -> Job:
    job = board.post("resize", **posting)
    board.claim(job, "anna", expiry)
    return job


def shown(board: JobBoard, job: Job) -> tuple[str | None, float | None, Any]:
    """Return the text, the percentage and the checkpoint of a job, as another reader sees them."""
    seen = board.get(job.uuid)
    text, percent = (None, None) if seen.progress is None else seen.progress[:2]
    return text, percent, seen.checkpoint


NOTHING = (None, None, None)


class TestNotes:
    @holds("A note goes with the next heartbeat, for kept and fixed claims, and changes nothing else of the job.")
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_the_heartbeat_sends_a_note(self, board: JobBoard, other: JobBoard, expiry: float | None) -> None:
        job = claimed(board, expiry)
        before = Harness(other).record(job)
        assert (job.progress, job.checkpoint) == (None, None)
        job.note("half of it", percent=50)
        job.note(checkpoint={"row": 7})
        assert job.progress is not None
        assert (*job.progress[:2], job.checkpoint) == ("half of it", 50, {"row": 7})
        assert shown(other, job) == NOTHING
        Harness(board).beat()
        assert shown(other, job) == ("half of it", 50, {"row": 7})
        after = Harness(other).record(job)
        assert before is not None
        assert after is not None
        assert after._replace(note=None, lock_until=None) == before._replace(lock_until=None)
        assert (expiry is None) == (job.expires_in() is None)
        assert {each.uuid: each.checkpoint for each in other.iterjobs()} == {job.uuid: {"row": 7}}

    @holds("A flushed note is stored when the call returns, and later notes keep the parts that they leave out.")
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_a_flushed_note_is_stored_at_once(self, board: JobBoard, other: JobBoard, expiry: float | None) -> None:
        job = claimed(board, expiry)
        assert job.claim is not None
        job.claim.note(percent=12.5, flush=True)
        assert shown(other, job) == (None, 12.5, None)
        board.note(job, "later", flush=True)
        assert shown(other, job) == ("later", 12.5, None)
        job.claim.extend(LONG)
        board.consume(job, "anna")

    @holds("The end of a claim takes its unsent note along.")
    @pytest.mark.parametrize("end", ["abandon", "by name", "delay", "retry", "trash", "close"])
    def test_the_end_of_a_claim_stores_its_note(self, board: JobBoard, other: JobBoard, end: str) -> None:
        job = claimed(board)
        job.note(checkpoint=[1, 2])
        if end == "abandon":
            board.abandon(job, "anna", error="broken")
        elif end == "by name":
            board.abandon(board.get(job.uuid), "anna")
        elif end == "delay":
            board.abandon(job, "anna", delay=LONG)
        elif end == "retry":
            board.finish_many([Act(job, "abandon", retry=True)], "anna")
        elif end == "trash":
            board.trash(job, "anna")
            assert [each.checkpoint for each in other.trashed()] == [[1, 2]]
            other.restore(other.get(job.uuid))
        else:
            board.close()
        assert other.get(job.uuid).checkpoint == [1, 2]
        if end != "delay":
            again = take(other, "bert")
            assert again.checkpoint == [1, 2]
            again.note("on", flush=True)
            assert shown(other, job) == ("on", None, [1, 2])

    def test_a_closed_board_has_sent_the_notes_of_fixed_claims(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board, LONG)
        job.note("half of it")
        board.close()
        assert shown(other, job) == ("half of it", None, None)

    @holds("A consume drops an unsent note, and no outcome has a note.")
    def test_a_consumed_job_has_no_note(self, make_board: MakeBoard) -> None:
        board = make_board(keep_done=LONG)
        for flush in (False, True):
            job = claimed(board)
            job.note("nearly", checkpoint=1, flush=flush)
            job.note("done")
            board.consume(job, "anna", result=2)
            outcome = board.outcome(job)
            assert (outcome.result, outcome.job.progress, outcome.job.checkpoint) == (2, None, None)
            record = Harness(board).record(job)
            assert record is None
        with Harness(board).replaced("note", _refuse):
            Harness(board).beat()

    @holds("A note outlives a lapse, a release, a cancel and a restore.")
    def test_a_note_stays_with_its_job(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        job.note(checkpoint=1, flush=True)
        other.release(other.get(job.uuid))
        again = other.get(job.uuid)
        other.claim(again, "bert", expiry=SHORT)
        assert again.checkpoint == 1
        until_free(board, job)
        again = take(board)
        assert (again, again.checkpoint) == (job, 1)
        other.cancel(other.get(job.uuid), running=True)
        [trashed] = board.trashed()
        assert trashed.checkpoint == 1
        board.restore(trashed)
        assert take(board).checkpoint == 1

    @holds("A moved job keeps its note.")
    def test_a_move_takes_notes_along(self, board: JobBoard, elsewhere: JobBoard) -> None:
        free, gone = claimed(elsewhere), claimed(elsewhere)
        for job in (free, gone):
            job.note("half", percent=50, checkpoint={"é": [1, None]})
        elsewhere.abandon(free, "anna")
        elsewhere.trash(gone, "anna")
        assert Mover(elsewhere, board).run().left == []
        for job in (free, gone):
            assert shown(board, job) == ("half", 50, {"é": [1, None]})
        assert Mover(board, elsewhere).run().left == []
        for job in (free, gone):
            assert shown(elsewhere, job) == ("half", 50, {"é": [1, None]})

    @holds("A post that replaces a job drops its note.")
    def test_another_posting_of_the_key_begins_anew(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board, key="k")
        job.note(checkpoint=1)
        board.abandon(job, "anna")
        assert board.post("resize", key="k").checkpoint == 1
        again = board.post("resize", key="k", on_key="replace")
        assert (again.replaced, again.checkpoint) == (True, None)
        assert shown(other, job) == NOTHING
        taken = take(board)
        taken.note(checkpoint=2, flush=True)
        assert other.get(job.uuid).checkpoint == 2

    @holds("A lost holder stores no note, and learns of the loss by flush.")
    @pytest.mark.parametrize("loss", ["release", "taken", "cancel", "trash", "consume"])
    @pytest.mark.parametrize("expiry", [None, LONG])
    def test_a_lost_holder_stores_no_note(
        self, board: JobBoard, other: JobBoard, loss: str, expiry: float | None
    ) -> None:
        job = claimed(board, expiry)
        job.note("before", flush=True)
        if loss in ("release", "taken"):
            other.release(other.get(job.uuid))
            if loss == "taken":
                other.claim(other.get(job.uuid), "bert", LONG)
        elif loss == "cancel":
            other.cancel(other.get(job.uuid), running=True)
        else:
            getattr(other, loss)(other.get(job.uuid), "anna")
        before = Harness(other).record(job)
        job.note("nobody hears of it")
        Harness(board).beat()
        assert board.claims.unsent == {}
        with pytest.raises(ClaimLost):
            job.note("nor of this", flush=True)
        assert Harness(other).record(job) == before
        assert job.claim is not None
        assert job.claim.lost

    @holds("Only the handle that has claimed the job makes notes, and a note fits 16 KiB.")
    def test_refused_notes(self, board: JobBoard, other: JobBoard, make_board: MakeBoard) -> None:
        job = board.post("resize")
        with pytest.raises(JobFailure, match="not claimed through this handle"):
            job.note("early")
        board.claim(job, "anna")
        with pytest.raises(JobFailure, match="not claimed through this handle"):
            other.get(job.uuid).note("not mine")
        with pytest.raises(JobFailure, match="not claimed through this handle"):
            other.note(job, "not mine")
        wrong: Any
        for wrong in ({}, {"percent": 101}, {"percent": float("nan")}, {"checkpoint": "x" * 17_000}):
            with pytest.raises(ValueError, match=r"percent|note"):
                job.note(**wrong)
        for wrong in ({"text": 1}, {"percent": "1"}, {"percent": True}, {"checkpoint": object()}):
            with pytest.raises(TypeError, match=r"text|percent|note"):
                job.note(**wrong)
        assert job.progress is None
        job.note(checkpoint="é" * 8_000, flush=True)
        assert other.get(job.uuid).checkpoint == "é" * 8_000
        board.consume(job, "anna")
        with pytest.raises(JobFailure, match="not claimed through this handle"):
            job.note("late")
        looking = make_board(read_only=True)
        with pytest.raises(JobFailure, match="read_only"):
            Harness(looking).engine.note("h", [(job.uuid, 1, codec.encode_note(codec.Note(1), looking.engine.wire))], 1)

    @holds("A note whose reply is lost is stored once, and its claim stands.")
    def test_a_lost_reply(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        with Harness(board).lost_reply():
            job.note("one", flush=True)
        assert shown(other, job) == ("one", None, None)
        job.note("two")
        with Harness(board).lost_reply(), pytest.raises(ConnectionFailure):
            Harness(board).beat()
        assert shown(other, job) == ("two", None, None)
        Harness(board).beat()
        assert board.claims.unsent == {}
        board.consume(job, "anna")

    @holds("A late first try of a note never overwrites a later note.")
    def test_a_late_first_try(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        late: list[Callable[[], object]] = []

        def hold(original: Callable[..., Any], *args: Any) -> Any:
            if late:
                return original(*args)
            late.append(lambda: original(*args))
            raise ConnectionFailure("the request is on its way", outcome="unknown")

        with Harness(board).requests.around("commit", hold):
            job.note("one", flush=True)
        job.note("two", flush=True)
        with pytest.raises(Stale):
            late[0]()
        assert shown(other, job) == ("two", None, None)

    @holds("Of two notes of a claim that are sent at once, the later one stays.")
    def test_a_note_overtakes_the_one_before(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        met: list[bool] = []

        def overtake() -> None:
            if not met:
                met.append(True)
                job.note("two", flush=True)

        job.note("one")
        with Harness(board).requests.before("commit", overtake):
            Harness(board).beat()
        assert met
        assert shown(other, job) == ("two", None, None)
        assert board.claims.unsent == {}

    def test_a_read_of_the_job_takes_no_number_back(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        job.note("one", percent=1)
        stale = Harness(board).record(job)
        assert stale is not None
        Harness(board).beat()
        job.record = stale
        job.note("two", flush=True)
        assert shown(other, job) == ("two", 1, None)

    @holds("A loss during the commit of a note refuses the note.")
    def test_a_rival_of_a_flush(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        met: list[bool] = []
        job.note("one", flush=True)

        def cancel() -> None:
            if not met:
                met.append(True)
                other.cancel(other.get(job.uuid), running=True)

        with Harness(board).requests.before("commit", cancel), pytest.raises(ClaimLost):
            job.note("two", flush=True)
        assert [each.progress and each.progress.text for each in other.trashed()] == ["one"]

    @holds("The end of a claim during the commit of its note keeps the note of the end.")
    def test_an_end_during_a_note(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        met: list[bool] = []

        def end() -> None:
            if not met:
                met.append(True)
                job.note("two")
                board.abandon(job, "anna")

        job.note("one")
        with Harness(board).requests.before("commit", end):
            Harness(board).beat()
        assert met
        assert shown(other, job) == ("two", None, None)
        assert take(other, "bert") == job

    @holds("A lapsed claim that nobody has taken still stores its note.")
    def test_a_note_of_a_lapsed_claim(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board, SHORT)
        until_free(other, job)
        job.note(checkpoint=1, flush=True)
        assert other.find_owner(job) is None
        again = take(other, "bert")
        assert (again.checkpoint, again.attempts) == (1, 2)
        with pytest.raises(ClaimLost):
            job.note(checkpoint=2, flush=True)
        assert other.get(job.uuid).checkpoint == 1

    @holds("No handle writes the note of a claim that another handle keeps.")
    def test_a_claim_that_another_handle_keeps(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        before = Harness(board).record(job)
        note = codec.encode_note(codec.Note(1, 1, "not mine"), other.engine.wire)
        engine = Harness(other).engine
        assert before is not None
        assert engine.note(other.engine.handle, [(job.uuid, before.token, note)], 30_000_000) == [Status.LOST]
        assert Harness(board).record(job) == before
        assert engine.note(board.engine.handle, [(job.uuid, before.token + 1, note)], 30_000_000) == [Status.LOST]

    def test_notes_of_many_claims(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 130)
        jobs = board.claim_many("anna", 130)
        for number, job in enumerate(jobs):
            job.note("é" * 500, checkpoint=number)
        other.release(other.get(jobs[7].uuid))
        Harness(board).beat()
        found = {job.uuid: job.checkpoint for job in other.iterjobs()}
        assert found == {job.uuid: None if number == 7 else number for number, job in enumerate(jobs)}

    def test_ends_of_many_claims_with_large_notes(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 100)
        jobs = board.claim_many("anna", 100)
        for number, job in enumerate(jobs):
            job.note(checkpoint=[number, "x" * 16_000])
        board.finish_many([Act(job, "abandon") for job in jobs], "anna")
        found = {job.uuid: job.checkpoint[0] for job in other.iterjobs()}
        assert found == {job.uuid: number for number, job in enumerate(jobs)}

    @holds("Without notes, beats and ends send the requests that they sent before.")
    def test_no_notes_no_requests(self, board: JobBoard) -> None:
        job = claimed(board)
        with Harness(board).replaced("note", _refuse):
            Harness(board).beat()
            board.abandon(job, "anna")
        assert Harness(board).calls.read([job.uuid])[0].state != CLAIMED

    def test_a_failed_consume_keeps_the_note(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed(board)
        job.note(checkpoint=1)
        with Harness(board).replaced("finish", _refuse), pytest.raises(JobFailure, match="refused here"):
            board.consume(job, "anna")
        Harness(board).beat()
        assert other.get(job.uuid).checkpoint == 1
        board.consume(job, "anna")

    def test_the_thread_of_the_heartbeat_sends_notes(self, make_board: MakeBoard, other: JobBoard) -> None:
        board = make_board(claim_ttl=1)
        job = claimed(board, LONG)
        job.note("half of it")
        eventually(lambda: shown(other, job) == ("half of it", None, None), LIMIT)


def _refuse(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    raise JobFailure("refused here")
