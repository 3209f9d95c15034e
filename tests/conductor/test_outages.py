"""Finished work in an outage that outlasts its claims: it is handed over, and does not run again."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.conductor import Conductor, Tally, finisher
from jobboard.outcomes import RetryPolicy
from jobboard.states import LAPSED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, until_free
from jobboard.testing.requests import ENDS, TAKES, requests
from tests.conftest import Runner
from tests.full import IN_FULL
from tests.support.conductors import LATE, WAIT, Hanging, MakeBoard, Outage, Refusal, conductor_of, fail

pytestmark = pytest.mark.usefixtures("soon")


class Held:
    """A conductor that cannot hand over the end of a job's work, and the lapse of the job's claim.

    The conductor claims nothing before :meth:`let_claim`, and hands nothing over before :meth:`let_end`.
    """

    def __init__(self, make_board: MakeBoard, hanging: Hanging) -> None:
        self.board, self.other = make_board(retry_for=0, claim_ttl=HELD, keep_done=3600), make_board()
        self.ends = Outage(self.board, ENDS, "renew")
        self.claims = Outage(self.board, TAKES)
        self.hanging = hanging

    def lapse(
        self,
        start: Runner,
        handler: Any = None,
        retry: RetryPolicy | None = None,
        *,
        free: Callable[[Any, jobboard.Job], object] = until_free,
        **posting: Any,
    ) -> None:
        """:param free: frees the job, or waits until its claim has lapsed."""
        self.job = self.other.post("work", details={"n": 1}, key="k", **posting)
        self.conductor = start(Conductor("one", self.board, handler or self.hanging, retry=retry))
        self.hanging.await_begin()
        self.ends.on = self.claims.on = True
        self.hanging.gate.set()
        eventually(lambda: self.ends.failed[ENDS])
        free(self.other, self.job)
        eventually(lambda: self.claims.failed[TAKES])

    def let_claim(self) -> None:
        """Have the conductor claim the job again, while its end still can't be handed over."""
        before = self.other.get(self.job.uuid).token
        self.claims.on = False
        eventually(lambda: self.other.get(self.job.uuid).token > before)

    def let_end(self) -> None:
        self.claims.on = self.ends.on = False


@pytest.fixture
def held(make_board: MakeBoard, hanging: Hanging) -> Held:
    return Held(make_board, hanging)


# The job is claimed again


@pytest.mark.rule("A conductor does not run a job again whose work has ended, if only its claim has lapsed.")
@pytest.mark.backends("sqlite", "redis")
@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_finished_work_ends_the_new_claim(held: Held, start: Runner, swept: bool, stops: bool) -> None:
    held.lapse(start)
    if swept:
        # The look writes down what has lapsed.
        assert held.other.claim_next("other", names=["nothing"]) is None
    held.let_claim()
    held.let_end()
    if stops:
        held.conductor.stop()
    eventually(lambda: held.conductor.tally == Tally(dispatched=1, consumed=1))
    assert held.job.state == "COMPLETE"
    assert len(held.hanging.jobs) == 1
    assert held.board.claims.held() == []


def claimed(held: Held) -> Any:
    job = held.other.claim_next("two")
    assert job.uuid == held.job.uuid
    return job


def failed_elsewhere(held: Held) -> None:
    claimed(held).claim.abandon(error="broken")


def abandoned_elsewhere(held: Held) -> None:
    claimed(held).claim.abandon()


def retried_elsewhere(held: Held) -> None:
    held.other.finish_many([jobboard.Act(claimed(held), "abandon", retry=True)], "two")


def released_elsewhere(held: Held) -> None:
    held.other.release(claimed(held))


def lapsed_elsewhere(held: Held) -> None:
    job = held.other.claim_next("two", expiry=0.1)
    until_free(held.other, job)


def replaced(held: Held) -> None:
    assert held.other.post("work", key="k", details={"n": 2}, on_key="replace").replaced
    # Now the attempts are those of a lapse again.
    claimed(held).claim.abandon()


def release(board: Any, job: jobboard.Job, reason: str | None = "stuck") -> None:
    board.release(board.get(job.uuid), reason=reason)


def nothing(held: Held) -> None:
    """The job was released before."""


