"""``jobboard move``."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.cli.common import DONE, FAILED, UNREACHABLE, USAGE
from jobboard.testing import eventually
from tests.support.commands import Commands, Ran

pytestmark = pytest.mark.backends("sqlite")


class Places:
    """Two SQLite files, and boards in them."""

    def __init__(self, conf_of: Callable[[str], dict[str, Any]]) -> None:
        self.uris = [conf_of("sqlite")["board"] for _ in range(2)]
        self.opened: list[JobBoard] = []
        self.source = self.board(0)

    def board(self, at: int, name: str = "jobboard", **options: Any) -> JobBoard:
        board: JobBoard = jobboard.fetch(name, {"board": self.uris[at], **options})
        board.connect()
        self.opened.append(board)
        return board


@pytest.fixture
def places(conf_of: Callable[[str], dict[str, Any]]) -> Iterator[Places]:
    made = Places(conf_of)
    yield made
    for board in made.opened:
        board.close()


@pytest.fixture
def move(places: Places, run: Commands) -> Callable[..., Ran]:
    return lambda *args, status=DONE: run("move", *places.uris, *args, status=status)


def test_a_move_reports_moved_and_left_jobs(places: Places, move: Any) -> None:
    places.source.post_many([{"name": "job"}] * 3)
    job = places.source.post("bad\u202e")
    places.source.claim(job, "anna")
    ran = move(status=FAILED)
    assert ran.out == "board 'jobboard': 3 moved, and 0 in the trash.\n"
    assert ran.err == f"1 left:\n  Job 'bad\\u202e' ({job.uuid}): claimed by anna\n"
    left = [{"uuid": job.uuid, "name": job.name, "why": "claimed by anna", "what": "job"}]
    told = {"moved": 0, "trashed": 0, "schedules": 0, "outcomes": 0, "keys": 0, "left": left}
    ran = move("--json", status=FAILED)
    assert (ran.json, ran.err) == (told, "")
    places.source.trash(job, "anna")
    assert move("--no-trash").out.startswith("There was nothing to move")
    assert places.source.stats().trashed == 1
    ran = move()
    assert (ran.out, ran.err) == ("board 'jobboard': 0 moved, and 1 in the trash.\n", "")
    assert places.board(1).stats().on_board == 3


def test_a_board_may_get_another_name(places: Places, run: Commands) -> None:
    job = places.board(0, "one").post("job")
    run("move", *places.uris, "--name", "one", "--to-name", "two")
    assert places.board(1, "two").get(job.uuid).name == "job"
    run("move", *reversed(places.uris), "--name", "two")
    assert places.board(0, "two").get(job.uuid).name == "job"
    run("move", places.uris[0], places.uris[0], "--name", "two", "--to-name", "one")
    assert places.board(0, "one").get(job.uuid).name == "job"


@pytest.mark.rule("A move into a memory board that ends with the command is refused.")
@pytest.mark.rule("move waits as told, can be interrupted, and refuses what cannot be moved.")
def test_a_wrong_move_changes_nothing(places: Places, run: Commands, tmp_path: Path) -> None:
    job = places.source.post("job")
    here, there = places.uris
    new = tmp_path / "new.db"
    elsewhere = f"sqlite:///{os.path.relpath(here.removeprefix('sqlite:///'))}"
    for args, status, words in [
        ((here, elsewhere), USAGE, "same board"),
        ((here,), USAGE, "DST"),
        (("--board", here, here, there), USAGE, "leave out --board"),
        ((here, there, "--to-name", ""), USAGE, "--to-name"),
        ((here, there, "--wait-limit", "soon"), USAGE, "soon"),
        ((here, "memory"), USAGE, "its jobs end with this command"),
        (("memory://", here), USAGE, "its jobs end with this command"),
        ((f"{here}.not", there), FAILED, "board"),
        ((here, "mongodb://x"), USAGE, "mongodb"),
        ((here, "mongodb://x", "--dry-run"), USAGE, "mongodb"),
        (
            (here, "redis://:s3cret@127.0.0.1:1?retry_for=0"),
            UNREACHABLE,
            f"{places.source.name!r} at redis://127.0.0.1:1",
        ),
        ((here, f"sqlite:///{new}?read_only=true"), USAGE, f"{new} is opened for looking only: leave out read_only"),
        ((f"{here}?read_only=true", f"sqlite:///{new}"), USAGE, "leave out read_only"),
    ]:
        ran = run("move", *args, status=status)
        assert ran.out == ""
        assert words in ran.err
        assert "s3cret" not in ran.err
    assert not new.exists()
    assert [each.uuid for each in places.source.iterjobs()] == [job.uuid]
    assert list(places.source.trashed()) == []
    out = run("move", "--help").out
    assert "--board" not in out
    assert "--name" in out


def test_schedules_move_unless_their_id_is_taken(places: Places, move: Any) -> None:
    for name in ("ping", "pong"):
        places.source.schedule(name, name=name, every=60)
    assert move("--dry-run").out == "board 'jobboard': 0 would be moved, and 0 in the trash; and 2 schedules.\n"
    target = places.board(1)
    target.schedule("pong", name="pong", every=5)
    ran = move(status=FAILED)
    assert ran.out == "board 'jobboard': 0 moved, and 0 in the trash; and 1 schedule.\n"
    assert "Schedule 'pong'" in ran.err
    assert [schedule.id for schedule in target.schedules()] == ["ping", "pong"]
    target.unschedule("pong")
    move()
    assert places.source.schedules() == []


def test_outcomes_and_keys_move(places: Places, move: Any) -> None:
    source = places.board(0, keep_done=600)
    for key in ("k", "l"):
        source.post("job", key=key, key_for=600)
        source.consume(source.claim_next("anna"), "anna", result=key)
    end = "moved, and 0 in the trash"
    assert move("--dry-run").out == f"board 'jobboard': 0 would be {end}; and 2 outcomes, 2 keys.\n"
    assert move("--no-outcomes").out == f"board 'jobboard': 0 {end}; and 2 keys.\n"
    told = move("--json").json
    assert (told["outcomes"], told["keys"]) == (2, 0)
    assert [each.result for each in places.board(1).outcomes()] == ["l", "k"]
    assert move().out.startswith("There was nothing to move")


def test_a_dry_run_changes_nothing(places: Places, move: Any) -> None:
    one, _, three = places.source.post_many([{"name": "job"}] * 3)
    places.source.claim(one, "anna")
    places.source.cancel(three)

    def there() -> list[tuple[str, str]]:
        return [(job.uuid, job.seen_state) for job in [*places.source.iterjobs(), *places.source.trashed()]]

    before = there()
    ran = move("--dry-run", status=FAILED)
    assert ran.out == "board 'jobboard': 1 would be moved, and 1 in the trash.\n"
    assert "claimed by anna" in ran.err
    assert move("--dry-run", "--no-trash", "--json", status=FAILED).json["trashed"] == 0
    assert there() == before
    assert not os.path.exists(places.uris[1].removeprefix("sqlite:///"))  # noqa: PTH110


@pytest.mark.rule("A move waits for claimed jobs no longer than told.")
def test_a_wait_has_a_limit(places: Places, move: Any) -> None:
    places.source.claim(places.source.post("job"), "anna", expiry=600)
    ran = move("--wait-limit", "0.1s", status=FAILED)
    assert ran.out == "board 'jobboard': 0 moved, and 0 in the trash.\n"
    assert ran.err.startswith("waiting for 1 claimed job\n1 left:\n")


@pytest.mark.rule("move waits as told, can be interrupted, and refuses what cannot be moved.")
def test_a_wait_ends_with_the_claims_and_can_be_interrupted(places: Places) -> None:
    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jobboard.cli", "move", *places.uris, "--wait"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    job = places.source.post("job")
    places.source.claim(job, "anna", expiry=600)
    one, two = start(), start()
    eventually(lambda: places.source.stats().trashed == 2, 60)  # their signs: both wait
    one.send_signal(2)
    _, err = one.communicate(timeout=60)
    assert one.returncode == 130
    assert b"run the same command again" in err
    assert two.poll() is None
    places.source.abandon(job, "anna")
    told = (b"board 'jobboard': 1 moved, and 0 in the trash.\n", b"waiting for 1 claimed job\n")
    assert two.communicate(timeout=60) == told
    assert list(places.source.trashed()) == list(places.board(1).trashed()) == []
