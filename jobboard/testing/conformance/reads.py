"""Looking: iterjobs, get, find_owner, state, expires_in, job_count and stats, also where nobody claims."""

from __future__ import annotations

from typing import Any

import pytest

from jobboard.board import JobBoard, JobBoardIterator
from jobboard.exceptions import JobFailure, NotFound
from jobboard.job import Entity, Posting
from jobboard.primitives import BoardStats
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, take, trash_one, uuids


class TestIterjobs:
    def test_the_iterator(self, board: JobBoard) -> None:
        jobs = board.iterjobs()
        assert isinstance(jobs, JobBoardIterator)
        assert iter(jobs) is jobs
        assert (jobs.board, jobs.only_unclaimed, jobs.ensure_fresh) == (board, False, False)
        assert list(jobs) == []
        assert next(jobs, None) is None
        jobs = board.iterjobs(True, True)
        assert (jobs.only_unclaimed, jobs.ensure_fresh) == (True, True)

    def test_states(self, board: JobBoard) -> None:
        free, later, held = board.post("free"), board.post("later", delay=LONG), board.post("held")
        board.claim(held, "anna")
        trash_one(board)
        seen = {job.uuid: job.seen_state for job in board.iterjobs()}
        assert seen == {free.uuid: UNCLAIMED, later.uuid: SCHEDULED, held.uuid: CLAIMED}
        for states, expected in (
            ([UNCLAIMED], [free]),
            (["SCHEDULED"], [later]),
            ({CLAIMED, UNCLAIMED}, [free, held]),
            ([], []),
        ):
            assert uuids(board.iterjobs(states=states)) == uuids(expected)
        assert uuids(board.iterjobs(only_unclaimed=True)) == [free.uuid]
        assert uuids(board.iterjobs(True, states=[CLAIMED, UNCLAIMED])) == [free.uuid]
        assert uuids(board.iterjobs(True, states=[CLAIMED])) == []
        assert uuids(board.iterjobs(names=["held", "later"], states=[CLAIMED])) == [held.uuid]
        assert uuids(board.iterjobs(True, names=["held"])) == []

    @holds("A walk can go on behind a job.")
    def test_iterjobs_begins_after_a_job(self, board: JobBoard) -> None:
        jobs = sorted(board.post_many([Posting("resize", priority="LOW" if n % 2 else "HIGH") for n in range(6)]))
        assert uuids(board.iterjobs(after=jobs[3])) == uuids(jobs[4:])
        board.cancel(jobs[3])
        assert uuids(board.iterjobs(after=board.get(jobs[3].uuid), states=[UNCLAIMED])) == uuids(jobs[4:])
        assert uuids(board.iterjobs(after=jobs[5])) == []

    def test_pages(self, board: JobBoard) -> None:
        """Pages have no job twice, with any filter, also when jobs come and go meanwhile."""
        board.post_many([Posting(f"name {n % 2}", priority="LOW" if n % 3 else "HIGH") for n in range(1100)])
        claimed = board.claim_many("anna", 20)
        calls: list[int] = []

        def count(original: Any, *args: Any) -> Any:
            calls.append(1)
            return original(*args)

        with Harness(board).replaced("page", count), Harness(board).replaced("read", count):
            everything = uuids(board.iterjobs())
            assert len(calls) <= 4  # never one for each job
        assert len(everything) == len(set(everything)) == 1100
        assert everything == uuids(sorted(board.iterjobs()))
        ours = set(uuids(claimed))
        assert uuids(board.iterjobs(only_unclaimed=True)) == [uuid for uuid in everything if uuid not in ours]
        assert uuids(board.iterjobs(states=[CLAIMED])) == [uuid for uuid in everything if uuid in ours]
        assert len(list(board.iterjobs(names=["name 1"]))) == 550

    def test_iterjobs_while_jobs_come_and_go(self, board: JobBoard, other: JobBoard) -> None:
        board.post_many([Posting("resize")] * 600)
        jobs = board.iterjobs()
        seen = [next(jobs) for _ in range(500)]
        other.consume_many(other.claim_many("anna", 100), "anna")
        other.post("first", priority="VERY_HIGH")
        late = other.post("last", priority="VERY_LOW")
        assert board.get(late.uuid) == late  # also where reads are cached
        seen += jobs
        assert len(seen) == len(set(seen)) == 601
        assert late in seen

    @pytest.mark.parametrize("ensure_fresh", [False, True])
    def test_ensure_fresh_sees_acts_of_another_handle(
        self, board: JobBoard, other: JobBoard, ensure_fresh: bool
    ) -> None:
        list(board.iterjobs())
        job = other.post("resize")
        if ensure_fresh:
            assert uuids(board.iterjobs(ensure_fresh=True)) == [job.uuid]
        eventually(lambda: uuids(board.iterjobs()) == [job.uuid], LIMIT)
        other.consume(take(other), "anna")
        assert uuids(board.iterjobs(ensure_fresh=True)) == []


