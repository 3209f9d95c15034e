"""Work that has read its claim as lost: it may have stopped half-way, and never counts as done."""

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
    """Do what a heartbeat does that finds the claim gone."""
    assert job.claim is not None
    job.claim.refuse()


def renew(job: Job) -> None:
    """Do what a later heartbeat does that finds the claim still there."""
    assert job.claim is not None
    job.claim.confirm(None, kept=True)


@pytest.mark.rule("Work that has seen its claim lost does not count.")
@pytest.mark.parametrize("renewed", [False, True])
def test_a_body_that_has_read_its_claim_as_lost_consumes_nothing(board: jobboard.JobBoard, renewed: bool) -> None:
    posted = board.post("resize")

    def work() -> None:
        with board.working("me") as job:
            lose(job)
            assert jobboard.cancelled()
            if renewed:
                renew(job)

    with pytest.raises(jobboard.ClaimLost):
        work()
    assert posted.state == jobboard.State.SCHEDULED, "the job is tried again later, as after a failure"
    assert posted.error == IN_VAIN


@pytest.mark.rule("A holder that extends its claim after it was lost may count on the claim again.")
@pytest.mark.parametrize("verb", ["extend", "consume"])
def test_a_body_that_acts_on_its_lost_claim_consumes_the_job(board: jobboard.JobBoard, verb: str) -> None:
    """The server accepts the act, as nobody else has taken the job."""
    posted = board.post("resize")
    with board.working("me") as job:
        lose(job)
        assert jobboard.cancelled()
        assert job.claim is not None
        getattr(job.claim, verb)()
        assert not job.claim.lost
    assert posted.state == jobboard.State.COMPLETE


@pytest.mark.rule("Work that has seen its claim lost does not count.")
def test_a_job_whose_handler_has_read_its_claim_as_lost_is_run_again(board: jobboard.JobBoard) -> None:
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


@pytest.mark.rule("A handler that returns after its fixed lease has ended does not count.")
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_job_whose_handler_returns_after_its_lease_is_run_again_or_trashed(
    board: jobboard.JobBoard, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    posted = board.post("resize", max_attempts=attempts)

    def handler(job: Job) -> None:
        job.extend_expiry(0.001)
        eventually(jobboard.cancelled)

    conductor = Conductor("me", board, handler, retry=jobboard.RetryPolicy(base=600))
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
