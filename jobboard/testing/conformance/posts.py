"""Posting: what is stored, when it can be claimed, and what is refused with nothing written."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Posting
from jobboard.priorities import JobPriority
from jobboard.states import SCHEDULED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, take, uuids

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Book:
    def __init__(self, name: Any = "log", uuid: Any = "u1") -> None:
        self.name, self.uuid = name, uuid


DETAILS: list[dict[str, Any]] = [
    {},
    {"a": None, "b": True, "c": False, "d": 0, "e": -1, "f": ""},
    {"low": -(2**63), "high": 2**63 - 1},
    {"floats": [0.1, -0.0, 1e308, 5e-324, 1.0, 123456789.123456789]},
    {"text": "naïve ÅÅ 東京 \U0001f980 \u2028 'quoted' \"too\" \\ %s %(x)s :x {} ? \x00\x01\x7f\n\t"},
    {"": {"": []}, " ": [[], {}, [[{}]]]},
    {f"key {number}": [number, str(number)] for number in range(500)},
]


class TestPosting:
    def test_a_job_shows_what_was_posted(self, board: JobBoard) -> None:
        before = Harness(board).now()
        posted = board.post("resize", None, {"width": 3}, "HIGH", key="k", max_attempts=3, context={"user": "é"})
        after = Harness(board).now()
        for job in (posted, board.get(posted.uuid)):
            assert (job.name, job.details, job.key, job.max_attempts) == ("resize", {"width": 3}, "k", 3)
            assert (job.priority, type(job.priority)) == (JobPriority.HIGH, int)
            assert (job.attempts, job.claim, job.due, job.error, job.errors) == (0, None, None, None, ())
            assert (job.book, job.book_name, job.book_uuid) == (None, None, None)
            assert job.context == {"user": "é"}
            assert job.board is board
            assert job.seen_state == UNCLAIMED
            assert before <= (job.created_on - _EPOCH) // datetime.timedelta(microseconds=1) <= after
            assert job.last_modified == job.created_on
        assert posted.uuid == board.get(posted.uuid).uuid
        assert posted.state == UNCLAIMED

    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_posted_job_has_its_state(self, board: JobBoard, key: str | None) -> None:
        jobs = [*board.post_many([Posting("a", key=key), Posting("b")]), board.post("c", delay=LONG)]
        assert [job.seen_state for job in jobs] == [UNCLAIMED, UNCLAIMED, SCHEDULED]
        assert [job.seen_state for job in board.post_many([Posting("d", delay=LONG)] * 2)] == [SCHEDULED] * 2

    def test_defaults_of_a_post(self, board: JobBoard) -> None:
        job = board.get(board.post("resize").uuid)
        assert (job.details, job.key, job.max_attempts, job.due, job.context) == ({}, None, None, None, {})
        assert (job.priority, job.group) == (0, None)

    @holds("A priority is a name or an integer from -100 to 100.")
    def test_a_priority_is_a_name_or_an_integer(self, board: JobBoard) -> None:
        for given in ("low", -50, JobPriority.LOW, -49, 100, -100):
            posted = board.post("resize", priority=given)
            assert posted.priority == board.get(posted.uuid).priority == (-50 if given == "low" else given)

    def test_a_group(self, board: JobBoard) -> None:
        group = "customer é \U0001f980 " + "x" * 240
        posted = board.post("resize", group=group)
        assert posted.group == board.get(posted.uuid).group == group
        taken = take(board)
        assert taken.group == group
        board.trash(taken, "anna")
        board.restore(taken)
        assert [job.group for job in board.iterjobs()] == [group]
        batch = board.post_many([{"name": "crop", "group": "a"}, Posting("crop"), Posting("crop", group="b")])
        assert [job.group for job in batch] == ["a", None, "b"]

    @holds("A claimed job tells when it became ready.")
    def test_claimed_job_knows_ready_on(self, board: JobBoard) -> None:
        delay = datetime.timedelta(seconds=SHORT)
        delayed = board.post("resize", delay=delay)
        due = delayed.created_on + delay
        overdue, at_last = board.post("resize", due=_EPOCH), board.post("resize", due=due)
        claimed = {job: job for job in (take(board, timeout=LIMIT) for _ in range(3))}
        assert claimed[delayed].ready_on == due
        assert claimed[overdue].ready_on == overdue.created_on
        assert claimed[at_last].ready_on == max(due, at_last.created_on)
        assert all(job.last_modified >= job.ready_on for job in claimed)

    def test_details_come_back_as_they_went(self, board: JobBoard) -> None:
        for details in DETAILS:
            board.post("resize", details=details)
            [job] = board.iterjobs(only_unclaimed=True)
            assert job.details == details
            assert repr(take(board).details) == repr(details)  # also tells 1 from 1.0 and 0.0 from -0.0

    def test_the_largest_details(self, board: JobBoard, make_board: MakeBoard) -> None:
        largest = {"a": "é" * ((64 * 1024 - len('{"a":""}')) // 2)}
        assert board.get(board.post("resize", details=largest).uuid).details == largest
        with pytest.raises(ValueError, match="max_details is 100"):
            make_board(max_details=100).post("resize", details={"a": "x" * 100})

    def test_the_longest_names(self, board: JobBoard) -> None:
        longest = "é" * 255
        job = board.post(longest, key=longest)
        assert take(board, longest, names=[longest]) == job
        assert board.find_owner(job) == longest
        assert board.get(job.uuid).key == longest

    def test_book(self, board: JobBoard) -> None:
        book = Book()
        job = board.post("resize", book)
        assert (job.book, job.book_name, job.book_uuid) == (book, "log", "u1")
        seen = board.get(job.uuid)
        assert (seen.book, seen.book_name, seen.book_uuid) == (None, "log", "u1")  # no persistence


class TestDelays:
    @pytest.mark.parametrize("delay", [LONG, datetime.timedelta(seconds=LONG)])
    def test_delay(self, board: JobBoard, delay: Any) -> None:
        job = board.post("resize", delay=delay)
        assert job.seen_state == job.state == SCHEDULED
        assert board.get(job.uuid).due == job.due == job.created_on + datetime.timedelta(seconds=LONG)
        assert board.claim_next("anna") is None

    def test_due(self, board: JobBoard) -> None:
        due = datetime.datetime(2222, 2, 2, 2, 2, 2, 222222, datetime.timezone(datetime.timedelta(hours=5)))
        job = board.post("resize", due=due)
        assert job.state == SCHEDULED
        assert board.get(job.uuid).due == job.due == due

    @holds("A due time that not every backend can store exactly is refused.")
    def test_the_last_times_of_all(self, board: JobBoard) -> None:
        """Further than that a double does not count microseconds; what lies behind is refused."""
        last = _EPOCH + datetime.timedelta(microseconds=2**53 - 1)
        job = board.post("resize", due=last)
        assert board.get(job.uuid).due == job.due == last
        with pytest.raises(ValueError, match="before 2255"):
            board.post("resize", due=last + datetime.timedelta(microseconds=1))
        century = datetime.timedelta(days=36525)
        later = board.post("resize", delay=century)
        assert board.get(later.uuid).due == later.created_on + century
        assert board.claim_next("anna") is None
        assert board.stats().scheduled == 2

    @pytest.mark.parametrize("arguments", [{"delay": 0}, {"due": _EPOCH}, {"due": _EPOCH.replace(year=1900)}])
    def test_due_at_once(self, board: JobBoard, arguments: dict[str, Any]) -> None:
        job = board.post("resize", **arguments)
        assert job.seen_state == job.state == UNCLAIMED
        assert job.due is None
        assert take(board) == job

    def test_a_scheduled_job_becomes_claimable_by_itself(self, board: JobBoard) -> None:
        job = board.post("resize", delay=SHORT)
        eventually(lambda: job.state == UNCLAIMED, LIMIT)
        assert job.due is None
        assert uuids(board.iterjobs(only_unclaimed=True)) == [job.uuid]
        board.claim(job, "anna")


class TestPostingMany:
    def test_postings_and_mappings(self, board: JobBoard) -> None:
        postings: list[Any] = [Posting("a", details={"n": 1}), {"name": "b", "priority": "LOW"}, Posting("c", key="k")]
        jobs = board.post_many(posting for posting in postings)
        assert [job.name for job in jobs] == ["a", "b", "c"]
        assert [job.details for job in jobs] == [{"n": 1}, {}, {}]
        assert jobs[1].priority == JobPriority.LOW
        assert jobs[2].key == "k"
        assert board.job_count == 3

    @holds("A batch of posts whose jobs differ only in their details stores each job's own details.")
    def test_alike_but_for_their_details(self, board: JobBoard) -> None:
        """Values that all postings share may go to the server once."""
        odd: dict[str, Any] = {"name": "größe \U0001f600 \\ % ' ", "group": "%s :x ", "priority": -7, "max_attempts": 3}
        jobs = board.post_many([{**odd, "details": {"text": text}} for text in ("\x1e\x1f\x00", "é '\\\"")])
        for job, text in zip(
            board.claim_many("anna", 2, names=[odd["name"]]), ("\x1e\x1f\x00", "é '\\\""), strict=True
        ):
            assert {**odd, "details": {"text": text}} == {
                **{field: getattr(job, field) for field in odd},
                "details": job.details,
            }
        assert board.claim_next("anna") is None
        other = board.post_many([{**odd, "delay": LONG}, {**odd, "delay": LONG}])
        assert [job.state for job in other] == [SCHEDULED, SCHEDULED]
        assert uuids(board.iterjobs()) == uuids([*jobs, *other])

    def test_batch_keeps_its_order(self, board: JobBoard) -> None:
        jobs = board.post_many([Posting(f"job {number}") for number in range(1001)])
        assert [job.name for job in jobs] == [f"job {number}" for number in range(1001)]
        assert sorted(jobs) == jobs
        assert uuids(board.iterjobs()) == uuids(jobs)

    def test_batches_are_bounded_by_number_and_size(self, make_board: MakeBoard) -> None:
        board = make_board(max_details=2**20)
        sizes: list[int] = []

        def count(original: Any, nonce: Any, drafts: Any) -> Any:
            sizes.append(len(drafts))
            return original(nonce, drafts)

        large = {"a": "x" * 300_000}
        with Harness(board).replaced("insert", count):
            board.post_many([Posting("small")] * 501)
            board.post_many([Posting("large", details=large)] * 3)
            board.post_many([Posting("huge", details={"a": "x" * 600_000})] * 2)
        assert sizes == [500, 1, 1, 1, 1, 1, 1]
        assert board.job_count == 506

    def test_a_failure_between_batches_says_what_stands(self, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0)
        calls: list[int] = []

        def break_second(original: Any, *args: Any) -> Any:
            calls.append(1)
            if len(calls) > 1:
                raise ConnectionFailure("the connection broke")
            return original(*args)

        with Harness(board).replaced("insert", break_second), pytest.raises(ConnectionFailure) as failure:
            board.post_many([Posting("resize")] * 700)
        assert len(failure.value.posted) == board.job_count == 500
        assert {job.uuid for job in board.iterjobs()} == {job.uuid for job in failure.value.posted}
        assert failure.value.outcome == "none"
