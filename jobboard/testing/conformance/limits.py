"""Limits of concurrency and rate: their setting, their slots, waiters for a slot, and the records of idle scopes."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import pytest

from jobboard.board import JobBoard
from jobboard.engine.limits import SCOPE, Listed
from jobboard.exceptions import ClaimLost, NotFound, UnclaimableJob
from jobboard.job import Act, Job, Posting
from jobboard.primitives import Limit
from jobboard.runtime import boottime
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.interleavings import at_each_request
from jobboard.testing.conformance.processes import outcome, reaches
from jobboard.testing.conformance.races import JOBS, WORKERS, Journal, mistreat
from jobboard.testing.conformance.repetitions import MOST, clear
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    PATIENCE,
    SHORT,
    Background,
    MakeBoard,
    Waiter,
    let_lapse,
    take,
    until_free,
    uuids,
)
from jobboard.testing.conformance.wire import Wire
from jobboard.testing.history import judge, left_over
from jobboard.testing.puppet import Puppet
from jobboard.testing.recording import left_on
from jobboard.testing.requests import requests

WINDOW = 1.0
"""Of a rate, in seconds."""


def post(board: JobBoard, number: int, name: str = "mail", group: str | None = None) -> list[str]:
    return uuids(board.post_many([Posting(name, group=group) for _ in range(number)]))


class TestConcurrencyLimits:
    def test_limit_of_a_name_counts_all_its_jobs(self, board: JobBoard, other: JobBoard) -> None:
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

    @holds("Claims that stand far apart count.")
    def test_limit_per_group_counts_each_group(self, board: JobBoard, other: JobBoard) -> None:
        one, two = post(board, 2, group="one"), post(board, 2, group="two")
        free = post(board, 3)
        board.set_limit("mail", concurrency=1, per="group")
        assert uuids(other.claim_many("anna", 10)) == [one[0], two[0], *free]
        assert board.claim_next("anna") is None
        board.consume(other.get(two[0]), "anna")
        assert take(other, "bob").uuid == two[1]

    def test_claim_needs_room_in_name_and_group(self, board: JobBoard) -> None:
        one, two = post(board, 3, group="one"), post(board, 3, group="two")
        board.set_limit("mail", concurrency=3)
        board.set_limit("mail", concurrency=2, per="group")
        assert board.limits() == [Limit("mail", "group", 2), Limit("mail", "name", 3)]
        held = board.claim_many("anna", 10)
        assert uuids(held) == [*one[:2], two[0]]
        board.consume(held[0], "anna")
        # Whatever is first and has room in both.
        assert uuids(board.claim_many("anna", 10)) == [one[2]]

    @holds("A batch gets the slots of claims that have ended.")
    def test_a_batch_gets_the_slots_of_claims_that_have_ended(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=3, per="group")
        post(board, 2, group="a")
        for job in board.claim_many("anna", 2):
            other.consume(job, "anna")
        crowd, last = post(board, 4, group="a"), post(board, 1, group="b")
        assert uuids(other.claim_many("anna", 4)) == [*crowd[:3], *last]

    @holds("Jobs behind many full groups are found.")
    @holds("The first job that has room is found behind many jobs of full groups.")
    @holds("Full groups that a look has passed by are seen again when they have room.")
    def test_full_group_delays_no_other_group(self, board: JobBoard) -> None:
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

    @holds("A claim passes by the full groups that the last one has met without meeting them one look after another.")
    def test_many_full_groups_are_passed_by_together(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1, per="group")
        groups = [f"group {number}" for number in range(60)]
        waiting = board.post_many([Posting("mail", group=group) for group in groups for _ in range(4)])
        held = board.claim_many("anna", 100)
        assert uuids(held) == uuids(waiting[::4])
        assert board.claim_next("anna") is None
        looks: list[bool] = []
        with requests(board).before("look", lambda: looks.append(True)):
            # Others end claims, and post to groups of their own.
            other.consume(other.get(held[7].uuid), "anna")
            new = other.post("mail", group="new")
            assert take(board).uuid == waiting[29].uuid
            assert take(board) == new
            assert board.claim_next("anna", names=["mail", "resize"]) is None
            other.remove_limit("mail")
            assert take(board).uuid == waiting[1].uuid
        assert len(looks) <= 9

    def test_full_group_beside_a_paused_name_delays_no_other(self, board: JobBoard) -> None:
        board.set_limit("job", concurrency=1, per="group")
        board.pause(["paused"])
        board.post_many([{"name": "job", "group": "full"}] * 120 + [{"name": "paused"}])
        board.post("job", group="free")
        assert [job.group for job in board.claim_many("anna", 3)] == ["full", "free"]

    def test_a_job_without_room_is_unclaimable(self, board: JobBoard, other: JobBoard) -> None:
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

    @holds("A job that had no room is next once it has.")
    def test_each_end_of_a_claim_frees_its_slot(self, board: JobBoard, other: JobBoard) -> None:
        for verb in ("consume", "abandon", "delay", "trash", "release", "cancel a lapsed one"):
            board.set_limit(verb, concurrency=1)
            job, second = board.post(verb), board.post(verb)
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
            assert take(other, names=[verb]) == second

    @holds("Jobs that are delayed or restored hold no slot.")
    def test_jobs_that_are_delayed_or_restored_hold_no_slot(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        board.post("mail", delay=LONG)
        trashed = board.post("mail")
        board.cancel(trashed)
        board.restore(trashed)
        assert take(board) == trashed
        assert board.claim_next("anna") is None

    @holds("A repeated take under limits returns its jobs in serving order.")
    def test_a_repeated_take_returns_the_same_jobs_and_counts_them_once(self, board: JobBoard, other: JobBoard) -> None:
        """The repetition returns the same jobs in the same order, and they count once."""
        board.set_limit("mail", concurrency=2)
        low, high, late = (board.post("mail", priority=priority) for priority in ("LOW", "HIGH", "LOW"))
        with Harness(board).lost_reply():
            held = board.claim_many("anna", 3)
        assert uuids(held) == [high.uuid, low.uuid]
        assert other.claim_next("bert") is None
        board.consume(held[0], "anna")
        assert take(other).uuid == late.uuid

    @holds("No more claims live than a concurrency limit allows.")
    def test_concurrent_claims_keep_the_limit(self, board: JobBoard, make_board: MakeBoard) -> None:
        board.set_limit("mail", concurrency=3)
        post(board, 20)
        boards = [make_board() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda each: each.claim_many("anna", 5), boards))
        assert sum(map(len, got)) == 3
        assert board.stats().claimed == 3


class TestLimitedLapses:
    @holds("A lapsed claim gives its slot back at that instant.")
    def test_a_lapsed_claim_has_given_its_slot_back(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail", priority="HIGH")
        let_lapse(board, first)
        assert take(other) == second
        assert other.claim_next("bob") is None

    @holds("A lapse between a look and its claim fills no scope twice.")
    def test_claim_that_lapses_before_the_commit_frees_its_slot(self, board: JobBoard, other: JobBoard) -> None:
        """The job comes back to its place, before the jobs that were seen."""
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        assert other.claim_next("bert", names=["resize"]) is None
        board.claim(first, "anna", expiry=SHORT)

        def slow(look: Callable[..., Any], *args: Any) -> Any:
            found = look(*args)
            until_free(board, first)
            return found

        with Harness(other).replaced("look", slow):
            assert take(other, timeout=LIMIT) == first
        assert second.state == UNCLAIMED

    @holds("A lapse that two full limits count is written down once.")
    def test_a_lapsed_claim_that_two_limits_count(self, board: JobBoard, wire: Wire) -> None:
        """The holder ends the lapsed claim while another worker takes its slots."""
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

    @holds("A slot is not freed by an earlier claim of a job that has been claimed again.")
    def test_a_slot_that_is_given_back_and_taken_by_the_same_job(self, board: JobBoard, wire: Wire) -> None:
        """The end of the old claim leaves the new claim of the same job in the count."""
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

    @holds("A lapsed claim whose slot is taken cannot be extended; a free slot revives it.")
    def test_lapsed_claim_whose_slot_is_taken_is_not_extended(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail", priority="HIGH")
        let_lapse(board, first)
        assert take(other) == second
        stopped: list[bool] = []
        assert first.claim is not None
        first.claim.when_refused(lambda: stopped.append(True))
        with pytest.raises(ClaimLost, match="set_limit"):
            board.extend(first, "anna", expiry=LONG)
        with pytest.raises(ClaimLost, match="set_limit"):
            first.claim.extend()
        # Nobody has refused the token, and the work is not stopped.
        assert (first.claim.seen_lost, first.claim.refused, stopped) == (True, False, [])
        assert other.get(first.uuid).state == UNCLAIMED
        # Whether it may end goes by its token alone.
        board.consume(first, "anna")

    @holds("A lapsed claim whose slot is taken cannot be extended; a free slot revives it.")
    def test_lapsed_claim_whose_slot_is_free_is_extended(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        let_lapse(board, first)
        board.extend(first, "anna", expiry=LONG)
        assert first.state == CLAIMED
        assert other.claim_next("bob") is None
        board.consume(first, "anna")
        assert take(other) == second

    @holds("A revived claim counts again, though its slot was looked for before.")
    def test_revived_claim_counts_again(self, board: JobBoard, other: JobBoard) -> None:
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

    @holds("A limited board that is only looked at gets nothing written down.")
    @pytest.mark.parametrize("per", ["name", "group"])
    def test_read_writes_no_lapse_down(
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
        [stored] = Harness(board).store.read([first.uuid]).jobs
        assert stored.record.state == CLAIMED
        assert take(board) == second
        assert list(looking.iterjobs(only_unclaimed=True)) == []
        with pytest.raises(NotFound):
            looking.wait(timeout=0)


class TestRateLimits:
    def test_rate_of_a_name_counts_all_its_claims(self, board: JobBoard, other: JobBoard) -> None:
        posted = post(board, 4)
        board.set_limit("mail", rate=(2, LONG))
        assert other.limits() == [Limit("mail", "name", None, (2, LONG))]
        held = other.claim_many("anna", 10)
        assert uuids(held) == posted[:2]
        other.consume_many(held, "anna")
        assert board.claim_next("anna") is None
        with pytest.raises(UnclaimableJob):
            board.claim(board.get(posted[2]), "anna")

    @holds("A rate never lets a start count as one from before its window.")
    def test_the_window_slides(self, board: JobBoard) -> None:
        posted = post(board, 3)
        board.set_limit("mail", rate=(1, 0.3))
        got = [board.claim_next("anna", timeout=LIMIT) for _ in posted]
        assert [job.uuid for job in got if job is not None] == posted
        began = [job.last_modified for job in (board.get(uuid) for uuid in posted)]
        assert all((later - earlier).total_seconds() >= 0.3 for earlier, later in itertools.pairwise(began))

    @holds("A rate counts refunded claims, and no extends.")
    def test_refunded_claim_counts_and_extension_does_not(self, board: JobBoard) -> None:
        board.post("mail")
        board.set_limit("mail", rate=(2, LONG))
        job = take(board)
        board.extend(job, "anna")
        board.finish_many([Act(job, "abandon", refund=True)], "anna")
        board.consume(take(board), "anna")
        board.post("mail")
        assert board.claim_next("anna") is None

    @holds("An extension starts no claim under a rate, also where it revives the claim.")
    def test_a_lapsed_claim_begins_no_second_time_by_its_extension(self, board: JobBoard) -> None:
        job = board.post("mail")
        board.set_limit("mail", rate=(1, LONG))
        let_lapse(board, job)
        board.extend(job, "anna", expiry=LONG)
        board.consume(job, "anna")

    def test_rate_per_group_counts_each_group(self, board: JobBoard) -> None:
        one, two, free = post(board, 2, group="one"), post(board, 2, group="two"), post(board, 2)
        board.set_limit("mail", rate=(1, LONG), per="group")
        assert uuids(board.claim_many("anna", 10)) == [one[0], two[0], *free]
        assert board.claim_next("anna") is None

    @holds("Jobs behind many full groups are found.")
    def test_groups_at_their_rate_delay_no_other_group(self, board: JobBoard, other: JobBoard) -> None:
        """A take looks a constant number of times, not once for each group."""
        groups = [f"{number}" for number in range(150)]
        board.set_limit("mail", rate=(1, LONG), per="group")
        for _ in range(2):
            board.post_many([Posting("mail", group=group) for group in groups])
        board.consume_many(board.claim_many("anna", 200), "anna")
        last = board.post("mail")
        looks: list[Any] = []

        def counted(look: Callable[..., Any], *args: Any) -> Any:
            looks.append(args)
            return look(*args)

        with Harness(other).replaced("look", counted):
            assert take(other) == last
        assert len(looks) < 12


class TestRatesBetweenRequests:
    """The start that a rate counts is the time at which a claim is sent to be stored, not the time of its look."""

    any_driver = True

    @holds("A rate never lets a start count as one from before its window.")
    def test_no_start_is_counted_before_a_claim_is_sent(self, board: JobBoard, wire: Wire) -> None:
        """The reply to each request of a claim is held up in turn.

        No request is held up: a commit reaches the server as soon as it is sent. A job that is free when a reply is let
        go is claimed by a later commit, whatever else passes on the wire. A claim that a loaded machine has made late
        several times may be later still, so an early start counts if three claims in a row have one.
        """
        if not wire:
            return
        far, harness = wire.far(), Harness(board)
        board.set_limit("mail", rate=(100, WINDOW))
        board.set_limit("mail", concurrency=1, per="group")
        # More of a full group than one look takes in: the look behind them comes after the time was read.
        board.post_many([Posting("mail", group="full", priority="HIGH") for _ in range(150)])
        assert take(board).group == "full"
        jobs = board.post_many([Posting("mail") for _ in range(40)])

        def claim(far: JobBoard, job: Job) -> None:
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
                let_go.append((harness.now(), board.find_owner(job)))

            far.proxy.after(hold, nth=nth)
            far(claim, far.board, job)
            if not let_go:
                far.proxy.restore()
                break
            [(now, owner)] = let_go
            if owner is None:
                early += 1
                *_, start = Listed.of(harness.side(SCOPE, job.name)).starts
                late = late + 1 if start <= now - WINDOW / 8 * 1e6 else 0
                assert late < 3, f"the reply to request {nth} was held up"
            if not late:
                nth += 1
        else:
            raise AssertionError("it needs more requests")
        assert early or nth == 2, "it needs several requests, and none comes before its commit"


class TestLimitRaces:
    any_driver = True

    @holds("No more claims live than a concurrency limit allows.")
    def test_random_acts_exceed_no_limit(self, make_board: MakeBoard) -> None:
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


class TestLimitSetting:
    @holds("Claims that began before a limit was lowered are counted.")
    def test_a_limit_below_the_live_claims_admits_no_new_claim(self, board: JobBoard, other: JobBoard) -> None:
        post(board, 6)
        board.set_limit("mail", concurrency=4)
        held = other.claim_many("anna", 4)
        board.set_limit("mail", concurrency=2)
        for job in held[:2]:
            other.extend(job, "anna")
            other.consume(job, "anna")
            assert board.claim_next("anna") is None
        other.consume(held[2], "anna")
        assert board.claim_next("anna") is not None
        assert board.claim_next("anna") is None

    def test_removal_of_an_absent_limit_raises(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        with pytest.raises(NotFound, match="no limit of 'mail' per group"):
            board.remove_limit("mail", per="group")
        board.remove_limit("mail", per="name")
        with pytest.raises(NotFound, match="limits\\(\\) lists them"):
            board.remove_limit("mail")


class TestRepeatedSettings:
    """A repetition sets nothing that its first try has set."""

    any_driver = True

    def test_repeated_setting_restores_no_removed_limit(self, board: JobBoard, other: JobBoard) -> None:
        with Harness(board).lost_reply(lambda: other.remove_limit("mail")):
            board.set_limit("mail", concurrency=3)
        assert other.limits() == []

    def test_repeated_pause_undoes_no_resume(self, board: JobBoard, other: JobBoard) -> None:
        with Harness(board).lost_reply(other.resume):
            board.pause(["mail"])
        assert not other.paused()
        board.pause()
        with Harness(board).lost_reply(lambda: other.pause(["mail"])):
            board.resume()
        assert other.paused().names == ("mail",)

    def test_concurrent_settings_all_stand(self, board: JobBoard, make_board: MakeBoard) -> None:
        names = [f"mail {number}" for number in range(5)]

        def set_both(one: JobBoard, name: str) -> None:
            one.pause([name])
            one.set_limit("mail", concurrency=2)

        begun = [Background(partial(set_both, make_board(), name)) for name in names]
        for each in begun:
            each.wait()
        assert board.paused().names == tuple(names)
        assert board.limits() == [Limit("mail", "name", 2)]


ASLEEP = 0.5
"""Seconds after which a waiter has sent the requests that it sends before it sleeps. If it has not, nothing fails."""


class TestSlotWaiters:
    @pytest.mark.parametrize("change", ["the claim ends", "a higher limit", "no limit"])
    def test_free_slot_wakes_a_waiter(self, board: JobBoard, other: JobBoard, change: str) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        board.claim(first, "anna")
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        assert waiter.running
        if change == "the claim ends":
            board.consume(first, "anna")
        elif change == "a higher limit":
            board.set_limit("mail", concurrency=2)
        else:
            board.remove_limit("mail")
        assert waiter.wait() == second

    @holds("A waiter for a slot is woken by the limit that is in force now.")
    def test_free_slot_of_a_lowered_limit_wakes_a_waiter(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=4)
        post(board, 4)
        held = board.claim_many("anna", 2)
        other.set_limit("mail", concurrency=2)
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        board.consume(held[0], "anna")
        assert waiter.wait() is not None

    @holds("A waiter for a slot is woken by the repetition of an end whose reply was lost.")
    @pytest.mark.parametrize(
        ("verb", "by"),
        [
            *[("consume", "its board"), ("consume", "its board, without a reply"), ("consume", "another")],
            *[("abandon", "its board"), ("release", "another")],
        ],
    )
    def test_end_of_a_claim_from_before_the_limit_wakes_a_waiter(
        self, board: JobBoard, make_board: MakeBoard, verb: str, by: str
    ) -> None:
        """The caller that ends the claim may know no limit, and may not have made the claim."""
        jobs = [board.post("mail", max_attempts=1) for _ in range(3)]
        for job in jobs[:2]:
            board.claim(job, "anna")
        other = make_board()
        other.set_limit("mail", concurrency=2)
        waiter = Waiter(other, lambda: other.claim_next("bob", timeout=PATIENCE))
        ending = make_board() if by == "another" else board
        ended = ending.get(jobs[0].uuid) if by == "another" else jobs[0]
        with Harness(ending).lost_reply() if "reply" in by else contextlib.nullcontext():
            if verb == "release":
                ending.release(ended)
            elif verb == "abandon":
                ending.abandon(ended, "anna", delay=LONG)
            else:
                ending.consume(ended, "anna")
        assert waiter.wait() == jobs[2]

    def test_waiters_get_all_free_slots(self, board: JobBoard, make_board: MakeBoard) -> None:
        board.set_limit("mail", concurrency=3)
        post(board, 6)
        held = board.claim_many("anna", 3)
        waiters = []
        for _ in range(3):
            other = make_board()
            waiters.append(Waiter(other, lambda other=other: other.claim_next("bob", timeout=PATIENCE)))  # type: ignore[misc]
        board.consume_many(held, "anna")
        assert all(waiter.wait() is not None for waiter in waiters)

    @holds("A lapsed claim gives its slot back at that instant.")
    def test_the_slots_of_a_killed_worker_come_free(self, board: JobBoard, puppet: Puppet) -> None:
        if not reaches(board, puppet):
            return
        board.set_limit("mail", concurrency=2)
        first, second, _ = post(board, 3)
        assert [puppet("claim_next", "anna")[0] for _ in range(2)] == [first, second]
        assert board.claim_next("bert") is None
        puppet.signal(signal.SIGKILL)
        # By itself the waiter looks again once a lease of its own has passed, which most boards have for longer.
        assert take(board, "bert", timeout=LIMIT).uuid == first
        assert take(board, "bert", timeout=LIMIT).uuid == second
        assert board.claim_next("bert") is None

    @holds("A waiter for a full scope is told when the next job is due.")
    @holds("A job that had no room is next once it has.")
    def test_a_waiter_for_a_slot_knows_when_the_next_job_is_due(self, board: JobBoard, make_board: MakeBoard) -> None:
        waiting = make_board(claim_ttl=LONG)
        board.set_limit("mail", concurrency=1)
        post(board, 2)
        take(board)
        board.post("resize", delay=60)
        found = Harness(waiting).engine.peek(None)
        assert not found.any
        assert found.next_event is not None
        assert found.next_event <= 60_000_000

    def test_wait_and_iterjobs_leave_out_what_has_no_room(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        first, second = board.post("mail"), board.post("mail")
        assert uuids(board.iterjobs(only_unclaimed=True)) == [first.uuid, second.uuid]
        board.claim(first, "anna")
        assert list(board.iterjobs(only_unclaimed=True)) == []
        assert uuids(board.iterjobs(states=[UNCLAIMED])) == [second.uuid]
        with pytest.raises(NotFound):
            board.wait(timeout=0.1)
        board.consume(first, "anna")
        assert uuids(board.wait(timeout=LIMIT)) == [second.uuid]


class TestSlotsBetweenRequests:
    """Acts of others on a slot between two requests of a claim, or of a waiter."""

    any_driver = True

    @holds("No more claims live than a concurrency limit allows.")
    @holds("The last slot that another handle takes meanwhile is not given out twice.")
    @holds("A take that enters scopes is decided again if something happens between its look and its claim.")
    def test_last_slot_goes_to_one_of_two_claims(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        board.set_limit("mail", concurrency=1)
        for (first, _), mine, theirs in at_each_request(
            board,
            wire,
            lambda far: board.post_many([Posting("mail")] * 2),
            lambda far, jobs: far.claim_next("anna"),
            lambda board, jobs: board.claim_next("bert"),
        ):
            assert [mine, theirs] in ([first, None], [None, first])
            assert board.stats().claimed == 1

    @holds("A lapsed claim whose slot is taken cannot be extended; a free slot revives it.")
    @holds("Two handles at the last slot get it once.")
    @pytest.mark.parametrize("stopped", ["the claim", "the revival"])
    def test_a_revival_while_its_slot_is_claimed(self, board: JobBoard, wire: Wire, stopped: str) -> None:
        if not wire:
            return
        board.set_limit("mail", concurrency=1)

        def lapsed(far: JobBoard) -> tuple[Job, Job]:
            first, second = board.post_many([Posting("mail")] * 2)
            let_lapse(board, first)
            return first, second

        def claim(board: JobBoard, jobs: tuple[Job, Job]) -> bool:
            return board.claim_next("bert", expiry=LONG) is not None

        def revive(board: JobBoard, jobs: tuple[Job, Job]) -> bool:
            return outcome(lambda: board.extend(jobs[0], "anna", LONG)) == "ok"

        do, others = (claim, revive) if stopped == "the claim" else (revive, claim)
        for _, mine, theirs in at_each_request(board, wire, lapsed, do, others):
            assert mine is not theirs
            assert board.stats().claimed == 1

    @holds("A lapsed claim whose slot is taken cannot be extended; a free slot revives it.")
    def test_a_holder_that_loses_its_slot(self, board: JobBoard, wire: Wire) -> None:
        """The slot is free or the new claim's: the earlier holder cannot extend."""
        if not wire:
            return
        board.set_limit("mail", concurrency=1)

        def held(far: JobBoard) -> Job:
            first, _ = board.post_many([Posting("mail")] * 2)
            board.claim(first, "anna", LONG)
            return first

        for first, mine, theirs in at_each_request(
            board,
            wire,
            held,
            lambda far, first: far.claim_next("bert", expiry=LONG),
            lambda board, first: outcome(lambda: board.release(board.get(first.uuid))),
        ):
            extended = outcome(partial(board.extend, first, "anna", LONG))
            assert (theirs, extended) == ("ok", "ClaimLost")
            assert board.stats().claimed == (mine is not None)

    @holds("A waiter for a slot does not sleep through a slot that comes free while it looks.")
    def test_a_slot_that_comes_free_while_a_waiter_looks(self, board: JobBoard, wire: Wire) -> None:
        """Between any two requests of the waiter, or once it sleeps: it does not sleep through that."""
        if not wire:
            return
        board.set_limit("mail", concurrency=1)
        far = wire.far()

        def race(nth: int) -> bool:
            """Return whether the waiter has sent so many requests before it slept."""
            first, second = board.post_many([Posting("mail")] * 2)
            board.claim(first, "anna")

            def free() -> None:
                outcome(lambda: board.consume(first, "anna"))

            stop = far.proxy.before(lambda: wire.meanwhile(nth, free), nth=nth)
            waiter = far.begin(lambda: (far.board.claim_next("bert", timeout=PATIENCE), boottime()))
            with contextlib.suppress(AssertionError):
                eventually(lambda: stop.happened or waiter.done(), ASLEEP)
            began, happened = boottime(), stop.happened
            if not happened:
                far.proxy.restore()
                free()
            job, ended = waiter.result(2 * PATIENCE)
            assert job == second
            assert ended - began < LIMIT, "at the end of its time a waiter looks in any case"
            clear(board)
            return happened

        assert race(1)
        for nth in range(2, MOST):
            if not race(nth):
                return


