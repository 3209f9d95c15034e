"""Tidying: its turns are short, and ended keys leave nothing."""

import time
from typing import Any

import pytest

import jobboard
from jobboard.backends.memory import MemoryStore
from jobboard.engine import turns
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, LONG, SHORT, engine_of
from jobboard.testing.requests import requests


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of expired records that are worth a tidying."""
    monkeypatch.setattr("jobboard.engine.expirations.MANY", 20)
    return 20


@pytest.mark.rule("Outcomes are dropped in steps.")
@pytest.mark.rule("Tidying takes a small part of a lease, and at least one turn.")
def test_tidying_has_one_turn_or_more_within_its_time() -> None:
    assert list(turns(0)) == [None]

    def later() -> list[None]:
        began = time.monotonic()
        _, *later = turns(0.05)
        assert time.monotonic() - began >= 0.05
        return later

    # A thread that does not run for so long has only the first.
    assert eventually(later)


@pytest.mark.rule("Outcomes are dropped in steps.")
@pytest.mark.rule("Tidying takes a small part of a lease, and at least one turn.")
@pytest.mark.parametrize(("ttl", "seconds"), [(3, 0.1), (300, 1.0)])
def test_tidying_takes_a_small_part_of_a_lease(ttl: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    board: Any = jobboard.fetch(f"tidying within {ttl}", {"board": "memory", "claim_ttl": ttl})
    told: list[float] = []
    tidy = MemoryStore.tidy
    monkeypatch.setattr(MemoryStore, "tidy", lambda store, limit: told.append(limit) or tidy(store, limit))
    board.connect()
    board.close()
    assert told[0] == pytest.approx(seconds)


@pytest.mark.rule("Keys whose windows have ended are dropped on every backend.")
@pytest.mark.backends("memory", "sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
def test_ended_key_windows_leave_no_side_records(make_board: Any) -> None:
    board = make_board()
    ended = [f"ended{number}" for number in range(100)]
    board.post_many([Posting("resize", key=key, key_for=1.0) for key in ended])
    board.post("resize", key="runs", key_for=600)
    board.consume_many(board.claim_many("anna", 101), "anna")
    board.post("resize", key="lives", key_for=0.01)

    def left() -> list[str]:
        engine_of(board).tidy()
        found = board.engine.store.read([], [("key", key) for key in (*ended, "runs", "lives")])
        return [side.key for side in found.sides if side.value is not None]

    eventually(lambda: left() == ["runs", "lives"])
    assert not board.post("resize", key="lives").created


def outcomes_left(board: Any) -> int:
    return len(board.engine.store.sides("outcome", None, 500)[0].sides)


@pytest.mark.rule(
    "Expired records are tidied by their number, also on a board that does nothing more; an idle board tidies nothing."
)
@pytest.mark.backends("memory", "sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
@pytest.mark.parametrize("by", ["batch", "single calls", "a fixed lease"])
def test_expired_outcomes_are_dropped_by_their_number(make_board: Any, few: int, by: str) -> None:
    """Long before the next tidying by the clock, and although the board does nothing more."""
    board = make_board(keep_done=SHORT, claim_ttl=HELD)
    board.post_many([Posting("resize")] * 3 * few)
    jobs = board.claim_many("anna", 3 * few, expiry=LONG if by == "a fixed lease" else None)
    if by == "batch":
        board.consume_many(jobs, "anna")
    else:
        for job in jobs:
            board.consume(job, "anna")
    eventually(lambda: outcomes_left(board) == 0)


@pytest.mark.rule(
    "Expired records are tidied by their number, also on a board that does nothing more; an idle board tidies nothing."
)
@pytest.mark.backends("memory", "sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
def test_ended_key_windows_are_dropped_by_their_number(make_board: Any, few: int) -> None:
    board = make_board(claim_ttl=HELD)
    keys = [f"k{number}" for number in range(2 * few)]
    board.post_many([Posting("resize", key=key, key_for=1.0) for key in keys])
    board.consume_many(board.claim_many("anna", 2 * few), "anna")

    def left() -> int:
        found = board.engine.store.read([], [("key", key) for key in keys])
        return sum(side.value is not None for side in found.sides)

    eventually(lambda: left() == 0)


@pytest.mark.rule(
    "Expired records are tidied by their number, also on a board that does nothing more; an idle board tidies nothing."
)
def test_an_idle_board_tidies_nothing(make_board: Any, few: int) -> None:
    board = make_board(keep_done=SHORT, claim_ttl=LONG)
    tidied: list[bool] = []
    requests(board).before("tidy", lambda: tidied.append(True))
    board.post_many([Posting("resize")] * few)
    jobs = board.claim_many("anna", few)
    board.claims.beat()
    board.consume_many(jobs[1:], "anna")
    board.claims.beat()
    assert tidied == []
    board.consume(jobs[0], "anna")
    eventually(lambda: engine_of(board).has_leftovers or tidied)
    board.claims.beat()
    assert len(tidied) == 1
    board.claims.beat()
    assert len(tidied) == 1
    assert outcomes_left(board) == 0
