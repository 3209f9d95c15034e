"""Connections that break in the middle of a call: its act happens once, and the caller learns of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from jobboard import codec, states
from jobboard.board import JobBoard
from jobboard.engine import Answer, Change, Deed, Mark, slot_of
from jobboard.engine.answers import KEPT
from jobboard.exceptions import ConnectionFailure, JobFailures
from jobboard.primitives import Nonce
from jobboard.states import OK
from jobboard.testing.conformance.support import Background, engine_of
from jobboard.testing.faults import FaultyProxy
from tests.support.jobs import make_draft

T = TypeVar("T")

pytestmark = pytest.mark.backends("postgresql", "mariadb")

lost = pytest.mark.parametrize("lost", ["reply", "request"])


@pytest.fixture
def once(proxy: FaultyProxy, decisive: bytes) -> Callable[..., Any]:
    """``once(lost, call, matching=…)``: the result of a call whose decisive request or reply is lost at first."""

    def once(lost: Any, call: Callable[[], T], matching: bytes = decisive) -> T:
        fault = proxy.lose(lost, matching=matching)
        try:
            return call()
        finally:
            assert fault.happened

    return once


@pytest.mark.rule("A repeated call of several claims is answered by the call, and not by the job.")
@lost
def test_a_take_of_jobs_with_different_tokens_happens_once(far: JobBoard, once: Any, lost: str) -> None:
    """A token only rises, also where the clock was set back since the job's last claim."""
    ahead, behind = far.post_many([{"name": "a"}] * 2)
    token = 10**16
    with far.engine.store.links.engine.begin() as connection:
        connection.execute(sa.update(far.table).where(far.table.c.uuid == ahead.uuid).values(token=token))
    jobs = once(lost, lambda: far.claim_many("anna", 2))
    assert jobs == [ahead, behind]
    assert jobs[0].claim.token == token + 1 > jobs[1].claim.token
    far.consume_many(jobs, "anna")
    assert far.job_count == 0


@pytest.mark.rule("A repeated call of several claims is answered by the call, and not by the job.")
@lost
def test_a_batch_ends_once_also_if_a_claim_of_it_is_lost(far: JobBoard, once: Any, lost: str) -> None:
    far.post_many([{"name": "a"}] * 6)
    jobs = far.claim_many("anna", 6)
    once(lost, lambda: far.consume_many(jobs[:3], "anna"))
    assert far.job_count == 3
    far.release(jobs[4])
    with pytest.raises(JobFailures) as raised:
        once(lost, lambda: far.consume_many(jobs[3:], "anna"))
    assert [error.job for error in raised.value.exceptions] == [jobs[4]]
    assert list(far.iterjobs()) == [jobs[4]]


def test_a_repetition_waits_for_the_first_try(board: JobBoard, other: JobBoard) -> None:
    """It returns what the first try did, which is under way when the repetition comes."""
    nonce = Nonce("handle", 1, 5)
    drafts = [make_draft(number) for number in (1, 2)]
    engine_of(board).insert(Nonce("handle", 1, 4), drafts)
    has_written, go_on = threading.Event(), threading.Event()

    def first() -> None:
        store = board.engine.store
        with store.transaction():
            look = store.look(1, None, codec.VERSION)
            [stored] = store.hold(look.ready)
            _, record = states.claim(stored.record, look.now, "anna", None, look.now + 60_000_000)
            assert record is not None
            answer = Answer(nonce.call, 1, (Deed(OK, record.uuid, record.token),))
            [slot] = store.read([], [slot_of(nonce)]).sides
            store.commit([Change(stored, record)], [Mark(slot, answer.packed(), KEPT)])
            # It is written, and not committed yet.
            has_written.set()
            go_on.wait(20)

    trying = Background(first)
    assert has_written.wait(20)
    again = Background(lambda: engine_of(other).take(nonce._replace(attempt=2), "anna", 1, 60_000_000, None))
    go_on.set()
    trying.wait(60)
    result = again.wait(60)
    assert [record.uuid for record in result.records] == [drafts[0].uuid]
    assert result.replayed
    assert board.stats().claimed == 1


def test_an_outcome_that_nobody_knows_is_said_to_be_unknown(
    far: JobBoard, proxy: FaultyProxy, board: JobBoard, decisive: bytes
) -> None:
    far.engine.retry_for = 0.2
    fault = proxy.lose("reply", matching=decisive)
    proxy.refuse()
    with pytest.raises(ConnectionFailure) as caught:
        far.post("a")
    assert fault.happened
    assert caught.value.outcome == "unknown"
    assert board.job_count == 1
    proxy.restore()
    assert far.job_count == 1
