"""Moving jobs between boards, ended or overtaken at each of its steps."""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jobboard.engine import Change, RetryingEngine
from jobboard.exceptions import NotFound
from jobboard.job import Job
from jobboard.moving import Mover, mover, origin, survey
from jobboard.primitives import Finish, Paused
from jobboard.states import CLAIMED, OK, SCHEDULED, TRASHED, UNCLAIMED, Verb
from jobboard.testing.conformance.support import plant, record_of, take, trash_one, uuids
from jobboard.testing.requests import JOB_READS, POSTS, requests
from tests.support.boards import Boards, Killed, boards, case
from tests.support.moving import fill, shown

__all__ = ["boards"]

pytestmark = pytest.mark.backends("memory")

CLOCKS = pytest.mark.parametrize("boards", [0, 100], ids=["alike", "behind"], indirect=True)
"""The target's clock is as that of the source, or some seconds behind it."""


def steps() -> int:
    made = Boards()
    fill(made.source)
    for step in itertools.count():
        if not made.kill_at(step):
            return step
    raise AssertionError


STEPS = steps()


@pytest.mark.rule("Tokens rise across a move, whatever the target's clock shows.")
@CLOCKS
def test_tokens_rise_though_the_targets_clock_is_behind(boards: Boards) -> None:
    boards.source.post("a")
    lapsed = take(boards.source, expiry=1)
    boards.clock.advance(2)
    boards.mover().run()
    taken = take(boards.target)
    assert lapsed.claim is not None
    assert taken.claim is not None
    assert taken.claim.token > lapsed.claim.token


# Moves that end, or are overtaken, at any of their steps


def check(boards: Boards, jobs: list[Job], trashed: int = 2) -> None:
    """Finish the move, and find each job executed once or in the trash."""
    result = boards.mover().run()
    assert result.left == []
    assert shown(boards.source) == []
    boards.work(boards.target)
    boards.clock.advance(2000)
    boards.work(boards.target)
    assert list(boards.target.iterjobs()) == []
    assert len(list(boards.target.trashed())) == trashed
    gone = Counter(boards.done)
    gone.update(uuids(boards.target.trashed()))
    assert gone == Counter(uuids(jobs))


@pytest.mark.rule("A mover that is killed at any step loses no job and posts none twice.")
@CLOCKS
@pytest.mark.parametrize("step", range(STEPS))
def test_a_mover_killed_at_any_step(boards: Boards, step: int) -> None:
    jobs = fill(boards.source)
    before = shown(boards.source)
    assert boards.kill_at(step)
    free = [*boards.source.iterjobs(only_unclaimed=True), *boards.target.iterjobs(only_unclaimed=True)]
    assert len(set(free)) == len(free)
    for again in range(step):
        boards.kill_at(again)
    boards.mover().run()
    assert shown(boards.target) == before
    check(boards, jobs)


def abandon_one(boards: Boards) -> None:
    job = boards.source.claim_next("worker")
    if job is not None:
        boards.source.abandon(job, "worker", error="once more", delay=1)


def claim_one(boards: Boards) -> None:
    job = boards.source.claim_next("worker")
    if job is not None:
        boards.source.release(job)


Act = Callable[[Boards], object]

MEANWHILE: dict[str, Act] = {
    "the target is worked on": lambda boards: boards.work(boards.target),
    "the source is worked on": lambda boards: boards.work(boards.source, 2),
    "both are worked on": lambda boards: (boards.work(boards.source, 2), boards.work(boards.target)),
    "a job is tried in vain": abandon_one,
    "a job is claimed and released": claim_one,
    "another moves all": lambda boards: boards.mover().run(),
    "another moves all, which is done": lambda boards: (boards.mover().run(), boards.work(boards.target)),
}


@pytest.mark.parametrize("step", range(STEPS))
def test_acts_at_any_step_of_a_mover(step: int) -> None:
    for what, act in MEANWHILE.items():
        for is_killed, behind in ((False, 0), (True, 100)):
            with case(what=what, is_killed=is_killed, behind=behind):
                boards = Boards(behind)
                jobs = fill(boards.source)

                def meanwhile(boards: Boards = boards, act: Act = act, is_killed: bool = is_killed) -> None:
                    act(boards)
                    if is_killed:
                        boards.kill()

                try:
                    assert boards.mover({step: meanwhile}).run().left == []
                except Killed:
                    act(boards)
                check(boards, jobs)


