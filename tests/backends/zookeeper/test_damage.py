"""Znodes that something else has deleted or written: each call ends, and names what it can't mend."""

import uuid
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard.exceptions import JobFailure
from jobboard.job import Entity
from jobboard.states import CLAIMED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, take
from jobboard.testing.conformance.wire import QUIET
from tests.backends.zookeeper.conftest import connection_of, driver_of, root_of

pytestmark = pytest.mark.backends("zookeeper")


def use(board: Any) -> None:
    """Write and read every folder, at the usual cost."""
    before = connection_of(board).sent
    job = board.post("resize", key="k", max_attempts=3)
    assert list(board.iterjobs()) == [job]
    taken = take(board, expiry=LONG)
    board.abandon(taken, "anna", delay=0.001)
    eventually(lambda: job.state == UNCLAIMED)
    board.trash(take(board), "anna")
    assert list(board.trashed()) == [job]
    board.restore(job)
    assert board.stats().unclaimed == 1
    board.consume(take(board), "anna")
    assert connection_of(board).sent - before < 400


@pytest.mark.rule("A loop that meets damage is bounded.")
@pytest.mark.rule("Folders are made with what lies in them, whoever was quicker, and go once they stay empty.")
def test_deleted_folders_are_made_again(make_board: Any, caller: KazooClient) -> None:
    board = make_board(claim_ttl=QUIET)
    use(board)
    for name in ("job", "side", "ready", "live", "timed", "trash", "kept", "holders"):
        path = f"{root_of(board)}/{name}"
        if caller.exists(path):
            caller.delete(path, recursive=True)
        use(board)


def claim_one(make_board: Any) -> None:
    fresh = make_board(auto_setup=False)
    fresh.claim(fresh.post("resize"), "anna")


@pytest.mark.rule("A board that has lost a znode of its own names it, and connect() makes it again.")
def test_connect_makes_deleted_znodes_that_every_board_has(make_board: Any, caller: KazooClient) -> None:
    """Until then a call that needs one of them names it."""
    board = make_board(claim_ttl=QUIET)
    for name in ("bell", "clock", "next", "alive"):
        job = board.post("resize")
        caller.delete(f"{root_of(board)}/{name}", recursive=True)
        with pytest.raises(JobFailure, match=rf"has lost {name}.*; connect\(\) again"):
            claim_one(make_board)
        board.close()
        board.connect()
        assert take(board) == job
        board.consume(job, "anna")
        while rest := board.claim_next("anna"):
            board.consume(rest, "anna")
        use(board)


@pytest.mark.rule("A loop that meets damage is bounded.")
def test_a_deleted_board_is_an_error_until_connect_makes_it_again(make_board: Any, caller: KazooClient) -> None:
    board = make_board(retry_for=0)
    job = board.post("resize")
    root, driver = root_of(board), driver_of(board)
    caller.delete(root, recursive=True)
    for call in (
        lambda: board.post("resize"),
        lambda: board.claim_next("anna"),
        lambda: board.claim(job, "anna"),
        lambda: list(board.iterjobs()),
        board.stats,
        lambda: driver.number(1, True),
        driver.session,
        driver.watch,
    ):
        with pytest.raises(JobFailure, match="was deleted"):
            call()
    assert caller.exists(root) is None
    board.close()
    board.connect()
    assert board.post("resize").state == UNCLAIMED


STRAYS = (
    "ready/100.000000000000/000/stray",
    f"ready/100.000000000000/000/1.{uuid.UUID(int=7)}.resize.1.2.3",
    "ready/stray",
    "live/100.000000000000/000/stray",
    "holders/stray",
    "kept/stray",
    "timed/stray",
    "timed/stray/stray/0.00",
    "timed/stray/stray/stray.00",
    "next/stray",
    "trash/stray",
    "job/00/stray",
    "side/key/00/stray",
    "side/answer/00/stray",
    "side/entity/00/stray",
    "stray",
)


@pytest.mark.rule("A job of garbage, and stray znodes, are set aside.")
def test_stray_znodes_are_passed_over(make_board: Any, caller: Any) -> None:
    """By boards that have read the folders before, and by boards that have not."""
    early = make_board()
    held, waiting = early.post_many([{"name": "held"}, {"name": "waiting"}])
    early.claim(held, "anna")
    early.register_entity(Entity("conductor", "one"))
    for stray in STRAYS:
        caller.create(f"{root_of(early)}/{stray}", b"\xffgarbage", makepath=True)
    late = make_board()
    for board in (early, late):
        assert list(board.iterjobs()) == [held, waiting]
        assert list(board.trashed()) == []
        assert list(board.wait(0)) == [waiting]
        assert [entity.name for entity in board.entities()] == ["one"]
        assert board.get(held.uuid).seen_state == CLAIMED
    taken = take(late)
    assert taken == waiting
    late.trash(taken, "anna")
    assert [job.uuid for job in late.trashed()] == [waiting.uuid]
    late.restore(waiting)
    late.post("later", key="k", delay=LONG)
    early.consume(held, "anna")
    assert take(late) == waiting
