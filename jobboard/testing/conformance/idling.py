"""What limits have counted goes when no claim stands, and never while somebody counts on it."""

from __future__ import annotations

import pytest

from jobboard.board import JobBoard
from jobboard.engine.limits import SCOPE, Listed
from jobboard.engine.store import Mark
from jobboard.job import Job, Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.between import at_each_request
from jobboard.testing.conformance.limits import post, store_of
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, let_lapse, take, uuids
from jobboard.testing.conformance.wire import Wire

AN_HOUR = 3600.0


def stored(board: JobBoard, *keys: str) -> list[bool]:
    """Whether there are side records of these scopes."""
    return [side.value is not None for side in store_of(board).read([], [(SCOPE, key) for key in keys]).sides]


def has_lists(board: JobBoard) -> bool:
    """Whether side records list the claims in a scope, which a store may count by itself instead."""
    return not store_of(board).locks_scopes


def lists(board: JobBoard, *keys: str) -> list[Listed]:
    return [Listed.read(side) for side in store_of(board).read([], [(SCOPE, key) for key in keys]).sides]


def let_age(board: JobBoard, key: str, seconds: float) -> None:
    """As if all claims in this scope had begun so much earlier."""
    store = store_of(board)
    [side] = store.read([], [(SCOPE, key)]).sides
    listed = Listed.read(side)
    assert listed.starts
    starts = tuple(start - int(seconds * 1e6) for start in listed.starts)
    store.commit([], [Mark(side, listed._replace(starts=starts).packed())])


def tidy(board: JobBoard) -> None:
    # The first call of a connection leaves scopes alone.
    board.engine.raw.tidy()
    eventually(lambda: not board.engine.raw.tidy(), LIMIT)


class TestIdleScopes:
    def test_what_was_counted_goes_when_no_claim_stands(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=2, per="group")
        board.set_limit("mail", concurrency=100)
        groups = [f"{number}" for number in range(30)]
        jobs = board.post_many([Posting("mail", group=group) for group in groups])
        held = board.claim_many("anna", 100)
        assert held == jobs
        scopes = ["mail", *(f"mail\n{group}" for group in groups)]
        assert stored(board, *scopes) == [has_lists(board)] * len(scopes)
        board.consume_many(held[1:], "anna")
        tidy(other)
        assert stored(board, *scopes) == [has_lists(board)] * 2 + [False] * 29
        again = post(board, 3, group="29")
        assert uuids(board.claim_many("anna", 3)) == again[:2], "it counts anew"
        post(board, 2, group="0")
        assert take(board).group == "0"
        assert board.claim_next("anna") is None

    @pytest.mark.parametrize("rate", [None, (1, SHORT), (1, 2 * AN_HOUR)])
    def test_starts_stay_for_an_hour_and_while_a_rate_counts_them(
        self, board: JobBoard, other: JobBoard, rate: tuple[int, float] | None
    ) -> None:
        # A clock that is set meanwhile, as those of machines are, is set by less than a minute.
        ago = {"mail": AN_HOUR - LONG, "print": AN_HOUR + 60, "resize": 2 * AN_HOUR + 60}
        for name, seconds in ago.items():
            board.set_limit(name, rate=(1, 3 * AN_HOUR))
            post(board, 1, name)
            board.consume(take(board), "anna")
            let_age(board, name, seconds)
            if rate is None:
                board.remove_limit(name)
            else:
                board.set_limit(name, rate=rate)
        tidy(other)
        assert stored(board, *ago) == [True, rate == (1, 2 * AN_HOUR), False]

    @pytest.mark.parametrize("meanwhile", ["no limit", "a concurrency", "a shorter rate"])
    def test_a_rate_counts_what_one_before_it_has_counted(
        self, board: JobBoard, other: JobBoard, meanwhile: str
    ) -> None:
        board.set_limit("mail", rate=(1, SHORT if meanwhile == "a shorter rate" else LONG))
        post(board, 4)
        board.consume(take(board), "anna")
        over = board.engine.raw.now() + int(SHORT * 1e6)
        if meanwhile == "a concurrency":
            board.set_limit("mail", concurrency=2)
            tidy(other)
            board.consume_many([take(board), take(board)], "anna")
        elif meanwhile == "no limit":
            board.remove_limit("mail")
        eventually(lambda: board.engine.raw.now() > over, LIMIT)
        tidy(other)
        board.set_limit("mail", rate=(1, LONG))
        assert board.claim_next("anna") is None

    def test_starts_of_long_ago_go_with_a_claim_that_no_rate_counts(self, board: JobBoard, other: JobBoard) -> None:
        names = ["mail", "print"]
        for name in names:
            board.set_limit(name, rate=(1, LONG))
            post(board, 2, name)
            board.consume(take(board, names=[name]), "anna")
            board.set_limit(name, concurrency=1)
        let_age(board, "mail", AN_HOUR)
        assert len(board.claim_many("anna", 2)) == 2
        if has_lists(board):
            assert [(len(claims), len(starts)) for claims, starts in lists(board, *names)] == [(1, 0), (1, 1)]
        else:
            # The claims write no side record there.
            tidy(other)
            assert stored(board, *names) == [False, True]

    def test_a_lapsed_claim_is_revived_or_its_slot_is_anothers(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("mail", concurrency=1)
        job = board.post("mail")
        let_lapse(board, job)
        tidy(other)
        board.extend(job, "anna", LONG)
        post(board, 1)
        assert other.claim_next("bert") is None

    def test_a_claim_that_begins_meanwhile_is_counted(self, board: JobBoard, wire: Wire) -> None:
        """Before each request of a tidying in turn."""
        if not wire:
            return

        def prepare(board: JobBoard) -> list[Job]:
            board.set_limit("mail", concurrency=2)
            jobs = board.post_many([Posting("mail") for _ in range(4)])
            board.consume(take(board), "anna")
            return jobs

        def sweep(board: JobBoard, _: list[Job]) -> None:
            tidy(board)

        def claim(board: JobBoard, _: list[Job]) -> str:
            return take(board, "bert").uuid

        for jobs, _, theirs in at_each_request(board, wire, prepare, sweep, claim):
            assert theirs == jobs[1].uuid
            assert stored(board, "mail") == [has_lists(board)]
            assert uuids(board.claim_many("carl", 2)) == [jobs[2].uuid]
