"""Lows of MariaDB's connections: what is behind them is found at once, and what they have passed over by the net."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import codec
from jobboard.backends.sql import dear
from jobboard.backends.sql.mariadb import lows, skims
from jobboard.backends.sql.mariadb.lows import Lows, Told, Watermark
from jobboard.board import JobBoard
from jobboard.testing import eventually
from tests.backends.sql.test_skims import open_transaction, taken, work_off

pytestmark = pytest.mark.backends("mariadb")

FAR = 10**9
"""Seconds, beyond the end of the test."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each take skim, and survey before."""
    monkeypatch.setattr(dear, "FIRST", 1)
    monkeypatch.setattr(skims._SkimQueue, "many", -1)
    monkeypatch.setattr(lows, "LAG", 0)


@pytest.fixture
def engine(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(isolation_level="READ COMMITTED")


def lows_of(board: JobBoard, name: str | None = None) -> Lows:
    [found] = board.engine._shortcuts._skims.queues._queues[name].lows.values()
    assert isinstance(found, Lows)
    return found


def without_net(board: JobBoard) -> Lows:
    """Once there are lows, have them trusted for the rest of the test."""
    work_off(board)
    found = lows_of(board)
    assert found.near
    found._late = found._soon = FAR
    return found


def id_of(board: JobBoard, connection: sa.Connection, uuid: str) -> int:
    t = board.table
    found: int = connection.execute(sa.select(t.c.id).where(t.c.uuid == uuid)).scalar_one()
    return found


def test_looks_begin_behind_what_is_done(board: JobBoard) -> None:
    found = without_net(board)
    low = found._low
    work_off(board)
    assert low + 12 <= found._low <= found._marks[-1].drawn
    board.post("last")
    assert taken(board).name == "last"


@pytest.mark.parametrize("rows", [1, lows.OPENED, lows.OPENED + 1])
def test_posts_that_are_not_committed_are_found_when_they_are(board: JobBoard, engine: sa.Engine, rows: int) -> None:
    found = without_net(board)
    with open_transaction(engine) as connection:
        late = board.post_many([{"name": "late"}] * rows, connection=connection)
        ids = [id_of(board, connection, job.uuid) for job in late]
        work_off(board)
        work_off(board)
        # They do not hold it, as long as they are few.
        assert found._opened == ids[: lows.OPENED]
        assert (found._low > ids[-1]) == (rows <= lows.OPENED)
    assert [job.uuid for job in board.claim_many("anna", rows)] == [job.uuid for job in late]
    assert board.claim_next("anna") is None
    work_off(board)
    assert found._opened == []


def test_posts_that_are_rolled_back_are_forgotten(board: JobBoard, engine: sa.Engine) -> None:
    found = without_net(board)
    with engine.connect() as connection, connection.begin() as transaction:
        board.post("never", connection=connection)
        work_off(board)
        assert len(found._opened) == 1
        transaction.rollback()
    work_off(board)
    assert found._opened == []


def test_an_open_post_that_is_taken_back_by_its_claimer(board: JobBoard, engine: sa.Engine) -> None:
    """Committed, and claimed by a transaction that has not ended: it is ready in one of the views."""
    found = without_net(board)
    with open_transaction(engine) as connection:
        late = board.post("late", connection=connection)
        work_off(board)
        assert len(found._opened) == 1
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.update(board.table).where(board.table.c.uuid == late.uuid).values(state="CLAIMED"))
        work_off(board)
        assert len(found._opened) == 1
        transaction.rollback()
    assert taken(board).uuid == late.uuid


def test_a_claim_of_what_has_come_back_that_is_rolled_back(board: JobBoard, engine: sa.Engine) -> None:
    board.post("first")
    first = taken(board)
    found = without_net(board)
    board.abandon(first, "anna")
    t = board.table
    with engine.connect() as connection, connection.begin() as transaction:
        back = connection.execute(sa.select(t.c.returned).where(t.c.uuid == first.uuid)).scalar_one()
        connection.execute(sa.update(t).where(t.c.uuid == first.uuid).values(state="CLAIMED", returned=None))
        work_off(board)
        assert found._back == back - 1
        transaction.rollback()
    assert taken(board).uuid == first.uuid


def test_more_that_come_back_than_are_looked_at_one_by_one(board: JobBoard) -> None:
    many = lows.RETURNED + 20
    board.post_many([{"name": f"{n}", "priority": "HIGH" if n % 2 else "LOW"} for n in range(many)])
    jobs = board.claim_many("anna", many)
    without_net(board)
    for job in jobs:
        board.abandon(job, "anna")
    assert [board.claim_next("anna").uuid for _ in range(5)] == [job.uuid for job in jobs[:5]]
    assert [job.uuid for job in board.claim_many("anna", many)] == [job.uuid for job in jobs[5:]]


def test_in_serving_order(board: JobBoard) -> None:
    """What has come back, what was not committed, and what is new."""
    low, high = board.post("old low", priority="LOW"), board.post("old", priority="HIGH")
    jobs = board.claim_many("anna", 2)
    without_net(board)
    for job in jobs:
        board.abandon(job, "anna")
    board.post("new low", priority="LOW")
    board.post("new", priority="HIGH")
    names = [job.name for job in board.claim_many("anna", 9)]
    assert names == ["old", "new", "old low", "new low"]
    assert {low.uuid, high.uuid} == {job.uuid for job in jobs}


