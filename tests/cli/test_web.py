"""``jobboard web``: whom it serves, its start and its end."""

from __future__ import annotations

import base64
import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from jobboard.testing import eventually
from jobboard.web.guard import TRIES
from tests.support.commands import Commands
from tests.support.programs import running
from tests.web.browser import Browser

pytestmark = pytest.mark.backends("sqlite")


@contextlib.contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[Browser]:
    """Give a browser at the address of the command."""
    log = tmp_path / "log"
    with running(tmp_path, log, "-m", "jobboard.cli", "web", "--port", "0", *options, ends=-signal.SIGTERM):
        yield Browser(eventually(lambda: re.search(r"http://[^/\s]+(?=/\S*  Ctrl-C)", log.read_text()), 60).group(0))


def test_a_board_is_served_until_the_end(board: Any, tmp_path: Path) -> None:
    board.cancel(board.post("resize"))
    with served(tmp_path) as browser:
        assert browser.get("/").status == 200
        assert browser.at == f"/{board.name}/"
        browser.get(f"/{board.name}/trash")
        assert "1 job restored." in browser.press("Restore", job=1).text
        browser.host = "evil.example"
        assert browser.get("/").status == 421
    assert [failure.text for failure in next(board.find()).errors][-1] == "restored by a visitor of the page"


@pytest.mark.rule("The page works under any path, and its addresses stay under it.")
def test_a_proxy_may_add_a_path(board: Any, tmp_path: Path) -> None:
    """The proxy takes the path off again before it asks the page."""
    board.cancel(board.post("resize"))
    with served(tmp_path, "--prefix", "/jobs/") as browser:
        assert browser.request("GET", "/").header("location") == f"/jobs/{board.name}/"
        page = browser.get(f"/{board.name}/trash")
        assert set(re.findall(r'(?:href|src|action|data-state)="(/\w*)', page.body)) == {"/jobs"}
        [form] = [each for each in page.forms if "Restore" in each.buttons]
        sent = [*form.fields, *form.boxes[:1], form.buttons["Restore"]]
        answer = browser.request("POST", form.action.removeprefix("/jobs"), urlencode(sent))
        assert answer.header("location") == f"/jobs/{board.name}/trash"


@pytest.mark.rule("Beyond this machine the page asks for a password, and lets visitors only look.")
def test_a_password_is_needed_beyond_this_machine(board: Any, run: Commands, tmp_path: Path) -> None:
    empty, word = tmp_path / "empty", tmp_path / "word"
    empty.write_text("\n")
    word.write_text("sesame\n")
    for options in (["--host", "0.0.0.0"], ["--host", "::"], ["--origin", "https://jobs.example"]):
        assert run("web", *options, status=2).is_one_line_about("--password-file")
    assert run("web", "--password-file", str(empty), status=2).is_one_line_about("is empty")
    with served(tmp_path, "--host", "0.0.0.0", "--password-file", str(word)) as browser:
        assert browser.get("/").status == 401
        browser.headers["authorization"] = "Basic bWFyaWE6c2VzYW1l"
        assert "look only" in browser.get("/").text


@pytest.mark.rule("Wrong passwords of the page make their address wait, and no other one.")
def test_a_proxy_tells_who_guesses(board: Any, tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("sesame\n")
    with served(tmp_path, "--password-file", str(word)) as browser:

        def guess(password: str, client: str) -> int:
            given = base64.b64encode(f"maria:{password}".encode()).decode()
            return browser.get("/", authorization=f"Basic {given}", x_forwarded_for=client).status

        assert {guess(f"word{n}", "10.0.0.1") for n in range(TRIES)} == {401}
        assert guess("sesame", "10.0.0.1") == 429
        assert guess("sesame", "10.0.0.2") == 200
        assert guess("sesame", "10.0.0.2, 10.0.0.1") == 429


def test_a_board_that_was_never_set_up_is_refused(run: Commands, tmp_path: Path) -> None:
    assert "jobboard setup" in run("web", "--board", f"sqlite:///{tmp_path}/none.db", "--port", "0", status=1).err
