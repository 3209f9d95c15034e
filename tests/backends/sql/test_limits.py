"""Limits on SQL: claims that are under way while a limit is set, and what waits for what."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, JobFailure, UnclaimableJob
from jobboard.job import Posting
from jobboard.sql.dialects import MySQLDatabase
from jobboard.testing import eventually
from jobboard.testing.conformance.support import PATIENCE, Background, Waiter, take

SQL = pytest.mark.backends("sqlite", "postgresql", "mariadb")

HOLD = """
CREATE FUNCTION held() RETURNS trigger AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(4711);
  RETURN NEW;
END $$ LANGUAGE plpgsql
"""


@pytest.fixture
def holding(engine: sa.Engine, board: JobBoard) -> Any:
    """Who holds 4711 stops each claim between its statement and its commit: an answer without a job is no claim's."""
    answers = f"{board.table.name}_answers"
    with engine.begin() as connection:
        connection.exec_driver_sql(HOLD)
        create = sa.text(
            "CREATE TRIGGER held BEFORE INSERT OR UPDATE ON "
            + answers
            + " FOR EACH ROW WHEN (NEW.answer NOT LIKE ' %') EXECUTE FUNCTION held()"
        )
        connection.execute(create)
    with engine.connect() as connection:
        yield connection
        connection.rollback()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP FUNCTION held() CASCADE")


def set_by(board: JobBoard) -> bool:
    """Whether the limit is set, though claims of before may not count yet."""
    return bool(board.limits())


@pytest.mark.backends("postgresql")
def test_a_claim_that_was_under_way_counts(board: JobBoard, other: JobBoard, holding: sa.Connection) -> None:
    board.post_many([Posting("mail")] * 3)
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    claim = Background(lambda: other.claim_next("anna"))
    eventually(lambda: _waits_for_the_lock(holding))
    setting = Background(lambda: board.set_limit("mail", concurrency=1))
    eventually(lambda: set_by(board))
    assert setting.running
    assert claim.running
    holding.rollback()
    assert claim.wait() is not None
    setting.wait()
    assert board.claim_next("bert") is None


@pytest.mark.backends("postgresql")
def test_a_claim_that_does_not_end(board: JobBoard, make_board: Callable[..., Any], holding: sa.Connection) -> None:
    impatient = make_board(retry_for=0.3)
    board.post_many([Posting("mail")] * 2)
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    claim = Background(lambda: board.claim_next("anna"))
    eventually(lambda: _waits_for_the_lock(holding))
    with pytest.raises(JobFailure, match="may not count their claims"):
        impatient.set_limit("mail", concurrency=1)
    holding.rollback()
    assert claim.wait() is not None
    impatient.set_limit("mail", concurrency=1)
    assert impatient.claim_next("bert") is None


@pytest.mark.backends("postgresql")
def test_a_claim_that_was_under_way_while_a_limit_was_lowered(
    board: JobBoard, other: JobBoard, holding: sa.Connection
) -> None:
    board.set_limit("mail", concurrency=2)
    board.post_many([Posting("mail")] * 3)
    other.consume(take(other), "anna")
    board.post("mail")
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    claim = Background(lambda: other.claim_next("anna"))
    eventually(lambda: _waits_for_the_lock(holding))
    setting = Background(lambda: board.set_limit("mail", concurrency=1))
    eventually(lambda: board.limits()[0].concurrency == 1)
    assert setting.running
    holding.rollback()
    assert claim.wait() is not None
    setting.wait()
    assert board.claim_next("bert") is None


@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("there", [False, True])
def test_two_at_the_last_slot(board: JobBoard, other: JobBoard, holding: sa.Connection, there: bool) -> None:
    """Whether its scope has been entered before or not."""
    board.set_limit("mail", concurrency=1)
    board.post_many([Posting("mail")] * 3)
    for each in (board, other):
        assert each.claim_next("anna", names=["other"]) is None
    if there:
        board.consume(take(board), "anna")
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    first = Background(lambda: other.claim_next("anna"))
    eventually(lambda: _waits_for_the_lock(holding))
    second = Background(lambda: board.claim_next("bert"))
    eventually(lambda: _waits_for_a_transaction(holding))
    holding.rollback()
    assert first.wait() is not None
    assert second.wait() is None
    assert board.stats().claimed == 1


