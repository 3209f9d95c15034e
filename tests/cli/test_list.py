"""The commands that show jobs: ``list``, ``show`` and ``stats``, and the widths of terminals."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import jobboard
from jobboard.backends.memory import ManualClock
from jobboard.cli.common import FAILED
from jobboard.cli.tables import Column, cut_middle, drawn, table_of, uuid_column
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")

NOBODY = "01234567-89ab-cdef-0123-456789abcdef"
LONG = "thumbnails-of-pictures-that-were-uploaded-by-partners"
HOST = "worker-for-pictures.production.svc.cluster.local-4711"


def test_jobs_are_listed_shown_and_counted(board: Any, run: Commands) -> None:
    assert "No job" in run("list").out
    job = board.post("resize", details={"width": 3}, priority="HIGH")
    board.post("later", delay=3600)
    board.claim(job, "somebody")
    shown = run("show", job.uuid, "--json").json
    assert (shown["state"], shown["owner"], shown["details"]) == ("CLAIMED", "somebody", {"width": 3})
    assert all(word in run("show", job.uuid).out for word in (job.uuid, "CLAIMED", "somebody", '"width": 3'))
    listed = run("list", "--json").lines
    assert [each["name"] for each in listed] == ["resize", "later"]
    assert "details" not in listed[0]
    assert "width" not in run("list").out
    assert [each["name"] for each in run("list", "--state", "scheduled", "--json").lines] == ["later"]
    assert [each["name"] for each in run("list", "--job", "resize", "--json").lines] == ["resize"]
    assert run("stats", "--json").json == {
        "board": board.name,
        "unclaimed": 0,
        "scheduled": 1,
        "claimed": 1,
        "trashed": 0,
        "on_board": 2,
        "paused": {"everything": False, "names": []},
        "limits": [],
        "schedules": 0,
        "next_due": None,
        "late": 0.0,
        "outcomes": 0,
        "entities": [],
        "unhandled": [],
    }
    assert run("show", NOBODY, status=FAILED).is_one_line_about(NOBODY)


@pytest.mark.rule("Commands show the progress of a job, and only a command about one job shows its checkpoint.")
def test_notes_are_shown(board: Any, run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    job = board.post("resize")
    assert "progress" not in run("list").out
    assert run("list", "--json").json["progress"] is None
    board.claim(job, "somebody")
    job.note("reading", percent=12.5, checkpoint={"row": 7}, flush=True)
    noted = run("list", "--json").json
    assert (noted["progress"]["text"], noted["progress"]["percent"]) == ("reading", 12.5)
    assert "checkpoint" not in noted
    assert "12.5% reading" in run("list").out
    assert run("top", "--once", "--json").json["running"][0]["progress"] == noted["progress"]
    shown = run("show", job.uuid, "--json").json
    assert (shown["progress"], shown["checkpoint"]) == (noted["progress"], {"row": 7})
    text = run("show", job.uuid).out
    assert "progress: 12.5% reading (" in text
    assert '"row": 7' in text
    board.trash(job, "somebody")
    assert run("trash", "list", "--json").json["progress"] == noted["progress"]


@pytest.mark.rule("A list has one line for each job, and cuts nothing.")
def test_a_list_has_a_line_for_each_job(board: Any, run: Commands) -> None:
    for job in [board.post("a") for _ in range(2)]:
        board.claim(job, "me")
        board.abandon(job, "me", error="no room " * 1500)
    lines = run("list", width=120).out.splitlines()
    assert len(lines) == 5
    assert all(line.endswith("…") for line in lines[3:])
    assert "no room " * 1499 in run("list").out


@pytest.mark.rule("A list fits the terminal, and a pipe gets everything.")
def test_a_pipe_gets_the_first_jobs_and_whole_uuids(board: Any, run: Commands) -> None:
    assert "COLUMNS" not in os.environ
    jobs = board.post_many([{"name": f"job{n:03}"} for n in range(120)])
    out = run("list").out
    assert f"{jobs[0].uuid}  job000  UNCLAIMED" in out
    assert "job099" in out
    assert "job100" not in out
    assert "more than 100" in out
    assert len(run("list", "--json").lines) == 120
    assert len(run("list", "--json", "--limit", "7").lines) == 7


@pytest.mark.backends("memory")
def test_lists_go_by_age_and_by_page(make_board: Any, monkeypatch: pytest.MonkeyPatch, run: Commands) -> None:
    """Ages count by the server's clock."""
    clock = ManualClock()
    board = make_board("aged", clock=clock)
    monkeypatch.setenv("JOBBOARD_URL", "memory")
    monkeypatch.setenv("JOBBOARD_NAME", board.name)
    jobs = []
    for hours in (30, 3, 1):
        jobs.append(board.post(f"job{hours}").uuid)
        clock.advance({30: 27, 3: 2, 1: 1}[hours] * 3600)

    def listed(*args: str) -> list[str]:
        return [each["uuid"] for each in run("list", "--json", *args).lines]

    assert listed("--older", "1d") == jobs[:1]
    assert listed("--newer", "1d") == jobs[1:]
    assert listed("--older", "2h", "--newer", "1d") == jobs[1:2]
    assert listed("--limit", "1", "--after", jobs[0]) == jobs[1:2]
    assert f"--after {jobs[1]}" in run("list", "--limit", "2").out
    assert NOBODY in run("list", "--after", NOBODY, status=FAILED).err


