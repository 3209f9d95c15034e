"""Limits and pauses on one board that several threads use."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.engine import Rules, Side, finder
from jobboard.engine.limits import Limits
from jobboard.testing import eventually
from jobboard.testing.conformance.limits import post
from jobboard.testing.conformance.support import (
    LIMIT,
    Background,
)

# No backend can differ in these.
pytestmark = pytest.mark.backends("memory", "sqlite")

_held_up: contextvars.ContextVar[object] = contextvars.ContextVar("held_up", default=None)


class Stop:
    """A stop before one call, once, on any thread.

    :param skip: how often it comes by before."""

    def __init__(self, skip: int = 0) -> None:
        self._skip = skip
        self._reached, self._over = threading.Event(), threading.Event()

    @property
    def mine(self) -> bool:
        return _held_up.get() is self

    @property
    def reached(self) -> bool:
        return self._reached.is_set()

    def during(self, call: Callable[[], Any]) -> Background:
        """Begin a call, and wait until it is held up, or done."""

        def held() -> Any:
            _held_up.set(self)
            return call()

        begun = Background(held)
        eventually(lambda: self.reached or not begun.running, LIMIT)
        return begun

    def here(self) -> None:
        if not self.mine or self.reached:
            return
        if self._skip:
            self._skip -= 1
            return
        self._reached.set()
        assert self._over.wait(LIMIT)

    def end(self) -> None:
        self._over.set()


class TestThreadsOfOneBoard:
    """They share what was seen last of the rules; each claim is decided by one and the same of them throughout."""

    def test_thread_that_has_not_read_a_pause_obeys_it(
        self, board: JobBoard, other: JobBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        board.post("mail")
        other.pause(["mail"])
        reading = Stop()

        class SlowRules(Rules):
            @classmethod
            def of(cls, gate: Side) -> Rules:
                reading.here()
                return Rules.of(gate)

        monkeypatch.setattr(finder, "Rules", SlowRules)
        first = reading.during(lambda: board.claim_next("anna"))
        assert board.claim_next("bert", names=["mail"]) is None
        reading.end()
        assert first.wait() is None

    def test_limits_are_seen_while_another_chooses_how_to_look(
        self, board: JobBoard, other: JobBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        post(board, 3)
        bind, asked = Limits.bind, Stop()

        def answered(limits: Limits, names: Any) -> bool:
            answer = bind(limits, names)
            asked.here()
            return answer

        monkeypatch.setattr(Limits, "bind", answered)
        first = asked.during(lambda: board.claim_many("anna", 3))
        other.set_limit("mail", concurrency=1)
        assert board.claim_next("bert", names=["resize"]) is None
        asked.end()
        assert len(first.wait()) == (1 if asked.reached else 3)

    def test_another_sees_old_limits_late(self, board: JobBoard, other: JobBoard) -> None:
        """While the first one is about to count by those that it has seen."""
        other.set_limit("mail", concurrency=5)
        post(other, 4)
        other.claim_next("anna")
        assert board.claim_next("bert", names=["resize"]) is None
        store = board.engine.store
        read, look, late, early = store.read, store.look, Stop(), Stop(skip=1)

        def held_up(stop: Stop, call: Callable[..., Any]) -> Callable[..., Any]:
            def answered(*args: Any) -> Any:
                answer = call(*args)
                stop.here()
                return answer

            return answered

        store.read, store.look = held_up(late, read), held_up(early, look)
        behind = late.during(lambda: list(board.iterjobs(only_unclaimed=True)))
        other.set_limit("mail", concurrency=1)
        first = early.during(lambda: board.claim_next("bert"))
        late.end()
        behind.wait()
        early.end()
        assert first.wait() is None
