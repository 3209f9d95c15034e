"""What becomes of a job when its work ends, by what the work raised."""

import contextvars
import dataclasses
import functools
import pickle
import random
import re
from types import SimpleNamespace

import pytest

from jobboard.outcomes import (
    OneFailure,
    Reject,
    Retry,
    RetryPolicy,
    _current,
    cancelled,
    check_handler,
    decide_end,
    end_of_work,
    refused_work,
    working_on,
)
from jobboard.primitives import End
from jobboard.reasons import cause_of, literal_of, reason_line
from jobboard.states import FailureKind, Verb


def job(attempts: int = 1, lost: bool = False, retries: int = 0, max_attempts: int | None = None) -> SimpleNamespace:
    claim = SimpleNamespace(lost=lost, token=1, who="me")
    counts = {"attempts": attempts, "retries": retries, "max_attempts": max_attempts}
    return SimpleNamespace(uuid="its", name="a", claim=claim, **counts)


def test_retries_and_failures_make_one_backoff() -> None:
    policy = RetryPolicy(base=1, cap=1000)
    for error in (Retry(), ValueError("broken")):
        delay = end_of_work(error, job(attempts=2, retries=4), policy).delay
        assert delay is not None
        assert 16 <= delay / 1e6 <= 32


@pytest.mark.rule("Retry and Reject steer in the group of a TaskGroup, too.")
def test_a_group_of_nothing_but_steering_errors_steers() -> None:
    """As a TaskGroup raises it."""
    later, never, broken = Retry("later"), Reject("never"), ValueError("broken")
    end, counts = decide_end(ExceptionGroup("tasks", [later, ExceptionGroup("more", [later])]), job())
    assert end.retry
    assert counts is later
    end, counts = decide_end(ExceptionGroup("tasks", [later, never]), job())
    assert end == End(Verb.TRASH, error="never", kind=FailureKind.REJECTED)
    assert counts is never
    group = ExceptionGroup("tasks", [never, broken])
    end, counts = decide_end(group, job())
    assert end.verb == Verb.ABANDON
    assert counts is group


@pytest.mark.rule("A retry without a delay does not come back at once.")
def test_a_retry_is_not_at_once() -> None:
    policy = RetryPolicy(base=1e-6, max_attempts=5)
    assert end_of_work(Retry(), job(), policy).delay == 100_000
    for counted in (Retry(count=True), ValueError("broken")):
        delay = end_of_work(counted, job(), policy).delay
        assert delay is not None
        assert delay < 100_000


def test_a_policy_bounds_attempts_and_retries() -> None:
    policy = RetryPolicy(max_attempts=2, max_retries=2)
    assert end_of_work(Retry(), job(attempts=2, retries=1), policy).retry
    assert end_of_work(Retry("enough"), job(attempts=1, retries=2), policy) == End(
        Verb.TRASH, error="enough", kind=FailureKind.RETRY
    )
    assert end_of_work(Retry("enough"), job(retries=2), RetryPolicy(max_retries=None)).retry
    assert end_of_work(Retry(count=True), job(attempts=1, retries=2), policy).verb == Verb.ABANDON
    assert end_of_work(Retry(count=True), job(attempts=2), policy).verb == Verb.TRASH
    with pytest.raises(ValueError, match="max_retries"):
        RetryPolicy(max_retries=0)


@pytest.mark.rule(
    "Of two limits of attempts the lower one counts, and the default binds only jobs that were posted without one."
)
@pytest.mark.parametrize(
    ("posted", "policy", "most"),
    [
        (None, RetryPolicy(), 25),
        (50, RetryPolicy(), 50),
        (50, RetryPolicy(max_attempts=30), 30),
        (20, RetryPolicy(max_attempts=30), 20),
        # Said, and not left at the default.
        (50, RetryPolicy(max_attempts=25), 25),
        (None, RetryPolicy(max_attempts=None), None),
        # As they travel to a process, and as they are changed.
        (50, pickle.loads(pickle.dumps(RetryPolicy())), 50),
        (50, dataclasses.replace(RetryPolicy(), base=2), 50),
        (None, OneFailure(), 25),
    ],
)
def test_which_limit_of_attempts_counts(posted: int | None, policy: RetryPolicy, most: int | None) -> None:
    assert policy.attempts_of(job(max_attempts=posted)) == most
    if most is None:
        assert end_of_work(ValueError("broken"), job(1000, max_attempts=posted), policy).verb == Verb.ABANDON
        assert refused_work(job(1000, max_attempts=posted), policy) is None
        return
    last, beyond = job(most, max_attempts=posted), job(most + 1, max_attempts=posted)
    assert end_of_work(ValueError("broken"), last, policy).verb == Verb.TRASH
    assert end_of_work(Retry(), last, policy).verb == Verb.ABANDON
    assert refused_work(last, policy) is None
    refused = refused_work(beyond, policy)
    assert refused.verb == Verb.TRASH
    assert f"its {most} attempts are used up" in refused.error


def test_the_first_failure_ends_it_and_no_lapse_does() -> None:
    assert end_of_work(ValueError("broken"), job(), OneFailure()).verb == Verb.TRASH
    assert end_of_work(Retry(), job(), OneFailure()).verb == Verb.ABANDON
    assert refused_work(job(attempts=2), OneFailure()) is None
    verbs = [end_of_work(ValueError("broken"), job(tries, max_attempts=2), OneFailure()).verb for tries in (1, 2)]
    assert verbs == [Verb.ABANDON, Verb.TRASH]


