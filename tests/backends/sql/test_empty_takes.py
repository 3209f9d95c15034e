"""Empty answers to takes: each rests on a whole look, and no other call waits for the one that looks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.engine import HeldTooLong, committer
from jobboard.engine.finder import LAST_WAIT
from jobboard.engine.limits import LOCK_WAIT
from jobboard.exceptions import ClaimLost, NotFound
from jobboard.job import Job, Posting
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
SERVERS = pytest.mark.backends("postgresql", "mariadb")


@pytest.mark.rule("An empty answer to a take rests on one whole look.")
@pytest.mark.parametrize("names", [None, ["a"], ["a", "b"]], ids=["any", "one", "two"])
def test_a_take_looks_again_where_another_sweeps_meanwhile(
    make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch, names: list[str] | None
) -> None:
    """The take refuses as a delay has ended. When it asks for the reason, there is none left."""
    board, other = make_board(), make_board()
    first = board.post("a")
    late = board.post("late", delay=0.01)
    eventually(lambda: late.state == "UNCLAIMED")
    paths = board.engine.store._fast  # type: ignore[union-attr]
    read = paths._read

    def swept(*args: Any) -> Any:
        other.claim_next("bob", names=["nobody"])
        return read(*args)

    monkeypatch.setattr(paths, "_read", swept)
    assert board.claim_next("anna", names=names) == first


@pytest.mark.rule("A take looks behind a scope whose last slot another takes meanwhile.")
@pytest.mark.parametrize("many", [False, True], ids=["next", "many"])
def test_a_take_looks_behind_a_scope_whose_last_slot_another_takes(
    make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=1)
    board.pause(["other"])
    board.post_many([Posting("mail")] * 40)
    free = board.post_many([Posting("print")] * 3)
    store = board.engine.store
    lock_scopes, quicker = store.lock_scopes, []

    def locked(*args: Any) -> Any:
        if not quicker:
            quicker.append(other.claim_next("bob", names=["mail"]))
        return lock_scopes(*args)

    monkeypatch.setattr(store, "lock_scopes", locked)
    assert board.claim_many("anna", 2 if many else 1) == free[: 2 if many else 1]
    assert quicker[0].name == "mail"


@contextlib.contextmanager
def scopes_held(board: JobBoard, engine: sa.Engine) -> Iterator[None]:
    """Lock the scopes of limits, as a process that was stopped inside of a take."""
    c = board.engine.store.tables.sides.c  # type: ignore[union-attr]
    rows = sa.select(c.place).where(c.board == board.name, c.kind == "scope").with_for_update()
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        assert connection.execute(rows).all()
        yield
        connection.rollback()


def jobs_of_a_held_scope(board: JobBoard, engine: sa.Engine) -> list[Job]:
    """Have a board find a scope held, and leave its takes to the engine. Return the free jobs of the scope."""
    board.set_limit("mail", concurrency=2)
    jobs = board.post_many([Posting("mail")] * 3)
    # The records of a scope come with its first claim.
    board.abandon(board.claim(jobs[0], "bob").job, "bob")
    with scopes_held(board, engine):
        assert board.claim_next("anna") is None
    board.pause(["other"])
    return jobs


@pytest.mark.rule("Unlimited jobs do not wait for the scope of a limit.")
@SERVERS
@pytest.mark.parametrize("concurrency", [2, 100])
def test_unlimited_jobs_do_not_wait_for_a_scope_that_is_held(
    board: JobBoard, engine: sa.Engine, concurrency: int
) -> None:
    board.set_limit("mail", concurrency=concurrency)
    limited = board.post_many([Posting("mail")] * 30)
    free = board.post_many([Posting("print")] * 4)
    # Their records come with the first claim.
    board.abandon(board.claim(limited[0], "bob").job, "bob")
    with scopes_held(board, engine):
        # In spite of the lock, which stays to the end of the block.
        assert [board.claim_next("anna") for _ in free] == free
        assert board.claim_next("anna") is None
    assert board.claim_next("anna") == limited[0]


@pytest.mark.rule("Unlimited jobs do not wait for the scope of a limit.")
@SERVERS
def test_a_take_waits_for_a_scope_again_once_it_was_free(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of_a_held_scope(board, engine)
    store = board.engine.store
    lock_scopes, waits = store.lock_scopes, []
    monkeypatch.setattr(store, "lock_scopes", lambda places, wait: waits.append(wait) or lock_scopes(places, wait))
    assert [board.claim_next("anna") for _ in range(2)] == jobs[:2]
    assert waits == [0, LOCK_WAIT]


@pytest.mark.rule("A take returns nothing only after a wait for the scopes that others hold.")
@SERVERS
def test_a_take_waits_for_a_scope_before_it_returns_nothing(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among many takes somebody always holds the scope, for a moment."""
    jobs = jobs_of_a_held_scope(board, engine)
    store = board.engine.store
    lock_scopes, waits = store.lock_scopes, []

    def locked(places: Any, wait: float) -> Any:
        waits.append(wait)
        with contextlib.nullcontext() if wait else scopes_held(board, engine):
            return lock_scopes(places, wait)

    monkeypatch.setattr(store, "lock_scopes", locked)
    assert board.claim_next("anna") == jobs[0]
    assert waits == [0, LAST_WAIT]


