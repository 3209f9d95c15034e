"""What goes wrong on TaskFlow's jobboards, whatever lies underneath, and must not come back here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.conductor import Conductor
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure, JobTrashed, NotFound, UnclaimableJob
from jobboard.job import Job
from jobboard.priorities import JobPriority
from jobboard.states import CLAIMED, COMPLETE, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, let_lapse, lost_reply, plant, replaced

PRIVATE = "4111 1111 1111 1111"


def overtaken(board: JobBoard, other: JobBoard, who: str) -> tuple[Job, Job]:
    """A job whose claim by anna has lapsed, and been followed by one of ``who``: the handles of both."""
    stale = board.post("resize")
    let_lapse(board, stale, "anna")
    fresh = other.claim_next(who, expiry=LONG)
    assert fresh == stale
    return stale, fresh


def test_the_highest_priority_and_the_oldest_post_come_first(board: JobBoard) -> None:
    order = [JobPriority.LOW, JobPriority.VERY_HIGH, JobPriority.NORMAL, JobPriority.VERY_LOW, JobPriority.HIGH]
    posted = [board.post(f"{number}", priority=priority) for number in range(2) for priority in order]
    expected = [job.uuid for rank in JobPriority for job in posted if job.priority == rank]
    assert [job.uuid for job in board.iterjobs()] == expected
    assert [job.uuid for job in board.claim_many("anna", 10)] == expected


def test_extend_expiry_checks_the_owner(board: JobBoard, other: JobBoard) -> None:
    stale, fresh = overtaken(board, other, "bert")
    with pytest.raises(ClaimLost):
        stale.extend_expiry(SHORT)
    with pytest.raises(JobFailure):
        board.get(stale.uuid).extend_expiry(SHORT)
    left = fresh.expires_in()
    assert left is not None
    assert left > LONG / 2
    other.consume(fresh, "bert")


def test_a_stale_handle_of_the_same_name_cannot_consume_the_new_claim(board: JobBoard, other: JobBoard) -> None:
    stale, fresh = overtaken(board, other, "anna")
    with pytest.raises(ClaimLost):
        board.consume(stale, "anna")
    assert fresh.state == CLAIMED
    other.consume(fresh, "anna")
    assert fresh.state == COMPLETE


def test_a_refused_reclaim_does_not_reset_the_lease(board: JobBoard) -> None:
    job = board.post("resize")
    board.claim(job, "anna", expiry=LONG)
    with pytest.raises(UnclaimableJob):
        board.claim(board.get(job.uuid), "anna", expiry=SHORT)
    with pytest.raises(UnclaimableJob):
        board.claim(board.get(job.uuid), "anna", expiry=10 * LONG)
    left = job.expires_in()
    assert left is not None
    assert LONG / 2 < left <= LONG


@pytest.mark.parametrize("expiry", [None, LONG])
def test_a_dropped_reply_does_not_lock_the_claimer_out(board: JobBoard, expiry: float | None) -> None:
    job = board.post("resize")
    with lost_reply(board, "claim"):
        claim = board.claim(job, "anna", expiry)
    assert board.get(job.uuid).attempts == 1
    claim.consume()
    assert board.job_count == 0


def test_a_dropped_reply_does_not_make_a_post_fail_that_stands(board: JobBoard) -> None:
    with lost_reply(board, "insert"):
        job = board.post("resize")
    assert [each.uuid for each in board.iterjobs()] == [job.uuid]
    assert board.claim_many("anna", 2, names=["resize"]) == [job]


def test_one_undecodable_posting_is_kept_and_ends_no_iteration(board: JobBoard) -> None:
    before = board.post("resize", priority="VERY_HIGH")
    bad = plant(board, b"\xc1" if board.engine.wire == "msgpack" else "[]")
    after = board.post("resize", priority="VERY_LOW")
    assert [job.uuid for job in board.iterjobs()] == [before.uuid, after.uuid]
    assert board.job_count == 3
    assert board.claim_many("anna", 3) == [before, after]
    [trashed] = board.trashed()
    assert trashed.uuid == bad
    assert trashed.error is not None


HOLDER = """
import json, sys, time
import jobboard
from jobboard.conductor import Conductor

