"""``jobboard limit``."""

import json
from typing import Any

import pytest

from jobboard.cli import main
from jobboard.primitives import Limit

DONE, FAILED, USAGE, UNREACHABLE = range(4)


@pytest.mark.backends("sqlite")
def test_set_list_and_remove(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of_commands
    assert main(["limit", "list"]) == DONE
    assert "no limits" in capsys.readouterr().out
    assert main(["limit", "set", "resize", "--concurrency", "4", "--per", "group"]) == DONE
    assert capsys.readouterr().out == "resize 4 at once per group\n"
    assert main(["limit", "set", "resize", "--concurrency", "9", "--rate", "100/1m"]) == DONE
    assert capsys.readouterr().out == "resize 9 at once, 100 in 1m00s\n"
    assert board.limits() == [Limit("resize", "group", 4), Limit("resize", "name", 9, (100, 60.0))]
    assert main(["limit", "list"]) == DONE
    listed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["resize", "group", "4"] in listed
    assert ["resize", "name", "9", "100", "in", "1m00s"] in listed
    assert main(["limit", "list", "--json"]) == DONE
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[1] == {"name": "resize", "per": "name", "concurrency": 9, "rate": [100, 60.0]}
    assert main(["stats"]) == DONE
    limits = "limits: resize 4 at once per group; resize 9 at once, 100 in 1m00s"
    assert f"\n{limits}\n" in capsys.readouterr().out
    board.pause(["mail"])
    board.post("mail")
    assert main(["list"]) == DONE
    assert capsys.readouterr().out.startswith(f"board {board.name!r}, paused: 'mail', {limits}\n")
    assert main(["top", "--once"]) == DONE
    assert limits in capsys.readouterr().out
    for command in (["stats", "--json"], ["top", "--once", "--json"]):
        assert main(command) == DONE
        assert json.loads(capsys.readouterr().out)["limits"] == told
    assert main(["limit", "remove", "resize", "--per", "name"]) == DONE
    assert capsys.readouterr().out == "resize: not limited any more per name.\n"
    assert main(["limit", "remove", "resize"]) == DONE
    assert board.limits() == []
    assert main(["limit", "remove", "resize"]) == FAILED
    assert "there is no limit of 'resize'; 'jobboard limit list' shows them" in capsys.readouterr().err
    assert main(["limit", "remove", ""]) == USAGE


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "give --concurrency or --rate"),
        (["--concurrency", "0"], "--concurrency 0: must be 1 or more"),
        (["--rate", "100"], "write 100/60s"),
        (["--rate", "100/soon"], "soon"),
        (["--concurrency", "1", "--per", "customer"], "customer"),
    ],
)
def test_a_wrong_call(board_of_commands: Any, capsys: pytest.CaptureFixture[str], given: list[str], named: str) -> None:
    assert main(["limit", "set", "resize", *given]) == USAGE
    assert named in capsys.readouterr().err
    assert board_of_commands.limits() == []


@pytest.mark.backends("sqlite")
def test_many_are_told_of_in_a_line(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(7):
        board_of_commands.set_limit(f"n{number}", rate=(number + 1, 1))
    assert main(["stats"]) == DONE
    told = capsys.readouterr().out
    some = "; ".join(f"n{number} {number + 1} in 1.0s" for number in range(5))
    assert f"limits: {some}; 2 more, see 'jobboard limit list'" in told
