"""Limits, with others at work in the middle of a call; what users see of them is in the conformance suite."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import jobboard
from jobboard.backends import memory
from jobboard.engine import Mark

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


@pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\x01", b"\x92\x91\x05\x90", b"\x92\x91\x92\x05\x05\x90"])
def test_a_damaged_scope_begins_anew(boards: list[Any], value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    board, other = boards
    board.set_limit("mail", concurrency=1)
    committer = board.engine._committer
    [side] = committer.store.read([], [("scope", "mail")]).sides
    committer.commit([], [Mark(side, value)])
    first, second = board.post("mail"), board.post("mail")
    assert other.claim_next("anna") == first
    assert other.claim_next("anna") is None
    assert second.state == "UNCLAIMED"
    assert "'mail' begins anew: it is damaged" in caplog.text


def test_a_peek_meets_limits_that_were_set_since(boards: list[Any]) -> None:
    board, other = boards
    first, _ = board.post("mail"), board.post("mail")
    board.claim(first, "anna")
    assert other.engine.peek(None, 1).any
    board.set_limit("mail", concurrency=1)
    assert not other.engine.peek(None, 1).any