def stored(board: JobBoard, *keys: str) -> list[bool]:
    """Return whether each of these scopes has a side record."""
    return [Harness(board).side(SCOPE, key).value is not None for key in keys]


def has_lists(board: JobBoard) -> bool:
    """Return whether side records list the claims of a scope. A store may count them by itself."""
    return not Harness(board).store.traits.locks_scopes


class TestIdleScopes:
    @holds("Side records of scopes without claims are dropped, and a claim that begins meanwhile is counted.")
    def test_records_of_idle_scopes_are_deleted(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=2, per="group")
        board.set_limit("mail", concurrency=100)
        groups = [f"{number}" for number in range(30)]
        jobs = board.post_many([Posting("mail", group=group) for group in groups])
        held = board.claim_many("anna", 100)
        assert held == jobs
        scopes = ["mail", *(f"mail\n{group}" for group in groups)]
        assert stored(board, *scopes) == [has_lists(board)] * len(scopes)
        board.consume_many(held[1:], "anna")
        Harness(other).tidy()
        assert stored(board, *scopes) == [has_lists(board)] * 2 + [False] * 29
        again = post(board, 3, group="29")
        assert uuids(board.claim_many("anna", 3)) == again[:2], "it counts anew"
        post(board, 2, group="0")
        assert take(board).group == "0"
        assert board.claim_next("anna") is None

    @pytest.mark.parametrize("meanwhile", ["no limit", "a concurrency", "a shorter rate"])
    def test_a_rate_counts_what_one_before_it_has_counted(
        self, board: JobBoard, other: JobBoard, meanwhile: str
    ) -> None:
        board.set_limit("mail", rate=(1, SHORT if meanwhile == "a shorter rate" else LONG))
        post(board, 4)
        board.consume(take(board), "anna")
        over = Harness(board).now() + int(SHORT * 1e6)
        if meanwhile == "a concurrency":
            board.set_limit("mail", concurrency=2)
            Harness(other).tidy()
            board.consume_many([take(board), take(board)], "anna")
        elif meanwhile == "no limit":
            board.remove_limit("mail")
        eventually(lambda: Harness(board).now() > over, LIMIT)
        Harness(other).tidy()
        board.set_limit("mail", rate=(1, LONG))
        assert board.claim_next("anna") is None

    @holds("A lapsed claim of a dropped scope is revived, or its slot is another's.")
    def test_a_lapsed_claim_is_revived_or_its_slot_is_anothers(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        job = board.post("mail")
        let_lapse(board, job)
        Harness(other).tidy()
        board.extend(job, "anna", LONG)
        post(board, 1)
        assert other.claim_next("bert") is None

    @holds("Side records of scopes without claims are dropped, and a claim that begins meanwhile is counted.")
    def test_a_claim_that_begins_meanwhile_is_counted(self, board: JobBoard, wire: Wire) -> None:
        """Others act before each request of a tidying in turn."""
        if not wire:
            return

        def prepare(board: JobBoard) -> list[Job]:
            board.set_limit("mail", concurrency=2)
            jobs = board.post_many([Posting("mail") for _ in range(4)])
            board.consume(take(board), "anna")
            return jobs

        def sweep(board: JobBoard, _: list[Job]) -> None:
            Harness(board).tidy()

        def claim(board: JobBoard, _: list[Job]) -> str:
            return take(board, "bert").uuid

        for jobs, _, theirs in at_each_request(board, wire, prepare, sweep, claim):
            assert theirs == jobs[1].uuid
            assert stored(board, "mail") == [has_lists(board)]
            assert uuids(board.claim_many("carl", 2)) == [jobs[2].uuid]
