"""Locks of others: for how long a call waits for them, and which calls they delay."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.job import Act, Posting
from jobboard.sql.connections import Link
from jobboard.states import UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, Background, claim_one
from tests.backends.sql.conftest import rows_locked, waiting

SERVERS = pytest.mark.backends("postgresql", "mariadb")
SQLITE = pytest.mark.backends("sqlite")


# For how long


@contextlib.contextmanager
def stays_busy(seconds: int, most: float = 40) -> Iterator[None]:
    """Expect a call to give up after so many seconds. By themselves the servers would wait for 50 s or for ever."""
    began = time.monotonic()
    with pytest.raises(ConnectionFailure, match=f"stayed busy for {seconds} s") as raised:
        yield
    assert raised.value.outcome == "none"
    assert 0.9 * seconds < time.monotonic() - began < most


@pytest.mark.rule("A busy SQLite database and a lock of MariaDB are waited for no longer than retry_for.")
@SQLITE
def test_a_busy_file_is_waited_for_once(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """SQLite waits for its turn by itself: the call is not repeated after that."""
    board = make_board(retry_for=4)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        with stays_busy(4, most=7.5):
            board.post("a")
        connection.rollback()
    board.post("a")


@SQLITE
def test_connect_waits_for_a_busy_file(tmp_path: Path) -> None:
    """A new file turns to its write-ahead log, for which each process that opens it wants to be alone."""
    board = jobboard.fetch("board", {"board": "sqlite", "database": str(tmp_path / "new.db"), "retry_for": 1})
    with contextlib.closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with stays_busy(1):
            board.connect()
        other.execute("ROLLBACK")
    with board:
        board.post("a")


@pytest.mark.rule("A busy SQLite database and a lock of MariaDB are waited for no longer than retry_for.")
@SERVERS
def test_a_stop_waits_for_the_transaction_of_its_holder(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """Before the transaction ends, nobody knows whether the holder has ended the claim."""
    board, operator = make_board(), make_board(retry_for=1)
    consumed, kept = board.post_many([Posting("a")] * 2)
    for job in (consumed, kept):
        board.claim(job, "anna")
        with engine.connect() as connection:
            board.consume(job, "anna", connection=connection)
            with stays_busy(1):
                operator.cancel(operator.get(job.uuid), running=True)
            if job is consumed:
                connection.commit()
            else:
                connection.rollback()
    with pytest.raises(NotFound):
        operator.cancel(consumed, running=True)
    operator.cancel(operator.get(kept.uuid), running=True)
    assert (consumed.state, kept.state) == ("COMPLETE", "TRASHED")


@pytest.mark.rule("On MariaDB no pause and no limit waits for a commit that waits for the row of a job.")
@pytest.mark.backends("mariadb")
def test_a_limit_waits_for_no_commit_that_waits(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """Only the caller whose transaction holds the row knows when that is."""
    board, operator = make_board(), make_board(retry_for=1)
    operator.set_limit("b", concurrency=1)
    for act in (board.cancel, lambda job: board.claim(job, "anna")):
        job = board.post("a")
        with rows_locked(engine, board, job) as connection:
            acting = Background(lambda act=act, job=job: act(job))
            eventually(lambda: waiting(connection) == 1)
            operator.set_limit("a", concurrency=1)
            operator.pause(["c"])
            assert waiting(connection) == 1
            connection.rollback()
        acting.wait(60)
        operator.remove_limit("a")
        operator.resume(["c"])
    job = board.post("b")
    board.claim(job, "anna")
    with engine.connect() as connection:
        board.post("a", key="k", connection=connection)
        then = [Posting("a", key="k")]
        acting = Background(lambda: board.consume(job, "anna", then=then))
        eventually(lambda: waiting(connection) == 1)
        operator.set_limit("a", concurrency=1)
        assert waiting(connection) == 1
        connection.rollback()
    acting.wait(60)


@SERVERS
def test_locks_are_waited_for_no_longer_than_told(
    make_board: Callable[..., JobBoard], engine: sa.Engine, backend: str
) -> None:
    board = make_board(retry_for=1)
    job = claim_one(board, "a")
    with rows_locked(engine, board, job), stays_busy(1):
        board.consume(job, "anna")
    lock = {"postgresql": "LOCK TABLE {}", "mariadb": "LOCK TABLES {} WRITE"}[backend]
    with engine.connect() as connection:
        connection.exec_driver_sql(lock.format(board.table.name))
        for verb in (lambda: board.consume(job, "anna"), lambda: board.post("b"), lambda: board.claim_next("bert")):
            with stays_busy(1):
                verb()
        connection.invalidate()
    board.consume(job, "anna")
    assert board.job_count == 0


LIMITED = {
    "postgresql": {"options": "-c statement_timeout=250ms"},
    "mariadb": {"init_command": "SET SESSION max_statement_time = 0.25"},
}


@SERVERS
def test_a_statement_that_the_server_ends_early_is_repeated(
    board: JobBoard, board_conf: dict[str, Any], engine: sa.Engine, backend: str
) -> None:
    """An administrator's limit for statements ends one that waits for a lock: that is no refusal."""
    job = claim_one(board, "a")
    limited = sa.create_engine(engine.url, connect_args=LIMITED[backend])
    with jobboard.backend("board", {**board_conf, "board": "sql", "retry_for": 2}, client=limited) as hasty:
        with rows_locked(engine, board, job), stays_busy(2):
            hasty.consume(job, "anna")
        # Under load one statement may take longer than its limit by itself.
        eventually(lambda: _consumed(hasty, job))
        assert board.job_count == 0
    limited.dispose()


