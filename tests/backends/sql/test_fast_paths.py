"""The fast paths of the SQL store, as far as the conformance suite does not see them."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import codec
from jobboard.backends.sql import store
from jobboard.backends.sql.statements import Statement
from jobboard.board import JobBoard
from jobboard.engine import GATE, ClaimTerms, Stored
from jobboard.exceptions import JobFailure
from jobboard.job import Posting
from jobboard.primitives import Draft, End, Finish, Nonce
from jobboard.states import CONSUME, UNCLAIMED, Holder
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from tests.backends.sql.conftest import waiting
from tests.support.jobs import make_draft

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

MINUTE = 60_000_000
KEPT = ClaimTerms("bert", "other-handle", MINUTE)

_calls = itertools.count(1)


def call() -> Nonce:
    return Nonce("handle", 1, next(_calls))


def test_no_job_is_taken_before_an_overdue_one(board: JobBoard, engine: sa.Engine) -> None:
    urgent = board.post("a", priority=50, delay=60)
    plain = board.post("a")
    store, c = board.engine.store, board.table.c
    past = store.now() - 1_000_000
    with engine.begin() as connection:
        connection.execute(sa.update(board.table).where(c.uuid == urgent.uuid).values(lock_until=past, wake_at=past))
    for names in (None, ["a"], ["a", "b"]):
        assert store.take(KEPT, 5, names, codec.VERSION, call()) is None
    assert board.claim_many("anna", 2) == [urgent, plain]


@pytest.mark.rule("A fast path of SQL does what the table of transitions says, or leaves the call to the engine.")
@pytest.mark.parametrize("names", [None, ["a"], ["b", "a"]], ids=str)
def test_a_claim_returns_the_job_as_it_is_stored(board: JobBoard, names: list[str] | None) -> None:
    store, job = board.engine.store, board.post("a")

    def stored() -> Stored:
        [found] = store.read([job.uuid]).jobs
        return found

    [taken], _ = store.take(KEPT, 1, names, codec.VERSION, call())
    assert taken == stored()
    board.release(board.get(job.uuid))
    assert store.claim(job.uuid, KEPT, call()) == stored()


@pytest.mark.rule("A fast path of SQL does what the table of transitions says, or leaves the call to the engine.")
def test_a_heartbeat_renews_claims_of_its_handle_and_token(board: JobBoard) -> None:
    store, handle = board.engine.store, board.engine.handle
    board.post("a")
    [job] = board.claim_many("anna", 1)
    held = (job.uuid, job.claim.token)
    older = (job.uuid, job.claim.token - 1)
    before = store.read([job.uuid]).jobs
    assert store.renew("another", [held], MINUTE) == [held]
    assert store.renew(handle, [older], MINUTE) == [older]
    assert store.read([job.uuid]).jobs == before
    assert store.renew(handle, [held], 2 * MINUTE) == []
    [renewed] = store.read([job.uuid]).jobs
    assert MINUTE < renewed.record.lock_until - store.now() <= 2 * MINUTE


@pytest.mark.rule("A fast path of SQL does what the table of transitions says, or leaves the call to the engine.")
def test_an_end_by_other_rules_is_left_to_the_engine(board: JobBoard) -> None:
    store = board.engine.store
    board.post("a")
    [held] = board.claim_many("anna", 1)
    act = Finish(held.uuid, Holder("anna", held.claim.token), End(CONSUME))
    [gate] = store.read([], [GATE]).sides
    board.pause(["another"])
    assert not store.consume([act], call(), gate)
    [gate] = store.read([], [GATE]).sides
    assert store.consume([act], call(), gate)


# Posts


def draft(number: int, **more: Any) -> Draft:
    return make_draft(number, details={"n": number}, **more)


ODD = [*"'\"\\%?;{[\u2028\u0301é😀", "%s", "%(p_name)s", ":p_name", "--", "\\u0000"]


def test_text_is_stored_as_it_is(board: JobBoard) -> None:
    """No character is taken for a part of the statement, its parameters or the JSON that carries it."""
    texts = [*ODD, "".join(ODD), "".join(reversed(ODD))]
    postings = [
        Posting(f"n{text}", details={text: [text, "\0\n\t\x7f", 2**63 - 1, -(2**63), 1.5, None]}, group=f"g{text}")
        for text in texts
    ]
    for some in (postings, postings[-1:]):
        posted = board.post_many(some)
        taken = board.claim_many("'\\%s", len(some))
        assert [job.uuid for job in taken] == [job.uuid for job in posted]
        for job, was, posting in zip(taken, posted, some, strict=True):
            assert (job.name, job.details, job.group) == (posting.name, posting.details, posting.group)
            assert (job.sequence, job.created_on) == (was.sequence, was.created_on)
        board.consume_many(taken, "'\\%s")
    assert board.job_count == 0


def test_places_rise_whichever_way_a_job_is_posted(board: JobBoard, engine: sa.Engine) -> None:
    """By a shortcut, the general way, and a transaction of the caller's that is rolled back."""
    jobs = board.post_many([Posting("a")] * 2)
    with engine.connect() as connection:
        board.post("gone", connection=connection)
        connection.rollback()
    jobs += [board.post("a", key="k"), *board.post_many([Posting("a"), Posting("a", delay=60)]), board.post("a")]
    assert jobs == sorted(jobs)
    stored = {job.uuid: job.sequence for job in board.iterjobs()}
    assert stored == {job.uuid: job.sequence for job in jobs}
    board.consume_many(board.claim_many("anna", 10), "anna")
    last = board.post("a")
    assert last.sequence > max(stored.values())


