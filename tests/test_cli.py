"""The command line on real boards: what it prints, and the status with which it ends."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.cli import main
from jobboard.cli.root import COMMANDS
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite")

DONE, FAILED, USAGE, UNREACHABLE = range(4)
NOBODY = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def is_one_line_about(self, *words: str) -> bool:
        """Whether what it complained of is one line (and where there is more help), with these words in it."""
        complaint = [line for line in self.err.splitlines() if not line.startswith("See ")]
        return len(complaint) == 1 and all(word in complaint[0] for word in words) and "Traceback" not in self.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*args: str) -> Ran:
        capsys.readouterr()
        status = main(args)
        return Ran(status, *capsys.readouterr())

    return call


Run = Callable[..., Ran]

# Calling it


@pytest.mark.backends("memory")
@pytest.mark.parametrize(
    "command", [[], *([name] for name in COMMANDS)] + [["trash", x] for x in ("list", "restore", "purge")]
)
def test_every_command_has_an_example_in_its_help(run: Run, command: list[str]) -> None:
    ran = run(*command, "--help")
    assert ran.status == DONE
    assert "For example:" in ran.out
    assert "  jobboard " in ran.out.partition("For example:")[2]


@pytest.mark.backends("memory")
def test_without_a_command_it_says_what_there_is(run: Run) -> None:
    ran = run()
    assert ran.status == USAGE
    assert all(name in ran.err for name in COMMANDS)


@pytest.mark.backends("memory")
@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["stats"], "JOBBOARD_URL"),
        (["nonsense"], "nonsense"),
        (["--board", "memory", "stats", "--colour"], "--colour"),
        (["--board", "mongodb://host", "stats"], "mongodb"),
        (["--board", "sqlite:///x.db?claim_tll=3", "stats"], "claim_ttl"),
        (["--board", "sqlite:///x.db?claim_ttl=soon", "stats"], "claim_ttl"),
        (["--board", "postgresql://u:p@h:port/db", "stats"], "port"),
        (["--board", "memory", "list", "--state", "DONE"], "DONE"),
        (["--board", "memory", "post"], "NAME"),
        (["--board", "memory", "post", "a", "--details", "{"], "JSON"),
        (["--board", "sqlite:///x.db", "post", "a", "--details", "[1]"], "must be a JSON object"),
        (["--board", "sqlite:///x.db", "post", "a", "--details", '{"x": NaN}'], "details['x']"),
        (["--board", "sqlite:///x.db", "post", "a", "--priority", "urgent"], "VERY_HIGH"),
        (["--board", "sqlite:///x.db", "post", "a", "--priority", "-101"], "-100 to 100"),
        (["--board", "sqlite:///x.db", "post", "a", "--delay", "-1"], "delay"),
        (["--board", "sqlite:///x.db", "post", "a", "--max-attempts", "0"], "--max-attempts"),
        (["--board", "sqlite:///x.db", "post", ""], "empty"),
        (["--board", "memory", "post", "a", "--from", "x"], "--from"),
        (["--board", "memory", "post", "a", "--skip-bad"], "--from"),
        (["--board", "sqlite:///x.db", "post", "--from", "/no/such/file"], "/no/such/file"),
        (["--board", "memory", "trash", "restore"], "--all"),
        (["--board", "memory", "trash", "purge", "--all", "--older-than", "3d"], "--all"),
        (["--board", "memory", "trash", "purge", "--older-than", "next week"], "next week"),
        (["--board", "memory", "work", "handlers"], "MODULE:NAME"),
        (["--board", "memory", "work", "jobboard.engine:Engine.options"], "empty mapping"),
        (["--board", "memory", "work", "no_such_module:x"], "no_such_module"),
        (["--board", "memory", "work", "os:no_such_name"], "no_such_name"),
        (["--board", "memory", "work", "os:name"], "callable"),
        (["--board", "memory", "demo"], "memory"),
    ],
)
def test_wrong_calls(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str], word: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOBBOARD_URL", raising=False)
    ran = run(*args)
    assert (ran.status, ran.is_one_line_about(word)) == (USAGE, True)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("command", [["stats"], ["list"], ["post", "a"], ["setup"], ["demo"]])
def test_a_backend_that_is_down(run: Run, command: list[str]) -> None:
    pytest.importorskip("psycopg")
    ran = run(*command, "--board", "postgresql://app:s%40cret@127.0.0.1:1/db?retry_for=0")
    assert ran.status == UNREACHABLE
    assert ran.is_one_line_about("127.0.0.1")
    assert "s@cret" not in ran.err
    assert "s%40cret" not in ran.err


@pytest.mark.backends("memory")
@pytest.mark.parametrize("given", ["option", "environment"])
def test_no_password_in_a_message_of_a_driver_s(run: Run, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    def connect(board: Any) -> None:
        raise RuntimeError("no luck with p@ss, p%40ss nor key=hush")

    from jobboard.board import JobBoard

    monkeypatch.setattr(JobBoard, "connect", connect)
    common = {"claim_ttl": 1.0, "auto_setup": True, "read_only": False, "keep_done": 0}
    parsed = {**common, "clock": None, "retry_for": 1.0, "max_details": 1000}
    monkeypatch.setattr("jobboard.conf.parse", lambda *_: parsed)
    uri = "memory://me:p%40ss@host/?password=hush"
    monkeypatch.setenv("JOBBOARD_URL", uri if given == "environment" else "memory")
    ran = run("stats", *(["--board", uri] if given == "option" else []))
    assert ran.status == FAILED
    assert ran.is_one_line_about("RuntimeError")
    assert "p@ss" not in ran.err
    assert "p%40ss" not in ran.err
    assert "hush" not in ran.err


def test_who_only_looks_creates_nothing(run: Run, tmp_path: Path) -> None:
    for command in (["stats"], ["list"], ["show", NOBODY], ["trash", "list"]):
        ran = run("--board", f"sqlite:///{tmp_path}/typo.db", *command)
        assert ran.status == FAILED
        assert ran.is_one_line_about("jobboard setup")


@pytest.mark.usefixtures("board")
def test_options_count_before_and_after_the_command(run: Run) -> None:
    assert run("post", "a", "--name", "other").status == DONE
    assert run("--name", "other", "--json", "stats").json["unclaimed"] == 1
    assert run("--name", "no", "stats", "--name", "other", "--json").json["unclaimed"] == 1
    assert run("stats", "--json").json["unclaimed"] == 0


# Post, list, show, stats, setup


def test_post_show_and_list(board: Any, run: Run) -> None:
    ran = run("post", "resize", "--details", '{"width": 3}', "--priority", "high", "--key", "k", "--max-attempts", "4")
    assert ran.status == DONE
    job = board.get(ran.out.strip())
    assert (job.name, job.details, job.priority, job.key, job.max_attempts) == ("resize", {"width": 3}, 50, "k", 4)
    assert run("post", "other", "--key", "k").out == ran.out
    later = run("post", "later", "--delay", "3600", "--json").json
    assert later["state"] == "SCHEDULED"
    board.claim(job, "somebody")
    shown = run("show", job.uuid, "--json").json
    assert (shown["state"], shown["owner"], shown["details"]) == ("CLAIMED", "somebody", {"width": 3})
    for word in (job.uuid, "CLAIMED", "somebody", '"width": 3'):
        assert word in run("show", job.uuid).out
    listed = run("list", "--json").lines
    assert [each["name"] for each in listed] == ["resize", "later"]
    assert "details" not in listed[0]
    assert "width" not in run("list").out
    assert [each["name"] for each in run("list", "--state", "scheduled", "--json").lines] == ["later"]
    assert [each["name"] for each in run("list", "--job", "resize", "--json").lines] == ["resize"]
    counts = {"unclaimed": 0, "scheduled": 1, "claimed": 1, "trashed": 0, "on_board": 2}
    rules = {"paused": {"everything": False, "names": []}, "limits": []}
    beside = {"schedules": 0, "next_due": None, "late": 0.0, "outcomes": None}
    assert run("stats", "--json").json == {
        "board": board.name,
        **counts,
        **rules,
        **beside,
        "entities": [],
        "unhandled": [],
    }


def test_a_name_that_is_empty_is_no_default(board: Any, run: Run) -> None:
    board.post("a")
    for option in ("--name", "--board"):
        ran = run(option, "", "list")
        assert ran.status == USAGE
        assert f"{option} is empty" in ran.err


def test_list_has_a_line_for_each_job(board: Any, run: Run) -> None:
    for job in [board.post("a") for _ in range(2)]:
        board.claim(job, "me")
        board.abandon(job, "me", error="no room " * 1500)
    lines = run("list").out.splitlines()
    assert len(lines) == 5
    assert all(line.endswith("…") for line in lines[3:])


def test_list_says_that_there_is_more(board: Any, run: Run) -> None:
    assert "No job" in run("list").out
    board.post_many([{"name": f"job{n:03}"} for n in range(120)])
    ran = run("list")
    assert "job099" in ran.out
    assert "job100" not in ran.out
    assert "more than 100" in ran.out
    assert len(run("list", "--json").lines) == 120
    assert len(run("list", "--json", "--limit", "7").lines) == 7


@pytest.mark.usefixtures("board")
def test_show_of_what_is_not_there(run: Run) -> None:
    ran = run("show", NOBODY)
    assert ran.status == FAILED
    assert ran.is_one_line_about(NOBODY)


def test_stats_name_the_conductors(board: Any, run: Run) -> None:
    board.register_entity(jobboard.Entity("conductor", "me[/]", {"host": "here", "pid": 7}))
    ran = run("stats")
    assert "me[/]" in ran.out
    assert "here" in ran.out


def test_setup_is_idempotent(board: Any, run: Run) -> None:
    board.post("a")
    for _ in range(2):
        assert run("setup").status == DONE
    assert run("setup", "--json").json["board"] == board.name
    assert board.job_count == 1


def test_what_jobs_say_is_no_instruction_to_a_terminal(board: Any, run: Run) -> None:
    job = board.post(
        "[/] [red]x :smile: \u202egnp\u200b\xad\U000e0041",
        key="[bold]\ue000",
        group="\u2060",
        details={"a": "\x1b[31m\x9b[/]"},
    )
    claimed = board.claim_next("[/who]\u200d")
    claimed.claim.trash(reason="first\nthen \x1b]0;owned\x07 \x9b31m\r[/]")
    outputs = [run(*args).out for args in (["trash", "list"], ["show", job.uuid])]
    board.restore(job)
    outputs.append(run("list").out)
    for output in outputs:
        assert "[/] [red]x :smile: \\u202egnp\\u200b\\xad\\U000e0041" in output
        assert "\\x1b]0;owned\\x07 \\x9b31m" in output
        assert not set(output) & set("\x1b\x07\x9b\r\u202e\u200b\xad\U000e0041\ue000\u2060\u200d")
    assert "key: [bold]\\ue000\n" in outputs[1]
    assert "by [/who]\\u200d:" in outputs[1]
    for args in (["show", job.uuid, "--json"], ["list", "--json"]):
        ran = run(*args)
        assert ran.out.isascii()
        assert ran.json["error"].startswith("first\nthen \x1b]0;owned")
        assert ran.json["name"] == job.name
    ran = run("show", "\x1b[31m[/]")
    assert ran.is_one_line_about("\\x1b[31m[/]") or ran.is_one_line_about("[/]")
    assert "\x1b" not in ran.err


# Post --from


def lines_of(*jobs: Any) -> str:
    return "".join((job if isinstance(job, str) else json.dumps(job)) + "\n" for job in jobs)


def test_post_from_a_file(board: Any, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    due = "2100-01-31T12:00:00Z"
    jobs = [{"name": f"a{n}", "details": {"n": n}} for n in range(1200)]
    file.write_text("\ufeff" + lines_of(*jobs, "", {"name": "b", "due": due, "key": "k", "delay": None}, "  "))
    ran = run("post", "--from", str(file), "--json")
    assert (ran.status, ran.json) == (DONE, {"posted": 1201, "skipped": 0, "faults": []})
    found = list(board.iterjobs())
    assert [job.name for job in found] == [f"a{n}" for n in range(1200)] + ["b"]
    assert found[7].details == {"n": 7}
    assert (found[-1].key, found[-1].due.year) == ("k", 2100)
    assert "1201 jobs posted" in run("post", "--from", str(file)).out


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ("{", "not JSON"),
        ('{"name": "a", "details": [null]}', "its details are not a JSON object"),
        ("[]", "not a JSON object"),
        ("{}", "name"),
        ('{"name": "a", "nmae": 1}', "nmae"),
        ('{"name": 7}', "name"),
        ('{"name": null}', "name"),
        ('{"name": "a", "details": [1]}', "details"),
        ('{"name": "a", "details": {"x": [1, Infinity]}}', "details['x'][1]"),
        ('{"name": "a", "priority": "urgent"}', "urgent"),
        ('{"name": "a", "delay": "soon"}', "delay"),
        ('{"name": "a", "due": "2030-01-01T00:00:00"}', "zone"),
        ('{"name": "a", "due": "soon"}', "due: 'soon' is not a time"),
        ('{"name": "a", "due": 1893456000}', "due: 1893456000 is not a time"),
        ('{"name": "a\\u001b[31m"}', "control"),
        ('{"name": "a", "details": {"x": "' + 70_000 * "x" + '"}}', "max_details"),
        ('{"name": "a", "details": ' + 60_000 * "[" + "}", "too deeply"),
        ('{"name": "' + 600_000 * "x" + '"}', "at most 255 are kept apart"),
    ],
)
def test_a_bad_line(board: Any, run: Run, tmp_path: Path, bad: str, fault: str) -> None:
    file = tmp_path / "jobs"
    file.write_text(lines_of({"name": "a"}, bad, {"name": "c"}))
    ran = run("post", "--from", str(file))
    assert ran.status == FAILED
    assert ran.is_one_line_about("line 2", fault, "nothing was posted")
    assert "\x1b" not in ran.err
    assert board.job_count == 0
    ran = run("post", "--from", str(file), "--skip-bad")
    assert ran.status == FAILED
    assert ran.is_one_line_about("line 2", fault)
    assert [job.name for job in board.iterjobs()] == ["a", "c"]


def test_many_bad_lines(board: Any, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    file.write_bytes(b"\xff\n" * 30 + b'{"name": "a"}')
    ran = run("post", "--from", str(file), "--skip-bad", "--json")
    assert (ran.json["posted"], ran.json["skipped"], len(ran.json["faults"])) == (1, 30, 20)
    assert "UTF-8" in ran.err
    assert "10 more" in ran.err
    assert board.job_count == 1


def test_post_from_standard_input(board: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(lines_of({"name": "a"}, {"name": "b"}).encode())

    monkeypatch.setattr(sys, "stdin", Input)
    assert run("post", "--from", "-").status == DONE
    assert [job.name for job in board.iterjobs()] == ["a", "b"]


def test_post_from_a_pipe_with_a_name(board: Any, run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    write = "import sys; open(sys.argv[1], 'w').write('{\"name\": \"a\"}')"
    with subprocess.Popen([sys.executable, "-c", write, str(pipe)]):
        assert run("post", "--from", str(pipe)).status == DONE
    assert board.job_count == 1


def test_post_that_breaks_off_says_how_far_it_came(
    board: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = type(board.engine.raw).insert
    calls = []

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise jobboard.ConnectionFailure("the server has gone away")
        return insert(self, *args, **kwargs)

    monkeypatch.setattr(type(board.engine.raw), "insert", failing)
    monkeypatch.setattr("jobboard.conf.COMMON", _impatient(board))
    file = tmp_path / "jobs"
    file.write_text(lines_of(*[{"name": "a"}] * 1500))
    ran = run("post", "--from", str(file))
    assert ran.status == UNREACHABLE
    assert "1000 of 1500 jobs were posted" in ran.err
    assert board.job_count == 1000


def _impatient(board: Any) -> Any:
    common = dict(jobboard.conf.COMMON)
    common["retry_for"] = type(common["retry_for"])(common["retry_for"].parse, 0.0, "")
    return common


# Trash


def test_trash(board: Any, run: Run) -> None:
    assert "empty" in run("trash", "list").out
    jobs = board.post_many([{"name": "a"}, {"name": "b"}, {"name": "c"}])
    for job in jobs:
        board.cancel(job, reason=f"no {job.name}")
    assert [each["error"] for each in run("trash", "list", "--json").lines] == ["no c", "no b", "no a"]
    assert "no b" in run("trash", "list").out
    assert run("trash", "restore", jobs[0].uuid).status == DONE
    assert jobs[0].state == "UNCLAIMED"
    ran = run("trash", "restore", NOBODY, jobs[0].uuid, jobs[1].uuid)
    assert ran.status == FAILED
    assert NOBODY in ran.err
    assert "not in the trash" in ran.err
    assert jobs[1].state == "UNCLAIMED"
    assert run("trash", "purge", "--older-than", "1h", "--json").json == {"purged": 0, "failed": 0}
    assert run("trash", "purge", "--all", "--json").json == {"purged": 1, "failed": 0}
    assert "empty" in run("trash", "list").out
    board.cancel(jobs[0])
    assert run("trash", "restore", "--all").out == "1 job restored.\n"
    board.cancel(jobs[0])
    assert run("trash", "purge", jobs[0].uuid).status == DONE
    assert run("trash", "purge", jobs[0].uuid).status == FAILED
    board.cancel(jobs[1])
    assert run("trash", "purge", "--older-than", "0").out == "1 job purged.\n"


# Work

HANDLERS = """
import jobboard, sys
done = []