@pytest.mark.rule("A held end is lost if more than a lapse has happened to its job.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "meanwhile",
    [failed_elsewhere, abandoned_elsewhere, retried_elsewhere, released_elsewhere, lapsed_elsewhere, replaced, nothing],
)
def test_work_runs_again_if_more_than_a_lapse_has_happened(
    held: Held, start: Runner, meanwhile: Callable[[Held], None]
) -> None:
    """The end of the first run is lost."""
    held.lapse(start, free=until_free if meanwhile is not nothing else release)
    meanwhile(held)
    held.let_claim()
    eventually(lambda: len(held.hanging.jobs) == 2)
    held.let_end()
    eventually(lambda: held.conductor.tally == Tally(dispatched=2, consumed=1, lost=1))
    assert held.hanging.jobs[-1].details == {"n": 2 if meanwhile is replaced else 1}


@pytest.mark.rule("A held end is lost if more than a lapse has happened to its job.")
@pytest.mark.backends("sqlite")
def test_lapse_from_before_the_claim_says_nothing_of_the_claim(held: Held, start: Runner) -> None:
    job = held.other.post("work", key="k")
    early = held.other.claim_next("one", expiry=0.1)
    until_free(held.other, job)
    assert held.other.claim_next("other", names=["nothing"]) is None
    held.other.finish_many([jobboard.Act(early, "abandon", refund=True)], "one")
    held.lapse(start, free=functools.partial(release, reason=None))
    held.let_claim()
    eventually(lambda: len(held.hanging.jobs) == 2)
    assert [(each.text, each.attempt) for each in held.other.get(job.uuid).errors] == [(LAPSED, 1)]
    held.let_end()
    eventually(lambda: held.conductor.tally == Tally(dispatched=2, consumed=1, lost=1))


@pytest.mark.backends("sqlite")
def test_job_that_a_sibling_has_claimed_is_the_siblings(held: Held, start: Runner) -> None:
    """Also that of a sibling on the same board object."""
    held.lapse(start)
    sibling = Conductor("two", held.board, held.hanging)
    held.claims.on = False
    held.conductor.stop()
    start(sibling)
    eventually(lambda: sibling.tally.dispatched + held.conductor.tally.lost)
    held.let_end()
    assert held.conductor.wait(WAIT)
    eventually(lambda: held.conductor.tally.consumed + sibling.tally.consumed == 1)
    assert held.conductor.tally.consumed + held.conductor.tally.lost == 1


@pytest.mark.rule("Failed work that ends a new claim uses up one attempt.")
@pytest.mark.backends("sqlite")
def test_failed_work_that_ends_a_new_claim_has_used_up_one_attempt(held: Held, start: Runner) -> None:
    def handler(job: jobboard.Job) -> None:
        held.hanging(job)
        fail(ValueError("broken"))

    held.lapse(start, handler, LATE, max_attempts=2)
    held.let_claim()
    held.let_end()
    eventually(lambda: held.conductor.tally == Tally(dispatched=1, abandoned=1))
    job = held.other.get(held.job.uuid)
    assert (job.state, job.attempts) == ("SCHEDULED", 1)
    assert [LAPSED in each.text for each in job.errors] == [True, False]
    assert "broken" in job.error


@pytest.mark.backends("sqlite")
def test_finished_work_whose_attempts_are_used_up_is_consumed(held: Held, start: Runner) -> None:
    """The new claim is one more than the policy allows, and nothing runs under it."""
    held.lapse(start, retry=RetryPolicy(max_attempts=1))
    held.let_claim()
    held.let_end()
    eventually(lambda: held.conductor.tally == Tally(dispatched=1, consumed=1))


@pytest.mark.backends("sqlite")
def test_finished_work_of_a_job_in_the_trash_is_lost(held: Held, start: Runner) -> None:
    """The lapse has used up the posting's last attempt, and no claim is possible."""
    held.lapse(start, max_attempts=1)
    held.let_end()
    eventually(lambda: held.conductor.tally == Tally(dispatched=1, lost=1))
    assert held.job.state == "TRASHED"


