"""The documents' commands and the guide's first steps, as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

import jobboard
from jobboard.cli.root import root

# Nothing here is on a backend of the run's: once will do.
pytestmark = pytest.mark.backends("sqlite")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "docs").glob("*.rst"))]
COMMAND = re.compile(r"^ {4}(?:.*[|(] *)?((?:\.venv/bin/)?jobboard (?!-m).*)$", re.MULTILINE)
ENDS = {"|", "||", "&&", ";", ">", ">>", "<", ")"}


def commands() -> list[tuple[str, str]]:
    """The command lines of the documents, each with its page."""
    texts = [(page.name, page.read_text().replace("\\\n", "")) for page in PAGES]
    return [(page, line) for page, text in texts for line in COMMAND.findall(text)]


def words_of(line: str) -> list[str]:
    """The words that the command gets from a shell, up to a pipe or the like."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if word in ENDS:
            break
        found.append(word)
    return found[1:]


def understand(line: str, home: Path) -> None:
    """Have click read a command line, and run nothing.

    :raises click.UsageError: it has an option or an argument that the command does not know.
    """
    words = [str(home) if word.startswith("~") else word for word in words_of(line)]
    context, command = root.make_context("jobboard", words), root
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)


def test_each_command_of_the_documents_is_understood(tmp_path: Path) -> None:
    given = commands()
    assert len(given) > 50
    wrong = []
    for page, line in given:
        try:
            understand(line, tmp_path)
        except click.UsageError as error:
            wrong.append(f"{page}: {line}: {error.format_message()}")
    assert wrong == []


def guide(title: str) -> list[str]:
    """The Python code of a section."""
    text = (ROOT / "docs/guide.rst").read_text()
    section = re.search(rf"^{title}\n-+\n((?:.*\n)*?)(?=\n.+\n-{{3,}}\n|\Z)", text, re.MULTILINE)
    assert section is not None
    found = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", section[1], re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_first_steps_of_the_guide(tmp_path: Path) -> None:
    """On a file, where the guide names a server."""
    [opening] = guide("Boards")
    opened = opening.replace("postgresql://app@db/prod?", f"sqlite:///{tmp_path}/jobs.db?")
    assert opened != opening
    names: dict[str, Any] = {"jobboard": jobboard}
    exec(opened, names)
    board = names["board"]
    try:
        assert board.characteristics.claim_ttl == 30
        exec(guide("Posting")[0], names)
        [job] = board.iterjobs()
        assert job == names["job"]
        assert (job.name, job.details, job.priority, job.max_attempts) == ("resize", {"path": "a.jpg"}, 50, 5)
        assert (job.key, job.context, job.group) == ("resize a.jpg", {"request": "7f3a"}, "customer-7")
        assert job.state == "SCHEDULED"
    finally:
        board.close()
