"""Takes that others are in front of: many jobs, and what limits count of them, change between a look and its commit."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.job import Posting
from jobboard.testing.conformance.support import take

pytestmark = pytest.mark.backends("memory", "zookeeper", "etcd")

_AHEAD = 4
"""How many jobs the others take while this one tries one."""


def at_each_commit(board: Any, monkeypatch: pytest.MonkeyPatch, meanwhile: list[Callable[[], object]]) -> list[int]:
    """Have others do this, one thing before each commit of the board. It answers how many changes each commit had."""
    store, sizes = board.engine.store, []
    commit = store.commit

    def late(changes: Any, *args: Any, **more: Any) -> Any:
        sizes.append(len(changes))
        if meanwhile:
            meanwhile.pop(0)()
        return commit(changes, *args, **more)

    monkeypatch.setattr(store, "commit", late)
    return sizes


@pytest.mark.parametrize("limited", [False, True])
def test_who_is_far_behind_leaves_out_at_once_what_others_have_taken(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    if limited:
        board.set_limit("mail", concurrency=1, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number}") for number in range(60)])
    steps = 8
    sizes = at_each_commit(board, monkeypatch, [lambda: other.claim_many("bob", _AHEAD)] * steps)
    assert take(board, "anna") == jobs[steps * _AHEAD]
    assert len(sizes) < steps * _AHEAD / 2


def test_several_jobs_and_scopes_of_a_batch_are_lost_at_once(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.set_limit("mail", concurrency=2, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number % 10}") for number in range(30)])
    sizes = at_each_commit(board, monkeypatch, [lambda: other.claim_many("bob", 10)])
    mine = board.claim_many("anna", 10)
    assert mine == jobs[10:20]
    # Where a refusal names all that was lost, none is left to try. ZooKeeper names the first, and nine are too few.
    assert sizes == [10, 10]
    assert board.claim_next("anna") is None


def test_the_last_slot_that_another_takes_meanwhile_is_not_had_twice(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.set_limit("mail", concurrency=1)
    jobs = board.post_many([Posting("mail")] * 3 + [Posting("report")])
    at_each_commit(board, monkeypatch, [lambda: other.claim(other.get(jobs[2].uuid), "bob")])
    assert take(board, "anna") == jobs[3]
    assert board.claim_next("anna") is None


def test_a_limit_that_is_set_meanwhile_holds(board: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = board.post_many([Posting("mail")] * 3 + [Posting("report")])

    def meanwhile() -> None:
        other.set_limit("mail", concurrency=1)
        other.claim(other.get(jobs[0].uuid), "bob")

    at_each_commit(board, monkeypatch, [meanwhile])
    assert take(board, "anna") == jobs[3]
