"""RetryingEngine: the slots of its calls, and their repetition."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.engine import RetryingEngine, time_left
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Nonce
from jobboard.runtime import boottime
from jobboard.testing.conformance.support import Background


def open_engine(call: Callable[..., Any], retry_for: float = 5, slot_calls: float = math.inf) -> RetryingEngine:
    """Return an open engine with two verbs: ``now`` for a query, and ``claim`` for a mutation.

    :param call: does both. A mutation passes its nonce.
    """
    backend = SimpleNamespace(traits=SimpleNamespace(slot_calls=slot_calls))
    raw: Any = SimpleNamespace(backend=backend, acts=0, doubt=lambda nonce: None, now=call)
    raw.claim = lambda nonce, uuid, who, expiry: call(nonce)
    engine = RetryingEngine(raw, retry_for)
    engine.begin()
    return engine


def mutate(engine: RetryingEngine) -> Any:
    """Make a mutation. Return its answer, and when the answered try was sent."""
    return engine.claim("uuid", "anna", None)


def both(engine: RetryingEngine) -> list[Callable[[], object]]:
    return [lambda: mutate(engine), engine.now]


def returned(nonce: Nonce) -> Nonce:
    return nonce


class Failing:
    """Calls that fail until ``answers_at`` calls were made, with the nonce, the begin and the time left of each."""

    def __init__(self, answers_at: float = math.inf, outcomes: tuple[Any, ...] = ("none",)) -> None:
        self.answers_at = answers_at
        self.outcomes = list(outcomes)
        self.seen: list[Any] = []
        self.begins: list[float] = []
        self.left: list[float | None] = []

    def __call__(self, *nonce: Nonce) -> str:
        self.seen += nonce or [None]
        self.begins.append(boottime())
        self.left.append(time_left())
        if len(self.seen) >= self.answers_at:
            return "done"
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        raise ConnectionFailure("down", outcome=outcome)


def test_calls_at_the_same_time_have_slots_of_their_own() -> None:
    nested = True

    def call(nonce: Nonce) -> list[Nonce]:
        nonlocal nested
        inner = nested
        nested = False
        return [nonce, *(mutate(engine)[0] if inner else [])]

    engine = open_engine(call)
    first = mutate(engine)[0]
    assert [nonce.slot for nonce in first] == [1, 2]
    nested = True
    second = mutate(engine)[0]
    assert {nonce.slot for nonce in second} == {1, 2}
    assert sorted((nonce.slot, nonce.call) for nonce in first + second) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert {nonce.handle for nonce in first + second} == {engine.handle}


def test_a_repetition_keeps_its_nonce() -> None:
    call = Failing(answers_at=4)
    engine = open_engine(call)
    answer, sent = mutate(engine)
    assert answer == "done"
    assert call.begins[-2] <= sent <= call.begins[-1], "the last try was answered"
    assert [(nonce.slot, nonce.call, nonce.attempt) for nonce in call.seen] == [(1, 1, n) for n in (1, 2, 3, 4)]
    mutate(engine)
    assert call.seen[-1][2:] == (2, 1)
    again = Failing(answers_at=3)
    assert open_engine(again).now() == "done"
    assert len(again.seen) == 3


@pytest.mark.rule("A board says that the outcome is unknown if a try may have been carried out.")
@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [(("none",), "none"), (("unknown", "none"), "unknown"), (("none", "unknown", "none"), "unknown")],
)
def test_the_outcome_is_unknown_if_any_try_may_have_acted(outcomes: tuple[Any, ...], expected: str) -> None:
    call = Failing(outcomes=outcomes)
    engine = open_engine(call, 60)
    engine.sleep_unless_closed = lambda seconds: engine.end() if len(call.seen) > len(outcomes) else None  # type: ignore[method-assign]
    with pytest.raises(ConnectionFailure) as failure:
        mutate(engine)
    assert failure.value.outcome == expected


@pytest.mark.rule("A call takes no longer than retry_for, and makes no second try after that.")
def test_without_retry_for_there_is_one_try() -> None:
    call = Failing(outcomes=("unknown",))
    engine = open_engine(call, 0)
    for act in both(engine):
        with pytest.raises(ConnectionFailure) as failure:
            act()
        assert failure.value.outcome == "unknown"
    assert call.left == [0, 0]


@pytest.mark.rule("A call takes no longer than retry_for, and makes no second try after that.")
def test_the_time_of_the_first_try_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tries together have ``retry_for``."""
    late = 1000.0  # whole seconds, which no sum rounds
    call = Failing()

    def slow(*nonce: Nonce) -> str:
        nonlocal late
        try:
            return call(*nonce)
        finally:
            late += 45

    engine = open_engine(slow, 60)
    monkeypatch.setattr("jobboard.runtime.boottime", lambda: late)
    monkeypatch.setattr(engine, "sleep_unless_closed", lambda seconds: None)
    for act in both(engine):
        with pytest.raises(ConnectionFailure):
            act()
    assert call.left == [60, 15, 60, 15]
    assert time_left() is None


@pytest.mark.rule("A call takes no longer than retry_for, and makes no second try after that.")
@pytest.mark.rule("A call whose connection breaks is not repeated beyond the time of its caller.")
def test_no_pause_exceeds_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(Failing(), 0.3)
    pauses: list[float] = []
    rest = engine.sleep_unless_closed
    monkeypatch.setattr(engine, "sleep_unless_closed", lambda seconds: pauses.append(seconds) or rest(seconds))
    with pytest.raises(ConnectionFailure):
        engine.now()
    assert sum(pauses) <= 0.3


@pytest.mark.rule("A retry loop ends when the board is closed.")
def test_the_end_of_an_engine_ends_repetitions() -> None:
    call, repeats = Failing(), threading.Event()

    def failing() -> str:
        if len(call.seen) > 1:
            repeats.set()
        return call()

    engine = open_engine(failing, 600)
    task = Background(engine.now)
    assert repeats.wait(20)
    engine.end()
    with pytest.raises(ConnectionFailure):
        task.wait()
    for act in both(engine):
        with pytest.raises(ConnectionFailure, match="call connect"):
            act()


@pytest.mark.rule("A slot that has served many calls is replaced, but not while its last call is in doubt.")
def test_a_slot_is_replaced_after_its_calls() -> None:
    engine = open_engine(returned, 0, slot_calls=2)
    nonces = [mutate(engine)[0] for _ in range(5)]
    assert [(nonce.slot, nonce.call) for nonce in nonces] == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]


@pytest.mark.rule("A slot that has served many calls is replaced, but not while its last call is in doubt.")
@pytest.mark.parametrize("outcome", ["none", "unknown"])
def test_a_slot_whose_last_call_failed_has_another_call(outcome: Any) -> None:
    """The failed try may still be on its way. The next call of its slot refuses the try."""
    seen: list[tuple[int, int]] = []

    def call(nonce: Nonce) -> None:
        seen.append((nonce.slot, nonce.call))
        if nonce.call == 2:
            raise ConnectionFailure("gone", None, outcome)

    engine = open_engine(call, 0, slot_calls=2)
    mutate(engine)
    with pytest.raises(ConnectionFailure):
        mutate(engine)
    for _ in range(2):
        mutate(engine)
    assert seen == [(1, 1), (1, 2), (1, 3), (2, 1)]
