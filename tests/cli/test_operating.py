"""The commands of operators: ``release``, ``cancel``, ``trash``, ``pause``, ``limit``, and completion."""

import getpass
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobboard import codec
from jobboard.cli import release
from jobboard.cli.common import FAILED, USAGE
from jobboard.exceptions import ClaimLost
from jobboard.primitives import Limit
from tests.support.commands import Commands
from tests.support.jobs import make_draft

pytestmark = pytest.mark.backends("memory")

NOBODY = "01234567-89ab-cdef-0123-456789abcdef"
ME = f"{getpass.getuser()}@{socket.gethostname()}"


def test_release_takes_jobs_from_their_holders(board: Any, run: Commands, caplog: pytest.LogCaptureFixture) -> None:
    board.post("hangs[/]")
    board.post("last", max_attempts=1)
    waiting = board.post("waits")
    hung, last = board.claim_many("holder", 2)
    with caplog.at_level(logging.INFO, "jobboard"):
        ran = run("release", hung.uuid, waiting.uuid, NOBODY, last.uuid, "--json", status=FAILED)
    assert ran.json == {"released": 2, "failed": 2}
    assert waiting.uuid in ran.err
    assert NOBODY in ran.err
    assert (hung.state, last.state) == ("UNCLAIMED", "TRASHED")
    for job in (hung, last):
        assert job.error == f"released by {ME}"
        [record] = [each for each in caplog.records if each.__dict__.get("job") == job.uuid]
        assert f"released by {ME}" in record.getMessage()
        assert (record.__dict__["who"], record.levelno) == ("holder", logging.INFO)
    again = board.claim_next("again")
    ran = run("release", again.uuid, "--reason", "its host is gone [/]")
    assert (ran.out, ran.err) == (f"{again} was taken from 'again'.\n1 job released.\n", "")
    assert board.get(again.uuid).error == f"released by {ME}: its host is gone [/]"


def test_release_keeps_to_the_claim_of_a_token(board: Any, run: Commands) -> None:
    job = board.post("hangs")
    board.claim(job, "holder")
    token = run("show", job.uuid, "--json").json["token"]
    assert token == job.claim.token
    board.abandon(job, "holder")
    newer = board.claim_next("holder")
    ran = run("release", job.uuid, "--token", str(token), status=FAILED)
    assert (ran.out, f"another token than {token}" in ran.err) == ("0 jobs released.\n", True)
    newer.claim.extend()
    run("release", job.uuid, "--token", str(newer.claim.token))
    assert newer.state == "UNCLAIMED"


def test_cancel_puts_unclaimed_jobs_into_the_trash(board: Any, run: Commands, caplog: pytest.LogCaptureFixture) -> None:
    first, second, later = board.post("a"), board.post("b"), board.post("c", delay=3600)
    claimed = board.claim_next("holder")
    with caplog.at_level(logging.INFO, "jobboard"):
        ran = run("cancel", second.uuid, later.uuid, "--reason", "posted twice [/]")
    assert ran.out == "2 jobs cancelled.\n"
    for job in (second, later):
        assert (job.state, job.error) == ("TRASHED", f"cancelled by {ME}: posted twice [/]")
        assert any(job.uuid in each.getMessage() and ME in each.getMessage() for each in caplog.records)
    hint = f"'jobboard cancel --running {claimed.uuid}' takes it from its holder"
    assert run("cancel", claimed.uuid, status=FAILED).err == f"jobboard: {claimed} is claimed: {hint}\n"
    assert first.state == "CLAIMED"
    board.abandon(claimed, "holder", error="an older one")
    run("cancel", first.uuid)
    assert (first.state, first.error) == ("TRASHED", f"cancelled by {ME}")


def test_cancel_of_a_running_job(board: Any, run: Commands) -> None:
    job = board.post("hangs")
    board.claim(job, "holder")
    token = job.claim.token
    ran = run("cancel", "--running", job.uuid, "--token", str(token - 1), status=FAILED)
    assert (ran.out, f"another token than {token - 1}" in ran.err) == ("0 jobs cancelled.\n", True)
    assert not job.claim.lost
    run("cancel", "--running", job.uuid, job.uuid, "--token", str(token), status=USAGE)
    ran = run("cancel", "--running", job.uuid, "--token", str(token), "--reason", "wrong input")
    assert (ran.out, ran.err) == ("1 job cancelled.\n", "")
    assert (job.state, board.get(job.uuid).error) == ("TRASHED", f"cancelled by {ME}: wrong input")
    with pytest.raises(ClaimLost):
        job.claim.consume()
    run("trash", "restore", job.uuid)
    assert job.state == "UNCLAIMED"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert release.operator() == f"uid {os.getuid()}@{socket.gethostname()}"


@pytest.mark.rule("A job whose details cannot be read is shown.")
def test_a_job_with_unreadable_details_is_acted_on(board: Any, run: Commands) -> None:
    draft = make_draft(NOBODY, name="newer", version=codec.VERSION + 1, posting=b"from the future")
    board.engine.insert([draft])
    assert "upgrade to read it" in run("show", NOBODY, status=FAILED).err
    for command in (["cancel"], ["trash", "restore"], ["cancel"], ["trash", "purge"]):
        run(*command, NOBODY)
    assert list(board.trashed()) == []
    assert board.job_count == 0


