"""Keys make a post idempotent; names, keys and owners are compared byte by byte."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.job import Job, Posting
from jobboard.priorities import JobPriority
from jobboard.states import COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing.conformance.support import LONG, SHORT, MakeBoard, let_lapse, take, trash_one, uuids

ALIKE = ["job", "Job", "JOB", "job ", " job", "jób", "jo\u0301b", "job\u00a0", "job\u200b", "joβ", "joß", "joss"]
"""Texts that one collation or another takes for the same."""


class TestKeys:
    def test_the_same_key_answers_the_same_job(self, board: JobBoard, other: JobBoard) -> None:
        first = board.post("resize", details={"a": 1}, key="k")
        again = other.post("crop", details={"b": 2}, priority="HIGH", key="k", delay=LONG, max_attempts=1)
        assert again.uuid == first.uuid
        assert (again.name, again.details, again.priority) == ("resize", {"a": 1}, JobPriority.NORMAL)
        assert (again.seen_state, again.max_attempts) == (UNCLAIMED, None)
        assert board.job_count == 1
        assert board.get(first.uuid).details == {"a": 1}

    def test_within_one_batch(self, board: JobBoard) -> None:
        board.post("old", key="old")
        jobs = board.post_many(
            [
                Posting("first", key="k"),
                Posting("second", key="k"),
                Posting("third"),
                Posting("fourth", key="old"),
                Posting("fifth", key="new"),
            ]
        )
        assert [job.name for job in jobs] == ["first", "first", "third", "old", "fifth"]
        assert jobs[0].uuid == jobs[1].uuid
        assert [job.name for job in board.iterjobs()] == ["old", "first", "third", "fifth"]

    def test_held_while_the_job_lives(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", delay=SHORT)
        assert board.post("resize", key="k").uuid == job.uuid
        taken = take(board, timeout=5)
        assert board.post("resize", key="k").uuid == job.uuid
        board.abandon(taken, "anna")
        assert board.post("resize", key="k").uuid == job.uuid
        let_lapse(board, job)
        assert board.post("resize", key="k").uuid == job.uuid
        board.claim(job, "anna")
        board.release(job)
        assert board.post("resize", key="k").uuid == job.uuid

    def test_free_once_consumed(self, board: JobBoard) -> None:
        job = board.post("resize", key="k")
        board.consume(take(board), "anna")
        again = board.post("resize", key="k")
        assert again.uuid != job.uuid
        assert again.state == UNCLAIMED

    def test_free_once_trashed(self, board: JobBoard) -> None:
        job = trash_one(board, key="k")
        assert board.post("resize", key="k").uuid != job.uuid

    def test_free_once_cancelled(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", delay=LONG)
        board.cancel(job)
        assert board.post("resize", key="k").uuid != job.uuid

    def test_free_once_the_last_attempt_lapsed(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", max_attempts=1)
        let_lapse(board, job)
        again = board.post("resize", key="k")  # nobody has swept
        assert again.uuid != job.uuid
        assert job.state == TRASHED

    def test_a_batch_frees_the_key_of_a_lapsed_last_attempt(self, board: JobBoard) -> None:
        job = board.post("resize", key="k", max_attempts=1)
        let_lapse(board, job)
        first, second = board.post_many([Posting("new", key="k"), Posting("newer", key="k")])
        assert first.uuid == second.uuid != job.uuid

    def test_no_restore_while_it_is_taken(self, board: JobBoard) -> None:
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

    def test_a_purged_jobs_key_is_free(self, board: JobBoard) -> None:
        job = trash_one(board, key="k")
        board.purge(job)
        assert board.post("resize", key="k").uuid != job.uuid

    def test_keys_of_other_boards(self, board: JobBoard, make_board: MakeBoard) -> None:
        assert board.post("resize", key="k").uuid != make_board("another").post("resize", key="k").uuid

    def test_posted_at_the_same_time(self, make_board: MakeBoard) -> None:
        boards = [make_board() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            for number in range(10):
                jobs = list(pool.map(lambda board, key: board.post("resize", key=key), boards, [f"k{number}"] * 4))
                assert len({job.uuid for job in jobs}) == 1
        assert boards[0].job_count == 10

    def test_what_is_answered_was_stored(self, make_board: MakeBoard) -> None:
        """Two post, while a third consumes: the job that has the key goes at any time."""
        first, second, consumer = make_board(), make_board(), make_board()
        posting = [True]

        def post(board: JobBoard) -> list[Job]:
            return [board.post("resize", key="k", details={"n": n}) for n in range(60)]

        def consume() -> dict[str, Any]:
            done = {}
            while posting[0] or consumer.job_count:
                if (job := consumer.claim_next("anna", timeout=SHORT)) is not None:
                    done[job.uuid] = job.details
                    consumer.consume(job, "anna")
            return done

        with ThreadPoolExecutor(3) as pool:
            done = pool.submit(consume)
            try:
                posted = [job for jobs in pool.map(post, (first, second)) for job in jobs]
            finally:
                posting[0] = False
        assert {job.uuid: job.details for job in posted}.items() <= done.result().items(), "acknowledged, never stored"


class TestApart:
    """What differs by case, blanks or accents alone is not the same."""

    any_driver = True

    def test_keys(self, board: JobBoard) -> None:
        jobs = [board.post("resize", key=key) for key in ALIKE]
        assert len({job.uuid for job in jobs}) == len(ALIKE)
        assert [board.post("resize", key=key).uuid for key in ALIKE] == uuids(jobs)
        assert [job.key for job in board.iterjobs()] == ALIKE

    def test_names(self, board: JobBoard) -> None:
        jobs = {name: board.post(name) for name in ALIKE}
        for name, job in jobs.items():
            assert uuids(board.iterjobs(names=[name])) == [job.uuid]
        for name, job in reversed(jobs.items()):
            assert take(board, names=[name]).uuid == job.uuid
            assert board.claim_next("anna", names=[name]) is None

    def test_owners(self, board: JobBoard) -> None:
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

    def test_boards(self, make_board: MakeBoard) -> None:
        boards = [make_board(name) for name in ALIKE]
        for board in boards:
            board.post(board.name)
        assert [[job.name for job in board.iterjobs()] for board in boards] == [[board.name] for board in boards]

    def test_entities(self, board: JobBoard) -> None:
        class Shown:
            def __init__(self, kind: str, name: str) -> None:
                self.kind, self.name = kind, name

        for text in ALIKE:
            board.register_entity(Shown("conductor", text))
            board.register_entity(Shown(text, "one"))
        assert sorted(entity.name for entity in board.entities("conductor")) == sorted(ALIKE)
        for kind in ALIKE:
            assert [entity.kind for entity in board.entities(kind)] == [kind]
