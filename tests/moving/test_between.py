"""Schedules, outcomes and keys that move from and to each backend."""

from collections.abc import Iterator
from typing import Any

import pytest

from jobboard.backends import fetch, memory
from jobboard.board import JobBoard
from jobboard.moving import Mover, leftovers, survey
from jobboard.states import TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.schedules import put_back


@pytest.fixture
def keeping(make_board: Any) -> JobBoard:
    """A board that keeps outcomes."""
    board: JobBoard = make_board(keep_done=3600)
    return board


@pytest.fixture
def elsewhere() -> Iterator[JobBoard]:
    """A board in memory."""
    board = fetch("elsewhere", "memory")
    board.connect()
    yield board
    board.close()
    memory.forget("elsewhere")


@pytest.mark.rule("Schedules are moved once, and a schedule that cannot be read is named.")
def test_schedules_move_there_and_back(board: JobBoard, elsewhere: JobBoard) -> None:
    """There and back; what is due at one board is not due at the other."""
    what: dict[str, Any] = {"details": {"a": ["ä", None]}, "context": {"b": "c"}, "group": "g", "key": "k"}
    board.schedule("nightly", "0 3 * * *", "report", tz="Europe/Berlin", **what)
    board.schedule("ping", name="ping", every=3600)
    due = put_back(board, "ping", 1)
    before = board.schedules()
    for source, target in ((board, elsewhere), (elsewhere, board)):
        assert survey(source, target.engine.wire).schedules == 2
        assert Mover(source, target).run().schedules == 2
        assert (source.schedules(), target.schedules()) == ([], before)
        assert Mover(source, target).run().schedules == 0
        assert source.post_due() is None
        assert list(source.iterjobs()) == []
    board.post_due()
    [job] = board.iterjobs()
    assert job.schedule == ("ping", due)


@pytest.mark.rule("Acts and moves keep the expiry of a job until its claim or restore; a replacement brings its own.")
def test_stored_fields_move_there_and_back(board: JobBoard, elsewhere: JobBoard) -> None:
    """An expiry, the kinds of failures, and the pause of a schedule."""
    harness = Harness(board)
    harness.free(harness.arrive(harness.arrival(attempts=0, retries=0)))
    board.schedule("ping", name="ping", every=3600)
    board.pause_schedule("ping")
    [before] = board.iterjobs(ensure_fresh=True)
    assert before.record.expires is not None
    for source, target in ((board, elsewhere), (elsewhere, board)):
        Mover(source, target).run()
        assert source.job_count == 0
        [job] = target.iterjobs(ensure_fresh=True)
        assert (job.record.expires, job.errors) == (before.record.expires, before.errors)
        [schedule] = target.schedules()
        assert schedule.is_paused


def told(board: JobBoard) -> list[tuple[Any, ...]]:
    return [
        (
            *(each.uuid, each.name, each.key, each.group, each.job.details, each.job.priority, each.context),
            *(each.attempts, each.errors, each.workers, each.result, each.refused),
            *(each.posted_on, each.begun_on, each.ended_on, each.until),
        )
        for each in board.outcomes()
    ]


@pytest.mark.rule("Outcomes and remembered keys are copied, also in a move that broke off.")
def test_outcomes_are_copied_there_and_back(
    keeping: JobBoard, elsewhere: JobBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep their order, over many pages."""
    monkeypatch.setattr(leftovers, "PAGE", 3)
    monkeypatch.setattr(leftovers, "BATCH", 2)
    failed = keeping.post("failed", details={"a": [None, "ä"]}, priority=-7, group="g", context={"b": "c"}, key="k")
    keeping.claim(failed, "anna")
    keeping.abandon(failed, "anna", error="no")
    for number in range(7):
        keeping.post(f"job {number}", priority=7 - number)
    while (job := keeping.claim_next("berta")) is not None:
        keeping.consume(job, "berta", result={"of": job.name})
    before = told(keeping)
    assert len(before) == 8
    assert survey(keeping, elsewhere.engine.wire).outcomes == 8
    steps: list[tuple[int, int]] = []
    mover = Mover(keeping, elsewhere, copied=lambda count, total: steps.append((count, total)))
    assert mover.run(outcomes=False).outcomes == 0
    assert (mover.run().outcomes, steps[-1]) == (8, (8, 8))
    assert told(elsewhere) == told(keeping) == before
    assert elsewhere.get(failed.uuid).result(0) == {"of": "failed"}
    assert Mover(keeping, elsewhere).run().outcomes == 0
    assert told(elsewhere) == before
    # Some are there already; those that end at once never come.
    late = elsewhere.post("late")
    elsewhere.claim(late, "carl")
    assert Mover(elsewhere, keeping).run().outcomes == 0
    assert told(keeping) == before


@pytest.mark.rule("Outcomes and remembered keys are copied, also in a move that broke off.")
def test_keys_that_outlive_their_jobs_move(board: JobBoard, elsewhere: JobBoard) -> None:
    """Of a job that was consumed, of one in the trash, and of none that lives, or whose window has ended."""
    jobs = {key: board.post("job", key=key, key_for=600) for key in ("done", "trashed", "live")}
    over = board.post("job", key="over", key_for=1e-3)
    for job in (jobs["done"], over):
        board.claim(job, "anna")
        board.consume(job, "anna")
    board.cancel(jobs["trashed"])
    free = board.post("free", key="free")
    board.claim(free, "anna")
    board.consume(free, "anna")
    eventually(lambda: board.post("job", key="over", delay=3600).created)
    for source, target in ((board, elsewhere), (elsewhere, board)):
        assert survey(source, target.engine.wire).keys == 2
        Mover(source, target).run()
        for key, job in jobs.items():
            again = target.post("job", key=key)
            assert (again.created, again.uuid) == (False, job.uuid)
        assert target.get(jobs["trashed"].uuid).seen_state == TRASHED
        assert Mover(source, target).run().keys == 0
        assert target.post("job", key="over", delay=3600).created is False
    made = board.post("job", key="free")
    assert made.created


@pytest.mark.parametrize("back", [False, True])
def test_a_restored_job_follows_its_key(board: JobBoard, elsewhere: JobBoard, back: bool) -> None:
    """Its key is at the target already, and does not keep it out."""
    source, target = (elsewhere, board) if back else (board, elsewhere)
    job = source.post("job", key="k", key_for=600)
    source.cancel(job)
    assert leftovers.copy_keys(source, target) == 1
    assert target.post("job", key="k").uuid == job.uuid
    source.restore(job)
    assert Mover(source, target).run().left == []
    moved = target.get(job.uuid)
    assert moved.seen_state == UNCLAIMED
    assert target.post("job", key="k").uuid == job.uuid
    target.claim(moved, "anna")
    target.consume(moved, "anna")
    assert target.post("job", key="k").uuid == job.uuid
