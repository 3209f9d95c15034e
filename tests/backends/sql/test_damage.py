"""Rows that no board has written: each stops nothing but itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import notifier
from jobboard.backends.sql.oddities import odd_rows
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.priorities import JobPriority

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

Damage = Callable[..., None]


@pytest.fixture
def damage(engine: sa.Engine, board: JobBoard) -> Damage:
    """``damage(job, column=value)``"""

    def damage(job: Any, **values: Any) -> None:
        with engine.begin() as connection:
            connection.execute(sa.update(board.table).where(board.table.c.uuid == job.uuid).values(values))

    return damage


UNCLAIMABLE = pytest.mark.parametrize("values", [{"token": 2**63 - 1}, {"attempts": 2**31 - 1}], ids=str)


@UNCLAIMABLE
@pytest.mark.parametrize("options", [{}, {"names": ["a"]}, {"names": ["a", "b"]}], ids=str)
def test_what_can_not_be_claimed_goes_to_the_trash(
    board: JobBoard, damage: Damage, values: dict[str, Any], options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = board.post_many([{"name": "a", "priority": "HIGH"}] * 2 + [{"name": "a"}] * 2)
    for job in jobs[:2]:
        damage(job, **values)
    heard: list[str] = []
    board.notifier.register(notifier.TRASHED, lambda event, details: heard.append(details["job"].uuid))
    assert board.claim_next("anna", **options).uuid == jobs[2].uuid
    assert [job.uuid for job in board.claim_many("anna", 10, **options)] == [jobs[3].uuid]
    trashed = {job.uuid: job.error for job in board.trashed()}
    assert trashed.keys() == {job.uuid for job in jobs[:2]}
    assert all(error.startswith("the row is damaged: its ") for error in trashed.values())
    assert {record.levelname for record in caplog.records if jobs[0].uuid in record.message} == {"WARNING"}
    board.notifier.close()
    assert sorted(heard) == sorted(trashed)
    board.purge(jobs[0])
    assert [job.uuid for job in board.trashed()] == [jobs[1].uuid]


def test_a_priority_that_is_none(board: JobBoard, damage: Damage) -> None:
    damaged, early, whole = (board.post("a") for _ in range(3))
    damage(damaged, priority=201)
    damage(early, priority=-1)
    assert [job.uuid for job in board.iterjobs()] == [whole.uuid]
    assert [job.uuid for job in board.claim_many("anna", 10)] == [whole.uuid]
    trashed = list(board.trashed())
    assert {job.uuid: job.error for job in trashed} == {
        damaged.uuid: "its priority is 201, which is none",
        early.uuid: "its priority is -1, which is none",
    }
    assert {job.priority for job in trashed} == {JobPriority.VERY_LOW}
    assert str(trashed[0])


def test_a_state_that_is_none(board: JobBoard, damage: Damage) -> None:
    damaged, whole = (board.post("a") for _ in range(2))
    damage(damaged, state="GARBAGE", wake_at=1, lock_until=1)
    assert [job.uuid for job in board.claim_many("anna", 10)] == [whole.uuid]
    assert {job.uuid: job.error for job in board.trashed()} == {
        damaged.uuid: "the row is damaged: its state is 'GARBAGE'"
    }


@pytest.mark.parametrize("on_key", ["keep", "replace"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_state_that_is_none_keeps_no_key(
    board: JobBoard, damage: Damage, engine: sa.Engine, on_key: str, joined: bool
) -> None:
    damaged = board.post("a", key="k")
    damage(damaged, state="GARBAGE")
    if joined:
        with engine.begin() as connection:
            job = board.post("a", key="k", on_key=on_key, connection=connection)
    else:
        job = board.post("a", key="k", on_key=on_key)
    assert job.created
    assert [each.uuid for each in board.iterjobs()] == [job.uuid]
    assert {each.uuid: each.error for each in board.trashed()} == {
        damaged.uuid: "the row is damaged: its state is 'GARBAGE'"
    }


@pytest.mark.parametrize("column", ["gone_on", "modified_on"])
@pytest.mark.parametrize("value", [1, 2**62], ids=["early", "late"])
def test_an_instant_of_the_trash_that_is_none(
    board: JobBoard, damage: Damage, monkeypatch: pytest.MonkeyPatch, column: str, value: int
) -> None:
    """Every page goes on behind the one before it."""
    monkeypatch.setattr("jobboard.board.PAGE", 2)
    jobs = board.post_many([{"name": "a"}] * 5)
    for job in jobs:
        board.cancel(job)
    damage(jobs[2], **{column: value})
    trashed = list(itertools.islice(board.trashed(), 10))
    assert sorted(job.uuid for job in trashed) == sorted(job.uuid for job in jobs)
    assert all(job.last_modified.tzinfo for job in [*trashed, board.get(jobs[2].uuid)])
    [odd] = [oddity for oddity in board.examine() if jobs[2].uuid in oddity.place]
    assert "another time" in odd.reason
    assert board.purge_trash(0) == (4 if (column, value) == ("gone_on", 2**62) else 5)


@pytest.mark.backends("sqlite")
def test_a_number_that_is_none(board: JobBoard, damage: Damage) -> None:
    damaged, whole = (board.post("a") for _ in range(2))
    damage(damaged, token=sa.literal("x", sa.String()))
    assert [job.uuid for job in board.claim_many("anna", 10)] == [whole.uuid]
    assert [job.error for job in board.trashed()] == ["the row is damaged: its token is no integer"]


@pytest.mark.backends("sqlite", "postgresql")
def test_a_condition_that_fails_behind_the_first_hundred(board: JobBoard, backend: str) -> None:
    """What was claimed before is the caller's."""
    posted = board.post_many([{"name": "a", "group": "x" if n == 120 else "1"} for n in range(150)])
    group = board.table.c.job_group
    number = sa.cast(group, sa.Integer) if backend == "postgresql" else sa.func.json_extract(group, "$")
    assert board.claim_many("anna", 150, where=number > 0) == posted[:100]
    with pytest.raises(JobFailure):
        board.claim_many("anna", 150, where=number > 0)


