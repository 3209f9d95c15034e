"""Damaged records and postings: reported, passed over or trashed, and never in the way of other jobs."""

from __future__ import annotations

import functools
import logging
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.engine import GATE
from jobboard.exceptions import ConnectionFailure, JobFailure, NotFound
from jobboard.job import Entity, Posting
from jobboard.primitives import Oddity
from jobboard.priorities import JobPriority
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import LONG_AGO, Harness
from jobboard.testing.conformance.limits import post
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    PATIENCE,
    SHORT,
    EventLog,
    MakeBoard,
    Waiter,
    claim_one,
    let_lapse,
    take,
    until_free,
    uuids,
)


class TestPoison:
    """Postings that can't be decoded, and those of a newer version."""

    @holds("A read skips an undecodable posting with a warning, and a claim moves it to the trash.")
    def test_a_claim_moves_it_to_the_trash(self, board: JobBoard) -> None:
        harness = Harness(board)
        damaged = [b"", b"\x01", b"\x80"] if isinstance(harness.posting(), bytes) else ["{}", '"x"', '{"details":1}']
        planted = [uuid for posting in (None, *damaged) for uuid in harness.plant(posting)]
        events = EventLog(board)
        good = board.post("resize", priority=JobPriority.LOW)
        assert take(board) == good
        assert board.claim_next("anna") is None
        assert board.stats().trashed == len(planted)
        trashed = list(board.trashed())
        assert sorted(uuids(trashed)) == sorted(planted)
        assert all(job.error and "decoded" in job.error and job.details == {} for job in trashed)
        for uuid in planted:
            events.expect(uuid, "TRASHED", "REMOVAL")

    @holds("A job that can neither be read nor trashed takes no other claim of its batch with it.")
    def test_job_that_cannot_be_trashed_takes_no_other_with_it(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0)
        first = board.post("resize")
        Harness(board).plant()
        jobs = [first, board.post("resize")]

        def fail(*args: Any, **extra: Any) -> Any:
            raise ConnectionFailure("away")

        with Harness(board).replaced("finish", fail):
            assert board.claim_many("anna", 3) == jobs
        board.consume_many(jobs, "anna")
        assert board.job_count == 1

    @holds("A read skips an undecodable posting with a warning, and a claim moves it to the trash.")
    def test_reading_skips_it_with_a_warning(self, board: JobBoard, caplog: pytest.LogCaptureFixture) -> None:
        [uuid] = Harness(board).plant()
        good = board.post("resize")
        with caplog.at_level(logging.WARNING, "jobboard"):
            assert uuids(board.iterjobs()) == [good.uuid]
        assert uuid in caplog.text
        assert board.job_count == 2
        with pytest.raises(JobFailure, match="decoded"):
            board.get(uuid)
        assert board.stats().trashed == 0  # looking moves nothing

    @holds("The doctor names a damaged job and a damaged schedule, and its advice helps.")
    def test_examining_shows_them(self, board: JobBoard) -> None:
        good = board.post("resize", key="k")
        board.claim(good, "anna", expiry=LONG)
        board.post_many([Posting("resize", delay=LONG), Posting("resize")])
        # How a server of the tests is set up is no concern of this.
        usual = list(board.examine())
        assert all("job" not in odd.place for odd in usual)
        [broken] = Harness(board).plant()
        [newer] = Harness(board).plant(version=codec.VERSION + 1)
        found = [odd for odd in board.examine() if odd not in usual]
        assert sorted(odd.place for odd in found) == sorted([f"job {broken}", f"job {newer}"])
        assert all(odd.reason and odd.advice for odd in found)
        assert board.stats().trashed == 0

    @holds("A posting of a newer version is skipped, and does not block the jobs behind it.")
    def test_a_newer_version_is_skipped_and_does_not_block(
        self, board: JobBoard, caplog: pytest.LogCaptureFixture
    ) -> None:
        newer = Harness(board).plant(version=codec.VERSION + 1, number=3)
        good = board.post("resize", priority=JobPriority.VERY_LOW)
        assert board.claim_many("anna", 5) == [good]
        assert board.claim_next("anna", names=["poison"]) is None
        assert board.stats().unclaimed == 3
        with caplog.at_level(logging.WARNING, "jobboard"):
            assert uuids(board.iterjobs()) == [good.uuid]
        assert newer[0] in caplog.text
        with pytest.raises(JobFailure, match="newer"):
            board.get(newer[0])
        with pytest.raises(NotFound):
            board.wait(0)
        assert list(board.trashed()) == []
        board.consume(good, "anna")
        assert board.job_count == 3

    @holds("A post with the key of an unreadable job returns that job, and stores the other postings of its call.")
    def test_post_with_the_key_of_a_newer_one_returns_it(self, board: JobBoard) -> None:
        [newer] = Harness(board).plant(version=codec.VERSION + 1, key="k")
        other, found = board.post_many([Posting("resize"), Posting("resize", key="k", details={"n": 1})])
        assert (other.created, found.created) == (True, False)
        assert (found.uuid, found.details) == (newer, {})
        assert board.claim_many("anna", 5) == [other]

    @holds("A posting of a newer version is skipped, and does not block the jobs behind it.")
    def test_more_newer_ones_than_a_page(self, board: JobBoard) -> None:
        for number in (500, 1):
            Harness(board).plant(version=codec.VERSION + 1, number=number)
        good = board.post("resize", priority="LOW")
        assert uuids(board.iterjobs()) == [good.uuid]
        assert take(board) == good