class TestGet:
    def test_get(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", details={"a": 1}, key="k")
        seen = other.get(job.uuid)
        assert seen == job
        assert seen is not job
        assert hash(seen) == hash(job)
        assert (seen.name, seen.details, seen.key, seen.sequence) == ("resize", {"a": 1}, "k", job.sequence)
        assert seen.board is other

    @holds("A uuid that no backend can be asked about is not found.")
    def test_impossible_uuid_is_not_found(self, board: JobBoard) -> None:
        for uuid in ("\ud800", "a\x00b", "", "x" * 300):
            with pytest.raises(NotFound):
                board.get(uuid)

    def test_absent_job_is_not_found(self, board: JobBoard, make_board: MakeBoard) -> None:
        job = board.post("resize")
        with pytest.raises(NotFound):
            make_board("another").get(job.uuid)
        board.consume(take(board), "anna")
        for uuid in (job.uuid, "00000000-0000-4000-8000-000000000000", "nonsense", ""):
            with pytest.raises(NotFound):
                board.get(uuid)
        for nonsense in (None, 1, job):
            with pytest.raises(TypeError):
                board.get(nonsense)  # type: ignore[arg-type]


class TestTheServerIsAsked:
    def test_state(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize", delay=SHORT)
        assert job.seen_state == SCHEDULED
        eventually(lambda: job.state == UNCLAIMED, LIMIT)
        taken = take(other, expiry=SHORT)
        assert job.state in (CLAIMED, UNCLAIMED)
        assert job.attempts == 1
        eventually(lambda: job.state == UNCLAIMED, LIMIT)
        other.abandon(taken, "anna", error="broken", delay=LONG)
        assert (job.state, job.error) == (SCHEDULED, "broken")
        assert job.due is not None
        other.cancel(other.get(job.uuid))
        assert job.state == TRASHED
        other.restore(other.get(job.uuid))
        assert job.state == UNCLAIMED
        other.consume(take(other), "anna")
        assert job.state == COMPLETE
        assert job.seen_state == COMPLETE

    def test_find_owner(self, board: JobBoard, other: JobBoard) -> None:
        job = board.post("resize")
        assert other.find_owner(job) is None
        taken = take(board, expiry=SHORT)
        eventually(lambda: other.find_owner(job) is None, LIMIT)
        board.extend(taken, "anna")
        assert other.find_owner(job) == board.find_owner(job) == "anna"
        board.abandon(taken, "anna")
        assert other.find_owner(job) is None
        board.trash(take(board), "anna")
        assert other.find_owner(job) is None
        board.restore(job)
        board.consume(take(board), "anna")
        assert other.find_owner(job) is None
        board.post("later", delay=LONG)
        assert [other.find_owner(each) for each in other.iterjobs(ensure_fresh=True)] == [None]

    def test_last_modified(self, board: JobBoard) -> None:
        job = board.post("resize")
        moments = [job.last_modified]

        def look() -> None:
            assert job.state
            moments.append(job.last_modified)

        eventually(lambda: Harness(board).now() > record_time(job), LIMIT)
        taken = take(board)
        look()
        eventually(lambda: Harness(board).now() > record_time(job), LIMIT)
        board.abandon(taken, "anna")
        look()
        assert moments == sorted(set(moments))
        assert job.created_on == moments[0]


def record_time(job: Any) -> int:
    return int(job.record.modified_on)


class TestCounting:
    def test_counts(self, board: JobBoard, other: JobBoard) -> None:
        assert board.job_count == 0
        assert board.stats() == BoardStats(0, 0, 0, 0)
        board.post_many([Posting("resize")] * 4 + [Posting("resize", delay=LONG)] * 3)
        board.claim_many("anna", 2)
        trash_one(board)
        for each in (board, other):
            assert each.job_count == 7
            assert each.stats() == BoardStats(unclaimed=2, scheduled=3, claimed=2, trashed=1)
            assert each.stats().on_board == 7

    @holds("iterjobs leaves out a job that a lapse has trashed, though nobody has swept it.")
    def test_reads_show_lapses_that_nobody_has_swept(self, board: JobBoard, other: JobBoard) -> None:
        """Nobody sweeps here: a read depends on the records and the server's time alone."""
        board.post("held")
        board.post("due", delay=SHORT)
        board.post("last", max_attempts=1)
        board.post("later", delay=LONG)
        held, last = take(board, expiry=SHORT), take(board, names=["last"], expiry=SHORT)
        eventually(lambda: other.stats() == BoardStats(unclaimed=2, scheduled=1, claimed=0, trashed=1), LIMIT)
        assert other.job_count == 3
        assert {job.name: job.seen_state for job in other.iterjobs()} == {
            "held": UNCLAIMED,
            "due": UNCLAIMED,
            "later": SCHEDULED,
        }
        assert [job.name for job in other.iterjobs(only_unclaimed=True)] == ["held", "due"]
        assert list(other.iterjobs(states=[CLAIMED])) == []
        assert [job.name for job in other.iterjobs(states=[SCHEDULED])] == ["later"]
        assert uuids(other.trashed()) == [last.uuid]
        assert [job.name for job in other.wait(0)] == ["held", "due"]
        assert other.find_owner(held) is None
        with pytest.raises(NotFound):
            held.expires_in()
        assert (held.state, last.state) == (UNCLAIMED, TRASHED)

    def test_an_old_answer_will_do(self, board: JobBoard, other: JobBoard) -> None:
        assert board.stats().unclaimed == 0
        other.post("resize")
        assert board.stats(max_age=LONG).unclaimed == 0
        assert board.stats().unclaimed == 1


class TestLookingOnly:
    @holds("A board that is opened for looking only refuses each verb that would change something.")
    def test_read_only_board_refuses_changes(self, board: JobBoard, make_board: MakeBoard) -> None:
        free, held = board.post("free", key="k"), board.post("held")
        trashed = trash_one(board)
        board.claim(held, "anna", LONG)
        before = [(job.uuid, job.seen_state, job.record.token) for job in board.iterjobs()]
        looking = make_board(read_only=True)
        theirs = looking.get(held.uuid)
        for act in (
            lambda: looking.post("no"),
            lambda: looking.post("no", key="k"),
            lambda: looking.post_many([{"name": "no"}]),
            lambda: looking.claim(looking.get(free.uuid), "anna"),
            lambda: looking.claim_next("anna"),
            lambda: looking.extend(theirs, "anna"),
            lambda: looking.abandon(theirs, "anna"),
            lambda: looking.consume(theirs, "anna"),
            lambda: looking.trash(theirs, "anna"),
            lambda: looking.consume_many([theirs], "anna"),
            lambda: looking.release(theirs),
            lambda: looking.cancel(looking.get(free.uuid)),
            lambda: looking.restore(trashed),
            lambda: looking.purge(trashed),
            lambda: looking.register_entity(Entity("conductor", "one")),
            looking.setup,
        ):
            with pytest.raises(JobFailure, match="looking only: leave out read_only"):
                act()
        assert [(job.uuid, job.seen_state, job.record.token) for job in looking.iterjobs()] == before
        assert uuids(looking.trashed()) == [trashed.uuid]
        assert looking.entities() == []


class TestSiblings:
    @holds("Boards of one store are listed by name, and no more of them than asked for.")
    def test_other_boards_of_the_store(self, board: JobBoard, make_board: MakeBoard) -> None:
        """Names may have any characters. This board is not among its siblings."""
        odd = "a b/%7B{c}:*[é].meta"
        for name in ("board two", odd):
            board.post("here")
            make_board(name).post("there")
        named = {make_board(name).name for name in ("board two", odd)}
        assert named <= set(board.siblings(1000))
        assert board.name not in board.siblings(1000)
        assert board.name in make_board("board two").siblings(1000)
        assert board.name in make_board("nobody has posted here").siblings(1000)

    @holds("Boards of one store are listed by name, and no more of them than asked for.")
    def test_siblings_are_limited(self, board: JobBoard, make_board: MakeBoard) -> None:
        names = {f"board {number}" for number in range(5)}
        for name in names:
            make_board(name).post("there")
        assert len(board.siblings(3)) == 3
        with pytest.raises(ValueError, match="limit"):
            board.siblings(0)
