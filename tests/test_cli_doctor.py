"""``jobboard doctor``: what it prints, and how it ends."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard.cli import main
from jobboard.testing.conformance.examining import damage
from jobboard.testing.conformance.support import plant

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def board(uri: str) -> Iterator[Any]:
    with jobboard.backend("jobboard", uri) as board:
        yield board


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], uri: str) -> Callable[..., tuple[int, str]]:
    def call(*args: str, more: str = "") -> tuple[int, str]:
        status = main(["--board", uri + more, "doctor", *args])
        return status, capsys.readouterr().out

    return call


def test_nothing_is_odd(board: Any, doctor: Any) -> None:
    board.post("resize", key="k")
    assert doctor() == (0, "Nothing is odd.\n")
    assert doctor("--json") == (0, "")


def test_what_is_odd_and_what_to_do(board: Any, doctor: Any) -> None:
    uuid = plant(board, "no json")
    status, out = doctor()
    assert status == 1
    place, advice, count = out.splitlines()
    assert place.startswith(f"job {uuid}: the posting can't be decoded")
    assert advice.startswith("    ")
    assert "claim" in advice
    assert "jobboard" not in advice
    assert count == "1 found."
    status, out = doctor("--json")
    assert status == 1
    assert json.loads(out).keys() == {"place", "reason", "advice"}
    # As the advice has it.
    board.claim_next("anna")
    assert doctor() == (0, "Nothing is odd.\n")


@pytest.mark.parametrize("schedule", ["nightly", "it's $HOME", "-a"])
def test_a_damaged_schedule(board: Any, doctor: Any, uri: str, schedule: str) -> None:
    board.schedule(schedule, name="report", every=600)
    damage(board, "schedule", schedule)
    status, out = doctor()
    assert status == 1
    command = shlex.split(out.splitlines()[1].partition("or: jobboard ")[2])
    assert command[:2] == ["schedule", "remove"]
    assert main(["--board", uri, *command]) == 0
    assert doctor() == (0, "1 schedule removed.\nNothing is odd.\n")


def test_what_it_prints_is_harmless(board: Any, doctor: Any, uri: str) -> None:
    plant(board, "no json")
    with sa.create_engine(uri).begin() as link:
        link.execute(sa.update(board.table).values(uuid="\x1b[31m!"))
    status, out = doctor()
    assert status == 1
    assert "[31m!" in out
    assert "\x1b" not in out


def test_a_setting_that_may_lose_jobs(board: Any, doctor: Any) -> None:
    status, out = doctor(more="?synchronous=normal")
    assert status == 1
    assert "characteristic durable: it is false: a crash" in out
    assert "the option synchronous is normal, leave it out" in out
    assert "docs/operations.rst" in out
    assert out.endswith("\n1 found.\n")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--help"]) == 0
    assert "exit status" in " ".join(capsys.readouterr().out.split())
