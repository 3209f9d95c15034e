"""Jobs that somebody else's transaction has locked delay themselves, and none of the others that the board holds."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.job import Act, Posting, boottime
from jobboard.sql.connections import Link
from jobboard.states import UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, LIMIT, Background, replaced

pytestmark = [pytest.mark.backends("postgresql", "mariadb"), pytest.mark.any_driver]


def test_a_thousand_claims_of_which_fifty_are_locked(
    board: JobBoard, make_board: Callable[..., Any], engine: sa.Engine
) -> None:
    keeper = make_board(claim_ttl=HELD)
    board.post_many([Posting("resize")] * 1000)
    jobs = keeper.claim_many("anna", 1000)
    locked = set(jobs[::20])
    free = [job for job in jobs if job not in locked]
    rows = keeper.table.c.uuid.in_([job.uuid for job in locked])
    # Under REPEATABLE READ, InnoDB would lock all that it has looked through.
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        connection.execute(sa.select(keeper.table.c.uuid).where(rows).with_for_update())
        until = boottime() + 1.25 * HELD
        eventually(lambda: boottime() > until)
        assert board.stats().claimed == len(free)
        assert [job for job in free if job.claim.lost] == []
        keeper.finish_many([Act(job, "trash") for job in free[:100]], "anna")
        keeper.consume_many(free[100:], "anna")
        assert (board.stats().trashed, board.job_count) == (100, len(locked))
        assert board.claim_next("bert") is None, "what is locked is nobody's to take"
        # Not renewed, each is lost when its lease ends, as whoever comes first takes the job once it is free.
        assert all(job.claim.lost for job in locked)
        connection.rollback()
    assert len(eventually(lambda: board.claim_many("bert", 1000), LIMIT)) == len(locked)


def test_a_claim_that_is_locked_for_a_while(board: JobBoard, make_board: Callable[..., Any], engine: sa.Engine) -> None:
    """It stands until its lease ends, and is renewed once it can be."""
    keeper = make_board(claim_ttl=HELD)
    job = board.post("resize")
    keeper.claim(job, "anna")
    beats: list[Any] = []

    def renew(original: Callable[..., Any], *args: Any) -> Any:
        beats.append(original(*args))
        return beats[-1]

    with replaced(keeper, "renew", renew):
        with engine.connect() as connection:
            connection.execute(sa.select(keeper.table.c.id).where(keeper.table.c.uuid == job.uuid).with_for_update())
            deadline = job.claim.deadline
            eventually(lambda: any(beat.missed for beat in beats))
            assert job.claim.deadline == deadline
            connection.rollback()
        eventually(lambda: job.claim.deadline > deadline)
    assert not job.claim.lost


def test_posts_with_many_keys_do_not_wait_for_what_others_post(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([Posting("resize", key=f"{n}") for n in range(200)])
    done: list[Any] = []
    with engine.connect() as connection, connection.begin():
        board.post("mail", connection=connection)
        postings = [Posting("resize", key=f"{n}") for n in range(400)]
        poster = threading.Thread(target=lambda: done.append(board.post_many(postings)))
        poster.start()
        eventually(lambda: bool(done))
    poster.join()
    assert sum(job.created for job in done[0]) == 200


@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("limited", [False, True])
def test_of_several_names_the_next_is_found_at_once(board: JobBoard, engine: sa.Engine, limited: bool) -> None:
    """Behind those that others are about to take: who looks at the same time finds the same."""
    names = ["mail", "resize"]
    if limited:
        board.set_limit("mail", concurrency=5)
        assert board.claim_next("anna", names=["nothing"]) is None
    first, second, third = board.post_many([Posting(name) for name in ("resize", "mail", "resize")])
    with engine.connect() as connection:
        rows = board.table.c.uuid.in_([first.uuid, second.uuid])
        connection.execute(sa.select(board.table.c.uuid).where(rows).with_for_update())
        assert board.claim_next("anna", names=names) == third
        connection.rollback()
    assert [board.claim_next("anna", names=names) for _ in range(3)] == [first, second, None]


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
            if depth:
                return told
            with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
                left.append(connection.execute(ready.with_for_update(skip_locked=True)).scalar_one())
            return told

        return look

    for name in ("rows", "count", "single", "compound"):
        monkeypatch.setattr(Link, name, watched(getattr(Link, name)))
    return left


@pytest.mark.parametrize("names", [None, ["resize"], ["resize", "crop"]])
def test_who_is_about_to_sweep_holds_nothing_back(
    board: JobBoard, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, names: list[str] | None
) -> None:
    """Others may have seen the same sweep, or done it, and are served what no-one else has locked."""
    lapsed, *jobs = board.post_many([Posting("resize")] * 5)
    board.claim(lapsed, "anna", expiry=0.05)
    eventually(lambda: board.get(lapsed.uuid).state == UNCLAIMED)
    left = first_ones_left(board, engine, monkeypatch)
    assert board.claim_many("bert", 2, names=names) == [lapsed, jobs[0]]
    assert set(left) <= {lapsed.uuid, jobs[0].uuid, jobs[1].uuid}


def test_callers_at_read_committed_post_new_keys_at_once(board: JobBoard, engine: sa.Engine) -> None:
    """No gap between keys is locked."""
    board.post_many([Posting("resize", key="a"), Posting("resize", key="z")])
    isolated = engine.execution_options(isolation_level="READ COMMITTED")
    with isolated.connect() as first, isolated.connect() as second:
        assert board.post("resize", key="m", connection=first).created
        assert Background(lambda: board.post("resize", key="n", connection=second)).wait().created
        assert Background(lambda: board.post("resize", key="o")).wait().created
        second.commit()
        first.commit()
    assert board.job_count == 5