def test_priorities_groups_and_errors_are_shown(board: Any, run: Commands, tmp_path: Path) -> None:
    job = board.post("one", priority=-20, group="customer-7")
    board.post("two", priority=7, group="b")
    board.post("three", priority="LOW")
    told = [(each["name"], each["priority"], each["group"]) for each in run("list", "--json").lines]
    assert told == [("two", 7, "b"), ("one", -20, "customer-7"), ("three", -50, None)]
    table = [line.split()[1:-1] for line in run("list").out.splitlines()[3:]]
    assert table == [
        ["two", "UNCLAIMED", "7", "b"],
        ["one", "UNCLAIMED", "-20", "customer-7"],
        ["three", "UNCLAIMED", "LOW"],
    ]
    for who, text in (("anna", "first\nof two lines"), ("[bert]", "disk \x1b[31m full")):
        board.claim(job, who)
        board.abandon(job, who, error=text)
    board.cancel(job, reason="no use")
    shown = run("show", job.uuid, "--json").json
    assert [(each["who"], each["attempt"], each["text"]) for each in shown["errors"]] == [
        *(("anna", 1, "first\nof two lines"), ("[bert]", 2, "disk \x1b[31m full"), (None, 2, "no use"))
    ]
    assert (shown["error"], shown["errors"][-1]["when"]) == ("no use", shown["last_modified"])
    out = run("show", job.uuid).out
    assert "\npriority: -20\n" in out
    assert "\ngroup: customer-7\n" in out
    assert re.findall(r"error \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, (.*)\n(.*)", out) == [
        *(
            ("attempt 1 by anna, error:", "first"),
            ("attempt 2 by [bert], error:", "disk \\x1b[31m full"),
            ("attempt 2, cancelled:", "no use"),
        )
    ]


@pytest.mark.rule("No text of a job is an instruction to a terminal.")
def test_no_text_of_a_job_is_an_instruction_to_a_terminal(board: Any, run: Commands) -> None:
    name = "[/] [red]x :smile: \u202egnp\u200b\xad\U000e0041"
    job = board.post(name, key="[bold]\ue000", group="\u2060", details={"a": "\x1b[31m\x9b[/]"})
    board.claim_next("[/who]\u200d").claim.trash(reason="then \x1b]0;owned\x07 \x9b31m\r[/]\nlast")
    outputs = [run(*args).out for args in (["trash", "list"], ["show", job.uuid])]
    board.restore(job)
    outputs.append(run("list").out)
    for output in outputs:
        assert "[/] [red]x :smile: \\u202egnp\\u200b\\xad\\U000e0041" in output
        assert "\\x1b]0;owned\\x07 \\x9b31m" in output
        assert not set(output) & set("\x1b\x07\x9b\r\u202e\u200b\xad\U000e0041\ue000\u2060\u200d")
    assert "key: [bold]\\ue000\n" in outputs[1]
    assert "by [/who]\\u200d, rejected:" in outputs[1]
    for args in (["show", job.uuid, "--json"], ["list", "--json"]):
        ran = run(*args)
        assert ran.out.isascii()
        assert ran.json["error"].startswith("then \x1b]0;owned")
        assert ran.json["name"] == job.name
    assert run("show", "\x1b[31m[/]", status=FAILED).is_one_line_about("\\x1b[31m[/]")


# The first characters of a uuid


