"""Limits on SQL: claims that are under way while a limit is set, and what waits for what."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.backends.sql import scopes
from jobboard.backends.sql.scopes import PARTS
from jobboard.board import JobBoard
from jobboard.engine import finder, limits
from jobboard.exceptions import JobFailure, UnclaimableJob
from jobboard.job import Posting
from jobboard.primitives import Limit
from jobboard.testing import eventually
from jobboard.testing.conformance.limits import post
from jobboard.testing.conformance.support import LONG, Background, Waiter, take
from tests.backends.sql.conftest import waiting

SQL = pytest.mark.backends("sqlite", "postgresql", "mariadb")

HOLD = """
CREATE FUNCTION held() RETURNS trigger AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(4711);
  RETURN NEW;
END $$ LANGUAGE plpgsql
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls wait for the locks of scopes as long as these tests hold them."""
    for module, name in ((scopes, "LOCK_WAIT"), (limits, "LOCK_WAIT"), (finder, "LOCK_WAIT"), (finder, "LAST_WAIT")):
        monkeypatch.setattr(module, name, 60.0)


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


@pytest.mark.rule("Claims that began before a limit was lowered are counted.")
@pytest.mark.rule("A claim that was under way when a limit was set counts.")
@pytest.mark.backends("postgresql")
@pytest.mark.parametrize("lowered", [False, True])
def test_a_claim_that_was_under_way_counts(
    board: JobBoard, other: JobBoard, holding: sa.Connection, lowered: bool
) -> None:
    """The limit can be seen meanwhile, but ``set_limit`` returns once the claim counts."""
    board.post_many([Posting("mail")] * 4)
    if lowered:
        board.set_limit("mail", concurrency=2)
        other.consume(take(other), "anna")
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    claim = Background(lambda: other.claim_next("anna"))
    eventually(lambda: waiting(holding))
    setting = Background(lambda: board.set_limit("mail", concurrency=1))
    eventually(lambda: board.limits() == [Limit("mail", "name", 1)])
    assert setting.running
    assert claim.running
    holding.rollback()
    assert claim.wait(60) is not None
    setting.wait(60)
    assert board.claim_next("bert") is None


@pytest.mark.backends("postgresql")
def test_set_limit_fails_while_a_claim_stays_under_way(
    board: JobBoard, make_board: Callable[..., Any], holding: sa.Connection
) -> None:
    impatient = make_board(retry_for=0.3)
    board.post_many([Posting("mail")] * 2)
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    claim = Background(lambda: board.claim_next("anna"))
    eventually(lambda: waiting(holding))
    with pytest.raises(JobFailure, match="may claim jobs against it"):
        impatient.set_limit("mail", concurrency=1)
    holding.rollback()
    assert claim.wait(60) is not None
    impatient.set_limit("mail", concurrency=1)
    assert impatient.claim_next("bert") is None


@pytest.mark.rule("Two handles at the last slot get it once.")
@pytest.mark.rule("The last slot is given once.")
@pytest.mark.backends("postgresql")
def test_the_last_slot_is_given_once(board: JobBoard, other: JobBoard, holding: sa.Connection) -> None:
    board.set_limit("mail", concurrency=1)
    board.post_many([Posting("mail")] * 3)
    for each in (board, other):
        assert each.claim_next("anna", names=["other"]) is None
    board.consume(take(board), "anna")
    holding.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
    first = Background(lambda: other.claim_next("anna"))
    eventually(lambda: waiting(holding))
    second = Background(lambda: board.claim_next("bert"))
    eventually(lambda: waiting(holding) == 2)
    holding.rollback()
    assert first.wait(60) is not None
    assert second.wait(60) is None
    assert board.stats().claimed == 1


@pytest.mark.backends("postgresql")
def test_a_take_waits_for_a_scope_and_an_end_does_not(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
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
        eventually(lambda: waiting(connection))
        assert claim.running
        connection.rollback()
    assert claim.wait(60) is not None
    assert board.claim_next("bert") is not None
    assert board.claim_next("bert") is None


@pytest.mark.rule("A slot that a caller's transaction frees is free with its commit.")
@SQL
@pytest.mark.parametrize("verb", ["consume", "abandon"])
def test_a_callers_transaction_frees_a_slot_exactly_by_its_commit(
    board: JobBoard, other: JobBoard, engine: sa.Engine, verb: str
) -> None:
    board.set_limit("mail", concurrency=1)
    first, second = board.post_many([Posting("mail"), Posting("mail")])
    held = take(board)
    with engine.connect() as connection:
        getattr(board, verb)(held, "anna", connection=connection)
        connection.rollback()
    assert other.claim_next("bert") is None
    assert held.claim is not None
    held.claim.extend()
    waiter = Background(lambda: other.claim_next("bert", timeout=LONG))
    with engine.begin() as connection:
        getattr(board, verb)(held, "anna", connection=connection)
        assert waiter.running
    # A look that began before the commit may have seen the other one alone.
    assert waiter.wait(60) in ((first, second) if verb == "abandon" else (second,))
    assert board.claim_next("anna") is None


@pytest.mark.rule("A slot that a caller's transaction frees is free with its commit.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_callers_commit_wakes_waiters_for_a_slot_of_a_newer_limit(
    board: JobBoard, other: JobBoard, engine: sa.Engine
) -> None:
    held, second = board.post("mail"), board.post("mail")
    board.claim(held, "anna")
    with engine.connect() as connection:
        board.consume(held, "anna", connection=connection)
        other.set_limit("mail", concurrency=1)
        waiter = Waiter(other, lambda: other.claim_next("bert", timeout=LONG))
        connection.commit()
    assert waiter.wait(60) == second


@pytest.mark.rule("A take of several names keeps to their limits.")
@pytest.mark.rule("Beside full scopes no job that has room is passed over.")
@SQL
def test_a_take_of_several_names_keeps_to_their_limits(board: JobBoard, other: JobBoard) -> None:
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


@pytest.mark.rule("A lapsed claim that another transaction holds, or prolongs, takes its slot.")
@pytest.mark.rule("A job that a caller holds keeps no take waiting.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_job_that_a_caller_holds_keeps_no_take_waiting(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    """One that has lapsed is not written down then, and takes its slot until it is."""
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "ab"])
    held = board.claim_next("anna", expiry=0.05)
    assert held is not None
    eventually(lambda: other.get(held.uuid).state == "UNCLAIMED")
    with engine.connect() as connection:
        board.consume(held, "anna", connection=connection)
        found = Background(lambda: other.claim_next("bert")).wait(60)
        assert found is not None
        assert found != held
        connection.rollback()
    assert take(other) == held


@pytest.mark.rule("A job that a caller holds keeps no take waiting.")
@pytest.mark.rule("Jobs that others hold are passed over beside limits, and found once the others have gone.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("how", ["where", "names"])
def test_jobs_behind_those_that_a_caller_holds_are_taken(board: JobBoard, engine: sa.Engine, how: str) -> None:
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
        waiting = Waiter(board, lambda: board.claim_many("bert", 5, **wanted, timeout=LONG))
        connection.rollback()
    # Nobody calls for what comes free then.
    assert waiting.wait(60) == held


def scope(board: JobBoard, part: str = "") -> sa.Select[Any]:
    """Lock the scope of jobs that are called "mail", with all parts of its lock, as a call does that begins a claim.

    :param part: lock the part with this place alone.
    """
    table = board.engine.store.tables.sides
    mine = [table.c.board == board.name, table.c.kind == "scope", table.c.key.startswith("mail")]
    mine += [table.c.place == part] if part else []
    return sa.select(table.c.place).where(*mine).order_by(table.c.place).with_for_update()


def parts(board: JobBoard, engine: sa.Engine) -> list[str]:
    """Return the places of the parts of this lock."""
    with engine.connect() as connection:
        return list(connection.execute(scope(board)).scalars())


def learn(board: JobBoard) -> None:
    """Let a board read the rules. Its next take under limits goes the fast way."""
    assert board.claim_next("bert", names=["other"]) is None


@pytest.mark.rule("A call that has waited for the lock of a scope counts what has begun meanwhile.")
@pytest.mark.rule("A take that enters scopes is decided again if something happens between its look and its claim.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("fast", [False, True])
def test_a_claim_counts_behind_its_wait_for_the_lock(
    board: JobBoard, other: JobBoard, engine: sa.Engine, fast: bool
) -> None:
    """A statement that waits for a lock sees what was there when it began."""
    board.set_limit("mail", concurrency=1)
    if fast:
        learn(other)
    first, _ = board.post_many([Posting("mail")] * 2)
    board.abandon(take(board), "anna")
    table = board.table
    begun = sa.update(table).where(table.c.uuid == first.uuid)
    with engine.connect() as connection:
        until = board.engine.now() + 60_000_000
        connection.execute(scope(board))
        claim = Background(lambda: other.claim_next("bert"))
        eventually(lambda: waiting(connection))
        connection.execute(
            begun.values(state="CLAIMED", who="anna", lock_until=until, wake_at=until, tag=table.c.tag + 1)
        )
        connection.commit()
    assert claim.wait(60) is None
    assert board.stats().claimed == 1


@pytest.mark.rule("A lapsed claim that another transaction holds, or prolongs, takes its slot.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("verb", ["claim_next", "fast claim_next", "claim"])
def test_a_lapsed_claim_that_a_late_heartbeat_prolongs_counts(
    board: JobBoard, other: JobBoard, engine: sa.Engine, verb: str
) -> None:
    """It has found its claim alive, and prolongs it; so the claim takes its slot until its lapse is written down."""
    board.set_limit("mail", concurrency=1)
    if "fast" in verb:
        learn(other)
    held, second = board.post_many([Posting("mail")] * 2)
    board.claim(held, "anna", expiry=0.1)
    table = board.table
    prolonged = sa.update(table).where(table.c.uuid == held.uuid, table.c.state == "CLAIMED")
    with engine.connect() as connection:
        until = board.engine.now() + 60_000_000
        connection.execute(prolonged.values(lock_until=until, tag=table.c.tag + 1))
        eventually(lambda: other.get(held.uuid).state == "UNCLAIMED")
        if "claim_next" in verb:
            assert other.claim_next("bert") is None
        else:
            with pytest.raises(UnclaimableJob):
                other.claim(second, "bert")
        connection.commit()
    assert other.find_owner(held) == "anna"
    assert other.claim_next("bert") is None
    assert board.stats().claimed == 1


@pytest.mark.rule("A claim that was under way when a limit was set counts.")
@pytest.mark.backends("mariadb")
def test_a_claim_that_has_met_no_limit_is_waited_for(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    """Its commit has locked the gate, and set_limit waits for that: so nobody sees the limit yet."""
    board.post_many([Posting("mail")] * 4)
    everything = board.table.c.attempts == 0
    assert board.claim_next("anna", where=everything) is not None
    with engine.connect() as connection:
        # The next call will have the slot, and so this answer.
        connection.exec_driver_sql(f"SELECT handle FROM {board.table.name}_answers FOR UPDATE")  # noqa: S608
        claim = Background(lambda: board.claim_many("anna", 2, where=everything))
        eventually(lambda: waiting(connection) >= 1)
        setting = Background(lambda: other.set_limit("mail", concurrency=3))
        eventually(lambda: waiting(connection) >= 2)
        connection.rollback()
    assert len(claim.wait(60)) == 2
    setting.wait(60)
    assert other.claim_next("bert") is None
    assert board.stats().claimed == 3


@pytest.mark.rule("A call that waits for a scope holds no job.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_call_that_waits_for_a_scope_holds_no_job(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    """A call that waits for a scope holds no job: one that overlaps it would pass over that, and be served a worse
    one."""
    board.set_limit("mail", concurrency=1)
    best = board.post("mail")
    board.abandon(take(board), "anna")
    board.post("print")
    with engine.connect() as connection:
        connection.execute(scope(board))
        claim = Background(lambda: other.claim_next("bert"))
        eventually(lambda: waiting(connection))
        table = board.table
        locked = sa.select(table.c.uuid).where(table.c.uuid == best.uuid).with_for_update(skip_locked=True)
        assert connection.execute(locked).all() == [(best.uuid,)]
        connection.rollback()
    assert claim.wait(60) == best


@pytest.mark.rule("Claims of before a limit count, also if a limit of another kind bound them.")
@SQL
def test_claims_of_before_a_limit_count(board: JobBoard, other: JobBoard) -> None:
    """Also where no limit, or a limit of another kind, has bound them."""
    post(board, 6, group="one")
    held = other.claim_many("anna", 3)
    board.set_limit("mail", concurrency=4, per="group")
    assert len(board.claim_many("anna", 10)) == 1
    other.consume(held[0], "anna")
    assert len(board.claim_many("anna", 10)) == 1
    board.remove_limit("mail")
    assert other.claim_next("anna") is not None
    board.set_limit("mail", rate=(100, LONG))
    board.set_limit("mail", concurrency=4, rate=(100, LONG))
    assert other.claim_next("anna") is None


@pytest.mark.rule("A claim waits for the others of its scope only near the limit, and there for each.")
@pytest.mark.backends("postgresql", "mariadb")
def test_claims_far_from_the_limit_wait_only_for_all_parts(board: JobBoard, other: JobBoard, engine: sa.Engine) -> None:
    board.set_limit("mail", concurrency=1000)
    jobs = board.post_many([Posting("mail")] * 4)
    assert take(board) == jobs[0]
    learn(other)
    with engine.connect() as connection:
        for part in parts(board, engine)[1:]:
            assert connection.execute(scope(board, part)).scalars().all() == [part]
        assert other.claim_next("bert") == jobs[1]
        assert other.claim_next("bert") == jobs[2]
        connection.rollback()
        connection.execute(scope(board))
        claim = Background(lambda: other.claim_next("bert"))
        eventually(lambda: waiting(connection))
        assert claim.running
        connection.rollback()
    assert claim.wait(60) == jobs[3]


@pytest.mark.rule("A claim waits for the others of its scope only near the limit, and there for each.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("fast", [False, True])
def test_a_claim_near_the_limit_waits_for_every_part(
    board: JobBoard, other: JobBoard, engine: sa.Engine, fast: bool
) -> None:
    """As soon as there is no room for one more claim of each part."""
    board.set_limit("mail", concurrency=PARTS + 1)
    if fast:
        learn(other)
    jobs = board.post_many([Posting("mail")] * (PARTS + 3))
    table = board.table
    with engine.connect() as connection:
        assert take(board) == jobs[0]
        connection.execute(scope(board, parts(board, engine)[0]))
        assert take(board) == jobs[1]
        until = board.engine.now() + 60_000_000
        begun = sa.update(table).values(state="CLAIMED", who="anna", lock_until=until, wake_at=until)
        for job in jobs[2 : PARTS + 1]:
            connection.execute(begun.where(table.c.uuid == job.uuid))
        claim = Background(lambda: other.claim_next("bert"))
        eventually(lambda: waiting(connection))
        assert claim.running
        connection.commit()
    assert claim.wait(60) is None
    assert board.stats().claimed == PARTS + 1


@pytest.mark.rule("At most two requests follow under the lock of a scope.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("verb", ["claim_next", "claim"])
def test_at_most_two_requests_follow_the_lock_of_a_scope(board: JobBoard, spy: Any, verb: str) -> None:
    """One that locks a job, and one for the commit: the count comes with the lock."""
    board.set_limit("mail", concurrency=2)
    job, *_ = board.post_many([Posting("mail")] * 6)
    board.abandon(take(board), "anna")
    with spy(board) as seen:
        if verb == "claim_next":
            assert take(board) == job
        else:
            board.claim(job, "anna")
    [locked] = [number for number, text in enumerate(seen.texts) if "'scope'" in text and "for update" in text]
    assert len(seen.texts) - 1 - locked <= 2


@SQL
def test_how_many_statements_a_claim_under_a_limit_takes(board: JobBoard, backend: str, spy: Any) -> None:
    """A look, the locks with a count, the claim and the commit; then the end, and on PostgreSQL a count."""
    board.set_limit("mail", concurrency=1000)
    board.post_many([Posting("mail")] * 30)
    # The second take looks where to begin as well: see starts.py.
    board.consume_many([take(board), take(board)], "anna")
    with spy(board) as seen:
        held = take(board)
        claim = len(seen.texts)
        board.consume(held, "anna")
    assert (claim, len(seen.texts) - claim) == {"postgresql": (6, 2), "mariadb": (4, 1), "sqlite": (6, 4)}[backend]
