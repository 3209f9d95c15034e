"""``jobboard move`` as it is called."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.cli import main
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite")

DONE, FAILED, USAGE, UNREACHABLE = range(4)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["move", *args]), *capsys.readouterr()

    return call


class Places:
    def __init__(self, conf_of: Callable[[str], dict[str, Any]]) -> None:
        self.uris = [conf_of("sqlite")["board"] for _ in range(2)]
        self.source = self.board(0)

    def board(self, at: int, name: str = "jobboard") -> JobBoard:
        board: JobBoard = jobboard.fetch(name, self.uris[at])
        board.connect()
        return board


@pytest.fixture
def places(conf_of: Callable[[str], dict[str, Any]]) -> Places:
    return Places(conf_of)


def test_a_board_that_ends_with_the_command_is_refused(places: Places, run: Run) -> None:
    places.source.post("a")
    for ends in ((places.uris[0], "memory"), ("memory://", places.uris[0])):
        status, out, error = run(*ends)
        assert (status, out) == (USAGE, "")
        assert "its jobs end with this command" in error
    assert places.source.job_count == 1


def test_it_tells_people(places: Places, run: Run) -> None:
    places.source.post_many([{"name": "job"}] * 3)
    job = places.source.post("bad\u202e")
    places.source.claim(job, "anna")
    assert run(*places.uris) == (
        FAILED,
        "board 'jobboard': 3 moved, and 0 in the trash.\n",
        f"1 left:\n  Job 'bad\\u202e' ({job.uuid}): claimed by anna\n",
    )
    places.source.trash(job, "anna")
    assert run(*places.uris) == (DONE, "board 'jobboard': 0 moved, and 1 in the trash.\n", "")
    assert places.board(1).stats().on_board == 3


def test_it_tells_machines(places: Places, run: Run) -> None:
    places.source.post("job")
    job = places.source.claim_next("anna")
    assert job is not None
    places.source.post("job")
    status, out, err = run(*places.uris, "--json")
    left = [{"uuid": job.uuid, "name": "job", "why": "claimed by anna", "what": "job"}]
    told = {"moved": 1, "trashed": 0, "schedules": 0, "outcomes": 0, "keys": 0, "left": left}
    assert (status, json.loads(out), err) == (FAILED, told, "")


def test_names(places: Places, run: Run) -> None:
    job = places.board(0, "one").post("job")
    assert run(*places.uris, "--name", "one", "--to-name", "two")[0] == DONE
    assert places.board(1, "two").get(job.uuid).name == "job"
    assert run(*reversed(places.uris), "--name", "two")[0] == DONE
    assert places.board(0, "two").get(job.uuid).name == "job"
    assert run(places.uris[0], places.uris[0], "--name", "two", "--to-name", "one")[0] == DONE
    assert run(*places.uris, "--to-name", "")[0] == USAGE
    assert places.board(0, "one").get(job.uuid).name == "job"


def test_what_can_not_be(places: Places, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job = places.source.post("job")
    here, there = places.uris
    elsewhere = f"sqlite:///{os.path.relpath(here.removeprefix('sqlite:///'))}"
    for args, status, words in [
        ((here, elsewhere), FAILED, "same board"),
        ((here,), USAGE, "DST"),
        (("--board", here, here, there), USAGE, "leave out --board"),
        ((f"{here}.not", there), FAILED, "board"),
        ((here, "mongodb://x"), USAGE, "mongodb"),
        ((here, "redis://:s3cret@127.0.0.1:1?retry_for=0"), UNREACHABLE, "127.0.0.1"),
    ]:
        ended, out, err = run(*args)
        assert (ended, out) == (status, ""), args
        assert words in err
        assert "s3cret" not in err
    assert [each.uuid for each in places.source.iterjobs()] == [job.uuid]
    assert list(places.source.trashed()) == []


def test_its_help_offers_no_board_beside_the_two(run: Run) -> None:
    _, out, _ = run("--help")
    assert "--board" not in out
    assert "--name" in out


def test_waiting_has_a_limit(places: Places, run: Run) -> None:
    places.source.claim(places.source.post("job"), "anna")
    status, out, err = run(*places.uris, "--wait-limit", "0.1s")
    assert (status, out) == (FAILED, "board 'jobboard': 0 moved, and 0 in the trash.\n")
    assert err.startswith("waiting for 1 claimed job\n1 left:\n")
    assert run(*places.uris, "--wait-limit", "soon")[0] == USAGE


def test_the_trash_can_stay(places: Places, run: Run) -> None:
    places.source.cancel(places.source.post("job"))
    assert run(*places.uris, "--no-trash")[1].startswith("There was nothing to move")
    assert places.source.stats().trashed == 1
    assert run(*places.uris)[1] == "board 'jobboard': 0 moved, and 1 in the trash.\n"


def test_schedules(places: Places, run: Run) -> None:
    for name in ("ping", "pong"):
        places.source.schedule(name, name=name, every=60)
    assert (
        run(*places.uris, "--dry-run")[1]
        == "board 'jobboard': 0 would be moved, and 0 in the trash; and 2 schedules.\n"
    )
    target = places.board(1)
    target.schedule("pong", name="pong", every=5)
    status, out, err = run(*places.uris)
    assert (status, out) == (FAILED, "board 'jobboard': 0 moved, and 0 in the trash; and 1 schedule.\n")
    assert "Schedule 'pong'" in err
    assert [schedule.id for schedule in target.schedules()] == ["ping", "pong"]
    target.unschedule("pong")
    assert run(*places.uris)[0] == DONE
    assert places.source.schedules() == []


def test_outcomes_and_keys(places: Places, run: Run) -> None:
    source = jobboard.fetch("jobboard", f"{places.uris[0]}?keep_done=600")
    source.connect()
    for key in ("k", "l"):
        source.post("job", key=key, key_for=600)
        source.consume(source.claim_next("anna"), "anna", result=key)
    source.close()
    end = "moved, and 0 in the trash"
    assert run(*places.uris, "--dry-run")[1] == f"board 'jobboard': 0 would be {end}; and 2 outcomes, 2 keys.\n"
    assert run(*places.uris, "--no-outcomes")[1] == f"board 'jobboard': 0 {end}; and 2 keys.\n"
    told = json.loads(run(*places.uris, "--json")[1])
    assert (told["outcomes"], told["keys"]) == (2, 0)
    assert [each.result for each in places.board(1).outcomes()] == ["l", "k"]
    assert run(*places.uris)[1].startswith("There was nothing to move")


def test_a_dry_run_changes_nothing(places: Places, run: Run) -> None:
    one, _, three = places.source.post_many([{"name": "job"}] * 3)
    places.source.claim(one, "anna")
    places.source.cancel(three)
    before = [(job.uuid, job.seen_state) for job in [*places.source.iterjobs(), *places.source.trashed()]]
    status, out, err = run(*places.uris, "--dry-run")
    assert (status, out) == (FAILED, "board 'jobboard': 1 would be moved, and 1 in the trash.\n")
    assert "claimed by anna" in err
    assert json.loads(run(*places.uris, "--dry-run", "--no-trash", "--json")[1])["trashed"] == 0
    assert [(job.uuid, job.seen_state) for job in [*places.source.iterjobs(), *places.source.trashed()]] == before
    assert not os.path.exists(places.uris[1].removeprefix("sqlite:///"))  # noqa: PTH110
    assert run(places.uris[0], "mongodb://x", "--dry-run")[0] == USAGE


def start(places: Places, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jobboard.cli", "move", *places.uris, *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, **options)


def test_it_waits_and_can_be_interrupted(places: Places) -> None:
    job = places.source.post("job")
    places.source.claim(job, "anna")
    one = start(places, "--wait", stderr=subprocess.PIPE)
    two = start(places, "--wait", stderr=subprocess.PIPE)
    eventually(lambda: places.source.stats().trashed == 2, 30)  # their signs: both wait
    one.send_signal(2)
    _, err = one.communicate(timeout=30)
    assert one.returncode == 130
    assert b"run the same command again" in err
    assert two.poll() is None
    places.source.abandon(job, "anna")
    told = (b"board 'jobboard': 1 moved, and 0 in the trash.\n", b"waiting for 1 claimed job\n")
    assert two.communicate(timeout=30) == told
    assert list(places.source.trashed()) == list(places.board(1).trashed()) == []


def test_a_bar_on_a_terminal(places: Places) -> None:
    places.source.post_many([{"name": "job"}] * 7)
    ours, theirs = pty.openpty()
    process = start(places, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    process.communicate(timeout=30)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    assert b"7/7" in shown
