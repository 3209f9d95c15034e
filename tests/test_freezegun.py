"""Waits under freezegun."""

import freezegun
import pytest

import jobboard
from jobboard.testing.conformance.support import SHORT
from tests.support.conductors import MakeBoard

pytestmark = pytest.mark.backends("memory", "sqlite")


@pytest.mark.rule(
    "All clocks, threads, random numbers and uuids come from jobboard.runtime, and freezegun freezes none of them."
)
def test_waits_end_though_the_clock_is_frozen(make_board: MakeBoard) -> None:
    with freezegun.freeze_time("2026-01-01"):
        board = make_board()
        assert board.claim_next("me", timeout=SHORT) is None
        with pytest.raises(TimeoutError):
            board.post("a").result(SHORT)
        board.claim_next("me").claim.consume()
        board.post("b")
        jobboard.Conductor("one", board, lambda job: None, job_timeout=60).run(1)
