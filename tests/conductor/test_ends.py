"""Ends of claims by conductors: lost claims, outages, refusals, and jobs whose end fails."""

import datetime
import logging
import threading
import time
from collections import Counter
from typing import Any

import pytest

import jobboard
from jobboard.conductor import Conductor, Tally, finisher
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, until_free
from jobboard.testing.requests import ENDS, TAKES, requests
from tests.conftest import Runner
from tests.support.conductors import WAIT, Hanging, MakeBoard, Outage, Refusal, assert_not_kept

pytestmark = [pytest.mark.backends("memory"), pytest.mark.usefixtures("soon")]
FAST = pytest.mark.backends("memory", "sqlite")

# Claims


@FAST
def test_handler_may_end_its_claim_itself(make_board: MakeBoard) -> None:
    board = make_board()
    first, second = board.post("consume"), board.post("trash")

    def handler(job: jobboard.Job) -> None:
        job.claim.trash(reason="mine") if job.name == "trash" else job.claim.consume()

    conductor = Conductor("one", board, handler)
    conductor.run(2)
    assert (conductor.tally.consumed, conductor.tally.trashed) == (1, 1)
    assert (first.state, second.state, second.error) == ("COMPLETE", "TRASHED", "mine")


@pytest.mark.parametrize("ends_well", [True, False])
def test_result_of_a_lost_claim_does_not_count(make_board: MakeBoard, start: Runner, ends_well: bool) -> None:
    """Neither as a success nor as a failure. The result of the second try does."""
    board, operator = make_board(), make_board()
    job = board.post("a", max_attempts=2)
    gate, begun = threading.Event(), threading.Semaphore(0)

    def handler(job: jobboard.Job) -> None:
        begun.release()
        if job.attempts == 1:
            assert gate.wait(WAIT)
            assert ends_well, "too late to fail"

    conductor = start(Conductor("one", board, handler))
    assert begun.acquire(timeout=WAIT)
    operator.release(operator.get(job.uuid))
    eventually(lambda: conductor.tally.consumed == 1)
    gate.set()
    eventually(lambda: conductor.tally.lost == 1)
    assert conductor.tally.abandoned == conductor.tally.trashed == 0
    assert job.state == "COMPLETE"