GARBAGE = b"\xc1"


def write_gate(board: JobBoard, value: bytes | None) -> None:
    Harness(board).set_side(*GATE, value)


def odd_gate(board: JobBoard) -> list[str]:
    return [each.reason for each in board.examine() if "gate/rules is damaged" in each.reason]


class TestDamagedGate:
    any_driver = True

    @holds("A damaged gate is reported, and nothing is claimed past it.")
    def test_damaged_gate_stops_claims(self, board: JobBoard, other: JobBoard) -> None:
        jobs = post(board, 3, group="one")
        board.set_limit("mail", concurrency=1)
        board.pause()
        assert other.claim_next("anna") is None
        for damage in (b"", b"\x93\xc2\x90", GARBAGE):
            write_gate(board, damage)
            with pytest.raises(JobFailure, match="gate/rules is damaged"):
                other.claim_next("anna")
        verbs: list[Callable[[JobBoard], Any]] = [
            lambda each: each.claim_next("anna"),
            lambda each: each.claim_next("anna", timeout=LIMIT),
            lambda each: each.claim_many("anna", 5, names=["mail"]),
            lambda each: each.claim(each.get(jobs[0]), "anna"),
            lambda each: list(each.wait(LIMIT)),
            lambda each: list(each.iterjobs(only_unclaimed=True)),
            JobBoard.paused,
            JobBoard.limits,
            JobBoard.resume,
            lambda each: each.set_limit("mail", concurrency=2),
        ]
        for each in (board, other):
            for verb in (*verbs, *verbs):
                with pytest.raises(JobFailure, match="gate/rules is damaged"):
                    verb(each)
        assert uuids(board.iterjobs()) == uuids(other.iterjobs()) == jobs
        assert len(odd_gate(board)) == 1
        write_gate(board, None)
        assert odd_gate(board) == []
        other.set_limit("mail", concurrency=2, per="group")
        assert uuids(board.claim_many("anna", 5)) == jobs[:2]
        assert odd_gate(other) == []

    def test_damaged_gate_stops_nothing_else(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=6, rate=(100, LONG))
        post(board, 6)
        consumed, abandoned, trashed, released, extended, many = board.claim_many("anna", 6)
        write_gate(board, GARBAGE)
        events = EventLog(board)
        board.consume(consumed, "anna")
        board.abandon(abandoned, "anna")
        board.trash(trashed, "anna")
        other.release(other.get(released.uuid))
        board.extend(extended, "anna")
        board.consume_many([many], "anna")
        for job, event in ((consumed, "CONSUMED"), (abandoned, "ABANDONED"), (trashed, "TRASHED"), (many, "CONSUMED")):
            assert job.claim is not None
            assert job.claim.ended
            eventually(lambda job=job, event=event: event in events.of(job), LIMIT)  # type: ignore[misc]
        posted = other.post("mail", key="k")
        jobs = (consumed, abandoned, trashed, released, extended, many, posted)
        assert [job.state for job in jobs] == [COMPLETE, UNCLAIMED, TRASHED, UNCLAIMED, CLAIMED, COMPLETE, UNCLAIMED]
        other.cancel(posted)
        board.restore(other.get(trashed.uuid))
        assert board.stats().unclaimed == 3
        Harness(board).tidy()

    def test_damaged_gate_revives_no_lapsed_claim(self, board: JobBoard, other: JobBoard) -> None:
        """A lapsed claim is not revived, as its slot may be another's. It can be ended while nobody else has it."""
        board.set_limit("mail", concurrency=1)
        post(board, 2)
        job = take(board, expiry=SHORT)
        until_free(other, job)
        write_gate(board, GARBAGE)
        with pytest.raises(JobFailure, match="gate/rules is damaged"):
            board.extend(job, "anna")
        assert other.get(job.uuid).state == UNCLAIMED
        board.consume(job, "anna")
        assert job.state == COMPLETE


