"""Jobs that another board hands over: held until their mover frees them, and stored once."""

from __future__ import annotations

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.primitives import HELD_UNTIL, Arrival, Draft, End, Finish, Posted
from jobboard.states import CLAIMED, COMPLETE, OK, SCHEDULED, TRASHED, UNCLAIMED, Failure, Holder, Record, Status, Verb
from jobboard.testing import eventually
from jobboard.testing.conformance.support import (
    LIMIT,
    calls_of,
    engine_of,
    first_call,
    lost_reply,
    record_of,
    server_time,
    take,
    uuids,
    wire_of,
)

MOVER = "mover"

LONG_AGO = 1_500_000_000_123_000

RETRIES = 7

ERRORS = (Failure(LONG_AGO + 1, "bert", 1, "it broke"), Failure(LONG_AGO + 2, None, 2, "it failed"))


def arrival(
    board: JobBoard,
    number: int = 1,
    *,
    key: str | None = None,
    trashed_on: int | None = None,
    attempts: int = 2,
    token: int = 0,
) -> Draft:
    return Draft(
        uuid=f"00000000-0000-4000-8000-{number:012d}",
        name="resize",
        priority=37,
        key=key,
        version=codec.VERSION,
        posting=codec.encode(codec.Content({"n": number}, None), wire_of(board)),
        max_attempts=3,
        delay=None,
        due=None,
        arrival=Arrival(MOVER, attempts, ERRORS, LONG_AGO, trashed_on, token, RETRIES),
        group="ours",
    )


def insert(board: JobBoard, *drafts: Draft) -> list[tuple[bool, Record | None]]:
    return [(status == OK, record) for status, _, record in calls_of(board).insert(drafts)]


def finish(board: JobBoard, *acts: Finish) -> list[Status]:
    statuses: list[Status] = calls_of(board).finish(acts)
    return statuses


def arrived(board: JobBoard, draft: Draft) -> Record:
    [(created, record)] = insert(board, draft)
    assert created
    assert record is not None
    return record


def free(record: Record, due: int | None = None) -> Finish:
    return Finish(record.uuid, Holder(MOVER, record.token), End(Verb.ABANDON), due=due)


def part(record: Record, verb: Verb) -> Finish:
    return Finish(record.uuid, Holder(record.who or "", record.token), End(verb, error="gone"))


