"""What becomes of a job when its work ends, by what the work raised."""

import contextvars
import functools
from types import SimpleNamespace

import pytest

from jobboard.outcomes import CONSUMED, Outcome, Reject, Retry, cancelled, check_handler, outcome_of, working_on
from jobboard.states import Verb


def job(attempts: int = 1, lost: bool = False, seen_lost: bool = False) -> SimpleNamespace:
    return SimpleNamespace(attempts=attempts, claim=SimpleNamespace(lost=lost, seen_lost=seen_lost))


def test_work_that_returns() -> None:
    assert outcome_of(None, job()) == CONSUMED == Outcome(Verb.CONSUME)
    assert outcome_of(None, job(lost=True)).verb == Verb.ABANDON
    assert outcome_of(None, job(seen_lost=True)).verb == Verb.ABANDON


def test_reject() -> None:
    assert outcome_of(Reject("why"), job()) == Outcome(Verb.TRASH, None, "why")


@pytest.mark.parametrize("delay", [0, 5, 2.5])
def test_retry_with_a_delay(delay: float) -> None:
    assert outcome_of(Retry("later", delay=delay), job(9)) == Outcome(Verb.ABANDON, delay, "later")


@pytest.mark.parametrize(("attempts", "least", "most"), [(1, 0.5, 1), (2, 1, 2), (4, 4, 8), (30, 300, 600)])
def test_the_usual_backoff(attempts: int, least: float, most: float) -> None:
    for error in (Retry(), ValueError("broken")):
        outcome = outcome_of(error, job(attempts))
        assert outcome.verb == Verb.ABANDON
        assert outcome.delay is not None
        assert least <= outcome.delay <= most


def test_the_error_is_kept() -> None:
    assert outcome_of(Retry(), job()).error is None
    try:
        raise ValueError("broken") from KeyError("underneath")
    except ValueError as error:
        outcome = outcome_of(error, job())
    assert outcome.error is not None
    assert outcome.error.startswith("KeyError: 'underneath'")
    assert "test_outcomes.py" in outcome.error
    assert outcome.error.endswith("ValueError: broken\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_is_no_exception(error: BaseException) -> None:
    assert outcome_of(error, job()).verb == Verb.ABANDON


class Resizer:
    def __init__(self, job: object = None) -> None: ...

    def __call__(self, job: object) -> None: ...

    def resize(self, job: object) -> None: ...


def test_a_class_is_no_handler() -> None:
    for handler in (print, Resizer(), Resizer().resize, functools.partial(Resizer())):
        assert check_handler(handler) is handler
    for given in (Resizer, functools.partial(Resizer), functools.partial(functools.partial(Resizer))):
        with pytest.raises(TypeError, match=r"function, or an instance that has __call__: .* class Resizer "):
            check_handler(given)


def test_cancelled() -> None:
    assert not cancelled()
    work = job()
    with working_on(work):
        assert not cancelled()
        work.claim.lost = True
        assert cancelled()
        with working_on(job()):
            assert not cancelled()
        assert cancelled()
        assert not contextvars.Context().run(cancelled)
    assert not cancelled()
