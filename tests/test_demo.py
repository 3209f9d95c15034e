"""``jobboard demo``, end to end: real worker processes, and one of them killed."""

import contextlib
import json
import multiprocessing
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobboard.cli import demo as demo_module
from jobboard.cli import main
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite")

NOBODY = 65534
DONE, FAILED, USAGE, _ = range(4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    for number in range(60):
        path = made / f"folder {number % 3}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content {number}")
    return made


@pytest.fixture
def demo(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(path: Path, *args: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = main(["demo", str(path), "--json", *args])
        out, err = capsys.readouterr()
        assert out, err
        return status, json.loads(out)

    return run


Demo = Callable[..., tuple[int, dict[str, Any]]]


def test_it_tells_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(folder)]) == DONE
    out, err = capsys.readouterr()
    rows = {line.rpartition("  ")[0].strip(): line.rpartition(" ")[2] for line in map(str.strip, out.splitlines())}
    assert (rows["posted"], rows["consumed"], rows["lost"], rows["wrong"]) == ("60", "60", "0", "0")
    assert int(rows["run again after the kill"]) > 0
    assert "Killed worker 1" in out
    assert "working: 60 of 60" in err
    assert "\x1b" not in out + err
    assert re.match(r"On board 'demo-[0-9a-f-]{36}' at sqlite:////.*/board.db\n", out)


def test_its_last_sentence_can_be_typed(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", str(folder)]) == DONE
    last = capsys.readouterr().out.splitlines()[-1]
    assert "nothing was lost" in last
    post, look = re.findall("'jobboard (.*?)'", last)
    assert main(post.split()) == DONE
    [uuid] = capsys.readouterr().out.split()
    assert main(look.split()) == DONE
    out = capsys.readouterr().out
    assert uuid in out
    assert "hello" in out


def test_a_bar_on_a_terminal(folder: Path) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "demo", str(folder)],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"},
    ) as process:
        os.close(slave)
        drawn = b""
        # The terminal's end reads as an error, once nobody has it open any more.
        with contextlib.suppress(OSError):
            while more := os.read(master, 65536):
                drawn += more
        assert process.wait(60) == DONE
    os.close(master)
    assert b"working" in drawn
    assert b"60/60" in drawn
    assert b"working: " not in drawn
    # The report counts the lapses of the killed worker's claims. The workers do not log each of them beside it.
    assert b"has lapsed" not in drawn


def test_only_files_that_git_would_track(tmp_path: Path) -> None:
    """Ignored ones are left out, and so is a virtual environment that nobody ignores."""
    for name in (".gitignore", "a", "b/c", "secret.log", "b/deleted", ".github/d", "env/pyvenv.cfg", "env/lib/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("*.log\n" if name == ".gitignore" else name)
    subprocess.run("git init -q && git add a b/deleted && rm b/deleted", shell=True, cwd=tmp_path, check=True)
    found = [".github/d", ".gitignore", "a", "b/c"]
    assert demo_module.find(tmp_path, tmp_path / "none") == (found, {})
    assert demo_module.find(tmp_path / "b", tmp_path / "none") == (["c"], {})
    # A folder that git ignores as a whole was asked for by its name.
    (tmp_path / ".gitignore").write_text("b/\n")
    subprocess.run("git rm -q --cached b/deleted", shell=True, cwd=tmp_path, check=True)
    assert demo_module.find(tmp_path / "b", tmp_path / "none") == (["c"], {})


def test_without_git_generated_files_are_left_out(tmp_path: Path) -> None:
    files = (
        "a",
        "b/c",
        ".env",
        ".git/d",
        ".venv/pyvenv.cfg",
        "env/pyvenv.cfg",
        "env/e",
        "b/__pycache__/f",
        "t/CACHEDIR.TAG",
    )
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found, skipped = demo_module.find(tmp_path, tmp_path / "none")
    assert found == [".env", "a", "b/c"]
    assert skipped == {"hidden folders": 2, "generated folders": 3}


def test_it_takes_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(tmp_path), "--name", "mine"]) == USAGE
    assert "leave out --name" in capsys.readouterr().err
    assert main(["demo", "--help"]) == DONE
    assert "--name" not in capsys.readouterr().out


def test_it_tells_machines(folder: Path, demo: Demo) -> None:
    (folder / "link").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    os.close(os.open(os.fsencode(folder) + b"/no text \xff", os.O_CREAT))
    status, report = demo(folder)
    assert status == DONE
    assert report["ok"]
    assert report["posted"] == report["consumed"] == 61
    assert report["lost"] == report["wrong"] == report["changed"] == 0
    assert report["run_again"] > 0
    assert report["skipped"] == {"links": 1, "special files": 1}
    assert report["seconds"] > 0


