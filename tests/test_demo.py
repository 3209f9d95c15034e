"""``jobboard demo``, end to end: real worker processes, and one of them killed."""

import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobboard.cli import demo_files, demo_run, main

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
    assert report["jobs_per_second"] > 0


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
    def planted(path: str) -> str:
        return "0" * 64 if path.endswith("file17") else digest(path)

    digest = demo_files.digest
    monkeypatch.setattr(demo_files, "digest", planted)
    status, report = demo(folder)
    assert status == FAILED
    assert (report["wrong"], report["lost"], report["ok"]) == (1, 0, False)
    assert report["problems"] == ["wrong: folder 2/file17"]


def test_a_lost_result(folder: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = demo_run._judge

    def planted(board: Any, root: Any, stamps: Any, posted: Any, results: Any, *rest: Any) -> None:
        results.by_job.popitem()
        judge(board, root, stamps, posted, results, *rest)

    monkeypatch.setattr(demo_run, "_judge", planted)
    status, report = demo(folder)
    assert status == FAILED
    assert (report["lost"], report["wrong"]) == (1, 0)
    assert "lost: " in report["problems"][0]


def test_files_that_change_or_vanish_are_reported_as_such(
    folder: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = demo_run._judge

    def planted(*args: Any) -> None:
        (folder / "folder 0" / "file3").write_text("something else")
        (folder / "folder 1" / "file4").unlink()
        judge(*args)

    monkeypatch.setattr(demo_run, "_judge", planted)
    status, report = demo(folder)
    assert status == DONE
    assert (report["lost"], report["wrong"], report["changed"]) == (0, 0, 2)
    assert sorted(report["problems"]) == ["changed meanwhile: folder 0/file3", "vanished meanwhile: folder 1/file4"]


def test_a_worker_that_can_not_work(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("jobboard.cli.demo_worker.__name__", "jobboard.cli.no_such_worker")
    assert main(["demo", str(folder)]) == FAILED
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("jobboard: worker 1 ended with status 2")


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


def test_paths_come_through_whole() -> None:
    for raw in (b"a", "é/ö".encode(), b"\xff/\xfe", b"a\nb"):
        path = os.fsdecode(raw)
        assert os.fsencode(demo_files.unpack(demo_files.pack(path))) == raw


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
            found = pool.submit(demo_files.find, moved, Path("/nowhere")).result(30)
        (moved / "folder 0").chmod(0o700)
    assert found.skipped == {"unreadable": 2}
    assert len(found.files) == 39


def test_its_own_folder_is_passed_over(folder: Path) -> None:
    assert len(demo_files.find(folder, folder / "folder 1").files) == 40
