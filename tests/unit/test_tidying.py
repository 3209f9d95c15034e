"""Tidying: its turns are short, and ended keys leave nothing."""

import time
from typing import Any

import pytest

import jobboard
from jobboard.engine import turns
from jobboard.job import Posting
from jobboard.testing import eventually


def test_tidying_has_one_turn_or_more_within_its_time() -> None:
    assert list(turns(0)) == [None]

    def later() -> list[None]:
        began = time.monotonic()
        _, *later = turns(0.05)
        assert time.monotonic() - began >= 0.05
        return later

    # A thread that does not run for so long has only the first.
    assert eventually(later)


@pytest.mark.parametrize(("ttl", "seconds"), [(3, 0.1), (300, 1.0)])
def test_tidying_takes_a_small_part_of_a_lease(ttl: float, seconds: float) -> None:
    board: Any = jobboard.fetch(f"tidying within {ttl}", {"board": "memory", "claim_ttl": ttl})
    told: list[float] = []
    tidy = board.engine.raw.tidy
    board.engine.raw.tidy = lambda limit: told.append(limit) or tidy(limit)
    board.connect()
    board.close()
    assert told[0] == pytest.approx(seconds)


@pytest.mark.backends("memory", "sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
def test_ended_key_windows_leave_no_side_records(make_board: Any) -> None:
    board = make_board()
    ended = [f"ended{number}" for number in range(100)]
    board.post_many([Posting("resize", key=key, key_for=1.0) for key in ended])
    board.post("resize", key="runs", key_for=600)
    board.consume_many(board.claim_many("anna", 101), "anna")
    board.post("resize", key="lives", key_for=0.01)

    def left() -> list[str]:
        board.engine.raw.tidy()
        found = board.engine.store.read([], [("key", key) for key in (*ended, "runs", "lives")])
        return [side.key for side in found.sides if side.value is not None]

    eventually(lambda: left() == ["runs", "lives"])
    assert not board.post("resize", key="lives").created
