"""How a take on PostgreSQL enters the scope of one limit: by a statement that looks for what is known of it, or by one
that can do more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, take

pytestmark = pytest.mark.backends("postgresql")

KNOWN, FIRST, CROWDED = "UPDATE", "INSERT", "RECURSIVE"


def way(text: str) -> str:
    """By what a take enters scopes."""
    if "RECURSIVE" in text:
        return CROWDED
    return FIRST if "wanted_" in text else KNOWN


def limit(board: JobBoard, **limit: Any) -> None:
    """Have it set, and seen."""
    board.set_limit("mail", **limit)
    assert board.claim_next("anna", names=["nothing"]) is None


@pytest.fixture
def ways(board: JobBoard, spy: Any) -> Callable[..., list[str]]:
    """Takes a job, and tells by which statements; nothing is known of the takes before."""

    def ways(**wanted: Any) -> list[str]:
        board.engine._shortcuts._limited._begins.clear()
        with spy(board) as seen:
            assert board.claim_next("anna", **wanted) is not None
        return [way(text) for text in seen.texts]

    return ways


@pytest.fixture
def lists(board: JobBoard, engine: sa.Engine) -> Callable[[], dict[str, int]]:
    """How many claims the scopes list, by their keys."""
    sides = sa.table(f"{board.table.name}_sides", *map(sa.column, ("kind", "key", "value")))

    def lists() -> dict[str, int]:
        with engine.connect() as connection:
            found = connection.execute(sa.select(sides.c.key, sides.c.value).where(sides.c.kind == "scope"))
            return {key: bytes(value).count(b" ") for key, value in found}

    return lists


@pytest.mark.parametrize("names", [None, ["mail"]])
@pytest.mark.parametrize("per", ["name", "group"])
def test_a_scope_that_is_known(
    board: JobBoard, ways: Callable[..., list[str]], lists: Callable[[], dict[str, int]], per: str, names: Any
) -> None:
    """Up to the last slot one request takes a job, and no request takes one more."""
    limit(board, concurrency=3, per=per)
    board.post_many([Posting("mail", group="a")] * 5)
    key = {"name": "mail", "group": "mail\na"}[per]
    assert ways(names=names) == [KNOWN, FIRST]
    assert ways(names=names) == [KNOWN]
    assert ways(names=names) == [KNOWN]
    assert lists() == {key: 3}
    assert board.claim_next("anna", names=names) is None
    assert lists() == {key: 3}


def test_jobs_without_a_limit(
    board: JobBoard, ways: Callable[..., list[str]], lists: Callable[[], dict[str, int]]
) -> None:
    """They enter no scope: those of other names, and those without a group where each group has its limit."""
    limit(board, concurrency=1, per="group")
    board.post_many([Posting("print", group="a"), Posting("mail"), Posting("mail")])
    assert [ways(), ways(), ways(names=["mail"])] == [[KNOWN]] * 3
    assert lists() == {}


def test_by_several_limits(
    board: JobBoard, ways: Callable[..., list[str]], lists: Callable[[], dict[str, int]]
) -> None:
    """One request is enough for jobs that are in one scope, or in none."""
    board.set_limit("print", concurrency=9)
    board.set_limit("print", concurrency=2, per="group")
    limit(board, concurrency=2)
    board.post_many([Posting(name, group="a") for name in ("mail", "mail", "other", "print", "print", "mail", "print")])
    several = ["other", "print", "nothing"]
    assert [ways(), ways(), ways(), ways()] == [[KNOWN, FIRST], [KNOWN], [KNOWN], [KNOWN, FIRST]]
    assert lists() == {"mail": 2, "print": 1, "print\na": 1}
    assert ways(names=several)[1:] == [KNOWN, FIRST]
    assert lists() == {"mail": 2, "print": 2, "print\na": 2}
    board.post("print", priority="HIGH")
    assert ways() == [KNOWN]
    assert lists() == {"mail": 2, "print": 3, "print\na": 2}
    assert board.claim_next("anna") is None
    assert board.claim_next("anna", names=several) is None


def test_a_scope_of_a_limit_that_is_gone(
    board: JobBoard, ways: Callable[..., list[str]], lists: Callable[[], dict[str, int]]
) -> None:
    """Nobody enters it any more."""
    limit(board, concurrency=1)
    board.set_limit("print", concurrency=1)
    board.post_many([Posting("print")] * 2)
    board.consume(take(board), "anna")
    board.remove_limit("print")
    assert board.claim_next("anna", names=["nothing"]) is None
    assert ways() == [KNOWN]
    assert lists() == {"print": 0}


def test_a_batch(board: JobBoard) -> None:
    limit(board, concurrency=5)
    board.post_many([Posting("mail")] * 7)
    board.consume(take(board), "anna")
    board.engine._shortcuts._limited._begins.clear()
    assert len(board.claim_many("anna", 7)) == 5


def test_the_rules_have_changed(board: JobBoard, other: JobBoard) -> None:
    limit(board, concurrency=5)
    board.post_many([Posting("mail")] * 4)
    board.consume(take(board), "anna")
    take(board)
    other.pause(["mail"])
    assert board.claim_next("anna", names=["mail"]) is None
    other.resume(["mail"])
    other.set_limit("mail", concurrency=1)
    assert board.claim_next("anna", names=["mail"]) is None


def test_what_has_lapsed_comes_first(board: JobBoard, ways: Callable[..., list[str]]) -> None:
    limit(board, concurrency=5)
    first, _ = board.post_many([Posting("mail")] * 2)
    lapsed = board.claim_next("anna", expiry=0.01)
    assert lapsed == first
    eventually(lambda: board.get(first.uuid).state == "UNCLAIMED")
    board.engine._shortcuts._limited._begins.clear()
    assert take(board) == first


@pytest.mark.parametrize("starts", [1, 54])
def test_a_list_that_has_starts_as_well(
    board: JobBoard, ways: Callable[..., list[str]], lists: Callable[[], dict[str, int]], starts: int
) -> None:
    """Behind these no claim is written, be the list as long as one of claims alone."""
    board.set_limit("mail", rate=(100, 60))
    board.post_many([Posting("mail")] * (starts + 60))
    board.consume_many(board.claim_many("anna", starts), "anna")
    limit(board, concurrency=50)
    assert ways()[:3] == [KNOWN, FIRST, CROWDED]
    assert len(board.claim_many("anna", 60)) == 49
    assert lists() == {"mail": 50}


def test_a_scope_is_entered_while_it_is_tidied_away(board: JobBoard, other: JobBoard) -> None:
    limit(board, concurrency=1)
    board.post_many([Posting("mail")] * 3)
    board.consume(take(board), "anna")
    board.engine._shortcuts._limited._begins.clear()
    idle = other.engine._idle
    gone, taken = idle._gone, list[Any]()

    def late(*args: Any) -> Any:
        taken.append(board.claim_next("anna"))
        return gone(*args)

    idle._gone = late
    eventually(lambda: not other.engine.tidy())
    assert taken[0] is not None
    assert other.claim_next("bert") is None


# Ends


LATE = 60
"""After how many seconds who waits looks by itself."""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_slot_that_comes_free_wakes_who_waits(make_board: Callable[..., JobBoard], concurrency: int) -> None:
    board, other = make_board(claim_ttl=LATE), make_board(claim_ttl=LATE)
    limit(board, concurrency=concurrency)
    board.post_many([Posting("mail")] * (concurrency + 1))
    held = [take(board) for _ in range(concurrency)]
    waiter = Background(lambda: other.claim_next("bert", timeout=LATE))
    eventually(lambda: other.engine.store.waiter.mark() is not None)
    board.consume(held[0], "anna")
    assert waiter.wait(LATE / 4) is not None


def test_what_does_not_end_keeps_its_slot(
    board: JobBoard, lists: Callable[[], dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key outlives its job, which a transaction of several requests writes down; until then the claim stands."""
    limit(board, concurrency=1)
    board.post("mail", key="k", key_for=600)
    held = take(board)
    tried = list[dict[str, int]]()
    end = type(board.engine._shortcuts).end

    def ended(self: Any, *args: Any) -> Any:
        try:
            return end(self, *args)
        finally:
            tried.append(lists())

    monkeypatch.setattr(type(board.engine._shortcuts), "end", ended)
    board.consume(held, "anna")
    assert tried == [{"mail": 1}]
    assert lists() == {}