@pytest.mark.rule("A held end is lost if more than a lapse has happened to its job.")
@pytest.mark.backends("sqlite")
def test_job_that_its_handler_has_given_back_itself_runs_again(
    held: Held, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the finisher has not come to that end."""
    end_claims, handing_over, gate, runs = held.board.end_claims, threading.Event(), threading.Event(), []

    def slow_end(ends: Any, who: str) -> Any:
        handing_over.set()
        assert gate.wait(WAIT)
        return end_claims(ends, who)

    def handler(job: jobboard.Job) -> None:
        runs.append(job.name)
        if runs == ["slow", "work"]:
            held.ends.on = held.claims.on = True
            until_free(held.other, job)
            assert held.other.claim_next("other", names=["nothing"]) is None
            held.ends.on = False
            job.claim.abandon()
            held.claims.on = False

    monkeypatch.setattr(held.board, "end_claims", slow_end)
    held.other.post("slow")
    conductor = start(Conductor("one", held.board, handler, max_simultaneous_jobs=2))
    assert handing_over.wait(WAIT)
    held.other.post("work")
    eventually(lambda: runs[1:] == ["work", "work"])
    gate.set()
    eventually(lambda: conductor.tally == Tally(dispatched=3, abandoned=1, consumed=2))


@pytest.mark.rule("A conductor does not run a job again whose work has ended, if only its claim has lapsed.")
@pytest.mark.backends("sqlite")
def test_end_that_is_lost_to_a_claim_under_way_is_for_that_claim(
    held: Held, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finisher hears that the claim is lost before the claimer hears that it has the job."""
    claim_many, end_claims = held.board.claim_many, held.board.end_claims
    again, refused = threading.Event(), threading.Event()

    def slow_claim(*args: Any, **kwargs: Any) -> Any:
        jobs = claim_many(*args, **kwargs)
        if any(job.attempts == 2 for job in jobs):
            again.set()
            assert refused.wait(WAIT)
        return jobs

    def slow_end(ends: Any, who: str) -> Any:
        assert again.wait(WAIT)
        errors = end_claims(ends, who)
        refused.set()
        return errors

    monkeypatch.setattr(held.board, "claim_many", slow_claim)
    monkeypatch.setattr(held.board, "end_claims", slow_end)
    held.other.post("work")
    conductor = start(Conductor("one", held.board, held.hanging))
    held.hanging.await_begin()
    # No beat keeps the claim.
    held.ends.on = True
    held.hanging.gate.set()
    assert again.wait(WAIT)
    held.ends.on = False
    eventually(lambda: conductor.tally == Tally(dispatched=1, consumed=1))
    assert len(held.hanging.jobs) == 1


@pytest.mark.rule("A conductor does not run a job again whose work has ended, if only its claim has lapsed.")
@pytest.mark.backends("sqlite")
def test_end_that_was_answered_while_the_job_was_claimed_again_ends_the_new_claim(
    held: Held, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim was given back after its lapse, and taken again before the finisher heard of that."""
    end_claims, again = held.board.end_claims, threading.Event()

    def slow_end(ends: Any, who: str) -> Any:
        errors = end_claims(ends, who)
        if not again.is_set():
            eventually(lambda: held.other.get(job.uuid).attempts == 2)
            again.set()
            # Until the claimer has the answer.
            eventually(lambda: any(claim.token > token for claim in held.board.claims.held()))
            eventually(lambda: not conductor._runs.finisher._is_claiming or len(held.hanging.jobs) > 1)
        return errors

    def handler(job: jobboard.Job) -> None:
        held.hanging(job)
        if len(held.hanging.jobs) == 1:
            raise jobboard.Retry(count=True, delay=0)

    monkeypatch.setattr(held.board, "end_claims", slow_end)
    job = held.other.post("work")
    conductor: Any = start(Conductor("one", held.board, handler))
    held.hanging.await_begin()
    token = held.board.claims.held()[0].token
    held.ends.on = held.claims.on = True
    held.hanging.gate.set()
    until_free(held.other, job)
    assert held.other.claim_next("other", names=["nothing"]) is None
    held.let_end()
    eventually(lambda: conductor.tally.consumed == 1)
    tally = conductor.tally
    assert tally.dispatched == tally.consumed + tally.abandoned + tally.lost
    assert held.board.claims.held() == []


# Precedence


@pytest.mark.rule("A conductor claims nothing after an outage before its ends were tried.")
@pytest.mark.backends("sqlite", "redis")
def test_conductor_claims_nothing_after_an_outage_before_ends_were_tried(
    held: Held, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has just failed as the server comes back.
    monkeypatch.setattr(finisher, "outage_pause", lambda failures: 3600.0)
    answered: list[str] = []
    reads = Outage(held.board, "read")

    for kind, name in ((TAKES, "take"), (ENDS, "end")):
        requests(held.board).after(kind, functools.partial(answered.append, name))
    held.other.post("work")
    conductor = start(Conductor("one", held.board, held.hanging))
    held.hanging.await_begin()
    reads.on = held.ends.on = held.claims.on = True
    held.hanging.gate.set()
    eventually(lambda: held.ends.failed[ENDS] and reads.failed["read"] > 2)
    answered.clear()
    reads.on = False
    held.let_end()
    eventually(lambda: conductor.tally.consumed == 1 and "take" in answered)
    assert answered[0] == "end"


@pytest.mark.rule("A refused end, and one that waits for a lock, stops no claim.")
@pytest.mark.backends("memory")
@pytest.mark.parametrize("in_an_outage", [False, True])
def test_refused_end_stops_no_claim(make_board: MakeBoard, start: Runner, in_an_outage: bool) -> None:
    board = make_board(retry_for=0)
    refusal = Refusal(board, "refused")
    outage = Outage(board, TAKES)
    board.post("refused")
    conductor = start(Conductor("one", board, lambda job: None, max_simultaneous_jobs=1))
    eventually(lambda: refusal.met >= 2)
    outage.on = in_an_outage
    board.post_many([{"name": "other"}] * 20)
    eventually(lambda: outage.failed[TAKES] or not in_an_outage)
    outage.on = False
    eventually(lambda: conductor.tally.consumed == 20)
    assert conductor.tally.lost == 0


@pytest.mark.rule("A refused end, and one that waits for a lock, stops no claim.")
@pytest.mark.backends("postgresql", "mariadb")
def test_end_that_waits_for_a_lock_stops_no_claim(make_board: MakeBoard, start: Runner, engine: Any) -> None:
    board = make_board(retry_for=0.5)
    begun, gate = threading.Event(), threading.Event()

    def handler(job: jobboard.Job) -> None:
        if job.name == "locked":
            begun.set()
            assert gate.wait(WAIT)

    job = board.post("locked")
    conductor = start(Conductor("one", board, handler, max_simultaneous_jobs=1))
    assert begun.wait(WAIT)
    board.post_many([{"name": "other"}] * 20)
    with engine.connect() as connection:
        rows = board.table.c
        assert connection.execute(sa.select(rows.id).where(rows.id == job.sequence).with_for_update()).all()
        gate.set()
        eventually(lambda: conductor.tally.consumed == 20)
        assert conductor.tally.lost == 0
    eventually(lambda: conductor.tally.consumed == 21)


# Real servers


@pytest.mark.rule("A conductor does not run a job again whose work has ended, if only its claim has lapsed.")
@pytest.mark.backends("redis", "postgresql", *IN_FULL)
@pytest.mark.parametrize("kind", ["threads", "processes", "coroutines"])
def test_finished_work_outlives_its_server(
    backend: str,
    private_server: Callable[..., Any],
    start: Runner,
    tmp_path: Path,
    notes: Callable[[], list[str]],
    kind: str,
) -> None:
    server = private_server(backend)
    conf = {"board": server.uri, "claim_ttl": HELD, "retry_for": 0.5}
    with jobboard.backend("board", conf) as board, jobboard.backend("board", conf) as other:
        conductor, handler = conductor_of(board, kind, slots=8)
        sync = conductor.sync if kind == "coroutines" else conductor
        conductor.handles("work")(handler)
        jobs = other.post_many([{"name": "work", "details": {"notes": str(tmp_path / "notes")}}] * 3)
        start(conductor)
        eventually(lambda: len(notes()) == 3, 60)
        server.kill()
        (tmp_path / "notes.go").touch()
        eventually(lambda: sync.at_work == 0)
        time.sleep(2 * HELD)  # the length of the outage, not a wait for anything
        server.start()
        eventually(lambda: conductor.tally.consumed == 3, 60)
        assert all(job.state == "COMPLETE" for job in jobs)
        assert len(notes()) == 3
        assert conductor.tally.lost == 0
        conductor.stop()
        assert sync.wait(WAIT)
