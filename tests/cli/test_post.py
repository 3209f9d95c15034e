"""``jobboard post``: one job, and a file of them."""

import datetime
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.cli.common import FAILED, UNREACHABLE, USAGE
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")


def stdin_of(monkeypatch: pytest.MonkeyPatch, given: bytes) -> None:
    class Input:
        buffer = io.BytesIO(given)

    monkeypatch.setattr(sys, "stdin", Input)


def lines_of(*jobs: Any) -> str:
    return "".join((job if isinstance(job, str) else json.dumps(job)) + "\n" for job in jobs)


@pytest.mark.rule("A wrong call is told in the words of the options.")
@pytest.mark.rule("`jobboard show` and `jobboard post --json` show a job's context.")
def test_each_option_becomes_an_argument(board: Any, run: Commands) -> None:
    options = "--priority high --key k --key-for 1h --max-attempts 4 --group g --context trace=7f3a --context by=a=b"
    ran = run("post", "resize", "--details", '{"width": 3}', "--due", "2100-01-31T12:00:00Z", *options.split())
    job = board.get(ran.out.strip())
    assert (job.name, job.details, job.priority, job.key, job.max_attempts) == ("resize", {"width": 3}, 50, "k", 4)
    assert (job.group, job.context) == ("g", {"trace": "7f3a", "by": "a=b"})
    assert job.due == datetime.datetime(2100, 1, 31, 12, tzinfo=datetime.UTC)
    assert run("show", job.uuid, "--json").json["context"] == job.context
    assert '"trace": "7f3a"' in run("show", job.uuid).out
    assert "7f3a" not in run("list", "--json").out
    assert run("post", "other", "--json").json["context"] == {}
    assert "context" not in run("show", run("post", "other").out.strip()).out


@pytest.mark.rule("A mistyped command, unit or uuid gets the right one.")
@pytest.mark.parametrize(("given", "seconds"), [("90", 90), ("5m", 300), ("1.5h", 5400), ("1d", 86400)])
def test_a_delay_may_have_a_unit(board: Any, run: Commands, tmp_path: Path, given: str, seconds: int) -> None:
    (tmp_path / "jobs").write_text(json.dumps({"name": "b", "delay": given}))
    run("post", "a", "--delay", given)
    run("post", "--from", str(tmp_path / "jobs"))
    for job in board.iterjobs():
        assert job.state == "SCHEDULED"
        assert job.due - job.created_on == datetime.timedelta(seconds=seconds)


