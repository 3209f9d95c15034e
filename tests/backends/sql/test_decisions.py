"""One statement decides: two statements of a call never judge one row each by itself, and no lock delays other jobs."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.engine import Answer, Change, Mark, Side
from jobboard.engine.answers import KEPT
from jobboard.exceptions import ClaimLost
from jobboard.job import Job, Posting
from jobboard.states import TRASHED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, claim_one
from tests.backends.sql.conftest import rows_locked, waiting

SERVERS = pytest.mark.backends("postgresql", "mariadb")
MARIADB = pytest.mark.backends("mariadb")

SECOND = 1_000_000


def of(board: JobBoard, job: Job) -> Any:
    return board.table.c.uuid == job.uuid


def lapses(board: JobBoard, engine: sa.Engine, job: Job, micros: int) -> None:
    """Have a claim lapse after so many µs."""
    at = board.engine.store.now() + micros
    with engine.begin() as connection:
        connection.execute(sa.update(board.table).where(of(board, job)).values(lock_until=at, wake_at=at))


# Ends


@pytest.mark.rule(
    "A result is stored where the consume succeeds, on SQL, whatever is written or ends between two statements."
)
@SERVERS
def test_a_result_is_kept_while_another_records_the_lapse(make_board: Callable[..., Any], engine: sa.Engine) -> None:
    """The row changes between a reading without a lock and the delete, which waits for the sweep."""
    board = make_board(keep_done=600)
    job = claim_one(board, "a")
    lapses(board, engine, job, -SECOND)
    with rows_locked(engine, board, job) as sweep:
        consuming = Background(lambda: board.consume(job, "anna", result={"n": 1}))
        eventually(lambda: waiting(sweep))
        swept = {"state": "UNCLAIMED", "lock_until": None, "wake_at": None, "tag": board.table.c.tag + 1}
        sweep.execute(sa.update(board.table).where(of(board, job)).values(swept))
        sweep.commit()
    consuming.wait()
    assert board.outcome(job).result == {"n": 1}


@pytest.mark.rule(
    "A result is stored where the consume succeeds, on SQL, whatever is written or ends between two statements."
)
@pytest.mark.backends("sqlite")
def test_a_result_is_kept_where_the_window_of_a_key_ends_meanwhile(make_board: Callable[..., Any], spy: Any) -> None:
    """It runs when the outcome is to be stored, and has ended when the job is deleted: each statement has its time."""
    board = make_board(keep_done=600)
    store, ends_at = board.engine.store, []
    job = board.post("a", key="k", key_for=600)
    board.claim(job, "anna")

    def before(text: str) -> None:
        if "_outcomes" in text and not ends_at:
            ends_at.append(store.now() + SECOND // 5)
            update = sa.update(board.table).values(key_until=ends_at[0])
            seen.cursor.execute(str(update.compile(compile_kwargs={"literal_binds": True})))
        elif text.startswith("delete"):
            eventually(lambda: store.now() > ends_at[0])

    with spy(board, before) as seen:
        board.consume(job, "anna", result={"n": 1})
    assert board.outcome(job).result == {"n": 1}


@pytest.mark.rule("A consume on SQL that waits for its row judges the lease behind the wait.")
@SERVERS
def test_a_claim_that_lapses_while_its_end_waits_is_judged_behind_the_wait(
    make_board: Callable[..., Any], engine: sa.Engine
) -> None:
    """Others have seen the job in the trash meanwhile, as its only attempt is used up."""
    board, other = make_board(), make_board()
    job = board.post("a", max_attempts=1)
    board.claim(job, "anna")
    lapses(board, engine, job, SECOND)
    with rows_locked(engine, board, job) as connection:
        consuming = Background(lambda: board.consume(job, "anna"))
        eventually(lambda: waiting(connection))
        eventually(lambda: other.get(job.uuid).state == TRASHED)
    with pytest.raises(ClaimLost):
        consuming.wait()
    assert list(other.trashed()) == [job]


# Locks


@pytest.mark.rule("A take on MariaDB leaves no job locked that it has lost.")
@SERVERS
@pytest.mark.parametrize("beside", [False, True])
def test_a_job_that_has_changed_is_not_left_locked(board: JobBoard, engine: sa.Engine, beside: bool) -> None:
    """Its holder and other takes go on while the call does."""
    lost, free = board.post_many([Posting("a")] * 2)
    store = board.engine.store
    [old, found] = store.read([lost.uuid, free.uuid]).jobs
    board.claim(lost, "anna")
    asked = [found, old] if beside else [old]
    with store.transaction():
        assert store.grab(asked, 2) == asked[:-1]
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            row = sa.select(board.table.c.id).where(of(board, lost)).with_for_update(nowait=True)
            assert connection.execute(row).all()
            connection.rollback()


@pytest.mark.rule("A take on MariaDB leaves no job locked that it has lost.")
@MARIADB
def test_a_take_under_limits_leaves_no_job_locked_that_it_has_lost(board: JobBoard, engine: sa.Engine) -> None:
    job = board.post("a")
    store = board.engine.store
    [old] = store.read([job.uuid]).jobs
    board.claim(job, "anna")

    ahead = {"board": board.name, "limit": 1, "tags": json.dumps([old.tag])}

    def work(link: Any) -> None:
        link.begin()
        assert not link.rows(store.statements["take_ahead"], ahead)
        with engine.connect() as connection:
            assert connection.execute(sa.select(board.table.c.id).with_for_update(nowait=True)).all()
            connection.rollback()
        link.rollback()

    store.links.run(work)


@pytest.mark.rule("Posts on MariaDB do not wait for the keys of others.")
@SERVERS
def test_posts_do_not_wait_for_the_keys_of_others(make_board: Callable[..., Any], engine: sa.Engine) -> None:
    board, other = make_board(retry_for=1), make_board()
    board.post("before")
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        board.post("a", key="k", connection=connection)
        same = [Background(lambda: other.post("b", key="k")) for _ in range(2)]
        with engine.connect() as looking:
            eventually(lambda: waiting(looking) >= len(same))
            board.post("c")
            board.post_many([Posting("c"), Posting("c", delay=60)])
            board.post_many([Posting("c", key=key) for key in "jl"])
            board.consume(board.claim_next("anna"), "anna")
        assert all(posting.running for posting in same)
        connection.commit()
    assert [posting.wait().name for posting in same] == ["a", "a"]


@pytest.mark.rule("Posts on MariaDB do not wait for the keys of others.")
@MARIADB
def test_a_post_that_waits_too_long_for_the_counter_of_ids_is_repeated(
    make_board: Callable[..., Any], engine: sa.Engine, spy: Any
) -> None:
    """As an INSERT … SELECT of somebody's holds the counter: error 1467."""
    board, tries = make_board(retry_for=4), []
    job = board.post("a")
    own = {"uuid": "another", "key": "k", "live_key": "k"}
    columns = [column for column in board.table.c if column.name not in (*own, "id")]
    copy = sa.select(*columns, *map(sa.literal, own.values())).where(of(board, job))
    insert = sa.insert(board.table).from_select([*(column.name for column in columns), *own], copy)
    committed = engine.execution_options(isolation_level="READ COMMITTED")
    copier = engine.execution_options(isolation_level="AUTOCOMMIT")
    with committed.connect() as holder, copier.connect() as connection, committed.connect() as looking:
        board.post("a", key="k", connection=holder)
        copying = Background(lambda: connection.execute(insert))
        eventually(lambda: waiting(looking))

        def before(text: str) -> None:
            tries.append(text)
            if len(tries) == 2:
                holder.rollback()

        with spy(board, before):
            board.post("b")
        copying.wait()
    assert len(tries) > 1


@pytest.mark.rule("Tables on MariaDB do not take the server's default format of rows.")
@MARIADB
def test_tables_do_not_take_the_servers_format_of_rows(board: JobBoard, engine: sa.Engine) -> None:
    """An older default format has no room for the indexes."""
    formats = sa.text("SELECT create_options FROM information_schema.tables WHERE table_name LIKE :prefix")
    with engine.connect() as connection:
        options = connection.scalars(formats, {"prefix": f"{board.table.name}%"}).all()
    assert len(options) >= 5
    assert all("row_format=DYNAMIC" in each for each in options)


@pytest.mark.rule("The choice of one request for a commit changes nothing.")
@SERVERS
def test_the_choice_of_one_request_for_a_commit_changes_nothing(board: Any) -> None:
    """A commit that was refused as one request is repeated by statements, which find out what has changed."""
    store: Any = board.engine.store
    [stored] = store.read([board.post("a").uuid]).jobs
    answer = Mark(Side("answer", "handle:1", None, None, None), Answer(1, 1, ()).packed(), KEPT)
    asked: Any = [Change(stored, stored.record)], [answer], []
    assert store._is_whole(*asked)
    store._local.refused = "handle:1", None
    assert [store._is_whole(*asked) for _ in range(2)] == [False, False]
