"""Lows of MariaDB's connections: what is behind them is found at once, and what they have passed over by the net."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import codec
from jobboard.backends.sql import dear
from jobboard.backends.sql.mariadb import lows, skims
from jobboard.backends.sql.mariadb.lows import Lows, Told, Watermark
from jobboard.board import JobBoard
from jobboard.job import Act
from jobboard.testing import eventually
from tests.backends.sql.test_skims import open_transaction, taken, work_off

pytestmark = pytest.mark.backends("mariadb")

FAR = 10**9
"""Seconds, beyond the end of the test."""
NORMAL = 100
"""The rank of that priority."""


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


def test_the_first_of_many_young_jobs_comes_first(board: JobBoard) -> None:
    without_net(board)
    board.post_many([{"name": "many"}] * (skims.SPARES[-1] + 2) + [{"name": "urgent", "priority": "HIGH"}])
    assert [job.name for job in board.claim_many("anna", 2)] == ["urgent", "many"]


def test_the_first_of_many_known_jobs_comes_first(board: JobBoard, engine: sa.Engine) -> None:
    found = without_net(board)
    with open_transaction(engine) as connection:
        late = [{"name": "many"}] * (skims.SPARES[0] + 2) + [{"name": "urgent", "priority": "HIGH"}]
        board.post_many(late, connection=connection)
        work_off(board)
        assert len(found._known) == len(late)
    # It has risen, as the looks have met them locked.
    board.engine._shortcuts._skims.queues._queues[None].spare = skims.SPARES[0]
    assert [job.name for job in board.claim_many("anna", 2)] == ["urgent", "many"]


@pytest.mark.parametrize("rows", [1, lows.FEW, lows.FEW + 1, lows.FEW + 2])
def test_posts_that_are_not_committed_are_found_when_they_are(board: JobBoard, engine: sa.Engine, rows: int) -> None:
    found = without_net(board)
    with open_transaction(engine) as connection:
        late = board.post_many([{"name": "late"}] * rows, connection=connection)
        ids = [id_of(board, connection, job.uuid) for job in late]
        work_off(board)
        work_off(board)
        # They do not hold it; and a floor only if they are many.
        assert found._known == ids[: lows.FEW]
        assert found._floors == ([(NORMAL, ids[lows.FEW])] if rows > lows.FEW else [])
        assert found._low > ids[-1]
    assert [job.uuid for job in board.claim_many("anna", rows)] == [job.uuid for job in late]
    assert board.claim_next("anna") is None
    work_off(board)
    assert found._known == []


def test_what_is_known_and_comes_back_is_one_job(board: JobBoard, engine: sa.Engine) -> None:
    without_net(board)
    with open_transaction(engine) as connection:
        late = board.post("late", connection=connection)
        work_off(board)
    [job] = board.claim_many("anna", 2)
    board.abandon(job, "anna")
    assert [job.uuid for job in board.claim_many("anna", 2)] == [late.uuid]


def test_posts_that_are_rolled_back_are_forgotten(board: JobBoard, engine: sa.Engine) -> None:
    found = without_net(board)
    with engine.connect() as connection, connection.begin() as transaction:
        board.post("never", connection=connection)
        work_off(board)
        assert len(found._known) == 1
        transaction.rollback()
    work_off(board)
    assert found._known == []


@pytest.mark.parametrize("net", [False, True])
def test_an_open_post_that_is_taken_back_by_its_claimer(board: JobBoard, engine: sa.Engine, net: bool) -> None:
    """Committed, and claimed by a transaction that has not ended: it is ready in one of the views."""
    found = without_net(board)
    with open_transaction(engine) as connection:
        late = board.post("late", connection=connection)
        work_off(board)
        assert len(found._known) == 1
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.update(board.table).where(board.table.c.uuid == late.uuid).values(state="CLAIMED"))
        found._late = 0 if net else FAR
        work_off(board)
        found._late = FAR
        assert len(found._known) == 1
        transaction.rollback()
    assert taken(board).uuid == late.uuid


def test_a_claim_of_what_has_come_back_that_is_rolled_back(board: JobBoard, engine: sa.Engine) -> None:
    board.post("first")
    first = taken(board)
    found = without_net(board)
    board.abandon(first, "anna")
    t = board.table
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.update(t).where(t.c.uuid == first.uuid).values(state="CLAIMED", returned=None))
        work_off(board)
        assert found._known == [id_of(board, connection, first.uuid)]
        transaction.rollback()
    assert taken(board).uuid == first.uuid


def test_more_that_come_back_than_are_looked_at_one_by_one(board: JobBoard) -> None:
    many = lows.RETURNED + 20
    board.post_many([{"name": f"{n}", "priority": "HIGH" if n % 2 else "LOW"} for n in range(many)])
    jobs = board.claim_many("anna", many)
    without_net(board)._due = FAR
    # The last to be served come back first.
    for job in reversed(jobs):
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


@pytest.mark.parametrize("seed", range(6))
def test_however_they_are_found_they_are_served_in_order(board: JobBoard, engine: sa.Engine, seed: int) -> None:
    """Many and few of a priority, young and old, committed late, come back, or with a new priority."""
    dice = random.Random(seed)
    found = without_net(board)
    ready: dict[str, tuple[int, int]] = {}
    claimed: list[tuple[Any, tuple[int, int]]] = []
    late: list[Any] = []
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(open_transaction(engine))
        for number in range(60):
            # With lows of just now, of some time ago, or none.
            found._due = dice.choice([0, 0, FAR])
            found._soon = found._late = dice.choice([0, FAR, FAR])
            act = dice.choice(["post", "post late", "commit", "replace", "claim", "claim", "claim"])
            some, priority = dice.choice([1, 3, lows.FEW - 1, 2 * lows.FEW]), dice.choice([-50, 0, 0, 0, 50, 77])
            if act == "post":
                postings = [{"name": "a", "priority": priority, "key": f"{number}-{n}"} for n in range(some)]
                ready |= {job.uuid: (-priority, job.sequence) for job in board.post_many(postings)}
            elif act == "post late":
                late += board.post_many([{"name": "late", "priority": priority}] * some, connection=connection)
            elif act == "commit":
                stack.close()
                ready |= {job.uuid: (-job.priority, job.sequence) for job in late}
                late.clear()
                connection = stack.enter_context(open_transaction(engine))
            elif act == "replace" and ready:
                job = board.get(dice.choice([*ready]))
                if job.key is not None and board.post("b", key=job.key, priority=priority, on_key="replace").replaced:
                    ready[job.uuid] = (-priority, job.sequence)
            else:
                jobs = board.claim_many("anna", some)
                # Others may hold so many that not all are found at once.
                while late and 0 < len(jobs) < some and (more := board.claim_many("anna", some - len(jobs))):
                    jobs += more
                assert [job.uuid for job in jobs] == sorted(ready, key=ready.__getitem__)[:some], act
                claimed += [(job, ready.pop(job.uuid)) for job in jobs]
                back = claimed[:: dice.choice([2, 5, 100])]
                board.finish_many([Act(job, "abandon") for job, _ in back], "anna")
                ready |= {job.uuid: place for job, place in back}
                board.consume_many([job for job, _ in claimed if job.uuid not in ready], "anna")
                claimed.clear()


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
        assert found._known == [held + 1]
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
NOTHING = Told({}, {}, None)


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
    found.learn(NOTHING, True, 0)
    assert not found.near
    found.mark(Watermark(200, 9_000, "here"))
    found.learn(NOTHING, False, 0)
    told = {"p_low": 100, "p_back": 5_000, "p_wake": 5_000, "p_known": "[]"}
    assert told.items() <= found.params().items()


def test_what_is_ready_is_known() -> None:
    found = known()
    found.learn(Told({50: [7, 70, 101], 30: [8]}, {50: [6, 70], 60: [9, 102]}, 3_000), False, 0)
    assert (found._known, found._floors) == ([8, 6, 7, 70, 9], [])
    assert (found._low, found._back, found._wake) == (100, 5_000, 2_999)


MANY = [*range(10, 11 + lows.FEW)]


@pytest.mark.parametrize(
    ("committed", "there", "ids", "floor"),
    [
        (MANY[1:], MANY[1:], MANY[1:], None),
        (MANY, [], [], 10),
        (MANY, MANY, [], 10),
        # Not committed: known as far as they were told.
        ([], MANY, MANY[:-1], MANY[-1]),
        ([3], MANY, [3, *MANY[:-1]], MANY[-1]),
        (MANY, [1, 2, *MANY[2:]], [1, 2], 10),
        ([n + 1000 for n in MANY], MANY, MANY[:-1], MANY[-1]),
    ],
)
def test_a_floor_is_the_first_of_many_that_is_committed(
    committed: list[int], there: list[int], ids: list[int], floor: int | None
) -> None:
    found = known(2_000)
    found.learn(Told({50: committed}, {50: there}, None), False, 0)
    assert found._known == ids
    assert found._floors == ([] if floor is None else [(50, floor)])
    assert found.near


def test_young_ones_need_no_floor() -> None:
    found = known(50)
    found.learn(Told({50: [n + 41 for n in MANY]}, {50: [30, 60]}, None), False, 0)
    assert (found._known, found._floors) == ([30], [])


@pytest.mark.parametrize(
    ("priorities", "each", "near"),
    [
        (lows.FLOORS, lows.FEW + 1, True),
        (lows.FLOORS + 1, lows.FEW + 1, False),
        (lows.KNOWN, 1, True),
        (lows.KNOWN + 1, 1, False),
    ],
)
def test_of_too_much_nothing_is_remembered(priorities: int, each: int, near: bool) -> None:
    found = known(10**6)
    found.learn(Told({n: [*range(each)] for n in range(priorities)}, {}, None), True, 0)
    assert found.near == near
    assert found.blank != near
    assert found.params(afresh=True)["p_wake"] == 0


def test_far_from_what_was_drawn_looks_go_by_the_index() -> None:
    found = known()
    assert found.near
    found.mark(Watermark(100 + lows.NEAR + 1, 9_000, "here"))
    assert not found.near


def test_without_the_right_to_see_what_was_drawn_there_are_none() -> None:
    found = Lows()
    for now in (1, 2, 3):
        found.mark(Watermark(None, now, "here"))
        found.learn(NOTHING, False, 0)
    assert not found.near
    assert found.params() == Lows().params()


def known(last: int = 100) -> Lows:
    found = Lows()
    for _ in range(2):
        found.mark(MARK._replace(drawn=last))
    found.learn(NOTHING, False, 0)
    return found