QUEER = "a/b '%2F\"* \u00fc.~{x}"
"""A name of what means something in paths, patterns and scripts."""


claimed = functools.partial(claim_one, name=QUEER)


def states(board: JobBoard) -> None:
    board.post("resize", details={"a": "x" * 5000}, key="k", group="g")
    board.post(QUEER, key=QUEER, group=QUEER, priority=7, delay=LONG)
    claimed(board, key="claimed")
    board.claim(board.post("resize"), QUEER, expiry=LONG)
    let_lapse(board, board.post("resize"))
    let_lapse(board, board.post("resize", key="final", max_attempts=1))
    board.abandon(claimed(board), "anna", error="no luck")
    board.abandon(claimed(board), "anna", delay=LONG)
    board.release(claimed(board))
    board.trash(claimed(board), "anna", reason="no use" * 1000)
    for restored in (True, False):
        board.cancel(job := board.post("resize", key=f"{restored}"))
        (board.restore if restored else board.purge)(job)


def windows(board: JobBoard) -> None:
    board.post("resize", key="lives", key_for=LONG)
    board.post("resize", key="lives", on_key="replace", priority=9)
    board.consume(claimed(board, key=QUEER, key_for=LONG), "anna")
    board.trash(claimed(board, key="trashed", key_for=LONG), "anna")
    board.cancel(job := board.post("resize", key="purged", key_for=LONG))
    board.purge(job)
    let_lapse(board, board.post("final", key="final", key_for=LONG, max_attempts=1))
    board.consume(claimed(board, key="over", key_for=SHORT), "anna")
    over = Harness(board).now() + int(SHORT * 1e6)
    eventually(lambda: Harness(board).now() > over, LIMIT)


def outcomes(board: JobBoard) -> None:
    board.consume(claimed(board), "anna")
    job = claimed(board, details={"\u00e4": [1, None]}, context={"trace": "1"}, key="k", group="g", key_for=LONG)
    board.consume(job, "anna", result={"a": "x" * 5000})
    board.abandon(claimed(board), "anna", error="no luck")
    board.post_many([Posting("resize")] * 3)
    board.consume_many(board.claim_many(QUEER, 9), QUEER)


def limits(board: JobBoard) -> None:
    board.set_limit(QUEER, concurrency=2, per="group")
    board.set_limit(QUEER, rate=(100, LONG))
    board.set_limit("resize", concurrency=1)
    board.post_many([Posting(name, group=group) for name in (QUEER, "resize") for group in ("g", QUEER, None)])
    given_back, consumed, *_ = board.claim_many("anna", 9)
    board.abandon(given_back, "anna")
    board.consume(consumed, "anna")
    take(board, expiry=SHORT)
    board.set_limit(QUEER, concurrency=1, per="group")
    board.remove_limit("resize")


def pauses(board: JobBoard) -> None:
    board.post(QUEER)
    board.pause([QUEER, "resize"])
    board.pause()
    board.resume(["resize"])


def schedules(board: JobBoard) -> None:
    board.schedule(QUEER, name=QUEER, every=LONG, key=QUEER)
    board.schedule("nightly", "30 3 * * *", "report", details={"a": "x" * 5000})
    board.schedule("gone", name="report", every=LONG)
    board.unschedule("gone")


def entities(board: JobBoard) -> None:
    board.register_entity(Entity("conductor", QUEER, {"pid": 7}))
    board.register_entity(Entity("conductor", "gone"))
    board.deregister_entity(Entity("conductor", "gone"))