@pytest.mark.parametrize(("attempts", "least", "most"), [(1, 0.5, 1), (2, 1, 2), (4, 4, 8), (30, 300, 600)])
def test_the_usual_backoff(attempts: int, least: float, most: float) -> None:
    for error in (Retry(), ValueError("broken")):
        outcome = end_of_work(error, job(attempts), RetryPolicy(max_attempts=None))
        assert outcome.verb == Verb.ABANDON
        assert outcome.delay is not None
        assert least <= outcome.delay / 1e6 <= most


@pytest.mark.rule("A policy that raises is not asked again, and its error counts as a failure.")
def test_a_policy_that_raises_is_not_asked_again() -> None:
    class Own(RetryPolicy):
        def delay(self, times: int) -> float:
            raise KeyError("no such delay")

    error = ValueError("broken")
    outcome, mistake = decide_end(error, job(2), Own(max_attempts=2))
    assert (outcome.verb, mistake) == (Verb.TRASH, error), "no delay is asked for after the last attempt"
    outcome, mistake = decide_end(error, job(), Own(max_attempts=2))
    assert isinstance(mistake, KeyError)
    assert mistake.__cause__ is error
    assert outcome.verb == Verb.ABANDON
    assert 0.5 <= outcome.delay / 1e6 <= 1
    assert "no such delay" in outcome.error


@pytest.mark.rule(
    "Lists and logs show the line of an error that says why, also of messages of several lines and of groups."
)
def test_the_line_with_the_reason_of_an_error() -> None:
    assert reason_line("frames\n  x\nValueError: no\n\n") == "ValueError: no"
    assert reason_line("- as it is -") == "- as it is -"
    assert reason_line("\n posted twice\nsee the ticket\n") == "posted twice"
    assert reason_line("can't save:\n  - a\n  - b") == "can't save:"
    assert reason_line(None) == reason_line("") == reason_line(" \n") == ""
    assert reason_line("Traceback (most recent call last):\n  x\n") == "x"


@pytest.mark.rule(
    "Lists and logs show the line of an error that says why, also of messages of several lines and of groups."
)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        # As of SQLAlchemy, psycopg and pydantic, whose errors end with a link or a mark.
        ("the database is locked\n[SQL: SELECT 1]\n(Background on this error at: https://x)", "the database is locked"),
        ("\n\n  an indented text\nand more", "an indented text"),
        ("no luck with\nTraceback of another kind", "no luck with"),
    ],
)
def test_a_reason_of_several_lines_is_cut_behind_its_first(text: str, line: str) -> None:
    noted = ValueError(text)
    noted.add_note("tell the operator")
    for cause in (None, OSError("one\ntwo")):
        with pytest.raises(ValueError, match=re.escape(text)) as raised:
            raise noted from cause
        assert reason_line(end_of_work(raised.value, job()).error) == f"ValueError: {line}"
    group = ExceptionGroup("two", [KeyError("one"), noted])
    assert reason_line(end_of_work(group, job()).error) == f"ValueError: {line}"


@pytest.mark.rule(
    "Lists and logs show the line of an error that says why, also of messages of several lines and of groups."
)
def test_the_line_with_the_reason_of_a_group_of_errors() -> None:
    """As asyncio.TaskGroup raises it: around the traceback of each is a frame."""
    flat = ExceptionGroup("two", [ValueError("one"), ValueError("disk is full")])
    nested = ExceptionGroup("outer", [KeyError("one"), ExceptionGroup("inner", [flat])])
    for group in (flat, nested):
        text = end_of_work(group, job()).error
        assert text is not None
        assert text.endswith("---\n")
        assert reason_line(text) == "ValueError: disk is full"


@pytest.mark.rule("A search by a cause passes over no error of the cause.")
def test_errors_of_a_cause_contain_its_literal_text() -> None:
    pieces = [
        "ValueError:",
        "disk is full",
        "no file 'x7.jpg'",
        "it's",
        "id 17: gone",
        "0xff",
        "…",
        "a\tb",
        "  ",
        "é",
        "\n",
    ]
    draw = random.Random(1)
    for _ in range(2000):
        text = draw.choice([" ", "\n", ""]).join(draw.choices(pieces, k=draw.randrange(6)))
        one = ValueError(text)
        for error in (text, *(str(end_of_work(each, job()).error) for each in (one, ExceptionGroup(text, [one])))):
            assert literal_of(cause_of(error)) in error
    assert literal_of("ValueError: no file … of job …") == "no file "
    assert literal_of("KeyError: …") == "KeyError"
    assert literal_of("…") == literal_of("") == ""


class Resizer:
    def __init__(self, job: object = None) -> None: ...

    def __call__(self, job: object) -> None: ...

    def resize(self, job: object) -> None: ...


@pytest.mark.rule("A class is refused as a handler, also inside functools.partial.")
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


@pytest.mark.rule("A block of working() may be left in another thread or context.")
def test_work_that_ends_in_another_context() -> None:
    """As between two threads of a pool, or two tasks."""
    begun, ended = contextvars.Context(), contextvars.Context()
    outer, inner = working_on(job(lost=True)), working_on(job())
    ended.run(outer.__enter__)
    begun.run(inner.__enter__)
    copy = begun.copy()
    ended.run(inner.__exit__)
    assert ended.run(cancelled)
    copy.run(inner.__exit__)
    assert copy.run(_current.get) is None
