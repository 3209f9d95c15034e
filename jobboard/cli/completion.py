"""``jobboard completion``, and the values of options that a shell offers."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import click

from jobboard.cli.common import BoardOptions, example

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# A shell puts a name on the command line, and Enter runs the line: no name holds a character that a shell acts on.
_PLAIN = re.compile(r"[\w.,@%+/-]+")

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=example(
        "jobboard completion bash > ~/.local/share/bash-completion/completions/jobboard",
        "echo 'eval \"$(jobboard completion zsh)\"' >> ~/.zshrc",
        "jobboard completion fish > ~/.config/fish/completions/jobboard.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that teaches a shell to complete words.

    It completes commands, options, states, events and the names of jobs. For these names, the board of JOBBOARD_URL or
    --board is asked for its first jobs and its conductors.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "jobboard", "_JOBBOARD_COMPLETE").source())


def priorities(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem | str]:
    from jobboard.priorities import JobPriority

    return [name for name in JobPriority.__members__ if name.startswith(begun.upper())]


def job_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem | str]:
    """Return names from the first page of jobs, and those that conductors handle: two requests on any board."""
    from jobboard.primitives import PAGE

    found: set[str] = set()
    # A shell can't show an error while a user types.
    with contextlib.suppress(Exception), _settings(context).opened(retry_for=0) as board:
        for entity in board.entities("conductor"):
            found.update(map(str, entity.metadata.get("names") or ()))
        page = board.engine.page(None, PAGE, None, None)
        found.update(seen.record.name for seen in page if seen.record is not None)
    return sorted(name for name in found if name.startswith(begun) and _PLAIN.fullmatch(name))


names_option = click.option(
    "--job",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=job_names,
    help="Only jobs of this name; may be repeated.",
)


def _settings(context: click.Context) -> BoardOptions:
    """Return the settings of an unfinished command line, for which no function of a command is called."""
    given: dict[str, str] = {}
    at: click.Context | None = context
    while at is not None:
        for name in ("board_uri", "board_name"):
            if at.params.get(name):
                given.setdefault(name, at.params[name])
        at = at.parent
    return BoardOptions(given.get("board_uri"), given.get("board_name"))
