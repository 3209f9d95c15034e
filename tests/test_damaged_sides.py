"""Damaged side records: the board goes on, and the doctor names a cure that helps."""

from typing import Any

import pytest

import jobboard
from jobboard.cli import main
from jobboard.engine.store import Mark, Store
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.damage import damage

pytestmark = pytest.mark.backends("memory", "etcd", "sqlite", "zookeeper")

keys = pytest.mark.backends("memory")


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


def test_a_damaged_scope_is_dropped_once_it_is_idle(board: Any, make_board: Any) -> None:
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
@pytest.mark.parametrize(("value", "delay"), [(b"\xc1no uuid", None), (b"junk", 600), (None, None)])
def test_the_advice_for_a_damaged_key_gives_the_key_back(board: Any, value: bytes | None, delay: float | None) -> None:
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
def test_the_damaged_key_of_a_claimed_job_goes_with_the_job(board: Any) -> None:
    job = board.post("resize", key="k")
    board.claim(job, "anna")
    write(board, "k", b"\xc1no uuid")
    assert len(odd(board)) == 1
    board.consume(job, "anna")
    assert odd(board) == []
    assert board.post("resize", key="k").created


@keys
def test_a_job_that_ends_during_an_examination_is_not_reported(
    board: Any, make_board: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key goes between the request for the jobs and the request for the keys."""
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
def test_a_damaged_window_is_reported_until_it_ends(board: Any) -> None:
    job = board.post("resize", key="k", key_for=600)
    board.claim(job, "anna")
    board.consume(job, "anna")
    damage(board, "key", "k")
    [found] = odd(board)
    assert (found.place, bool(found.reason)) == ("key k", True)
    assert "by itself at" in found.advice


@keys
@pytest.mark.parametrize("key_for", [None, 600])
def test_a_damaged_key_is_free(board: Any, other: Any, key_for: float | None, caplog: pytest.LogCaptureFixture) -> None:
    first = board.post("resize", key="k", key_for=key_for)
    damage(board, "key", "k")
    posted = other.post_many([Posting("mail"), Posting("resize", key="k")])
    assert all(job.created for job in posted)
    assert "the holder of the key 'k' can't be read" in caplog.text
    claimed = board.claim_many("anna", 3)
    assert claimed == [first, *posted]
    board.consume_many(claimed, "anna")
    assert other.post("resize", key="k", key_for=key_for).created


@keys
def test_a_damaged_entity_hides_no_other(board: Any, other: Any) -> None:
    board.register_entity(jobboard.Entity("conductor", "damaged", {}))
    other.register_entity(jobboard.Entity("conductor", "sound", {}))
    [damaged] = [side for side in board.engine.store.sides("entity", None, 500)[0].sides if "damaged" in side.key]
    damage(board, "entity", damaged.key)
    assert [entity.name for entity in board.entities()] == ["sound"]
    other.close()
    assert board.entities() == []