def test_expiry_is_a_time_or_a_span(board: Any, run: Commands, tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(lines_of({"name": "b", "expires": "5m"}, {"name": "b", "expires": 300}))
    run("post", "a", "--expires", "5m")
    run("post", "--from", str(tmp_path / "jobs"))
    for job in board.iterjobs():
        assert job.expires - job.created_on == datetime.timedelta(minutes=5)
    job = board.get(run("post", "c", "--expires", "2100-01-31T12:00:00Z").out.strip())
    assert job.expires == datetime.datetime(2100, 1, 31, 12, tzinfo=datetime.UTC)
    assert "expires: 2100-01-31 12:00:00 UTC" in run("show", job.uuid).out
    board.claim(job, "anna")
    assert "expires" not in run("show", job.uuid).out
    assert "--expires" in run("post", "d", "--expires", "soon", status=USAGE).err
    run("schedule", "set", "ping", "ping", "--every", "5m", "--expires", "1m")
    assert board.schedules()[0].expires == 60


def test_details_come_from_a_file_or_from_standard_input(
    board: Any, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "details").write_text('{"name": "€"}')
    run("post", "a", "--details", f"@{tmp_path}/details")
    stdin_of(monkeypatch, b'{"n": 1}')
    run("post", "b", "--details", "-")
    assert [job.details for job in board.iterjobs()] == [{"name": "€"}, {"n": 1}]


def test_a_key_that_is_taken_is_said_so(board: Any, run: Commands) -> None:
    first = run("post", "resize", "--key", "k", "--key-for", "1h")
    uuid = first.out.strip()
    assert first.err == ""
    again = run("post", "resize", "--key", "k")
    assert again.out == first.out
    assert again.err == f"nothing was posted: Job 'resize' ({uuid}) has the key 'k' already\n"
    replaced = run("post", "resize", "--key", "k", "--on-key", "replace", "--priority", "7")
    assert (replaced.out, replaced.err) == (first.out, f"Job 'resize' ({uuid}) has the key 'k', and was replaced\n")
    board.consume(board.claim_next("anna"), "anna")
    gone = run("post", "resize", "--key", "k", "--json")
    assert (gone.json["uuid"], gone.json["created"], gone.json["replaced"]) == (uuid, False, False)
    assert (gone.json["state"], gone.err) == ("COMPLETE", "")


# --from


def test_a_file_is_posted_in_its_order(board: Any, run: Commands, tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    last = {"name": "b", "due": "2100-01-31T12:00:00Z", "key": "k", "delay": None, "key_for": "1h"}
    jobs = [{"name": f"a{n}", "details": {"n": n}} for n in range(1200)]
    file.write_text("\ufeff" + lines_of(*jobs, "", last, "  "))
    assert run("post", "--from", str(file), "--json").json == {"posted": 1201, "skipped": 0, "faults": []}
    found = list(board.iterjobs())
    assert [job.name for job in found] == [f"a{n}" for n in range(1200)] + ["b"]
    assert found[7].details == {"n": 7}
    assert (found[-1].key, found[-1].due.year) == ("k", 2100)
    file.write_text(lines_of({"name": "b", "key": "k", "on_key": "replace", "details": {"n": 2}}))
    assert run("post", "--from", str(file)).out == "1 job posted.\n"
    assert board.get(found[-1].uuid).details == {"n": 2}


@pytest.mark.rule("A bad line of a file is named by its number.")
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
        ('{"name": "a", "details": {"x": [1, Infinity]}}', "details['x'][1]"),
        ('{"name": "a", "priority": "urgent"}', "urgent"),
        ('{"name": "a", "delay": "soon"}', "delay"),
        ('{"name": "a", "due": "2030-01-01T00:00:00"}', "zone"),
        ('{"name": "a", "due": 1893456000}', "due"),
        ('{"name": "a\\u001b[31m"}', "control"),
        ('{"name": "a", "details": ' + 60_000 * "[" + "}", "too deeply"),
        ('{"name": "' + 600_000 * "x" + '"}', "at most 255 are"),
    ],
    ids=range(15),
)
def test_a_bad_line_is_named_by_its_number(board: Any, run: Commands, tmp_path: Path, bad: str, fault: str) -> None:
    file = tmp_path / "jobs"
    file.write_text(lines_of({"name": "a"}, bad, {"name": "c"}))
    ran = run("post", "--from", str(file), status=FAILED)
    assert ran.is_one_line_about("line 2", fault, "nothing was posted")
    assert "\x1b" not in ran.err
    assert board.job_count == 0
    assert run("post", "--from", str(file), "--skip-bad", status=FAILED).is_one_line_about("line 2", fault)
    assert [job.name for job in board.iterjobs()] == ["a", "c"]


def test_each_bad_line_that_is_skipped_is_named(board: Any, run: Commands, tmp_path: Path) -> None:
    file = tmp_path / "jobs"
    file.write_bytes(b"\xff\n" * 30 + b'{"name": "a"}')
    ran = run("post", "--from", str(file), "--skip-bad", "--json", status=FAILED)
    assert (ran.json["posted"], ran.json["skipped"], len(ran.json["faults"])) == (1, 30, 30)
    assert ran.err.splitlines()[29] == "skipped: line 30: not UTF-8 at byte 1"
    assert board.job_count == 1


def test_a_file_may_be_a_pipe(board: Any, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_of(monkeypatch, lines_of({"name": "a"}, {"name": "b"}).encode())
    run("post", "--from", "-")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["bash", "-c", f'echo \'{{"name": "c"}}\' > {pipe}']):
        run("post", "--from", str(pipe))
    assert [job.name for job in board.iterjobs()] == ["a", "b", "c"]


def test_a_post_that_breaks_off_reports_the_posted_jobs(
    board: Any, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store of the board that the command connects.
    store = type(board.engine.store)
    post, calls = store.post, []

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise jobboard.ConnectionFailure("the server has gone away")
        return post(self, *args, **kwargs)

    monkeypatch.setattr(store, "post", failing)
    monkeypatch.setenv("JOBBOARD_URL", os.environ["JOBBOARD_URL"] + "?retry_for=0")
    file = tmp_path / "jobs"
    file.write_text(lines_of(*[{"name": "a"}] * 1500))
    assert "1000 of 1500 jobs were posted" in run("post", "--from", str(file), status=UNREACHABLE).err
    assert board.job_count == 1000
