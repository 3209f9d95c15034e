"""MariaDB's skims: a take passes dead entries at little cost, and passes over nothing that is ready."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql import dear
from jobboard.backends.sql.mariadb import lows, skims
from jobboard.backends.sql.writing import RowWriter
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.job import Act
from jobboard.sql.links import Link
from jobboard.sql.prepared import Compound
from jobboard.states import UNCLAIMED
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("mariadb")


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each take skim."""
    monkeypatch.setattr(dear, "FIRST", 1)
    monkeypatch.setattr(skims._SkimQueue, "many", -1)
    monkeypatch.setattr(lows, "LAG", 0)


@pytest.fixture
def engine(engine: sa.Engine) -> sa.Engine:
    """At REPEATABLE READ a caller's abandon locks a gap between uuids, into which now and then a post falls."""
    return engine.execution_options(isolation_level="READ COMMITTED")


def taken(board: JobBoard) -> Any:
    job = board.claim_next("anna")
    assert job is not None
    return job


def work_off(board: JobBoard, jobs: int = 12) -> None:
    board.post_many([{"name": "later"}] * jobs)
    assert taken(board).name == "later"
    assert [job.name for job in board.claim_many("anna", jobs)] == ["later"] * (jobs - 1)
    assert board.claim_next("anna") is None


@contextlib.contextmanager
def open_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect() as connection, connection.begin():
        yield connection


