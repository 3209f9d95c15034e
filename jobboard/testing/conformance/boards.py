"""Boards: built, connected, closed and connected again; their identity, and an unreachable backend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobBoardError, JobFailure
from jobboard.job import Posting
from jobboard.primitives import Characteristics
from jobboard.states import CLAIMED, COMPLETE, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, Background, MakeBoard, claim_one, take, uuids


def claimed_jobs(board: JobBoard, number: int = 1) -> list[Any]:
    board.post_many([Posting("a", key=f"k{each}") for each in range(number)])
    return [job for _ in range(0, number, 100) for job in board.claim_many("anna", 100, expiry=LONG)]


def trashed_jobs(board: JobBoard, number: int = 1) -> list[Any]:
    board.post_many([Posting("a")] * number)
    for job in (jobs := list(board.iterjobs())):
        board.cancel(job)
    return jobs


def key_in_window(board: JobBoard) -> None:
    board.post("a", key="k", key_for=LONG)
    board.consume(take(board), "anna")


def limited_job(board: JobBoard) -> Any:
    board.set_limit("a", concurrency=1)
    return claimed_jobs(board)[0]


def schedules(board: JobBoard) -> None:
    for name in "ab":
        board.schedule(name, every=2 * SHORT, name="report")
    eventually(lambda: board.engine.kept_stats().late > 0, LIMIT)


ACTS: dict[str, tuple[Callable[[JobBoard], Any], Callable[[JobBoard, Any], object]]] = {
    "post": (lambda board: None, lambda board, _: board.post("a")),
    "post a key": (key_in_window, lambda board, _: board.post_many([Posting("a", key="k"), Posting("b")])),
    "post keys": (lambda board: None, lambda board, _: board.post_many([Posting("a", key="l"), Posting("b")])),
    "replace": (
        lambda board: board.post("a", key="k"),
        lambda board, _: board.post("a", key="k", on_key="replace"),
    ),
    "claim": (lambda board: board.post("a"), lambda board, job: board.claim(job, "anna")),
    "claim next": (lambda board: board.post("a"), lambda board, _: board.claim_next("anna")),
    "claim many": (lambda board: board.post("a"), lambda board, _: board.claim_many("anna", 2)),
    "extend": (claimed_jobs, lambda board, jobs: board.extend(jobs[0], "anna", LONG)),
    "abandon": (claimed_jobs, lambda board, jobs: board.abandon(jobs[0], "anna")),
    "abandon by name": (claimed_jobs, lambda board, jobs: board.abandon(board.get(jobs[0].uuid), "anna")),
    "abandon a slot": (limited_job, lambda board, job: board.abandon(job, "anna")),
    "consume": (claimed_jobs, lambda board, jobs: board.consume(jobs[0], "anna")),
    "consume many": (partial(claimed_jobs, number=101), lambda board, jobs: board.consume_many(jobs, "anna")),
    "trash": (claimed_jobs, lambda board, jobs: board.trash(jobs[0], "anna")),
    "release": (claimed_jobs, lambda board, jobs: board.release(board.get(jobs[0].uuid))),
    "release a slot": (limited_job, lambda board, job: board.release(job)),
    "cancel": (lambda board: board.post("a"), lambda board, job: board.cancel(job)),
    "restore": (trashed_jobs, lambda board, jobs: board.restore(jobs[0])),
    "purge": (trashed_jobs, lambda board, jobs: board.purge(jobs[0])),
    "purge the trash": (partial(trashed_jobs, number=101), lambda board, _: board.purge_trash(0)),
    "pause": (lambda board: None, lambda board, _: board.pause(["a"])),
    "set a limit": (lambda board: None, lambda board, _: board.set_limit("a", concurrency=1)),
    "schedule": (lambda board: None, lambda board, _: board.schedule("a", every=LONG, name="report")),
    "post due jobs": (schedules, lambda board, _: board.post_due()),
}
"""Acts by name: what prepares them, and the act, which gets the result of the preparation."""


class TestUnreachable:
    def test_retries_that_run_out(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0.2)
        job = claim_one(board)
        outcomes: list[str] = []

        def fail(original: Callable[..., Any], *args: Any) -> Any:
            raise ConnectionFailure("the connection broke", outcome=outcomes.pop(0) if outcomes else "none")  # type: ignore[arg-type]

        for told, expected in ((["none"], "none"), (["unknown"], "unknown"), (["none", "unknown", "none"], "unknown")):
            outcomes[:] = told
            with Harness(board).replaced("finish", fail), pytest.raises(ConnectionFailure) as failure:
                board.consume(job, "anna")
            assert failure.value.outcome == expected
            assert job.state == CLAIMED
            assert job.claim is not None
            assert not job.claim.lost
        board.consume(job, "anna")  # the handle still stands

    @holds("A retry loop ends when the board is closed.")
    def test_closed_board_is_not_retried(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=60)
        failing: list[int] = []

        def fail(original: Callable[..., Any], *args: Any) -> Any:
            failing.append(1)
            raise ConnectionFailure("the connection broke")

        with Harness(board).replaced("tally", fail):
            call = Background(lambda: board.job_count)
            eventually(lambda: failing, LIMIT)
            board.close()
            with pytest.raises(ConnectionFailure):
                call.wait()

    @holds("An act that stands is never reported as one that surely did not happen.")
    @pytest.mark.parametrize("act", ACTS)
    def test_an_act_that_stands_is_never_denied(self, make_board: MakeBoard, act: str) -> None:
        """The server is away once it has acknowledged the act, or its first part."""
        board = make_board(retry_for=0)
        prepare, call = ACTS[act]
        job = prepare(board)
        with Harness(board).away_after_commit():
            try:
                call(board, job)
            except ConnectionFailure as failure:
                assert failure.outcome == "unknown"  # noqa: PT017 - an answer is as good


def every_call(board: JobBoard, job: Any) -> list[Callable[[], object]]:
    """Return every call that asks the server."""
    return [
        lambda: board.post("resize"),
        lambda: board.post_many([Posting("resize")]),
        lambda: board.claim(board.post("x"), "anna"),
        lambda: board.claim_next("anna"),
        lambda: board.claim_next("anna", timeout=None),
        lambda: board.claim_many("anna", 2),
        lambda: board.working("anna").__enter__(),
        lambda: board.extend(job, "anna"),
        lambda: board.abandon(job, "anna"),
        lambda: board.consume(job, "anna"),
        lambda: board.trash(job, "anna"),
        lambda: board.consume_many([job], "anna"),
        lambda: job.claim.extend(LONG),
        job.claim.consume,
        lambda: board.release(job),
        lambda: board.cancel(job),
        lambda: board.restore(job),
        lambda: board.purge(job),
        lambda: board.purge_trash(0),
        lambda: list(board.trashed()),
        lambda: list(board.iterjobs()),
        lambda: board.iterjobs(ensure_fresh=True),
        lambda: board.get(job.uuid),
        lambda: board.find_owner(job),
        lambda: job.state,
        job.expires_in,
        lambda: job.wait(1),
        lambda: board.job_count,
        board.stats,
        lambda: board.stats(max_age=LONG),
        lambda: board.wait(1),
        board.entities,
        lambda: board.register_entity(jobboard.Entity("conductor", "one")),
        lambda: board.set_limit("mail", concurrency=1),
        board.pause,
        lambda: board.schedule("nightly", "0 3 * * *", "report"),
        board.post_due,
        lambda: list(board.outcomes()),
        lambda: board.characteristics,
    ]


class TestLife:
    def test_board_is_built_without_a_server(self, board_conf: dict[str, Any], board: JobBoard) -> None:
        job = claim_one(board, expiry=LONG)
        closed = jobboard.fetch(board.name, board_conf)
        assert closed.name == board.name
        assert closed.closed
        assert not closed.connected
        job.board = closed
        for number, call in enumerate(every_call(closed, job)):
            with pytest.raises(ConnectionFailure) as failure:
                call()
            assert failure.value.outcome == "none", number
        closed.close()
        assert board.job_count == 1

    @holds("A repeated set_limit that finds a closed board ends its run once.")
    def test_calls_of_a_closed_board_fail(self, board: JobBoard, other: JobBoard) -> None:
        job = claim_one(board, expiry=LONG)
        jobs = board.iterjobs()
        assert (board.connected, board.closed) == (True, False)
        board.close()
        assert [board.connected, board.closed] == [False, True]  # a list, or a type checker would stop here
        board.close()
        for call in every_call(board, job):
            with pytest.raises(ConnectionFailure):
                call()
        with pytest.raises(ConnectionFailure):
            next(jobs)
        assert other.find_owner(other.get(job.uuid)) == "anna"
        assert other.job_count == 1

    def test_connected_again(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.connect()
        for _ in range(2):
            board.close()
            board.connect()
            assert board.connected
            assert uuids(board.iterjobs()) == [job.uuid]
        taken = take(board)
        board.consume(taken, "anna")
        assert job.state == COMPLETE

    def test_block_connects_and_closes_the_board(self, board: JobBoard, board_conf: dict[str, Any]) -> None:
        mine = jobboard.fetch(board.name, board_conf)
        for _ in range(2):
            with mine as within:
                assert within is mine
                assert mine.connected
                job = mine.post("resize")
                claim = mine.claim(job, "anna")
            assert mine.closed
            assert claim.lost
        with pytest.raises(ZeroDivisionError), mine:
            1 / 0  # noqa: B018
        assert mine.closed

    def test_backend(self, board: JobBoard, board_conf: dict[str, Any]) -> None:
        with jobboard.backend(board.name, board_conf) as mine:
            assert mine.connected
            job = mine.post("resize")
        assert mine.closed
        assert uuids(board.iterjobs(ensure_fresh=True)) == [job.uuid]
        with contextlib.suppress(KeyError), jobboard.backend(board.name, board_conf) as mine:
            raise KeyError
        assert not mine.connected

    def test_characteristics(self, board: JobBoard) -> None:
        assert isinstance(board.characteristics, Characteristics)
        for name in ("durable", "survives_failover", "exact_order", "blocking_wait", "remote_events", "transactional"):
            assert type(getattr(board.characteristics, name)) is bool
        assert board.characteristics.claim_ttl > 0
        assert isinstance(board.characteristics.notes, str)
        with pytest.raises(AttributeError):
            board.characteristics.durable = True  # type: ignore[misc]

    def test_transactions_are_what_it_says(self, board: JobBoard) -> None:
        with pytest.raises(TypeError) as refusal:
            board.post("resize", connection=object())  # type: ignore[arg-type]
        assert board.characteristics.transactional == ("has no argument" not in str(refusal.value))

    @holds("A board that is connected by many threads at once is opened once.")
    def test_connected_by_many_at_once(self, make_board: MakeBoard) -> None:
        boards = [Background(lambda: make_board("fresh")) for _ in range(6)]
        connected = [each.wait(30) for each in boards]
        connected[0].post("resize")
        assert [each.job_count for each in connected] == [1] * 6


class TestIdentity:
    any_driver = True

    def test_the_same_name_shares_jobs_whatever_the_options(self, make_board: MakeBoard) -> None:
        one, two = make_board("shared", claim_ttl=5, retry_for=1), make_board("shared", claim_ttl=50, max_details=99)
        job = one.post("resize")
        assert take(two) == job
        assert one.find_owner(job) == "anna"
        one.consume(one.get(job.uuid), "anna")

    def test_boards_of_two_names_share_no_job(self, make_board: MakeBoard) -> None:
        names = ["a", "b", "a:b", "a/b", "a%", "a_", "a.b", "*", "{a}", "ab", "a b", "ä", "\U0001f980"]
        boards = [make_board(name) for name in names]
        jobs = [board.post("resize", key="k") for board in boards]
        trashed = [board.post("bad") for board in boards]
        for number, board in enumerate(boards):
            board.cancel(trashed[number])
            assert uuids(board.iterjobs()) == [jobs[number].uuid]
            assert uuids(board.trashed()) == [trashed[number].uuid]
            assert (board.job_count, board.stats().trashed) == (1, 1)
            board.register_entity(jobboard.Entity("conductor", names[number]))
        for number, board in enumerate(boards):
            assert [entity.name for entity in board.entities()] == [names[number]]
            stranger = jobs[number - 1]
            with pytest.raises(JobBoardError):
                board.claim(stranger, "anna")
            with pytest.raises(JobBoardError):
                board.cancel(stranger)
            with pytest.raises(JobBoardError):
                board.get(stranger.uuid)
            assert take(board) == jobs[number]
            assert board.purge_trash(0) == 1
        for number, board in enumerate(boards):
            assert board.find_owner(jobs[number]) == "anna"

    @holds("An error of a verb carries its job.")
    def test_errors_carry_the_job(self, board: JobBoard) -> None:
        job = board.post("resize")
        with pytest.raises(JobFailure) as failure:
            board.restore(job)
        assert failure.value.job is job
        assert job.state == UNCLAIMED
