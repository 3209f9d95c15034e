"""A take of one job on MariaDB: one request, with nothing done where something is in the way."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.sql.prepared import Compound
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("mariadb")


@pytest.fixture
def requests(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent."""
    cursor = board.engine.store.links.run(lambda link: link.cursor)
    run, sent = cursor.execute, []
    monkeypatch.setattr(cursor, "execute", lambda text, values=None: [sent.append(text), run(text, values)])
    return sent


def test_a_take_is_one_request_and_so_is_one_that_finds_nothing(board: JobBoard, requests: list[str]) -> None:
    # What is sent for the second time is given a name.
    for _ in range(2):
        board.claim_next("anna", names=["resize"])
    job = board.post("resize")
    board.post("other")
    requests.clear()
    assert board.claim_next("anna", names=["resize"]).uuid == job.uuid
    assert board.claim_next("anna", names=["resize"]) is None
    assert len(requests) == 2


UPDATING = "SELECT count(*) FROM information_schema.processlist WHERE state = 'Updating' AND db = database()"


@contextlib.contextmanager
def picking(board: JobBoard, engine: sa.Engine) -> Iterator[Future[Job | None]]:
    """A take that has locked its job, and goes on when the block ends. It takes the first one on the board before."""
    answers = sa.Table(f"{board.table.name}_answers", sa.MetaData(), autoload_with=engine)
    mine = answers.c.handle == board._session.handle
    with ThreadPoolExecutor(1) as pool:
        # Each thread keeps its answers in a slot of its own, which is there from now on.
        first = pool.submit(board.claim_next, "anna").result()
        assert first is not None
        board.consume(first, "anna")
        # Of this row alone, and not of the answers of others beside it.
        alone = engine.execution_options(isolation_level="READ COMMITTED")
        with alone.connect() as holder, holder.begin(), engine.connect() as prober:
            # What keeps its answer has locked its job before, and waits.
            holder.execute(sa.select(answers.c.call).where(mine).with_for_update()).all()
            taking = pool.submit(board.claim_next, "anna")
            eventually(lambda: prober.exec_driver_sql(UPDATING).scalar())
            yield taking
        taking.result()


def test_the_rules_change_between_its_look_and_its_claim(
    make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    board, other = make_board(), make_board()
    board.post_many([{"name": "first"}, {"name": "resize"}])
    with picking(board, engine) as taking:
        other.pause(["resize"])
    assert taking.result() is None
    assert [job.state for job in board.iterjobs()] == ["UNCLAIMED"]
    other.resume(["resize"])
    assert board.claim_next("anna") is not None


@pytest.fixture
def lists(board: JobBoard, engine: sa.Engine) -> Callable[[], dict[str, int]]:
    """How many claims the scopes list, by their keys."""
    sides = sa.table(f"{board.table.name}_sides", *map(sa.column, ("kind", "key", "value")))

    def lists() -> dict[str, int]:
        with engine.connect() as connection:
            found = connection.execute(sa.select(sides.c.key, sides.c.value).where(sides.c.kind == "scope"))
            return {key: len(bytes(value)) // 54 for key, value in found}

    return lists


@pytest.mark.parametrize("names", [None, ["Ωμέγα 😀"]])
@pytest.mark.parametrize("per", ["name", "group"])
def test_a_take_under_one_limit_is_one_request(
    board: JobBoard, requests: list[str], lists: Callable[[], dict[str, int]], per: str, names: Any
) -> None:
    name, group = "Ωμέγα 😀", "ß 'group'"
    board.set_limit(name, concurrency=4, per=per)
    board.post_many([Posting(name, group=group)] * 6)
    # What is sent for the second time is given a name.
    held = [board.claim_next("anna", names=names) for _ in range(2)]
    requests.clear()
    held += [board.claim_next("anna", names=names) for _ in range(2)]
    assert len(requests) == 2
    key = name if per == "name" else f"{name}\n{group}"
    assert lists() == {key: 4}
    assert board.claim_next("anna", names=names) is None
    for job in held[:2]:
        board.consume(job, "anna")
    requests.clear()
    for job in held[2:]:
        board.consume(job, "anna")
    assert len(requests) == 2
    assert lists() == {key: 0}
    assert board.claim_next("anna", names=names) is not None


def test_jobs_that_no_limit_counts_enter_no_scope(board: JobBoard, lists: Callable[[], dict[str, int]]) -> None:
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("print", group="a"), Posting("mail"), Posting("MAIL", group="a"), Posting("mail ")])
    assert [board.claim_next("anna").name for _ in range(4)] == ["print", "mail", "MAIL", "mail "]
    assert lists() == {}


def test_two_limits_bind_as_well(board: JobBoard, lists: Callable[[], dict[str, int]]) -> None:
    board.set_limit("mail", concurrency=2)
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=group) for group in "aabc"])
    assert [board.claim_next("anna").group for _ in range(2)] == ["a", "b"]
    assert board.claim_next("anna") is None
    assert lists() == {"mail": 2, "mail\na": 1, "mail\nb": 1}


@pytest.mark.parametrize("between", ["claim", "lower"])
def test_the_last_slot_goes_between_its_look_and_its_claim(
    make_board: Callable[..., JobBoard], engine: sa.Engine, between: str
) -> None:
    board, other = make_board(), make_board()
    board.set_limit("mail", concurrency=2)
    board.post_many([Posting("mail")] * 5)
    held = other.claim_next("bert")
    with picking(board, engine) as taking:
        if between == "claim":
            assert other.claim_next("bert") is not None
        else:
            other.set_limit("mail", concurrency=1)
    assert taking.result() is None
    assert board.stats().claimed == (2 if between == "claim" else 1)
    other.consume(held, "bert")
    assert board.claim_next("anna") is not None
    assert board.claim_next("anna") is None


def test_a_row_whose_text_is_too_long_is_read_by_columns(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """What MariaDB tells where the text would be longer than max_allowed_packet."""
    monkeypatch.setitem(board.engine._shortcuts._singles._takes, (False, False), Compound("SELECT '[1, 2, null, 0]';"))
    board.post("a", details={"n": 1})
    job = board.claim_next("anna")
    assert job.details == {"n": 1}
    board.consume(job, "anna")


def test_a_database_of_another_character_set(make_board: Callable[..., JobBoard], engine: sa.Engine) -> None:
    """Variables have that of the database unless they are told of one."""
    name = f"{engine.url.database}_latin1"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} CHARACTER SET latin1")
    board = make_board(database=name)
    try:
        board.post("a", details={"name": "Ωμέγα 😀"})
        assert board.claim_next("anna").details == {"name": "Ωμέγα 😀"}
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")
