"""``jobboard done``: what consumed jobs have left."""

import json
from typing import Any

import pytest

import jobboard
from jobboard.cli import main

pytestmark = pytest.mark.backends("memory")

DONE, FAILED = 0, 1


@pytest.fixture
def board(board_of_commands: Any, make_board: Any) -> Any:
    """What is consumed here leaves an outcome; the commands open the same board without that option."""
    return make_board(keep_done=600)


def consumed(board: Any, name: str, result: object = None) -> jobboard.Job:
    board.post(name, details={"secret": "s3"})
    board.abandon(board.claim_next("anna[/]"), "anna[/]", error="no luck")
    job = board.claim_next("bert")
    board.consume(job, "bert", result=result)
    return job


def test_list(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["done", "list"]) == DONE
    assert "keep_done" in capsys.readouterr().out
    jobs = [consumed(board, name, {"ü": 1}) for name in ("a", "b", "a")]
    assert main(["done", "list"]) == DONE
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:]] == [job.uuid for job in reversed(jobs)]
    assert "s3" not in out
    assert main(["done", "list", "--job", "a", "--after", jobs[2].uuid, "--json"]) == DONE
    [line] = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["uuid"], told["who"], told["workers"]) == (jobs[0].uuid, "bert", ["anna[/]", "bert"])
    assert not {"details", "result"} & set(told)
    assert main(["done", "list", "--limit", "1"]) == DONE
    assert f"--after {jobs[2].uuid}" in capsys.readouterr().out


def test_show(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = consumed(board, "a", {"ü": 1})
    assert main(["done", "show", job.uuid]) == DONE
    out = capsys.readouterr().out
    for text in ('"secret": "s3"', '"ü": 1', "workers: anna[/], bert", "attempt 1 by anna[/]:\nno luck", "begun on: "):
        assert text in out
    assert main(["done", "show", job.uuid, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["result"] == {"ü": 1}
    assert main(["show", job.uuid, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["state"] == "COMPLETE"
    waiting = board.post("b")
    assert main(["done", "show", waiting.uuid]) == FAILED
    assert "has no outcome" in capsys.readouterr().err
