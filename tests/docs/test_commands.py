"""The command lines of the documents: click understands each, also where no test runs it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from jobboard.cli.root import root

# Nothing here is on a backend of the run's: once will do.
pytestmark = pytest.mark.backends("sqlite")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "docs").rglob("*.rst"))]
COMMAND = re.compile(
    r"^ {3,}(?:\$ |ExecStart=\S*/|.*[|(] *)?((?:\.venv/bin/)?jobboard (?!-m).*)$"
    # Pages show errors, too.
    r"(?!(?:\n(?! *\$ ).*)*?\n *\[exit 2\])",
    re.MULTILINE,
)
ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", ")"}


def commands() -> list[tuple[str, str]]:
    """The command lines of the documents, each with its page."""
    texts = [(str(page.relative_to(ROOT)), re.sub(r"\\\n(?: *> )?", "", page.read_text())) for page in PAGES]
    return [(page, line) for page, text in texts for line in COMMAND.findall(text)]


def words_of(line: str) -> list[str]:
    """The words that the command gets from a shell, up to a pipe or the like."""
    # The output of another command is a word.
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "word", line), posix=True, punctuation_chars=True)
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


def test_each_command_of_the_documents_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The modules of --cipher are the readers' own.
    monkeypatch.setattr("jobboard.cli.common.load", lambda spec: spec)
    given = commands()
    assert len(given) > 50
    wrong = []
    for page, line in given:
        try:
            understand(line, tmp_path)
        except click.exceptions.Exit:
            # It prints the version, or a help.
            pass
        except click.UsageError as error:
            wrong.append(f"{page}: {line}: {error.format_message()}")
    assert wrong == []


@pytest.mark.parametrize(
    "line", ["jobboard lists", "jobboard list --colour", "jobboard post a b", "jobboard schedule put"]
)
def test_a_wrong_command_is_not_understood(line: str, tmp_path: Path) -> None:
    with pytest.raises(click.UsageError):
        understand(line, tmp_path)


def test_commands_are_found_where_documents_have_them() -> None:
    text = """
    $ jobboard stats | head
    $ jobboard lists
    jobboard: no such command
    [exit 2]
    $ jobboard top
    ExecStart=/opt/app/bin/jobboard work tasks
"""
    assert COMMAND.findall(text) == ["jobboard stats | head", "jobboard top", "jobboard work tasks"]