@pytest.mark.parametrize("stored", ["it broke", "[1]", '[{"on": "x"}]', '{"on": 1}', "[" * 10_000, "null", ""])
def test_errors_that_are_none(board: JobBoard, damage: Damage, stored: str) -> None:
    """They are shown as one, and the next follows it."""
    job = board.post("a", max_attempts=2)
    damage(job, errors=stored)
    taken = board.claim_next("anna")
    assert [failure[1:] for failure in taken.errors] == [(None, 0, stored)]
    board.abandon(taken, "anna", error="later")
    assert [failure[1:] for failure in board.get(job.uuid).errors] == [(None, 0, stored), ("anna", 1, "later")]


def test_odd_rows_are_listed(board: JobBoard, damage: Damage, make_board: Callable[..., Any]) -> None:
    make_board("other").post("a")
    healthy = [board.post("a", key="key"), board.post("a", delay=60), board.post("a"), board.post("a")]
    board.claim(healthy[2], "anna")
    board.cancel(healthy[3])
    assert list(odd_rows(board.engine.store)) == []
    odd: dict[str, dict[str, Any]] = {
        "its token is the last": {"token": 2**63 - 1},
        "its attempts are the most": {"attempts": 2**31 - 1},
        "its priority is none": {"priority": 201},
        "its errors are no list": {"errors": "it broke"},
        "its group is an empty text": {"job_group": ""},
        "its state is none": {"state": "GARBAGE"},
        "it is claimed, and the claim has no end": {"state": "CLAIMED"},
        "it is scheduled, and for no time": {"state": "SCHEDULED"},
        "nobody looks at it": {"state": "CLAIMED", "lock_until": 1},
        "its key is not held": {"key": "lost"},
        "it is in the trash, and nobody finds it there": {"state": "TRASHED"},
        "it is counted as in the trash": {"gone_on": 1},
    }
    places = {}
    for reason, values in odd.items():
        job = board.post("a")
        damage(job, **values)
        places[job.uuid] = reason
    found = list(odd_rows(board.engine.store))
    assert len(found) == len(odd)
    for place, reason in found:
        assert place.startswith(f"table {board.table.name}, id ")
        assert reason.startswith(places[place.rpartition(" ")[2]])


def test_a_key_that_is_nobodys(board: JobBoard, engine: sa.Engine) -> None:
    """It has outlived its job, and its window runs."""
    job = board.post("a", key="k", key_for=600)
    board.claim(job, "anna")
    board.consume(job, "anna")
    usual = list(board.examine())
    sides = board.engine._tables.sides
    with engine.begin() as connection:
        assert connection.execute(sa.update(sides).where(sides.c.kind == "key").values(value=b"\xc1")).rowcount == 1
    [odd] = [odd for odd in board.examine() if odd not in usual]
    assert (odd.place, "by itself at" in odd.advice) == ("key k", True)


@pytest.mark.parametrize("value", [b"\xff\x00garbage", b"", b"\x93", b"\x07"])
def test_a_gate_that_is_none(board: JobBoard, engine: sa.Engine, value: bytes) -> None:
    """Nobody knows what it has told: nothing is claimed past it."""
    board.set_limit("a", concurrency=1)
    board.post_many([{"name": "a"}] * 2)
    sides = board.engine._tables.sides
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