@pytest.mark.parametrize("step", range(STEPS))
def test_replies_lost_at_any_step_of_a_mover(step: int) -> None:
    for what in ("nothing", "the target is worked on", "another moves all, which is done"):
        with case(what=what):
            boards = Boards()
            jobs = fill(boards.source)
            act = MEANWHILE.get(what, bool)
            assert boards.mover(lost={step: functools.partial(act, boards)}).run().left == []
            check(boards, jobs)


@pytest.mark.rule("A repeated arrival is told what became of the job since.")
def test_a_copy_that_was_dropped_before_its_reply_was_lost(boards: Boards) -> None:
    job = boards.source.post("job")

    def dropped() -> None:
        boards.source.claim(job, "worker")
        boards.mover().run()
        boards.source.abandon(job, "worker")

    assert boards.mover(lost={2: dropped}).run().left == []
    assert boards.target.get(job.uuid).seen_state == UNCLAIMED


@pytest.mark.parametrize("step", range(STEPS))
def test_another_mover_killed_at_any_step_meanwhile(step: int) -> None:
    for other in range(STEPS):
        is_worked_on = (step + other) % 2 == 0
        with case(other=other, is_worked_on=is_worked_on):
            boards = Boards()
            jobs = fill(boards.source)

            def meanwhile(boards: Boards = boards, other: int = other, is_worked_on: bool = is_worked_on) -> None:
                boards.kill_at(other)
                if is_worked_on:
                    boards.work(boards.target)

            boards.mover({step: meanwhile}).run()
            check(boards, jobs)


def test_a_job_that_was_tried_meanwhile_arrives_as_it_became(boards: Boards) -> None:
    job = boards.source.post("job", max_attempts=5)
    boards.kill_at(3)
    assert boards.target.find_owner(boards.target.get(job.uuid)), "its copy is not held"
    boards.source.claim(job, "worker")
    boards.source.abandon(job, "worker", error="once more", delay=100)
    boards.mover().run()
    arrived = boards.target.get(job.uuid)
    assert (arrived.attempts, arrived.error, arrived.seen_state) == (1, "once more", SCHEDULED)
    assert arrived.due == boards.target.get(job.uuid).due


def held(boards: Boards, **posting: Any) -> Job:
    """A job whose copy is held at the target, while the source has it still."""
    job = boards.source.post("job", **posting)
    assert boards.kill_at(3)
    assert boards.target.get(job.uuid).seen_state == CLAIMED
    assert boards.source.get(job.uuid).seen_state == UNCLAIMED
    return job


def test_a_lapsed_holder_that_comes_back_keeps_its_job(boards: Boards) -> None:
    job = boards.source.post("job")
    boards.source.claim(job, "worker", expiry=1)
    boards.clock.advance(2)
    assert boards.kill_at(3)
    boards.source.extend(job, "worker", expiry=100)
    [left] = boards.mover().run().left
    assert (left.uuid, left.why) == (job.uuid, "claimed by worker")
    assert record_of(boards.target, job) is not None, "its copy may be the one that another mover commits"
    boards.source.abandon(job, "worker", error="too late")
    assert boards.mover().run().left == []
    assert boards.target.get(job.uuid).error == "too late"
    check(boards, [job], trashed=0)


def test_a_lapsed_holder_that_comes_back_and_finishes_it_days_later(boards: Boards) -> None:
    job = boards.source.post("job")
    boards.source.claim(job, "worker", expiry=1)
    boards.clock.advance(2)
    assert boards.kill_at(3)
    boards.source.extend(job, "worker", expiry=1e6)
    assert len(boards.mover().run().left) == 1
    boards.clock.advance(200_000)
    boards.source.consume(job, "worker")
    boards.source.purge(trash_one(boards.source))  # what was purged days ago is forgotten then
    assert boards.mover().run().left == []
    assert boards.target.job_count == 0


