"""``jobboard demo``, end to end: real worker processes, and one of them killed."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobboard.cli import demo as demo_module
from jobboard.cli.common import FAILED
from jobboard.testing import eventually
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    for number in range(60):
        path = made / f"folder {number % 3}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}")
    return made


def test_the_report_for_people_ends_with_commands_to_type(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The board of the environment is left alone."""
    run = Commands(capfd, monkeypatch)  # the output of the workers, too
    monkeypatch.setenv("JOBBOARD_URL", "nonsense://host")
    monkeypatch.chdir(tmp_path)
    ran = run("demo", str(folder))
    lines = ran.out.splitlines()
    rows = {line.rpartition("  ")[0].strip(): line.rpartition(" ")[2] for line in map(str.strip, lines)}
    assert (rows["posted"], rows["consumed"], rows["lost"], rows["wrong"]) == ("60", "60", "0", "0")
    assert int(rows["run again after the kill"]) > 0
    assert "Killed worker 1" in ran.out
    # The report counts the lapses of the killed worker's claims.
    assert "has lapsed" not in ran.err
    assert "\x1b" not in ran.out + ran.err
    assert re.match(r"On board 'demo-[0-9a-f-]{36}' at sqlite:////.*/board.db\n", ran.out)
    assert "nothing was lost" in lines[-1]
    post, look = re.findall("'jobboard (.*?)'", lines[-1])
    uuid = run(*post.split()).out.strip()
    out = run(*look.split()).out
    assert uuid in out
    assert "hello" in out


def test_the_report_for_machines_counts_lost_wrong_and_changed_files(
    folder: Path, run: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a board of the user's own, which keeps its jobs."""
    os.close(os.open(os.fsencode(folder) + b"/no text \xff", os.O_CREAT))
    digest, work = demo_module.digest, demo_module._work

    def planted_digest(path: Path) -> str:
        return "0" * 64 if path.name == "file17" else digest(path)

    def planted_work(board: Any, uri: str, root: Path, results: Path, total: int) -> str:
        (folder / "folder 0" / "file3").write_text("something else")
        (folder / "folder 1" / "file4").unlink()
        killed = work(board, uri, root, results, total)
        lost = digest(folder / "folder 2" / "file5")
        results.write_text("".join(line for line in results.read_text().splitlines(True) if lost not in line))
        return killed

    monkeypatch.setattr(demo_module, "digest", planted_digest)
    monkeypatch.setattr(demo_module, "_work", planted_work)
    uri = f"sqlite:///{tmp_path}/own.db"
    run("--board", uri, "post", "mine")
    report = run("demo", str(folder), "--board", f"{uri}?claim_ttl=1", "--json", status=FAILED).json
    assert report["posted"] == report["consumed"] == 61
    assert report["run_again"] > 0
    assert report["seconds"] > 0
    assert (report["lost"], report["wrong"], report["changed"], report["ok"]) == (1, 1, 2, False)
    assert sorted(report["problems"]) == [
        *("changed: folder 0/file3", "changed: folder 1/file4"),
        *("lost: folder 2/file5", "wrong: folder 2/file17"),
    ]
    assert run("--board", uri, "stats", "--json").json["unclaimed"] == 1


def test_an_empty_folder_is_said_so(tmp_path: Path, run: Commands) -> None:
    (tmp_path / "folder").mkdir()
    assert "no file" in run("demo", str(tmp_path / "folder")).out
    report = run("demo", str(tmp_path / "folder"), "--json").json
    assert (report["posted"], report["killed"], report["ok"]) == (0, None, True)


def die(*args: Any) -> None:
    os._exit(2)


def test_a_worker_that_cannot_work_ends_the_demo(folder: Path, monkeypatch: pytest.MonkeyPatch, run: Commands) -> None:
    monkeypatch.setattr(demo_module, "work", die)
    err = run("demo", str(folder), status=FAILED).err.splitlines()[-1]
    assert err.startswith("jobboard: worker 1 ended with status 2")


def runs(pid: str) -> bool:
    """Return whether a process runs. A zombie, which nobody may collect here, does not."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.mark.rule("The demo's workers end with the demo.")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_workers_end_with_the_demo(folder: Path, tmp_path: Path, number: int) -> None:
    """One of them hangs."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "demo", str(folder)], stderr=subprocess.DEVNULL, env=env
    )
    children: list[str] = []

    def has_workers() -> bool:
        children[:] = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        return len(children) > 1 and any(file.stat().st_size for file in tmp_path.glob("*/results.jsonl"))

    try:
        eventually(has_workers, 60)
        demo.send_signal(number)
        demo.wait(60)
    finally:
        demo.kill()
        demo.wait()
    eventually(lambda: not any(map(runs, children)), 60)


def test_hidden_files_and_links_are_left_out_and_many_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Commands
) -> None:
    for name in ("a", "b/c", ".env", ".git/d", "b/.venv/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    assert list(demo_module.find(tmp_path)) == ["a", "b/c"]
    monkeypatch.setattr(demo_module, "MOST", 1)
    assert run("demo", str(tmp_path), "--json").json["posted"] == 1
