"""Moves to a board and from it: jobs arrive as they were, once, and are held until their source has let go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.job import Act, Job, Posting
from jobboard.moving import Mover
from jobboard.primitives import HELD_UNTIL
from jobboard.states import CLAIMED, OK, UNCLAIMED, Status, Verb
from jobboard.testing import holds
from jobboard.testing.conformance.harness import ERRORS, LONG_AGO, MOVER, RETRIES, Harness, part
from jobboard.testing.conformance.support import LONG, take, trash_one, uuids


@pytest.fixture
def elsewhere() -> Iterator[JobBoard]:
    """Another board, in memory."""
    with jobboard.backend(uuid4().hex, "memory") as board:
        yield board


def shown(board: JobBoard) -> list[tuple[Any, ...]]:
    """Return all that a move leaves as it is, of the jobs in their order and of the trash."""

    def told(job: Job) -> tuple[Any, ...]:
        posted = (job.uuid, job.name, job.details, job.priority, job.key, job.group, job.max_attempts, job.created_on)
        return (*posted, job.seen_state, job.attempts, job.retries, job.errors)

    live = [(*told(job), job.due) for job in board.iterjobs(ensure_fresh=True)]
    return [*live, *((*told(job), job.last_modified) for job in board.trashed())]


class TestMoves:
    def test_jobs_arrive_as_they_were_and_leave_again(self, board: JobBoard, elsewhere: JobBoard) -> None:
        elsewhere.post_many(Posting("plain", details={"é": [n, None]}, priority=n % 3, group="g") for n in range(9))
        elsewhere.post("keyed", key="k", max_attempts=3)
        elsewhere.post("delayed", delay=LONG)
        retried = elsewhere.post("retried")
        elsewhere.claim(retried, "anna")
        elsewhere.finish_many([Act(retried, "abandon", retry=True, error="later")], "anna")
        for _ in range(2):
            trash_one(elsewhere, key="both")
        before = shown(elsewhere)
        assert Mover(elsewhere, board).run().left == []
        assert (shown(elsewhere), shown(board)) == ([], before)
        assert not board.post("keyed", key="k").created
        assert Mover(board, elsewhere).run().left == []
        assert (shown(elsewhere), shown(board)) == (before, [])


class TestArrivals:
    @holds("A job arrives once, and is claimed by nobody before its source has let go.")
    def test_arrival_is_held_until_its_mover_frees_it(self, board: JobBoard) -> None:
        harness = Harness(board)
        record = harness.arrive(harness.arrival())
        assert record == harness.record(record.uuid)
        assert (record.state, record.who, record.lock_until, record.keeper) == (CLAIMED, MOVER, HELD_UNTIL, None)
        assert (record.attempts, record.retries, record.errors, record.created_on) == (2, RETRIES, ERRORS, LONG_AGO)
        assert board.claim_next("anna") is None
        assert board.stats().claimed == board.job_count == 1
        assert harness.free(record) == [OK]
        job = take(board)
        assert (job.uuid, job.attempts, job.errors, job.details) == (record.uuid, 3, ERRORS, {"n": 1})
        assert (job.retries, job.priority, job.group) == (RETRIES, 63, "ours")

    @holds("Acts and moves keep the expiry of a job until its claim or restore; a replacement brings its own.")
    def test_stored_fields_stay(self, board: JobBoard, other: JobBoard) -> None:
        harness = Harness(board)
        arrived = harness.arrive(harness.arrival(attempts=0, retries=0))
        harness.free(arrived)
        first = harness.arrival(2)._replace(arrival=None, expires=HELD_UNTIL + 1, key="k")
        [(_, posted)] = harness.insert(first)
        assert posted is not None
        for record, expires in ((arrived, HELD_UNTIL), (posted, HELD_UNTIL + 1)):
            assert record.expires == expires
            board.cancel(other.get(record.uuid))
            [trashed] = board.trashed()
            assert trashed.record.expires == expires
            board.purge(trashed)
        harness.insert(first)
        # The expiry alone differs.
        replacement = first._replace(uuid=harness.arrival(3).uuid, expires=HELD_UNTIL + 2, replace=True)
        [(_, replaced)] = harness.insert(replacement)
        assert replaced is not None
        assert (replaced.uuid, replaced.expires) == (first.uuid, HELD_UNTIL + 2)
        assert other.get(first.uuid).record.expires == HELD_UNTIL + 2
        plain = board.post("resize")
        assert other.get(plain.uuid).record.expires is None

    @holds("A copy that a mover holds takes no slot.")
    def test_held_arrival_takes_no_slot(self, board: JobBoard) -> None:
        """Be the limit set before or after it has come: its mover may be away for long."""
        harness = Harness(board)
        harness.arrive(harness.arrival(1))
        board.set_limit("resize", concurrency=1)
        harness.arrive(harness.arrival(2))
        job = board.post("resize")
        assert take(board) == job
        board.post("resize")
        assert board.claim_next("anna") is None

    @holds("Tokens rise across a move, whatever the target's clock shows.")
    @pytest.mark.parametrize("trashed_on", [None, LONG_AGO])
    def test_token_of_an_arrival_is_above_its_earlier_ones(self, board: JobBoard, trashed_on: int | None) -> None:
        """The clock of this server is an hour behind the clock of the first board's server."""
        harness = Harness(board)
        before = harness.now() + 3_600_000_000
        record = harness.arrive(harness.arrival(token=before + 1, trashed_on=trashed_on))
        assert record == harness.record(record.uuid)
        assert record.token > before
        if trashed_on is None:
            harness.free(record)
        else:
            board.restore(board.get(record.uuid))
        job = take(board)
        assert job.claim is not None
        assert job.claim.token > record.token
        board.consume(job, "anna")

    @holds("A job arrives once, and is claimed by nobody before its source has let go.")
    def test_job_arrives_once(self, board: JobBoard, other: JobBoard) -> None:
        """A second arrival returns the job as it is, and changes nothing."""
        here, there = Harness(board), Harness(other)
        again = here.arrival(attempts=0)
        record = there.arrive(here.arrival())
        assert here.insert(again, here.arrival(2))[0] == (False, record)
        there.free(record)
        assert here.insert(again)[0] == (False, there.record(record.uuid))
        job = take(other)
        [(created, seen)] = here.insert(again)
        assert (created, seen and seen.who) == (False, "anna")
        other.trash(job, "anna")
        assert here.insert(here.arrival(trashed_on=LONG_AGO))[0] == (False, there.record(job))
        assert board.stats().trashed == 1

    @holds(
        "A post that stored a part has the answer of its first try, also where the holder of a key has gone meanwhile."
    )
    def test_lost_reply_while_others_go(self, board: JobBoard) -> None:
        """A job that was there before is not brought back, and the holder of a key is named, gone or not."""
        harness = Harness(board)
        there, holder = harness.arrive(harness.arrival(1)), board.post("resize", key="k")

        def go() -> None:
            harness.finish(part(there, Verb.CONSUME))
            board.cancel(holder)

        with harness.lost_reply(go):
            answers = harness.insert(harness.arrival(1), harness.arrival(2)._replace(key="k"), harness.arrival(3))
        assert [created for created, _ in answers] == [False, False, True]
        assert [record and record.uuid for _, record in answers][::2] == [None, harness.arrival(3).uuid]
        assert board.job_count == 1


