"""Limits beside what else a board on SQL does: floors, ``where=``, and the transactions of callers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql import dear
from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.testing.conformance.support import LIMIT, PATIENCE, Background, take, uuids

SQL = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def work_off(board: JobBoard, name: str, group: str | None, number: int = 60) -> None:
    """Have the board's connection learn where what is done ends."""
    board.post_many([Posting(name, group=group)] * number)
    for _ in range(number // 2):
        board.consume(take(board, names=[name]), "anna")
        board.consume(take(board), "anna")


@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("first", ["limit", "floors"])
def test_no_floor_rises_over_what_had_no_room(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Behind a snapshot that nothing can be cleared away for."""
    monkeypatch.setattr(dear, "FIRST", 1)
    monkeypatch.setattr(dear.Queue, "many", -1)
    monkeypatch.setattr("jobboard.backends.sql.postgresql.floors.OFTEN", 2)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql("SELECT pg_current_xact_id()")
        if first == "floors":
            work_off(board, "other", None)
            [floors] = board.engine._shortcuts._lookout.queues._queues[None].floors.values()
            assert floors.floors
        board.set_limit("mail", concurrency=1, per="group")
        big = board.post_many([Posting("mail", group="big") for _ in range(4)])
        held = take(board)
        for group in "abc":
            work_off(board, "mail", group)
        work_off(board, "other", None)
        assert board.claim_next("anna") is None
        # It comes back behind the others of its group, by its priority.
        board.abandon(held, "anna")
        assert take(board) == big[0]
        board.consume(big[0], "anna")
        assert take(board, names=["mail"]) == big[1]
        assert board.claim_next("anna") is None
        board.remove_limit("mail")
        assert uuids(board.claim_many("anna", 5)) == uuids(big[2:])


@SQL
def test_where_under_contention(board: JobBoard, make_board: Any) -> None:
    """Each takes jobs of its own half of the groups; no group ever has more claims than it may."""
    board.set_limit("mail", concurrency=2, per="group")
    groups, many, workers = "abcd", 60, 4
    posted = board.post_many([Posting("mail", group=groups[n % 4]) for n in range(many)])
    boards = [make_board() for _ in range(workers)]
    lock, held, most, done = threading.Lock(), dict.fromkeys(groups, 0), dict.fromkeys(groups, 0), list[str]()

    def work(number: int) -> None:
        mine, who = boards[number], f"worker {number}"
        wanted = groups[:2] if number % 2 else groups[2:]
        condition = mine.table.c.job_group.in_(list(wanted))
        while job := mine.claim_next(who, where=condition, timeout=1):
            assert job.group is not None
            assert job.group in wanted
            with lock:
                held[job.group] += 1
                most[job.group] = max(most[job.group], held[job.group])
            with lock:
                held[job.group] -= 1
                done.append(job.uuid)
            mine.consume(job, who)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert sorted(done) == sorted(uuids(posted))
    assert max(most.values()) <= 2
    assert board.job_count == 0


@SQL
@pytest.mark.parametrize("verb", ["consume", "abandon", "trash"])
def test_a_callers_transaction_that_is_rolled_back_keeps_the_slot(
    board: JobBoard, other: JobBoard, engine: sa.Engine, verb: str
) -> None:
    """And the claim stands; the end that is committed then gives the slot to another."""
    board.set_limit("mail", concurrency=1)
    first, second = board.post_many([Posting("mail"), Posting("mail")])
    held = take(board)
    with engine.connect() as connection:
        getattr(board, verb)(held, "anna", connection=connection)
        connection.rollback()
    assert other.claim_next("bert") is None
    assert held.claim is not None
    held.claim.extend()
    waiter = Background(lambda: other.claim_next("bert", timeout=PATIENCE))
    with engine.begin() as connection:
        getattr(board, verb)(held, "anna", connection=connection)
    # A look that began before the commit may have seen the other one alone.
    assert waiter.wait(LIMIT) in ((first, second) if verb == "abandon" else (second,))
    assert board.claim_next("anna") is None


@SQL
def test_a_post_that_is_rolled_back_takes_no_slot(board: JobBoard, engine: sa.Engine) -> None:
    board.set_limit("mail", concurrency=1)

    def post(connection: Any) -> Job:
        return board.post("mail", connection=connection)

    with engine.connect() as connection:
        gone = post(connection)
        connection.rollback()
    with engine.begin() as connection:
        stays = post(connection)
    assert take(board) == stays != gone
    with engine.begin() as connection:
        post(connection)
    assert board.claim_next("anna") is None


@SQL
def test_a_list_that_tells_of_claims_that_have_ended(board: JobBoard, other: JobBoard) -> None:
    """Who has not made a claim leaves it there; it takes no slot."""
    board.set_limit("mail", concurrency=1)
    _, second = board.post_many([Posting("mail"), Posting("mail")])
    other.consume(other.get(take(board).uuid), "anna")
    assert take(board) == second
    assert board.claim_next("bert") is None


@SQL
def test_a_list_that_tells_of_starts_as_well(board: JobBoard) -> None:
    """They stand behind the claims, of which there are never more than there may be."""
    board.set_limit("mail", concurrency=3, rate=(9, 60))
    board.post_many([Posting("mail")] * 5)
    take(board)
    board.set_limit("mail", concurrency=3)
    assert len([take(board), take(board)]) == 2
    assert board.claim_next("anna") is None


@SQL
@pytest.mark.parametrize("length", [9, 36])
def test_uuids_of_another_length(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """As of jobs from elsewhere: two of them may list as much as one other."""
    monkeypatch.setattr("jobboard.backends.sql.postgresql.limited.CROWDED", 0)
    board.set_limit("mail", concurrency=2)
    jobs = board.post_many([Posting("mail")] * 4)
    board.consume(take(board), "anna")
    with engine.begin() as connection:
        for job in jobs[1:3]:
            named = sa.update(board.table).where(board.table.c.uuid == job.uuid)
            connection.execute(named.values(uuid=job.uuid[:length]))
    assert [take(board).uuid for _ in range(2)] == [job.uuid[:length] for job in jobs[1:3]]
    assert board.claim_next("anna") is None


@SQL
def test_several_that_fit_only_in_part(board: JobBoard) -> None:
    board.set_limit("mail", concurrency=2, per="group")
    posted = board.post_many([Posting("mail", group=group) for group in "aaabbb"])
    got = board.claim_many("anna", 6)
    assert uuids(got) == uuids([posted[n] for n in (0, 1, 3, 4)])
    board.consume_many(got[:2], "anna")
    assert uuids(board.claim_many("anna", 6)) == uuids(posted[2:3])


@pytest.mark.backends("mariadb")
@pytest.mark.parametrize("between", ["claim", "lower"])
def test_what_happens_between_the_look_and_the_claim(board: JobBoard, other: JobBoard, spy: Any, between: str) -> None:
    """The last slots are another's then, or there are none."""
    board.set_limit("mail", concurrency=4)
    board.post_many([Posting("mail")] * 6)
    held = [take(board), take(other)]
    met: list[Any] = []

    def before(text: str) -> None:
        if text.startswith("BEGIN NOT ATOMIC") and not met:
            met.append(between)
            met.append(other.claim_many("bert", 2) if between == "claim" else other.set_limit("mail", concurrency=2))

    with spy(board, before):
        assert board.claim_many("anna", 2) == []
    assert met
    other.consume(held[1], "anna")
    assert board.claim_next("anna") is not None
    assert board.claim_next("anna") is None
