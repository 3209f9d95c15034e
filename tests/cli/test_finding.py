"""Commands that act on all jobs which meet conditions."""

import io
import sys
from typing import Any

import pytest

from jobboard.cli.common import FAILED, USAGE
from jobboard.cli.watch import Watcher
from tests.support.commands import Commands


class Answers(io.StringIO):
    """A standard input of a person, who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def failed(board: Any) -> list[Any]:
    """Seven jobs of one customer that have failed, of which one for another reason; and one of another customer."""
    jobs = board.post_many([{"name": "mail", "group": "acme", "key": f"k{n}"} for n in range(7)])
    jobs += board.post_many([{"name": "mail", "group": "other"}])
    for number, job in enumerate(board.claim_many("anna", 8)):
        board.trash(job, "anna", reason="no such user" if number == 3 else f"disk {number} is full")
    return jobs


def states(jobs: Any) -> list[str]:
    return [str(job.state) for job in jobs]


@pytest.mark.rule("A command that acts on all jobs that meet conditions asks first, or wants --yes.")
def test_failed_jobs_of_a_customer_are_restored_by_one_command(
    board: Any, run: Commands, failed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    ran = run("trash", "restore", "--group", "acme", "--error", "is full", status=USAGE)
    assert ran.is_one_line_about("6 jobs would be restored", "--yes")
    assert set(states(failed)) == {"TRASHED"}
    monkeypatch.setattr(sys, "stdin", Answers("n\n"))
    ran = run("trash", "restore", "--group", "acme", "--error", "is full", status=FAILED)
    assert "6 jobs would be restored" in ran.err
    assert (ran.err.count("Job 'mail'"), "and 1 more" in ran.err) == (5, True)
    assert set(states(failed)) == {"TRASHED"}
    monkeypatch.setattr(sys, "stdin", Answers("y\n"))
    assert run("trash", "restore", "--group", "acme", "--error", "is full").out == "6 jobs restored.\n"
    assert states(failed) == ["UNCLAIMED"] * 3 + ["TRASHED"] + ["UNCLAIMED"] * 3 + ["TRASHED"]


def test_acts_by_conditions(board: Any, run: Commands, failed: list[Any]) -> None:
    assert run("trash", "restore", "--key", "k1", "--yes", "--json").json == {"restored": 1, "failed": 0}
    assert run("cancel", "--job", "mail", "--older", "0s", "--yes").out == "1 job cancelled.\n"
    assert run("trash", "restore", "--owner", "anna", "--group", "acme", "--yes").out == "6 jobs restored.\n"
    assert run("trash", "restore", "--group", "acme", "--yes").out == "1 job restored.\n"
    held = board.claim_many("bert", 2)
    assert run("release", "--owner", "bert", "--yes", "--reason", "gone").out == "2 jobs released.\n"
    assert all(job.claim.lost or board.find_owner(job) is None for job in held)
    board.claim_many("carl", 1)
    assert run("cancel", "--group", "acme", "--yes").out == "6 jobs cancelled.\n"
    ran = run("cancel", "--group", "acme", "--state", "claimed", "--yes", status=FAILED)
    assert ran.is_one_line_about("is claimed", "running")
    assert run("cancel", "--owner", "carl", "--running", "--yes").out == "1 job cancelled.\n"
    assert run("trash", "purge", "--group", "acme", "--yes").out == "7 jobs purged.\n"
    assert [job.group for job in board.trashed()] == ["other"]


def test_lists_take_conditions(board: Any, run: Commands, failed: list[Any]) -> None:
    assert len(run("trash", "list", "--group", "acme", "--error", "no such", "--json").lines) == 1
    assert "No such job" in run("trash", "list", "--key", "none").out
    assert board.act("restore", board.find(states=["TRASHED"])).done == 8
    board.claim_many("bert", 2)
    assert len(run("list", "--owner", "bert", "--json").lines) == 2
    assert [each["key"] for each in run("list", "--key", "k4", "--json").lines] == ["k4"]
    assert len(run("list", "--group", "acme", "--state", "unclaimed", "--json").lines) == 5


def test_trash_is_listed_by_error(board: Any, run: Commands, failed: list[Any]) -> None:
    ran = run("trash", "list", "--by-error")
    assert "causes of the newest 8 jobs" in ran.out
    first, second = run("trash", "list", "--by-error", "--json").lines
    assert (first["count"], first["cause"], first["names"]) == (7, "disk … is full", ["mail"])
    assert (second["count"], second["sample"]) == (1, "no such user")
    assert run("trash", "list", "--by-error", "--job", "mail", status=USAGE).is_one_line_about("--by-error")
    assert len(run("trash", "list", "--cause", first["cause"], "--json").lines) == 7
    assert run("trash", "restore", "--cause", first["sample"], "--yes").out == "7 jobs restored.\n"


@pytest.mark.rule("A job is shown by the label of its context, else by its name.")
@pytest.mark.backends("sqlite", "redis")
def test_jobs_are_shown_by_their_labels(board: Any, run: Commands, make_board: Any) -> None:
    labelled = {"name": "default", "context": {"label": "pictures.resize"}}
    watcher = Watcher(board)
    watcher.look()
    waiting, bad, good = board.post_many([labelled] * 3)
    board.post("mail")
    assert {(each.name, each.label) for each in watcher.look()} == {("default", "pictures.resize"), ("mail", "mail")}
    board.claim(bad, "me")
    board.trash(bad, "me", reason="broken")
    keeping = make_board(keep_done=600)
    keeping.claim(good, "me")
    keeping.consume(good, "me")
    for words in (("list", "--job", "default"), ("trash", "list"), ("done", "list"), ("top", "--once")):
        assert "pictures.resize" in run(*words).out, words
    [group] = run("trash", "list", "--by-error", "--json").lines
    assert (group["names"], group["labels"]) == (["default"], ["pictures.resize"])
    assert "pictures.resize" in run("trash", "list", "--by-error").out
    listed = run("list", "--json").lines
    assert [(each["name"], each["label"]) for each in listed] == [("default", "pictures.resize"), ("mail", "mail")]
    assert "name: default\nlabel: pictures.resize\n" in run("show", waiting.uuid).out
    assert "label:" not in run("show", listed[1]["uuid"]).out
    by_name = run("top", "--once", "--json").json["by_name"]
    kind = {"label": "pictures.resize", "name": "default"}
    assert {**kind, "waiting": 1, "scheduled": 0, "running": 0} in by_name


@pytest.mark.rule("A person's data can be deleted from the trash and from the outcomes.")
def test_outcomes_are_deleted(board: Any, make_board: Any, run: Commands) -> None:
    keeping = make_board(keep_done=600)
    jobs = keeping.post_many([{"name": "a", "group": group} for group in ("acme", "acme", "acme", "other")])
    keeping.consume_many(keeping.claim_many("anna", 4), "anna")
    assert len(run("done", "list", "--group", "acme", "--json").lines) == 3
    assert run("done", "delete", jobs[0].uuid).out == "1 job deleted.\n"
    assert run("done", "delete", "--group", "acme", "--yes").out == "2 jobs deleted.\n"
    assert [left.group for left in board.outcomes()] == ["other"]
    run("done", "delete", jobs[0].uuid, status=FAILED)
    assert jobs[0].state == "COMPLETE"


@pytest.mark.parametrize(
    "command", [["release"], ["cancel"], ["trash", "restore"], ["trash", "purge"], ["done", "delete"]]
)
def test_uuids_or_conditions(run: Commands, board: Any, command: list[str]) -> None:
    job = board.post("a")
    for words in ([], [job.uuid, "--job", "a"]):
        assert "conditions" in run(*command, *words, status=USAGE).err
    assert run(*command, "--group", "", "--yes", status=USAGE).is_one_line_about("group")
