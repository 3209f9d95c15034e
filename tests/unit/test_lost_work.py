"""Work that has seen its claim lost may have stopped half-way: it never counts as done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jobboard
from jobboard.backends.memory import forget
from jobboard.conductor import Conductor, Tally
from jobboard.job import Job
from jobboard.outcomes import IN_VAIN
from jobboard.testing import eventually


@pytest.fixture
def board() -> Iterator[jobboard.JobBoard]:
    with jobboard.backend("lost-work", "memory") as opened:
        yield opened
    forget("lost-work")


def lose(job: Job) -> None:
    """What a heartbeat that finds the claim gone does."""
    assert job.claim is not None
    job.claim.refuse()


def renew(job: Job) -> None:
    """What a later heartbeat does that finds the claim still there."""
    assert job.claim is not None
    job.claim.confirm(None, kept=True)


@pytest.mark.parametrize("renewed", [False, True])
def test_a_body_that_stopped_because_its_claim_was_lost_consumes_nothing(
    board: jobboard.JobBoard, renewed: bool
) -> None:
    posted = board.post("resize")

    def work() -> None:
        with board.working("me") as job:
            lose(job)
            assert jobboard.cancelled()
            if renewed:
                renew(job)

    with pytest.raises(jobboard.ClaimLost):
        work()
    # Later, as after a failure.
    assert posted.state == jobboard.State.SCHEDULED
    assert posted.error == IN_VAIN


def test_a_claim_that_the_body_extends_again_counts(board: jobboard.JobBoard) -> None:
    posted = board.post("resize")
    with board.working("me") as job:
        lose(job)
        assert job.claim is not None
        assert job.claim.lost
        job.claim.extend()
    assert posted.state == jobboard.State.COMPLETE


def test_a_body_that_has_seen_its_claim_lost_and_consumes_the_job_has_consumed_it(board: jobboard.JobBoard) -> None:
    """The server has decided: nobody had taken the job."""
    posted = board.post("resize")
    with board.working("me") as job:
        lose(job)
        assert jobboard.cancelled()
        assert job.claim is not None
        job.claim.consume()
        assert not job.claim.lost
    assert posted.state == jobboard.State.COMPLETE


def test_a_handler_that_stopped_because_its_claim_was_lost_is_run_again(board: jobboard.JobBoard) -> None:
    posted = board.post("resize")
    runs = []

    def handler(job: Job) -> None:
        runs.append(job.attempts)
        if job.attempts == 1:
            lose(job)
            assert jobboard.cancelled()
            renew(job)

    conductor = Conductor("me", board, handler)
    conductor.run(max_dispatches=2)
    assert runs == [1, 2]
    assert posted.state == jobboard.State.COMPLETE
    assert conductor.tally == Tally(dispatched=2, consumed=1, lost=1)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_handler_that_returns_after_its_own_lease(
    board: jobboard.JobBoard, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else has come: the job is free to be tried again, unless its attempts are used up."""
    posted = board.post("resize", max_attempts=attempts)

    def handler(job: Job) -> None:
        job.extend_expiry(0.001)
        eventually(jobboard.cancelled)

    conductor = Conductor("me", board, handler, retry=jobboard.RetryPolicy(base=1000))
    events: list[str] = []
    conductor.notifier.register("*", lambda event, told: events.append(event))
    conductor.run(max_dispatches=1)
    assert conductor.tally == Tally(dispatched=1, lost=1)
    assert events == ["job_claimed", "job_started", "job_finished", "job_lost"]
    if attempts > 1:
        assert (posted.state, posted.error) == (jobboard.State.SCHEDULED, IN_VAIN)
        assert f"is to be tried again: {IN_VAIN}" in caplog.text
    else:
        assert posted.state == jobboard.State.TRASHED


def test_a_mistaken_steer_is_a_failure_like_any_other(board: jobboard.JobBoard) -> None:
    posted = board.post("resize")

    def work() -> None:
        with board.working("me"):
            raise jobboard.Retry(delay=-1)

    with pytest.raises(ValueError, match="delay=-1"):
        work()
    assert posted.state == jobboard.State.SCHEDULED
    with pytest.raises(TypeError):
        jobboard.Reject(17)  # type: ignore[arg-type]
