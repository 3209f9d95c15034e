"""Limits that are set, by several at once, and again."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.engine import Rules, Side, finding
from jobboard.engine.limits import Limits
from jobboard.exceptions import JobFailure, NotFound
from jobboard.primitives import Limit
from jobboard.testing import eventually
from jobboard.testing.conformance.limits import post, store_of
from jobboard.testing.conformance.support import LIMIT, Background, MakeBoard, lost_reply


class TestLimitSetting:
    def test_a_limit_below_what_is_claimed(self, board: JobBoard, other: JobBoard) -> None:
        post(board, 6)
        board.set_limit("mail", concurrency=4)
        held = other.claim_many("anna", 4)
        board.set_limit("mail", concurrency=2)
        for job in held[:2]:
            other.extend(job, "anna")
            other.consume(job, "anna")
            assert board.claim_next("anna") is None
        other.consume(held[2], "anna")
        assert board.claim_next("anna") is not None
        assert board.claim_next("anna") is None

    def test_of_one_that_is_not_there(self, board: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        with pytest.raises(NotFound, match="no limit of 'mail' per group"):
            board.remove_limit("mail", per="group")
        board.remove_limit("mail", per="name")
        with pytest.raises(NotFound, match="limits\\(\\) lists them"):
            board.remove_limit("mail")

    def test_beside_a_pause(self, board: JobBoard) -> None:
        post(board, 3)
        board.set_limit("mail", concurrency=2)
        board.pause(["mail"])
        assert board.limits() == [Limit("mail", "name", 2)]
        assert board.claim_next("anna") is None
        board.resume()
        assert len(board.claim_many("anna", 10)) == 2

    @pytest.mark.parametrize(
        ("arguments", "error", "told"),
        [
            ({}, ValueError, "give concurrency= or rate="),
            ({"concurrency": 0}, ValueError, "concurrency=0: must be 1 or more"),
            ({"concurrency": 10_001}, ValueError, "concurrency=10001: must be 10000 at most"),
            ({"concurrency": "4"}, TypeError, "concurrency must be an int, not str"),
            ({"concurrency": 1, "per": "customer"}, ValueError, "per='customer': must be 'name' or 'group'"),
            ({"rate": 5}, TypeError, r"rate=5: must be how many claims"),
            ({"rate": (5, 0)}, ValueError, "the seconds of rate=0"),
            ({"rate": (0, 5)}, ValueError, "the claims of rate=0: must be 1 or more"),
        ],
    )
    def test_bad_ones(self, board: JobBoard, arguments: dict[str, object], error: type[Exception], told: str) -> None:
        with pytest.raises(error, match=told):
            board.set_limit("mail", **arguments)  # type: ignore[arg-type]
        assert board.limits() == []

    def test_a_closed_board(self, make_board: MakeBoard) -> None:
        board = make_board()
        board.close()
        with pytest.raises(JobFailure):
            board.set_limit("mail", concurrency=1)


_held_up: contextvars.ContextVar[object] = contextvars.ContextVar("held_up", default=None)


class Stop:
    """Where one call is held up, once, when it comes by, on whatever thread.

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


class TestRepeatedSettings:
    """A repetition sets nothing that its first try has set."""

    any_driver = True

    def test_that_is_removed_since(self, board: JobBoard, other: JobBoard) -> None:
        with lost_reply(board, "set_limit", lambda: other.remove_limit("mail")):
            board.set_limit("mail", concurrency=3)
        assert other.limits() == []

    def test_of_what_is_paused(self, board: JobBoard, other: JobBoard) -> None:
        with lost_reply(board, "pause", other.resume):
            board.pause(["mail"])
        assert not other.paused()
        board.pause()
        with lost_reply(board, "resume", lambda: other.pause(["mail"])):
            board.resume()
        assert other.paused().names == ("mail",)

    def test_by_many_at_once(self, board: JobBoard, make_board: MakeBoard) -> None:
        names = [f"mail {number}" for number in range(5)]

        def set_both(one: JobBoard, name: str) -> None:
            one.pause([name])
            one.set_limit("mail", concurrency=2)

        begun = [Background(partial(set_both, make_board(), name)) for name in names]
        for each in begun:
            each.wait()
        assert board.paused().names == tuple(names)
        assert board.limits() == [Limit("mail", "name", 2)]


class TestOneBoardOfSeveralThreads:
    """They share what was seen last of the rules; each claim is decided by one and the same of them throughout."""

    any_driver = True

    def test_one_has_not_read_yet_what_is_paused(
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

        monkeypatch.setattr(finding, "Rules", SlowRules)
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
        store = store_of(board)
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