class TestArrivals:
    def test_arrival_is_held_until_its_mover_frees_it(self, board: JobBoard) -> None:
        record = arrived(board, arrival(board))
        assert record == record_of(board, board.get(record.uuid))
        assert (record.state, record.who, record.lock_until, record.keeper) == (CLAIMED, MOVER, HELD_UNTIL, None)
        assert (record.attempts, record.retries, record.errors, record.created_on) == (2, RETRIES, ERRORS, LONG_AGO)
        assert (record.priority, record.group) == (37, "ours")
        assert board.claim_next("anna") is None
        assert board.stats().claimed == board.job_count == 1
        assert finish(board, free(record)) == [OK]
        job = take(board)
        assert (job.uuid, job.attempts, job.errors, job.details) == (record.uuid, 3, ERRORS, {"n": 1})
        assert (job.retries, job.priority, job.group) == (RETRIES, 63, "ours")
        assert job.record.created_on == LONG_AGO

    def test_held_arrival_takes_no_slot(self, board: JobBoard) -> None:
        """Be the limit set before or after it has come: its mover may be away for long."""
        arrived(board, arrival(board, 1))
        board.set_limit("resize", concurrency=1)
        arrived(board, arrival(board, 2))
        job = board.post("resize")
        assert take(board) == job
        board.post("resize")
        assert board.claim_next("anna") is None

    def test_arrival_keeps_its_due_time(self, board: JobBoard) -> None:
        one, two = arrived(board, arrival(board, 1)), arrived(board, arrival(board, 2))
        due = server_time(board) + 3_600_000_123
        assert finish(board, free(one, due=due), free(two, due=LONG_AGO)) == [OK, OK]
        job = board.get(one.uuid)
        assert (job.seen_state, job.record.lock_until, job.attempts) == (SCHEDULED, due, 2)
        assert board.get(two.uuid).seen_state == UNCLAIMED

    @pytest.mark.parametrize("trashed_on", [None, LONG_AGO])
    def test_token_of_an_arrival_is_above_its_earlier_ones(self, board: JobBoard, trashed_on: int | None) -> None:
        """The clock of this server is an hour behind the clock of the first board's server."""
        before = server_time(board) + 3_600_000_000
        record = arrived(board, arrival(board, token=before + 1, trashed_on=trashed_on))
        assert record == record_of(board, board.get(record.uuid))
        assert record.token > before
        if trashed_on is None:
            finish(board, free(record))
        else:
            board.restore(board.get(record.uuid))
        job = take(board)
        assert job.claim is not None
        assert job.claim.token > record.token
        board.consume(job, "anna")

    def test_arrivals_keep_their_order(self, board: JobBoard) -> None:
        posted = board.post("resize", priority=64)
        answers = insert(board, *(arrival(board, number) for number in (3, 1, 2)))
        records = [record for created, record in answers if created and record]
        assert uuids(board.iterjobs()) == [posted.uuid, *(record.uuid for record in records)]
        assert [record.uuid[-1] for record in records] == ["3", "1", "2"]

    def test_trashed_arrival_lies_in_the_trash(self, board: JobBoard) -> None:
        older = arrived(board, arrival(board, 1, trashed_on=LONG_AGO + 5_000))
        newer = arrived(board, arrival(board, 2, trashed_on=LONG_AGO + 6_000, attempts=3))
        assert [job.record for job in board.trashed()] == [newer, older]
        assert (newer.state, newer.attempts, newer.retries, newer.errors) == (TRASHED, 3, RETRIES, ERRORS)
        assert (newer.created_on, newer.modified_on) == (LONG_AGO, LONG_AGO + 6_000)
        assert board.job_count == 0
        posted = board.post("resize", priority=64)
        for job in board.trashed():
            board.restore(job)
        jobs = list(board.iterjobs())
        assert sorted(uuids(jobs)) == sorted([posted.uuid, older.uuid, newer.uuid])
        assert sorted(jobs) == jobs
        assert len({job.sequence for job in jobs}) == 3
        board.cancel(jobs[0])
        assert len(board.claim_many("anna", 3)) == 2

    def test_job_arrives_once(self, board: JobBoard, other: JobBoard) -> None:
        """A second arrival returns the job as it is, and changes nothing."""
        again = arrival(board, attempts=0)
        record = arrived(other, arrival(board))
        assert insert(board, again, arrival(board, 2))[0] == (False, record)
        finish(other, free(record))
        assert insert(board, again)[0] == (False, record_of(other, other.get(record.uuid)))
        job = take(other)
        [(created, seen)] = insert(board, again)
        assert (created, seen and seen.who) == (False, "anna")
        other.trash(job, "anna")
        assert insert(board, arrival(board, trashed_on=LONG_AGO))[0] == (False, record_of(other, job))
        assert board.stats().trashed == 1

    @pytest.mark.parametrize("trashed_on", [None, LONG_AGO])
    def test_job_that_has_left_may_come_back(self, board: JobBoard, other: JobBoard, trashed_on: int | None) -> None:
        first = arrived(board, arrival(board))
        finish(board, Finish(first.uuid, Holder(MOVER, first.token), End(Verb.CONSUME)))
        assert engine_of(board).read([first.uuid])[0].state == COMPLETE
        second = arrived(other, arrival(board, trashed_on=LONG_AGO, token=first.token + 1))
        assert second.token > first.token
        assert finish(board, part(second, Verb.PURGE)) == [OK]
        third = arrived(board, arrival(board, trashed_on=trashed_on))
        assert record_of(other, other.get(third.uuid)) == third
        end = Verb.TRASH if trashed_on is None else Verb.CANCEL
        assert finish(board, Finish(third.uuid, Holder(MOVER, third.token), End(end))) == [
            OK if trashed_on is None else Status.TRASHED
        ]
        board.purge(board.get(third.uuid))
        assert engine_of(other).read([third.uuid])[0].state == TRASHED

    def test_held_arrival_has_its_key(self, board: JobBoard) -> None:
        record = arrived(board, arrival(board, key="k"))
        assert board.post("resize", key="k").uuid == record.uuid
        [(created, holder)] = insert(board, arrival(board, 2, key="k"))
        assert (created, holder and holder.uuid) == (False, record.uuid)
        finish(board, free(record))
        board.consume(take(board), "anna")
        assert board.post("resize", key="k").uuid != record.uuid

    def test_trashed_arrival_has_no_key(self, board: JobBoard) -> None:
        holder = board.post("resize", key="k")
        one = arrived(board, arrival(board, 1, key="k", trashed_on=LONG_AGO))
        arrived(board, arrival(board, 2, key="k", trashed_on=LONG_AGO))
        assert board.post("resize", key="k") == holder
        with pytest.raises(JobFailure, match="key"):
            board.restore(board.get(one.uuid))
        board.cancel(holder)
        board.restore(board.get(one.uuid))
        assert board.post("resize", key="k").uuid == one.uuid

    def test_lost_reply(self, board: JobBoard) -> None:
        there = arrived(board, arrival(board, 1))
        drafts = [arrival(board, 1), arrival(board, 2, key="k"), arrival(board, 3, trashed_on=LONG_AGO)]
        with lost_reply(board, "insert"):
            answers = insert(board, *drafts)
        assert [created for created, _ in answers] == [False, True, True]
        assert [record and record.uuid for _, record in answers] == [draft.uuid for draft in drafts]
        assert answers[0][1] == there
        assert (board.stats().claimed, board.stats().trashed) == (2, 1)

    def test_lost_reply_while_others_go(self, board: JobBoard) -> None:
        """A job that was there before is not brought back, and the holder of a key is named, gone or not."""
        there, holder = arrived(board, arrival(board, 1)), board.post("resize", key="k")

        def go() -> None:
            finish(board, Finish(there.uuid, Holder(MOVER, there.token), End(Verb.CONSUME)))
            board.cancel(holder)

        with lost_reply(board, "insert", go):
            answers = insert(board, arrival(board, 1), arrival(board, 2, key="k"), arrival(board, 3))
        assert [created for created, _ in answers] == [False, False, True]
        assert [record and record.uuid for _, record in answers][::2] == [None, arrival(board, 3).uuid]
        assert board.job_count == 1

    def test_late_request(self, board: JobBoard) -> None:
        """A late first try does not bring back a job that has arrived by the repetition, and was consumed."""
        first = first_call()
        [(_, _, record)] = engine_of(board).insert(first._replace(attempt=2), [arrival(board)])
        assert record is not None
        finish(board, free(record))
        board.consume(take(board), "anna")
        assert engine_of(board).insert(first, [arrival(board)]) == [Posted(OK, record.uuid, None)]
        assert board.job_count == 0


