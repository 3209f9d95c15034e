"""How an engine keeps claims where a lease does it, or a session with the server, and what it clears up behind them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobboard.backends.memory import ManualClock, MemoryStore, forget
from jobboard.board import JobBoard
from jobboard.engine import Change, Committed, Found, Look, Seat, Stored
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.primitives import Nonce
from jobboard.states import CLAIMED, LIVE, OK, UNCLAIMED, Holder
from jobboard.testing import eventually
from jobboard.testing.conformance.support import engine_of, plant, take

SECOND = 1_000_000
HANDLE = "handle"

_names = itertools.count(1)


class Sessions(MemoryStore):
    """Claims live as long as their keeper is not among ``dead``; ``breaks``: what happens instead of a commit."""

    keeps: Any = "session"
    margin = 20 * SECOND

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self.traits = replace(self.traits, keeps=self.keeps)
        self.dead: set[str] = set()
        self.breaks: list[Callable[[], object]] = []

    def _alive(self, stored: Stored) -> Stored:
        return stored._replace(alive=stored.record.keeper not in self.dead)

    def read(self, uuids: Sequence[str], sides: Sequence[tuple[str, str]] = ()) -> Found:
        found = super().read(uuids, sides)
        return found._replace(jobs=[stored and self._alive(stored) for stored in found.jobs])

    def look(self, *args: Any) -> Look:
        look = super().look(*args)
        lost = [self._alive(stored) for stored in self.page(None, 1_000, None, LIVE)[1]]
        return look._replace(overdue=look.overdue + [stored for stored in lost if not stored.alive])

    def commit(self, changes: Sequence[Change], *args: Any, **more: Any) -> Committed:
        if self.breaks:
            self.breaks.pop(0)()
        for change in changes:
            if isinstance(change.after, tuple) and getattr(change.after, "state", None) == CLAIMED:
                self.dead.discard(change.after.keeper)  # type: ignore[union-attr,arg-type]
        return super().commit(changes, *args, **more)


class Leases(Sessions):
    keeps = "lease"


class Lagging(Sessions):
    precision = SECOND


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(clock: ManualClock) -> Iterator[Callable[[type[Sessions]], Any]]:
    name = f"keeping {next(_names)}"
    with contextlib.ExitStack() as stack:
        stack.callback(forget, name)

        def board(store: type[Sessions]) -> Any:
            made = JobBoard(name, {"board": "memory", "clock": clock, "retry_for": 0}, store=store)
            made.connect()
            stack.callback(made.close)
            return made

        yield board


def fails(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


AWAY = fails(ConnectionFailure("away"))


def claimed(board: Any, count: int = 1) -> list[tuple[str, int]]:
    """So many claims that the handle keeps, as nothing but the engine's."""
    board.post_many([{"name": "a"}] * count)
    kept = []
    for call in range(1, count + 1, 100):
        taken = engine_of(board).take(Nonce(HANDLE, 1, call), "anna", min(count, 100), None, None)
        kept += [(record.uuid, record.token) for record in taken.records]
    assert len(kept) == count
    return kept


def test_what_others_have_done_to_some_claims_keeps_none_of_the_rest_back(make: Any, clock: ManualClock) -> None:
    board = make(Leases)
    claims = claimed(board, 300)
    clock.advance(20)
    theirs = [uuid for uuid, _ in claims[::30]]
    board.engine.store.breaks = [lambda: [board.release(board.get(uuid)) for uuid in theirs]]
    renewed = engine_of(board).renew(HANDLE, claims, 30 * SECOND)
    assert sorted(uuid for uuid, _ in renewed.lost) == sorted(theirs)
    clock.advance(15)
    assert board.stats().claimed == 290


@pytest.mark.rule(
    "A renewal distinguishes lost claims, claims that another handle keeps, and claims with a fixed lease."
)
@pytest.mark.parametrize("engine", [Leases, Sessions])
def test_a_claim_that_somebody_has_given_a_fixed_lease_is_kept_no_longer(
    make: Any, clock: ManualClock, engine: type[Sessions]
) -> None:
    board = make(engine)
    [claim] = claimed(board)
    engine_of(board).extend(Nonce("other", 1, 1), claim[0], Holder("anna", None), 5 * SECOND)
    for left in (5, 2, 0):
        renewed = engine_of(board).renew(HANDLE, [claim], 30 * SECOND)
        assert (renewed.lost, renewed.unkept) == ([], [(*claim, left * SECOND)])
        clock.advance(3)
    assert board.get(claim[0]).seen_state == UNCLAIMED, "and it keeps that lease"


