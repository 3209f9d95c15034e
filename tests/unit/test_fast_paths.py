"""How the engine asks a store's fast paths, and what it makes of the calls that they leave to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from jobboard import codec, states
from jobboard.backends.memory import MemoryStore, forget
from jobboard.board import JobBoard
from jobboard.engine import Answer, Change, ClaimTerms, Deed, Mark, Stale, Stored, slot_of
from jobboard.engine.answers import KEPT
from jobboard.exceptions import ClaimLost
from jobboard.primitives import Draft, End, Finish, Nonce
from jobboard.states import OK, Holder, Record, Verb
from jobboard.testing.conformance.support import take, uuids

_names = itertools.count(1)


class Fast(MemoryStore):
    """A store with a fast path for each of the plain calls. asked: the calls, and whether each was done."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[tuple[str, bool]] = []

    def _done(self, verb: str, nonce: Nonce, changes: Sequence[Change], deeds: Sequence[Deed]) -> list[Stored] | None:
        """Store what a call does with its answer, as the engine would."""
        [slot] = self.read([], [slot_of(nonce)]).sides
        stored, done = Answer.of(slot), None
        if stored is None or stored.call < nonce.call:
            answer = Mark(slot, Answer(nonce.call, nonce.attempt, tuple(deeds)).packed(), KEPT)
            try:
                done = self.commit(changes, [answer]).jobs
            except Stale:
                done = None
        self.asked.append((verb, done is not None))
        return done

    def post(self, drafts: Sequence[Draft], nonce: Nonce) -> list[Stored] | None:
        deeds = [Deed(OK, draft.uuid) for draft in drafts]
        return self._done("post", nonce, [Change(None, draft) for draft in drafts], deeds)

    def take(
        self, lease: ClaimTerms, limit: int, names: Sequence[str] | None, readable: int, nonce: Nonce
    ) -> tuple[list[Stored], int | None] | None:
        look = self.look(limit, names, readable)
        if look.overdue or look.gate.value is not None:
            self.asked.append(("take", False))
            return None
        until = None if lease.ttl is None else look.now + lease.ttl
        after = [states.claim(each.record, look.now, lease.who, lease.keeper, until)[1] for each in look.ready]
        claims = [record for record in after if isinstance(record, Record)]
        changes = [Change(before, claim) for before, claim in zip(look.ready, claims, strict=True)]
        done = self._done("take", nonce, changes, [Deed(OK, each.uuid, each.token) for each in claims])
        return None if done is None else (done, look.next_event)

    def consume(self, acts: Sequence[Finish], nonce: Nonce) -> bool:
        found = self.read([act.uuid for act in acts])
        ends = [
            act.applied_to(stored and stored.record, found.now) for act, stored in zip(acts, found.jobs, strict=True)
        ]
        if any(status != OK for status, _ in ends):
            self.asked.append(("consume", False))
            return False
        changes = [Change(stored, after) for stored, (_, after) in zip(found.jobs, ends, strict=True)]
        return self._done("consume", nonce, changes, [Deed(OK, act.uuid) for act in acts]) is not None


@pytest.fixture
def board() -> Iterator[Any]:
    board = JobBoard(f"fast {next(_names)}", "memory", engine=Fast)
    with board:
        yield board
    forget(board.name)


def draft(number: int = 1) -> Draft:
    posting = codec.encode(codec.Content({}, None), "msgpack")
    uuid = f"00000000-0000-4000-8000-{number:012d}"
    return Draft(uuid, "a", 0, None, codec.VERSION, posting, None, None, None)


def test_plain_calls_go_by_them(board: Any) -> None:
    jobs = board.post_many([{"name": "a"}] * 3)
    claimed = board.claim_many("anna", 2)
    assert claimed == jobs[:2]
    board.consume(claimed[0], "anna")
    board.abandon(claimed[1], "anna", error="no luck")
    assert [(job.seen_state, job.attempts, job.error) for job in board.iterjobs()] == [
        ("UNCLAIMED", 1, "no luck"),
        ("UNCLAIMED", 0, None),
    ]
    verbs = ("post", "take", "consume", "consume")
    assert board.engine.store.asked == [(verb, True) for verb in verbs]


def test_other_calls_do_not(board: Any) -> None:
    board.post("a", key="k")
    board.set_limit("other", concurrency=1)
    board.consume(take(board), "anna")
    # What holds for claims is seen by the first that meets it.
    assert board.engine.store.asked == [("take", False)]
    board.post("a", key="k")
    board.consume(take(board), "anna")
    assert board.engine.store.asked == [("take", False)]


def test_a_call_that_is_left_to_the_engine_is_done(board: Any) -> None:
    board.post("a", key="k")
    job = take(board)
    board.release(board.get(job.uuid))
    with pytest.raises(ClaimLost):
        board.consume(job, "anna")
    assert board.engine.store.asked == [("take", True), ("consume", False)]
    assert board.job_count == 1


def test_the_next_call_of_the_slot_goes_on_from_its_answer(board: Any) -> None:
    for number in range(3):
        board.post("a")
        board.post("a", key=f"{number}")
    assert board.job_count == 6
    assert [done for _, done in board.engine.store.asked] == [True] * 3


def test_a_repetition_is_answered_as_its_first_try(board: Any) -> None:
    engine, nonce = board.engine.raw, Nonce("handle", 1, 1)
    engine.insert([draft()], nonce)
    [taken] = engine.take("anna", 1, None, None, 1, Nonce("handle", 2, 1)).records
    again = engine.take("anna", 1, None, None, 1, Nonce("handle", 2, 1, 2))
    assert [(record.uuid, record.token) for record in again.records] == [(taken.uuid, taken.token)]
    assert again.replayed
    act = Finish(taken.uuid, Holder("anna", taken.token), End(Verb.CONSUME))
    assert engine.finish([act], Nonce("handle", 3, 1)) == [OK]
    assert engine.finish([act], Nonce("handle", 3, 1, 2)) == [OK]
    assert engine.insert([draft()], nonce._replace(attempt=2)) == [(OK, taken.uuid, None)]
    assert board.job_count == 0


def test_a_first_try_that_comes_after_its_repetition_does_nothing(board: Any) -> None:
    engine = board.engine.raw
    board.post_many([{"name": "a"}] * 2)
    nonce = Nonce("handle", 1, 1)
    [taken] = engine.take("anna", 1, None, None, 1, nonce._replace(attempt=2)).records
    act = Finish(taken.uuid, Holder("anna", taken.token), End(Verb.CONSUME))
    assert engine.finish([act], Nonce("handle", 2, 1)) == [OK]
    assert engine.take("anna", 1, None, None, 1, nonce).records == []
    assert [job.seen_state for job in board.iterjobs()] == ["UNCLAIMED"]
    assert uuids(board.claim_many("anna", 2)) != [taken.uuid]
