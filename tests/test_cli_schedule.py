"""``jobboard schedule``."""

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from jobboard.cli import main
from jobboard.testing import eventually
from jobboard.testing.conformance.scheduling import put_back

DONE, FAILED, USAGE, UNREACHABLE = range(4)


@pytest.mark.backends("sqlite")
def test_set_list_and_remove(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of_commands
    assert main(["schedule", "list"]) == DONE
    assert "no schedules" in capsys.readouterr().out
    cron = ["--cron", "30 3 * * *", "--tz", "Europe/Berlin", "--missed", "all"]
    what = ["--details", '{"a": "secret"}', "--priority", "-7", "--context", "b=c", "--key", "k", "--group", "g"]
    assert main(["schedule", "set", "nightly", "report", *cron, *what, "--max-attempts", "3"]) == DONE
    [nightly] = board.schedules()
    assert f"nightly: next due {nightly.next_due:%Y-%m-%d %H:%M:%S} UTC" in capsys.readouterr().out
    assert (nightly.cron, nightly.tz, nightly.missed, nightly.name) == ("30 3 * * *", "Europe/Berlin", "all", "report")
    assert (nightly.details, nightly.priority, nightly.context) == ({"a": "secret"}, -7, {"b": "c"})
    assert (nightly.key, nightly.group, nightly.max_attempts) == ("k", "g", 3)
    assert main(["schedule", "set", "ping", "ping", "--every", "5m", "--json"]) == DONE
    told = json.loads(capsys.readouterr().out)
    assert (told["every"], told["last_posted"], told["details"]) == (300.0, None, {})
    assert main(["schedule", "list"]) == DONE
    listed = capsys.readouterr().out
    assert "30 3 * * *, Europe/Berlin" in listed
    assert "every 5m00s" in listed
    assert main(["schedule", "list", "--json"]) == DONE
    lines = capsys.readouterr().out
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["nightly", "ping"]
    assert "secret" not in listed + lines
    assert main(["schedule", "remove", "nightly", "nope", "ping"]) == FAILED
    told = capsys.readouterr()
    assert told.out == "2 schedules removed.\n"
    assert "there is no schedule 'nope'" in told.err
    assert board.schedules() == []
    assert main(["schedule", "remove", "nightly", "--json"]) == FAILED
    told = capsys.readouterr()
    assert json.loads(told.out) == {"removed": 0, "failed": 1}
    assert "there is no schedule 'nightly'" in told.err


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "either --cron or --every"),
        (["--cron", "* * * * *", "--every", "5m"], "either --cron or --every"),
        (["--every", "0.01"], "--every 0.01: must be"),
        (["--cron", "61 * * * *"], "bad minute"),
        (["--cron", f"{'*,' * 200}* * * * *"], "…': must have at most 255 characters, not 409"),
        (["--cron", "* * * * *", "--tz", "Europe/Berln"], "Europe/Berlin"),
        (["--every", "soon"], "soon"),
        (["--every", "5m", "--details", "{"], "--details is not JSON"),
        (["--every", "5m", "--details", "[null]"], "--details [null]: must be a JSON object"),
    ],
)
def test_a_wrong_call(board_of_commands: Any, capsys: pytest.CaptureFixture[str], given: list[str], named: str) -> None:
    assert main(["schedule", "set", "nightly", "report", *given]) == USAGE
    assert named in capsys.readouterr().err
    assert board_of_commands.schedules() == []


@pytest.mark.backends("sqlite")
def test_run_posts_until_it_is_told_to_end(board_of_commands: Any) -> None:
    board = board_of_commands
    board.schedule("ping", name="ping", every=0.1)
    process = subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "schedule", "run"], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        eventually(lambda: board.job_count >= 3)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == DONE
    assert "the schedule of 'ping' has posted job" in said
    assert "Traceback" not in said
    times = [job.schedule[1] for job in board.iterjobs()]
    assert len(set(times)) == len(times)


@pytest.mark.backends("sqlite")
def test_a_board_for_looking_only_is_refused(
    board_of_commands: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBBOARD_URL", "redis://127.0.0.1:1?read_only=true")
    assert main(["schedule", "run"]) == USAGE
    assert "leave out read_only" in capsys.readouterr().err


@pytest.mark.backends("memory")
def test_a_board_in_memory_is_refused(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "set", "nightly", "report", "--every", "5m"]) == USAGE


@pytest.mark.backends("memory")
@pytest.mark.parametrize("command", ["list", "set", "remove", "run"])
def test_every_command_has_an_example_in_its_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(["schedule", command, "--help"]) == DONE
    assert f"  jobboard schedule {command}" in capsys.readouterr().out.partition("For example:")[2]


@pytest.mark.backends("sqlite")
def test_figures(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In 'stats' and in 'top'; how late, where nobody posts."""

    def told(*words: str) -> str:
        capsys.readouterr()
        assert main([*words]) == 0
        return capsys.readouterr().out

    assert "schedules" not in told("stats") + told("top", "--once")
    due = board_of_commands.schedule("ping", name="ping", every=3600).next_due
    line = f"schedules: 1, next due {due:%Y-%m-%d %H:%M:%S}Z"
    assert f"\n{line}\n" in told("stats")
    assert line in told("top", "--once")
    put_back(board_of_commands, "ping", 90.5)
    assert re.search(r"schedules: 1, 1m\d+s late", told("stats"))
    for command in (("stats", "--json"), ("top", "--once", "--json")):
        seen = json.loads(told(*command))
        assert (seen["schedules"], seen["outcomes"]) == (1, None)
        assert 90 < seen["late"] < 120
