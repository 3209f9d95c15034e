"""Claims that stood before a limit was set: on SQL they count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Limit
from jobboard.testing.conformance.limits import post, store_of
from jobboard.testing.conformance.setting import Stop
from jobboard.testing.conformance.support import LONG, MakeBoard

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def test_claims_that_stand_count(board: JobBoard, other: JobBoard) -> None:
    post(board, 6, group="one")
    held = other.claim_many("anna", 3)
    board.set_limit("mail", concurrency=4, per="group")
    assert board.limits() == [Limit("mail", "group", 4)]
    assert len(board.claim_many("anna", 10)) == 1
    other.consume(held[0], "anna")
    assert len(board.claim_many("anna", 10)) == 1


def test_a_limit_that_was_removed_and_is_set_again(board: JobBoard, other: JobBoard) -> None:
    post(board, 4)
    board.set_limit("mail", concurrency=1)
    other.claim_next("anna")
    board.remove_limit("mail")
    assert board.limits() == []
    other.claim_next("anna")
    board.set_limit("mail", concurrency=2)
    assert other.claim_next("anna") is None


def test_a_rate_that_gets_a_concurrency(board: JobBoard) -> None:
    post(board, 4)
    board.set_limit("mail", rate=(100, LONG))
    board.claim_next("anna")
    board.set_limit("mail", concurrency=1, rate=(100, LONG))
    assert board.claim_next("anna") is None


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


class TestSetAtOnce:
    """Once a set_limit has returned, what it has set binds, unless others have set something else since."""

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
        second.go_on()
        assert len(third.claim_many("anna", 6)) == 1

    def test_that_is_removed_meanwhile(self, board: JobBoard, other: JobBoard, third: JobBoard) -> None:
        post(board, 6)
        first = Counting(board, concurrency=1)
        other.remove_limit("mail")
        assert len(third.claim_many("anna", 2)) == 2
        second = Counting(other, concurrency=3)
        first.go_on()
        second.go_on()
        assert len(third.claim_many("anna", 6)) == 1


class TestSetAgain:
    """A repetition finishes what its first try has begun: it counts for what stands there by then."""

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
