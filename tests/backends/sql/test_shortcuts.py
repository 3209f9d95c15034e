"""The shortcuts of first tries on MariaDB and SQLite: done as a whole or not at all, as the general way would do it."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure, JobFailures
from jobboard.job import Posting
from jobboard.primitives import Draft, Finish, Nonce
from jobboard.sql.dialects import MySQLDatabase
from jobboard.sql.links import ConstraintViolated, Link
from jobboard.sql.prepared import Compound, Prepared
from jobboard.states import COMPLETE, OK, Holder, Verb

pytestmark = pytest.mark.backends("sqlite", "mariadb")

LEASE = 60_000_000
ODD = (
    "'",
    '"',
    "\\",
    "%",
    "%s",
    "%(p_name)s",
    ":p_name",
    "?",
    ";",
    "--",
    "{",
    "[",
    "\\u0000",
    "\u2028",
    "\u0301",
    "é",
    "😀",
)


def draft(number: int, name: str = "a") -> Draft:
    posting = codec.encode(codec.Content({"n": number}, None), "json")
    return Draft(f"00000000-0000-4000-8000-{number:012d}", name, 1, None, codec.VERSION, posting, *[None] * 3)


@pytest.mark.parametrize("count", [1, 3])
def test_a_late_first_try_of_a_post_brings_no_job_back(board: JobBoard, count: int) -> None:
    engine = board.engine
    drafts = [draft(number) for number in range(count)]
    call = Nonce("handle", 1, 7)
    posted = engine.insert(drafts, call._replace(attempt=2))
    assert [status for status, *_ in posted] == [OK] * count
    taken = engine.take("anna", count, LEASE, None, codec.VERSION, Nonce("handle", 2, 1)).records
    acts = [Finish(record.uuid, Holder("anna", record.token), Verb.CONSUME) for record in taken]
    assert engine.finish(acts, Nonce("handle", 2, 2)) == [OK] * count
    assert engine.insert(drafts, call) == [(OK, each.uuid, None) for each in drafts]
    assert board.job_count == 0


@pytest.mark.parametrize("count", [1, 3])
def test_a_repetition_answers_what_the_shortcut_did(board: JobBoard, count: int) -> None:
    engine = board.engine
    drafts = [draft(number) for number in range(count)]
    post, take, end = (Nonce("handle", slot, 1) for slot in (1, 2, 3))
    posted = engine.insert(drafts, post)
    assert engine.insert(drafts, post._replace(attempt=2)) == posted
    taken = engine.take("anna", count, LEASE, None, codec.VERSION, take)
    again = engine.take("anna", count, LEASE, None, codec.VERSION, take._replace(attempt=2))
    assert again.replayed
    assert again.records == taken.records
    acts = [Finish(record.uuid, Holder("anna", record.token), Verb.CONSUME) for record in taken.records]
    assert engine.finish(acts, end) == [OK] * count
    # Done once, and by nobody else: the same act under another call finds nothing.
    assert engine.finish(acts, end._replace(attempt=2)) == [OK] * count
    assert engine.finish(acts, Nonce("handle", 3, 2)) != [OK] * count
    assert engine.insert(drafts, post._replace(attempt=3)) == [(OK, each.uuid, None) for each in drafts]
    assert [seen.state for seen in engine.read([each.uuid for each in drafts])] == [COMPLETE] * count


def test_an_end_of_which_one_claim_is_lost_is_no_end(board: JobBoard) -> None:
    board.post_many([Posting("a")] * 3)
    jobs = board.claim_many("anna", 3)
    board.release(jobs[1])
    acts = [Finish(job.uuid, Holder("anna", job.claim.token), Verb.CONSUME) for job in jobs]
    with pytest.raises(ConstraintViolated):
        board.engine._shortcuts.end(acts, {}, 0, Nonce("handle", 1, 1))
    assert board.job_count == 3
    with pytest.raises(JobFailures) as raised:
        board.consume_many(jobs, "anna")
    assert [error.job for error in raised.value.exceptions] == [jobs[1]]
    assert [job.uuid for job in board.iterjobs()] == [jobs[1].uuid]


def test_whatever_a_text_holds_it_stays(board: JobBoard) -> None:
    """Not one is taken for a part of the statement, of its parameters or of the JSON that carries it."""
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


def test_places_follow_each_other_whoever_gives_them(board: JobBoard, engine: sa.Engine) -> None:
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


@pytest.mark.backends("mariadb")
def test_an_error_that_comes_behind_an_answer_is_heard(board: JobBoard) -> None:
    fails = Compound(Prepared(sa.select(sa.literal(1))), "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too late';")
    with pytest.raises(JobFailure, match="too late"):
        board.engine.store.links.run(lambda link: link.compound(fails, {}))
    assert board.job_count == 0


@pytest.mark.backends("mariadb")
def test_a_batch_of_posts_goes_as_bytes(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a text the driver looks at each character."""
    cursor = board.engine.store.links.run(lambda link: link.cursor)
    run, sent = cursor.execute, []
    monkeypatch.setattr(cursor, "execute", lambda text, values=None: [sent.append(values), run(text, values)])
    board.post_many([Posting("ü")] * 2)
    assert [type(values["p_drafts"]) for values in sent if values] == [bytes]


@pytest.mark.backends("mariadb")
def test_a_row_that_is_too_long_for_one_text_is_read_by_columns(
    board: JobBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What MariaDB answers where a text would be longer than max_allowed_packet.
    monkeypatch.setitem(board.engine._shortcuts._sql.picks, False, Prepared(sa.select(sa.null())))
    board.post_many([Posting("a", details={"n": n}) for n in range(2)])
    jobs = board.claim_many("anna", 2)
    assert [job.details for job in jobs] == [{"n": 0}, {"n": 1}]
    board.consume_many(jobs, "anna")


@pytest.mark.backends("mariadb")
def test_a_server_that_takes_no_compound_statements(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []

    def refused(*args: Any) -> Any:
        asked.append(None)
        raise JobFailure("the database refused it: near 'BEGIN NOT ATOMIC'")

    monkeypatch.setattr(Link, "compound", refused)
    board = make_board()
    for _ in range(2):
        board.post_many([Posting("a")] * 2)
        board.consume_many(board.claim_many("anna", 2), "anna")
    assert board.job_count == 0
    assert len(asked) == 1


@pytest.mark.backends("mariadb")
@pytest.mark.parametrize(("driver", "can"), [("pymysql", True), ("mysqldb", False), ("mysqlconnector", False)])
def test_which_drivers_send_compound_statements(driver: str, can: bool) -> None:
    dialect = sa.make_url(f"mariadb+{driver}://").get_dialect()()
    dialect.server_version_info, dialect.is_mariadb = (10, 6, 0), True
    assert MySQLDatabase(dialect).compound is can
    dialect.server_version_info = (10, 5, 29)
    assert MySQLDatabase(dialect).compound is False
