"""Idempotency keys, dedupe windows, and posts that replace the job that has their key."""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.job import Job, Posting
from jobboard.priorities import JobPriority
from jobboard.states import COMPLETE, OK, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.interleavings import at_each_request
from jobboard.testing.conformance.support import (
    LIMIT,
    LONG,
    PATIENCE,
    SHORT,
    Background,
    EventLog,
    MakeBoard,
    Waiter,
    let_lapse,
    take,
    trash_one,
    uuids,
)
from jobboard.testing.conformance.wire import Wire

ALIKE = ["job", "Job", "JOB", "job ", " job", "jób", "jo\u0301b", "job\u00a0", "job\u200b", "joβ", "joß", "joss"]
"""Texts that one collation or another takes for the same."""


HOUR = 3600 * 1_000_000

BRIEF = 0.3
"""A window that a test waits for the end of, in seconds."""


def consume(board: JobBoard, job: Job) -> None:
    board.claim(job, "anna")
    board.consume(job, "anna")


def consume_in_a_batch(board: JobBoard, job: Job) -> None:
    other = board.post("other")
    jobs = board.claim_many("anna", 2)
    assert sorted(uuids(jobs)) == sorted([job.uuid, other.uuid])
    board.consume_many(jobs, "anna")


def lapse_for_good(board: JobBoard, job: Job) -> None:
    let_lapse(board, job)


def lapse_and_sweep(board: JobBoard, job: Job) -> None:
    let_lapse(board, job)
    assert board.claim_next("bert") is None


def trash(board: JobBoard, job: Job) -> None:
    board.claim(job, "anna")
    board.trash(job, "anna")


def purge(board: JobBoard, job: Job) -> None:
    board.cancel(job)
    board.purge(job)


ENDS: dict[str, tuple[Callable[[JobBoard, Job], object], str]] = {
    "consumed": (consume, COMPLETE),
    "consumed in a batch": (consume_in_a_batch, COMPLETE),
    "trashed": (trash, TRASHED),
    "cancelled": (JobBoard.cancel, TRASHED),
    "lapsed for good": (lapse_for_good, TRASHED),
    "lapsed and swept": (lapse_and_sweep, TRASHED),
    "purged": (purge, TRASHED),
}


@contextlib.contextmanager
def consuming(board: JobBoard) -> Iterator[dict[str, Any]]:
    """Consume every job that comes meanwhile; in the end, the details of each by its uuid."""
    done: dict[str, Any] = {}
    posting = [True]

    def consume() -> None:
        while posting[0] or board.job_count:
            if (job := board.claim_next("anna", timeout=SHORT)) is not None:
                done[job.uuid] = job.details
                board.consume(job, "anna")

    consumer = Background(consume)
    try:
        yield done
    finally:
        posting[0] = False
        consumer.wait(3 * LIMIT)


def at_once(post: Callable[[JobBoard], list[Job]], *boards: JobBoard) -> list[Job]:
    """Return the jobs that these boards post at the same time."""
    with ThreadPoolExecutor(len(boards)) as pool:
        return [job for jobs in pool.map(post, boards) for job in jobs]


