"""The calls of a board's engine: their slots, and their repetitions."""

import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jobboard.engine import RetryingEngine, time_left
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import boottime
from jobboard.primitives import Nonce
from jobboard.testing import eventually


def open_engine(retry_for: float = 5, slot_calls: float = math.inf) -> RetryingEngine:
    """An open engine whose calls are functions of the test."""
    raw: Any = SimpleNamespace(slot_calls=slot_calls, doubt=lambda nonce: None)
    engine = RetryingEngine(raw, retry_for)
    engine.begin()
    return engine


@pytest.fixture
def engine() -> RetryingEngine:
    return open_engine()


class TestCalls:
    def test_each_call_has_a_nonce_of_its_own(self, engine: RetryingEngine) -> None:
        nonces = [engine._mutate(lambda nonce: nonce)[0] for _ in range(3)]
        assert {(nonce.handle, nonce.slot, nonce.attempt) for nonce in nonces} == {(engine.handle, 1, 1)}
        assert [nonce.call for nonce in nonces] == [1, 2, 3]

    def test_calls_at_the_same_time_are_in_slots_of_their_own(self, engine: RetryingEngine) -> None:
        def outer(nonce: Any) -> Any:
            inner, _ = engine._mutate(lambda inner: inner)
            return nonce, inner

        (first, second), _ = engine._mutate(outer)
        assert (first.slot, second.slot) == (1, 2)
        again = [engine._mutate(outer)[0] for _ in range(2)]
        assert {nonce.slot for pair in again for nonce in pair} == {1, 2}
        calls = [(nonce.slot, nonce.call) for pair in [(first, second), *again] for nonce in pair]
        assert len(set(calls)) == len(calls)

    def test_a_repetition_keeps_its_nonce(self, engine: RetryingEngine) -> None:
        seen: list[Any] = []

        def call(what: str, nonce: Any, **extra: Any) -> str:
            assert extra == {"extra": 1}
            seen.append(nonce)
            if len(seen) < 4:
                raise ConnectionFailure("down")
            return what

        before = boottime()
        answer, sent = engine._mutate(call, "what", extra=1)
        assert answer == "what"
        assert sent > before + 0.01  # of the try that was answered
        assert [(nonce.slot, nonce.call, nonce.attempt) for nonce in seen] == [(1, 1, n) for n in (1, 2, 3, 4)]
        assert engine._mutate(lambda nonce: nonce)[0].call == 2

    def test_other_errors_are_not_repeated(self, engine: RetryingEngine) -> None:
        calls: list[int] = []

        def fail(nonce: Any) -> None:
            calls.append(nonce.call)
            raise JobFailure("refused")

        for _ in range(2):
            with pytest.raises(JobFailure):
                engine._mutate(fail)
        assert calls == [1, 2]

    @pytest.mark.parametrize(
        ("outcomes", "expected"),
        [(["none"], "none"), (["unknown", "none"], "unknown"), (["none", "unknown", "none"], "unknown")],
    )
    def test_what_is_said_when_the_retries_run_out(self, outcomes: list[Any], expected: str) -> None:
        engine = open_engine(0.1)

        def fail(*nonce: Any) -> None:
            raise ConnectionFailure("down", outcome=outcomes.pop(0) if len(outcomes) > 1 else outcomes[0])

        with pytest.raises(ConnectionFailure) as failure:
            engine._mutate(fail)
        assert failure.value.outcome == expected

    def test_queries_are_repeated_too(self, engine: RetryingEngine) -> None:
        calls: list[int] = []

        def look(what: int) -> int:
            calls.append(what)
            if len(calls) < 3:
                raise ConnectionFailure("down")
            return what

        assert engine._query(look, 7) == 7
        assert calls == [7, 7, 7]

    def test_no_time_for_a_second_try(self) -> None:
        engine = open_engine(0)
        left: list[float | None] = []

        def fail(*nonce: Any) -> None:
            left.append(time_left())
            raise ConnectionFailure("down", outcome="unknown")

        for call in (engine._mutate, engine._query):
            with pytest.raises(ConnectionFailure) as failure:
                call(fail)
            assert failure.value.outcome == "unknown"
        assert left == [0, 0]

    def test_the_first_try_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long it takes: all tries together have the time that the call has."""
        engine = open_engine(60)
        late = 1000.0  # whole seconds, which no sum rounds
        left: list[float | None] = []

        def fail(*nonce: Any) -> None:
            nonlocal late
            left.append(time_left())
            late += 45
            raise ConnectionFailure("down")

        monkeypatch.setattr("jobboard.engine.retrying.boottime", lambda: late)
        monkeypatch.setattr(engine, "rest", lambda seconds: None)
        for call in (engine._mutate, engine._query):
            with pytest.raises(ConnectionFailure):
                call(fail)
        assert left == [60, 15, 60, 15]
        assert time_left() is None

    def test_no_pause_goes_beyond_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = open_engine(0.3)
        pauses: list[float] = []
        rest = engine.rest
        monkeypatch.setattr(engine, "rest", lambda seconds: pauses.append(seconds) or rest(seconds))

        def fail() -> None:
            raise ConnectionFailure("down")

        with pytest.raises(ConnectionFailure):
            engine._query(fail)
        assert sum(pauses) <= 0.3

    def test_the_end_ends_the_retries(self) -> None:
        engine = open_engine(60)
        calls: list[int] = []

        def fail() -> None:
            calls.append(1)
            raise ConnectionFailure("down")

        raised: list[BaseException] = []

        def run() -> None:
            try:
                engine._query(fail)
            except ConnectionFailure as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: len(calls) > 1, 10)
        engine.end()
        thread.join(5)
        assert not thread.is_alive()
        assert len(raised) == 1

    def test_a_closed_engine_takes_no_call(self, engine: RetryingEngine) -> None:
        engine.end()
        for call in (engine._mutate, engine._query):
            with pytest.raises(ConnectionFailure, match="call connect"):
                call(lambda *nonce: None)


def calls(made: RetryingEngine, count: int) -> list[tuple[int, int]]:
    nonces: list[Nonce] = [made._mutate(lambda nonce: nonce)[0] for _ in range(count)]
    return [(nonce.slot, nonce.call) for nonce in nonces]


def test_a_slot_that_has_served_its_calls_is_replaced() -> None:
    assert calls(open_engine(0, slot_calls=2), 5) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize("outcome", ["none", "unknown"])
def test_a_slot_whose_last_call_failed_goes_on(outcome: str) -> None:
    """The try may still be on its way: what refuses it is the next call of its slot."""
    made = open_engine(0, slot_calls=2)
    assert calls(made, 1) == [(1, 1)]

    def fails(nonce: Nonce) -> None:
        assert nonce.call == 2
        raise ConnectionFailure("gone", None, outcome)

    with pytest.raises(ConnectionFailure):
        made._mutate(fails)
    assert calls(made, 2) == [(1, 3), (2, 1)]
