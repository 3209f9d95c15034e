"""``jobboard completion``, and what a shell is offered as the values of options."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import click

from jobboard.cli.common import DONE, BoardOptions, example, opened

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# A shell puts it on the command line without a thought, and who presses Enter runs it: nothing that a shell acts on.
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
def completion(context: click.Context, shell: str) -> int:
    """Print a script that teaches a shell to complete commands, options, states, events and the names of jobs.

    For the names of jobs, the board of JOBBOARD_URL or --board is asked for its first jobs and its conductors.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "jobboard", "_JOBBOARD_COMPLETE").source())
    return DONE


def states_on_board(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem | str]:
    from jobboard.states import LIVE

    return [str(state) for state in sorted(LIVE) if state.startswith(begun.upper())]


def priorities(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem | str]:
    from jobboard.priorities import JobPriority

    return [name for name in JobPriority.__members__ if name.startswith(begun.upper())]


def event_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem | str]:
    from jobboard.notifier import REMOTE

    return [event for event in sorted(REMOTE) if event.startswith(begun.upper())]


def job_names(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem | str]:
    """Of the first page of jobs, and of what the conductors run: two requests, whatever there is on the board."""
    from jobboard.board import PAGE

    found: set[str] = set()
    # Whatever is wrong, a shell can't show it to who has pressed a key.
    with contextlib.suppress(Exception), opened(_settings(context), retry_for=0) as board:
        for entity in board.entities("conductor"):
            found.update(map(str, entity.metadata.get("names") or ()))
        page = board.door.page(None, PAGE, None, None)
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
    """What was typed so far: the functions of commands are not called for a completion."""
    given: dict[str, str] = {}
    at: click.Context | None = context
    while at is not None:
        for name in ("board_uri", "board_name"):
            if at.params.get(name):
                given.setdefault(name, at.params[name])
        at = at.parent
    return BoardOptions(asked_for=given.get("board_uri"), name=given.get("board_name"))
