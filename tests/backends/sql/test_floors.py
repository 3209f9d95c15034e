"""PostgreSQL's floors: a look begins behind what is done, and passes over nothing that becomes ready late."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard import Act
from jobboard.backends.sql import dear
from jobboard.backends.sql.board import SLOT_CALLS
from jobboard.backends.sql.postgresql.behind import RETURNED
from jobboard.backends.sql.postgresql.floors import OFTEN, Floors
from jobboard.board import JobBoard
from jobboard.testing import eventually
from tests.backends.sql.test_plans import _buffers

pytestmark = pytest.mark.backends("postgresql")


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each take look behind floors."""
    monkeypatch.setattr(dear, "FIRST", 1)
    monkeypatch.setattr(dear.Queue, "many", -1)
    monkeypatch.setattr("jobboard.backends.sql.postgresql.floors.OFTEN", 2)


def floors_of(board: JobBoard, name: str | None = None) -> list[Floors]:
    return list(board.engine._shortcuts._lookout.queues._queues[name].floors.values())


def work_off(board: JobBoard, jobs: int = 30) -> None:
    """Have the board's connection learn: each claim sets its floors anew."""
    board.post_many([{"name": "later"}] * jobs)
    for _ in range(jobs // 2):
        board.consume(taken(board), "anna")
    board.consume_many(board.claim_many("anna", jobs), "anna")
    assert board.claim_next("anna") is None


def taken(board: JobBoard) -> Any:
    job = board.claim_next("anna")
    assert job is not None
    return job


@contextlib.contextmanager
def open_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect() as connection, connection.begin():
        yield connection


@pytest.mark.parametrize("rows", [1, 5])
def test_a_post_that_commits_late_is_next(board: JobBoard, engine: sa.Engine, rows: int) -> None:
    work_off(board)
    with open_transaction(engine) as connection:
        late = board.post_many([{"name": "late"}] * rows, connection=connection)
        work_off(board)
    assert [taken(board).uuid for _ in range(rows)] == [job.uuid for job in late]


def test_a_post_after_a_long_silence_in_a_transaction_is_next(board: JobBoard, engine: sa.Engine) -> None:
    """The transaction is met while it has drawn nothing yet, and again after it has."""
    with open_transaction(engine) as connection:
        connection.exec_driver_sql("SELECT pg_current_xact_id()")
        work_off(board)
        late = board.post("late", connection=connection)
        work_off(board)
    assert taken(board).uuid == late.uuid


def test_a_post_in_a_savepoint_is_next(board: JobBoard, engine: sa.Engine) -> None:
    with open_transaction(engine) as connection:
        connection.exec_driver_sql("SELECT 1")
        with connection.begin_nested():
            late = board.post("late", connection=connection)
        work_off(board)
    assert taken(board).uuid == late.uuid


def test_two_transactions_that_end_in_the_other_order(board: JobBoard, engine: sa.Engine) -> None:
    with open_transaction(engine) as first:
        early = board.post("early", connection=first)
        work_off(board)
        with open_transaction(engine) as second:
            late = board.post("late", connection=second)
            work_off(board)
        assert taken(board).uuid == late.uuid
        work_off(board)
    assert taken(board).uuid == early.uuid


def test_a_prepared_transaction(board: JobBoard, make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    quiet = make_board(notify=False)
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        late = quiet.post("late", connection=connection)
        transaction.prepare()
        work_off(board)
        transaction.commit()
    assert taken(board).uuid == late.uuid


@pytest.mark.parametrize("delay", [None, 0.2])
def test_an_abandon_that_commits_late_is_next(board: JobBoard, engine: sa.Engine, delay: float | None) -> None:
    board.post("late")
    job = taken(board)
    work_off(board)
    with open_transaction(engine) as connection:
        board.abandon(job, "anna", delay=delay, connection=connection)
        if delay is not None:
            eventually(lambda: board.engine.now() > due_of(board, connection, job.uuid))
        work_off(board)
    assert taken(board).uuid == job.uuid


def due_of(board: JobBoard, connection: sa.Connection, uuid: str) -> int:
    due: int = connection.execute(sa.select(board.table.c.wake_at).where(board.table.c.uuid == uuid)).scalar_one()
    return due


@pytest.mark.parametrize("how", ["abandon", "abandon in a caller's transaction", "claim"])
def test_what_waited_for_a_lock_is_found(
    board: JobBoard, make_board: Callable[..., JobBoard], engine: sa.Engine, how: str
) -> None:
    """An instant that has long passed when it is stored is found."""
    other = make_board()
    job = other.post("late")
    if how != "claim":
        other.claim(job, "bert")

    def act() -> None:
        if how == "claim":
            other.claim(job, "bert", expiry=0.05)
        elif how == "abandon":
            other.abandon(job, "bert", delay=0.05)
        else:
            with open_transaction(engine) as connection:
                other.abandon(job, "bert", delay=0.05, connection=connection)

    thread = threading.Thread(target=act)
    with open_transaction(engine) as connection:
        connection.execute(sa.select(board.table.c.id).where(board.table.c.uuid == job.uuid).with_for_update()).all()
        thread.start()
        eventually(lambda: waiting(board))
        until = board.engine.now() + 100_000
        eventually(lambda: board.engine.now() > until)
        work_off(board)
    thread.join(30)
    assert eventually(lambda: board.claim_next("anna")).uuid == job.uuid


def waiting(board: JobBoard) -> bool:
    rows = board.engine.store.links.run(
        lambda link: (
            link.cursor.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ),
            link.cursor.fetchall(),
        )[1]
    )
    return bool(rows)


@pytest.mark.parametrize("how", ["abandon", "release", "restore", "lapse"])
def test_what_comes_back_is_at_its_old_place(board: JobBoard, how: str) -> None:
    board.post("first")
    job = taken(board)
    work_off(board)
    board.post_many([{"name": "behind"}] * 3)
    taken(board)
    if how == "abandon":
        board.abandon(job, "anna")
    elif how == "release":
        board.release(job)
    elif how == "lapse":
        board.extend(job, "anna", 0.05)
    else:
        board.trash(job, "anna")
        taken(board)
        board.restore(job)
    eventually(lambda: board.get(job.uuid).seen_state == "UNCLAIMED")
    assert taken(board).uuid == job.uuid


def test_what_falls_due_is_at_its_old_place(board: JobBoard) -> None:
    work_off(board)
    job = board.post("first", delay=1)
    board.post_many([{"name": "behind"}] * 3)
    assert taken(board).name == taken(board).name == "behind"
    eventually(lambda: board.get(job.uuid).seen_state == "UNCLAIMED")
    assert taken(board).uuid == job.uuid


def test_what_a_claim_has_locked_and_left_is_next(board: JobBoard, engine: sa.Engine) -> None:
    first = board.post("first")
    work = board.table
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.update(work).where(work.c.uuid == first.uuid).values(state="CLAIMED"))
        board.post_many([{"name": "later"}] * 20)
        for _ in range(20):
            board.consume(taken(board), "anna")
        assert board.claim_next("anna") is None
        transaction.rollback()
    assert taken(board).uuid == first.uuid


