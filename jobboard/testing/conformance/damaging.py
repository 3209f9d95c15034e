"""A gate that is damaged: nobody knows what it has told, so nothing is claimed past it, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from jobboard import notifier
from jobboard.board import JobBoard
from jobboard.engine import GATE, Mark
from jobboard.exceptions import JobFailure
from jobboard.job import Posting
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.limits import post, store_of
from jobboard.testing.conformance.support import (
    HELD,
    LIMIT,
    LONG,
    SHORT,
    MakeBoard,
    record_of,
    replaced,
    take,
    until_free,
    uuids,
)

GARBAGE = b"\xc1"


def write_gate(board: JobBoard, value: bytes | None) -> None:
    store = store_of(board)
    store.commit([], [Mark(store.read([], [GATE]).sides[0], value)])


def odd_gate(board: JobBoard) -> list[str]:
    return [each.reason for each in board.examine() if "gate/rules is damaged" in each.reason]


class TestDamagedGate:
    any_driver = True

    @pytest.fixture(params=[GARBAGE, b"", b"\x93", b"\x07", b"\x93\xc2\x90"], ids=bytes.hex)
    def damage(self, board: JobBoard, request: pytest.FixtureRequest) -> Callable[[], None]:
        return partial(write_gate, board, request.param)

    def test_nothing_is_claimed(self, board: JobBoard, other: JobBoard, damage: Callable[[], None]) -> None:
        jobs = post(board, 3, group="one")
        board.set_limit("mail", concurrency=1)
        board.pause()
        assert other.claim_next("anna") is None
        damage()
        verbs: list[Callable[[JobBoard], Any]] = [
            lambda each: each.claim_next("anna"),
            lambda each: each.claim_next("anna", timeout=LIMIT),
            lambda each: each.claim_many("anna", 5, names=["mail"]),
            lambda each: each.claim(each.get(jobs[0]), "anna"),
            lambda each: list(each.wait(LIMIT)),
            lambda each: list(each.iterjobs(only_unclaimed=True)),
            JobBoard.paused,
            JobBoard.limits,
            JobBoard.resume,
            lambda each: each.set_limit("mail", concurrency=2),
        ]
        for each in (board, other):
            for verb in (*verbs, *verbs):
                with pytest.raises(JobFailure, match="gate/rules is damaged"):
                    verb(each)
        assert uuids(board.iterjobs()) == uuids(other.iterjobs()) == jobs
        assert len(odd_gate(board)) == 1
        write_gate(board, None)
        assert odd_gate(board) == []
        other.set_limit("mail", concurrency=2, per="group")
        assert uuids(board.claim_many("anna", 5)) == jobs[:2]
        assert odd_gate(other) == []

    def test_all_else_goes_on(self, board: JobBoard, other: JobBoard, damage: Callable[[], None]) -> None:
        board.set_limit("mail", concurrency=6, rate=(100, LONG))
        post(board, 6)
        consumed, abandoned, trashed, released, extended, many = board.claim_many("anna", 6)
        damage()
        told: list[tuple[str, str]] = []
        board.notifier.register("*", lambda event, details: told.append((event, details["job"].uuid)))
        board.consume(consumed, "anna")
        board.abandon(abandoned, "anna")
        board.trash(trashed, "anna")
        other.release(other.get(released.uuid))
        board.extend(extended, "anna")
        board.consume_many([many], "anna")
        assert [job.claim is not None and job.claim.ended for job in (consumed, abandoned, trashed, many)] == [True] * 4
        expected = {
            (notifier.CONSUMED, consumed.uuid),
            (notifier.ABANDONED, abandoned.uuid),
            (notifier.TRASHED, trashed.uuid),
            (notifier.EXTENDED, extended.uuid),
            (notifier.CONSUMED, many.uuid),
        }
        eventually(lambda: expected <= {*told}, LIMIT)
        posted = other.post("mail", key="k")
        assert {job: other.get(job.uuid).state for job in (abandoned, trashed, released, extended, posted)} == {
            abandoned: UNCLAIMED,
            trashed: TRASHED,
            released: UNCLAIMED,
            extended: CLAIMED,
            posted: UNCLAIMED,
        }
        assert {consumed.state, many.state} == {COMPLETE}
        other.cancel(posted)
        board.restore(other.get(trashed.uuid))
        assert board.stats().unclaimed == 3
        assert other.job_count == 4
        board.engine.raw.tidy()
        board.engine.raw.tidy()

    def test_a_claim_that_has_lapsed(self, board: JobBoard, other: JobBoard) -> None:
        """It is not revived, as its slot may be another's. It can be ended, as nobody has claimed the job since."""
        board.set_limit("mail", concurrency=1)
        post(board, 2)
        job = take(board, expiry=SHORT)
        until_free(other, job)
        write_gate(board, GARBAGE)
        with pytest.raises(JobFailure, match="gate/rules is damaged"):
            board.extend(job, "anna")
        assert other.get(job.uuid).state == UNCLAIMED
        board.consume(job, "anna")
        assert job.state == COMPLETE

    def test_a_heartbeat_that_meets_one_that_has_lapsed(self, board: JobBoard, make_board: MakeBoard) -> None:
        """The other claims of the same request are renewed."""
        keeper = make_board(claim_ttl=HELD)
        board.set_limit("resize", concurrency=1)
        first, second = board.post_many([Posting("resize"), Posting("crop")])
        beats: list[Any] = []

        def late(original: Callable[..., Any], handle: str, held: list[tuple[str, int]], ttl: int) -> Any:
            if not beats:
                eventually(lambda: board.find_owner(first) is None, LIMIT)
                stands = take(keeper, names=["crop"])
                write_gate(board, GARBAGE)
                held = [*held, (stands.uuid, stands.record.token)]
            beats.append(original(handle, held, ttl))
            return beats[-1]

        with replaced(keeper, "renew", late):
            lapsed = take(keeper, names=["resize"])
            record = record_of(board, lapsed)
            assert record is not None
            if record.lock_until is None:
                # No lease is stored that could lapse while its holder lives.
                return
            eventually(lambda: beats, LIMIT)
        assert beats[0].lost == [(lapsed.uuid, record.token)]
        assert board.find_owner(second) == "anna"