def test_a_lapsed_holder_that_comes_back_for_a_moment(boards: Boards) -> None:
    job = boards.source.post("job")
    boards.source.claim(job, "worker", expiry=1)
    boards.clock.advance(2)
    mover = boards.mover({3: lambda: boards.source.extend(job, "worker", expiry=0.0001)})
    requests(boards.ends[0]).before(JOB_READS, lambda: boards.clock.advance(1))
    assert mover.run().left == []
    assert boards.target.get(job.uuid).seen_state == UNCLAIMED
    check(boards, [job], trashed=0)


def test_a_copy_that_comes_while_the_mark_of_another_is_looked_at(boards: Boards) -> None:
    job = boards.source.post("job")
    assert boards.kill_at(5)
    boards.work(boards.target)
    mover = boards.mover()
    late = [mover._draft(job.record, boards.source.engine.now())]

    def arrive() -> None:
        if late:
            boards.target.engine.insert([late.pop()])

    requests(boards.ends[0]).before("trash_page", arrive)
    mover.run()
    assert shown(boards.source) == shown(boards.target) == []
    check(boards, [job], trashed=0)


def test_a_copy_that_comes_after_all_is_done(boards: Boards) -> None:
    """Its mover was held up, and killed before it could see that. The mark of the first copy is there still."""
    job = boards.source.post("job")

    def done() -> None:
        boards.kill_at(5)
        boards.work(boards.target)

    with pytest.raises(Killed):
        boards.mover({2: done, 3: boards.kill}).run()
    assert boards.source.get(job.uuid).seen_state == TRASHED
    assert boards.target.get(job.uuid).seen_state == CLAIMED
    check(boards, [job], trashed=0)


def test_a_copy_of_a_job_that_is_claimed_again_is_dropped(boards: Boards) -> None:
    job = held(boards)
    boards.source.claim(job, "worker")
    assert uuids(boards.mover().run().left) == [job.uuid]
    with pytest.raises(NotFound):
        boards.target.get(job.uuid)


def test_a_copy_of_another_boards_job_is_left_alone(boards: Boards) -> None:
    """What is absent here may well be somewhere else."""
    job = held(boards)
    stranger = boards.stranger()
    [left] = Mover(stranger, boards.target).run().left
    assert left.uuid == job.uuid
    assert "must be run again" in left.why
    check(boards, [job], trashed=0)


def test_a_mark_of_a_move_to_elsewhere_is_left_alone(boards: Boards) -> None:
    job = boards.source.post("job")
    assert boards.kill_at(4)
    assert boards.source.get(job.uuid).seen_state == TRASHED
    elsewhere = boards.stranger()
    [left] = Mover(boards.source, elsewhere).run().left
    assert left.uuid == job.uuid
    assert boards.names[1] in left.why
    check(boards, [job], trashed=0)


def test_a_job_in_the_trash_that_is_restored_while_its_copy_is_there(boards: Boards) -> None:
    job = trash_one(boards.source)
    assert boards.kill_at(3)
    boards.source.restore(job)
    boards.mover().run()
    assert boards.target.get(job.uuid).seen_state == UNCLAIMED
    check(boards, [job], trashed=0)


# Jobs that stay