@pytest.mark.rule(
    "A renewal distinguishes lost claims, claims that another handle keeps, and claims with a fixed lease."
)
def test_a_claim_that_another_handle_keeps(make: Any) -> None:
    board = make(Sessions)
    [claim] = claimed(board)
    engine_of(board).extend(Nonce("other", 1, 1), claim[0], Holder("anna", claim[1]), None)
    assert engine_of(board).renew(HANDLE, [claim], 30 * SECOND).unkept == [(*claim, None)]


@pytest.mark.rule("A store whose clock may lag reports the least that is left of a lease.")
def test_a_clock_that_may_lag_tells_of_the_least(make: Any) -> None:
    board = make(Lagging)
    [claim] = claimed(board)
    engine_of(board).extend(Nonce("other", 1, 1), claim[0], Holder("anna", None), 5 * SECOND)
    assert engine_of(board).renew(HANDLE, [claim], 30 * SECOND).unkept == [(*claim, 4 * SECOND)]


def test_a_beat_that_always_comes_second_gives_up(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobboard.engine.tries.CALL", 7)
    board = make(Leases)
    [claim] = claimed(board)

    store, calls = board.engine.store, itertools.count(1)

    def beaten() -> None:
        left, store.breaks = store.breaks, []
        engine_of(board).extend(Nonce(HANDLE, 3, next(calls)), claim[0], Holder("anna", claim[1]), None)
        store.breaks = left

    store.breaks = [beaten] * 100
    with pytest.raises(ConnectionFailure, match="another process was quicker"):
        engine_of(board).renew(HANDLE, [claim], 40 * SECOND)


class TestForsaken:
    """The session may live on though the holder was told that its claim is lost."""

    @pytest.mark.rule("A claim that its process gave up is freed, and a later claim is left alone.")
    def test_a_claim_that_its_holder_has_extended_is_not_given_back(self, make: Any) -> None:
        board = make(Sessions)
        [claim] = claimed(board)
        board.engine.store.breaks = [AWAY, AWAY]
        engine_of(board).forsake(*claim)
        eventually(lambda: len(board.engine.store.breaks) < 2)
        board.engine.store.breaks.clear()
        status, _ = engine_of(board).extend(Nonce(HANDLE, 2, 1), claim[0], Holder("anna", claim[1]), None)
        assert status == OK
        engine_of(board).clear_up()
        assert board.get(claim[0]).seen_state == CLAIMED

    def test_a_claim_that_its_holder_could_not_extend_is_given_back(self, make: Any) -> None:
        """The session lives on, and nobody keeps the claim any more."""
        board = make(Sessions)
        [claim] = claimed(board)
        board.engine.store.hears.life.beat_soon = lambda start: None
        board.engine.store.breaks = [AWAY]
        engine_of(board).forsake(*claim)
        with pytest.raises(ConnectionFailure):
            engine_of(board).extend(Nonce(HANDLE, 2, 1), claim[0], Holder("anna", claim[1]), None)
        engine_of(board).clear_up()
        assert board.get(claim[0]).seen_state == UNCLAIMED

    @pytest.mark.rule("A claim that its process gave up is freed, and a later claim is left alone.")
    @pytest.mark.rule("A lost claim of a session that survives is given free, and a later claim is left alone.")
    def test_not_another_claim(self, make: Any) -> None:
        board = make(Sessions)
        [claim] = claimed(board)
        board.release(board.get(claim[0]))
        mine = take(board, "bert")
        engine_of(board).forsake(*claim)
        engine_of(board).clear_up()
        assert board.find_owner(mine) == "bert"


class TestDoubt:
    """Nobody waits for this call any longer."""

    def test_a_doubted_call_that_arrives_later_claims_nothing(self, make: Any) -> None:
        board = make(Sessions)
        job = board.post("a")
        nonce = Nonce(HANDLE, 1, 1)
        engine_of(board).doubt(nonce)
        engine_of(board).clear_up()
        assert engine_of(board).take(nonce, "anna", 1, None, None).records == []
        assert board.get(job.uuid).seen_state == UNCLAIMED

    @pytest.mark.rule("A call that ended in doubt is cleared up before its slot is used again.")
    def test_the_next_call_of_its_slot_waits_for_that(self, make: Any) -> None:
        """It would write over what tells of the claims."""
        board = make(Sessions)
        [claim] = claimed(board)
        board.engine.store.hears.life.beat_soon = lambda start: None
        engine_of(board).doubt(Nonce(HANDLE, 1, 1))
        assert board.get(claim[0]).seen_state == CLAIMED, "nothing has been cleared up"
        taken = engine_of(board).take(Nonce(HANDLE, 1, 2), "bert", 1, None, None).records
        assert [record.uuid for record in taken] == [claim[0]], "it was given back before"

    @pytest.mark.rule("A call that ended in doubt is cleared up before its slot is used again.")
    def test_it_is_not_forgotten_for_a_later_call_that_was_never_sent(self, make: Any) -> None:
        """As long as the first one can't be cleared up."""
        board = make(Sessions)
        [claim] = claimed(board)
        board.engine.store.hears.life.beat_soon = lambda start: None
        engine_of(board).doubt(Nonce(HANDLE, 1, 1))
        for call in (2, 3):
            board.engine.store.breaks = [fails(ConnectionFailure("away", outcome="unknown"))]
            with pytest.raises(ConnectionFailure) as failed:
                engine_of(board).take(Nonce(HANDLE, 1, call), "bert", 1, None, None)
            assert failed.value.outcome == "none"
            # As where somebody interrupts it.
            engine_of(board).doubt(Nonce(HANDLE, 1, call))
        taken = engine_of(board).take(Nonce(HANDLE, 1, 4), "bert", 1, None, None).records
        assert [record.uuid for record in taken] == [claim[0]]

    def test_a_job_that_another_worker_has_claimed_is_not_given_back(self, make: Any) -> None:
        board = make(Sessions)
        [claim] = claimed(board)
        board.release(board.get(claim[0]))
        job = take(board, "bert")
        engine_of(board).doubt(Nonce(HANDLE, 1, 1))
        engine_of(board).clear_up()
        assert board.find_owner(job) == "bert"


@pytest.mark.rule("A claim that its process gave up is freed, and a later claim is left alone.")
@pytest.mark.rule("Cleaning up after a failed call is repeated until it succeeds.")
@pytest.mark.rule("A lost claim of a session that survives is given free, and a later claim is left alone.")
@pytest.mark.parametrize("error", [JobFailure("may not"), ConnectionFailure("away"), ValueError("a bug")], ids=type)
@pytest.mark.parametrize("doubted", [True, False])
def test_a_failed_return_of_a_claim_is_repeated_until_it_succeeds(make: Any, doubted: bool, error: Exception) -> None:
    """The session lives on, and so would the claim."""
    board = make(Sessions)
    [claim] = claimed(board)
    board.engine.store.breaks = [fails(error)] * 3
    if doubted:
        engine_of(board).doubt(Nonce(HANDLE, 1, 1))
    else:
        engine_of(board).forsake(*claim)
    eventually(lambda: board.get(claim[0]).seen_state == UNCLAIMED)


def test_what_is_refused_keeps_nothing_else_from_being_given_back(make: Any) -> None:
    board = make(Sessions)
    claims = claimed(board, 3)
    board.engine.store.hears.life.beat_soon = lambda start: None
    for claim in claims:
        engine_of(board).forsake(*claim)
    board.engine.store.breaks = [fails(JobFailure("may not"))]
    with pytest.raises(JobFailure, match="may not"):
        engine_of(board).clear_up()
    assert board.stats().claimed == 1
    engine_of(board).clear_up()
    assert board.stats().claimed == 0


@pytest.mark.rule("A thread that cannot be started for closing or clearing up keeps nothing open.")
def test_without_a_thread_for_it_nothing_is_forgotten(make: Any, refused: set[str]) -> None:
    board = make(Sessions)
    claims = claimed(board, 2)
    refused.add(f"{board.name}-heartbeat")
    engine_of(board).forsake(*claims[0])
    assert board.stats().claimed == 2
    refused.clear()
    engine_of(board).forsake(*claims[1])
    eventually(lambda: board.stats().claimed == 0)


def test_a_failed_return_of_a_claim_is_repeated_when_the_board_closes(make: Any) -> None:
    board, other = make(Sessions), make(Leases)
    [claim] = claimed(board)
    board.engine.store.hears.life.beat_soon = lambda start: None
    engine_of(board).forsake(*claim)
    board.engine.store.breaks = [AWAY]
    with pytest.raises(ConnectionFailure):
        engine_of(board).clear_up()
    board.close()
    assert other.get(claim[0]).seen_state == UNCLAIMED


@pytest.mark.rule("A job that can neither be read nor trashed takes no other claim of its batch with it.")
@pytest.mark.parametrize("error", [ConnectionFailure("away"), JobFailure("may not")], ids=type)
def test_a_job_that_can_neither_be_read_nor_trashed_delays_no_other_job(make: Any, error: Exception) -> None:
    board = make(Sessions)
    plant(board, b"\xc1")
    sound = board.post("a")
    board.engine.store.breaks = [lambda: None, fails(error)]
    assert board.claim_many("anna", 2) == [sound]
    eventually(lambda: board.stats().claimed == 1)
