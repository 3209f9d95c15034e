"""examples/mysql_job_queue.py: a queue in a table."""

from __future__ import annotations

import re
import runpy
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from sqlalchemy.orm import Session

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

PROGRAM = Path(__file__).parents[2] / "examples" / "mysql_job_queue.py"


def test_two_generators_and_ten_consumers(engine: sa.Engine) -> None:
    main: Any = runpy.run_path(str(PROGRAM))["main"]

    def run(command: str, *options: str) -> str:
        uri = engine.url.render_as_string(hide_password=False)
        return CliRunner().invoke(main, [command, "--uri", uri, *options], catch_exceptions=False).output

    for _ in range(2):
        assert run("setup-tables") == ""
    counts: Counter[str] = Counter()
    for line in run("start-processing", "--jobs", "300").splitlines():
        reported = re.fullmatch(r"(consumer \d): (\d+) jobs", line)
        assert reported, line
        counts[reported[1]] += int(reported[2])
    assert counts.total() == 300
    assert len(counts) == 10
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM queue").scalar() == 0
        connection.exec_driver_sql("DROP TABLE queue")


@pytest.mark.rule("The example of a queue in a table ends when it is interrupted while it submits.")
@pytest.mark.backends("sqlite")
def test_it_ends_when_it_is_interrupted_while_it_submits(engine: sa.Engine) -> None:
    program: Any = runpy.run_path(str(PROGRAM))
    known = program["main"].commands["start-processing"].callback.__globals__
    watches: list[Any] = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            if args[-1] == "consumer 3":
                raise KeyboardInterrupt
            watches.append(args[1])
            return super().submit(function, *args, **kwargs)

    known["ThreadPoolExecutor"] = Interrupted
    program["Base"].metadata.create_all(engine)
    uri = engine.url.render_as_string(hide_password=False)
    results: list[Any] = []
    arguments = ["start-processing", "--uri", uri]
    thread = threading.Thread(target=lambda: results.append(CliRunner().invoke(program["main"], arguments)))
    thread.start()
    thread.join(20)
    ended = not thread.is_alive()
    watches[0].stop.set()
    thread.join()
    program["Base"].metadata.drop_all(engine)
    assert ended
    assert results[0].exit_code == 1


@pytest.mark.rule("Competing consumers on MySQL look far ahead.")
@pytest.mark.backends("mariadb")
def test_a_consumer_passes_over_many_rows_of_others_by_few_statements(engine: sa.Engine) -> None:
    program: Any = runpy.run_path(str(PROGRAM))
    job = program["Job"]
    program["Base"].metadata.create_all(engine)
    sent: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    try:
        with Session(engine) as session, Session(engine) as other:
            session.add_all([job(kind="mail") for _ in range(600)])
            session.commit()
            other.begin()
            taken = job.acquire(other, "bert", limit=400)
            sa.event.listen(engine, "before_cursor_execute", note)
            mine = job.acquire(session, "anna", limit=100)
            sa.event.remove(engine, "before_cursor_execute", note)
            assert [row.id for row in mine] == [taken[-1].id + number for number in range(1, 101)]
            # To look, to try; to look ahead, and to try four hundreds; to acquire, and to load.
            assert len(sent) == 9, sent
            other.rollback()
    finally:
        program["Base"].metadata.drop_all(engine)


def test_a_consumer_outlives_a_lost_claim(engine: sa.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    program: Any = runpy.run_path(str(PROGRAM))
    job = program["Job"]
    program["Base"].metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([job(kind="mail"), job(kind="picture")])
        session.commit()

    def take_away(*_: object) -> None:
        job.unacquire(engine, "me", where=job.kind == "mail")

    sa.event.listen(Session, "before_flush", take_away, once=True)
    try:
        program["consume"](engine, program["Stopwatch"](2), "me")
    finally:
        program["Base"].metadata.drop_all(engine)
    output = capsys.readouterr()
    assert "another has it" in output.err
    assert output.out == "me: 2 jobs\n"
