"""What TaskFlow's ZooKeeper board gets wrong, each test named after what it prevents."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import jobboard
from jobboard.exceptions import ClaimLost, JobFailure, JobTrashed, NotFound, UnclaimableJob
from jobboard.job import Entity
from jobboard.priorities import JobPriority
from jobboard.states import TRASHED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, lost_reply, plant, record_of, take
from tests.backends.zookeeper.inside import connection_of, driver_of, root_of

pytestmark = pytest.mark.backends("zookeeper")


def test_very_low_is_not_served_first(make_board: Any) -> None:
    board = make_board()
    for priority in reversed(JobPriority):
        board.post(priority.name, priority=priority)
    assert [take(board).priority for _ in JobPriority] == list(JobPriority)


def test_a_stale_handle_can_not_extend_somebody_elses_claim(make_board: Any) -> None:
    board, other = make_board(), make_board()
    job = board.post("resize")
    board.claim(job, "anna")
    other.release(other.get(job.uuid))
    other.claim(other.get(job.uuid), "anna")
    before = record_of(other, job)
    with pytest.raises(ClaimLost):
        board.extend(job, "anna", 1)
    assert record_of(other, job) == before


def test_a_stale_handle_of_the_same_name_can_not_consume_the_new_claim(make_board: Any) -> None:
    board, other = make_board(), make_board()
    job = board.post("resize")
    board.claim(job, "anna")
    other.release(other.get(job.uuid))
    taken = take(other, "anna")
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")
    other.consume(taken, "anna")


def test_a_refused_claim_does_not_reset_the_lease(make_board: Any) -> None:
    board = make_board()
    job = board.post("resize")
    board.claim(job, "anna", LONG)
    before = record_of(board, job)
    with pytest.raises(UnclaimableJob):
        board.claim(board.get(job.uuid), "anna", 1)
    assert record_of(board, job) == before


def test_a_lost_reply_does_not_hold_the_job_for_ever(make_board: Any) -> None:
    board = make_board()
    job = board.post("resize")
    with lost_reply(board, "claim"):
        board.claim(job, "anna")
    board.consume(job, "anna")


def test_an_undecodable_posting_is_not_deleted_and_does_not_end_the_iteration(make_board: Any) -> None:
    board = make_board()
    plant(board, b"\xc1")
    good = board.post("resize")
    assert list(board.iterjobs()) == [good]
    assert take(board) == good
    [bad] = board.trashed()
    assert "decoded" in bad.error


def test_a_trashed_job_is_not_complete_and_comes_back(make_board: Any) -> None:
    board = make_board()
    job = board.post("resize")
    board.trash(take(board), "anna", reason="no use")
    with pytest.raises(JobTrashed):
        job.wait(0)
    assert [each.seen_state for each in board.trashed()] == [TRASHED]
    board.restore(job)
    assert take(board) == job


def test_the_trash_of_one_board_is_not_anothers(make_board: Any) -> None:
    one, two = make_board("one"), make_board("two")
    one.cancel(one.post("resize"))
    assert list(two.trashed()) == []
    assert connection_of(one).open().get_children(f"{root_of(one)}/side") == ["answer"]


def test_waiting_does_not_return_when_all_jobs_are_claimed(make_board: Any) -> None:
    board = make_board()
    board.post("resize")
    take(board)
    with pytest.raises(NotFound):
        board.wait(0.1)


def test_the_owner_of_an_unclaimed_job_is_none(make_board: Any) -> None:
    board = make_board()
    assert board.find_owner(board.post("resize")) is None


def test_str_shows_no_details(make_board: Any) -> None:
    assert "geheim" not in str(make_board().post("resize", details={"password": "geheim"}))


def test_the_conductor_does_not_get_its_own_jobs_again(make_board: Any) -> None:
    board = make_board()
    board.post("resize")
    take(board, "conductor")
    assert board.claim_next("conductor") is None
    with pytest.raises(JobFailure):
        board.claim(next(board.iterjobs()), "conductor")


def test_a_closed_board_leaves_no_listener_on_a_shared_client(
    caller: KazooClient, request: pytest.FixtureRequest
) -> None:
    mine = []
    caller.add_listener(mine.append)
    caller.create("/mine", b"", makepath=True) if caller.exists("/mine") is None else None
    caller.get("/mine", watch=mine.append)
    board = jobboard.fetch("board", {"board": "zookeeper", "namespace": f"own{id(request)}"}, client=caller)
    board.connect()
    board.register_entity(Entity("conductor", "one"))
    job = board.post("resize")
    board.claim(job, "anna")
    assert board.claim_next("bert", timeout=0.05) is None
    assert driver_of(board)._armed
    root = root_of(board)
    board.close()
    assert caller.connected
    assert caller.state_listeners == {mine.append}
    assert set(caller._data_watchers) == {"/mine"}
    assert not any(caller._child_watchers.values())
    assert caller.get_children(f"{root}/alive") == []
    caller.set("/mine", b"x")
    eventually(lambda: mine)
    board.connect()
    assert board.claim_next("anna") == job
    board.close()


def test_connected_does_not_stay_false_after_a_lost_session(private_board: Any, expire: Callable[[Any], None]) -> None:
    board, other = private_board(claim_ttl=2), private_board()
    board.register_entity(Entity("conductor", "one"))
    job = board.post("resize")
    claim = board.claim(job, "anna")
    expire(board)
    assert board.connected
    # Nobody has taken it: the claim is taken up again, under the same token.
    eventually(lambda: other.engine.store.read([job.uuid]).jobs[0].alive)
    assert other.find_owner(other.get(job.uuid)) == "anna"
    assert record_of(other, job).token == claim.token
    eventually(lambda: [entity.name for entity in other.entities()] == ["one"])
    board.consume(job, "anna")