board = jobboard.fetch(sys.argv[1], json.loads(sys.argv[2]))
Conductor("conductor", board, lambda job: time.sleep(600)).run()
"""


@pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis")
def test_a_killed_conductors_job_comes_back(board: JobBoard, board_conf: dict[str, Any]) -> None:
    job = board.post("resize")
    conf = json.dumps({**board_conf, "claim_ttl": 1})
    conductor = subprocess.Popen([sys.executable, "-c", HOLDER, board.name, conf])
    try:
        eventually(lambda: board.find_owner(job) == "conductor")
        conductor.send_signal(signal.SIGKILL)
        taken = board.claim_next("anna", timeout=LIMIT)
    finally:
        conductor.kill()
        conductor.wait()
    assert taken == job


def test_waiting_for_a_trashed_job_raises(board: JobBoard) -> None:
    job = board.post("resize")
    board.claim(job, "anna")
    board.trash(job, "anna", reason="no path")
    with pytest.raises(JobTrashed, match="no path"):
        job.wait(LIMIT)


def test_the_trash_can_be_listed_restored_and_emptied(board: JobBoard) -> None:
    jobs = [board.post(name) for name in "ab"]
    for job in jobs:
        board.claim(job, "anna")
        board.trash(job, "anna", reason=f"no {job.name}")
    assert [(job.uuid, job.error) for job in board.trashed()] == [(jobs[1].uuid, "no b"), (jobs[0].uuid, "no a")]
    assert board.job_count == 0
    board.restore(jobs[0])
    assert board.claim_next("anna") == jobs[0]
    board.purge(jobs[1])
    assert list(board.trashed()) == []
    with pytest.raises(NotFound):
        board.get(jobs[1].uuid)


def test_boards_of_two_names_share_no_trash(make_board: MakeBoard) -> None:
    one, two = make_board("one"), make_board("two")
    job = one.post("resize")
    one.cancel(job)
    assert list(two.trashed()) == []
    with pytest.raises(NotFound):
        two.restore(job)
    assert [each.uuid for each in one.trashed()] == [job.uuid]


def test_boards_of_two_names_share_nothing(make_board: MakeBoard) -> None:
    one, two = make_board("one"), make_board("two")
    job = one.post("resize", key="k")
    assert two.post("resize", key="k") != job
    assert one.job_count == two.job_count == 1
    assert two.claim_many("anna", 5) != [job]
    with pytest.raises(NotFound):
        two.get(job.uuid)
    with pytest.raises(NotFound):
        two.claim(job, "anna")
    assert job.state == UNCLAIMED


def test_wait_is_not_fooled_by_claimed_jobs(board: JobBoard) -> None:
    board.post_many([{"name": "resize"}] * 3)
    board.claim_many("anna", 3)
    with pytest.raises(NotFound):
        board.wait(timeout=0.1)
    free = board.post("crop")
    assert list(board.wait(timeout=LIMIT)) == [free]


def test_nobody_owns_what_is_unclaimed_trashed_or_gone(board: JobBoard) -> None:
    job = board.post("resize")
    assert board.find_owner(job) is None
    board.claim(job, "anna")
    assert board.find_owner(job) == "anna"
    board.trash(job, "anna")
    assert board.find_owner(job) is None
    board.purge(job)
    assert board.find_owner(job) is None


def test_connected_tells_the_truth(board: JobBoard) -> None:
    board.post("resize")
    assert board.connected
    board.close()
    assert not board.connected
    with pytest.raises(ConnectionFailure):
        board.job_count  # noqa: B018 - an empty board would be a lie
    with pytest.raises(ConnectionFailure):
        list(board.iterjobs())
    board.connect()
    assert board.connected
    assert board.job_count == 1


def test_str_of_a_job_shows_no_details(board: JobBoard) -> None:
    posted = board.post("pay", details={"card": PRIVATE})
    claimed = board.claim_next("anna")
    assert claimed is not None
    for job in (posted, claimed, board.get(posted.uuid)):
        assert job.details == {"card": PRIVATE}
        for shown in (str(job), repr(job), repr(job.claim), f"{job}", repr([job])):
            assert PRIVATE not in shown


class Running:
    """A conductor at work on a thread of its own, whose jobs end when they are told to."""

    def __init__(self, board: JobBoard) -> None:
        self.go_on = threading.Event()
        self.begun: list[str] = []
        self.conductor = Conductor("conductor", board, self._work)
        self._thread = threading.Thread(target=self.conductor.run)
        self._thread.start()

    def _work(self, job: Job) -> None:
        self.begun.append(job.uuid)
        if job.name == "long":
            assert self.go_on.wait(30)

    def end(self) -> None:
        self.go_on.set()
        self.conductor.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def running(board: JobBoard) -> Iterator[Running]:
    running = Running(board)
    yield running
    running.end()


def test_a_conductor_does_not_try_to_claim_its_own_running_jobs(board: JobBoard, running: Running) -> None:
    long = [board.post("long") for _ in range(3)]
    eventually(lambda: len(running.begun) == 3)
    asked: list[str] = []

    def claim(original: Any, uuid: str, *args: Any) -> Any:
        asked.append(uuid)
        return original(uuid, *args)

    with replaced(board, "claim", claim):
        short = [board.post("short") for _ in range(5)]
        eventually(lambda: running.conductor.tally.consumed == 5)
    assert asked == []
    assert [board.get(job.uuid).attempts for job in long] == [1, 1, 1]
    running.end()
    assert sorted(running.begun) == sorted(job.uuid for job in [*long, *short])
    assert running.conductor.tally.consumed == 8
