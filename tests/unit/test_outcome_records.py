"""What a consumed job leaves, as it is stored."""

import logging
from typing import Any

import pytest

from jobboard.engine import Side, StoredOutcome
from jobboard.states import COMPLETE, Failure, Record
from tests.support.jobs import make_record


def record(**values: Any) -> Record:
    failures = (Failure(2, None, 1, "no"),)
    return make_record(COMPLETE, **{"name": "ü", "posting": b"\xff", "who": "anna", "errors": failures, **values})


class TestDone:
    @pytest.mark.parametrize(
        "done",
        [
            StoredOutcome(record(), 2, 9, b"\x01", None),
            StoredOutcome(record(posting="{}", key="k", max_attempts=3, group="g", retries=1), 2, 9, '"ü"', "why"),
            StoredOutcome(record(errors=()), 2, 9),
        ],
    )
    def test_it_is_read_as_it_was_written(self, done: StoredOutcome) -> None:
        side = Side("outcome", "u", done.packed(), 9, 1)
        assert StoredOutcome.of(side) == done._replace(position=side)

    @pytest.mark.rule("A damaged outcome is passed over with a warning.")
    @pytest.mark.parametrize("value", [b"", b"\xc1", b"\x90", b"\x01", StoredOutcome(record(uuid="v"), 2, 9).packed()])
    def test_a_damaged_one_is_passed_over_with_a_warning(self, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            assert StoredOutcome.of(Side("outcome", "u", value, None, 1)) is None
        assert "the outcome of job u can't be read" in caplog.text
