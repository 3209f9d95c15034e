"""The first hour on the command line: what is typed in a shorter, another or a wrong way, and strange terminals."""

import datetime
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobboard.cli import main

pytestmark = pytest.mark.backends("sqlite")

DONE, FAILED, USAGE, UNREACHABLE = range(4)


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(args)
        return (status, *capsys.readouterr())

    return call


Run = Callable[..., tuple[int, str, str]]


def started(*args: str, **kwargs: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        **kwargs,
    )


# Words


@pytest.mark.parametrize(("words", "meant"), [(["trsh"], "trash"), (["trash", "lst"], "list"), (["pots", "a"], "post")])
def test_a_mistyped_command(run: Run, words: list[str], meant: str) -> None:
    status, _, err = run(*words)
    assert status == USAGE
    assert f"Did you mean '{meant}'?" in err.splitlines()[0]


@pytest.mark.parametrize("group", ["trash", "loop"])
def test_a_group_alone_prints_its_help(run: Run, group: str) -> None:
    status, out, err = run(group)
    assert status == USAGE
    assert "Commands:\n" in out + err
    assert len((out + err).splitlines()) > 5


# Posting


@pytest.mark.parametrize(("given", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("1d", 86400)])
def test_a_delay_with_its_unit(board: Any, run: Run, tmp_path: Path, given: str, seconds: int) -> None:
    (tmp_path / "jobs").write_text(json.dumps({"name": "b", "delay": given}))
    assert run("post", "a", "--delay", given)[0] == DONE
    assert run("post", "--from", str(tmp_path / "jobs"))[0] == DONE
    for job in board.iterjobs():
        assert job.state == "SCHEDULED"
        assert job.due - job.created_on == datetime.timedelta(seconds=seconds)


def test_durations_that_are_none(board: Any, run: Run) -> None:
    for args in (["post", "a", "--delay", "soon"], ["work", "os:getpid", "--job-timeout", "0"]):
        status, _, err = run(*args)
        assert status == USAGE
        assert args[-2] in err


def test_details_from_a_file(board: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "details").write_text('{"name": "€"}')
    assert run("post", "a", "--details", f"@{tmp_path}/details")[0] == DONE

    class Input:
        buffer = io.BytesIO(b'{"n": 1}')

    monkeypatch.setattr(sys, "stdin", Input)
    assert run("post", "b", "--details", "-")[0] == DONE
    assert [job.details for job in board.iterjobs()] == [{"name": "€"}, {"n": 1}]
    status, _, err = run("post", "a", "--details", "@/no/such")
    assert (status, "/no/such" in err, "No such file" in err) == (USAGE, True, True)


def test_due_and_context(board: Any, run: Run) -> None:
    assert run("post", "a", "--due", "2100-01-31T12:00:00Z", "--context", "a=1=2", "--context", "b=")[0] == DONE
    [job] = board.iterjobs()
    assert job.due == datetime.datetime(2100, 1, 31, 12, tzinfo=datetime.UTC)
    assert job.context == {"a": "1=2", "b": ""}
    for args, word in (
        (["--due", "tomorrow"], "2030-01-31T12:00:00Z"),
        (["--due", "2100-01-31T12:00:00"], "time zone"),
        (["--due", "2100-01-31T12:00:00Z", "--delay", "5m"], "not both"),
        (["--context", "a"], "KEY=VALUE"),
    ):
        status, _, err = run("post", "a", *args)
        assert status == USAGE
        assert word in err


# The first characters of a uuid


def test_the_first_characters_of_a_uuid(board: Any, run: Run) -> None:
    job = board.post("a")
    trashed = board.post("b")
    board.cancel(trashed)
    for each in (job, trashed):
        status, out, _ = run("show", each.uuid[:8], "--json")
        assert (status, json.loads(out)["uuid"]) == (DONE, each.uuid)
    assert run("trash", "restore", trashed.uuid[:13])[0] == DONE
    assert run("cancel", job.uuid[:8])[0] == DONE
    assert job.state == "TRASHED"
    assert run("list", "--after", job.uuid[:8])[0] == DONE
    for none in ("01234567", job.uuid[:3], "ABCDEF01", job.uuid + "0"):
        status, _, err = run("show", none)
        assert status == FAILED
        assert none in err


def test_characters_that_do_not_tell(make_board: Any, run: Run, monkeypatch: pytest.MonkeyPatch, board: Any) -> None:
    uuids = [f"0d8a3c3e-9c53-4c5d-bc5a-{n:012}" for n in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr("jobboard.arguments.new_uuids", lambda count: uuids[:count])
        jobs = board.post_many([{"name": "a"}] * 3)
    status, _, err = run("cancel", "0d8a3c3e")
    assert status == FAILED
    assert all(uuid in err for uuid in uuids)
    assert {job.state for job in jobs} == {"UNCLAIMED"}
    monkeypatch.setattr("jobboard.cli.common.SEARCHED", 2)
    status, _, err = run("show", uuids[1][:-1])
    assert status == FAILED
    assert "whole uuid" in err
    assert run("show", uuids[1])[0] == DONE


# Terminals


def test_closed_streams(board: Any) -> None:
    """What is opened later must not take the place of what was closed."""
    for command in ("post a >&-", "list >&-", "post a 2>&- <&- >&-"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m jobboard.cli {command}"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (DONE, "", "")
    assert board.job_count == 2


def test_a_terminal_without_the_characters(board: Any) -> None:
    job = board.post("größer als 3 € → ja", details={"a": "→"})
    for args in (["list"], ["show", job.uuid]):
        with started(*args, env={**os.environ, "PYTHONIOENCODING": "latin-1"}) as process:
            out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (DONE, "")
        assert "\\u20ac" in out


@pytest.mark.parametrize("module", ["click", "jobboard.cli.common", "jobboard.cli.stats", "sqlalchemy"])
def test_an_interrupt_while_it_starts(board: Any, module: str) -> None:
    """Where the command's own modules are imported, which takes most of the first quarter of a second."""
    script = (
        "import os, signal, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from jobboard.cli import main\n"
        "sys.exit(main(['stats']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "jobboard: interrupted")


# Drivers


@pytest.mark.backends("zookeeper")
def test_a_driver_s_log_lines_are_not_shown(private_server: Any, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text("def resize(job): pass\n")
    uri = "zookeeper://127.0.0.1:1?timeout=1"
    with started("--board", uri, "stats") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == UNREACHABLE
    assert len(err.splitlines()) == 1