def test_a_slot_in_a_scope_that_another_holds(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """It is looked at once more, and who waits is told then."""
    board, other = make_board(claim_ttl=LATE), make_board(claim_ttl=LATE)
    limit(board, concurrency=1)
    _, second = board.post_many([Posting("mail")] * 2)
    held = take(board)
    waiter = Background(lambda: other.claim_next("bert", timeout=LATE))
    eventually(lambda: other.engine.store.waiter.mark() is not None)
    sides = sa.table(f"{board.table.name}_sides", sa.column("kind", sa.String))
    with engine.connect() as connection:
        connection.execute(sa.select(sides.c.kind).where(sides.c.kind == "scope").with_for_update())
        consumed = Background(lambda: board.consume(held, "anna"))
        eventually(lambda: board.job_count == 1)
        connection.rollback()
    consumed.wait()
    assert waiter.wait(LATE / 4) == second


def test_a_rate_lists_no_claims(board: JobBoard, spy: Any) -> None:
    """Whose end changes nothing."""
    limit(board, rate=(5, 60))
    board.post("mail")
    held = take(board)
    with spy(board) as seen:
        board.consume(held, "anna")
    [text] = seen.texts
    assert "exited_" not in text


def test_what_was_not_enough_is_left_out_for_a_while(
    board: JobBoard, spy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each name by itself; and no longer."""
    crowded = "jobboard.backends.sql.postgresql.limited.CROWDED"
    monkeypatch.setattr(crowded, 600)
    limit(board, concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "abcdeeefgh"])

    def next_ways(*names: str) -> list[str]:
        with spy(board) as seen:
            assert board.claim_next("anna", names=list(names) or None) is not None
        return [way(text) for text in seen.texts]

    assert [next_ways("mail"), next_ways("mail")] == [[KNOWN, FIRST], [FIRST]]
    monkeypatch.setattr(crowded, 0)
    assert [next_ways(), next_ways()] == [[KNOWN, FIRST]] * 2
    monkeypatch.setattr(crowded, 600)
    assert [next_ways() for _ in range(4)] == [[KNOWN, FIRST], [FIRST, CROWDED], [CROWDED], [CROWDED]]


def test_a_scope_that_goes_meanwhile(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    """Who waits for who tidies it away makes it anew."""
    limit(board, concurrency=2)
    board.post_many([Posting("mail")] * 4)
    board.consume(take(board), "anna")
    sides = sa.table(f"{board.table.name}_sides", sa.column("kind", sa.String))
    with engine.begin() as connection:
        connection.execute(sa.delete(sides).where(sides.c.kind == "scope"))
        claim = Background(lambda: other.claim_next("anna", names=["mail"]))
        waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
        eventually(lambda: bool(connection.execute(waits).scalar()))
    assert claim.wait() is not None
    assert board.claim_next("bert") is not None
    assert board.claim_next("bert") is None