def copies(board: JobBoard) -> None:
    """A move is under way, or was killed."""
    harness = Harness(board)
    harness.arrive(harness.arrival(1)._replace(key=QUEER))
    harness.arrive(harness.arrival(2, trashed_on=LONG_AGO))


class TestExamining:
    any_driver = True

    @pytest.fixture
    def usual(self, board: JobBoard) -> list[Oddity]:
        """Return the defects of the test server's own set-up."""
        return list(board.examine())

    @holds("The doctor takes healthy outcomes, and keys of running windows, for no damage.")
    def test_a_healthy_board(self, make_board: MakeBoard, usual: list[Oddity]) -> None:
        for prepare in (states, windows, outcomes, limits, pauses, schedules, entities, copies):
            board = make_board(prepare.__name__, keep_done=LONG)
            prepare(board)
            assert list(board.examine()) == usual, prepare.__name__

    @holds("A server that may lose acknowledged jobs is named by examine() on every backend.")
    @holds("The doctor names settings that may lose jobs.")
    def test_a_server_that_may_lose_acknowledged_jobs_is_shown(self, board: JobBoard) -> None:
        traits = board.characteristics
        told = {odd.place: odd for odd in board.examine() if odd.place.startswith("characteristic ")}
        assert ("characteristic durable" in told) == (not traits.durable)
        assert all(traits.notes in odd.reason and odd.advice for odd in told.values())

    @holds("The doctor examines a board while a worker waits on it.")
    def test_waiting_worker_is_no_defect(self, board: JobBoard, other: JobBoard, usual: list[Oddity]) -> None:
        waiter = Waiter(other, lambda: take(other, names=["resize"], timeout=PATIENCE))
        assert list(board.examine()) == usual
        job = board.post("resize")
        assert waiter.wait() == job
        assert list(board.examine()) == usual


def damage(board: JobBoard, kind: str, key: str) -> None:
    assert Harness(board).side(kind, key).value is not None
    Harness(board).set_side(kind, key, b"\xc1no entry")


class TestExaminingDamage:
    any_driver = True

    @pytest.fixture
    def told(self, board: JobBoard) -> Callable[[], list[Oddity]]:
        """Return the board's defects, without those of the test server's set-up."""
        usual = list(board.examine())
        return lambda: [odd for odd in board.examine() if odd not in usual]

    def test_damaged_schedule_is_a_defect(self, board: JobBoard, told: Callable[[], list[Oddity]]) -> None:
        for schedule in ("it's", "fine", "-a"):
            board.schedule(schedule, name="report", every=LONG)
        damage(board, "schedule", "it's")
        damage(board, "schedule", "-a")
        found = {odd.place: odd.advice for odd in told()}
        assert found.keys() == {"schedule it's", "schedule -a"}
        assert found["schedule -a"].endswith("jobboard schedule remove -- -a")
        for schedule, advice in zip(("it's", "-a"), (found["schedule it's"], found["schedule -a"]), strict=True):
            assert shlex.split(advice.partition("or: ")[2])[-1] == schedule
        board.unschedule("it's")
        board.schedule("-a", name="report", every=LONG)
        assert told() == []

    def test_damaged_outcome_is_a_defect(self, make_board: MakeBoard, told: Callable[[], list[Oddity]]) -> None:
        board = make_board(keep_done=LONG)
        fine, *broken = (claimed(board) for _ in range(4))
        board.consume(fine, "anna", result=1)
        [done] = Harness(board).engine.outcomes([fine.uuid])
        assert done is not None
        text = isinstance(done.record.posting, str)
        junk = "no json" if text else b"\xc1"
        changes: list[dict[str, Any]] = [{"posting": junk}, {"version": codec.VERSION + 1}, {}]
        for job, change in zip(broken, changes, strict=True):
            result = done.result if change else junk
            Harness(board).engine.store_outcomes(
                [done._replace(record=done.record._replace(uuid=job.uuid, **change), result=result, position=None)]
            )
        found = told()
        assert {odd.place for odd in found} == {f"outcome {job.uuid}" for job in broken}
        assert len(found) == 3
        assert any("upgrade" in odd.advice for odd in found)
        assert all("by itself at" in odd.advice for odd in found)