def test_more_come_back_than_one_look_reads(board: JobBoard) -> None:
    """They are found by when they came back, and still served in the order of their posts."""
    jobs = [job for _ in range(RETURNED // 500 + 1) for job in board.post_many([{"name": "a"}] * 500)]
    held = [job for _ in range(len(jobs) // 500) for job in board.claim_many("anna", 500)]
    # The first of them comes back last.
    held = [*held[1:], held[0]]
    for start in range(0, len(held), 500):
        board.finish_many([Act(job, "abandon") for job in held[start : start + 500]], "anna")
    assert taken(board).uuid == jobs[0].uuid
    assert [job.uuid for job in board.claim_many("anna", 5)] == [job.uuid for job in jobs[1:6]]


def test_more_are_locked_than_one_look_reads(board: JobBoard, engine: sa.Engine) -> None:
    jobs = board.post_many([{"name": "a"}] * 40)
    with engine.connect() as connection, connection.begin():
        locked = sa.select(board.table.c.id).order_by(board.table.c.id).limit(30).with_for_update()
        connection.execute(locked).all()
        assert taken(board).uuid == jobs[30].uuid
    assert taken(board).uuid == jobs[0].uuid


def test_priorities_that_nobody_has_met(board: JobBoard) -> None:
    work_off(board)
    for priority in (100, -100, 1, -1, 50):
        board.post("a", priority=priority)
    assert [taken(board).priority for _ in range(5)] == sorted((100, -100, 1, -1, 50), reverse=True)
    work_off(board)


def test_each_thread_learns_for_itself(board: JobBoard, engine: sa.Engine) -> None:
    found: list[str] = []
    barrier = threading.Barrier(3, timeout=30)

    def work() -> None:
        for _ in range(5):
            job = board.claim_next("anna")
            if job is not None:
                board.consume(job, "anna")
        barrier.wait()
        barrier.wait()
        job = board.claim_next("anna")
        if job is not None:
            found.append(job.name)

    board.post_many([{"name": "a"}] * 10)
    threads = [threading.Thread(target=work) for _ in range(2)]
    with open_transaction(engine) as connection:
        board.post_many([{"name": "late"}] * 2, connection=connection)
        for thread in threads:
            thread.start()
        barrier.wait()
        board.consume_many(board.claim_many("anna", 20), "anna")
    barrier.wait()
    for thread in threads:
        thread.join(30)
    assert found == ["late", "late"]


def test_a_new_connection_knows_nothing(board: JobBoard, engine: sa.Engine) -> None:
    work_off(board)
    assert [max(floors.floors.values()) > 0 for floors in floors_of(board)] == [True]
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'jobboard' AND datname = current_database()"
        )
    again = board.post("a")
    with engine.begin() as connection:
        connection.execute(sa.update(board.table).values(id=1))
    assert taken(board).uuid == again.uuid


def test_ids_begin_again(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    board = make_board(table="again")
    work_off(board)
    with engine.begin() as connection:
        connection.exec_driver_sql("TRUNCATE again RESTART IDENTITY")
    again = board.post("a")
    assert taken(board).uuid == again.uuid


def test_the_sequence_is_set_back(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """A look may pass over what comes then; the next survey sees it."""
    board = make_board(table="set_back")
    work_off(board)
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT setval('set_back_id_seq', 1)")
    again = board.post("a")
    assert again.uuid in [job.uuid for job in (board.claim_next("anna") for _ in range(2 * OFTEN)) if job is not None]


def test_the_clock_is_set_back(board: JobBoard) -> None:
    work_off(board)
    [floors] = floors_of(board)
    floors._time += 3600 * 1_000_000
    floors._wake = floors._time
    floors._bounds = [bound._replace(time=bound.time + 3600 * 1_000_000) for bound in floors._bounds]
    floors._params = floors._written()
    board.post("a", delay=0.01)
    assert eventually(lambda: board.claim_next("anna")) is not None


def test_who_may_not_use_the_sequence_claims_all_the_same(
    make_board: Callable[..., JobBoard], board_conf: dict[str, Any], engine: sa.Engine
) -> None:
    """It knows the ids that it has met itself."""
    board = make_board(name="theirs", table="granted")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE floored LOGIN PASSWORD 'secret'")
        connection.exec_driver_sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO floored")
    try:
        url = sa.make_url(board_conf["board"]).set(username="floored", password="secret")
        conf = {**board_conf, "board": url.render_as_string(hide_password=False), "table": "granted"}
        with jobboard.backend("theirs", conf) as theirs:
            for _ in range(3):
                board.post_many([{"name": "a"}] * 5)
                for _ in range(5):
                    theirs.consume(taken(theirs), "anna")
            [floors] = floors_of(theirs)
            assert max(floors.floors.values()) >= 10
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP OWNED BY floored")
            connection.exec_driver_sql("DROP ROLE floored")


def test_each_name_has_floors_of_its_own(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([{"name": "other"}] * 3)
    board.post_many([{"name": "mine"}] * 30)
    with open_transaction(engine) as connection:
        late = board.post("mine", connection=connection)
        board.post_many([{"name": "mine"}] * 3)
        done = [board.claim_next("anna", names=["mine"]) for _ in range(33)]
        assert {job.name for job in done if job is not None} == {"mine"}
        assert board.claim_next("anna", names=["mine"]) is None
    [floors] = floors_of(board, "mine")
    assert max(floors.floors.values()) > 30
    job = board.claim_next("anna", names=["mine"])
    assert job is not None
    assert job.uuid == late.uuid
    assert taken(board).name == "other"


@pytest.mark.parametrize("pin", ["SELECT 1", "SELECT pg_current_xact_id()"])
def test_a_job_costs_the_same_behind_a_pinned_snapshot(
    make_board: Callable[..., JobBoard], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, pin: str
) -> None:
    monkeypatch.undo()
    board = make_board(table="pinned", name=pin)
    link = board.engine.store.links.run(lambda link: link)
    link.cursor.execute("ALTER TABLE pinned SET (autovacuum_enabled = false)")
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql(pin)
        pages = []
        for batches in (30, 10, 1):
            board.post_many([{"name": "a"}] * 41)
            # As autovacuum does within a minute, where it may: without statistics one index looks like another.
            link.cursor.execute("ANALYZE pinned")
            pages.append(_pages_of_a_job(board, link))
            for _ in range(batches):
                board.post_many([{"name": "a"}] * 100)
                board.consume_many(board.claim_many("anna", 100), "anna")
            eventually(lambda: _risen(board), 30)
        [floors] = floors_of(board)
        assert max(floors.floors.values()) > 2000
    # With floors some fifty, and hardly more than before; without, each thousand adds some hundred.
    assert max(pages) < 200, pages
    queue = board.engine._shortcuts._lookout.queues._queues[None]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        eventually(lambda: _vacuumed(connection, queue, board))


def _risen(board: JobBoard) -> bool:
    """Whether the floors are where the jobs end: any transaction on this server keeps them from rising."""
    job = board.post("a")
    board.consume(taken(board), "anna")
    dear = board.engine._shortcuts._lookout.queues._queues[None].dear
    return dear and max(floors_of(board)[0].floors.values(), default=0) > job.sequence - 50


def _pages_of_a_job(board: JobBoard, link: Any) -> float:
    """The median: a probe and a survey read more, and how often there is one goes by the time."""
    pages = []
    for _ in range(41):
        with _buffers(link, "pinned") as read:
            board.consume(taken(board), "anna")
        pages.append(read())
    return statistics.median(pages)


def _vacuumed(connection: sa.Connection, queue: Any, board: JobBoard) -> bool:
    """Where nothing is in the way any more, the plain look comes back."""
    connection.exec_driver_sql("VACUUM pinned")
    queue.until = 0.0
    assert board.claim_next("anna") is None
    return not queue.dear


WORKER = """
import json, os, random, sys, time
import jobboard, sqlalchemy as sa
from jobboard.backends.sql import dear

uri, over, role, seed, count = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
dice = random.Random(seed)
dear.FIRST, dear.Queue.many = 1, -1
board = jobboard.fetch("floors", {"board": uri, "claim_ttl": 5})
board.connect()
posted, done = [], []
if role == "post":
    engine = sa.create_engine(board.engine._url)
    for _ in range(count):
        kind = dice.random()
        if kind < 0.6:
            posted.append(board.post("a", priority=dice.choice((0, 0, 50))).uuid)
        elif kind < 0.8:
            posted += [job.uuid for job in board.post_many([{"name": "a"}] * dice.randrange(2, 30))]
        else:
            with engine.connect() as connection:
                transaction = connection.begin()
                jobs = board.post_many([{"name": "a"}] * dice.randrange(1, 5), connection=connection)
                time.sleep(dice.random() * 0.3)
                jobs += [board.post("a", delay=dice.random() * 0.2, connection=connection)]
                if dice.random() < 0.3:
                    transaction.rollback()
                else:
                    transaction.commit()
                    posted += [job.uuid for job in jobs]
        time.sleep(dice.random() * 0.01)
else:
    idle = 0
    while idle < 25 and not (idle and os.path.exists(over) and board.job_count == 0):
        jobs = board.claim_many("anna", dice.choice((1, 1, 5)), expiry=dice.choice((None, None, 2)))
        idle = 0 if jobs or not os.path.exists(over) else idle + 1
        if not jobs:
            time.sleep(0.05)
        for job in jobs:
            if dice.random() < 0.2:
                board.abandon(job, "anna", delay=dice.choice((None, dice.random() * 0.3)))
            else:
                board.consume(job, "anna")
                done.append(job.uuid)
print(json.dumps([posted, done]))
board.close()
"""


def test_nothing_is_passed_over(
    make_board: Callable[..., JobBoard], board_conf: dict[str, Any], engine: sa.Engine, tmp_path: Path
) -> None:
    """Posters with open transactions, claimers with floors, jobs that come back, and a transaction that has written."""
    count = 25
    roles = [("post", count), ("post", count), ("post", count), ("claim", 0), ("claim", 0), ("claim", 0)]
    uri, over = board_conf["board"], tmp_path / "over"
    board = make_board(name="floors")
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT pg_current_xact_id()")
        workers = [
            subprocess.Popen([sys.executable, "-c", WORKER, uri, over, role, str(i), str(many)], stdout=subprocess.PIPE)
            for i, (role, many) in enumerate(roles)
        ]
        told = []
        for (role, _), worker in zip(roles, workers, strict=True):
            if role == "claim":
                # All is posted by now.
                over.touch()
            told.append(json.loads(worker.communicate(timeout=120)[0]))
        posted = [uuid for each, _ in told for uuid in each]
        done = [uuid for _, each in told for uuid in each]
        assert len(posted) > count
        assert board.job_count == 0
        assert sorted(done) == sorted(posted)


def test_an_answer_is_not_written_over_for_ever(board: JobBoard, engine: sa.Engine) -> None:
    """Each time leaves an old version, which a call walks past while a snapshot is pinned."""
    for _ in range(SLOT_CALLS + 1):
        board.post("a")
    answers = board.engine._tables.answers
    with engine.connect() as connection:
        mine = answers.c.handle == board._session.handle
        assert connection.execute(sa.select(sa.func.count()).where(mine).select_from(answers)).scalar_one() == 2
