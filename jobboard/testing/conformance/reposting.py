"""Posts that are repeated after a lost reply, while what held their keys comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Posting
from jobboard.primitives import Draft
from jobboard.states import COMPLETE, UNCLAIMED, Status
from jobboard.testing.conformance.support import EventLog, first_call, lost_reply, replaced, take, uuids


class TestRepeatedPosts:
    """A post that has stored its job is done; one that was answered with another's stands for as long as that one."""

    @pytest.mark.parametrize("fate", ["consumed", "trashed", "purged"])
    def test_post_whose_keys_holder_goes_meanwhile(self, board: JobBoard, other: JobBoard, fate: str) -> None:
        """The first try has stored nothing, and what it would have answered is no more."""
        events = EventLog(board, "POSTED")
        holder = other.post("crop", key="k")

        def go() -> None:
            theirs = take(other, "bert")
            if fate == "consumed":
                other.consume(theirs, "bert")
                return
            other.trash(theirs, "bert")
            if fate == "purged":
                other.purge(theirs)

        with lost_reply(board, "insert", go):
            job = board.post("resize", details={"a": 1}, key="k")
        assert job != holder
        assert (job.state, job.name, job.details) == (UNCLAIMED, "resize", {"a": 1})
        assert uuids(other.iterjobs(ensure_fresh=True)) == [job.uuid]
        assert board.post("resize", key="k") == job
        events.expect(job, "POSTED")

    def test_post_whose_keys_holder_goes_and_comes_back(self, board: JobBoard, other: JobBoard) -> None:
        holder = other.post("crop", key="k")

        def go_and_come() -> None:
            other.cancel(holder)
            other.restore(holder)

        with lost_reply(board, "insert", go_and_come):
            assert board.post("resize", key="k") == holder
        assert board.job_count == 1

    def test_post_that_stores_with_its_second_try_and_loses_that_reply_too(
        self, board: JobBoard, other: JobBoard
    ) -> None:
        other.post("crop", key="k")
        done: list[str] = []

        def lose_twice(original: Callable[..., Any], *args: Any) -> Any:
            answer = original(*args)
            if len(done) < 2:
                theirs = take(other, "bert")
                other.consume(theirs, "bert")
                done.append(theirs.uuid)
                raise ConnectionFailure("the connection broke", outcome="unknown")
            return answer

        with replaced(board, "insert", lose_twice):
            job = board.post("resize", details={"a": 1}, key="k")
        # Its second try has stored it, so that a third one must not do so again.
        assert job.uuid == done[1]
        assert (job.state, job.details, board.job_count) == (COMPLETE, {"a": 1}, 0)

    def test_post_many_of_which_some_have_gone(self, board: JobBoard, other: JobBoard) -> None:
        """What the first try has stored is done, if it has gone; what another's key kept out is posted now."""
        gone, stays = other.post("gone", key="gone"), other.post("stays", key="stays")

        def consume() -> None:
            for name in ("gone", "mine"):
                other.consume(take(other, "bert", names=[name]), "bert")

        with lost_reply(board, "insert", consume):
            jobs = board.post_many(
                [
                    Posting("mine", key="mine", details={"n": 0}),
                    Posting("again", key="mine"),
                    Posting("new", key="gone", details={"n": 2}),
                    Posting("newer", key="gone"),
                    Posting("kept out", key="stays"),
                    Posting("free"),
                ]
            )
        assert [job.name for job in jobs] == ["mine", "mine", "new", "new", "stays", "free"]
        assert [job.state for job in jobs] == [COMPLETE, COMPLETE, *[UNCLAIMED] * 4]
        assert jobs[0] == jobs[1]
        assert jobs[0].details == {"n": 0}
        assert jobs[2] == jobs[3] != gone
        assert jobs[4] == stays
        assert sorted(uuids(other.iterjobs(ensure_fresh=True))) == sorted({job.uuid for job in jobs[2:]})

    @pytest.mark.parametrize("late", [1, 2])
    def test_insert_whose_keys_holder_has_gone(self, board: JobBoard, late: int) -> None:
        """Only the caller's latest try posts its draft then: an earlier one's would be nobody's."""
        holder = board.post("resize", key="k")
        posting = codec.encode(codec.Content({}, None), board.engine.wire)
        draft = Draft("00000000-0000-4000-8000-00000000abcd", "late", 0, "k", codec.VERSION, posting, None, None, None)
        first = first_call()
        for attempt in {1, 2, 3} - {late}:
            [(status, uuid, record)] = board.engine.raw.insert([draft], first._replace(attempt=attempt))
            assert (status, uuid, record and record.uuid) == (Status.KEY, holder.uuid, holder.uuid)
        board.consume(take(board), "anna")
        board.engine.raw.insert([draft], first._replace(attempt=late))
        assert board.job_count == 0
