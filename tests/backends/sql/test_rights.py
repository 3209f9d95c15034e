"""Rights that are revoked while a board is at work."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard import Conductor
from jobboard.board import JobBoard
from jobboard.engine import OVERDUE
from jobboard.states import CLAIMED
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("postgresql", "mariadb")


@pytest.mark.rule("A missing right throws no finished work away while it may come back.")
def test_finished_work_is_not_done_again_while_rights_are_missing(
    make_board: Callable[..., JobBoard],
    board_conf: dict[str, Any],
    engine: sa.Engine,
    start: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = make_board(name="theirs", table="revoked")
    url = sa.make_url(board_conf["board"])
    tables = [table for table in sa.inspect(engine).get_table_names() if table.startswith("revoked")]
    if engine.dialect.name == "postgresql":
        user, schema = "revoked", ""
        begin, end = "CREATE ROLE revoked LOGIN PASSWORD 'secret'", ["DROP OWNED BY revoked", "DROP ROLE revoked"]
    else:
        user, schema = "revoked@'%%'", f"{url.database}."
        begin, end = f"CREATE USER {user} IDENTIFIED BY 'secret'", [f"DROP USER {user}"]

    def run(*statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    runs = []

    def work(job: jobboard.Job) -> None:
        run(f"REVOKE DELETE, UPDATE ON {schema}revoked FROM {user}")
        runs.append(job)

    run(begin, *(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}{table} TO {user}" for table in tables))
    try:
        conf = {
            **board_conf,
            "board": url.set(username="revoked", password="secret").render_as_string(hide_password=False),
            "table": "revoked",
        }
        with jobboard.backend("theirs", conf) as theirs:
            job = owner.post("resize")
            conductor = start(Conductor("anna", theirs, work))
            eventually(lambda: "may not finish" in caplog.text)
            assert job.state == CLAIMED
            run(f"GRANT UPDATE, DELETE ON {schema}revoked TO {user}")
            eventually(lambda: conductor.tally.consumed)
            assert runs == [job]
            conductor.stop()
            assert conductor.wait(30)
    finally:
        run(*end)


def test_a_board_that_only_reads_waits_for_jobs_behind_many_overdue_ones(
    make_board: Callable[..., JobBoard],
) -> None:
    """It locks none of them, as a transaction that only reads may not."""
    board = make_board()
    jobs = board.post_many([{"name": "late", "delay": 0.01}] * (OVERDUE + 1))
    eventually(lambda: jobs[-1].state == "UNCLAIMED")
    reader = make_board(read_only=True)
    assert set(reader.wait(timeout=0)) == set(jobs)