class TestKeys:
    def test_the_same_key_answers_the_same_job(self, board: JobBoard, other: JobBoard) -> None:
        first = board.post("resize", details={"a": 1}, key="k")
        again = other.post("crop", details={"b": 2}, priority="HIGH", key="k", delay=LONG, max_attempts=1)
        assert again.uuid == first.uuid
        assert (again.name, again.details, again.priority) == ("resize", {"a": 1}, JobPriority.NORMAL)
        assert (again.seen_state, again.max_attempts) == (UNCLAIMED, None)
        assert board.job_count == 1
        assert board.get(first.uuid).details == {"a": 1}

    def test_key_is_taken_while_the_job_lives(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", delay=SHORT)
        assert board.post("resize", key="k").uuid == job.uuid
        taken = take(board, timeout=LIMIT)
        assert board.post("resize", key="k").uuid == job.uuid
        board.abandon(taken, "anna")
        assert board.post("resize", key="k").uuid == job.uuid
        let_lapse(board, job)
        assert board.post("resize", key="k").uuid == job.uuid
        board.claim(job, "anna")
        board.release(job)
        assert board.post("resize", key="k").uuid == job.uuid

    @holds("The key of a job is freed by the commit that ends the job.")
    @pytest.mark.parametrize("end", ENDS)
    def test_key_is_free_after_each_end_of_its_job(self, board: JobBoard, end: str) -> None:
        act, state = ENDS[end]
        job = board.post("resize", key="k", max_attempts=1 if "lapsed" in end else None)
        act(board, job)
        again = board.post("resize", key="k")
        assert (again.created, again.state, job.state) == (True, UNCLAIMED, state)
        assert again.uuid != job.uuid

    @holds("A batch of posts takes the key of a job whose last attempt has lapsed.")
    def test_a_batch_frees_the_key_of_a_lapsed_last_attempt(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", max_attempts=1)
        let_lapse(board, job)
        first, second = board.post_many([Posting("new", key="k"), Posting("newer", key="k")])
        assert first.uuid == second.uuid != job.uuid

    @holds("A restored job takes its key again only if the key is free.")
    def test_job_is_not_restored_while_its_key_is_taken(self, board: JobBoard) -> None:
        job = trash_one(board, key="k")
        new = board.post("resize", key="k")
        with pytest.raises(JobFailure, match="key"):
            board.restore(job)
        assert job.state == TRASHED
        assert uuids(board.trashed()) == [job.uuid]
        board.claim(new, "anna")
        board.consume(new, "anna")
        board.restore(job)
        assert job.state == UNCLAIMED
        assert board.post("resize", key="k").uuid == job.uuid

    def test_returned_job_was_stored(self, make_board: MakeBoard) -> None:
        """Two post, while a third consumes: the job that has the key goes at any time."""

        def post(board: JobBoard) -> list[Job]:
            return [board.post("resize", key="k", details={"n": n}) for n in range(60)]

        with consuming(make_board()) as done:
            posted = at_once(post, make_board(), make_board())
        assert {job.uuid: job.details for job in posted}.items() <= done.items(), "acknowledged, never stored"


class TestSimilarNames:
    """Keys that differ by case, blanks or accents are different."""

    any_driver = True

    def test_similar_keys_are_different_keys(self, board: JobBoard) -> None:
        jobs = [board.post("resize", key=key) for key in ALIKE]
        assert len({job.uuid for job in jobs}) == len(ALIKE)
        assert [board.post("resize", key=key).uuid for key in ALIKE] == uuids(jobs)
        assert [job.key for job in board.iterjobs()] == ALIKE

    def test_similar_names_are_different_names(self, board: JobBoard) -> None:
        jobs = {name: board.post(name) for name in ALIKE}
        for name, job in jobs.items():
            assert uuids(board.iterjobs(names=[name])) == [job.uuid]
        for name, job in reversed(jobs.items()):
            assert take(board, names=[name]).uuid == job.uuid
            assert board.claim_next("anna", names=[name]) is None

    def test_similar_owners_are_different_owners(self, board: JobBoard) -> None:
        job = board.post("resize")
        for who in ALIKE:
            board.claim(job, who)
            assert board.find_owner(job) == who
            by_name = board.get(job.uuid)
            for stranger in ALIKE:
                if stranger != who:
                    with pytest.raises(JobFailure, match="somebody else"):
                        board.abandon(by_name, stranger)
            board.abandon(by_name, who)
        board.claim(job, "anna ")
        board.consume(board.get(job.uuid), "anna ")
        assert job.state == COMPLETE

    def test_similar_boards_share_no_job(self, make_board: MakeBoard) -> None:
        boards = [make_board(name) for name in ALIKE]
        for board in boards:
            board.post(board.name)
        assert [[job.name for job in board.iterjobs()] for board in boards] == [[board.name] for board in boards]

    def test_similar_entities_are_different_entities(self, board: JobBoard) -> None:
        class Shown:
            def __init__(self, kind: str, name: str) -> None:
                self.kind, self.name = kind, name

        for text in ALIKE:
            board.register_entity(Shown("conductor", text))
            board.register_entity(Shown(text, "one"))
        assert sorted(entity.name for entity in board.entities("conductor")) == sorted(ALIKE)
        for kind in ALIKE:
            assert [entity.kind for entity in board.entities(kind)] == [kind]


class TestWindows:
    @holds("A key that has a window stays taken until the window ends, whatever becomes of the job.")
    def test_a_record_keeps_the_end_of_its_window(self, board: JobBoard) -> None:
        before = Harness(board).now()
        harness = Harness(board)
        record = harness.arrive(harness.arrival()._replace(key="k", key_for=HOUR))
        assert record.key_until is not None
        assert before + HOUR <= record.key_until <= Harness(board).now() + HOUR
        assert harness.free(record) == [OK]
        job = take(board)
        assert job.record.key_until == record.key_until
        board.abandon(job, "anna", delay=1000)
        left = Harness(board).record(job)
        assert left is not None
        assert left.key_until == record.key_until

    @holds("A key that has a window stays taken until the window ends, whatever becomes of the job.")
    @pytest.mark.parametrize("end", ENDS)
    def test_the_key_stays_taken(self, board: JobBoard, other: JobBoard, end: str) -> None:
        """Every handle sees the key as taken until the window ends, also after the job's end."""
        act, state = ENDS[end]
        job = board.post("resize", key="k", key_for=LONG, max_attempts=1 if "lapsed" in end else None)
        assert (job.created, job.replaced) == (True, False)
        act(board, job)
        for poster in (board, other):
            again = poster.post("crop", details={"b": 2}, key="k", key_for=1, on_key="replace")
            assert (again.uuid, again.created, again.replaced) == (job.uuid, False, False)
            assert (again.seen_state, again.state) == (state, state)
        jobs = other.post_many([Posting("free"), Posting("crop", key="k"), Posting("crop", key="new")])
        assert [each.created for each in jobs] == [True, False, True]
        assert jobs[1] == job
        assert sorted(uuids(board.iterjobs(ensure_fresh=True))) == sorted([jobs[0].uuid, jobs[2].uuid])

    @holds("A key that has a window stays taken until the window ends, whatever becomes of the job.")
    @pytest.mark.parametrize("end", ["consumed", "cancelled", "purged"])
    def test_key_is_free_when_the_window_ends(self, board: JobBoard, end: str) -> None:
        """Two windows, one after the other: posting again has not made the first one longer."""
        found = set()
        for _ in range(2):
            made: list[Job] = []

            def post() -> bool:
                job = board.post("resize", key="k", key_for=BRIEF)
                made.extend([job] if job.created else [])  # noqa: B023
                return job.created

            eventually(post, LIMIT)
            [job] = made
            assert job.uuid not in found
            assert job.state == UNCLAIMED
            found.add(job.uuid)
            ENDS[end][0](board, job)
        assert not any(job.key for job in board.iterjobs())

    @holds("A window that is shorter than the job's life ends with the job.")
    def test_window_shorter_than_the_life_changes_nothing(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", key_for=1e-6)
        assert board.post("resize", key="k") == job
        consume(board, job)
        again = board.post("resize", key="k")
        assert again.created
        assert again != job

    @holds("Posting again neither shortens a window nor begins another one.")
    def test_posting_again_neither_shortens_nor_begins_one(self, board: JobBoard) -> None:
        job, plain = board.post("resize", key="k", key_for=LONG), board.post("resize", key="l")
        assert not board.post("resize", key="k", key_for=1e-6).created
        assert not board.post("resize", key="l", key_for=LONG).created
        consume(board, job)
        consume(board, plain)
        assert not board.post("resize", key="k").created
        assert board.post("resize", key="l").created

    def test_holder_of_the_key_is_restored_in_the_window(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", key_for=LONG)
        board.cancel(job)
        board.restore(job)
        assert board.post("resize", key="k") == job
        consume(board, job)
        assert board.post("resize", key="k").uuid == job.uuid
        assert job.state == COMPLETE

    @pytest.mark.parametrize("end", ["consumed", "cancelled"])
    def test_another_job_is_not_restored_in_the_window(self, board: JobBoard, end: str) -> None:
        old = board.post("resize", key="k")
        board.cancel(old)
        job = board.post("resize", key="k", key_for=LONG)
        ENDS[end][0](board, job)
        with pytest.raises(JobFailure, match="key"):
            board.restore(old)
        assert old.state == TRASHED

    def test_a_repeated_post_returns_the_answer_of_its_first_try(self, board: JobBoard, other: JobBoard) -> None:
        """The answer of the first try is returned, also if the job has gone on meanwhile."""
        with Harness(board).lost_reply(lambda: consume(other, take_unclaimed(other))):
            job = board.post("resize", key="k", key_for=LONG)
        assert (job.created, job.state) == (True, COMPLETE)
        with Harness(board).lost_reply():
            again = board.post("resize", key="k", key_for=LONG)
        assert (again.uuid, again.created, again.state) == (job.uuid, False, COMPLETE)
        assert other.job_count == 0

    def test_posters_and_a_consumer_at_once(self, make_board: MakeBoard) -> None:
        """However a post meets the end of the job, there is one job for each key."""

        def post(board: JobBoard) -> list[Job]:
            return [board.post("resize", key=f"k{n // 4}", key_for=LONG) for n in range(60)]

        with consuming(make_board()) as done:
            posted = at_once(post, make_board(), make_board())
        assert len({job.uuid for job in posted}) == sum(job.created for job in posted) == len(done) == 15


def take_unclaimed(board: JobBoard) -> Job:
    [job] = board.iterjobs(only_unclaimed=True, ensure_fresh=True)
    return job


class TestReplacing:
    def test_replaced_job_gets_details_priority_and_due_time(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", details={"a": 1}, key="k", group="g", max_attempts=5)
        soon = datetime.timedelta(seconds=LONG)
        again = other.post("crop", details={"b": 2}, key="k", on_key="replace", delay=soon, priority=7, group="h")
        assert (again.uuid, again.created, again.replaced) == (job.uuid, False, True)
        for seen in (again, board.get(job.uuid)):
            assert (seen.name, seen.details, seen.priority, seen.seen_state) == ("resize", {"b": 2}, 7, SCHEDULED)
            assert (seen.key, seen.group, seen.max_attempts, seen.created_on) == ("k", "g", 5, job.created_on)
        assert board.claim_next("anna") is None
        third = board.post("resize", details={"c": 3}, key="k", on_key="replace", priority=7)
        assert (third.seen_state, third.due, third.sequence) == (UNCLAIMED, None, again.sequence)
        assert take(board).details == {"c": 3}

    @holds("A claim through a handle brings the content of the job as it was claimed, also of a replaced job.")
    def test_claim_of_a_replaced_job_brings_its_content(self, board: JobBoard, other: JobBoard) -> None:
        board.post("resize", details={"a": 1}, context={"c": "1"}, key="k")
        [read], refreshed = other.iterjobs(), next(other.iterjobs())
        assert (read.details, read.context, refreshed.details) == ({"a": 1}, {"c": "1"}, {"a": 1})
        assert board.post("resize", details={"a": 2}, key="k", on_key="replace").replaced
        assert refreshed.state == UNCLAIMED
        for job in (read, refreshed):
            claim = other.claim(job, "anna")
            assert (job.details, job.context) == ({"a": 2}, {})
            claim.abandon()

    @holds("A replacing post keeps the place of its job, and takes the claim from its last holder.")
    def test_replaced_job_keeps_its_place(self, board: JobBoard) -> None:
        job = board.post("resize", key="k")
        later = board.post("resize")
        again = board.post("resize", key="k", on_key="replace")
        assert (again.replaced, again.sequence) == (True, job.sequence)
        assert uuids(board.claim_many("anna", 2)) == uuids([job, later])

    @pytest.mark.parametrize("names", [None, ["resize"]])
    def test_place_of_a_replaced_job_follows_its_priority(self, board: JobBoard, names: list[str] | None) -> None:
        jobs = [board.post("resize", key=f"k{n}") for n in range(4)]
        board.post("other", priority=-100)
        assert board.claim_next("anna", names=["none"]) is None
        for key, priority in (("k0", -50), ("k3", 50), ("k1", -20), ("k1", 20), ("k0", -60)):
            assert board.post("resize", key=key, on_key="replace", priority=priority).replaced
        expected = [jobs[3], jobs[1], jobs[2], jobs[0]]
        assert uuids(board.iterjobs(names=["resize"], ensure_fresh=True)) == uuids(expected)
        assert [take(board, names=names).uuid for _ in expected] == uuids(expected)
        assert board.claim_next("anna", names=["resize"]) is None
        assert board.stats().unclaimed == 1

    def test_replaced_job_goes_behind_earlier_posts(self, board: JobBoard) -> None:
        jobs = [*board.post_many([Posting("resize", priority=9)] * 3), board.post("resize", key="k")]
        assert board.post("resize", key="k", on_key="replace", priority=9).replaced
        assert uuids(board.claim_many("anna", 4)) == uuids(jobs)

    @holds("A replacing post keeps the place of its job, and takes the claim from its last holder.")
    def test_attempts_begin_anew_and_the_last_holder_has_lost_it(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", key="k", max_attempts=2)
        let_lapse(board, job)
        again = other.post("resize", details={"b": 2}, key="k", on_key="replace")
        assert (again.replaced, again.attempts, again.seen_state) == (True, 0, UNCLAIMED)
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")
        assert take(other).details == {"b": 2}

    def test_claimed_or_finished_job_is_not_replaced(self, board: JobBoard) -> None:
        ends: dict[str, Callable[[JobBoard, Job], object]] = {name: act for name, (act, _) in ENDS.items()}
        for end, act in (*ends.items(), ("claimed", lambda board, job: board.claim(job, "anna"))):
            attempts = 1 if "lapsed" in end else None
            job = board.post("resize", details={"a": 1}, key=end, key_for=LONG, max_attempts=attempts)
            act(board, job)
            before = Harness(board).record(job)
            again = board.post("resize", details={"b": 2}, key=end, on_key="replace")
            assert (again.uuid, again.created, again.replaced) == (job.uuid, False, False), end
            assert Harness(board).record(job) == before, end
        board.consume(job, "anna")

    def test_postings_of_one_batch_replace_each_other(self, board: JobBoard) -> None:
        old = board.post("old", key="old", priority=-1)
        postings = [
            Posting("one", details={"n": 1}, key="k", priority=3),
            Posting("two", details={"n": 2}, key="k", on_key="replace", delay=LONG),
            Posting("three", details={"n": 3}, key="k", on_key="replace", priority=5),
            Posting("four", details={"n": 4}, key="k"),
            Posting("five", details={"n": 5}, key="old", on_key="replace"),
            Posting("six", details={"n": 6}, key="old", on_key="replace", priority=1),
        ]
        jobs = board.post_many(postings)
        assert [job.created for job in jobs] == [True, *[False] * 5]
        assert [job.replaced for job in jobs] == [False, True, True, False, True, True]
        assert jobs[4] == jobs[5] == old
        assert [(job.details["n"], job.priority) for job in jobs] == [*[(3, 5)] * 4, *[(6, 1)] * 2]
        found = [(job.name, job.details, job.priority) for job in board.iterjobs()]
        assert found == [("one", {"n": 3}, 5), ("old", {"n": 6}, 1)]
        assert [take(board).details["n"] for _ in range(2)] == [3, 6]

    def test_a_repeated_post_replaces_the_job_once(self, board: JobBoard, other: JobBoard) -> None:
        """The replacement happens once: another's later change of the job stays."""
        job = board.post("resize", key="k")

        def replace_again() -> None:
            assert other.post("resize", details={"c": 3}, key="k", on_key="replace").replaced

        with Harness(board).lost_reply(replace_again):
            again = board.post("resize", details={"b": 2}, key="k", on_key="replace")
        assert (again.uuid, again.replaced, again.details) == (job.uuid, True, {"c": 3})

    @holds("A post that replaces a job is shown as posted.")
    def test_replacement_wakes_waiters_and_is_reported(self, board: JobBoard, other: JobBoard) -> None:
        events = EventLog(other, "POSTED")
        job = board.post("resize", key="k", delay=LONG)
        waiter = Waiter(board, lambda: take(board, timeout=PATIENCE))
        other.post("resize", key="k", on_key="replace")
        assert waiter.wait() == job
        eventually(lambda: "POSTED" in events.of(job), LIMIT)

    @holds("A replaced job is found by a handle that knew its earlier place.")
    def test_replaced_job_is_found_by_a_handle_that_knew_its_place(self, board: JobBoard, other: JobBoard) -> None:
        first = board.post("resize", priority="HIGH")
        job = board.post("resize", key="k", priority="HIGH")
        assert take(other) == first
        board.post("resize", key="k", priority="LOW", on_key="replace")
        assert take(other) == job

    def test_claims_and_replacing_posts_at_once(self, make_board: MakeBoard) -> None:
        """A claimed job has the content of the last replacing post before the claim."""
        poster, told, made = make_board(), dict[str, Any](), 0
        with consuming(make_board()) as done:
            for n in range(40):
                job = poster.post("resize", details={"n": n}, key=f"k{n // 4}", on_key="replace", priority=n % 3)
                made += job.created
                if job.created or job.replaced:
                    told[job.uuid] = {"n": n}
        assert done == told
        assert len(told) == made


def post_a_windowed(board: JobBoard, key: str) -> tuple[str, bool]:
    job = board.post("resize", key=key, key_for=LONG)
    return job.uuid, job.created


def life_of(board: JobBoard, key: str) -> tuple[str, bool]:
    """Post a job, and do it at once."""
    uuid, created = post_a_windowed(board, key)
    if created:
        consume(board, board.get(uuid))
    return uuid, created


class TestWindowsBetweenRequests:
    """Acts of others between two requests of a call that takes or frees a key."""

    any_driver = True

    def test_a_post_while_another_job_lives_and_ends(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        keys = itertools.count()
        rounds = at_each_request(board, wire, lambda _: f"k{next(keys)}", post_a_windowed, life_of)
        for _, mine, theirs in rounds:
            assert mine[0] == theirs[0]
            assert mine[1] != theirs[1], "one key within its window, and not one job"

    def test_an_end_while_another_posts(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        keys = itertools.count()

        def prepare(board: JobBoard) -> Job:
            return board.claim(board.post("resize", key=f"k{next(keys)}", key_for=LONG), "anna").job

        def end(board: JobBoard, job: Job) -> None:
            board.consume(job, "anna")

        for job, _, theirs in at_each_request(
            board, wire, prepare, end, lambda board, job: post_a_windowed(board, job.key)
        ):
            assert theirs == (job.uuid, False)
            assert post_a_windowed(board, job.key) == (job.uuid, False)

    def test_a_replacing_post_while_another_claims(self, board: JobBoard, wire: Wire) -> None:
        if not wire:
            return
        keys = itertools.count()

        def replace(board: JobBoard, job: Job) -> bool:
            return board.post("resize", details={"n": 2}, priority=9, key=job.key, on_key="replace").replaced

        for job, replaced, claimed in at_each_request(
            board,
            wire,
            lambda board: board.post("resize", details={"n": 1}, key=f"k{next(keys)}"),
            replace,
            lambda board, _: take(board, timeout=PATIENCE).details["n"],
        ):
            assert claimed == (2 if replaced else 1)
            assert board.get(job.uuid).details == {"n": claimed}
