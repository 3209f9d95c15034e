"""Rows that no board has written: the tables refuse them, or each stops nothing but itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

Damage = Callable[..., None]


@pytest.fixture
def damage(engine: sa.Engine, board: JobBoard) -> Damage:
    """``damage(job, column=value)``"""

    def damage(job: Any, **values: Any) -> None:
        with engine.begin() as connection:
            connection.execute(sa.update(board.table).where(board.table.c.uuid == job.uuid).values(values))

    return damage


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"state": "GARBAGE"}, "state"),
        ({"priority": 201}, "priority"),
        ({"priority": -1}, "priority"),
        ({"attempts": 2**31 - 1}, "attempts"),
        ({"token": 2**63 - 1}, "token"),
        ({"token": sa.literal("x", sa.String())}, "token"),
        ({"job_group": ""}, "job_group"),
        ({"state": "CLAIMED", "lock_until": 1, "wake_at": 1}, "owner"),
        ({"state": "CLAIMED", "who": "anna"}, "lease"),
        ({"state": "SCHEDULED"}, "lease"),
        ({"lock_until": 1, "wake_at": 1}, "lease"),
        ({"state": "SCHEDULED", "lock_until": 1}, "wake_at"),
        ({"live_key": None}, "live_key"),
        ({"live_key": "other"}, "same_key"),
        ({"state": "TRASHED", "gone_on": 1}, "live_key"),
        ({"state": "TRASHED", "live_key": None}, "gone_on"),
        ({"gone_on": 1}, "gone_on"),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_a_row_that_no_board_writes_is_refused(
    board: JobBoard, damage: Damage, backend: str, values: dict[str, Any], rule: str
) -> None:
    """One such row could stop a claim of many."""
    job = board.post("a", key="k")
    # A value of another type is refused by the column itself, but on SQLite.
    other_type = backend != "sqlite" and not isinstance(values.get("token", 0), int)
    with pytest.raises(sa.exc.DBAPIError, match=None if other_type else f"{board.table.name}_{rule}_check"):
        damage(job, **values)
    assert board.claim_next("anna") == job


@pytest.mark.backends("sqlite", "postgresql")
def test_a_condition_that_fails_behind_the_first_hundred(board: JobBoard, backend: str) -> None:
    """What was claimed before is the caller's."""
    posted = board.post_many([{"name": "a", "group": "x" if n == 120 else "1"} for n in range(150)])
    group = board.table.c.job_group
    number = sa.cast(group, sa.Integer) if backend == "postgresql" else sa.func.json_extract(group, "$")
    assert board.claim_many("anna", 150, where=number > 0) == posted[:100]
    with pytest.raises(JobFailure):
        board.claim_many("anna", 150, where=number > 0)


@pytest.mark.parametrize(
    "stored", ["it broke", "[1]", '[{"on": "x"}]', '{"on": 1}', "[" * 10_000, "null", ""], ids=lambda text: text[:9]
)
def test_errors_that_are_none(board: JobBoard, damage: Damage, stored: str) -> None:
    """They are shown as one, and the next follows it."""
    job = board.post("a", max_attempts=2)
    damage(job, errors=stored)
    taken = board.claim_next("anna")
    assert [failure[1:] for failure in taken.errors] == [(None, 0, stored)]
    board.abandon(taken, "anna", error="later")
    assert [failure[1:] for failure in board.get(job.uuid).errors] == [(None, 0, stored), ("anna", 1, "later")]


def test_a_key_that_is_nobodys(board: JobBoard, engine: sa.Engine) -> None:
    """It has outlived its job, and its window runs."""
    job = board.post("a", key="k", key_for=600)
    board.claim(job, "anna")
    board.consume(job, "anna")
    usual = list(board.examine())
    sides = board.engine.store.tables.sides
    with engine.begin() as connection:
        assert connection.execute(sa.update(sides).where(sides.c.kind == "key").values(value=b"\xc1")).rowcount == 1
    [odd] = [odd for odd in board.examine() if odd not in usual]
    assert (odd.place, "by itself at" in odd.advice) == ("key k", True)


@pytest.mark.parametrize("value", [b"\xff\x00garbage", b"", b"\x93", b"\x07"])
def test_a_gate_that_is_none(board: JobBoard, engine: sa.Engine, value: bytes) -> None:
    """Nobody knows what it has told: nothing is claimed past it."""
    board.set_limit("a", concurrency=1)
    board.post_many([{"name": "a"}] * 2)
    sides = board.engine.store.tables.sides
    with engine.begin() as connection:
        connection.execute(sa.update(sides).where(sides.c.kind == "gate").values(value=value, version=1))
    verbs = (
        board.limits,
        board.resume,
        partial(board.set_limit, "a", concurrency=2),
        partial(board.claim_next, "anna"),
    )
    for verb in (*verbs, *verbs):
        with pytest.raises(JobFailure, match="gate/rules is damaged"):
            verb()
    assert [oddity.place for oddity in board.examine() if "can't be read" in oddity.reason]
    with engine.begin() as connection:
        connection.execute(sa.delete(sides).where(sides.c.kind == "gate"))
    assert len(board.claim_many("anna", 5)) == 2