def test_the_first_characters_of_a_uuid_find_its_job(board: Any, run: Commands) -> None:
    job, trashed = board.post("a"), board.post("b")
    board.cancel(trashed)
    for each in (job, trashed):
        assert run("show", each.uuid[:8], "--json").json["uuid"] == each.uuid
    run("trash", "restore", trashed.uuid[:13])
    run("cancel", job.uuid[:8])
    assert job.state == "TRASHED"
    run("list", "--after", job.uuid[:8])
    for none in ("01234567", job.uuid[:3], "ABCDEF01", job.uuid + "0"):
        assert run("show", none, status=FAILED).is_one_line_about(none)
    assert run("show", job.uuid + "0", status=FAILED).is_one_line_about("on another board (--name)")
    for none in ("resize", job.uuid[:3], job.uuid[:8].upper()):
        assert run("show", none, status=FAILED).is_one_line_about(none, "'jobboard list' shows them")


@pytest.mark.rule("A mistyped command, unit or uuid gets the right one.")
def test_characters_that_begin_several_uuids_are_refused(
    run: Commands, monkeypatch: pytest.MonkeyPatch, board: Any
) -> None:
    uuids = [f"0d8a3c3e-9c53-4c5d-bc5a-{n:012}" for n in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr("jobboard.arguments.new_uuids", lambda count: uuids[:count])
        jobs = board.post_many([{"name": "a"}] * 3)
    ran = run("cancel", "0d8a3c3e", status=FAILED)
    assert all(uuid in ran.err for uuid in uuids)
    assert {job.state for job in jobs} == {"UNCLAIMED"}
    monkeypatch.setattr("jobboard.cli.common.SEARCHED", 2)
    assert "whole uuid" in run("show", uuids[1][:-1], status=FAILED).err
    run("show", uuids[1])


# Widths


@pytest.mark.rule("A list fits the terminal, and a pipe gets everything.")
@pytest.mark.parametrize("width", [80, 120])
def test_lists_fit_a_terminal(make_board: Any, board: Any, run: Commands, width: int) -> None:
    """Every column is in use. Every command accepts the beginning of a uuid that is shown."""
    board = make_board(keep_done=600)
    board.post(LONG, priority="VERY_HIGH", delay=5000)
    board.post_many([{"name": f"{LONG}-{n}", "group": "customer-7", "priority": -20} for n in range(5)])
    for verb in (board.consume, board.trash, board.abandon):
        job = board.claim_next(HOST, expiry=600)
        why = {} if verb == board.consume else {"error" if verb == board.abandon else "reason": "no space " * 20}
        verb(job, HOST, **why)
    board.claim_next(HOST, expiry=600)
    told = {"host": HOST, "pid": 4711, "names": [f"{LONG}-9"], "running": 3, "slots": 8, "consumed": 12345}
    board.register_entity(jobboard.Entity("conductor", HOST, told))
    for command, jobs in ((["list"], 4), (["trash", "list"], 1), (["done", "list"], 1), (["stats"], 0)):
        lines = run(*command, width=width).out.splitlines()
        assert max(map(cell_len, lines)) <= width, command
        rows = [line.split() for line in lines if re.match("[0-9a-f]{8} ", line)]
        assert len(rows) == jobs, command
        for uuid, name, *_ in rows:
            assert len(name) >= 8, "a name keeps its first characters"
            assert "…" in name[2:-2] or len(name) >= len(LONG), "and its last ones"
            assert f"uuid: {uuid}" in run(*(["done", "show"] if "done" in command else ["show"]), uuid).out
    [scheduled] = [line for line in run("list", width=width).out.splitlines() if "SCHEDULED" in line]
    assert re.search(r"SCHEDULED +8[23]m\d\ds", scheduled)


@pytest.mark.rule("top fits its width without cutting a number.")
@pytest.mark.backends("memory")
@pytest.mark.parametrize("width", [None, 120, 80])
def test_texts_give_way_before_numbers(width: int | None) -> None:
    uuid, error = "0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", f"no space left on {LONG}, or 漢字漢字"
    columns: list[Column[None]] = [
        uuid_column(lambda row: uuid),
        Column("name", lambda row: "resize", "name"),
        Column("number", lambda row: 1234567, "number", number=True),
        Column("error", lambda row: error, "error"),
        Column("more", lambda row: "more", "more", least=100),
        Column("empty", lambda row: None, "empty"),
    ]
    header, line = drawn(table_of(columns, [None], width), width=width).splitlines()
    assert "1234567" in line
    assert ("empty" in header) is (width is None)
    assert ("more" in header) is (width is None or width >= 100)
    if width is None:
        assert line.split("  ")[0] == uuid
        assert error in line
    else:
        assert line.startswith("0d8a3c3e  resize")
        assert cell_len(line) <= width
    assert ("…" in line) is (width == 80)


@pytest.mark.rule("Long names are cut in the middle, and reasons show how they differ.")
@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("app.billing.tasks.send_invoice", 20, "app.bi….send_invoice"),
        ("app.billing.tasks.send_invoice", 18, "app.b…send_invoice"),
        ("漢字漢字漢字漢字", 9, "漢…字漢字"),
        ("abc", 1, "…"),
    ],
)
def test_a_long_name_is_cut_in_its_middle(text: str, width: int, shown: str) -> None:
    assert cut_middle(text, width) == shown
    assert cell_len(shown) <= width


