"""Outcomes on SQL: in the caller's transaction, and in rows that people query."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.exceptions import NotFound
from jobboard.testing.conformance.support import LONG

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.fixture
def board(make_board: Callable[..., JobBoard]) -> JobBoard:
    return make_board(keep_done=LONG)


@pytest.mark.parametrize("commits", [True, False])
def test_it_stands_exactly_when_the_caller_commits(board: JobBoard, engine: sa.Engine, commits: bool) -> None:
    job = board.post("resize")
    board.claim(job, "anna")
    with engine.connect() as connection:
        board.consume(job, "anna", result=[1], connection=connection)
        assert commits or connection.in_transaction()
        (connection.commit if commits else connection.rollback)()
    if commits:
        assert job.result(0) == [1]
        return
    with pytest.raises(NotFound):
        board.outcome(job)
    assert board.find_owner(job) == "anna"
    board.consume(job, "anna", result=[2])
    assert job.result(0) == [2]


def test_people_find_it_in_a_row(board: JobBoard, engine: sa.Engine) -> None:
    board.post("resize", details={"a": "ü"}, priority=5, group="g")
    job = board.claim_next("anna")
    assert job is not None
    board.consume(job, "anna", result={"b": 1})
    table = board.engine.store.tables.outcomes
    with engine.connect() as connection:
        row: Any = connection.execute(sa.select(table)).mappings().one()
    assert (row["uuid"], row["board"], row["name"], row["job_group"]) == (job.uuid, board.name, "resize", "g")
    assert (row["posting"], row["result"], row["who"]) == ('{"details":{"a":"ü"}}', '{"b":1}', "anna")
    assert row["begun"] <= row["modified_on"] < row["until"]
