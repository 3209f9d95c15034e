"""What jobboard post makes of keys that are taken."""

from pathlib import Path
from typing import Any

import pytest

from jobboard.cli.common import DONE, USAGE
from tests.test_cli import Run, board, run

__all__ = ["board", "run"]

pytestmark = pytest.mark.backends("sqlite")


def test_a_key_that_outlives_its_job(board: Any, run: Run) -> None:
    made = run("post", "resize", "--key", "k", "--key-for", "1h", "--json").json
    assert (made["created"], made["replaced"]) == (True, False)
    board.consume(board.claim_next("anna"), "anna")
    again = run("post", "resize", "--key", "k", "--json").json
    assert (again["uuid"], again["created"], again["state"]) == (made["uuid"], False, "COMPLETE")
    assert "--key-for 3600.0 needs a key: give --key, too" in run("post", "resize", "--key-for", "1h").err


def test_what_stands_around_the_work(board: Any, run: Run) -> None:
    made = run("post", "resize", "--context", "trace=7f3a", "--context", "by=anna", "--json").json
    assert made["context"] == {"trace": "7f3a", "by": "anna"}
    assert run("show", made["uuid"], "--json").json["context"] == made["context"]
    assert '"trace": "7f3a"' in run("show", made["uuid"]).out
    assert "7f3a" not in run("list", "--json").out
    twice = run("post", "resize", "--context", "a=1", "--context", "a=2")
    assert (twice.status, "given twice" in twice.err) == (USAGE, True)
    assert run("post", "other", "--json").json["context"] == {}
    assert "context" not in run("show", run("post", "other").out.strip()).out


def test_attempts_have_a_bound(board: Any, run: Run) -> None:
    told = run("post", "resize", "--max-attempts", "99999999999999999999")
    assert told.status == USAGE
    assert "--max-attempts 99999999999999999999: must be from 1 to 2147483647" in told.err


def test_a_job_that_is_replaced(board: Any, run: Run, tmp_path: Path) -> None:
    uuid = run("post", "resize", "--key", "k").out.strip()
    again = run("post", "resize", "--key", "k", "--on-key", "replace", "--priority", "7", "--json").json
    assert (again["uuid"], again["created"], again["replaced"], again["priority"]) == (uuid, False, True, 7)
    file = tmp_path / "jobs"
    file.write_text('{"name": "a", "key": "k", "on_key": "replace", "key_for": "1h", "details": {"n": 2}}')
    assert run("post", "--from", str(file)).status == DONE
    assert board.get(uuid).details == {"n": 2}