def _consumed(board: JobBoard, job: jobboard.Job) -> bool:
    with contextlib.suppress(ConnectionFailure):
        board.consume(job, "anna")
        return True
    return False


@pytest.mark.rule("A deadlock reaches no caller.")
@SERVERS
def test_a_deadlock_reaches_no_caller(board: JobBoard, engine: sa.Engine) -> None:
    # The board locks them in this order.
    jobs = sorted([board.post(name) for name in "ab"], key=lambda job: job.uuid)
    claims = [board.claim(job, "anna") for job in jobs]
    c = board.table.c
    first = sa.select(c.uuid).where(c.uuid == jobs[0].uuid)

    def locked() -> bool:
        with engine.connect() as looking:
            return not looking.execute(first.with_for_update(skip_locked=True)).all()

    # Their transaction has the second job, and wants the first one, which the board's has by then.
    with rows_locked(engine, board, jobs[1]) as connection:
        ends = Background(lambda: board.consume_many(jobs, "anna"))
        eventually(locked)
        with contextlib.suppress(sa.exc.DBAPIError):
            connection.execute(first.with_for_update())
    ends.wait(60)
    assert [claim.ended for claim in claims] == [True, True]


# Which calls


@pytest.mark.rule("A claim's end waits for a row that others hold, past the lease.")
@pytest.mark.rule("Rows are locked, changed and deleted by their index, so that no take waits for another.")
@SERVERS
@pytest.mark.any_driver
def test_locked_claims_delay_themselves_alone(
    board: JobBoard, make_board: Callable[..., Any], engine: sa.Engine
) -> None:
    keeper = make_board(claim_ttl=8 * HELD)
    board.post_many([Posting("resize")] * 1000)
    jobs = keeper.claim_many("anna", 1000)
    locked = jobs[::20]
    free = [job for job in jobs if job not in locked]
    until = {job: job.claim.deadline for job in jobs}
    with rows_locked(engine, keeper, *locked):
        eventually(lambda: all(job.claim.deadline > until[job] for job in free))
        assert all(job.claim.deadline == until[job] for job in locked)
        keeper.finish_many([Act(job, "trash") for job in free[:100]], "anna")
        keeper.consume_many(free[100:], "anna")
        assert (board.stats().trashed, board.job_count) == (100, len(locked))
    eventually(lambda: all(job.claim.deadline > until[job] for job in locked))
    assert not any(job.claim.lost for job in locked)


@pytest.mark.rule(
    "A statement that locks side records or keys waits for those that it names alone, on small boards, too."
)
@pytest.mark.rule("Posts with many keys do not wait for each other.")
@SERVERS
@pytest.mark.any_driver
def test_posts_with_keys_wait_for_no_other_post(board: JobBoard, engine: sa.Engine) -> None:
    """No gap between keys is locked, neither by boards nor by callers at READ COMMITTED."""
    board.post_many([Posting("resize", key=f"{n}") for n in range(200)])
    isolated = engine.execution_options(isolation_level="READ COMMITTED")
    with isolated.connect() as first, isolated.connect() as second:
        board.post("mail", connection=first)
        assert board.post("resize", key="1m", connection=first).created
        postings = [Posting("resize", key=f"{n}") for n in range(400)]
        assert sum(job.created for job in Background(lambda: board.post_many(postings)).wait(60)) == 200
        assert Background(lambda: board.post("resize", key="1n", connection=second)).wait(60).created
        assert Background(lambda: board.post("resize", key="1o")).wait(60).created
        second.commit()
        first.commit()
    assert board.job_count == 404