@pytest.mark.parametrize("files", [0, 1])
def test_small_folders(tmp_path: Path, demo: Demo, files: int) -> None:
    made = tmp_path / "files"
    made.mkdir()
    for number in range(files):
        (made / str(number)).touch()
    status, report = demo(made)
    assert status == DONE
    assert report["posted"] == report["consumed"] == report["run_again"] == files
    assert bool(report["killed"]) == bool(files)


def test_no_files_are_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert main(["demo", str(tmp_path / "folder")]) == DONE
    assert "no file" in capsys.readouterr().out


def test_a_wrong_digest(folder: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(path: Path) -> str:
        return "0" * 64 if path.name == "file17" else digest(path)

    digest = demo_module.digest
    monkeypatch.setattr(demo_module, "digest", planted)
    status, report = demo(folder)
    assert status == FAILED
    assert (report["wrong"], report["lost"], report["ok"]) == (1, 0, False)
    assert report["problems"] == ["wrong: folder 2/file17"]


def test_a_lost_result(folder: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = demo_module._judge

    def planted(board: Any, root: Any, files: Any, jobs: Any, results: Path) -> Any:
        # Of the last job whose result came, so that no other result of it remains.
        *others, last = results.read_text().splitlines()
        kept = [line for line in others if json.loads(line)["job"] != json.loads(last)["job"]]
        results.write_text("".join(f"{line}\n" for line in kept))
        return judge(board, root, files, jobs, results)

    monkeypatch.setattr(demo_module, "_judge", planted)
    status, report = demo(folder)
    assert status == FAILED
    assert (report["lost"], report["wrong"]) == (1, 0)
    assert "lost: " in report["problems"][0]


def test_files_that_change_or_vanish_are_reported_as_such(
    folder: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = demo_module._work

    def planted(*args: Any) -> str:
        (folder / "folder 0" / "file3").write_text("something else")
        (folder / "folder 1" / "file4").unlink()
        return work(*args)

    monkeypatch.setattr(demo_module, "_work", planted)
    status, report = demo(folder)
    assert status == DONE
    assert (report["lost"], report["wrong"], report["changed"]) == (0, 0, 2)
    assert sorted(report["problems"]) == ["changed: folder 0/file3", "changed: folder 1/file4"]


def die(*args: Any) -> None:
    os._exit(2)


def test_a_worker_that_can_not_work(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(demo_module, "work", die)
    assert main(["demo", str(folder)]) == FAILED
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("jobboard: worker 1 ended with status 2")


def runs(pid: str) -> bool:
    """Not as a zombie, which nobody may collect here."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_workers_end_with_the_demo(folder: Path, tmp_path: Path, number: int) -> None:
    """However it ends, and though one of them hangs."""
    log = tmp_path / "log"
    with log.open("wb") as out:
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        demo = subprocess.Popen([sys.executable, "-m", "jobboard.cli", "demo", str(folder)], stderr=out, env=env)
    try:
        eventually(lambda: log.read_bytes().count(b"working: ") > 1, 30)
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        assert children
        demo.send_signal(number)
        demo.wait(20)
    finally:
        demo.kill()
        demo.wait()
    eventually(lambda: not any(map(runs, children)), 30)


def test_a_board_of_one_s_own(folder: Path, demo: Demo, tmp_path: Path, capsys: Any) -> None:
    uri = f"sqlite:///{tmp_path}/own.db"
    assert main(["--board", uri, "post", "mine"]) == DONE
    status, report = demo(folder, "--board", f"{uri}?claim_ttl=1")
    assert (status, report["lost"]) == (DONE, 0)
    capsys.readouterr()
    assert main(["--board", uri, "stats", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["unclaimed"] == 1


def test_the_environment_s_board_is_left_alone(tmp_path: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBBOARD_URL", "nonsense://host")
    (tmp_path / "empty").mkdir()
    assert demo(tmp_path / "empty")[0] == DONE


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert main(["demo", str(tmp_path / "none")]) == USAGE


def _drop_root() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def test_what_can_not_be_read_is_passed_over(folder: Path) -> None:
    (folder / "folder 0").chmod(0)
    (folder / "folder 1" / "file1").chmod(0)
    # Root may read everything, and its temporary folders are closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        moved = Path(place) / "files"
        shutil.move(folder, moved)
        for path in (Path(place), moved, *moved.rglob("*")):
            if os.getuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        forking = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(1, mp_context=forking, initializer=_drop_root) as pool:
            found = pool.submit(demo_module.find, moved, Path("/nowhere")).result(30)
        (moved / "folder 0").chmod(0o700)
    files, skipped = found
    assert skipped == {"unreadable": 2}
    assert len(files) == 39


def test_its_own_folder_is_passed_over(folder: Path) -> None:
    assert len(demo_module.find(folder, folder / "folder 1")[0]) == 40
