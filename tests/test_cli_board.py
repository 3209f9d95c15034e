"""Commands name the board that they are about, and where it is empty the others of that store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobboard.cli import main
from jobboard.conductor import Conductor

DONE, FAILED, USAGE, UNREACHABLE = range(4)


@pytest.fixture
def pictures(board_of_commands: Any, make_board: Any) -> Any:
    """A board with a job, beside the one that the commands are about."""
    board = make_board("pictures")
    board.post("resize")
    return board


def said(capsys: pytest.CaptureFixture[str], *args: str, status: int = DONE) -> tuple[str, str]:
    capsys.readouterr()
    assert main(args) == status
    return tuple(capsys.readouterr())  # type: ignore[return-value]


@pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
def test_an_empty_board(
    board_of_commands: Any,
    pictures: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("stats", "list"):
        out, _ = said(capsys, command)
        assert f"board {board_of_commands.name!r}" in out
        assert f"{pictures.name!r} (see --name)" in out
        out, _ = said(capsys, command, "--name", pictures.name)
        assert f"board {pictures.name!r}" in out
        assert f"{board_of_commands.name!r}" not in out
    assert said(capsys, "list", "--json")[0] == ""
    assert json.loads(said(capsys, "stats", "--json")[0])["board"] == board_of_commands.name
    board_of_commands.post("a")
    assert pictures.name not in said(capsys, "stats")[0] + said(capsys, "list")[0]


@pytest.mark.backends("sqlite", "redis")
def test_work_on_an_empty_board(
    pictures: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Conductor, "run", lambda *_: None)
    assert pictures.name in said(capsys, "work", "os:getpid")[1]
    assert pictures.name not in said(capsys, "work", "os:getpid", "--name", pictures.name)[1]


@pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")
def test_a_name_that_nobody_has_used(
    pictures: Any, conf_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stores that make something for each board say that nothing was made; the others, that nothing is on it."""
    here, there = os.environ["JOBBOARD_URL"], conf_of("sqlite")["board"]
    out, err = said(capsys, "move", here, there, "--name", "pictuers", status=FAILED)
    assert out == ""
    assert "'pictuers'" in err
    assert f"{pictures.name!r}" in err
    assert "Traceback" not in err
    status = main(["stats", "--name", "pictuers"])
    both = "".join(capsys.readouterr())
    assert status in (DONE, FAILED)
    assert "'pictuers'" in both
    assert f"{pictures.name!r}" in both
    assert main(["doctor", "--name", "pictuers"]) in (DONE, FAILED)
    assert f"{pictures.name!r}" in capsys.readouterr().err
    # What was there once may be moved again, to finish a move.
    assert "1 moved" in said(capsys, "move", here, there, "--name", pictures.name)[0]
    assert "nothing to move" in said(capsys, "move", here, there, "--name", pictures.name)[0]


@pytest.mark.backends("memory")
def test_a_board_that_ends_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs").write_text('{"name": "a"}')
    for args in (("post", "a"), ("post", "--from", str(tmp_path / "jobs"))):
        for uri in ("memory", "memory://"):
            out, err = said(capsys, "--board", uri, *args, status=USAGE)
            assert out == ""
            assert "its jobs end with this command" in err
