"""What a look remembers of the look before, folders and records, makes a claim faster. It hides no job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard import codec
from jobboard.engine import Stale
from jobboard.exceptions import ClaimLost
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, take
from tests.backends.zookeeper.inside import connection_of, driver_of, root_of, session_of

LEASE = 1.5

pytestmark = pytest.mark.backends("zookeeper")


def warm(board: Any, *names: str) -> None:
    """Have the board remember where the next jobs are."""
    for _ in range(3):
        board.consume(take(board, names=names or None), "anna")


def sent(board: Any, act: Callable[[], Any]) -> int:
    before = connection_of(board).sent
    act()
    return connection_of(board).sent - before


def end_session(board: Any, caller: KazooClient) -> None:
    """Its claims have lost what kept them, as where the session has ended."""
    caller.delete(f"{root_of(board)}/alive/{driver_of(board).session()}")


def test_a_claim_and_its_end_cost_four_requests(make_board: Any) -> None:
    """Two looks, of which one reads all that the claim needs, and two changes."""
    board = make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 300)
    warm(board)
    spent = [sent(board, lambda: board.consume(take(board), "anna")) for _ in range(100)]
    assert sorted(spent)[50] <= 4
    batches = [sent(board, lambda: board.consume_many(board.claim_many("anna", 50), "anna")) for _ in range(3)]
    assert min(batches) <= 5


def give_back(board: Any, mine: Any) -> None:
    board.abandon(mine, "bert")


def release(board: Any, mine: Any) -> None:
    board.release(board.get(mine.uuid))


def bury_and_dig_out(board: Any, mine: Any) -> None:
    board.trash(mine, "bert")
    board.restore(board.get(mine.uuid))


@pytest.mark.parametrize("step", [give_back, release, bury_and_dig_out])
def test_a_job_that_comes_back_is_next(make_board: Any, step: Callable[[Any, Any], None]) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 500)
    first = take(other, "bert")
    board.consume_many(board.claim_many("anna", 300), "anna")
    warm(board)
    step(other, first)
    assert take(board) == first


@pytest.mark.parametrize("own", [True, False])
def test_a_job_that_is_posted_in_front_is_next(make_board: Any, own: bool) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    warm(board)
    urgent = (board if own else other).post("resize", priority="HIGH")
    assert take(board) == urgent
    warm(board)
    urgent = [poster.post("resize", priority="HIGH") for poster in (board, other, board)]
    assert [take(board) for _ in range(3)] == urgent


def test_what_ends_by_the_time_is_next(make_board: Any) -> None:
    """A lease that lapses, and a delay, of which nobody tells when they end."""
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 200)
    lapsing = take(other, "bert", expiry=LEASE)
    due = other.post("resize", priority="HIGH", delay=LEASE)
    warm(board)
    eventually(lambda: due.state == "UNCLAIMED" and other.find_owner(lapsing) is None)
    assert [take(board), take(board)] == [due, lapsing]


def test_a_claim_that_lapses_with_its_session_is_next(make_board: Any, caller: KazooClient) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    lapsing = take(other, "bert")
    warm(board)
    end_session(other, caller)
    assert take(board) == lapsing


def test_one_that_has_lost_its_session_claims_under_another(make_board: Any, caller: KazooClient) -> None:
    board = make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    warm(board)
    session = driver_of(board).session()
    end_session(board, caller)
    job = take(board)
    assert session_of(board, job) == driver_of(board).session() != session
    assert make_board().find_owner(job) == "anna"


def test_a_claim_outlives_neither_its_session_nor_does_another_keep_it(make_board: Any, caller: KazooClient) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    job, theirs = board.post("resize"), board.post("resize")
    board.claim(job, "anna")
    other.claim(theirs, "bert")
    store, session = board.engine.store, session_of(board, job)
    assert [stored.alive for stored in store.read([job.uuid, theirs.uuid]).jobs] == [True, True]
    end_session(board, caller)
    assert [stored.alive for stored in store.read([job.uuid, theirs.uuid]).jobs] == [False, True]
    [overdue] = other.engine.store.look(1, None, codec.VERSION).overdue
    assert overdue.record.uuid == job.uuid
    # Its next extension takes it up again, under another session.
    board.extend(job, "anna")
    [again] = store.read([job.uuid]).jobs
    assert again.alive
    assert session_of(board, job) != session
    from jobboard.engine import Change

    with pytest.raises(Stale):
        other.engine.store.commit([Change(overdue, overdue.record._replace(who=None))])


def test_a_last_attempt_that_has_lapsed_with_its_session_ends_nothing(make_board: Any, caller: KazooClient) -> None:
    """It lies in the trash from that instant on, whatever its holder remembers."""
    board = make_board(claim_ttl=60)
    board.post("resize", max_attempts=1)
    job = take(board)
    end_session(board, caller)
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")
    assert board.get(job.uuid).seen_state == "TRASHED"


def test_jobs_of_which_others_have_taken_all_that_was_remembered(make_board: Any) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 500)
    warm(board)
    jobs = list(board.iterjobs())
    other.consume_many(other.claim_many("bert", 300), "bert")
    assert [take(board) for _ in range(5)] == jobs[300:305]
    other.post("resize", priority="LOW", delay=LONG)
    taken = [take(board if number % 2 else other) for number in range(40)]
    assert taken == jobs[305:345]


def test_a_session_that_has_come_during_a_look(make_board: Any, caller: KazooClient) -> None:
    """It has met a claim of one who came after it had asked who lives. Once that one is gone, its job is next."""
    board, late = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 300)
    warm(board)
    connection, claimed = connection_of(board), []
    read = connection.read

    def reading(*args: Any, **options: Any) -> Any:
        found = read(*args, **options)
        if not claimed:
            claimed.append(take(late, "carl"))
        return found

    connection.read = reading  # type: ignore[method-assign]
    board.engine.store.look(1, None, codec.VERSION)
    assert claimed
    end_session(late, caller)
    assert take(board) == claimed[0]
