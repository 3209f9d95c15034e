"""Jobs that are claimed without a look: what has come in since is compared by the claim, and nothing is passed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard import codec
from jobboard.backends.zookeeper import looking
from jobboard.backends.zookeeper.lists import Names
from jobboard.exceptions import ClaimLost
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, take

LEASE = 1.5
"""In seconds: longer than a board takes to know the next jobs."""

pytestmark = pytest.mark.backends("zookeeper")


def known(board: Any, *names: str) -> bool:
    return board.engine._opened.known(1, names or None, codec.VERSION) is not None


def warm(board: Any, *names: str) -> None:
    """Have the board know the next job."""
    for number in range(50):
        board.consume(take(board, names=names or None), "anna")
        if number > 2 and known(board, *names):
            return
    pytest.fail("each time it has to look")


def sent(board: Any, act: Callable[[], Any]) -> int:
    connection = board.engine._opened.connection
    before = connection.sent
    act()
    return int(connection.sent - before)


def test_a_batch_is_known_ahead(make_board: Any) -> None:
    board = make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 500)
    warm(board)
    # A look reads two batches: the second one is claimed without.
    batches = [sent(board, lambda: board.consume_many(board.claim_many("anna", 100), "anna")) for _ in range(4)]
    assert min(batches) == 2


def give_back(board: Any, mine: Any) -> None:
    board.abandon(mine, "bert")


def release(board: Any, mine: Any) -> None:
    board.release(board.get(mine.uuid))


def bury_and_dig_out(board: Any, mine: Any) -> None:
    board.trash(mine, "bert")
    board.restore(board.get(mine.uuid))


def extend_and_give_back(board: Any, mine: Any) -> None:
    board.extend(mine, "bert", LONG)
    board.abandon(mine, "bert")


@pytest.mark.parametrize("step", [give_back, release, bury_and_dig_out, extend_and_give_back])
def test_a_job_that_comes_back_is_next(make_board: Any, step: Callable[[Any, Any], None]) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    first = take(other, "bert")
    warm(board)
    step(other, first)
    assert known(board), "and it does not know"
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


def test_a_claim_that_lapses_with_its_keeper_is_next(make_board: Any, caller: KazooClient) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    lapsing = take(other, "bert")
    warm(board)
    caller.delete(f"{board.engine._opened.paths.alive}/{other.engine._opened.keeper()}")
    assert known(board), "and it does not know"
    assert take(board) == lapsing


def test_who_has_lost_its_own_keeper_claims_under_another(make_board: Any, caller: KazooClient) -> None:
    board = make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    warm(board)
    store = board.engine._opened
    keeper = store.keeper()
    caller.delete(f"{store.paths.alive}/{keeper}")
    assert known(board)
    job = take(board)
    assert store.keeper() != keeper
    assert make_board().find_owner(job) == "anna"


def test_jobs_that_others_take_meanwhile(make_board: Any) -> None:
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    warm(board)
    jobs = list(board.iterjobs())
    assert [take(other, "bert") for _ in range(3)] == jobs[:3]
    assert take(board) == jobs[3]
    assert not known(board), "others are at it"
    taken = [take(board if number % 2 else other) for number in range(40)]
    assert taken == jobs[4:44]


@pytest.mark.parametrize("own", [True, False])
def test_names_are_kept_apart(make_board: Any, own: bool) -> None:
    """Behind a thousand others, in the order of posts, however they have come and gone."""
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    poster = board if own else other
    poster.post_many([Posting("other")] * 1000 + [Posting("mine"), Posting("yours")] * 40)
    warm(board, "mine")
    first = poster.post("mine", priority="HIGH")
    last = poster.post("mine")
    assert [take(board, names=["mine"]), take(board, names=["other"]).name] == [first, "other"]
    board.abandon(first, "anna")
    mine = [job for job in other.iterjobs(names=["mine"]) if job.seen_state == "UNCLAIMED"]
    assert (mine[0], mine[-1]) == (first, last)
    assert [take(board, names=["mine"]) for _ in range(len(mine) - 5)] == mine[:-5]
    left = [job for job in other.iterjobs(names=["mine", "yours"]) if job.seen_state == "UNCLAIMED"]
    assert {job.name for job in left} == {"mine", "yours"}
    assert board.claim_many("anna", 100, names=["yours", "mine"]) == left
    assert board.claim_next("anna", names=["mine", "yours"]) is None


def test_what_is_forgotten_hides_no_job(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many are gone, one look reads twice: what it has read first still counts."""
    monkeypatch.setattr(looking, "_HEADS", 3)
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 120)
    warm(board)
    jobs = list(other.iterjobs())
    assert other.claim_many("bert", 45) == jobs[:45]
    other.post("resize", priority="LOW")
    assert [take(board) for _ in range(20)] == jobs[45:65]


def test_a_last_attempt_that_has_lapsed_with_its_keeper_ends_nothing(make_board: Any, caller: KazooClient) -> None:
    """It lies in the trash from that instant on, whatever its holder remembers."""
    board = make_board(claim_ttl=60)
    board.post("resize", max_attempts=1)
    job = take(board)
    store = board.engine._opened
    caller.delete(f"{store.paths.alive}/{store.keeper()}")
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")
    assert board.get(job.uuid).seen_state == "TRASHED"


def test_a_looker_is_told_of_what_is_new(make_board: Any) -> None:
    """To know the next jobs is for those who claim them."""
    board, other = make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    warm(board)
    other.consume_many(other.claim_many("bert", 100), "bert")
    assert known(board), "and it does not know"
    assert not board.engine.peek(None, codec.VERSION).any


def test_a_keeper_that_has_come_during_a_look(
    make_board: Any, caller: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look has asked who lives, then met a claim of somebody who came after that; when that one is gone, its job is
    the next, though nothing has told so."""
    board, other, late = make_board(claim_ttl=60), make_board(claim_ttl=60), make_board(claim_ttl=60)
    board.post_many([Posting("resize")] * 60)
    first = take(other, "bert")
    warm(board)
    view, connection = board.engine._opened.view, board.engine._opened.connection
    claimed: list[Any] = []
    read = connection.read

    def reading(reads: Any, *more: Any, **options: Any) -> Any:
        if not any(each.path.endswith("/bell") for each in reads) and not claimed:
            claimed.append(take(late, "carl"))
        return read(reads, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(view, "_more", lambda limit: 0)
        patch.setattr(connection, "read", reading)
        other.claim_many("bert", 1)
        view.look(1, Names(), codec.VERSION)
    assert claimed
    keeper = late.engine._opened._keeper[0]
    caller.delete(f"{late.engine._opened.paths.alive}/{keeper}")
    assert take(board) == claimed[0]
    assert first != claimed[0]