def plain_looks(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each take from now on that a skim has left to the plain look."""
    looks: list[None] = []
    skim = skims.Skims.look

    def look(*args: Any) -> Any:
        found = skim(*args)
        if found is None:
            looks.append(None)
        return found

    monkeypatch.setattr(skims.Skims, "look", look)
    return looks


@pytest.mark.parametrize("rows", [1, skims.SPARES[0] + 20, skims.SPARES[-1] + 10])
def test_a_post_that_commits_late_is_next(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    plain = plain_looks(board, monkeypatch)
    with open_transaction(engine) as connection:
        late = board.post_many([{"name": "late"}] * rows, connection=connection)
        work_off(board)
    # More than are skimmed.
    assert bool(plain) == (rows > skims.SPARES[-1])
    # And no more than need be: each is a row for every take from then on.
    queue = board.engine._shortcuts._skims.queues._queues[None]
    assert queue.spare == next((spare for spare in skims.SPARES if spare >= rows), skims.SPARES[-1])
    assert [job.uuid for job in board.claim_many("anna", rows)] == [job.uuid for job in late]


def test_what_a_skim_has_locked_it_takes(board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that is less than was asked for: others pass it over meanwhile, and are served what is behind it."""
    jobs = board.post_many([{"name": "a"}] * 30)
    held = 2 + skims.SPARES[0]
    c = board.table.c
    rolled_back: list[None] = []
    rollback = Link.rollback
    with open_transaction(engine) as holder:
        ids = [job.uuid for job in jobs[:held]]
        holder.execute(sa.select(c.id).where(c.uuid.in_(ids), c.board == board.name).with_for_update()).all()
        with monkeypatch.context() as patch:
            patch.setattr(Link, "rollback", lambda link: (rolled_back.append(None), rollback(link))[1])
            assert board.claim_many("anna", 3) == jobs[held : held + 1]
        assert len(rolled_back) == 1, "that of the watermark, before the look"
        # The next one reads more.
        assert board.claim_many("anna", 3) == jobs[held + 1 : held + 4]


def test_a_post_that_is_rolled_back_was_never_there(board: JobBoard, engine: sa.Engine) -> None:
    with engine.connect() as connection, connection.begin() as transaction:
        board.post("never", connection=connection)
        work_off(board)
        transaction.rollback()
    assert board.claim_next("anna") is None


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("delay", [None, 0.05])
def test_an_abandon_counts_when_it_is_committed(
    board: JobBoard, engine: sa.Engine, delay: float | None, commits: bool
) -> None:
    board.post("late")
    job = taken(board)
    with engine.connect() as connection, connection.begin() as transaction:
        board.abandon(job, "anna", delay=delay, connection=connection)
        if delay is not None:
            eventually(lambda: board.engine.now() > due_of(board, connection, job.uuid))
        work_off(board)
        (transaction.commit if commits else transaction.rollback)()
    if commits:
        assert taken(board).uuid == job.uuid
    else:
        assert board.claim_next("anna") is None
        board.consume(job, "anna")


def due_of(board: JobBoard, connection: sa.Connection, uuid: str) -> int:
    due: int = connection.execute(sa.select(board.table.c.wake_at).where(board.table.c.uuid == uuid)).scalar_one()
    return due


def test_a_lapse_behind_an_instant_that_nobody_has_committed(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, lapses = board.post_many([{"name": "a"}] * 2)
    job = taken(board)
    assert job.uuid == early.uuid
    with open_transaction(engine) as connection:
        board.abandon(job, "anna", delay=0.01, connection=connection)
        instant = due_of(board, connection, early.uuid)
        eventually(lambda: board.engine.now() > instant)
        board.extend(taken(board), "anna", 0.01)
        assert eventually(lambda: board.claim_next("anna")).uuid == lapses.uuid
        board.post("behind")
        # Nothing is to be swept that can be.
        monkeypatch.setattr(RowWriter, "sweep", None)
        assert taken(board).name == "behind"


def test_a_lapse_whose_end_is_rolled_back(board: JobBoard, engine: sa.Engine) -> None:
    """A skim does not show what a transaction has deleted; the next one shows it again."""
    job = board.post("a")
    claim = taken(board)
    with engine.connect() as connection, connection.begin() as transaction:
        board.consume(claim, "anna", connection=connection)
        with engine.connect() as other:
            eventually(lambda: board.claim_next("anna") is None)
            assert other.execute(sa.select(sa.func.count()).select_from(board.table)).scalar_one() == 1
        transaction.rollback()
    board.extend(claim, "anna", 0.01)
    assert eventually(lambda: board.claim_next("anna")).uuid == job.uuid


@pytest.mark.parametrize("how", ["abandon", "release", "restore", "lapse", "due"])
def test_what_comes_back_is_at_its_old_place(board: JobBoard, how: str) -> None:
    first = board.post("first", delay=0.3 if how == "due" else None)
    job = None if how == "due" else taken(board)
    board.post_many([{"name": "behind"}] * 3)
    assert taken(board).name == "behind"
    if how == "abandon":
        board.abandon(job, "anna")
    elif how == "release":
        board.release(job)
    elif how == "lapse":
        board.extend(job, "anna", 0.05)
    elif how == "restore":
        board.trash(job, "anna")
        assert taken(board).name == "behind"
        board.restore(job)
    eventually(lambda: board.get(first.uuid).seen_state == "UNCLAIMED")
    assert taken(board).uuid == first.uuid


def test_what_a_claim_has_locked_and_left_is_next(board: JobBoard, engine: sa.Engine) -> None:
    first = board.post("first")
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.update(board.table).where(board.table.c.uuid == first.uuid).values(state="CLAIMED"))
        work_off(board)
        transaction.rollback()
    assert taken(board).uuid == first.uuid


def test_one_name(board: JobBoard, engine: sa.Engine) -> None:
    board.post("other")
    with open_transaction(engine) as connection:
        late = board.post("mine", connection=connection)
        mine = board.post("mine")
        assert board.claim_next("anna", names=["mine"]).uuid == mine.uuid
        assert board.claim_next("anna", names=["mine"]) is None
    assert board.claim_next("anna", names=["mine"]).uuid == late.uuid
    assert taken(board).name == "other"


# Between a skim and its locks


@pytest.fixture
def between(board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Have a take wait between its skim and its locks until something was done; what it has taken."""
    looks = board.engine._shortcuts._skims._sql.skims
    parts = list(looks[False]._parts)
    at = parts.index("COMMIT;") + 1
    halts = Compound(*parts[:at], "DO GET_LOCK('between', 30); DO RELEASE_LOCK('between');", *parts[at:])
    monkeypatch.setitem(looks, False, halts)

    def between(act: Callable[[], Any]) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(board.claim_next("anna")))
        with engine.connect() as connection:
            connection.exec_driver_sql("DO GET_LOCK('between', 30)")
            thread.start()
            waits = "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'"
            eventually(lambda: connection.exec_driver_sql(waits).first())
            try:
                act()
            finally:
                connection.exec_driver_sql("DO RELEASE_LOCK('between')")
        thread.join(30)
        return found[0]

    return between


def test_a_job_that_another_claims_meanwhile(
    board: JobBoard, make_board: Callable[..., JobBoard], between: Callable[..., Any]
) -> None:
    first, second = board.post_many([{"name": "a"}] * 2)
    other = make_board()
    assert between(lambda: other.claim(first, "bert")).uuid == second.uuid
    assert other.find_owner(first) == "bert"


def test_an_abandon_that_is_rolled_back_meanwhile(
    board: JobBoard, engine: sa.Engine, between: Callable[..., Any]
) -> None:
    board.post("a")
    job = taken(board)
    with engine.connect() as connection, connection.begin() as transaction:
        board.abandon(job, "anna", connection=connection)
        assert between(transaction.rollback) is None
    board.consume(job, "anna")


@pytest.mark.parametrize("names", [None, ["b"]])
def test_a_pause_that_comes_meanwhile(
    board: JobBoard, make_board: Callable[..., JobBoard], between: Callable[..., Any], names: list[str] | None
) -> None:
    """Under other rules the take begins anew."""
    job = board.post("a")
    other = make_board()
    found = between(lambda: other.pause(names))
    if names is None:
        assert found is None
        other.resume()
        found = taken(board)
    assert found.uuid == job.uuid


def test_a_skim_that_breaks_off_leaves_nothing_uncommitted_to_be_read(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = board.engine._shortcuts._skims._sql.skims
    breaks = Compound(*looks[False]._parts[:2], "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'broken';")
    monkeypatch.setitem(looks, False, breaks)
    with pytest.raises(JobFailure, match="broken"):
        board.claim_next("anna")
    with open_transaction(engine) as connection:
        board.post("late", connection=connection)
        assert board.job_count == 0


# How dear takes are


def test_quotes_in_names(make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skims._SkimQueue, "many", 0)
    quoted = "\"a' \\"
    board = make_board(quoted)
    board.post_many([{"name": quoted}] * 2)
    queues = board.engine._shortcuts._skims.queues._queues
    for names in (None, [quoted]):
        job = board.claim_next("anna", names=names)
        assert (job.name, queues[names and quoted].dear) == (quoted, True)


def test_skims_are_planned_by_their_values(board: JobBoard) -> None:
    """Of a named statement these are no constants to the server, which then walks the events that are done, too."""
    for _ in range(4):
        work_off(board)
    named = board.engine.store.links.run(lambda link: link._named)
    assert named._calls
    assert [text for text in named._calls if "READ UNCOMMITTED" in text] == []


@pytest.mark.parametrize("pin", ["read", "write"])
def test_a_job_costs_the_same_behind_a_pinned_snapshot(
    make_board: Callable[..., JobBoard], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, pin: str
) -> None:
    monkeypatch.undo()
    board = make_board(table=f"pinned_{pin}")
    isolated = engine.connect().execution_options(isolation_level="REPEATABLE READ")
    with isolated as connection, connection.begin() as transaction:
        connection.execute(sa.select(sa.func.count()).select_from(board.table)).all()
        if pin == "write":
            board.post("late", connection=connection)
        young = pages_of_a_job(board, engine)
        for _ in range(12):
            board.post_many([{"name": "a"}] * 100)
            board.consume_many(board.claim_many("anna", 100), "anna")
        # A probe comes after every 300 takes, and ten of the jobs above count as one.
        queue = board.engine._shortcuts._skims.queues._queues[None]
        queue.takes = 1
        # Without skims each thousand jobs add 2,000 pages.
        eventually(lambda: pages_of_a_job(board, engine) < young + 200)
        assert queue.dear
        transaction.rollback()
    eventually(lambda: no_longer_dear(queue, board))


def test_a_job_that_falls_due_costs_the_same_behind_a_pinned_snapshot(
    make_board: Callable[..., JobBoard], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lows, "LAG", 3600)
    board = make_board(table="delayed")
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        connection.execute(sa.select(sa.func.count()).select_from(board.table)).all()
        young = pages_of_a_job(board, engine, delay=0.001)
        for _ in range(10):
            board.post_many([{"name": "a"}] * 100)
            board.consume_many(board.claim_many("anna", 100), "anna")
        # Where it is looked for row by row, each of these thousand adds two pages and more.
        eventually(lambda: pages_of_a_job(board, engine, delay=0.001) < young + 300)


def test_what_writes_to_few_jobs_meets_no_dead_rows(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """Statistics leave dead rows out, by which the whole table is smaller than a look at some rows."""
    board = make_board(table="dead")
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        connection.execute(sa.select(sa.func.count()).select_from(board.table)).all()
        for _ in range(30):
            board.post_many([{"name": "a", "details": {"text": "x" * 1000}}] * 100)
            board.consume_many(board.claim_many("anna", 100), "anna")

        def ends() -> int:
            board.post_many([{"name": "a"}] * 3)
            held = board.claim_many("anna", 3)
            with engine.connect() as other:
                other.exec_driver_sql(f"ANALYZE TABLE {board.table.name}")
            acts = [*(Act(job, "consume") for job in held[:2]), Act(held[2], "abandon")]
            pages = pages_of(lambda: board.finish_many(acts, "anna"), engine)
            board.consume(taken(board), "anna")
            return pages

        # All rows are on some 250 pages.
        assert min(ends() for _ in range(3)) < 200


def test_many_that_lapse_at_once_cost_the_same_behind_a_pinned_snapshot(
    make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    """Also where others are at the first ones."""
    board = make_board(table="lapses")
    c = board.table.c

    def lapses() -> int:
        board.post_many([{"name": "a"}] * 150)
        jobs = board.claim_many("anna", 150, expiry=0.5)
        assert len(set(jobs)) == 150
        eventually(lambda: board.get(jobs[-1].uuid).state == UNCLAIMED)
        again: list[Any] = []
        with open_transaction(engine) as holder:
            first = [job.uuid for job in jobs[:60]]
            holder.execute(sa.select(c.id).where(c.uuid.in_(first), c.board == board.name).with_for_update()).all()
            pages = pages_of(lambda: again.extend(board.claim_many("bert", 150)), engine)
        assert [job.uuid for job in again] == [job.uuid for job in jobs[60:]]
        board.consume_many([*again, *board.claim_many("bert", 60)], "bert")
        return pages

    lapses()
    young = min(lapses() for _ in range(2))
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        connection.execute(sa.select(sa.func.count()).select_from(board.table)).all()
        # The ends of their leases lie ahead, where a look at what is overdue stops only behind all that are dead.
        for _ in range(40):
            board.post_many([{"name": "a"}] * 100)
            board.consume_many(board.claim_many("anna", 100), "anna")
        assert min(lapses() for _ in range(3)) < young + 5000


def pages_of(work: Callable[[], object], engine: sa.Engine) -> int:
    """The server counts what others read, too."""
    with engine.connect() as connection:
        read = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"
        before = int(connection.exec_driver_sql(read).one()[1])
        work()
        return int(connection.exec_driver_sql(read).one()[1]) - before


def pages_of_a_job(board: JobBoard, engine: sa.Engine, jobs: int = 21, delay: float | None = None) -> int:
    """The fewest: the server counts what others read, too, and others may read for longer than all of these take."""
    if delay is None:
        board.post_many([{"name": "a"}] * jobs)
    found = []
    with engine.connect() as connection:
        read = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"
        for _ in range(jobs):
            if delay is not None:
                job = board.post("a", delay=delay)
                eventually(lambda job=job: job.state == UNCLAIMED)  # type: ignore[misc]
            before = int(connection.exec_driver_sql(read).one()[1])
            board.consume(taken(board), "anna")
            found.append(int(connection.exec_driver_sql(read).one()[1]) - before)
    return min(found)


def no_longer_dear(queue: Any, board: JobBoard) -> bool:
    """Where nothing is in the way any more, the plain look comes back."""
    queue.until = 0.0
    assert board.claim_next("anna") is None
    return not queue.dear