def test_a_consumed_job_is_looked_up_among_the_outcomes(make_board: Any, board: Any, run: Commands) -> None:
    keeping = make_board(keep_done=600)
    job = keeping.post("a")
    keeping.consume(keeping.claim_next("anna"), "anna", result=1)
    hint = f"'jobboard done show {job.uuid}'"
    shown = run("show", job.uuid[:8])
    assert "state: COMPLETE\n" in shown.out
    assert hint in shown.err
    for command in (["trash", "restore"], ["trash", "purge"], ["release"], ["cancel"]):
        ran = run(*command, job.uuid, status=FAILED)
        assert ran.is_one_line_about(f"{job} is consumed", hint), ran.err
    ran = run("show", job.uuid, "--json")
    assert (ran.json["state"], ran.err) == ("COMPLETE", "")


def test_the_trash_is_listed_restored_and_purged(board: Any, run: Commands) -> None:
    assert "empty" in run("trash", "list").out
    jobs = board.post_many([{"name": "a"}, {"name": "b"}, {"name": "c"}])
    for job in jobs:
        board.cancel(job, reason=f"no {job.name}")
    assert [each["error"] for each in run("trash", "list", "--json").lines] == ["no c", "no b", "no a"]
    assert "no b" in run("trash", "list").out
    run("trash", "restore", jobs[0].uuid)
    assert jobs[0].state == "UNCLAIMED"
    ran = run("trash", "restore", NOBODY, jobs[0].uuid, jobs[1].uuid, status=FAILED)
    assert NOBODY in ran.err
    assert "not in the trash" in ran.err
    assert jobs[1].state == "UNCLAIMED"
    assert run("trash", "purge", "--older-than", "1h", "--json").json == {"purged": 0, "failed": 0}
    assert run("trash", "purge", "--all", "--json").json == {"purged": 1, "failed": 0}
    assert "empty" in run("trash", "list").out
    board.cancel(jobs[0])
    assert run("trash", "restore", "--all").out == "1 job restored.\n"
    board.cancel(jobs[0])
    run("trash", "purge", jobs[0].uuid)
    run("trash", "purge", jobs[0].uuid, status=FAILED)
    board.cancel(jobs[1])
    assert run("trash", "purge", "--older-than", "0").out == "1 job purged.\n"


def test_pauses_are_set_undone_and_shown(board: Any, run: Commands) -> None:
    board.post("mail")
    name = f"board {board.name!r}"
    assert run("pause", "mail").out == f"{name}: paused: 'mail'\n"
    assert run("pause", "--json").json == {"everything": True, "names": ["mail"]}
    assert board.claim_next("anna") is None
    assert "\npaused: everything, 'mail'\n" in run("stats").out
    assert run("list").out.startswith(f"{name}, paused: everything, 'mail'\n")
    [uuid] = [job.uuid for job in board.iterjobs()]
    assert "waits: all jobs: they are paused ('jobboard resume' lets them" in run("show", uuid).out
    assert run("show", uuid, "--json").json["paused"] is True
    assert "paused: everything, 'mail'" in run("top", "--once").out
    for command in ("stats", "top --once"):
        assert run(*command.split(), "--json").json["paused"] == {"everything": True, "names": ["mail"]}
    run("resume", "mail")
    assert run("resume").out == f"{name}: nothing is paused\n"
    assert "paused" not in run("stats").out
    assert board.claim_next("anna") is not None
    for command in ("pause", "resume"):
        run(command, "", status=USAGE)


@pytest.mark.rule("Limits are shown among the metrics and in stats.")
@pytest.mark.backends("sqlite")
def test_limits_are_set_listed_shown_and_removed(board: Any, run: Commands) -> None:
    assert "no limits" in run("limit", "list").out
    assert (
        run(*["limit", "set", "resize", "--concurrency", "4", "--per", "group"]).out == "resize 4 at once per group\n"
    )
    assert (
        run(*["limit", "set", "resize", "--concurrency", "9", "--rate", "100/1m"]).out
        == "resize 9 at once, 100 in 1m00s\n"
    )
    assert board.limits() == [Limit("resize", "group", 4), Limit("resize", "name", 9, (100, 60.0))]
    listed = [line.split() for line in run("limit", "list").out.splitlines()]
    assert ["resize", "group", "4"] in listed
    assert ["resize", "name", "9", "100", "in", "1m00s"] in listed
    told = run("limit", "list", "--json").lines
    assert told[1] == {"name": "resize", "per": "name", "concurrency": 9, "rate": [100, 60.0]}
    limits = "limits: resize 4 at once per group; resize 9 at once, 100 in 1m00s"
    assert f"\n{limits}\n" in run("stats").out
    board.pause(["mail"])
    board.post("mail")
    assert run("list").out.startswith(f"board {board.name!r}, paused: 'mail', {limits}\n")
    assert limits in run("top", "--once").out
    for command in ("stats", "top --once"):
        assert run(*command.split(), "--json").json["limits"] == told
    assert run("limit", "remove", "resize", "--per", "name").out == "resize: not limited any more per name.\n"
    run("limit", "remove", "resize")
    assert board.limits() == []
    ran = run("limit", "remove", "resize", status=FAILED)
    assert "there is no limit of 'resize'; 'jobboard limit list' shows them" in ran.err
    run("limit", "remove", "", status=USAGE)
    for number in range(7):
        board.set_limit(f"n{number}", rate=(number + 1, 1))
    some = "; ".join(f"n{number} {number + 1} in 1.0s" for number in range(5))
    assert f"limits: {some}; 2 more, see 'jobboard limit list'" in run("stats").out


def test_a_shell_completes_words_by_the_script_of_click() -> None:
    script = (
        'eval "$(_JOBBOARD_COMPLETE=bash_source jobboard)"\n'
        "COMP_WORDS=(jobboard list --state cla) COMP_CWORD=3\n"
        "_jobboard_completion jobboard\n"
        'echo "offers ${COMPREPLY[*]}"\n'
    )
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.lower() == "offers claimed\n"