@pytest.mark.rule(
    "A statement that locks side records or keys waits for those that it names alone, on small boards, too."
)
@SERVERS
@pytest.mark.parametrize("statement", ["scopes_locked", "sides_locked"])
def test_side_records_that_are_named_are_locked_alone(board: JobBoard, engine: sa.Engine, statement: str) -> None:
    """On a small board, too, where a database may read all rows for a long list, and then filter them."""
    names = [f"n{number}" for number in range(20)]
    for name in ["held", *names]:
        board.set_limit(name, concurrency=5)
        board.post(name)
    assert len(board.claim_many("anna", 21)) == 21
    sides = board.engine.store.tables.sides
    scopes = sa.select(sides.c.place).where(sides.c.kind == "scope", sides.c.board == board.name)
    isolated = engine.execution_options(isolation_level="READ COMMITTED")
    with isolated.connect() as first, isolated.connect() as second:
        held, *others = first.execute(scopes.order_by(sides.c.key)).scalars().all()
        assert len(others) >= 20
        first.execute(scopes.where(sides.c.place == held).with_for_update())
        asked = {"places": sorted(others), "kinds": ["scope"], "board": board.name, "wait": "1s", "seconds": 1}
        text, values = board.engine.store.statements[statement].compiled(engine.dialect, asked)
        locked = Background(lambda: second.exec_driver_sql(text, values).all())
        assert len(locked.wait(20)) == len(others)
        second.rollback()


@pytest.mark.rule("Several names are looked for at once, beside locked jobs.")
@pytest.mark.backends("postgresql")
@pytest.mark.any_driver
@pytest.mark.parametrize("limited", [False, True])
def test_of_several_names_the_first_free_job_is_found(board: JobBoard, engine: sa.Engine, limited: bool) -> None:
    names = ["mail", "resize"]
    if limited:
        board.set_limit("mail", concurrency=5)
        assert board.claim_next("anna", names=["nothing"]) is None
    first, second, third = board.post_many([Posting(name) for name in ("resize", "mail", "resize")])
    with rows_locked(engine, board, first, second):
        assert board.claim_next("anna", names=names) == third
    assert [board.claim_next("anna", names=names) for _ in range(3)] == [first, second, None]


@pytest.mark.rule("The engine's way serves nobody before a better job, by limits, several names and where= at once.")
@pytest.mark.rule("A look lets go of no job that it has locked.")
@SERVERS
@pytest.mark.any_driver
def test_a_take_lets_go_of_no_job_that_it_has_locked(board: JobBoard, engine: sa.Engine, spy: Any) -> None:
    """A take that finds its first job held by another goes on with the jobs that it has locked. If it let them go, a
    call that has passed them over meanwhile would be served before them."""
    jobs = board.post_many([Posting("resize")] * 4)
    c = board.table.c
    mine = [sa.select(c.uuid).where(c.uuid == job.uuid).with_for_update(skip_locked=True) for job in jobs[1:3]]
    let_go: list[str] = []
    requests: list[str] = []
    with contextlib.ExitStack() as stack, engine.connect() as rival:

        def before(text: str) -> None:
            if requests:
                requests.append(text)
                let_go.extend(uuid for each in mine for uuid in rival.execute(each).scalars())
                rival.rollback()
            elif re.search(r"for update skip locked", text):
                stack.enter_context(rows_locked(engine, board, jobs[0]))
                requests.append(text)

        with spy(board, before):
            assert board.claim_many("anna", 3, where=c.priority >= 0) == jobs[1:]
    assert len(requests) >= 3, "one request has locked two jobs, another the third, and the last has claimed them"
    assert let_go == []


def first_ones_left(board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What another would be served after each request that this board makes from now on."""
    c = board.table.c
    ready = sa.select(c.uuid).where(c.board == board.name, c.state == str(UNCLAIMED)).order_by(c.priority, c.id)
    # InnoDB locks what it sorts.
    ready = ready.with_hint(board.table, f"FORCE INDEX ({board.table.name}_ready)", "mariadb").limit(1)
    left: list[str] = []
    depth = 0

    def watched(request: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                told = request(*args, **kwargs)
            finally:
                depth -= 1
            if not depth:
                with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
                    left.append(connection.execute(ready.with_for_update(skip_locked=True)).scalar_one())
            return told

        return look

    for name in ("rows", "count", "single", "compound"):
        monkeypatch.setattr(Link, name, watched(getattr(Link, name)))
    return left


@pytest.mark.rule("A look lets go of no job that it has locked.")
@SERVERS
@pytest.mark.any_driver
@pytest.mark.parametrize("names", [None, ["resize", "crop"]])
def test_a_sweep_holds_no_other_job_back(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, names: list[str] | None
) -> None:
    """Others may have seen the same sweep, or done it, and are served the first jobs that no-one has locked."""
    lapsed, *jobs = board.post_many([Posting("resize")] * 5)
    board.claim(lapsed, "anna", expiry=0.05)
    eventually(lambda: board.get(lapsed.uuid).state == UNCLAIMED)
    left = first_ones_left(board, engine, monkeypatch)
    assert board.claim_many("bert", 2, names=names) == [lapsed, jobs[0]]
    assert set(left) <= {lapsed.uuid, jobs[0].uuid, jobs[1].uuid}
