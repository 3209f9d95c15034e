"""Tidying up never keeps a claim from being renewed, or anybody from connecting."""

import time
from typing import Any

import pytest

import jobboard
from jobboard.engine import turns


def test_it_has_one_turn_at_least() -> None:
    assert list(turns(0)) == [None]


def test_its_turns_end() -> None:
    began = time.monotonic()
    met = list(turns(0.05))
    assert len(met) > 1
    assert 0.05 <= time.monotonic() - began < 5


@pytest.mark.parametrize(("ttl", "seconds"), [(3, 0.1), (300, 1.0)])
def test_it_takes_a_small_part_of_a_lease(ttl: float, seconds: float) -> None:
    board: Any = jobboard.fetch("tidying", {"board": "memory", "claim_ttl": ttl})
    told: list[float] = []
    tidy = board.engine.tidy
    board.engine.tidy = lambda limit: told.append(limit) or tidy(limit)
    board.connect()
    board.close()
    assert told == [pytest.approx(seconds)]