@pytest.mark.rule("Long names are cut in the middle, and reasons show how they differ.")
def test_reasons_show_how_they_differ(board: Any, run: Commands) -> None:
    reset = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='{}.example.com', port=443): Max retries"
    down = '(psycopg.OperationalError) connection failed: connection to server at "10.0.0.7", port 5432 failed: refused'
    for reason in (
        f"Traceback (most recent call last):\n  File\n{reset.format('mail')}",
        f"Traceback (most recent call last):\n  File\n{reset.format('api')}",
        f"sqlalchemy.exc.OperationalError: {down}",
        "posted twice\nsee the ticket",
    ):
        board.claim(board.post("app.billing.tasks.send_invoice"), "anna")
        [job] = board.iterjobs()
        board.trash(job, "anna", reason=reason)
    lines = run("trash", "list", width=80).out.splitlines()[2:]
    assert [re.split("  +", line)[-1] for line in lines] == [
        "posted twice",
        "OperationalError: (psycop… 10.0.0.7",
        "ConnectionError: H… api.example.com",
        "ConnectionError:… mail.example.com",
    ]
    assert all("app.bi….send_invoice  " in line for line in lines)
    assert reset.format("mail") in run("trash", "list").out, "nothing is cut in a pipe"


# Names that no conductor handles


@pytest.mark.rule("Waiting names that no conductor handles are flagged.")
def test_waiting_names_that_no_conductor_handles_are_flagged(board: Any, run: Commands) -> None:
    line = "jobs named 'mail': no conductor handles them (start one with 'jobboard work MODULE:NAME')"

    def flagged() -> list[bool]:
        return [line in run(*command, width=120).out for command in (["list"], ["stats"], ["top", "--once"])]

    board.post("zip", delay=600)
    assert flagged() == [False] * 3
    board.post("mail")
    assert flagged() == [True] * 3
    assert run("stats", "--json").json["unhandled"] == ["mail"]
    board.register_entity(jobboard.Entity("conductor", "one", {"names": ["zip"]}))
    assert flagged() == [True] * 3
    board.pause(["mail"])
    assert flagged() == [False] * 3
    board.resume()
    board.register_entity(jobboard.Entity("conductor", "two", {"names": None}))
    assert flagged() == [False] * 3


def test_entities_are_listed_with_their_metadata(board: Any, run: Commands) -> None:
    assert "Nobody" in run("entities").out
    metadata = {"host": "here\x1b[31m", "pid": 7, "names": ["a", "b[/]"], "slots": 8, "running": 3, "consumed": 4}
    metadata |= {"dispatched": 9, "seconds": 1.5, "abandoned": 2, "trashed": 0, "lost": 0, "since": 0}
    board.register_entity(jobboard.Entity("conductor", "me[/]", metadata))
    board.register_entity(jobboard.Entity("conductor", "you", {"names": None}))
    board.register_entity(jobboard.Entity("conductor", "zoe", {"names": ["a", "b"]}))
    board.register_entity(jobboard.Entity("monitor", "it", {"lost": 0, "seconds": 2}))
    board.register_entity(jobboard.Entity("zebra", "at", {"host": ["a"], "on": True, "of": {"b": None}}))
    _, header, *rows = (line.split() for line in run("entities").out.splitlines())
    assert header == ["who", "name", "host", "pid", "runs", "running", "done", "more"]
    assert [" ".join(row) for row in rows] == [
        "conductor me[/] here\\x1b[31m 7 a, b[/] 3 of 8 4 abandoned=2",
        "conductor you any job",
        "conductor zoe a, b",
        "monitor it lost=0, seconds=2",
        'zebra at ["a"] on=true, of={"b": null}',
    ]
    found = run("entities", "--json").lines
    assert [each["name"] for each in found] == ["me[/]", "you", "zoe", "it", "at"]
    assert found[0]["metadata"] == metadata
    hung = metadata | {"running": 0, "hung": 8}
    board.register_entity(jobboard.Entity("conductor", "me[/]", hung))
    assert "0 of 8, 8 hung" in run("entities", width=80).out
    assert "me[/]" in run("stats").out
    assert json.dumps("here\x1b[31m") in run("stats", "--json").out
