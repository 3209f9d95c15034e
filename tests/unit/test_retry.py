"""The backoff: grows, is capped, and half of it is random; repeated for a time and not longer."""

import time

import pytest

from jobboard.retry import backoff, retrying


def test_backoff_doubles_up_to_its_cap() -> None:
    for attempt, full in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (50, 10.0), (5000, 10.0)):
        waits = [backoff(attempt, 1.0, 10.0) for _ in range(200)]
        assert all(full / 2 <= wait <= full for wait in waits)
        assert max(waits) - min(waits) > full / 8  # jitter


def test_retrying_until_it_works() -> None:
    slept: list[float] = []
    failures = [KeyError(1), KeyError(2)]

    def act() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert retrying(KeyError, 60, sleep=slept.append)(act) == "done"
    assert len(slept) == 2
    assert 0.01 <= slept[0] <= 0.02 <= 2 * slept[1] <= 0.08


@pytest.mark.parametrize("on", [KeyError, (KeyError, OSError), lambda error: isinstance(error, KeyError)])
def test_other_errors_are_raised_at_once(on: object) -> None:
    calls: list[int] = []

    def act() -> None:
        calls.append(1)
        raise KeyError if len(calls) == 1 else ValueError

    with pytest.raises(ValueError, match=r"^$"):
        retrying(on, 60, sleep=lambda seconds: None)(act)
    assert len(calls) == 2


def test_the_last_error_is_raised_when_the_time_is_up() -> None:
    calls: list[float] = []

    def act() -> None:
        calls.append(time.monotonic())
        raise KeyError(len(calls))

    with pytest.raises(KeyError) as failure:
        retrying(KeyError, 0.1, base=0.02, cap=0.02)(act)
    assert failure.value.args == (len(calls),)
    assert time.monotonic() - calls[0] >= 0.1
    assert all(call - calls[0] < 0.1 for call in calls[:-1])
    assert len(calls) <= 12
    with pytest.raises(KeyError):
        retrying(KeyError, 0)(act)
