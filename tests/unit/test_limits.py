"""Limits, with others at work in the middle of a call; what users see of them is in the conformance suite."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import jobboard
from jobboard.backends import memory

pytestmark = pytest.mark.backends("memory")

_serial = itertools.count(1)


@pytest.fixture
def boards() -> Iterator[list[Any]]:
    """Two handles on one board."""
    name = f"limits {next(_serial)}"
    both = [jobboard.fetch(name, "memory://") for _ in range(2)]
    for board in both:
        board.connect()
    yield both
    for board in both:
        board.close()
    memory.forget(name)


def test_a_claim_of_the_same_job_that_begins_before_the_earlier_ones_slot_is_freed(
    boards: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    board, other = boards
    board.set_limit("mail", concurrency=1)
    job, second = board.post("mail"), board.post("mail")
    board.claim(job, "anna")
    entered = board.engine._entered
    free = entered._free

    def late(left: Any) -> None:
        other.claim(other.get(job.uuid), "bob")
        free(left)

    monkeypatch.setattr(entered, "_free", late)
    board.abandon(job, "anna")
    assert board.claim_next("anna") is None
    assert second.state == "UNCLAIMED"
