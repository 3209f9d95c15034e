"""The frame of all commands: help, wrong calls, secrets, streams and signals."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from jobboard.cli.common import DONE, FAILED, UNREACHABLE, USAGE
from jobboard.cli.root import COMMANDS, root
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("memory")

NOBODY = "01234567-89ab-cdef-0123-456789abcdef"
FILE = ("--board", "sqlite:///x.db")


def commands() -> Iterator[list[str]]:
    yield []
    for name in COMMANDS:
        yield [name]
        command = root.get_command(click.Context(root), name)
        if isinstance(command, click.Group):
            yield from ([name, each] for each in command.commands)


def test_help_has_examples_and_whole_summaries(run: Commands) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/cli.rst").read_text()
    for command in commands():
        out = run(*command, "--help", width=80).out
        assert re.search(rf"^ +.*jobboard\b.*{' '.join(command)}", out.partition("For example:")[2], re.MULTILINE), (
            command
        )
        listed = out.partition("Commands:\n")[2].partition("\n\n")[0]
        assert all(re.match(r"  [\w-]+ +\w.*[^.]\.$", line) for line in listed.splitlines()), command
        if len(command) == 1:
            assert f"\njobboard {command[0]}\n^^^" in page
            assert f"\n.. command:: {command[0]}" in page
            assert re.search(rf"^    \$ .*jobboard\b.* {command[0]}\b", page, re.MULTILINE), f"no example of {command}"


def test_a_group_alone_prints_its_help(run: Commands) -> None:
    assert all(name in run(status=USAGE).err for name in COMMANDS)
    for group in ("trash", "loop"):
        ran = run(group, status=USAGE)
        assert "Commands:\n" in ran.out + ran.err


@pytest.mark.rule("An empty name is no default.")
@pytest.mark.rule("A mistyped command, unit or uuid gets the right one.")
@pytest.mark.rule("work refuses a board that is open for looking only.")
@pytest.mark.rule("A wrong call is told in the words of the options.")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["stats"], "JOBBOARD_URL"),
        (["trsh"], "Did you mean 'trash'?"),
        (["trash", "lst"], "Did you mean 'list'?"),
        (["nonsense"], "nonsense"),
        (["--board", "memory", "stats", "--colour"], "--colour"),
        (["--board", "", "list"], "--board is empty"),
        ([*FILE, "--name", "", "list"], "--name is empty"),
        (["--board", "mongodb://host", "stats"], "mongodb"),
        ([*FILE[:1], "sqlite:///x.db?claim_tll=3", "stats"], "claim_ttl"),
        ([*FILE[:1], "sqlite:///x.db?claim_ttl=soon", "stats"], "claim_ttl"),
        (["--board", "postgresql://u:p@h:port/db", "stats"], "port"),
        ([*FILE, "list", "--state", "trashed"], "'trashed'"),
        ([*FILE, "list", "--older", "yesterday"], "'--older'"),
        ([*FILE, "list", "--newer", "1d2h"], "'--newer'"),
        ([*FILE, "list", "--job", ""], "--job is empty"),
        ([*FILE, "watch", "--job", "a", "--job", ""], "--job is empty"),
        ([*FILE, "post"], "NAME"),
        (["--board", "memory://", "post", "a"], "its jobs end with this command"),
        (["--board", "memory://", "doctor"], "its jobs end with this command"),
        (["--board", "memory", "schedule", "set", "a", "b", "--every", "5m"], "its jobs end with this command"),
        ([*FILE, "post", "a", "--details", "{"], "JSON"),
        ([*FILE, "post", "a", "--details", "[1]"], "must be a JSON object"),
        ([*FILE, "post", "a", "--details", '{"x": NaN}'], "details['x']"),
        ([*FILE, "post", "a", "--details", "@/no/such"], "'/no/such': No such file"),
        ([*FILE, "post", "a", "--priority", "urgent"], "VERY_HIGH"),
        ([*FILE, "post", "a", "--priority", "-101"], "-100 to 100"),
        ([*FILE, "post", "a", "--delay", "-1"], "delay"),
        ([*FILE, "post", "a", "--delay", "soon"], "--delay"),
        ([*FILE, "post", "a", "--due", "tomorrow"], "2030-01-31T12:00:00Z"),
        ([*FILE, "post", "a", "--due", "2100-01-31T12:00:00"], "no time zone: write 2100-01-31T12:00:00Z"),
        ([*FILE, "post", "a", "--due", "2100-01-31T12:00:00Z", "--delay", "5m"], "not both"),
        ([*FILE, "post", "a", "--context", "a"], "KEY=VALUE"),
        ([*FILE, "post", "a", "--context", "a=1", "--context", "a=2"], "given twice"),
        ([*FILE, "post", "a", "--key-for", "1h"], "--key-for 3600.0 needs a key: give --key, too"),
        ([*FILE, "post", "a", "--max-attempts", "0"], "--max-attempts"),
        ([*FILE, "post", "a", "--max-attempts", "9" * 20], f"--max-attempts {'9' * 20}: must be 2147483647 at most"),
        ([*FILE, "post", ""], "empty"),
        ([*FILE, "post", "a", "--from", "x"], "--from"),
        ([*FILE, "post", "a", "--skip-bad"], "--from"),
        ([*FILE, "post", "--from", "/no/such/file"], "/no/such/file"),
        ([*FILE, "release"], "UUID"),
        ([*FILE, "release", NOBODY, NOBODY, "--token", "1"], "--token"),
        ([*FILE, "trash", "restore"], "--all"),
        ([*FILE, "trash", "purge", "--all", "--older-than", "3d"], "--all"),
        ([*FILE, "trash", "purge", "--older-than", "next week"], "'--older-than'"),
        ([*FILE, "limit", "set", "a"], "give --concurrency or --rate"),
        ([*FILE, "limit", "set", "a", "--concurrency", "0"], "--concurrency 0: must be 1 or more"),
        ([*FILE, "limit", "set", "a", "--rate", "100"], "write 100/60s"),
        ([*FILE, "limit", "set", "a", "--rate", "100/"], "'100/' is not a rate"),
        ([*FILE, "limit", "set", "a", "--rate", "100/soon"], "soon"),
        ([*FILE, "limit", "set", "a", "--concurrency", "1", "--per", "customer"], "customer"),
        ([*FILE, "schedule", "set", "a", "b"], "either --cron or --every"),
        ([*FILE, "schedule", "set", "a", "b", "--cron", "* * * * *", "--every", "5m"], "either --cron or --every"),
        ([*FILE, "schedule", "set", "a", "b", "--every", "0.01"], "--every 0.01: must be"),
        ([*FILE, "schedule", "set", "a", "b", "--cron", "61 * * * *"], "bad minute"),
        ([*FILE, "schedule", "set", "a", "b", "--cron", f"{'*,' * 200}* * * * *"], "409 characters; at most 255"),
        ([*FILE, "schedule", "set", "a", "b", "--cron", "* * * * *", "--tz", "Europe/Berln"], "Europe/Berlin"),
        (["--board", "redis://127.0.0.1:1?read_only=true", "schedule", "run"], "leave out read_only"),
        (["--board", "redis://127.0.0.1:1?read_only=true", "work", "os:getpid"], "leave out read_only"),
        (["--board", "memory", "work", "handlers"], "MODULE:NAME"),
        (["--board", "memory", "work", "jobboard.engine:Store.options"], "empty mapping"),
        (["--board", "memory", "work", "no_such_module:x"], "no_such_module"),
        (["--board", "memory", "work", "os:no_such_name"], "no_such_name"),
        (["--board", "memory", "work", "os:name"], "callable"),
        (["--board", "memory", "work", "os:getpid", "--job-timeout", "0"], "--job-timeout"),
        (["--board", "memory", "work", "os:getpid", "--drain-timeout", "0"], "--drain-timeout"),
        ([*FILE, "watch", "--event", "lost"], "'lost' is not one of"),
        (["loop", "create-table"], "TABLE"),
        (["loop", "create-table", "-d", "oracle", "a"], "oracle"),
        (["loop", "create-table", "-e", "MyISAM", "a"], "MyISAM"),
        (["--board", "memory", "demo"], "memory"),
        (["demo", "/no/such/folder"], "/no/such/folder"),
        (["demo", "--name", "mine"], "leave out --name"),
    ],
)
def test_a_wrong_call_is_answered_in_one_line(
    run: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOBBOARD_URL", raising=False)
    ran = run(*args, status=USAGE)
    assert ran.out == ""
    assert ran.is_one_line_about(words), ran.err


@pytest.mark.parametrize("text", ["import no_such_thing", "1 / 0", "def f(:", "raise SystemExit(3)"])
def test_a_module_of_handlers_that_fails_is_named(
    run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    name = f"broken{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run("--board", "memory", "work", f"{name}:x", status=USAGE).is_one_line_about(name)


def test_a_backend_that_is_down_has_a_status_of_its_own(run: Commands) -> None:
    pytest.importorskip("psycopg")
    uri = "postgresql://app:s%40cret@127.0.0.1:1/db?retry_for=0"
    for command in ("stats", "list", "post a", "setup", "demo", f"release {NOBODY}", "entities", "top", "watch"):
        ran = run(*command.split(), "--board", uri, status=UNREACHABLE)
        assert ran.is_one_line_about("127.0.0.1"), command
        assert "s@cret" not in ran.err
        assert "s%40cret" not in ran.err


def test_the_log_lines_of_a_driver_are_not_shown() -> None:
    command = [sys.executable, "-m", "jobboard.cli", "--board", "zookeeper://127.0.0.1:1?timeout=1", "stats"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (UNREACHABLE, 1)


@pytest.mark.rule("A password in a driver's message is not shown by a command.")
@pytest.mark.parametrize("given", ["option", "environment"])
def test_no_password_of_a_drivers_message_is_shown(run: Commands, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    def connect(board: Any) -> None:
        raise RuntimeError("no luck with p@ss nor p%40ss")

    from jobboard.board import JobBoard

    monkeypatch.setattr(JobBoard, "connect", connect)
    uri = "postgresql://me:p%40ss@host/db"
    monkeypatch.setenv("JOBBOARD_URL", uri if given == "environment" else "memory")
    ran = run("stats", *(["--board", uri] if given == "option" else []), status=FAILED)
    assert ran.is_one_line_about("RuntimeError")
    assert not any(secret in ran.err for secret in ("p@ss", "p%40ss"))


def test_commands_that_look_create_nothing(run: Commands, tmp_path: Path) -> None:
    for command in (["stats"], ["list"], ["show", NOBODY], ["trash", "list"]):
        ran = run("--board", f"sqlite:///{tmp_path}/typo.db", *command, status=FAILED)
        assert ran.is_one_line_about("jobboard setup")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("sqlite")
@pytest.mark.usefixtures("board")
def test_options_count_before_and_after_the_command(run: Commands) -> None:
    run("post", "a", "--name", "other")
    assert run("--name", "other", "--json", "stats").json["unclaimed"] == 1
    assert run("--name", "no", "stats", "--name", "other", "--json").json["unclaimed"] == 1
    assert run("stats", "--json").json["unclaimed"] == 0


# In processes of their own


def shell(command: str) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-c", f"{sys.executable} -m jobboard.cli {command}"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.backends("sqlite")
def test_closed_streams_are_no_files_of_a_board(board: Any) -> None:
    for command in ("list >&-", "post a 2>&- <&- >&-"):
        done = shell(command)
        assert (done.returncode, done.stdout, done.stderr) == (DONE, "", "")
    assert board.job_count == 1
    for command in ("post a --details - <&-", "post --from - <&-"):
        done = shell(command)
        assert done.returncode == USAGE
        assert "jobboard: can't read standard input: it is closed" in done.stderr
    assert board.job_count == 1


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("command", ["list", "list --json", "stats", "--help", "post --help"])
def test_a_result_that_cannot_be_written_is_said_so(board: Any, command: str) -> None:
    board.post("a")
    done = shell(f"{command} > /dev/full")
    assert done.returncode == FAILED
    assert done.stderr == "jobboard: can't write to standard output: No space left on device\n"


@pytest.mark.backends("sqlite")
def test_a_character_that_the_encoding_lacks_is_escaped(board: Any) -> None:
    board.post("größer als 3 €")
    done = subprocess.run(
        [sys.executable, "-m", "jobboard.cli", "list"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (DONE, b"")
    assert "größer als 3 \\u20ac" in done.stdout.decode("latin-1")


@pytest.mark.backends("sqlite")
def test_a_locale_without_utf_8_is_no_failure(board: Any) -> None:
    board.post("größer")
    done = subprocess.run(
        [sys.executable, "-m", "jobboard.cli", "list"],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (DONE, b"")
    assert b"UNCLAIMED" in done.stdout


@pytest.mark.rule("A closed pipe is no failure.")
@pytest.mark.backends("sqlite")
def test_a_closed_pipe_is_no_failure(board: Any) -> None:
    board.post_many([{"name": "a"}] * 2000)
    with subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == DONE
    for command in ("--help", "--version", "list --help", "trash list --help"):
        read, write = os.pipe()
        os.close(read)
        words = [sys.executable, "-m", "jobboard.cli", *command.split()]
        done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (DONE, b""), command


def test_help_loads_neither_rich_nor_a_database() -> None:
    script = "import sys; from jobboard.cli import main; main(['list', '--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"rich", "sqlalchemy", "stevedore"}.isdisjoint(done.stderr.split())


INTERRUPTED = """
import runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)

module = sys.argv.pop()
sys.meta_path.insert(0, Interrupt())
runpy.run_module("jobboard.cli", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["jobboard.cli.root", "click", "jobboard.cli.stats", "jobboard.board"])
def test_an_interrupt_while_modules_are_imported_ends_the_command_without_a_traceback(module: str) -> None:
    words = [sys.executable, "-c", INTERRUPTED, "--board", "memory://", "stats", module]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() in ("", "jobboard: interrupted")
