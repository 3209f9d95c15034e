"""Dedupe windows: a key that stays taken for a time from its post, whatever becomes of the job."""

from __future__ import annotations

from jobboard.board import JobBoard
from jobboard.states import OK
from jobboard.testing.conformance.arriving import arrival, arrived, finish, free
from jobboard.testing.conformance.support import record_of, take

HOUR = 3600 * 1_000_000


class TestWindows:
    def test_a_record_keeps_its_end(self, board: JobBoard) -> None:
        before = board.engine.now()
        record = arrived(board, arrival(board, key="k")._replace(key_for=HOUR))
        assert record.key_until is not None
        assert before + HOUR <= record.key_until <= board.engine.now() + HOUR
        assert finish(board, free(record)) == [OK]
        job = take(board)
        assert job._record.key_until == record.key_until
        board.abandon(job, "anna", delay=1000)
        left = record_of(board, job)
        assert left is not None
        assert left.key_until == record.key_until
