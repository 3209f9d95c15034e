"""Limits that are set while claims stand, and by several at once."""

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
from jobboard.exceptions import ConnectionFailure, JobFailure, NotFound
from jobboard.primitives import Limit
from jobboard.testing import eventually
from jobboard.testing.conformance.limits import post, store_of
from jobboard.testing.conformance.support import LIMIT, LONG, Background, MakeBoard, lost_reply


class TestLimitSetting:
    def test_claims_that_stand_count(self, board: JobBoard, other: JobBoard) -> None:
        post(board, 6, group="one")
        held = other.claim_many("anna", 3)
        board.set_limit("mail", concurrency=4, per="group")
        assert board.limits() == [Limit("mail", "group", 4)]
        assert len(board.claim_many("anna", 10)) == 1
        other.consume(held[0], "anna")
        assert len(board.claim_many("anna", 10)) == 1

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

    def test_a_limit_that_was_removed_and_is_set_again(self, board: JobBoard, other: JobBoard) -> None:
        post(board, 4)
        board.set_limit("mail", concurrency=1)
        other.claim_next("anna")
        board.remove_limit("mail")
        assert board.limits() == []
        other.claim_next("anna")
        board.set_limit("mail", concurrency=2)
        assert other.claim_next("anna") is None

    def test_a_rate_that_gets_a_concurrency(self, board: JobBoard) -> None:
        post(board, 4)
        board.set_limit("mail", rate=(100, LONG))
        board.claim_next("anna")
        board.set_limit("mail", concurrency=1, rate=(100, LONG))
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


class Counting:
    """A limit that a board sets, held up where it begins to count the claims that stand."""

    def __init__(self, board: JobBoard, **limit: Any) -> None:
        self._store = store_of(board)
        self._page: Callable[..., Any] = self._store.page
        self._store.page = self._held_up
        self._stop, self._dies = Stop(), False
        self._setting = self._stop.during(lambda: board.set_limit("mail", **limit))
        assert self._stop.reached

    def _held_up(self, *args: Any) -> Any:
        self._stop.here()
        if self._dies:
            raise JobFailure("its process has died")
        return self._page(*args)

    def go_on(self) -> None:
        """It counts, and has returned."""
        self._stop.end()
        self._setting.wait()

    def die(self) -> None:
        self._dies = True
        with pytest.raises(JobFailure):
            self.go_on()


class TestLimitsSetAtOnce:
    """Once a set_limit has returned, what it has set binds, unless others have set something else since."""

    any_driver = True

    @pytest.fixture
    def third(self, make_board: MakeBoard) -> JobBoard:
        return make_board()

    @pytest.mark.parametrize("first_to_go_on", [0, 1])
    def test_the_same_one(self, board: JobBoard, other: JobBoard, third: JobBoard, first_to_go_on: int) -> None:
        post(board, 6)
        third.claim_next("anna")
        settings = [Counting(board, concurrency=3)]
        third.claim_next("anna")
        settings.append(Counting(other, concurrency=3))
        settings.pop(first_to_go_on).go_on()
        assert third.limits() == [Limit("mail", "name", 3)]
        assert len(third.claim_many("anna", 6)) == 1
        settings.pop().go_on()
        assert third.claim_next("anna") is None

    @pytest.mark.parametrize("first_dies", [True, False])
    def test_one_of_both_dies_as_it_counts(
        self, board: JobBoard, other: JobBoard, third: JobBoard, first_dies: bool
    ) -> None:
        post(board, 6)
        third.claim_next("anna")
        first = Counting(board, concurrency=3)
        third.claim_next("anna")
        second = Counting(other, concurrency=3)
        (first if first_dies else second).die()
        (second if first_dies else first).go_on()
        assert len(third.claim_many("anna", 6)) == 1

    def test_another_number(self, board: JobBoard, other: JobBoard, third: JobBoard) -> None:
        post(board, 6)
        third.claim_next("anna")
        first, second = Counting(board, concurrency=4), Counting(other, concurrency=2)
        first.go_on()
        assert len(third.claim_many("anna", 6)) == 1, "the later one binds"
        second.go_on()
        assert third.limits() == [Limit("mail", "name", 2)]
        assert third.claim_next("anna") is None

    def test_a_rate_in_its_place(self, board: JobBoard, other: JobBoard, third: JobBoard) -> None:
        """What begins then enters no list, so that all is to be counted anew."""
        post(board, 6)
        first = Counting(board, concurrency=1)
        other.set_limit("mail", rate=(100, LONG))
        assert len(third.claim_many("anna", 2)) == 2
        second = Counting(other, concurrency=3)
        first.go_on()
        assert third.limits() == [Limit("mail", "name", 3, binding=False)]
        second.go_on()
        assert len(third.claim_many("anna", 6)) == 1

    def test_that_is_removed_meanwhile(self, board: JobBoard, other: JobBoard, third: JobBoard) -> None:
        post(board, 6)
        first = Counting(board, concurrency=1)
        other.remove_limit("mail")
        assert len(third.claim_many("anna", 2)) == 2
        second = Counting(other, concurrency=3)
        first.go_on()
        assert third.limits() == [Limit("mail", "name", 3, binding=False)]
        second.go_on()
        assert len(third.claim_many("anna", 6)) == 1


class TestRepeatedSettings:
    """A repetition sets nothing that its first try has set, and finishes what that has begun: it counts, and binds what
    stands there by then, whoever has set that."""

    any_driver = True

    @staticmethod
    def broken_off(board: JobBoard, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
        """Set a limit whose first try is done with the setting, and breaks off before it counts."""
        store = store_of(board)
        page, tries = store.page, list[bool]()

        def breaks_off(*args: Any) -> Any:
            tries.append(True)
            if len(tries) == 1:
                meanwhile()
                raise ConnectionFailure("the connection broke", outcome="unknown")
            return page(*args)

        monkeypatch.setattr(store, "page", breaks_off)
        board.set_limit("mail", concurrency=3)
        assert tries

    def test_that_stands(self, board: JobBoard, other: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        post(board, 6)
        other.claim_next("anna")
        self.broken_off(board, monkeypatch, lambda: other.claim_next("anna"))
        assert other.limits() == [Limit("mail", "name", 3)]
        assert len(other.claim_many("anna", 6)) == 1

    def test_that_is_removed_since(self, board: JobBoard, other: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken_off(board, monkeypatch, lambda: other.remove_limit("mail"))
        assert other.limits() == []
        with lost_reply(board, "set_limit", lambda: other.remove_limit("mail")):
            board.set_limit("mail", concurrency=3)
        assert other.limits() == []

    def test_of_another_number_since(self, board: JobBoard, other: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
        post(board, 6)
        other.claim_next("anna")
        self.broken_off(board, monkeypatch, lambda: other.set_limit("mail", concurrency=2))
        assert other.limits() == [Limit("mail", "name", 2)]
        assert len(other.claim_many("anna", 6)) == 1

    def test_that_is_set_anew_since_and_not_counted_yet(
        self, board: JobBoard, other: JobBoard, make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        third, counting = make_board(), list[Counting]()
        post(board, 6)

        def set_anew() -> None:
            third.remove_limit("mail")
            assert len(third.claim_many("anna", 2)) == 2
            counting.append(Counting(other, concurrency=3))

        self.broken_off(board, monkeypatch, set_anew)
        assert third.limits() == [Limit("mail", "name", 3)]
        assert len(third.claim_many("anna", 6)) == 1
        counting[0].go_on()
        assert third.claim_next("anna") is None

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
