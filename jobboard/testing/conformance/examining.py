"""What is odd on a board: nothing of what the board itself has left there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.engine.store import Mark
from jobboard.job import Entity, Job, Posting
from jobboard.primitives import Oddity
from jobboard.testing import eventually
from jobboard.testing.conformance.arriving import LONG_AGO, arrival, arrived
from jobboard.testing.conformance.limits import store_of
from jobboard.testing.conformance.support import LIMIT, LONG, PATIENCE, SHORT, MakeBoard, Waiter, let_lapse, take

QUEER = "a/b '%2F\"* \u00fc.~{x}"
"""A name of what means something in paths, patterns and scripts."""


def claimed(board: JobBoard, **posting: Any) -> Job:
    job = board.post(**{"name": QUEER, **posting})
    board.claim(job, "anna")
    return job


def states(board: JobBoard) -> None:
    board.post("resize", details={"a": "x" * 5000}, key="k", group="g")
    board.post(QUEER, key=QUEER, group=QUEER, priority=7, delay=LONG)
    claimed(board, key="claimed")
    board.claim(board.post("resize"), QUEER, expiry=LONG)
    let_lapse(board, board.post("resize"))
    let_lapse(board, board.post("resize", key="final", max_attempts=1))
    board.abandon(claimed(board), "anna", error="no luck")
    board.abandon(claimed(board), "anna", delay=LONG)
    board.release(claimed(board))
    board.trash(claimed(board), "anna", reason="no use" * 1000)
    for restored in (True, False):
        board.cancel(job := board.post("resize", key=f"{restored}"))
        (board.restore if restored else board.purge)(job)


def windows(board: JobBoard) -> None:
    board.post("resize", key="lives", key_for=LONG)
    board.post("resize", key="lives", on_key="replace", priority=9)
    board.consume(claimed(board, key=QUEER, key_for=LONG), "anna")
    board.trash(claimed(board, key="trashed", key_for=LONG), "anna")
    board.cancel(job := board.post("resize", key="purged", key_for=LONG))
    board.purge(job)
    let_lapse(board, board.post("final", key="final", key_for=LONG, max_attempts=1))
    board.consume(claimed(board, key="over", key_for=SHORT), "anna")
    over = board.engine.raw.now() + int(SHORT * 1e6)
    eventually(lambda: board.engine.raw.now() > over, LIMIT)


def outcomes(board: JobBoard) -> None:
    board.consume(claimed(board), "anna")
    job = claimed(board, details={"\u00e4": [1, None]}, context={"trace": "1"}, key="k", group="g", key_for=LONG)
    board.consume(job, "anna", result={"a": "x" * 5000})
    board.abandon(claimed(board), "anna", error="no luck")
    board.post_many([Posting("resize")] * 3)
    board.consume_many(board.claim_many(QUEER, 9), QUEER)


def limits(board: JobBoard) -> None:
    board.set_limit(QUEER, concurrency=2, per="group")
    board.set_limit(QUEER, rate=(100, LONG))
    board.set_limit("resize", concurrency=1)
    board.post_many([Posting(name, group=group) for name in (QUEER, "resize") for group in ("g", QUEER, None)])
    given_back, consumed, *_ = board.claim_many("anna", 9)
    board.abandon(given_back, "anna")
    board.consume(consumed, "anna")
    take(board, expiry=SHORT)
    board.set_limit(QUEER, concurrency=1, per="group")
    board.remove_limit("resize")


def pauses(board: JobBoard) -> None:
    board.post(QUEER)
    board.pause([QUEER, "resize"])
    board.pause()
    board.resume(["resize"])


def schedules(board: JobBoard) -> None:
    board.schedule(QUEER, name=QUEER, every=LONG, key=QUEER)
    board.schedule("nightly", "30 3 * * *", "report", details={"a": "x" * 5000})
    board.schedule("gone", name="report", every=LONG)
    board.unschedule("gone")


def entities(board: JobBoard) -> None:
    board.register_entity(Entity("conductor", QUEER, {"pid": 7}))
    board.register_entity(Entity("conductor", "gone"))
    board.deregister_entity(Entity("conductor", "gone"))


def copies(board: JobBoard) -> None:
    """Of a move that is under way, or was killed."""
    arrived(board, arrival(board, 1, key=QUEER))
    arrived(board, arrival(board, 2, trashed_on=LONG_AGO))


SITUATIONS: dict[str, Callable[[JobBoard], None]] = {
    call.__name__: call for call in (states, windows, outcomes, limits, pauses, schedules, entities, copies)
}


class TestExamining:
    any_driver = True

    @pytest.fixture
    def usual(self, board: JobBoard) -> list[Oddity]:
        """How a server of the tests is set up is no concern of these."""
        return list(board.examine())

    @pytest.mark.parametrize("situation", SITUATIONS)
    def test_a_healthy_board(self, make_board: MakeBoard, usual: list[Oddity], situation: str) -> None:
        board = make_board(keep_done=LONG)
        SITUATIONS[situation](board)
        assert list(board.examine()) == usual

    def test_a_server_that_may_lose_what_it_has_acknowledged(self, board: JobBoard) -> None:
        traits = board.characteristics
        told = {odd.place: odd for odd in board.examine() if odd.place.startswith("characteristic ")}
        assert ("characteristic durable" in told) == (not traits.durable)
        assert all(traits.notes in odd.reason and odd.advice for odd in told.values())

    def test_while_one_waits(self, board: JobBoard, other: JobBoard, usual: list[Oddity]) -> None:
        waiter = Waiter(other, lambda: take(other, names=["resize"], timeout=PATIENCE))
        assert list(board.examine()) == usual
        job = board.post("resize")
        assert waiter.wait() == job
        assert list(board.examine()) == usual


def damage(board: JobBoard, kind: str, key: str) -> None:
    store = store_of(board)
    [side] = store.read([], [(kind, key)]).sides
    assert side.value is not None
    store.commit([], [Mark(side, b"\xc1no entry", until=side.until)])


class TestExaminingDamage:
    any_driver = True

    @pytest.fixture
    def told(self, board: JobBoard) -> Callable[[], list[Oddity]]:
        """What is odd beyond how a server of the tests is set up."""
        usual = list(board.examine())
        return lambda: [odd for odd in board.examine() if odd not in usual]

    def test_a_schedule(self, board: JobBoard, told: Callable[[], list[Oddity]]) -> None:
        for schedule in ("it's", "fine", "-a"):
            board.schedule(schedule, name="report", every=LONG)
        damage(board, "schedule", "it's")
        damage(board, "schedule", "-a")
        found = {odd.place: odd.advice for odd in told()}
        assert found.keys() == {"schedule it's", "schedule -a"}
        assert found["schedule -a"].endswith("jobboard schedule remove -- -a")
        for schedule, advice in zip(("it's", "-a"), (found["schedule it's"], found["schedule -a"]), strict=True):
            assert shlex.split(advice.partition("or: ")[2])[-1] == schedule
        board.unschedule("it's")
        board.schedule("-a", name="report", every=LONG)
        assert told() == []

    def test_an_entity(self, make_board: MakeBoard, told: Callable[[], list[Oddity]]) -> None:
        board = make_board(claim_ttl=LONG)
        board.register_entity(Entity("conductor", "one"))
        board.register_entity(Entity("conductor", "two"))
        damage(board, "entity", json.dumps(["conductor", "one"]))
        [odd] = told()
        assert "conductor" in odd.place
        assert "one" in odd.place
        assert odd.reason
        assert odd.advice
        # What a heartbeat does.
        board.register_entity(Entity("conductor", "one"))
        assert told() == []

    def test_what_a_limit_counts(self, board: JobBoard, told: Callable[[], list[Oddity]]) -> None:
        board.set_limit("mail", rate=(1, LONG), per="group")
        board.post_many([Posting("mail", group="g")] * 2)
        take(board)
        damage(board, "scope", "mail\ng")
        [odd] = told()
        assert "mail" in odd.place
        assert odd.reason
        assert odd.advice
        take(board)
        assert told() == []

    def test_an_outcome(self, make_board: MakeBoard, told: Callable[[], list[Oddity]]) -> None:
        board = make_board(keep_done=LONG)
        fine, *broken = (claimed(board) for _ in range(4))
        board.consume(fine, "anna", result=1)
        [done] = board.engine.raw.outcomes([fine.uuid])
        assert done is not None
        text = isinstance(done.record.posting, str)
        junk = "no json" if text else b"\xc1"
        changes: list[dict[str, Any]] = [{"posting": junk}, {"version": codec.VERSION + 1}, {}]
        for job, change in zip(broken, changes, strict=True):
            result = done.result if change else junk
            board.engine.raw.keep(
                [done._replace(record=done.record._replace(uuid=job.uuid, **change), result=result, place=None)]
            )
        found = told()
        assert {odd.place for odd in found} == {f"outcome {job.uuid}" for job in broken}
        assert len(found) == 3
        assert any("upgrade" in odd.advice for odd in found)
        assert all("by itself at" in odd.advice for odd in found)
