"""Limits: how many jobs of a name or a group are claimed at once, and how many within a time."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from jobboard.board import JobBoard
from jobboard.engine.limits import SCOPE, Listed
from jobboard.exceptions import ClaimLost, NotFound, UnclaimableJob
from jobboard.job import Act, Job, Posting, boottime
from jobboard.primitives import Limit
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.between import at_each_request
from jobboard.testing.conformance.processes import outcome
from jobboard.testing.conformance.races import JOBS, WORKERS, Journal, mistreat
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    SHORT,
    MakeBoard,
    let_lapse,
    lost_reply,
    take,
    until_free,
    uuids,
)
from jobboard.testing.conformance.wire import Wire
from jobboard.testing.history import judge, left_over
from jobboard.testing.recording import left_on

WINDOW = 1.0
"""Of a rate, in seconds."""


def store_of(board: JobBoard) -> Any:
    """What the board's engine stands on, for tests that stop or count what it is asked."""
    return board.engine.store


def post(board: JobBoard, number: int, name: str = "mail", group: str | None = None) -> list[str]:
    return uuids(board.post_many([Posting(name, group=group) for _ in range(number)]))


class TestConcurrencyLimits:
    def test_of_a_name(self, board: JobBoard, other: JobBoard) -> None:
        first, second, third = post(board, 3)
        [resized] = post(board, 1, "resize")
        board.set_limit("mail", concurrency=2)
        assert other.limits() == [Limit("mail", "name", 2)]
        held = other.claim_many("anna", 10)
        assert uuids(held) == [first, second, resized]
        assert board.claim_many("anna", 10) == []
        assert board.claim_next("anna", names=["mail"]) is None
        other.consume(held[0], "anna")
        assert take(board).uuid == third
        assert other.claim_next("anna") is None

    def test_of_each_group(self, board: JobBoard, other: JobBoard) -> None:
        one, two = post(board, 2, group="one"), post(board, 2, group="two")
        free = post(board, 3)
        board.set_limit("mail", concurrency=1, per="group")
        assert uuids(other.claim_many("anna", 10)) == [one[0], two[0], *free]
        assert board.claim_next("anna") is None
        board.consume(other.get(two[0]), "anna")
        assert take(other, "bob").uuid == two[1]

    def test_of_both(self, board: JobBoard) -> None:
        one, two = post(board, 3, group="one"), post(board, 3, group="two")
        board.set_limit("mail", concurrency=3)
        board.set_limit("mail", concurrency=2, per="group")
        assert board.limits() == [Limit("mail", "group", 2), Limit("mail", "name", 3)]
        held = board.claim_many("anna", 10)
        assert uuids(held) == [*one[:2], two[0]]
        board.consume(held[0], "anna")
        # Whatever is first and has room in both.
        assert uuids(board.claim_many("anna", 10)) == [one[2]]

    def test_one_by_one_in_order(self, board: JobBoard, other: JobBoard) -> None:
        """What is full is passed over, and nothing else."""
        board.set_limit("mail", concurrency=1, per="group")
        posted = board.post_many([Posting("mail", group=group) for group in "aabbcc"])
        got = [take(each).uuid for each in (board, other, board)]
        assert got == [posted[0].uuid, posted[2].uuid, posted[4].uuid]
        assert board.claim_next("anna") is None

    def test_a_batch_gets_the_slots_of_claims_that_have_ended(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=3, per="group")
        post(board, 2, group="a")
        for job in board.claim_many("anna", 2):
            other.consume(job, "anna")
        crowd, last = post(board, 4, group="a"), post(board, 1, group="b")
        assert uuids(other.claim_many("anna", 4)) == [*crowd[:3], *last]

    def test_behind_many_of_one_full_group(self, board: JobBoard) -> None:
        """More than a look takes in."""
        board.set_limit("mail", concurrency=1, per="group")
        board.set_limit("resize", concurrency=1)
        big = post(board, 150, group="big")
        post(board, 50, "resize")
        small = post(board, 2, group="small")
        [alone] = post(board, 1, "alone")
        first = board.claim_many("anna", 10)
        assert [job.name for job in first] == ["mail", "resize", "mail", "alone"]
        assert {first[0].uuid, first[2].uuid, first[3].uuid} == {big[0], small[0], alone}
        assert board.claim_next("anna") is None
        assert board.claim_next("anna", names=["mail"]) is None
        board.consume(first[2], "anna")
        assert take(board, names=["mail", "resize"]).uuid == small[1]

    def test_behind_one_full_group_beside_a_paused_name(self, board: JobBoard) -> None:
        board.set_limit("job", concurrency=1, per="group")
        board.pause(["paused"])
        board.post_many([{"name": "job", "group": "full"}] * 120 + [{"name": "paused"}])
        board.post("job", group="free")
        assert [job.group for job in board.claim_many("anna", 3)] == ["full", "free"]

    def test_a_higher_priority_first(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        low = board.post("mail", priority="LOW")
        held = take(board)
        board.post("mail")
        high = board.post("mail", priority="HIGH")
        assert board.claim_next("anna") is None
        board.abandon(held, "anna")
        assert take(board) == high
        assert low.state == UNCLAIMED

    def test_a_claim_of_what_is_over_its_limit(self, board: JobBoard, other: JobBoard) -> None:
        first, second = board.post("mail"), board.post("mail")
        board.set_limit("mail", concurrency=1)
        other.claim(other.get(first.uuid), "bob")
        with pytest.raises(UnclaimableJob, match="set_limit"):
            board.claim(second, "anna")
        assert second.state == UNCLAIMED
        assert second.attempts == 0
        other.release(first)
        board.claim(second, "anna")
        with pytest.raises(UnclaimableJob, match="set_limit"):
            other.claim(first, "bob")

    @pytest.mark.parametrize("verb", ["consume", "abandon", "delay", "trash", "release", "cancel a lapsed one"])
    def test_whatever_ends_a_claim_gives_its_slot_back(self, board: JobBoard, other: JobBoard, verb: str) -> None:
        board.set_limit("mail", concurrency=1)
        job = board.post("mail")
        second = board.post("mail")
        board.claim(job, "anna", expiry=SHORT if "lapsed" in verb else LONG)
        if verb == "delay":
            board.abandon(job, "anna", delay=LONG)
            assert job.state == SCHEDULED
        elif verb == "release":
            other.release(other.get(job.uuid))
            other.cancel(other.get(job.uuid))
        elif "lapsed" in verb:
            until_free(other, job)
            other.cancel(other.get(job.uuid))
        else:
            getattr(board, verb)(job, "anna")
            if verb == "abandon":
                board.cancel(job)
        assert take(other) == second

    def test_jobs_that_are_delayed_or_restored_hold_no_slot(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        board.post("mail", delay=LONG)
        trashed = board.post("mail")
        board.cancel(trashed)
        board.restore(trashed)
        assert take(board) == trashed
        assert board.claim_next("anna") is None

    def test_a_take_whose_reply_was_lost(self, board: JobBoard, other: JobBoard) -> None:
        """Its repetition tells the same jobs in the same order, and they count once."""
        board.set_limit("mail", concurrency=2)
        low, high, late = (board.post("mail", priority=priority) for priority in ("LOW", "HIGH", "LOW"))
        with lost_reply(board, "take"):
            held = board.claim_many("anna", 3)
        assert uuids(held) == [high.uuid, low.uuid]
        assert other.claim_next("bert") is None
        board.consume(held[0], "anna")
        assert take(other).uuid == late.uuid

    def test_many_at_once_get_no_more(self, board: JobBoard, make_board: MakeBoard) -> None:
        board.set_limit("mail", concurrency=3)
        post(board, 20)
        boards = [make_board() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda each: each.claim_many("anna", 5), boards))
        assert sum(map(len, got)) == 3
        assert board.stats().claimed == 3

    def test_all_that_were_posted_are_done_in_the_end(self, board: JobBoard, make_board: MakeBoard) -> None:
        board.set_limit("mail", concurrency=1, per="group")
        board.set_limit("mail", concurrency=2)
        posted = {job.uuid for job in board.post_many([Posting("mail", group=str(n % 3)) for n in range(24)])}
        done: list[str] = []

        def work(each: JobBoard) -> None:
            while len(done) < len(posted):
                job = each.claim_next("anna", timeout=0.2)
                if job is not None:
                    each.consume(job, "anna")
                    done.append(job.uuid)

        boards = [make_board() for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            for each in [pool.submit(work, board) for board in boards]:
                each.result(60)
        assert sorted(done) == sorted(posted)


class TestLimitedLapses:
    def test_a_lapsed_claim_has_given_its_slot_back(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail", priority="HIGH")
        let_lapse(board, first)
        assert take(other) == second
        assert other.claim_next("bob") is None

    def test_one_that_lapses_between_a_look_and_its_claim(self, board: JobBoard, other: JobBoard) -> None:
        """It comes back to its place, before what was seen."""
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        assert other.claim_next("bert", names=["resize"]) is None
        board.claim(first, "anna", expiry=SHORT)
        store = store_of(other)
        look = store.look

        def slow(*args: Any) -> Any:
            found = look(*args)
            until_free(board, first)
            return found

        store.look = slow
        assert take(other, timeout=LIMIT) == first
        assert second.state == UNCLAIMED

    def test_a_lapsed_claim_that_two_limits_count(self, board: JobBoard, wire: Wire) -> None:
        """Its holder ends it while another takes its slots."""
        if not wire:
            return
        board.set_limit("mail", concurrency=1)
        board.set_limit("mail", concurrency=1, per="group")

        def lapsed(far: JobBoard) -> tuple[Job, Job]:
            first, second = board.post_many([Posting("mail", group="one")] * 2)
            let_lapse(board, first)
            return first, second

        for (first, second), mine, theirs in at_each_request(
            board,
            wire,
            lapsed,
            lambda far, jobs: outcome(lambda: far.claim(far.get(jobs[1].uuid), "bob")),
            lambda board, jobs: outcome(lambda: board.consume(jobs[0], "anna")),
        ):
            assert (mine, theirs) == ("ok", "ok")
            assert (first.state, board.find_owner(second)) == (COMPLETE, "bob")

    def test_a_slot_that_is_given_back_and_taken_by_the_same_job(self, board: JobBoard, wire: Wire) -> None:
        """Whoever gives it back looks at the job, and at what is counted: the new claim stays in it."""
        if not wire:
            return
        board.set_limit("mail", concurrency=1)

        def claimed(far: JobBoard) -> Job:
            job = far.post("mail")
            far.claim(job, "anna")
            return job

        def claim(board: JobBoard, job: Job) -> str:
            return outcome(lambda: board.claim(board.get(job.uuid), "bert"))

        for _, mine, theirs in at_each_request(
            board, wire, claimed, lambda far, job: outcome(lambda: far.abandon(job, "anna")), claim
        ):
            assert mine == "ok"
            second = claim(board, board.post("mail", priority="HIGH"))
            assert {theirs, second} == {"ok", "UnclaimableJob"}

    def test_a_waiter_gets_the_slot_of_a_lapsed_claim(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail", priority="HIGH")
        board.claim(first, "anna", expiry=0.5)
        job = other.claim_next("bob", timeout=LIMIT)
        assert job == second

    def test_to_extend_a_lapsed_one_whose_slot_is_taken(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail", priority="HIGH")
        let_lapse(board, first)
        assert take(other) == second
        with pytest.raises(ClaimLost):
            board.extend(first, "anna", expiry=LONG)
        assert other.get(first.uuid).state == UNCLAIMED
        # Whether it may end goes by its token alone.
        board.consume(first, "anna")

    def test_to_extend_a_lapsed_one_whose_slot_is_free(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        let_lapse(board, first)
        board.extend(first, "anna", expiry=LONG)
        assert first.state == CLAIMED
        assert other.claim_next("bob") is None
        board.consume(first, "anna")
        assert take(other) == second

    def test_what_is_revived_after_its_slot_was_looked_for_counts_again(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=2)
        first, second, third = (board.post("mail") for _ in range(3))
        board.claim(first, "anna", expiry=SHORT)
        board.claim(second, "anna", expiry=LONG)
        until_free(other, first)
        # Writes down that the first one has lapsed.
        other.claim(third, "bob", expiry=SHORT)
        until_free(board, third)
        board.extend(first, "anna", expiry=LONG)
        assert other.claim_next("bob") is None

    @pytest.mark.parametrize("per", ["name", "group"])
    def test_who_only_looks_writes_nothing_down(
        self, board: JobBoard, make_board: MakeBoard, per: Literal["name", "group"]
    ) -> None:
        looking = make_board(read_only=True)
        board.set_limit("mail", concurrency=1, per=per)
        first, second = (board.post("mail", group="one", max_attempts=most) for most in (1, None))
        board.claim(first, "anna", expiry=SHORT)
        # Each board has its own idea of the server's clock, which a board that only looks learns from the others.
        eventually(lambda: {each.get(first.uuid).state for each in (board, looking)} == {TRASHED}, LIMIT)
        assert list(looking.iterjobs(only_unclaimed=True)) == [second]
        assert list(looking.wait(timeout=LIMIT)) == [second]
        [stored] = store_of(board).read([first.uuid]).jobs
        assert stored.record.state == CLAIMED
        assert take(board) == second
        assert list(looking.iterjobs(only_unclaimed=True)) == []
        with pytest.raises(NotFound):
            looking.wait(timeout=0)

    def test_attempts_that_are_used_up(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first = board.post("mail", max_attempts=1)
        second = board.post("mail")
        board.claim(first, "anna", expiry=SHORT)
        eventually(lambda: other.get(first.uuid).state == TRASHED, LIMIT)
        assert take(other) == second


class TestRateLimits:
    def test_of_a_name(self, board: JobBoard, other: JobBoard) -> None:
        posted = post(board, 4)
        board.set_limit("mail", rate=(2, LONG))
        assert other.limits() == [Limit("mail", "name", None, (2, LONG))]
        held = other.claim_many("anna", 10)
        assert uuids(held) == posted[:2]
        other.consume_many(held, "anna")
        assert board.claim_next("anna") is None
        with pytest.raises(UnclaimableJob):
            board.claim(board.get(posted[2]), "anna")

    def test_the_window_slides(self, board: JobBoard) -> None:
        posted = post(board, 3)
        board.set_limit("mail", rate=(1, 0.3))
        got = [board.claim_next("anna", timeout=LIMIT) for _ in posted]
        assert [job.uuid for job in got if job is not None] == posted
        began = [job.last_modified for job in (board.get(uuid) for uuid in posted)]
        assert all((later - earlier).total_seconds() >= 0.3 for earlier, later in itertools.pairwise(began))

    def test_what_is_given_back_counts_and_what_is_extended_does_not(self, board: JobBoard) -> None:
        board.post("mail")
        board.set_limit("mail", rate=(2, LONG))
        job = take(board)
        board.extend(job, "anna")
        board.finish_many([Act(job, "abandon", refund=True)], "anna")
        board.consume(take(board), "anna")
        board.post("mail")
        assert board.claim_next("anna") is None

    def test_of_each_group(self, board: JobBoard) -> None:
        one, two, free = post(board, 2, group="one"), post(board, 2, group="two"), post(board, 2)
        board.set_limit("mail", rate=(1, LONG), per="group")
        assert uuids(board.claim_many("anna", 10)) == [one[0], two[0], *free]
        assert board.claim_next("anna") is None

    def test_behind_many_groups_that_have_used_it_up(self, board: JobBoard, other: JobBoard) -> None:
        """A take looks a few times, and not once for each of them."""
        groups = [f"{number}" for number in range(150)]
        board.set_limit("mail", rate=(1, LONG), per="group")
        for _ in range(2):
            board.post_many([Posting("mail", group=group) for group in groups])
        board.consume_many(board.claim_many("anna", 200), "anna")
        last = board.post("mail")
        store, looks = store_of(other), []
        look = store.look

        def counted(*args: Any) -> Any:
            looks.append(args)
            return look(*args)

        store.look = counted
        assert take(other) == last
        assert len(looks) < 12


class TestRatesBetweenRequests:
    """The start that a rate counts is the time at which a claim is sent to be stored, not the time of its look."""

    any_driver = True

    @pytest.mark.parametrize("verb", ["claim_next", "claim"])
    def test_no_start_is_counted_before_a_claim_is_sent(self, board: JobBoard, wire: Wire, verb: str) -> None:
        """The reply to each request of a claim is held up in turn.

        No request is held up: a commit reaches the server as soon as it is sent. A job that is free when a reply is let
        go is claimed by a later commit, whatever else passes on the wire. A claim that a loaded machine has made late
        several times may be later still, so an early start counts if three claims in a row have one.
        """
        if not wire:
            return
        far, store = wire.far(), store_of(board)
        board.set_limit("mail", rate=(100, WINDOW))
        board.set_limit("mail", concurrency=1, per="group")
        # More of a full group than one look takes in: the look behind them comes after the time was read.
        board.post_many([Posting("mail", group="full", priority="HIGH") for _ in range(150)])
        assert take(board).group == "full"
        jobs = board.post_many([Posting("mail") for _ in range(40)])

        def claim(far: JobBoard, job: Job) -> None:
            if verb == "claim":
                far.claim(far.get(job.uuid), "anna", LONG)
            else:
                assert take(far) == job

        # The first commit of a board may be repeated by the store, which makes what is missing.
        far(claim, far.board, jobs.pop(0))
        early, nth, late = 0, 1, 0
        for job in jobs:
            let_go = list[tuple[int, str | None]]()

            def hold(job: Job = job, let_go: list[tuple[int, str | None]] = let_go) -> None:
                # Well before or behind the moments at which a backend asks once more for the answer that it lacks.
                until = boottime() + 0.45 * WINDOW
                eventually(lambda: boottime() > until, LIMIT)
                let_go.append((board.engine.raw.now(), board.find_owner(job)))

            far.proxy.after(hold, nth=nth)
            far(claim, far.board, job)
            if not let_go:
                far.proxy.restore()
                break
            [(now, owner)] = let_go
            if owner is None:
                early += 1
                *_, start = Listed.of(store.read([], [(SCOPE, job.name)]).sides[0]).starts
                late = late + 1 if start <= now - WINDOW / 8 * 1e6 else 0
                assert late < 3, f"the reply to request {nth} was held up"
            if not late:
                nth += 1
        else:
            raise AssertionError("it needs more requests")
        assert early or nth == 2, "it needs several requests, and none comes before its commit"


class TestLimitRaces:
    any_driver = True

    def test_whatever_happens_no_limit_is_exceeded(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(WORKERS)]
        book = Journal()
        chief = book.recorder(make_board(), "chief")
        chief.set_limit("mail", concurrency=2, per="group")
        chief.set_limit("mail", concurrency=3)
        chief.set_limit("print", rate=(5, 0.2))
        deadline = boottime() + 60

        def work(number: int) -> list[object]:
            recorder, dice = book.recorder(boards[number], f"worker {number}"), random.Random(number)
            while boards[number].job_count and boottime() < deadline:
                for job in recorder.claim_many(f"worker {number % 2}", 1 + number % 2, timeout=SHORT):
                    mistreat(recorder, job, dice)
            return [error for error in recorder.failures if not isinstance(error, (ClaimLost, NotFound))]

        chief.post_many([Posting(["mail", "resize", "print"][n % 3], group="xy"[n % 2]) for n in range(JOBS)])
        with ThreadPoolExecutor(WORKERS) as pool:
            working = [pool.submit(work, number) for number in range(WORKERS)]
            for concurrency in (1, 2):
                chief.set_limit("mail", concurrency=concurrency)
                chief.remove_limit("mail", "group")
                chief.set_limit("mail", concurrency=1, per="group")
            unexpected = [error for each in working for error in each.result()]
        assert unexpected == []
        board = left_on(boards[0])
        assert judge(book.entries, board, limits=chief.limits) == []
        assert left_over(board) == []
