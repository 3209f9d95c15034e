"""Statements that MariaDB knows by a name: nothing is lost or done twice with a name that is lost."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.board import JobBoard
from jobboard.job import Posting
from jobboard.sql.links import Link
from jobboard.sql.prepared import Prepared, param

pytestmark = pytest.mark.backends("mariadb")

ODD = "'\\\"?%s%(p_name)s%%;é😀"


def link_of(board: JobBoard) -> Link:
    link: Link = board.engine.store.links.run(lambda link: link)
    return link


def known(board: JobBoard) -> int:
    """How many statements this thread's connection calls by name."""
    named = link_of(board)._named
    return 0 if named is None else sum(call.startswith("EXECUTE ") for call in named._calls.values())


def works(board: JobBoard) -> None:
    for _ in range(3):
        posted = board.post("a", details={"odd": ODD})
        job = board.claim_next("anna")
        assert (job.uuid, job.details) == (posted.uuid, {"odd": ODD})
        board.consume(job, "anna")
    assert board.job_count == 0


def forget(link: Link) -> None:
    """As after a reset, or in another session: locks and names are gone."""
    raw: Any = link.raw
    raw.rollback()
    with raw.cursor() as cursor:
        named = link._named
        assert named is not None
        for number in range(named._count):
            cursor.execute(f"DEALLOCATE PREPARE {named.prefix}{number}")


def test_no_two_connections_have_the_same_name(board: JobBoard, make_board: Callable[..., JobBoard]) -> None:
    """Whose session a proxy lends to the other's board, too, would have it run another statement."""
    names: list[set[str]] = []
    for each in (board, make_board()):
        works(each)
        calls = link_of(each)._named._calls.values()  # type: ignore[union-attr]
        names.append({call.split()[1] for call in calls if call.startswith("EXECUTE ")})
    assert [len(each) for each in names] == [3, 3]
    assert names[0].isdisjoint(names[1])


def test_what_comes_again_is_called_by_name(board: JobBoard) -> None:
    board.consume(board.post("b") and board.claim_next("anna"), "anna")
    assert known(board) == 0
    works(board)
    assert known(board) == 3
    # Lists are of any length: each would be another statement.
    for count in (2, 3, 2, 3):
        board.post_many([Posting("a")] * count)
        board.consume_many(board.claim_many("anna", count), "anna")
    assert {call for call in link_of(board)._named._calls.values() if "ids_2" in call} == set()  # type: ignore[union-attr]


def test_a_percent_sign_stays_one(board: JobBoard) -> None:
    statement = Prepared(sa.select(sa.literal_column("'5%'"), param("n")))
    link = link_of(board)
    for n in (1, 2, 3):
        assert list(link.often(statement, {"p_n": n})) == [("5%", n)]


@pytest.mark.parametrize("at", ["post", "take", "claim", "consume"])
def test_a_session_that_has_forgotten_them(board: JobBoard, other: JobBoard, spy: Any, at: str) -> None:
    """In the middle of a claim another takes the job whose lock is gone."""
    if at == "claim":
        # Which takes two requests.
        board.set_limit("a", concurrency=5)
    works(board)
    board.post("a")
    if at == "consume":
        job = board.claim_next("anna")
    first = link_of(board)
    taken: list[Any] = []

    def before(text: str) -> None:
        if text.startswith("BEGIN NOT ATOMIC") and not taken:
            forget(first)
            taken.append(other.claim_next("bert"))

    if at == "claim":
        with spy(board, before):
            assert board.claim_next("anna") is None
        assert taken[0] is not None
        other.consume(taken[0], "bert")
    else:
        forget(first)
        if at == "post":
            board.post("a")
            assert board.job_count == 2
        job = job if at == "consume" else board.claim_next("anna")
        board.consume(job, "anna")
        for left in board.claim_many("anna", 5):
            board.consume(left, "anna")
    # Another session, with the settings of ours; and names are not tried again.
    assert link_of(board) is not first
    works(board)
    assert known(board) == 0


def test_a_connection_that_is_killed(board: JobBoard, engine: sa.Engine) -> None:
    works(board)
    first: Any = link_of(board)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"KILL {first.raw.thread_id()}")
    works(board)
    assert link_of(board) is not first
    assert known(board) == 3


def test_a_server_that_takes_no_more_of_them(private_server: Callable[..., Any]) -> None:
    server = private_server("mariadb")
    with jobboard.backend("board", server.uri) as board:
        board.engine.store.links.run(lambda link: link.cursor.execute("SET GLOBAL max_prepared_stmt_count = 0"))
        works(board)
        assert known(board) == 0
        # It was asked, and refused.
        assert link_of(board)._named._refused  # type: ignore[union-attr]


def test_an_oracle_of_a_server(board: JobBoard) -> None:
    board.engine.store.links.run(lambda link: link.cursor.execute("SET SESSION sql_mode = 'ORACLE'"))
    works(board)


def test_the_sessions_of_others_get_no_names(engine: sa.Engine, board_conf: dict[str, Any]) -> None:
    with jobboard.backend("board", {"board": "sql", "table": board_conf["table"]}, client=engine) as board:
        works(board)
        assert known(board) == 0
