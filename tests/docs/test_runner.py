"""The runner of pages finds each fault of a page, and its line. The pages of the manual show what the runner can do."""

from __future__ import annotations

import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import PageError, matches, parse
from tests.docs.page import replaced
from tests.docs.test_pages import run

pytestmark = pytest.mark.backends("sqlite")

Complaint = Callable[..., str]
TITLE = "A page\n======\n\n"


def block(language: str, *lines: str, output: str | None = None, **options: str) -> str:
    """Return a block with these lines, and perhaps with one that shows its output."""
    head = "".join(f"    :{name}: {value}\n" for name, value in options.items())
    text = f".. code-block:: {language}\n{head}\n{textwrap.indent(chr(10).join(lines), '    ')}\n\n"
    return text if output is None else text + block("text", *output.split("\n"), **{"class": "output"})


def other(language: str, *lines: str) -> str:
    return block(language, *lines, **{"class": "other"})


@pytest.fixture
def complaint(tmp_path: Path) -> Complaint:
    """``complaint(text)``: what the run of a page says, or nothing."""

    def of(text: str, limit: float = 30) -> str:
        page = tmp_path / "page.rst"
        page.write_text(TITLE + text)
        return run(page, {}, limit).replace(str(page), "page")

    return of


def test_a_true_page_has_no_complaint(complaint: Complaint) -> None:
    """An error and an exit status are part of what a page shows."""
    page = [
        "A sentence.\n\n",
        block("json", '{"a": 1}', caption="settings.json"),
        block("systemd", "[Service]", caption="worker@.service"),
        block("console", "$ cat settings.json worker@.service", '{"a": 1}', "[Service]", "$ sleep 60 &"),
        block("console", "$ export A=1 \\", "> B=2", "$ echo $A$B", "1...", "$ false", "[exit 1]"),
        block("shell", 'test "$B" = 2'),
        block("python", "print('one')", "1 / 0", output="one\nZeroDivisionError: ..."),
        '.. stop: "ready"\n',
        block("console", "$ echo ready && sleep 60", "ready"),
        ".. stop: 0.1\n",
        block("python", "import time", "while True:", "    time.sleep(0.01)"),
        other("python", "from celery import Celery"),
        block("diff", "-import celery"),
    ]
    assert (found := complaint("".join(page))) == "", found


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            block("python", 'print("one")', 'print("two")', output="one\nthree"),
            "page:9: the output differs\nexpected:\n    one\n    three\ngot:\n    one\n    two",
        ),
        (
            block("console", "$ true", "$ echo one", "two"),
            "page:7: the output differs\n    $ echo one\nexpected:\n    two\ngot:\n    one",
        ),
        (block("python", "a = 1", "", "1 / 0"), "page:8: the block raises\n    Traceback"),
        (block("python", "1 / 0", output="ValueError: ..."), "page:8: the output differs"),
        (".. invisible-code-block: python\n\n    assert False\n", "page:6: the block raises"),
        (block("console", "$ false"), "page:6: the exit status is 1 in place of 0"),
        (block("console", "$ true", "[exit 1]"), "page:6: the exit status is 0 in place of 1"),
        (
            block("console", "$ false &") + block("console", "$ sleep 0.3"),
            "page:6: the command has ended with the exit status 1",
        ),
        (block("shell", "false", "true"), "page:6: the exit status is 1"),
        (other("python", "from celery import"), "page:7: the block is no Python"),
        (other("console", "$ celery worker", "$ if true"), "page:8: bash does not understand the command"),
        (block("json", '{"board": }'), "page:4: the block is no json"),
        (
            block("python", 'text = "sqlite:///jobs.db"') + block("sql", "SELECT * FROM nowhere", **{"class": "run"}),
            "page:8: the SQL fails",
        ),
    ],
)
def test_a_page_with_a_fault(page: str, said: str, complaint: Complaint) -> None:
    assert complaint(page).startswith(said)


def test_a_page_that_does_not_end(complaint: Complaint) -> None:
    assert complaint(block("console", "$ sleep 60"), 5) == "page:6: $ sleep 60: the page is not done after 5 s"


def test_only_the_agreed_uris_are_replaced() -> None:
    given = "mysql://app:secret@db/prod?table=a redis://cache:6379/01 redis://other:6379/0"
    expected = "mariadb://root@h:1/b?table=a redis://cache:6379/01 redis://other:6379/0"
    assert replaced(given, {"mariadb": "mariadb://root@h:1/b", "redis": "redis://h:1/0"}) == expected


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (block("bash", "true"), "'bash' is unknown"),
        (block("", "true"), "'' is unknown"),
        (".. code:: python\n\n    True\n", "is not run: write .. code-block::"),
        ("It is::\n\n    true\n", "a literal block is not run"),
        (".. skip: next\n\n.. code-block:: python\n\n    True\n", 'write .. skip: next "reason"'),
        (".. stop: idle\n\nA paragraph.\n", "stands before no block"),
    ],
)
def test_a_block_that_the_runner_does_not_know(page: str, said: str) -> None:
    with pytest.raises(PageError, match=said):
        parse(TITLE + page)


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a   b\n", "a b", True),
        ("a\nb", "a b", False),
        ("a...d", "a b\nc d", True),
        ("a\n...\nb", "a\nb", True),
        ("a\n...\nb", "a\nx\ny\nb", True),
        ("a\n...", "a", True),
        ("a\n...", "b\na", False),
        ("...", "", True),
        ("a.c", "abc", False),
        ("a", "a\nb", False),
    ],
)
def test_outputs(expected: str, got: str, same: bool) -> None:
    assert matches(expected, got) is same


def test_a_forked_command_ends_as_the_real_one(quick_commands: Path, tmp_path: Path) -> None:
    """By a status or by a signal, and with its launcher."""
    command = [quick_commands / "jobboard", "--board", f"sqlite:///{tmp_path}/jobs.db"]
    refused = subprocess.run([*command, "polish"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "polish" in refused.stderr
    posting = [*command, "post", "--from", "-"]
    posted = subprocess.run(posting, input='{"name": "resize"}', capture_output=True, text=True, check=False)
    assert (posted.returncode, posted.stderr) == (0, "")
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(posting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.send_signal(number)
            # The fork has the other end of the pipe.
            assert process.stdout.read() == b""
        assert process.returncode == -number
