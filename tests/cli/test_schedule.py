"""``jobboard schedule`` and ``jobboard done``: schedules, and outcomes of consumed jobs."""

import re
import signal
import subprocess
import sys
from typing import Any

import pytest

import jobboard
from jobboard.cli.common import DONE, FAILED
from jobboard.testing import eventually
from jobboard.testing.conformance.schedules import put_back
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.rule("Each schedule that was named is removed, whatever fails.")
def test_schedules_are_set_listed_and_removed(board: Any, run: Commands) -> None:
    assert "no schedules" in run("schedule", "list").out
    cron = ["--cron", "30 3 * * *", "--tz", "Europe/Berlin", "--missed", "all"]
    what = ["--details", '{"a": "secret"}', "--priority", "-7", "--context", "b=c", "--key", "k", "--group", "g"]
    out = run("schedule", "set", "nightly", "report", *cron, *what, "--max-attempts", "3").out
    [nightly] = board.schedules()
    assert f"nightly: next due {nightly.next_due:%Y-%m-%d %H:%M:%S} UTC" in out
    assert (nightly.cron, nightly.tz, nightly.missed, nightly.name) == ("30 3 * * *", "Europe/Berlin", "all", "report")
    assert (nightly.details, nightly.priority, nightly.context) == ({"a": "secret"}, -7, {"b": "c"})
    assert (nightly.key, nightly.group, nightly.max_attempts) == ("k", "g", 3)
    told = run(*["schedule", "set", "ping", "ping", "--every", "5m", "--json"]).json
    assert (told["every"], told["last_posted"], told["details"]) == (300.0, None, {})
    listed = run("schedule", "list").out
    assert "30 3 * * *, Europe/Berlin" in listed
    assert "every 5m00s" in listed
    as_json = run("schedule", "list", "--json")
    assert [each["id"] for each in as_json.lines] == ["nightly", "ping"]
    assert "secret" not in listed + as_json.out
    ran = run("schedule", "pause", "nightly", "nope", status=FAILED)
    assert ran.out == "1 schedule paused.\n"
    assert "'jobboard schedule list' shows them" in ran.err
    assert re.search(r"nightly +report .* paused\n", run("schedule", "list").out)
    assert [each["is_paused"] for each in run("schedule", "list", "--json").lines] == [True, False]
    out = run("schedule", "set", "nightly", "report", *cron, *what, "--max-attempts", "3").out
    assert out == "nightly is paused: 'jobboard schedule resume' has it posted again\n"
    uuid = run("schedule", "now", "nightly").out.strip()
    assert [job.uuid for job in board.iterjobs()] == [uuid]
    ran = run("schedule", "now", "nightly")
    assert (ran.out, "has the key 'k' already" in ran.err) == (f"{uuid}\n", True)
    assert "there is no schedule 'nope'" in run("schedule", "now", "nope", status=FAILED).err
    assert run("schedule", "resume", "nightly", "--json").json == {"resumed": 1, "failed": 0}
    assert not any(each.is_paused for each in board.schedules())
    ran = run("schedule", "remove", "nightly", "nope", "ping", status=FAILED)
    assert ran.out == "2 schedules removed.\n"
    assert "there is no schedule 'nope'; 'jobboard schedule list' shows them" in ran.err
    assert board.schedules() == []
    ran = run("schedule", "remove", "nightly", "--json", status=FAILED)
    assert ran.json == {"removed": 0, "failed": 1}
    assert "there is no schedule 'nightly'" in ran.err


def test_run_posts_due_jobs_until_sigterm(board: Any) -> None:
    board.schedule("ping", name="ping", every=0.1)
    process = subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "schedule", "run"], stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: board.job_count >= 3, 30)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == DONE
    assert "the schedule of 'ping' has posted job" in said
    assert "Traceback" not in said
    times = [job.schedule[1] for job in board.iterjobs()]
    assert len(set(times)) == len(times)


@pytest.mark.rule("Schedules and outcomes are counted, with how late the first is.")
def test_stats_and_top_show_how_late_schedules_are(board: Any, run: Commands) -> None:
    assert "schedules" not in run("stats").out + run("top", "--once").out
    due = board.schedule("ping", name="ping", every=3600).next_due
    line = f"schedules: 1, next due {due:%Y-%m-%d %H:%M:%S}Z"
    assert f"\n{line}\n" in run("stats").out
    assert line in run("top", "--once").out
    put_back(board, "ping", 90.5)
    assert re.search(r"schedules: 1, \dm\d+s late", run("stats").out)
    for command in (("stats", "--json"), ("top", "--once", "--json")):
        seen = run(*command).json
        assert (seen["schedules"], seen["outcomes"]) == (1, 0)
        assert 90 < seen["late"] < 600


def test_outcomes_are_listed_and_shown(board: Any, make_board: Any, run: Commands) -> None:
    """The commands open the board without the option that keeps outcomes."""
    keeping = make_board(keep_done=600)
    assert "keep_done" in run("done", "list").out

    def consumed(name: str) -> jobboard.Job:
        keeping.post(name, details={"secret": "s3"})
        keeping.abandon(keeping.claim_next("anna[/]"), "anna[/]", error="no luck")
        job = keeping.claim_next("bert")
        keeping.consume(job, "bert", result={"ü": 1})
        return job

    jobs = [consumed(name) for name in ("a", "b", "a")]
    out = run("done", "list").out
    assert [line.split()[0] for line in out.splitlines()[2:]] == [job.uuid for job in reversed(jobs)]
    assert "s3" not in out
    [told] = run("done", "list", "--job", "a", "--after", jobs[2].uuid, "--json").lines
    assert (told["uuid"], told["who"], told["workers"]) == (jobs[0].uuid, "bert", ["anna[/]", "bert"])
    assert not {"details", "result"} & set(told)
    assert f"--after {jobs[2].uuid}" in run("done", "list", "--limit", "1").out
    out = run("done", "show", jobs[0].uuid).out
    for text in (
        '"secret": "s3"',
        '"ü": 1',
        "workers: anna[/], bert",
        "attempt 1 by anna[/], error:\nno luck",
        "begun on: ",
    ):
        assert text in out
    assert run("done", "show", jobs[0].uuid, "--json").json["result"] == {"ü": 1}
    waiting = board.post("b")
    assert "has no outcome" in run("done", "show", waiting.uuid, status=FAILED).err