class TestDepartures:
    """A mover takes a job off a board only if the job has not changed since it was read."""

    def test_changed_job_stays(self, board: JobBoard) -> None:
        finish = Harness(board).finish
        job = board.post("resize")
        seen = job.record
        claimed = take(board)
        assert finish(part(seen, Verb.CANCEL), part(claimed.record, Verb.CANCEL)) == [Status.CLAIMED] * 2
        board.abandon(claimed, "anna")
        # Neither the version before the claim nor that of its holder.
        assert finish(part(seen, Verb.CANCEL), part(claimed.record, Verb.CANCEL)) == [Status.LOST] * 2
        assert job.state == UNCLAIMED
        board.cancel(job)
        assert finish(part(seen, Verb.PURGE)) == [Status.LOST]
        trashed = board.get(job.uuid).record
        board.restore(job)
        assert finish(part(trashed, Verb.PURGE)) == [Status.LIVE]
        board.consume(take(board), "anna")
        assert finish(part(seen, Verb.CANCEL)) == [Status.ABSENT]

    def test_departures_survive_a_lost_reply(self, board: JobBoard, other: JobBoard) -> None:
        live = [board.post("resize"), board.post("resize", delay=60)]
        trashed = board.post("resize")
        board.cancel(trashed)
        acts = [*(part(job.record, Verb.CANCEL) for job in live), part(board.get(trashed.uuid).record, Verb.PURGE)]
        with Harness(board).lost_reply(lambda: other.restore(other.get(live[0].uuid))):
            assert Harness(board).finish(*acts) == [OK] * 3
        assert live[0].state == UNCLAIMED
        assert uuids(board.trashed()) == [live[1].uuid]