def any_job(job):
    with open("done", "a") as out:
        out.write(job.name + "\\n")
    if job.name == "bad":
        raise ValueError("no \\x1b[31m good")

HANDLERS = {"good": any_job}
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.Popen[str]]:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)

    def start(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "jobboard.cli", "work", *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def test_work_with_a_callable_until_sigterm(board: Any, work: Any) -> None:
    board.post("good")
    bad = board.post("bad")
    with work("handlers:any_job", "--json") as process:
        eventually(lambda: bad.state == "SCHEDULED" and board.job_count == 1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == DONE
    assert json.loads(out) == {"dispatched": 2, "consumed": 1, "abandoned": 1, "trashed": 0, "lost": 0}
    assert "ValueError: no \\x1b[31m good" in err
    assert "\x1b" not in err
    assert "Traceback" in bad.error


def test_work_with_a_mapping_takes_what_it_names(board: Any, work: Any) -> None:
    board.post("bad", priority="HIGH")
    board.post_many([{"name": "good"}] * 3)
    with work("handlers:HANDLERS", "--max-jobs", "3", "--jobs", "2", "--who", "me") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, len(err.splitlines())) == (DONE, 1)
    assert "consumed 3" in out
    assert [job.name for job in board.iterjobs()] == ["bad"]


@pytest.mark.backends("memory")
@pytest.mark.parametrize("text", ["import no_such_thing", "1 / 0", "def f(:", "raise SystemExit(3)"])
def test_work_with_a_module_that_can_not_be_imported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    name = f"broken{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ran = run("--board", "memory", "work", f"{name}:x")
    assert ran.status == USAGE
    assert ran.is_one_line_about(name)


def test_output_that_nobody_reads_to_the_end(board: Any) -> None:
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


@pytest.mark.backends("memory")
def test_help_loads_neither_rich_nor_a_database() -> None:
    script = "import sys; from jobboard.cli import main; main(['list', '--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"rich", "sqlalchemy", "stevedore"}.isdisjoint(done.stderr.split())
