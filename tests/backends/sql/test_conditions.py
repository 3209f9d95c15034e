"""Conditions of callers, ``where=``."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.job import Posting

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def test_a_condition_narrows_and_keeps_the_order(board: JobBoard) -> None:
    for name, priority in (("a", "LOW"), ("b", "HIGH"), ("c", "NORMAL"), ("d", "LOW")):
        board.post(name, priority=priority)
    low = board.table.c.priority >= 100
    assert [job.name for job in board.claim_many("anna", 5, where=low)] == ["c", "a", "d"]
    assert board.claim_next("anna", where=low) is None
    assert board.claim_next("anna", where=board.table.c.name == "b", names=["a", "c"]) is None
    with board.working("anna", where=board.table.c.name == sa.literal("b")) as job:
        assert job.name == "b"


def test_a_condition_beside_a_limit(board: JobBoard) -> None:
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "aab"])
    condition = board.table.c.job_group == "a"
    found = [board.claim_next("anna", where=where) for where in (condition, condition, None, None)]
    assert [job and job.group for job in found] == ["a", None, "b", None]


@pytest.mark.rule("Parameters of a condition do not collide with the board's own.")
@pytest.mark.parametrize("limited", [False, True])
def test_parameters_of_a_condition_may_be_named_like_the_boards(board: JobBoard, limited: bool) -> None:
    if limited:
        board.set_limit("a", concurrency=9)
    board.post_many([{"name": name} for name in "abababb"])
    # A comparison names its parameter like the column.
    other = sa.select(sa.literal("x").label("p_name")).subquery("other")
    name = board.table.c.name
    for condition in (
        name == sa.bindparam("p_board", "b"),
        name.in_(sa.bindparam("p_limit", ["b"], expanding=True)),
        sa.and_(name == "b", sa.select(other.c.p_name).where(other.c.p_name == "x").exists()),
        sa.text("name = :board").bindparams(board="b"),
    ):
        [job] = board.claim_many("anna", 1, where=condition)
        assert job.name == "b"


@pytest.mark.rule("Parameters of a condition do not collide with the board's own.")
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("where", ["name = 'a'", 1, sa.text("name = :unbound")], ids=str)
def test_what_is_no_condition_is_refused(board: JobBoard, where: object) -> None:
    with pytest.raises(TypeError, match="where="):
        board.claim_next("anna", where=where)


@pytest.mark.rule("A claim_many that fails midway returns the jobs that it has claimed.")
@pytest.mark.backends("sqlite", "postgresql")
def test_jobs_before_a_condition_failed_stay_claimed(board: JobBoard, backend: str) -> None:
    """Each hundred is a transaction of its own."""
    posted = board.post_many([{"name": "a", "group": "x" if n == 120 else "1"} for n in range(150)])
    group = board.table.c.job_group
    number = sa.cast(group, sa.Integer) if backend == "postgresql" else sa.func.json_extract(group, "$")
    assert board.claim_many("anna", 150, where=number > 0) == posted[:100]
    with pytest.raises(JobFailure):
        board.claim_many("anna", 150, where=number > 0)
