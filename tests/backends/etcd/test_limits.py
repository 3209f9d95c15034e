"""What limits cost on etcd, and what is remembered of jobs that have no room."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd import fences
from jobboard.job import Posting
from jobboard.testing.conformance.support import PATIENCE, Waiter, let_lapse, take, uuids
from jobboard.testing.faults import FaultyProxy
from tests.backends.etcd.conftest import listening
from tests.backends.etcd.test_keepers import revoke

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]

POST = b"POST /v3/kv"


@pytest.fixture
def board(make_board: Callable[..., Any]) -> Any:
    return make_board()


@pytest.fixture
def other(make_board: Callable[..., Any]) -> Any:
    return make_board()


def post(board: Any, number: int, group: str | None = None, **more: Any) -> list[str]:
    return uuids(board.post_many([Posting("mail", group=group, **more)] * number))


def test_a_hundred_claims_in_a_hundred_scopes(alone: tuple[Any, FaultyProxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a Txn compares, and all in one."""
    # A look across a fence takes one or two requests more. The uuid of a job decides whether the job brings a fence.
    monkeypatch.setattr(fences, "_OFTEN", 10**9)
    board, proxy = alone
    board.set_limit("mail", concurrency=1, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number % 100}") for number in range(200)])
    counter = proxy.counter(POST)
    held = board.claim_many("anna", 100)
    assert held == jobs[:100]
    assert counter.count == 6
    assert board.claim_many("anna", 100) == []
    board.consume_many(held[:50], "anna")
    assert board.claim_many("anna", 100) == jobs[100:150]
    assert list(board.engine.raw.examine()) == []


def test_a_long_list_of_claims(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of them that live are looked for in more than one Txn."""
    monkeypatch.setattr("jobboard.backends.etcd.driver.MOST_GETS", 300)
    board.set_limit("mail", concurrency=700)
    for _ in range(8):
        board.post_many([Posting("mail")] * 100)
        board.consume_many(board.claim_many("anna", 80), "anna")
    held = [*board.claim_many("anna", 160), *board.claim_many("anna", 160)]
    assert len(held) == 160


def test_long_lists_of_many_groups(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once they would be too much for one Txn."""
    monkeypatch.setattr("jobboard.engine.limits.HEAVY", 3)
    board.set_limit("mail", concurrency=2, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number}") for number in range(10)])
    assert [board.claim_many("anna", 10) for _ in range(4)] == [jobs[:4], jobs[4:8], jobs[8:], []]


def test_who_waits_for_a_slot_sends_nothing(far: tuple[Any, FaultyProxy], other: Any) -> None:
    board, proxy = far
    other.set_limit("mail", concurrency=1)
    held, second, *_ = other.post_many([Posting("mail")] * 40)
    other.claim(held, "bert")
    listening(board)
    waiter = Waiter(board, lambda: board.claim_next("anna", timeout=30))
    looked = proxy.counter(POST)
    for _ in range(20):
        assert other.claim_next("bert") is None
        assert other.stats().claimed == 1
    assert looked.count == 0
    other.consume(held, "bert")
    assert waiter.wait() == second


def test_the_end_of_a_lease_frees_its_slots(board: Any, other: Any) -> None:
    board.set_limit("mail", concurrency=1)
    first, second = board.post("mail"), board.post("mail", priority="LOW")
    held = take(board)
    waiter = Waiter(other, lambda: other.claim_next("bert", timeout=PATIENCE))
    revoke(board)
    assert waiter.wait() == first
    # It comes too late: the slot is another's.
    board.claims.beat()
    assert held.claim.lost
    assert other.claim_next("bert") is None
    other.consume(first, "bert")
    assert take(board) == second


def test_a_claim_whose_slot_is_taken_is_not_revived_by_a_beat(board: Any, other: Any) -> None:
    board.set_limit("mail", concurrency=1)
    first = board.post("mail")
    held, second = take(board), board.post("mail", priority="HIGH")
    revoke(board)
    assert take(other, "bert") == second
    board.claims.beat()
    assert held.claim.lost
    assert other.find_owner(first) is None


def test_what_comes_due_while_the_others_have_no_room(board: Any, other: Any) -> None:
    """Long before a waiter looks again by itself."""
    board.set_limit("mail", concurrency=1)
    post(board, 3)
    take(board)
    waiter = Waiter(other, lambda: other.claim_next("bert", timeout=PATIENCE))
    due = board.post("print", delay=0.3)
    assert waiter.wait() == due


def test_what_had_no_room_is_the_next_once_it_has(board: Any, other: Any) -> None:
    """Whatever was seen ahead."""
    board.set_limit("mail", concurrency=1)
    held, waits = board.post_many([Posting("mail")] * 2)
    others = board.post_many([Posting("resize")] * 60)
    board.claim(held, "bert")
    assert [take(board) for _ in range(4)] == others[:4]
    other.consume(other.get(held.uuid), "bert")
    assert take(board) == waits
    assert [take(board) for _ in range(56)] == others[4:]


def test_what_comes_back_among_the_jobs_of_a_full_group(board: Any, other: Any) -> None:
    """Of another group, it is served where it stands; also where it comes back more than once."""
    board.set_limit("mail", concurrency=1, per="group")
    board.set_limit("print", concurrency=1)
    post(board, 600, "big")
    [lone] = board.post_many([Posting("print")])
    between = [board.post("mail", group=f"g{number}") for number in range(3)]
    post(board, 600, "big")
    last = board.post_many([Posting("mail", group=f"h{number}") for number in range(6)])
    big = take(board)
    assert take(board) == lone
    assert [take(board) for _ in range(3)] == between
    assert take(board) == last[0]
    assert take(board) == last[1]
    for come in (between[1], between[0], between[1]):
        other.abandon(other.get(come.uuid), "anna")
        assert take(board) == come
    other.abandon(other.get(lone.uuid), "anna")
    let_lapse(other, last[2])
    assert take(board) == lone
    other.abandon(other.get(between[2].uuid), "anna")
    assert [take(board) for _ in range(2)] == [between[2], last[2]]
    better = other.post("mail", group="new", priority="HIGH")
    assert [take(board) for _ in range(2)] == [better, last[3]]
    other.consume(other.get(big.uuid), "anna")
    assert take(board).group == "big"
    assert take(board) == last[4]
