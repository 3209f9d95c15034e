"""What something else has written among a board's znodes, or over them: it is set aside, and the board goes on."""

import logging
import uuid
from typing import Any

import msgpack
import pytest

from jobboard.engine.records import pack
from jobboard.exceptions import ClaimLost, JobFailure, NotFound
from jobboard.job import Entity
from jobboard.primitives import BoardStats
from jobboard.states import CLAIMED, TRASHED, UNCLAIMED, Record
from jobboard.testing.conformance.support import LONG, take
from tests.backends.zookeeper.inside import driver_of, path_of, root_of

pytestmark = pytest.mark.backends("zookeeper")

NOBODY = str(uuid.UUID(int=7))


def packed(**fields: Any) -> bytes:
    """The value of a job, but for these fields."""
    record = Record(NOBODY, "resize", 100, 0, None, 1, b"", UNCLAIMED, 0, None, 0, None, None, None, 1, 1)
    return pack(record._replace(**fields), None)


GARBAGE = {
    "empty": b"",
    "no msgpack": b"\xc1garbage",
    "cut off": packed()[:-3],
    "another shape": msgpack.packb({"a": 1}),
    "another type": packed(attempts="0"),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_job_of_garbage(make_board: Any, caller: Any, caplog: pytest.LogCaptureFixture, garbage: str) -> None:
    board, other = make_board(), make_board()
    bad, *good = board.post_many([{"name": "resize"}] * 3)
    caller.set(path_of(board, bad), GARBAGE[garbage])
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert list(board.iterjobs()) == good
    assert bad.uuid in caplog.text
    assert bad.state == TRASHED
    with pytest.raises(NotFound):
        other.claim(bad, "bert")
    # The claim that meets it moves it to the trash, and takes the next one.
    assert [take(other) for _ in good] == good
    assert other.claim_next("anna") is None
    assert board.stats() == BoardStats(unclaimed=0, scheduled=0, claimed=2, trashed=1)
    [trashed] = board.trashed()
    assert trashed == bad
    assert "decoded" in (trashed.error or "")
    # Brought back, it is a posting that can't be decoded.
    board.restore(trashed)
    assert board.claim_next("anna") is None
    [trashed] = board.trashed()
    board.purge(trashed)
    assert board.stats().trashed == 0


def test_a_claimed_job_of_garbage(make_board: Any, caller: Any) -> None:
    board, other = make_board(), make_board()
    kept, fixed = board.post("resize"), board.post("resize")
    board.claim(kept, "anna")
    board.claim(fixed, "anna", LONG)
    for job in (kept, fixed):
        caller.set(path_of(board, job), b"garbage")
    for job in (kept, fixed):
        with pytest.raises(ClaimLost):
            board.consume(job, "anna")
    good = other.post("resize")
    assert take(other) == good


def test_trash_of_garbage(make_board: Any, caller: Any) -> None:
    board = make_board()
    first, second = board.post("resize"), board.post("resize")
    for job in (first, second):
        board.cancel(job)
    caller.set(path_of(board, first), b"garbage")
    errors = {job.uuid: job.error or "" for job in board.trashed()}
    assert errors.keys() == {first.uuid, second.uuid}
    assert "decoded" in errors[first.uuid]
    assert board.stats().trashed == 2
    assert board.purge_trash(0) == 2
    assert list(board.trashed()) == []


STRAYS = (
    "ready/100.000000000000/000/stray",
    f"ready/100.000000000000/000/1.{NOBODY}.resize.1.2.3",
    "ready/stray",
    "live/100.000000000000/000/stray",
    "holders/stray",
    "kept/stray",
    "timed/stray",
    "trash/stray",
    "job/00/stray",
    "side/key/00/stray",
    "side/answer/00/stray",
    "stray",
)


@pytest.mark.parametrize("data", [b"", b"\xffgarbage"])
def test_stray_children(make_board: Any, caller: Any, data: bytes) -> None:
    """The board serves, shows and trashes what is its own, before and after they came."""
    early = make_board()
    held, waiting = early.post_many([{"name": "held"}, {"name": "waiting"}])
    early.claim(held, "anna")
    for stray in STRAYS:
        caller.create(f"{root_of(early)}/{stray}", data, makepath=True)
    late = make_board()
    for board in (early, late):
        assert list(board.iterjobs()) == [held, waiting]
        assert list(board.trashed()) == []
        assert list(board.wait(0)) == [waiting]
        assert board.entities() == []
        assert board.get(held.uuid).seen_state == CLAIMED
    board, taken = late, take(late)
    assert taken == waiting
    board.trash(taken, "anna")
    assert [job.uuid for job in board.trashed()] == [waiting.uuid]
    board.restore(waiting)
    board.post("later", key="k", delay=LONG)
    early.consume(held, "anna")
    assert take(late) == waiting


def test_strays_that_come_and_go(make_board: Any, caller: Any) -> None:
    board = make_board()
    path = f"{root_of(board)}/ready/100.000000000000/000/stray"
    for _ in range(2):
        caller.create(path, makepath=True)
        assert board.claim_next("anna") is None
        board.post("resize")
        caller.delete(path)
        assert board.job_count == 1
        board.consume(take(board), "anna")


def test_entities_of_garbage(make_board: Any, caller: Any) -> None:
    board, other = make_board(), make_board()
    board.register_entity(Entity("conductor", "one", {"a": 1}))
    for number, garbage in enumerate([b"[]", msgpack.packb(["a", "b", "c"]), b"\xff"]):
        caller.create(driver_of(board).place(f"side/entity/{number}"), garbage, makepath=True)
    assert [entity.name for entity in other.entities()] == ["one"]
    board.close()
    assert other.entities() == []


def test_a_layout_of_garbage(make_board: Any, caller: Any) -> None:
    path = driver_of(make_board()).place("layout")
    caller.set(path, b"garbage")
    with pytest.raises(JobFailure, match="1 1"):
        make_board()
