"""Takes on MariaDB beside full scopes, by what is found without a lock."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql.mariadb import openings
from jobboard.backends.sql.mariadb.heads import MariaDBHeads
from jobboard.backends.sql.mariadb.openings import rules_told
from jobboard.board import JobBoard
from jobboard.engine import Limits
from jobboard.job import Job, Posting
from jobboard.primitives import Limit
from jobboard.sql.prepared import Prepared
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take

pytestmark = pytest.mark.backends("mariadb")

PREFIXES = (f"openings{n}" for n in itertools.count())
"""Statements are made once for all tables of a prefix: each test has its own."""

WAYS = pytest.mark.parametrize("near", [(50,), (2, 4)], ids=["near", "far"])


@pytest.fixture
def make_crowded(
    make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch
) -> Callable[[tuple[int, ...]], JobBoard]:
    """A board whose takes begin among what has room, behind five jobs of a group that is full."""

    def make(near: tuple[int, ...]) -> JobBoard:
        monkeypatch.setattr(openings, "NEAR", near)
        monkeypatch.setattr(openings, "MORE", near[-1] + 1)
        monkeypatch.setattr(openings, "CROWDED", 60.0)
        board = make_board(table=next(PREFIXES))
        board.set_limit("mail", concurrency=2, per="group")
        board.post_many([Posting("mail", group="big")] * 7)
        assert {take(board).group for _ in range(2)} == {"big"}
        small = board.post("mail", group="small")
        assert take(board) == small
        assert board.engine._shortcuts._openings.crowded(None)
        return board

    return make


@contextlib.contextmanager
def locked(engine: sa.Engine, board: JobBoard, *jobs: Job) -> Iterator[None]:
    """Somebody is about to claim these jobs, or to change them."""
    c = board.table.c
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        for job in jobs:
            connection.execute(sa.select(c.id).where(c.id == job.sequence).with_for_update()).all()
        yield


@WAYS
@pytest.mark.parametrize("spare", [0, 8])
@pytest.mark.parametrize("group", ["a", None])
def test_nothing_that_has_room_as_well_is_passed_over(
    make_crowded: Any, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, near: Any, spare: int, group: str | None
) -> None:
    """Others hold the first job of a group; behind it that group has room yet, or needs none."""
    monkeypatch.setattr(openings, "SPARE", spare)
    board = make_crowded(near)
    first, second, _ = board.post_many([Posting("mail", group=each) for each in (group, group, "b")])
    with locked(engine, board, first):
        assert take(board) == second


@WAYS
def test_what_needs_no_room_is_never_passed_over(make_crowded: Any, engine: sa.Engine, near: Any) -> None:
    board = make_crowded(near)
    *first, last, _ = board.post_many([Posting("mail", group=each) for each in (None, None, None, "b")])
    with locked(engine, board, *first):
        assert take(board) == last


def test_a_job_that_is_listed_twice(make_crowded: Any, make_board: Callable[..., JobBoard]) -> None:
    """By an earlier claim, too, that others have ended."""
    board = make_crowded((50,))
    again, second, _ = board.post_many([Posting("mail", group=each) for each in "aab"])
    other = make_board(table=board.table.name)
    assert take(board) == again
    other.release(other.get(again.uuid))
    assert take(board) == again
    assert take(board) == second


@WAYS
def test_claims_that_have_ended_take_no_room(
    make_crowded: Any, make_board: Callable[..., JobBoard], engine: sa.Engine, near: Any
) -> None:
    """Others have ended them, and left them on the list."""
    board = make_crowded(near)
    other = make_board(table=board.table.name)
    ended = board.post("mail", group="a")
    assert take(board) == ended
    other.consume(other.get(ended.uuid), "anna")
    first, second, _ = board.post_many([Posting("mail", group=each) for each in "aab"])
    with locked(engine, board, first):
        assert take(board) == second


@WAYS
def test_what_others_are_about_to_fill_is_passed_over(make_crowded: Any, engine: sa.Engine, near: Any) -> None:
    board = make_crowded(near)
    board.set_limit("mail", concurrency=1, per="group")
    assert board.claim_next("anna") is None, "by the rules as they are now"
    first, _, third = board.post_many([Posting("mail", group=each) for each in ("a", "a", "b")])
    with locked(engine, board, first):
        assert take(board) == third
    assert take(board) == first


@WAYS
@pytest.mark.parametrize("value", [b"]" * 108, b"\xff" * 108, b"1;" * 54], ids=["brackets", "bytes", "starts"])
def test_a_list_that_is_damaged_keeps_nobody_out(make_crowded: Any, engine: sa.Engine, near: Any, value: bytes) -> None:
    board = make_crowded(near)
    sides = sa.table(f"{board.table.name}_sides", *map(sa.column, ("kind", "key", "value")))
    with engine.begin() as connection:
        change = sa.update(sides).where(sides.c.kind == "scope", sides.c.key == "mail\nbig")
        assert connection.execute(change.values(value=value)).rowcount == 1
    board.post("mail", group="b")
    assert take(board).group == "big"


def test_behind_a_full_group_a_take_is_two_requests(make_crowded: Any, spy: Any) -> None:
    board = make_crowded((50,))
    wanted = board.post_many([Posting("mail", group=each) for each in "abcde"])
    for names in (None, ["mail"]):
        board.engine._shortcuts._openings.crowd(None if names is None else "mail")
        take(board, names=names)
        with spy(board) as seen:
            take(board, names=names)
        assert [text.split()[0] for text in seen.texts] == ["SELECT", "BEGIN"]
    assert take(board) == wanted[-1]


def test_several_fill_scopes_together(make_crowded: Any, spy: Any) -> None:
    board = make_crowded((50,))
    jobs = board.post_many([Posting("mail", group=each) for each in ("a", "a", "a", "b", None, None, "b", "b", "c")])
    with spy(board) as seen:
        claimed = board.claim_many("anna", 6)
    assert claimed == [*jobs[:2], *jobs[3:7]]
    assert len(seen.texts) == 3
    assert board.claim_many("anna", 6) == [jobs[8]]


def test_what_is_overdue_comes_first(make_crowded: Any) -> None:
    board = make_crowded((50,))
    due = board.post("mail", group="a", priority="HIGH", delay=0.05)
    board.post_many([Posting("mail", group="b")] * 3)
    eventually(lambda: board.get(due.uuid).state == "UNCLAIMED")
    assert [board.claim_many("anna", 2)[0], take(board).group] == [due, "b"]


def test_where_nothing_is_full_any_more_takes_are_as_before(make_crowded: Any, spy: Any) -> None:
    board = make_crowded((10,))
    board.post_many([Posting("mail", group=f"{n}", priority="HIGH") for n in range(30)])
    take(board)
    with spy(board) as seen:
        take(board)
    assert len(seen.texts) == 1


def test_a_server_that_cuts_long_lists_off(make_crowded: Any, engine: sa.Engine) -> None:
    with engine.connect() as connection:
        was = connection.exec_driver_sql("SELECT @@GLOBAL.group_concat_max_len").scalar()
        connection.exec_driver_sql("SET GLOBAL group_concat_max_len = 12")
    try:
        board = make_crowded((50,))
        jobs = board.post_many([Posting("mail", group=f"{n}") for n in range(20)])
        assert board.claim_many("anna", 20) == jobs
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"SET GLOBAL group_concat_max_len = {was}")


def test_from_group_to_group(make_crowded: Any) -> None:
    """By the entries of the index that begin a group: those of a big group are not read."""
    board = make_crowded((50,))
    board.post_many([Posting("mail", group="big")] * 1000)
    heads = board.engine.store.statements.part(MariaDBHeads).heads([])
    link = board.engine.store.links.run(lambda link: link)
    text, values = Prepared(sa.select(heads)).compiled(link.dialect, {"p_board": board.name, "p_readable": 1})
    link.cursor.execute(f"EXPLAIN {text}", values)
    plan = [row[-1] for row in link.cursor.fetchall()]
    assert any("Using index for group-by" in each for each in plan), plan


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ([Limit("mail", concurrency=1), Limit("resize", concurrency=2, per="group")], True),
        ([Limit("mail", concurrency=1), Limit("mail", concurrency=2, per="group")], False),
        ([Limit("mail", concurrency=1, rate=(1, 9.0))], False),
    ],
)
def test_by_which_rules_it_decides(limits: list[Limit], told: bool) -> None:
    rules = Limits(limits)
    assert (rules_told(rules, None) is not None) == told
    assert rules_told(rules, ["print"]) is not None
