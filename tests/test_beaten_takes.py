"""Contended takes: others claim many jobs between a look and its commit."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.job import Posting
from jobboard.testing.conformance.support import take

pytestmark = pytest.mark.backends("memory", "zookeeper")

_AHEAD = 4
"""The jobs that others take while this board tries one."""


def at_each_commit(board: Any, monkeypatch: pytest.MonkeyPatch, meanwhile: list[Callable[[], object]]) -> list[int]:
    """Let others act before each commit of the board. Return the numbers of changes of the commits."""
    store, sizes = board.engine.store, []
    commit = store.commit

    def late(changes: Any, *args: Any, **more: Any) -> Any:
        sizes.append(len(changes))
        if meanwhile:
            meanwhile.pop(0)()
        return commit(changes, *args, **more)

    monkeypatch.setattr(store, "commit", late)
    return sizes


@pytest.mark.rule("A take is decided again when another handle takes one of its jobs.")
@pytest.mark.rule("A look by handles that were beaten goes on behind the jobs that others have taken.")
@pytest.mark.parametrize("limited", [False, True])
def test_a_take_leaves_out_all_jobs_that_others_took_since_its_look(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    if limited:
        board.set_limit("mail", concurrency=1, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number}") for number in range(60)])
    steps = 8
    sizes = at_each_commit(board, monkeypatch, [lambda: other.claim_many("bob", _AHEAD)] * steps)
    assert take(board, "anna") == jobs[steps * _AHEAD]
    assert len(sizes) < steps * _AHEAD / 2


@pytest.mark.rule("A take is decided again when another handle takes one of its jobs.")
@pytest.mark.rule("A look by handles that were beaten goes on behind the jobs that others have taken.")
def test_a_batch_leaves_out_all_jobs_and_scopes_that_a_refusal_names(
    board: Any, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.set_limit("mail", concurrency=2, per="group")
    jobs = board.post_many([Posting("mail", group=f"g{number % 10}") for number in range(30)])
    sizes = at_each_commit(board, monkeypatch, [lambda: other.claim_many("bob", 10)])
    mine = board.claim_many("anna", 10)
    assert mine == jobs[10:20]
    # ZooKeeper names the first refused job alone. Nine jobs are too few, and the take looks again.
    assert sizes == [10, 10]
    assert board.claim_next("anna") is None


@pytest.mark.rule("A claim is decided by one gate, whatever other threads of its board have seen.")
@pytest.mark.rule("The last slot that another handle takes meanwhile is not given out twice.")
def test_a_take_obeys_a_limit_that_is_set_meanwhile(board: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = board.post_many([Posting("mail")] * 3 + [Posting("report")])

    def meanwhile() -> None:
        other.set_limit("mail", concurrency=1)
        other.claim(other.get(jobs[0].uuid), "bob")

    at_each_commit(board, monkeypatch, [meanwhile])
    assert take(board, "anna") == jobs[3]