@pytest.mark.rule("A take waits for a scope as long as others work in it.")
def test_a_take_waits_for_a_scope_as_long_as_others_work_in_it(
    make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many processes want a scope, each wait may be too short."""
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=2)
    board.pause(["other"])
    jobs = board.post_many([Posting("mail")] * 9)
    store = board.engine.store
    lock_scopes, waits = store.lock_scopes, []

    def locked(places: Any, wait: float) -> Any:
        waits.append(wait)
        if len(waits) > 6:
            return lock_scopes(places, wait)
        other.consume(other.claim_next("bob"), "bob")
        raise HeldTooLong

    monkeypatch.setattr(store, "lock_scopes", locked)
    assert board.claim_next("anna") == jobs[6]
    assert all(waits)


@pytest.mark.rule("A take that others have beaten waits without locks.")
@SERVERS
def test_a_beaten_take_holds_no_lock_while_it_waits(
    make_board: Callable[..., JobBoard], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, other = make_board(), make_board()
    jobs = board.post_many([Posting("mail")] * 80)
    store = board.engine.store
    grab, beaten, free = store.grab, [], []

    def late(some: Any, limit: int) -> Any:
        # Others claim the jobs that this take is about to lock, in two tries.
        if len(beaten) < 20:
            beaten.extend(other.claim(other.get(stored.record.uuid), "bob") for stored in some)
        return grab(some, limit)

    def backoff(*_: Any) -> float:
        c = board.table.c
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            rows = connection.execute(sa.select(c.id).where(c.board == board.name).with_for_update(skip_locked=True))
            free.append(len(rows.all()))
            connection.rollback()
        return 0.0

    monkeypatch.setattr(store, "grab", late)
    monkeypatch.setattr(committer.retry, "backoff", backoff)
    assert board.claim_next("anna", where=sa.true()) == jobs[len(beaten)]
    assert free
    assert set(free) == {len(jobs)}


@pytest.mark.rule("A take that has waited for a scope claims behind the jobs of others in the same turn.")
@SERVERS
def test_a_take_that_has_waited_for_a_scope_claims_behind_the_jobs_of_others(
    make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would else give its turn away, and under contention lose each one that it has waited for."""
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=40)
    board.pause(["other"])
    jobs = board.post_many([Posting("mail")] * 20)
    store = board.engine.store
    lock_scopes, turns = store.lock_scopes, []

    def locked(*args: Any) -> Any:
        turns.append(other.claim_many("bob", 8))
        return lock_scopes(*args)

    monkeypatch.setattr(store, "lock_scopes", locked)
    assert board.claim_next("anna") == jobs[8]
    assert len(turns) == 1


@pytest.mark.rule("An empty answer to a take rests on one whole look.")
@SERVERS
def test_one_worker_empties_the_board_beside_others(make_board: Callable[..., JobBoard]) -> None:
    """Takes that meet jobs of others, which give them back, return no empty answer while jobs are free."""
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=1)
    board.post_many([Posting("mail")] * 10 + [Posting("print")] * 10)
    done: list[Job] = []
    while (job := board.claim_next("anna")) is not None:
        rival = other.claim_next("bob")
        with contextlib.suppress(ClaimLost, NotFound):
            board.consume(job, "anna")
        done.append(job)
        if rival is not None:
            other.abandon(rival, "bob")
    assert len(done) == 20
