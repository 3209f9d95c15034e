"""Lists on terminals of usual widths: what they show, and that they fit."""

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len

import jobboard
from jobboard.cli import main
from jobboard.cli.root import COMMANDS
from jobboard.cli.sampler import Sampler
from jobboard.cli.watch import Comparison
from jobboard.testing import eventually

DONE = 0
LONG = "thumbnails-of-pictures-that-were-uploaded-by-partners"
HOST = "worker-for-pictures.production.svc.cluster.local-4711"
WIDTHS = pytest.mark.parametrize("width", [80, 120])

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(width: int, *args: str) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        assert main(args) == DONE
        return capsys.readouterr().out

    return call


@pytest.fixture
def board(board_of_commands: Any, make_board: Any) -> Any:
    return make_board(keep_done=600)


@WIDTHS
@pytest.mark.backends("sqlite")
def test_lists_fit(board: Any, run: Run, width: int) -> None:
    """With every column in use, and the shown beginning of each uuid is accepted."""
    board.post(LONG, priority="VERY_HIGH", delay=5000)
    board.post_many([{"name": f"{LONG}-{n}", "group": "customer-7", "priority": -20} for n in range(5)])
    for verb in (board.consume, board.trash, board.abandon):
        job = board.claim_next(HOST, expiry=600)
        told = {} if verb == board.consume else {"error" if verb == board.abandon else "reason": "no space " * 20}
        verb(job, HOST, **told)
    board.claim_next(HOST, expiry=600)
    told = {"host": HOST, "pid": 4711, "names": [f"{LONG}-9"], "running": 3, "slots": 8, "consumed": 12345}
    board.register_entity(jobboard.Entity("conductor", HOST, told))
    for command, jobs in ((["list"], 4), (["trash", "list"], 1), (["done", "list"], 1), (["stats"], 0)):
        lines = run(width, *command).splitlines()
        assert max(map(cell_len, lines)) <= width, command
        short = [line.split()[0] for line in lines if re.match("[0-9a-f]{8} ", line)]
        assert len(short) == jobs, command
        for uuid in short:
            assert f"uuid: {uuid}" in run(width, *(["done", "show"] if "done" in command else ["show"]), uuid)
    [scheduled] = [line for line in run(width, "list").splitlines() if "SCHEDULED" in line]
    assert re.search(r"SCHEDULED +8[23]m\d\ds ", scheduled)


@pytest.mark.backends("sqlite")
def test_names_that_no_conductor_handles(board: Any, run: Run) -> None:
    line = "no conductor handles 'mail': start one with 'jobboard work MODULE:NAME'"

    def flagged() -> bool:
        return [line in run(120, *command) for command in (["list"], ["stats"], ["top", "--once"])]  # type: ignore[return-value]

    board.post("zip", delay=600)
    assert flagged() == [False] * 3
    board.post("mail")
    assert flagged() == [True] * 3
    assert '"unhandled":["mail"]' in run(120, "stats", "--json")
    board.register_entity(jobboard.Entity("conductor", "one", {"names": ["zip"]}))
    assert flagged() == [True] * 3
    board.pause(["mail"])
    assert flagged() == [False] * 3
    board.resume()
    board.register_entity(jobboard.Entity("conductor", "two", {"names": None}))
    assert flagged() == [False] * 3


@pytest.mark.backends("memory")
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_no_summary_is_cut(run: Run, command: list[str]) -> None:
    listed = run(80, *command, "--help").partition("Commands:\n")[2].partition("\n\n")[0]
    assert "..." not in listed
    assert all(re.match(r"  [\w-]+ +\w.*\.$", line) for line in listed.splitlines())


@pytest.mark.backends("sqlite", "redis")
def test_reasons_and_durations(board: Any) -> None:
    comparison = Comparison(board)
    board.post("resize")
    comparison.look()
    job = board.claim_next("anna")
    claimed_on = job.last_modified
    [claimed] = comparison.look()
    assert (claimed.event, claimed.who, claimed.seconds, claimed.reason) == ("CLAIMED", "anna", None, None)
    board.abandon(job, "anna", error="Traceback\nValueError: no picture", delay=600)
    [given_back] = comparison.look()
    lasted = board.get(job.uuid).last_modified - claimed_on
    assert given_back.seconds == pytest.approx(lasted.total_seconds(), abs=0.001)
    assert given_back.reason.endswith("ValueError: no picture")
    assert given_back.due is not None


@pytest.mark.backends("sqlite")
def test_jobs_that_nobody_has_swept_hide_no_claim(board: Any) -> None:
    """Due jobs that no claim has swept yet still stand beside the claims in the store."""
    first, second = board.post_many([{"name": "a", "delay": 0.01}, {"name": "b"}])
    board.claim(second, "anna")
    eventually(lambda: first.state == "UNCLAIMED")
    sampler = Sampler(board)
    while not sampler.complete:
        sampler.look()
    assert [record.uuid for record in sampler.running] == [second.uuid]


@pytest.mark.backends("sqlite")
def test_a_pipe_gets_whole_uuids(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "COLUMNS" not in os.environ
    job = board.post(LONG)
    assert main(["list"]) == DONE
    assert f"{job.uuid}  {LONG}  UNCLAIMED" in capsys.readouterr().out
