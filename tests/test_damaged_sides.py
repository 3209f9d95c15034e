"""What the doctor tells of damaged side records, on the stores that leave that to the engine."""

from typing import Any

import pytest

from jobboard.cli import main
from jobboard.engine.store import Mark, Store
from jobboard.testing import eventually
from jobboard.testing.conformance.examining import damage

pytestmark = pytest.mark.backends("memory", "etcd", "sqlite", "zookeeper")

keys = pytest.mark.backends("memory", "etcd")


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


def write(board: Any, key: str, value: bytes | None) -> None:
    store = board.engine.store
    [side] = store.read([], [("key", key)]).sides
    store.commit([], [Mark(side, value)])


def odd(board: Any) -> list[Any]:
    # How durable a server of the tests is does not matter here.
    return [each for each in board.examine() if not each.place.startswith("characteristic")]


def test_what_a_limit_counts_goes_where_no_claim_comes(board: Any, make_board: Any) -> None:
    # What a rate counts is stored on every board, and the claims of a limit on some.
    board.set_limit("mail", concurrency=1, per="group", rate=(9, 60))
    board.post("mail", group="g")
    board.claim_next("anna")
    damage(board, "scope", "mail\ng")
    [found] = odd(board)
    assert "'mail' of the group 'g'" in found.place
    assert "drops it" in found.advice
    board.remove_limit("mail")
    other = make_board()
    for _ in range(2):
        eventually(lambda: not other.engine.raw.tidy(), 10)
    assert odd(board) == []


@keys
@pytest.mark.parametrize("value", [b"\xc1no uuid", b"junk", None])
@pytest.mark.parametrize("delay", [None, 600])
def test_the_doctor_tells_and_its_advice_helps(board: Any, value: bytes | None, delay: float | None) -> None:
    job, fine = board.post("resize", key="k", delay=delay), board.post("resize", key="other")
    write(board, "k", value)
    [found] = odd(board)
    assert found.place == f"job {job.uuid}"
    assert "'k'" in found.reason
    assert f"'jobboard cancel {job.uuid}', then 'jobboard trash restore {job.uuid}'" in found.advice
    assert main(["cancel", job.uuid]) == main(["trash", "restore", job.uuid]) == 0
    assert odd(board) == []
    assert board.post("resize", key="k") == job
    assert board.post("resize", key="other") == fine


@keys
def test_one_that_is_claimed_is_worked_off(board: Any) -> None:
    job = board.post("resize", key="k")
    board.claim(job, "anna")
    write(board, "k", b"\xc1no uuid")
    assert len(odd(board)) == 1
    board.consume(job, "anna")
    assert odd(board) == []
    assert board.post("resize", key="k").created


@keys
def test_a_job_that_ends_meanwhile_is_not_odd(board: Any, make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key goes between the request for the jobs and that for the keys."""
    job = board.post("resize", key="k")
    store = board.engine.store
    read, other = type(store).read, make_board()

    def meeting(self: Store, uuids: Any, sides: Any = ()) -> Any:
        if self is store and sides == [("key", "k")]:
            monkeypatch.setattr(type(store), "read", read)
            other.cancel(other.get(job.uuid))
        return read(self, uuids, sides)

    monkeypatch.setattr(type(store), "read", meeting)
    assert odd(board) == []
    assert type(store).read is read


@keys
def test_one_that_outlives_its_job(board: Any) -> None:
    job = board.post("resize", key="k", key_for=600)
    board.claim(job, "anna")
    board.consume(job, "anna")
    damage(board, "key", "k")
    [found] = odd(board)
    assert (found.place, bool(found.reason)) == ("key k", True)
    assert "by itself at" in found.advice
