"""A take of one job on MariaDB: one request, with nothing done where something is in the way."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.sql.prepared import Compound
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("mariadb")


@pytest.fixture
def requests(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent."""
    cursor = board.engine._live.links.run(lambda link: link.cursor)
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


def test_the_rules_change_between_its_look_and_its_claim(
    make_board: Callable[..., JobBoard], engine: sa.Engine
) -> None:
    board, other = make_board(), make_board()
    answers = sa.Table(f"{board.table.name}_answers", sa.MetaData(), autoload_with=engine)
    board.post_many([{"name": "first"}, {"name": "resize"}])
    patient = engine.execution_options(isolation_level="READ COMMITTED")
    with ThreadPoolExecutor(1) as pool:
        # Each thread keeps its answers in a slot of its own, which is there from now on.
        first = pool.submit(board.claim_next, "anna").result()
        board.consume(first, "anna")
        with patient.connect() as holder, holder.begin():
            # What keeps its answer has locked its job before, and waits.
            holder.execute(sa.select(answers.c.handle).with_for_update()).all()
            taking = pool.submit(board.claim_next, "anna")
            with patient.connect() as prober:
                free = sa.select(board.table.c.id).with_for_update(skip_locked=True)

                def picked() -> bool:
                    with prober.begin():
                        return prober.execute(free).all() == []

                eventually(picked)
            other.pause(["resize"])
        assert taking.result() is None
    assert [job.state for job in board.iterjobs()] == ["UNCLAIMED"]
    other.resume(["resize"])
    assert board.claim_next("anna") is not None


def test_a_row_whose_text_is_too_long_is_read_by_columns(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """What MariaDB tells where the text would be longer than max_allowed_packet."""
    monkeypatch.setitem(board.engine._shortcuts._singles._takes, False, Compound("SELECT '[1, 2, null, 0]';"))
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
