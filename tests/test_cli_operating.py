"""The commands by which an operator steps in, and completion."""

import getpass
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

import jobboard
from jobboard import codec
from jobboard.cli import main, release
from jobboard.cli.root import COMMANDS, root
from jobboard.primitives import Draft, Nonce

pytestmark = pytest.mark.backends("memory")

DONE, FAILED, USAGE, UNREACHABLE = range(4)
NOBODY = "01234567-89ab-cdef-0123-456789abcdef"
ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


def test_every_command_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs/cli.rst").read_text()
    for name in COMMANDS:
        assert f"``jobboard {name}``" in page
        assert re.search(rf"^    .*jobboard\b.* {name}\b", page, re.MULTILINE), f"no example of {name}"


def test_release(board: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    board.post("hangs[/]")
    board.post("last", max_attempts=1)
    waiting = board.post("waits")
    hung, last = board.claim_many("holder", 2)
    with caplog.at_level(logging.INFO, "jobboard"):
        assert main(["release", hung.uuid, waiting.uuid, NOBODY, last.uuid, "--json"]) == FAILED
    said = capsys.readouterr()
    assert json.loads(said.out) == {"released": 2, "failed": 2}
    assert waiting.uuid in said.err
    assert NOBODY in said.err
    assert (hung.state, last.state) == ("UNCLAIMED", "TRASHED")
    for job in (hung, last):
        assert job.error == f"released by {ME}"
        [record] = [each for each in caplog.records if each.__dict__.get("job") == job.uuid]
        assert f"released by {ME}" in record.getMessage()
        assert (record.__dict__["who"], record.levelno) == ("holder", logging.INFO)
    again = board.claim_next("again")
    assert main(["release", again.uuid, "--reason", "its host is gone [/]"]) == DONE
    said = capsys.readouterr()
    assert said.out == f"{again} was taken from 'again'.\n1 job released.\n"
    assert said.err == ""
    assert board.get(again.uuid).error == f"released by {ME}: its host is gone [/]"


def test_release_of_one_claim(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = board.post("hangs")
    board.claim(job, "holder")
    assert main(["show", job.uuid, "--json"]) == DONE
    token = json.loads(capsys.readouterr().out)["token"]
    assert token == job.claim.token
    board.abandon(job, "holder")
    newer = board.claim_next("holder")
    assert main(["release", job.uuid, "--token", str(token)]) == FAILED
    said = capsys.readouterr()
    assert (said.out, f"another token than {token}" in said.err) == ("0 jobs released.\n", True)
    newer.claim.extend()
    assert main(["release", job.uuid, "--token", str(newer.claim.token)]) == DONE
    assert newer.state == "UNCLAIMED"
    assert main(["release", job.uuid, NOBODY, "--token", "1"]) == USAGE


def test_what_is_logged_goes_to_standard_error_and_is_safe(board: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, where nobody has set up logging yet."""
    script = (
        "import jobboard, sys\n"
        "board = jobboard.fetch('jobboard', 'memory')\n"
        "board.connect()\n"
        "job = board.post('evil [/] \\u202e')\n"
        "from jobboard.cli import main\n"
        "sys.exit(main(['--board', 'memory', 'work', 'builtins:id', '--max-jobs', '1', '-v']))\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JOBBOARD_")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "INFO Job 'evil [/] \\u202e' (" in done.stderr
    assert "\u202e" not in done.stderr


def test_cancel(board: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    first, second, later = board.post("a"), board.post("b"), board.post("c", delay=3600)
    claimed = board.claim_next("holder")
    with caplog.at_level(logging.INFO, "jobboard"):
        assert main(["cancel", second.uuid, later.uuid, "--reason", "posted twice [/]"]) == DONE
    assert capsys.readouterr().out == "2 jobs cancelled.\n"
    for job in (second, later):
        assert (job.state, job.error) == ("TRASHED", f"cancelled by {ME}: posted twice [/]")
        assert any(job.uuid in each.getMessage() and ME in each.getMessage() for each in caplog.records)
    assert main(["cancel", claimed.uuid]) == FAILED
    first_release = f"first 'jobboard release {claimed.uuid}', then 'jobboard cancel {claimed.uuid}'"
    assert capsys.readouterr().err == f"jobboard: {claimed} is claimed: {first_release}\n"
    assert first.state == "CLAIMED"
    board.abandon(claimed, "holder", error="an older one")
    assert main(["cancel", first.uuid]) == DONE
    assert (first.state, first.error) == ("TRASHED", f"cancelled by {ME}")


def test_a_job_whose_details_can_not_be_read(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It is acted on by its uuid like any other."""
    draft = Draft(NOBODY, "newer", 2, None, codec.VERSION + 1, b"from the future", None, None, None)
    board.engine.raw.insert([draft], Nonce("h", 1, 1))
    assert main(["show", NOBODY]) == FAILED
    assert "upgrade to read it" in capsys.readouterr().err
    for command in (["cancel"], ["trash", "restore"], ["cancel"], ["trash", "purge"]):
        assert main([*command, NOBODY]) == DONE, command
    assert list(board.trashed()) == []
    assert board.job_count == 0


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert release.operator() == f"uid {os.getuid()}@{socket.gethostname()}"


@pytest.mark.parametrize("command", ["release", "cancel"])
def test_without_a_uuid(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--board", "memory", command]) == USAGE
    assert "UUID" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["release", NOBODY], ["cancel", NOBODY], ["entities"], ["top"], ["watch"]])
def test_a_backend_that_is_down(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psycopg")
    assert main([*command, "--board", "postgresql://app:s%40cret@127.0.0.1:1/db?retry_for=0"]) == UNREACHABLE
    assert "127.0.0.1" in capsys.readouterr().err


def test_entities(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["entities"]) == DONE
    assert "Nobody" in capsys.readouterr().out
    metadata = {"host": "here\x1b[31m", "pid": 7, "names": ["a", "b[/]"], "slots": 8, "running": 3, "consumed": 4}
    metadata |= {"dispatched": 9, "seconds": 1.5, "abandoned": 2, "trashed": 0, "lost": 0, "since": 0}
    board.register_entity(jobboard.Entity("conductor", "me[/]", metadata))
    board.register_entity(jobboard.Entity("conductor", "you", {"names": None}))
    board.register_entity(jobboard.Entity("conductor", "zoe", {"names": ["a", "b"], "other_names": 7}))
    board.register_entity(jobboard.Entity("monitor", "it", {"lost": 0, "seconds": 2}))
    board.register_entity(jobboard.Entity("zebra", "at", {"host": ["a"], "on": True, "of": {"b": None}}))
    assert main(["entities"]) == DONE
    out = capsys.readouterr().out
    _, header, mine, yours, hers, its, nested = (line.split() for line in out.splitlines())
    assert header == ["who", "name", "host", "pid", "runs", "running", "done", "more"]
    assert mine[:6] == ["conductor", "me[/]", "here\\x1b[31m", "7", "a,", "b[/]"]
    assert " ".join(nested) == 'zebra at ["a"] on=true, of={"b": null}'
    assert mine[6:] == ["3", "of", "8", "4", "abandoned=2,", "since=0"]
    assert yours == ["conductor", "you", "any", "job"]
    assert hers == ["conductor", "zoe", "a,", "b,", "7", "more"]
    assert its == ["monitor", "it", "lost=0,", "seconds=2"]
    assert main(["entities", "--json"]) == DONE
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["name"] for each in found] == ["me[/]", "you", "zoe", "it", "at"]
    assert found[0]["metadata"] == metadata


# list


def test_list_by_age_and_by_page(make_board: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """By the server's clock."""
    from jobboard.backends.memory import ManualClock

    clock = ManualClock()
    board = make_board("aged", clock=clock)
    monkeypatch.setenv("JOBBOARD_URL", "memory")
    monkeypatch.setenv("JOBBOARD_NAME", board.name)
    jobs = []
    for hours in (30, 3, 1):
        jobs.append(board.post(f"job{hours}").uuid)
        clock.advance({30: 27, 3: 2, 1: 1}[hours] * 3600)

    def listed(*args: str) -> list[str]:
        assert main(["list", "--json", *args]) == DONE
        return [json.loads(line)["uuid"] for line in capsys.readouterr().out.splitlines()]

    assert listed("--older", "1d") == jobs[:1]
    assert listed("--newer", "1d") == jobs[1:]
    assert listed("--older", "2h", "--newer", "1d") == jobs[1:2]
    assert listed("--limit", "1", "--after", jobs[0]) == jobs[1:2]
    assert main(["list", "--limit", "2"]) == DONE
    assert f"--after {jobs[1]}" in capsys.readouterr().out
    assert main(["list", "--after", NOBODY]) == FAILED
    assert NOBODY in capsys.readouterr().err
    assert main(["list", "--older", "yesterday"]) == USAGE


# Completion


def offered(*words: str) -> list[str]:
    completer = ShellComplete(root, {}, "jobboard", "_JOBBOARD_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


def test_what_is_completed(board: Any) -> None:
    board.post_many([{"name": name} for name in ("resize", "report", "$(reboot)", "a;b", "x y", "[/]", "tab\u202e")])
    board.register_entity(jobboard.Entity("conductor", "me", {"names": ["rename"]}))
    assert {"release", "cancel", "top", "watch", "entities", "completion"} <= set(offered(""))
    assert offered("tr") == ["trash"]
    assert offered("trash", "") == ["list", "purge", "restore"]
    assert offered("list", "--state", "") == ["UNCLAIMED", "SCHEDULED", "CLAIMED"]
    assert offered("list", "--state", "un") == ["UNCLAIMED"]
    assert offered("watch", "--event", "TR") == ["TRASHED"]
    assert offered("post", "--priority", "v") == ["VERY_HIGH", "VERY_LOW"]
    # A name that a shell would act on is not put on anybody's command line.
    assert offered("list", "--job", "") == ["rename", "report", "resize"]
    assert offered("watch", "--job", "resi") == ["resize"]


def test_names_are_completed_from_the_board_that_was_typed(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBBOARD_URL", raising=False)
    board = make_board()
    board.post("resize")
    assert offered("--board", "memory", "list", "--name", board.name, "--job", "") == ["resize"]
    assert offered("list", "--job", "") == []
    assert offered("--board", "postgresql://127.0.0.1:1/db", "list", "--job", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == DONE
    assert f"_JOBBOARD_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_in_a_real_shell() -> None:
    script = (
        'eval "$(jobboard completion bash)"\n'
        "COMP_WORDS=(jobboard list --state CLA) COMP_CWORD=3\n"
        "_jobboard_completion jobboard\n"
        'echo "offers ${COMPREPLY[*]}"\n'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "offers CLAIMED\n"


def test_pause_and_resume(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        assert main(words) == DONE
        return capsys.readouterr().out

    board.post("mail")
    name = f"board {board.name!r}"
    assert told("pause", "mail") == f"{name}: paused: 'mail'\n"
    assert json.loads(told("pause", "--json")) == {"everything": True, "names": ["mail"]}
    assert board.claim_next("anna") is None
    assert "\npaused: everything, 'mail'\n" in told("stats")
    assert told("list").startswith(f"{name}, paused: everything, 'mail'\n")
    assert "paused: everything, 'mail'" in told("top", "--once")
    for command in (("stats", "--json"), ("top", "--once", "--json")):
        assert json.loads(told(*command))["paused"] == {"everything": True, "names": ["mail"]}
    told("resume", "mail")
    assert told("resume") == f"{name}: nothing is paused\n"
    assert "paused" not in told("stats")
    assert board.claim_next("anna") is not None
    for command in ("pause", "resume"):
        assert main([command, ""]) == USAGE
    for option in ("--older", "--newer"):
        assert main(["list", option, "1x"]) == USAGE
        assert f"'{option}'" in capsys.readouterr().err
    assert main(["trash", "purge", "--older-than", "1x"]) == USAGE
    assert "'--older-than'" in capsys.readouterr().err
