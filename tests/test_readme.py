"""README, typed word for word: the newcomer's first command in a clean clone, and its code in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jobboard
from tests.conftest import TRUSTED
from tests.docs.test_pages import run
from tests.test_packaging import sources

# Nothing here is on a backend of the run's: once will do.
pytestmark = pytest.mark.backends("sqlite")

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.rst"
README = PAGE.read_text()


@pytest.fixture
def env() -> dict[str, str]:
    """Of a user whose environment is this one, and has not been told of any board."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(("JOBBOARD", "SSL_CERT"))}
    return {**told, **TRUSTED, "PATH": f"{Path(sys.executable).parent}:{told['PATH']}", "PYTHONUNBUFFERED": "1"}


@pytest.mark.rule("The tour of README works word for word.")
def test_the_code() -> None:
    assert run(PAGE, {}) == ""


def test_links_lead_to_files() -> None:
    links = re.findall(r"<([^>\s]+)>`_|^\.\. image:: (\S+)", README, re.MULTILINE)
    assert len(links) > 20
    assert [link for pair in links for link in pair if link and not (ROOT / link).is_file()] == []


@pytest.mark.timeout(600)
def test_the_first_command_in_a_clean_clone(tmp_path: Path, env: dict[str, str]) -> None:
    [first] = re.findall(r"^    (python3 -m venv .*)\n", README, re.MULTILINE)
    names = sources()
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run("git init -q && git add -A", shell=True, cwd=tmp_path, check=True)
    done = subprocess.run(["bash", "-c", first], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {
        line.rpartition("  ")[0].strip(): line.rpartition(" ")[2] for line in map(str.strip, done.stdout.splitlines())
    }
    assert int(rows["posted"]) == int(rows["consumed"]) == min(len(names), 500)
    assert (rows["lost"], rows["wrong"]) == ("0", "0")
    # Its last sentence names what to type next, in the environment that it has made.
    [activate] = re.findall(r"environment is active \(``(.*?)``\)", README)
    [post, look] = re.findall("'(jobboard .*?)'", done.stdout.splitlines()[-1])
    script = f"{activate} && {post} && {look}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    uuid, *listing = done.stdout.splitlines()
    assert re.match(rf"{uuid}  hello +UNCLAIMED ", listing[-1])


def test_uris_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the table of backends; servers are not asked."""
    monkeypatch.chdir(tmp_path)
    uris = re.findall(r"^[A-Z]?[\w, ]+? {2,}``(.*?)`` {2,}", README, re.MULTILINE)
    assert len(uris) == 7
    for uri in uris:
        assert jobboard.fetch("pictures", uri).name == "pictures"
