"""Sessions of ZooKeeper and etcd that end, and claims that nobody knows of in a session that lives on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.codec import Note, encode_note
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure
from jobboard.job import Posting
from jobboard.kv.driver import ALIVE, Op
from jobboard.states import TRASHED, Status
from jobboard.testing.conformance.support import PATIENCE, Waiter, replaced, take
from tests.kv.conftest import driver_of

# No beat comes within a test.
TTL = 120

pytestmark = [pytest.mark.backends("zookeeper", "etcd"), pytest.mark.timeout(120)]


@pytest.fixture
def board(make_board: Callable[..., Any]) -> JobBoard:
    board: JobBoard = make_board(claim_ttl=TTL)
    return board


@pytest.fixture
def other(make_board: Callable[..., Any]) -> JobBoard:
    board: JobBoard = make_board(claim_ttl=TTL)
    return board


def end_session(board: JobBoard) -> None:
    """End the session of a board, as a server does when its process has been silent for too long."""
    driver: Any = driver_of(board)
    if hasattr(driver, "_link"):
        driver.link.call("/v3/lease/revoke", json.dumps({"ID": driver.session()}))
    else:
        driver.commit([Op("remove", f"{ALIVE}/{driver.session()}")])


@pytest.mark.rule("A claim outlives no keeper, and no other keeper keeps it.")
@pytest.mark.rule("A job that comes back, or is posted in front, is next, whatever the handle knew.")
@pytest.mark.rule("A lost lease frees its claims at once, and no claim is made under it.")
def test_claims_are_free_at_once_and_each_goes_to_the_quickest(board: JobBoard, other: JobBoard) -> None:
    jobs = board.post_many([Posting("resize")] * 3)
    held = board.claim_many("anna", 3)
    assert held == jobs
    assert other.stats().claimed == 3
    waiter = Waiter(other, lambda: other.claim_next("bert", timeout=PATIENCE))
    end_session(board)
    assert waiter.wait() == jobs[0]
    assert other.stats().claimed == 1
    # Nobody has taken the second job: its claim goes on in a new session. The first job is another's.
    board.extend(held[1], "anna")
    assert other.find_owner(jobs[1]) == "anna"
    with pytest.raises(ClaimLost):
        board.consume(held[0], "anna")
    assert list(other.claim_many("bert", 5)) == [jobs[2]]


@pytest.mark.rule("A lost lease frees its claims at once, and no claim is made under it.")
def test_the_next_claim_is_made_in_a_new_session(board: JobBoard, other: JobBoard) -> None:
    board.post_many([Posting("resize")] * 2)
    take(board)
    end_session(board)
    job = take(board)
    assert other.find_owner(job) == "anna"


def test_a_last_attempt_lies_in_the_trash_from_that_instant_on(board: JobBoard) -> None:
    board.post("resize", max_attempts=1)
    job = take(board)
    end_session(board)
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")
    assert board.get(job.uuid).seen_state == TRASHED


@pytest.mark.rule("A claim whose slot is taken is not revived by a beat.")
def test_a_beat_revives_no_claim_whose_slot_is_taken(board: JobBoard, other: JobBoard) -> None:
    board.set_limit("mail", concurrency=1)
    first = board.post("mail")
    held, second = take(board), board.post("mail", priority="HIGH")
    end_session(board)
    assert take(other, "bert") == second
    board.claims.beat()
    assert held.claim is not None
    assert held.claim.lost
    assert other.find_owner(first) is None


@pytest.mark.rule("A keeper that came during a look is asked for at the next look.")
def test_a_session_that_begins_during_a_look_hides_no_job_later(board: JobBoard, other: JobBoard) -> None:
    """The look meets a claim of a session that had not begun when the look asked for living sessions."""
    board.post_many([Posting("resize")] * 3)
    driver: Any = driver_of(board)
    read, claimed = driver.read, list[Any]()

    def reading(*args: Any, **options: Any) -> Any:
        found = read(*args, **options)
        if not claimed:
            claimed.append(take(other, "carl"))
        return found

    driver.read = reading
    assert board.claim_next("anna", names=["none"]) is None
    assert claimed
    end_session(other)
    assert take(board) == claimed[0]


@pytest.mark.rule("A claim whose call was interrupted is given back.")
@pytest.mark.parametrize(
    "errors",
    [
        [KeyboardInterrupt()],
        [ConnectionFailure("away", outcome="unknown"), KeyboardInterrupt()],
        [ConnectionFailure("away", outcome="unknown"), JobFailure("refused")],
    ],
    ids=["interrupted", "interrupted later", "refused later"],
)
def test_a_claim_whose_call_has_failed_is_given_back(
    board: JobBoard, other: JobBoard, errors: list[BaseException]
) -> None:
    job = board.post("resize")
    left = list(errors)

    def broken(original: Any, *args: Any) -> Any:
        if left == errors:
            assert original(*args).records
        raise left.pop(0)

    with replaced(board, "take", broken), pytest.raises(type(errors[-1])):
        board.claim_next("anna")
    again = take(other, "bert", timeout=PATIENCE)
    assert again == job
    assert again.attempts == 1


@pytest.mark.rule("A note of a claim whose session has ended revives the claim, or stays beside its lapse.")
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_note_after_the_end_of_the_session(board: JobBoard, other: JobBoard, is_taken: bool) -> None:
    board.post("resize")
    job = take(board)
    job.note(checkpoint=1, flush=True)
    end_session(board)
    if is_taken:
        assert take(other, "bert").checkpoint == 1
        with pytest.raises(ClaimLost):
            job.note(checkpoint=2, flush=True)
        assert other.get(job.uuid).checkpoint == 1
        return
    job.note(checkpoint=2, flush=True)
    assert (other.find_owner(job), other.get(job.uuid).checkpoint) == ("anna", 2)
    assert other.get(job.uuid).errors == ()
    board.consume(job, "anna")


@pytest.mark.rule("A note of a claim whose session has ended revives the claim, or stays beside its lapse.")
def test_a_note_revives_no_claim_whose_slot_is_taken(board: JobBoard, other: JobBoard) -> None:
    board.set_limit("mail", concurrency=1)
    first = board.post("mail")
    held, second = take(board), board.post("mail", priority="HIGH")
    end_session(board)
    assert take(other, "bert") == second
    held.note(checkpoint=1, flush=True)
    assert (other.find_owner(first), other.get(first.uuid).checkpoint) == (None, 1)


@pytest.mark.rule("No handle writes the note of a claim that another handle keeps.")
def test_a_note_moves_no_claim_to_another_session(board: JobBoard, other: JobBoard) -> None:
    board.post("resize")
    job = take(board)
    assert job.claim is not None
    note = encode_note(Note(1, 1, "not mine"), other.engine.wire)
    assert other.engine.note(other.engine.handle, [(job.uuid, job.claim.token, note)], TTL * 10**6) == [Status.LOST]
    end_session(other)
    assert (board.find_owner(job), board.get(job.uuid).progress) == ("anna", None)
