"""What consumed jobs leave, in a table of its own: written with their end, whichever way that goes, and dropped."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.engine import Done
from jobboard.job import Job, Posting
from jobboard.primitives import End, Finish, Nonce, Returned
from jobboard.states import COMPLETE, OK, Holder, Status, Verb
from jobboard.testing import eventually
from tests.backends.sql.conftest import Spy

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

KEEP = 60_000_000
DROPPED = 500
ODD = json.dumps(["'\\%s:p_x?\x1e\x1f\0\u2028é😀{}", '"'], ensure_ascii=False)

WAYS = {
    "alike": [(None, None)] * 3,
    "alike and refused": [(None, "a set is no JSON")] * 3,
    "own": [(ODD, None), (None, None), ("{}", None)],
    "mixed": [(ODD, None), (None, "a set"), ("{}", None)],
    "one": [(ODD, None)],
}


def taken(board: JobBoard, count: int, **more: Any) -> list[Job]:
    board.post_many([Posting("a", details={"n": n}, group="g", **more) for n in range(count)])
    return board.claim_many("anna", count)


def acts(jobs: Sequence[Job], left: Sequence[tuple[str | None, str | None]] | None = None) -> list[Finish]:
    assert all(job.claim is not None for job in jobs)
    return [
        Finish(
            job.uuid, Holder("anna", job.claim.token), End(Verb.CONSUME, result=Returned(result, refused)), keep=KEEP
        )
        for job, (result, refused) in zip(jobs, left or [(None, None)] * len(jobs), strict=True)
    ]


def rows(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(sa.select(table).order_by(table.c.id))]


def outcomes_of(board: JobBoard) -> sa.Table:
    return board.engine.store.tables.outcomes


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_job_leaves_its_row(board: JobBoard, engine: sa.Engine, way: str, attempt: int) -> None:
    """By a shortcut and by the general way alike."""
    left = WAYS[way]
    [failed] = taken(board, 1)
    token = failed.claim.token if failed.claim else 0
    board.abandon(failed, "anna", error="once")
    # Tokens are times, and SQLite's have milliseconds: a later one than the others' would be the general way's affair.
    eventually(lambda: board.engine.raw.now() > token)
    board.post_many([Posting("a", details={"n": n}, group="g") for n in range(1, len(left))])
    jobs = board.claim_many("anna", len(left))
    before = rows(engine, board.table)
    assert board.engine.raw.finish(acts(jobs, left), Nonce("other", 1, 1, attempt)) == [OK] * len(jobs)
    found = rows(engine, outcomes_of(board))
    assert rows(engine, board.table) == []
    for was, row, (result, refused) in zip(before, found, left, strict=True):
        kept = {name: row[name] for name in row if name in was and name != "modified_on"}
        assert kept == {name: was[name] for name in kept}
        assert (row["begun"], row["result"], row["refused"]) == (was["modified_on"], result, refused)
        assert row["begun"] <= row["modified_on"] <= row["until"] - KEEP < row["modified_on"] + 5_000_000
    dones = [done for done in board.engine.raw.outcomes([row["uuid"] for row in before]) if done is not None]
    assert [(done.record.uuid, done.result, done.refused) for done in dones] == [
        (was["uuid"], *each) for was, each in zip(before, left, strict=True)
    ]
    assert {(done.record.state, done.record.who, done.record.group) for done in dones} == {(COMPLETE, "anna", "g")}
    assert [failure.text for failure in dones[0].record.errors] == ["once"]


def test_nothing_is_left_unless_it_is_asked_for(board: JobBoard, engine: sa.Engine) -> None:
    board.consume_many(taken(board, 3), "anna")
    [job] = taken(board, 1)
    board.consume(job, "anna")
    assert rows(engine, outcomes_of(board)) == []
    assert board.engine.raw.outcomes([job.uuid]) == [None]


def test_acts_that_are_kept_for_different_times(board: JobBoard, engine: sa.Engine) -> None:
    jobs = taken(board, 3)
    keeps = (KEEP, None, 2 * KEEP)
    mixed = [act._replace(keep=keep) for act, keep in zip(acts(jobs), keeps, strict=True)]
    assert board.engine.raw.finish(mixed, Nonce("other", 1, 1)) == [OK] * 3
    found = rows(engine, outcomes_of(board))
    assert [row["uuid"] for row in found] == [jobs[0].uuid, jobs[2].uuid]
    assert found[1]["until"] - found[0]["until"] >= KEEP


@pytest.mark.parametrize("left", ["alike", "own"])
def test_of_a_batch_only_those_that_end_leave_something(board: JobBoard, engine: sa.Engine, left: str) -> None:
    jobs = taken(board, 3)
    given = acts(jobs, WAYS[left])
    board.release(jobs[1])
    assert board.engine.raw.finish(given, Nonce("other", 1, 1)) == [OK, Status.LOST, OK]
    assert [row["uuid"] for row in rows(engine, outcomes_of(board))] == [jobs[0].uuid, jobs[2].uuid]
    assert board.job_count == 1


def test_a_late_first_try_writes_nothing(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    [job] = taken(board, 1)
    call = Nonce("other", 1, 5)
    assert other.engine.raw.finish(acts([job], [("1", None)]), call._replace(attempt=2)) == [OK]
    assert board.engine.raw.finish(acts([job], [("2", None)]), call) == [OK]
    assert [row["result"] for row in rows(engine, outcomes_of(board))] == ["1"]


@pytest.mark.parametrize("commits", [True, False])
def test_in_a_transaction_of_the_callers(board: JobBoard, engine: sa.Engine, commits: bool) -> None:
    jobs = taken(board, 2)
    with engine.connect() as connection:
        given = acts(jobs, WAYS["own"][:2])
        assert board.engine.raw.finish(given, None, connection=connection) == [OK] * 2
        assert board.engine.raw.outcomes([jobs[0].uuid]) == [None]
        (connection.commit if commits else connection.rollback)()
    assert [row["result"] for row in rows(engine, outcomes_of(board))] == ([ODD, None] if commits else [])
    assert board.job_count == (0 if commits else 2)


def test_pages_have_the_newest_first(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    board, other = make_board(), make_board("other")
    ended: list[str] = []
    for call, count in enumerate((3, 1, 2)):
        jobs = taken(board, count)
        board.engine.raw.finish(acts(jobs), Nonce("one", 1, call))
        ended += [job.uuid for job in jobs]
        other.engine.raw.finish(acts(taken(other, 1)), Nonce("two", 1, call))
    table = outcomes_of(board)
    with engine.begin() as connection:
        connection.execute(sa.update(table).where(table.c.uuid == ended[1]).values(until=1))
    del ended[1]
    page, found = None, list[Done]()
    while page is None or page:
        page = board.engine.raw.done_page(found[-1] if found else None, 2)
        found += page
    places = [(done.record.modified_on, done.record.sequence) for done in found]
    assert places == sorted(places, reverse=True)
    assert sorted(done.record.uuid for done in found) == sorted(ended)


def aged(board: JobBoard, engine: sa.Engine, count: int) -> sa.Table:
    """Outcomes that have ended long ago, and one that stands."""
    [job] = taken(board, 1)
    board.engine.raw.finish(acts([job]), Nonce("other", 1, 1))
    table = outcomes_of(board)
    [row] = rows(engine, table)
    old = [{**row, "id": n, "uuid": f"old{n}", "modified_on": n, "until": n // 7} for n in range(count)]
    with engine.begin() as connection:
        for start in range(0, count, 1000):
            connection.execute(sa.insert(table), old[start : start + 1000])
    return table


def test_what_has_ended_is_dropped_in_short_steps(backend: str, board: JobBoard, engine: sa.Engine) -> None:
    table = aged(board, engine, 3 * DROPPED + 10)
    with Spy(board) as seen:
        assert not board.engine.raw.tidy()
    # One who writes to SQLite is alone: there they are shorter, and no commit of another copies what they have written.
    assert sum(text.startswith("delete") for text in seen.texts) == (7 if backend == "sqlite" else 4)
    assert sum("wal_checkpoint" in text for text in seen.texts) == (7 if backend == "sqlite" else 0)
    assert [row["until"] > DROPPED for row in rows(engine, table)] == [True]


KEY = "(outcomes_pkey|PRIMARY|autoindex)"
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mariadb": "EXPLAIN FORMAT=JSON "}


@pytest.mark.parametrize(
    ("name", "params", "index"),
    [
        ("outcomes_old", {}, "outcomes_until"),
        ("outcomes_drop", {"uuids": ["old1", "old2"]}, KEY),
        ("outcomes", {"uuids": ["old1", "old2"]}, KEY),
        ("outcomes_newest", {"limit": 10}, "outcomes_newest"),
        ("outcomes_newest", {"limit": 10, "modified_on": 9, "id": 9}, "outcomes_newest"),
    ],
)
def test_outcomes_are_found_by_an_index(
    backend: str, board: JobBoard, engine: sa.Engine, name: str, params: dict[str, Any], index: str
) -> None:
    table = aged(board, engine, 3000)
    statements = board.engine.store.statements
    behind = statements.text("outcomes_behind") if "id" in params else ""
    statement = statements.made(name, behind=behind)
    if backend == "postgresql":
        # Without statistics, as long as nobody has come by to take them.
        links = board.engine.store.links
        assert re.search(index, links.run(lambda link: explained(link, backend, statement, params)))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(("ANALYZE TABLE " if backend == "mariadb" else "ANALYZE ") + table.name)
    plan = board.engine.store.links.run(lambda link: explained(link, backend, statement, params))
    plan = re.sub(r'"possible_keys": \[[^]]*\]', "", plan)
    assert re.search(index, plan), plan
    assert (f"{table.name}_until" in plan) == (name == "outcomes_old"), plan
    for bad in ("Seq Scan", "Sort", "filesort", "TEMP B-TREE", '"access_type": "ALL"'):
        assert bad not in plan


def explained(link: Any, backend: str, statement: Any, params: dict[str, Any]) -> str:
    text, values = statement.compiled(link.dialect, {"board": "board", **params})
    link.cursor.execute(EXPLAIN[backend] + text, values)
    plan = "\n".join(str(tuple(row)) for row in link.cursor.fetchall())
    link.rollback()
    return plan