@pytest.mark.backends("postgresql")
def test_a_scope_that_another_holds(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    """A take waits for it; what ends a claim does not, and what it has left there counts no more."""
    board.set_limit("mail", concurrency=2)
    board.post_many([Posting("mail")] * 4)
    held = take(board)
    kind = sa.column("kind", sa.String)
    scopes = sa.select(kind).select_from(sa.table(f"{board.table.name}_sides")).where(kind == "scope")
    with engine.connect() as connection:
        connection.execute(scopes.with_for_update())
        board.consume(held, "anna")
        claim = Background(lambda: other.claim_next("anna"))
        eventually(lambda: _waits_for_a_transaction(connection))
        assert claim.running
        connection.rollback()
    assert claim.wait() is not None
    assert board.claim_next("bert") is not None
    assert board.claim_next("bert") is None


@pytest.mark.backends("postgresql")
def test_a_claim_that_is_revived_while_another_takes_its_slot(
    board: JobBoard, other: JobBoard, holding: sa.Connection
) -> None:
    board.set_limit("mail", concurrency=1)
    lapsed = board.post("mail", priority="LOW")
    board.claim(lapsed, "anna", expiry=0.05)
    eventually(lambda: other.get(lapsed.uuid).state == "UNCLAIMED")
    board.post("mail")
    other.consume(take(other), "anna")
    board.post("mail")
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    claim = Background(lambda: other.claim_next("bert"))
    eventually(lambda: _waits_for_the_lock(holding))
    revival = Background(lambda: board.extend(lapsed, "anna", 60))
    eventually(lambda: _waits_for_a_transaction(holding))
    holding.rollback()
    assert claim.wait() is not None
    with pytest.raises(ClaimLost):
        revival.wait()
    assert board.stats().claimed == 1


def _waits_for_a_transaction(connection: sa.Connection) -> bool:
    return _waits(connection, "transactionid")


def _waits_for_the_lock(connection: sa.Connection) -> bool:
    return _waits(connection, "advisory")


def _waits(connection: sa.Connection, kind: str) -> bool:
    """In this database: other tests have others on the same server."""
    waiting = """
        SELECT count(*) FROM pg_locks WHERE locktype = %(kind)s AND NOT granted AND pid IN
        (SELECT pid FROM pg_locks JOIN pg_database d ON database = d.oid WHERE datname = current_database())
    """
    return bool(connection.exec_driver_sql(waiting, {"kind": kind}).scalar())


@pytest.mark.backends("mariadb")
@pytest.mark.parametrize("among", ["all", "names", "where"])
def test_a_claim_that_has_locked_its_job(board: JobBoard, other: JobBoard, spy: Any, among: str) -> None:
    """It meets the gate, or is waited for."""
    wish = {"all": {}, "names": {"names": ["mail", "resize"]}, "where": {"where": board.table.c.attempts == 0}}[among]
    board.post_many([Posting("mail")] * 4)
    take(board)
    settings: list[Background] = []
    answers = "UPDATE " + f"{board.table.name}_answers"

    def before(text: str) -> None:
        # What has locked the jobs goes on in another request; the general way has the gate behind it then.
        claims = text.startswith(answers if among == "where" else "BEGIN NOT ATOMIC")
        if claims and not settings:
            settings.append(Background(lambda: other.set_limit("mail", concurrency=3)))
            eventually(lambda: set_by(other))
            assert settings[0].running

    with spy(board, before):
        assert len(board.claim_many("anna", 2, **wish)) == 2
    settings[0].wait()
    assert other.claim_next("bert") is None
    assert board.stats().claimed == 3


@SQL
def test_a_slot_that_is_given_back_while_its_job_takes_it_again(
    board: JobBoard, other: JobBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is read before the jobs on it, or the new claim would seem to have ended."""
    board.set_limit("mail", concurrency=1)
    job, second = board.post("mail"), board.post("mail")
    board.claim(job, "anna")
    sides = board.engine.store._sides
    read, anew = sides.read, []

    def late(rows: Any, locks: str, asked: Any) -> Any:
        if not anew and locks == "not" and any(kind == "scope" for kind, _ in asked):
            anew.append(other.claim(other.get(job.uuid), "bert"))
        return read(rows, locks, asked)

    monkeypatch.setattr(sides, "read", late)
    board.abandon(job, "anna")
    assert anew
    with pytest.raises(UnclaimableJob):
        other.claim(second, "carl")


@SQL
def test_what_a_callers_transaction_ends_frees_its_slot_with_the_commit(
    board: JobBoard, other: JobBoard, engine: sa.Engine
) -> None:
    board.set_limit("mail", concurrency=1)
    _, second = board.post_many([Posting("mail"), Posting("mail")])
    held = take(board)
    waiter = Background(lambda: other.claim_next("bert", timeout=20))
    with engine.begin() as connection:
        board.consume(held, "anna", connection=connection)
        assert waiter.running
    assert waiter.wait() == second


@pytest.mark.backends("postgresql", "mariadb")
def test_what_a_callers_transaction_ends_wakes_who_waits_by_a_limit_set_meanwhile(
    board: JobBoard, other: JobBoard, engine: sa.Engine
) -> None:
    held, second = board.post("mail"), board.post("mail")
    board.claim(held, "anna")
    with engine.connect() as connection:
        board.consume(held, "anna", connection=connection)
        other.set_limit("mail", concurrency=1)
        waiter = Waiter(other, lambda: other.claim_next("bert", timeout=PATIENCE))
        connection.commit()
    assert waiter.wait() == second


@SQL
def test_several_names_beside_limits(board: JobBoard, other: JobBoard) -> None:
    board.set_limit("mail", concurrency=2)
    board.set_limit("resize", concurrency=1, per="group")
    names = ["resize", "mail", "print"]
    board.post_many(
        [Posting(name, group="a") for name in ("mail", "resize", "other", "mail", "mail", "resize", "print")]
    )
    held = [each.claim_next("anna", names=names) for each in (board, other, board, other)]
    assert [job and job.name for job in held] == ["mail", "resize", "mail", "print"]
    assert board.claim_next("anna", names=names) is None
    board.consume(held[0], "anna")
    assert take(other, names=names).name == "mail"
    assert other.claim_next("anna", names=names) is None


@SQL
def test_where_beside_a_limit(board: JobBoard) -> None:
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "aab"])
    condition = board.table.c.job_group == "a"
    assert board.claim_next("anna", where=condition) is not None
    assert board.claim_next("anna", where=condition) is None
    assert board.claim_next("anna") is not None
    assert board.claim_next("anna") is None


@SQL
def test_a_row_that_can_not_be_claimed_any_more(board: JobBoard, engine: sa.Engine) -> None:
    board.set_limit("mail", concurrency=2)
    damaged, sound = board.post_many([Posting("mail"), Posting("mail")])
    with engine.begin() as connection:
        table = board.table
        connection.execute(sa.update(table).where(table.c.uuid == damaged.uuid).values(attempts=2**31 - 1))
    assert take(board) == sound
    assert [job.uuid for job in board.trashed()] == [damaged.uuid]


@pytest.mark.backends("postgresql", "mariadb")
def test_no_job_that_a_caller_holds_keeps_a_take_waiting(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    """One that has lapsed is not written down then, and takes its slot until it is."""
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "ab"])
    held = board.claim_next("anna", expiry=0.05)
    assert held is not None
    eventually(lambda: other.get(held.uuid).state == "UNCLAIMED")
    with engine.connect() as connection:
        board.consume(held, "anna", connection=connection)
        found = Background(lambda: other.claim_next("bert")).wait(5)
        assert found is not None
        assert found != held
        connection.rollback()
    assert take(other) == held


@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("how", ["where", "names"])
def test_behind_what_a_caller_holds(board: JobBoard, engine: sa.Engine, how: str) -> None:
    """Though the first ones are as many as wanted, and the only one of them that is free has no room."""
    board.set_limit("mail", concurrency=1, per="group")
    keys = [Posting("print", key=f"{n}", on_key="replace") for n in range(4)]
    board.post_many([Posting("mail", group="a"), *keys, Posting("mail", group="a")])
    take(board)
    free = board.post_many([Posting("print")] * 3)
    wanted: dict[str, Any] = {"where": board.table.c.id > 0} if how == "where" else {"names": ["mail", "print"]}
    with engine.connect() as connection:
        held = board.post_many(keys, connection=connection)
        assert board.claim_many("bert", 5, **wanted) == free
        waiting = Waiter(board, lambda: board.claim_many("bert", 5, **wanted, timeout=PATIENCE))
        connection.rollback()
    # Nobody calls for what comes free then.
    assert waiting.wait(5) == held


@pytest.mark.backends("mariadb")
def test_without_skip_locked_no_limit_is_exceeded(
    board: JobBoard, make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on any other database, by comparing what was read."""
    original = MySQLDatabase.__init__

    def old(self: MySQLDatabase, dialect: Any) -> None:
        original(self, dialect)
        self.skip_locked = self.compound = False

    monkeypatch.setattr(MySQLDatabase, "__init__", old)
    boards = [make_board() for _ in range(4)]
    boards[0].post_many([Posting("mail", group=group) for group in "abc" * 4])
    held = take(boards[0])
    boards[1].set_limit("mail", concurrency=1, per="group")
    with ThreadPoolExecutor(4) as pool:
        got = [job for each in pool.map(lambda each: each.claim_many("anna", 2), boards) for job in each]
    assert sorted(job.group for job in [held, *got]) == ["a", "b", "c"]
    boards[3].consume(held, "anna")
    assert take(boards[2]).group == "a"