@pytest.mark.rule("A conductor that ends two runs of one job in a batch reports each of them.")
def test_two_runs_of_one_job_that_end_in_one_batch_are_both_reported(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, operator = make_board(), make_board()
    end_claims, handing_over, gate = board.end_claims, threading.Event(), threading.Event()
    ended, again = threading.Semaphore(0), threading.Event()

    def slow(ends: Any, who: str) -> Any:
        handing_over.set()
        assert gate.wait(WAIT)
        return end_claims(ends, who)

    def handler(job: jobboard.Job) -> None:
        if job.name == "released" and job.attempts == 1:
            operator.release(operator.get(job.uuid))
            assert again.wait(WAIT)
        elif job.name == "released":
            again.set()
        ended.release()

    monkeypatch.setattr(board, "end_claims", slow)
    board.post("slow")
    conductor = Conductor("one", board, handler, max_simultaneous_jobs=2)
    events: list[tuple[str, int]] = []
    for event in ("consumed", "lost"):
        conductor.notifier.register(
            f"job_{event}", lambda kind, details: events.append((kind, details["job"].attempts))
        )
    start(conductor)
    assert handing_over.wait(WAIT)
    operator.post("released")
    assert all(ended.acquire(timeout=WAIT) for _ in range(3))
    eventually(lambda: not conductor.at_work)
    gate.set()
    eventually(lambda: len(events) == 3)
    assert sorted(events) == [("job_consumed", 1), ("job_consumed", 2), ("job_lost", 1)]


# Outages


@pytest.mark.rule("A conductor lives through an outage that is longer than retry_for.")
@FAST
@pytest.mark.parametrize("retry_for", [0, 0.2])
def test_conductor_lives_through_an_outage(
    make_board: MakeBoard, start: Runner, hanging: Hanging, retry_for: float
) -> None:
    board, other = make_board(retry_for=retry_for), make_board()
    outage = Outage(board, TAKES, ENDS)
    other.post("a")
    conductor = start(Conductor("one", board, hanging, max_simultaneous_jobs=2))
    hanging.await_begin()
    outage.on = True
    other.post("a")
    hanging.gate.set()
    eventually(lambda: outage.failed[ENDS] >= 2 and outage.failed[TAKES] >= 2)
    assert conductor.tally.consumed == 0
    outage.on = False
    eventually(lambda: conductor.tally.consumed == 2)
    assert len(hanging.jobs) == len(set(hanging.jobs)) == 2
    assert conductor.tally.lost == 0


@pytest.mark.rule("A conductor does not repeat work whose consume got no answer.")
@FAST
def test_work_whose_consume_got_no_answer_is_not_repeated(make_board: MakeBoard, start: Runner) -> None:
    board, other = make_board(retry_for=0), make_board()
    outage = Outage(board, ENDS, after=True)
    outage.on = True
    runs = Counter[str]()
    job = other.post("a")
    conductor = start(Conductor("one", board, lambda job: runs.update([job.uuid])))
    eventually(lambda: outage.failed[ENDS])
    outage.on = False
    eventually(lambda: conductor.tally.lost + conductor.tally.consumed == 1)
    assert job.state == "COMPLETE"
    assert runs == {job.uuid: 1}


@pytest.mark.parametrize("stops", [True, False])
def test_end_that_was_answered_before_the_outage_counts(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    """Of ends that take several requests, the first ones may have been answered."""
    monkeypatch.setattr("jobboard.board.POST_BYTES", 1)
    board = make_board(retry_for=0, keep_done=3600)
    board.post_many([{"name": "a"}] * 5)
    asked, released = [], threading.Event()

    def break_off() -> None:
        asked.append(None)
        assert released.wait(WAIT)
        if len(asked) == 3:
            raise ConnectionFailure("the server has gone away", outcome="none")

    requests(board).before(ENDS, break_off)
    conductor = start(Conductor("one", board, lambda job: "result"), 5 if stops else None)
    eventually(lambda: asked and conductor.tally.dispatched == 5 and not conductor.at_work)
    released.set()
    eventually(lambda: conductor.tally.consumed + conductor.tally.lost == 5)
    assert conductor.tally.consumed == 5 - board.job_count
    assert stops or conductor.tally.lost == 0


@pytest.mark.rule("A conductor holds at most twice its slots while results cannot be handed over.")
def test_claims_do_not_pile_up_behind_results_that_cannot_be_handed_over(make_board: MakeBoard, start: Runner) -> None:
    board = make_board(retry_for=0)
    board.post_many([{"name": "a"}] * 50)
    outage = Outage(board, ENDS)
    outage.on = True
    conductor = start(Conductor("one", board, lambda job: None, max_simultaneous_jobs=4))
    eventually(lambda: conductor.tally.dispatched == 8)
    seen = outage.failed[ENDS]
    eventually(lambda: outage.failed[ENDS] >= seen + 3)
    assert conductor.tally.dispatched == board.stats().claimed == 8
    outage.on = False
    eventually(lambda: conductor.tally.consumed == 50)


@FAST
def test_conductor_that_stops_in_an_outage_keeps_no_claim(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    """On a board that goes on without the conductor."""
    board = make_board(retry_for=0, claim_ttl=HELD)
    outage = Outage(board, TAKES, ENDS)
    board.post("a")
    conductor = start(Conductor("one", board, hanging))
    hanging.await_begin()
    outage.on = True
    hanging.gate.set()
    eventually(lambda: outage.failed[ENDS])
    conductor.stop()
    assert conductor.wait(WAIT)
    assert conductor.tally.lost == 1
    comes_back(board, *hanging.jobs)


def comes_back(board: Any, job: jobboard.Job) -> None:
    """The job is free once its lease has lapsed, where it has one."""
    assert_not_kept(board, job)
    assert job.claim is not None
    if job.claim.deadline is not None:
        until_free(board, job)


@pytest.mark.rule("A conductor with a claim that came too late in an outage gives the job back.")
@pytest.mark.backends("sqlite")
def test_claim_that_came_too_late_in_an_outage_is_not_kept(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(retry_for=0, claim_ttl=HELD)
    outage = Outage(board, ENDS)
    outage.on = True
    gate, claimed = threading.Event(), threading.Event()
    claim_many, jobs = board.claim_many, []

    def slow(*args: Any, **kwargs: Any) -> Any:
        jobs.extend(claim_many(*args, **kwargs))
        claimed.set()
        assert gate.wait(WAIT)
        return jobs

    monkeypatch.setattr(board, "claim_many", slow)
    board.post("a")
    conductor = start(Conductor("one", board, lambda job: None, drain_timeout=0))
    assert claimed.wait(WAIT)
    conductor.stop()
    assert conductor.wait(WAIT)
    gate.set()
    eventually(lambda: outage.failed[ENDS])
    eventually(lambda: not board.claims.held())
    comes_back(board, *jobs)


# Ends that fail


def test_end_that_fails_harms_no_other_end(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board()
    end_claims = board.end_claims

    def fail_for_one(ends: Any, who: str) -> Any:
        if any(job.name == "bad" for job, _ in ends):
            raise RuntimeError("what is that?")
        return end_claims(ends, who)

    monkeypatch.setattr(board, "end_claims", fail_for_one)
    bad = board.post("bad")
    board.post_many([{"name": "good"}] * 20)
    conductor = Conductor("one", board, lambda job: None)
    conductor.run(21)
    assert (conductor.tally.consumed, conductor.tally.lost) == (20, 1)
    assert bad.state == "SCHEDULED"


@pytest.mark.rule("A job that can neither be finished nor given back ends its run.")
@FAST
def test_job_that_can_neither_be_finished_nor_given_back_ends_its_run(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(claim_ttl=HELD)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(board, "end_claims", fail)
    monkeypatch.setattr(board, "abandon", fail)
    board.post("a")
    done: list[jobboard.Job] = []
    conductor = Conductor("one", board, done.append)
    # It would take the job again.
    conductor.run(1)
    assert conductor.tally.lost == 1
    comes_back(board, *done)


@pytest.mark.rule("A conductor tries a refused end again for a while, and no longer than the claim stands.")
def test_work_whose_end_is_refused_for_a_while_is_not_repeated(make_board: MakeBoard, start: Runner) -> None:
    """A right is revoked, and granted again. Other jobs are done meanwhile."""
    board, runs = make_board(), Counter[str]()
    refusal = Refusal(board, "refused")
    board.post_many([{"name": "refused"}, {"name": "other"}, {"name": "refused"}, {"name": "other"}])
    conductor = start(Conductor("one", board, lambda job: runs.update([job.uuid]), max_simultaneous_jobs=2))
    eventually(lambda: refusal.met >= 5)
    board.post("other")
    eventually(lambda: conductor.tally.consumed == 3)
    assert board.stats().claimed == 2
    refusal.on = False
    eventually(lambda: conductor.tally.consumed == 5)
    assert set(runs.values()) == {1}
    assert conductor.tally.lost == 0


@pytest.mark.rule("A conductor tries a refused end again for a while, and no longer than the claim stands.")
@pytest.mark.parametrize("stopped", [True, False])
def test_end_that_stays_refused_is_given_up(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """After a while, or when the conductor stops."""
    monkeypatch.setattr(finisher, "REFUSED_FOR", 3600 if stopped else 0.1)
    board = make_board()
    refusal = Refusal(board, "refused")
    job = board.post("refused")
    conductor = start(Conductor("one", board, lambda job: None))
    eventually(lambda: refusal.met >= 2)
    if stopped:
        conductor.stop()
        assert conductor.wait(WAIT)
    eventually(lambda: conductor.tally.lost == 1)
    assert job.state == "SCHEDULED"


@pytest.mark.rule("The reason why an end was refused for good is kept with the job.")
def test_follow_up_that_the_board_refuses_is_a_failure_of_the_job(make_board: MakeBoard) -> None:
    """The server's clock alone tells that the follow-up would expire before it is due."""
    board, expires = make_board(), datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)
    job = board.post("first")
    then = jobboard.Then(None, [jobboard.Posting("next", delay=3600, expires=expires)])
    Conductor("one", board, lambda job: then).run(1)
    found = board.get(job.uuid)
    assert (found.seen_state, found.attempts) == ("SCHEDULED", 1)
    assert found.error == (
        "the end of the work was refused: ValueError: expires of the job 'next': must be after the job is due"
    )


def test_refused_end_of_work_that_took_too_long_is_repeated(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    """The claim of such work reads as lost to its handler, and stands all the same."""
    board = make_board()
    refusal = Refusal(board, "slow", "abandon")
    job = board.post("slow")
    conductor = start(Conductor("one", board, hanging, job_timeout=0.05, max_simultaneous_jobs=1))
    eventually(lambda: refusal.met >= 5)
    refusal.on = False
    eventually(lambda: conductor.tally.abandoned == 1)
    assert conductor.tally.lost == 0
    assert "TimeoutError" in board.get(job.uuid).error


@pytest.mark.rule("A conductor tries a refused end again for a while, and no longer than the claim stands.")
def test_refused_end_is_not_repeated_beyond_its_claim(make_board: MakeBoard, start: Runner) -> None:
    board, other, runs = make_board(), make_board(), Counter[str]()
    refusal = Refusal(board, "refused")
    job = board.post("refused")
    conductor = start(Conductor("one", board, lambda job: runs.update([job.uuid])))
    eventually(lambda: refusal.met >= 2)
    other.release(other.get(job.uuid))
    refusal.on = False
    eventually(lambda: conductor.tally.consumed == conductor.tally.lost == 1)
    assert runs == {job.uuid: 2}


@pytest.mark.rule("A conductor that stops loses no result, though a log call takes its time.")
def test_log_that_takes_its_time_loses_no_result(make_board: MakeBoard) -> None:
    """The conductor must not think that all is done while it still logs the error of the last job."""

    def linger(record: logging.LogRecord) -> bool:
        conductor.stop()
        limit = time.monotonic() + 0.3
        while time.monotonic() < limit and any(each.name == "one-finisher" for each in threading.enumerate()):
            time.sleep(0.01)
        return True

    board = make_board()
    board.post("job")
    conductor = Conductor("one", board, {"job": lambda job: 1 / 0})
    log = logging.getLogger("jobboard.conductor.runs")
    level = log.level
    log.addFilter(linger)
    log.setLevel(logging.INFO)
    try:
        conductor.run(max_dispatches=1)
    finally:
        log.removeFilter(linger)
        log.setLevel(level)
    assert conductor.tally == Tally(dispatched=1, abandoned=1)
