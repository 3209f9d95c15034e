"""What a consumed job leaves, as it is stored, and the shelf in memory that has the most of it."""

import logging
from typing import Any

import pytest

from jobboard.backends.memory import _Outcomes
from jobboard.engine import Done, Side
from jobboard.states import COMPLETE, Failure, Record


def record(**values: Any) -> Record:
    fixed: dict[str, Any] = {"uuid": "u", "name": "ü", "priority": 100, "sequence": 7, "key": None, "version": 1}
    fixed |= {"posting": b"\xff", "state": COMPLETE, "attempts": 2, "max_attempts": None, "token": 5, "who": "anna"}
    fixed |= {"keeper": None, "lock_until": None, "created_on": 1, "modified_on": 3}
    fixed |= {"errors": (Failure(2, None, 1, "no"),)}
    return Record(**{**fixed, **values})


def stored(tag: int, until: int | None = None, value: bytes = b"") -> Side:
    return Side("outcome", f"job-{tag}", value, until, tag)


class TestDone:
    @pytest.mark.parametrize(
        "done",
        [
            Done(record(), 2, 9, b"\x01", None),
            Done(record(posting="{}", key="k", max_attempts=3, group="g", retries=1), 2, 9, '"ü"', "why"),
            Done(record(errors=()), 2, 9),
        ],
    )
    def test_it_is_read_as_it_was_written(self, done: Done) -> None:
        side = Side("outcome", "u", done.packed(), 9, 1)
        assert Done.of(side) == done._replace(place=side)

    @pytest.mark.parametrize("value", [b"", b"\xc1", b"\x90", b"\x01", Done(record(uuid="v"), 2, 9).packed()])
    def test_a_damaged_one_is_passed_over_with_a_warning(self, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            assert Done.of(Side("outcome", "u", value, None, 1)) is None
        assert "the outcome of job u can't be read" in caplog.text


class TestShelf:
    def test_the_newest_first_also_behind_one_that_is_gone(self) -> None:
        shelf = _Outcomes()
        sides = [stored(tag * 4_000) for tag in range(10)]
        for side in sides:
            shelf.put(side)
        shelf.drop("job-20000")
        assert shelf.newest(None, 3) == sides[:6:-1]
        assert shelf.newest(sides[5], 10) == sides[4::-1]
        assert shelf.newest(sides[0], 10) == []

    def test_what_has_ended_is_dropped_in_steps(self) -> None:
        shelf = _Outcomes()
        for tag in range(25):
            shelf.put(stored(tag, until=tag))
        # Stored again, it lives longer.
        shelf.put(Side("outcome", "job-3", b"", 30, 99))
        assert shelf.tidy(19, 10)
        assert len(shelf.by_key) == 16
        assert not shelf.tidy(19, 100)
        assert [side.tag for side in shelf.newest(None, 10)] == [99, 24, 23, 22, 21, 20]
