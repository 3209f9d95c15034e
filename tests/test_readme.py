"""README, typed word for word: the newcomer's first command in a clean clone, and the tour in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.testing import eventually
from tests.conftest import TRUSTED

# Nothing here is on a backend of the run's: once will do.
pytestmark = pytest.mark.backends("sqlite")

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.rst").read_text()
TOUR = README[README.index("\nA short tour\n") : README.index("\nMore\n====")]
HANDLERS = "# handlers.py\n"


def blocks(language: str) -> list[str]:
    """The code of the tour, as one copies it."""
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", TOUR, re.MULTILINE)
    assert found
    return [re.sub("^    ", "", block, flags=re.MULTILINE).strip() + "\n" for block in found]


@pytest.fixture
def env() -> dict[str, str]:
    """Of a user whose environment is this one, and has not been told of any board."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(("JOBBOARD", "SSL_CERT"))}
    return {**told, **TRUSTED, "PATH": f"{Path(sys.executable).parent}:{told['PATH']}", "PYTHONUNBUFFERED": "1"}


@contextmanager
def typed(command: list[str], folder: Path, env: dict[str, str]) -> Iterator[Path]:
    """What runs until Ctrl-C, and the file to which it prints; in the end Ctrl-C is pressed."""
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield log
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(30)


def test_the_tour(tmp_path: Path, env: dict[str, str]) -> None:
    code = blocks("python")
    [handlers] = [block for block in code if block.startswith(HANDLERS)]
    (tmp_path / "handlers.py").write_text(handlers)
    program = "".join(block for block in code if block is not handlers)
    with typed([sys.executable, "-c", program], tmp_path, env) as log:
        eventually(lambda: "c.jpg" in log.read_text(), 30)
    assert log.read_text().splitlines() == [
        "resize {'path': 'b.jpg', 'width': 300}",
        "resizing a.jpg",
        "resizing c.jpg",
    ]

    [script] = blocks("shell")
    export, *lines = script.splitlines()
    shown: dict[str, str] = {}
    for line in lines:
        command = ["bash", "-c", f"{export}; exec {line}"]
        name = line.split()[1]
        if name in ("work", "top"):
            with typed(command, tmp_path, env) as log:
                word = "resizing d.jpg" if name == "work" else "unclaimed 0"
                eventually(lambda log=log, word=word: word in log.read_text(), 30)
            shown[name] = log.read_text()
        else:
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), line
            shown[name] = done.stdout
    assert list(shown) == ["post", "stats", "work", "top", "trash"]
    assert re.search(r"^board 'pictures'\n(.*\n)*unclaimed +1$", shown["stats"], re.MULTILINE)
    assert "consumed 1" in shown["work"]
    assert "empty" in shown["trash"]


@pytest.mark.timeout(600)
def test_the_first_command_in_a_clean_clone(tmp_path: Path, env: dict[str, str]) -> None:
    [first] = re.findall(r"From a clone::\n\n    (.*)\n", README)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    if not names:  # unpacked, not cloned
        names = [str(path.relative_to(ROOT)) for path in (ROOT / "jobboard").rglob("*") if path.is_file()]
        names += [path.name for path in ROOT.iterdir() if path.is_file()]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    if listed.stdout:
        subprocess.run("git init -q && git add -A", shell=True, cwd=tmp_path, check=True)
    done = subprocess.run(["bash", "-c", first], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {
        line.rpartition("  ")[0].strip(): line.rpartition(" ")[2] for line in map(str.strip, done.stdout.splitlines())
    }
    assert int(rows["posted"]) == int(rows["consumed"]) == len(names)
    assert (rows["lost"], rows["wrong"]) == ("0", "0")
    # Its last sentence names what to type next, in the environment that it has made.
    [activate] = re.findall(r"environment is active\n\(``(.*)``\)", README)
    [post, look] = re.findall("'(jobboard .*?)'", done.stdout.splitlines()[-1])
    script = f"{activate} && {post} && {look}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    uuid, *listing = done.stdout.splitlines()
    assert re.match(rf"{uuid}  hello +UNCLAIMED ", listing[-1])


def test_configurations_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tour, and the URIs of the table; servers are not asked."""
    monkeypatch.chdir(tmp_path)
    given: list[Any] = [json.loads(line) if line[0] == "{" else line for line in blocks("text")[0].splitlines()]
    table = README[README.index("\nBackends\n====") :]
    uris = re.findall(r"^[A-Z]?[\w, ]+? {2,}``(.*?)`` {2,}", table, re.MULTILINE)
    assert (len(given), len(uris)) == (3, 7)
    for conf in given + uris:
        assert jobboard.fetch("pictures", conf).name == "pictures"


def test_calls_in_the_text(tmp_path: Path) -> None:
    """Each call of a board's verb that the README mentions can be typed."""
    calls = re.findall(r"``(board\.\w+\([^`]+\))``", " ".join(README.split()))
    assert len(calls) >= 3
    with jobboard.backend("pictures", f"sqlite:///{tmp_path}/pictures.db") as board:
        for call in calls:
            eval(call, {"board": board})
        assert [each.id for each in board.schedules()] == ["nightly"]
        assert "mail" in board.paused()
        assert [each.name for each in board.limits()] == ["resize"]
