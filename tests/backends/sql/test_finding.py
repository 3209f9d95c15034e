"""Searches, counts and acts on many jobs, on SQL: locks of others, the deadline of counts, and ``where=``."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from jobboard.backends.sql import store
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Posting
from jobboard.states import TRASHED, UNCLAIMED
from tests.backends.sql.conftest import rows_locked

SERVERS = pytest.mark.backends("postgresql", "mariadb")


@pytest.mark.rule("A job that a caller's transaction holds is skipped by an act on many jobs, and named.")
@SERVERS
@pytest.mark.parametrize("held", [1, 3])
def test_held_rows_are_skipped_and_named(make_board: Callable[..., JobBoard], engine: sa.Engine, held: int) -> None:
    board = make_board(retry_for=2)
    jobs = board.post_many([Posting("any")] * 3)
    with rows_locked(engine, board, *jobs[:held]):
        acted = board.act("cancel", board.find(), reason="enough")
    assert (acted.done, {error.job for error in acted.skipped}) == (3 - held, {*jobs[:held]})
    for error in acted.skipped:
        assert type(error) is JobFailure
        assert "held by a transaction" in str(error)
    assert [job.state for job in jobs] == [UNCLAIMED] * held + [TRASHED] * (3 - held)
    assert board.act("cancel", board.find()).done == held


@pytest.mark.rule("A count that takes too long is a JobFailure, and no outage: the connection stays.")
@pytest.mark.backends("postgresql", "mariadb", "sqlite")
def test_slow_count_is_no_outage(
    make_board: Callable[..., JobBoard], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = make_board(retry_for=1)
    board.post("any")
    links = board.engine.store.links
    before = links.run(id)
    slow = {
        "postgresql": "select 'UNCLAIMED', '', 1 from pg_sleep(30)",
        "mariadb": "select 'UNCLAIMED', '', sleep(30)",
        "sqlite": "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i), '', 1 from n",
    }
    monkeypatch.setattr(store, "COUNTING", 2.5)
    texts = board.engine.store.statements
    monkeypatch.setitem(texts._texts, "counts", slow[backend])
    texts._made.clear()
    with pytest.raises(JobFailure, match=r"2\.5 s") as raised:
        board.stats()
    assert not isinstance(raised.value, ConnectionFailure)
    assert links.run(id) == before
    monkeypatch.undo()
    texts._made.clear()
    assert board.stats().unclaimed == 1


@pytest.mark.backends("postgresql", "mariadb", "sqlite")
def test_where_is_a_condition_of_a_search(make_board: Callable[..., JobBoard]) -> None:
    board = make_board()
    jobs = board.post_many([Posting("any", priority=n, details={"n": n}) for n in range(4)])
    board.cancel(jobs[3])
    c = board.table.c
    assert list(board.find(where=c.priority <= 98)) == [jobs[2]]
    assert list(board.find(where=c.posting.contains('"n":1'), states=["UNCLAIMED", "TRASHED"])) == [jobs[1]]
    assert list(board.find(where=c.priority < 98, states=["TRASHED"])) == [jobs[3]]
    with pytest.raises(ValueError, match="COMPLETE"):
        board.find(where=c.priority < 98, states=["COMPLETE"])
    with pytest.raises(TypeError, match="where"):
        list(board.find(where="priority < 98"))  # type: ignore[arg-type]