class TestDepartures:
    """A mover takes a job off a board only if the job has not changed since it was read."""

    @pytest.mark.parametrize("delay", [None, 60])
    def test_cancel(self, board: JobBoard, delay: float | None) -> None:
        job = board.post("resize", key="k", delay=delay)
        assert finish(board, part(job.record, Verb.CANCEL)) == [OK]
        after = record_of(board, job)
        assert after is not None
        assert (after.state, after.error) == (TRASHED, "gone")
        assert after.token > job.record.token
        assert board.post("resize", key="k") != job
        assert finish(board, part(job.record, Verb.CANCEL)) == [Status.TRASHED]

    def test_cancel_of_what_has_changed(self, board: JobBoard) -> None:
        job = board.post("resize")
        seen = job.record
        claimed = take(board)
        assert finish(board, part(seen, Verb.CANCEL), part(claimed.record, Verb.CANCEL)) == [Status.CLAIMED] * 2
        board.abandon(claimed, "anna")
        # Neither the version before the claim nor that of its holder.
        assert finish(board, part(seen, Verb.CANCEL), part(claimed.record, Verb.CANCEL)) == [Status.LOST] * 2
        assert job.state == UNCLAIMED
        board.consume(take(board), "anna")
        assert finish(board, part(seen, Verb.CANCEL)) == [Status.ABSENT]

    def test_cancel_of_a_claim_that_has_lapsed(self, board: JobBoard) -> None:
        board.post("resize")
        job = take(board, expiry=0.05)
        eventually(lambda: job.state == UNCLAIMED, LIMIT)
        assert finish(board, part(job.record, Verb.CANCEL)) == [OK]
        assert job.state == TRASHED

    def test_purge(self, board: JobBoard) -> None:
        job = board.post("resize")
        seen = job.record
        board.cancel(job)
        trashed = record_of(board, job)
        assert trashed is not None
        assert finish(board, part(seen, Verb.PURGE)) == [Status.LOST]
        board.restore(job)
        assert finish(board, part(trashed, Verb.PURGE)) == [Status.LIVE]
        board.cancel(job)
        assert finish(board, part(trashed, Verb.PURGE)) == [Status.LOST]
        trashed = record_of(board, job)
        assert trashed is not None
        assert finish(board, part(trashed, Verb.PURGE)) == [OK]
        assert engine_of(board).read([job.uuid])[0] == (TRASHED, None, None)
        assert finish(board, part(trashed, Verb.PURGE)) == [Status.ABSENT]

    def test_departures_survive_a_lost_reply(self, board: JobBoard, other: JobBoard) -> None:
        live = [board.post("resize"), board.post("resize", delay=60)]
        trashed = board.post("resize")
        board.cancel(trashed)
        buried = record_of(board, trashed)
        assert buried is not None
        acts = [*(part(job.record, Verb.CANCEL) for job in live), part(buried, Verb.PURGE)]
        with lost_reply(board, "finish", lambda: other.restore(other.get(live[0].uuid))):
            assert finish(board, *acts) == [OK] * 3
        assert live[0].state == UNCLAIMED
        assert uuids(board.trashed()) == [live[1].uuid]