# Rows that others hold


@pytest.mark.rule("A fast take locks only the jobs that it takes.")
@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("names", [None, ["a"], ["a", "b"]])
def test_a_take_holds_no_job_that_it_does_not_take(board: JobBoard, engine: sa.Engine, names: list[str] | None) -> None:
    """One that is held up in the middle leaves to others exactly the jobs behind those that it takes."""
    jobs = board.post_many([{"name": name} for name in "aabaab"])
    wanted = [job.uuid for job in jobs if names is None or job.name in names]
    store, answers = board.engine.store, board.engine.store.tables.answers
    slow = Nonce("slow", 1, 2)
    assert store.post([draft(99, name="z")], slow._replace(call=1)) is not None

    # At other levels MariaDB locks gaps too.
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        connection.execute(sa.select(answers.c.call).where(answers.c.handle == "slow").with_for_update())
        taking = Background(lambda: store.take(KEPT, 2, names, codec.VERSION, slow))
        eventually(lambda: waiting(connection))
        others = store.take(KEPT, 2, names, codec.VERSION, call())
        connection.rollback()
    taken = taking.wait(60)
    assert others is not None
    assert [each.record.uuid for each in others[0]] == wanted[2:4]
    assert [each.record.uuid for each in taken[0]] == wanted[:2]


@pytest.mark.backends("postgresql", "mariadb")
def test_a_take_looks_again_soon_where_others_hold_the_jobs(board: JobBoard, engine: sa.Engine) -> None:
    board.post("a")
    store, table = board.engine.store, board.table
    with engine.connect() as connection:
        connection.execute(sa.select(table.c.id).with_for_update())
        for names in (None, ["a"], ["a", "b"]):
            # The engine looks for jobs behind these.
            assert store.take(KEPT, 1, names, codec.VERSION, call()) is None
            taken, _ = board.engine.take("anna", 1, None, names)
            assert (taken.records, taken.next_event) == ([], 50_000)
        connection.rollback()


# MariaDB's compound statements


@pytest.mark.backends("mariadb")
def test_an_error_behind_an_answer_is_raised(board: JobBoard) -> None:
    text = "begin not atomic\nselect 1;\nsignal sqlstate '45000' set message_text = 'too late';\nend"
    with pytest.raises(JobFailure, match="too late"):
        board.engine.store.links.run(lambda link: link.compound(Statement("late", text), {}))
    assert board.job_count == 0


@pytest.mark.rule("A row that is too long for one text is read by its columns.")
@pytest.mark.backends("mariadb")
def test_a_row_too_long_for_a_packet_is_left_to_the_engine(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server makes it NULL. The engine claims the job."""
    monkeypatch.setitem(
        board.engine.store.statements._made, ("take", ("index", "ready")), Statement("take", "select null")
    )
    board.post_many([Posting("a", details={"n": n}) for n in range(2)])
    assert board.engine.store.take(KEPT, 2, None, codec.VERSION, call()) is None
    jobs = board.claim_many("anna", 2)
    assert [job.details for job in jobs] == [{"n": 0}, {"n": 1}]


@pytest.mark.backends("mariadb")
def test_a_board_without_fast_paths_goes_the_engines_way(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on MySQL."""
    monkeypatch.setattr(store, "fast_paths", lambda *args: None)
    board = make_board()
    board.post_many([Posting("a")] * 2)
    board.consume_many(board.claim_many("anna", 2), "anna")
    assert board.job_count == 0


@pytest.mark.rule("A take is one request on PostgreSQL and two on MariaDB, and the rules may change before its claim.")
@pytest.mark.backends("mariadb")
def test_rules_that_change_behind_the_lock_of_a_job_keep_it(make_board: Callable[..., Any], spy: Any) -> None:
    board, other = make_board(), make_board()
    board.post("a")

    def before(text: str) -> None:
        if text.startswith("begin not atomic") and not other.paused().names:
            other.pause(["a"])

    with spy(board, before):
        assert board.engine.store.take(KEPT, 1, None, codec.VERSION, call()) is None
    assert [job.state for job in board.iterjobs()] == [UNCLAIMED]