def test_a_wait_moves_jobs_whose_claims_end(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    boards.source.post_many([{"name": "job"}] * 3)
    one, two = boards.source.claim_many("anna", 2)
    ends = iter([lambda: boards.source.consume(one, "anna"), lambda: boards.source.abandon(two, "anna")])
    monkeypatch.setattr("jobboard.runtime.sleep", lambda seconds: next(ends)())
    result = boards.mover().run(wait=True)
    assert (result.moved, result.left) == (2, [])
    assert next(ends, None) is None
    assert boards.target.get(two.uuid).attempts == 1


def test_a_job_whose_key_is_taken_at_the_target_stays(boards: Boards) -> None:
    mine = boards.source.post("mine", key="k")
    theirs = boards.target.post("theirs", key="k")
    [left] = boards.mover().run().left
    assert left.uuid == mine.uuid
    assert theirs.uuid in left.why
    assert boards.source.get(mine.uuid).seen_state == UNCLAIMED
    boards.work(boards.target)
    check(boards, [mine, theirs], trashed=0)


def test_a_job_that_has_moved_in_the_trash_is_found_and_restored(boards: Boards) -> None:
    job = trash_one(boards.source)
    boards.mover().run()
    [found] = boards.target.find(states=["TRASHED"])
    boards.target.restore(found)
    assert boards.target.claim_next("anna") == job


def test_keys_of_trashed_jobs_keep_no_job_out(boards: Boards) -> None:
    trashed = [trash_one(boards.source, key="k") for _ in range(3)]
    live = boards.source.post("live", key="k")
    assert boards.mover().run().left == []
    assert boards.target.post("again", key="k") == live
    assert uuids(boards.target.trashed()) == uuids(reversed(trashed))


def test_a_job_restored_after_its_move_is_left_and_named(boards: Boards) -> None:
    job = boards.source.post("job")
    assert boards.kill_at(5)
    assert boards.target.get(job.uuid).seen_state == UNCLAIMED
    # No verb of a board does that: its record is one of a move.
    record = record_of(boards.source, job)
    assert record is not None
    assert boards.source.engine.finish([Finish.of_seen(record, Verb.RESTORE)]) == [OK]
    [left] = boards.mover().run().left
    assert (left.uuid, "restored" in left.why) == (job.uuid, True)


def test_unreadable_postings_stay_where_the_wire_changes(boards: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    store = boards.target.engine.store
    monkeypatch.setattr(store, "traits", dataclasses.replace(store.traits, wire="json"))
    newer, broken = plant(boards.source, b"?", version=99), plant(boards.source, b"?")
    fine = boards.source.post("fine", details={"a": 1})
    left = Mover(boards.source, boards.target).run().left
    assert {(each.uuid, each.why.split(";")[0].split(":")[0]) for each in left} == {
        (newer, "posted by a newer version of this library"),
        (broken, "the posting can't be decoded"),
    }
    assert boards.target.get(fine.uuid).details == {"a": 1}
    monkeypatch.undo()
    assert Mover(boards.source, boards.target).run().left == []


def test_a_posting_too_large_for_the_target_stays_alone(boards: Boards) -> None:
    jobs = boards.source.post_many([{"name": name} for name in ("small", "large", "tiny")])

    def post(store: Callable[..., Any], new: Sequence[Any], *args: Any, **extra: Any) -> Any:
        if any((item.after if isinstance(item, Change) else item).name == "large" for item in new):
            raise ValueError("the posting takes too many bytes")
        return store(new, *args, **extra)

    requests(boards.target).around(POSTS, post)
    [left] = Mover(boards.source, boards.target).run().left
    assert (left.uuid, left.why) == (jobs[1].uuid, "the posting takes too many bytes")
    assert uuids(boards.target.iterjobs()) == [jobs[0].uuid, jobs[2].uuid]


@pytest.mark.rule("Limits and pauses are at both boards after a move.")
def test_pauses_are_at_both_boards(boards: Boards) -> None:
    boards.source.post("mail")
    boards.source.pause(["mail"])
    boards.target.pause(["resize"])
    assert boards.mover().run().moved == 1
    assert boards.target.paused() == Paused(False, ("mail", "resize"))
    assert boards.source.paused() == Paused(False, ("mail",))
    assert boards.target.claim_next("worker") is None
    boards.source.pause()
    boards.mover().run()
    assert boards.target.paused().everything


@pytest.mark.rule("A move surveys its board page by page.")
@pytest.mark.parametrize("trashed", [False, True])
def test_a_survey_holds_one_page_of_the_board(boards: Boards, monkeypatch: pytest.MonkeyPatch, trashed: bool) -> None:
    monkeypatch.setattr(origin, "PAGE", 3)
    for _ in range(9):
        job = boards.source.post("resize")
        if trashed:
            boards.source.cancel(job)
    steps: list[str] = []

    def tell(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def told(*args: Any, **more: Any) -> Any:
            steps.append(name)
            return original(*args, **more)

        monkeypatch.setattr(owner, name, told)

    pages = "trash_page" if trashed else "page"
    tell(RetryingEngine, pages)
    tell(mover, "posting_of")
    found = survey(boards.source, boards.target.engine.wire)
    assert (found.moved, found.trashed) == ((0, 9) if trashed else (9, 0))
    assert steps[:5] == [pages, *["posting_of"] * 3, pages]