def test_the_net_finds_what_people_bring_back(board: JobBoard, engine: sa.Engine) -> None:
    board.post("first")
    first = taken(board)
    found = without_net(board)
    t = board.table
    with engine.begin() as connection:
        change = {"state": "UNCLAIMED", "who": None, "keeper": None, "lock_until": None, "wake_at": None}
        connection.execute(sa.update(t).where(t.c.uuid == first.uuid).values(change))
    assert board.claim_next("bert") is None, "the lows are not trusted, so that this shows nothing"
    found._late = 0
    assert taken(board).uuid == first.uuid


def test_the_net_finds_a_post_that_waits_for_a_lock_before_its_row_is_there(board: JobBoard, engine: sa.Engine) -> None:
    """A statement of several rows draws all their ids at first. The row that waits is there, and the next is not."""
    found = without_net(board)
    t = board.table
    posting = codec.encode(codec.Content({}, None), board.engine.wire)
    common = {"priority": 50, "version": 1, "posting": posting, "attempts": 0, "token": 0, "retries": 0}
    common |= {"board": board.name, "created_on": 1, "modified_on": 1, "state": "UNCLAIMED"}
    # Nobody else's uuid falls into the gap before it, which is locked as well.
    waits, follows = ({**common, "uuid": uuid, "name": name} for uuid, name in (("!", "waits"), ("~", "follows")))
    done: list[Any] = []
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.insert(t).values({**waits, "state": "CLAIMED"}))
        held = id_of(board, connection, "!")

        def post() -> None:
            with engine.begin() as other:
                done.append(other.execute(sa.insert(t).values([waits, follows])))

        thread = threading.Thread(target=post)
        thread.start()
        eventually(lambda: drawn(engine, board) >= held + 2)
        work_off(board)
        work_off(board)
        assert found._low > held + 2
        assert found._opened == [held + 1]
        assert not done
        transaction.rollback()
    thread.join()
    assert taken(board).name == "waits"
    assert board.claim_next("anna") is None, "it was found at once, so that this shows nothing"
    found._late = 0
    assert taken(board).name == "follows"


def drawn(engine: sa.Engine, board: JobBoard) -> int:
    with engine.connect() as connection:
        ask = "SELECT AUTO_INCREMENT - 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        ask += " AND TABLE_NAME = %s"
        found: int = connection.exec_driver_sql(ask, (board.table.name,)).scalar_one()
        return found


def test_a_table_that_was_emptied(board: JobBoard, engine: sa.Engine) -> None:
    without_net(board)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE TABLE {board.table.name}")
    job = board.post("first")
    assert taken(board).uuid == job.uuid


# What is remembered


MARK = Watermark(100, 5_000, "here")


@pytest.mark.parametrize("then", [(99, 6_000, "here"), (101, 4_999, "here"), (101, 6_000, "there")])
def test_lows_do_not_outlive_their_table(then: tuple[int, int, str]) -> None:
    found = known()
    found.mark(Watermark(*then))
    assert found.params() == Lows().params()
    found.mark(Watermark(101, 6_000, then[2]))
    assert found.params() == Lows().params()


def test_nothing_is_raised_over_the_mark_before() -> None:
    found = Lows()
    found.mark(MARK)
    found.learn(Told(None, 0, None, None, [], set()), True, 0)
    assert not found.near
    found.mark(Watermark(200, 9_000, "here"))
    found.learn(Told(None, 0, None, None, [], set()), False, 0)
    assert found.params() == {"p_low": 100, "p_back": 5_000, "p_wake": 5_000, "p_opened": "[]"}


def test_the_first_of_each_holds_it() -> None:
    found = known()
    found.learn(Told(70, 5, 4_000, 3_000, [], set()), False, 0)
    assert found.params() == {"p_low": 69, "p_back": 3_999, "p_wake": 2_999, "p_opened": "[]"}
    found.learn(Told(None, 0, None, None, [], set()), False, 0)
    assert found.params()["p_low"] == 100


def test_far_from_what_was_drawn_looks_go_by_the_index() -> None:
    found = known()
    assert found.near
    found.mark(Watermark(100 + lows.NEAR + 1, 9_000, "here"))
    assert not found.near


def test_behind_a_crowd_looks_go_by_the_index() -> None:
    found = known()
    found.met(lows.CROWD + 1)
    assert not found.near
    found.learn(Told(70, lows.CROWD + 1, None, None, [], set()), False, 0)
    assert not found.near
    found.learn(Told(70, lows.CROWD, None, None, [], set()), False, 0)
    assert found.near


def test_without_the_right_to_see_what_was_drawn_there_are_none() -> None:
    found = Lows()
    for now in (1, 2, 3):
        found.mark(Watermark(None, now, "here"))
        found.learn(Told(None, 0, None, None, [], set()), False, 0)
    assert not found.near
    assert found.params() == Lows().params()


def known(make: Callable[[], Lows] = Lows) -> Lows:
    found = make()
    found.mark(MARK)
    found.mark(MARK)
    found.learn(Told(None, 0, None, None, [], set()), False, 0)
    return found
