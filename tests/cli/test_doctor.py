"""``jobboard doctor`` and ``jobboard loop``."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.cli.common import DONE, FAILED
from jobboard.testing.conformance.damage import damage
from jobboard.testing.conformance.support import plant
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def board(uri: str) -> Iterator[Any]:
    with jobboard.backend("jobboard", uri) as board:
        board.register_entity(jobboard.Entity("conductor", "me", {"names": None}))
        yield board


@pytest.fixture
def doctor(run: Commands, uri: str) -> Callable[..., Any]:
    return lambda *args, status=DONE, more="": run("--board", uri + more, "doctor", *args, status=status)


def test_a_sound_board_has_nothing_odd(board: Any, doctor: Any) -> None:
    board.post("resize", key="k")
    assert doctor().out == "Nothing is odd.\n"
    assert doctor("--json").out == ""
    assert "exit status" in " ".join(doctor("--help").out.split())


def test_a_defect_comes_with_advice_that_mends_it(board: Any, doctor: Any) -> None:
    uuid = plant(board, "no json")
    place, advice, count = doctor(status=FAILED).out.splitlines()
    assert place.startswith(f"job {uuid}: the posting can't be decoded")
    assert advice.startswith("    ")
    assert "claim" in advice
    assert "jobboard" not in advice
    assert count == "1 found."
    assert doctor("--json", status=FAILED).json.keys() == {"place", "reason", "advice"}
    board.claim_next("anna")
    assert doctor().out == "Nothing is odd.\n"


@pytest.mark.rule("The doctor names a damaged job and a damaged schedule, and its advice helps.")
@pytest.mark.rule("A damaged schedule is shown by the doctor.")
@pytest.mark.parametrize("schedule", ["it's $HOME", "-a"])
def test_a_damaged_schedule_is_removed_by_the_command_of_its_advice(
    board: Any, doctor: Any, run: Commands, uri: str, schedule: str
) -> None:
    board.schedule(schedule, name="report", every=600)
    damage(board, "schedule", schedule)
    advice = doctor(status=FAILED).out.splitlines()[1]
    command = shlex.split(advice.partition("or: jobboard ")[2])
    assert command[:2] == ["schedule", "remove"]
    assert run("--board", uri, *command).out == "1 schedule removed.\n"
    assert doctor().out == "Nothing is odd.\n"


def test_damaged_text_is_no_instruction_to_a_terminal(board: Any, doctor: Any, uri: str) -> None:
    plant(board, "no json")
    with sa.create_engine(uri, poolclass=sa.NullPool).begin() as link:
        link.execute(sa.update(board.table).values(uuid="\x1b[31m!"))
    out = doctor(status=FAILED).out
    assert "[31m!" in out
    assert "\x1b" not in out


def test_a_setting_that_may_lose_jobs_is_reported(board: Any, doctor: Any) -> None:
    out = doctor(more="?synchronous=normal", status=FAILED).out
    assert "characteristic durable: it is false: a crash" in out
    assert "the option synchronous is normal, leave it out" in out
    assert "see Durability on the page 'Production checklist'" in out
    assert out.endswith("\n1 found.\n")


# loop


@pytest.mark.rule("The SQL of a task loop's table is printed.")
def test_the_sql_of_task_loops_is_printed(run: Commands) -> None:
    printed = run("loop", "create-table", "a_loop", "b_loop").out
    assert "CREATE TABLE `a_loop` (\n    `id` int NOT NULL,\n" in printed
    assert "CREATE INDEX `lock_until` ON `b_loop` (`lock_until`, `last_updated`);" in printed
    assert printed.count(";") == 4
    assert "ENGINE=InnoDB" in printed
    printed = run(*["loop", "create-table", "-d", "postgresql", "-i", "VARCHAR(64)", "a_loop"]).out
    assert 'CREATE TABLE "a_loop"' in printed
    assert '"id" VARCHAR(64) NOT NULL' in printed
    assert 'CREATE INDEX "a_loop_lock_until" ON "a_loop" ("lock_until", "last_updated" NULLS FIRST, "id");' in printed
    assert "ENGINE" not in printed


@pytest.mark.rule("Long names of tables keep their indexes apart, and every name is quoted.")
def test_the_sql_of_task_loops_is_for_clients_and_not_for_drivers(run: Commands) -> None:
    for dialect in ("mysql", "mariadb", "postgresql", "sqlite"):
        printed = run("loop", "create-table", "-d", dialect, "a%b:c").out
        assert "a%b:c" in printed
        assert "%%" not in printed
